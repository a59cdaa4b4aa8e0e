//! Small GPT: token and position embeddings, pre-norm blocks of causal attention and a GELU MLP,
//! a final norm, and a head that shares the token embedding. No dropout;
//! [`GptArchitecture`](crate::train::GptArchitecture) says whether layers have biases.
//!
//! A micro-batch is divided into tiles of whole sequences. A pass runs all tiles through one unit of the
//! model: the embeddings, a block, or the head. The backward pass of a unit sums its weight gradients over
//! the tiles.

use crate::runtime::engine::{
    BackwardPass, ForwardPass, Model, ModelPass, ParameterTable, PassError, RecomputeSegment,
};
use crate::train::ModelFloat;
use crate::train::nn::cpu::kernels;
use crate::train::nn::cpu::linear::{WeightGradient, weight_gradients};
use crate::train::nn::cpu::threads::Threads;
use crate::train::nn::gpt::batch::Sequences;
use crate::train::nn::gpt::config::GptConfig;
use crate::train::nn::gpt::places::{BlockBuffers, BlockPlace, block_places, kept_places};
use crate::train::nn::gpt::ranges::{LayerParts, Ranges};
use crate::train::nn::gpt::tile::{BiasGradients, BlockWeights, Tile, TileShape};

/// Unit of the embeddings. The blocks follow, then the unit of the head.
const EMBEDDING: usize = 0;

/// GPT model with its work space.
#[derive(Debug)]
pub struct Gpt<F> {
    config: GptConfig,
    table: ParameterTable,
    ranges: Ranges,
    threads: Threads,
    /// Parameters of a block with every matrix transposed. The forward pass reads weights by inputs, the
    /// backward pass by outputs; transposing once is faster than packing again for each tile.
    transposed: Vec<F>,
    /// Activations of every block.
    places: Vec<BlockPlace>,
    tiles: Vec<Tile<F>>,
}

/// Pass of the model.
enum GptPass {
    Embedding,
    Block(usize),
    Head,
}

impl<F: ModelFloat> Gpt<F> {
    /// Creates a model of this configuration. Work space is allocated for the first batch.
    pub fn new(config: GptConfig, threads: Threads) -> Self {
        let (table, ranges) = config.parameters();
        let places = kept_places(config.layers);
        Self { config, table, ranges, threads, transposed: Vec::new(), places, tiles: Vec::new() }
    }

    /// Returns the configuration.
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

    /// Scores of all tokens as the one after the last input of the last forward pass, which had one
    /// sequence.
    pub fn next_token_scores(&mut self) -> &mut [F] {
        let vocabulary = self.config.vocabulary;
        let logits = self.tiles[0].logits_mut();
        let last = logits.len() - vocabulary;
        &mut logits[last..]
    }

    /// Number of elements of the work space that the last batch allocated.
    #[cfg(test)]
    pub(crate) fn work_len(&self) -> usize {
        self.tiles.iter().map(Tile::len).sum()
    }

    fn pass(&self, index: usize) -> GptPass {
        match index.checked_sub(1) {
            None => GptPass::Embedding,
            Some(layer) if layer < self.config.layers => GptPass::Block(layer),
            Some(_) => GptPass::Head,
        }
    }

    fn head_unit(&self) -> usize {
        self.config.layers + 1
    }

    /// The final norm, from the elements of the unit of the head.
    fn final_norm<'a>(&self, unit: &'a [F]) -> LayerParts<&'a [F]> {
        let (weight, bias) = unit.split_at(self.config.width);
        LayerParts { weight, bias: self.config.architecture.has_biases().then_some(bias) }
    }

    /// Allocates the tiles for `sequences` sequences of `length` tokens, unless they exist.
    fn prepare(&mut self, length: usize, sequences: usize) {
        assert!(0 < length && length <= self.config.block, "{length} tokens in a sequence");
        let height = tile_height(length, sequences);
        let counts = (0..sequences).step_by(height).map(|first| height.min(sequences - first));
        let shapes: Vec<_> = counts.map(|sequences| TileShape { sequences, length }).collect();
        if !self.tiles.iter().map(Tile::shape).eq(shapes.iter().copied()) {
            // Before the new ones are allocated, so that there are never two sets.
            self.tiles.clear();
            let buffers = BlockBuffers::of(&self.places);
            let tile = |&shape| Tile::new(&self.config, shape, buffers);
            self.tiles = shapes.iter().map(tile).collect();
        }
    }

    /// Transposes the matrices of a block.
    fn transpose_weights(&mut self, layer: usize, weights: &[F]) {
        self.transposed.resize(weights.len(), F::ZERO);
        let mut matrices = Vec::new();
        let (mut rest, mut begin) = (&mut self.transposed[..], 0);
        for parameter in self.table.of_unit(1 + layer) {
            let len = parameter.range.len();
            let (transposed, after) = rest.split_at_mut(len);
            rest = after;
            if let &[_, cols] = &parameter.shape[..] {
                matrices.push((&weights[begin..begin + len], cols, transposed));
            }
            begin += len;
        }
        self.threads.run(matrices, |(matrix, cols, transposed)| {
            kernels::transpose(matrix, cols, transposed);
        });
    }

    fn embed(&mut self, pass: &ForwardPass<'_, F>, batch: &Sequences) -> Result<(), PassError> {
        assert!(batch.targets.is_empty() || batch.inputs.len() == batch.targets.len());
        self.prepare(batch.length, batch.inputs.len() / batch.length);
        let embeddings = pass.unit(EMBEDDING)?;
        let token = &embeddings[self.ranges.token_embedding.clone()];
        let position = &embeddings[self.ranges.position_embedding.clone()];
        self.threads.run(with_tokens(&mut self.tiles, batch), |(tile, inputs, _)| {
            tile.set_compute(pass.compute);
            tile.embed(token, position, inputs);
        });
        Ok(())
    }

    fn block_forward(&mut self, pass: &ForwardPass<'_, F>, layer: usize) -> Result<(), PassError> {
        let unit = pass.unit(1 + layer)?;
        self.transpose_weights(layer, unit);
        let ranges = &self.ranges.blocks[layer];
        let transposed = Some(ranges.view(&self.transposed));
        let weights = BlockWeights { parts: ranges.view(unit), transposed };
        let place = self.places[layer];
        self.threads.run(&mut self.tiles, |tile| {
            tile.block_forward(&weights, place, pass.is_recomputation);
        });
        Ok(())
    }

    /// Computes the logits, the losses, and the gradient of the logits.
    fn head_forward(
        &mut self,
        pass: &ForwardPass<'_, F>,
        batch: &Sequences,
    ) -> Result<(), PassError> {
        let norm = self.final_norm(pass.unit(self.head_unit())?);
        let table = &pass.unit(EMBEDDING)?[self.ranges.token_embedding.clone()];
        let share = pass.loss_scale / F::from_f64(batch.inputs.len() as f64);
        self.threads.run(with_tokens(&mut self.tiles, batch), |(tile, _, targets)| {
            tile.head_forward(&norm, table);
            if !targets.is_empty() {
                tile.score(targets, share);
            }
        });
        Ok(())
    }

    /// Backward pass of the head: adds to the gradients of the token embedding and of the final norm, and
    /// computes that of the last block's output.
    fn head_backward(&mut self, pass: &mut BackwardPass<'_, F>) -> Result<(), PassError> {
        let head = self.head_unit();
        let norm = self.final_norm(pass.unit(head)?);
        let table = &pass.unit(EMBEDDING)?[self.ranges.token_embedding.clone()];
        self.threads.run(&mut self.tiles, |tile| tile.head_backward(&norm, table));
        // The first contribution to this gradient: it replaces the zeros.
        let weight = &mut pass.gradient(EMBEDDING)?[self.ranges.token_embedding.clone()];
        let tiles = self.tiles.iter().map(Tile::head_gradient).collect();
        let gradient = WeightGradient { weight, inputs: self.config.width, tiles };
        weight_gradients(self.threads, &mut [gradient]);
        let (weight, bias) = pass.gradient(head)?.split_at_mut(self.config.width);
        sum_tiles(weight, self.tiles.iter().map(Tile::final_norm_gradient));
        if self.config.architecture.has_biases() {
            sum_biases(Some(bias), &self.tiles, |biases| &biases.mlp_norm);
        }
        Ok(())
    }

    fn block_backward(
        &mut self,
        pass: &mut BackwardPass<'_, F>,
        layer: usize,
    ) -> Result<(), PassError> {
        let ranges = &self.ranges.blocks[layer];
        let weights = BlockWeights { parts: ranges.view(pass.unit(1 + layer)?), transposed: None };
        let slot = self.places[layer].slot;
        self.threads.run(&mut self.tiles, |tile| tile.block_backward(&weights, slot));
        let weights = ranges.split_mut(pass.gradient(1 + layer)?);
        let width = self.config.width;
        let gradient = |weight, inputs, pick: Operands<F>| WeightGradient {
            weight,
            inputs,
            tiles: self.tiles.iter().map(|tile| pick(tile, slot)).collect(),
        };
        weight_gradients(
            self.threads,
            &mut [
                gradient(weights.qkv.weight, width, Tile::qkv_gradient),
                gradient(weights.proj.weight, width, Tile::proj_gradient),
                gradient(weights.up.weight, width, Tile::up_gradient),
                gradient(weights.down.weight, 4 * width, Tile::down_gradient),
            ],
        );
        let tiles = &self.tiles;
        let (norm1, norm2) = (weights.attention_norm, weights.mlp_norm);
        sum_tiles(norm1.weight, tiles.iter().map(Tile::attention_norm_gradient));
        sum_tiles(norm2.weight, tiles.iter().map(Tile::mlp_norm_gradient));
        sum_biases(norm1.bias, tiles, |biases| &biases.attention_norm);
        sum_biases(weights.qkv.bias, tiles, |biases| &biases.qkv);
        sum_biases(weights.proj.bias, tiles, |biases| &biases.proj);
        sum_biases(norm2.bias, tiles, |biases| &biases.mlp_norm);
        sum_biases(weights.up.bias, tiles, |biases| &biases.up);
        sum_biases(weights.down.bias, tiles, |biases| &biases.down);
        Ok(())
    }

    /// Adds the gradient of the embeddings, token by token in the order of the batch.
    fn embedding_backward(
        &mut self,
        pass: &mut BackwardPass<'_, F>,
        batch: &Sequences,
    ) -> Result<(), PassError> {
        let width = self.config.width;
        let gradient = pass.gradient(EMBEDDING)?;
        let (token, position) = gradient.split_at_mut(self.ranges.token_embedding.len());
        let rows = self.tiles.iter().flat_map(|tile| tile.input_gradient().chunks_exact(width));
        for (i, (row, &input)) in rows.zip(&batch.inputs).enumerate() {
            kernels::add(&mut token[input as usize * width..][..width], row);
            kernels::add(&mut position[i % batch.length * width..][..width], row);
        }
        Ok(())
    }
}

impl<F: ModelFloat> Model<F> for Gpt<F> {
    type Batch = Sequences;

    fn parameters(&self) -> &ParameterTable {
        &self.table
    }

    fn passes(&self) -> Vec<ModelPass> {
        let blocks = (1..=self.config.layers).map(|unit| ModelPass::new([unit]).recomputable());
        let head = ModelPass::new([self.head_unit(), EMBEDDING]);
        std::iter::once(ModelPass::new([EMBEDDING])).chain(blocks).chain([head]).collect()
    }

    fn forward(&mut self, pass: &ForwardPass<'_, F>, batch: &Sequences) -> Result<(), PassError> {
        match self.pass(pass.index) {
            GptPass::Embedding => self.embed(pass, batch),
            GptPass::Block(layer) => self.block_forward(pass, layer),
            GptPass::Head => self.head_forward(pass, batch),
        }
    }

    fn loss(&self) -> F {
        let sums: Vec<F> = self.tiles.iter().map(Tile::loss_sum).collect();
        let tokens: usize = self.tiles.iter().map(|tile| tile.shape().tokens()).sum();
        kernels::total(&sums) * (F::ONE / F::from_f64(tokens as f64))
    }

    fn backward(
        &mut self,
        pass: &mut BackwardPass<'_, F>,
        batch: &Sequences,
    ) -> Result<(), PassError> {
        match self.pass(pass.index()) {
            GptPass::Embedding => self.embedding_backward(pass, batch),
            GptPass::Block(layer) => self.block_backward(pass, layer),
            GptPass::Head => self.head_backward(pass),
        }
    }

    /// Segments that are computed again share their activations; each keeps its input.
    fn set_segments(&mut self, segments: &[RecomputeSegment]) {
        self.places = block_places(segments, self.config.layers);
        self.tiles.clear();
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
) -> impl Iterator<Item = (&'a mut Tile<F>, &'a [u32], &'a [u32])> {
    let mut begin = 0;
    tiles.iter_mut().map(move |tile| {
        let tokens = begin..begin + tile.shape().tokens();
        begin = tokens.end;
        (tile, &batch.inputs[tokens.clone()], batch.targets.get(tokens).unwrap_or_default())
    })
}

/// Computes `sum = Σ parts`, in their order.
fn sum_tiles<'a, F: ModelFloat>(sum: &mut [F], parts: impl Iterator<Item = &'a [F]>) {
    sum.fill(F::ZERO);
    parts.for_each(|part| kernels::add(sum, part));
}

/// Computes the gradient of a bias, if there is one.
fn sum_biases<F: ModelFloat>(
    bias: Option<&mut [F]>,
    tiles: &[Tile<F>],
    pick: impl Fn(&BiasGradients<F>) -> &Vec<F>,
) {
    if let Some(bias) = bias {
        sum_tiles(bias, tiles.iter().map(|tile| &pick(tile.bias_gradients())[..]));
    }
}
