//! Variables of env files, and variables that are passed to other nodes: a model of the rows of
//! COMPAT.md, written independently of the implementation.

use std::collections::BTreeMap;
use std::path::Path;

use remuda::base::env_vars::RESERVED;
use serde_json::Value;

use super::Command;
use crate::conformance::rules::{self, Rule};

/// The usual name of an env file.
const USUAL: &str = ".deepspeed_env";
/// A name of a file that no case contains.
const MISSING: &str = "missing.env";

/// Source of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Environment,
    /// This line of a file.
    File(String),
}

/// Values by name.
pub(super) type Promise = BTreeMap<String, (Vec<u8>, Source)>;

/// Meaning of a line of an env file.
pub(super) enum Line {
    Nothing,
    Sets(String, String),
    /// An error, for this row of COMPAT.md.
    Wrong(Rule),
}

/// Parses a line by the rules of COMPAT.md: blank lines and comments, `export`, one pair of quotes; values literal.
pub(super) fn read(line: &str) -> Line {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Line::Nothing;
    }
    let assignment = line.strip_prefix("export ").unwrap_or(line).trim();
    let Some((name, value)) = assignment.split_once('=') else {
        return Line::Wrong(rules::ENV_SYNTAX);
    };
    let (name, value) = (name.trim(), value.trim());
    if RESERVED.contains(&name) {
        return Line::Wrong(rules::ENV_RESERVED);
    }
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || name.as_bytes()[0].is_ascii_digit() || !name.bytes().all(is_letter) {
        return Line::Wrong(rules::ENV_SYNTAX);
    }
    let Some(quote) = value.chars().next().filter(|c| "\"'".contains(*c)) else {
        return Line::Sets(name.to_owned(), value.to_owned());
    };
    match value[1..].split_once(quote) {
        Some((inside, rest)) if rest.trim().is_empty() || rest.trim().starts_with('#') => {
            Line::Sets(name.to_owned(), inside.to_owned())
        }
        _ => Line::Wrong(rules::ENV_SYNTAX),
    }
}

impl Command {
    /// Lines of both env files, that of the home directory first; none if `DS_ENV_FILE` names no file.
    pub(super) fn env_lines(&self) -> Vec<String> {
        if self.env("DS_ENV_FILE").is_some_and(|name| name == MISSING.as_bytes()) {
            return Vec::new();
        }
        let lines = |text: &[u8]| -> Vec<String> {
            String::from_utf8_lossy(text).lines().map(str::to_owned).collect()
        };
        [lines(&self.at_home), lines(&self.in_cwd)].concat()
    }

    /// Writes hostfile and env files, and removes those of the previous case.
    pub(super) fn write_files(&self, here: &Path) {
        let home = here.join("home");
        std::fs::create_dir_all(&home).expect("the directory is writable");
        // A file that `*.py` matches.
        std::fs::write(here.join("found.py"), "").expect("the directory is writable");
        let named = self.env("DS_ENV_FILE").map(|name| String::from_utf8_lossy(name).into_owned());
        let named = named.filter(|name| name != MISSING && !name.is_empty());
        let used = named.as_deref().unwrap_or(USUAL);
        for name in [USUAL, "other.env"] {
            let is_used = name == used;
            write_or_remove(&home.join(name), if is_used { &self.at_home } else { b"" });
            write_or_remove(&here.join(name), if is_used { &self.in_cwd } else { b"" });
        }
        write_or_remove(&here.join("hosts"), &self.hostfile);
    }

    /// Variables of env files; the last value of a name is used.
    pub(super) fn variables_of_files(&self) -> Promise {
        let mut found = Promise::new();
        for line in self.env_lines() {
            if let Line::Sets(name, value) = read(&line) {
                found.insert(name, (value.into_bytes(), Source::File(line)));
            }
        }
        found
    }

    /// Variables that are passed to the nodes of a job of several nodes.
    pub(super) fn variables_of_nodes(&self, here: &Path) -> Promise {
        const ALWAYS: [&str; 4] = ["MLFLOW", "PYTHON", "MV2", "UCX"];
        let is_cpu = self.env("DS_ACCELERATOR").is_some_and(|kind| kind == b"cpu");
        let is_aisc = self.env("AISC_JOB_NAME").is_some();
        let mut found = Promise::new();
        for (name, value) in &self.env {
            let travels = ALWAYS.iter().any(|word| name.starts_with(word))
                || !is_cpu && name.starts_with("NCCL");
            let stays = is_aisc && ["NCCL_IB_HCA", "UCX_NET_DEVICES"].contains(&name.as_str());
            if travels && !stays {
                found.insert(name.clone(), (value.clone(), Source::Environment));
            }
        }
        let mut path = here.to_string_lossy().into_owned().into_bytes();
        if let Some(old) = self.env("PYTHONPATH").filter(|old| !old.is_empty()) {
            path = [&path, &b":"[..], old].concat();
        }
        found.insert("PYTHONPATH".to_owned(), (path, Source::Environment));
        found.extend(self.variables_of_files());
        found
    }
}

fn write_or_remove(path: &Path, text: &[u8]) {
    let done = match text {
        [] => std::fs::remove_file(path),
        text => std::fs::write(path, text),
    };
    drop(done);
}

/// Whether a shell passes this on unchanged, without quotes and in double quotes.
pub(super) fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(byte))
}

/// The row that explains a difference from the value after DeepSpeed's remote shell, which was given
/// `raw`.
pub(super) fn rule_of_shell(ours: &[u8], raw: Option<&[u8]>, source: &Source) -> Option<Rule> {
    match source {
        Source::Environment => {
            let raw = raw?;
            // DeepSpeed strips values, and writes `here:` where PYTHONPATH is set and empty.
            let is_same = raw == ours.trim_ascii() || raw.strip_suffix(b":") == Some(ours);
            (is_same && (!is_plain(ours) || raw != ours)).then_some(rules::TRAVELS)
        }
        Source::File(line) => {
            let has_quotes = line.contains(['"', '\'']) || line.trim_start().starts_with("export");
            match raw {
                Some(raw) if raw == ours && !is_plain(raw) => Some(rules::ENV_VALUES),
                _ => has_quotes.then_some(rules::ENV_SYNTAX),
            }
        }
    }
}

/// Rows that explain why DeepSpeed's remote command fails because of its exports.
pub(super) fn rules_of_broken_shell(command: &Command, exported: &Value) -> Vec<Rule> {
    let mut found = Vec::new();
    for line in command.env_lines() {
        let (name, value) = line.split_once('=').unwrap_or((&line, ""));
        if !is_plain(name.trim().as_bytes()) || line.contains(['"', '\'']) {
            found.push(rules::ENV_SYNTAX);
        } else if !is_plain(value.trim().as_bytes()) {
            found.push(rules::ENV_VALUES);
        }
    }
    let names = exported.as_object().into_iter().flatten().map(|(name, _)| name);
    let special = |name: &String| command.env(name).is_some_and(|value| !is_plain(value));
    if names.into_iter().any(special) {
        found.push(rules::TRAVELS);
    }
    found
}
