//! [`ProductAttention`]: attention by matrix products, with a softmax between them.

use std::f32::consts::LOG2_E;

use crate::cuda::device::{DeviceError, DeviceMatrix, KernelArgument, Matmul, MatmulBatch};
use crate::cuda::kernels::{ElementType, Kernel, KernelLaunch, KernelProgram};
use crate::train::nn::device::blocks::ShapeBlocks;
use crate::train::nn::device::operations::{Operations, address};
use crate::train::nn::device::rows::DeviceRows;

/// Sequences of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SequenceShape {
    pub(super) batch: u32,
    /// Tokens of a sequence.
    pub(super) length: u32,
    /// Attention heads of a token.
    pub(super) heads: u32,
}

/// Shape of a layer, and memory for one head of all sequences, which all layers use. The backward pass computes the
/// probabilities again.
pub(super) struct ProductAttention {
    shape: SequenceShape,
    /// Features of a head.
    features: u32,
    /// Scores, f32; then the gradients of the probabilities. A row has the scores of a token, and a padding.
    scores: DeviceMatrix,
    /// Probabilities; then the gradients of the scores.
    probabilities: DeviceMatrix,
}

/// A matrix of every sequence.
#[derive(Clone, Copy)]
struct Sequenced {
    /// That of the first sequence.
    matrix: DeviceMatrix,
    /// Elements to that of the next one.
    stride: u64,
}

impl Sequenced {
    /// Features of a head: those from `column` on, in rows of all tokens.
    fn of_head(shape: SequenceShape, rows: &DeviceRows, column: u32, features: u32) -> Self {
        let address = rows.address().offset(column as usize * rows.element.bytes());
        let matrix = DeviceMatrix::new(address, shape.length, features, rows.element);
        let matrix = matrix.with_stride(rows.stride);
        Self { matrix, stride: u64::from(shape.length) * u64::from(rows.stride) }
    }

    fn of_tokens(matrix: DeviceMatrix) -> Self {
        Self { matrix, stride: u64::from(matrix.rows) * u64::from(matrix.stride) }
    }
}

impl ProductAttention {
    /// Takes the memory for sequences.
    pub(super) fn new(
        blocks: &mut ShapeBlocks<'_>,
        shape: SequenceShape,
        features: u32,
    ) -> Result<Self, DeviceError> {
        let length = shape.length as usize;
        let probabilities = blocks.rows(length)?;
        let count = probabilities.len() as usize;
        let matrix = |at, element| {
            let matrix = DeviceMatrix::new(at, shape.length, shape.length, element);
            matrix.with_stride(probabilities.stride)
        };
        Ok(Self {
            shape,
            features,
            scores: matrix(blocks.numbers(count)?, ElementType::F32),
            probabilities: matrix(probabilities.address(), probabilities.element),
        })
    }

    /// 1 / √features.
    fn root(&self) -> f32 {
        1.0 / (self.features as f32).sqrt()
    }

    /// Part 0, 1 or 2 of a head: queries, keys or values, or their gradients.
    fn part(&self, qkv: &DeviceRows, head: u32, part: u32) -> Sequenced {
        let column = (part * self.shape.heads + head) * self.features;
        Sequenced::of_head(self.shape, qkv, column, self.features)
    }

    /// The output of a head, or its gradient.
    fn output(&self, out: &DeviceRows, head: u32) -> Sequenced {
        Sequenced::of_head(self.shape, out, head * self.features, self.features)
    }

    /// The product of the matrices of every sequence.
    fn product(&self, [a, b, c]: [Sequenced; 3]) -> Matmul {
        let strides = [a, b, c].map(|of| of.stride);
        let batch = MatmulBatch { count: self.shape.batch, strides };
        Matmul::new(a.matrix, b.matrix, c.matrix).repeat(batch)
    }

    /// Launches a kernel on the scores and the probabilities of a head.
    fn launch(&self, on: Operations<'_>, kernel: Kernel, scale: f32) -> Result<(), DeviceError> {
        let SequenceShape { batch, length, .. } = self.shape;
        let (rows, program) = (batch * length, KernelProgram::Softmax(self.probabilities.element));
        let sizes = [rows, length, self.probabilities.stride].map(KernelArgument::int);
        let memory = [self.scores.address, self.probabilities.address].map(address);
        let arguments = [&memory[..], &[KernelArgument::F32(scale)], &sizes].concat();
        on.launch((program, kernel), KernelLaunch::warp_for_each_row(rows), &arguments)
    }

    /// Computes the probabilities of a head: softmax(Q · Kᵀ / √features).
    fn attend(&self, on: Operations<'_>, qkv: &DeviceRows, head: u32) -> Result<(), DeviceError> {
        let [queries, keys] = [0, 1].map(|part| self.part(qkv, head, part));
        let scores = Sequenced::of_tokens(self.scores);
        let product = self.product([queries, keys, scores]).transpose_b();
        on.device.matmul(on.stream, &product)?;
        self.launch(on, Kernel::CausalSoftmax, LOG2_E * self.root())
    }

    /// Computes the output from queries, keys and values.
    pub(super) fn forward(
        &self,
        on: Operations<'_>,
        qkv: &DeviceRows,
        out: &DeviceRows,
    ) -> Result<(), DeviceError> {
        let probabilities = Sequenced::of_tokens(self.probabilities);
        for head in 0..self.shape.heads {
            self.attend(on, qkv, head)?;
            let operands = [probabilities, self.part(qkv, head, 2), self.output(out, head)];
            on.device.matmul(on.stream, &self.product(operands))?;
        }
        Ok(())
    }

    /// Computes the gradients of queries, keys and values from that of the output.
    pub(super) fn backward(
        &self,
        on: Operations<'_>,
        qkv: &DeviceRows,
        dout: &DeviceRows,
        dqkv: &DeviceRows,
    ) -> Result<(), DeviceError> {
        let multiply = |product: Matmul| on.device.matmul(on.stream, &product);
        let wide = Sequenced::of_tokens(self.scores);
        // Probabilities, then the gradients of the scores.
        let narrow = Sequenced::of_tokens(self.probabilities);
        for head in 0..self.shape.heads {
            let [queries, keys, values] = [0, 1, 2].map(|part| self.part(qkv, head, part));
            let [dqueries, dkeys, dvalues] = [0, 1, 2].map(|part| self.part(dqkv, head, part));
            let dout = self.output(dout, head);
            self.attend(on, qkv, head)?;
            multiply(self.product([narrow, dout, dvalues]).transpose_a())?;
            multiply(self.product([dout, values, wide]).transpose_b())?;
            self.launch(on, Kernel::CausalSoftmaxBackward, self.root())?;
            multiply(self.product([narrow, keys, dqueries]))?;
            multiply(self.product([narrow, queries, dkeys]).transpose_a())?;
        }
        Ok(())
    }
}
