//! The codes of problems in a selection (`S…`).

use crate::base::{Explanation, explanation};

/// A selector names a host that is not in the pool.
pub const UNKNOWN_HOST: &str = "S001";
/// A selector names a slot that its host does not have.
pub const UNKNOWN_SLOT: &str = "S002";
/// A word that is not a slot number.
pub const BAD_SLOT: &str = "S003";
/// A selector without a host.
pub const EMPTY_HOST: &str = "S004";
/// A second colon.
pub const SECOND_COLON: &str = "S005";
/// Both `--include` and `--exclude`.
pub const BOTH_FILTERS: &str = "S006";
/// The selection leaves no slot.
pub const NOTHING_LEFT: &str = "S007";
/// A filter together with a count.
pub const FILTER_AND_COUNT: &str = "S008";
/// `--num_nodes` out of range.
pub const BAD_NUM_NODES: &str = "S009";
/// `--num_gpus` out of range.
pub const BAD_NUM_GPUS: &str = "S010";
/// A whole host and some of its slots in one selector.
pub const WHOLE_AND_SLOTS: &str = "S011";

/// The `remuda explain` page of every code.
pub(super) const EXPLANATIONS: &[Explanation] = &[
    explanation(
        UNKNOWN_HOST,
        "host is not among the hosts of the job",
        "Write each host exactly as the hostfile or the list of `-H` writes it; patterns, \
         comma-separated lists and other spellings are not accepted. `@` separates hosts, `:` \
         comes before the slots of a host, and `,` separates slots:\n\n    remuda run -H hosts \
         --include worker-0@worker-1:0,2 train.py",
    ),
    explanation(
        UNKNOWN_SLOT,
        "host has no such slot",
        "Slots are numbered from 0: a host with `slots=4` has the slots 0, 1, 2 and 3. \
         Select slots that the host has:\n\n    remuda run -H hosts --include worker-0:0,1 train.py",
    ),
    explanation(
        BAD_SLOT,
        "not a slot number",
        "After the colon, type slot numbers that are separated by commas: `worker-1:0,2`. \
         DeepSpeed's syntax has no ranges such as `0-3`; type `0,1,2,3`. To select all slots of \
         a host, leave out the colon.",
    ),
    explanation(
        EMPTY_HOST,
        "host name is missing",
        "`@` separates hosts, so it needs a host before it and a host after it: \
         `worker-0@worker-1`.",
    ),
    explanation(
        SECOND_COLON,
        "second `:`",
        "A colon separates a host from its slots, so each host has at most one. Put an IPv6 \
         address in brackets: `[fe80::1]:0,1`.",
    ),
    explanation(
        BOTH_FILTERS,
        "`--include` together with `--exclude`",
        "`--include` selects what remains and `--exclude` what is removed; together they can \
         contradict each other. DeepSpeed refuses the combination, too. Use one of them.",
    ),
    explanation(
        NOTHING_LEFT,
        "nothing left to run on",
        "The selection leaves no slot of any host. DeepSpeed continues and fails later with an \
         index error. Select at least one slot. To list hosts and slots:\n\n    remuda hostfile \
         show hosts",
    ),
    explanation(
        FILTER_AND_COUNT,
        "a filter together with a count",
        "`--num_nodes` and `--num_gpus` take the first hosts and slots; `--include` and \
         `--exclude` name them. DeepSpeed refuses the combination, too. Use one of the two ways.",
    ),
    explanation(
        BAD_NUM_NODES,
        "--num_nodes out of range",
        "`--num_nodes` is the number of hosts to take from the top of the hostfile, from 1 to \
         the number of hosts. DeepSpeed ignores 0 and numbers that are too large. -1, \
         DeepSpeed's default, means all hosts. To continue without lost hosts, use `--min_nodes N`.",
    ),
    explanation(
        BAD_NUM_GPUS,
        "--num_gpus out of range",
        "`--num_gpus` is the number of slots to take on every host, from 1 to the number of \
         slots of the smallest host. With larger numbers DeepSpeed overwrites the slots of the \
         hostfile and starts workers without a device. -1, DeepSpeed's default, means all slots.",
    ),
    explanation(
        WHOLE_AND_SLOTS,
        "a whole host and some of its slots",
        "`worker-1@worker-1:2` selects slot 2 only: if any slot of a host is named, the entry of \
         the host without slots has no effect. DeepSpeed behaves the same way; in `--exclude` it \
         therefore keeps all other slots of the host. Name the host once.",
    ),
];
