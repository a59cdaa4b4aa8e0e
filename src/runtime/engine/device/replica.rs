//! [`DeviceReplica`]: a rank whose memory is that of a device.

use std::sync::Arc;

use crate::cuda::device::{Device, DeviceAddress, DeviceError, DeviceMemory};
use crate::runtime::comm::group::Group;
use crate::runtime::engine::config::{EngineConfig, Precision};
use crate::runtime::engine::device::check::check_device_config;
use crate::runtime::engine::device::gradients::DeviceGradients;
use crate::runtime::engine::device::model::{DeviceBackward, DeviceForward, DeviceModel};
use crate::runtime::engine::device::queue::DeviceQueue;
use crate::runtime::engine::device::unit::UnitMemory;
use crate::runtime::engine::device::update::StepMemory;
use crate::runtime::engine::device::weights::DeviceWeights;
use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::replica::{MicroBatch, Replica};
use crate::runtime::engine::shards::gradients::GradientStore;
use crate::runtime::engine::shards::groups::UnitGroups;
use crate::runtime::engine::shards::reduction::GradientOptions;
use crate::runtime::engine::shards::sections::{OwnedParts, init_weights};
use crate::runtime::engine::shards::weights::shard_layout;
use crate::runtime::optim::{Optimizer, OptimizerStep};
use crate::runtime::parallel::zero::lanes::LaneAssignment;
use crate::runtime::parallel::zero::shard_ranges::NORM_BLOCK;
use crate::runtime::parallel::zero::step_plan::{Computation, PlanPass, PlanStep, segments};

/// Rank in the memory of a device. Ranks exchange weights and gradients through the memory of the host.
pub struct DeviceReplica<M: DeviceModel> {
    pub(super) on: DeviceQueue,
    pub(super) model: M,
    pub(super) optimizer: Optimizer,
    pub(super) parts: OwnedParts,
    passes: Vec<PlanPass>,
    weights: DeviceWeights,
    gradients: GradientStore<DeviceGradients>,
    pub(super) units: Vec<UnitMemory>,
    /// Factor of the losses, f32, and its value on the device.
    loss_scale: (Box<dyn DeviceMemory>, f32),
    step: StepMemory,
    /// Sums of squares of the blocks of this rank's parts, f64.
    squares: Box<dyn DeviceMemory>,
    /// Loss of the last forward pass.
    loss: f32,
}

impl<M: DeviceModel> DeviceReplica<M> {
    /// Allocates the memory of this rank, and fills the weights with their initial values.
    pub(in crate::runtime::engine) fn new(
        group: &Group,
        device: Arc<dyn Device>,
        mut model: M,
        config: &EngineConfig,
        lanes: LaneAssignment,
    ) -> Result<Self, EngineError> {
        check_device_config(config)?;
        let on = DeviceQueue::new(device, config.precision.into())?;
        let passes: Vec<PlanPass> = model.passes().into_iter().map(PlanPass::from).collect();
        model.set_segments(&segments(&passes, config.plan.recompute));
        let table = model.parameters();
        let unit_lens = table.units().iter().map(|unit| unit.range.len());
        let layout = shard_layout(unit_lens, config, group.world_size());
        let parts = OwnedParts { group: group.clone(), layout, sharding: config.sharding };
        let groups = UnitGroups::new(group, config.shard_group)?;
        let rounding = config.gradient_rounding.unwrap_or(Precision::F32).dtype();
        let options = GradientOptions { lanes, sharding: config.sharding, rounding };
        let executor = DeviceGradients::new(on.clone(), group.clone())?;
        let weights = DeviceWeights::new(&on, &groups, &parts.layout, config)?;
        let moments = config.optimizer.state_names().len();
        let unit = |unit| {
            let decay = parts.decay_ranges(table, unit);
            UnitMemory::new(&on, &parts.own_range(unit), weights.resident(unit), &decay, moments)
        };
        let units: Vec<UnitMemory> =
            (0..table.units().len()).map(unit).collect::<Result<_, _>>()?;
        let blocks: usize = units.iter().map(|unit| unit.len.div_ceil(NORM_BLOCK)).sum();
        let loss_scale = on.alloc(size_of::<f32>())?;
        on.upload(&[1.0], loss_scale.address())?;
        let mut replica = Self {
            passes,
            gradients: GradientStore::new(executor, &groups, &parts, options)?,
            weights,
            units,
            loss_scale: (loss_scale, 1.0),
            step: StepMemory::new(&on)?,
            squares: on.alloc(blocks * size_of::<f64>())?,
            loss: 0.0,
            optimizer: config.optimizer,
            parts,
            on,
            model,
        };
        init_weights(&mut replica, config.seed)?;
        Ok(replica)
    }

    /// Uploads the factor of the losses if it has changed.
    fn set_loss_scale(&mut self, scale: f32) -> Result<DeviceAddress, DeviceError> {
        let (memory, on_device) = &mut self.loss_scale;
        if scale.to_bits() != on_device.to_bits() {
            self.on.upload(&[scale], memory.address())?;
            *on_device = scale;
        }
        Ok(memory.address())
    }

    fn compute(
        &mut self,
        kind: Computation,
        index: usize,
        batch: &M::Batch,
        at: MicroBatch,
    ) -> Result<(), EngineError> {
        let loss_scale = self.set_loss_scale(at.loss_scale)?;
        let Self { on, model, passes, weights, gradients, .. } = self;
        let named = &passes[index].units;
        let units: Vec<_> = named.iter().map(|unit| (*unit, weights.address(*unit))).collect();
        let forward = DeviceForward {
            index,
            is_recomputation: kind == Computation::Recompute,
            stream: on.stream,
            loss_scale,
            units: &units,
        };
        match kind {
            Computation::Forward => {
                model.forward(&forward, batch)?;
                if index + 1 == passes.len() {
                    self.loss = model.loss(on.stream)?;
                }
            }
            Computation::Backward => {
                let open = gradients.open_units(named);
                let open: Vec<_> = open.map(|(unit, open)| (unit, open.address())).collect();
                model.backward(&DeviceBackward { forward, gradients: &open }, batch)?;
            }
            Computation::Recompute => model.forward(&forward, batch)?,
        }
        // Beside this pass, gradients of the one before are copied and reduced.
        self.gradients.start_due()
    }

    fn run_step(
        &mut self,
        step: PlanStep,
        batch: &M::Batch,
        at: MicroBatch,
    ) -> Result<(), EngineError> {
        match step {
            PlanStep::StartGather { unit } => self.weights.start_gather(unit),
            PlanStep::FinishGather { unit } => self.weights.finish_gather(unit),
            PlanStep::Free { unit } => self.weights.free(unit),
            PlanStep::Compute { kind, pass } => self.compute(kind, pass, batch, at),
            PlanStep::OpenGradient { unit } => self.gradients.open(unit, at.is_last),
            PlanStep::StartReduce { unit } => self.gradients.close(unit, at.is_last),
            PlanStep::FinishReduce { unit } => self.gradients.finish_reduce(unit, at.is_last),
        }
    }

    /// Sums of squares of the blocks of this rank's part of every unit.
    fn block_sums(&mut self) -> Result<Vec<Vec<f64>>, EngineError> {
        let mut at = self.squares.address();
        for (unit, memory) in self.units.iter().enumerate() {
            let gradient = self.gradients.own(unit).address();
            self.on.block_squares(gradient, at, memory.len)?;
            at = at.offset(memory.len.div_ceil(NORM_BLOCK) * size_of::<f64>());
        }
        let counts = self.units.iter().map(|unit| unit.len.div_ceil(NORM_BLOCK));
        let mut sums = vec![0.0f64; counts.clone().sum()];
        self.on.download(self.squares.address(), &mut sums)?;
        let mut rest = &sums[..];
        let of_units = counts.map(|count| {
            let (now, later) = rest.split_at(count);
            rest = later;
            now.to_vec()
        });
        Ok(of_units.collect())
    }

    fn update_parts(&mut self, step: &OptimizerStep) -> Result<(), EngineError> {
        self.step.upload(&self.on, step)?;
        for (unit, memory) in self.units.iter().enumerate() {
            let gradient = self.gradients.own(unit).address();
            self.step.update(&self.on, memory, gradient, step)?;
        }
        self.publish_parts()
    }

    /// Lets all ranks have the weights that each has replaced in its part.
    pub(super) fn publish_parts(&mut self) -> Result<(), EngineError> {
        self.weights.publish(self.units.iter().map(UnitMemory::weights).collect())
    }

    /// Aborts the group if the device failed: the other ranks would wait for the operations of this one.
    fn settle<T>(&self, outcome: Result<T, EngineError>) -> Result<T, EngineError> {
        if let Err(error @ EngineError::Device(_)) = &outcome {
            self.parts.group.abort(&error.to_string());
        }
        outcome
    }
}

impl<M: DeviceModel> Replica for DeviceReplica<M> {
    type Batch = M::Batch;

    fn passes(&self) -> Vec<PlanPass> {
        self.passes.clone()
    }

    fn run(&mut self, step: PlanStep, batch: &M::Batch, at: MicroBatch) -> Result<(), EngineError> {
        let outcome = self.run_step(step, batch, at);
        self.settle(outcome)
    }

    fn loss(&self) -> f32 {
        self.loss
    }

    fn gradient_norm(&mut self) -> Result<f64, EngineError> {
        let sums = self.block_sums();
        self.parts.norm(self.settle(sums)?)
    }

    fn update(&mut self, step: &OptimizerStep) -> Result<(), EngineError> {
        let outcome = self.update_parts(step);
        self.settle(outcome)
    }
}
