//! Notes on a line that starts one node, although it may be meant for several.

use super::args::TorchrunArgs;
use super::size::parse_nnodes;
use super::values::Values;
use crate::cli::error::CliError;
use crate::cli::resolve;
use crate::launch::LauncherFlag;

/// Returns the notes on a line that starts this node alone; `flags` are the options of the launcher whose line
/// was typed.
pub(super) fn notes_of_one_node(
    args: &TorchrunArgs,
    values: Values<'_>,
    is_standalone: bool,
    flags: &[LauncherFlag],
) -> Result<Vec<String>, CliError> {
    let count = values.text("nnodes", args.size.nnodes.as_deref(), "1").parse(parse_nnodes)?.max;
    let is_dropped = is_standalone && 1 < count;
    let note =
        || format!("note: `--standalone` is this node alone; `--nnodes {count}` has no effect\n");
    let tasks = resolve::separate_tasks_note(nodes_option(flags));
    Ok(tasks.into_iter().chain(is_dropped.then(note)).collect())
}

/// The option that sets the number of nodes, of the launcher with these options.
fn nodes_option(flags: &[LauncherFlag]) -> &'static str {
    let is_accelerate =
        |flag: &LauncherFlag| flag.spellings.iter().any(|name| name == "--num_machines");
    if flags.iter().any(is_accelerate) { "--num_machines" } else { "--nnodes" }
}
