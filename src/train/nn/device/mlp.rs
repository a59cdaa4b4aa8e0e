//! [`DeviceMlp`]: the MLP of [`Mlp`] on a device.

use std::sync::Arc;

use crate::cuda::device::{Device, DeviceAddress, DeviceError, StreamId, UploadRing};
use crate::cuda::kernels::{Activation, ElementType};
use crate::runtime::engine::{
    DeviceBackward, DeviceForward, DeviceLosses, DeviceModel, Model, ParameterTable,
};
use crate::train::nn::cpu::threads::Threads;
use crate::train::nn::device::blocks::{ShapeBlocks, WorkBlocks};
use crate::train::nn::device::operations::{LayerAddresses, Operations, partial_sums};
use crate::train::nn::device::rows::DeviceRows;
use crate::train::nn::mlp::{Mlp, Samples};

/// MLP classifier with its work space on a device. Activations have one row for each sample.
pub struct DeviceMlp {
    device: Arc<dyn Device>,
    table: ParameterTable,
    /// Features, from the inputs to the classes.
    sizes: Vec<u32>,
    /// Type in which it computes.
    element: ElementType,
    uploads: UploadRing,
    blocks: WorkBlocks,
    /// The part of the blocks that batches of the last size use.
    work: Option<WorkSpace>,
}

/// Memory for a number of samples.
struct WorkSpace {
    input: DeviceRows,
    layers: Vec<LayerRows>,
    /// Classes of the samples.
    targets: DeviceAddress,
    /// Loss of each sample, f32.
    losses: DeviceAddress,
    /// Sums of parts of the rows, f32.
    partial: DeviceAddress,
}

/// Memory of a layer.
struct LayerRows {
    /// Output after the activation; for the last layer its gradient, once the loss is computed.
    y: DeviceRows,
    /// Gradient of the output before the activation; `None` for the last layer.
    dy: Option<DeviceRows>,
    /// Bias, padded as a row.
    bias: DeviceRows,
}

impl LayerRows {
    fn gradient(&self) -> &DeviceRows {
        self.dy.as_ref().unwrap_or(&self.y)
    }
}

impl DeviceMlp {
    /// Creates a model with these numbers of features, from the inputs to the classes.
    ///
    /// # Panics
    /// If there are fewer than two sizes.
    pub fn new(device: Arc<dyn Device>, sizes: &[usize], element: ElementType) -> Self {
        let table = Model::<f32>::parameters(&Mlp::new(sizes, Threads::ONE)).clone();
        let sizes = sizes.iter().map(|size| *size as u32).collect();
        let (uploads, blocks) = (UploadRing::new(device.clone()), WorkBlocks::new(device.clone()));
        Self { device, table, sizes, element, uploads, blocks, work: None }
    }

    fn layers(&self) -> usize {
        self.sizes.len() - 1
    }

    /// Address of the bias of a layer, which is behind the weight.
    fn bias(&self, layer: usize, unit: DeviceAddress, element: ElementType) -> DeviceAddress {
        let weights = self.sizes[layer] as usize * self.sizes[layer + 1] as usize;
        unit.offset(weights * element.bytes())
    }

    /// Provides memory for the samples of a batch, and copies them.
    fn receive(&mut self, stream: StreamId, batch: &Samples<f32>) -> Result<(), DeviceError> {
        let samples = batch.classes.len() as u32;
        if self.work.as_ref().is_none_or(|work| work.input.rows != samples) {
            let blocks = self.blocks.shape(stream, samples, self.element);
            self.work = Some(WorkSpace::new(blocks, &self.sizes)?);
        }
        let work = self.work.as_ref().expect("it was made");
        work.input.upload(&mut self.uploads, stream, &batch.inputs)?;
        let classes: Vec<u32> = batch.classes.iter().map(|class| u32::from(*class)).collect();
        self.uploads.upload(stream, bytemuck::cast_slice(&classes), work.targets)
    }
}

impl WorkSpace {
    fn new(mut blocks: ShapeBlocks<'_>, sizes: &[u32]) -> Result<Self, DeviceError> {
        let last = sizes.len() - 2;
        let mut layer = |(layer, outputs): (usize, &u32)| {
            let outputs = *outputs as usize;
            let dy = (layer < last).then(|| blocks.rows(outputs)).transpose()?;
            Ok(LayerRows { y: blocks.rows(outputs)?, dy, bias: blocks.some_rows(1, outputs)? })
        };
        let layers: Vec<LayerRows> =
            sizes[1..].iter().enumerate().map(&mut layer).collect::<Result<_, _>>()?;
        let sums = layers.iter().map(|layer| partial_sums(&layer.y)).max().unwrap_or(0);
        let input = blocks.rows(sizes[0] as usize)?;
        let samples = input.rows as usize;
        Ok(Self {
            input,
            layers,
            targets: blocks.numbers(samples)?,
            losses: blocks.numbers(samples)?,
            partial: blocks.numbers(sums)?,
        })
    }

    /// Input of a layer.
    fn input(&self, layer: usize) -> &DeviceRows {
        layer.checked_sub(1).map_or(&self.input, |before| &self.layers[before].y)
    }
}

/// Every layer is a unit and a pass.
impl DeviceModel for DeviceMlp {
    type Batch = Samples<f32>;

    fn parameters(&self) -> &ParameterTable {
        &self.table
    }

    fn forward(
        &mut self,
        pass: &DeviceForward<'_>,
        batch: &Samples<f32>,
    ) -> Result<(), DeviceError> {
        let (layer, stream) = (pass.index, pass.stream);
        if layer == 0 {
            self.receive(stream, batch)?;
        }
        let work = self.work.as_ref().expect("the first pass provides it");
        let operations = Operations { device: &*self.device, stream };
        let (unit, of_layer) = (pass.unit(layer), &work.layers[layer]);
        let LayerRows { y, bias, .. } = of_layer;
        operations.linear(work.input(layer), unit, y)?;
        let bias_bytes = bias.width as usize * self.element.bytes();
        let from = self.bias(layer, unit, self.element);
        self.device.copy(stream, from, bias.address(), bias_bytes)?;
        let is_last = layer + 1 == self.layers();
        let function = if is_last { Activation::Identity } else { Activation::Relu };
        operations.bias_activation(y, bias.address(), function)?;
        if !is_last {
            return Ok(());
        }
        let (targets, losses) = (work.targets, work.losses);
        operations.classify(y, targets, losses, pass.loss_scale)
    }

    fn losses(&self) -> DeviceLosses {
        let work = self.work.as_ref().expect("there was a forward pass");
        DeviceLosses { address: work.losses, count: work.input.rows as usize }
    }

    fn backward(
        &mut self,
        pass: &DeviceBackward<'_>,
        _batch: &Samples<f32>,
    ) -> Result<(), DeviceError> {
        let (layer, stream) = (pass.forward.index, pass.forward.stream);
        let work = self.work.as_ref().expect("there was a forward pass");
        let operations = Operations { device: &*self.device, stream };
        let (dy, gradient) = (work.layers[layer].gradient(), pass.gradient(layer));
        let bias = Some(self.bias(layer, gradient, ElementType::F32));
        let sums = LayerAddresses { weight: gradient, bias };
        operations.layer_backward(dy, work.input(layer), sums, work.partial)?;
        let Some(before) = layer.checked_sub(1).map(|before| &work.layers[before]) else {
            return Ok(());
        };
        operations.linear_backward(dy, pass.forward.unit(layer), before.gradient())?;
        operations.activation_backward(&before.y, Activation::Relu, before.gradient())
    }
}
