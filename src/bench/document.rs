//! Results as a versioned JSON document, and the reader of earlier results.

use serde::{Deserialize, Serialize};

use super::collective::Collective;
use super::hosts::BenchNode;
use super::import::parse_table;
use super::row::{DocumentError, PairRow, ParseResult, Row, VERSION, check_collective};

/// Results of a run, as written to a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Document {
    /// [`VERSION`] of the document.
    pub version: u32,
    /// Version of remuda.
    pub remuda: &'static str,
    /// UTC time of the measurement, such as `2026-11-22T17:31:09Z`.
    pub time: String,
    /// Name of the collective.
    pub collective: String,
    /// Name of the backend.
    pub backend: String,
    /// Order of reductions: `canonical` or `any`.
    pub order: String,
    /// Root of the operation, if it has one.
    pub root: Option<usize>,
    /// Number of ranks.
    pub world_size: usize,
    /// Number of nodes.
    pub nodes: usize,
    /// The nodes, with names and processors.
    pub hosts: Vec<BenchNode>,
    /// Results, in the order of the measurement.
    pub rows: Vec<Row>,
    /// Results of pairs, if pairs were measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<PairRow>,
    /// Earlier results that these were compared with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compared: Vec<Compared>,
}

/// Source of earlier results that a run was compared with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// Path of the file, as on the command line.
    pub file: String,
    /// Number of ranks of the earlier run; `null`: unknown.
    pub world_size: Option<usize>,
}

/// Results of an earlier run of remuda or of another program, which were read from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlierResults {
    /// Path of the file, as on the command line.
    pub file: String,
    /// Number of ranks of the earlier run; `None`: unknown.
    pub world_size: Option<usize>,
    /// Results; if the number of ranks is unknown, bus bandwidth assumes that of this run.
    pub rows: Vec<Row>,
}

impl Document {
    /// Returns the JSON text of the document, with one line for each value.
    pub fn show(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("numbers and texts serialize");
        text.push('\n');
        text
    }
}

impl EarlierResults {
    /// Returns the earlier result for the same size, type and reduction.
    pub fn matching_row(&self, bytes: u64, dtype: &str, op: &str) -> Option<&Row> {
        self.rows.iter().find(|earlier| {
            // A table of another program may not name the type and reduction.
            let is_same = |earlier: &str, now: &str| earlier.is_empty() || earlier == now;
            earlier.bytes == bytes && is_same(&earlier.dtype, dtype) && is_same(&earlier.op, op)
        })
    }

    /// Returns the entry for these results in a document.
    pub fn compared(&self) -> Compared {
        Compared { file: self.file.clone(), world_size: self.world_size }
    }
}

/// Parses earlier results of a collective, a JSON document or a table. `world` is the number of
/// ranks to assume where a table does not contain it.
pub fn parse_results(
    text: &str,
    file: String,
    collective: Collective,
    world: usize,
) -> Result<EarlierResults, DocumentError> {
    let read = if text.trim_start().starts_with(['{', '[']) {
        parse_document(text, collective)
    } else {
        parse_table(text, collective, world)
    };
    read.map(|(world_size, rows)| EarlierResults { file, world_size, rows })
}

fn parse_document(text: &str, collective: Collective) -> ParseResult {
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
            hosts: vec![BenchNode { name: "n1".to_owned(), ranks: 2, processors: 8 }],
            rows: vec![
                Row { root: Some(1), ..Row::for_test(8, 2.5) },
                Row { wrong: None, ..Row::for_test(16, 2.5) },
            ],
            pairs: Vec::new(),
            compared: Vec::new(),
        }
    }

    #[test]
    fn bench_document_is_read_back() {
        let document = document();
        let text = document.show();
        let read = |collective| parse_results(&text, "a.json".to_owned(), collective, 9);
        let earlier = read(Collective::Broadcast).expect("a document of remuda");
        assert_eq!((earlier.world_size, &earlier.rows), (Some(2), &document.rows));
        assert!(earlier.matching_row(16, "f32", "sum").is_some());
        assert_eq!(earlier.matching_row(16, "f64", "sum"), None);
        let error = read(Collective::Reduce).expect_err("another collective").to_string();
        assert_eq!(error, "it contains results of `broadcast`, not of `reduce`");
    }

    #[test]
    fn bench_document_rejects_other_texts() {
        #[track_caller]
        fn check(text: &str, part: &str) {
            let read = parse_results(text, "a".to_owned(), Collective::AllReduce, 2);
            let error = read.expect_err("it is no document").to_string();
            assert!(error.contains(part), "{error}");
        }
        check("", "nor a table of sizes and times");
        check("{", "not a result of `remuda bench --json`: EOF");
        check("[]", "not a result");
        check("{\"version\": 9}", "its document version is 9; this remuda reads version 1");
        check("{\"version\": 1}", "missing field `collective`");
    }
}
