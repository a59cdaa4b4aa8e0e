//! Values with their origins, for people who want to know what a file means.

use crate::config::auto::AutoRule;
use crate::config::inputs::ConfigInputs;
use crate::config::tree::ConfigValue;

/// A value that applies, and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedValue {
    /// The path of its key: `zero_optimization.stage`.
    pub path: String,
    /// The value itself.
    pub value: ConfigValue,
    /// Where it comes from.
    pub origin: ValueOrigin,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueOrigin {
    /// The file gives it.
    File,
    /// The file does not; this is the default.
    Default,
    /// The file says `auto`.
    Auto {
        /// The rule by which it is filled.
        rule: &'static str,
        /// What the rule took the value from, in few words.
        source: String,
    },
    /// It follows from other values, in these words.
    Derived(String),
}

impl ValueOrigin {
    /// The origin of a value that a rule gives for some arguments.
    pub(super) fn of_rule(rule: &AutoRule, inputs: &ConfigInputs) -> Self {
        Self::Auto { rule: rule.text, source: rule.source(inputs) }
    }
}

/// The number of ranks for which a file was resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorldSize {
    /// It was given.
    Given(u64),
    /// It was not; this is the smallest for which the batch sizes are correct.
    Assumed(u64),
}

impl WorldSize {
    /// The number itself.
    pub fn get(self) -> u64 {
        match self {
            Self::Given(ranks) | Self::Assumed(ranks) => ranks,
        }
    }
}

/// Sets the origin of a value that another file format implies.
pub(in crate::config) fn set_origin(values: &mut [ResolvedValue], path: &str, words: &'static str) {
    for value in values.iter_mut().filter(|value| value.path == path) {
        value.origin = ValueOrigin::Derived(words.to_owned());
    }
}

/// Notes that parameters are divided over the ranks of a node.
pub(in crate::config) fn note_shards_of_node(values: &mut [ResolvedValue]) {
    set_words(values, "zero_optimization.zero_hpz_partition_size", "the ranks of a node");
}

/// Notes that the activations of every block are computed again.
pub(in crate::config) fn note_recomputation(values: &mut [ResolvedValue]) {
    set_words(values, "activation_checkpointing.number_checkpoints", "every block");
}

/// Shows these words as a value of the file, which has no key for it.
fn set_words(values: &mut [ResolvedValue], path: &str, words: &str) {
    for value in values.iter_mut().filter(|value| value.path == path) {
        value.value = ConfigValue::Text(words.to_owned());
        value.origin = ValueOrigin::File;
    }
}
