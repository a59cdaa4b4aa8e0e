//! Counts verdicts, shrinks unexplained cases, and prints the table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::conformance::rules::{Rule, Verdict};

/// Verdicts of one kind of case.
#[derive(Debug)]
pub(crate) struct Tally {
    cases: usize,
    same: usize,
    refused: usize,
    explained: BTreeMap<Rule, usize>,
    unexplained: Vec<String>,
}

/// Number of unexplained cases that are shrunk and shown.
const SHOWN_MAX: usize = 10;

impl Tally {
    pub(crate) const fn new() -> Self {
        Self { cases: 0, same: 0, refused: 0, explained: BTreeMap::new(), unexplained: Vec::new() }
    }

    /// Compares a case; an unexplained case is shrunk.
    pub(crate) fn take(
        &mut self,
        case: Vec<Vec<u8>>,
        mut compare: impl FnMut(&[Vec<u8>]) -> Verdict,
    ) {
        self.cases += 1;
        match compare(&case) {
            Verdict::Same => self.same += 1,
            Verdict::Refused => self.refused += 1,
            Verdict::Explained(rules) => {
                for rule in rules {
                    *self.explained.entry(rule).or_default() += 1;
                }
            }
            Verdict::Unexplained(_) if SHOWN_MAX <= self.unexplained.len() => {
                self.unexplained.push(String::new());
            }
            Verdict::Unexplained(_) => {
                let small = shrink(case, |case| compare(case).is_unexplained());
                let Verdict::Unexplained(why) = compare(&small) else { unreachable!("just seen") };
                let shown: Vec<String> =
                    small.iter().map(|part| part.escape_ascii().to_string()).collect();
                self.unexplained.push(format!("{shown:?}: {why}"));
            }
        }
    }

    pub(crate) fn into_unexplained(self) -> Vec<String> {
        self.unexplained
    }

    /// Cases, agreements, differences by rule.
    pub(crate) fn table(&self, what: &str) -> String {
        let differences = self.cases - self.same - self.refused - self.unexplained.len();
        let mut out = format!(
            "{what}: {} cases: {} the same, {} refused by both, {differences} explained, {} unexplained\n",
            self.cases,
            self.same,
            self.refused,
            self.unexplained.len()
        );
        for (rule, count) in &self.explained {
            writeln!(out, "  {count:>7}  {}", rule.0).expect("writing to a String cannot fail");
        }
        out
    }
}

/// Removes parts, then bytes of parts, as long as the case stays unexplained.
fn shrink(mut case: Vec<Vec<u8>>, mut is_bad: impl FnMut(&[Vec<u8>]) -> bool) -> Vec<Vec<u8>> {
    loop {
        let length = |case: &[Vec<u8>]| case.iter().map(|part| 1 + part.len()).sum::<usize>();
        let before = length(&case);
        for at in (0..case.len()).rev() {
            let mut smaller = case.clone();
            smaller.remove(at);
            if is_bad(&smaller) {
                case = smaller;
            }
        }
        for part in 0..case.len() {
            for at in (0..case[part].len()).rev() {
                let mut smaller = case.clone();
                smaller[part].remove(at);
                if is_bad(&smaller) {
                    case = smaller;
                }
            }
        }
        if length(&case) == before {
            return case;
        }
    }
}
