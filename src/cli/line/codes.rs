//! The stable codes of what can be wrong with a command line (`C…`).

use crate::base::{Explanation, story};

/// An option that nobody knows.
pub const UNKNOWN_OPTION: &str = "C001";
/// An abbreviation of several options.
pub const AMBIGUOUS: &str = "C002";
/// An option at its end, or before another option.
pub const VALUE_MISSING: &str = "C003";
/// `--quiet=yes`.
pub const VALUE_UNWANTED: &str = "C004";
/// Options, but nothing to run.
pub const NO_SCRIPT: &str = "C005";
/// A value that its option cannot take.
pub const BAD_VALUE: &str = "C006";
/// Two options that contradict each other.
pub const CANNOT_COMBINE: &str = "C007";
/// An option that DeepSpeed itself has given up.
pub const REMOVED: &str = "C008";
/// An option that is understood and has nothing behind it.
pub const NOT_THERE: &str = "C009";
/// An option that needs another one.
pub const NEEDS_OTHER: &str = "C010";
/// A word where none is expected.
pub const UNEXPECTED_WORD: &str = "C011";
/// A word that is no command.
pub const UNKNOWN_COMMAND: &str = "C012";

/// An option of one value that is given with several.
pub const GIVEN_TWICE: &str = "C013";

/// The explanations of these codes.
pub(in crate::cli) const EXPLANATIONS: &[Explanation] = &[
    story(
        UNKNOWN_OPTION,
        "there is no such option",
        "Options of the launcher stand before the script, those of the script behind it; an option of \
         the script that comes too early is unknown here:\n\n    \
         remuda run --num_gpus 2 train.py --lr 0.1\n\n\
         `-` and `_` are the same in a name. Options of DeepSpeed may be abbreviated, ours are written \
         out.",
    ),
    story(
        AMBIGUOUS,
        "the abbreviation could be several options",
        "A long option of DeepSpeed may be cut as long as one option begins like that: `--num_g` is \
         --num_gpus, `--num` could be three. Write a letter more. Options of ours never make an \
         abbreviation ambiguous.",
    ),
    story(
        VALUE_MISSING,
        "the option needs a value",
        "Nothing follows, or what follows looks like an option. A value that begins with `-` is glued \
         to its option, unless it is a negative number or holds a blank:\n\n    \
         remuda run --prefix=-x train.py",
    ),
    story(
        VALUE_UNWANTED,
        "the option takes no value",
        "It is a switch: given or not. `--quiet=yes` is `--quiet`.",
    ),
    story(
        NO_SCRIPT,
        "there is nothing to run",
        "The line ends before a script. Options come first, then the script, then its own \
         arguments:\n\n    remuda run --num_gpus 2 train.py --lr 0.1\n\n\
         If the script stands there, the option before it has taken it for its value.",
    ),
    story(
        BAD_VALUE,
        "the option cannot take this value",
        "The text under the caret is no value of that option; the label says what is. Whole numbers are \
         read as Python reads them: ` 2`, `+2`, `02` and `1_000` are numbers, `0x2` and `2.0` are not.",
    ),
    story(
        CANNOT_COMBINE,
        "two options contradict each other",
        "Each makes sense alone; together one of them would have no effect, or the wrong one. Keep one. \
         When one comes from a wrapper script, the last of two equal options wins.",
    ),
    story(
        REMOVED,
        "the option was removed from DeepSpeed",
        "DeepSpeed gave up elastic training in 0.19.8, and with it --elastic_training, \
         --min_elastic_nodes and --max_elastic_nodes. The number of nodes is that of the hostfile, or \
         that of --num_nodes.",
    ),
    story(
        NOT_THERE,
        "the option has nothing behind it here",
        "It is an option of DeepSpeed, or a value of one, that remuda understands and does not have, or \
         that says nothing about this command. It is refused rather than ignored: who gives it counts \
         on it. COMPAT.md lists what is different, and why.",
    ),
    story(
        NEEDS_OTHER,
        "something else is needed with it",
        "The option says more about another one, which is missing; or a word is missing at the end of \
         the line. `COMMAND --help` lists what belongs together.",
    ),
    story(
        UNEXPECTED_WORD,
        "one word too many",
        "This command takes no script and no arguments behind its options. A value with blanks needs \
         quotes, or the shell makes several words of it.",
    ),
    story(
        UNKNOWN_COMMAND,
        "there is no such command",
        "The first word chooses what remuda does. To run a script say so:\n\n    \
         remuda run train.py\n\n\
         Called as `deepspeed` (a link to the executable) it has no commands and runs its first word.",
    ),
    story(
        GIVEN_TWICE,
        "the option is given twice, with different values",
        "The option takes one value. Tools of remuda refuse a second value, for one of the two would be \
         ignored without a word. `remuda run`, `launch` and `pod` read a line as DeepSpeed does: the \
         last value wins, and a note names the value that it replaces.",
    ),
];
