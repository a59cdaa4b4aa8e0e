//! [`HostReplica`]: a rank whose memory is that of the host, with a model that computes on the processor.

use std::ops::Range;

use crate::runtime::comm::group::Group;
use crate::runtime::dtype::element::Dtype;
use crate::runtime::dtype::half::{Bf16, F16};
use crate::runtime::engine::config::{EngineConfig, Precision};
use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::host::gradients::GradientStore;
use crate::runtime::engine::host::groups::UnitGroups;
use crate::runtime::engine::host::optimizer_state::StateValues;
use crate::runtime::engine::host::reduction::GradientOptions;
use crate::runtime::engine::host::weights::{StoredWeights, Weights, shard_layout};
use crate::runtime::engine::model::{BackwardPass, ForwardPass, Model, plan_passes};
use crate::runtime::engine::parameters::Parameter;
use crate::runtime::engine::replica::{MicroBatch, Replica};
use crate::runtime::error::Result;
use crate::runtime::flat::norm::{block_sums, fold_block_sums};
use crate::runtime::flat::tasks::Serial;
use crate::runtime::optim::{DecayRange, Optimizer, OptimizerStep};
use crate::runtime::parallel::zero::lanes::LaneAssignment;
use crate::runtime::parallel::zero::shard_ranges::{NORM_BLOCK, ShardLayout};
use crate::runtime::parallel::zero::stage::Sharding;
use crate::runtime::parallel::zero::step_plan::{Computation, PlanPass, PlanStep, segments};

/// Rank in host memory.
pub struct HostReplica<M: Model> {
    pub(super) group: Group,
    pub(super) model: M,
    passes: Vec<PlanPass>,
    pub(super) layout: ShardLayout,
    compute: Dtype,
    pub(super) sharding: Sharding,
    pub(super) optimizer: Optimizer,
    pub(super) weights: Box<dyn Weights>,
    pub(super) gradients: GradientStore,
    /// Optimizer state of every unit, for the part that this rank updates.
    pub(super) states: Vec<UnitState>,
}

/// Optimizer state of a unit.
pub(super) struct UnitState {
    /// Weights in full precision; `None` if the stored weights are.
    pub(super) master: Option<StateValues<f32>>,
    /// Moments, in the order of [`Optimizer::state_names`].
    pub(super) moments: Vec<StateValues<f32>>,
}

impl UnitState {
    /// Allocates zeros for `len` elements that this rank updates.
    fn zeros(len: usize, config: &EngineConfig) -> Result<Self, EngineError> {
        let dir = config.offload.optimizer.as_deref();
        let zeros = || StateValues::zeros(len, dir);
        let has_master = config.precision != Precision::F32;
        let moments = config.optimizer.state_names().iter();
        Ok(Self {
            master: has_master.then(zeros).transpose()?,
            moments: moments.map(|_| zeros()).collect::<Result<_, _>>()?,
        })
    }

    /// The state is not used for a while.
    pub(super) fn release(&self) {
        self.master.iter().chain(&self.moments).for_each(StateValues::release);
    }
}

impl<M: Model> HostReplica<M> {
    /// Allocates the memory of this rank, and fills the weights with their initial values.
    pub(crate) fn new(
        group: &Group,
        mut model: M,
        config: &EngineConfig,
        lanes: LaneAssignment,
    ) -> Result<Self, EngineError> {
        let passes = plan_passes(&model);
        model.set_segments(&segments(&passes, config.plan.recompute));
        let unit_lens = model.parameters().units().iter().map(|unit| unit.range.len());
        let layout = shard_layout(unit_lens, config, group.world_size());
        let groups = UnitGroups::new(group, config.shard_group)?;
        let weights = allocate_weights(&groups, &layout, config)?;
        let rounding = config.gradient_rounding.map_or(Dtype::F32, Precision::dtype);
        let options = GradientOptions { lanes, sharding: config.sharding, rounding };
        let gradients = GradientStore::new(&groups, &layout, options)?;
        let zeros = |unit| UnitState::zeros(gradients.own_range(unit).len(), config);
        let states: Result<_, _> = (0..layout.units().len()).map(zeros).collect();
        let states = states.inspect_err(|error| abort_if_offload(group, error))?;
        let mut replica = Self {
            group: group.clone(),
            model,
            passes,
            layout,
            compute: config.precision.dtype(),
            sharding: config.sharding,
            optimizer: config.optimizer,
            weights,
            gradients,
            states,
        };
        replica.init(config.seed)?;
        Ok(replica)
    }

    /// Returns the model.
    pub fn model(&mut self) -> &mut M {
        &mut self.model
    }

    /// Writes the initial values of this rank's part, and collects those of the others.
    fn init(&mut self, seed: u64) -> Result<()> {
        let mut values = Vec::new();
        for unit in 0..self.layout.units().len() {
            values.resize(self.layout.units()[unit].len, 0.0);
            self.model.parameters().init_unit(unit, seed, &mut values);
            let own = self.gradients.own_range(unit);
            self.write_own_weights(unit, &values[own]);
        }
        self.weights.start_publish()?;
        Ok(self.weights.finish_publish()?)
    }

    /// Replaces this rank's part of a unit.
    pub(super) fn write_own_weights(&mut self, unit: usize, values: &[f32]) {
        if let Some(master) = &mut self.states[unit].master {
            master.copy_from_slice(values);
        }
        self.weights.store(unit, &self.gradients.own_range(unit), values);
    }

    fn compute(
        &mut self,
        kind: Computation,
        pass: usize,
        batch: &M::Batch,
        at: MicroBatch,
    ) -> Result<(), EngineError> {
        let Self { model, passes, weights, gradients, compute, .. } = self;
        let units = &passes[pass].units;
        let params: Vec<(usize, &[f32])> =
            units.iter().map(|unit| (*unit, weights.unit(*unit))).collect();
        let forward = ForwardPass::new(pass, &params, at.loss_scale, *compute);
        let outcome = match kind {
            Computation::Forward => model.forward(&forward, batch),
            Computation::Recompute => model.forward(&forward.recomputation(), batch),
            Computation::Backward => {
                let mut open = gradients.open_units(units);
                model.backward(&mut BackwardPass::new(forward, &mut open), batch)
            }
        };
        outcome.map_err(|error| {
            // The other ranks would wait for the operations of this one.
            self.group.abort(&error.to_string());
            error.into()
        })
    }

    /// Sums of squares of the blocks of this rank's part, with zeros for padding if parts are divided.
    fn own_block_sums(&mut self) -> Vec<f64> {
        let mut sums = Vec::new();
        for unit in 0..self.layout.units().len() {
            let begin = sums.len();
            sums.extend(block_sums(&Serial, self.gradients.own(unit)));
            if self.sharding.divides_optimizer() {
                sums.resize(begin + self.layout.units()[unit].shard_len / NORM_BLOCK, 0.0);
            }
        }
        sums
    }

    /// Ranges of this rank's part of a unit by weight decay, counted from the begin of the part.
    fn decay_ranges(&self, unit: usize, own: &Range<usize>) -> Vec<DecayRange> {
        let table = self.model.parameters();
        let base = table.units()[unit].range.start;
        let range_of = |parameter: &Parameter| {
            let at = |element: usize| (element - base).clamp(own.start, own.end) - own.start;
            let range = at(parameter.range.start)..at(parameter.range.end);
            DecayRange { range, decays: parameter.decays() }
        };
        let ranges = table.of_unit(unit).iter().map(range_of);
        ranges.filter(|part| !part.range.is_empty()).collect()
    }

    /// Updates this rank's part of a unit.
    fn update_unit(&mut self, unit: usize, step: &OptimizerStep) {
        let own = self.gradients.own_range(unit);
        let ranges = self.decay_ranges(unit, &own);
        let Self { weights, gradients, states, .. } = self;
        let gradient = gradients.own(unit);
        let UnitState { master, moments } = &mut states[unit];
        let params = match master {
            Some(master) => &mut master[..],
            None => weights.master_mut(unit).expect("weights in full precision are masters"),
        };
        step.update_ranges(&Serial, &ranges, params, moments, gradient);
        if let Some(master) = master {
            weights.store(unit, &own, master);
        }
        states[unit].release();
    }
}

/// Tells the other ranks, which would wait for this one, that it cannot use its directory.
fn abort_if_offload(group: &Group, error: &EngineError) {
    if matches!(error, EngineError::Offload { .. }) {
        group.abort(&error.to_string());
    }
}

fn boxed<W: Weights + 'static>(weights: W) -> Box<dyn Weights> {
    Box::new(weights)
}

/// Allocates the weights in the type of the arithmetic.
fn allocate_weights(
    groups: &UnitGroups,
    layout: &ShardLayout,
    config: &EngineConfig,
) -> Result<Box<dyn Weights>, EngineError> {
    let weights: Result<Box<dyn Weights>, EngineError> = match config.precision {
        Precision::F32 => StoredWeights::<f32>::new(groups, layout, config).map(boxed),
        Precision::Bf16 => StoredWeights::<Bf16>::new(groups, layout, config).map(boxed),
        Precision::F16 => StoredWeights::<F16>::new(groups, layout, config).map(boxed),
    };
    weights.inspect_err(|error| abort_if_offload(&groups.all, error))
}

impl<M: Model> Replica for HostReplica<M> {
    type Batch = M::Batch;

    fn passes(&self) -> Vec<PlanPass> {
        self.passes.clone()
    }

    fn run(&mut self, step: PlanStep, batch: &M::Batch, at: MicroBatch) -> Result<(), EngineError> {
        match step {
            PlanStep::StartGather { unit } => self.weights.start_gather(unit)?,
            PlanStep::FinishGather { unit } => self.weights.finish_gather(unit)?,
            PlanStep::Free { unit } => self.weights.free(unit),
            PlanStep::Compute { kind, pass } => self.compute(kind, pass, batch, at)?,
            PlanStep::OpenGradient { unit } => self.gradients.open(unit, at.is_last)?,
            PlanStep::StartReduce { unit } => self.gradients.start_reduce(unit, at.is_last)?,
            PlanStep::FinishReduce { unit } => self.gradients.finish_reduce(unit, at.is_last)?,
        }
        Ok(())
    }

    fn loss(&self) -> f32 {
        self.model.loss()
    }

    fn gradient_norm(&mut self) -> Result<f64, EngineError> {
        let own = self.own_block_sums();
        if !self.sharding.divides_optimizer() {
            return Ok(fold_block_sums(&own).sqrt());
        }
        let mut all = vec![0.0; own.len() * self.group.world_size()];
        self.group.all_gather(&own, &mut all)?;
        let sums: Vec<f64> = self.layout.block_order().into_iter().map(|at| all[at]).collect();
        Ok(fold_block_sums(&sums).sqrt())
    }

    fn update(&mut self, step: &OptimizerStep) -> Result<(), EngineError> {
        for unit in 0..self.layout.units().len() {
            self.update_unit(unit, step);
        }
        self.weights.start_publish()?;
        Ok(self.weights.finish_publish()?)
    }
}
