//! [`DeviceModel`]: a model that computes on a device, unit by unit, over parameters that are handed in.

use crate::cuda::device::{DeviceAddress, DeviceError, StreamId};
use crate::runtime::engine::model::ModelPass;
use crate::runtime::engine::parameters::ParameterTable;
use crate::runtime::parallel::zero::step_plan::RecomputeSegment;

/// Trainable model whose work space is in the memory of a device: as [`Model`](crate::runtime::engine::Model), but a
/// pass only submits its operations to a stream.
pub trait DeviceModel {
    /// Type of a micro-batch, in the memory of the host.
    type Batch;

    /// Returns the table of parameters.
    fn parameters(&self) -> &ParameterTable;

    /// Returns the passes in the order of the forward pass; by default one for every unit.
    fn passes(&self) -> Vec<ModelPass> {
        (0..self.parameters().units().len()).map(|unit| ModelPass::new([unit])).collect()
    }

    /// Tells the model which passes belong together when activations are computed again, as
    /// [`Model::set_segments`](crate::runtime::engine::Model::set_segments).
    fn set_segments(&mut self, segments: &[RecomputeSegment]) {
        let _ = segments;
    }

    /// Submits the operations of a pass. The last pass computes the losses.
    ///
    /// # Errors
    /// If the device fails.
    fn forward(&mut self, pass: &DeviceForward<'_>, batch: &Self::Batch)
    -> Result<(), DeviceError>;

    /// Returns where the last pass has left the losses of the batch; their mean is that of the micro-batch.
    fn losses(&self) -> DeviceLosses;

    /// Submits the operations that compute the gradients of a pass from those of the pass after it, and add them to
    /// the gradients of its units.
    ///
    /// # Errors
    /// If the device fails.
    fn backward(
        &mut self,
        pass: &DeviceBackward<'_>,
        batch: &Self::Batch,
    ) -> Result<(), DeviceError>;
}

/// Losses of a batch, f32, in the memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLosses {
    /// Address of the first one.
    pub address: DeviceAddress,
    /// Number of losses, 1 or more.
    pub count: usize,
}

impl DeviceLosses {
    /// Returns the mean of losses, added in their order.
    pub fn mean(losses: &[f32]) -> f32 {
        losses.iter().sum::<f32>() / losses.len() as f32
    }
}

/// A forward pass on a device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceForward<'a> {
    /// Index of the pass.
    pub index: usize,
    /// Whether the pass computes activations again, which were not kept.
    pub is_recomputation: bool,
    /// Stream of the operations.
    pub stream: StreamId,
    /// Factor of the loss in the backward pass: one `f32` in the memory of the device.
    pub loss_scale: DeviceAddress,
    /// Parameters of the units that the pass names, in the type in which the model computes.
    pub units: &'a [(usize, DeviceAddress)],
}

/// A backward pass on a device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceBackward<'a> {
    /// The forward pass that it belongs to.
    pub forward: DeviceForward<'a>,
    /// Gradients of the same units, in `f32`: zeros, or what later passes of the model have added.
    pub gradients: &'a [(usize, DeviceAddress)],
}

impl DeviceForward<'_> {
    /// Returns the address of the first parameter of a unit.
    ///
    /// # Panics
    /// If the pass does not name the unit.
    pub fn unit(&self, unit: usize) -> DeviceAddress {
        find(self.units, unit)
    }
}

impl DeviceBackward<'_> {
    /// Returns the address of the first element of the gradient of a unit.
    ///
    /// # Panics
    /// If the pass does not name the unit.
    pub fn gradient(&self, unit: usize) -> DeviceAddress {
        find(self.gradients, unit)
    }
}

fn find(units: &[(usize, DeviceAddress)], unit: usize) -> DeviceAddress {
    let found = units.iter().find(|(index, _)| *index == unit);
    found.unwrap_or_else(|| panic!("the pass names unit {unit}")).1
}
