//! The codes of problems in a world info (`W…`).

use crate::base::{Explanation, explanation};

/// Text that is not base64.
pub const WORLD_NOT_BASE64: &str = "W001";
/// Base64 of something other than hosts and slots.
pub const WORLD_NOT_HOSTS: &str = "W002";
/// This machine is not one of the hosts.
pub const HOST_NOT_IN_WORLD: &str = "W003";

/// The `remuda explain` page of every code.
pub(super) const EXPLANATIONS: &[Explanation] = &[
    explanation(
        WORLD_NOT_BASE64,
        "world info is not base64",
        "`--world_info` contains hosts and slots as base64 of a JSON object, as DeepSpeed's \
         launcher passes them to its nodes:\n\n    printf '{\"worker-0\": [0, 1]}' | base64 \
         -w0\n\nBoth alphabets of base64 are accepted (`+/` and `-_`); the `=` at the end are \
         required. Python ignores bytes that are not base64.",
    ),
    explanation(
        WORLD_NOT_HOSTS,
        "world info is not an object of hosts and slots",
        "The decoded text must be a JSON object. Its keys are the hosts in the order of their \
         ranks; each value is a list of at least one slot:\n\n    {\"worker-0\": [0, 1], \
         \"worker-1\": [0]}\n\nA host or a slot that occurs twice is refused, because two \
         workers would share one device.",
    ),
    explanation(
        HOST_NOT_IN_WORLD,
        "this machine is not in the world info",
        "With several hosts, `--node_rank` sets which of them this machine is; the first host is \
         0. Without `--node_rank`, remuda looks up the name of the machine among the hosts, with \
         and without its domain. DeepSpeed uses node 0 on every machine. Add `--node_rank N`.",
    ),
];
