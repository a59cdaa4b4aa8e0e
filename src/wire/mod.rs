//! Messages between launcher and agent, in versioned, bounded frames (layer L3). Pure.

mod examination;
mod frame;
#[cfg(test)]
mod golden;
mod heartbeat;
mod message;
mod offset;
mod prepare;
mod roster;

pub use examination::{
    Adapter, CheckResult, Compute, Depth, EXAM_VERSION, Examination, Examine, FileSystemSpace,
    GpuProcess, GpuReport, GpusReport, Interface, LibraryReport, Limit, ListenerOwner, Machine,
    Network, ProbeFault, ProbeListener, ProbeResult, ProofDirection, Python, TORCH, Token,
};
pub use frame::{
    Decoder, FRAME_BYTES_MAX, FrameError, OUTPUT_BYTES_MAX, encode, encode_output_head,
};
pub use heartbeat::heartbeat_interval;
pub use message::{
    AgentHello, ERROR_FILE_BYTES_MAX, FailedStart, FromAgent, KernelReport, LauncherHello,
    Leftover, STACK_BYTES_MAX, Start, Stream, ToAgent, VERSION, WorkerStart, WorkerStartStep,
};
pub use offset::ClockOffset;
pub use prepare::{
    CoreRequest, FileState, GpuLockRequest, Listen, MasterEndpoint, PortRequest, Prepare,
    PreparedNode, Problem, ProblemScope, RequiredFile, RequiredPackage,
};
pub use roster::{NodeRoster, RosterError};
