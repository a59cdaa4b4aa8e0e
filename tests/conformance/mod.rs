//! Comparison of remuda with other launchers, above all the real DeepSpeed, on the same inputs.
//!
//! Every difference must have a name in backticks in COMPAT.md. `scripts/conformance` installs the
//! package and compares any number of cases; without the
//! package (component `peers`) these tests are skipped.

mod commands;
mod cores;
mod hostfiles;
mod launchers;
mod machine;
mod reference;
mod rules;
mod selectors;
mod tally;

use std::collections::BTreeSet;

use crate::support::proof::{Random, proof_cases};
use reference::Reference;
use rules::{RULES, Verdict};
use tally::Tally;

/// Compares both launchers on a case.
type Compare = fn(&mut Reference, &[Vec<u8>]) -> Verdict;

/// Of ten cases four are hostfiles, three are selectors, two are command lines and one is a list of
/// cores.
#[test]
fn prove_agreement_with_deepspeed() {
    let Some(mut reference) = Reference::start("agreement_with_deepspeed") else { return };
    let mut random = Random::from_seed();
    let [mut files, mut selections, mut lines, mut machines] = [const { Tally::new() }; 4];
    for case in 0..proof_cases(1000) {
        let (tally, case, compare): (_, _, Compare) = match case % 10 {
            0..4 => (&mut files, hostfiles::generate(&mut random), hostfiles::compare),
            4 => (&mut machines, cores::generate(&mut random), cores::compare),
            5..8 => (&mut selections, selectors::generate(&mut random), selectors::compare),
            _ => (&mut lines, commands::generate(&mut random), commands::compare),
        };
        tally.take(case, |case| compare(&mut reference, case));
    }
    let tables = [
        files.table("hostfiles"),
        selections.table("selectors"),
        lines.table("command lines"),
        machines.table("cores"),
    ];
    print_table(&tables.concat());
    let unexplained = [files, selections, lines, machines].map(Tally::into_unexplained).concat();
    assert!(
        unexplained.is_empty(),
        "{} unexplained:\n{}",
        unexplained.len(),
        unexplained.join("\n")
    );
}

/// The names in backticks of the second column of a table: `on purpose (`trailing-text`)`.
fn named_in_compat() -> BTreeSet<String> {
    let compat = include_str!("../../COMPAT.md");
    let cells = compat.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").nth(1));
    let names = |cell: &str| {
        let (_, names) = cell.split_once('(')?;
        Some(names.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
    };
    cells.filter_map(names).flatten().collect()
}

#[test]
fn differences_and_named_rows_of_compat_match() {
    let rules = RULES.iter().map(|rule| rule.0).chain(launchers::rules());
    let rules: BTreeSet<String> = rules.map(str::to_owned).collect();
    assert_eq!(named_in_compat(), rules);
}

#[expect(clippy::disallowed_macros, reason = "scripts/conformance shows it")]
fn print_table(table: &str) {
    println!("{table}");
}
