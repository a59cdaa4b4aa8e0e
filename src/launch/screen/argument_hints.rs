//! Hints for a program that refused its arguments: which word it refused, and whether that word was
//! added by remuda or is an option of remuda. Pure; called by the final report for the worker that
//! failed.

use std::ffi::OsString;
use std::path::Path;

use regex::bytes::Regex;

use crate::base::shell::quoted;

/// An option of the launcher, for hints about one that was typed behind the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LauncherFlag {
    /// Every spelling with its dashes, `_` between words: `--num_gpus`, `-n`.
    pub spellings: Vec<String>,
    /// Whether the next word is its value.
    pub takes_value: bool,
}

/// The words with which a worker was started, and the command line that started it.
#[derive(Clone, Copy, Debug)]
pub(in crate::launch) struct Arguments<'a> {
    /// Program, script and arguments of the worker.
    pub(in crate::launch) argv: &'a [OsString],
    /// The whole command line of the launcher, its own name first.
    pub(in crate::launch) command: &'a [OsString],
    /// The script, or the program where there is none, as it was typed.
    pub(in crate::launch) script: &'a str,
    /// The argument that remuda adds: `--local_rank=0`.
    pub(in crate::launch) added_argument: &'a str,
    /// Options of the launcher.
    pub(in crate::launch) flags: &'a [LauncherFlag],
}

/// How many words of a refusal are the refused ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RefusedWords {
    /// The first word; the rest may be a guess.
    First,
    /// Every word of the message after the prefix.
    All,
}

/// Messages that parsers of command lines print about unknown words.
const REFUSALS: [(&str, RefusedWords); 17] = [
    // argparse, and with it Hydra, simple-parsing, HfArgumentParser; jsonargparse and Lightning's
    // CLI.
    (r"error: [Uu]nrecognized arguments?: (.+)", RefusedWords::All),
    (r"not used by the HfArgumentParser: \[(.+)\]", RefusedWords::All),
    // click and typer; optparse.
    (r"[Nn]o such option:? (.+)", RefusedWords::First),
    // absl and gflags.
    (r"[Uu]nknown command[- ]line flag (.+)", RefusedWords::First),
    // The configurator of nanoGPT; yacs.
    (r"(?:Unknown|Non-existent) config key: (.+)", RefusedWords::First),
    // fire.
    (r"Could not consume args?: (.+)", RefusedWords::First),
    // tyro, getopt_long, Boost.
    (r"[Uu]nrecogni[sz]ed options?:? (.+)", RefusedWords::All),
    // getopt of Python.
    (r"option (--[^ ]+) not recognized", RefusedWords::First),
    // clap of Rust.
    (r"unexpected argument '([^']+)'", RefusedWords::First),
    // flag of Go.
    (r"flag provided but not defined: (.+)", RefusedWords::First),
    // cobra, commander, Getopt::Long and most programs that read their arguments themselves.
    (r"[Uu]nknown (?:option|flag|argument|parameter|switch)s?:? (.+)", RefusedWords::First),
    (r"[Ii]nvalid (?:option|argument): (.+)", RefusedWords::First),
    // cxxopts; CLI11.
    (r"[Oo]ption (.+) does not exist", RefusedWords::First),
    (r"arguments? (?:was|were) not expected: (.+)", RefusedWords::All),
    // Hydra and OmegaConf, where a word becomes a key; jsonargparse.
    (r"Could not override (.+)", RefusedWords::First),
    (r"[Kk]ey '([^']+)' (?:is not|not) (?:expected|in)", RefusedWords::First),
    // A function or a data class that is given every argument.
    (r"unexpected keyword argument '([^']+)'", RefusedWords::First),
];

/// Hints for the lines that a worker printed last; none where no word was refused.
pub(in crate::launch) fn argument_hints<'a>(
    arguments: Arguments<'_>,
    lines: impl Iterator<Item = &'a Vec<u8>>,
) -> Vec<String> {
    let refused: Vec<String> = lines.flat_map(|line| refused_words(line)).collect();
    let typed_late = arguments.misplaced_option_hint(&refused);
    let added = arguments.added_argument.split('=').next().map(name_of);
    let is_added = refused.iter().any(|word| Some(name_of(word)) == added) && arguments.is_added();
    let local_rank = is_added.then(|| {
        let added = arguments.added_argument;
        format!("remuda passes `{added}`, as DeepSpeed does; `--no_local_rank` omits it")
    });
    typed_late.into_iter().chain(local_rank).collect()
}

impl Arguments<'_> {
    /// Whether remuda added its argument; the user may have typed the same word.
    fn is_added(&self) -> bool {
        let has = |words: &[OsString]| words.iter().any(|word| *word == *self.added_argument);
        has(self.argv) && !has(self.command)
    }

    /// The hint for options of the launcher that were typed behind the script: the whole line, with these
    /// options before the script.
    fn misplaced_option_hint(&self, refused: &[String]) -> Option<String> {
        let script = self.command.iter().position(|word| *word == *self.script)?;
        let (mut moved, mut kept, mut names) = (Vec::new(), Vec::new(), Vec::new());
        let mut behind = self.command[script + 1..].iter();
        while let Some(word) = behind.next() {
            let Some((name, flag)) = self.refused_option(word, refused) else {
                kept.push(word);
                continue;
            };
            moved.push(word);
            if flag.takes_value && word.len() == name.len() {
                moved.extend(behind.next());
            }
            names.push(format!("`{name}`"));
        }
        let are = match &names[..] {
            [] => return None,
            [_] => "is an option",
            _ => "are options",
        };
        let (before, rest) = self.command.split_at(script);
        let (program, options) = before.split_first()?;
        let (options, dashes) = match options.split_last() {
            Some((last, options)) if last == "--" => (options, Some(last)),
            _ => (options, None),
        };
        let words = options.iter().chain(moved).chain(dashes).chain(&rest[..1]).chain(kept);
        let program = Path::new(program).file_name()?.to_string_lossy().into_owned();
        let line: Vec<String> = std::iter::once(program).chain(words.map(quoted)).collect();
        let (names, line) = (names.join(", "), line.join(" "));
        Some(format!("{names} {are} of remuda and must precede the script: `{line}`"))
    }

    /// The name of an option of the launcher in a word, if the program refused this option.
    fn refused_option<'w>(
        &self,
        word: &'w OsString,
        refused: &[String],
    ) -> Option<(&'w str, &LauncherFlag)> {
        let name = word.to_str().filter(|text| text.starts_with('-'))?.split('=').next()?;
        let is_it = |spelling: &String| name_of(spelling) == name_of(name);
        let flag = self.flags.iter().find(|flag| flag.spellings.iter().any(is_it))?;
        let is_refused =
            |word: &String| flag.spellings.iter().any(|one| name_of(one) == name_of(word));
        refused.iter().any(is_refused).then_some((name, flag))
    }
}

/// The words that a line reports as refused, as they are printed.
fn refused_words(line: &[u8]) -> Vec<String> {
    let plain = Regex::new("\x1b\\[[0-9;]*m").expect("a valid pattern").replace_all(line, &b""[..]);
    for (pattern, refused) in REFUSALS {
        let pattern = Regex::new(pattern).expect("a valid pattern");
        let Some(found) = pattern.captures(&plain).and_then(|found| found.get(1)) else {
            continue;
        };
        let text = String::from_utf8_lossy(found.as_bytes());
        let words = text.split([' ', ',', '\'', '"', '`', '[', ']', '(', ')', '│', '‘', '’']);
        let words = words.map(|word| word.trim_end_matches(['.', ':', ';', '!', '\r']));
        let mut words = words.filter(|word| !word.is_empty()).map(str::to_owned);
        return match refused {
            RefusedWords::First => words.next().into_iter().collect(),
            RefusedWords::All => words.collect(),
        };
    }
    Vec::new()
}

/// The name of an option: `--local-rank=0` → `local_rank`.
fn name_of(word: &str) -> String {
    let name = word.split('=').next().unwrap_or_default();
    name.trim_start_matches('-').replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL_RANK: &str =
        "remuda passes `--local_rank=0`, as DeepSpeed does; `--no_local_rank` omits it";

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    /// The hints for a line that a worker of a command printed.
    fn hints(command: &str, argv: &str, printed: &str) -> Vec<String> {
        let flag = |spellings: &[&str], takes_value| LauncherFlag {
            spellings: spellings.iter().map(ToString::to_string).collect(),
            takes_value,
        };
        let flags = [flag(&["--num_gpus", "-n"], true), flag(&["--dry-run"], false)];
        let (argv, command) = (words(argv), words(command));
        let script = command.iter().find_map(|word| word.to_str().filter(|it| it.contains(".py")));
        let arguments = Arguments {
            argv: &argv,
            command: &command,
            script: script.unwrap_or("./worker"),
            added_argument: "--local_rank=0",
            flags: &flags,
        };
        let lines: Vec<Vec<u8>> = printed.split('\n').map(|line| line.as_bytes().into()).collect();
        argument_hints(arguments, lines.iter())
    }

    #[track_caller]
    fn check_local_rank(printed: &str) {
        let found =
            hints("/usr/bin/remuda run train.py", "python -u train.py --local_rank=0", printed);
        assert_eq!(found, [LOCAL_RANK], "for `{printed}`");
    }

    #[test]
    fn refused_local_rank_is_recognised_in_every_form() {
        check_local_rank("train.py: error: unrecognized arguments: --local_rank=0");
        check_local_rank("error: Unrecognized arguments: --local_rank=0");
        check_local_rank("ValueError: Unknown config key: local_rank");
        check_local_rank("KeyError: 'Non-existent config key: local_rank'");
        check_local_rank("  Unknown command line flag 'local_rank'. Did you mean: node_rank ?");
        check_local_rank("Error: No such option: --local_rank Did you mean --rank?");
        check_local_rank("│ No such option: --local_rank                    │");
        check_local_rank("No such option: \x1b[1;36m-\x1b[0m\x1b[1;36m-local_rank\x1b[0m");
        check_local_rank("train.py: error: no such option: --local_rank");
        check_local_rank("ERROR: Could not consume arg: --local_rank=0");
        check_local_rank("│ Unrecognized options: --local-rank=0            │");
        check_local_rank("sleep: unrecognized option '--local_rank=0'");
        check_local_rank("getopt.GetoptError: option --local_rank not recognized");
        check_local_rank("error: unexpected argument '--local_rank' found");
        check_local_rank("flag provided but not defined: -local_rank");
        check_local_rank("Error: unknown flag: --local_rank");
        check_local_rank("error: unknown option '--local_rank=0'");
        check_local_rank("Option 'local_rank' does not exist");
        check_local_rank("The following argument was not expected: --local_rank=0");
        check_local_rank("Could not override 'local_rank'.");
        check_local_rank("Key 'local_rank' is not in struct");
        check_local_rank("TypeError: __init__() got an unexpected keyword argument 'local_rank'");
        check_local_rank(
            "ValueError: Some specified arguments are not used by the HfArgumentParser: ['--local_rank=0']",
        );
    }

    #[test]
    fn other_refused_word_gives_no_hint_of_local_rank() {
        let argv = "python -u train.py --local_rank=0";
        for printed in [
            "usage: train.py [-h] [--local_rank LOCAL_RANK]\ntrain.py: error: unrecognized arguments: --lr",
            "train.py: error: argument --lr: invalid float value: '--local_rank'",
            "Error: No such option: --rank Did you mean --local_rank?",
            "RuntimeError: rank 3: --local_rank is 0",
        ] {
            assert_eq!(hints("remuda run train.py", argv, printed), [""; 0], "for `{printed}`");
        }
    }

    #[test]
    fn typed_local_rank_is_not_blamed_on_remuda() {
        let printed = "error: unrecognized arguments: --local_rank=0";
        let line = "remuda run --no_local_rank train.py --local_rank=0";
        assert_eq!(hints(line, "python -u train.py --local_rank=0", printed), [""; 0]);
    }

    #[track_caller]
    fn check_typed_late(command: &str, printed: &str, name: &str, line: &str) {
        let expect =
            format!("`{name}` is an option of remuda and must precede the script: `{line}`");
        assert_eq!(hints(command, "python -u train.py", printed), [expect], "for `{command}`");
    }

    #[test]
    fn option_of_remuda_behind_the_script_is_named() {
        let run = |option: &str| format!("remuda run {option} train.py");
        check_typed_late(
            "/opt/bin/remuda run train.py --num_gpus 2",
            "usage: train.py [--local_rank N]\ntrain.py: error: unrecognized arguments: --num_gpus 2",
            "--num_gpus",
            &run("--num_gpus 2"),
        );
        check_typed_late(
            "remuda run train.py --lr 1 --num-gpus=2",
            "Error: No such option: --num-gpus",
            "--num-gpus",
            "remuda run --num-gpus=2 train.py --lr 1",
        );
        check_typed_late(
            "deepspeed train.py -n 2",
            "train.py: error: unrecognized arguments: -n 2",
            "-n",
            "deepspeed -n 2 train.py",
        );
        check_typed_late(
            "remuda run train.py --dry-run x",
            "Unknown command line flag 'dry-run'",
            "--dry-run",
            "remuda run --dry-run train.py x",
        );
    }

    #[test]
    fn every_other_word_of_the_line_is_kept() {
        check_typed_late(
            "/opt/bin/remuda accelerate launch --cpu -- train.py --lr 1 --num_gpus 2 --seed 7",
            "train.py: error: unrecognized arguments: --num_gpus 2",
            "--num_gpus",
            "remuda accelerate launch --cpu --num_gpus 2 -- train.py --lr 1 --seed 7",
        );
        let found = hints(
            "torchrun train.py --num_gpus 2 --lr 1 --dry-run",
            "python -u train.py",
            "train.py: error: unrecognized arguments: --num_gpus 2 --dry-run",
        );
        let names = "`--num_gpus`, `--dry-run` are options of remuda and must precede the script";
        assert_eq!(found, [format!("{names}: `torchrun --num_gpus 2 --dry-run train.py --lr 1`")]);
    }

    #[test]
    fn both_refused_words_get_their_hints() {
        let found = hints(
            "remuda run train.py --num_gpus 2",
            "python -u train.py --local_rank=0 --num_gpus 2",
            "train.py: error: unrecognized arguments: --local_rank=0 --num_gpus 2",
        );
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("`remuda run --num_gpus 2 train.py`"), "{found:?}");
        assert_eq!(found[1], LOCAL_RANK);
    }
}
