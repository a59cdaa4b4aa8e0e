//! [`DeviceReplica`]: a rank whose memory is that of a device.

use std::sync::Arc;

use crate::cuda::device::Device;
use crate::runtime::comm::group::Group;
use crate::runtime::engine::config::{EngineConfig, Precision, StatePlace};
use crate::runtime::engine::device::decision::DecisionMemory;
use crate::runtime::engine::device::exchange::{DeviceExchange, StepAgreement, blocks_of};
use crate::runtime::engine::device::gradients::DeviceGradients;
use crate::runtime::engine::device::losses::KeptLosses;
use crate::runtime::engine::device::model::{
    DeviceBackward, DeviceForward, DeviceLosses, DeviceModel,
};
use crate::runtime::engine::device::path::GradientPath;
use crate::runtime::engine::device::queue::DeviceQueue;
use crate::runtime::engine::device::squares::{FoldedSums, SquareSums};
use crate::runtime::engine::device::unit::{PartState, UnitMemory};
use crate::runtime::engine::device::weights::DeviceWeights;
use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::outcome::{StepDecision, StepSettings};
use crate::runtime::engine::replica::{MicroBatch, Replica};
use crate::runtime::engine::shards::gradients::GradientStore;
use crate::runtime::engine::shards::groups::UnitGroups;
use crate::runtime::engine::shards::optimizer_state::UnitState;
use crate::runtime::engine::shards::reduction::GradientOptions;
use crate::runtime::engine::shards::sections::{OwnedParts, init_weights};
use crate::runtime::engine::shards::weights::{abort_if_offload, shard_layout};
use crate::runtime::flat::tasks::Serial;
use crate::runtime::optim::{LossScale, LossScaler, Optimizer, OptimizerStep};
use crate::runtime::parallel::zero::lanes::{LaneAssignment, LaneOrder};
use crate::runtime::parallel::zero::shard_ranges::UnitShards;
use crate::runtime::parallel::zero::step_plan::{Computation, PlanPass, PlanStep, segments};

/// Why gradients are reduced in the memory of the host, although the devices are connected.
const NO_POWER_OF_TWO: &str = "the number of micro-batches of a worker is no power of two";

/// Rank in the memory of a device. Ranks exchange weights and gradients between their devices, if these can be
/// connected, else through the memory of the host.
pub struct DeviceReplica<M: DeviceModel> {
    pub(super) on: DeviceQueue,
    pub(super) model: M,
    pub(super) optimizer: Optimizer,
    pub(super) parts: OwnedParts,
    passes: Vec<PlanPass>,
    pub(super) weights: DeviceWeights,
    gradients: GradientStore<DeviceGradients>,
    pub(super) units: Vec<PartState>,
    decision: DecisionMemory,
    squares: SquareSums,
    losses: KeptLosses,
    /// Comparison of the steps, if devices exchange what they do not compare.
    agreement: Option<StepAgreement>,
    path: GradientPath,
    /// Micro-batches of a step.
    accumulate: usize,
}

/// How the work is divided over the ranks.
struct Division {
    groups: UnitGroups,
    parts: OwnedParts,
    lanes: LaneAssignment,
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
        let replica =
            Self::allocate(group, device, model, config, lanes).and_then(|mut replica| {
                let filled = init_weights(&mut replica, config.seed);
                replica.settle(filled)?;
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
        let mut on = DeviceQueue::new(device, config.precision.into())?;
        let passes: Vec<PlanPass> = model.passes().into_iter().map(PlanPass::from).collect();
        model.set_segments(&segments(&passes, config.plan.recompute));
        let unit_lens = model.parameters().units().iter().map(|unit| unit.range.len());
        let layout = shard_layout(unit_lens, config, group.world_size());
        let parts = OwnedParts { group: group.clone(), layout, sharding: config.sharding };
        let groups = UnitGroups::new(group, config.shard_group)?;
        let mut path = DeviceExchange::choose(&*on.device, group, config)?;
        if let GradientPath::Nccl { order, .. } = path {
            let exchange =
                DeviceExchange::connect(&on.device, order, &groups, &parts.layout, config)?;
            on.exchange = Some(exchange);
            if lanes.order() == LaneOrder::Subtrees {
                // Weights and sums of squares are exchanged between the devices all the same.
                path = GradientPath::Host { why: NO_POWER_OF_TWO.to_owned() };
            }
        }
        let exchange = on.exchange.clone();
        let division = Division { groups, parts, lanes };
        let allocated = Self::allocate_on((on, path), (model, passes), config, division);
        // Other ranks do not wait for what this one would exchange.
        allocated.inspect_err(|_| exchange.iter().for_each(|exchange| exchange.abort()))
    }

    fn allocate_on(
        (on, path): (DeviceQueue, GradientPath),
        (model, passes): (M, Vec<PlanPass>),
        config: &EngineConfig,
        Division { groups, parts, lanes }: Division,
    ) -> Result<Self, EngineError> {
        let (group, table) = (&groups.all, model.parameters());
        let agreement = on.exchange.is_some().then(|| StepAgreement::new(group)).transpose()?;
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
            let stored = weights.own_part(unit, &own);
            let memory = UnitMemory::new(&on, &own, stored, &decay, moments)?;
            Ok(PartState::Device(memory))
        };
        let units: Result<Vec<_>, _> = (0..table.units().len()).map(unit).collect();
        let units = units.inspect_err(|error| abort_if_offload(group, error))?;
        let blocks: usize = match on.exchange {
            Some(_) => parts.layout.units().iter().map(UnitShards::blocks).sum(),
            None => (0..units.len()).map(|unit| blocks_of(&parts.own_range(unit)).len()).sum(),
        };
        let decision = DecisionMemory::new(&on, config.loss_scaling)?;
        decision.resume(&on, 0, LossScaler::new(config.loss_scaling).state())?;
        Ok(Self {
            passes,
            gradients: GradientStore::new(executor, &groups, &parts, options)?,
            weights,
            units,
            decision,
            squares: SquareSums::new(&on, blocks)?,
            losses: KeptLosses::new(),
            agreement,
            path,
            accumulate: config.accumulate,
            optimizer: config.optimizer,
            parts,
            on,
            model,
        })
    }

    /// How ranks exchange gradients.
    pub(in crate::runtime::engine) fn gradient_path(&self) -> &GradientPath {
        &self.path
    }

    fn compute(
        &mut self,
        kind: Computation,
        index: usize,
        batch: &M::Batch,
    ) -> Result<(), EngineError> {
        let Self { on, model, passes, weights, gradients, decision, .. } = self;
        let named = &passes[index].units;
        let units: Vec<_> = named.iter().map(|unit| (*unit, weights.address(*unit))).collect();
        let forward = DeviceForward {
            index,
            is_recomputation: kind == Computation::Recompute,
            stream: on.stream,
            loss_scale: decision.loss_scale(),
            units: &units,
        };
        match kind {
            Computation::Forward | Computation::Recompute => model.forward(&forward, batch)?,
            Computation::Backward => {
                let open = gradients.open_units(named);
                let open: Vec<_> = open.map(|(unit, open)| (unit, open.address())).collect();
                model.backward(&DeviceBackward { forward, gradients: &open }, batch)?;
            }
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
            PlanStep::Compute { kind, pass } => self.compute(kind, pass, batch),
            PlanStep::OpenGradient { unit } => self.gradients.open(unit, at.is_last),
            PlanStep::StartReduce { unit } => self.close_gradient(unit, at.is_last),
            PlanStep::FinishReduce { unit } => self.gradients.finish_reduce(unit, at.is_last),
        }
    }

    /// The gradient of a unit is complete. Between connected devices its reduction is submitted at once, beside the passes
    /// that follow. In the memory of the host it begins when the next pass was submitted, because the host waits for it.
    fn close_gradient(&mut self, unit: usize, is_last: bool) -> Result<(), EngineError> {
        self.gradients.close(unit, is_last)?;
        if self.on.exchange.is_some() { self.gradients.start_due() } else { Ok(()) }
    }

    /// Adds the squares of this rank's gradients, and of those of the other ranks. Communicates if ranks have different
    /// parts.
    fn sum_squares(&mut self) -> Result<FoldedSums, EngineError> {
        let is_exchanged = self.on.exchange.is_some() && self.parts.are_divided();
        let (mut counts, mut first) = (Vec::new(), 0);
        for unit in 0..self.units.len() {
            let gradient = self.gradients.own(unit).address();
            let own = self.parts.own_range(unit);
            let blocks = blocks_of(&own);
            let at = if is_exchanged { first + blocks.start } else { first };
            self.on.block_squares(gradient, self.squares.at(at), own.len())?;
            counts.push(blocks.len());
            let of_all = self.parts.layout.units()[unit].blocks();
            first += if is_exchanged { of_all } else { blocks.len() };
        }
        if is_exchanged {
            self.squares.gather(&self.on, &self.parts.layout)?;
        }
        if is_exchanged || !self.parts.are_divided() {
            return Ok(self.squares.fold(&self.on)?);
        }
        self.sum_squares_on_host(counts)
    }

    /// The sums of the blocks of all ranks meet in the memory of the host, for which it waits.
    fn sum_squares_on_host(&self, counts: Vec<usize>) -> Result<FoldedSums, EngineError> {
        let sums = self.squares.download(&self.on)?;
        let mut rest = &sums[..];
        let of_units = counts.into_iter().map(|count| {
            let (now, later) = rest.split_at(count);
            rest = later;
            now.to_vec()
        });
        let sum = self.parts.sum_of_squares(of_units)?;
        Ok(self.squares.upload(&self.on, sum)?)
    }

    fn submit_end(&mut self, settings: &StepSettings) -> Result<(), EngineError> {
        let sums = self.sum_squares()?;
        self.decision.decide(&self.on, sums, settings)?;
        self.losses.end_step();
        if let Some(agreement) = &mut self.agreement {
            agreement.end();
        }
        if self.units.iter().any(|unit| matches!(unit, PartState::Host(_))) {
            return self.update_on_host(settings);
        }
        let step = settings.optimizer_step(1.0);
        for (unit, state) in self.units.iter().enumerate() {
            if let PartState::Device(memory) = state {
                let gradient = self.gradients.own(unit).address();
                self.decision.update(&self.on, memory, gradient, &step)?;
            }
        }
        self.publish_parts()
    }

    /// Updates the weights in the memory of the host, which waits for the decision and the gradients.
    fn update_on_host(&mut self, settings: &StepSettings) -> Result<(), EngineError> {
        let decided = self.decision.read(&self.on)?;
        if decided.is_finite == 0 {
            return Ok(());
        }
        let step: OptimizerStep = settings.optimizer_step(decided.factor);
        let mut values = Vec::new();
        for (unit, state) in self.units.iter_mut().enumerate() {
            let PartState::Host(state) = state else { continue };
            let own = self.parts.own_range(unit);
            values.resize(own.len(), 0.0);
            self.on.download(self.gradients.own(unit).address(), &mut values)?;
            let ranges = self.parts.decay_ranges(self.model.parameters(), unit);
            let master = state.master.as_mut().expect("the host has the weights");
            step.update_ranges(&Serial, &ranges, master, &mut state.moments, &values);
            self.weights.store(unit, &own, master)?;
            state.release();
        }
        self.publish_parts()
    }

    fn read_decision(&mut self) -> Result<StepDecision, EngineError> {
        let step = self.decision.read(&self.on)?;
        let losses = self.losses.read_ended(&self.on, self.decision.reads)?;
        self.agreement.as_mut().map_or(Ok(()), StepAgreement::wait)?;
        Ok(StepDecision { norm: step.norm, is_applied: step.is_finite == 1, losses })
    }

    /// Lets all ranks have the weights that each has replaced in its part.
    pub(super) fn publish_parts(&mut self) -> Result<(), EngineError> {
        match self.units.iter().map(PartState::weights).collect() {
            Some(parts) => self.weights.publish(parts),
            None => self.weights.exchange(),
        }
    }

    /// After a failure, ends what the devices exchange; aborts the group if the device failed.
    pub(super) fn settle<T>(&self, outcome: Result<T, EngineError>) -> Result<T, EngineError> {
        outcome.map_err(|error| {
            let Some(exchange) = &self.on.exchange else {
                abort_if_device(&self.parts.group, &error);
                return error;
            };
            // What the other ranks say explains the failure of a device that exchanges with them.
            let explained = match error {
                EngineError::Device(error) => exchange.explain(error).into(),
                EngineError::Collective(error) => {
                    exchange.keep_records();
                    error.into()
                }
                error => error,
            };
            abort_if_device(&self.parts.group, &explained);
            exchange.abort();
            explained
        })
    }
}

impl<M: DeviceModel> Drop for DeviceReplica<M> {
    /// Memory is released when the device is idle, and it is not before the last exchange has ended.
    fn drop(&mut self) {
        if let Some(exchange) = &self.on.exchange {
            exchange.close();
        }
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

    fn begin_step(&mut self) {
        if let Some(agreement) = &mut self.agreement {
            agreement.begin();
        }
    }

    fn run(&mut self, step: PlanStep, batch: &M::Batch, at: MicroBatch) -> Result<(), EngineError> {
        let outcome = self.run_step(step, batch, at);
        self.settle(outcome)
    }

    fn loss(&mut self) -> Result<f32, EngineError> {
        let DeviceLosses { address, count } = self.model.losses();
        let mut losses = vec![0.0f32; count];
        let outcome = self.on.download(address, &mut losses).map_err(EngineError::from);
        self.settle(outcome)?;
        Ok(DeviceLosses::mean(&losses))
    }

    fn keep_loss(&mut self, micro_batch: usize) -> Result<Option<f32>, EngineError> {
        let Self { on, losses, model, accumulate, .. } = self;
        let kept = losses.keep(on, model.losses(), [micro_batch, *accumulate]);
        self.settle(kept.map_err(EngineError::from))?;
        Ok(None)
    }

    fn is_deferred(&self) -> bool {
        true
    }

    fn end_step(&mut self, settings: &StepSettings) -> Result<(), EngineError> {
        let outcome = self.submit_end(settings);
        self.settle(outcome)
    }

    fn decision(&mut self) -> Result<StepDecision, EngineError> {
        let outcome = self.read_decision();
        self.settle(outcome)
    }

    fn resume(&mut self, updates: u64, loss_scale: LossScale) -> Result<(), EngineError> {
        let outcome = self.decision.resume(&self.on, updates, loss_scale);
        self.settle(outcome.map_err(EngineError::from))
    }
}
