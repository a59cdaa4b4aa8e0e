//! Connections between launcher and agents. A connection delivers all bytes in order, or ends: a
//! cut delays what is sent until it heals.

use std::collections::VecDeque;

use super::clock::Micros;
use crate::base::{Epoch, NodeRank, WorkerExit};
use crate::wire::Decoder;

/// Direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    ToNode,
    FromNode,
}

impl Way {
    pub(super) const BOTH: [Self; 2] = [Self::ToNode, Self::FromNode];

    pub(super) fn index(self) -> usize {
        self as usize
    }
}

/// What a connection delivers.
#[derive(Debug)]
pub(super) enum Parcel {
    Bytes(Vec<u8>),
    /// The other end is closed; with the exit of the agent, where it is known.
    End(Option<WorkerExit>),
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    /// What was sent and has not been delivered.
    pub(super) sent: VecDeque<Parcel>,
    /// Number of those that wait for the end of a cut.
    pub(super) stalled: usize,
    /// When the last one will be delivered.
    pub(super) last_arrival: Micros,
    /// Whether nothing more can be sent.
    pub(super) is_closed: bool,
    /// Whether the receiver does not read any more, or a power failure has ended the connection
    /// without a message.
    pub(super) is_dead: bool,
}

/// A link of the launcher to an agent.
#[expect(clippy::struct_excessive_bools, reason = "independent facts of a link")]
pub(super) struct SimulatedLink {
    pub(super) node: NodeRank,
    pub(super) host: usize,
    pub(super) agent: usize,
    /// Number of the link to the node.
    pub(super) link: u32,
    /// Number of the launcher.
    pub(super) launcher: u32,
    /// Whether both ends are processes of one machine.
    pub(super) is_local: bool,
    pub(super) pipes: [Pipe; 2],
    /// The launcher's end: its decoder, the epoch of the launcher and the agent, and whether it has
    /// something to read.
    pub(super) decoder: Decoder,
    pub(super) epoch: Epoch,
    pub(super) is_readable: bool,
    /// Whether its end was delivered to the launcher, and the exit of the agent, where it is known.
    pub(super) has_ended: bool,
    pub(super) exit: Option<WorkerExit>,
    /// Whether the launcher has read everything, or has closed its end.
    pub(super) is_over: bool,
}
