//! Start of an epoch.
//!
//! | file | contents |
//! |---|---|
//! | `state` | reasons not to start, and what was printed while nodes were waited for |
//! | `requests` | requests to agents, made from a plan |
//! | `pending` | nodes that are not ready, and the reports about them |

pub(in crate::launch) mod pending;
pub(in crate::launch) mod requests;
pub(in crate::launch) mod state;
