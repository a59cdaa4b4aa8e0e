//! What a node tells about itself when a doctor asks. Types made for the wire: the report says its
//! version, and judges nothing.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::message::{PortWish, Problem};
use crate::base::NodeRank;

/// Version of an [`Examination`].
pub const EXAM_VERSION: u32 = 2;

/// What is to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Examine {
    /// Working directory of a job.
    pub cwd: Vec<u8>,
    /// What its workers would execute.
    pub program: Option<Vec<u8>>,
    /// Whether that is a Python, whose version and libraries count.
    pub is_python: bool,
    /// The file that the program would read.
    pub script: Option<Vec<u8>>,
    /// Address at which the others are to reach this node; `None`: it knows best.
    pub addr: Option<String>,
    /// Some of the other hosts, as the hostfile names them.
    pub others: Vec<String>,
    /// On the node of rank 0: the port that it would listen on.
    pub port: Option<PortWish>,
    /// Who comes to our door must know it.
    pub token: Token,
    /// How closely to look.
    pub depth: Depth,
    /// Whether the paths are also looked for on another machine, or were typed on one.
    pub elsewhere: bool,
}

/// How closely a node is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Depth {
    /// What costs nothing: before every job.
    Quick,
    /// Versions of libraries and of Python too.
    Full,
}

/// Good for one examination.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token(pub [u8; 16]);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Whether something is there, or why it cannot be used.
pub type Looked = Result<(), Problem>;

/// Everything that a node tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Examination {
    /// [`EXAM_VERSION`] of the agent.
    pub version: u32,
    /// Which machine it is, and who we are there.
    pub machine: Machine,
    /// The working directory.
    pub cwd: Looked,
    /// The program, if there is one to look for.
    pub program: Option<Looked>,
    /// The script, if there is one.
    pub script: Option<Looked>,
    /// The Python that would be run.
    pub python: Option<Python>,
    /// Processors, memory and limits.
    pub compute: Compute,
    /// GPUs.
    pub gpus: Gpus,
    /// NCCL and the CUDA runtime, wherever they lie.
    pub libraries: Vec<Library>,
    /// Addresses and doors.
    pub network: Network,
}

/// Which machine it is, and who we are there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// What it calls itself.
    pub host_name: String,
    /// The same for all names of one running kernel.
    pub boot_id: String,
    /// Version of its kernel.
    pub kernel: String,
    /// `x86_64`.
    pub arch: String,
    /// Our name there; `None` where the number has none.
    pub user: Option<String>,
    /// Our number there.
    pub uid: u32,
    /// Its clock since the start, as in the hello.
    pub clock_us: u64,
    /// Its clock of the day at the same moment, in microseconds since 1970.
    pub wall_us: u64,
}

/// A Python.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Python {
    /// `3.11.2`, or why it does not say.
    pub version: Result<String, String>,
}

/// Processors, memory and limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compute {
    /// Processors that may be used: affinity and the control group's quota.
    pub cpus: u32,
    /// Memory that may still be taken.
    pub memory_bytes: Option<u64>,
    /// Limit of the control group.
    pub memory_limit_bytes: Option<u64>,
    /// `/dev/shm`, or why it cannot be used.
    pub shm: Result<Room, String>,
    /// Bytes that may be locked in memory.
    pub memlock: Limit,
    /// Open files.
    pub nofile: Limit,
}

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// How large it is.
    pub total_bytes: u64,
    /// How much is free.
    pub free_bytes: u64,
}

/// A limit of the kernel; `None`: unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Current limit.
    pub soft: Option<u64>,
    /// As far as a program may raise it.
    pub hard: Option<u64>,
}

/// What is known of GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpus {
    /// Device files, `/dev/nvidia0` and so on.
    pub files: u32,
    /// As NVML tells.
    pub devices: Vec<Gpu>,
    /// Why NVML does not tell, where there are device files.
    pub silent: Option<String>,
    /// Version of the driver.
    pub driver: Option<String>,
    /// The newest CUDA that the driver knows: `12.4`.
    pub cuda: Option<String>,
    /// Newest errors (Xid) in the kernel's log, where that may be read.
    pub xids: Vec<String>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// `NVIDIA H200`.
    pub name: String,
    /// `GPU-…`.
    pub uuid: String,
    /// All of its memory.
    pub memory_bytes: u64,
    /// Whether it is cut into parts (MIG).
    pub mig: bool,
    /// Memory errors since the driver was loaded that could not be corrected; `None`: not counted.
    pub ecc_errors: Option<u64>,
    /// Who uses it.
    pub processes: Vec<GpuProcess>,
}

/// A process that uses a GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GpuProcess {
    /// Its pid on the node.
    pub pid: u32,
    /// Its name, if it may be seen.
    pub name: Option<String>,
    /// Memory of the GPU that it holds.
    pub memory_bytes: Option<u64>,
}

/// A library that workers may load.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Library {
    /// `NCCL`, `CUDA runtime`.
    pub name: String,
    /// `2.21.5`; `None` where nobody says.
    pub version: Option<String>,
    /// Path of the library.
    pub path: String,
}

/// Addresses and doors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Interfaces that are up, without the loopback.
    pub interfaces: Vec<Interface>,
    /// Adapters of InfiniBand.
    pub adapters: Vec<Adapter>,
    /// Where this node waits for the others, or why it cannot.
    pub door: Result<SocketAddr, Problem>,
    /// On the node of rank 0: the port is ours until the link ends, and somebody waits there too.
    pub master: Option<Result<SocketAddr, Problem>>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Interface {
    /// `eth0`.
    pub name: String,
    /// Megabits in a second, where the driver says so.
    pub speed_mbit: Option<u32>,
    /// Largest packet.
    pub mtu: u32,
    /// Whether the node's own address, see [`Network::door`], is one of it.
    pub has_door: bool,
}

/// A port of an adapter of InfiniBand.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Adapter {
    /// `mlx5_0/1`.
    pub name: String,
    /// `ACTIVE`, `DOWN`.
    pub state: String,
    /// `400 Gb/sec (4X NDR)`.
    pub rate: String,
}

/// Where somebody waits for a knock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Door {
    /// Whose it is.
    pub whose: Whose,
    /// A name of the owner that is to be looked up on the way.
    pub name: Option<String>,
    /// Address of the listener.
    pub addr: SocketAddr,
    /// What opens it.
    pub token: Token,
}

/// Whose door it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whose {
    /// The one that a node opened for this.
    Node(NodeRank),
    /// The master port.
    Master,
}

/// What came of a knock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialed {
    /// At whose door.
    pub whose: Whose,
    /// How many microseconds it took, or why nobody opened.
    pub outcome: Result<u32, DialFault>,
    /// Addresses of the owner's name, in order; none: there is no such name. `None`: nobody asked, or
    /// nobody answered in time.
    pub resolved: Option<Vec<IpAddr>>,
}

/// Why a door stayed shut.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DialFault {
    /// Nothing came back in time: packets are dropped.
    NoAnswer,
    /// Nobody listens, or a filter says so.
    Refused,
    /// The kernel knows no way there.
    NoRoute,
    /// Somebody else answered.
    Stranger,
    /// Whatever else the kernel says.
    Other(String),
}

/// What a knock at a door says, and what is answered. Neither tells the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// The side that connects.
    Knock,
    /// The side that accepts.
    Open,
}

impl Token {
    /// Proof that its owner knows the token.
    pub fn proof(&self, occasion: Occasion) -> [u8; 32] {
        use sha2::{Digest, Sha256};
        let purpose: &[u8] = match occasion {
            Occasion::Knock => b"remuda door: knock",
            Occasion::Open => b"remuda door: open",
        };
        Sha256::new().chain_update(purpose).chain_update(self.0).finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_of_its_token_and_of_its_occasion() {
        let (one, other) = (Token([1; 16]), Token([2; 16]));
        assert_ne!(one.proof(Occasion::Knock), one.proof(Occasion::Open));
        assert_ne!(one.proof(Occasion::Knock), other.proof(Occasion::Knock));
        assert_eq!(format!("{one:?}"), "Token(…)", "nobody logs it");
    }
}
