//! Names of options in messages as they were typed: `-` and `_` are the same in the name of an option, and a user
//! who typed `--max-restarts` reads about `--max-restarts`. Pure.

use super::flags::underscored;
use super::typed::{CommandLine, GivenOption};
use crate::base::Diagnostic;

/// Options of remuda in lines of other launchers: how they are spelled says nothing about the others.
const OWN: [&str; 2] = ["dry-run", "key-file"];

impl CommandLine {
    /// Returns an option with the sign between its words that the line has: lines of torch's launchers may have `-` or
    /// `_`, and those of accelerate have `_` if none was typed.
    pub(in crate::cli) fn spelled(&self, flag: &str) -> String {
        match self.word_sign(flag) {
            Some('_') => underscored(flag),
            Some(_) => flag.replace('_', "-"),
            None => flag.to_owned(),
        }
    }

    /// Returns the sign between the words of an option as it was typed, else of the last option that has one.
    fn word_sign(&self, flag: &str) -> Option<char> {
        let line = self.typed_line();
        let is_of = |launcher: &str| line.program.contains(launcher);
        let usual = if is_of("accelerate") { Some('_') } else { None };
        let sign = |given: &GivenOption| {
            line.text_of(given.name).trim_start_matches('-').chars().find(|c| "-_".contains(*c))
        };
        let is_it = |given: &&GivenOption| underscored(&given.flag) == underscored(flag);
        let given = || line.options.iter().rev();
        let others = || given().filter(|given| !OWN.contains(&&*given.flag)).find_map(sign);
        let typed = given().find(is_it).and_then(sign).or_else(others);
        if is_of("torch") || usual.is_some() { typed.or(usual) } else { None }
    }

    /// Returns the finding with every option of the line in the spelling that was typed last.
    pub(super) fn in_typed_spelling(&self, found: Diagnostic) -> Diagnostic {
        self.options.iter().rev().fold(found, |mut found, given| {
            let typed = self.text_of(given.name);
            let flag = format!("--{}", given.flag);
            // An abbreviation or a short name would not be found in the help.
            if typed == flag || underscored(&typed) != underscored(&flag) {
                return found;
            }
            found.message = replace_name(&found.message, &flag, &typed);
            found.label = replace_name(&found.label, &flag, &typed);
            found.help = found.help.map(|help| replace_name(&help, &flag, &typed));
            found
        })
    }
}

/// Replaces an option by another spelling of it, but not in the names of longer options.
fn replace_name(text: &str, flag: &str, typed: &str) -> String {
    let continues = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(flag) {
        let (before, after) = (&rest[..at], &rest[at + flag.len()..]);
        let is_part = before.ends_with(continues) || after.starts_with(continues);
        out += before;
        out += if is_part { flag } else { typed };
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_longer_options_stay() {
        let replaced = |text| replace_name(text, "--min_nodes", "--min-nodes");
        assert_eq!(
            replaced("add `--min_nodes N`, or --min_nodes"),
            "add `--min-nodes N`, or --min-nodes"
        );
        assert_eq!(
            replaced("`--min_nodes_x` and `x--min_nodes`"),
            "`--min_nodes_x` and `x--min_nodes`"
        );
    }
}
