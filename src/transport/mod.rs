//! L4: how a byte stream to a node comes to exist, and nothing else. Never knows what is sent.

mod link;
mod local;

pub use link::{LinkReader, LinkWriter};
pub use local::{AgentProcess, Link, adopt_stdio, connect_local};
