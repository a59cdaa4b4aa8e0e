//! Training loop: steps of the engine, progress reports, metrics and checkpoints.

use std::mem;
#[cfg(feature = "nccl")]
use std::sync::Arc;
use std::time::Duration;

use crate::base::clock;
#[cfg(feature = "nccl")]
use crate::cuda::device::Device;
use crate::runtime::engine::{Engine, EngineConfig, EngineError, ReplicaState, StepOutcome};
use crate::runtime::{Group, Note, ReduceOp};
use crate::train::data::windows::SamplePosition;
#[cfg(feature = "nccl")]
use crate::train::device_memory::DeviceMemoryError;
use crate::train::error::TrainError;
#[cfg(feature = "nccl")]
use crate::train::nn::device::attention::AttentionMethod;
use crate::train::nn::model_id::ModelId;
use crate::train::options::{ModelOptions, TrainOptions};
use crate::train::report::progress::{
    MemoryUse, PhaseSeconds, RunDevice, RunEnd, RunStart, StepReport, Summary, TrainEvent,
};
use crate::train::report::rank0::Rank0Reporter;
use crate::train::report::scalar_sinks::SampleAxis;
use crate::train::report::skipped_steps::{SKIPPED_IN_ROW_MAX, SkipLevel, SkippedSteps};
use crate::train::resume::restore_state;
use crate::train::saving::{Saver, samples_of};
use crate::train::task::classification::Classification;
use crate::train::task::definition::{Extent, Learner, Task};
use crate::train::task::language::Language;
use crate::train::worker_memory::WorkerMemory;

/// Runs a training as one worker of `group`, on the processor. Only rank 0 calls `on_event` and writes files and
/// checkpoints. Between two steps all workers check whether `stop` is true on any of them; the run is then saved
/// and ends.
pub fn train(
    group: &Group,
    options: &TrainOptions,
    stop: &dyn Fn() -> bool,
    on_event: &mut dyn FnMut(&TrainEvent),
) -> Result<TrainOutcome, TrainError> {
    let job = Job { group, options, has_forecast: true, device: None };
    match &options.model {
        ModelOptions::Gpt(gpt) => {
            let task = Language::new(gpt, options)?;
            let engine = Engine::new(group, task.new_model(), engine_config(group, options))?;
            Run::new(job, task, engine, on_event)?.train(stop)
        }
        ModelOptions::Mlp(mlp) => {
            let task = Classification::new(mlp, options);
            let engine = Engine::new(group, task.new_model(), engine_config(group, options))?;
            Run::new(job, task, engine, on_event)?.train(stop)
        }
    }
}

/// Runs a training as [`train()`] does, with the arithmetic on `device`.
///
/// # Errors
/// Those of [`train()`], and [`TrainError::DeviceMemory`] before anything is allocated, if the device of a rank has less
/// free memory than the training needs.
#[cfg(feature = "nccl")]
pub fn train_on(
    group: &Group,
    device: Arc<dyn Device>,
    options: &TrainOptions,
    stop: &dyn Fn() -> bool,
    on_event: &mut dyn FnMut(&TrainEvent),
) -> Result<TrainOutcome, TrainError> {
    let about = |task: &ModelId| {
        let (free, vocabulary, workers) =
            (device.free_bytes(), vocabulary_of(task), group.world_size());
        if let Some(error) = DeviceMemoryError::find(group, options, vocabulary, free)? {
            return Err(error.into());
        }
        let forecast = WorkerMemory::forecast_on_device(options, vocabulary, workers).total();
        Ok::<_, TrainError>(RunDevice { name: device.name(), forecast, free, gradients: None })
    };
    let job = |device| Job { group, options, has_forecast: false, device: Some(device) };
    let precision = options.engine.precision;
    match &options.model {
        ModelOptions::Gpt(gpt) => {
            let task = Language::new(gpt, options)?;
            let mut about = about(&task.identity())?;
            let model = task.new_device_model(device.clone(), precision)?;
            let engine = Engine::on_device(group, device, model, engine_config(group, options))?;
            about.set_path(engine.gradient_path());
            Run::new(job(&about), task, engine, on_event)?.train(stop)
        }
        ModelOptions::Mlp(mlp) => {
            let task = Classification::new(mlp, options);
            let mut about = about(&task.identity())?;
            let model = task.new_device_model(device.clone(), precision);
            let engine = Engine::on_device(group, device, model, engine_config(group, options))?;
            about.set_path(engine.gradient_path());
            Run::new(job(&about), task, engine, on_event)?.train(stop)
        }
    }
}

/// Checks whether [`train_on`] can do what the options say.
///
/// # Errors
/// If it cannot; the error says what it lacks.
#[cfg(feature = "nccl")]
pub fn check_device_options(options: &TrainOptions) -> Result<(), EngineError> {
    if let ModelOptions::Gpt(gpt) = &options.model {
        // The vocabulary, which only the data decides, has no part in it.
        AttentionMethod::of(&gpt.config(1), options.engine.precision.into(), gpt.attention)?;
    }
    Ok(())
}

/// What a run is given.
#[derive(Clone, Copy)]
struct Job<'a> {
    group: &'a Group,
    options: &'a TrainOptions,
    /// Whether the memory of a worker was forecast.
    has_forecast: bool,
    /// `None`: processors.
    device: Option<&'a RunDevice>,
}

/// Settings of the engine. The shard groups of the start need not fit the workers that are left after a restart; the
/// bits are the same.
fn engine_config(group: &Group, options: &TrainOptions) -> EngineConfig {
    let mut config = options.engine.clone();
    if 0 < group.restart_count() && config.check(group.world_size()).is_err() {
        config.shard_group = None;
    }
    config
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainOutcome {
    /// Summary of the run.
    pub summary: Summary,
    /// SHA-256 of parameters and moments: equal on every worker, for every split of the same lanes and for
    /// every stage.
    pub digest: String,
}

/// Numbers of steps.
#[derive(Clone, Copy, Debug)]
struct StepCounts {
    steps: u64,
    skipped: u64,
}

impl StepCounts {
    fn of<R: ReplicaState>(engine: &Engine<R>) -> Self {
        Self { steps: engine.counters().steps, skipped: engine.skipped_steps() }
    }
}

/// State of a run between two steps.
struct Run<'a, T: Task, R: Learner<T>> {
    group: &'a Group,
    options: &'a TrainOptions,
    task: T,
    engine: Engine<R>,
    has_forecast: bool,
    /// What was done before this run.
    before: StepCounts,
    saver: Option<Saver>,
    reporter: Rank0Reporter<'a>,
    /// Number of steps, up to the last one, that were skipped one after the other.
    skipped_in_row: u64,
    /// Time for each phase since the last report.
    seconds: PhaseSeconds,
}

impl<'a, T: Task, R: Learner<T>> Run<'a, T, R> {
    /// Prepares a run with a new engine, which gets the state of a checkpoint if the run resumes.
    fn new(
        job: Job<'a>,
        task: T,
        mut engine: Engine<R>,
        on_event: &'a mut dyn FnMut(&TrainEvent),
    ) -> Result<Self, TrainError> {
        let Job { group, options, has_forecast, .. } = job;
        let mut reporter = Rank0Reporter::new(group.rank() == 0, on_event);
        let parameters = engine.table().len();
        reporter.report(|| TrainEvent::Started(start(job, &task.title(), parameters)));
        let samples = samples_of(group, options, &task);
        let mut saver = Saver::open(group, options, &task, samples)?;
        let restored = restore_state(options, &task, &mut engine, samples, &mut reporter)?;
        if let Some(saver) = &mut saver {
            saver.continue_after(&restored, &mut reporter);
        }
        reporter.open_metrics(options.metrics.as_deref(), engine.global_steps())?;
        let samples_per_step = (engine.lanes().count() * options.batch_size.get()) as u64;
        let axis = SampleAxis { earlier: restored.earlier, samples_per_step };
        let step = engine.global_steps();
        let continues = 0 < step || options.start.as_ref().is_some_and(|start| start.is_restart);
        reporter.open_scalars(&options.scalars, axis, continues.then_some(step))?;
        let (seconds, before) = (PhaseSeconds::default(), StepCounts::of(&engine));
        let skipped_in_row = 0;
        Ok(Self {
            group,
            options,
            task,
            engine,
            has_forecast,
            before,
            saver,
            reporter,
            skipped_in_row,
            seconds,
        })
    }

    /// Runs all steps, then the final evaluation and the sample.
    fn train(mut self, stop: &dyn Fn() -> bool) -> Result<TrainOutcome, TrainError> {
        let eval_batches = self.task.validation(Extent::Sample);
        let (mut last, mut end, mut elapsed) = (None, RunEnd::Complete, Duration::ZERO);
        // Time of steps that were not reported yet.
        let mut unreported = Duration::ZERO;
        while end == RunEnd::Complete && self.engine.global_steps() < self.options.steps {
            let begin = clock::now();
            let mut steps = Vec::new();
            let done = self.run_step(stop(), &mut steps);
            unreported += clock::now() - begin;
            let duration = unreported / steps.len().max(1) as u32;
            for step in &steps {
                elapsed += duration;
                unreported = Duration::ZERO;
                last = Some(step.loss);
                if step.wants_stop {
                    end = RunEnd::Stopped;
                }
                self.after_step(step, duration, &eval_batches)?;
                self.skipped_in_row = if step.is_applied { 0 } else { self.skipped_in_row + 1 };
                if self.skipped_in_row == SKIPPED_IN_ROW_MAX {
                    self.check_updates(end)?;
                }
            }
            done.or_else(|error| self.end_with(error, unreported))?;
        }
        let items = self.items_per_step() * (self.engine.global_steps() - self.before.steps) as f64;
        self.finish(end, last, elapsed, items / elapsed.as_secs_f64().max(1e-9))
    }

    /// Runs one step: the micro-batches of all lanes, the mean gradient, the optimizer. Adds the steps whose outcome is
    /// known then. On a device that is the step before, unless something has to be done after this one.
    fn run_step(
        &mut self,
        wants_stop: bool,
        steps: &mut Vec<StepOutcome>,
    ) -> Result<(), TrainError> {
        if wants_stop {
            self.engine.request_stop();
        }
        let known = self.submit_batch()?.map(finite).transpose()?;
        let is_stopped = known.is_some_and(|step| step.wants_stop);
        steps.extend(known.map(|step| StepOutcome { wants_stop: false, ..step }));
        if is_stopped || self.is_followed(self.engine.global_steps()) {
            let Self { engine, seconds, .. } = self;
            let submitted = timed(&mut seconds.step, || engine.outcome())?;
            steps.extend(submitted.map(finite).transpose()?);
        }
        // A step that was in progress when the stop was known is the last one.
        if let Some(last) = steps.last_mut() {
            last.wants_stop |= is_stopped;
        }
        Ok(())
    }

    /// [`Engine::submit_batch`] with the time of every phase.
    fn submit_batch(&mut self) -> Result<Option<StepOutcome>, EngineError> {
        let (seed, step) = (self.options.seed, self.engine.global_steps());
        let Self { task, engine, seconds, .. } = self;
        loop {
            let lane = engine.lane() as u64;
            let batch =
                timed(&mut seconds.data, || task.batch(SamplePosition { seed, step, lane }));
            timed(&mut seconds.forward, || engine.submit_forward(&batch))?;
            timed(&mut seconds.backward, || engine.backward(&batch))?;
            let outcome = timed(&mut seconds.step, || engine.submit_step())?;
            if engine.global_steps() != step {
                return Ok(outcome);
            }
        }
    }

    /// Whether the run ends after a step, or evaluates, or saves.
    fn is_followed(&self, step: u64) -> bool {
        let options = self.options;
        let save_every = options.checkpoint.as_ref().and_then(|to| to.every);
        step == options.steps || is_due(step, options.eval_every) || is_due(step, save_every)
    }

    /// Evaluates and saves if the options request it, and reports the step.
    fn after_step(
        &mut self,
        step: &StepOutcome,
        duration: Duration,
        eval_batches: &[(T::Batch, usize)],
    ) -> Result<(), TrainError> {
        let done = step.step;
        let is_last = step.wants_stop || done == self.options.steps;
        let wants_eval = is_due(done, self.options.eval_every) && !step.wants_stop;
        let mut eval = 0.0;
        let val_loss =
            wants_eval.then(|| timed(&mut eval, || self.evaluate(eval_batches))).transpose()?;
        self.seconds.eval = eval;
        let report = StepReport { val_loss, ..self.report_of(step, duration) };
        if self.reporter.is_active {
            self.group.note(&step_note(&report));
        }
        self.reporter.on_step(report)?;
        let Self { saver: Some(saver), engine, reporter, seconds, .. } = self else {
            return Ok(());
        };
        saver.poll(reporter);
        let every = self.options.checkpoint.as_ref().and_then(|to| to.every);
        if is_last || is_due(done, every) {
            timed(&mut seconds.save, || saver.start(engine, reporter))?;
        }
        Ok(())
    }

    fn report_of(&mut self, step: &StepOutcome, duration: Duration) -> StepReport {
        StepReport {
            outcome: *step,
            steps: self.options.steps,
            val_loss: None,
            skipped: self.engine.skipped_steps(),
            ms: duration.as_secs_f64() * 1e3,
            items_per_s: self.items_per_step() / duration.as_secs_f64().max(1e-9),
            unit: self.task.unit().name,
            seconds: mem::take(&mut self.seconds).rounded(),
            error: None,
        }
    }

    /// Ends the run with an error, and writes the step that it ends, if it has numbers.
    fn end_with<V>(&mut self, error: TrainError, duration: Duration) -> Result<V, TrainError> {
        if let Some(step) = error.failed_step() {
            let error = Some(error.to_string());
            let report = StepReport { error, ..self.report_of(&step, duration) };
            self.reporter.on_failed_step(&report)?;
        }
        Err(error)
    }

    /// Number of items of all workers in a step.
    fn items_per_step(&self) -> f64 {
        (self.engine.lanes().count() * self.task.unit().count) as f64
    }

    /// Mean loss over batches, which all workers share; it is summed in the order of the batches. All
    /// workers evaluate equally many, because they may gather parameters for each.
    fn evaluate(&mut self, batches: &[(T::Batch, usize)]) -> Result<f64, TrainError> {
        let (rank, world) = (self.group.rank(), self.group.world_size());
        let mut losses = vec![0.0_f32; batches.len()];
        for first in (0..batches.len()).step_by(world) {
            let at = first + rank;
            let (batch, _) = batches.get(at).unwrap_or(&batches[first]);
            let loss = self.engine.eval(batch)?;
            if let Some(slot) = losses.get_mut(at) {
                *slot = loss;
            }
        }
        self.group.all_reduce(&mut losses, ReduceOp::Sum)?;
        let weighed =
            losses.iter().zip(batches).map(|(loss, batch)| f64::from(*loss) * batch.1 as f64);
        let items: usize = batches.iter().map(|batch| batch.1).sum();
        Ok(weighed.sum::<f64>() / items as f64)
    }

    /// Reports a text that the model generates. If every worker has a part of the parameters, all of them
    /// generate it.
    fn sample(&mut self, end: RunEnd) -> Result<(), TrainError> {
        let needs_all = self.options.engine.sharding.divides_parameters();
        if end == RunEnd::Stopped || !(self.reporter.is_active || needs_all) {
            return Ok(());
        }
        if let Some(text) = R::sample(&mut self.engine, &self.task, self.options.seed)? {
            self.reporter.report(|| TrainEvent::Sampled(text));
        }
        Ok(())
    }

    /// Memory of the worker that has used most, beside the forecast; `None` if a worker does not know it.
    fn memory_use(&self) -> Result<Option<MemoryUse>, TrainError> {
        if !self.has_forecast {
            return Ok(None);
        }
        let peak = self.group.peak_memory();
        let or_unknown = |bytes: Option<u64>| bytes.map_or(f64::INFINITY, |bytes| bytes as f64);
        let mut most = [peak.map(|peak| peak.own), peak.map(|peak| peak.resident)].map(or_unknown);
        self.group.all_reduce(&mut most, ReduceOp::Max)?;
        let vocabulary = vocabulary_of(&self.task.identity());
        let workers = self.group.world_size();
        let forecast = WorkerMemory::forecast(self.options, vocabulary, workers).total() as u64;
        let is_known = most.iter().all(|bytes| bytes.is_finite());
        let [peak, resident] = most.map(|bytes| bytes as u64);
        Ok(is_known.then_some(MemoryUse { peak, forecast, resident }))
    }

    /// Steps of this run that were skipped, if there are some.
    fn skipped(&self) -> Option<SkippedSteps> {
        let now = StepCounts::of(&self.engine);
        let (skipped, steps) = (now.skipped - self.before.skipped, now.steps - self.before.steps);
        let (scaling, scale) = (self.engine.config().loss_scaling, self.engine.loss_scale());
        let in_row = self.skipped_in_row;
        (0 < skipped).then_some(SkippedSteps { skipped, steps, in_row, scaling, scale })
    }

    /// Fails if the steps of this run have not changed the parameters, or do not change them any more.
    fn check_updates(&self, end: RunEnd) -> Result<(), TrainError> {
        match self.skipped() {
            Some(skipped) if end == RunEnd::Complete && skipped.level() == SkipLevel::Error => {
                Err(TrainError::NoUpdates(Box::new(skipped)))
            }
            _ => Ok(()),
        }
    }

    /// Evaluates the whole held-out part, and writes the sample, the chart and the summary.
    fn finish(
        mut self,
        end: RunEnd,
        loss: Option<f32>,
        elapsed: Duration,
        items_per_s: f64,
    ) -> Result<TrainOutcome, TrainError> {
        let val_loss = match end {
            RunEnd::Complete => Some(self.evaluate(&self.task.validation(Extent::Whole))?),
            RunEnd::Stopped => None,
        };
        self.sample(end)?;
        if let Some(mut saver) = self.saver.take() {
            saver.finish(&mut self.reporter)?;
        }
        let memory = self.memory_use()?;
        let summary = Summary {
            step: self.engine.global_steps(),
            end,
            loss,
            val_loss,
            seconds: elapsed.as_secs_f64(),
            items_per_s,
            unit: self.task.unit().name,
            memory,
            skipped: self.skipped(),
            checkpoint: self.reporter.saved.clone(),
        };
        let digest = self.engine.digest()?;
        let learned = self.check_updates(end);
        self.reporter.finish(
            &summary,
            &digest,
            &self.task.title(),
            self.options.plot.as_deref(),
        )?;
        learned?;
        Ok(TrainOutcome { summary, digest })
    }
}

/// Returns an outcome whose loss is a number, unless the step was skipped.
fn finite(outcome: StepOutcome) -> Result<StepOutcome, TrainError> {
    if outcome.is_applied && !outcome.loss.is_finite() {
        return Err(TrainError::Diverged { outcome });
    }
    Ok(outcome)
}

/// Whether something that is done after every `every` steps is done after this one.
fn is_due(step: u64, every: Option<u64>) -> bool {
    every.is_some_and(|every| step.is_multiple_of(every.max(1)))
}

/// Runs `work`, and adds its time to `seconds`.
fn timed<V>(seconds: &mut f64, work: impl FnOnce() -> V) -> V {
    let begin = clock::now();
    let value = work();
    *seconds += (clock::now() - begin).as_secs_f64();
    value
}

fn start(Job { group, options, device, .. }: Job<'_>, title: &str, parameters: usize) -> RunStart {
    RunStart {
        title: title.to_owned(),
        parameters,
        workers: group.world_size(),
        accumulate: options.engine.accumulate,
        batch_size: options.batch_size.get(),
        steps: options.steps,
        device: device.cloned(),
    }
}

/// Number of tokens that a model knows.
fn vocabulary_of(model: &ModelId) -> usize {
    match model {
        ModelId::Gpt { vocabulary, .. } => *vocabulary,
        ModelId::Mlp { .. } => 0,
    }
}

/// Note about a step for the launcher.
fn step_note(report: &StepReport) -> Note {
    Note::Step {
        step: report.outcome.step,
        steps: Some(report.steps),
        loss: Some(f64::from(report.outcome.loss)),
        tokens_per_s: (report.unit == "tokens").then_some(report.items_per_s),
    }
}

/// Error of an engine, as that of a training.
impl From<EngineError> for TrainError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Collective(error) => Self::Collective(error),
            EngineError::Runtime(error) => Self::Runtime(error),
            error => Self::Engine(error),
        }
    }
}
