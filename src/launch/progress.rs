//! Progress of the workers of an epoch: the last step and the phase that each has reported. The links update it,
//! and screens, metrics and `run.json` read it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use crate::base::{Note, Rank, clock, lock};
use crate::report::{OutputSender, WorkerStep, escape_control};

/// The progress of all workers.
#[derive(Debug, Default)]
pub(in crate::launch) struct JobProgress(Mutex<ProgressOfWorkers>);

#[derive(Debug, Default)]
struct ProgressOfWorkers {
    /// At most one entry for each worker of the job.
    workers: BTreeMap<Rank, WorkerProgress>,
    /// Whether a worker has reported something since the last look.
    has_changed: bool,
}

/// The progress of one worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::launch) struct WorkerProgress {
    /// Its last step, and when it was received.
    pub(in crate::launch) step: Option<(WorkerStep, Instant)>,
    /// What it does instead of training steps.
    pub(in crate::launch) phase: Option<String>,
}

impl JobProgress {
    /// Handles a note of a worker about its progress, and shows it in the status line; other notes have no effect.
    pub(in crate::launch) fn on_note(&self, rank: Rank, note: Note, output: &OutputSender) {
        match note {
            Note::Step { step, steps, loss, tokens_per_s } => {
                let step = WorkerStep { step, steps, loss, tokens_per_s };
                self.step(rank, step);
                output.step(rank, step);
            }
            Note::Phase { name } => {
                let phase = name.as_deref().map(escape_control);
                self.phase(rank, phase.clone());
                output.phase(rank, phase);
            }
            Note::Ready | Note::PeerLost { .. } | Note::GaveUp { .. } | Note::Failed { .. } => {}
        }
    }

    /// Records a step.
    pub(in crate::launch) fn step(&self, rank: Rank, step: WorkerStep) {
        self.change(rank, |worker| worker.step = Some((step, clock::now())));
    }

    /// Records a phase.
    pub(in crate::launch) fn phase(&self, rank: Rank, phase: Option<String>) {
        self.change(rank, |worker| worker.phase = phase);
    }

    /// The progress of a worker.
    pub(in crate::launch) fn of(&self, rank: Rank) -> WorkerProgress {
        self.lock().workers.get(&rank).cloned().unwrap_or_default()
    }

    /// The last step of the lowest rank that reports steps, and when it was received.
    pub(in crate::launch) fn lowest_step(&self) -> Option<(WorkerStep, Instant)> {
        self.lock().workers.values().find_map(|worker| worker.step)
    }

    /// Whether a worker has reported something since the last call.
    pub(in crate::launch) fn take_change(&self) -> bool {
        std::mem::take(&mut self.lock().has_changed)
    }

    /// Forgets the progress of the epoch before.
    pub(in crate::launch) fn begin_epoch(&self) {
        *self.lock() = ProgressOfWorkers::default();
    }

    fn change(&self, rank: Rank, change: impl FnOnce(&mut WorkerProgress)) {
        let mut progress = self.lock();
        progress.has_changed = true;
        change(progress.workers.entry(rank).or_default());
    }

    fn lock(&self) -> MutexGuard<'_, ProgressOfWorkers> {
        lock(&self.0)
    }
}

impl WorkerProgress {
    /// Shows it as `step 7, phase checkpoint`; `None` if the worker has reported none.
    pub(in crate::launch) fn show(&self) -> Option<String> {
        let step = self.step.map(|(step, _)| format!("step {}", step.step));
        let phase = self.phase.as_ref().map(|phase| format!("phase {phase}"));
        let parts: Vec<String> = step.into_iter().chain(phase).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(step: u64) -> WorkerStep {
        WorkerStep { step, steps: None, loss: None, tokens_per_s: None }
    }

    #[test]
    fn progress_of_each_worker_is_that_of_its_epoch() {
        let progress = JobProgress::default();
        assert_eq!(progress.of(Rank(1)).show(), None);
        assert!(!progress.take_change());
        progress.step(Rank(1), step(7));
        progress.phase(Rank(1), Some("checkpoint".to_owned()));
        progress.phase(Rank(0), Some("data".to_owned()));
        progress.step(Rank(2), step(9));
        assert_eq!(progress.of(Rank(1)).show().as_deref(), Some("step 7, phase checkpoint"));
        assert_eq!(progress.of(Rank(0)).show().as_deref(), Some("phase data"));
        assert_eq!(progress.lowest_step().map(|(step, _)| step.step), Some(7), "rank 0 has none");
        assert!(progress.take_change() && !progress.take_change());
        progress.phase(Rank(1), None);
        assert_eq!(progress.of(Rank(1)).show().as_deref(), Some("step 7"));
        progress.begin_epoch();
        assert_eq!(progress.of(Rank(1)), WorkerProgress::default());
        assert_eq!(progress.lowest_step(), None);
    }
}
