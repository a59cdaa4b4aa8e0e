//! Training loop: micro-batches through the model, their mean gradient through the data-parallel
//! runtime, the optimizer, progress reports, metrics and checkpoints.

use std::time::Duration;

use crate::base::clock;
use crate::runtime::{DdpOptions, DistributedDataParallel, Group, Note, ReduceOp};
use crate::train::checkpoint;
use crate::train::data::corpus::SamplePosition;
use crate::train::error::TrainError;
use crate::train::nn::model::Model as _;
use crate::train::optim::adamw::{AdamW, clip_factor, gradient_norm};
use crate::train::options::{CheckpointOptions, ModelOptions, TrainOptions};
use crate::train::report::progress::{RunEnd, RunStart, StepReport, Summary, TrainEvent};
use crate::train::report::rank0::Rank0Reporter;
use crate::train::resume::{initial_state, samples_of};
use crate::train::task::classification::Classification;
use crate::train::task::definition::{Batch, Extent, Task};
use crate::train::task::language::Language;

/// Runs a training as one worker of `group`. Only rank 0 calls `on_event` and writes files and checkpoints.
/// Between two steps all workers check whether `stop` is true on any of them; the run is then saved and
/// ends.
pub fn train(
    group: &Group,
    options: &TrainOptions,
    stop: &dyn Fn() -> bool,
    on_event: &mut dyn FnMut(&TrainEvent),
) -> Result<TrainOutcome, TrainError> {
    match &options.model {
        ModelOptions::Gpt(gpt) => {
            Run::new(group, options, Language::new(gpt, options)?, on_event)?.train(stop)
        }
        ModelOptions::Mlp(mlp) => {
            Run::new(group, options, Classification::new(mlp, options), on_event)?.train(stop)
        }
    }
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainOutcome {
    /// Summary of the run.
    pub summary: Summary,
    /// SHA-256 of parameters and moments: equal on every worker, and for every split of the same
    /// lanes.
    pub digest: String,
}

/// State of a run between two steps.
struct Run<'a, T: Task> {
    group: &'a Group,
    options: &'a TrainOptions,
    task: T,
    params: Vec<f32>,
    optimizer: AdamW<f32>,
    ddp: DistributedDataParallel<f32>,
    reporter: Rank0Reporter<'a>,
}

/// Result of one step, equal on all workers.
struct Step {
    loss: f32,
    norm: f64,
    wants_stop: bool,
}

impl<'a, T: Task> Run<'a, T> {
    /// Creates model, optimizer and runtime, with the state of a checkpoint if the run resumes.
    fn new(
        group: &'a Group,
        options: &'a TrainOptions,
        mut task: T,
        on_event: &'a mut dyn FnMut(&TrainEvent),
    ) -> Result<Self, TrainError> {
        let table = task.model().parameters().clone();
        let mut ddp_options =
            DdpOptions { accumulate: options.accumulate.get(), ..DdpOptions::default() };
        if let Some(bytes) = options.bucket_bytes {
            ddp_options.first_bucket_bytes = bytes.min(ddp_options.first_bucket_bytes);
            ddp_options.bucket_bytes = bytes;
        }
        let ddp = DistributedDataParallel::new(group, &table.layout(), ddp_options)?;
        let mut reporter = Rank0Reporter::new(group.rank() == 0, on_event);
        reporter.report(|| TrainEvent::Started(start(group, options, &task.title(), table.len())));
        let (mut params, optimizer) =
            initial_state(group, options, &table, &task.identity(), &mut reporter)?;
        ddp.broadcast_params(&mut params)?;
        reporter.open_metrics(options.metrics.as_deref(), optimizer.steps())?;
        Ok(Self { group, options, task, params, optimizer, ddp, reporter })
    }

    /// Runs all steps, then the final evaluation and the sample.
    fn train(mut self, stop: &dyn Fn() -> bool) -> Result<TrainOutcome, TrainError> {
        let eval_batches = self.task.validation(Extent::Sample);
        let (mut last, mut end, mut elapsed) = (None, RunEnd::Complete, Duration::ZERO);
        let first = self.optimizer.steps();
        while end == RunEnd::Complete && self.optimizer.steps() < self.options.schedule.steps {
            let begin = clock::now();
            let step = self.step(stop())?;
            let duration = clock::now() - begin;
            elapsed += duration;
            last = Some(step.loss);
            if step.wants_stop {
                end = RunEnd::Stopped;
            }
            self.after_step(&step, duration, &eval_batches)?;
        }
        let items = self.items_per_step() * (self.optimizer.steps() - first) as f64;
        self.finish(end, last, elapsed, items / elapsed.as_secs_f64().max(1e-9))
    }

    /// Runs one step: the micro-batches of all lanes, the mean gradient, the optimizer.
    fn step(&mut self, wants_stop: bool) -> Result<Step, TrainError> {
        let accumulate = self.options.accumulate.get();
        let (step, lanes) = (self.optimizer.steps(), self.group.world_size() * accumulate);
        // One slot per lane, so that the mean is summed in the same order for every number of
        // workers; the last slot counts the workers that want to stop.
        let mut slots = self.group.alloc::<f32>(lanes + 1)?;
        for micro_batch in 0..accumulate {
            let lane = self.group.rank() * accumulate + micro_batch;
            let position = SamplePosition { seed: self.options.seed, step, lane: lane as u64 };
            let batch = self.task.batch(position);
            let model = self.task.model();
            slots[lane] =
                self.ddp.micro_batch(|sink| model.backward(&self.params, &batch, sink))?;
        }
        slots[lanes] = f32::from(u8::from(wants_stop));
        // The losses are reduced after the last bucket, so that workers wait for each other once in
        // each step.
        let slots = self.group.start_all_reduce(slots, 0..lanes + 1, ReduceOp::Sum);
        let norm = self.update_params(step)?;
        let slots = slots.wait()?;
        let loss = slots[..lanes].iter().sum::<f32>() / lanes as f32;
        if !loss.is_finite() {
            return Err(TrainError::Diverged { step: step + 1, loss });
        }
        Ok(Step { loss, norm, wants_stop: 0.0 < slots[lanes] })
    }

    /// Updates the parameters by the mean gradient; returns the norm of the gradient.
    fn update_params(&mut self, step: u64) -> Result<f64, TrainError> {
        let gradient = self.ddp.reduce()?;
        let norm = gradient_norm(self.options.threads, gradient);
        let clip = self.options.clip.map_or(1.0, |norm_max| clip_factor(norm, norm_max));
        self.optimizer.step(&mut self.params, gradient, self.options.schedule.at(step), clip);
        Ok(norm)
    }

    /// Evaluates and saves if the options request it, and reports the step.
    fn after_step(
        &mut self,
        step: &Step,
        duration: Duration,
        eval_batches: &[(Batch<T>, usize)],
    ) -> Result<(), TrainError> {
        let done = self.optimizer.steps();
        let steps = self.options.schedule.steps;
        let is_due = |every: Option<u64>| every.is_some_and(|n| done.is_multiple_of(n.max(1)));
        let is_last = step.wants_stop || done == steps;
        let wants_eval = is_due(self.options.eval_every) && !step.wants_stop;
        let val_loss = wants_eval.then(|| self.evaluate(eval_batches)).transpose()?;
        let report = StepReport {
            step: done,
            steps,
            loss: step.loss,
            val_loss,
            norm: step.norm,
            ms: duration.as_secs_f64() * 1e3,
            items_per_s: self.items_per_step() / duration.as_secs_f64().max(1e-9),
            unit: self.task.unit().name,
        };
        if self.reporter.is_active {
            self.group.note(&step_note(&report));
        }
        self.reporter.on_step(report)?;
        match &self.options.checkpoint {
            Some(to) if is_last || is_due(to.every) => self.save(to),
            _ => Ok(()),
        }
    }

    /// Number of items of all workers in a step.
    fn items_per_step(&self) -> f64 {
        let lanes = self.group.world_size() * self.options.accumulate.get();
        (lanes * self.task.unit().count) as f64
    }

    /// Mean loss over batches, which all workers share; it is summed in the order of the batches.
    fn evaluate(&mut self, batches: &[(Batch<T>, usize)]) -> Result<f64, TrainError> {
        let (rank, world) = (self.group.rank(), self.group.world_size());
        let mut losses = vec![0.0_f32; batches.len()];
        for (i, (batch, _)) in batches.iter().enumerate().skip(rank).step_by(world) {
            losses[i] = self.task.model().loss(&self.params, batch);
        }
        self.group.all_reduce(&mut losses, ReduceOp::Sum)?;
        let weighed =
            losses.iter().zip(batches).map(|(loss, batch)| f64::from(*loss) * batch.1 as f64);
        let items: usize = batches.iter().map(|batch| batch.1).sum();
        Ok(weighed.sum::<f64>() / items as f64)
    }

    fn save(&mut self, to: &CheckpointOptions) -> Result<(), TrainError> {
        if !self.reporter.is_active {
            return Ok(());
        }
        let step = self.optimizer.steps();
        let path = checkpoint::checkpoint_path(&to.dir, step);
        let state = (&self.params[..], self.optimizer.moments());
        let identity = self.task.identity();
        let run = (step, samples_of(self.group, self.options));
        checkpoint::save(&path, self.task.model().parameters(), &identity, run, state)?;
        if let Some(start) = &self.options.start {
            checkpoint::record_job(&path, &start.job)?;
        }
        self.reporter.saved = Some(path.clone());
        let failed = to.keep.map_or_else(Vec::new, |keep| checkpoint::prune(&path, keep));
        self.reporter.report(|| TrainEvent::Saved { path, step });
        for (path, error) in failed {
            self.reporter.report(|| TrainEvent::NotRemoved { path, why: error.to_string() });
        }
        Ok(())
    }

    fn sample(&mut self, end: RunEnd) {
        if !self.reporter.is_active || end == RunEnd::Stopped {
            return;
        }
        if let Some(text) = self.task.sample(&self.params, self.options.seed) {
            self.reporter.report(|| TrainEvent::Sampled(text));
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
        self.sample(end);
        let summary = Summary {
            step: self.optimizer.steps(),
            end,
            loss,
            val_loss,
            seconds: elapsed.as_secs_f64(),
            items_per_s,
            unit: self.task.unit().name,
            checkpoint: self.reporter.saved.clone(),
        };
        let digest = checkpoint::digest(&self.params, self.optimizer.moments());
        self.reporter.finish(&summary, &self.task.title(), self.options.plot.as_deref())?;
        Ok(TrainOutcome { summary, digest })
    }
}

fn start(group: &Group, options: &TrainOptions, title: &str, parameters: usize) -> RunStart {
    RunStart {
        title: title.to_owned(),
        parameters,
        workers: group.world_size(),
        accumulate: options.accumulate.get(),
        batch_size: options.batch_size.get(),
        steps: options.schedule.steps,
    }
}

/// Note about a step for the launcher.
fn step_note(report: &StepReport) -> Note {
    Note::Step {
        step: report.step,
        steps: Some(report.steps),
        loss: Some(f64::from(report.loss)),
        tokens_per_s: (report.unit == "tokens").then_some(report.items_per_s),
    }
}
