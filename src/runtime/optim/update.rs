//! [`OptimizerStep`]: one step of an optimizer, element by element.
//!
//! An element of the parameters depends only on the same element of the states and of the gradients, and on
//! no vector instruction that rounds differently. Shards, threads and processors therefore change no bit.
//! The order of the operations is that of the scalar loops of torch's CPU kernels. Torch itself has several
//! answers: its vector loops fuse some products and sums, and take the square root of MKL, so a parameter
//! can differ from torch's in the last bits.

use std::ops::Range;

use crate::os::cpu::simd_versions::versions;
use crate::runtime::flat::tasks::{Parallel, for_each};

/// Number of elements that a task processes.
const TASK_ELEMENTS: usize = 16 * 1024;
/// Number of elements whose gradients are scaled at a time; they stay in the first-level cache.
const CHUNK: usize = 128;

/// One step of an [`Optimizer`](super::optimizer::Optimizer): the numbers that are the same for all
/// elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimizerStep {
    pub(crate) rule: Rule,
    /// Factor of the gradients.
    pub(crate) factor: f32,
    /// Part of a parameter that is added to its gradient.
    pub(crate) l2: f32,
    /// Factor of a parameter.
    pub(crate) shrink: f32,
    /// Number of states of the rule.
    pub(super) states: usize,
}

/// Elements of a flat buffer, and whether weight decay applies to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecayRange {
    /// Elements, counted from the start of the slice that is updated.
    pub range: Range<usize>,
    /// Whether weight decay applies; usually not to biases and weights of norms.
    pub decays: bool,
}

/// Rule of an optimizer with its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    Adam(AdamNumbers),
    Sgd(SgdNumbers),
    Lion(LionNumbers),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AdamNumbers {
    pub(crate) one_minus_beta1: f32,
    pub(crate) beta2: f32,
    pub(crate) one_minus_beta2: f32,
    pub(crate) correction2_root: f32,
    pub(crate) epsilon: f32,
    pub(crate) step_size: f32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SgdNumbers {
    /// `None`: there is no sum of the steps before.
    pub(crate) momentum: Option<f32>,
    pub(crate) is_first: bool,
    pub(crate) one_minus_dampening: f32,
    pub(crate) nesterov: bool,
    pub(crate) rate: f32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LionNumbers {
    pub(crate) betas: [f32; 2],
    pub(crate) one_minus_betas: [f32; 2],
    pub(crate) rate: f32,
}

impl OptimizerStep {
    /// Returns the same step for parameters to which weight decay does not apply.
    #[must_use]
    pub fn without_decay(self) -> Self {
        Self { l2: 0.0, shrink: 1.0, ..self }
    }

    /// Updates a slice of the parameters. `states` has one slice for each name of
    /// [`state_names`](super::optimizer::Optimizer::state_names), in that order.
    ///
    /// # Panics
    /// If the number of states is not that of the optimizer, or a slice is not as long as `params`.
    pub fn update<S: AsMut<[f32]>>(&self, params: &mut [f32], states: &mut [S], gradients: &[f32]) {
        let [first, second] = self.checked_states(params.len(), states);
        assert_eq!(gradients.len(), params.len(), "a gradient for each parameter");
        update_slice(self, params, first, second, gradients);
    }

    /// Updates a slice whose ranges follow each other from its first element to its last one, with a task
    /// for each 16,384 elements of a range; otherwise like [`update`](Self::update).
    ///
    /// # Panics
    /// Like [`update`](Self::update), and if the ranges leave out an element, or overlap.
    pub fn update_ranges<S: AsMut<[f32]>>(
        &self,
        parallel: &dyn Parallel,
        ranges: &[DecayRange],
        params: &mut [f32],
        states: &mut [S],
        gradients: &[f32],
    ) {
        let [mut first, mut second] = self.checked_states(params.len(), states);
        assert_eq!(gradients.len(), params.len(), "a gradient for each parameter");
        let (mut params, mut gradients) = (params, gradients);
        let mut tasks = Vec::new();
        let mut start = 0;
        for DecayRange { range, decays } in ranges {
            assert_eq!(range.start, start, "the ranges follow each other");
            let step = if *decays { *self } else { self.without_decay() };
            while start < range.end {
                let len = TASK_ELEMENTS.min(range.end - start);
                tasks.push(Task {
                    step,
                    params: take_front(&mut params, len),
                    first: take_front(&mut first, len),
                    second: take_front(&mut second, len),
                    gradients: gradients.split_off(..len).expect("the ranges are in the slice"),
                });
                start += len;
            }
        }
        assert!(params.is_empty(), "the ranges cover the slice");
        for_each(parallel, tasks, |task| {
            update_slice(&task.step, task.params, task.first, task.second, task.gradients);
        });
    }

    /// Returns the states; a state that the rule does not have is empty.
    fn checked_states<'a, S: AsMut<[f32]>>(
        &self,
        len: usize,
        states: &'a mut [S],
    ) -> [&'a mut [f32]; 2] {
        assert_eq!(states.len(), self.states, "number of states of the optimizer");
        let mut states = states.iter_mut().map(AsMut::as_mut);
        let found = [states.next().unwrap_or_default(), states.next().unwrap_or_default()];
        let lens = [self.states.min(1) * len, self.states / 2 * len];
        assert_eq!(found.each_ref().map(|state| state.len()), lens, "a state for each parameter");
        found
    }
}

/// Part of a slice that one task updates.
struct Task<'a> {
    step: OptimizerStep,
    params: &'a mut [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
    gradients: &'a [f32],
}

/// Splits off the first `len` elements; from an empty slice, none.
#[expect(clippy::mut_mut, reason = "the remaining slice has the same lifetime")]
fn take_front<'a>(rest: &mut &'a mut [f32], len: usize) -> &'a mut [f32] {
    rest.split_off_mut(..len.min(rest.len())).expect("no more than there is")
}

versions! {
    /// Updates a slice by the rule of a step.
    fn update_slice(
        step: &OptimizerStep,
        params: &mut [f32],
        first: &mut [f32],
        second: &mut [f32],
        gradients: &[f32],
    ) {
        let mut scaled = [0.0; CHUNK];
        let chunks = params.chunks_mut(CHUNK).zip(gradients.chunks(CHUNK));
        match &step.rule {
            Rule::Adam(adam) => {
                let states = first.chunks_mut(CHUNK).zip(second.chunks_mut(CHUNK));
                for ((p, g), (m, v)) in chunks.zip(states) {
                    let g = scale(step, p, g, &mut scaled);
                    update_adam(adam, step.shrink, p, m, v, g);
                }
            }
            Rule::Sgd(sgd) => {
                let mut sums = first.chunks_mut(CHUNK);
                for (p, g) in chunks {
                    let g = scale(step, p, g, &mut scaled);
                    if let (Some(momentum), Some(b)) = (sgd.momentum, sums.next()) {
                        add_momentum(sgd, momentum, b, g);
                    }
                    for (p, g) in p.iter_mut().zip(g) {
                        *p -= sgd.rate * *g;
                    }
                }
            }
            Rule::Lion(lion) => {
                for ((p, g), m) in chunks.zip(first.chunks_mut(CHUNK)) {
                    let g = scale(step, p, g, &mut scaled);
                    update_lion(lion, step.shrink, p, m, g);
                }
            }
        }
    }
}

/// Multiplies gradients by the factor of the step, and adds the decay that is part of the gradient.
#[inline(always)]
#[expect(clippy::inline_always, reason = "must inherit the SIMD features of its caller")]
fn scale<'a>(
    step: &OptimizerStep,
    params: &[f32],
    gradients: &[f32],
    scaled: &'a mut [f32; CHUNK],
) -> &'a mut [f32] {
    let scaled = &mut scaled[..gradients.len()];
    for (scaled, g) in scaled.iter_mut().zip(gradients) {
        *scaled = *g * step.factor;
    }
    // A product with 0 would change the sign of a zero, and infinite parameters to NaN.
    if step.l2 != 0.0 {
        for (scaled, p) in scaled.iter_mut().zip(params) {
            *scaled += step.l2 * *p;
        }
    }
    scaled
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "must inherit the SIMD features of its caller")]
fn update_adam(
    adam: &AdamNumbers,
    shrink: f32,
    p: &mut [f32],
    m: &mut [f32],
    v: &mut [f32],
    g: &[f32],
) {
    // Torch interpolates from the nearer end.
    let weight = adam.one_minus_beta1;
    let from_gradient = 0.5 <= weight;
    let weight = if from_gradient { weight - 1.0 } else { weight };
    for (((p, m), v), &g) in p.iter_mut().zip(m).zip(v).zip(g) {
        *p *= shrink;
        *m = if from_gradient { g } else { *m } + weight * (g - *m);
        *v = *v * adam.beta2 + adam.one_minus_beta2 * g * g;
        let root = v.sqrt() / adam.correction2_root + adam.epsilon;
        *p -= adam.step_size * *m / root;
    }
}

/// Updates the sums `b`, and replaces the gradients by the directions of the step.
#[inline(always)]
#[expect(clippy::inline_always, reason = "must inherit the SIMD features of its caller")]
fn add_momentum(sgd: &SgdNumbers, momentum: f32, b: &mut [f32], g: &mut [f32]) {
    if sgd.is_first {
        b.copy_from_slice(g);
    } else {
        for (b, g) in b.iter_mut().zip(&*g) {
            *b = *b * momentum + sgd.one_minus_dampening * *g;
        }
    }
    if sgd.nesterov {
        for (g, b) in g.iter_mut().zip(b) {
            *g += momentum * *b;
        }
    } else {
        g.copy_from_slice(b);
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "must inherit the SIMD features of its caller")]
fn update_lion(lion: &LionNumbers, shrink: f32, p: &mut [f32], m: &mut [f32], g: &[f32]) {
    let ([beta1, beta2], [rest1, rest2]) = (lion.betas, lion.one_minus_betas);
    for ((p, m), &g) in p.iter_mut().zip(m).zip(g) {
        *p = *p * shrink - lion.rate * sign(*m * beta1 + rest1 * g);
        *m = *m * beta2 + rest2 * g;
    }
}

/// Sign as torch defines it: 0 for zeros and NaN.
#[inline(always)]
#[expect(clippy::inline_always, reason = "must inherit the SIMD features of its caller")]
fn sign(value: f32) -> f32 {
    if 0.0 < value {
        1.0
    } else if value < 0.0 {
        -1.0
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests;
