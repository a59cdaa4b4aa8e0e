//! Whether we come there: connection, login shell, build, clock, user.

use std::time::Duration;

use super::odd_ones;
use crate::base::{NodeRank, Severity};
use crate::doctor::case::{Case, Finding, NodeFacts, Patient, Seen};
use crate::doctor::codes;
use crate::report::summary::duration;
use crate::transport::{Arrival, Fault, FaultKind};

/// A login shell that takes longer makes every job start late.
const SHELL_SLOW: Duration = Duration::from_secs(2);
/// Clocks that are further apart make logs hard to compare, and certificates and builds fail.
pub(in crate::doctor) const CLOCK_OFF_US: u64 = 1_000_000;

pub(super) fn judge(case: &Case) -> Vec<Finding> {
    let nodes = (0..).map(NodeRank).zip(&case.nodes);
    let mut found: Vec<Finding> =
        nodes.filter_map(|(rank, node)| absent(case, rank, node)).collect();
    let slow_way = slow_way(case);
    for (rank, _, patient) in case.patients() {
        found.extend(build(rank, patient));
        found.extend(shell(rank, patient, &slow_way));
        found.extend(clock(rank, patient));
    }
    found.extend(servers(case));
    found.extend(users(case));
    found
}

fn absent(case: &Case, rank: NodeRank, node: &NodeFacts) -> Option<Finding> {
    let finding = |code, message| Finding::new(code, Severity::Error, rank, message);
    match &node.seen {
        Seen::Examined(_) => None,
        Seen::Unreachable(fault) => {
            let message = format!("cannot be reached: {}", fault.kind.title());
            let finding = finding(codes::UNREACHABLE, message).detail(fault.words.clone());
            Some(match first_of(case, fault.kind).and_then(Fault::help) {
                Some(help) => finding.help(help),
                None => finding,
            })
        }
        Seen::Lost(why) => Some(
            finding(codes::LOST, format!("its agent gave no report: {why}"))
                .help("run it again; if it stays so, look for a hung file system or driver there"),
        ),
        Seen::OtherVersion { build } => Some(
            finding(codes::OTHER_BUILD, format!("remuda {build} there speaks another protocol"))
                .help("install the same build there, or leave --agent_path out to bring ours"),
        ),
    }
}

/// What helps the first host of a kind is told to all of them: they are one finding.
fn first_of(case: &Case, kind: FaultKind) -> Option<&Fault> {
    case.nodes.iter().find_map(|node| match &node.seen {
        Seen::Unreachable(fault) if fault.kind == kind => Some(fault),
        Seen::Unreachable(_) | Seen::Lost(_) | Seen::OtherVersion { .. } | Seen::Examined(_) => {
            None
        }
    })
}

fn build(rank: NodeRank, patient: &Patient) -> Option<Finding> {
    const OURS: &str = env!("CARGO_PKG_VERSION");
    let build = &patient.build;
    (build != OURS).then(|| {
        let message = format!("remuda {build} there, {OURS} here");
        Finding::new(codes::OTHER_BUILD, Severity::Warning, rank, message)
            .help("install the same build there, or leave --agent_path out to bring ours")
    })
}

fn is_slow(arrival: &Arrival) -> bool {
    arrival.shell.is_some_and(|took| SHELL_SLOW <= took)
}

/// How to come to the first host with a slow shell: the line for one is an example for all.
fn slow_way(case: &Case) -> String {
    let mut slow = case.patients().filter(|(_, _, patient)| is_slow(&patient.arrival));
    slow.find_map(|(_, _, patient)| patient.arrival.way.clone())
        .unwrap_or_else(|| "HOST".to_owned())
}

fn shell(rank: NodeRank, patient: &Patient, way: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let arrival = &patient.arrival;
    if let Some(took) = arrival.shell.filter(|_| is_slow(arrival)) {
        let message = "its login shell is slow";
        found.push(
            Finding::new(codes::SLOW_SHELL, Severity::Warning, rank, message)
                .detail(format!("{} until it ran the first command", duration(took)))
                .help(format!(
                    "`time ssh {way} true`; start-up files should return early without a terminal"
                )),
        );
    }
    if let Some(first) = arrival.noise.lines().map(str::trim).find(|line| !line.is_empty()) {
        let message = "its login shell prints text without a terminal";
        found.push(
            Finding::new(codes::NOISY_SHELL, Severity::Warning, rank, message)
                .detail(format!("`{}`", first.escape_debug()))
                .help("in its start-up files, print only to a terminal: `[ -t 1 ] && echo …`"),
        );
    }
    found
}

fn clock(rank: NodeRank, patient: &Patient) -> Option<Finding> {
    let clock = patient.clock;
    let off_us = clock.ahead_us.unsigned_abs();
    if off_us.saturating_sub(clock.error_us) <= CLOCK_OFF_US {
        return None;
    }
    let (off, way) = (
        duration(Duration::from_micros(off_us)),
        if 0 < clock.ahead_us { "ahead of" } else { "behind" },
    );
    Some(
        Finding::new(codes::CLOCK, Severity::Warning, rank, format!("its clock is {way} ours"))
            .detail(format!("by {off}"))
            .help("see `timedatectl` or `chronyc tracking` there"),
    )
}

fn servers(case: &Case) -> Vec<Finding> {
    let server =
        |(rank, _, patient): (_, _, &Patient)| Some((rank, patient.arrival.server.clone()?));
    let servers: Vec<_> = case.patients().filter_map(server).collect();
    let Some((usual, odd)) = odd_ones(&servers) else { return Vec::new() };
    let finding = |(rank, server)| {
        let message = format!("its sshd is {server}, most are {usual}");
        Finding::new(codes::OTHER_SSHD, Severity::Note, rank, message)
    };
    odd.into_iter().map(finding).collect()
}

fn users(case: &Case) -> Vec<Finding> {
    let user = |(rank, _, patient): (_, _, &Patient)| {
        let machine = &patient.report.machine;
        (rank, (machine.user.clone(), machine.uid))
    };
    let users: Vec<_> = case.patients().map(user).collect();
    let show = |(name, uid): &(Option<String>, u32)| match name {
        Some(name) => format!("`{name}` ({uid})"),
        None => format!("number {uid}, without a name"),
    };
    let Some((usual, odd)) = odd_ones(&users) else { return Vec::new() };
    let finding = |(rank, user)| {
        let message = format!("we are {} there, {} on most", show(&user), show(&usual));
        Finding::new(codes::OTHER_USER, Severity::Warning, rank, message).help(
            "files of one user belong to another there; name the user: `user@host` in the hostfile",
        )
    };
    odd.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{case, check, seen};
    use super::*;
    use crate::doctor::case::Clock;

    #[test]
    fn who_does_not_come_to_an_agent_is_an_error() {
        let words = "ssh: connect to host n2 port 22: Connection refused";
        let fault = Fault::new(FaultKind::Refused, words);
        let mut one = case(3);
        one.nodes[1].seen = Seen::Unreachable(fault);
        check(&one, &["error[D001] n2: cannot be reached: connection refused"]);
        one.nodes[1].seen = Seen::Lost("the link ended".to_owned());
        check(&one, &["error[D002] n2: its agent gave no report: the link ended"]);
        one.nodes[1].seen = Seen::OtherVersion { build: "9.9.9".to_owned() };
        check(&one, &["error[D003] n2: remuda 9.9.9 there speaks another protocol"]);
    }

    #[test]
    fn shells_clocks_and_builds_are_looked_at() {
        let mut one = case(3);
        seen(&mut one, 0).arrival.noise = "\n  Welcome!\n".to_owned();
        check(&one, &["warning[D005] n1: its login shell prints text without a terminal"]);
        let mut one = case(3);
        seen(&mut one, 2).arrival.shell = Some(Duration::from_secs(7));
        check(&one, &["warning[D006] n3: its login shell is slow"]);
        let mut one = case(3);
        seen(&mut one, 1).clock = Clock { ahead_us: -90_000_000, error_us: 300 };
        check(&one, &["warning[D007] n2: its clock is behind ours"]);
        seen(&mut one, 1).clock = Clock { ahead_us: 3_000_000, error_us: 2_500_000 };
        check(&one, &[]);
        seen(&mut one, 1).build = "0.0.1".to_owned();
        let expect =
            format!("warning[D003] n2: remuda 0.0.1 there, {} here", env!("CARGO_PKG_VERSION"));
        check(&one, &[&expect]);
    }

    #[test]
    fn who_is_somebody_else_or_has_another_server_is_told() {
        let mut one = case(3);
        seen(&mut one, 2).report.machine.uid = 1001;
        check(&one, &["warning[D008] n3: we are `ada` (1001) there, `ada` (1000) on most"]);
        let mut one = case(3);
        for (node, server) in ["OpenSSH_9.2p1", "OpenSSH_9.2p1", "OpenSSH_8.0"].iter().enumerate() {
            seen(&mut one, node).arrival.server = Some((*server).to_owned());
        }
        check(&one, &["note[D004] n3: its sshd is OpenSSH_8.0, most are OpenSSH_9.2p1"]);
    }
}
