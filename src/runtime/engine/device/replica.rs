//! [`DeviceReplica`]: a rank whose memory is that of a device.

use std::sync::Arc;

use crate::cuda::device::{Device, DeviceAddress, DeviceError, DeviceMemory};
use crate::runtime::comm::group::Group;
use crate::runtime::engine::config::{EngineConfig, Precision, StatePlace};
use crate::runtime::engine::device::check::check_device_config;
use crate::runtime::engine::device::gradients::DeviceGradients;
use crate::runtime::engine::device::model::{DeviceBackward, DeviceForward, DeviceModel};
use crate::runtime::engine::device::queue::DeviceQueue;
use crate::runtime::engine::device::unit::{PartState, UnitMemory};
use crate::runtime::engine::device::update::StepMemory;
use crate::runtime::engine::device::weights::DeviceWeights;
use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::replica::{MicroBatch, Replica};
use crate::runtime::engine::shards::gradients::GradientStore;
use crate::runtime::engine::shards::groups::UnitGroups;
use crate::runtime::engine::shards::optimizer_state::UnitState;
use crate::runtime::engine::shards::reduction::GradientOptions;
use crate::runtime::engine::shards::sections::{OwnedParts, init_weights};
use crate::runtime::engine::shards::weights::{abort_if_offload, shard_layout};
use crate::runtime::flat::tasks::Serial;
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
    pub(super) weights: DeviceWeights,
    gradients: GradientStore<DeviceGradients>,
    pub(super) units: Vec<PartState>,
    /// Factor of the losses, f32, and its value on the device.
    loss_scale: (Box<dyn DeviceMemory>, f32),
    step: StepMemory,
    /// Sums of squares of the blocks of this rank's parts, f64.
    squares: Box<dyn DeviceMemory>,
    /// Loss of the last forward pass.
    loss: f32,
}

impl<M: DeviceModel> DeviceReplica<M> {
    /// Allocates the memory of this rank, and fills the weights with their initial values. Communicates.
    pub(in crate::runtime::engine) fn new(
        group: &Group,
        device: Arc<dyn Device>,
        model: M,
        config: &EngineConfig,
        lanes: LaneAssignment,
    ) -> Result<Self, EngineError> {
        check_device_config(config)?;
        let replica =
            Self::allocate(group, device, model, config, lanes).and_then(|mut replica| {
                init_weights(&mut replica, config.seed)?;
                Ok(replica)
            });
        replica.inspect_err(|error| abort_if_device(group, error))
    }

    fn allocate(
        group: &Group,
        device: Arc<dyn Device>,
        mut model: M,
        config: &EngineConfig,
        lanes: LaneAssignment,
    ) -> Result<Self, EngineError> {
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
            let own = parts.own_range(unit);
            if config.offload.optimizer != StatePlace::Computing {
                return UnitState::with_master(own.len(), config).map(PartState::Host);
            }
            let decay = parts.decay_ranges(table, unit);
            let memory = UnitMemory::new(&on, &own, weights.resident(unit), &decay, moments)?;
            Ok(PartState::Device(memory))
        };
        let units: Result<Vec<_>, _> = (0..table.units().len()).map(unit).collect();
        let units = units.inspect_err(|error| abort_if_offload(group, error))?;
        let blocks = |unit| parts.own_range(unit).len().div_ceil(NORM_BLOCK);
        let blocks: usize = (0..units.len()).map(blocks).sum();
        let loss_scale = on.alloc(size_of::<f32>())?;
        on.upload(&[1.0], loss_scale.address())?;
        Ok(Self {
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
        })
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
        let mut counts = Vec::new();
        for unit in 0..self.units.len() {
            let gradient = self.gradients.own(unit).address();
            let len = self.parts.own_range(unit).len();
            self.on.block_squares(gradient, at, len)?;
            counts.push(len.div_ceil(NORM_BLOCK));
            at = at.offset(len.div_ceil(NORM_BLOCK) * size_of::<f64>());
        }
        let mut sums = vec![0.0f64; counts.iter().sum()];
        self.on.download(self.squares.address(), &mut sums)?;
        let mut rest = &sums[..];
        let of_units = counts.into_iter().map(|count| {
            let (now, later) = rest.split_at(count);
            rest = later;
            now.to_vec()
        });
        Ok(of_units.collect())
    }

    fn update_parts(&mut self, step: &OptimizerStep) -> Result<(), EngineError> {
        self.step.upload(&self.on, step)?;
        let mut values = Vec::new();
        for (unit, state) in self.units.iter_mut().enumerate() {
            let gradient = self.gradients.own(unit).address();
            match state {
                PartState::Device(memory) => self.step.update(&self.on, memory, gradient, step)?,
                PartState::Host(state) => {
                    let own = self.parts.own_range(unit);
                    values.resize(own.len(), 0.0);
                    self.on.download(gradient, &mut values)?;
                    let ranges = self.parts.decay_ranges(self.model.parameters(), unit);
                    let master = state.master.as_mut().expect("the host has the weights");
                    step.update_ranges(&Serial, &ranges, master, &mut state.moments, &values);
                    self.weights.store(unit, &own, master)?;
                    state.release();
                }
            }
        }
        self.publish_parts()
    }

    /// Lets all ranks have the weights that each has replaced in its part.
    pub(super) fn publish_parts(&mut self) -> Result<(), EngineError> {
        match self.units.iter().map(PartState::weights).collect() {
            Some(parts) => self.weights.publish(parts),
            None => self.weights.exchange(),
        }
    }

    /// Aborts the group if the device failed.
    pub(super) fn settle<T>(&self, outcome: Result<T, EngineError>) -> Result<T, EngineError> {
        outcome.inspect_err(|error| abort_if_device(&self.parts.group, error))
    }
}

/// Tells the other ranks, which would wait for the operations of this one, that its device failed.
fn abort_if_device(group: &Group, error: &EngineError) {
    if let EngineError::Device(_) = error {
        group.abort(&error.to_string());
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
