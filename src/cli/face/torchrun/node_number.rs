//! What the line of a node leaves out: its number, which is that of the task of a scheduler that this process is, else 0;
//! the address of the first node, which it must give.

use crate::base::{Diagnostic, NodeRank};
use crate::cli::error::CliError;
use crate::cli::face::torchrun::rendezvous::RendezvousBackend;
use crate::cli::line::{CommandLine, RefusedLine, codes};
use crate::cli::resolve::{self, OwnTask, TaskGroup};

/// The options of a line about the number of its node.
#[derive(Clone, Copy)]
pub(in crate::cli::face) struct NumberOptions {
    /// The one that gives the number.
    pub(in crate::cli::face) number: &'static str,
    /// The one that gives the number of nodes.
    pub(in crate::cli::face) count: &'static str,
}

/// Those of torchrun.
pub(super) const OPTIONS: NumberOptions = NumberOptions { number: "node-rank", count: "nnodes" };

/// The number of a node whose line does not give it, and a note that says so.
pub(in crate::cli::face) struct NodeNumber {
    pub(in crate::cli::face) number: NodeRank,
    pub(in crate::cli::face) note: Option<String>,
}

/// Returns the number of one of `nodes` nodes whose line gives none.
///
/// # Errors
/// If this process is one of several tasks that are more or fewer than the nodes: all would have the number 0.
pub(in crate::cli::face) fn number_of_own_task(
    typed: &CommandLine,
    options: NumberOptions,
    nodes: usize,
) -> Result<NodeNumber, RefusedLine> {
    let option = typed.option_name(options.number);
    match resolve::own_task() {
        Some(task) if task.count == nodes => {
            Ok(NodeNumber { number: task.number, note: note_of_task(&task, &option) })
        }
        Some(task) => {
            let or = format!(", or give `{option} N`");
            Err(other_number(typed, (options.count, nodes), (&task.tasks, task.count), &or))
        }
        None => Ok(NodeNumber { number: NodeRank(0), note: Some(note_of_first(&option, nodes)) }),
    }
}

/// Returns the note of task 0 on the numbers of all tasks. The others would print the same.
fn note_of_task(task: &OwnTask, option: &str) -> Option<String> {
    let OwnTask { number, count, tasks } = task;
    let note = || {
        format!(
            "note: without `{option}`, each of the {count} tasks of {} has the number of its task\n",
            tasks.name
        )
    };
    (*number == NodeRank(0)).then(note)
}

/// Returns the note of a node that is the first because its line gives no number.
fn note_of_first(option: &str, nodes: usize) -> String {
    let others = match nodes {
        2 => format!("`{option} 1` on the other one"),
        _ => format!("`{option} 1` to `{option} {}` on the others", nodes - 1),
    };
    format!("note: `{option}` is not given, so it is 0; type {others}\n")
}

/// Returns the error for tasks that are more or fewer than the nodes of the line; `or` is what else can be typed.
pub(super) fn other_number(
    typed: &CommandLine,
    (flag, nodes): (&str, usize),
    (tasks, found): (&TaskGroup, usize),
    or: &str,
) -> RefusedLine {
    let (name, option) = (typed.shown_name(flag), typed.option_name(flag));
    typed.refuse(&[typed.value_or_end(flag)], |spans| {
        let message = format!("`{name}` is {nodes}, and {} has {found} tasks", tasks.name);
        let start = tasks.line(nodes);
        Diagnostic::error(codes::BAD_VALUE, spans[0], message)
            .label("each task is a node")
            .help(format!("start {nodes} tasks: `{start}`; or type `{option} {found}`{or}"))
    })
}

/// Returns the error of a line of several nodes that does not say where they meet.
pub(super) fn no_address(typed: &CommandLine, backend: RendezvousBackend) -> CliError {
    let refused = typed.refuse(&[typed.value_or_end("nnodes")], |spans| {
        let message = "the address of the first node is not given";
        let is_typed = typed.last("nnodes").is_some();
        let label = if is_typed { "several nodes" } else { "several nodes, by PET_NNODES" };
        let option = |flag| typed.option_name(flag);
        let is_task = resolve::own_task().is_some();
        let by_task =
            "HOST is the machine of the first task; every node has the number of its task";
        Diagnostic::error(codes::NEEDS_OTHER, spans[0], message).label(label).help(match backend {
            RendezvousBackend::Static if is_task => {
                format!("give `{} HOST`: {by_task}", option("master-addr"))
            }
            RendezvousBackend::Static => {
                let (address, number) = (option("master-addr"), option("node-rank"));
                format!("give `{address} HOST {number} N` on every node, or `-H n1,n2` on one")
            }
            RendezvousBackend::C10d if is_task => {
                format!("give `{} HOST:29400`: {by_task}", option("rdzv-endpoint"))
            }
            RendezvousBackend::C10d => {
                let endpoint = option("rdzv-endpoint");
                format!("give `{endpoint} HOST:29400` on every node, or `-H n1,n2` on one")
            }
        })
    });
    refused.into()
}
