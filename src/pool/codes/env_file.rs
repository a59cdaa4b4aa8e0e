//! The codes of problems in environment files (`E…`).

use crate::base::{Explanation, explanation};

/// A line that sets nothing.
pub const ENV_NO_EQUALS: &str = "E001";
/// A word that cannot name a variable.
pub const ENV_BAD_NAME: &str = "E002";
/// A variable that only remuda sets.
pub const ENV_RESERVED: &str = "E003";
/// A variable on two lines.
pub const ENV_SET_TWICE: &str = "E004";
/// A variable in two files.
pub const ENV_IN_BOTH: &str = "E005";
/// A quote that is not closed.
pub const ENV_OPEN_QUOTE: &str = "E006";
/// Text after a value in quotes.
pub const ENV_AFTER_QUOTE: &str = "E007";
/// A value that a shell would change.
pub const ENV_NOT_EXPANDED: &str = "E008";
/// A comment after a value.
pub const ENV_COMMENT: &str = "E009";
/// A variable that selects which code runs.
pub const ENV_LOADS_CODE: &str = "E010";
/// A variable above the kernel's limit.
pub const ENV_TOO_LONG: &str = "E011";
/// More variables than the limit.
pub const ENV_TOO_MANY: &str = "E012";
/// Bytes that are not UTF-8.
pub const ENV_NOT_TEXT: &str = "E013";
/// A NUL or a carriage return inside a line.
pub const ENV_CONTROL_BYTE: &str = "E014";
/// `DS_ENV_FILE` names a file that does not exist.
pub const ENV_MISSING: &str = "E015";
/// A directory, a pipe, a device.
pub const ENV_NOT_A_FILE: &str = "E016";
/// The file cannot be read.
pub const ENV_UNREADABLE: &str = "E017";
/// Every user can write the file.
pub const ENV_WRITABLE_BY_ALL: &str = "E018";
/// The file belongs to another user.
pub const ENV_FOREIGN_OWNER: &str = "E019";
/// The file is too large for an environment file.
pub const ENV_TOO_LARGE: &str = "E020";
/// A variable whose value follows from the slots.
pub const ENV_DEVICES: &str = "E021";

/// The `remuda explain` page of every code.
pub(super) const EXPLANATIONS: &[Explanation] = &[
    explanation(
        ENV_NO_EQUALS,
        "line without `=`",
        "A line has the form `NAME=value`. Empty lines, comments (`#`) and `export` before the \
         name are allowed. DeepSpeed stops with a Python stack trace at a line without `=`. \
         remuda does not execute the file as a shell script, so commands such as `set` or \
         `source` do not work, and `export NAME` alone passes nothing on. To pass on a variable \
         of your environment:\n\n    remuda run --env NAME train.py",
    ),
    explanation(
        ENV_BAD_NAME,
        "not a variable name",
        "A name consists of ASCII letters, digits and `_`, and does not start with a digit. \
         DeepSpeed passes any text before the `=` to the remote shell. A line `# a=1` then turns \
         the rest of the command into a comment: nothing runs, and the job counts as a success. \
         Correct the name.",
    ),
    explanation(
        ENV_RESERVED,
        "variable is set by remuda",
        "RANK, WORLD_SIZE, MASTER_ADDR and similar variables describe a worker and the addresses \
         of the others. remuda computes them from the plan of the job, so a file cannot set \
         them. Remove the line. To set the address and the port of rank 0, use `--master_addr` \
         and `--master_port`.",
    ),
    explanation(
        ENV_SET_TWICE,
        "variable is set twice",
        "The last line of a file wins, as in DeepSpeed. Remove one of the two lines.",
    ),
    explanation(
        ENV_IN_BOTH,
        "variable is set in both files",
        "remuda reads the file in your home directory first and then the file in the working \
         directory, which wins for each variable, as in DeepSpeed. This message appears only if \
         the two values differ. Remove one of the two lines.",
    ),
    explanation(
        ENV_OPEN_QUOTE,
        "quote is not closed",
        "A value in quotes ends with the same quote on the same line. Add the closing quote. A \
         value without quotes ends at the end of its line, and quotes inside it are ordinary \
         characters: `A=it's` is valid.",
    ),
    explanation(
        ENV_AFTER_QUOTE,
        "text after the closing quote",
        "One pair of quotes surrounds the whole value. Escapes are not supported, and several \
         quoted parts are not joined. Only a comment can follow the closing quote.",
    ),
    explanation(
        ENV_NOT_EXPANDED,
        "value is taken literally",
        "Values are literal: `$HOME`, `$(command)` and backticks reach the worker unchanged. \
         With DeepSpeed the shell of the remote node expands them and executes the commands, but \
         not with MPI or Slurm. Write the expanded value, or put the value in single quotes to \
         confirm that it is literal.",
    ),
    explanation(
        ENV_COMMENT,
        "`#` after a value does not start a comment",
        "A `#` starts a comment at the start of a line and after a value in quotes. In a value \
         without quotes it is an ordinary character, as in DeepSpeed. Put the comment on a line \
         of its own.",
    ),
    explanation(
        ENV_LOADS_CODE,
        "the working directory sets which code runs",
        "LD_PRELOAD, LD_AUDIT, PATH and PYTHONHOME select the code that every worker runs. A \
         file in the working directory may come from a repository that another person wrote, so \
         this warning names the source of such a variable. In the file of your home directory \
         the variable is accepted without a warning.",
    ),
    explanation(
        ENV_TOO_LONG,
        "variable is longer than Linux allows",
        "The name, the `=` and the value together have at most 131071 bytes; the kernel does not \
         start a program with a longer variable. Pass a large value in a file.",
    ),
    explanation(
        ENV_TOO_MANY,
        "more than 4096 variables",
        "remuda stops reading at this limit. The file is probably not an environment file. Correct \
         the path.",
    ),
    explanation(
        ENV_NOT_TEXT,
        "environment file is not UTF-8",
        "Names and values are UTF-8 text. A byte order mark and CRLF line ends are allowed. To \
         pass a value with other bytes, set it in your shell and use `--env NAME`.",
    ),
    explanation(
        ENV_CONTROL_BYTE,
        "byte that a variable cannot contain",
        "An environment variable cannot contain a NUL byte. A carriage return is allowed only \
         directly before the line end. Remove the byte.",
    ),
    explanation(
        ENV_MISSING,
        "environment file does not exist",
        "DS_ENV_FILE names a file that exists neither in the home directory nor in the working \
         directory. DeepSpeed continues without a message, and the workers lack the variables. \
         `~` is not expanded in DS_ENV_FILE. Correct the variable, or unset it.",
    ),
    explanation(
        ENV_NOT_A_FILE,
        "environment file is not a regular file",
        "An environment file is a regular file, or a link to one. Name a regular file.",
    ),
    explanation(
        ENV_UNREADABLE,
        "environment file cannot be read",
        "The operating system refused to open or to read the file; the message contains its \
         error. This is an error because the job would run with different variables without the \
         file. Correct the permissions of the file, or remove it.",
    ),
    explanation(
        ENV_WRITABLE_BY_ALL,
        "every user can write the environment file",
        "A user who can write the file can choose the code that the workers run (LD_PRELOAD). \
         Remove the permission, or accept the file with `--allow_insecure_files`:\n\n    chmod \
         o-w FILE",
    ),
    explanation(
        ENV_FOREIGN_OWNER,
        "environment file belongs to another user",
        "The owner of the file can choose the code that the workers run (LD_PRELOAD). remuda \
         reads files that belong to you or to root. Make a copy that belongs to you, or accept \
         the file with `--allow_insecure_files`.",
    ),
    explanation(
        ENV_TOO_LARGE,
        "environment file larger than 16 MiB",
        "The file is probably not an environment file. Correct the path.",
    ),
    explanation(
        ENV_DEVICES,
        "the slots determine which devices are used",
        "remuda sets CUDA_VISIBLE_DEVICES (or the variable of another accelerator) on each node \
         to the selected slots and ignores the value of the file, as DeepSpeed does. Select \
         slots in the hostfile or with `--include`, `--exclude` and `--num_gpus`. `--env \
         CUDA_VISIBLE_DEVICES=…` overrides the slots.",
    ),
];
