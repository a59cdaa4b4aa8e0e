//! Content of `run.json` while the job runs; the result is added at the end.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::base::{Epoch, clock};
use crate::launch::options::Options;
use crate::plan::{self, LaunchPlan};
use crate::report::record::{CauseRecord, EpochRecord, RunRecord, RunState, mask_secret};
use crate::report::this_host;

const RECORD_VERSION: u32 = 4;

/// When a job and its epochs began; keeps the files of the run.
pub(in crate::launch) struct RunRecorder {
    /// When the launcher began.
    pub(in crate::launch) began_at: Instant,
    /// The same as time of day, since 1970.
    pub(in crate::launch) began_wall: Duration,
    /// When workers were first started.
    first_started_at: Option<Instant>,
    /// Every epoch that has begun; the last one has not ended.
    epochs: Vec<EpochRecord>,
}

impl RunRecorder {
    /// The launcher begins.
    pub(in crate::launch) fn new() -> Self {
        Self {
            began_at: clock::now(),
            began_wall: clock::wall(),
            first_started_at: None,
            epochs: Vec::new(),
        }
    }

    /// When workers were first started.
    pub(in crate::launch) fn first_started_at(&self) -> Option<Instant> {
        self.first_started_at
    }

    pub(in crate::launch) fn epochs(&self) -> &[EpochRecord] {
        &self.epochs
    }

    /// Workers are started for the first time: from now on, the files of the job are kept.
    pub(in crate::launch) fn begin_run(&mut self, plan: &LaunchPlan, options: &Options) {
        self.first_started_at = Some(clock::now());
        if let Some(log_dir) = &options.output.log_dir {
            log_dir.begin();
        }
        if let Some(run_dir) = &options.output.run_dir {
            run_dir.begin(running_record(plan, options, self.began_wall).to_json());
        }
    }

    /// An epoch begins.
    pub(in crate::launch) fn begin_epoch(&mut self, epoch: Epoch) {
        let start = clock::wall().as_secs_f64();
        self.epochs.push(EpochRecord { epoch: epoch.0, start, end: None, cause: None });
    }

    /// The last epoch has ended by a failure, and another one follows.
    pub(in crate::launch) fn end_epoch(
        &mut self,
        plan: &LaunchPlan,
        options: &Options,
        cause: Option<CauseRecord>,
    ) {
        if let Some(epoch) = self.epochs.last_mut() {
            (epoch.end, epoch.cause) = (Some(clock::wall().as_secs_f64()), cause);
        }
        if let Some(run_dir) = &options.output.run_dir {
            let mut record = running_record(plan, options, self.began_wall);
            record.epochs.clone_from(&self.epochs);
            run_dir.update(record.to_json());
        }
    }

    /// Removes the files of a job that never began. Returns whether it began.
    pub(in crate::launch) fn discard_unused(&self, options: &Options) -> bool {
        if self.first_started_at.is_some() {
            return true;
        }
        if let Some(log_dir) = &options.output.log_dir {
            log_dir.discard();
        }
        if let Some(redirects) = &options.output.style.redirects {
            redirects.directory.discard();
        }
        if let Some(run_dir) = &options.output.run_dir {
            run_dir.discard();
        }
        false
    }
}

/// The record of a job that began at this time.
pub(in crate::launch) fn running_record(
    plan: &LaunchPlan,
    options: &Options,
    started: Duration,
) -> RunRecord {
    let digest = plan::digest(plan).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    RunRecord {
        version: RECORD_VERSION,
        remuda: env!("CARGO_PKG_VERSION"),
        job: options.job.to_string(),
        state: RunState::Running,
        pid: std::process::id(),
        host: this_host(),
        command: options.command.typed.iter().cloned().map(mask_secret).collect(),
        cwd: options.command.cwd.clone(),
        plan: digest,
        start: started.as_secs_f64(),
        end: None,
        exit: None,
        exit_of: None,
        cause: None,
        epochs: Vec::new(),
        workers: Vec::new(),
        leaked: Vec::new(),
    }
}
