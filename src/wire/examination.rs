//! Request and report of a node's examination by `remuda doctor`. These types exist for the wire
//! only: the report carries its version and contains facts, no judgement.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::prepare::{PortRequest, Problem};
use crate::base::NodeRank;

/// Version of an [`Examination`].
pub const EXAM_VERSION: u32 = 2;

/// Request to examine a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Examine {
    /// Working directory of a job.
    pub cwd: Vec<u8>,
    /// Program that its workers would execute.
    pub program: Option<Vec<u8>>,
    /// Whether the program is a Python; its version and libraries are then reported.
    pub is_python: bool,
    /// File that the program would read.
    pub script: Option<Vec<u8>>,
    /// Address at which the other nodes connect to this one; `None`: the node chooses it.
    pub addr: Option<String>,
    /// Some of the other hosts, as the hostfile names them.
    pub others: Vec<String>,
    /// On the node of rank 0: the port that rank 0 would listen on.
    pub port: Option<PortRequest>,
    /// Token that a peer must present to the test listener of this node.
    pub token: Token,
    /// Depth of the examination.
    pub depth: Depth,
    /// Whether the paths are also checked on another machine, or were named on another one.
    pub spans_machines: bool,
}

/// Depth of an examination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Depth {
    /// Cheap facts only, as before every job.
    Quick,
    /// Versions of Python and of libraries as well.
    Full,
}

/// Secret of one examination, with which nodes recognise each other.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token(pub [u8; 16]);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Whether a directory or file can be used, or why not.
pub type CheckResult = Result<(), Problem>;

/// Report of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Examination {
    /// [`EXAM_VERSION`] of the agent.
    pub version: u32,
    /// Identity of the machine, and the user of the agent there.
    pub machine: Machine,
    /// The working directory.
    pub cwd: CheckResult,
    /// The program, if the request named one.
    pub program: Option<CheckResult>,
    /// The script, if the request named one.
    pub script: Option<CheckResult>,
    /// The Python that would be run.
    pub python: Option<Python>,
    /// Processors, memory and limits.
    pub compute: Compute,
    /// GPUs of the node, as NVML describes them.
    pub gpus: GpusReport,
    /// Every NCCL and CUDA runtime that was found.
    pub libraries: Vec<LibraryReport>,
    /// Addresses, interfaces and test listeners.
    pub network: Network,
}

/// Identity of a machine, and the user of the agent there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Host name that the machine is configured with.
    pub host_name: String,
    /// Boot id of the running kernel; two host names with the same one are one machine.
    pub boot_id: String,
    /// Version of the kernel.
    pub kernel: String,
    /// Architecture, such as `x86_64`.
    pub arch: String,
    /// User name of the agent; `None` where its uid has no name.
    pub user: Option<String>,
    /// Uid of the agent.
    pub uid: u32,
    /// Clock of the machine in microseconds since it started, as in [`super::AgentHello`].
    pub clock_us: u64,
    /// Wall clock at the same moment, in microseconds since 1970.
    pub wall_us: u64,
}

/// Name of torch in a [`LibraryReport`].
pub const TORCH: &str = "torch";

/// A Python interpreter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Python {
    /// Version, such as `3.11.2`, or why it is unknown.
    pub version: Result<String, String>,
}

/// Processors, memory and limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compute {
    /// Processors that workers may use, by affinity and the control group's quota.
    pub cpus: u32,
    /// Available memory; `None`: unknown.
    pub memory_bytes: Option<u64>,
    /// Memory limit of the control group; `None`: no limit.
    pub memory_limit_bytes: Option<u64>,
    /// Size of `/dev/shm`, or why it cannot be used.
    pub shm: Result<FileSystemSpace, String>,
    /// Limit of bytes locked in memory.
    pub memlock: Limit,
    /// Limit of open files.
    pub nofile: Limit,
}

/// Size of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystemSpace {
    /// Total size.
    pub total_bytes: u64,
    /// Free space.
    pub free_bytes: u64,
}

/// Resource limit of the kernel; `None`: unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Limit in force.
    pub soft: Option<u64>,
    /// Limit up to which a program may raise the soft one.
    pub hard: Option<u64>,
}

/// GPUs of a node, and their driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpusReport {
    /// Number of device files, `/dev/nvidia0` and so on.
    pub device_files: u32,
    /// GPUs as NVML describes them.
    pub devices: Vec<GpuReport>,
    /// Error of NVML, if it did not answer although there are device files.
    pub nvml_error: Option<String>,
    /// Version of the driver.
    pub driver: Option<String>,
    /// Newest CUDA version that the driver supports, such as `12.4`.
    pub cuda: Option<String>,
    /// Newest GPU errors (Xid) in the kernel's log, where the agent may read it.
    pub xids: Vec<String>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuReport {
    /// Name, such as `NVIDIA H200`.
    pub name: String,
    /// UUID, `GPU-…`.
    pub uuid: String,
    /// Total memory.
    pub memory_bytes: u64,
    /// Whether it is partitioned (MIG).
    pub mig: bool,
    /// Uncorrected memory errors since the driver was loaded; `None`: not counted.
    pub ecc_errors: Option<u64>,
    /// Processes that use it.
    pub processes: Vec<GpuProcess>,
}

/// A process that uses a GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GpuProcess {
    /// Its pid on the node.
    pub pid: u32,
    /// Its name, if it is visible to the agent.
    pub name: Option<String>,
    /// GPU memory that it holds.
    pub memory_bytes: Option<u64>,
}

/// A library that workers may load.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LibraryReport {
    /// Name, such as `NCCL` or `CUDA runtime`.
    pub name: String,
    /// Version, such as `2.21.5`; `None`: unknown.
    pub version: Option<String>,
    /// Path of its file.
    pub path: String,
}

/// Interfaces, adapters and test listeners of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Interfaces that are up, without the loopback.
    pub interfaces: Vec<Interface>,
    /// Ports of InfiniBand adapters.
    pub adapters: Vec<Adapter>,
    /// Address of this node's test listener, or why it cannot listen.
    pub listener: Result<SocketAddr, Problem>,
    /// On the node of rank 0: address of a second test listener on the master port, which the agent
    /// holds until the link ends.
    pub master: Option<Result<SocketAddr, Problem>>,
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Interface {
    /// Name, such as `eth0`.
    pub name: String,
    /// Speed in megabits per second, where the driver reports it.
    pub speed_mbit: Option<u32>,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Whether the interface has the address of the node's listener, see [`Network::listener`].
    pub has_listener: bool,
}

/// A port of an InfiniBand adapter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Adapter {
    /// Adapter and port, such as `mlx5_0/1`.
    pub name: String,
    /// State, such as `ACTIVE` or `DOWN`.
    pub state: String,
    /// Rate, such as `400 Gb/sec (4X NDR)`.
    pub rate: String,
}

/// A test listener that a node is asked to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeListener {
    /// Owner of the listener.
    pub owner: ListenerOwner,
    /// Name of the owner, which the connecting node resolves as well.
    pub name: Option<String>,
    /// Address of the listener.
    pub addr: SocketAddr,
    /// Token that the listener accepts.
    pub token: Token,
}

/// Owner of a test listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListenerOwner {
    /// The listener that a node opened for the examination.
    Node(NodeRank),
    /// The listener on the master port.
    Master,
}

/// Result of one test connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeResult {
    /// Owner of the listener.
    pub owner: ListenerOwner,
    /// Duration in microseconds, or why the connection failed.
    pub outcome: Result<u32, ProbeFault>,
    /// Addresses of the owner's name, sorted; empty: the name does not exist. `None`: the name was
    /// not looked up, or the lookup timed out.
    pub resolved: Option<Vec<IpAddr>>,
}

/// Why a test connection failed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProbeFault {
    /// The connection timed out: packets are dropped.
    NoAnswer,
    /// The connection was refused: no process listens, or a filter rejects it.
    Refused,
    /// The kernel has no route to the address.
    NoRoute,
    /// Another process than the expected agent answered.
    WrongPeer,
    /// Any other error of the kernel.
    Other(String),
}

/// Direction of a proof between two nodes. Neither direction reveals the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofDirection {
    /// From the connecting node.
    Connecting,
    /// From the listening node.
    Listening,
}

impl Token {
    /// Proof that the sender knows the token: SHA-256 of a purpose string and the token.
    pub fn proof(&self, occasion: ProofDirection) -> [u8; 32] {
        use sha2::{Digest, Sha256};
        let purpose: &[u8] = match occasion {
            ProofDirection::Connecting => b"remuda door: knock",
            ProofDirection::Listening => b"remuda door: open",
        };
        Sha256::new().chain_update(purpose).chain_update(self.0).finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_proof_depends_on_token_and_direction() {
        let (one, other) = (Token([1; 16]), Token([2; 16]));
        assert_ne!(one.proof(ProofDirection::Connecting), one.proof(ProofDirection::Listening));
        assert_ne!(one.proof(ProofDirection::Connecting), other.proof(ProofDirection::Connecting));
        assert_eq!(format!("{one:?}"), "Token(…)", "a log does not contain the token");
    }
}
