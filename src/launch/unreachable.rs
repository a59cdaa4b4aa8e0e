//! The screen of hosts that could not be reached. Pure.

use std::fmt::Write as _;

use super::codes;
use super::options::WayOn;
use crate::base::Status;
use crate::report::neutral;
use crate::transport::{Fault, FaultKind};

/// Hosts of one kind that are shown with what was said; the others are named.
const EXPLAINED_MAX: usize = 3;
/// Lines of one host.
const LINES_MAX: usize = 16;

/// The exit status: unreachable, if any host is; else that of the first kind.
pub(super) fn status(kinds: impl Iterator<Item = FaultKind>) -> Status {
    let all: Vec<_> = kinds.map(FaultKind::status).collect();
    let first = all.first().expect("somebody could not be reached");
    if all.contains(&Status::Unreachable) { Status::Unreachable } else { *first }
}

/// All of them, sorted by kind.
pub(super) fn show(faults: &[(String, &Fault)], nodes: usize, so: &str) -> String {
    let number = faults.len();
    let what = match nodes {
        1 => "the host".to_owned(),
        _ => format!("{number} of {nodes} hosts"),
    };
    let code = codes::UNREACHABLE;
    let were_reached = faults.iter().all(|(_, fault)| fault.kind.was_reached());
    let problem = if were_reached { "cannot take part" } else { "cannot be reached" };
    let mut text = format!("error[{code}]: {what} {problem}; {so}\n");
    for of_kind in faults.chunk_by(|(_, a), (_, b)| a.kind == b.kind) {
        show_kind(&mut text, of_kind);
    }
    text
}

/// What to type to go on without hosts.
pub(super) fn going_on_without(hosts: &[&str], way: &WayOn) -> Option<String> {
    let them = if hosts.len() == 1 { "it" } else { "them" };
    let how = match way {
        WayOn::Nothing => return None,
        WayOn::Hostfile => format!("take {} out of the hostfile", hosts.join(", ")),
        WayOn::Exclude(left) if left.is_empty() => format!("--exclude '{}'", hosts.join("@")),
        WayOn::Exclude(left) => format!("--exclude '{left}@{}'", hosts.join("@")),
    };
    Some(format!("to go on without {them}: {how}"))
}

fn show_kind(text: &mut String, faults: &[(String, &Fault)]) {
    let kind = faults[0].1.kind;
    let _ = writeln!(text, "  {}:", kind.title());
    for (host, fault) in faults.iter().take(EXPLAINED_MAX) {
        let mut lines = fault.words.lines();
        let _ =
            writeln!(text, "    {host}: {}", neutral(lines.next().unwrap_or("no reason given")));
        for line in lines.by_ref().take(LINES_MAX) {
            let _ = writeln!(text, "      {}", neutral(line));
        }
        if let more @ 1.. = lines.count() {
            let _ = writeln!(text, "      … {more} more lines");
        }
    }
    let rest: Vec<_> = faults.iter().skip(EXPLAINED_MAX).map(|(host, _)| host.as_str()).collect();
    if !rest.is_empty() {
        let _ = writeln!(text, "    the same for {}", rest.join(", "));
    }
    // What helps one helps the others; it names the first.
    if let Some(help) = faults[0].1.help() {
        let _ = writeln!(text, "  help: {help}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(kind: FaultKind, words: &str) -> Fault {
        Fault::new(kind, words)
    }

    #[test]
    fn all_bad_hosts_are_on_one_screen_by_kind() {
        let refused =
            fault(FaultKind::Refused, "ssh: connect to host n1 port 22: Connection refused");
        let denied = fault(FaultKind::Denied, "a@n4: Permission denied (publickey).");
        let faults = [("n1".to_owned(), &refused), ("n4".to_owned(), &denied)];
        let expected = "\
error[R107]: 2 of 8 hosts cannot be reached; nothing was started
  nobody listens:
    n1: ssh: connect to host n1 port 22: Connection refused
  help: is its sshd running, and on this port? see `--ssh_port`
  permission denied:
    n4: a@n4: Permission denied (publickey).
  help: `ssh HOST true` must work without a question; see `ssh-add -l`
";
        assert_eq!(show(&faults, 8, "nothing was started"), expected);
    }

    #[test]
    fn what_is_left_out_is_added_to_what_was_and_chosen_hosts_leave_by_the_file() {
        let check = |hosts: &[&str], way: WayOn, expect: Option<&str>| {
            assert_eq!(going_on_without(hosts, &way).as_deref(), expect);
        };
        let exclude = |left: &str| WayOn::Exclude(left.to_owned());
        check(&["n1"], exclude(""), Some("to go on without it: --exclude 'n1'"));
        let hosts = ["n1", "n4"];
        check(&hosts, exclude(""), Some("to go on without them: --exclude 'n1@n4'"));
        check(&hosts, exclude("n2:0"), Some("to go on without them: --exclude 'n2:0@n1@n4'"));
        let out = "to go on without them: take n1, n4 out of the hostfile";
        check(&hosts, WayOn::Hostfile, Some(out));
        check(&hosts, WayOn::Nothing, None);
    }

    #[test]
    fn many_hosts_with_one_reason_are_named_in_one_line() {
        let refused = fault(FaultKind::Refused, "Connection refused");
        let faults: Vec<_> = (0..40).map(|host| (format!("n{host}"), &refused)).collect();
        let text = show(&faults, 40, "nothing was started");
        assert_eq!(text.lines().count(), 1 + 1 + EXPLAINED_MAX + 1 + 1, "{text}");
    }

    #[test]
    fn an_unreachable_host_outranks_one_that_does_not_let_us_in() {
        let kinds = |kinds: &[FaultKind]| status(kinds.iter().copied());
        assert_eq!(kinds(&[FaultKind::Denied]), Status::Permission);
        assert_eq!(kinds(&[FaultKind::HostKeyChanged, FaultKind::Denied]), Status::Permission);
        assert_eq!(kinds(&[FaultKind::Denied, FaultKind::Dropped]), Status::Unreachable);
    }
}
