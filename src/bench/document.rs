//! Results as a versioned JSON document, and earlier ones read back.

use serde::{Deserialize, Serialize};

use super::collective::Collective;
use super::foreign::read_table;

/// Version of the document.
pub(super) const VERSION: u32 = 1;

/// One size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What a rank gives or takes, whichever is more.
    pub bytes: u64,
    /// Elements: of a part where there are parts.
    pub count: u64,
    /// Their type.
    pub dtype: String,
    /// How they are combined, or `none`.
    pub op: String,
    /// The rank that is another than the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<usize>,
    /// Microseconds of one operation.
    pub time_us: f64,
    /// Algorithm bandwidth: bytes by time, in GB/s.
    pub algbw_gbs: f64,
    /// Bus bandwidth, in GB/s.
    pub busbw_gbs: f64,
    /// Numbers that were not what they must be, of all ranks; `null` where nobody looked.
    pub wrong: Option<u64>,
    /// Operations that were timed; unknown of a table of another program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
}

/// Both ways between two places.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairRow {
    /// One.
    pub left: String,
    /// The other.
    pub right: String,
    /// Bytes each way.
    pub bytes: u64,
    /// Microseconds of one exchange.
    pub time_us: f64,
    /// Each way at once, in GB/s.
    pub busbw_gbs: f64,
    /// Exchanges that were timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
}

/// Results of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// 1.
    pub version: u32,
    /// What was measured.
    pub collective: String,
    /// What moved the numbers.
    pub backend: String,
    /// Ranks.
    pub world_size: usize,
    /// Nodes.
    pub nodes: usize,
    /// Sizes, in the order in which they were measured.
    pub rows: Vec<Row>,
    /// Pairs of places, if pairs were measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<PairRow>,
}

/// Why a text holds no results.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// Something else, or cut.
    #[error("it holds no results of `remuda bench --json`: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Neither ours nor a table.
    #[error("it holds no results of `remuda bench --json`, and no table of sizes and times")]
    NoTable,
    /// Of another release.
    #[error("its version is {0}, we read {VERSION}")]
    Version(u32),
}

#[cfg(test)]
impl Row {
    /// A row of `f32` sums that took `time_us`, with the bus bandwidth that this makes.
    pub(super) fn for_test(bytes: u64, time_us: f64) -> Self {
        let busbw_gbs = bytes as f64 / time_us / 1e3;
        Self {
            bytes,
            count: bytes / 4,
            dtype: "f32".to_owned(),
            op: "sum".to_owned(),
            root: None,
            time_us,
            algbw_gbs: busbw_gbs,
            busbw_gbs,
            wrong: Some(0),
            iterations: Some(20),
        }
    }
}

impl Document {
    /// The document, in one line for each row.
    pub fn show(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("numbers and texts serialize");
        text.push('\n');
        text
    }

    /// What an earlier run has measured for the same size.
    pub fn row_like(&self, row: &Row) -> Option<&Row> {
        self.rows.iter().find(|earlier| {
            // A table of somebody else may not say of what it is.
            let is_same = |earlier: &str, ours: &str| earlier.is_empty() || earlier == ours;
            earlier.bytes == row.bytes
                && is_same(&earlier.dtype, &row.dtype)
                && is_same(&earlier.op, &row.op)
        })
    }
}

/// Reads earlier results of a collective: a document of ours, or a table that somebody else has
/// measured with `world` ranks.
pub fn read_results(
    text: &str,
    collective: Collective,
    world: usize,
) -> Result<Document, DocumentError> {
    if text.trim_start().starts_with(['{', '[']) {
        read_document(text)
    } else {
        read_table(text, collective, world).ok_or(DocumentError::NoTable)
    }
}

fn read_document(text: &str) -> Result<Document, DocumentError> {
    #[derive(Deserialize)]
    struct Head {
        version: u32,
    }
    let Head { version } = serde_json::from_str(text)?;
    if version != VERSION {
        return Err(DocumentError::Version(version));
    }
    Ok(serde_json::from_str(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        Document {
            version: VERSION,
            collective: "broadcast".to_owned(),
            backend: "host".to_owned(),
            world_size: 2,
            nodes: 1,
            rows: vec![
                Row { root: Some(1), ..Row::for_test(8, 2.5) },
                Row { wrong: None, ..Row::for_test(16, 2.5) },
            ],
            pairs: Vec::new(),
        }
    }

    #[test]
    fn what_was_written_is_read_back() {
        let document = document();
        assert_eq!(read_document(&document.show()).expect("our own text"), document);
        assert!(document.row_like(&document.rows[1]).is_some());
    }

    #[test]
    fn other_texts_are_refused() {
        #[track_caller]
        fn check(text: &str, part: &str) {
            let read = read_results(text, Collective::AllReduce, 2);
            let error = read.expect_err("it is no document").to_string();
            assert!(error.contains(part), "{error}");
        }
        check("", "and no table of sizes and times");
        check("{", "no results of `remuda bench --json`: EOF");
        check("[]", "no results");
        check("{\"version\": 9}", "its version is 9, we read 1");
        check("{\"version\": 1}", "missing field `collective`");
    }
}
