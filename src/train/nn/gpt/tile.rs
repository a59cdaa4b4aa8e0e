//! Tile of a micro-batch: a few sequences, with their activations and gradients.

use crate::runtime::Dtype;
use crate::train::ModelFloat;
use crate::train::nn::cpu::attention::Attention;
use crate::train::nn::cpu::kernels;
use crate::train::nn::cpu::rounding::round_to;
use crate::train::nn::cpu::simd_matmul::{Matrix, MatrixMut, multiply, multiply_add};
use crate::train::nn::gpt::config::{GptArchitecture, GptConfig};
use crate::train::nn::gpt::places::{BlockBuffers, BlockPlace};
use crate::train::nn::gpt::ranges::{BlockParts, LayerParts};

/// Parameters of a block as a tile uses them.
#[derive(Debug)]
pub(crate) struct BlockWeights<'a, F> {
    pub(crate) parts: BlockParts<&'a [F]>,
    /// The same with every matrix transposed; empty in the backward pass, which does not read them.
    pub(crate) transposed: Option<BlockParts<&'a [F]>>,
}

/// Size of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TileShape {
    pub(crate) sequences: usize,
    pub(crate) length: usize,
}

impl TileShape {
    /// Number of rows of the tile, one per token.
    pub(crate) fn tokens(self) -> usize {
        self.sequences * self.length
    }
}

/// Activations and gradients of a few sequences. Buffers have one row per token.
#[derive(Debug)]
pub(crate) struct Tile<F> {
    shape: TileShape,
    attention: Attention,
    architecture: GptArchitecture,
    width: usize,
    /// Type to which operands of products are rounded.
    compute: Dtype,
    /// The residual stream.
    residual: Vec<F>,
    /// Activations of the blocks, by slot.
    blocks: Vec<BlockState<F>>,
    /// Inputs of the segments whose activations are computed again.
    kept_inputs: Vec<Vec<F>>,
    final_norm: Norm<F>,
    /// Logits of the next token; after [`Tile::score`] their gradient.
    logits: Vec<F>,
    losses: Vec<F>,
    backward: Backward<F>,
}

/// Activations of a block that its backward pass needs.
#[derive(Debug)]
struct BlockState<F> {
    attention_norm: Norm<F>,
    qkv: Vec<F>,
    probs: Vec<F>,
    attention_output: Vec<F>,
    mlp_norm: Norm<F>,
    /// Input of the GELU; after the forward pass, the derivative of the GELU.
    hidden: Vec<F>,
    activated: Vec<F>,
}

/// Output of a layer norm, and the values that its backward pass needs.
#[derive(Debug)]
struct Norm<F> {
    normal: Vec<F>,
    scale: Vec<F>,
    y: Vec<F>,
}

/// Gradients inside a block; all blocks use the same buffers.
#[derive(Debug)]
struct Backward<F> {
    /// Gradient of the residual stream: at the block's input, after its backward pass.
    residual: Vec<F>,
    /// Gradient of the residual stream between attention and MLP.
    middle: Vec<F>,
    /// Gradient of the block's output.
    output: Vec<F>,
    normed: Vec<F>,
    qkv: Vec<F>,
    attention_output: Vec<F>,
    hidden: Vec<F>,
    probs: Vec<F>,
    attention_norm_weight: Vec<F>,
    mlp_norm_weight: Vec<F>,
    /// Gradients of the biases; empty without biases.
    biases: BiasGradients<F>,
}

/// Part of a tile in the gradients of the biases of a block.
#[derive(Debug)]
pub(crate) struct BiasGradients<F> {
    pub(crate) attention_norm: Vec<F>,
    pub(crate) qkv: Vec<F>,
    pub(crate) proj: Vec<F>,
    /// Also that of the final norm.
    pub(crate) mlp_norm: Vec<F>,
    pub(crate) up: Vec<F>,
    pub(crate) down: Vec<F>,
}

impl<F: ModelFloat> Norm<F> {
    fn new(tokens: usize, width: usize) -> Self {
        let zeros = |len| vec![F::ZERO; len];
        Self { normal: zeros(tokens * width), scale: zeros(tokens), y: zeros(tokens * width) }
    }

    fn forward(&mut self, x: &[F], layer: &LayerParts<&[F]>) {
        kernels::layer_norm(x, layer.weight, &mut self.normal, &mut self.scale, &mut self.y);
        add_bias(&mut self.y, layer);
    }

    /// Backward pass: `dx = dskip + ∂(dy)`; `dweight` is overwritten.
    fn backward(&self, dy: &[F], dskip: &[F], weight: &[F], dx: &mut [F], dweight: &mut [F]) {
        dweight.fill(F::ZERO);
        kernels::layer_norm_backward(dy, dskip, weight, &self.normal, &self.scale, dx, dweight);
    }
}

/// Adds the bias of a layer, if it has one, to the rows of its output.
fn add_bias<F: ModelFloat>(rows: &mut [F], layer: &LayerParts<&[F]>) {
    if let Some(bias) = layer.bias {
        kernels::add_to_rows(rows, bias);
    }
}

impl<F: ModelFloat> Tile<F> {
    pub(crate) fn new(config: &GptConfig, shape: TileShape, buffers: BlockBuffers) -> Self {
        let (tokens, width) = (shape.tokens(), config.width);
        let zeros = |len| vec![F::ZERO; len];
        let squares = config.heads * shape.length * shape.length;
        let block = |_| BlockState {
            attention_norm: Norm::new(tokens, width),
            qkv: zeros(tokens * 3 * width),
            probs: zeros(shape.sequences * squares),
            attention_output: zeros(tokens * width),
            mlp_norm: Norm::new(tokens, width),
            hidden: zeros(tokens * 4 * width),
            activated: zeros(tokens * 4 * width),
        };
        Self {
            shape,
            attention: Attention { length: shape.length, heads: config.heads, width },
            architecture: config.architecture,
            width,
            compute: F::DTYPE,
            residual: zeros(tokens * width),
            blocks: (0..buffers.slots).map(block).collect(),
            kept_inputs: (0..buffers.kept_inputs).map(|_| zeros(tokens * width)).collect(),
            final_norm: Norm::new(tokens, width),
            logits: zeros(tokens * config.vocabulary),
            losses: zeros(tokens),
            backward: Backward::new(config, shape),
        }
    }

    /// Number of elements of all buffers together.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let norm = |norm: &Norm<F>| norm.normal.len() + norm.scale.len() + norm.y.len();
        let block = |state: &BlockState<F>| {
            let vectors = [
                &state.qkv,
                &state.probs,
                &state.attention_output,
                &state.hidden,
                &state.activated,
            ];
            let norms = norm(&state.attention_norm) + norm(&state.mlp_norm);
            norms + vectors.map(Vec::len).iter().sum::<usize>()
        };
        let own = [&self.residual, &self.logits, &self.losses].map(Vec::len).iter().sum::<usize>()
            + self.kept_inputs.iter().map(Vec::len).sum::<usize>();
        let blocks = self.blocks.iter().map(block).sum::<usize>();
        own + blocks + norm(&self.final_norm) + self.backward.len()
    }

    pub(crate) fn shape(&self) -> TileShape {
        self.shape
    }

    /// Logits of the next token, after a forward pass.
    pub(crate) fn logits_mut(&mut self) -> &mut [F] {
        &mut self.logits
    }

    /// Sets the type to which operands of products are rounded.
    pub(crate) fn set_compute(&mut self, compute: Dtype) {
        self.compute = compute;
    }

    /// Forward pass of the embeddings: the beginning of the residual stream.
    pub(crate) fn embed(&mut self, token: &[F], position: &[F], inputs: &[u32]) {
        let width = self.width;
        for (i, (row, &input)) in self.residual.chunks_exact_mut(width).zip(inputs).enumerate() {
            row.copy_from_slice(&token[input as usize * width..][..width]);
            kernels::add(row, &position[i % self.shape.length * width..][..width]);
        }
        round_to(&mut self.residual, self.compute);
    }

    /// Forward pass of a block.
    pub(crate) fn block_forward(
        &mut self,
        weights: &BlockWeights<'_, F>,
        place: BlockPlace,
        is_recomputation: bool,
    ) {
        if let Some(kept) = place.kept_input {
            let kept = &mut self.kept_inputs[kept];
            if is_recomputation {
                self.residual.copy_from_slice(kept);
            } else {
                kept.copy_from_slice(&self.residual);
            }
        }
        self.attention_forward(weights, place.slot);
        self.mlp_forward(weights, place.slot);
    }

    /// Forward pass of the head: the logits of every token.
    pub(crate) fn head_forward(&mut self, norm: &LayerParts<&[F]>, table: &[F]) {
        let (tokens, vocabulary) = (self.shape.tokens(), table.len() / self.width);
        self.final_norm.forward(&self.residual, norm);
        round_to(&mut self.final_norm.y, self.compute);
        multiply(
            MatrixMut::new(&mut self.logits, tokens, vocabulary),
            Matrix::new(&self.final_norm.y, tokens, self.width),
            Matrix::new(table, vocabulary, self.width).t(),
        );
    }

    /// Attention layer: `residual += proj(attention(norm(residual)))`.
    fn attention_forward(&mut self, weights: &BlockWeights<'_, F>, slot: usize) {
        let transposed = weights.transposed.as_ref().expect("the forward pass transposes");
        let state = &mut self.blocks[slot];
        let (tokens, width) = (self.shape.tokens(), self.width);
        state.attention_norm.forward(&self.residual, &weights.parts.attention_norm);
        round_to(&mut state.attention_norm.y, self.compute);
        multiply(
            MatrixMut::new(&mut state.qkv, tokens, 3 * width),
            Matrix::new(&state.attention_norm.y, tokens, width),
            Matrix::new(transposed.qkv.weight, width, 3 * width),
        );
        add_bias(&mut state.qkv, &weights.parts.qkv);
        round_to(&mut state.qkv, self.compute);
        let rows = self.shape.length * width;
        let squares = self.attention.heads * self.shape.length * self.shape.length;
        let sequences = state.qkv.chunks_exact(3 * rows).zip(state.probs.chunks_exact_mut(squares));
        for ((qkv, probs), output) in sequences.zip(state.attention_output.chunks_exact_mut(rows)) {
            self.attention.forward(qkv, probs, output);
        }
        round_to(&mut state.attention_output, self.compute);
        multiply_add(
            MatrixMut::new(&mut self.residual, tokens, width),
            Matrix::new(&state.attention_output, tokens, width),
            Matrix::new(transposed.proj.weight, width, width),
        );
        add_bias(&mut self.residual, &weights.parts.proj);
        round_to(&mut self.residual, self.compute);
    }

    /// MLP layer: `residual += down(gelu(up(norm(residual))))`.
    fn mlp_forward(&mut self, weights: &BlockWeights<'_, F>, slot: usize) {
        let transposed = weights.transposed.as_ref().expect("the forward pass transposes");
        let state = &mut self.blocks[slot];
        let (tokens, width) = (self.shape.tokens(), self.width);
        state.mlp_norm.forward(&self.residual, &weights.parts.mlp_norm);
        round_to(&mut state.mlp_norm.y, self.compute);
        multiply(
            MatrixMut::new(&mut state.hidden, tokens, 4 * width),
            Matrix::new(&state.mlp_norm.y, tokens, width),
            Matrix::new(transposed.up.weight, width, 4 * width),
        );
        add_bias(&mut state.hidden, &weights.parts.up);
        round_to(&mut state.hidden, self.compute);
        match self.architecture {
            GptArchitecture::Plain => kernels::gelu(&mut state.hidden, &mut state.activated),
            GptArchitecture::Gpt2 => kernels::gelu_tanh(&mut state.hidden, &mut state.activated),
        }
        round_to(&mut state.activated, self.compute);
        multiply_add(
            MatrixMut::new(&mut self.residual, tokens, width),
            Matrix::new(&state.activated, tokens, 4 * width),
            Matrix::new(transposed.down.weight, 4 * width, width),
        );
        add_bias(&mut self.residual, &weights.parts.down);
        round_to(&mut self.residual, self.compute);
    }

    /// Computes the losses, and replaces the logits by their gradient; each token has the weight
    /// `share`.
    pub(crate) fn score(&mut self, targets: &[u32], share: F) {
        let vocabulary = self.logits.len() / self.shape.tokens();
        let rows = self.logits.chunks_exact_mut(vocabulary).zip(&mut self.losses).zip(targets);
        for ((row, loss), &target) in rows {
            *loss = kernels::cross_entropy(row, target as usize, share);
        }
        round_to(&mut self.logits, self.compute);
    }

    /// Sum of the losses of the tokens.
    pub(crate) fn loss_sum(&self) -> F {
        kernels::total(&self.losses)
    }

    /// Computes the gradient of the residual stream after the last block.
    pub(crate) fn head_backward(&mut self, norm: &LayerParts<&[F]>, table: &[F]) {
        let (tokens, width) = (self.shape.tokens(), self.width);
        let vocabulary = table.len() / width;
        let Backward { residual, middle, normed, mlp_norm_weight, biases, .. } = &mut self.backward;
        multiply(
            MatrixMut::new(normed, tokens, width),
            Matrix::new(&self.logits, tokens, vocabulary),
            Matrix::new(table, vocabulary, width),
        );
        round_to(normed, self.compute);
        if self.architecture.has_biases() {
            kernels::sum_rows(normed, &mut biases.mlp_norm);
        }
        middle.fill(F::ZERO);
        self.final_norm.backward(normed, middle, norm.weight, residual, mlp_norm_weight);
        round_to(residual, self.compute);
    }

    /// Computes the gradient of a block's input from that of its output, and keeps the values that
    /// its weight gradients need.
    pub(crate) fn block_backward(&mut self, weights: &BlockWeights<'_, F>, slot: usize) {
        let backward = &mut self.backward;
        std::mem::swap(&mut backward.residual, &mut backward.output);
        self.mlp_backward(weights, slot);
        self.attention_backward(weights, slot);
    }

    fn mlp_backward(&mut self, weights: &BlockWeights<'_, F>, slot: usize) {
        let (weights, state) = (&weights.parts, &self.blocks[slot]);
        let (tokens, width) = (self.shape.tokens(), self.width);
        let Backward { output, middle, normed, hidden, mlp_norm_weight, biases, .. } =
            &mut self.backward;
        multiply(
            MatrixMut::new(hidden, tokens, 4 * width),
            Matrix::new(output, tokens, width),
            Matrix::new(weights.down.weight, width, 4 * width),
        );
        kernels::scale_by(hidden, &state.hidden);
        round_to(hidden, self.compute);
        multiply(
            MatrixMut::new(normed, tokens, width),
            Matrix::new(hidden, tokens, 4 * width),
            Matrix::new(weights.up.weight, 4 * width, width),
        );
        round_to(normed, self.compute);
        if self.architecture.has_biases() {
            kernels::sum_rows(output, &mut biases.down);
            kernels::sum_rows(hidden, &mut biases.up);
            kernels::sum_rows(normed, &mut biases.mlp_norm);
        }
        state.mlp_norm.backward(normed, output, weights.mlp_norm.weight, middle, mlp_norm_weight);
        round_to(middle, self.compute);
    }

    fn attention_backward(&mut self, weights: &BlockWeights<'_, F>, slot: usize) {
        let (weights, state) = (&weights.parts, &self.blocks[slot]);
        let (tokens, width) = (self.shape.tokens(), self.width);
        let backward = &mut self.backward;
        multiply(
            MatrixMut::new(&mut backward.attention_output, tokens, width),
            Matrix::new(&backward.middle, tokens, width),
            Matrix::new(weights.proj.weight, width, width),
        );
        round_to(&mut backward.attention_output, self.compute);
        let rows = self.shape.length * width;
        let squares = self.attention.heads * self.shape.length * self.shape.length;
        let saved = state.qkv.chunks_exact(3 * rows).zip(state.probs.chunks_exact(squares));
        let gradients = backward
            .attention_output
            .chunks_exact(rows)
            .zip(backward.qkv.chunks_exact_mut(3 * rows));
        for ((qkv, probs), (doutput, dqkv)) in saved.zip(gradients) {
            self.attention.backward(qkv, probs, doutput, dqkv, &mut backward.probs);
        }
        let Backward { residual, middle, normed, qkv, attention_norm_weight, biases, .. } =
            backward;
        round_to(qkv, self.compute);
        multiply(
            MatrixMut::new(normed, tokens, width),
            Matrix::new(qkv, tokens, 3 * width),
            Matrix::new(weights.qkv.weight, 3 * width, width),
        );
        round_to(normed, self.compute);
        if self.architecture.has_biases() {
            kernels::sum_rows(middle, &mut biases.proj);
            kernels::sum_rows(qkv, &mut biases.qkv);
            kernels::sum_rows(normed, &mut biases.attention_norm);
        }
        state.attention_norm.backward(
            normed,
            middle,
            weights.attention_norm.weight,
            residual,
            attention_norm_weight,
        );
        round_to(residual, self.compute);
    }

    /// Gradient of the embedded tokens, after the first block's backward pass.
    pub(crate) fn input_gradient(&self) -> &[F] {
        &self.backward.residual
    }

    // Operands of the weight gradients: gradient of a linear layer's output, and its input.

    pub(crate) fn head_gradient(&self) -> (&[F], &[F]) {
        (&self.logits, &self.final_norm.y)
    }

    pub(crate) fn qkv_gradient(&self, slot: usize) -> (&[F], &[F]) {
        (&self.backward.qkv, &self.blocks[slot].attention_norm.y)
    }

    pub(crate) fn proj_gradient(&self, slot: usize) -> (&[F], &[F]) {
        (&self.backward.middle, &self.blocks[slot].attention_output)
    }

    pub(crate) fn up_gradient(&self, slot: usize) -> (&[F], &[F]) {
        (&self.backward.hidden, &self.blocks[slot].mlp_norm.y)
    }

    pub(crate) fn down_gradient(&self, slot: usize) -> (&[F], &[F]) {
        (&self.backward.output, &self.blocks[slot].activated)
    }

    // Part of this tile in the gradients of the norm weights, valid until the next block.

    pub(crate) fn attention_norm_gradient(&self) -> &[F] {
        &self.backward.attention_norm_weight
    }

    pub(crate) fn mlp_norm_gradient(&self) -> &[F] {
        &self.backward.mlp_norm_weight
    }

    pub(crate) fn final_norm_gradient(&self) -> &[F] {
        &self.backward.mlp_norm_weight
    }

    /// Part of this tile in the gradients of the biases, valid until the next block.
    pub(crate) fn bias_gradients(&self) -> &BiasGradients<F> {
        &self.backward.biases
    }
}

impl<F: ModelFloat> Backward<F> {
    fn new(config: &GptConfig, shape: TileShape) -> Self {
        let rows = |features| vec![F::ZERO; shape.tokens() * features];
        let width = config.width;
        Self {
            residual: rows(width),
            middle: rows(width),
            output: rows(width),
            normed: rows(width),
            qkv: rows(3 * width),
            attention_output: rows(width),
            hidden: rows(4 * width),
            probs: vec![F::ZERO; shape.length * shape.length],
            attention_norm_weight: vec![F::ZERO; width],
            mlp_norm_weight: vec![F::ZERO; width],
            biases: BiasGradients::new(if config.architecture.has_biases() { width } else { 0 }),
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        let Self { middle, output, normed, qkv, hidden, .. } = self;
        let rows = [
            &self.residual,
            middle,
            output,
            normed,
            qkv,
            &self.attention_output,
            hidden,
            &self.probs,
        ];
        let norms = self.attention_norm_weight.len() + self.mlp_norm_weight.len();
        let norms = norms + self.biases.len();
        norms + rows.map(Vec::len).iter().sum::<usize>()
    }
}

impl<F: ModelFloat> BiasGradients<F> {
    /// For layers of this width, or of none without biases.
    fn new(width: usize) -> Self {
        let zeros = |factor: usize| vec![F::ZERO; factor * width];
        Self {
            attention_norm: zeros(1),
            qkv: zeros(3),
            proj: zeros(1),
            mlp_norm: zeros(1),
            up: zeros(4),
            down: zeros(1),
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        let Self { attention_norm, qkv, proj, mlp_norm, up, down } = self;
        [attention_norm, qkv, proj, mlp_norm, up, down].map(Vec::len).iter().sum()
    }
}
