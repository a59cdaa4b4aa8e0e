//! The agent: supervisor of the workers of one node (layer L5).
//!
//! It makes no policy decisions: it executes the requests of its link and stops all workers when
//! the link closes.
//!
//! ```text
//! launcher ══ link ══ agent ── packets ── shim ── workers
//! ```
//!
//! The shim is forked before any thread exists and is the workers' parent, so only it can wait for
//! them. Agent and shim are both subreapers: if one of them exits, the other one reaps the workers.

mod alarms;
mod bind;
mod claims;
mod crew;
mod doors;
mod ending;
mod error_files;
mod exam;
mod group_watch;
mod launcher;
mod listen;
mod notes;
mod output;
mod place;
mod prepare;
mod rank_link;
mod script_hints;
mod serve;
mod shim;
mod shim_heartbeat;
mod shim_lost;
mod starting;
mod window;

pub use exam::shared_memory;
pub use prepare::{OWN_EXECUTABLE, find_missing};
pub use serve::{AgentOrigin, main};
