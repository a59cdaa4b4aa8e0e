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
    value: fn(&ConfigInputs) -> AutoValue,
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
    AutoRule {
        path: "train_batch_size",
        text: "micro-batch × accumulation × world size",
        value: |_| AutoValue::Derived,
    },
    AutoRule {
        path: "train_micro_batch_size_per_gpu",
        text: "`--batch_size`; else train_batch_size / (accumulation × world size); else 8",
        value: |_| AutoValue::Derived,
    },
    AutoRule {
        path: "gradient_accumulation_steps",
        text: "`--accumulate`; else train_batch_size / (micro-batch × world size); else 1",
        value: |_| AutoValue::Derived,
    },
    AutoRule {
        path: "gradient_clipping",
        text: "`--clip`, else 1",
        value: |inputs| number(inputs.clip.unwrap_or(1.0)),
    },
    AutoRule {
        path: "optimizer.params.lr",
        text: "`--lr`, else 5e-5",
        value: |inputs| number(learning_rate(inputs)),
    },
    AutoRule {
        path: "optimizer.params.betas",
        text: "`--beta1` and `--beta2`, else [0.9, 0.999]",
        value: |inputs| AutoValue::Is(pair(inputs.betas.unwrap_or([0.9, 0.999]))),
    },
    AutoRule { path: "optimizer.params.eps", text: "1e-8", value: |_| number(1e-8) },
    AutoRule {
        path: "optimizer.params.weight_decay",
        text: "`--weight_decay`, else 0",
        value: |inputs| number(inputs.weight_decay.unwrap_or(0.0)),
    },
    AutoRule { path: "scheduler.params.warmup_min_lr", text: "0", value: |_| number(0.0) },
    AutoRule {
        path: "scheduler.params.warmup_max_lr",
        text: "the rate of the optimizer",
        value: |_| AutoValue::Derived,
    },
    AutoRule {
        path: "scheduler.params.warmup_num_steps",
        text: "`--warmup`, at least 1",
        value: |inputs| whole(inputs.warmup.unwrap_or(0).max(1)),
    },
    AutoRule {
        path: "scheduler.params.total_num_steps",
        text: "`--steps`, the steps of the whole run",
        value: |inputs| inputs.steps.map_or(AutoValue::Derived, whole),
    },
    AutoRule {
        path: "fp16.enabled",
        text: "`--precision fp16`, else false",
        value: |inputs| is_type(inputs, ComputeType::Fp16),
    },
    AutoRule {
        path: "bf16.enabled",
        text: "`--precision bf16`, else false",
        value: |inputs| is_type(inputs, ComputeType::Bf16),
    },
    AutoRule {
        path: "zero_optimization.stage",
        text: "`--stage`, else 0",
        value: |inputs| whole(inputs.stage.unwrap_or(0).into()),
    },
    AutoRule {
        path: "zero_optimization.reduce_bucket_size",
        text: "h², with h = `--hidden_size`; else the default",
        value: |inputs| of_hidden_size(inputs, |hidden| hidden.saturating_mul(hidden)),
    },
    AutoRule {
        path: "zero_optimization.stage3_prefetch_bucket_size",
        text: "0.9 h², with h = `--hidden_size`; else the default",
        value: |inputs| {
            of_hidden_size(inputs, |hidden| (0.9 * hidden as f64 * hidden as f64) as u64)
        },
    },
    AutoRule {
        path: "zero_optimization.stage3_param_persistence_threshold",
        text: "10 h, with h = `--hidden_size`; else the default",
        value: |inputs| of_hidden_size(inputs, |hidden| hidden.saturating_mul(10)),
    },
];

impl AutoRule {
    /// The value for some arguments.
    pub fn value(&self, inputs: &ConfigInputs) -> AutoValue {
        (self.value)(inputs)
    }
}

/// The value that a typed option gives to a key that the file does not have, and the option.
pub(super) fn typed_value(
    path: &str,
    inputs: &ConfigInputs,
) -> Option<(ConfigValue, &'static str)> {
    let is_type = |kind| inputs.precision.map(|found| ConfigValue::Bool(found == kind));
    let count = |given: Option<u64>| given.and_then(|given| i64::try_from(given).ok());
    let (value, option) = match path {
        "gradient_clipping" => (inputs.clip.map(ConfigValue::Float), "--clip"),
        "optimizer.params.lr" => (inputs.learning_rate.map(ConfigValue::Float), "--lr"),
        "optimizer.params.betas" => (inputs.betas.map(pair), "--beta1, --beta2"),
        "optimizer.params.weight_decay" => {
            (inputs.weight_decay.map(ConfigValue::Float), "--weight_decay")
        }
        "scheduler.params.warmup_num_steps" => {
            (count(inputs.warmup).map(ConfigValue::Whole), "--warmup")
        }
        "zero_optimization.stage" => {
            (inputs.stage.map(|stage| ConfigValue::Whole(stage.into())), "--stage")
        }
        "fp16.enabled" => (is_type(ComputeType::Fp16), "--precision"),
        "bf16.enabled" => (is_type(ComputeType::Bf16), "--precision"),
        _ => return None,
    };
    Some((value?, option))
}

/// The rule of a key.
pub fn auto_rule(path: &str) -> Option<&'static AutoRule> {
    AUTO_RULES.iter().find(|rule| rule.path == path)
}

/// Whether a key has a rule.
pub(super) fn has_rule(path: &str) -> bool {
    auto_rule(path).is_some()
}

/// The learning rate that `auto` stands for.
fn learning_rate(inputs: &ConfigInputs) -> f64 {
    inputs.learning_rate.unwrap_or(5e-5)
}

fn of_hidden_size(inputs: &ConfigInputs, formula: fn(u64) -> u64) -> AutoValue {
    inputs.hidden_size.map_or(AutoValue::Default, |hidden| whole(formula(hidden)))
}

fn number(number: f64) -> AutoValue {
    AutoValue::Is(ConfigValue::Float(number))
}

fn whole(number: u64) -> AutoValue {
    AutoValue::Is(ConfigValue::Whole(i64::try_from(number).unwrap_or(i64::MAX)))
}

fn is_type(inputs: &ConfigInputs, kind: ComputeType) -> AutoValue {
    AutoValue::Is(ConfigValue::Bool(inputs.precision == Some(kind)))
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
