//! L3: what launcher and agent say to each other: versioned, bounded frames. Pure.

mod frame;
mod message;
mod roster;

use std::time::Duration;

pub use frame::{
    Decoder, FRAME_BYTES_MAX, FrameError, OUTPUT_BYTES_MAX, encode, encode_output_head,
};
pub use message::{
    AgentHello, ClaimWish, CoreWish, FailedStart, Found, FromAgent, LauncherHello, Leftover,
    Listen, Master, OpenFailure, PortWish, Prepare, Problem, Start, Stream, ToAgent, VERSION,
    WorkerNote, WorkerStart,
};
pub use roster::{Roster, RosterError};

/// How often both ends say that they live: several beats may be late before the lease ends.
pub fn beat(lease: Duration) -> Duration {
    const BEAT_MIN: Duration = Duration::from_millis(10);
    const BEAT_MAX: Duration = Duration::from_secs(3);
    (lease / 10).clamp(BEAT_MIN, BEAT_MAX)
}
