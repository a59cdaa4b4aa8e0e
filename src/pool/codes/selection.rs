//! What can be wrong with a selection (`S…`).

use crate::base::{Explanation, story};

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

/// Their stories.
pub(super) const EXPLANATIONS: &[Explanation] = &[
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
