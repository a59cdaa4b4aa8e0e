//! L3: what launcher and agent say to each other: versioned, bounded frames. Pure.

mod exam;
mod frame;
mod message;
mod offset;
mod roster;

use std::time::Duration;

pub use exam::{
    Adapter, Compute, Depth, DialFault, Dialed, Door, EXAM_VERSION, Examination, Examine, Gpu,
    GpuProcess, Gpus, Interface, Library, Limit, Looked, Machine, Network, Occasion, Python, Room,
    Token, Whose,
};
pub use frame::{
    Decoder, FRAME_BYTES_MAX, FrameError, OUTPUT_BYTES_MAX, encode, encode_output_head,
};
pub use message::{
    AgentHello, Blame, ClaimWish, CoreWish, ERROR_FILE_BYTES_MAX, FailedStart, FileState, FileWish,
    Found, FromAgent, LauncherHello, Leftover, Listen, Master, OpenFailure, PortWish, Prepare,
    Problem, Start, Stream, ToAgent, VERSION, WorkerNote, WorkerStart,
};
pub use offset::ClockOffset;
pub use roster::{Roster, RosterError};

/// How often both ends say that they live: several beats may be late before the lease ends.
pub fn beat(lease: Duration) -> Duration {
    const BEAT_MIN: Duration = Duration::from_millis(10);
    const BEAT_MAX: Duration = Duration::from_secs(3);
    (lease / 10).clamp(BEAT_MIN, BEAT_MAX)
}
