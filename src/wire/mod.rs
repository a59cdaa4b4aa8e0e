//! L3: what launcher and agent say to each other: versioned, bounded frames. Pure.

mod frame;
mod message;

pub use frame::{
    Decoder, FRAME_BYTES_MAX, FrameError, OUTPUT_BYTES_MAX, encode, encode_output_head,
};
pub use message::{
    AgentHello, FailedStart, Found, FromAgent, LauncherHello, Leftover, Listen, OpenFailure,
    Prepare, Problem, Start, Stream, ToAgent, VERSION, WorkerNote, WorkerStart,
};
