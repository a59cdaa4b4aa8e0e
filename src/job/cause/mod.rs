//! Why a job failed.
//!
//! | file | contents |
//! |---|---|
//! | `failure` | failures and their verdict, as data |
//! | `root_cause` | which failure of several is the cause |
//! | `greatest_status` | the same where workers do not need each other |
//! | `different_calls` | ranks that called another operation than the others |
//! | `missing_ranks` | ranks for which the others waited until their timeout |
//! | `evidence`, `error_file`, `traceback`, `rust_panic`, `usage_error`, `known_texts` | what a failed worker left behind |
//! | `code_place` | a place in its program |

pub(crate) mod code_place;
mod different_calls;
pub(crate) mod error_file;
pub(crate) mod evidence;
pub(crate) mod failure;
pub(crate) mod greatest_status;
pub(crate) mod known_texts;
mod missing_ranks;
pub(crate) mod root_cause;
mod rust_panic;
pub(crate) mod traceback;
mod usage_error;
