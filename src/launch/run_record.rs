//! Content of `run.json` while the job runs; the result is added at the end.

use std::fmt::Write as _;
use std::time::Duration;

use crate::launch::options::Options;
use crate::plan::{self, LaunchPlan};
use crate::report::record::{RunRecord, RunState, mask_secret};
use crate::report::this_host;

const RECORD_VERSION: u32 = 4;

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
