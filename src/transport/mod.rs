//! L4: how a byte stream to a node comes to exist, and nothing else. Never knows what is sent.

mod agent;
pub mod dial;
mod fault;
mod link;
mod local;
pub mod ssh;

pub use agent::{AgentEnd, AgentProcess, Arrival, Link};
pub use fault::{ByHand, Fault, FaultKind};
pub use link::{LinkReader, LinkWriter};
pub use local::{adopt_stdio, connect_local};
