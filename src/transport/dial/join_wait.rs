//! Why a node still waits for node 0. Pure.

use std::fmt;

/// Why a node still waits for node 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinWait {
    /// The name of node 0 does not resolve.
    Unresolved(String),
    /// No program listens at the address of node 0.
    Unreachable(String),
    /// What listens there does not accept this node.
    NotAccepted(String),
}

impl fmt::Display for JoinWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unresolved(why) | Self::Unreachable(why) | Self::NotAccepted(why) => {
                f.write_str(why)
            }
        }
    }
}
