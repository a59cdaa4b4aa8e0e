//! Nodes that are not ready before the start.

use std::time::Duration;

use crate::base::HostName;
use crate::base::shell::quoted;
use crate::launch::node::heartbeats::NO_MESSAGE_WARNING;
use crate::launch::node::table::{NodeTable, StartStage};
use crate::launch::options::{Options, Transport};
use crate::launch::screen::messages;
use crate::plan::LaunchPlan;
use crate::report::text::{show_duration, show_step};

/// Longest pause between two reports of nodes that are not ready.
pub(in crate::launch) const REPORT_PAUSE_MAX: Duration = Duration::from_secs(300);

/// The pause after a report of the wait: with each report the length of the wait doubles.
pub(in crate::launch) fn pause_after(waited: Duration) -> Duration {
    waited.clamp(NO_MESSAGE_WARNING, REPORT_PAUSE_MAX)
}

/// Hosts that have not answered, in the order of their ranks. Empty once workers were started.
#[derive(Debug, Default)]
pub(in crate::launch) struct PendingNodes {
    pub(in crate::launch) connecting: Vec<HostName>,
    pub(in crate::launch) logged_in: Vec<HostName>,
    pub(in crate::launch) preparing: Vec<HostName>,
    /// Whether the launcher logs in to the hosts that are called; else they connect by themselves.
    pub(in crate::launch) by_ssh: bool,
}

impl PendingNodes {
    /// The nodes that delay the start, and the progress of each.
    pub(in crate::launch) fn of(plan: &LaunchPlan, options: &Options, table: &NodeTable) -> Self {
        let by_ssh = matches!(options.transport, Transport::Ssh(_));
        let mut pending = Self { by_ssh, ..Self::default() };
        for (node, stage) in table.unanswered() {
            let hosts = match stage {
                StartStage::Connecting => &mut pending.connecting,
                StartStage::LoggedIn => &mut pending.logged_in,
                StartStage::Preparing(_) => &mut pending.preparing,
            };
            hosts.push(plan.nodes[node.index()].host.clone());
        }
        pending
    }

    /// Lists the hosts, one line for each progress.
    pub(in crate::launch) fn show(&self) -> Vec<String> {
        let called = if self.by_ssh { "logging in to" } else { "waiting for" };
        let kinds = [
            (called, &self.connecting),
            ("starting an agent after the ssh login on", &self.logged_in),
            ("preparing", &self.preparing),
        ];
        let kinds = kinds.into_iter().filter(|(_, hosts)| !hosts.is_empty());
        kinds.map(|(what, hosts)| format!("still {what}: {}", folded(hosts))).collect()
    }

    /// Lines about the wait, while the job is starting. `limit` is that for nodes that connect by themselves, as text.
    pub(in crate::launch) fn show_waiting(
        &self,
        waited: Duration,
        limit: Option<&str>,
    ) -> Vec<String> {
        let limit = limit.map_or_else(String::new, |limit| format!(", at most {limit}"));
        let kinds = [
            (&self.connecting, if self.by_ssh { " to accept the ssh login" } else { "" }, &*limit),
            (&self.logged_in, " to start the agent (after the ssh login)", ""),
            (&self.preparing, " to finish preflight checks", ""),
        ];
        let kinds = kinds.into_iter().filter(|(hosts, ..)| !hosts.is_empty());
        let waited = show_duration(waited);
        let line = |(hosts, what, limit): (&Vec<HostName>, _, _)| {
            let hosts: Vec<&str> = hosts.iter().map(HostName::as_str).collect();
            let hosts = messages::name_hosts(&hosts);
            show_step("Waiting", &format!("for {hosts}{what}, {waited} so far{limit}"))
        };
        kinds.map(line).collect()
    }

    /// Commands that show what delays the first host of each progress.
    pub(in crate::launch) fn help(&self, options: &Options) -> Vec<String> {
        let destination = |host: &HostName| match &options.transport {
            Transport::Ssh(ssh) => Some(ssh.shown_args(host)),
            Transport::Local | Transport::Dial(_) | Transport::Managed(_) => None,
        };
        let called = self.connecting.first().and_then(destination);
        let called = called
            .map(|destination| format!("`ssh -v {destination} true` shows where the login stops"));
        let let_in = self.logged_in.first().and_then(destination).map(|destination| {
            format!(
                "check that `ssh {destination} true` returns; a start-up file or the home directory \
                 there may hang"
            )
        });
        let asked = self.preparing.first().map(|host| help_for_preparing(options, host));
        [called, let_in, asked].into_iter().flatten().collect()
    }
}

/// The command that shows why the checks of a node do not finish.
pub(in crate::launch) fn help_for_preparing(options: &Options, host: &HostName) -> String {
    let (command, what) = match &options.command.venv_script {
        Some(script) => (format!(". {}", quoted(script)), "`--venv_script` or a file system"),
        None => (format!("ls {}", quoted(&options.command.cwd)), "a file system"),
    };
    let command = match &options.transport {
        Transport::Ssh(ssh) => format!("ssh {} {}", ssh.shown_args(host), quoted(&command)),
        Transport::Local | Transport::Dial(_) | Transport::Managed(_) => command,
    };
    format!("check that `{command}` returns; {what} there may hang")
}

pub(in crate::launch) fn folded(hosts: &[HostName]) -> String {
    messages::fold_hosts(&hosts.iter().map(ToString::to_string).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: impl IntoIterator<Item = String>) -> Vec<HostName> {
        names.into_iter().map(|name| HostName::parse(&name).expect("a name")).collect()
    }

    #[test]
    fn reports_of_a_wait_become_rare() {
        let half_an_hour = Duration::from_secs(1800);
        let mut reports = vec![Duration::from_millis(2500)];
        while let Some(last) = reports.last().filter(|last| **last < half_an_hour) {
            reports.push(*last + pause_after(*last));
        }
        let seconds: Vec<u64> = reports.iter().map(Duration::as_secs).collect();
        assert_eq!(seconds, [2, 12, 25, 50, 100, 200, 400, 700, 1000, 1300, 1600, 1900]);
    }

    #[test]
    fn pending_hosts_are_folded_by_stage() {
        let some = |hosts: &[&str]| names(hosts.iter().map(|name| (*name).to_owned()));
        let awaited = PendingNodes {
            connecting: some(&["n2", "n3", "n5"]),
            logged_in: some(&["n4"]),
            preparing: some(&["n1"]),
            by_ssh: true,
        };
        let shown = [
            "still logging in to: n[2-3,5]",
            "still starting an agent after the ssh login on: n4",
            "still preparing: n1",
        ];
        assert_eq!(awaited.show(), shown);
        let lines = [
            "   Waiting  for n2, n3, n5 to accept the ssh login, 20 s so far\n",
            "   Waiting  for n4 to start the agent (after the ssh login), 20 s so far\n",
            "   Waiting  for n1 to finish preflight checks, 20 s so far\n",
        ];
        let waited = Duration::from_secs(20);
        assert_eq!(awaited.show_waiting(waited, None), lines);
        let dialing = PendingNodes { connecting: some(&["n2"]), ..PendingNodes::default() };
        assert_eq!(
            dialing.show_waiting(waited, Some("30 min 00 s (--join_timeout)")),
            ["   Waiting  for n2, 20 s so far, at most 30 min 00 s (--join_timeout)\n"]
        );
        let called = names((0..100).map(|number| format!("n{}", number * 7)));
        let awaited = PendingNodes { connecting: called, ..PendingNodes::default() };
        assert_eq!(awaited.show(), ["still waiting for: n0, n7, n14, n21 and 96 more"]);
        assert!(PendingNodes::default().show().is_empty());
    }
}
