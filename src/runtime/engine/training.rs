//! [`Engine`]: forward, backward, step.

#[cfg(feature = "nccl")]
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

#[cfg(feature = "nccl")]
use crate::cuda::device::Device;
use crate::runtime::comm::group::Group;
use crate::runtime::comm::shm::buffer::Buffer;
use crate::runtime::comm::work::Work;
use crate::runtime::dtype::element::ReduceOp;
use crate::runtime::engine::agreement::agree;
use crate::runtime::engine::config::{EngineConfig, Precision};
#[cfg(feature = "nccl")]
use crate::runtime::engine::device::{DeviceModel, DeviceReplica, GradientPath};
use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::host::replica::HostReplica;
use crate::runtime::engine::model::Model;
use crate::runtime::engine::outcome::{StepOutcome, StepSettings};
use crate::runtime::engine::parameters::ParameterTable;
use crate::runtime::engine::replica::{MicroBatch, Replica};
#[cfg(feature = "train")]
use crate::runtime::engine::state::NeededRange;
use crate::runtime::engine::state::{ReadState, ReplicaState, Section, StatePiece};
use crate::runtime::optim::{GradientCheck, LossScale, LossScaler, StepScale};
use crate::runtime::parallel::zero::lanes::LaneAssignment;
use crate::runtime::parallel::zero::step_plan::{PlanStep, StepPlan};

/// Trainer of a model on the ranks of a group.
///
/// A step consists of [`EngineConfig::accumulate`] micro-batches, each a [`Self::forward`] and a
/// [`Self::backward`], and one [`Self::step`]. All ranks call the same methods in the same order.
///
/// On a device, these three wait for it. [`Self::submit_forward`] and [`Self::submit_step`] do not: the outcome of a
/// step is read when the next one has been submitted, or by [`Self::outcome`].
///
/// The same lanes give the same bits for every [`Sharding`](super::Sharding), number of ranks, placement and
/// limit of the plan.
pub struct Engine<R: Replica> {
    group: Group,
    replica: R,
    config: EngineConfig,
    lanes: LaneAssignment,
    training: StepPlan,
    evaluation: StepPlan,
    phase: Phase,
    /// Micro-batches of the current step that are complete.
    micro_batches: usize,
    /// Loss of every lane of a step that this rank computes.
    losses: Vec<f32>,
    wants_stop: bool,
    /// The last step, if its outcome was not read.
    submitted: Option<SubmittedStep>,
    scaler: LossScaler,
    /// Scale that the current step took.
    step_scale: Option<StepScale>,
    /// Steps, including those that were skipped.
    steps: u64,
    /// Updates of the parameters.
    updates: u64,
}

/// Step that a rank has ended, and whose decision was not read.
struct SubmittedStep {
    rate: f64,
    scale: StepScale,
    wants_stop: bool,
    /// Sum of the losses over all ranks in flight, if they were known.
    losses: Option<Work<Buffer<f32>>>,
}

/// What the engine expects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Forward,
    Backward,
    Step,
    /// An error has left the ranks in different states.
    Failed,
}

impl<M: Model> Engine<HostReplica<M>> {
    /// Creates an engine for a model in host memory, with initial values.
    ///
    /// # Errors
    /// If the settings or the model of a rank differ, or there is not enough memory.
    pub fn new(group: &Group, model: M, config: EngineConfig) -> Result<Self, EngineError> {
        let (lanes, unit_lens) = agree(group, model.parameters(), &model.passes(), &config)?;
        let replica = HostReplica::new(group, model, &config, lanes)?;
        Ok(Self::with_replica(group, replica, config, lanes, &unit_lens))
    }

    /// Returns the model.
    pub fn model(&mut self) -> &mut M {
        self.replica.model()
    }
}

#[cfg(feature = "nccl")]
impl<M: DeviceModel> Engine<DeviceReplica<M>> {
    /// Creates an engine for a model on a device, with initial values. The model computes in the type of
    /// [`EngineConfig::precision`].
    ///
    /// # Errors
    /// If the settings or the model of a rank differ, a device cannot train with them, or there is not enough memory.
    pub fn on_device(
        group: &Group,
        device: Arc<dyn Device>,
        model: M,
        config: EngineConfig,
    ) -> Result<Self, EngineError> {
        let (lanes, unit_lens) = agree(group, model.parameters(), &model.passes(), &config)?;
        let replica = DeviceReplica::new(group, device, model, &config, lanes)?;
        Ok(Self::with_replica(group, replica, config, lanes, &unit_lens))
    }

    /// Returns how ranks exchange gradients between their devices.
    pub fn gradient_path(&self) -> &GradientPath {
        self.replica.gradient_path()
    }
}

/// What an engine counts; equal on all ranks. A step counts once its outcome was read.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineCounters {
    /// Steps, including those that were skipped.
    pub steps: u64,
    /// Updates of the parameters.
    pub updates: u64,
    /// State of the loss scale.
    pub loss_scale: LossScale,
}

impl<R: ReplicaState> Engine<R> {
    /// Returns the table of parameters.
    pub fn table(&self) -> &ParameterTable {
        self.replica.table()
    }

    /// Returns the sections of the state, in the order in which they are saved.
    pub fn sections(&self) -> Vec<Section> {
        self.replica.sections()
    }

    /// Returns a section of the state of all parameters, in the order of the table. Communicates.
    ///
    /// # Errors
    /// If the operation fails.
    pub fn gather(&self, section: Section) -> Result<Vec<f32>, EngineError> {
        let mut all = Vec::with_capacity(self.table().len());
        for unit in 0..self.table().units().len() {
            all.extend(self.replica.gather_section(unit, section)?);
        }
        Ok(all)
    }

    /// Returns SHA-256 of parameters and moments in full precision, as hexadecimal text: equal for the same
    /// lanes, whatever the number of ranks and the sharding. Communicates.
    ///
    /// # Errors
    /// If the operation fails.
    pub fn digest(&self) -> Result<String, EngineError> {
        let units = self.table().units().len();
        let mut digest = Sha256::new();
        for section in self.replica.sections() {
            for unit in 0..units {
                digest.update(bytemuck::cast_slice(&self.replica.gather_section(unit, section)?));
            }
        }
        Ok(format!("{:x}", digest.finalize()))
    }

    /// Returns the pieces of the state that this rank saves. Those of all ranks are the whole state.
    ///
    /// # Errors
    /// If they cannot be copied from a device.
    pub fn state_pieces(&self) -> Result<Vec<StatePiece<'_>>, EngineError> {
        self.replica.state_pieces()
    }

    /// Ranges that a restoration reads on this rank, in its order.
    #[cfg(feature = "train")]
    pub(super) fn needed_ranges(&self) -> Vec<NeededRange<'_>> {
        self.replica.needed_ranges()
    }

    /// Returns what the engine counts.
    pub fn counters(&self) -> EngineCounters {
        let (steps, updates) = (self.read_steps(), self.updates);
        EngineCounters { steps, updates, loss_scale: self.scaler.state() }
    }

    /// Replaces the state: `read` returns the values of ranges of parameters. All ranks call it.
    ///
    /// # Errors
    /// The outer error is that of the operations, the inner one that of `read` on this rank; the state is
    /// then unspecified.
    pub fn restore<E>(
        &mut self,
        counters: &EngineCounters,
        read: &mut ReadState<'_, E>,
    ) -> Result<Result<(), E>, EngineError> {
        let outcome = self.replica.restore(read)?;
        let EngineCounters { steps, updates, loss_scale } = *counters;
        (self.steps, self.updates) = (steps, updates);
        self.scaler = LossScaler::resume(self.config.loss_scaling, loss_scale);
        self.submitted = None;
        self.replica.resume(updates, self.scaler.state())?;
        Ok(outcome)
    }
}

impl<R: Replica> Engine<R> {
    /// Creates an engine over the memory of a rank. `unit_lens` are the elements of the model's units.
    pub(crate) fn with_replica(
        group: &Group,
        replica: R,
        config: EngineConfig,
        lanes: LaneAssignment,
        unit_lens: &[usize],
    ) -> Self {
        let passes = replica.passes();
        Self {
            group: group.clone(),
            training: StepPlan::training(&passes, unit_lens, config.plan),
            evaluation: StepPlan::evaluation(&passes, unit_lens, config.plan),
            replica,
            lanes,
            phase: Phase::Forward,
            micro_batches: 0,
            losses: vec![0.0; lanes.count()],
            wants_stop: false,
            submitted: None,
            scaler: LossScaler::new(config.loss_scaling),
            step_scale: None,
            steps: 0,
            updates: 0,
            config,
        }
    }

    /// Returns the group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Returns the settings.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Returns the assignment of lanes.
    pub fn lanes(&self) -> &LaneAssignment {
        &self.lanes
    }

    /// Returns the lane of the next micro-batch. Data and random numbers of a micro-batch are chosen by its
    /// lane, so that they do not depend on the number of ranks.
    pub fn lane(&self) -> usize {
        self.lanes.lane(self.group.rank(), self.micro_batches.min(self.config.accumulate - 1))
    }

    /// Returns the number of steps, including those that were skipped.
    pub fn global_steps(&self) -> u64 {
        self.steps
    }

    /// Number of steps whose outcome was read.
    fn read_steps(&self) -> u64 {
        self.steps - u64::from(self.submitted.is_some())
    }

    /// Returns the number of steps that were skipped because a gradient was not finite, among those whose outcome was
    /// read.
    pub fn skipped_steps(&self) -> u64 {
        self.read_steps() - self.updates
    }

    /// Returns the factor of the loss after the last step whose outcome was read.
    pub fn loss_scale(&self) -> f64 {
        self.scaler.scale()
    }

    /// Returns the learning rate of the update after the last step whose outcome was read.
    pub fn learning_rate(&self) -> f64 {
        self.config.schedule.rate(self.updates)
    }

    /// Returns whether the step ends with the current micro-batch.
    pub fn is_gradient_accumulation_boundary(&self) -> bool {
        self.micro_batches + 1 >= self.config.accumulate
    }

    /// Asks for the end of the run: [`StepOutcome::wants_stop`] of the next step is set on all ranks.
    pub fn request_stop(&mut self) {
        self.wants_stop = true;
    }

    /// Computes the mean loss of a micro-batch.
    ///
    /// # Errors
    /// If all micro-batches of the step are complete, or a pass or an operation fails.
    pub fn forward(&mut self, batch: &R::Batch) -> Result<f32, EngineError> {
        if let Some(loss) = self.forward_pass(batch)? {
            return Ok(loss);
        }
        let loss = self.replica.loss();
        self.settle(loss, Phase::Backward)
    }

    /// As [`Self::forward`], without waiting for the loss.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn submit_forward(&mut self, batch: &R::Batch) -> Result<(), EngineError> {
        self.forward_pass(batch).map(drop)
    }

    /// Runs the forward pass of a micro-batch; returns the loss if it is known.
    fn forward_pass(&mut self, batch: &R::Batch) -> Result<Option<f32>, EngineError> {
        self.expect("forward", &[Phase::Forward, Phase::Backward])?;
        let (at, lane) = (self.micro_batch(), self.lane());
        let Self { replica, training, micro_batches, .. } = self;
        replica.begin_step();
        let passed = run(replica, &training.forward, batch, at);
        let kept = passed.and_then(|()| replica.keep_loss(*micro_batches));
        let loss = self.settle(kept, Phase::Backward)?;
        if let Some(loss) = loss {
            self.losses[lane] = loss;
        }
        Ok(loss)
    }

    /// Computes the gradient of the micro-batch of the last [`Self::forward`], and begins to reduce it.
    ///
    /// # Errors
    /// If there was no forward pass, or a pass or an operation fails.
    pub fn backward(&mut self, batch: &R::Batch) -> Result<(), EngineError> {
        self.expect("backward", &[Phase::Backward])?;
        let at = self.micro_batch();
        let Self { replica, training, .. } = self;
        let outcome = run(replica, &training.backward, batch, at);
        let next = if at.is_last { Phase::Step } else { Phase::Forward };
        self.settle(outcome, next)?;
        self.micro_batches += 1;
        Ok(())
    }

    /// Ends a micro-batch: after the last one of a step, updates the parameters; otherwise returns `None`. If a step
    /// was submitted before, its outcome is read and not returned.
    ///
    /// # Errors
    /// If a micro-batch is incomplete, an operation fails, the loss scale is at its minimum, or the gradient
    /// is not finite and there is no loss scale.
    pub fn step(&mut self) -> Result<Option<StepOutcome>, EngineError> {
        if self.is_within_step()? {
            return Ok(None);
        }
        let outcome = self.end_and_read();
        self.settle(outcome, Phase::Forward)
    }

    /// As [`Self::step`], without waiting for a device: returns the outcome of the step before, if it was not read.
    /// On a processor, the step has ended, and its own outcome is returned.
    ///
    /// # Errors
    /// As [`Self::step`], for the step whose outcome is read.
    pub fn submit_step(&mut self) -> Result<Option<StepOutcome>, EngineError> {
        if self.is_within_step()? {
            return Ok(None);
        }
        let outcome = self.end_after_last();
        self.settle(outcome, Phase::Forward)
    }

    /// Waits for the last step, if its outcome was not read, and returns the outcome.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn outcome(&mut self) -> Result<Option<StepOutcome>, EngineError> {
        self.expect("outcome", &[Phase::Forward, Phase::Backward, Phase::Step])?;
        let (outcome, next) = (self.read_outcome(), self.phase);
        self.settle(outcome, next)
    }

    /// Runs a whole step; `batch_of` returns the micro-batch of a lane.
    ///
    /// # Errors
    /// As [`Self::forward`], [`Self::backward`] and [`Self::step`].
    pub fn train_batch(
        &mut self,
        batch_of: impl FnMut(usize) -> R::Batch,
    ) -> Result<StepOutcome, EngineError> {
        self.pass_micro_batches(batch_of)?;
        Ok(self.step()?.expect("all micro-batches of the step are complete"))
    }

    /// As [`Self::train_batch`], without waiting for a device: returns what [`Self::submit_step`] does.
    ///
    /// # Errors
    /// As [`Self::submit_forward`], [`Self::backward`] and [`Self::submit_step`].
    pub fn submit_batch(
        &mut self,
        batch_of: impl FnMut(usize) -> R::Batch,
    ) -> Result<Option<StepOutcome>, EngineError> {
        self.pass_micro_batches(batch_of)?;
        self.submit_step()
    }

    /// Runs the passes of the micro-batches that the step does not have yet.
    fn pass_micro_batches(
        &mut self,
        mut batch_of: impl FnMut(usize) -> R::Batch,
    ) -> Result<(), EngineError> {
        loop {
            let batch = batch_of(self.lane());
            self.submit_forward(&batch)?;
            self.backward(&batch)?;
            if self.phase == Phase::Step {
                return Ok(());
            }
        }
    }

    /// Computes the mean loss of a batch without gradients, between two micro-batches. If parameters are
    /// divided, all ranks must call it equally often.
    ///
    /// # Errors
    /// If a pass or an operation fails.
    pub fn eval(&mut self, batch: &R::Batch) -> Result<f32, EngineError> {
        self.expect("eval", &[Phase::Forward, Phase::Step])?;
        let at = MicroBatch { is_last: false, loss_scale: 1.0 };
        let Self { replica, evaluation, .. } = self;
        let outcome = run(replica, &evaluation.forward, batch, at).and_then(|()| replica.loss());
        self.settle(outcome, self.phase)
    }

    fn micro_batch(&mut self) -> MicroBatch {
        let scale = self.step_scale.get_or_insert_with(|| self.scaler.start_step());
        let loss_scale = scale.loss_factor();
        MicroBatch { is_last: self.is_gradient_accumulation_boundary(), loss_scale }
    }

    /// Whether micro-batches of the step are missing, between two of them.
    fn is_within_step(&self) -> Result<bool, EngineError> {
        self.expect("step", &[Phase::Forward, Phase::Step])?;
        Ok(self.phase == Phase::Forward)
    }

    /// Ends a step, and returns its outcome.
    fn end_and_read(&mut self) -> Result<Option<StepOutcome>, EngineError> {
        self.read_outcome()?;
        self.end_step()?;
        self.read_outcome()
    }

    /// Ends a step, and returns the newest outcome that is known without waiting for the step.
    fn end_after_last(&mut self) -> Result<Option<StepOutcome>, EngineError> {
        let before = self.read_outcome()?;
        self.end_step()?;
        if self.replica.is_deferred() { Ok(before) } else { self.read_outcome() }
    }

    /// Ends a step on this rank. The outcome of the one before was read: rate and loss scale follow from it.
    fn end_step(&mut self) -> Result<(), EngineError> {
        let is_known = !self.replica.is_deferred();
        // When the passes of a deferred step were submitted, its scale was not known.
        let taken = self.step_scale.take().filter(|_| is_known);
        let scale = taken.unwrap_or_else(|| self.scaler.start_step());
        let (rate, updates) = (self.config.schedule.rate(self.updates), self.updates);
        let wants_stop = std::mem::take(&mut self.wants_stop);
        let losses = is_known.then(|| self.reduce_losses(wants_stop)).transpose()?;
        let optimizer = match self.config.schedule.betas(updates) {
            Some(betas) => self.config.optimizer.with_betas(betas),
            None => self.config.optimizer,
        };
        let (clip, gradient_factor) = (self.config.clip, scale.gradient_factor());
        let settings = StepSettings { optimizer, rate, clip, updates, gradient_factor };
        self.replica.end_step(&settings)?;
        self.steps += 1;
        self.micro_batches = 0;
        self.submitted = Some(SubmittedStep { rate, scale, wants_stop, losses });
        Ok(())
    }

    /// Starts the sum of the losses over all ranks. Each lane has a slot, so that the mean is summed in one order for
    /// every number of ranks; the last slot counts the ranks that want to stop.
    fn reduce_losses(&mut self, wants_stop: bool) -> Result<Work<Buffer<f32>>, EngineError> {
        let lanes = self.lanes.count();
        let mut slots = self.group.alloc::<f32>(lanes + 1)?;
        slots[..lanes].copy_from_slice(&self.losses);
        slots[lanes] = f32::from(u8::from(wants_stop));
        self.losses.fill(0.0);
        Ok(self.group.start_all_reduce(slots, 0..lanes + 1, ReduceOp::Sum))
    }

    /// Reads the outcome of the last step, if it was not read.
    fn read_outcome(&mut self) -> Result<Option<StepOutcome>, EngineError> {
        let Some(submitted) = self.submitted.take() else { return Ok(None) };
        let SubmittedStep { rate, scale, wants_stop, losses } = submitted;
        let decision = self.replica.decision()?;
        for (micro_batch, loss) in decision.losses.iter().enumerate() {
            self.losses[self.lanes.lane(self.group.rank(), micro_batch)] = *loss;
        }
        let slots = losses.map_or_else(|| self.reduce_losses(wants_stop), Ok)?.wait()?;
        let lanes = self.lanes.count();
        let outcome = StepOutcome {
            step: self.steps,
            loss: slots[..lanes].iter().sum::<f32>() / lanes as f32,
            norm: decision.norm,
            rate,
            loss_scale: f64::from(scale.loss_factor()),
            is_applied: decision.is_applied,
            wants_stop: 0.0 < slots[lanes],
        };
        self.updates += u64::from(outcome.is_applied);
        self.adjust_scale(scale, &outcome)?;
        Ok(Some(outcome))
    }

    /// Adjusts the loss scale after a step.
    fn adjust_scale(&mut self, taken: StepScale, outcome: &StepOutcome) -> Result<(), EngineError> {
        if !outcome.is_applied && self.config.precision == Precision::F32 {
            return Err(EngineError::Diverged { outcome: *outcome });
        }
        let check = GradientCheck::of_norm(outcome.norm);
        let finished = self.scaler.finish_step(taken, check);
        let outcome = *outcome;
        finished.map_err(|error| EngineError::ScaleAtMinimum { outcome, scale: error.scale })
    }

    /// Fails if the engine is in another phase.
    fn expect(&self, called: &'static str, phases: &[Phase]) -> Result<(), EngineError> {
        if phases.contains(&self.phase) {
            return Ok(());
        }
        let (when, instead) = match self.phase {
            Phase::Forward => ("before `forward`".to_owned(), "`forward`"),
            Phase::Backward => ("between `forward` and `backward`".to_owned(), "`backward`"),
            Phase::Step => {
                let all = self.config.accumulate;
                (format!("after {all} of {all} micro-batches of the step"), "`step`")
            }
            Phase::Failed => ("after a failure".to_owned(), "`Engine::new` in a new group"),
        };
        Err(EngineError::Order { called, when, instead })
    }

    /// Fails if the outcome of the last step was not read, without which the counters are those of the step before.
    #[cfg(feature = "train")]
    pub(super) fn expect_outcome(&self, called: &'static str) -> Result<(), EngineError> {
        if self.submitted.is_none() {
            return Ok(());
        }
        let when = "before the outcome of the last step was read".to_owned();
        Err(EngineError::Order { called, when, instead: "`outcome`" })
    }

    /// Enters a phase after a success.
    fn settle<V>(
        &mut self,
        outcome: Result<V, EngineError>,
        next: Phase,
    ) -> Result<V, EngineError> {
        self.phase = if outcome.is_ok() { next } else { Phase::Failed };
        outcome
    }
}

/// Performs steps of a plan.
fn run<R: Replica>(
    replica: &mut R,
    steps: &[PlanStep],
    batch: &R::Batch,
    at: MicroBatch,
) -> Result<(), EngineError> {
    steps.iter().try_for_each(|step| replica.run(*step, batch, at))
}
