//! The codes of errors in a command line (`C…`).

use crate::base::{Explanation, explanation};

/// An option that does not exist.
pub const UNKNOWN_OPTION: &str = "C001";
/// An abbreviation that matches several options.
pub const AMBIGUOUS: &str = "C002";
/// An option without its value.
pub const VALUE_MISSING: &str = "C003";
/// A switch with a value, `--quiet=yes`.
pub const VALUE_UNWANTED: &str = "C004";
/// Options, but nothing to run.
pub const NO_SCRIPT: &str = "C005";
/// A value that its option cannot take.
pub const BAD_VALUE: &str = "C006";
/// Two options that contradict each other.
pub const CANNOT_COMBINE: &str = "C007";
/// An option that DeepSpeed has removed.
pub const REMOVED: &str = "C008";
/// An option that remuda recognises and does not support.
pub const NOT_SUPPORTED: &str = "C009";
/// An option that needs another one.
pub const NEEDS_OTHER: &str = "C010";
/// A word where none is expected.
pub const UNEXPECTED_WORD: &str = "C011";
/// A word that is no command.
pub const UNKNOWN_COMMAND: &str = "C012";

/// An option of one value that is given with several.
pub const GIVEN_TWICE: &str = "C013";

/// The `remuda explain` page of every code.
pub(in crate::cli) const EXPLANATIONS: &[Explanation] = &[
    explanation(
        UNKNOWN_OPTION,
        "unknown option",
        "Options of the launcher are placed before the script, and options of the script after \
         it. An option of the script that is placed before it is unknown here:\n\n    remuda run \
         --num_gpus 2 train.py --lr 0.1\n\n`-` and `_` are equivalent in the name of an option. \
         DeepSpeed's options can be abbreviated; remuda's own options cannot.",
    ),
    explanation(
        AMBIGUOUS,
        "the abbreviation matches several options",
        "A long option of DeepSpeed can be abbreviated if only one option starts with these \
         letters: `--num_g` is `--num_gpus`, but `--num` matches three options. Type one more \
         letter. remuda's own options never make an abbreviation ambiguous.",
    ),
    explanation(
        VALUE_MISSING,
        "the option needs a value",
        "No value follows the option, or the next word looks like an option. If the value starts \
         with `-`, attach it with `=` (this is not necessary for a negative number or a value \
         that contains a space):\n\n    remuda run --prefix=-x train.py",
    ),
    explanation(
        VALUE_UNWANTED,
        "the option takes no value",
        "The option is a switch, which is either given or not. Type `--quiet` instead of \
         `--quiet=yes`.",
    ),
    explanation(
        NO_SCRIPT,
        "there is nothing to run",
        "The command line ends before the script. Options are first, then the script, then the \
         script's own arguments:\n\n    remuda run --num_gpus 2 train.py --lr 0.1\n\nIf the \
         command line contains the script, the option before it used the script as its value.",
    ),
    explanation(
        BAD_VALUE,
        "the option cannot take this value",
        "The text above the caret is not a valid value of the option; the label names the valid \
         values. Whole numbers are parsed as Python parses them: ` 2`, `+2`, `02` and `1_000` \
         are numbers; `0x2` and `2.0` are not.",
    ),
    explanation(
        CANNOT_COMBINE,
        "two options contradict each other",
        "Each of the two options is valid alone, but together one of them would have no effect \
         or the wrong effect. Remove one of them.",
    ),
    explanation(
        REMOVED,
        "the option was removed from DeepSpeed",
        "DeepSpeed 0.19.8 removed elastic training, and with it `--elastic_training`, \
         `--min_elastic_nodes` and `--max_elastic_nodes`. The number of nodes is the number of \
         hosts in the hostfile, or `--num_nodes`:\n\n    remuda run -H hosts --num_nodes 4 \
         train.py\n\nTo continue without lost hosts, use `--min_nodes N`.",
    ),
    explanation(
        NOT_SUPPORTED,
        "the option is not supported",
        "remuda recognises this option or value of DeepSpeed but does not implement it, or the \
         option does not apply to this command. remuda refuses it instead of ignoring it, \
         because a job that depends on it would run with different settings. Remove it. \
         COMPAT.md lists all differences and their reasons.",
    ),
    explanation(
        NEEDS_OTHER,
        "another option or word is missing",
        "The option only has a meaning together with another option, which is missing; or a word \
         is missing at the end of the command line. `COMMAND --help` lists the options that \
         belong together.",
    ),
    explanation(
        UNEXPECTED_WORD,
        "unexpected word",
        "Nothing is expected at this place, or the word in the place of the script or the command is \
         something else: the interpreter, another launcher, a host. The help shows the line that is \
         probably meant. A value that contains spaces needs quotes, because the shell splits it into \
         several words otherwise.",
    ),
    explanation(
        UNKNOWN_COMMAND,
        "there is no such command",
        "The first word selects the command. To run a script, use the command \
         `run`:\n\n    remuda run train.py\n\nUnder the name `deepspeed` (a link to the \
         executable) remuda has no commands and runs its first word as a script.",
    ),
    explanation(
        GIVEN_TWICE,
        "the option is given twice, with different values",
        "The option takes one value. Tools of remuda refuse a second value, because one of the \
         two would be ignored silently. `remuda run`, `launch` and `pod` parse a line as \
         DeepSpeed does: the last value is used, and a note names the value that it replaces.",
    ),
];
