//! [`HostReplica`]: a rank whose memory is that of the host, with a model that computes on the processor.

use crate::runtime::comm::group::Group;
use crate::runtime::dtype::element::Dtype;
use crate::runtime::engine::config::{EngineConfig, Precision};
use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::host::gradients::HostGradients;
use crate::runtime::engine::model::{BackwardPass, ForwardPass, Model, plan_passes};
use crate::runtime::engine::outcome::{StepDecision, StepSettings};
use crate::runtime::engine::replica::{MicroBatch, Replica};
use crate::runtime::engine::shards::gradients::GradientStore;
use crate::runtime::engine::shards::groups::UnitGroups;
use crate::runtime::engine::shards::optimizer_state::UnitState;
use crate::runtime::engine::shards::reduction::GradientOptions;
use crate::runtime::engine::shards::sections::{OwnSections as _, OwnedParts, init_weights};
use crate::runtime::engine::shards::weights::{
    Weights, abort_if_offload, allocate_weights, shard_layout,
};
use crate::runtime::flat::norm::block_sums;
use crate::runtime::flat::tasks::Serial;
use crate::runtime::optim::{LossScale, Optimizer, OptimizerStep};
use crate::runtime::parallel::zero::lanes::LaneAssignment;
use crate::runtime::parallel::zero::step_plan::{Computation, PlanPass, PlanStep, segments};

/// Rank in host memory.
pub struct HostReplica<M: Model> {
    pub(super) model: M,
    passes: Vec<PlanPass>,
    pub(super) parts: OwnedParts,
    compute: Dtype,
    pub(super) optimizer: Optimizer,
    pub(super) weights: Box<dyn Weights>,
    gradients: GradientStore<HostGradients>,
    /// Optimizer state of every unit, for the part that this rank updates.
    pub(super) states: Vec<UnitState>,
    /// Decision on the last step.
    decision: Option<StepDecision>,
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
        let parts = OwnedParts { group: group.clone(), layout, sharding: config.sharding };
        let executor = HostGradients(group.clone());
        let gradients = GradientStore::new(executor, &groups, &parts, options)?;
        let zeros = |unit| UnitState::zeros(parts.own_range(unit).len(), config);
        let states: Result<_, _> = (0..parts.layout.units().len()).map(zeros).collect();
        let states = states.inspect_err(|error| abort_if_offload(group, error))?;
        let mut replica = Self {
            model,
            passes,
            parts,
            compute: config.precision.dtype(),
            optimizer: config.optimizer,
            weights,
            gradients,
            states,
            decision: None,
        };
        init_weights(&mut replica, config.seed)?;
        Ok(replica)
    }

    /// Returns the model.
    pub fn model(&mut self) -> &mut M {
        &mut self.model
    }

    fn compute(
        &mut self,
        kind: Computation,
        pass: usize,
        batch: &M::Batch,
        at: MicroBatch,
    ) -> Result<(), EngineError> {
        let Self { model, passes, parts, weights, gradients, compute, .. } = self;
        let units = &passes[pass].units;
        let params: Vec<(usize, &[f32])> =
            units.iter().map(|unit| (*unit, weights.unit(*unit))).collect();
        let forward = ForwardPass::new(pass, &params, at.loss_scale, *compute);
        let outcome = match kind {
            Computation::Forward => model.forward(&forward, batch),
            Computation::Recompute => model.forward(&forward.recomputation(), batch),
            Computation::Backward => {
                let len = |unit: usize| parts.layout.units()[unit].len;
                let open = gradients.open_units(units);
                let mut open: Vec<_> =
                    open.map(|(unit, open)| (unit, open.elements(len(unit)))).collect();
                model.backward(&mut BackwardPass::new(forward, &mut open), batch)
            }
        };
        outcome.map_err(|error| {
            // The other ranks would wait for the operations of this one.
            self.parts.group.abort(&error.to_string());
            error.into()
        })
    }

    /// Updates this rank's part of a unit.
    fn update_unit(&mut self, unit: usize, step: &OptimizerStep) {
        let own = self.parts.own_range(unit);
        let ranges = self.parts.decay_ranges(self.model.parameters(), unit);
        let Self { weights, gradients, states, .. } = self;
        let gradient = gradients.own(unit).elements();
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

impl<M: Model> Replica for HostReplica<M> {
    type Batch = M::Batch;

    fn passes(&self) -> Vec<PlanPass> {
        self.passes.clone()
    }

    /// The operations of the host say which ranks are missing.
    fn begin_step(&mut self) {}

    fn run(&mut self, step: PlanStep, batch: &M::Batch, at: MicroBatch) -> Result<(), EngineError> {
        match step {
            PlanStep::StartGather { unit } => self.weights.start_gather(unit)?,
            PlanStep::FinishGather { unit } => {
                self.weights.finish_gather(unit)?;
                self.weights.widen(unit);
            }
            PlanStep::Free { unit } => self.weights.free(unit),
            PlanStep::Compute { kind, pass } => self.compute(kind, pass, batch, at)?,
            PlanStep::OpenGradient { unit } => self.gradients.open(unit, at.is_last)?,
            PlanStep::StartReduce { unit } => {
                self.gradients.close(unit, at.is_last)?;
                self.gradients.start_due()?;
            }
            PlanStep::FinishReduce { unit } => self.gradients.finish_reduce(unit, at.is_last)?,
        }
        Ok(())
    }

    fn loss(&mut self) -> Result<f32, EngineError> {
        Ok(self.model.loss())
    }

    fn keep_loss(&mut self, _micro_batch: usize) -> Result<Option<f32>, EngineError> {
        Ok(Some(self.model.loss()))
    }

    fn is_deferred(&self) -> bool {
        false
    }

    fn end_step(&mut self, settings: &StepSettings) -> Result<(), EngineError> {
        let Self { parts, gradients, .. } = self;
        let units = 0..parts.layout.units().len();
        let squares = parts.sum_of_squares(
            units.map(|unit| block_sums(&Serial, gradients.own(unit).elements())),
        )?;
        let decision = settings.decide(squares.sqrt());
        if decision.is_applied {
            let step = settings.optimizer_step(settings.factor(decision.norm));
            for unit in 0..self.states.len() {
                self.update_unit(unit, &step);
            }
            self.publish()?;
        }
        self.decision = Some(decision);
        Ok(())
    }

    fn decision(&mut self) -> Result<StepDecision, EngineError> {
        Ok(self.decision.take().expect("a step was ended"))
    }

    fn resume(&mut self, _updates: u64, _loss_scale: LossScale) -> Result<(), EngineError> {
        Ok(())
    }
}
