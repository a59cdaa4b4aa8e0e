//! The screen of hosts that could not be reached. Pure.

use std::fmt::Write as _;
use std::path::Path;

use crate::base::Status;
use crate::base::shell::quoted;
use crate::launch::codes;
use crate::launch::options::ContinueWith;
use crate::pool::nodeset::fold_set;
use crate::report::escape_control;
use crate::report::gather::group_equal;
use crate::transport::{Fault, FaultKind};

/// Maximum number of different explanations that are shown for hosts of one kind; other hosts are
/// named.
const EXPLAINED_MAX: usize = 3;
/// Maximum number of lines for one host.
const LINES_MAX: usize = 16;

/// The exit status: that of a wrong key, because no restart corrects it; else unreachable, if any
/// host is; else that of the first kind.
pub(in crate::launch) fn status(kinds: impl Iterator<Item = FaultKind>) -> Status {
    let kinds: Vec<_> = kinds.collect();
    if kinds.contains(&FaultKind::OtherKey) {
        return FaultKind::OtherKey.status();
    }
    let all: Vec<_> = kinds.into_iter().map(FaultKind::status).collect();
    let first = all.first().expect("at least one host could not be reached");
    if all.contains(&Status::Unreachable) { Status::Unreachable } else { *first }
}

/// The screen for all faults, sorted by kind.
pub(in crate::launch) fn show(
    faults: &[(String, &Fault)],
    nodes: usize,
    consequence: &str,
) -> String {
    let number = faults.len();
    let what = match nodes {
        1 => "the host".to_owned(),
        _ => format!("{number} of {nodes} hosts"),
    };
    let code = codes::UNREACHABLE;
    let were_reached = faults.iter().all(|(_, fault)| fault.kind.was_reached());
    let problem = if faults.iter().all(|(_, fault)| fault.kind == FaultKind::NotJoined) {
        "did not join"
    } else if were_reached {
        "cannot take part"
    } else {
        "cannot be reached"
    };
    let mut text = if faults.iter().all(|(_, fault)| fault.kind == FaultKind::NoProgram) {
        format!("error[{code}]: no agent can be started from this machine; {consequence}\n")
    } else {
        format!("error[{code}]: {what} {problem}; {consequence}\n")
    };
    for of_kind in faults.chunk_by(|(_, a), (_, b)| a.kind == b.kind) {
        show_kind(&mut text, of_kind);
    }
    text
}

/// The command that continues without the hosts, with what workers kept.
pub(in crate::launch) fn help_to_continue_without(
    hosts: &[&str],
    continue_with: &ContinueWith,
    kept: Option<&Path>,
) -> Option<String> {
    let pronoun = if hosts.len() == 1 { "it" } else { "them" };
    let resume = kept.map(|dir| format!("--resume {}", quoted(dir)));
    let (how, conjunction) = match continue_with {
        ContinueWith::Nothing => return None,
        ContinueWith::Hostfile => {
            (format!("remove {} from the hosts (`-H`)", hosts.join(", ")), ", and use ")
        }
        ContinueWith::Exclude(left) if left.is_empty() => {
            (format!("--exclude {}", quoted(hosts.join("@"))), " ")
        }
        ContinueWith::Exclude(left) => {
            (format!("--exclude {}", quoted(format!("{left}@{}", hosts.join("@")))), " ")
        }
    };
    let resume = resume.map_or_else(String::new, |resume| format!("{conjunction}{resume}"));
    Some(format!("to continue without {pronoun}: {how}{resume}"))
}

fn show_kind(text: &mut String, faults: &[(String, &Fault)]) {
    let kind = faults[0].1.kind;
    let _ = writeln!(text, "  {}:", kind.title());
    let explanations = || faults.iter().map(|(host, fault)| (host.as_str(), fault.detail.as_str()));
    let explained: Vec<_> = group_equal(explanations()).into_iter().take(EXPLAINED_MAX).collect();
    for (hosts, _, words) in &explained {
        let mut lines = words.lines();
        let _ = writeln!(
            text,
            "    {hosts}: {}",
            escape_control(lines.next().unwrap_or("no reason given"))
        );
        for line in lines.by_ref().take(LINES_MAX) {
            let _ = writeln!(text, "      {}", escape_control(line));
        }
        if let more @ 1.. = lines.count() {
            let _ = writeln!(text, "      … {more} more lines");
        }
    }
    // ssh prints the same reason differently for each host, with its address.
    let is_explained = |words| explained.iter().any(|(_, _, others)| *others == words);
    let rest: Vec<_> = explanations().filter(|(_, words)| !is_explained(*words)).collect();
    if !rest.is_empty() {
        let hosts = fold_set(rest.into_iter().map(|(host, _)| host));
        let _ = writeln!(text, "    the same for {hosts}");
    }
    // The advice for the first host applies to all.
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
    fn unreachable_hosts_are_grouped_by_kind() {
        let refused =
            fault(FaultKind::Refused, "ssh: connect to host n1 port 22: Connection refused");
        let denied = fault(FaultKind::Denied, "a@n4: Permission denied (publickey).");
        let faults = [("n1".to_owned(), &refused), ("n4".to_owned(), &denied)];
        let expected = "\
error[R107]: 2 of 8 hosts cannot be reached; nothing was started
  connection refused:
    n1: ssh: connect to host n1 port 22: Connection refused
  help: check that its sshd runs and listens on this port (`--ssh_port`)
  permission denied:
    n4: a@n4: Permission denied (publickey).
  help: `ssh -o BatchMode=yes HOST true` must succeed without a prompt; see `ssh-add -l`
";
        assert_eq!(show(&faults, 8, "nothing was started"), expected);
    }

    #[test]
    fn exclude_hint_extends_earlier_exclusions() {
        let check = |hosts: &[&str], way: ContinueWith, expect: Option<&str>| {
            assert_eq!(help_to_continue_without(hosts, &way, None).as_deref(), expect);
        };
        let exclude = |left: &str| ContinueWith::Exclude(left.to_owned());
        check(&["n1"], exclude(""), Some("to continue without it: --exclude n1"));
        let hosts = ["n1", "n4"];
        check(&hosts, exclude(""), Some("to continue without them: --exclude n1@n4"));
        check(&hosts, exclude("n2:0"), Some("to continue without them: --exclude n2:0@n1@n4"));
        let out = "to continue without them: remove n1, n4 from the hosts (`-H`)";
        check(&hosts, ContinueWith::Hostfile, Some(out));
        check(&hosts, ContinueWith::Nothing, None);
        let kept = |way| {
            help_to_continue_without(&hosts, &way, Some(Path::new("my runs"))).expect("a way")
        };
        let resume = "--resume 'my runs'";
        assert_eq!(kept(ContinueWith::Hostfile), format!("{out}, and use {resume}"));
        let excluded = format!("to continue without them: --exclude n1@n4 {resume}");
        assert_eq!(kept(exclude("")), excluded);
    }

    #[test]
    fn hosts_with_one_reason_are_one_line() {
        let other = fault(FaultKind::OtherArch, "it is aarch64, we are x86_64");
        let faults: Vec<_> = (0..40).map(|host| (format!("n{host}"), &other)).collect();
        let expected = "\
error[R107]: 40 of 40 hosts cannot take part; nothing was started
  the processor architecture differs:
    n[0-39]: it is aarch64, we are x86_64
  help: install remuda on that host and give `--agent_path FILE`
";
        assert_eq!(show(&faults, 40, "nothing was started"), expected);
    }

    #[test]
    fn hosts_with_similar_ssh_errors_are_folded() {
        let refused = |host| {
            fault(FaultKind::Refused, &format!("ssh: connect to host {host}: Connection refused"))
        };
        let refused: Vec<_> = (0..40).map(refused).collect();
        let faults = refused.iter().enumerate().map(|(host, fault)| (format!("n{host}"), fault));
        let expected = "\
error[R107]: 40 of 40 hosts cannot be reached; nothing was started
  connection refused:
    n0: ssh: connect to host 0: Connection refused
    n1: ssh: connect to host 1: Connection refused
    n2: ssh: connect to host 2: Connection refused
    the same for n[3-39]
  help: check that its sshd runs and listens on this port (`--ssh_port`)
";
        assert_eq!(show(&faults.collect::<Vec<_>>(), 40, "nothing was started"), expected);
    }

    #[test]
    fn unreachable_status_outranks_permission_denied() {
        let kinds = |kinds: &[FaultKind]| status(kinds.iter().copied());
        assert_eq!(kinds(&[FaultKind::Denied]), Status::Permission);
        assert_eq!(kinds(&[FaultKind::HostKeyChanged, FaultKind::Denied]), Status::Permission);
        assert_eq!(kinds(&[FaultKind::Denied, FaultKind::Dropped]), Status::Unreachable);
        assert_eq!(kinds(&[FaultKind::NotJoined, FaultKind::OtherKey]), Status::Permission);
    }
}
