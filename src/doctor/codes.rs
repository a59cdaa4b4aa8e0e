//! The codes of the findings of `remuda doctor` (`D…`).

use crate::base::{Explanation, explanation};

/// No link to a host could be opened.
pub(super) const UNREACHABLE: &str = "D001";
/// A node was reached and sent no report.
pub(super) const NO_REPORT: &str = "D002";
/// A node runs another build of remuda.
pub(super) const OTHER_BUILD: &str = "D003";
/// A node runs a different sshd than most.
pub(super) const OTHER_SSHD: &str = "D004";
/// A login shell prints text before the command of remuda.
pub(super) const NOISY_SHELL: &str = "D005";
/// A login shell takes long before the command of remuda.
pub(super) const SLOW_SHELL: &str = "D006";
/// The clock of a node differs.
pub(super) const CLOCK: &str = "D007";
/// A node has a different user than most.
pub(super) const OTHER_USER: &str = "D008";
/// The working directory is missing.
pub(super) const CWD: &str = "D009";
/// The program is missing.
pub(super) const PROGRAM: &str = "D010";
/// The script is missing.
pub(super) const SCRIPT: &str = "D011";
/// Python does not work or differs.
pub(super) const PYTHON: &str = "D012";
/// A node has more slots than GPUs.
pub(super) const TOO_FEW_GPUS: &str = "D013";
/// A node has more GPUs than slots.
pub(super) const UNUSED_GPUS: &str = "D014";
/// NVML does not answer.
pub(super) const NO_DRIVER: &str = "D015";
/// A node has different GPUs than most.
pub(super) const OTHER_GPUS: &str = "D016";
/// A node has a different GPU driver than most.
pub(super) const OTHER_DRIVER: &str = "D017";
/// A GPU is partitioned.
pub(super) const MIG: &str = "D018";
/// A GPU has memory errors.
pub(super) const ECC: &str = "D019";
/// The GPU driver has logged errors.
pub(super) const XID: &str = "D020";
/// Other processes use a GPU.
pub(super) const GPU_IN_USE: &str = "D021";
/// A node has a different NCCL than most.
pub(super) const OTHER_NCCL: &str = "D022";
/// A node has a different CUDA runtime than most.
pub(super) const OTHER_CUDA: &str = "D023";
/// `/dev/shm` is missing, small or full.
pub const SHM: &str = "D024";
/// The limit of locked memory is low.
pub(super) const MEMLOCK: &str = "D025";
/// The limit of open files is low.
pub(super) const NOFILE: &str = "D026";
/// A node has fewer processors than workers.
pub(super) const FEW_CPUS: &str = "D027";
/// A node has too little memory for its workers.
pub(super) const LITTLE_MEMORY: &str = "D028";
/// The port of rank 0 is in use.
pub(super) const PORT_TAKEN: &str = "D029";
/// A node cannot connect to other nodes.
pub(super) const CANNOT_CONNECT: &str = "D030";
/// Other nodes cannot connect to a node.
pub(super) const NOT_REACHED: &str = "D031";
/// A node cannot connect to the port of rank 0.
pub(super) const NO_MASTER: &str = "D032";
/// A network interface has a different speed than most.
pub(super) const OTHER_SPEED: &str = "D033";
/// InfiniBand without a link.
pub(super) const ADAPTER_DOWN: &str = "D034";
/// Two hosts are the same machine.
pub(super) const SAME_MACHINE: &str = "D035";
/// No address is known at which other nodes reach a node.
pub(super) const NO_ADDRESS: &str = "D036";
/// A name resolves to a different machine on a node.
pub(super) const OTHER_NAME: &str = "D037";
/// The torch of a node differs.
pub(super) const OTHER_TORCH: &str = "D038";

/// The `remuda explain` page of every code.
pub const EXPLANATIONS: &[Explanation] = &[
    explanation(
        UNREACHABLE,
        "a host cannot be reached",
        "ssh could not connect to the host or could not log in; its output is quoted below the \
         message. A job that includes this host would not start. Check what ssh reports without \
         a prompt:\n\n    ssh -o BatchMode=yes HOST true\n\nIf that command works, remuda can \
         reach the host. To work without the host, write the usable hosts to a file and start \
         the job on that file:\n\n    remuda doctor -H hosts --usable usable train.py\n    remuda \
         run -H usable train.py",
    ),
    explanation(
        NO_REPORT,
        "a node sent no report",
        "The remuda agent ran on the node, and then its connection ended or it did not answer \
         within 60 s. The examination reads the node's file systems, GPU driver and Python \
         interpreter, and each of them can hang. Look for processes in state D (uninterruptible \
         wait) on the node:\n\n    ssh HOST ps -eo pid,stat,comm",
    ),
    explanation(
        OTHER_BUILD,
        "a node runs another build of remuda",
        "With `--agent_path` remuda uses the executable that is installed on the node, and that \
         executable is a different build from the launcher. If the two builds use different \
         protocols, the job cannot start; otherwise this is a warning. Install the same build on \
         every node, or leave out `--agent_path`: remuda then copies its own executable to the \
         node.",
    ),
    explanation(
        OTHER_SSHD,
        "a node runs a different sshd than most nodes",
        "This is not an error by itself. A node that was installed at a different time often \
         differs in other ways, too. Install the same version of OpenSSH on all nodes if they \
         should be equal.",
    ),
    explanation(
        NOISY_SHELL,
        "a login shell prints text",
        "A start-up file of the login shell (such as ~/.bashrc or ~/.profile) writes to standard \
         output although no terminal is attached. remuda skips this text; scp, rsync, git and \
         other launchers do not skip it and fail with misleading messages. Print only when a \
         terminal is attached:\n\n    [ -t 1 ] && echo Welcome",
    ),
    explanation(
        SLOW_SHELL,
        "a login shell is slow",
        "More than 2 s passed between the login and the first command on the node. Every job and \
         every `ssh` to the node pays this time. Usual causes: environment modules or conda in \
         start-up files, a slow network home directory, a name service that times out. To \
         measure it:\n\n    time ssh HOST true",
    ),
    explanation(
        CLOCK,
        "a clock differs",
        "The clock of the node differs from the launcher's clock by more than 1 s (half of the \
         fastest round trip is allowed for). Training works, but the logs of nodes cannot be \
         compared, builds and checkpoints seem newer than they are, and certificates and \
         Kerberos tickets fail. Let a time service such as chrony or systemd-timesyncd set the \
         clock:\n\n    timedatectl set-ntp true",
    ),
    explanation(
        OTHER_USER,
        "a node has a different user",
        "The user's name or number (uid) on this node differs from most nodes. On a shared file \
         system, files that one node writes may be unreadable on another. To log in with a \
         different name, write the name in the hostfile:\n\n    ada@worker-0 slots=8",
    ),
    explanation(
        CWD,
        "the working directory is missing",
        "Workers start in the directory in which remuda was started, at the same path on every \
         node. That directory does not exist on this node. Start remuda in a directory on a file \
         system that all nodes share.",
    ),
    explanation(
        PROGRAM,
        "the program is missing",
        "The program that the workers would execute does not exist on the node or is not \
         executable. For a Python script the program is the interpreter of `--python`, else of \
         the active environment, else of PATH, at the same path on every node. Install it there, \
         or name one that every node has:\n\n    remuda run -H hosts --python /usr/bin/python3 \
         train.py",
    ),
    explanation(
        SCRIPT,
        "the script is missing",
        "The script does not exist on the node or is not readable. It is looked up at the same \
         path on every node, relative to the working directory. Start remuda in a directory on a \
         file system that all nodes share, or copy the script to every node.",
    ),
    explanation(
        PYTHON,
        "a Python does not work or differs",
        "The Python interpreter of this node does not print its version, or prints a different \
         version than on most nodes. Ranks with different versions of Python see different \
         packages and cannot always unpickle each other's data. Install the same version on \
         every node, or select one with `--python`.",
    ),
    explanation(
        TOO_FEW_GPUS,
        "a node has fewer GPUs than slots",
        "remuda starts one worker for each slot, so some workers of this node would find no GPU. \
         Either the hostfile has too many slots for this host, or a GPU has failed. List the \
         GPUs that the driver sees:\n\n    ssh HOST nvidia-smi -L\n\nThen correct `slots=` in \
         the hostfile, or repair the node.",
    ),
    explanation(
        UNUSED_GPUS,
        "a node has more GPUs than slots",
        "The hostfile or the selection uses only a part of the node's GPUs. This is not an \
         error. To use all of them, raise `slots=` in the hostfile.",
    ),
    explanation(
        NO_DRIVER,
        "the GPUs of a node do not respond",
        "The node has GPU device files, but the driver's library (NVML) or one of the GPUs does \
         not respond. After a driver update the node may need a reboot; a GPU that hangs needs a \
         reset. Check on the node:\n\n    ssh HOST nvidia-smi",
    ),
    explanation(
        OTHER_GPUS,
        "a node has different GPUs than most nodes",
        "The name or the memory size of the GPUs differs. In a data-parallel job all ranks wait \
         for the slowest GPU, and the batch must fit into the smallest one. Use nodes with equal \
         GPUs (`--exclude HOST`), or choose the batch size for the smallest GPU.",
    ),
    explanation(
        OTHER_DRIVER,
        "a node has a different GPU driver than most nodes",
        "This often works, but an older driver may lack the CUDA version that the program needs, \
         and every bug report about GPUs asks for the driver version first. Install the same \
         driver on all nodes.",
    ),
    explanation(
        MIG,
        "a GPU is partitioned (MIG)",
        "Multi-Instance GPU is enabled. A worker sees one partition of the GPU, and NCCL cannot \
         connect partitions. Disable it while the GPU is idle:\n\n    nvidia-smi -mig 0",
    ),
    explanation(
        ECC,
        "a GPU has memory errors",
        "The GPU has counted uncorrectable memory errors since the driver was loaded. Results \
         computed on it cannot be trusted, and workers that use it crash. Remove the node from \
         the hostfile (`--exclude HOST`) and reset the GPU, which remaps the bad memory rows. \
         Replace the GPU if the errors continue.\n\n    nvidia-smi --gpu-reset -i INDEX",
    ),
    explanation(
        XID,
        "the GPU driver has logged errors",
        "The kernel log of the node contains errors of the GPU driver (Xid); the newest one is \
         shown. Some are caused by a program (13, 31); others need a reset or a repair (48, 63, \
         64, 74, 79, 94, 95). The log is readable only with the permissions that the node \
         grants. To read all of them:\n\n    ssh HOST sudo dmesg -T",
    ),
    explanation(
        GPU_IN_USE,
        "a GPU is in use",
        "remuda runs no workers while it examines nodes, so these processes belong to another \
         user or to a job that has not ended. The pids are those of the node; a process inside a \
         container may have no name outside of it. Wait for the processes to exit, terminate \
         them if they are yours, or use other hosts (`--exclude HOST`).",
    ),
    explanation(
        OTHER_NCCL,
        "a node has a different NCCL than most nodes",
        "Ranks with different versions of NCCL fail to connect or hang. The version shown \
         belongs to the library that a Python worker loads first: from the packages of its \
         environment, then LD_LIBRARY_PATH, then the system. To list every NCCL on the \
         nodes:\n\n    remuda doctor -H hosts --json train.py",
    ),
    explanation(
        OTHER_CUDA,
        "a node has a different CUDA runtime than most nodes",
        "The runtime is looked up in the same places as NCCL. Programs that ship their own \
         runtime are not affected. Extensions that were built on one node and are loaded on \
         another are. Install the same version on all nodes.",
    ),
    explanation(
        SHM,
        "/dev/shm is missing, small or full",
        "NCCL and data loaders exchange data through /dev/shm. Containers get 64 MiB by default, \
         and a worker that runs out of it is killed by SIGBUS. Give the container \
         more:\n\n    docker run --shm-size=8g …",
    ),
    explanation(
        MEMLOCK,
        "the limit of locked memory is low",
        "InfiniBand adapters lock the memory that they transfer. If the limit is not unlimited, \
         NCCL fails with `Cannot allocate memory` or falls back to TCP. The limit of a login \
         comes from /etc/security/limits.conf and from the service of sshd. To read \
         it:\n\n    ssh HOST ulimit -l",
    ),
    explanation(
        NOFILE,
        "the limit of open files is low",
        "NCCL opens a socket to many peers, and data loaders pass file descriptors: a run then \
         fails with `Too many open files`. The hard limit is checked, because programs raise the \
         soft limit themselves. To read it:\n\n    ssh HOST ulimit -Hn",
    ),
    explanation(
        FEW_CPUS,
        "fewer processors than workers",
        "CPU affinity and the CPU quota of the cgroup leave fewer processors than this node \
         would have workers, and each worker also has to feed its GPU. Request more processors \
         from the scheduler or for the container.",
    ),
    explanation(
        LITTLE_MEMORY,
        "too little memory for the workers",
        "The free memory of the node, or the rest of its cgroup limit, is less than 1 GiB for \
         each worker. Loading CUDA and its libraries needs more. Request more memory, or start \
         fewer workers (`--num_gpus`).",
    ),
    explanation(
        PORT_TAKEN,
        "the port of rank 0 is in use",
        "Another process listens on this port on the first node. Without `--master_port` remuda \
         uses another port and prints it; with `--master_port` the job would not start. The \
         process may be a job that has not ended. To find it:\n\n    ssh HOST ss -ltnp",
    ),
    explanation(
        CANNOT_CONNECT,
        "a node cannot connect to other nodes",
        "Every agent opened a listening port, and this node could not connect to the ports of \
         other nodes. The ranks of a job connect to each other on arbitrary ports, so a firewall \
         between the nodes must allow all ports in both directions.",
    ),
    explanation(
        NOT_REACHED,
        "other nodes cannot connect to a node",
        "Most of the nodes that tried could not open a connection to this node, at the address \
         at which sshd was reached. Either a firewall on the node blocks the ports, or the \
         address is not valid on the other nodes. Allow all ports between the nodes in both \
         directions.",
    ),
    explanation(
        NO_MASTER,
        "the port of rank 0 is not reachable",
        "The node can connect to the first node on other ports, but not on the port of rank 0. \
         Either a firewall filters this port, or the address of `--master_addr` belongs to \
         another machine. Choose another port with `--master_port`, or correct `--master_addr`.",
    ),
    explanation(
        OTHER_SPEED,
        "a network interface has a different speed than most",
        "The interface through which other nodes reach this node reports a different link speed \
         than on most nodes. A bad cable can lower the negotiated speed, and the slowest link \
         sets the pace of the job. Compare the speeds:\n\n    ssh HOST ethtool INTERFACE",
    ),
    explanation(
        ADAPTER_DOWN,
        "InfiniBand without a link",
        "The node has InfiniBand adapters, and none of their ports is active. NCCL then uses \
         TCP, or fails if NCCL_IB_HCA names these adapters. Check the cable, the switch port and \
         the subnet manager:\n\n    ssh HOST ibstat",
    ),
    explanation(
        SAME_MACHINE,
        "two hosts are the same machine",
        "Both names lead to the same running kernel, so workers of both hosts would use the same \
         GPUs. Remove one of the two from the hostfile. If one machine simulates a cluster on \
         purpose, ignore the message.",
    ),
    explanation(
        NO_ADDRESS,
        "no address is known for a node",
        "Other nodes connect to the address at which sshd was reached. If ssh reaches the node \
         through a jump host at the node's own loopback address, there is no such address, and \
         no route to another host shows one. For the first node, name the address:\n\n    remuda \
         run -H hosts --master_addr 10.0.0.1 train.py",
    ),
    explanation(
        OTHER_NAME,
        "a name resolves to a different machine",
        "Every node resolves the names of all nodes, and this node finds different addresses \
         than most nodes, or none. remuda connects to addresses and is not affected. MPI, \
         NCCL_COMM_ID, a script that sets `MASTER_ADDR=node-0` and ssh between nodes are \
         affected. Look for an old line in /etc/hosts or a different search list:\n\n    ssh \
         HOST getent hosts NAME",
    ),
    explanation(
        OTHER_TORCH,
        "a node has a different torch than most nodes",
        "The interpreter of this node finds another version of torch than that of most nodes, or none. \
         Ranks with different versions of torch fail when they form a group, or hang in a collective. The \
         version is read from the files of the package, and torch is not imported. Install the same \
         version on every node, or select an environment with `--python`; this shows the path of each \
         torch:\n\n    remuda doctor -H hosts --json train.py",
    ),
];
