//! Results as a versioned JSON document, and earlier ones read back.

use serde::{Deserialize, Serialize};

use super::collective::Collective;
use super::foreign::read_table;
use super::hosts::Host;

/// Version of the document.
pub const VERSION: u32 = 1;

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
    /// One node of the pair.
    pub left: String,
    /// The other node of the pair.
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

/// Results of a run, as they are written.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Document {
    /// 1.
    pub version: u32,
    /// Of the program.
    pub remuda: &'static str,
    /// When it was measured: `2026-11-22T17:31:09Z`.
    pub time: String,
    /// What was measured.
    pub collective: String,
    /// What moved the numbers.
    pub backend: String,
    /// In which order numbers were combined, where they were: `canonical` or `any`.
    pub order: String,
    /// The rank that is another than the others, where one is.
    pub root: Option<usize>,
    /// Ranks.
    pub world_size: usize,
    /// Nodes.
    pub nodes: usize,
    /// The same by name.
    pub hosts: Vec<Host>,
    /// Sizes, in the order in which they were measured.
    pub rows: Vec<Row>,
    /// Pairs of places, if pairs were measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<PairRow>,
    /// Earlier results that were looked at beside these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compared: Vec<Compared>,
}

/// Whose results were looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// The file, as it was named.
    pub file: String,
    /// Ranks that measured it; `null` where it does not say.
    pub world_size: Option<usize>,
}

/// Results that were read: of an earlier run, or of another program.
#[derive(Clone, Debug, PartialEq)]
pub struct Earlier {
    /// The file, as it was named.
    pub file: String,
    /// Ranks that measured it; `None` where it does not say.
    pub world_size: Option<usize>,
    /// Sizes; where ranks are unknown, bus bandwidth is as of so many as are here.
    pub rows: Vec<Row>,
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
    /// Of something else than what is measured.
    #[error("it is of `{found}`, not of `{wanted}`")]
    Other {
        /// In its own words.
        found: String,
        /// What is measured.
        wanted: Collective,
    },
    /// Ours, without results that could be compared.
    #[error("it has no sizes")]
    Empty,
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
    /// The document, in one line for each value.
    pub fn show(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("numbers and texts serialize");
        text.push('\n');
        text
    }
}

impl Earlier {
    /// What was measured for the same size, type and operation.
    pub fn row_like(&self, bytes: u64, dtype: &str, op: &str) -> Option<&Row> {
        self.rows.iter().find(|earlier| {
            // A table of somebody else may not say of what it is.
            let is_same = |earlier: &str, ours: &str| earlier.is_empty() || earlier == ours;
            earlier.bytes == bytes && is_same(&earlier.dtype, dtype) && is_same(&earlier.op, op)
        })
    }

    /// What the document says of it.
    pub fn compared(&self) -> Compared {
        Compared { file: self.file.clone(), world_size: self.world_size }
    }
}

/// Reads earlier results of a collective: a document of ours, or a table. `world` counts where a table
/// does not say how many ranks have measured it.
pub fn read_results(
    text: &str,
    file: String,
    collective: Collective,
    world: usize,
) -> Result<Earlier, DocumentError> {
    let read = if text.trim_start().starts_with(['{', '[']) {
        read_document(text, collective)
    } else {
        read_table(text, collective, world)
    };
    read.map(|(world_size, rows)| Earlier { file, world_size, rows })
}

/// Ranks, as far as they are known, and rows.
pub(super) type Read = Result<(Option<usize>, Vec<Row>), DocumentError>;

fn read_document(text: &str, collective: Collective) -> Read {
    #[derive(Deserialize)]
    struct Head {
        version: u32,
    }
    #[derive(Deserialize)]
    struct Body {
        collective: String,
        world_size: usize,
        rows: Vec<Row>,
    }
    let Head { version } = serde_json::from_str(text)?;
    if version != VERSION {
        return Err(DocumentError::Version(version));
    }
    let body: Body = serde_json::from_str(text)?;
    check_collective(&body.collective, collective)?;
    if body.rows.is_empty() {
        return Err(DocumentError::Empty);
    }
    Ok((Some(body.world_size), body.rows))
}

/// That results are of the collective that is measured; `found` is somebody else's word for theirs.
pub(super) fn check_collective(found: &str, wanted: Collective) -> Result<(), DocumentError> {
    if Collective::of_name(found) == Some(wanted) {
        return Ok(());
    }
    Err(DocumentError::Other { found: found.to_owned(), wanted })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        Document {
            version: VERSION,
            remuda: env!("CARGO_PKG_VERSION"),
            time: "2026-11-22T17:31:09Z".to_owned(),
            collective: "broadcast".to_owned(),
            backend: "host".to_owned(),
            order: "canonical".to_owned(),
            root: Some(1),
            world_size: 2,
            nodes: 1,
            hosts: vec![Host { name: "n1".to_owned(), ranks: 2, processors: 8 }],
            rows: vec![
                Row { root: Some(1), ..Row::for_test(8, 2.5) },
                Row { wrong: None, ..Row::for_test(16, 2.5) },
            ],
            pairs: Vec::new(),
            compared: Vec::new(),
        }
    }

    #[test]
    fn what_was_written_is_read_back() {
        let document = document();
        let text = document.show();
        let read = |collective| read_results(&text, "a.json".to_owned(), collective, 9);
        let earlier = read(Collective::Broadcast).expect("our own text");
        assert_eq!((earlier.world_size, &earlier.rows), (Some(2), &document.rows));
        assert!(earlier.row_like(16, "f32", "sum").is_some());
        assert_eq!(earlier.row_like(16, "f64", "sum"), None);
        let error = read(Collective::Reduce).expect_err("it is of another").to_string();
        assert_eq!(error, "it is of `broadcast`, not of `reduce`");
    }

    #[test]
    fn other_texts_are_refused() {
        #[track_caller]
        fn check(text: &str, part: &str) {
            let read = read_results(text, "a".to_owned(), Collective::AllReduce, 2);
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
