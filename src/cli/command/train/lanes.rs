//! `--lanes`: micro-batches of all workers in a step, whatever their number.

use std::num::NonZeroUsize;

use crate::base::Diagnostic;
use crate::cli::command::train::args::TrainArgs;
use crate::cli::line::codes::{BAD_VALUE, CANNOT_COMBINE};
use crate::cli::line::{CommandLine, RefusedLine};
use crate::cli::resolve::ResolvedCluster;
use crate::report::text::show_count;

/// Largest number of possible numbers of workers that a message lists.
const LISTED_MAX: usize = 12;

/// Divides the lanes of the line, if it has them, among the workers.
pub(super) fn apply(
    args: &mut TrainArgs,
    cluster: &ResolvedCluster,
    typed: &CommandLine,
) -> Result<(), RefusedLine> {
    let Some(lanes) = args.lanes.map(NonZeroUsize::get) else { return Ok(()) };
    let (accumulate, workers) = (args.accumulate, cluster.workers());
    if !args.share_lanes(workers) {
        return Err(typed.refuse(&[typed.value_or_end("lanes")], |spans| {
            let batches = if lanes == 1 { "micro-batch" } else { "micro-batches" };
            let message = format!(
                "--lanes {lanes}: {lanes} {batches} cannot be divided equally among {}",
                show_count(workers, "worker")
            );
            let all = if lanes == 1 { "1 worker".to_owned() } else { divisors(lanes) + " workers" };
            let (start, option) = match cluster.way_to_share(lanes) {
                Some((option, workers)) => (show_count(workers, "worker"), option),
                None => (all, "--num_gpus".to_owned()),
            };
            Diagnostic::error(BAD_VALUE, spans[0], message)
                .label(format!("expected a multiple of {workers}"))
                .help(format!("start {start} (`{option}`), or write another `--lanes`"))
        }));
    }
    let each = args.accumulate;
    if let (Some(typed_each), Some(each)) = (accumulate.filter(|_| accumulate != each), each) {
        let places = [typed.value_or_end("accumulate"), typed.value_or_end("lanes")];
        return Err(typed.refuse(&places, |spans| {
            let message = format!("`--accumulate {typed_each}` contradicts `--lanes {lanes}`");
            Diagnostic::error(CANNOT_COMBINE, spans[0], message)
                .label(format!("{typed_each} here"))
                .related(spans[1], format!("{each} for each of {}", show_count(workers, "worker")))
                .help("leave `--accumulate` out")
        }));
    }
    Ok(())
}

/// The numbers of workers that can share the lanes.
fn divisors(lanes: usize) -> String {
    let all = (1..=lanes).filter(|count| lanes.is_multiple_of(*count));
    let shown: Vec<String> = all.take(LISTED_MAX).map(|count| count.to_string()).collect();
    match shown.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_workers_that_divide_the_lanes_are_listed() {
        assert_eq!(divisors(1), "1");
        assert_eq!(divisors(12), "1, 2, 3, 4, 6 or 12");
    }
}
