//! Command lines. A case is a list of parts, each with a letter before it: `F` a line of the
//! hostfile, `E` a variable of the environment, `A` a word of the command line, `H` a line of the
//! environment file at home, `D` one of that in the working directory.

mod devices;
mod environment;
mod generate;
mod parsed;
mod planned;
mod refused;

pub(crate) use generate::generate;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use remuda::base::Diagnostic;
use remuda::cli::run::RunArgs;

use crate::conformance::reference::Reference;
use crate::conformance::rules::{Rule, Verdict};

/// Placeholder for the directory of the case.
const HERE: &str = "@here@";

/// A case, taken apart.
#[derive(Clone)]
struct Command {
    hostfile: Vec<u8>,
    env: Vec<(String, Vec<u8>)>,
    at_home: Vec<u8>,
    in_cwd: Vec<u8>,
    argv: Vec<OsString>,
}

impl Command {
    /// `None` if shrinking has made the case invalid.
    fn new(case: &[Vec<u8>], directory: &Path) -> Option<Self> {
        let mut command = Self {
            hostfile: Vec::new(),
            env: Vec::new(),
            at_home: Vec::new(),
            in_cwd: Vec::new(),
            argv: Vec::new(),
        };
        for part in case {
            match part.split_first()? {
                (b'F', line) => command.hostfile.extend([line, b"\n"].concat()),
                (b'H', line) => command.at_home.extend([line, b"\n"].concat()),
                (b'D', line) => command.in_cwd.extend([line, b"\n"].concat()),
                (b'E', variable) => {
                    let at = variable.iter().position(|byte| *byte == b'=')?;
                    let name = std::str::from_utf8(&variable[..at]).ok()?.to_owned();
                    if name.is_empty() || variable.contains(&0) || command.env(&name).is_some() {
                        return None;
                    }
                    if name == "DS_ACCELERATOR" && &variable[at + 1..] != b"cpu" {
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

    /// The value of a variable.
    fn env(&self, name: &str) -> Option<&[u8]> {
        let found = self.env.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_slice())
    }

    /// The same without a variable.
    fn without_env(&self, name: &str) -> Self {
        let mut other = self.clone();
        other.env.retain(|(known, _)| known != name);
        other
    }

    /// The same with other words.
    fn with_argv(&self, argv: Vec<OsString>) -> Self {
        Self { argv, ..self.clone() }
    }

    /// The same without some of its words.
    fn without_words(&self, places: std::ops::Range<usize>) -> Self {
        let mut argv = self.argv.clone();
        argv.drain(places);
        self.with_argv(argv)
    }

    /// Hosts and numbers of slots if the line names the hostfile.
    fn pool(&self, args: &RunArgs) -> Option<Vec<(String, usize)>> {
        let named = args.cluster.hostfile.as_ref()?;
        if self.hostfile.is_empty() || !named.ends_with("hosts") {
            return None;
        }
        let text = String::from_utf8_lossy(&self.hostfile).into_owned();
        let host = |line: &str| {
            let (name, count) = line.split_once(" slots=")?;
            Some((name.to_owned(), count.parse().ok()?))
        };
        text.lines().map(host).collect()
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

/// Compares how both launchers parse the line, then their plans.
pub(crate) fn compare(reference: &mut Reference, case: &[Vec<u8>]) -> Verdict {
    match Command::new(case, reference.directory()) {
        Some(command) => compare_both(reference, &command),
        None => Verdict::Same,
    }
}

fn compare_both(reference: &mut Reference, command: &Command) -> Verdict {
    match parsed::compare(reference, command) {
        parsed::Read::Decided(verdict) => verdict,
        parsed::Read::Parsed(read) => planned::compare(reference, command, *read),
    }
}

/// Rules that explain differences, and unexplained differences.
#[derive(Default)]
struct Differences {
    rules: BTreeSet<Rule>,
    unexplained: Vec<String>,
}

impl Differences {
    fn rule(&mut self, rule: Rule) {
        self.rules.insert(rule);
    }

    fn unexplained(&mut self, why: String) {
        self.unexplained.push(why);
    }

    fn compare<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, ours: &T, theirs: &T) {
        if ours != theirs {
            self.unexplained(format!("{what}: remuda {ours:?}, DeepSpeed {theirs:?}"));
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

/// Adds the rule of a removed difference to the verdict of the rest.
fn besides(rule: Rule, rest: Verdict) -> Verdict {
    match rest {
        Verdict::Unexplained(why) => Verdict::Unexplained(format!("besides {}: {why}", rule.0)),
        Verdict::Explained(mut rules) => {
            rules.insert(rule);
            Verdict::Explained(rules)
        }
        Verdict::Same | Verdict::Refused => Verdict::by([rule]),
    }
}

fn show(diagnostic: &Diagnostic) -> String {
    format!("{}: {}", diagnostic.code, diagnostic.message)
}
