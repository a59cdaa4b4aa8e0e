//! Connections to nodes: byte streams over ssh, over TCP, or on this machine (layer L4).
//!
//! It does not depend on the data that is sent.

mod agent;
pub mod dial;
mod fault;
mod link;
mod local;
pub mod manager;
mod memory_socket;
mod process;
pub mod ssh;
mod stderr;

pub use agent::{AgentEnd, AgentHandle, Link, SessionInfo, WaitForEnd};
pub use fault::{Absence, Fault, FaultKind, ManualCommands};
pub use link::{LinkReader, LinkWriter, memory_link, split_socket};
pub use local::{AgentEnvironment, adopt_stdio, connect_local};
pub use process::end_processes;
