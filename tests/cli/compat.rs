//! COMPAT.md speaks of every option.

use std::collections::BTreeSet;
use std::fs;

use clap::CommandFactory;
use remuda::cli::launch::LaunchArgs;
use remuda::cli::line::DEEPSPEED_FLAGS;
use remuda::cli::run::RunArgs;

/// Options in the first cells of the tables.
fn told() -> BTreeSet<String> {
    let document = fs::read_to_string("COMPAT.md").expect("a document");
    let cells = document.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let words = cells.flat_map(|cell| cell.split(['`', ' ', ',', '=', '[']));
    words.filter_map(|word| word.strip_prefix("--")).map(str::to_owned).collect()
}

#[test]
fn every_option_has_its_row() {
    let told = told();
    let mut command = RunArgs::command();
    command.build();
    let ours = command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned));
    let theirs = DEEPSPEED_FLAGS.iter().map(ToString::to_string);
    let silent: Vec<String> = ours.chain(theirs).filter(|flag| !told.contains(flag)).collect();
    assert!(silent.is_empty(), "COMPAT.md says nothing about {silent:?}");
}

/// Of one node's launcher, too.
#[test]
fn every_option_of_a_launched_node_has_its_row() {
    let told = told();
    let mut command = LaunchArgs::command();
    command.build();
    let ours = command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned));
    let silent: Vec<String> = ours.filter(|flag| !told.contains(flag)).collect();
    assert!(silent.is_empty(), "COMPAT.md says nothing about {silent:?}");
}

#[test]
fn every_option_of_deepspeed_is_one_of_ours() {
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
