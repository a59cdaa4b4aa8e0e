//! `remuda pod`: resolves the identity of the pod to hosts, slots and the connection of the pods.

use std::fmt;
use std::io::Read;
use std::path::Path;

use clap::Parser;

use crate::agent;
use crate::base::{HostName, NodeRank, Slot, Status, env_vars};
use crate::cli::args::{ClusterArgs, PodNodeArgs};
use crate::cli::codes::pod as codes;
use crate::cli::error::CliError;
use crate::cli::line::CommandLine;
use crate::cli::resolve::cluster::{ClusterOrigin, ResolvedCluster, StartedNodes, resolve_hosts};
use crate::cli::resolve::devices::{JobDevices, accelerator, check_devices, visible};
use crate::cli::resolve::dial::{self, DialArgs, JOIN_OPTION, KeySource, NodePorts};
use crate::cli::resolve::master::MasterOptions;
use crate::cli::resolve::trust::Trust;
use crate::doctor::{self, SHM_BYTES_MIN};
use crate::launch::{ContinueWith, SupervisorOptions, Transport};
use crate::os::files::input_file;
use crate::os::machine::machine_name;
use crate::plan::{
    Accelerator, MASTER_PORT, MpiHostfile, MpiLauncher, PodContext, PodIdentity, mpi_hostfile_path,
};
use crate::report::Terminal;
use crate::report::text::{show_count, show_io_error};

/// The place of this pod among the pods of the job.
pub(in crate::cli) struct Pod {
    pub(in crate::cli) rank: u32,
    pub(in crate::cli) nodes: u32,
    /// Workers of each pod, if their number is set.
    pub(in crate::cli) slots: Option<u32>,
    /// The identity from the platform.
    pub(in crate::cli) found: Option<PodIdentity>,
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, nodes, found, .. } = self;
        match found {
            Some(found) if found.rank == *rank => write!(f, "{found} of {nodes}"),
            _ => write!(f, "node {rank} (--node_rank) of {nodes}"),
        }
    }
}

/// Returns the facts that this process can read about its pod.
pub(in crate::cli) fn surroundings() -> PodContext {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok();
    let env = env_vars::all().into_iter();
    let env = env.filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect();
    let hostname = machine_name();
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let full_name = full_name(&hosts, &hostname);
    let mpi_hostfile = mpi_hostfile_path(&env).map(|(path, source)| {
        let text = read_mounted(Path::new(&path)).map_err(|error| show_io_error(&error));
        MpiHostfile { path, source, text }
    });
    PodContext { env, hostname, full_name, mpi_hostfile }
}

/// Maximum size of files that are mounted from Kubernetes objects, in bytes.
const MOUNTED_BYTES_MAX: u64 = 1 << 20;

fn read_mounted(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    input_file::open(path)?.take(MOUNTED_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Options of `remuda run` with their default values.
#[derive(Parser)]
#[command(name = "remuda run")]
struct DefaultRunArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Resolves the launcher of an `MPIJob`: workers run on the hosts of its hostfile, over ssh. The
/// hosts may not be running yet.
pub(in crate::cli) fn mpi_hosts(
    args: &PodNodeArgs,
    launcher: &MpiLauncher,
    typed: &CommandLine,
    terminal: Terminal,
) -> Result<ResolvedCluster, CliError> {
    let DefaultRunArgs { cluster } =
        DefaultRunArgs::parse_from(["remuda run", "--hostfile", &launcher.hostfile]);
    let mut cluster = ClusterArgs {
        num_nodes: args.nodes.map(|nodes| nodes.to_string()),
        num_gpus: args.num_gpus.map(|slots| slots.to_string()),
        devices: args.devices.clone(),
        allow_insecure_files: args.allow_insecure_files,
        ..cluster
    };
    cluster.transport.master_addr.clone_from(&args.master_addr);
    cluster.transport.master_port = args.master_port;
    let mut cluster = resolve_hosts(&cluster, typed, terminal)?;
    if let Transport::Ssh(options) = &mut cluster.transport {
        options.wait_limit = args.join_timeout.unwrap_or(dial::JOIN_TIMEOUT);
    }
    Ok(ResolvedCluster { continue_with: ContinueWith::Nothing, ..cluster })
}

/// Returns the full name of this host in the text of `/etc/hosts`, which has a line such as
/// `10.0.0.4  train-1.train.ns.svc.cluster.local  train-1`.
fn full_name(hosts: &str, own: &str) -> Option<String> {
    let names = hosts.lines().filter_map(|line| line.split('#').next());
    let mut names = names.flat_map(|line| line.split_ascii_whitespace().skip(1));
    names
        .find(|name| name.split_once('.').is_some_and(|(first, _)| first == own))
        .map(str::to_owned)
}

/// Resolves hosts and slots of the job, and the connection of the pods.
pub(in crate::cli) fn pod(
    args: &PodNodeArgs,
    pod: &Pod,
    typed: &CommandLine,
) -> Result<ResolvedCluster, CliError> {
    let accelerator = accelerator(&args.devices)?;
    let slots: Vec<Slot> = (0..slots(pod, accelerator)?).map(Slot).collect();
    let found = pod.found.as_ref();
    // If the platform gives this node another number, the name of the pod does not determine the
    // names of the other pods.
    let named = found.filter(|found| found.rank == pod.rank);
    let base = named.and_then(|found| found.base.as_deref()).unwrap_or("pod");
    let nodes = (0..pod.nodes).map(|rank| Ok((name(base, rank)?, slots.clone())));
    let nodes = nodes.collect::<Result<Vec<_>, CliError>>()?;
    let own = pod.rank as usize;
    check_devices(&args.devices, &nodes[own..=own], accelerator)?;
    let given = args.master_addr.as_deref().filter(|address| !address.is_empty());
    let address = given.or(found.and_then(|found| found.master_addr.as_deref()));
    let port = args.master_port.or(found.and_then(|found| found.master_port));
    let (transport, mut warnings) = transport(args, pod, (address, port), typed)?;
    warnings += &shared_memory_warning(slots.len());
    Ok(ResolvedCluster {
        continue_with: ContinueWith::Nothing,
        devices: JobDevices::new(&args.devices, accelerator, Vec::new())?,
        master: MasterOptions::of_separate_nodes(address, port, &nodes),
        started: StartedNodes::of(Some(NodeRank(pod.rank)), &transport),
        origin: ClusterOrigin {
            text: show_count(nodes.len(), "pod"),
            hostfile: None,
            trust: Trust::of(args.allow_insecure_files),
        },
        warnings,
        transport,
        elastic: None,
        supervisor: SupervisorOptions::default(),
        nodes,
    })
}

fn name(base: &str, rank: u32) -> Result<HostName, CliError> {
    let name = format!("{base}-{rank}");
    HostName::parse(&name).map_err(|error| {
        let message = format!("`{name}` is not a valid name of a pod: {error}");
        CliError::new(Status::Config, codes::MALFORMED, message)
    })
}

/// Returns the number of workers of each pod. All pods must compute the same number, or their plans
/// differ.
fn slots(pod: &Pod, accelerator: Accelerator) -> Result<u32, CliError> {
    if let Some(slots) = pod.slots {
        return Ok(slots);
    }
    if accelerator == Accelerator::Cpu {
        return Ok(1);
    }
    match visible(accelerator).map(|visible| visible.slots.len() as u32) {
        Some(slots @ 1..) => Ok(slots),
        _ => Err(CliError::new(
            Status::Config,
            codes::NO_SLOTS,
            "the number of workers per pod is not set",
        )
        .help("give `--num_gpus N`, or set REMUDA_NUM_GPUS")),
    }
}

/// Returns a warning if `/dev/shm` is small: libraries share memory between the workers of a pod,
/// and a container has 64 MiB by default.
fn shared_memory_warning(slots: usize) -> String {
    if slots < 2 {
        return String::new();
    }
    let what = match agent::shared_memory(Path::new("/dev/shm")) {
        Ok(room) if SHM_BYTES_MIN <= room.total_bytes => return String::new(),
        Ok(room) => format!("has only {} MiB", room.total_bytes >> 20),
        Err(why) => format!("cannot be used: {why}"),
    };
    let code = doctor::codes::SHM;
    format!(
        "warning[{code}]: /dev/shm {what}; NCCL and data loaders may need more: mount an emptyDir with \
         `medium: Memory` there\n"
    )
}

fn transport(
    args: &PodNodeArgs,
    pod: &Pod,
    (address, port): (Option<&str>, Option<u16>),
    typed: &CommandLine,
) -> Result<(Transport, String), CliError> {
    if pod.nodes == 1 || args.isolated {
        return Ok((Transport::Local, String::new()));
    }
    let Some(key_file) = args.key_file.as_deref() else { return Err(no_key()) };
    let Some(address) = address else {
        return Err(CliError::new(Status::Config, codes::NO_MASTER, "the address of pod 0 is not set").help(
            "give `--master_addr NAME-0.SERVICE`, or set REMUDA_MASTER_ADDR; a headless Service gives \
             pods names",
        ));
    };
    let options = DialArgs {
        key: KeySource::Mounted(key_file),
        job_id: args.job_id.as_deref(),
        join_timeout: args.join_timeout,
        join_option: JOIN_OPTION,
        local_addr: args.local_addr.as_deref(),
        address,
        ports: NodePorts::From(port.unwrap_or(MASTER_PORT)),
        peer_exit: args.peer_exit,
        options: dial::options_of_run(typed),
    };
    let (dial, warning) = dial::dial(&options, typed)?;
    Ok((Transport::Dial(dial), warning))
}

fn no_key() -> CliError {
    let message = "the pods have no key and could not connect to each other";
    CliError::new(Status::Config, codes::POD_WITHOUT_KEY, message).help(
        "mount a Secret in every pod and give `--key_file FILE` (or REMUDA_KEY_FILE); with \
         `--isolated` every pod starts its workers without connections",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_name_of_a_pod_is_read_from_its_hosts_file() {
        let hosts = "127.0.0.1 localhost\n10.0.0.4\ttrain-1.train.ns.svc train-1 # own\n";
        assert_eq!(full_name(hosts, "train-1").as_deref(), Some("train-1.train.ns.svc"));
        assert_eq!(full_name(hosts, "train"), None);
        assert_eq!(full_name("10.0.0.4 train-1\n", "train-1"), None);
    }
}
