//! [`Optimizer`]: the settings of an update rule, with the numbers of a step that all elements share.
//!
//! Formulas, names and error texts are those of `torch.optim` (2.15), defaults those of DeepSpeed (0.19.8).

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::runtime::optim::power::power;
use crate::runtime::optim::update::{AdamNumbers, LionNumbers, OptimizerStep, Rule, SgdNumbers};

/// Update rule with its settings. The learning rate is not one of them: it is an argument of each step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Optimizer {
    /// Adam or AdamW.
    Adam(AdamOptions),
    /// Gradient descent with momentum or without.
    Sgd(SgdOptions),
    /// Steps of equal size against the sign of a running mean.
    Lion(LionOptions),
}

/// How weight decay changes a parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WeightDecay {
    /// The parameter is multiplied by `1 - rate · weight_decay` (AdamW, `adam_w_mode: true`).
    #[default]
    Decoupled,
    /// `weight_decay · parameter` is added to the gradient (Adam, `adam_w_mode: false`).
    L2,
}

/// Settings of Adam: `m` and `v` are running means of the gradient and of its square.
///
/// With `g` the gradient, `t` the number of the step from 1, and `w` the weight decay:
///
/// ```text
/// p ← p·(1 - rate·w)               decoupled decay
/// g ← g + w·p                      L2
/// m ← m + (1-β₁)·(g-m)
/// v ← v·β₂ + (1-β₂)·g·g
/// p ← p - rate/(1-β₁ᵗ)·m / (√v/√(1-β₂ᵗ) + ε)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdamOptions {
    /// Decays of the two means, each from 0 to below 1.
    pub betas: [f64; 2],
    /// Number that is added to the root.
    pub epsilon: f64,
    /// Factor of the decay, 0 or more.
    pub weight_decay: f64,
    /// Kind of the decay.
    pub decay: WeightDecay,
    /// Whether the means are divided by `1 - βᵗ`; both factors are 1 if not.
    pub bias_correction: bool,
}

/// Settings of gradient descent: `b` is the running sum of the gradients.
///
/// ```text
/// g ← g + weight_decay·p
/// b ← g                                    first step
/// b ← momentum·b + (1-dampening)·g         later steps
/// p ← p - rate·b                           with Nesterov: p - rate·(g + momentum·b)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SgdOptions {
    /// Factor of the sum of the steps before; 0: there is no sum, and no state.
    pub momentum: f64,
    /// Part of the gradient that is not added to the sum.
    pub dampening: f64,
    /// Whether the step uses the sum that the next step would have.
    pub nesterov: bool,
    /// Factor of the decay, 0 or more.
    pub weight_decay: f64,
}

/// Settings of Lion: `m` is a running mean of the gradient.
///
/// ```text
/// p ← p·(1 - rate·weight_decay) - rate·sign(β₁·m + (1-β₁)·g)
/// m ← β₂·m + (1-β₂)·g
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LionOptions {
    /// Weight of the mean in the sign, and decay of the mean, each from 0 to below 1.
    pub betas: [f64; 2],
    /// Factor of the decay, 0 or more.
    pub weight_decay: f64,
}

/// Setting that an optimizer cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum OptimizerError {
    /// A factor of a running mean is not from 0 to below 1.
    #[error("invalid beta parameter at index {index}: {value}")]
    Beta {
        /// Index of the factor, 0 or 1.
        index: usize,
        /// Value of the setting.
        value: f64,
    },
    /// A number is negative or NaN.
    #[error("invalid {name} value: {value}")]
    Negative {
        /// Name of the setting: `epsilon`, `weight_decay` or `momentum`.
        name: &'static str,
        /// Value of the setting.
        value: f64,
    },
    /// Nesterov without momentum, or with dampening.
    #[error("nesterov momentum requires a momentum and zero dampening")]
    Nesterov,
}

impl Default for Optimizer {
    /// AdamW without weight decay.
    fn default() -> Self {
        Self::Adam(AdamOptions::default())
    }
}

impl Default for AdamOptions {
    fn default() -> Self {
        Self {
            betas: [0.9, 0.999],
            epsilon: 1e-8,
            weight_decay: 0.0,
            decay: WeightDecay::Decoupled,
            bias_correction: true,
        }
    }
}

impl Default for LionOptions {
    fn default() -> Self {
        Self { betas: [0.9, 0.999], weight_decay: 0.0 }
    }
}

impl Optimizer {
    /// Returns the names that torch gives to the state of a parameter: buffers of its length, which are 0
    /// before the first step.
    pub fn state_names(&self) -> &'static [&'static str] {
        match self {
            Self::Adam(_) => &["exp_avg", "exp_avg_sq"],
            Self::Sgd(sgd) if sgd.momentum == 0.0 => &[],
            Self::Sgd(_) => &["momentum_buffer"],
            Self::Lion(_) => &["exp_avg"],
        }
    }

    /// Returns whether all settings are in their ranges.
    pub fn check(&self) -> Result<(), OptimizerError> {
        match self {
            Self::Adam(adam) => {
                check_not_negative("epsilon", adam.epsilon)?;
                check_betas(adam.betas)?;
                check_not_negative("weight_decay", adam.weight_decay)
            }
            Self::Sgd(sgd) => {
                check_not_negative("momentum", sgd.momentum)?;
                check_not_negative("weight_decay", sgd.weight_decay)?;
                let is_plain = sgd.momentum == 0.0 || sgd.dampening != 0.0;
                if sgd.nesterov && is_plain { Err(OptimizerError::Nesterov) } else { Ok(()) }
            }
            Self::Lion(lion) => {
                check_betas(lion.betas)?;
                check_not_negative("weight_decay", lion.weight_decay)
            }
        }
    }

    /// Returns the optimizer with other betas, as a [`OneCycle`](super::one_cycle::OneCycle) schedule
    /// sets them; an optimizer without betas is not changed.
    #[must_use]
    pub fn with_betas(self, betas: [f64; 2]) -> Self {
        match self {
            Self::Adam(adam) => Self::Adam(AdamOptions { betas, ..adam }),
            Self::Lion(lion) => Self::Lion(LionOptions { betas, ..lion }),
            Self::Sgd(_) => self,
        }
    }

    /// Returns one step of this optimizer: the numbers that are the same for all elements, computed in f64
    /// and rounded to f32 once.
    ///
    /// `number` counts the steps that changed the parameters, with this one, from 1. `factor` multiplies
    /// each gradient first; it is the product of the factor of clipping and the inverse of the loss scale.
    pub fn step(&self, number: u64, rate: f64, factor: f32) -> OptimizerStep {
        let (rule, l2) = match self {
            Self::Adam(adam) => (Rule::Adam(adam_numbers(adam, number, rate)), adam.l2()),
            Self::Sgd(sgd) => (Rule::Sgd(sgd_numbers(sgd, number, rate)), sgd.weight_decay),
            Self::Lion(lion) => (Rule::Lion(lion_numbers(lion, rate)), 0.0),
        };
        let states = self.state_names().len();
        OptimizerStep { rule, factor, l2: l2 as f32, shrink: self.shrink(rate), states }
    }

    /// Factor of a parameter that decays.
    fn shrink(&self, rate: f64) -> f32 {
        let weight_decay = match self {
            Self::Adam(adam) if adam.decay == WeightDecay::Decoupled => adam.weight_decay,
            Self::Adam(_) | Self::Sgd(_) => 0.0,
            Self::Lion(lion) => lion.weight_decay,
        };
        (1.0 - rate * weight_decay) as f32
    }
}

impl AdamOptions {
    fn l2(&self) -> f64 {
        match self.decay {
            WeightDecay::Decoupled => 0.0,
            WeightDecay::L2 => self.weight_decay,
        }
    }
}

fn adam_numbers(adam: &AdamOptions, number: u64, rate: f64) -> AdamNumbers {
    let correction = |beta| if adam.bias_correction { 1.0 - power(beta, number) } else { 1.0 };
    let [beta1, beta2] = adam.betas;
    AdamNumbers {
        one_minus_beta1: (1.0 - beta1) as f32,
        beta2: beta2 as f32,
        one_minus_beta2: (1.0 - beta2) as f32,
        correction2_root: correction(beta2).sqrt() as f32,
        epsilon: adam.epsilon as f32,
        step_size: (rate / correction(beta1)) as f32,
    }
}

fn sgd_numbers(sgd: &SgdOptions, number: u64, rate: f64) -> SgdNumbers {
    SgdNumbers {
        momentum: (sgd.momentum != 0.0).then_some(sgd.momentum as f32),
        is_first: number <= 1,
        one_minus_dampening: (1.0 - sgd.dampening) as f32,
        nesterov: sgd.nesterov,
        rate: rate as f32,
    }
}

fn lion_numbers(lion: &LionOptions, rate: f64) -> LionNumbers {
    LionNumbers {
        betas: lion.betas.map(|beta| beta as f32),
        one_minus_betas: lion.betas.map(|beta| (1.0 - beta) as f32),
        rate: rate as f32,
    }
}

fn check_betas(betas: [f64; 2]) -> Result<(), OptimizerError> {
    match betas.iter().position(|beta| !(0.0..1.0).contains(beta)) {
        Some(index) => Err(OptimizerError::Beta { index, value: betas[index] }),
        None => Ok(()),
    }
}

fn check_not_negative(name: &'static str, value: f64) -> Result<(), OptimizerError> {
    if 0.0 <= value { Ok(()) } else { Err(OptimizerError::Negative { name, value }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(optimizer: Optimizer, expect: &str) {
        let found = optimizer.check().map_or_else(|error| error.to_string(), |()| "-".to_owned());
        assert_eq!(found, expect, "{optimizer:?}");
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let adam = AdamOptions::default();
        check(Optimizer::Adam(adam), "-");
        check(
            Optimizer::Adam(AdamOptions { betas: [0.9, 1.0], ..adam }),
            "invalid beta parameter at index 1: 1",
        );
        check(Optimizer::Adam(AdamOptions { epsilon: -1.0, ..adam }), "invalid epsilon value: -1");
        check(
            Optimizer::Adam(AdamOptions { weight_decay: f64::NAN, ..adam }),
            "invalid weight_decay value: NaN",
        );
        let sgd = SgdOptions::default();
        check(Optimizer::Sgd(sgd), "-");
        let nesterov = "nesterov momentum requires a momentum and zero dampening";
        check(Optimizer::Sgd(SgdOptions { nesterov: true, ..sgd }), nesterov);
        check(
            Optimizer::Sgd(SgdOptions { nesterov: true, momentum: 0.9, dampening: 0.1, ..sgd }),
            nesterov,
        );
        check(Optimizer::Sgd(SgdOptions { nesterov: true, momentum: 0.9, ..sgd }), "-");
        check(
            Optimizer::Lion(LionOptions { betas: [-0.1, 0.9], weight_decay: 0.0 }),
            "invalid beta parameter at index 0: -0.1",
        );
    }

    #[test]
    fn states_have_the_names_of_torch() {
        let names = |optimizer: Optimizer| optimizer.state_names().to_vec();
        assert_eq!(names(Optimizer::Adam(AdamOptions::default())), ["exp_avg", "exp_avg_sq"]);
        assert_eq!(names(Optimizer::Lion(LionOptions::default())), ["exp_avg"]);
        assert!(names(Optimizer::Sgd(SgdOptions::default())).is_empty());
        let momentum = SgdOptions { momentum: 0.9, ..SgdOptions::default() };
        assert_eq!(names(Optimizer::Sgd(momentum)), ["momentum_buffer"]);
    }

    #[test]
    fn betas_of_a_schedule_replace_those_of_the_settings() {
        let adam = Optimizer::Adam(AdamOptions::default()).with_betas([0.8, 0.99]);
        assert_eq!(adam, Optimizer::Adam(AdamOptions { betas: [0.8, 0.99], ..Default::default() }));
        let sgd = Optimizer::Sgd(SgdOptions::default());
        assert_eq!(sgd.with_betas([0.8, 0.99]), sgd);
    }
}
