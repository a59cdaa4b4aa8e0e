//! The codes of problems in hostfiles (`H…`).

use crate::base::{Explanation, explanation};

/// An unknown key.
pub const UNKNOWN_KEY: &str = "H001";
/// A line without a slot count.
pub const MISSING_SLOTS: &str = "H002";
/// A host on two lines.
pub const DUPLICATE_HOST: &str = "H003";
/// A slot count that is not a number of at least 1.
pub const BAD_COUNT: &str = "H004";
/// A slot count above the limit.
pub const COUNT_ABOVE_LIMIT: &str = "H005";
/// Text directly after the slot count.
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
/// Bytes that are not UTF-8.
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
/// A blank character that looks like a space and is not one.
pub const ODD_BLANK: &str = "H023";
/// A directory or a device.
pub const NOT_A_FILE: &str = "H024";
/// The file cannot be read.
pub const UNREADABLE: &str = "H025";
/// Every user can write the file.
pub const WRITABLE_BY_ALL: &str = "H026";
/// The file belongs to another user.
pub const FOREIGN_OWNER: &str = "H027";
/// The file is too large for a hostfile.
pub const FILE_TOO_LARGE: &str = "H028";
/// An invalid range of host names.
pub const BAD_RANGE: &str = "H029";
/// A range that names more hosts than the limit.
pub const RANGE_TOO_LONG: &str = "H030";
/// Lines of two dialects in one file.
pub const MIXED_DIALECTS: &str = "H031";
/// Lines of one host with other hosts between them.
pub const SCATTERED_HOST: &str = "H032";
/// A limit below the slots.
pub const MAX_BELOW_SLOTS: &str = "H033";
/// A setting of another launcher that remuda does not support.
pub const UNUSED_SETTING: &str = "H034";
/// The numbers of counts and of nodes differ.
pub const COUNTS_DIFFER: &str = "H035";
/// The file is not in DeepSpeed's dialect.
pub const DIALECT: &str = "H036";
/// A short name and a long one.
pub const SHORT_AND_LONG: &str = "H037";
/// `localhost` among other hosts.
pub const LOOPBACK_AMONG_OTHERS: &str = "H038";
/// Hosts with different numbers of slots.
pub const UNEQUAL_SLOTS: &str = "H039";
/// An underscore in a host name.
pub const UNDERSCORE: &str = "H040";
/// Hosts out of the order of their numbers.
pub const OUT_OF_ORDER: &str = "H041";
/// An operator of a set without its operand.
pub const BAD_SET: &str = "H042";
/// The file cannot be written.
pub const NOT_WRITTEN: &str = "H043";
/// Digits and dots that are not an address.
pub const NOT_AN_ADDRESS: &str = "H044";
/// A file of another kind.
pub const NOT_A_HOSTFILE: &str = "H045";

/// The `remuda explain` page of every code.
pub(super) const EXPLANATIONS: &[Explanation] = &[
    explanation(
        UNKNOWN_KEY,
        "unknown key",
        "A line of a hostfile consists of a host name and `slots=N`:\n\n    worker-0 \
         slots=8\n\nKeys are lower case. DeepSpeed ignores all text after the slot count, so a \
         misspelt key is lost without a message; remuda reports it as an error.",
    ),
    explanation(
        MISSING_SLOTS,
        "`slots=` is missing",
        "Every line sets the number of workers of its host, usually one for each \
         GPU:\n\n    worker-0 slots=8\n\nOther tools assume a number if it is missing (Open MPI \
         the number of cores, MPICH 1). DeepSpeed and remuda do not. `--slots N` sets it for all \
         hosts without one.",
    ),
    explanation(
        DUPLICATE_HOST,
        "host is listed twice",
        "A host has one line. Two lines could mean the sum, the larger or the later of the two \
         counts, and tools differ; DeepSpeed refuses such a file, too. Keep one line, with \
         the number of slots that jobs may use.",
    ),
    explanation(
        BAD_COUNT,
        "slot count is not a whole number of at least 1",
        "Slots are a decimal number of at least 1. DeepSpeed accepts `slots=0` and then starts a \
         node without workers, which still counts as a node. To leave out a host, put a `#` \
         before its line or use `--exclude`.",
    ),
    explanation(
        COUNT_ABOVE_LIMIT,
        "slot count above the limit",
        "A host has at most 1024 slots. No machine has that many devices, and every slot would \
         become a process, so a larger number is probably a typing error. Correct the number.",
    ),
    explanation(
        AFTER_COUNT,
        "text directly after the slot count",
        "The slot count must end at a space or at the line end. DeepSpeed reads `slots=4x`, \
         `slots=4.5` and `slots=1_000` as 4, 4 and 1 and ignores the rest, so a typing error \
         changes the number of workers. Correct the number.",
    ),
    explanation(
        SLOTS_TWICE,
        "`slots=` given twice",
        "Two slot counts on one line contradict each other. DeepSpeed uses the first and ignores \
         the rest of the line. Remove one of them.",
    ),
    explanation(
        SPACED_EQUALS,
        "spaces around `=`",
        "Write `slots=4` as one word. Open MPI allows spaces there and DeepSpeed does not, so a \
         file with spaces means different things to the two.",
    ),
    explanation(
        BAD_HOST,
        "not a host name",
        "A host name consists of ASCII letters, digits, `.`, `-` and `_`, starts with a letter \
         or digit, and has at most 253 bytes and at most 63 between two dots. Put an IPv6 \
         address in brackets: `[fe80::1]`. remuda passes the name to ssh and to the resolver; \
         these rules ensure that a name cannot become an option or a command.",
    ),
    explanation(
        FILE_MISSING,
        "hostfile does not exist",
        "The file of `-H` does not exist. In this case DeepSpeed prints a warning and trains on \
         the local machine only, so a typing error in the path turns a job of 64 nodes into a \
         job of one. Correct the path. Without `-H`, remuda uses `/job/hostfile` if it exists, \
         else the allocation of a scheduler, else this machine.",
    ),
    explanation(
        SAME_HOST,
        "two spellings of one host",
        "Resolvers ignore upper and lower case and a final dot, so `A`, `a` and `a.` are one \
         machine, and two workers would share each of its devices. DeepSpeed treats them as \
         different hosts; remuda does the same and prints this warning. Use one spelling.",
    ),
    explanation(
        HOST_NOT_ASCII,
        "host name is not ASCII",
        "Characters outside ASCII can look like ASCII letters: a Cyrillic `а` is not an `a`. \
         Write the name in Punycode (`xn--…`), which the resolver uses anyway.",
    ),
    explanation(
        BAD_USER,
        "not a user name",
        "`ada@worker-0 slots=4` logs in to worker-0 as ada, independent of the ssh \
         configuration. A user name consists of ASCII letters, digits, `.`, `-` and `_`, and \
         starts with a letter, a digit or `_`. ssh passes the name to shells (`%r` in \
         `ProxyCommand`); these rules ensure that it cannot become an option or a command. Put \
         any other name into ~/.ssh/config:\n\n    Host worker-0\n        User \
         DOMAIN\\ada\n\nOther options name the host without the user, because `@` separates \
         hosts in `--include` and `--exclude`.",
    ),
    explanation(
        HOST_PORT,
        "port in a hostfile",
        "A hostfile names machines, not ports. Set the port of their ssh server with \
         `--ssh_port`, or in ~/.ssh/config if the hosts have different ports. In `--include` and \
         `--exclude` the `:` separates a host from its slots.",
    ),
    explanation(
        OTHER_DIALECT,
        "syntax of another tool",
        "Most lines of the file have DeepSpeed's syntax, but this line has the syntax of Open \
         MPI (`max_slots=`), MPICH (`host:4`) or Slurm (`n[1-4]`, `n1,n2`). Write all lines in \
         the same syntax: either all of them as a host and `slots=N`, or all of them in that of \
         the other tool, which remuda also reads.",
    ),
    explanation(
        NOT_TEXT,
        "not UTF-8",
        "A hostfile is UTF-8 text; everything except comments is ASCII. Editors on Windows may \
         save UTF-16. A byte order mark and CRLF line ends are allowed. To convert a \
         file:\n\n    iconv -f UTF-16 -t UTF-8 hosts > hosts.new",
    ),
    explanation(
        CONTROL_BYTE,
        "control byte",
        "The line contains a byte below 0x20, or 0x7f, that is neither a tab nor a line end. \
         Most editors do not show it. A carriage return is allowed only directly before the line \
         end. Remove the byte.",
    ),
    explanation(
        LINE_TOO_LONG,
        "line longer than 4096 bytes",
        "A host name and a slot count are much shorter than this. The file is probably not a \
         hostfile, or its line ends are missing. Correct the path, or the line.",
    ),
    explanation(
        TOO_MANY_HOSTS,
        "more than 131072 hosts",
        "remuda stops reading at this limit. The file is probably not a hostfile. Correct the path.",
    ),
    explanation(
        NO_HOST,
        "no host",
        "The file has no line of the form `name slots=N`: it is empty, or contains only \
         comments. Add a line for each host:\n\n    worker-0 slots=8",
    ),
    explanation(
        UNEXPECTED_TEXT,
        "unexpected text",
        "After the host name and `slots=N` only a comment can follow, which starts with `#`. \
         DeepSpeed ignores such text without a message, even a second host on the line. Remove \
         the text, or give each host its own line.",
    ),
    explanation(
        HOST_MISSING,
        "host name is missing",
        "The first word of a line is the host name. DeepSpeed reads `slots=4 slots=4` as a host \
         with the name `slots=4`, and `n12,slots=4` as a host without slots. Put the host name \
         before `slots=`, and a space between the two.",
    ),
    explanation(
        ODD_BLANK,
        "blank that is not a space",
        "A no-break space or another space character outside ASCII separates two words, usually \
         because the line was copied from a web page. remuda and DeepSpeed read it as a space; \
         other tools read it as a part of the name. Replace it with a space:\n\n    remuda \
         hostfile check --fix hosts",
    ),
    explanation(
        NOT_A_FILE,
        "not a regular file",
        "A hostfile is a regular file, a link to one, or a pipe: standard input (`-`) or a shell's \
         `<(command)`. If no process writes to a pipe within 2 s, remuda reports this error. Another \
         kind of file could block, or have different content each time it is read. Write the hosts to a \
         file.",
    ),
    explanation(
        UNREADABLE,
        "hostfile cannot be read",
        "The operating system refused to open or to read the file; the message contains its \
         error. Correct the permissions of the file.",
    ),
    explanation(
        WRITABLE_BY_ALL,
        "every user can write the hostfile",
        "A user who can write the hostfile can choose where your program, its environment and \
         its data go. Remove the permission, or accept the file with \
         `--allow_insecure_files`:\n\n    chmod o-w FILE",
    ),
    explanation(
        FOREIGN_OWNER,
        "hostfile belongs to another user",
        "The owner of the hostfile can choose where your program, its environment and its data \
         go. This is normal if a group shares a cluster, so it is only a note.",
    ),
    explanation(
        FILE_TOO_LARGE,
        "file larger than 64 MiB",
        "A hostfile of 131072 hosts has a few MiB. The file is probably not a hostfile. Correct the \
         path.",
    ),
    explanation(
        BAD_RANGE,
        "not a range of host names",
        "Brackets contain numbers and ranges: `n[01-03,7]`, `rack[1-2]n[1-16]`, `n[1-9/2]-ib`. \
         The first number of a range is not larger than the last, and numbers with leading zeros \
         have the same width: Slurm reads `n[01-3]` as n01, n02 and n03; ClusterShell and remuda \
         refuse it. Add the closing bracket if it is missing: pdsh reads an open bracket as a \
         part of the name, and Slurm reads only the text before it.",
    ),
    explanation(
        RANGE_TOO_LONG,
        "range of more than 65536 hosts",
        "A typing error in a range can name billions of hosts. Slurm has the same limit. Correct \
         the range, or split it.",
    ),
    explanation(
        MIXED_DIALECTS,
        "two dialects in one file",
        "The file has the syntax of one tool and this line that of another. Each tool would read \
         one of the two and refuse, skip or misread the other. Write all lines in the same \
         syntax, or name the syntax with `--from`.",
    ),
    explanation(
        SCATTERED_HOST,
        "host appears again after other hosts",
        "In a node file of PBS, a machine file of MPICH and some others, a host can have several \
         lines. remuda adds up its slots at the first of them. Ranks follow the order of hosts, \
         so the order of the later lines is lost. Put the lines of a host together.",
    ),
    explanation(
        MAX_BELOW_SLOTS,
        "`max_slots` below the slots",
        "`max_slots` is smaller than the number of slots of the host. remuda uses the slots and \
         ignores `max_slots`. Open MPI 4 ignores it if oversubscription is allowed; Open MPI 5 \
         may wait for ever. Correct one of the two numbers.",
    ),
    explanation(
        UNUSED_SETTING,
        "setting of another launcher",
        "The word has a meaning for the launcher that this hostfile was written for, but not for \
         remuda: relative hosts and exclusions of Open MPI (`+n1`, `^host`) refer to an \
         allocation, ports belong to the ssh configuration, and interfaces and bindings are \
         options of a job. Remove it.",
    ),
    explanation(
        COUNTS_DIFFER,
        "the numbers of counts and nodes differ",
        "`SLURM_TASKS_PER_NODE=2(x3),1` describes four nodes: three with 2 tasks and one with 1. \
         It must come from the same job or step as the node list: do not combine the variables \
         of a job with those of a step.",
    ),
    explanation(
        DIALECT,
        "hostfile of another tool",
        "remuda reads the file as it is; settings that only the other tool supports are ignored. \
         DeepSpeed itself cannot read it. A file that DeepSpeed reads without an error is never \
         treated as another tool's. To convert it:\n\n    remuda hostfile convert --to deepspeed \
         hosts > hosts.deepspeed",
    ),
    explanation(
        SHORT_AND_LONG,
        "a short and a long name",
        "`node1` and `node1.cluster` are the same machine if the resolver's search list contains \
         `cluster`. Two nodes would then share every device of that machine. Use one of the two \
         names.",
    ),
    explanation(
        LOOPBACK_AMONG_OTHERS,
        "`localhost` among other hosts",
        "On every host, `localhost` and 127.0.0.1 are that host itself. If `localhost` is the \
         first of several hosts, the workers of each host look for rank 0 on their own host. Use \
         the name of this machine instead.",
    ),
    explanation(
        UNEQUAL_SLOTS,
        "hosts with different numbers of slots",
        "This is allowed, and remuda counts the ranks correctly. But many scripts compute the \
         node of a rank by division, or assume the same number of workers on every node. \
         `--num_gpus N` uses N slots of every host; `--allow H039` turns the message off.",
    ),
    explanation(
        UNDERSCORE,
        "underscore in a host name",
        "Host names in DNS consist of letters, digits and hyphens. Many resolvers accept an \
         underscore; others and TLS certificates do not. Rename the host if connections fail.",
    ),
    explanation(
        OUT_OF_ORDER,
        "hosts out of the order of their numbers",
        "Ranks follow the order of the lines. Every order is valid, but a file that was sorted \
         as text has node10 before node9. To sort the hosts by their numbers, move the lines; to \
         keep the order, ignore the message.",
    ),
    explanation(
        BAD_SET,
        "invalid set of hosts",
        "Sets are files and lists of hosts, combined from left to right as in ClusterShell: \
         `a,b` is the union, `a & b` the intersection, `a ! b` the difference, and `a ^ b` what \
         is in exactly one of them. The result keeps the order of the left set.\n\n    remuda \
         hostfile show 'hosts & rack[1-3]'",
    ),
    explanation(
        NOT_WRITTEN,
        "hostfile cannot be written",
        "remuda writes the new hostfile beside the old one and then renames it, so that no \
         reader sees a partial file. You need write permission for the directory, and the disk \
         needs space for a second file.",
    ),
    explanation(
        NOT_AN_ADDRESS,
        "digits and dots that are not an address",
        "A name that consists of digits and dots is never looked up as a name. Resolvers refuse \
         `10.0.0.300` and read `10.1` as 10.0.0.1. An address has four numbers from 0 to 255 \
         without leading zeros, because some resolvers read `010` as 8. Correct the address.",
    ),
    explanation(
        NOT_A_HOSTFILE,
        "not a hostfile",
        "The file has a different kind of content: a document, a script or a program. Its lines \
         were not checked. A hostfile has a line for each host:\n\n    worker-0 \
         slots=8\n    worker-1 slots=8",
    ),
];
