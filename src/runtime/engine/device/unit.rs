//! [`UnitMemory`]: what a rank keeps of a unit on a device.

use crate::cuda::device::{
    Device, DeviceAddress, DeviceError, DeviceMemory, KernelArgument, StreamId,
};
use crate::cuda::kernels::{ElementType, Kernel, KernelLaunch, KernelProgram};
use crate::runtime::engine::parameters::Parameter;
use crate::runtime::flat::accumulate::BinaryCounter;

/// A stream of a device, to which a replica submits its operations.
#[derive(Clone, Copy)]
pub(super) struct DeviceQueue<'d> {
    pub(super) device: &'d dyn Device,
    pub(super) stream: StreamId,
    /// Type in which the model computes.
    pub(super) element: ElementType,
}

/// Memory of a unit.
pub(super) struct UnitMemory {
    /// Elements.
    pub(super) len: usize,
    /// Weights in the type in which the model computes.
    weights: Box<dyn DeviceMemory>,
    /// Weights in full precision; `None` if the model computes in it.
    master: Option<Box<dyn DeviceMemory>>,
    /// Moments, f32, in the order of the optimizer.
    pub(super) moments: Vec<Box<dyn DeviceMemory>>,
    /// Sum over the micro-batches of a step, then over the ranks, f32.
    gradient: Box<dyn DeviceMemory>,
    /// Gradient of a micro-batch that is not the last one of its step.
    open: Option<Box<dyn DeviceMemory>>,
    /// Sums of earlier micro-batches.
    earlier: BinaryCounter<Box<dyn DeviceMemory>>,
    /// Ends of the ranges that decay or do not, by turns.
    pub(super) decay_ends: Box<dyn DeviceMemory>,
    pub(super) decay_ranges: u32,
}

/// Ends of ranges of parameters: those with even numbers decay, the others do not. `begin` is the first element.
fn decay_ends(parameters: &[Parameter], begin: usize) -> Vec<u64> {
    let mut ends = Vec::new();
    for parameter in parameters {
        let end = (parameter.range.end - begin) as u64;
        // The first range is that of parameters that decay, and may be empty.
        if ends.is_empty() && !parameter.decays() {
            ends.push(0);
        }
        let last_decays = ends.len() % 2 == 1;
        if !ends.is_empty() && last_decays == parameter.decays() {
            ends.pop();
        }
        ends.push(end);
    }
    ends
}

impl UnitMemory {
    /// Allocates the memory of a unit with these parameters and values.
    pub(super) fn new(
        on: DeviceQueue<'_>,
        parameters: &[Parameter],
        values: &[f32],
        moments: usize,
    ) -> Result<Self, DeviceError> {
        let DeviceQueue { device, stream, element } = on;
        let numbers = |len: usize| device.alloc(len * size_of::<f32>());
        let weights = device.alloc(values.len() * element.bytes())?;
        device.upload(stream, &element.encode(values), weights.address())?;
        let master = match element {
            ElementType::F32 => None,
            ElementType::Half(_) => {
                let master = numbers(values.len())?;
                device.upload(stream, bytemuck::cast_slice(values), master.address())?;
                Some(master)
            }
        };
        let moments: Vec<_> =
            (0..moments).map(|_| numbers(values.len())).collect::<Result<_, _>>()?;
        for moment in &moments {
            device.clear(stream, moment.address(), moment.bytes())?;
        }
        let begin = parameters.first().map_or(0, |parameter| parameter.range.start);
        let ends = decay_ends(parameters, begin);
        let decay_ends = device.alloc(ends.len() * size_of::<u64>())?;
        device.upload(stream, bytemuck::cast_slice(&ends), decay_ends.address())?;
        Ok(Self {
            len: values.len(),
            weights,
            master,
            moments,
            gradient: numbers(values.len())?,
            open: None,
            earlier: BinaryCounter::new(),
            decay_ends,
            decay_ranges: ends.len() as u32,
        })
    }

    /// Weights in the type in which the model computes.
    pub(super) fn weights(&self) -> DeviceAddress {
        self.weights.address()
    }

    /// Weights in full precision.
    pub(super) fn master(&self) -> DeviceAddress {
        self.master.as_ref().unwrap_or(&self.weights).address()
    }

    /// The weights to which the master is rounded, if it is not the same memory.
    pub(super) fn copy(&self) -> DeviceAddress {
        self.master.as_ref().map_or(DeviceAddress::NULL, |_| self.weights.address())
    }

    /// Gradient of the step.
    pub(super) fn gradient(&self) -> DeviceAddress {
        self.gradient.address()
    }

    /// Gradient of the micro-batch that is computed.
    pub(super) fn open_gradient(&self) -> DeviceAddress {
        self.open.as_ref().unwrap_or(&self.gradient).address()
    }

    /// Provides zeros for the gradient of a micro-batch.
    pub(super) fn open(&mut self, on: DeviceQueue<'_>, is_last: bool) -> Result<(), DeviceError> {
        let bytes = self.len * size_of::<f32>();
        self.open = if is_last {
            None
        } else {
            let spare = self.earlier.take_spare();
            Some(spare.map_or_else(|| on.device.alloc(bytes), Ok)?)
        };
        on.device.clear(on.stream, self.open_gradient(), bytes)
    }

    /// The gradient of a micro-batch is complete: adds it to those before, in the order of a tree.
    pub(super) fn close(&mut self, on: DeviceQueue<'_>) -> Result<(), DeviceError> {
        let len = self.len;
        if let Some(open) = self.open.take() {
            return self.earlier.try_push(open, |older, newer| {
                on.add_older(older.address(), newer.address(), len)
            });
        }
        for older in self.earlier.sums() {
            on.add_older(older.address(), self.gradient.address(), len)?;
        }
        self.earlier.clear();
        Ok(())
    }
}

impl DeviceQueue<'_> {
    fn add_older(
        self,
        older: DeviceAddress,
        newer: DeviceAddress,
        len: usize,
    ) -> Result<(), DeviceError> {
        let arguments = [
            KernelArgument::Address(older),
            KernelArgument::Address(newer),
            KernelArgument::U64(len as u64),
        ];
        let kernel = (KernelProgram::Fold(self.element), Kernel::AddOlder);
        let size = KernelLaunch::elementwise(len as u64, self.element);
        self.device.launch(self.stream, kernel, size, &arguments)
    }

    /// Divides numbers.
    pub(super) fn divide(
        self,
        values: DeviceAddress,
        divisor: usize,
        len: usize,
    ) -> Result<(), DeviceError> {
        let arguments = [
            KernelArgument::Address(values),
            KernelArgument::F32(divisor as f32),
            KernelArgument::U64(len as u64),
        ];
        let kernel = (KernelProgram::Fold(self.element), Kernel::DivideAll);
        let size = KernelLaunch::elementwise(len as u64, self.element);
        self.device.launch(self.stream, kernel, size, &arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::engine::parameters::{Init, ParameterTable};

    #[test]
    fn ranges_decay_by_turns() {
        let ends = |shapes: &[&[usize]]| {
            let mut table = ParameterTable::default();
            table.unit("before");
            table.push("weight", &[3, 3], Init::Constant(0.0));
            table.unit("unit");
            for (number, shape) in shapes.iter().enumerate() {
                table.push(format!("p{number}"), shape, Init::Constant(0.0));
            }
            decay_ends(table.of_unit(1), table.units()[1].range.start)
        };
        // Matrices decay, vectors do not.
        assert_eq!(ends(&[&[2, 3], &[2], &[4], &[2, 2]]), [6, 12, 16]);
        assert_eq!(ends(&[&[5], &[2, 2]]), [0, 5, 9]);
        assert_eq!(ends(&[&[2, 2], &[1, 3]]), [7]);
    }
}
