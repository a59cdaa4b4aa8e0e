//! The connection to the store that all groups of a rank share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::runtime::comm::store::Client;

/// Key in the store for the abort record of a job: that of the first rank that fails.
pub(crate) const ABORT_KEY: &str = "abort";
/// Time limit of one request to the store while other ranks wait.
pub(crate) const STORE_TIMEOUT: Duration = Duration::from_secs(1);

/// Connection to the store that all groups of a rank share.
pub(crate) type SharedStore = Arc<Mutex<Client>>;
