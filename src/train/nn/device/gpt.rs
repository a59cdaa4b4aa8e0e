//! [`DeviceGpt`]: the GPT of [`Gpt`](crate::train::Gpt) on a device.

use std::sync::Arc;

use crate::cuda::device::{Device, DeviceAddress, DeviceError, Epilogue, StreamId, UploadRing};
use crate::cuda::kernels::{Activation, ElementType};
use crate::runtime::engine::{
    DeviceBackward, DeviceForward, DeviceLosses, DeviceModel, ModelPass, ParameterTable,
    RecomputeSegment,
};
use crate::train::nn::device::attention::AttentionMethod;
use crate::train::nn::device::blocks::WorkBlocks;
use crate::train::nn::device::flash_attention::AttentionGradients;
use crate::train::nn::device::gpt_memory::{BackwardBuffers, BlockMemory, GptMemory};
use crate::train::nn::device::operations::{LayerAddresses, Operations};
use crate::train::nn::device::product_attention::SequenceShape;
use crate::train::nn::gpt::places::{BlockPlace, block_places, kept_places};
use crate::train::nn::gpt::{
    AttentionChoice, BlockParts, GptConfig, LayerParts, Ranges, Sequences,
};

/// Unit of the embeddings. The blocks follow, then the unit of the head.
const EMBEDDING: usize = 0;

/// GPT model with its work space on a device.
pub struct DeviceGpt {
    device: Arc<dyn Device>,
    config: GptConfig,
    table: ParameterTable,
    ranges: Ranges,
    /// Type in which it computes.
    element: ElementType,
    attention: AttentionMethod,
    places: Vec<BlockPlace>,
    uploads: UploadRing,
    blocks: WorkBlocks,
    /// The part of the blocks that batches of the last shape use.
    memory: Option<GptMemory>,
}

impl From<LayerParts<DeviceAddress>> for LayerAddresses {
    fn from(parts: LayerParts<DeviceAddress>) -> Self {
        Self { weight: parts.weight, bias: parts.bias }
    }
}

/// The first layer of a block's MLP, and its function. Without biases it is GELU itself, which is a kernel; with them it is
/// the approximation that a product can have as its epilogue.
fn widen(
    on: Operations<'_>,
    block: &BlockMemory,
    layer: LayerAddresses,
) -> Result<(), DeviceError> {
    let input = &block.mlp_norm.y;
    let Some(bias) = layer.bias else {
        on.linear(input, layer.weight, &block.up)?;
        return on.activation(&block.up, Activation::Gelu, &block.active);
    };
    let gelu = Epilogue::Gelu { bias, before: block.up.address() };
    on.linear_then(input, layer.weight, &block.active, gelu)
}

impl DeviceGpt {
    /// Creates a model that computes in a type. Work space is allocated for the first batch.
    ///
    /// # Errors
    /// If attention cannot be computed in this type.
    pub fn new(
        device: Arc<dyn Device>,
        config: GptConfig,
        element: ElementType,
    ) -> Result<Self, DeviceError> {
        let (table, ranges) = config.parameters();
        let attention = AttentionMethod::of(&config, element, AttentionChoice::Auto)?;
        let (uploads, blocks) = (UploadRing::new(device.clone()), WorkBlocks::new(device.clone()));
        let (places, memory) = (kept_places(config.layers), None);
        Ok(Self {
            device,
            config,
            table,
            ranges,
            element,
            attention,
            places,
            uploads,
            blocks,
            memory,
        })
    }

    /// Computes attention in another way than [`AttentionChoice::Auto`].
    ///
    /// # Errors
    /// If the model cannot compute it so.
    pub fn with_attention(mut self, attention: AttentionChoice) -> Result<Self, DeviceError> {
        self.attention = AttentionMethod::of(&self.config, self.element, attention)?;
        Ok(self)
    }

    fn head_unit(&self) -> usize {
        self.config.layers + 1
    }

    /// Addresses of the token and position embeddings, or of their gradients.
    fn embeddings(&self, unit: DeviceAddress, element: ElementType) -> [DeviceAddress; 2] {
        let Ranges { token_embedding, position_embedding, .. } = &self.ranges;
        [token_embedding, position_embedding]
            .map(|range| unit.offset(range.start * element.bytes()))
    }

    /// Addresses of the parameters of a block, or of their gradients.
    fn block(
        &self,
        layer: usize,
        unit: DeviceAddress,
        element: ElementType,
    ) -> BlockParts<DeviceAddress> {
        self.ranges.blocks[layer].map(|range| unit.offset(range.start * element.bytes()))
    }

    /// Addresses of the parameters of the final norm, or of their gradients.
    fn final_norm(&self, unit: DeviceAddress, element: ElementType) -> LayerAddresses {
        let has_bias = self.config.architecture.has_biases();
        let bias = unit.offset(self.config.width * element.bytes());
        LayerAddresses { weight: unit, bias: has_bias.then_some(bias) }
    }

    /// Provides memory for the sequences of a batch, and copies them.
    fn receive(&mut self, stream: StreamId, batch: &Sequences) -> Result<(), DeviceError> {
        let length = batch.length as u32;
        let (batch_size, heads) = (batch.inputs.len() as u32 / length, self.config.heads as u32);
        let shape = SequenceShape { batch: batch_size, length, heads };
        if self.memory.as_ref().is_none_or(|memory| memory.shape != shape) {
            let blocks = self.blocks.shape(stream, batch_size * length, self.element);
            let attention = (self.attention, shape);
            self.memory = Some(GptMemory::new(blocks, &self.config, attention, &self.places)?);
        }
        let memory = self.memory.as_mut().expect("it was made");
        memory.tokens.upload(&mut self.uploads, stream, batch)
    }

    fn memory(&self) -> &GptMemory {
        self.memory.as_ref().expect("the first pass provides it")
    }

    fn embed(&self, on: Operations<'_>, pass: &DeviceForward<'_>) -> Result<(), DeviceError> {
        let (memory, unit) = (self.memory(), pass.unit(EMBEDDING));
        memory.tokens.embed(on, self.embeddings(unit, self.element), &memory.embedded)
    }

    fn block_forward(
        &self,
        on: Operations<'_>,
        pass: &DeviceForward<'_>,
        layer: usize,
    ) -> Result<(), DeviceError> {
        let memory = self.memory();
        let (block, input) = (memory.block(layer), memory.input(layer));
        let parts = self.block(layer, pass.unit(1 + layer), self.element);
        let norm = parts.attention_norm.into();
        // The activations of the block before are lost when a segment is computed again, but not its own input.
        let has_input = layer == 0 || pass.is_recomputation && memory.keeps_input(layer);
        match layer.checked_sub(1).filter(|_| !has_input) {
            None => on.norm(input, norm, &block.attention_norm)?,
            Some(before) => {
                let before = memory.block(before);
                let sum = (&before.middle, &before.down);
                on.residual_norm(sum, norm, input, &block.attention_norm)?;
            }
        }
        on.layer(&block.attention_norm.y, parts.qkv.into(), &block.qkv)?;
        memory.attention.forward(on, &block.qkv, &block.attended, block.lse)?;
        on.layer(&block.attended, parts.proj.into(), &block.proj)?;
        let norm = parts.mlp_norm.into();
        on.residual_norm((input, &block.proj), norm, &block.middle, &block.mlp_norm)?;
        widen(on, block, parts.up.into())?;
        on.layer(&block.active, parts.down.into(), &block.down)
    }

    /// The gradient of the input of an MLP's function ([`widen`]), from the gradient of the MLP's output.
    fn widen_backward(
        &self,
        on: Operations<'_>,
        block: &BlockMemory,
        weight: DeviceAddress,
    ) -> Result<(), DeviceError> {
        let BackwardBuffers { residual, wide, .. } = &self.memory().gradients;
        if !self.config.architecture.has_biases() {
            on.linear_backward(residual, weight, wide)?;
            return on.activation_backward(&block.up, Activation::Gelu, wide);
        }
        let gelu = Epilogue::GeluBackward { before: block.up.address() };
        on.linear_backward_then(residual, weight, wide, gelu)
    }

    /// Computes the logits, the losses, and the gradients of the logits.
    fn head_forward(
        &self,
        on: Operations<'_>,
        pass: &DeviceForward<'_>,
    ) -> Result<(), DeviceError> {
        let memory = self.memory();
        let last = memory.block(self.config.layers - 1);
        let norm = self.final_norm(pass.unit(self.head_unit()), self.element);
        let sum = (&last.middle, &last.down);
        on.residual_norm(sum, norm, &memory.residual, &memory.final_norm)?;
        let [tokens, _] = self.embeddings(pass.unit(EMBEDDING), self.element);
        on.linear(&memory.final_norm.y, tokens, &memory.logits)?;
        let (targets, losses) = (memory.tokens.targets(), memory.losses);
        on.classify(&memory.logits, targets, losses, pass.loss_scale)
    }

    fn head_backward(
        &self,
        on: Operations<'_>,
        pass: &DeviceBackward<'_>,
    ) -> Result<(), DeviceError> {
        let (memory, head) = (self.memory(), self.head_unit());
        let gradients = &memory.gradients;
        let [tokens, _] = self.embeddings(pass.forward.unit(EMBEDDING), self.element);
        let [gradient, _] = self.embeddings(pass.gradient(EMBEDDING), ElementType::F32);
        on.linear_backward(&memory.logits, tokens, &gradients.narrow)?;
        on.weight_backward(&memory.logits, &memory.final_norm.y, gradient)?;
        on.norm_backward(
            (&gradients.narrow, &memory.residual),
            &memory.final_norm,
            (pass.forward.unit(head), self.final_norm(pass.gradient(head), ElementType::F32)),
            (&gradients.residual, true),
            gradients.partial,
        )
    }

    fn block_backward(
        &self,
        on: Operations<'_>,
        pass: &DeviceBackward<'_>,
        layer: usize,
    ) -> Result<(), DeviceError> {
        let unit = 1 + layer;
        let parts = self.block(layer, pass.forward.unit(unit), self.element);
        let sums = self.block(layer, pass.gradient(unit), ElementType::F32);
        self.mlp_backward(on, layer, &parts, &sums)?;
        self.attention_backward(on, layer, &parts, &sums)
    }

    /// The second half of a block.
    fn mlp_backward(
        &self,
        on: Operations<'_>,
        layer: usize,
        parts: &BlockParts<DeviceAddress>,
        sums: &BlockParts<DeviceAddress>,
    ) -> Result<(), DeviceError> {
        let memory = self.memory();
        let (block, gradients) = (memory.block(layer), &memory.gradients);
        let (residual, wide) = (&gradients.residual, &gradients.wide);
        let partial = gradients.partial;
        on.layer_backward(residual, &block.active, sums.down.clone().into(), partial)?;
        self.widen_backward(on, block, parts.down.weight)?;
        on.layer_backward(wide, &block.mlp_norm.y, sums.up.clone().into(), partial)?;
        on.linear_backward(wide, parts.up.weight, &gradients.narrow)?;
        on.norm_backward(
            (&gradients.narrow, &block.middle),
            &block.mlp_norm,
            (parts.mlp_norm.weight, sums.mlp_norm.clone().into()),
            (residual, false),
            partial,
        )
    }

    /// The first half of a block.
    fn attention_backward(
        &self,
        on: Operations<'_>,
        layer: usize,
        parts: &BlockParts<DeviceAddress>,
        sums: &BlockParts<DeviceAddress>,
    ) -> Result<(), DeviceError> {
        let memory = self.memory();
        let (block, gradients) = (memory.block(layer), &memory.gradients);
        let (residual, narrow) = (&gradients.residual, &gradients.narrow);
        let partial = gradients.partial;
        on.layer_backward(residual, &block.attended, sums.proj.clone().into(), partial)?;
        on.linear_backward(residual, parts.proj.weight, narrow)?;
        let inputs = AttentionGradients {
            qkv: &block.qkv,
            out: &block.attended,
            dout: narrow,
            lse: block.lse,
        };
        memory.attention.backward(on, inputs, gradients.delta, &gradients.qkv)?;
        let (dqkv, input) = (&gradients.qkv, &block.attention_norm.y);
        on.layer_backward(dqkv, input, sums.qkv.clone().into(), partial)?;
        on.linear_backward(&gradients.qkv, parts.qkv.weight, narrow)?;
        on.norm_backward(
            (narrow, memory.input(layer)),
            &block.attention_norm,
            (parts.attention_norm.weight, sums.attention_norm.clone().into()),
            (residual, false),
            partial,
        )
    }
}

impl DeviceModel for DeviceGpt {
    type Batch = Sequences;

    fn parameters(&self) -> &ParameterTable {
        &self.table
    }

    fn passes(&self) -> Vec<ModelPass> {
        let blocks = (1..=self.config.layers).map(|unit| ModelPass::new([unit]).recomputable());
        let head = ModelPass::new([self.head_unit(), EMBEDDING]);
        std::iter::once(ModelPass::new([EMBEDDING])).chain(blocks).chain([head]).collect()
    }

    fn set_segments(&mut self, segments: &[RecomputeSegment]) {
        self.places = block_places(segments, self.config.layers);
        // The blocks have another order now.
        (self.blocks, self.memory) = (WorkBlocks::new(self.device.clone()), None);
    }

    fn forward(&mut self, pass: &DeviceForward<'_>, batch: &Sequences) -> Result<(), DeviceError> {
        if pass.index == 0 {
            self.receive(pass.stream, batch)?;
        }
        let on = Operations { device: &*self.device, stream: pass.stream };
        match pass.index.checked_sub(1) {
            None => self.embed(on, pass),
            Some(layer) if layer < self.config.layers => self.block_forward(on, pass, layer),
            Some(_) => self.head_forward(on, pass),
        }
    }

    fn losses(&self) -> DeviceLosses {
        let memory = self.memory();
        DeviceLosses { address: memory.losses, count: memory.logits.rows as usize }
    }

    fn backward(
        &mut self,
        pass: &DeviceBackward<'_>,
        _batch: &Sequences,
    ) -> Result<(), DeviceError> {
        let on = Operations { device: &*self.device, stream: pass.forward.stream };
        match pass.forward.index.checked_sub(1) {
            None => {
                let memory = self.memory();
                let sums = self.embeddings(pass.gradient(EMBEDDING), ElementType::F32);
                memory.tokens.embed_backward(on, &memory.gradients.residual, sums)
            }
            Some(layer) if layer < self.config.layers => self.block_backward(on, pass, layer),
            Some(_) => self.head_backward(on, pass),
        }
    }
}
