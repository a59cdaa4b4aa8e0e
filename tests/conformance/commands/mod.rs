//! Command lines. A case is a list of parts, each with a letter before it: `F` a line of the
//! hostfile, `E` a variable of the environment, `A` a word of the command line.

mod generate;
mod parsed;
mod planned;

pub(crate) use generate::generate;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use remuda::base::Diagnostic;

use crate::reference::Reference;
use crate::rules::{Rule, Verdict};

/// Stands in a word for the directory of the case.
const HERE: &str = "@here@";

/// A case, taken apart.
struct Command {
    hostfile: Vec<u8>,
    env: Vec<(String, Vec<u8>)>,
    argv: Vec<OsString>,
}

impl Command {
    /// `None`: made small too eagerly.
    fn new(case: &[Vec<u8>], directory: &Path) -> Option<Self> {
        let mut command = Self { hostfile: Vec::new(), env: Vec::new(), argv: Vec::new() };
        for part in case {
            match part.split_first()? {
                (b'F', line) => {
                    command.hostfile.extend_from_slice(line);
                    command.hostfile.push(b'\n');
                }
                (b'E', variable) => {
                    let at = variable.iter().position(|byte| *byte == b'=')?;
                    let name = std::str::from_utf8(&variable[..at]).ok()?.to_owned();
                    if name.is_empty() || variable.contains(&0) {
                        return None;
                    }
                    command.env.push((name, variable[at + 1..].to_vec()));
                }
                (b'A', word) => command.argv.push(placed(word, directory)?),
                _ => return None,
            }
        }
        Some(command)
    }
}

fn placed(word: &[u8], directory: &Path) -> Option<OsString> {
    if word.contains(&0) {
        return None;
    }
    let at = word.windows(HERE.len()).position(|part| part == HERE.as_bytes());
    let Some(at) = at else { return Some(OsString::from_vec(word.to_vec())) };
    let directory = directory.as_os_str().as_bytes();
    Some(OsString::from_vec([&word[..at], directory, &word[at + HERE.len()..]].concat()))
}

/// Both sides read the line; what both understand they plan.
pub(crate) fn compare(reference: &mut Reference, case: &[Vec<u8>]) -> Verdict {
    let Some(command) = Command::new(case, reference.directory()) else { return Verdict::Same };
    match parsed::compare(reference, &command) {
        Verdict::Same => planned::compare(reference, &command),
        verdict => verdict,
    }
}

/// Rules that were needed, and what none explains.
#[derive(Default)]
struct Differences {
    rules: BTreeSet<Rule>,
    unexplained: Vec<String>,
}

impl Differences {
    fn rule(&mut self, rule: Rule) {
        self.rules.insert(rule);
    }

    fn compare<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, ours: &T, theirs: &T) {
        if ours != theirs {
            self.unexplained.push(format!("{what}: we {ours:?}, they {theirs:?}"));
        }
    }

    fn verdict(self) -> Verdict {
        match (self.unexplained.is_empty(), self.rules.is_empty()) {
            (false, _) => Verdict::Unexplained(self.unexplained.join("; ")),
            (true, false) => Verdict::Explained(self.rules),
            (true, true) => Verdict::Same,
        }
    }
}

fn show(diagnostic: &Diagnostic) -> String {
    format!("{}: {}", diagnostic.code, diagnostic.message)
}
