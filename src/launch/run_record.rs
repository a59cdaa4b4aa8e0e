//! Content of `run.json` while the job runs; `final_record` adds the result.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::base::Epoch;
use crate::launch::options::Options;
use crate::os::machine::machine_name;
use crate::plan::{self, LaunchPlan};
use crate::report::record::{
    CauseRecord, EpochRecord, RunRecord, RunState, WorkerRecord, mask_secret,
};
use crate::report::text::show_count;

const RECORD_VERSION: u32 = 4;
/// Progress is recorded for at most one in so many parts of the launcher's time: the record of a large job is long.
const PROGRESS_PARTS: u32 = 50;

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
    /// How many of them were ended by a change of the nodes, without a failure.
    membership_changes: usize,
    /// Name of the allocation whose end stops the job, and the time that was left of it.
    allocation_end: Option<(String, Duration)>,
    /// When progress may be recorded again.
    progress_due_at: Instant,
}

/// The end of an epoch that another one follows.
pub(in crate::launch) struct EpochEnd {
    /// Time of day, since 1970.
    pub(in crate::launch) at: Duration,
    /// Its first failure.
    pub(in crate::launch) cause: Option<CauseRecord>,
    /// Whether other nodes take part in the next one, and nothing has failed.
    pub(in crate::launch) is_membership_change: bool,
}

impl RunRecorder {
    /// The launcher begins, at an instant and the same time of day since 1970.
    pub(in crate::launch) fn new(now: Instant, wall: Duration) -> Self {
        Self {
            began_at: now,
            began_wall: wall,
            first_started_at: None,
            epochs: Vec::new(),
            membership_changes: 0,
            allocation_end: None,
            progress_due_at: now,
        }
    }

    /// Whether progress may be recorded now.
    pub(in crate::launch) fn is_progress_due(&self, now: Instant) -> bool {
        self.progress_due_at <= now
    }

    /// Progress was recorded between these instants.
    pub(in crate::launch) fn recorded_progress(&mut self, began: Instant, ended: Instant) {
        self.progress_due_at = ended + (ended - began) * PROGRESS_PARTS;
    }

    /// Formats how often the workers were started again, and why: `1 restart and 2 membership changes`; [`None`]: they
    /// were not.
    pub(in crate::launch) fn show_restarts(&self) -> Option<String> {
        let all = self.epochs.len().saturating_sub(1);
        let changes = self.membership_changes.min(all);
        let counts = [(all - changes, "restart"), (changes, "membership change")];
        let counts = counts.into_iter().filter(|(count, _)| 0 < *count);
        let shown: Vec<String> = counts.map(|(count, what)| show_count(count, what)).collect();
        (!shown.is_empty()).then(|| shown.join(" and "))
    }

    /// When workers were first started.
    pub(in crate::launch) fn first_started_at(&self) -> Option<Instant> {
        self.first_started_at
    }

    /// The job is stopped because its allocation ends after this time.
    pub(in crate::launch) fn end_allocation(&mut self, name: String, left: Duration) {
        self.allocation_end = Some((name, left));
    }

    /// Name of the allocation whose end stops the job, and the time that was left of it.
    pub(in crate::launch) fn allocation_end(&self) -> Option<&(String, Duration)> {
        self.allocation_end.as_ref()
    }

    /// Every epoch that has begun, in order.
    pub(in crate::launch) fn epochs(&self) -> &[EpochRecord] {
        &self.epochs
    }

    /// Workers are started for the first time: from now on, the files of the job are kept.
    pub(in crate::launch) fn begin_run(
        &mut self,
        plan: &LaunchPlan,
        options: &Options,
        now: Instant,
    ) {
        self.first_started_at = Some(now);
        if let Some(log_dir) = &options.output.log_dir {
            log_dir.begin();
        }
        if let Some(run_dir) = &options.output.run_dir {
            run_dir.begin(running_record(plan, options, self.began_wall).to_json());
        }
    }

    /// An epoch begins at a time of day since 1970.
    pub(in crate::launch) fn begin_epoch(&mut self, epoch: Epoch, wall: Duration) {
        let start = wall.as_secs_f64();
        self.epochs.push(EpochRecord { epoch: epoch.0, start, end: None, cause: None });
    }

    /// All workers of an epoch have started: from then on, the record of the running job names their processes.
    pub(in crate::launch) fn record_workers(
        &self,
        plan: &LaunchPlan,
        options: &Options,
        workers: Vec<WorkerRecord>,
    ) {
        if let Some(run_dir) = &options.output.run_dir {
            let epochs = self.epochs.clone();
            let record = running_record(plan, options, self.began_wall);
            run_dir.update(RunRecord { epochs, workers, ..record }.to_json());
        }
    }

    /// The last epoch has ended, and another one follows.
    pub(in crate::launch) fn end_epoch(
        &mut self,
        plan: &LaunchPlan,
        options: &Options,
        end: EpochEnd,
    ) {
        if let Some(epoch) = self.epochs.last_mut() {
            (epoch.end, epoch.cause) = (Some(end.at.as_secs_f64()), end.cause);
        }
        self.membership_changes += usize::from(end.is_membership_change);
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
        host: machine_name(),
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::base::clock;
    use crate::launch::scale;
    use crate::report::{LogDir, RunClass, RunDir};

    /// A directory that is removed on drop.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("remuda-{name}-{}", std::process::id()));
            fs::create_dir(&path).expect("a directory for the test");
            Self(path)
        }

        /// Options of a job that keeps its files below this directory.
        fn options(&self) -> Options {
            let mut options = scale::options();
            let (runs, logs) = (self.0.join("runs"), self.0.join("logs"));
            let run_dir = RunDir::create(Some(&runs), &options.job, RunClass::Job, clock::wall());
            options.output.run_dir = Some(run_dir.expect("a directory"));
            let log_dir = LogDir::create(&logs, &options.job, clock::wall());
            options.output.log_dir = Some(log_dir.expect("a directory"));
            options.command.typed = vec!["remuda".into(), "API_KEY=secret".into()];
            options
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn run_dir(options: &Options) -> &Path {
        options.output.run_dir.as_ref().expect("it was made").path()
    }

    fn log_dir(options: &Options) -> &Path {
        options.output.log_dir.as_ref().expect("it was made").path()
    }

    fn record(options: &Options) -> serde_json::Value {
        let text = fs::read_to_string(run_dir(options).join("run.json")).expect("a record");
        serde_json::from_str(&text).expect("JSON")
    }

    fn cause(host: &str) -> CauseRecord {
        CauseRecord {
            kind: "node_lost",
            rank: None,
            host: host.to_owned(),
            pid: None,
            code: None,
            signal: None,
            exception: None,
            evidence: None,
            place: None,
        }
    }

    fn wall(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn long_record_of_progress_is_made_less_often() {
        let now = clock::now();
        let mut recorder = RunRecorder::new(now, Duration::ZERO);
        assert!(recorder.is_progress_due(now));
        let ended = now + Duration::from_millis(20);
        recorder.recorded_progress(now, ended);
        assert!(!recorder.is_progress_due(ended + Duration::from_millis(999)));
        assert!(recorder.is_progress_due(ended + Duration::from_secs(1)));
    }

    #[test]
    fn files_of_a_job_that_never_began_are_removed() {
        let scratch = Scratch::new("never-began");
        let options = scratch.options();
        assert!(run_dir(&options).exists() && log_dir(&options).exists());
        let recorder = RunRecorder::new(clock::now(), wall(100));
        assert!(!recorder.discard_unused(&options));
        assert!(!run_dir(&options).exists() && !log_dir(&options).exists());
    }

    #[test]
    fn files_of_a_job_that_began_are_kept() {
        let scratch = Scratch::new("began");
        let (options, plan) = (scratch.options(), scale::plan_of(2));
        let now = clock::now();
        let mut recorder = RunRecorder::new(now, wall(100));
        assert_eq!(recorder.first_started_at(), None);
        recorder.begin_epoch(Epoch(0), wall(101));
        recorder.begin_run(&plan, &options, now + wall(1));
        assert_eq!(recorder.first_started_at(), Some(now + wall(1)));
        assert!(recorder.discard_unused(&options));
        assert!(log_dir(&options).exists());
        let record = record(&options);
        assert_eq!((&record["state"], &record["start"]), (&"running".into(), &100.0.into()));
        assert_eq!(record["pid"], std::process::id());
        assert_eq!(record["command"], serde_json::json!(["remuda", "API_KEY=***"]));
        assert_eq!(record["end"], serde_json::Value::Null);
    }

    #[test]
    fn every_epoch_is_recorded_with_its_cause() {
        let scratch = Scratch::new("epochs");
        let (options, plan) = (scratch.options(), scale::plan_of(2));
        let mut recorder = RunRecorder::new(clock::now(), wall(100));
        recorder.begin_epoch(Epoch(0), wall(101));
        recorder.begin_run(&plan, &options, clock::now());
        let cause = Some(cause("node-00001"));
        let end = EpochEnd { at: wall(110), cause, is_membership_change: false };
        recorder.end_epoch(&plan, &options, end);
        // Epochs under another node 0 are not among those of this launcher.
        recorder.begin_epoch(Epoch(3), wall(120));
        assert_eq!(recorder.show_restarts().as_deref(), Some("1 restart"));
        let end = EpochEnd { at: wall(130), cause: None, is_membership_change: true };
        recorder.end_epoch(&plan, &options, end);
        recorder.begin_epoch(Epoch(4), wall(140));
        let restarts = recorder.show_restarts();
        assert_eq!(restarts.as_deref(), Some("1 restart and 1 membership change"));
        let record = record(&options);
        let epochs = record["epochs"].as_array().expect("a list");
        let row = |epoch: &serde_json::Value| {
            [&epoch["epoch"], &epoch["start"], &epoch["end"], &epoch["cause"]["host"]]
                .map(ToString::to_string)
        };
        let rows: Vec<_> = epochs.iter().map(row).collect();
        assert_eq!(
            rows,
            [["0", "101.0", "110.0", "\"node-00001\""], ["3", "120.0", "130.0", "null"],]
        );
        let last = recorder.epochs().last().expect("three have begun");
        assert_eq!((last.epoch, last.end), (4, None), "it lasts");
    }

    #[test]
    fn job_without_directories_records_in_memory_only() {
        let (options, plan) = (scale::options(), scale::plan_of(1));
        let mut recorder = RunRecorder::new(clock::now(), wall(100));
        recorder.begin_epoch(Epoch(0), wall(101));
        recorder.begin_run(&plan, &options, clock::now());
        assert_eq!(recorder.show_restarts(), None);
        let end = EpochEnd { at: wall(102), cause: None, is_membership_change: true };
        recorder.end_epoch(&plan, &options, end);
        assert!(recorder.discard_unused(&options));
        assert_eq!(recorder.epochs().len(), 1);
    }

    #[test]
    fn record_of_a_running_job_names_its_plan() {
        let options = scale::options();
        let of = |nodes| running_record(&scale::plan_of(nodes), &options, wall(100));
        let (one, two) = (of(1), of(2));
        assert_eq!((one.version, one.job.as_str()), (RECORD_VERSION, "scale"));
        assert_eq!(one.plan.len(), 64, "SHA-256 in hexadecimal digits");
        assert_eq!(one.plan, of(1).plan);
        assert_ne!(one.plan, two.plan);
    }
}
