//! Names of the allowed differences from DeepSpeed: those in backticks in COMPAT.md.

use std::collections::BTreeSet;

/// A row of COMPAT.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule(pub(crate) &'static str);

// Hostfiles.
pub(crate) const TRAILING_TEXT: Rule = Rule("trailing-text");
pub(crate) const NO_SLOTS: Rule = Rule("no-slots");
pub(crate) const LIMITS: Rule = Rule("limits");
pub(crate) const ASCII_DIGITS: Rule = Rule("ascii-digits");
pub(crate) const HOST_NAMES: Rule = Rule("host-names");
pub(crate) const UTF_8: Rule = Rule("utf-8");
pub(crate) const CONTROL_BYTES: Rule = Rule("control-bytes");
pub(crate) const BYTE_ORDER_MARK: Rule = Rule("byte-order-mark");
// Selectors.
pub(crate) const NOTHING_LEFT: Rule = Rule("nothing-left");
pub(crate) const IPV6_SELECTORS: Rule = Rule("ipv6-selectors");
// Command lines.
pub(crate) const DOUBLE_DASH: Rule = Rule("double-dash");
pub(crate) const NOT_YET: Rule = Rule("not-yet");
pub(crate) const MISSING_HOSTFILE: Rule = Rule("missing-hostfile");
pub(crate) const NUM_NODES: Rule = Rule("num-nodes");
pub(crate) const NUM_GPUS: Rule = Rule("num-gpus");
pub(crate) const AUTOTUNING: Rule = Rule("autotuning");
pub(crate) const LOCAL_RANK: Rule = Rule("local-rank");
pub(crate) const MASTER_ADDR: Rule = Rule("master-addr");
pub(crate) const HELP: Rule = Rule("help-first");
pub(crate) const OWN_OPTIONS: Rule = Rule("own-options");
pub(crate) const PORTS: Rule = Rule("ports");
pub(crate) const CPU_SLOTS: Rule = Rule("cpu-slots");
pub(crate) const EARLY_VALUES: Rule = Rule("early-values");
pub(crate) const SCRIPT_WORDS: Rule = Rule("script-words");
pub(crate) const EMPTY_SCRIPT: Rule = Rule("empty-script");
pub(crate) const LAUNCHER_NAMES: Rule = Rule("launcher-names");
pub(crate) const QUOTING: Rule = Rule("quoting");
pub(crate) const LAUNCHER_WORDS: Rule = Rule("launcher-words");
pub(crate) const EMPTY_PATHS: Rule = Rule("empty-paths");
pub(crate) const NODE_RANK: Rule = Rule("node-rank");
pub(crate) const NO_SSH: Rule = Rule("no-ssh");
pub(crate) const PROCESS_MANAGERS: Rule = Rule("process-managers");
pub(crate) const FIRST_WORD: Rule = Rule("first-word");

pub(crate) const ONE_HOST: Rule = Rule("one-host");
pub(crate) const LOOPBACK: Rule = Rule("loopback");
pub(crate) const MORE_THAN_GPUS: Rule = Rule("more-than-gpus");
// Environments.
pub(crate) const VISIBLE_DEVICES: Rule = Rule("visible-devices");
pub(crate) const HIDDEN_DEVICES: Rule = Rule("hidden-devices");
pub(crate) const ENV_MODES: Rule = Rule("env-modes");
pub(crate) const ENV_SYNTAX: Rule = Rule("env-syntax");
pub(crate) const ENV_VALUES: Rule = Rule("env-values");
pub(crate) const ENV_RESERVED: Rule = Rule("env-reserved");
pub(crate) const TRAVELS: Rule = Rule("travels");

/// All of them.
pub(crate) const RULES: &[Rule] = &[
    TRAILING_TEXT,
    NO_SLOTS,
    LIMITS,
    ASCII_DIGITS,
    HOST_NAMES,
    UTF_8,
    CONTROL_BYTES,
    BYTE_ORDER_MARK,
    NOTHING_LEFT,
    IPV6_SELECTORS,
    DOUBLE_DASH,
    NOT_YET,
    MISSING_HOSTFILE,
    NUM_NODES,
    NUM_GPUS,
    AUTOTUNING,
    LOCAL_RANK,
    MASTER_ADDR,
    HELP,
    OWN_OPTIONS,
    PORTS,
    CPU_SLOTS,
    EARLY_VALUES,
    SCRIPT_WORDS,
    EMPTY_SCRIPT,
    LAUNCHER_NAMES,
    QUOTING,
    LAUNCHER_WORDS,
    EMPTY_PATHS,
    NODE_RANK,
    NO_SSH,
    PROCESS_MANAGERS,
    FIRST_WORD,
    ONE_HOST,
    LOOPBACK,
    MORE_THAN_GPUS,
    VISIBLE_DEVICES,
    HIDDEN_DEVICES,
    ENV_MODES,
    ENV_SYNTAX,
    ENV_VALUES,
    ENV_RESERVED,
    TRAVELS,
];

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The same result.
    Same,
    /// Both refuse, for the same reason as far as it is known.
    Refused,
    /// A difference that these rows explain.
    Explained(BTreeSet<Rule>),
    /// A bug, of the code or of COMPAT.md.
    Unexplained(String),
}

impl Verdict {
    pub(crate) fn by(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self::Explained(rules.into_iter().collect())
    }

    pub(crate) fn is_unexplained(&self) -> bool {
        matches!(self, Self::Unexplained(_))
    }
}
