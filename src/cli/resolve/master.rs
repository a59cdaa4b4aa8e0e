//! Address and port of rank 0 of torch, `MASTER_ADDR` and `MASTER_PORT` of the workers.

use crate::base::{HostName, Slot};
use crate::cli::args::TransportArgs;
use crate::launch::Transport;
use crate::plan::{MASTER_PORT, MasterAddr};

/// Address of rank 0 for jobs on one machine.
pub(in crate::cli) const LOOPBACK: &str = "127.0.0.1";

/// Address and port of rank 0; without a port, node 0 selects one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct MasterOptions {
    pub(in crate::cli) addr: MasterAddr,
    pub(in crate::cli) port: Option<u16>,
}

impl MasterOptions {
    /// Returns those of nodes that one command starts.
    pub(super) fn of_transport(args: &TransportArgs, transport: &Transport) -> Self {
        let addr = match (args.master_addr(), transport) {
            (Some(address), _) => MasterAddr::Given(address.to_owned()),
            (None, Transport::Local) => MasterAddr::Given(LOOPBACK.to_owned()),
            (None, Transport::Ssh(_) | Transport::Dial(_) | Transport::Managed(_)) => {
                MasterAddr::AskNode0
            }
        };
        Self { addr, port: args.master_port }
    }

    /// Returns those of nodes that are started separately: all of them must compute the same
    /// address.
    pub(super) fn of_separate_nodes(
        address: Option<&str>,
        port: Option<u16>,
        nodes: &[(HostName, Vec<Slot>)],
    ) -> Self {
        let (address, port) = match nodes {
            [(first, _), _, ..] => {
                (address.unwrap_or(first.as_str()), Some(port.unwrap_or(MASTER_PORT)))
            }
            _ => (address.unwrap_or(LOOPBACK), port),
        };
        Self { addr: MasterAddr::Given(address.to_owned()), port }
    }
}
