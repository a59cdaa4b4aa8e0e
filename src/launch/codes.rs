//! The codes of failed jobs (`R…`).

use crate::base::{Explanation, explanation};

/// A node reported before the start that it cannot take part.
pub const CANNOT_START: &str = "R100";
/// A worker failed first.
pub(super) const WORKER_FAILED: &str = "R101";
/// A worker could not be started.
pub(super) const WORKER_NOT_STARTED: &str = "R102";
/// A node was lost.
pub(super) const NODE_LOST: &str = "R103";
/// `--timeout` was reached.
pub(super) const TIMEOUT: &str = "R105";
/// The job was stopped by a signal.
pub(super) const INTERRUPTED: &str = "R106";

/// Hosts that could not be reached.
pub const UNREACHABLE: &str = "R107";
/// Node 0 did not accept this node.
pub(super) const NOT_JOINED: &str = "R108";
/// Node 0 was lost.
pub(super) const LEADER_LOST: &str = "R109";
/// Node 0 cannot listen.
pub(super) const CANNOT_LISTEN: &str = "R110";
/// The kernel gave the launcher no thread, pipe or memory.
pub(super) const SYSTEM_REFUSED: &str = "R111";
/// The job needs more open files than the launcher may have.
pub(super) const TOO_FEW_FILES: &str = "R112";
/// The health endpoints cannot be served.
pub(super) const NO_STATUS: &str = "R113";

/// The `remuda explain` page of every code.
pub const EXPLANATIONS: &[Explanation] = &[
    explanation(
        CANNOT_START,
        "the job cannot start",
        "Before a job starts, every node checks whether it can take part: the script, the \
         interpreter, the working directory, the devices, the ports and the number of open \
         files. The screen lists what each node lacks. Nothing was started on any node. Correct \
         the problems, or leave out the nodes:\n\n    remuda run -H hosts --exclude n3 \
         train.py",
    ),
    explanation(
        WORKER_FAILED,
        "a rank failed",
        "The failure of the whole job began at this rank; all other ranks were stopped because of it. \
         Read the traceback or the last lines of this rank first; the line `log:` names the file with \
         its whole output.\n\nWhen a rank fails, the collectives of all others fail too, and their processes often exit \
         first. So the order of exits does not decide. remuda compares what the ranks themselves \
         reported, in the error file of torch (`@record` writes it to TORCHELASTIC_ERROR_FILE) or on \
         standard error:\n\n\
         * A rank that only reports a lost connection (`Connection closed by peer`, ncclRemoteError, \
         `Failed to recv, got 0 bytes`) or a timeout (`Timed out waiting`, `Watchdog caught collective \
         operation timeout`) is never named if another rank failed for a reason of its own, or exited \
         without a report.\n\
         * A rank that printed a traceback or wrote an error file is named even if remuda stopped it \
         before it had exited. The exit status is then that of the first rank that failed by itself, \
         else 1.\n\
         * Of several failures of their own, the earliest counts: the time of the error file, or the \
         time when the traceback arrived.\n\
         * If the exit code is not 1, or the traceback is more than 60 s older than the exit, the rank \
         survived the exception: the screen shows it as `the last traceback it printed`.\n\
         * If one worker exits with a code and another is killed by a signal within 200 ms, the killed \
         worker is named, unless remuda sent the signal. A SIGABRT after a report of a lost connection or \
         a timeout does not count.\n\
         * A traceback without `[rank2]:` may only have been logged. If remuda stopped the rank that printed \
         it, and another rank failed for a reason of its own or exited without a report, or a node was lost, \
         the rank is not named for this traceback. If the first lost connection was reported at most 5 s \
         after the traceback, and no rank reported a timeout, the rank is named. Otherwise, if it printed more \
         output 1 s or more later, before it was stopped, it is only named if every other rank reported a lost \
         connection or a timeout, and these reports do not point to another rank.\n\
         * If all reports are about other ranks, and a rank had exited with 0 before, that rank is named. \
         Else the ranks that still ran and reported nothing are named: they `did not take part`, or \
         `closed connections before exiting`. A monitored barrier names them itself.\n\
         * If ranks of remuda's collectives called different operations, and more than half of those whose calls are \
         known made the same call, the first rank that reported another call is named.\n\n\
         In all other cases, the exit status of remuda is the exit code of this rank, or 128 + the signal. After \
         `killed by signal 9 (SIGKILL)`, look for the kernel's out-of-memory killer: if it killed a \
         process while the rank ran, a line says so. If the message says `aborted the \
         collectives of all ranks` or `stopped taking part in collectives`, a worker of `remuda::runtime` aborted or left its group, and \
         remuda stopped it before it exited. `run.json` has the exception \
         and the reason (`cause.exception`, `cause.evidence`), and the line in the program (`cause.place`).",
    ),
    explanation(
        WORKER_NOT_STARTED,
        "a rank could not start",
        "The kernel refused to create the process or to execute the program, although all checks \
         before the start had passed. The message names the step that failed and the error. For \
         `resource temporarily unavailable`, check `ulimit -u` and the pids limit of the cgroup.",
    ),
    explanation(
        NODE_LOST,
        "a node was lost",
        "On every node, the process `remuda-agent` communicates with the launcher, and the \
         process `remuda-shim` starts the workers and waits for them. One of them was killed (by \
         a user, or by the kernel's OOM killer), its connection was closed, it sent invalid \
         data, or it sent nothing for longer than `--lease`. If a signal (SIGSTOP) or a debugger \
         stopped `remuda-shim`, the agent continues it once after `--lease`, and kills it with \
         its workers if it still does not answer. Workers of a node stop when the \
         node loses the launcher, also when the launcher itself was suspended for longer than \
         the lease. All other workers were stopped. The exit status is 75. If the host is \
         broken, continue without it:\n\n    remuda run -H hosts --exclude n3 train.py\n\nIn \
         Kubernetes, the status of the lost pod shows the reason (evicted, OOMKilled, its node is \
         gone):\n\n    kubectl describe pod NAME\n    kubectl logs NAME --previous",
    ),
    explanation(
        TIMEOUT,
        "the job took longer than --timeout",
        "remuda asked all workers to stop and killed those that were still running after \
         `--grace`. The exit status is 124, as of timeout(1). Time during which the launcher was \
         suspended (Ctrl-Z) does not count.\n\nThe screen lists the ranks that were still running, \
         with the time since the last output of each, and the line of each Python program that imports torch or calls \
         `remuda.init`, if the package remuda is installed. If all of them had written nothing for a long \
         time, the job hangs: usually one rank waits in a collective that another rank does not \
         reach. Start the job again; while it hangs, Ctrl-\\ (SIGQUIT) shows the pid of each rank, \
         and py-spy shows where that rank waits:\n\n    py-spy dump --pid PID\n\nThe rank that \
         waits in a different place than the others is the cause. A shorter timeout in \
         `torch.distributed.init_process_group(timeout=...)` ends a collective that hangs, and the \
         report then names the rank that did not take part.\n\nIf the time ended while remuda waited to restart the \
         job, the screen shows the last failure.\n\nIf the time ended before the job started, nothing \
         was started, and the screen lists the hosts that had not answered and their last step: \
         ssh was logging in; ssh had logged in and the login shell had not started the remuda \
         agent; or the agent was checking whether the workers can start. Without `--timeout` the \
         first step is limited by ssh's ConnectTimeout and one minute, and each of the others by \
         `--agent_timeout`. Use a longer `--timeout`, or leave it out.",
    ),
    explanation(
        INTERRUPTED,
        "the job was stopped by a signal",
        "The launcher received SIGINT (Ctrl-C), SIGTERM or SIGHUP and sent it to every worker; or the \
         allocation of Slurm, in which it runs, is about to end, and the workers were asked in time. A \
         second signal kills the workers immediately; after a third, the launcher exits without \
         waiting for them. The exit status is 128 + the number of the signal.",
    ),
    explanation(
        UNREACHABLE,
        "hosts cannot be reached, or cannot run the remuda agent",
        "The launcher has no connection to the remuda agent of these hosts; the screen shows the \
         reason below each host. What to check depends on how the agents are started:\n\n\
         * Over ssh (`--launcher ssh`, the default): ssh could not connect or authenticate, and its \
         output follows the host. During the start of a job, ssh never asks for a password or about an \
         unknown host key. If ssh reached the host, then the host has no directory for the remuda \
         executable, a different processor or an older C library, or its login shell did not start the \
         agent within `--agent_timeout`.\n\
         * By a process manager (`--launcher slurm`, `openmpi`, `mpich`, `impi`, `mvapich`, `pbs`, `lsf` or \
         `flux`): its program is not in PATH or belongs to another MPI, it exited, or it did not start the \
         agent within `--agent_timeout`. The help shows a command that must print the name of the host. \
         `--launcher ssh` starts the agents without it.\n\
         * By itself (`--no_ssh`, lines of torchrun and accelerate with the address of node 0, tasks of \
         `srun` and `mpirun`): the node did not connect to node 0 in time (`--join_timeout`, or `--rdzv-conf \
         join_timeout=SECONDS`). The screen of each node shows what the node is waiting for.\n\n\
         If this command works, remuda can start its agent over ssh:\n\n    ssh -o BatchMode=yes n3 \
         true\n\nremuda gives ssh a configuration that includes yours. If yours is another file (`ssh -F FILE`, or a \
         script in the place of ssh that adds `-F`), name it: `--ssh_config FILE`.\n\nTo continue without a host, use `--exclude n3`, or remove the host from `-H`.\n\nThe exit \
         status is 69 if a host did not answer; 77 if hosts refuse the key of the user or of the job, or \
         have an unknown host key; else that of the reason, such as 78 for another processor.",
    ),
    explanation(
        NOT_JOINED,
        "this node does not take part",
        "A node that is started by itself (`--no_ssh` with a key) connects to node 0 until node \
         0 accepts it. Either node 0 did not answer within `--join_timeout`, or a program that is not \
         remuda uses its port: all nodes must be started with remuda; or node 0 has a \
         different key, in which case it sends no reply and both sides exit with 77 and print the \
         fingerprint of their key; or, without a key file, another run id or fewer nodes; or node 0 was started with another line, in \
         which case the screen shows how the two lines differ. Start every node with the \
         same hosts, slots, program and `--env`; only `--node_rank` differs. Under torchrun and accelerate the \
         program, its arguments and the number of workers may differ too. If the lines differ otherwise, node 0 and \
         the job end immediately. With `remuda run`, nodes with different numbers of workers need one command that \
         names all of them with their slots: `-H n1:4,n2:2`.",
    ),
    explanation(
        LEADER_LOST,
        "node 0 was lost",
        "The connection to node 0 closed before node 0 reported how the job ended: its process \
         was killed, its machine is down, or the network failed. remuda stopped the workers of \
         this node (SIGTERM, `--grace`, SIGKILL). The exit status is 75. Node 0 writes the log \
         of the job: look there for the cause.",
    ),
    explanation(
        CANNOT_LISTEN,
        "node 0 cannot listen",
        "Nodes that are started one by one connect to `--master_addr` at the port after \
         `--master_port`; the store uses the next port. The address must belong to node 0, and \
         no other process may use the ports. If node 0 of the same job runs already, the line was typed \
         twice with number 0: each node has its own `--node_rank`. remuda listens at this address only, and a \
         peer without the key gets no reply. To find the process that uses a port:\n\n    ss -ltnp",
    ),
    explanation(
        SYSTEM_REFUSED,
        "the launcher cannot start",
        "The kernel gave the launcher no thread, no pipe or no memory; the message says which. \
         Nothing was started. Check `ulimit -u`, `ulimit -n` and the limits of the cgroup.",
    ),
    explanation(
        TOO_FEW_FILES,
        "too few open files are allowed",
        "The launcher needs six file descriptors for each node over ssh, one for each node that \
         connects by itself, and at most 1,024 for log files. It raises its limit up to the hard \
         limit by itself. To read the hard limit:\n\n    ulimit -Hn\n\nRaise `nofile` in /etc/security/limits.conf, or use fewer \
         hosts.",
    ),
    explanation(
        NO_STATUS,
        "the health endpoints cannot be served",
        "`--status_addr` is the address and port of this pod at which remuda serves /livez, \
         /readyz and /metrics. The address does not belong to this pod, or another process uses \
         the port. Correct the option, or leave it out.",
    ),
];
