//! What can be wrong with an environment file (`E…`).

use crate::base::{Explanation, story};

/// A line that sets nothing.
pub const ENV_NO_EQUALS: &str = "E001";
/// A word that cannot name a variable.
pub const ENV_BAD_NAME: &str = "E002";
/// A variable that is not the user's to set.
pub const ENV_RESERVED: &str = "E003";
/// A variable on two lines.
pub const ENV_SET_TWICE: &str = "E004";
/// A variable in two files.
pub const ENV_IN_BOTH: &str = "E005";
/// A quote without its other half.
pub const ENV_OPEN_QUOTE: &str = "E006";
/// Words after a value in quotes.
pub const ENV_AFTER_QUOTE: &str = "E007";
/// A value that a shell would change.
pub const ENV_NOT_EXPANDED: &str = "E008";
/// A comment after a value.
pub const ENV_COMMENT: &str = "E009";
/// A variable that decides which code runs.
pub const ENV_LOADS_CODE: &str = "E010";
/// A variable above the kernel's limit.
pub const ENV_TOO_LONG: &str = "E011";
/// More variables than the limit.
pub const ENV_TOO_MANY: &str = "E012";
/// Bytes that are no UTF-8.
pub const ENV_NOT_TEXT: &str = "E013";
/// A NUL or a carriage return inside a line.
pub const ENV_CONTROL_BYTE: &str = "E014";
/// `DS_ENV_FILE` names nothing.
pub const ENV_MISSING: &str = "E015";
/// A directory, a pipe, a device.
pub const ENV_NOT_A_FILE: &str = "E016";
/// The file cannot be read.
pub const ENV_UNREADABLE: &str = "E017";
/// Everybody may write the file.
pub const ENV_WRITABLE_BY_ALL: &str = "E018";
/// The file belongs to somebody else.
pub const ENV_FOREIGN_OWNER: &str = "E019";
/// The file is larger than any such file.
pub const ENV_TOO_LARGE: &str = "E020";
/// A variable that says what the slots say.
pub const ENV_DEVICES: &str = "E021";

/// Their stories.
pub(super) const EXPLANATIONS: &[Explanation] = &[
    story(
        ENV_NO_EQUALS,
        "line without `=`",
        "A line is `NAME=value`; blank lines, comments (`#`) and `export` before the name are fine. \
         DeepSpeed stops at any line without `=` with a Python stack trace. Commands such as `set` or \
         `source` are not run: this is no shell script. `export NAME` alone passes nothing on; \
         `--env NAME` does.",
    ),
    story(
        ENV_BAD_NAME,
        "not a variable name",
        "Names have ASCII letters, digits and `_`, and do not begin with a digit. DeepSpeed hands any \
         text before the `=` to the remote shell, where `# a=1` turns the rest of the command into a \
         comment: nothing runs, and the job counts as a success.",
    ),
    story(
        ENV_RESERVED,
        "variable is set by remuda",
        "RANK, WORLD_SIZE, MASTER_ADDR and others like them say who a worker is and where the others are. \
         They follow from the plan of the job, so a file cannot set them. For the address and the port of \
         rank 0 there are --master_addr and --master_port.",
    ),
    story(
        ENV_SET_TWICE,
        "variable is set twice",
        "The last line of a file wins, as in DeepSpeed. One of the two is probably forgotten.",
    ),
    story(
        ENV_IN_BOTH,
        "variable is set in both files",
        "The file in your home directory is read first, then the one in the working directory, which \
         wins for each variable, as in DeepSpeed. It is said when the values differ.",
    ),
    story(
        ENV_OPEN_QUOTE,
        "quote is not closed",
        "A value in quotes ends with the same quote on the same line. Without quotes a value ends with \
         its line, and quotes inside it are ordinary letters: `A=it's` is fine.",
    ),
    story(
        ENV_AFTER_QUOTE,
        "text after the closing quote",
        "One pair of quotes surrounds the whole value; there are no escapes and pieces are not joined. \
         After the closing quote only a comment may follow.",
    ),
    story(
        ENV_NOT_EXPANDED,
        "value is taken literally",
        "Values are literal: `$HOME`, `$(command)` and backticks arrive at the worker as they stand. \
         DeepSpeed lets the shell of the remote node expand them, commands included, and leaves them \
         alone with MPI and Slurm. Single quotes say that the text is meant so.",
    ),
    story(
        ENV_COMMENT,
        "`#` behind a value begins no comment",
        "A `#` begins a comment at the start of a line, and after a value in quotes. In a value without \
         quotes it is an ordinary letter, as in DeepSpeed.",
    ),
    story(
        ENV_LOADS_CODE,
        "working directory decides which code runs",
        "LD_PRELOAD, LD_AUDIT, PATH and PYTHONHOME choose the code that every worker runs. A file of the \
         working directory may have come with somebody else's repository, so it is said where such a \
         variable comes from. In the file of your home directory it is taken without a word.",
    ),
    story(
        ENV_TOO_LONG,
        "variable is longer than Linux takes",
        "Name, `=` and value have at most 131071 bytes together; with more, no program can be started.",
    ),
    story(
        ENV_TOO_MANY,
        "more than 4096 variables",
        "Reading stops there. The file is probably not a file of variables.",
    ),
    story(
        ENV_NOT_TEXT,
        "environment file is not UTF-8",
        "Names and values are UTF-8 text. A byte order mark and CRLF line ends are fine. A value of other \
         bytes can be given with --env.",
    ),
    story(
        ENV_CONTROL_BYTE,
        "byte that no variable can hold",
        "A variable of a process cannot hold a NUL. A carriage return is fine only directly before the \
         line end.",
    ),
    story(
        ENV_MISSING,
        "environment file does not exist",
        "DS_ENV_FILE names a file that is neither in the home directory nor in the working directory. \
         DeepSpeed goes on without a word, and so without the variables. `~` is not expanded in it.",
    ),
    story(
        ENV_NOT_A_FILE,
        "environment file is not a regular file",
        "An environment file is a regular file, or a link to one.",
    ),
    story(
        ENV_UNREADABLE,
        "environment file cannot be read",
        "The operating system refused to open or to read the file; the message says why. A file that is \
         there and cannot be read is an error, for without it the job would do something else.",
    ),
    story(
        ENV_WRITABLE_BY_ALL,
        "environment file is writable by everyone",
        "Whoever can write the file decides which code the workers run (LD_PRELOAD). `chmod o-w FILE` \
         mends it; --allow_insecure_files accepts it as it is.",
    ),
    story(
        ENV_FOREIGN_OWNER,
        "environment file belongs to another user",
        "Whoever owns the file decides which code the workers run (LD_PRELOAD). Files of your own and of \
         root are read; --allow_insecure_files accepts others.",
    ),
    story(
        ENV_TOO_LARGE,
        "environment file larger than 16 MiB",
        "The file is probably not a file of variables.",
    ),
    story(
        ENV_DEVICES,
        "slots say which devices are used",
        "Slots that were selected are what CUDA_VISIBLE_DEVICES, or the variable of another accelerator, \
         is set to on each node, whatever a file says: so does DeepSpeed. Slots are chosen by the \
         hostfile, --include, --exclude and --num_gpus. An explicit --env outranks them.",
    ),
];
