//! Softmax of the scores of attention, and its gradient, against the same in f64.

use crate::cuda::device::KernelArgument;
use crate::cuda::kernels::{ElementType, Kernel, KernelLaunch, KernelProgram};
use crate::runtime::data::random::RandomStream;
use crate::runtime::kernel_checks::case::{KernelCase, SEED, draw};
use crate::runtime::kernel_checks::runner::{CheckError, KernelRunner, close, same};

/// Factor of the scores in the exponent.
const SCALE: f64 = 0.75;

/// Rows of scores, or of probabilities: sequences, and tokens of each.
#[derive(Clone, Copy, Debug)]
pub struct SoftmaxCase {
    /// Sequences.
    pub batch: usize,
    /// Tokens of a sequence.
    pub length: usize,
    /// Type of the probabilities.
    pub element: ElementType,
}

impl SoftmaxCase {
    fn rows(self) -> usize {
        self.batch * self.length
    }

    fn stride(self) -> usize {
        self.length.next_multiple_of(self.element.pack() as usize)
    }

    fn len(self) -> usize {
        self.rows() * self.stride()
    }

    /// Numbers of all rows, with what no token sees.
    fn numbers(self, of: impl Fn(usize, usize, usize) -> f64) -> Vec<f64> {
        let (length, stride) = (self.length, self.stride());
        let number = |at: usize| of(at, at / stride % length, at % stride);
        (0..self.len()).map(number).collect()
    }

    /// Draws scores. Those that no token sees are larger, or no numbers.
    pub fn scores(self, random: &mut RandomStream) -> Vec<f64> {
        let seen = draw(random, ElementType::F32, self.len(), 8.0);
        let hidden = [1e4, f64::INFINITY, f64::NAN];
        self.numbers(|at, token, column| if column <= token { seen[at] } else { hidden[at % 3] })
    }

    fn case(self, kernel: Kernel, wide: &[f64]) -> KernelCase {
        let launch = KernelLaunch::warp_for_each_row(self.rows() as u32);
        KernelCase::new(KernelProgram::Softmax(self.element), kernel, launch)
            .elements(ElementType::F32, wide)
    }

    fn with_sizes(self, case: KernelCase) -> KernelCase {
        case.scalar(KernelArgument::F32(SCALE as f32)).ints([
            self.rows(),
            self.length,
            self.stride(),
        ])
    }

    /// Memory: scores, probabilities.
    pub fn forward(self, scores: &[f64]) -> KernelCase {
        let case = self.case(Kernel::CausalSoftmax, scores);
        self.with_sizes(case.unwritten(self.len() * self.element.bytes()))
    }

    /// Memory: gradients of the probabilities, probabilities.
    pub fn backward(self, gradients: &[f64], probabilities: &[f64]) -> KernelCase {
        let case = self.case(Kernel::CausalSoftmaxBackward, gradients);
        self.with_sizes(case.elements(self.element, probabilities))
    }

    fn expected_probabilities(self, scores: &[f64]) -> Vec<f64> {
        let stride = self.stride();
        let mass = |at: usize, token: usize, column: usize| -> f64 {
            let row = &scores[at - column..][..=token.min(stride - 1)];
            row.iter().map(|score| ((score - scores[at]) * SCALE).exp2()).sum()
        };
        self.numbers(
            |at, token, column| {
                if column <= token { 1.0 / mass(at, token, column) } else { 0.0 }
            },
        )
    }

    fn expected_gradients(self, gradients: &[f64], probabilities: &[f64]) -> Vec<f64> {
        self.numbers(|at, token, column| {
            if token < column {
                return 0.0;
            }
            let row = (at - column)..=(at - column + token);
            let products = gradients[row.clone()].iter().zip(&probabilities[row]);
            let delta: f64 = products.map(|(gradient, probability)| gradient * probability).sum();
            probabilities[at] * (gradients[at] - delta) * SCALE
        })
    }

    fn check(self, runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
        let Self { batch, length, element } = self;
        let mut random = RandomStream::new(&[SEED, length as u64]);
        let name = |what| format!("{what} of {batch} × {length} tokens");
        let scores = self.scores(&mut random);
        let found = self.forward(&scores).run(runner)?.elements(1, element);
        close(&name("softmax"), element, &found, &self.expected_probabilities(&scores))?;
        let gradients = self.scores(&mut random);
        let changed = self.backward(&gradients, &found).run(runner)?.elements(1, element);
        let expected = self.expected_gradients(&gradients, &found);
        // The gradient of a single score is 0: its probability is 1.
        if length == 1 {
            return same(&name("gradient"), changed.iter().all(|x| x.abs() < 1e-2));
        }
        close(&name("gradient"), element, &changed, &expected)
    }
}

/// Checks lengths below and above a pack, a warp, and the packs of a warp.
pub(super) fn check_softmax(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    for element in ElementType::ALL {
        for [batch, length] in [[3, 1], [2, 7], [2, 33], [1, 130], [1, 300]] {
            SoftmaxCase { batch, length, element }.check(runner)?;
        }
    }
    Ok(())
}
