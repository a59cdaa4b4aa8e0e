//! What can be wrong with a hostfile (`H…`).

use crate::base::{Explanation, story};

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
/// Numbers and dots that are no address.
pub const NO_ADDRESS: &str = "H044";
/// A file of another kind.
pub const NO_HOSTFILE: &str = "H045";

/// Their stories.
pub(super) const EXPLANATIONS: &[Explanation] = &[
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
        "Most lines of the file are DeepSpeed's, and this one reads like a hostfile of Open MPI \
         (`max_slots=`), MPICH (`host:4`) or Slurm (`n[1-4]`, `n1,n2`). Write all lines alike: either \
         a host and `slots=N`, or all of them in the other way, which is understood as well.",
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
        "A hostfile is a regular file, a link to one, or a pipe that a process writes to, such as a \
         shell's `<(command)`. A pipe without a writer is given up after 2 s; reading a device could \
         wait for ever.",
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
        BAD_RANGE,
        "not a range of host names",
        "Brackets hold numbers and ranges: `n[01-03,7]`, `rack[1-2]n[1-16]`, `n[1-9/2]-ib`. A range runs \
         upwards, and numbers with zeros in front are all of one width: of `n[01-3]` Slurm makes n01, n02 \
         and n03, ClusterShell refuses it, and so do we. An open bracket is a name to pdsh, and `n` alone \
         to Slurm.",
    ),
    story(
        RANGE_TOO_LONG,
        "range of more than 65536 hosts",
        "A slip of the finger can name billions of hosts. Slurm has the same limit.",
    ),
    story(
        MIXED_DIALECTS,
        "two dialects in one file",
        "The file is written in one way and this line in another; each tool would read one of the two and \
         refuse, skip or misread the other. `--from` says as whose the file is to be read.",
    ),
    story(
        SCATTERED_HOST,
        "host comes again after others",
        "A host may have several lines in a node file of PBS, a machine file of MPICH and others; its slots \
         are added up where it stands first. Ranks follow hosts, so the order of the later lines is lost.",
    ),
    story(
        MAX_BELOW_SLOTS,
        "`max_slots` below the slots",
        "The limit is lower than what the host is to take. Open MPI 4 ignores the limit when asked to \
         oversubscribe; Open MPI 5 may wait for ever. Here the slots count, and the limit is not used.",
    ),
    story(
        NOT_FOR_US,
        "another launcher's word",
        "The word means something to the launcher whose hostfile this is, and nothing here: relative hosts \
         and exclusions of Open MPI (`+n1`, `^host`) count in an allocation; ports are ssh's business; \
         interfaces and bindings are options of a job.",
    ),
    story(
        COUNTS_DIFFER,
        "as many counts as nodes",
        "`SLURM_TASKS_PER_NODE=2(x3),1` is for four nodes: three with 2 tasks and one with 1. It goes with \
         the node list of the same job or step; variables of a job and of a step do not go together.",
    ),
    story(
        DIALECT,
        "hostfile of another tool",
        "The file is read as it is, and says what DeepSpeed's would. What only its own tool understands is \
         not used. DeepSpeed itself cannot read it: `remuda hostfile convert --to deepspeed FILE` writes it \
         anew. Nothing that DeepSpeed reads without a complaint is taken for another tool's.",
    ),
    story(
        SHORT_AND_LONG,
        "a short and a long name",
        "`node1` and `node1.cluster` are one machine wherever the resolver's search list has `cluster`. Two \
         nodes would then share every device of one.",
    ),
    story(
        LOOPBACK_AMONG_OTHERS,
        "`localhost` among other hosts",
        "To every host, `localhost` and 127.0.0.1 are that host itself. As the first of several hosts it \
         would send all workers looking for rank 0 at home.",
    ),
    story(
        UNEQUAL_SLOTS,
        "hosts with different numbers of slots",
        "That is allowed, and ranks are counted right. But many scripts compute the node of a rank by \
         division, or take the number of workers here for that everywhere. `--num_gpus` takes as many of \
         each host; `--allow H039` says that it is meant so.",
    ),
    story(
        UNDERSCORE,
        "underscore in a host name",
        "Names of hosts in DNS have letters, digits and hyphens. Many resolvers take an underscore all the \
         same, others refuse it, and so do certificates.",
    ),
    story(
        OUT_OF_ORDER,
        "hosts out of the order of their numbers",
        "Ranks follow the lines of the file, so this order is as good as any, and may be meant. It is said \
         because a sorted file was often sorted by letters: node10 before node9.",
    ),
    story(
        BAD_SET,
        "set of hosts",
        "Sets are files and lists of hosts, joined from left to right: `a,b` is what is in either, `a & b` \
         what is in both, `a ! b` what is in a alone, and `a ^ b` what is in exactly one, as in \
         ClusterShell. The order of the left set stays.",
    ),
    story(
        NOT_WRITTEN,
        "hostfile cannot be written",
        "A hostfile is written beside itself and then takes its place, so that nobody sees half of it. Its \
         directory must be writable, and as large a file must fit.",
    ),
    story(
        NO_ADDRESS,
        "numbers and dots that are no address",
        "A name of numbers and dots is never looked up as a name. Resolvers refuse `10.0.0.300`, and read \
         `10.1` as 10.0.0.1. An address has four numbers, none above 255 and none with a zero in front: \
         some read `010` as 8.",
    ),
    story(
        NO_HOSTFILE,
        "not a hostfile",
        "The file is of another kind altogether: a document, a script, a program. Its lines are not looked \
         into, because nothing that could be said of them would help. A hostfile has a line for each host:\n\n    \
         worker-0 slots=8\n    worker-1 slots=8",
    ),
];
