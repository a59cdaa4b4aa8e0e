//! The stable codes of what can be wrong with a hostfile (`H…`), a selection (`S…`) or an environment
//! file (`E…`), each with its long story for `remuda explain`.

/// A key that hostfiles do not have.
pub const UNKNOWN_KEY: &str = "H001";
/// No slot count.
pub const MISSING_SLOTS: &str = "H002";
/// A host on two lines.
pub const DUPLICATE_HOST: &str = "H003";
/// A slot count that is not a number of at least 1.
pub const BAD_COUNT: &str = "H004";
/// A slot count above the limit.
pub const COUNT_ABOVE_LIMIT: &str = "H005";
/// Something glued to the slot count.
pub const AFTER_COUNT: &str = "H006";
/// Two slot counts on a line.
pub const SLOTS_TWICE: &str = "H007";
/// Blanks around the equals sign.
pub const SPACED_EQUALS: &str = "H008";
/// A word that cannot name a host.
pub const BAD_HOST: &str = "H009";
/// The file does not exist.
pub const FILE_MISSING: &str = "H010";
/// Two spellings of one host.
pub const SAME_HOST: &str = "H011";
/// A host name with letters beyond ASCII.
pub const HOST_NOT_ASCII: &str = "H012";
/// A word before `@` that cannot name a user.
pub const BAD_USER: &str = "H013";
/// `host:port`.
pub const HOST_PORT: &str = "H014";
/// Words of Open MPI, MPICH or Slurm.
pub const OTHER_DIALECT: &str = "H015";
/// Bytes that are no UTF-8.
pub const NOT_TEXT: &str = "H016";
/// A control byte.
pub const CONTROL_BYTE: &str = "H017";
/// A line above the limit.
pub const LINE_TOO_LONG: &str = "H018";
/// More hosts than the limit.
pub const TOO_MANY_HOSTS: &str = "H019";
/// No host at all.
pub const NO_HOST: &str = "H020";
/// Words after the slot count.
pub const UNEXPECTED_TEXT: &str = "H021";
/// A line that begins with `slots=`.
pub const HOST_MISSING: &str = "H022";
/// Blanks that only look like a space.
pub const ODD_BLANK: &str = "H023";
/// A directory, a pipe, a device.
pub const NOT_A_FILE: &str = "H024";
/// The file cannot be read.
pub const UNREADABLE: &str = "H025";
/// Everybody may write the file.
pub const WRITABLE_BY_ALL: &str = "H026";
/// The file belongs to somebody else.
pub const FOREIGN_OWNER: &str = "H027";
/// The file is larger than any hostfile.
pub const FILE_TOO_LARGE: &str = "H028";
/// A range of host names that is none.
pub const BAD_RANGE: &str = "H029";
/// A range that names more hosts than the limit.
pub const RANGE_TOO_LONG: &str = "H030";
/// Lines of two dialects in one file.
pub const MIXED_DIALECTS: &str = "H031";
/// Lines of one host with other hosts between them.
pub const SCATTERED_HOST: &str = "H032";
/// A limit below the slots.
pub const MAX_BELOW_SLOTS: &str = "H033";
/// What another launcher understands, and we do not.
pub const NOT_FOR_US: &str = "H034";
/// As many counts as hosts.
pub const COUNTS_DIFFER: &str = "H035";
/// The file is not in DeepSpeed's dialect.
pub const DIALECT: &str = "H036";
/// A short name and a long one.
pub const SHORT_AND_LONG: &str = "H037";
/// This machine's own name among others.
pub const LOOPBACK_AMONG_OTHERS: &str = "H038";
/// Hosts with different numbers of slots.
pub const UNEQUAL_SLOTS: &str = "H039";
/// An underscore in a host name.
pub const UNDERSCORE: &str = "H040";
/// Hosts out of the order of their numbers.
pub const OUT_OF_ORDER: &str = "H041";
/// An operator without its set.
pub const BAD_SET: &str = "H042";
/// The file cannot be written.
pub const NOT_WRITTEN: &str = "H043";

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

/// A selector names a host that is not in the pool.
pub const UNKNOWN_HOST: &str = "S001";
/// A selector names a slot that its host does not have.
pub const UNKNOWN_SLOT: &str = "S002";
/// Something that is no slot number.
pub const BAD_SLOT: &str = "S003";
/// A selector without a host.
pub const EMPTY_HOST: &str = "S004";
/// A second colon.
pub const SECOND_COLON: &str = "S005";
/// Both `--include` and `--exclude`.
pub const BOTH_FILTERS: &str = "S006";
/// Nothing is left.
pub const NOTHING_LEFT: &str = "S007";
/// A filter together with a count.
pub const FILTER_AND_COUNT: &str = "S008";
/// `--num_nodes` out of range.
pub const BAD_NUM_NODES: &str = "S009";
/// `--num_gpus` out of range.
pub const BAD_NUM_GPUS: &str = "S010";
/// A whole host and some of its slots in one selector.
pub const WHOLE_AND_SLOTS: &str = "S011";

/// The long story of one code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// `H003`.
    pub code: &'static str,
    /// One line: what it says.
    pub title: &'static str,
    /// What is wrong, why it matters, what to do.
    pub text: &'static str,
}

/// The story of a code; upper and lower case are the same.
pub fn explain(code: &str) -> Option<&'static Explanation> {
    EXPLANATIONS.iter().find(|explanation| explanation.code.eq_ignore_ascii_case(code))
}

/// Every code, in order.
pub const EXPLANATIONS: &[Explanation] = &[
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
        "RANK, WORLD_SIZE, MASTER_ADDR and others like them say who a worker is. They differ between \
         workers, so a file cannot set them. For the address and the port of rank 0 there are \
         --master_addr and --master_port.",
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
        UNKNOWN_KEY,
        "unknown key",
        "A line of a hostfile is a host name and `slots=N`, nothing else:\n\n    worker-0 slots=8\n\n\
         Keys are lower case. DeepSpeed ignores whatever follows the slot count, so a misspelt key is \
         lost there without a word; here it is an error.",
    ),
    story(
        MISSING_SLOTS,
        "`slots=` is missing",
        "Every host says how many workers it takes, one for each GPU as a rule:\n\n    worker-0 slots=8\n\n\
         Other tools assume a number when it is left out (Open MPI the cores, MPICH 1). Neither \
         DeepSpeed nor remuda guesses.",
    ),
    story(
        DUPLICATE_HOST,
        "host is listed twice",
        "A host has one line. Two lines could mean the sum, the larger or the later of the two counts, \
         and tools differ; DeepSpeed refuses such a file as well. Merge the lines, or remove one.",
    ),
    story(
        BAD_COUNT,
        "slot count is not a whole number of at least 1",
        "Slots are counted in decimal digits, from 1. DeepSpeed accepts `slots=0` and then starts a \
         node without workers, which counts as a node all the same. To leave a host out, put a `#` \
         before its line or use --exclude.",
    ),
    story(
        COUNT_ABOVE_LIMIT,
        "slot count above the limit",
        "A host has at most 1024 slots. No machine has that many devices; a larger number is a typing \
         error, and every slot would become a process.",
    ),
    story(
        AFTER_COUNT,
        "text glued to the slot count",
        "The count ends where the word ends. DeepSpeed reads `slots=4x`, `slots=4.5` and `slots=1_000` \
         as 4, 4 and 1 and drops the rest; a typing error then trains on the wrong number of devices.",
    ),
    story(
        SLOTS_TWICE,
        "`slots=` given twice",
        "Two counts on one line contradict each other. DeepSpeed takes the first and drops the rest of \
         the line.",
    ),
    story(
        SPACED_EQUALS,
        "spaces around `=`",
        "Write `slots=4` as one word. Open MPI allows blanks there, DeepSpeed does not, and a file \
         should mean the same to both.",
    ),
    story(
        BAD_HOST,
        "not a host name",
        "A host name consists of ASCII letters, digits, `.`, `-` and `_`, begins with a letter or \
         digit, has at most 253 bytes and at most 63 between two dots. An IPv6 address stands in \
         brackets: `[fe80::1]`. The name is handed to ssh and to the resolver; the grammar makes sure \
         that it can never become an option or a command.",
    ),
    story(
        FILE_MISSING,
        "hostfile does not exist",
        "The file that -H names is not there. DeepSpeed warns and trains on the local machine alone, \
         so that a typing error in the path turns a job of 64 nodes into one of one node. Without -H, \
         `/job/hostfile` is used if it exists, else a scheduler's allocation, else this machine.",
    ),
    story(
        SAME_HOST,
        "two spellings of one host",
        "Resolvers ignore case and a final dot, so `A`, `a` and `a.` are one machine, and two workers \
         would share each of its devices. DeepSpeed takes them for different hosts, and so do we, \
         with this warning.",
    ),
    story(
        HOST_NOT_ASCII,
        "host name is not ASCII",
        "Letters beyond ASCII can look like others: a Cyrillic `а` is not an `a`. Write the name in \
         punycode (`xn--…`), which is what the resolver asks for anyway.",
    ),
    story(
        BAD_USER,
        "not a user name",
        "`ada@worker-0 slots=4` reaches worker-0 as ada, whatever the configuration of ssh says. A user \
         name consists of ASCII letters, digits, `.`, `-` and `_`, and begins with a letter, a digit or \
         `_`: ssh hands it to shells (`%r` in `ProxyCommand`), and the grammar makes sure that it can \
         never become an option or a command. Any other name belongs into ~/.ssh/config:\n\n    \
         Host worker-0\n        User DOMAIN\\ada\n\n\
         Everywhere else the host is called worker-0: `@` separates hosts in --include and --exclude.",
    ),
    story(
        HOST_PORT,
        "port in a hostfile",
        "A hostfile names machines. The port of their ssh server belongs into --ssh_port, or into \
         ~/.ssh/config when hosts differ. `:` separates host and slots in --include and --exclude.",
    ),
    story(
        OTHER_DIALECT,
        "syntax of another tool",
        "The line reads like a hostfile of Open MPI (`max_slots=`), MPICH (`host:4`) or Slurm \
         (`n[1-4]`, `n1,n2`). Write one line for each host, with `slots=N`. For Slurm, \
         `scontrol show hostnames 'n[1-4]'` prints the names. `max_slots=` after the slot count is \
         ignored with a warning, because files shared with Open MPI have it and DeepSpeed ignores it.",
    ),
    story(
        NOT_TEXT,
        "not UTF-8",
        "A hostfile is UTF-8 text; in fact everything but comments is ASCII. Editors on Windows may \
         save UTF-16: `iconv -f UTF-16 -t UTF-8 hosts > hosts.new` converts it. A byte order mark and \
         CRLF line ends are fine.",
    ),
    story(
        CONTROL_BYTE,
        "control byte",
        "A line has a byte below 0x20, or 0x7f, that is neither tab nor line end. It would be \
         invisible in most editors. A carriage return is fine only directly before the line end.",
    ),
    story(
        LINE_TOO_LONG,
        "line longer than 4096 bytes",
        "No host name and slot count come near. The file is probably not a hostfile, or has lost its \
         line ends.",
    ),
    story(
        TOO_MANY_HOSTS,
        "more than 131072 hosts",
        "Reading stops there. The file is probably not a hostfile.",
    ),
    story(
        NO_HOST,
        "no host",
        "The file has no line of the form `name slots=N`: it is empty, or all of it is comments.",
    ),
    story(
        UNEXPECTED_TEXT,
        "unexpected text",
        "After the host name and `slots=N` only a comment may follow, which begins with `#`. DeepSpeed \
         drops such text without a word, a second host on the line included.",
    ),
    story(
        HOST_MISSING,
        "host name missing",
        "The first word of a line is the host name. DeepSpeed reads `slots=4 slots=4` as a host called \
         `slots=4`.",
    ),
    story(
        ODD_BLANK,
        "blank that is not a space",
        "A no-break space or another blank beyond ASCII separates two words, usually because the line \
         was copied from a web page. It is read as a space, as DeepSpeed does; other tools take it for \
         a part of the name.",
    ),
    story(
        NOT_A_FILE,
        "not a regular file",
        "A hostfile is a regular file, or a link to one: it is read more than once and must say the \
         same each time, and reading a pipe or a device could wait for ever.",
    ),
    story(
        UNREADABLE,
        "hostfile cannot be read",
        "The operating system refused to open or to read the file; the message says why.",
    ),
    story(
        WRITABLE_BY_ALL,
        "hostfile is writable by everyone",
        "Whoever can write the hostfile decides where your program, its environment and its data go. \
         `chmod o-w FILE` mends it; --allow_insecure_files accepts it as it is.",
    ),
    story(
        FOREIGN_OWNER,
        "hostfile belongs to another user",
        "Whoever owns the hostfile decides where your program, its environment and its data go. That \
         is usual in a group that shares a cluster, so it is only said.",
    ),
    story(
        FILE_TOO_LARGE,
        "file larger than 64 MiB",
        "A hostfile of 131072 hosts is a few MiB long. The file is probably not a hostfile.",
    ),
    story(
        UNKNOWN_HOST,
        "host is not in the pool",
        "--include and --exclude name hosts as the hostfile does, letter for letter: no patterns, no \
         lists with commas, no other spelling. `@` separates hosts, `:` begins the slots of one, `,` \
         separates slots: `worker-0@worker-1:0,2`.",
    ),
    story(
        UNKNOWN_SLOT,
        "host has no such slot",
        "Slots are numbered from 0: `slots=4` has 0, 1, 2 and 3.",
    ),
    story(
        BAD_SLOT,
        "not a slot number",
        "After the colon stand slot numbers, separated by commas: `worker-1:0,2`. Ranges such as `0-3` \
         are not part of DeepSpeed's syntax; write `0,1,2,3`. For all slots leave out the colon.",
    ),
    story(
        EMPTY_HOST,
        "host name missing",
        "`@` separates hosts, so nothing may be missing before or after it: `worker-0@worker-1`.",
    ),
    story(
        SECOND_COLON,
        "second `:`",
        "A colon separates a host from its slots; there is one at most. An IPv6 address stands in \
         brackets: `[fe80::1]:0,1`.",
    ),
    story(
        BOTH_FILTERS,
        "--include and --exclude",
        "One says what stays, the other what goes; together they could contradict each other. \
         DeepSpeed refuses them as well.",
    ),
    story(
        NOTHING_LEFT,
        "nothing left to run on",
        "The selection leaves no slot of any host. DeepSpeed goes on and fails later with an index \
         error.",
    ),
    story(
        FILTER_AND_COUNT,
        "a filter together with a count",
        "--num_nodes and --num_gpus take the first of what there is, --include and --exclude name it. \
         DeepSpeed refuses the combination as well.",
    ),
    story(
        BAD_NUM_NODES,
        "--num_nodes out of range",
        "It is the number of hosts to take from the top of the hostfile, from 1 to all of them. \
         DeepSpeed ignores 0 and numbers above the pool. -1, DeepSpeed's default, means all.",
    ),
    story(
        BAD_NUM_GPUS,
        "--num_gpus out of range",
        "It is the number of slots to take on every host, from 1 to what the smallest host has. \
         DeepSpeed overwrites the hostfile's numbers and starts workers without a device. -1, \
         DeepSpeed's default, means all.",
    ),
    story(
        WHOLE_AND_SLOTS,
        "a whole host and some of its slots",
        "`worker-1@worker-1:2` means slot 2 alone: a host without slots adds nothing once slots of it \
         are named. That is what DeepSpeed does; in --exclude it keeps all the other slots. Name the \
         host once.",
    ),
];

const fn story(code: &'static str, title: &'static str, text: &'static str) -> Explanation {
    Explanation { code, title, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_sorted_and_explained() {
        let codes: Vec<_> = EXPLANATIONS.iter().map(|explanation| explanation.code).collect();
        assert!(codes.is_sorted_by(|left, right| left < right), "{codes:?}");
        assert_eq!(explain("h003").map(|found| found.title), Some("host is listed twice"));
        assert_eq!(explain("H999"), None);
    }

    #[test]
    fn every_limit_in_a_story_is_the_limit_in_the_code() {
        let story = |code| explain(code).map(|found| found.text.to_owned() + found.title).unwrap();
        assert!(story(COUNT_ABOVE_LIMIT).contains(&super::super::SLOTS_MAX.to_string()));
        assert!(story(TOO_MANY_HOSTS).contains(&super::super::HOSTS_MAX.to_string()));
        assert!(story(LINE_TOO_LONG).contains(&super::super::LINE_BYTES_MAX.to_string()));
    }
}
