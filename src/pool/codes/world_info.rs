//! What can be wrong with a world info (`W…`).

use crate::base::{Explanation, story};

/// Text that is no base64.
pub const WORLD_NOT_BASE64: &str = "W001";
/// Base64 of something else than hosts and slots.
pub const WORLD_NOT_HOSTS: &str = "W002";
/// This machine is not in it.
pub const WORLD_WITHOUT_US: &str = "W003";

/// Their stories.
pub(super) const EXPLANATIONS: &[Explanation] = &[
    story(
        WORLD_NOT_BASE64,
        "world info is not base64",
        "--world_info carries hosts and slots as base64 of a JSON object, which is what DeepSpeed's \
         launcher hands to its nodes:\n\n    printf '{\"worker-0\": [0, 1]}' | base64 -w0\n\n\
         Both alphabets of base64 are read (`+/` and `-_`); the `=` at the end belong to it. Python \
         skips whatever is no base64 in silence.",
    ),
    story(
        WORLD_NOT_HOSTS,
        "world info is not an object of hosts and slots",
        "Decoded, it is a JSON object whose keys are hosts, in the order of their ranks, and whose \
         values are lists of slots, at least one for each host:\n\n    \
         {\"worker-0\": [0, 1], \"worker-1\": [0]}\n\n\
         A host or a slot that is there twice would be two workers on one device.",
    ),
    story(
        WORLD_WITHOUT_US,
        "this machine is not in the world",
        "With several hosts, --node_rank says which of them this machine is: 0 for the first. Without \
         it the name of the machine is looked for among them, with and without its domain. DeepSpeed \
         takes node 0, on every machine.",
    ),
];
