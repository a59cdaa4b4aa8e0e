//! The stable codes of how a job ends that failed (`R…`).

use crate::base::{Explanation, story};

/// A node said before the start that it cannot take part.
pub(super) const CANNOT_START: &str = "R100";
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
         so. A rank that only lost its peer is not named here; the peer is.",
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
        "The agent on a node ended, could not be understood, or was silent for longer than --lease. Its \
         workers stop by themselves when they lose the launcher; all others were stopped. When the host \
         is ill, go on without it:\n\n    remuda run -H hosts --exclude worker-3 train.py",
    ),
    story(
        TIMEOUT,
        "the job took longer than --timeout",
        "All workers were asked to stop, and killed after --grace. The exit status is 124, as that of \
         timeout(1). Time during which the launcher was stopped (Ctrl-Z) does not count.",
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
        "hosts cannot be reached",
        "Ssh could not connect, or could not prove who we are; its words stand behind each host. What \
         ssh itself can do by hand, remuda can:\n\n    ssh -o BatchMode=yes worker-3 true\n\n\
         Nothing asks for a password or about an unknown host key while a job starts. To go on without a \
         host: --exclude worker-3.",
    ),
];
