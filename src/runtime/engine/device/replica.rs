//! [`DeviceReplica`]: a rank whose memory is that of a device.

use std::sync::Arc;

use crate::cuda::device::{
    Device, DeviceAddress, DeviceError, DeviceMemory, KernelArgument, StreamId,
};
use crate::cuda::kernels::{ElementType, Kernel, KernelLaunch, KernelProgram};
use crate::runtime::comm::collectives::Collectives as _;
use crate::runtime::comm::core::operation::DividedReduction;
use crate::runtime::comm::group::Group;
use crate::runtime::comm::shm::buffer::SharedBuffer;
use crate::runtime::dtype::element::ReduceOp;
use crate::runtime::engine::buffers::UnitBuffers;
use crate::runtime::engine::config::EngineConfig;
use crate::runtime::engine::device::check::check_device_config;
use crate::runtime::engine::device::model::{DeviceBackward, DeviceForward, DeviceModel};
use crate::runtime::engine::device::unit::{DeviceQueue, UnitMemory};
use crate::runtime::engine::device::update::StepMemory;
use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::parameters::{ParameterTable, Unit};
use crate::runtime::engine::replica::{MicroBatch, Replica};
use crate::runtime::flat::norm::fold_block_sums;
use crate::runtime::optim::{Optimizer, OptimizerStep};
use crate::runtime::parallel::zero::lanes::LaneAssignment;
use crate::runtime::parallel::zero::step_plan::{Computation, PlanPass, PlanStep};

/// Rank in the memory of a device. Gradients are reduced through the memory of the host.
pub struct DeviceReplica<M: DeviceModel> {
    pub(super) group: Group,
    pub(super) device: Arc<dyn Device>,
    pub(super) stream: StreamId,
    pub(super) element: ElementType,
    pub(super) model: M,
    pub(super) optimizer: Optimizer,
    passes: Vec<PlanPass>,
    lanes: LaneAssignment,
    pub(super) units: Vec<UnitMemory>,
    /// Factor of the losses, f32, and its value on the device.
    loss_scale: (Box<dyn DeviceMemory>, f32),
    step: StepMemory,
    /// Sums of squares of all units, f64.
    squares: Box<dyn DeviceMemory>,
    /// Memory of the host for reductions.
    staging: UnitBuffers<SharedBuffer<f32>>,
    /// Loss of the last forward pass.
    loss: f32,
}

impl<M: DeviceModel> DeviceReplica<M> {
    /// Allocates the memory of this rank, and fills the weights with their initial values.
    pub(in crate::runtime::engine) fn new(
        group: &Group,
        device: Arc<dyn Device>,
        model: M,
        config: &EngineConfig,
        lanes: LaneAssignment,
    ) -> Result<Self, EngineError> {
        check_device_config(config, group.world_size())?;
        let element = config.precision.into();
        let stream = device.create_stream()?;
        let on = DeviceQueue { device: &*device, stream, element };
        let moments = config.optimizer.state_names().len();
        let units = init_units(on, model.parameters(), config.seed, moments)?;
        let passes = model
            .passes()
            .into_iter()
            .map(|pass| PlanPass { units: pass.units, can_recompute: false });
        let sums: u32 = units.iter().map(|unit| sums_of(unit.len)).sum();
        let loss_scale = device.alloc(size_of::<f32>())?;
        device.upload(stream, &1f32.to_ne_bytes(), loss_scale.address())?;
        Ok(Self {
            group: group.clone(),
            passes: passes.collect(),
            lanes,
            units,
            loss_scale: (loss_scale, 1.0),
            step: StepMemory::new(on)?,
            squares: device.alloc(sums as usize * size_of::<f64>())?,
            staging: UnitBuffers::new(),
            loss: 0.0,
            optimizer: config.optimizer,
            device,
            stream,
            element,
            model,
        })
    }

    fn queue(&self) -> DeviceQueue<'_> {
        DeviceQueue { device: &*self.device, stream: self.stream, element: self.element }
    }

    fn compute(
        &mut self,
        kind: Computation,
        index: usize,
        batch: &M::Batch,
        at: MicroBatch,
    ) -> Result<(), DeviceError> {
        let of_pass = |address: fn(&UnitMemory) -> DeviceAddress| -> Vec<(usize, DeviceAddress)> {
            let units = self.passes[index].units.iter();
            units.map(|unit| (*unit, address(&self.units[*unit]))).collect()
        };
        let (units, gradients) = (of_pass(UnitMemory::weights), of_pass(UnitMemory::open_gradient));
        let (memory, on_device) = &mut self.loss_scale;
        if at.loss_scale.to_bits() != on_device.to_bits() {
            self.device.upload(self.stream, &at.loss_scale.to_ne_bytes(), memory.address())?;
            *on_device = at.loss_scale;
        }
        let loss_scale = memory.address();
        let forward = DeviceForward { index, stream: self.stream, loss_scale, units: &units };
        match kind {
            Computation::Forward => {
                self.model.forward(&forward, batch)?;
                if index + 1 == self.passes.len() {
                    self.loss = self.model.loss(self.stream)?;
                }
                Ok(())
            }
            Computation::Backward => {
                self.model.backward(&DeviceBackward { forward, gradients: &gradients }, batch)
            }
            Computation::Recompute => unreachable!("the settings keep all activations"),
        }
    }

    /// The gradient of a unit is complete; after the last micro-batch, it becomes the mean over all lanes.
    fn reduce(&mut self, unit: usize, is_last: bool) -> Result<(), EngineError> {
        let Self { device, stream, element, units, group, staging, .. } = self;
        let on = DeviceQueue { device: &**device, stream: *stream, element: *element };
        units[unit].close(on)?;
        if !is_last {
            return Ok(());
        }
        let (gradient, len, lanes) = (units[unit].gradient(), units[unit].len, self.lanes.count());
        if group.world_size() == 1 {
            return Ok(on.divide(gradient, lanes, len)?);
        }
        let mut buffer = staging.take(len, |len| group.alloc_shared(len))?;
        let values = bytemuck::cast_slice_mut(buffer.slice_mut(&(0..len)));
        device.download(*stream, gradient, values)?;
        let mean = DividedReduction { op: ReduceOp::Sum, divisor: lanes as u64 };
        let work = group.submit_all_reduce(buffer.lend(&(0..len)), mean, |_| {});
        buffer.restore(work.wait()?);
        device.upload(*stream, bytemuck::cast_slice(buffer.slice(&(0..len))), gradient)?;
        staging.keep(buffer);
        Ok(())
    }
}

/// Sums of a unit that the kernel of squares writes.
fn sums_of(len: usize) -> u32 {
    KernelLaunch::squares(len as u64).grid[0]
}

/// Allocates all units, with the initial values.
fn init_units(
    on: DeviceQueue<'_>,
    table: &ParameterTable,
    seed: u64,
    moments: usize,
) -> Result<Vec<UnitMemory>, DeviceError> {
    let mut values = Vec::new();
    let unit = |(index, unit): (usize, &Unit)| {
        values.clear();
        values.resize(unit.range.len(), 0.0);
        table.init_unit(index, seed, &mut values);
        UnitMemory::new(on, table.of_unit(index), &values, moments)
    };
    table.units().iter().enumerate().map(unit).collect()
}

impl<M: DeviceModel> Replica for DeviceReplica<M> {
    type Batch = M::Batch;

    fn passes(&self) -> Vec<PlanPass> {
        self.passes.clone()
    }

    fn run(&mut self, step: PlanStep, batch: &M::Batch, at: MicroBatch) -> Result<(), EngineError> {
        let outcome = match step {
            // Every rank keeps all parameters, and a reduction ends before it returns.
            PlanStep::StartGather { .. }
            | PlanStep::FinishGather { .. }
            | PlanStep::Free { .. }
            | PlanStep::FinishReduce { .. } => Ok(()),
            PlanStep::Compute { kind, pass } => Ok(self.compute(kind, pass, batch, at)?),
            PlanStep::OpenGradient { unit } => {
                let Self { device, stream, element, units, .. } = self;
                let on = DeviceQueue { device: &**device, stream: *stream, element: *element };
                Ok(units[unit].open(on, at.is_last)?)
            }
            PlanStep::StartReduce { unit } => self.reduce(unit, at.is_last),
        };
        if let Err(error @ EngineError::Device(_)) = &outcome {
            // The other ranks would wait for the operations of this one.
            self.group.abort(&error.to_string());
        }
        outcome
    }

    fn loss(&self) -> f32 {
        self.loss
    }

    fn gradient_norm(&mut self) -> Result<f64, EngineError> {
        let on = self.queue();
        let (mut at, mut count) = (self.squares.address(), 0);
        for unit in &self.units {
            let arguments = [
                KernelArgument::Address(unit.gradient()),
                KernelArgument::Address(at),
                KernelArgument::U64(unit.len as u64),
            ];
            let kernel = (KernelProgram::Optimizer(self.element), Kernel::Squares);
            let size = KernelLaunch::squares(unit.len as u64);
            on.device.launch(on.stream, kernel, size, &arguments)?;
            at = at.offset(sums_of(unit.len) as usize * size_of::<f64>());
            count += sums_of(unit.len) as usize;
        }
        let mut sums = vec![0.0f64; count];
        let bytes = bytemuck::cast_slice_mut(&mut sums);
        on.device.download(on.stream, self.squares.address(), bytes)?;
        Ok(fold_block_sums(&sums).sqrt())
    }

    fn update(&mut self, step: &OptimizerStep) -> Result<(), EngineError> {
        let on = self.queue();
        self.step.upload(on, step)?;
        for unit in &self.units {
            self.step.update(on, unit, step)?;
        }
        Ok(())
    }
}
