//! Small GPT: token and position embeddings, pre-norm blocks of causal attention and a GELU MLP,
//! a final norm, and a head that shares the token embedding. No biases, no dropout.
//!
//! A micro-batch is divided into tiles of whole sequences. The forward pass runs a tile through the
//! whole model; the backward pass runs all tiles through one block, sums its weight gradients,
//! reports them, and continues with the previous block.

use crate::train::ModelFloat;
use crate::train::nn::cpu::kernels;
use crate::train::nn::cpu::linear::{WeightGradient, weight_gradients};
use crate::train::nn::cpu::threads::Threads;
use crate::train::nn::gpt::batch::Sequences;
use crate::train::nn::gpt::ranges::Ranges;
use crate::train::nn::gpt::tile::{Context, Tile, TileShape};
use crate::train::nn::model::{GradientSink, Model, ParameterTable};

use crate::train::nn::gpt::config::GptConfig;

/// GPT model with its work space.
#[derive(Debug)]
pub struct Gpt<F> {
    config: GptConfig,
    table: ParameterTable,
    ranges: Ranges,
    threads: Threads,
    /// Parameters of the blocks with every matrix transposed. The forward pass reads weights by inputs, the
    /// backward pass by outputs; transposing once is faster than packing again for each tile.
    transposed: Vec<F>,
    tiles: Vec<Tile<F>>,
}

impl<F: ModelFloat> Gpt<F> {
    /// Creates a model of this configuration. Work space is allocated for the first batch.
    pub fn new(config: GptConfig, threads: Threads) -> Self {
        let (table, ranges) = config.parameters();
        let transposed = vec![F::ZERO; table.len()];
        Self { config, table, ranges, threads, transposed, tiles: Vec::new() }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

    /// Generates `count` tokens after `tokens`; `draw` chooses each of them from the scores of all tokens.
    ///
    /// # Panics
    /// If `tokens` is empty.
    pub fn generate(
        &mut self,
        params: &[F],
        tokens: &mut Vec<u8>,
        count: usize,
        draw: &mut dyn FnMut(&mut [F]) -> u8,
    ) {
        self.transpose_weights(params);
        for _ in 0..count {
            let context = &tokens[tokens.len().saturating_sub(self.config.block)..];
            self.prepare(context.len(), 1);
            let model = Context::new(&self.config, &self.ranges, params, &self.transposed);
            let tile = &mut self.tiles[0];
            tile.forward(&model, context);
            let last = (context.len() - 1) * self.config.vocabulary;
            tokens.push(draw(&mut tile.logits_mut()[last..]));
        }
    }

    /// Number of elements of the work space that the last batch allocated.
    #[cfg(test)]
    pub(crate) fn work_len(&self) -> usize {
        self.tiles.iter().map(Tile::len).sum()
    }

    /// Allocates the tiles for `sequences` sequences of `length` tokens, unless they exist.
    fn prepare(&mut self, length: usize, sequences: usize) {
        assert!(0 < length && length <= self.config.block, "{length} tokens in a sequence");
        let height = tile_height(length, sequences);
        let counts = (0..sequences).step_by(height).map(|first| height.min(sequences - first));
        let shapes: Vec<_> = counts.map(|sequences| TileShape { sequences, length }).collect();
        if !self.tiles.iter().map(Tile::shape).eq(shapes.iter().copied()) {
            self.tiles = shapes.iter().map(|&shape| Tile::new(&self.config, shape)).collect();
        }
    }

    /// Transposes the matrices of the blocks.
    fn transpose_weights(&mut self, params: &[F]) {
        let mut matrices = Vec::new();
        let mut rest = &mut self.transposed[..];
        for parameter in &self.table {
            let (transposed, after) = rest.split_at_mut(parameter.range.len());
            rest = after;
            if let &[_, cols] = &parameter.shape[..] {
                matrices.push((&params[parameter.range.clone()], cols, transposed));
            }
        }
        self.threads.run(matrices, |(matrix, cols, transposed)| {
            kernels::transpose(matrix, cols, transposed);
        });
    }

    fn forward(&mut self, params: &[F], batch: &Sequences) -> F {
        assert_eq!(batch.inputs.len(), batch.targets.len());
        self.prepare(batch.length, batch.inputs.len() / batch.length);
        self.transpose_weights(params);
        let model = Context::new(&self.config, &self.ranges, params, &self.transposed);
        let tokens = batch.inputs.len();
        let share = F::ONE / F::from_f64(tokens as f64);
        let tiles = with_tokens(&mut self.tiles, batch);
        self.threads.run(tiles, |(tile, inputs, targets)| {
            tile.forward(&model, inputs);
            tile.score(targets, share);
        });
        let sums: Vec<F> = self.tiles.iter().map(Tile::loss_sum).collect();
        kernels::total(&sums) * share
    }

    /// Backward pass of the head: computes its part of the token embedding's gradient, the gradient
    /// of the final norm, and that of the last block's output.
    fn head_backward(&mut self, params: &[F], gradients: &mut dyn GradientSink<F>) {
        let model = Context::new(&self.config, &self.ranges, params, &self.transposed);
        self.threads.run(&mut self.tiles, |tile| tile.head_backward(&model));
        let weight = gradients.range(self.ranges.token_embedding.clone());
        let tiles = self.tiles.iter().map(Tile::head_gradient).collect();
        let head = WeightGradient { weight, inputs: self.config.width, tiles };
        weight_gradients(self.threads, &mut [head]);
        let norm = self.ranges.final_norm.clone();
        sum_tiles(gradients.range(norm.clone()), self.tiles.iter().map(Tile::final_norm_gradient));
        gradients.ready(norm);
    }

    fn block_backward(&mut self, params: &[F], layer: usize, gradients: &mut dyn GradientSink<F>) {
        let model = Context::new(&self.config, &self.ranges, params, &self.transposed);
        self.threads.run(&mut self.tiles, |tile| tile.block_backward(&model, layer));
        let ranges = &self.ranges.blocks[layer];
        let weights = ranges.split_mut(gradients.range(ranges.whole()));
        let width = self.config.width;
        let gradient = |weight, inputs, pick: Operands<F>| WeightGradient {
            weight,
            inputs,
            tiles: self.tiles.iter().map(|tile| pick(tile, layer)).collect(),
        };
        weight_gradients(
            self.threads,
            &mut [
                gradient(weights.qkv, width, Tile::qkv_gradient),
                gradient(weights.proj, width, Tile::proj_gradient),
                gradient(weights.up, width, Tile::up_gradient),
                gradient(weights.down, 4 * width, Tile::down_gradient),
            ],
        );
        sum_tiles(weights.attention_norm, self.tiles.iter().map(Tile::attention_norm_gradient));
        sum_tiles(weights.mlp_norm, self.tiles.iter().map(Tile::mlp_norm_gradient));
        gradients.ready(ranges.whole());
    }

    /// Adds the gradient of the embeddings, token by token in the order of the batch.
    fn embedding_backward(&mut self, batch: &Sequences, gradients: &mut dyn GradientSink<F>) {
        let width = self.config.width;
        let embeddings = self.ranges.token_embedding.start..self.ranges.position_embedding.end;
        let flat = gradients.range(embeddings.clone());
        let (token, position) = flat.split_at_mut(self.ranges.token_embedding.len());
        position.fill(F::ZERO);
        let rows = self.tiles.iter().flat_map(|tile| tile.input_gradient().chunks_exact(width));
        for (i, (row, &input)) in rows.zip(&batch.inputs).enumerate() {
            kernels::add(&mut token[usize::from(input) * width..][..width], row);
            kernels::add(&mut position[i % batch.length * width..][..width], row);
        }
        gradients.ready(embeddings);
    }
}

impl<F: ModelFloat> Model<F> for Gpt<F> {
    type Batch = Sequences;

    fn parameters(&self) -> &ParameterTable {
        &self.table
    }

    fn loss(&mut self, params: &[F], batch: &Sequences) -> F {
        self.forward(params, batch)
    }

    fn backward(
        &mut self,
        params: &[F],
        batch: &Sequences,
        gradients: &mut dyn GradientSink<F>,
    ) -> F {
        let loss = self.forward(params, batch);
        self.head_backward(params, gradients);
        for layer in (0..self.config.layers).rev() {
            self.block_backward(params, layer, gradients);
        }
        self.embedding_backward(batch, gradients);
        loss
    }
}

/// Operands of the weight gradient of a linear layer, for one tile and block: gradient of the
/// outputs, and inputs.
type Operands<F> = fn(&Tile<F>, usize) -> (&[F], &[F]);

/// Number of sequences in a tile: enough rows for an efficient matrix product, few enough for the
/// cache of a core, and at least two tiles if there are two sequences.
pub(crate) fn tile_height(length: usize, sequences: usize) -> usize {
    const ROWS: usize = 192;
    (ROWS / length).clamp(1, sequences.div_ceil(2).max(1))
}

/// Pairs every tile with its part of the batch.
fn with_tokens<'a, F: ModelFloat>(
    tiles: &'a mut [Tile<F>],
    batch: &'a Sequences,
) -> impl Iterator<Item = (&'a mut Tile<F>, &'a [u8], &'a [u8])> {
    let mut begin = 0;
    tiles.iter_mut().map(move |tile| {
        let tokens = begin..begin + tile.shape().tokens();
        begin = tokens.end;
        (tile, &batch.inputs[tokens.clone()], &batch.targets[tokens])
    })
}

/// Computes `sum = Σ parts`, in their order.
fn sum_tiles<'a, F: ModelFloat>(sum: &mut [F], parts: impl Iterator<Item = &'a [F]>) {
    sum.fill(F::ZERO);
    parts.for_each(|part| kernels::add(sum, part));
}
