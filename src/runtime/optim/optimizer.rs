//! [`Optimizer`]: the update of a slice of parameters by a slice of gradients.
//!
//! The formulas and the order of their operations are those of torch on a CPU: scalars are computed in `f64`
//! and rounded once, elements in `f32`. Every element is computed by itself, so shards, threads and SIMD
//! widths change no bit.

use crate::os::cpu::simd::vectorized;

/// Optimizer and its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimizer {
    /// Adam, by default with decoupled weight decay.
    Adam(Adam),
    /// Stochastic gradient descent.
    Sgd(Sgd),
    /// Lion: the sign of an interpolated gradient.
    Lion(Lion),
}

impl Default for Optimizer {
    fn default() -> Self {
        Self::Adam(Adam::default())
    }
}

/// Settings of Adam and AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// Decay of the first moment, the running mean of the gradients.
    pub beta1: f64,
    /// Decay of the second moment, the running mean of their squares.
    pub beta2: f64,
    /// Value that is added to the root of the second moment.
    pub eps: f64,
    /// Decay of the parameters, before it is multiplied by the rate.
    pub weight_decay: f64,
    /// Whether the decay multiplies the parameter (AdamW); otherwise it is added to the gradient (L2).
    pub is_decoupled: bool,
    /// Whether the moments are divided by `1 - beta^step`, because they begin at zero.
    pub corrects_bias: bool,
}

impl Default for Adam {
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
            is_decoupled: true,
            corrects_bias: true,
        }
    }
}

/// Settings of SGD.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sgd {
    /// Decay of the running sum of the gradients; 0: there is none.
    pub momentum: f64,
    /// Part of a gradient that is not added to the running sum.
    pub dampening: f64,
    /// Whether the update looks ahead by the momentum.
    pub is_nesterov: bool,
    /// Weight decay, added to the gradient.
    pub weight_decay: f64,
}

/// Settings of Lion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lion {
    /// Weight of the running mean in the sign.
    pub beta1: f64,
    /// Decay of the running mean.
    pub beta2: f64,
    /// Weight decay, which multiplies the parameter.
    pub weight_decay: f64,
}

/// An update of parameters with equal settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateStep {
    /// Number of the update, from 1.
    pub number: u64,
    /// Learning rate.
    pub rate: f64,
    /// Factor of the gradient: that of clipping, and one over the loss scale.
    pub factor: f32,
    /// Momentum that a schedule sets in place of the optimizer's.
    pub momentum: Option<f64>,
    /// Whether weight decay applies to these parameters.
    pub decays: bool,
}

impl Optimizer {
    /// Returns the names of the values that it keeps for every parameter, as in torch's state.
    pub fn state_names(&self) -> &'static [&'static str] {
        match self {
            Self::Adam(_) => &["exp_avg", "exp_avg_sq"],
            Self::Sgd(sgd) if sgd.momentum == 0.0 => &[],
            Self::Sgd(_) => &["momentum_buffer"],
            Self::Lion(_) => &["exp_avg"],
        }
    }

    /// Updates parameters by their gradients; `states` are in the order of [`Self::state_names`].
    ///
    /// # Panics
    /// If the number of states differs.
    pub fn update(
        &self,
        step: &UpdateStep,
        params: &mut [f32],
        states: &mut [&mut [f32]],
        gradients: &[f32],
    ) {
        match (self, states) {
            (Self::Adam(adam), [first, second]) => {
                adam.update(step, params, first, second, gradients);
            }
            (Self::Sgd(sgd), []) => sgd.update_without_momentum(step, params, gradients),
            (Self::Sgd(sgd), [sum]) => sgd.update(step, params, sum, gradients),
            (Self::Lion(lion), [mean]) => lion.update(step, params, mean, gradients),
            (_, states) => panic!("{} states for {self:?}", states.len()),
        }
    }
}

/// Second beta that a schedule with momentum sets, as DeepSpeed's OneCycle does.
const BETA2_OF_SCHEDULE: f64 = 0.99;

impl Adam {
    fn update(
        &self,
        step: &UpdateStep,
        params: &mut [f32],
        first: &mut [f32],
        second: &mut [f32],
        gradients: &[f32],
    ) {
        let (beta1, beta2) = match step.momentum {
            Some(momentum) => (momentum, BETA2_OF_SCHEDULE),
            None => (self.beta1, self.beta2),
        };
        let number = step.number.min(i32::MAX as u64) as i32;
        let correction = |beta: f64| if self.corrects_bias { 1.0 - beta.powi(number) } else { 1.0 };
        let decay = if step.decays { self.weight_decay } else { 0.0 };
        let (multiplied, added) = if self.is_decoupled { (decay, 0.0) } else { (0.0, decay) };
        let kept = (1.0 - step.rate * multiplied) as f32;
        let added = added as f32;
        let (new1, old2, new2) = ((1.0 - beta1) as f32, beta2 as f32, (1.0 - beta2) as f32);
        let root = correction(beta2).sqrt() as f32;
        let size = (step.rate / correction(beta1)) as f32;
        let (eps, factor) = (self.eps as f32, step.factor);
        vectorized(|| {
            let elements = params.iter_mut().zip(first).zip(second).zip(gradients);
            for (((p, m), v), &g) in elements {
                let g = g * factor + added * *p;
                *p *= kept;
                *m += new1 * (g - *m);
                *v = *v * old2 + new2 * g * g;
                *p -= size * *m / (v.sqrt() / root + eps);
            }
        });
    }
}

impl Sgd {
    fn update(&self, step: &UpdateStep, params: &mut [f32], sum: &mut [f32], gradients: &[f32]) {
        let decay = if step.decays { self.weight_decay as f32 } else { 0.0 };
        let momentum = step.momentum.unwrap_or(self.momentum) as f32;
        // The first sum is the gradient itself.
        let (old, new) = match step.number {
            1 => (0.0, 1.0),
            _ => (momentum, (1.0 - self.dampening) as f32),
        };
        let ahead = if self.is_nesterov { momentum } else { 0.0 };
        let (rate, factor) = (step.rate as f32, step.factor);
        let is_nesterov = self.is_nesterov;
        vectorized(|| {
            for ((p, b), &g) in params.iter_mut().zip(sum).zip(gradients) {
                let g = g * factor + decay * *p;
                *b = *b * old + new * g;
                let direction = if is_nesterov { g + ahead * *b } else { *b };
                *p -= rate * direction;
            }
        });
    }

    fn update_without_momentum(&self, step: &UpdateStep, params: &mut [f32], gradients: &[f32]) {
        let decay = if step.decays { self.weight_decay as f32 } else { 0.0 };
        let (rate, factor) = (step.rate as f32, step.factor);
        vectorized(|| {
            for (p, &g) in params.iter_mut().zip(gradients) {
                let g = g * factor + decay * *p;
                *p -= rate * g;
            }
        });
    }
}

impl Lion {
    fn update(&self, step: &UpdateStep, params: &mut [f32], mean: &mut [f32], gradients: &[f32]) {
        let decay = if step.decays { self.weight_decay } else { 0.0 };
        let kept = (1.0 - step.rate * decay) as f32;
        let (old1, new1) = (self.beta1 as f32, (1.0 - self.beta1) as f32);
        let (old2, new2) = (self.beta2 as f32, (1.0 - self.beta2) as f32);
        let (rate, factor) = (step.rate as f32, step.factor);
        vectorized(|| {
            for ((p, m), &g) in params.iter_mut().zip(mean).zip(gradients) {
                let g = g * factor;
                let c = old1 * *m + new1 * g;
                // Unlike `signum`, the sign of zero is zero.
                let sign = f32::from(u8::from(0.0 < c)) - f32::from(u8::from(c < 0.0));
                *p = *p * kept - rate * sign;
                *m = old2 * *m + new2 * g;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::cpu::simd::tests::at_every_level;

    const START: [f32; 4] = [1.0, -2.0, 0.5, 3.0];
    const GRADIENTS: [[f32; 4]; 3] =
        [[0.1, -0.2, 0.3, -0.4], [0.05, 0.0, -0.3, 0.2], [-1.0, 2.0, 0.001, -0.5]];

    /// Parameters after the three gradients.
    fn train(optimizer: &Optimizer, rate: f64, steps: usize) -> [f32; 4] {
        let mut params = START;
        let mut states = vec![[0.0_f32; 4]; optimizer.state_names().len()];
        for (gradients, number) in GRADIENTS.iter().take(steps).zip(1..) {
            let step = UpdateStep { number, rate, factor: 1.0, momentum: None, decays: true };
            let mut states: Vec<&mut [f32]> = states.iter_mut().map(|of| &mut of[..]).collect();
            optimizer.update(&step, &mut params, &mut states, gradients);
        }
        params
    }

    #[track_caller]
    fn check(optimizer: Optimizer, steps: usize, expected: [u32; 4]) {
        let found = train(&optimizer, 0.1, steps).map(f32::to_bits);
        assert_eq!(found, expected, "{optimizer:?}: {found:x?} instead of {expected:x?}");
    }

    /// Bits of torch 2.15 on a CPU: learning rate 0.1.
    #[test]
    fn optimizers_have_the_bits_of_torch() {
        let adam = Adam::default();
        check(Optimizer::Adam(adam), 3, [0x3f5c_bdad, 0xbff2_19bc, 0x3ed1_8029, 0x404c_07f4]);
        let decayed = Adam { weight_decay: 0.01, ..adam };
        let l2 = Adam { is_decoupled: false, ..decayed };
        check(Optimizer::Adam(l2), 3, [0x3f5c_2d6b, 0xbff1_292f, 0x3ecf_d479, 0x404b_1848]);
        let steps = [
            [0x3f66_24de, 0xbff2_f1aa, 0x3ecc_8b44, 0x4046_353f],
            [0x3f4e_0cd1, 0xbfea_1fd3, 0x3ecf_08c1, 0x4047_b6df],
            [0x3f5c_0c7a, 0xbff1_5e13, 0x3ed0_d543, 0x404b_70ef],
        ];
        for (expected, count) in steps.into_iter().zip(1..) {
            check(Optimizer::Adam(decayed), count, expected);
        }
        let wide = Adam { eps: 0.1, ..decayed };
        check(Optimizer::Adam(wide), 3, [0x3f74_0d94, 0xbff8_950c, 0x3edc_5a55, 0x4048_f2e6]);
        let sgd = Sgd { momentum: 0.9, ..Sgd::default() };
        check(Optimizer::Sgd(sgd), 3, [0x3f88_1d7e, 0xc009_54ca, 0x3ef3_81d8, 0x4047_b4a2]);
        let nesterov = Sgd { is_nesterov: true, weight_decay: 0.01, ..sgd };
        check(Optimizer::Sgd(nesterov), 3, [0x3f91_2bb1, 0xc012_e71b, 0x3ef2_c03c, 0x4049_d9c0]);
        let damped = Sgd { dampening: 0.5, ..sgd };
        check(Optimizer::Sgd(damped), 3, [0x3f82_52bd, 0xc002_ee63, 0x3ee4_f0d8, 0x4047_5254]);
    }

    #[test]
    fn lion_matches_its_formula() {
        let lion = Lion { beta1: 0.9, beta2: 0.99, weight_decay: 0.1 };
        let found = train(&Optimizer::Lion(lion), 0.01, 3);
        let expected = [0.987_033_07, -1.984_036_09, 0.488_511_50, 3.000_998_97];
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((f64::from(found) - expected).abs() < 1e-6, "{found} instead of {expected}");
        }
    }

    #[test]
    fn updates_have_the_same_bits_on_any_cpu_and_for_any_cut() {
        let gradients: Vec<f32> = (0..101).map(|i| ((i * 37 % 23) as f32 - 11.0) / 7.0).collect();
        let optimizers = [
            Optimizer::default(),
            Optimizer::Sgd(Sgd { momentum: 0.9, is_nesterov: true, ..Sgd::default() }),
            Optimizer::Sgd(Sgd::default()),
            Optimizer::Lion(Lion { beta1: 0.9, beta2: 0.99, weight_decay: 0.1 }),
        ];
        for optimizer in optimizers {
            let run = |cut: usize| {
                let mut params: Vec<f32> = gradients.iter().map(|g| 1.0 - g).collect();
                let mut states = vec![vec![0.0_f32; 101]; optimizer.state_names().len()];
                for number in 1..5 {
                    let step = UpdateStep {
                        number,
                        rate: 0.01,
                        factor: 0.7,
                        momentum: None,
                        decays: true,
                    };
                    for range in [0..cut, cut..101] {
                        let mut states: Vec<&mut [f32]> =
                            states.iter_mut().map(|state| &mut state[range.clone()]).collect();
                        let gradients = &gradients[range.clone()];
                        optimizer.update(&step, &mut params[range], &mut states, gradients);
                    }
                }
                params.iter().map(|p| p.to_bits()).collect::<Vec<_>>()
            };
            let whole = run(0);
            assert!((1..101).all(|cut| run(cut) == whole), "{optimizer:?}");
            assert!(at_every_level(|| run(50)).iter().all(|bits| *bits == whole), "{optimizer:?}");
        }
    }
}
