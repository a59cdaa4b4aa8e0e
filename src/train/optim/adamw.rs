//! AdamW with decoupled weight decay, and clipping by the global norm. The formulas are torch's,
//! element by element, so that the number of threads and the SIMD width change no bit.

use std::ops::Range;

use crate::train::nn::cpu::kernels;
use crate::train::nn::cpu::math::ModelFloat;
use crate::train::nn::cpu::simd_versions::versions;
use crate::train::nn::cpu::threads::Threads;
use crate::train::nn::model::ParameterTable;

/// Number of elements that a thread processes at a time. The norm is summed over these blocks in
/// order.
const BLOCK: usize = 16 * 1024;
/// Value that torch adds to a norm before it divides by it.
const NORM_EPSILON: f64 = 1e-6;
/// Value that torch adds to the root of the second moment.
const ROOT_EPSILON: f64 = 1e-8;

/// Hyperparameters of [`AdamW`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWOptions {
    /// Decay of the first moment, the running mean of the gradients.
    pub beta1: f64,
    /// Decay of the second moment, the running mean of their squares.
    pub beta2: f64,
    /// Weight decay of matrices and embeddings; a step multiplies them by `1 - rate · weight_decay`.
    pub weight_decay: f64,
}

/// AdamW optimizer: two moments for each parameter, and the number of steps taken.
#[derive(Clone, Debug)]
pub struct AdamW<F> {
    options: AdamWOptions,
    threads: Threads,
    blocks: Vec<Block>,
    moments: Moments<F>,
    steps: u64,
}

/// First and second moments of the gradients, as flat buffers of the length of the parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments<F> {
    /// Running mean of the gradient.
    pub first: Vec<F>,
    /// Running mean of its square.
    pub second: Vec<F>,
}

/// Range of elements of one parameter.
#[derive(Clone, Debug)]
struct Block {
    range: Range<usize>,
    decays: bool,
}

/// The constants of one step.
#[derive(Clone, Copy, Debug)]
struct StepConstants<F> {
    clip: F,
    decay_factor: F,
    one_minus_beta1: F,
    beta2: F,
    one_minus_beta2: F,
    bias_correction2_sqrt: F,
    epsilon: F,
    step_size: F,
}

/// Memory of a block that a step reads and changes.
struct Work<'a, F> {
    params: &'a mut [F],
    first: &'a mut [F],
    second: &'a mut [F],
    gradients: &'a [F],
    decays: bool,
}

impl<F: ModelFloat> AdamW<F> {
    /// Creates an optimizer before its first step.
    pub fn new(table: &ParameterTable, options: AdamWOptions, threads: Threads) -> Self {
        let moments =
            Moments { first: vec![F::ZERO; table.len()], second: vec![F::ZERO; table.len()] };
        Self::resume(table, options, threads, moments, 0)
    }

    /// Creates an optimizer that has taken `steps` steps.
    ///
    /// # Panics
    /// If the moments are not as long as the parameters.
    pub fn resume(
        table: &ParameterTable,
        options: AdamWOptions,
        threads: Threads,
        moments: Moments<F>,
        steps: u64,
    ) -> Self {
        assert!(moments.first.len() == table.len() && moments.second.len() == table.len());
        let blocks = table.iter().flat_map(|parameter| {
            let (range, decays) = (parameter.range.clone(), parameter.decays());
            range.clone().step_by(BLOCK).map(move |begin| {
                let range = begin..range.end.min(begin + BLOCK);
                Block { range, decays }
            })
        });
        Self { options, threads, blocks: blocks.collect(), moments, steps }
    }

    /// Returns the moments.
    pub fn moments(&self) -> &Moments<F> {
        &self.moments
    }

    /// Returns the number of steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Updates the parameters with `clip ·` the gradients.
    pub fn step(&mut self, params: &mut [F], gradients: &[F], rate: f64, clip: F) {
        self.steps += 1;
        let step = StepConstants::new(&self.options, self.steps, rate, clip);
        let decayed = StepConstants {
            decay_factor: F::from_f64(1.0 - rate * self.options.weight_decay),
            ..step
        };
        let work = split_blocks(&self.blocks, params, &mut self.moments, gradients);
        self.threads.run(work, |work| {
            let step = if work.decays { &decayed } else { &step };
            update(work.params, work.first, work.second, work.gradients, step);
        });
    }
}

impl<F: ModelFloat> StepConstants<F> {
    fn new(options: &AdamWOptions, count: u64, rate: f64, clip: F) -> Self {
        let count = count.min(i32::MAX as u64) as i32;
        let correction1 = 1.0 - options.beta1.powi(count);
        let correction2 = 1.0 - options.beta2.powi(count);
        Self {
            clip,
            decay_factor: F::ONE,
            one_minus_beta1: F::from_f64(1.0 - options.beta1),
            beta2: F::from_f64(options.beta2),
            one_minus_beta2: F::from_f64(1.0 - options.beta2),
            bias_correction2_sqrt: F::from_f64(correction2.sqrt()),
            epsilon: F::from_f64(ROOT_EPSILON),
            step_size: F::from_f64(rate / correction1),
        }
    }
}

/// Divides the buffers into blocks, in order.
fn split_blocks<'a, F>(
    blocks: &'a [Block],
    mut params: &'a mut [F],
    moments: &'a mut Moments<F>,
    gradients: &'a [F],
) -> impl Iterator<Item = Work<'a, F>> {
    let (mut first, mut second) = (&mut moments.first[..], &mut moments.second[..]);
    blocks.iter().map(move |block| Work {
        params: split_front(&mut params, block.range.len()),
        first: split_front(&mut first, block.range.len()),
        second: split_front(&mut second, block.range.len()),
        gradients: &gradients[block.range.clone()],
        decays: block.decays,
    })
}

/// Splits off the first `len` elements.
#[expect(clippy::mut_mut, reason = "the remaining slice has the same lifetime")]
fn split_front<'a, F>(rest: &mut &'a mut [F], len: usize) -> &'a mut [F] {
    rest.split_off_mut(..len).expect("blocks cover the buffer and no more")
}

versions! {
    /// Performs one step on a range of elements.
    fn update<F>(params: &mut [F], first: &mut [F], second: &mut [F], gradients: &[F], step: &StepConstants<F>) {
        let elements = params.iter_mut().zip(first).zip(second).zip(gradients);
        for (((p, m), v), &g) in elements {
            let g = g * step.clip;
            *p *= step.decay_factor;
            *m += step.one_minus_beta1 * (g - *m);
            *v = *v * step.beta2 + step.one_minus_beta2 * g * g;
            let root = v.sqrt() / step.bias_correction2_sqrt + step.epsilon;
            *p -= step.step_size * *m / root;
        }
    }
}

/// Returns the norm of all gradients together, summed over fixed blocks.
pub fn gradient_norm<F: ModelFloat>(threads: Threads, gradients: &[F]) -> f64 {
    let mut sums = vec![0.0; gradients.len().div_ceil(BLOCK)];
    threads.run(sums.iter_mut().zip(gradients.chunks(BLOCK)), |(sum, block)| {
        *sum = kernels::sum_of_squares(block);
    });
    sums.iter().sum::<f64>().sqrt()
}

/// Returns the factor that scales gradients of this norm down to at most `norm_max`.
pub fn clip_factor<F: ModelFloat>(norm: f64, norm_max: f64) -> F {
    F::from_f64((norm_max / (norm + NORM_EPSILON)).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::cpu::simd::tests::at_every_level;
    use crate::train::nn::model::Init;
    use std::num::NonZeroUsize;

    const OPTIONS: AdamWOptions = AdamWOptions { beta1: 0.9, beta2: 0.99, weight_decay: 0.1 };

    fn table(sizes: [usize; 2]) -> ParameterTable {
        let mut table = ParameterTable::default();
        table.push("matrix", &[2, sizes[0]], Init::Normal { std: 1.0 });
        table.push("norm", &[sizes[1]], Init::Constant(1.0));
        table
    }

    /// The first step moves every parameter by the learning rate against its gradient's sign, after
    /// the decay of those that decay.
    #[test]
    fn adamw_first_step_matches_the_formula() {
        let mut params = [1.0, -2.0, 0.5];
        AdamW::<f64>::new(&table([1, 1]), OPTIONS, Threads::ONE).step(
            &mut params,
            &[0.3, -0.1, 2.0],
            0.01,
            1.0,
        );
        let expected = [1.0 * 0.999 - 0.01, -2.0 * 0.999 + 0.01, 0.5 - 0.01];
        for (found, expected) in params.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-8, "{found} instead of {expected}");
        }
    }

    #[test]
    fn adamw_gives_the_same_bits_with_any_threads() {
        let table = table([20_000, 1000]);
        let gradients: Vec<f32> = (0..table.len()).map(|i| (i % 97) as f32 - 48.0).collect();
        let run = |count| {
            let threads = Threads::new(NonZeroUsize::new(count).expect("at least one"));
            let mut params: Vec<f32> = table.init(1);
            let mut optimizer = AdamW::new(&table, OPTIONS, threads);
            for _ in 0..3 {
                let clip = clip_factor(gradient_norm(threads, &gradients), 1.0);
                optimizer.step(&mut params, &gradients, 1e-3, clip);
            }
            params.iter().map(|p| p.to_bits()).collect::<Vec<_>>()
        };
        assert!((2..5).all(|count| run(count) == run(1)));
    }

    #[test]
    fn adamw_gives_the_same_bits_on_every_instruction_set() {
        let table = table([500, 333]);
        let digests = at_every_level(|| {
            let mut params: Vec<f32> = table.init(1);
            let mut optimizer = AdamW::new(&table, OPTIONS, Threads::ONE);
            for step in 0..5 {
                let gradients =
                    params.iter().map(|p| p * (step - 2) as f32 + 0.1).collect::<Vec<_>>();
                optimizer.step(&mut params, &gradients, 1e-3, 0.7);
            }
            params.iter().map(|p| p.to_bits()).collect::<Vec<_>>()
        });
        assert!(digests.iter().all(|bits| *bits == digests[0]));
    }

    #[test]
    fn clipping_never_lengthens_the_gradient() {
        assert_eq!(clip_factor::<f64>(0.5, 1.0).to_bits(), 1.0_f64.to_bits());
        assert!((clip_factor::<f64>(4.0, 1.0) - 0.25).abs() < 1e-6);
    }
}
