//! Content of `run.json` at the end of a job: what `run_record` contains while it runs, and the result.

use crate::base::{NodeRank, Rank, Status, clock};
use crate::job::FailureCause;
use crate::launch::history::WorkerHistory;
use crate::launch::progress::WorkerProgress;
use crate::launch::run_record;
use crate::launch::screen::job_report::JobReport;
use crate::os::machine::machine_name;
use crate::report::record::{
    CauseRecord, EpochRecord, ExitSource, LeakedRecord, RunRecord, RunState, WorkerRecord,
    code_and_signal,
};

impl JobReport<'_> {
    /// Writes the result into `run.json`; returns a warning if that failed.
    pub(in crate::launch) fn write_final_record(&self, status: Status) -> String {
        let Some(run_dir) = &self.options.output.run_dir else {
            return String::new();
        };
        match run_dir.end(self.final_record(status).to_json()) {
            Ok(()) => String::new(),
            Err(error) => format!("warning: cannot write run.json: {error}\n"),
        }
    }

    fn final_record(&self, status: Status) -> RunRecord {
        RunRecord {
            state: RunState::Ended,
            end: Some(clock::wall().as_secs_f64()),
            exit: Some(status.code()),
            exit_of: Some(match (&self.verdict.cause, self.startup.problems.is_empty()) {
                (_, true) if self.startup.faults.is_empty() => {
                    ExitSource::from(self.verdict.status)
                }
                _ => ExitSource::Remuda,
            }),
            cause: self.cause(),
            epochs: self.ended_epochs(),
            workers: self.worker_records(),
            leaked: self.leaked(),
            ..run_record::running_record(self.plan, self.options, self.recorder.began_wall)
        }
    }

    /// The cause, for the run record.
    pub(in crate::launch) fn cause(&self) -> Option<CauseRecord> {
        let failure = self.verdict.cause.as_ref().map(|cause| self.cause_record(cause));
        failure.or_else(|| self.request_record())
    }

    /// The request that ended the job, if nothing failed: a signal to the launcher, or its own at the end of the
    /// allocation.
    fn request_record(&self) -> Option<CauseRecord> {
        let Status::Interrupted(signal) = self.verdict.status else { return None };
        let kind = match self.recorder.allocation_end() {
            Some(_) => "allocation_ended",
            None => "interrupted",
        };
        Some(CauseRecord { signal: Some(signal), ..CauseRecord::of_host(kind, machine_name()) })
    }

    /// All epochs. The last one ends with the job, unless it has ended already and could not be
    /// followed by another.
    fn ended_epochs(&self) -> Vec<EpochRecord> {
        let mut epochs = self.recorder.epochs().to_vec();
        if let Some(last) = epochs.last_mut().filter(|last| last.end.is_none()) {
            (last.end, last.cause) = (Some(clock::wall().as_secs_f64()), self.cause());
        }
        epochs
    }

    fn cause_record(&self, cause: &FailureCause) -> CauseRecord {
        let of_worker = |kind, rank: Rank, (code, signal)| {
            let worker = self.worker(rank);
            let (host, pid) = (worker.host.to_string(), worker.pid());
            let (exception, evidence) = self.recorded_evidence();
            let (rank, place) = (Some(worker.rank.0), self.recorded_place());
            CauseRecord { kind, rank, host, pid, code, signal, exception, evidence, place }
        };
        match cause {
            FailureCause::Worker(end) => {
                of_worker("worker_failed", end.rank, code_and_signal(end.exit))
            }
            FailureCause::GaveUp { rank, detector } => {
                of_worker("worker_failed", *rank, code_and_signal(detector.exit))
            }
            FailureCause::Exiting { rank, .. } => {
                let ended = self.worker(*rank).outcome.as_ref();
                let how = ended.map_or((None, None), |ended| code_and_signal(ended.exit));
                of_worker("worker_failed", *rank, how)
            }
            FailureCause::MissingRanks { ranks, first, .. } => {
                let rank = ranks.first().copied().unwrap_or(first.rank);
                of_worker("worker_missing", rank, (None, None))
            }
            FailureCause::NotStarted { rank, .. } => {
                of_worker("worker_not_started", *rank, (None, None))
            }
            FailureCause::Node { node, .. } => CauseRecord::of_host("node_lost", self.host(*node)),
        }
    }

    fn worker_records(&self) -> Vec<WorkerRecord> {
        let places = (0..).map(Rank).zip(&self.history.workers);
        places.map(|(place, worker)| worker_record(worker, self.progress.of(place))).collect()
    }

    fn leaked(&self) -> Vec<LeakedRecord> {
        let record = |(node, process): &(NodeRank, crate::wire::Leftover)| LeakedRecord {
            host: self.host(*node),
            pid: process.pid,
            name: process.name.clone(),
        };
        self.history.unkillable.iter().map(record).collect()
    }
}

/// Returns the record of a worker so far.
pub(in crate::launch) fn worker_record(
    worker: &WorkerHistory,
    progress: WorkerProgress,
) -> WorkerRecord {
    let ended = worker.outcome.as_ref();
    let (code, signal) = ended.map_or((None, None), |ended| code_and_signal(ended.exit));
    WorkerRecord {
        rank: worker.rank.0,
        host: worker.host.to_string(),
        pid: worker.pid(),
        code,
        signal,
        stopped: ended.is_some_and(|ended| ended.stopped),
        seconds: worker.run_time().map(|ran| ran.as_secs_f64()),
        oom_kills: ended.map_or(0, |ended| ended.kernel.oom_kills),
        xids: ended.map_or_else(Vec::new, |ended| ended.kernel.xids.clone()),
        step: progress.step.map(|(step, _)| step.step),
        phase: progress.phase,
    }
}
