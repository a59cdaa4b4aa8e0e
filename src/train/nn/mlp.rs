//! Multi-layer perceptron for classification: linear layers with biases, ReLU between them, softmax
//! cross entropy at the end.
//!
//! Activations have one row per *feature*, so that a weight matrix, its output and its gradient are
//! divided into the same rows, which threads can share.

use std::ops::Range;

use crate::runtime::engine::{BackwardPass, ForwardPass, Init, Model, ParameterTable, PassError};
use crate::train::ModelFloat;
use crate::train::nn::cpu::kernels;
use crate::train::nn::cpu::rounding::round_to;
use crate::train::nn::cpu::simd_matmul::{Matrix, MatrixMut, multiply};
use crate::train::nn::cpu::threads::Threads;

/// Number of features processed at a time.
const BLOCK: usize = 128;

/// Samples with their classes.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples<F> {
    /// Inputs, one row per sample.
    pub inputs: Vec<F>,
    /// Class of each sample.
    pub classes: Vec<u8>,
}

/// MLP classifier with its work space.
#[derive(Debug)]
pub struct Mlp<F> {
    table: ParameterTable,
    layers: Vec<Layer<F>>,
    threads: Threads,
    /// Mean loss of the last forward pass.
    loss: F,
}

/// Linear layer with its activation.
#[derive(Debug)]
struct Layer<F> {
    inputs: usize,
    outputs: usize,
    /// Ranges in the unit of the layer.
    weight: Range<usize>,
    bias: Range<usize>,
    activation: Activation,
    /// Output after the activation, one row per feature.
    y: Vec<F>,
    /// Gradient of the output before the activation.
    dy: Vec<F>,
}

/// Activation after a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activation {
    Relu,
    Identity,
}

impl<F: ModelFloat> Mlp<F> {
    /// Creates a model with these numbers of features, from the inputs to the classes.
    ///
    /// # Panics
    /// If there are fewer than two sizes.
    pub fn new(sizes: &[usize], threads: Threads) -> Self {
        assert!(2 <= sizes.len(), "a model has at least two sizes: inputs and classes");
        let mut table = ParameterTable::default();
        let last = sizes.len() - 2;
        let layer = |(i, size): (usize, &[usize])| {
            let after = if i < last { Activation::Relu } else { Activation::Identity };
            Layer::new(i, (size[0], size[1]), after, &mut table)
        };
        let layers = sizes.windows(2).enumerate().map(layer).collect();
        Self { table, layers, threads, loss: F::ZERO }
    }
}

/// Every layer is a unit and a pass.
impl<F: ModelFloat> Model<F> for Mlp<F> {
    type Batch = Samples<F>;

    fn parameters(&self) -> &ParameterTable {
        &self.table
    }

    fn forward(&mut self, pass: &ForwardPass<'_, F>, batch: &Samples<F>) -> Result<(), PassError> {
        let params = pass.unit(pass.index)?;
        let (before, rest) = self.layers.split_at_mut(pass.index);
        let x = input(before, batch);
        rest[0].forward(self.threads, params, x, batch.classes.len());
        round_to(&mut rest[0].y, pass.compute);
        if rest.len() == 1 {
            self.loss = rest[0].score(&batch.classes, pass.loss_scale);
            round_to(&mut rest[0].dy, pass.compute);
        }
        Ok(())
    }

    fn loss(&self) -> F {
        self.loss
    }

    fn backward(
        &mut self,
        pass: &mut BackwardPass<'_, F>,
        batch: &Samples<F>,
    ) -> Result<(), PassError> {
        let params = pass.unit(pass.index())?;
        let (before, rest) = self.layers.split_at_mut(pass.index());
        let gradient = pass.gradient(pass.index())?;
        rest[0].weight_backward(self.threads, input(before, batch), gradient);
        if let Some(previous) = before.last_mut() {
            rest[0].input_backward(self.threads, params, previous);
            round_to(&mut previous.dy, pass.forward.compute);
        }
        Ok(())
    }
}

/// Input of a layer, of shape features × samples: the output of the previous layer, or the batch.
fn input<'a, F: ModelFloat>(before: &'a [Layer<F>], batch: &'a Samples<F>) -> Matrix<'a, F> {
    let samples = batch.classes.len();
    match before.last() {
        Some(layer) => Matrix::new(&layer.y, layer.outputs, samples),
        None => Matrix::new(&batch.inputs, samples, batch.inputs.len() / samples).t(),
    }
}

impl<F: ModelFloat> Layer<F> {
    fn new(
        i: usize,
        (inputs, outputs): (usize, usize),
        after: Activation,
        table: &mut ParameterTable,
    ) -> Self {
        let init = Init::Uniform { bound: 1.0 / (inputs as f64).sqrt() };
        table.unit(format!("layer {i}"));
        let weight = table.push(format!("layers.{i}.weight"), &[outputs, inputs], init);
        let bias = table.push(format!("layers.{i}.bias"), &[outputs], init);
        Self { inputs, outputs, weight, bias, activation: after, y: Vec::new(), dy: Vec::new() }
    }

    /// Forward pass: `y = activation(weight · x + bias)`.
    fn forward(&mut self, threads: Threads, params: &[F], x: Matrix<'_, F>, samples: usize) {
        self.y.resize(self.outputs * samples, F::ZERO);
        self.dy.resize(self.outputs * samples, F::ZERO);
        let (inputs, after) = (self.inputs, self.activation);
        let weights = params[self.weight.clone()].chunks(BLOCK * inputs);
        let blocks = self.y.chunks_mut(BLOCK * samples).zip(weights);
        threads.run(blocks.zip(params[self.bias.clone()].chunks(BLOCK)), |((y, weight), bias)| {
            let rows = bias.len();
            multiply(MatrixMut::new(y, rows, samples), Matrix::new(weight, rows, inputs), x);
            for (row, &bias) in y.chunks_exact_mut(samples).zip(bias) {
                match after {
                    Activation::Relu => kernels::bias_relu(row, bias),
                    Activation::Identity => kernels::bias(row, bias),
                }
            }
        });
    }

    /// Computes the mean loss of the samples by the logits of this layer, and `scale` times the gradient of
    /// its output.
    fn score(&mut self, classes: &[u8], scale: F) -> F {
        let samples = classes.len();
        let mean = F::ONE / F::from_f64(samples as f64);
        let share = scale / F::from_f64(samples as f64);
        let mut losses = Vec::with_capacity(samples);
        for (sample, &class) in classes.iter().enumerate() {
            let mut scores: Vec<F> = self.y.iter().skip(sample).step_by(samples).copied().collect();
            losses.push(kernels::cross_entropy(&mut scores, usize::from(class), share));
            let gradient = self.dy.iter_mut().skip(sample).step_by(samples);
            gradient.zip(scores).for_each(|(to, from)| *to = from);
        }
        kernels::total(&losses) * mean
    }

    /// Computes the gradient of weight and bias, which are adjacent in `gradient`.
    fn weight_backward(&self, threads: Threads, x: Matrix<'_, F>, gradient: &mut [F]) {
        let (weight, bias) = gradient.split_at_mut(self.weight.len());
        let (inputs, samples) = (self.inputs, self.dy.len() / self.outputs);
        let blocks = weight.chunks_mut(BLOCK * inputs).zip(bias.chunks_mut(BLOCK));
        threads.run(blocks.zip(self.dy.chunks(BLOCK * samples)), |((weight, bias), dy)| {
            let rows = bias.len();
            let weight = MatrixMut::new(weight, rows, inputs);
            multiply(weight, Matrix::new(dy, rows, samples), x.t());
            for (bias, dy) in bias.iter_mut().zip(dy.chunks_exact(samples)) {
                *bias = kernels::total(dy);
            }
        });
    }

    /// Computes the gradient of the previous layer's output before its activation.
    fn input_backward(&self, threads: Threads, params: &[F], previous: &mut Self) {
        let (inputs, outputs) = (self.inputs, self.outputs);
        let samples = self.dy.len() / outputs;
        let weight = &params[self.weight.clone()];
        let dy = Matrix::new(&self.dy, outputs, samples);
        let blocks =
            previous.dy.chunks_mut(BLOCK * samples).zip(previous.y.chunks(BLOCK * samples));
        threads.run(blocks.enumerate(), |(i, (dx, x))| {
            let rows = dx.len() / samples;
            let columns = Matrix::strided(&weight[i * BLOCK..], outputs, rows, inputs);
            multiply(MatrixMut::new(dx, rows, samples), columns.t(), dy);
            kernels::relu_backward(dx, x);
        });
    }
}
