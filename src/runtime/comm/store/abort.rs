//! Record of the first failure of a job, in the store.

use serde::{Deserialize, Serialize};

use crate::base::Rank;
use crate::runtime::comm::core::abort::Loss;

/// Key in the store for the abort record of a job: that of the first rank that fails.
pub(crate) const ABORT_KEY: &str = "abort";

/// Serialized form of an `AbortRecord` in the store.
#[derive(Serialize, Deserialize)]
pub(crate) struct AbortNotice {
    pub(crate) by: Rank,
    pub(crate) lost: Option<Loss>,
    pub(crate) reason: String,
}
