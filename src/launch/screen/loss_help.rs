//! Advice on the screen of a lost node: what to check on its host. Pure.

use crate::job::{AgentExitReason, NodeLoss};
use crate::launch::options::SupervisorOptions;

/// Help for a node whose messages the launcher cannot read.
const SAME_BUILD: &str =
    "install the same build of remuda on all nodes; if the builds are equal, please report it";

/// How to find out why a node was lost, or what prevents it from being lost again.
pub(in crate::launch) fn help_of_lost(
    host: &str,
    loss: &NodeLoss,
    is_agent_killed: bool,
    supervisor: &SupervisorOptions,
) -> Option<String> {
    if supervisor.is_kubernetes {
        return help_of_lost_pod(host, loss);
    }
    match loss {
        NodeLoss::LinkClosed(Some(exit)) => match AgentExitReason::of(*exit) {
            AgentExitReason::InternalError => None,
            AgentExitReason::LeaseExpired => Some(check_reachable(host)),
            AgentExitReason::InvalidData | AgentExitReason::Unknown => Some(check_oom_killer(host)),
        },
        // A request of the user.
        NodeLoss::Evicted => None,
        NodeLoss::InvalidData(_) => Some(SAME_BUILD.to_owned()),
        NodeLoss::LeaseExpired => Some(check_reachable(host)),
        NodeLoss::ShimNotResponding => Some(format!(
            "do not stop remuda-shim on {host} (SIGSTOP, debugger); `--lease TIME` allows a longer stop"
        )),
        NodeLoss::ShimExited => Some(check_oom_killer(host)),
        NodeLoss::LinkClosed(None) if is_agent_killed => Some(check_oom_killer(host)),
        NodeLoss::LinkClosed(None) => {
            Some(format!("check that {host} is running; see `uptime` and `dmesg` there"))
        }
    }
}

/// Returns a help without the option that lines of other launchers do not have.
pub(in crate::launch) fn without_lease(help: &str) -> String {
    help.split_once("; `--lease").map_or(help, |(rest, _)| rest).to_owned()
}

/// How to find out who killed a worker with SIGKILL, if remuda did not.
pub(in crate::launch) fn help_of_killed(
    host: &str,
    supervisor: &SupervisorOptions,
) -> Option<String> {
    if supervisor.is_kubernetes {
        return help_of_lost_pod(host, &NodeLoss::ShimExited);
    }
    Some(check_oom_killer(host))
}

fn check_reachable(host: &str) -> String {
    format!(
        "check that {host} is running and reachable; `--lease TIME` allows longer gaps between \
         heartbeats"
    )
}

fn check_oom_killer(host: &str) -> String {
    format!("if no user killed it, check `dmesg` on {host} for the OOM killer")
}

/// The same for a pod, where there is no login.
fn help_of_lost_pod(host: &str, loss: &NodeLoss) -> Option<String> {
    const LONGER_LEASE: &str = "; `--lease TIME` allows longer gaps between heartbeats";
    const MEMORY_LIMIT: &str = "; `OOMKilled` means its memory limit";
    let why = match loss {
        NodeLoss::LinkClosed(Some(exit)) => match AgentExitReason::of(*exit) {
            AgentExitReason::InternalError => return None,
            AgentExitReason::LeaseExpired => LONGER_LEASE,
            AgentExitReason::InvalidData | AgentExitReason::Unknown => MEMORY_LIMIT,
        },
        NodeLoss::Evicted => return None,
        NodeLoss::InvalidData(_) => return Some(SAME_BUILD.to_owned()),
        NodeLoss::LeaseExpired | NodeLoss::ShimNotResponding => LONGER_LEASE,
        NodeLoss::LinkClosed(None) | NodeLoss::ShimExited => MEMORY_LIMIT,
    };
    Some(format!(
        "`kubectl get pods` lists {host}; `kubectl describe pod NAME` and `kubectl logs NAME --previous` \
         show why it exited{why}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_for_other_launchers_names_no_lease() {
        let own = SupervisorOptions::default();
        let pods = SupervisorOptions { is_kubernetes: true, ..SupervisorOptions::default() };
        for supervisor in [own, pods] {
            let help = help_of_lost("n1", &NodeLoss::LeaseExpired, false, &supervisor);
            let help = help.expect("a help");
            let left = without_lease(&help);
            assert!(help.contains("; `--lease TIME`") && help.starts_with(&left), "{help}");
            assert!(!left.contains("lease") && left.contains("n1"), "{left}");
        }
        let other = help_of_lost("n1", &NodeLoss::ShimExited, false, &SupervisorOptions::default());
        assert_eq!(other.as_deref().map(without_lease), other);
    }
}
