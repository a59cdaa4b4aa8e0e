//! Outline of a plan, which nodes exchange to show how their plans differ. Pure.

use std::fmt::Write as _;

use super::digest::{fingerprint, flag_variables};
use crate::base::prefix;
use crate::plan::workers::launch_plan::{LaunchPlan, NodePlan};

/// Beginning of the line of an outline with the number of workers.
const OUTLINED_WORLD_SIZE: &str = "world size: ";

/// Beginning of the line of a difference with the number of nodes.
const NODE_COUNT: &str = "number of nodes: ";

/// Beginning of the line of an outline with the program.
const PROGRAM: &str = "program: ";
/// Beginning of the line of an outline with a variable that the line sets.
const VARIABLE: &str = "variable ";
/// Beginnings of the names of variables whose values are shown: launchers set them, and they are no secrets.
const SHOWN_VALUES: [&str; 4] = ["ACCELERATE_", "FSDP_", "NCCL_", "OMP_"];
/// Beginning of the line of an outline with the number of workers of every node.
const NODE_WORKERS: &str = "workers per node: ";
/// Beginning of the lines of an outline with the nodes.
const NODE: &str = "node ";

/// Limit of the lines of an outline.
const LINES_MAX: usize = 1024;
/// Limit of the bytes of a line.
const LINE_BYTES_MAX: usize = 256;
/// Limit of the bytes of an outline: it is sent in one message.
pub const OUTLINE_BYTES_MAX: usize = 32 << 10;
/// Limit of the differences that are shown.
const DIFFERENCES_MAX: usize = 8;

/// A plan in lines: the command of all workers, then each node with its slots and ranks. The lines
/// show the content of [`super::digest()`], as far as there is room.
pub fn outline(plan: &LaunchPlan) -> Vec<String> {
    let size = format!("{OUTLINED_WORLD_SIZE}{}", plan.world_size);
    lines(plan, size, show_node)
}

/// The line of one of several nodes in lines, where each starts the workers of its own line: the command, the number
/// of workers, then the nodes without slots and ranks, which the line of another node does not decide. The lines show
/// the content of [`super::line_digest()`], as far as there is room.
pub fn line_outline(plan: &LaunchPlan) -> Vec<String> {
    let mut sizes: Vec<_> = plan.nodes.iter().map(|node| node.workers.len().to_string()).collect();
    sizes.dedup();
    let size = format!("{NODE_WORKERS}{}", sizes.join(", "));
    lines(plan, size, |node| format!("{NODE}{}: {}", node.node_rank, node.host))
}

/// The lines of an outline: command, size, variables and nodes.
fn lines(plan: &LaunchPlan, size: String, show_node: impl Fn(&NodePlan) -> String) -> Vec<String> {
    let program = plan.nodes.iter().find_map(|node| node.workers.first());
    let program = program.map(|worker| {
        let words = worker.argv().map(|word| word.display().to_string());
        format!("{PROGRAM}{}", words.collect::<Vec<_>>().join(" "))
    });
    // Other values may be secrets, so the outline has their fingerprints only.
    let given = flag_variables(plan).map(|(name, value)| {
        let name = name.display().to_string();
        if SHOWN_VALUES.iter().any(|start| name.starts_with(start)) {
            return format!("{VARIABLE}{name}={}", value.display());
        }
        format!("{VARIABLE}{name}=… (fingerprint of the value: {:04x})", fingerprint(&value))
    });
    let head = program.into_iter().chain([size]).chain(given);
    let lines = head.chain(plan.nodes.iter().map(show_node)).take(LINES_MAX);
    let mut room = OUTLINE_BYTES_MAX;
    let fits = |line: &String| {
        room = room.saturating_sub(line.len() + 4);
        0 < room
    };
    lines.map(truncate_line).take_while(fits).collect()
}

fn show_node(node: &NodePlan) -> String {
    let slots: Vec<_> = node.slots.iter().map(ToString::to_string).collect();
    let ranks = match &node.workers[..] {
        [first, .., last] => format!("ranks {}-{}", first.rank, last.rank),
        [only] => format!("rank {}", only.rank),
        [] => "no rank".to_owned(),
    };
    format!("{NODE}{}: {}, slots {}, {ranks}", node.node_rank, node.host, slots.join(","))
}

fn truncate_line(line: String) -> String {
    if line.len() <= LINE_BYTES_MAX {
        return line;
    }
    format!("{}…", prefix(&line, LINE_BYTES_MAX))
}

/// The outline of one of two sides.
#[derive(Clone, Copy, Debug)]
pub struct NamedOutline<'a> {
    /// Name of the side.
    pub name: &'a str,
    /// Lines of its outline.
    pub lines: &'a [String],
}

/// Whether two outlines have the same nodes; the rest may differ.
pub fn has_same_nodes(left: &[String], right: &[String]) -> bool {
    let is_node = |line: &&String| line.starts_with(NODE);
    left.iter().filter(is_node).eq(right.iter().filter(is_node))
}

/// Returns what to type where the sizes of two jobs differ, by the text of the difference; `None` if something else
/// differs.
pub fn help_for_sizes(difference: &str) -> Option<&'static str> {
    if difference.contains(NODE_COUNT) {
        return Some(
            "give every node the same number of nodes (`--nnodes`, `--num_machines`, `--nodes`)",
        );
    }
    difference.contains(OUTLINED_WORLD_SIZE).then_some(
        "start every node with the same command line, hosts and number of workers; for different numbers, start one \
         command with all hosts: `-H n1:4,n2:2`",
    )
}

/// Formats the lines in which two outlines differ, those of both sides in pairs. If they have different numbers of
/// nodes, these numbers say more than their nodes.
pub fn show_difference(left: NamedOutline<'_>, right: NamedOutline<'_>) -> String {
    let nodes =
        [left, right].map(|side| side.lines.iter().filter(|line| line.starts_with(NODE)).count());
    if nodes[0] != nodes[1] {
        let side = |name: &str, nodes: usize| format!("  {name} has  {NODE_COUNT}{nodes}\n");
        return side(left.name, nodes[0]) + &side(right.name, nodes[1]);
    }
    let mut text = String::new();
    let mut omitted = 0;
    for (left_line, right_line) in pairs(left.lines, right.lines) {
        if left_line == right_line {
            continue;
        }
        if DIFFERENCES_MAX <= text.lines().count() / 2 {
            omitted += 1;
            continue;
        }
        for (side, line) in [(left.name, left_line), (right.name, right_line)] {
            let line = line.unwrap_or("nothing");
            let _ = writeln!(text, "  {side} has  {line}");
        }
    }
    if 0 < omitted {
        let _ = writeln!(text, "  … and {omitted} more differences");
    }
    if text.is_empty() {
        // The outlines are equal; the plans differ in text that was cut, such as long arguments.
        text.push_str("  the plans differ in text that is too long to show, such as arguments\n");
    }
    text
}

/// Lines of two outlines about the same thing, in the order of the first outline; those of the second one alone come
/// last.
fn pairs<'a>(
    left: &'a [String],
    right: &'a [String],
) -> impl Iterator<Item = (Option<&'a str>, Option<&'a str>)> {
    let find = |lines: &'a [String], wanted: &str| {
        lines.iter().map(String::as_str).find(|line| subject(line) == subject(wanted))
    };
    let of_left = left.iter().map(move |line| (Some(line.as_str()), find(right, line)));
    let of_right_alone = right.iter().filter(move |line| find(left, line).is_none());
    of_left.chain(of_right_alone.map(|line| (None, Some(line.as_str()))))
}

/// What a line of an outline is about: a variable, a node, or what stands before the colon.
fn subject(line: &str) -> &str {
    let end = if line.starts_with(VARIABLE) { line.find('=') } else { line.find(':') };
    &line[..end.unwrap_or(line.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{HostName, Slot};
    use crate::plan::{
        Accelerator, Conventions, JobSpec, MasterAddr, Program, RendezvousPort, digest,
        line_digest, plan,
    };

    fn named<'a>(name: &'a str, lines: &'a [String]) -> NamedOutline<'a> {
        NamedOutline { name, lines }
    }

    fn planned(hosts: &[(&str, u32)], args: &[&str]) -> LaunchPlan {
        planned_from(0, hosts, args)
    }

    /// A plan in which the slots of every host begin with this one.
    fn planned_from(first: u32, hosts: &[(&str, u32)], args: &[&str]) -> LaunchPlan {
        let host = |(name, slots): &(&str, u32)| {
            (HostName::parse(name).expect("a name"), (first..first + slots).map(Slot).collect())
        };
        let spec = JobSpec {
            nodes: hosts.iter().map(host).collect(),
            accelerator: Accelerator::Cpu,
            device_names: Vec::new(),
            program: Program::Exec { program: "train".into(), local_rank: false },
            args: args.iter().map(Into::into).collect(),
            master_addr: MasterAddr::AskNode0,
            master_port: RendezvousPort::Usual,
            conventions: Conventions::DeepSpeed,
            restarts_max: 0,
            exports: Vec::new(),
        };
        plan(&spec).expect("a plan")
    }

    #[track_caller]
    fn check(left: &LaunchPlan, right: &LaunchPlan, expect: &str) {
        assert_eq!(digest(left) == digest(right), expect.is_empty());
        if !expect.is_empty() {
            let (left, right) = (outline(left), outline(right));
            assert_eq!(show_difference(named("node 0", &left), named("node 1", &right)), expect);
        }
    }

    #[test]
    fn differing_lines_of_two_plans_are_paired() {
        let base = planned(&[("n0", 2), ("n1", 1)], &["--lr", "1"]);
        check(&base, &planned(&[("n0", 2), ("n1", 1)], &["--lr", "1"]), "");
        check(
            &base,
            &planned(&[("n0", 2), ("n1", 2)], &["--lr", "1"]),
            "  node 0 has  world size: 3\n  node 1 has  world size: 4\n  \
             node 0 has  node 1: n1, slots 0, rank 2\n  node 1 has  node 1: n1, slots 0,1, ranks 2-3\n",
        );
        check(
            &base,
            &planned(&[("n0", 2), ("n1", 1)], &["--lr", "2"]),
            "  node 0 has  program: train --lr 1\n  node 1 has  program: train --lr 2\n",
        );
        check(
            &planned(&[("n0", 1)], &[]),
            &planned(&[("n0", 1), ("n1", 1)], &[]),
            "  node 0 has  number of nodes: 1\n  node 1 has  number of nodes: 2\n",
        );
    }

    #[test]
    fn own_lines_have_the_same_nodes_whatever_they_start() {
        let lines = |hosts, args: &[&str]| line_outline(&planned(hosts, args));
        let same = |left: &[String], right: &[String]| has_same_nodes(left, right);
        let base = lines(&[("n0", 2), ("n1", 2)], &["--lr", "1"]);
        assert!(same(&base, &lines(&[("n0", 2), ("n1", 2)], &["--dir", "/scratch/n1"])));
        let other = lines(&[("n0", 3), ("n1", 3)], &["--lr", "1"]);
        assert!(same(&base, &other));
        assert_eq!(
            show_difference(named("node 0", &base), named("node 1", &other)),
            "  node 0 has  workers per node: 2\n  node 1 has  workers per node: 3\n"
        );
        assert!(!same(&base, &lines(&[("n0", 2)], &["--lr", "1"])));
        assert!(!same(&base, &lines(&[("n0", 2), ("n2", 2)], &["--lr", "1"])));
    }

    #[test]
    fn own_lines_differ_in_what_they_start_and_not_in_slots() {
        let hosts = [("n0", 2), ("n1", 2)];
        let base = planned(&hosts, &["--lr", "1"]);
        let other_slots = planned_from(2, &hosts, &["--lr", "1"]);
        assert_ne!(digest(&base), digest(&other_slots));
        assert_eq!(line_digest(&base), line_digest(&other_slots));
        assert_eq!(line_outline(&base), line_outline(&other_slots));
        for other in
            [planned(&hosts, &["--lr", "2"]), planned(&[("n0", 2), ("n1", 1)], &["--lr", "1"])]
        {
            assert_ne!(line_digest(&base), line_digest(&other));
        }
    }

    #[test]
    fn lines_of_outlines_are_paired_by_what_they_are_about() {
        let lines = |text: &[&str]| text.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let left = lines(&["program: a", "variable A=1", "variable B=2", "node 0: node-0"]);
        let right = lines(&["program: a", "variable B=3", "node 0: node-0", "variable C=4"]);
        assert_eq!(
            show_difference(named("node 0", &left), named("node 1", &right)),
            "  node 0 has  variable A=1\n  node 1 has  nothing\n  \
             node 0 has  variable B=2\n  node 1 has  variable B=3\n  \
             node 0 has  nothing\n  node 1 has  variable C=4\n"
        );
    }

    #[test]
    fn outline_of_a_large_job_fits_into_a_message() {
        let names: Vec<String> = (0..4000).map(|n| format!("worker-{n}.some.domain")).collect();
        let hosts: Vec<_> = names.iter().map(|name| (name.as_str(), 8)).collect();
        let long = "x".repeat(10_000);
        let lines = outline(&planned(&hosts, &[&long]));
        let bytes: usize = lines.iter().map(|line| line.len() + 4).sum();
        assert!(bytes <= OUTLINE_BYTES_MAX, "{bytes}");
        assert!(lines[0].ends_with('…') && lines.len() < 4000);
        let text = show_difference(named("a", &lines), named("b", &lines));
        assert!(text.contains("too long to show"), "{text}");
    }
}
