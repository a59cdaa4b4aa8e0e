//! The rules by which `auto` is filled: those of the Hugging Face Trainer, with the arguments of remuda.

use super::inputs::{ComputeType, ConfigInputs};
use super::tree::{ConfigNode, ConfigValue};
use crate::base::Span;

/// The rule of one key.
#[derive(Clone, Copy, Debug)]
pub struct AutoRule {
    /// The path of the key.
    pub path: &'static str,
    /// The rule in words.
    pub text: &'static str,
    /// The option that gives the value, also of a key that the file does not have.
    option: Option<KeyOption>,
    /// The option from which the value follows.
    basis: Option<RuleBasis>,
    /// The value without the option.
    otherwise: fn(&ConfigInputs) -> AutoValue,
}

/// An option that gives the value of a key.
#[derive(Clone, Copy, Debug)]
struct KeyOption {
    name: &'static str,
    value: fn(&ConfigInputs) -> Option<ConfigValue>,
}

/// An option from which the value of a key follows.
#[derive(Clone, Copy, Debug)]
struct RuleBasis {
    name: &'static str,
    is_given: fn(&ConfigInputs) -> bool,
    /// How the value follows, in few words.
    text: &'static str,
}

/// What a rule gives.
#[derive(Clone, Debug, PartialEq)]
pub enum AutoValue {
    /// A value.
    Is(ConfigValue),
    /// The default of the key, because an argument is missing.
    Default,
    /// A value that follows from other keys.
    Derived,
}

/// The rule of every other key of a section that DeepSpeed checks: it drops the key.
pub const DEFAULT_RULE: &str = "the default of DeepSpeed, which drops the key";

/// The rules, in the order of DeepSpeed's keys.
pub const AUTO_RULES: &[AutoRule] = &[
    rule("train_batch_size", "micro-batch × accumulation × world size", |_| AutoValue::Derived),
    rule(
        "train_micro_batch_size_per_gpu",
        "`--batch_size`; else train_batch_size / (accumulation × world size); else 8",
        |_| AutoValue::Derived,
    ),
    rule(
        "gradient_accumulation_steps",
        "`--accumulate`; else train_batch_size / (micro-batch × world size); else 1",
        |_| AutoValue::Derived,
    ),
    rule("gradient_clipping", "`--clip`, else 1", |_| number(1.0))
        .or_option("--clip", |inputs| inputs.clip.map(ConfigValue::Float)),
    rule("optimizer.params.lr", "`--lr`, else 5e-5", |_| number(5e-5))
        .or_option("--lr", |inputs| inputs.learning_rate.map(ConfigValue::Float)),
    rule("optimizer.params.betas", "`--beta1` and `--beta2`, else [0.9, 0.999]", |_| {
        AutoValue::Is(pair([0.9, 0.999]))
    })
    .or_option("--beta1, --beta2", |inputs| inputs.betas.map(pair)),
    rule("optimizer.params.eps", "1e-8", |_| number(1e-8)),
    rule("optimizer.params.weight_decay", "`--weight_decay`, else 0", |_| number(0.0))
        .or_option("--weight_decay", |inputs| inputs.weight_decay.map(ConfigValue::Float)),
    rule("scheduler.params.warmup_min_lr", "0", |_| number(0.0)),
    rule("scheduler.params.warmup_max_lr", "the rate of the optimizer", |_| AutoValue::Derived),
    rule("scheduler.params.warmup_num_steps", "`--warmup`, at least 1", |_| whole(1))
        .or_option("--warmup", |inputs| inputs.warmup.map(|steps| whole_value(steps.max(1)))),
    rule(
        "scheduler.params.total_num_steps",
        "`--steps`, the steps of the whole run; `--decay_steps` of `remuda train`",
        |inputs| inputs.steps.map_or(AutoValue::Derived, whole),
    )
    .with_basis("--steps", |inputs| inputs.steps.is_some(), "`--steps`"),
    rule("fp16.enabled", "`--precision fp16`, else false", |_| off())
        .or_option("--precision", |inputs| is_type(inputs, ComputeType::Fp16)),
    rule("bf16.enabled", "`--precision bf16`, else false", |_| off())
        .or_option("--precision", |inputs| is_type(inputs, ComputeType::Bf16)),
    rule("zero_optimization.stage", "`--stage`, else 0", |_| whole(0))
        .or_option("--stage", |inputs| inputs.stage.map(|stage| whole_value(stage.into()))),
    rule(
        "zero_optimization.reduce_bucket_size",
        "h², with h = `--hidden_size`; else the default",
        |inputs| of_hidden_size(inputs, |hidden| hidden.saturating_mul(hidden)),
    )
    .with_basis(
        "--hidden_size",
        |inputs| inputs.hidden_size.is_some(),
        "h² of `--hidden_size`",
    ),
    rule(
        "zero_optimization.stage3_prefetch_bucket_size",
        "0.9 h², with h = `--hidden_size`; else the default",
        |inputs| of_hidden_size(inputs, |hidden| (0.9 * hidden as f64 * hidden as f64) as u64),
    )
    .with_basis(
        "--hidden_size",
        |inputs| inputs.hidden_size.is_some(),
        "0.9 h² of `--hidden_size`",
    ),
    rule(
        "zero_optimization.stage3_param_persistence_threshold",
        "10 h, with h = `--hidden_size`; else the default",
        |inputs| of_hidden_size(inputs, |hidden| hidden.saturating_mul(10)),
    )
    .with_basis(
        "--hidden_size",
        |inputs| inputs.hidden_size.is_some(),
        "10 h of `--hidden_size`",
    ),
];

/// A rule without an option.
const fn rule(
    path: &'static str,
    text: &'static str,
    otherwise: fn(&ConfigInputs) -> AutoValue,
) -> AutoRule {
    AutoRule { path, text, option: None, basis: None, otherwise }
}

impl AutoRule {
    /// The same rule, unless an option gives the value.
    const fn or_option(
        self,
        name: &'static str,
        value: fn(&ConfigInputs) -> Option<ConfigValue>,
    ) -> Self {
        Self { option: Some(KeyOption { name, value }), ..self }
    }

    /// The same rule, whose value follows from an option.
    const fn with_basis(
        self,
        name: &'static str,
        is_given: fn(&ConfigInputs) -> bool,
        text: &'static str,
    ) -> Self {
        Self { basis: Some(RuleBasis { name, is_given, text }), ..self }
    }

    /// Returns in few words what gave the value for some arguments: an option, or that it is missing.
    pub(super) fn source(&self, inputs: &ConfigInputs) -> String {
        let without = |name| format!("no `{name}`");
        match (self.option, self.basis) {
            (Some(KeyOption { name, value }), _) if value(inputs).is_some() => format!("`{name}`"),
            (Some(KeyOption { name, .. }), _) => without(name),
            (None, Some(basis)) if (basis.is_given)(inputs) => basis.text.to_owned(),
            (None, Some(basis)) => without(basis.name),
            (None, None) => self.text.to_owned(),
        }
    }

    /// The value for some arguments.
    pub fn value(&self, inputs: &ConfigInputs) -> AutoValue {
        let typed = self.typed_value(inputs).map(|(value, _)| AutoValue::Is(value));
        typed.unwrap_or_else(|| (self.otherwise)(inputs))
    }

    /// The value that a typed option gives to the key, and the option.
    pub(super) fn typed_value(&self, inputs: &ConfigInputs) -> Option<(ConfigValue, &'static str)> {
        let KeyOption { name, value } = self.option?;
        value(inputs).map(|value| (value, name))
    }
}

/// The rule of a key.
pub fn auto_rule(path: &str) -> Option<&'static AutoRule> {
    AUTO_RULES.iter().find(|rule| rule.path == path)
}

/// Whether a key has a rule.
pub(super) fn has_rule(path: &str) -> bool {
    auto_rule(path).is_some()
}

fn of_hidden_size(inputs: &ConfigInputs, formula: fn(u64) -> u64) -> AutoValue {
    inputs.hidden_size.map_or(AutoValue::Default, |hidden| whole(formula(hidden)))
}

fn number(number: f64) -> AutoValue {
    AutoValue::Is(ConfigValue::Float(number))
}

fn whole(number: u64) -> AutoValue {
    AutoValue::Is(whole_value(number))
}

fn whole_value(number: u64) -> ConfigValue {
    ConfigValue::Whole(i64::try_from(number).unwrap_or(i64::MAX))
}

fn off() -> AutoValue {
    AutoValue::Is(ConfigValue::Bool(false))
}

fn is_type(inputs: &ConfigInputs, kind: ComputeType) -> Option<ConfigValue> {
    inputs.precision.map(|found| ConfigValue::Bool(found == kind))
}

fn pair([first, second]: [f64; 2]) -> ConfigValue {
    ConfigValue::List(vec![node(first), node(second)])
}

fn node(number: f64) -> ConfigNode {
    ConfigNode { value: ConfigValue::Float(number), span: Span::new(0, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that the Hugging Face Trainer computed for a hidden size of 768.
    #[test]
    fn buckets_are_those_of_the_trainer() {
        let inputs = ConfigInputs { hidden_size: Some(768), ..ConfigInputs::default() };
        for (key, expect) in [
            ("reduce_bucket_size", 589_824),
            ("stage3_prefetch_bucket_size", 530_841),
            ("stage3_param_persistence_threshold", 7_680),
        ] {
            let rule = auto_rule(&format!("zero_optimization.{key}")).expect("a rule");
            assert_eq!(rule.value(&inputs), AutoValue::Is(ConfigValue::Whole(expect)), "{key}");
            assert_eq!(rule.value(&ConfigInputs::default()), AutoValue::Default, "{key}");
        }
    }
}
