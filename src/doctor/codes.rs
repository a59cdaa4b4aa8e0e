//! The stable codes of what a doctor finds (`D…`).

use crate::base::{Explanation, story};

/// No link to a host.
pub(super) const UNREACHABLE: &str = "D001";
/// A link, and no report.
pub(super) const LOST: &str = "D002";
/// Another remuda.
pub(super) const OTHER_BUILD: &str = "D003";
/// Another sshd.
pub(super) const OTHER_SSHD: &str = "D004";
/// Text before our command.
pub(super) const NOISY_SHELL: &str = "D005";
/// Time before our command.
pub(super) const SLOW_SHELL: &str = "D006";
/// Another time of day.
pub(super) const CLOCK: &str = "D007";
/// Another user.
pub(super) const OTHER_USER: &str = "D008";
/// Working directory.
pub(super) const CWD: &str = "D009";
/// Program.
pub(super) const PROGRAM: &str = "D010";
/// Script.
pub(super) const SCRIPT: &str = "D011";
/// Python.
pub(super) const PYTHON: &str = "D012";
/// More slots than GPUs.
pub(super) const TOO_FEW_GPUS: &str = "D013";
/// More GPUs than slots.
pub(super) const UNUSED_GPUS: &str = "D014";
/// NVML does not answer.
pub(super) const NO_DRIVER: &str = "D015";
/// Other GPUs.
pub(super) const OTHER_GPUS: &str = "D016";
/// Another driver.
pub(super) const OTHER_DRIVER: &str = "D017";
/// GPUs in parts.
pub(super) const MIG: &str = "D018";
/// Memory errors.
pub(super) const ECC: &str = "D019";
/// Errors of the driver.
pub(super) const XID: &str = "D020";
/// Somebody else computes there.
pub(super) const GPU_IN_USE: &str = "D021";
/// Another NCCL.
pub(super) const OTHER_NCCL: &str = "D022";
/// Another CUDA runtime.
pub(super) const OTHER_CUDA: &str = "D023";
/// `/dev/shm`.
pub const SHM: &str = "D024";
/// Locked memory.
pub(super) const MEMLOCK: &str = "D025";
/// Open files.
pub(super) const NOFILE: &str = "D026";
/// Processors.
pub(super) const FEW_CPUS: &str = "D027";
/// Memory.
pub(super) const LITTLE_MEMORY: &str = "D028";
/// The port of rank 0.
pub(super) const PORT_TAKEN: &str = "D029";
/// Knocks in vain.
pub(super) const REACHES_NOBODY: &str = "D030";
/// Is knocked at in vain.
pub(super) const NOT_REACHED: &str = "D031";
/// Does not reach rank 0.
pub(super) const NO_MASTER: &str = "D032";
/// Another speed.
pub(super) const OTHER_SPEED: &str = "D033";
/// InfiniBand without a link.
pub(super) const ADAPTER_DOWN: &str = "D034";
/// Two names of one machine.
pub(super) const SAME_MACHINE: &str = "D035";
/// Nobody knows how others would reach it.
pub(super) const NO_ADDRESS: &str = "D036";
/// A name that stands for another machine there.
pub(super) const OTHER_NAME: &str = "D037";

/// Their stories.
pub const EXPLANATIONS: &[Explanation] = &[
    story(
        UNREACHABLE,
        "a host cannot be reached",
        "Ssh could not connect, or could not prove who we are; its own words stand below. A job with this \
         host would not start. `--good FILE` writes the hosts that are left, so that work can go on while \
         this one is repaired. What ssh can do by hand, remuda can:\n\n    ssh -o BatchMode=yes HOST true",
    ),
    story(
        LOST,
        "a node gave no report",
        "Our agent ran on the node and then its link ended, or it did not answer within a minute. Looking at \
         a node means touching its file systems, its driver and its interpreter: one of them may hang. `ps` \
         there shows processes in state D.",
    ),
    story(
        OTHER_BUILD,
        "a node runs another build of remuda",
        "With `--agent_path` the remuda that is installed on the node is used, and it is not the one that \
         you run. Builds that speak another protocol cannot work together; others can, with a warning. \
         Without `--agent_path` our own executable is brought to the node.",
    ),
    story(
        OTHER_SSHD,
        "a node has another sshd than most",
        "Not wrong in itself. A node that was installed at another time than the others often differs in \
         more than this.",
    ),
    story(
        NOISY_SHELL,
        "a login shell prints text",
        "Something in the start-up files of the login shell writes to standard output, although nobody is at \
         a terminal. remuda skips it; scp, rsync, git and other launchers do not, and fail in strange ways. \
         Print only to a terminal:\n\n    [ -t 1 ] && echo Welcome",
    ),
    story(
        SLOW_SHELL,
        "a login shell is slow",
        "More than two seconds passed between the login and the first command. Every job and every `ssh` \
         pays them. Usual reasons: environment modules and conda in start-up files, a slow network home, a \
         name service that times out.",
    ),
    story(
        CLOCK,
        "a clock is off",
        "The time of day of the node is more than a second from ours; half of the fastest round trip is \
         allowed for. Training does not mind, but logs of nodes cannot be compared, builds and checkpoints \
         seem newer than they are, and certificates and tickets fail. Let chrony or timesyncd set it.",
    ),
    story(
        OTHER_USER,
        "a node knows us as somebody else",
        "Name or number of the user is different from that on most nodes. On a shared file system files that \
         one node writes cannot be read on the other. A hostfile may say who we are: `user@host slots=8`.",
    ),
    story(
        CWD,
        "the working directory is not there",
        "Workers start in the directory in which remuda is called, on every node at the same path. Call it \
         from a directory of a file system that all nodes share.",
    ),
    story(
        PROGRAM,
        "the program is not there",
        "What the workers would execute does not exist on the node, or may not be executed. Python is the \
         one of `--python`, of the active environment, or of PATH, at the same path on every node.",
    ),
    story(
        SCRIPT,
        "the script is not there",
        "The script that Python would read does not exist on the node, or may not be read. It is looked for \
         at the same path on every node, from the working directory on.",
    ),
    story(
        PYTHON,
        "a Python does not work, or is another one",
        "The interpreter of this node fails to say its version, or says another one than most. Ranks with \
         different Pythons pickle differently and see different packages.",
    ),
    story(
        TOO_FEW_GPUS,
        "a node has fewer GPUs than slots",
        "A worker for each slot would be started, and some of them find no GPU. Either the hostfile promises \
         too much, or a GPU has fallen off the bus: `nvidia-smi -L` there lists those that are left.",
    ),
    story(
        UNUSED_GPUS,
        "a node has more GPUs than slots",
        "The hostfile, or the selection, uses a part of them. Worth knowing, not wrong.",
    ),
    story(
        NO_DRIVER,
        "the GPUs of a node do not answer",
        "There are device files, but the driver's library (NVML) does not answer, or a GPU does not. After \
         an update of the driver a reboot may be missing; a GPU that has hung needs a reset.",
    ),
    story(
        OTHER_GPUS,
        "a node has other GPUs than most",
        "Name or memory differ. All ranks of a data-parallel job wait for the slowest, and the batch must fit \
         into the smallest.",
    ),
    story(
        OTHER_DRIVER,
        "a node has another driver than most",
        "It often works; it is also the first thing that a bug report asks for. A node that missed an update \
         may lack the CUDA version that the program needs.",
    ),
    story(
        MIG,
        "a GPU is cut into parts",
        "Multi-Instance GPU is switched on. A worker sees a part of the GPU, and NCCL does not join parts. \
         Switch it off when nobody uses the GPU:\n\n    nvidia-smi -mig 0",
    ),
    story(
        ECC,
        "a GPU has memory errors",
        "Errors that could not be corrected were counted since the driver was loaded: results computed there \
         cannot be trusted, and workers die. Drain the node; a reset lets the GPU map the rows out, and one \
         that goes on failing has to be exchanged.",
    ),
    story(
        XID,
        "a driver has logged errors",
        "The kernel's log of the node names errors of the GPU driver (Xid); the newest is shown. Some are \
         the fault of a program (13, 31), some need a reset or a repair (48, 63, 64, 74, 79, 94, 95). The \
         log can be read only by those whom the node allows to.",
    ),
    story(
        GPU_IN_USE,
        "a GPU is in use",
        "Nothing of ours runs on the nodes while they are examined, so these processes belong to somebody \
         else, or to a job that has not ended. Pids are those of the node; a process in a container may have \
         no name for us.",
    ),
    story(
        OTHER_NCCL,
        "a node has another NCCL than most",
        "NCCL refuses to join ranks of different versions, or hangs. The version is that of the library which \
         a Python worker would load first: the packages of its environment, LD_LIBRARY_PATH, then the system. \
         `--json` shows all that lie there.",
    ),
    story(
        OTHER_CUDA,
        "a node has another CUDA runtime than most",
        "Found as NCCL is. Programs that bring their own do not mind; extensions that were built on one node \
         and loaded on another do.",
    ),
    story(
        SHM,
        "/dev/shm is missing, small or full",
        "NCCL and data loaders exchange data there. Containers get 64 MiB unless somebody asks for more, and \
         a worker that finds no room dies of SIGBUS:\n\n    docker run --shm-size=8g …",
    ),
    story(
        MEMLOCK,
        "little memory may be locked",
        "InfiniBand registers memory, which locks it. Below unlimited, NCCL fails with `Cannot allocate \
         memory` or falls back to TCP. Limits of a login come from limits.conf and from the service of sshd.",
    ),
    story(
        NOFILE,
        "few files may be open",
        "NCCL opens sockets to many peers, and data loaders pass descriptors: `Too many open files` comes in \
         the middle of a run. The hard limit counts, as programs raise the soft one.",
    ),
    story(
        FEW_CPUS,
        "fewer processors than workers",
        "Affinity and the quota of the control group leave fewer processors than the node would have workers, \
         each of which also feeds its GPU. Ask the scheduler or the container for more.",
    ),
    story(
        LITTLE_MEMORY,
        "little memory for the workers",
        "What is left on the node, or under the limit of its control group, is less than 1 GiB for each \
         worker: loading CUDA and its libraries takes more.",
    ),
    story(
        PORT_TAKEN,
        "the port of rank 0 is taken",
        "Somebody listens on it on the first node. Without --master_port another one is taken, and said; \
         with it, a job would not start. It may be a job that did not end: `ss -ltnp` there.",
    ),
    story(
        REACHES_NOBODY,
        "a node does not reach others",
        "Every agent opened a port of the kernel's choice, and this node could not open a connection to that \
         of others. Ranks of a job connect to each other on any port: a firewall between nodes has to let \
         all of them through, in both directions.",
    ),
    story(
        NOT_REACHED,
        "a node is not reached by others",
        "Most of the nodes that tried could not open a connection to this one, at the address at which \
         sshd was reached. A firewall there, or an address that means nothing on the other nodes.",
    ),
    story(
        NO_MASTER,
        "the port of rank 0 is not reached",
        "The node reaches the first node on other ports, but not on the one of rank 0. A filter for this \
         port, or somebody else at the address of `--master_addr`.",
    ),
    story(
        OTHER_SPEED,
        "a network interface has another speed than most",
        "The interface of the address that the other nodes use says another speed than those of most nodes. \
         A bad cable negotiates down, and the slowest sets the pace of all.",
    ),
    story(
        ADAPTER_DOWN,
        "InfiniBand without a link",
        "The node has adapters and no port of them is active: NCCL goes over TCP, or fails where \
         NCCL_IB_HCA names them. Cable, switch port, subnet manager.",
    ),
    story(
        SAME_MACHINE,
        "two hosts are one machine",
        "Both names lead to the same running kernel. Workers of both would take the same GPUs. Where one \
         machine plays a cluster it is meant so.",
    ),
    story(
        NO_ADDRESS,
        "nobody knows how a node is reached",
        "The others connect to the address at which sshd was reached. Behind a jump to the node's own \
         loopback there is none, and no route to another host tells one. `--master_addr` names that of the \
         first node.",
    ),
    story(
        OTHER_NAME,
        "a name stands for another machine there",
        "The nodes look up each other's names, and this one finds other addresses than most, or none. \
         remuda connects to addresses and does not mind; MPI, NCCL_COMM_ID, `MASTER_ADDR=node-0` in a \
         script and ssh from node to node do. An old line in /etc/hosts, or another search list.",
    ),
];
