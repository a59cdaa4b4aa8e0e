//! Start of an epoch.
//!
//! | file | contents |
//! |---|---|
//! | `start`, `requests` | from links to running workers; the requests to agents, made from a plan |
//! | `pending`, `waiting` | nodes that are not ready, and the reports about them |

pub(in crate::launch) mod pending;
pub(in crate::launch) mod requests;
pub(in crate::launch) mod start;
pub(in crate::launch) mod waiting;
