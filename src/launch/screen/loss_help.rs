//! Advice on the screen of a lost node: what to check on its host. Pure.

use crate::base::WorkerExit;
use crate::job::NodeLoss;
use crate::launch::options::SupervisorOptions;

/// Help for a node whose messages the launcher cannot read.
const SAME_BUILD: &str =
    "install the same build of remuda on all nodes; if the builds are equal, please report it";

/// How to find out why a node was lost, or what prevents it from being lost again.
pub(in crate::launch) fn help_of_lost(
    host: &str,
    loss: &NodeLoss,
    is_agent_killed: bool,
    keeper: &SupervisorOptions,
) -> Option<String> {
    if keeper.is_kubernetes {
        return help_of_lost_pod(host, loss);
    }
    match loss {
        // An internal error, or a request of the user.
        NodeLoss::LinkClosed(Some(WorkerExit::Code(70))) | NodeLoss::Evicted => None,
        NodeLoss::InvalidData(_) => Some(SAME_BUILD.to_owned()),
        NodeLoss::LeaseExpired | NodeLoss::LinkClosed(Some(WorkerExit::Code(75))) => Some(format!(
            "check that {host} is running and reachable; `--lease TIME` allows longer gaps between \
             heartbeats"
        )),
        NodeLoss::ShimNotResponding => Some(format!(
            "do not stop remuda-shim on {host} (SIGSTOP, debugger); `--lease TIME` allows a longer stop"
        )),
        NodeLoss::LinkClosed(Some(_)) | NodeLoss::ShimExited => Some(check_oom_killer(host)),
        NodeLoss::LinkClosed(None) if is_agent_killed => Some(check_oom_killer(host)),
        NodeLoss::LinkClosed(None) => {
            Some(format!("check that {host} is running; see `uptime` and `dmesg` there"))
        }
    }
}

/// How to find out who killed a worker with SIGKILL, if remuda did not.
pub(in crate::launch) fn help_of_killed(host: &str, keeper: &SupervisorOptions) -> Option<String> {
    if keeper.is_kubernetes {
        return help_of_lost_pod(host, &NodeLoss::ShimExited);
    }
    Some(check_oom_killer(host))
}

fn check_oom_killer(host: &str) -> String {
    format!("if no user killed it, check `dmesg` on {host} for the OOM killer")
}

/// The same for a pod, where there is no login.
fn help_of_lost_pod(host: &str, loss: &NodeLoss) -> Option<String> {
    let why = match loss {
        NodeLoss::LinkClosed(Some(WorkerExit::Code(70))) | NodeLoss::Evicted => return None,
        NodeLoss::InvalidData(_) => return Some(SAME_BUILD.to_owned()),
        NodeLoss::LeaseExpired
        | NodeLoss::ShimNotResponding
        | NodeLoss::LinkClosed(Some(WorkerExit::Code(75))) => {
            "; `--lease TIME` allows longer gaps between heartbeats"
        }
        NodeLoss::LinkClosed(_) | NodeLoss::ShimExited => "; `OOMKilled` means its memory limit",
    };
    Some(format!(
        "`kubectl get pods` lists {host}; `kubectl describe pod NAME` and `kubectl logs NAME --previous` \
         show why it exited{why}"
    ))
}
