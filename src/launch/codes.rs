//! The stable codes of how a job ends that failed (`R…`).

use crate::base::{Explanation, story};

/// A node said before the start that it cannot take part.
pub const CANNOT_START: &str = "R100";
/// A worker failed first.
pub(super) const WORKER_FAILED: &str = "R101";
/// A worker could not be started.
pub(super) const WORKER_NOT_STARTED: &str = "R102";
/// A node went away.
pub(super) const NODE_LOST: &str = "R103";
/// `--timeout` ran out.
pub(super) const TIMEOUT: &str = "R105";
/// Somebody stopped the job.
pub(super) const INTERRUPTED: &str = "R106";

/// Hosts that could not be reached.
pub(super) const UNREACHABLE: &str = "R107";
/// Node 0 did not let this node in.
pub(super) const NOT_JOINED: &str = "R108";
/// Node 0 went away.
pub(super) const LEADER_LOST: &str = "R109";
/// Node 0 cannot listen.
pub(super) const CANNOT_LISTEN: &str = "R110";
/// The launcher got no thread, pipe or memory.
pub(super) const SYSTEM_REFUSED: &str = "R111";
/// The job needs more open files than the launcher may have.
pub(super) const TOO_FEW_FILES: &str = "R112";
/// Probes cannot be answered.
pub(super) const NO_STATUS: &str = "R113";

/// Their stories.
pub const EXPLANATIONS: &[Explanation] = &[
    story(
        CANNOT_START,
        "the job cannot start",
        "Every node is asked first whether it can take part: whether the script, the interpreter and the \
         working directory are there, the devices, the ports, enough descriptors. What each lacks is \
         listed, and nothing was started anywhere.",
    ),
    story(
        WORKER_FAILED,
        "a rank failed",
        "This rank ended with a code other than 0, or by a signal that we did not send, before any \
         other did; all others were stopped because of it. The last lines that it wrote stand below; \
         the exit status of the launcher is that of this rank, or 128 + the signal. `killed by SIGKILL` \
         without anybody who killed it is usually the kernel, out of memory: when it was, a line says \
         so. A rank that only lost its peer is not named here; the peer is. One that \
         `gave up` had ended the collectives of all and was stopped while it was about to end: the \
         status is that of the rank that heard of it first.",
    ),
    story(
        WORKER_NOT_STARTED,
        "a rank could not start",
        "The kernel refused to make the process or to execute the program, after everything that can be \
         looked at beforehand had been in order. The line below says which step failed, and why. For \
         `resource temporarily unavailable` see `ulimit -u` and the pids limit of the cgroup.",
    ),
    story(
        NODE_LOST,
        "a node was lost",
        "On every node a process of ours, `remuda-agent`, speaks with the launcher, and another, \
         `remuda-shim`, starts the workers and waits for them. One of them was killed (by somebody, or by \
         the kernel, out of memory), its connection ended, it could not be understood, or it was silent \
         for longer than --lease. Its workers stop by themselves when they lose the launcher, also when \
         it is the launcher that stood still for the whole lease; all others were stopped. The exit \
         status is 75. When the host is ill, go on without it:\n\n    remuda run -H hosts --exclude worker-3 train.py\n\n\
         In Kubernetes the reason is in the pod that was lost (evicted, OOMKilled, its node gone):\n\n    \
         kubectl describe pod NAME\n    kubectl logs NAME --previous",
    ),
    story(
        TIMEOUT,
        "the job took longer than --timeout",
        "All workers were asked to stop, and killed after --grace. The exit status is 124, as that of \
         timeout(1). Time during which the launcher was stopped (Ctrl-Z) does not count. When it ran out \
         while hosts were being reached, or were finding out whether they can start, nothing was started, \
         and those that had not answered are named, and how far they had come: ssh was logging in; ssh had let \
         us in, and the login shell there had not come to our agent; or the agent was looking whether the \
         workers can start. Without --timeout the first is bounded by ssh's ConnectTimeout and a minute, \
         each of the others by --agent_timeout.",
    ),
    story(
        INTERRUPTED,
        "the job was stopped by a signal",
        "The launcher was sent SIGINT (Ctrl-C), SIGTERM or SIGHUP and passed it on to every worker. A \
         second signal kills the workers at once, a third one leaves without waiting. The exit status \
         is 128 + the signal.",
    ),
    story(
        UNREACHABLE,
        "hosts cannot be reached, or cannot run our agent",
        "Ssh could not connect, or could not prove who we are; its words stand behind each host. What \
         ssh itself can do by hand, remuda can:\n\n    ssh -o BatchMode=yes worker-3 true\n\n\
         A host that was reached and cannot take part has no place for our executable, another processor, \
         or a login shell that does not come to the command; it has --agent_timeout for that.\n\n\
         Nothing asks for a password or about an unknown host key while a job starts. To go on without a \
         host: --exclude worker-3.\n\n\
         Nodes that are started one by one (`--no_ssh`) come by themselves: those that are listed did \
         not, within --join_timeout. What they wait for is on their own screens.",
    ),
    story(
        NOT_JOINED,
        "this node does not take part",
        "A node that is started by itself (`--no_ssh`, with a key) calls node 0 until it is let in. \
         Either nobody answered within --join_timeout; or node 0 has another key, and then it answers \
         nothing at all, and the exit status is 77 on both sides: each prints the fingerprint of its key; \
         or it has another plan, and then both are shown, line by line: every node must \
         be given the same hosts, slots, program and --env, and differ in --node_rank alone. Node 0 then \
         ends at once, and so does the job.",
    ),
    story(
        LEADER_LOST,
        "node 0 is gone",
        "The connection to node 0 ended before it had said how the job ended: its process was killed, \
         its machine is down, or the network is cut. The workers of this node were stopped (SIGTERM, \
         --grace, SIGKILL), and the exit status is 75. Node 0 writes the log of the job; look there.",
    ),
    story(
        CANNOT_LISTEN,
        "node 0 cannot listen",
        "Nodes that are started one by one come to --master_addr, at the port behind --master_port; the \
         one behind that is the store's. The address must be one of node 0's own, and nobody else may \
         have the ports. Only this address is listened at, and who does not have the key gets no answer.",
    ),
    story(
        SYSTEM_REFUSED,
        "the launcher cannot start",
        "The kernel gave the launcher no thread, no pipe or no memory; the message says which. Nothing \
         was started. See `ulimit -u`, `ulimit -n` and the limits of the cgroup.",
    ),
    story(
        TOO_FEW_FILES,
        "not enough open files",
        "Each node takes the launcher some descriptors, and each file of a rank one. `ulimit -n` shows \
         the limit; the launcher raises it by itself as far as `ulimit -Hn` allows.",
    ),
    story(
        NO_STATUS,
        "probes cannot be answered",
        "--status_addr names an address and a port of this pod at which /livez, /readyz and /metrics are \
         answered. The address is not one of ours, or somebody else has the port.",
    ),
];
