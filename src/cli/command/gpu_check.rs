//! `remuda doctor --gpu`: what the GPUs of this machine compute, compared with references.
//!
//! Every check is a process of its own with a time limit: a check that crashes or hangs is a failed check, and the
//! others run.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::base::Status;
use crate::cli::codes::machine::NO_DEVICE;
use crate::cli::error::CliError;
use crate::cli::line::codes::BAD_VALUE;
use crate::cli::resolve;
use crate::os::process::command_output::output_of;
use crate::report::text::{Align, paint_message, show_columns, show_count};
use crate::report::{Terminal, print, print_error, print_screen};

/// Name of the command that makes this executable run one check.
pub(in crate::cli) const CHECK_COMMAND: &str = "gpu-check";
/// Limit of a check. The first one on a machine compiles its kernels.
const CHECK_LIMIT: Duration = Duration::from_secs(180);
/// Why a build has no checks.
const NO_SUPPORT: &str = "this build of remuda has no support for GPUs (feature `nccl`)";
const EXECUTABLE: &str = "/proc/self/exe";
/// Version of the document of `--json`.
const DOCUMENT_VERSION: u32 = 1;

/// What the checks of a machine found.
#[derive(Debug, Serialize)]
struct GpuReport {
    version: u32,
    checks: Vec<CheckRecord>,
}

/// What a check found.
#[derive(Debug, Serialize)]
struct CheckRecord {
    gpu: usize,
    check: &'static str,
    ok: bool,
    /// What was measured or found, or what is wrong.
    message: String,
}

/// Runs all checks on all GPUs, and prints what they found.
pub(super) fn check_gpus(json: bool, terminal: Terminal) -> Result<Status, CliError> {
    let gpus = resolve::visible_gpus();
    if gpus == 0 {
        let help = "`nvidia-smi -L` lists the GPUs of a machine; `remuda ssh -H FILE -- remuda doctor --gpu` checks \
                    those of all hosts";
        let message =
            "no GPU is available: this machine has none, or CUDA_VISIBLE_DEVICES hides them";
        return Err(CliError::usage(NO_DEVICE, message).help(help));
    }
    let names = check_names();
    if names.is_empty() {
        return Err(CliError::usage(NO_DEVICE, NO_SUPPORT));
    }
    let all = (0..gpus).flat_map(|gpu| names.iter().map(move |check| (gpu, *check)));
    let checks: Vec<_> = all.map(|(gpu, check)| run_check(gpu, check)).collect();
    let report = GpuReport { version: DOCUMENT_VERSION, checks };
    if json {
        let text = serde_json::to_string_pretty(&report).expect("keys are strings") + "\n";
        print(&text).map_err(CliError::output)?;
    } else {
        print_screen(&paint_message(&show(&report), terminal.stdout_paint))
            .map_err(CliError::output)?;
    }
    Ok(if report.checks.iter().all(|check| check.ok) { Status::Success } else { Status::Findings })
}

/// Runs a check in a process of its own.
fn run_check(gpu: usize, check: &'static str) -> CheckRecord {
    let arguments = [CHECK_COMMAND, &gpu.to_string(), check];
    let ended = output_of(OsStr::new(EXECUTABLE), &arguments, Path::new("/"), CHECK_LIMIT);
    let (ok, message) = match ended {
        Ok(found) => (true, found.trim_end().to_owned()),
        Err(why) => (false, why),
    };
    CheckRecord { gpu, check, ok, message }
}

/// Formats what the checks found.
fn show(report: &GpuReport) -> String {
    let row = |check: &CheckRecord| {
        let verdict = if check.ok { "ok" } else { "wrong" };
        [check.gpu.to_string(), verdict.to_owned(), check.check.to_owned(), check.message.clone()]
    };
    let heads = ["gpu", "", "check", "found"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(heads).chain(report.checks.iter().map(row)).collect();
    let wrong = report.checks.iter().filter(|check| !check.ok).count();
    let verdict = match wrong {
        0 => "what they compute is right".to_owned(),
        wrong => format!("{wrong} wrong; do not train on this machine"),
    };
    let table = show_columns(&rows, [Align::Right, Align::Left, Align::Left, Align::Left]);
    format!("{table}\n{}: {verdict}\n", show_count(report.checks.len(), "check"))
}

/// Runs one check on one GPU: `remuda gpu-check GPU CHECK`.
pub(in crate::cli) fn main(words: &[OsString]) -> Result<Status, CliError> {
    let found = match words.iter().map(|word| word.to_str()).collect::<Option<Vec<_>>>().as_deref()
    {
        Some([gpu, check]) => gpu.parse().ok().map(|gpu| run_here(gpu, check)),
        _ => None,
    };
    let usage = || CliError::usage(BAD_VALUE, "`gpu-check` takes the number of a GPU and a check");
    match found.ok_or_else(usage)? {
        Ok(found) => {
            print(&(found + "\n")).map_err(CliError::output)?;
            Ok(Status::Success)
        }
        Err(why) => {
            print_error(&format!("{why}\n"));
            Ok(Status::Findings)
        }
    }
}

#[cfg(feature = "nccl")]
fn check_names() -> Vec<&'static str> {
    crate::runtime::gpu_checks::check_names()
}

#[cfg(feature = "nccl")]
fn run_here(gpu: usize, check: &str) -> Result<String, String> {
    crate::runtime::gpu_checks::run_check(gpu, check)
}

#[cfg(not(feature = "nccl"))]
fn check_names() -> Vec<&'static str> {
    Vec::new()
}

#[cfg(not(feature = "nccl"))]
fn run_here(_gpu: usize, _check: &str) -> Result<String, String> {
    Err(NO_SUPPORT.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(check: &'static str, ok: bool, message: &str) -> CheckRecord {
        CheckRecord { gpu: 0, check, ok, message: message.to_owned() }
    }

    #[test]
    fn wrong_check_is_shown_with_what_is_wrong() {
        let checks = vec![
            record("libraries", true, "NVRTC 13.0, cuBLASLt 13.1.0"),
            record("norms", true, ""),
            record("attention", false, "it failed (exit status: 1): dk: relative error 3.0e-2"),
        ];
        let report = GpuReport { version: DOCUMENT_VERSION, checks };
        let expect = "\
gpu         check      found
  0  ok     libraries  NVRTC 13.0, cuBLASLt 13.1.0
  0  ok     norms
  0  wrong  attention  it failed (exit status: 1): dk: relative error 3.0e-2

3 checks: 1 wrong; do not train on this machine
";
        assert_eq!(show(&report), expect);
    }

    #[test]
    fn document_has_every_check() {
        let checks = vec![record("norms", true, ""), record("folds", false, "other bits")];
        let report = GpuReport { version: DOCUMENT_VERSION, checks };
        let expect = serde_json::json!({"version": 1, "checks": [
            {"gpu": 0, "check": "norms", "ok": true, "message": ""},
            {"gpu": 0, "check": "folds", "ok": false, "message": "other bits"},
        ]});
        assert_eq!(serde_json::to_value(&report).expect("keys are strings"), expect);
    }

    #[test]
    fn check_on_a_missing_gpu_is_a_failed_check() {
        let words = ["1000000", "norms"].map(OsString::from);
        assert_eq!(main(&words).expect("it was read"), Status::Findings);
        assert!(main(&["norms".into()]).is_err());
    }
}
