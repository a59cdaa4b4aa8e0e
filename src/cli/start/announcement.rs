//! What is printed before a job starts.

use std::fmt::Write as _;

use crate::base::show_duration;
use crate::cli::args::WatchArgs;
use crate::cli::line::{AppliedSettings, CommandLine};
use crate::launch::{Options, Transport};
use crate::plan::LaunchPlan;
use crate::report::text::{show_count, show_step};
use crate::report::{Terminal, print_message};

/// Prints a note for each value that a later one replaces, which argparse allows.
pub(in crate::cli) fn print_replacements(
    watch: &WatchArgs,
    typed: &CommandLine,
    terminal: Terminal,
) {
    if watch.prints_progress() {
        print_message(&typed.show_replacements(), terminal.paint);
    }
}

/// Returns the line of the announcement about a node that is not connected to the other nodes.
pub(super) fn show_single_node(plan: &LaunchPlan, nodes: usize) -> String {
    let Some(node) = plan.nodes.first() else { return String::new() };
    let ranks = match &node.workers[..] {
        [first, .., last] => format!("ranks {}-{}", first.rank, last.rank),
        [only] => format!("rank {}", only.rank),
        [] => "no rank".to_owned(),
    };
    let node = format!("{} of {nodes}, {ranks} of {}", node.node_rank, plan.world_size);
    show_step("Node", &format!("{node}; not connected to the other nodes (see --key_file)"))
}

/// Prints the announcement when the start is certain. Nodes that dial in may take long until then,
/// so for them it is printed immediately, with the time limit.
pub(super) fn announce(options: &mut Options, lines: String, terminal: Terminal) {
    match &options.transport {
        Transport::Local | Transport::Ssh(_) | Transport::Managed(_) => {
            options.output.announcement = lines;
        }
        Transport::Dial(dial) => {
            let limit = dial.join_limit.show();
            let at = format!("{}:{}", dial.address, dial.show_port());
            let mut waiting = format!("for the other nodes to connect to {at}, up to {limit}");
            if let Some(elastic) = options.elastic.filter(|elastic| elastic.min < elastic.max) {
                let (nodes, time) = (show_count(elastic.min, "node"), elastic.last_call);
                let _ =
                    write!(waiting, "; with {nodes}, the job starts after {}", show_duration(time));
            }
            print_message(&(lines + &show_step("Waiting", &waiting)), terminal.paint);
        }
    }
}

/// Prints the line about `remuda.toml` in the working directory, for commands that announce nothing else.
pub(in crate::cli) fn print_local_file(settings: Option<&AppliedSettings>, terminal: Terminal) {
    print_message(&show_local_file(settings), terminal.paint);
}

/// Returns the line of the announcement about `remuda.toml` in the working directory.
pub(super) fn show_local_file(settings: Option<&AppliedSettings>) -> String {
    let file = settings.and_then(|settings| settings.local_file.as_ref());
    file.map_or_else(String::new, |file| show_step("Settings", file))
}

/// Returns the announcement of a job.
pub(super) fn announcement(
    plan: &LaunchPlan,
    options: &Options,
    origin: &str,
    python: Option<String>,
) -> String {
    let nodes = options.elastic.map_or(plan.nodes.len(), |elastic| elastic.max);
    let mut sizes: Vec<usize> = plan.nodes.iter().map(|node| node.workers.len()).collect();
    sizes.sort_unstable_by(|left, right| right.cmp(left));
    let workers = show_count(sizes.iter().take(nodes).sum(), "worker");
    let least = options.elastic.map(|elastic| elastic.min).filter(|min| *min < nodes);
    let varies = least.is_some() || sizes.get(nodes).is_some_and(|size| sizes[0] != *size);
    let most = if varies { "at most " } else { "" };
    let least = least.map_or_else(String::new, |min| format!("{min} to "));
    let spares = match plan.nodes.len().saturating_sub(nodes) {
        0 => String::new(),
        spares => format!(" and {spares} spare"),
    };
    let nodes = format!("{least}{}{spares}", show_count(nodes, "node"));
    let files = options.output.style.rank_files.as_ref();
    let output = files.map_or_else(String::new, |files| {
        show_step("Output", &format!("of each rank is written to {}", files.pattern().display()))
    });
    let what = match &options.transport {
        // The lines of the other nodes may start more workers or fewer.
        Transport::Dial(dial) if dial.has_own_lines() => {
            let own = sizes.first().map_or(0, |size| *size);
            format!("{} on this node, one of {nodes}", show_count(own, "worker"))
        }
        _ => format!("{most}{workers} on {nodes}"),
    };
    let launch = format!("{what} ({origin}), job {}", options.job);
    let python = python.map_or_else(String::new, |python| show_step("Python", &python));
    show_step("Launch", &launch) + &python + &output
}
