//! The examination of the nodes of a job, for `--preflight` and `remuda doctor`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use crate::base::Status;
use crate::cli::codes::machine::SYSTEM;
use crate::cli::error::CliError;
use crate::cli::line::codes::NOT_SUPPORTED;
use crate::cli::random;
use crate::cli::resolve::{self, LOOPBACK, ResolvedCluster};
use crate::doctor::{self, ClusterFacts, ExamRequest, ExamResult, MasterPort, NodeAccess};
use crate::launch::Transport;
use crate::plan::{MASTER_PORT, MasterAddr, Program};
use crate::report::{Terminal, print_message};
use crate::transport::manager::ProcessManager;
use crate::wire::{Depth, Examine, PortRequest, Token};

/// Program that the workers of a job would run.
pub(in crate::cli) struct WantedProgram {
    pub(in crate::cli) program: Option<OsString>,
    pub(in crate::cli) script: Option<OsString>,
    pub(in crate::cli) is_python: bool,
}

impl WantedProgram {
    pub(in crate::cli) fn of(program: &Program) -> Self {
        let (path, script) = resolve::program_and_script(program);
        let is_python = matches!(program, Program::Python { .. });
        Self { program: Some(path), script, is_python }
    }
}

pub(in crate::cli) fn collect_facts(
    cluster: &ResolvedCluster,
    wanted: &WantedProgram,
    depth: Depth,
    all_pairs: bool,
    terminal: Terminal,
) -> Result<(ClusterFacts, Option<i32>), CliError> {
    // If a node is started alone, only that node is checked, and not the address of rank 0.
    let (nodes, addr, port) = match cluster.started.node() {
        Some(node) => (&cluster.nodes[node.index()..=node.index()], Some(LOOPBACK), None),
        None => (&cluster.nodes[..], given(&cluster.master.addr), cluster.master.port),
    };
    let port = port.map_or(MasterPort::Preferred(MASTER_PORT), MasterPort::Exact);
    let bytes = |text: &OsString| text.as_bytes().to_vec();
    let request = ExamRequest {
        access: match &cluster.transport {
            // If nodes dial in, only this node is checked.
            Transport::Local | Transport::Dial(_) => NodeAccess::Local,
            Transport::Ssh(options) => NodeAccess::Ssh(options.clone()),
            Transport::Managed(options) => return Err(not_examined(options.manager)),
        },
        nodes: nodes.iter().map(|(host, slots)| (host.clone(), slots.len() as u32)).collect(),
        node_request: Examine {
            cwd: bytes(&resolve::environment::working_directory()?.into_os_string()),
            program: wanted.program.as_ref().map(bytes),
            is_python: wanted.is_python,
            script: wanted.script.as_ref().map(bytes),
            addr: addr.map(str::to_owned),
            others: Vec::new(),
            port: None,
            token: Token(random::random_bytes()?),
            depth,
            spans_machines: false,
        },
        port: match port {
            MasterPort::Exact(port) => PortRequest::Exact(port),
            MasterPort::Preferred(port) => PortRequest::Preferred(port),
        },
        all_pairs,
    };
    let ExamResult { nodes, interrupted } =
        doctor::examine_nodes(&request, &|line| print_message(line, terminal.paint))
            .map_err(|error| CliError::new(Status::OsLimit, SYSTEM, error.to_string()))?;
    Ok((ClusterFacts { nodes, slot_device: cluster.devices.slots_are, port }, interrupted))
}

fn not_examined(manager: &ProcessManager) -> CliError {
    let message = format!("nodes that {manager} starts cannot be checked before a job");
    CliError::usage(NOT_SUPPORTED, message)
        .help("`--launcher ssh` checks them over ssh, if they accept logins")
}

pub(super) fn given(address: &MasterAddr) -> Option<&str> {
    match address {
        MasterAddr::Given(address) => Some(address),
        MasterAddr::AskNode0 => None,
    }
}
