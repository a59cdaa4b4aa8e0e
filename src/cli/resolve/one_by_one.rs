//! Nodes that are started one by one, each with its number and the address of the first, without a
//! hostfile.

use std::path::PathBuf;
use std::time::Duration;

use crate::base::{HostName, NodeRank, Slot};
use crate::cli::error::CliError;
use crate::cli::line::CommandLine;
use crate::cli::resolve::cluster::{ClusterOrigin, ResolvedCluster, StartedNodes};
use crate::cli::resolve::devices::JobDevices;
use crate::cli::resolve::dial::{self, DialArgs, KeyLocation};
use crate::cli::resolve::master::MasterOptions;
use crate::cli::resolve::trust::Trust;
use crate::launch::{ContinueWith, SupervisorOptions, Transport};
use crate::plan::MasterAddr;
use crate::report::text::show_count;

/// A node that is started alone.
#[derive(Clone, Debug)]
pub(in crate::cli) struct OneByOne {
    pub(in crate::cli) node: NodeRank,
    /// Number of nodes.
    pub(in crate::cli) count: usize,
    /// Address of the first node.
    pub(in crate::cli) address: String,
    /// Port of rank 0; with a key, the two ports after it are used too.
    pub(in crate::cli) master_port: u16,
    /// With a key the nodes are connected; without one, each is on its own.
    pub(in crate::cli) key_file: Option<PathBuf>,
    pub(in crate::cli) local_addr: Option<String>,
    pub(in crate::cli) join_limit: Option<Duration>,
}

/// Resolves the nodes, which have the same slots, and the connection to them.
pub(in crate::cli) fn one_by_one(
    one: &OneByOne,
    slots: &[Slot],
    typed: &CommandLine,
) -> Result<ResolvedCluster, CliError> {
    let (transport, warnings) = match &one.key_file {
        None => (Transport::Local, String::new()),
        Some(key_file) => {
            let options = DialArgs {
                key_file,
                job_id: None,
                join_timeout: one.join_limit,
                local_addr: one.local_addr.as_deref(),
                address: &one.address,
                master_port: one.master_port,
                peer_exit: None,
                key_location: KeyLocation::File,
            };
            let (dial, warning) = dial::dial(&options, typed)?;
            (Transport::Dial(dial), warning)
        }
    };
    let name = |node: usize| HostName::parse(&format!("node-{node}")).expect("a valid name");
    Ok(ResolvedCluster {
        nodes: (0..one.count).map(|node| (name(node), slots.to_vec())).collect(),
        started: StartedNodes::of(Some(one.node), &transport),
        devices: JobDevices::of_environment(),
        master: MasterOptions {
            addr: MasterAddr::Given(one.address.clone()),
            port: Some(one.master_port),
        },
        transport,
        supervisor: SupervisorOptions::default(),
        origin: ClusterOrigin {
            text: show_count(one.count, "node"),
            hostfile: None,
            trust: Trust::of(false),
        },
        continue_with: ContinueWith::Nothing,
        warnings,
    })
}
