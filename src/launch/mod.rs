//! L5, launcher side: brings a plan to life and sees it through. Parses no text.
//!
//! [`run`] is one loop: select → step → perform. What a node says becomes an event of the job; what
//! the job wants becomes words to the nodes.

mod awaited;
pub mod codes;
mod dispatcher;
mod finish;
mod gather;
mod grave;
mod hearing;
mod history;
mod input;
mod input_hint;
mod joining;
mod losing;
mod node;
mod options;
mod orders;
mod pause;
mod probes;
mod recording;
mod renewing;
#[cfg(test)]
mod scale;
mod signals;
mod starting;
mod unreachable;
mod verdict;
mod voice;
mod wishes;

pub use dispatcher::run;
pub use joining::{Member, join};
pub use options::{
    Claims, Cores, DialOptions, FileOf, Framing, Judge, Keeper, LaunchError, Options, StdinTo,
    Transport, WayOn, WorkersFile,
};
pub use probes::leave_refusal;
