//! Rows of results, and why results cannot be read.

use serde::{Deserialize, Serialize};

use super::collective::Collective;

/// Version of the document format.
pub const VERSION: u32 = 1;

/// Result for one size, type and reduction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Bytes of input or output of a rank, whichever is larger.
    pub bytes: u64,
    /// Number of elements: of one part where the data is divided into parts.
    pub count: u64,
    /// Type of the elements.
    pub dtype: String,
    /// Reduction, or `none`.
    pub op: String,
    /// Root of the operation, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<usize>,
    /// Duration of one operation, in microseconds.
    pub time_us: f64,
    /// Algorithm bandwidth: bytes divided by time, in GB/s.
    pub algbw_gbs: f64,
    /// Bus bandwidth, in GB/s.
    pub busbw_gbs: f64,
    /// Number of wrong elements on all ranks; `null` where results were not checked.
    pub wrong: Option<u64>,
    /// Number of timed operations; unknown for a table of another program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
}

/// Result for one pair of nodes or ranks, with transfers in both directions at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairRow {
    /// Name of one node or rank.
    pub left: String,
    /// Name of the other.
    pub right: String,
    /// Bytes in each direction.
    pub bytes: u64,
    /// Duration of one exchange, in microseconds.
    pub time_us: f64,
    /// Bandwidth in each direction, in GB/s.
    pub busbw_gbs: f64,
    /// Number of timed exchanges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
}

/// Error of reading earlier results.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The JSON is not a document of results, or is truncated.
    #[error("it is not a result of `remuda bench --json`: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The text is neither a document nor a table.
    #[error("it is neither a result of `remuda bench --json` nor a table of sizes and times")]
    UnknownFormat,
    /// The results are of another collective.
    #[error("it contains results of `{found}`, not of `{wanted}`")]
    OtherCollective {
        /// Name of the collective in the file.
        found: String,
        /// Collective of this run.
        wanted: Collective,
    },
    /// The document contains no results.
    #[error("it contains no results")]
    Empty,
    /// The document is of another version.
    #[error("its document version is {0}; this remuda reads version {VERSION}")]
    Version(u32),
}

#[cfg(test)]
impl Row {
    /// A row of `f32` sums that took `time_us`, with the resulting bandwidth.
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

/// Result of parsing: the number of ranks, if known, and the rows.
pub(super) type ParseResult = Result<(Option<usize>, Vec<Row>), DocumentError>;

/// Checks that results are of the wanted collective; `found` is its name in the file.
pub(super) fn check_collective(found: &str, wanted: Collective) -> Result<(), DocumentError> {
    if Collective::from_name(found) == Some(wanted) {
        return Ok(());
    }
    Err(DocumentError::OtherCollective { found: found.to_owned(), wanted })
}
