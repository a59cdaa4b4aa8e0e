//! COMPAT.md has a row for every option.

use std::collections::BTreeSet;
use std::fs;

use clap::CommandFactory;
use remuda::cli::launch::LaunchArgs;
use remuda::cli::line::DEEPSPEED_FLAGS;
use remuda::cli::pod::PodArgs;
use remuda::cli::run::RunArgs;

/// Options in the first cells of the tables.
fn documented_options() -> BTreeSet<String> {
    let document = fs::read_to_string("COMPAT.md").expect("a document");
    let cells = document.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let words = cells.flat_map(|cell| cell.split(['`', ' ', ',', '=', '[']));
    words.filter_map(|word| word.strip_prefix("--")).map(str::to_owned).collect()
}

#[test]
fn options_of_run_have_rows() {
    let documented = documented_options();
    let mut command = RunArgs::command();
    command.build();
    let own = command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned));
    let of_deepspeed = DEEPSPEED_FLAGS.iter().map(ToString::to_string);
    let missing: Vec<String> =
        own.chain(of_deepspeed).filter(|flag| !documented.contains(flag)).collect();
    assert!(missing.is_empty(), "COMPAT.md has no row for {missing:?}");
}

#[test]
fn options_of_launch_have_rows() {
    let documented = documented_options();
    let mut command = LaunchArgs::command();
    command.build();
    let own = command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned));
    let missing: Vec<String> = own.filter(|flag| !documented.contains(flag)).collect();
    assert!(missing.is_empty(), "COMPAT.md has no row for {missing:?}");
}

#[test]
fn options_of_pod_have_rows() {
    let documented = documented_options();
    let mut command = PodArgs::command();
    command.build();
    let own = command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned));
    let missing: Vec<String> = own.filter(|flag| !documented.contains(flag)).collect();
    assert!(missing.is_empty(), "COMPAT.md has no row for {missing:?}");
}

#[test]
fn options_of_deepspeed_are_options_of_run() {
    let mut command = RunArgs::command();
    command.build();
    for flag in DEEPSPEED_FLAGS {
        let has = |arg: &clap::Arg| {
            arg.get_long() == Some(flag)
                || arg.get_all_aliases().unwrap_or_default().contains(&flag)
        };
        assert!(command.get_arguments().any(has), "--{flag}");
    }
}

/// Rules of DeepSpeed's launcher in their order: hostfile, filters, decisions, environment, the
/// launcher of a node. Each is the beginning of a row.
const RULES: &[&str] = &[
    "options end at the script",
    "a repeated option",
    "`--opt=value`",
    "unique prefixes",
    "a value that begins with `-`",
    "a negative number",
    "whole numbers",
    "the first `--`",
    "exit status 2",
    "names: `remuda run`",
    "`HOST slots=N`",
    "text after the count",
    "`slots=0`",
    "duplicate hosts",
    "`USER@HOST slots=N`",
    "host names",
    "names that differ in case",
    "blanks of other scripts",
    "a hostfile that cannot be read",
    "text that is not UTF-8",
    "a byte-order mark",
    "digits",
    "`HOST[:SLOT,…][@HOST…]`",
    "result in hostfile order",
    "a host named twice",
    "an unknown host or slot",
    "nothing left",
    "IPv6 addresses",
    "`--num_nodes` or `--num_gpus` beside a selector",
    "which pool",
    "`CUDA_VISIBLE_DEVICES` without a hostfile",
    "the same beside",
    "the variable of other accelerators",
    "slots of a machine without GPUs",
    "`--num_nodes` above 1 without a hostfile",
    "whether hosts can be reached",
    "node 0 reports the master address",
    "a job on one remote host",
    "`--num_nodes` and `--num_gpus` trim",
    "filters that Slurm cannot express",
    "ranks follow",
    "`--world_info BASE64`",
    "`.deepspeed_env`",
    "when env files count",
    "syntax of env files",
    "values of env files",
    "variables that are passed",
    "`RANK WORLD_SIZE",
    "`LOCAL_RANK`",
    "`CUDA_VISIBLE_DEVICES`: all slots",
    "`OMP_NUM_THREADS`",
    "`python -u [-m] SCRIPT",
    "interpreter",
    "stdin",
    "variables with NCCL",
    "`KMP_AFFINITY`",
    "exit status",
    "one worker fails",
    "grace",
    "SIGTERM, SIGINT, SIGHUP",
    "the launcher is killed",
    "cleaning up",
    "log of the launcher",
];

#[test]
fn rules_of_the_launcher_have_rows() {
    let document = fs::read_to_string("COMPAT.md").expect("a document");
    let has_row = |rule: &&&str| {
        document
            .lines()
            .any(|line| line.strip_prefix("| ").is_some_and(|row| row.starts_with(**rule)))
    };
    let missing: Vec<_> = RULES.iter().filter(|rule| !has_row(rule)).collect();
    assert!(missing.is_empty(), "COMPAT.md has no row for {missing:?}");
}

/// A row after an empty line would not belong to its table.
#[test]
fn rows_are_in_tables() {
    let document = fs::read_to_string("COMPAT.md").expect("a document");
    let lines: Vec<&str> = std::iter::once("").chain(document.lines()).collect();
    for three in lines.windows(3) {
        let begins = three[1].starts_with('|') && !three[0].starts_with('|');
        assert!(!begins || three[2].starts_with("|---"), "{}", three[1]);
    }
}
