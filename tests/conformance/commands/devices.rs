//! Devices of this machine in jobs without a hostfile: a model of the rows of COMPAT.md about
//! `CUDA_VISIBLE_DEVICES`, and the comparison with DeepSpeed without the variable.

use remuda::cli::run::RunArgs;

use super::Command;
use crate::conformance::rules::{self, Rule};

pub(super) const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// Value of the variable if it has an effect: without a hostfile, on a machine with GPUs.
pub(super) fn mask(command: &Command, args: &RunArgs) -> Option<String> {
    if command.pool(args).is_some() || is_cpu(command) {
        return None;
    }
    command.env(VARIABLE).map(|value| String::from_utf8_lossy(value).into_owned())
}

pub(super) fn is_cpu(command: &Command) -> bool {
    command.env("DS_ACCELERATOR").is_some_and(|kind| kind == b"cpu")
}

/// Devices that CUDA sees: in the order of the variable, up to the first unknown entry.
pub(super) fn left(mask: &str, gpus: usize) -> Vec<String> {
    let entries = || mask.split(',').map(str::trim);
    let has_name = |entry: &str| entry.starts_with("GPU-") || entry.starts_with("MIG-");
    if entries().next().is_some_and(has_name) {
        return entries().take_while(|entry| has_name(entry)).map(str::to_owned).collect();
    }
    let is_there = |entry: &&str| entry.parse::<usize>().is_ok_and(|number| number < gpus);
    entries().take_while(is_there).map(str::to_owned).collect()
}

/// Whether the line has options that DeepSpeed uses instead of the variable.
pub(super) fn is_beside(args: &RunArgs) -> bool {
    let place = &args.cluster;
    let is_filtered = [&place.include, &place.exclude];
    let above = |text: &Option<String>, least: i64| number(text.as_deref()) > least;
    is_filtered.into_iter().flatten().any(|text| !text.is_empty())
        || above(&place.num_nodes, 1)
        || above(&place.num_gpus, 0)
}

/// Parses a whole number as Python does; -1 if none was given.
pub(super) fn number(text: Option<&str>) -> i64 {
    text.and_then(|text| text.trim().replace('_', "").parse().ok()).unwrap_or(-1)
}

/// The row that explains different devices; `unmasked` are those of DeepSpeed without the variable.
/// All are values of `CUDA_VISIBLE_DEVICES` of a worker.
pub(super) fn rule(
    args: &RunArgs,
    mask: &str,
    gpus: usize,
    ours: &str,
    theirs: &str,
    unmasked: Option<&str>,
) -> Option<Rule> {
    let left = left(mask, gpus);
    let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let (ours, theirs) = (list(ours), list(theirs));
    if !is_beside(args) {
        // DeepSpeed sorts and removes duplicates; an empty value counts as unset.
        let mut sorted = left.clone();
        sorted.sort();
        sorted.dedup();
        return (ours == left && theirs == sorted).then_some(rules::VISIBLE_DEVICES);
    }
    let unmasked = list(unmasked?);
    // Devices without a number are numbered in the order of the list.
    let is_named = left.iter().any(|name| name.parse::<usize>().is_err());
    let slot = |(at, name): (usize, &String)| if is_named { at.to_string() } else { name.clone() };
    let slots: Vec<String> = left.iter().enumerate().map(slot).collect();
    let count = number(args.cluster.num_gpus.as_deref());
    let expected: Vec<String> = if 0 < count {
        left.into_iter().take(count as usize).collect()
    } else {
        let found = left.into_iter().zip(slots).filter(|(_, slot)| unmasked.contains(slot));
        found.map(|(name, _)| name).collect()
    };
    let is_same_set = |a: &[String], b: &[String]| {
        a.iter().all(|slot| b.contains(slot)) && b.iter().all(|slot| a.contains(slot))
    };
    (theirs == unmasked && is_same_set(&ours, &expected)).then_some(rules::HIDDEN_DEVICES)
}
