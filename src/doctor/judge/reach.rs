//! Findings about access to a node: connection, login shell, build, clock, user.

use std::time::Duration;

use crate::base::{NodeRank, Severity};
use crate::doctor::codes;
use crate::doctor::facts::{ClusterFacts, ExamOutcome, ExaminedNode, Finding, NodeFacts};
use crate::doctor::judge::outliers::outliers;
use crate::report::text::show_duration;
use crate::transport::{Fault, FaultKind, SessionInfo};

/// Start-up time of a login shell from which it is slow; it delays the start of every job.
const SHELL_SLOW: Duration = Duration::from_secs(2);
/// Difference of clocks above which logs are hard to compare, and certificates and builds fail.
pub(in crate::doctor) const CLOCK_OFF_US: u64 = 1_000_000;

const SAME_BUILD: &str =
    "install this build there, or omit --agent_path, so that remuda copies itself to the node";

pub(super) fn findings(cluster: &ClusterFacts) -> Vec<Finding> {
    let nodes = (0..).map(NodeRank).zip(&cluster.nodes);
    let mut found: Vec<Finding> =
        nodes.filter_map(|(rank, node)| unexamined(cluster, rank, node)).collect();
    let slow_way = slow_host_args(cluster);
    for (rank, _, examined) in cluster.examined_nodes() {
        found.extend(build(rank, examined));
        found.extend(shell(rank, examined, &slow_way));
        found.extend(clock(rank, examined));
    }
    found.extend(servers(cluster));
    found.extend(users(cluster));
    found
}

fn unexamined(cluster: &ClusterFacts, rank: NodeRank, node: &NodeFacts) -> Option<Finding> {
    let finding = |code, message| Finding::new(code, Severity::Error, rank, message);
    match &node.outcome {
        ExamOutcome::Examined(_) => None,
        ExamOutcome::Unreachable(fault) => {
            let message = format!("cannot be reached: {}", fault.kind.title());
            let finding = finding(codes::UNREACHABLE, message).detail(fault.detail.clone());
            Some(match first_fault(cluster, fault.kind).and_then(Fault::help) {
                Some(help) => finding.help(help),
                None => finding,
            })
        }
        ExamOutcome::NoReport(why) => {
            Some(finding(codes::NO_REPORT, format!("its agent sent no report: {why}")).help(
                "run it again; if it fails again, look for a hung file system or driver there",
            ))
        }
        ExamOutcome::OtherVersion { build } => Some(
            finding(
                codes::OTHER_BUILD,
                format!("remuda {build} there uses another protocol version"),
            )
            .help(SAME_BUILD),
        ),
    }
}

/// The first fault of a kind; its help is given for all nodes with that kind, so that they form one
/// finding.
fn first_fault(cluster: &ClusterFacts, kind: FaultKind) -> Option<&Fault> {
    cluster.nodes.iter().find_map(|node| match &node.outcome {
        ExamOutcome::Unreachable(fault) if fault.kind == kind => Some(fault),
        ExamOutcome::Unreachable(_)
        | ExamOutcome::NoReport(_)
        | ExamOutcome::OtherVersion { .. }
        | ExamOutcome::Examined(_) => None,
    })
}

fn build(rank: NodeRank, examined: &ExaminedNode) -> Option<Finding> {
    const BUILD: &str = env!("CARGO_PKG_VERSION");
    let build = &examined.build;
    (build != BUILD).then(|| {
        let message = format!("remuda {build} there, {BUILD} here");
        Finding::new(codes::OTHER_BUILD, Severity::Warning, rank, message).help(SAME_BUILD)
    })
}

fn is_slow(session: &SessionInfo) -> bool {
    session.shell.is_some_and(|took| SHELL_SLOW <= took)
}

/// Ssh arguments for the first host with a slow shell, which the help shows as an example.
fn slow_host_args(cluster: &ClusterFacts) -> String {
    let mut slow = cluster.examined_nodes().filter(|(_, _, examined)| is_slow(&examined.session));
    slow.find_map(|(_, _, examined)| examined.session.ssh_args.clone())
        .unwrap_or_else(|| "HOST".to_owned())
}

fn shell(rank: NodeRank, examined: &ExaminedNode, way: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let session = &examined.session;
    if let Some(took) = session.shell.filter(|_| is_slow(session)) {
        let message = "its login shell is slow";
        found.push(
            Finding::new(codes::SLOW_SHELL, Severity::Warning, rank, message)
                .detail(format!("{} until it ran the first command", show_duration(took)))
                .help(format!(
                    "`time ssh {way} true`; start-up files should return early without a terminal"
                )),
        );
    }
    if let Some(first) = session.noise.lines().map(str::trim).find(|line| !line.is_empty()) {
        let message = "its login shell prints text in non-interactive sessions";
        found.push(
            Finding::new(codes::NOISY_SHELL, Severity::Warning, rank, message)
                .detail(format!("`{}`", first.escape_debug()))
                .help("in its start-up files, print only to a terminal: `[ -t 1 ] && echo …`"),
        );
    }
    found
}

fn clock(rank: NodeRank, examined: &ExaminedNode) -> Option<Finding> {
    let clock = examined.clock;
    let off_us = clock.ahead_us.unsigned_abs();
    if off_us.saturating_sub(clock.error_us) <= CLOCK_OFF_US {
        return None;
    }
    let (off, way) = (
        show_duration(Duration::from_micros(off_us)),
        if 0 < clock.ahead_us { "ahead of" } else { "behind" },
    );
    Some(
        Finding::new(
            codes::CLOCK,
            Severity::Warning,
            rank,
            format!("its clock is {way} the local one"),
        )
        .detail(format!("by {off}"))
        .help("see `timedatectl` or `chronyc tracking` there"),
    )
}

fn servers(cluster: &ClusterFacts) -> Vec<Finding> {
    let server =
        |(rank, _, examined): (_, _, &ExaminedNode)| Some((rank, examined.session.server.clone()?));
    let servers: Vec<_> = cluster.examined_nodes().filter_map(server).collect();
    let Some((usual, odd)) = outliers(&servers) else { return Vec::new() };
    let finding = |(rank, server)| {
        let message = format!("its sshd is {server}, most are {usual}");
        Finding::new(codes::OTHER_SSHD, Severity::Note, rank, message)
    };
    odd.into_iter().map(finding).collect()
}

fn users(cluster: &ClusterFacts) -> Vec<Finding> {
    let user = |(rank, _, examined): (_, _, &ExaminedNode)| {
        let machine = &examined.report.machine;
        (rank, (machine.user.clone(), machine.uid))
    };
    let users: Vec<_> = cluster.examined_nodes().map(user).collect();
    let show = |(name, uid): &(Option<String>, u32)| match name {
        Some(name) => format!("`{name}` ({uid})"),
        None => format!("uid {uid}, without a name"),
    };
    let Some((usual, odd)) = outliers(&users) else { return Vec::new() };
    let finding = |(rank, user)| {
        let message = format!("the user is {} there, {} on most", show(&user), show(&usual));
        Finding::new(codes::OTHER_USER, Severity::Warning, rank, message).help(
            "files of one user belong to another there; set the user: `user@host` in the hostfile",
        )
    };
    odd.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, cluster, examined_mut};
    use super::*;
    use crate::doctor::facts::Clock;

    #[test]
    fn doctor_reports_nodes_without_a_report() {
        let words = "ssh: connect to host n2 port 22: Connection refused";
        let fault = Fault::new(FaultKind::Refused, words);
        let mut one = cluster(3);
        one.nodes[1].outcome = ExamOutcome::Unreachable(fault);
        check(&one, &["error[D001] n2: cannot be reached: connection refused"]);
        one.nodes[1].outcome = ExamOutcome::NoReport("the connection ended".to_owned());
        check(&one, &["error[D002] n2: its agent sent no report: the connection ended"]);
        one.nodes[1].outcome = ExamOutcome::OtherVersion { build: "9.9.9".to_owned() };
        check(&one, &["error[D003] n2: remuda 9.9.9 there uses another protocol version"]);
    }

    #[test]
    fn doctor_checks_shells_clocks_and_builds() {
        let mut one = cluster(3);
        examined_mut(&mut one, 0).session.noise = "\n  Welcome!\n".to_owned();
        check(&one, &["warning[D005] n1: its login shell prints text in non-interactive sessions"]);
        let mut one = cluster(3);
        examined_mut(&mut one, 2).session.shell = Some(Duration::from_secs(7));
        check(&one, &["warning[D006] n3: its login shell is slow"]);
        let mut one = cluster(3);
        examined_mut(&mut one, 1).clock = Clock { ahead_us: -90_000_000, error_us: 300 };
        check(&one, &["warning[D007] n2: its clock is behind the local one"]);
        examined_mut(&mut one, 1).clock = Clock { ahead_us: 3_000_000, error_us: 2_500_000 };
        check(&one, &[]);
        examined_mut(&mut one, 1).build = "0.0.1".to_owned();
        let expect =
            format!("warning[D003] n2: remuda 0.0.1 there, {} here", env!("CARGO_PKG_VERSION"));
        check(&one, &[&expect]);
    }

    #[test]
    fn doctor_reports_other_users_and_ssh_servers() {
        let mut one = cluster(3);
        examined_mut(&mut one, 2).report.machine.uid = 1001;
        check(&one, &["warning[D008] n3: the user is `ada` (1001) there, `ada` (1000) on most"]);
        let mut one = cluster(3);
        for (node, server) in ["OpenSSH_9.2p1", "OpenSSH_9.2p1", "OpenSSH_8.0"].iter().enumerate() {
            examined_mut(&mut one, node).session.server = Some((*server).to_owned());
        }
        check(&one, &["note[D004] n3: its sshd is OpenSSH_8.0, most are OpenSSH_9.2p1"]);
    }
}
