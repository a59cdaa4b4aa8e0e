//! L5, node side: owns the worker processes of one node. Decides no policy: it does what its link
//! says, and stops everything when the link ends.
//!
//! ```text
//! launcher ══ link ══ agent ── packets ── shim ── workers
//! ```
//!
//! The shim is forked before any thread exists and is the workers' parent, so only it can wait for
//! them. Agent and shim are both subreapers: whichever dies, the other buries the workers.

mod alarms;
mod bind;
mod claims;
mod crew;
mod doors;
mod ending;
mod exam;
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
mod shim_lost;
mod starting;
mod window;

pub use exam::shared_memory;
pub use prepare::{OWN_EXECUTABLE, lacks};
pub use serve::{Origin, main};
