//! Messages between launcher and agent, in versioned, bounded frames (layer L3). Pure.

mod exam;
mod frame;
mod message;
mod offset;
mod prepare;
mod roster;

use std::time::Duration;

pub use exam::{
    Adapter, CheckResult, Compute, Depth, EXAM_VERSION, Examination, Examine, FileSystemSpace,
    GpuProcess, GpuReport, GpusReport, Interface, LibraryReport, Limit, ListenerOwner, Machine,
    Network, ProbeFault, ProbeListener, ProbeResult, ProofDirection, Python, Token,
};
pub use frame::{
    Decoder, FRAME_BYTES_MAX, FrameError, OUTPUT_BYTES_MAX, encode, encode_output_head,
};
pub use message::{
    AgentHello, ERROR_FILE_BYTES_MAX, FailedStart, FromAgent, LauncherHello, Leftover, Start,
    Stream, ToAgent, VERSION, WorkerNote, WorkerStart, WorkerStartStep,
};
pub use offset::ClockOffset;
pub use prepare::{
    CoreRequest, FileState, GpuLockRequest, Listen, MasterEndpoint, PortRequest, Prepare,
    PreparedNode, Problem, ProblemScope, RequiredFile,
};
pub use roster::{NodeRoster, RosterError};

/// Heartbeat interval of both ends for a lease: a tenth of it, between 10 ms and 3 s, so that
/// several heartbeats may be late before the lease expires.
pub fn heartbeat_interval(lease: Duration) -> Duration {
    const BEAT_MIN: Duration = Duration::from_millis(10);
    const BEAT_MAX: Duration = Duration::from_secs(3);
    (lease / 10).clamp(BEAT_MIN, BEAT_MAX)
}
