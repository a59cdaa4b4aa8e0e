//! `remuda doctor --gpu`: what the GPUs of this machine compute, compared with references.
//!
//! Every check is a process of its own with a time limit: a check that crashes or hangs is a failed check, and the
//! others run. NCCL between all GPUs is checked by a job of `remuda bench`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
#[cfg(all(feature = "nccl", feature = "train"))]
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::base::{Measured, Status};
use crate::cli::codes::machine::NO_DEVICE;
use crate::cli::error::CliError;
use crate::cli::line::codes::BAD_VALUE;
use crate::cli::resolve;
#[cfg(all(feature = "nccl", feature = "train"))]
use crate::cuda::cublaslt::AlgorithmChoice;
#[cfg(all(feature = "nccl", feature = "train"))]
use crate::cuda::device::Device;
use crate::os::process::command_output::output_of;
use crate::report::text::{Align, paint_message, show_columns, show_count};
use crate::report::{Terminal, print, print_error, print_screen};
#[cfg(all(feature = "nccl", feature = "train"))]
use crate::runtime::Group;
#[cfg(feature = "nccl")]
use crate::runtime::gpu_checks;
#[cfg(all(feature = "nccl", feature = "train"))]
use crate::train::{GPT2_124M, lacks_memory, profile_step};

/// Name of the command that makes this executable run one check.
pub(in crate::cli) const CHECK_COMMAND: &str = "gpu-check";
/// Limit of a check. The first one on a machine compiles its kernels.
const CHECK_LIMIT: Duration = Duration::from_secs(180);
/// Why a build has no checks.
const NO_SUPPORT: &str = "this build of remuda has no support for GPUs (feature `nccl`)";
const EXECUTABLE: &str = "/proc/self/exe";
/// Version of the document of `--json`.
const DOCUMENT_VERSION: u32 = 2;
/// Name of the check that trains for some steps, and says where their time goes.
#[cfg(feature = "nccl")]
const STEP: &str = "step";
/// Sequences of a step of that check, as many as there is memory for.
#[cfg(all(feature = "nccl", feature = "train"))]
const STEP_SAMPLES: [usize; 4] = [64, 16, 4, 1];
/// Name of the check of collectives between all GPUs.
const COLLECTIVES: &str = "collectives";
/// Bytes of an all-reduce: enough for the bandwidth of NVLink.
const MESSAGE_SIZE: &str = "256M";

/// What the checks of a machine found.
#[derive(Debug, Serialize)]
struct GpuReport {
    version: u32,
    checks: Vec<CheckRecord>,
}

/// What a check found.
#[derive(Debug, Serialize)]
struct CheckRecord {
    /// `None`: all GPUs together.
    gpu: Option<usize>,
    check: &'static str,
    ok: bool,
    /// What was measured or found, or what is wrong.
    message: String,
    /// Numbers that were measured, by name.
    figures: BTreeMap<String, f64>,
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
    let mut checks: Vec<_> = (0..gpus).flat_map(|gpu| checks_of(gpu, &names)).collect();
    if checks.iter().all(|check| check.ok || check.check != names[0]) {
        checks.push(check_collectives("nccl", gpus));
    }
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

/// Runs the checks of a GPU; without its driver or a library, which the first one finds, no other.
fn checks_of(gpu: usize, names: &[&'static str]) -> Vec<CheckRecord> {
    let mut records = Vec::new();
    for check in names {
        records.push(run_check(gpu, check));
        if !records[0].ok {
            break;
        }
    }
    records
}

/// Runs a check in a process of its own, which prints what it measured as JSON.
fn run_check(gpu: usize, check: &'static str) -> CheckRecord {
    let output = run_self(&[CHECK_COMMAND, &gpu.to_string(), check]);
    record(Some(gpu), check, output.and_then(|printed| read_measured(&printed)))
}

fn read_measured(printed: &str) -> Result<Measured, String> {
    serde_json::from_str(printed).map_err(|error| format!("no result: {error}"))
}

/// Runs all-reduces between all GPUs, whose results `remuda bench` checks.
fn check_collectives(backend: &str, gpus: usize) -> CheckRecord {
    let hosts = format!("localhost:{gpus}");
    let place = ["--hostfile", &hosts, "--no_settings", "--quiet"];
    let what = ["bench", "all-reduce", "--backend", backend, "--json"];
    let sizes = ["--minbytes", MESSAGE_SIZE, "--maxbytes", MESSAGE_SIZE];
    let output = run_self(&[&what[..], &sizes, &place].concat());
    let found = output.and_then(|document| show_bandwidth(&document, gpus));
    record(None, COLLECTIVES, found.map(Measured::from))
}

/// Formats the bandwidth in a document of `remuda bench`.
fn show_bandwidth(document: &str, gpus: usize) -> Result<String, String> {
    let document: serde_json::Value =
        serde_json::from_str(document).map_err(|error| format!("no result: {error}"))?;
    let row = &document["rows"][0];
    match (row["wrong"].as_u64(), row["busbw_gbs"].as_f64()) {
        (Some(0), Some(bandwidth)) => Ok(format!(
            "all-reduce between {}: {bandwidth:.0} GB/s of bus bandwidth",
            show_count(gpus, "GPU")
        )),
        (Some(wrong), _) => {
            Err(format!("{} of an all-reduce wrong", show_count(wrong as usize, "value")))
        }
        _ => Err("`remuda bench` measured nothing".to_owned()),
    }
}

/// Runs this executable to its end; returns its output.
fn run_self(arguments: &[&str]) -> Result<String, String> {
    output_of(OsStr::new(EXECUTABLE), arguments, Path::new("/"), CHECK_LIMIT)
}

fn record(gpu: Option<usize>, check: &'static str, found: Result<Measured, String>) -> CheckRecord {
    let ok = found.is_ok();
    let Measured { message, figures } = found.unwrap_or_else(Measured::from);
    CheckRecord { gpu, check, ok, message: message.trim_end().to_owned(), figures }
}

/// Formats what the checks found.
fn show(report: &GpuReport) -> String {
    let row = |check: &CheckRecord| {
        let verdict = if check.ok { "ok" } else { "wrong" };
        let gpu = check.gpu.map_or_else(|| "all".to_owned(), |gpu| gpu.to_string());
        [gpu, verdict.to_owned(), check.check.to_owned(), check.message.clone()]
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
            let text = serde_json::to_string(&found).expect("keys are strings") + "\n";
            print(&text).map_err(CliError::output)?;
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
    let mut names = gpu_checks::check_names();
    if cfg!(feature = "train") {
        names.push(STEP);
    }
    names
}

#[cfg(feature = "nccl")]
fn run_here(gpu: usize, check: &str) -> Result<Measured, String> {
    #[cfg(feature = "train")]
    if check == STEP {
        return profile(gpu);
    }
    gpu_checks::run_check(gpu, check)
}

/// Trains GPT-2 for some steps, and times its parts.
#[cfg(all(feature = "nccl", feature = "train"))]
fn profile(gpu: usize) -> Result<Measured, String> {
    // As a training opens it.
    let device = gpu_checks::open_with(gpu, AlgorithmChoice::Fastest)?;
    let group = Group::single().map_err(|error| error.to_string())?;
    let device: Arc<dyn Device> = Arc::new(device);
    for samples in STEP_SAMPLES {
        match profile_step(&group, &device, GPT2_124M, samples) {
            Err(error) if lacks_memory(&error) => {}
            Err(error) => return Err(error.to_string()),
            Ok(found) => {
                return Ok(Measured { message: found.to_string(), figures: found.figures() });
            }
        }
    }
    Ok("too little memory is free for a step of GPT-2".to_owned().into())
}

#[cfg(not(feature = "nccl"))]
fn check_names() -> Vec<&'static str> {
    Vec::new()
}

#[cfg(not(feature = "nccl"))]
fn run_here(_gpu: usize, _check: &str) -> Result<Measured, String> {
    Err(NO_SUPPORT.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(gpu: Option<usize>, check: &'static str, message: &str) -> CheckRecord {
        record(gpu, check, Ok(message.to_owned().into()))
    }

    fn wrong(check: &'static str, message: &str) -> CheckRecord {
        record(Some(0), check, Err(message.to_owned()))
    }

    #[test]
    fn wrong_check_is_shown_with_what_is_wrong() {
        let checks = vec![
            right(Some(0), "libraries", "NVRTC 13.0, cuBLASLt 13.1.0"),
            right(Some(0), "norms", ""),
            wrong("attention", "it failed (exit status: 1): dk: relative error 3.0e-2"),
            right(None, COLLECTIVES, "all-reduce between 8 GPUs: 480 GB/s of bus bandwidth"),
        ];
        let report = GpuReport { version: DOCUMENT_VERSION, checks };
        let expect = "\
gpu         check        found
  0  ok     libraries    NVRTC 13.0, cuBLASLt 13.1.0
  0  ok     norms
  0  wrong  attention    it failed (exit status: 1): dk: relative error 3.0e-2
all  ok     collectives  all-reduce between 8 GPUs: 480 GB/s of bus bandwidth

4 checks: 1 wrong; do not train on this machine
";
        assert_eq!(show(&report), expect);
    }

    #[test]
    fn document_has_every_check() {
        let checks = vec![right(None, COLLECTIVES, ""), wrong("folds", "other bits")];
        let report = GpuReport { version: DOCUMENT_VERSION, checks };
        let expect = serde_json::json!({"version": 2, "checks": [
            {"gpu": null, "check": "collectives", "ok": true, "message": "", "figures": {}},
            {"gpu": 0, "check": "folds", "ok": false, "message": "other bits", "figures": {}},
        ]});
        assert_eq!(serde_json::to_value(&report).expect("keys are strings"), expect);
    }

    #[test]
    fn bandwidth_is_that_of_a_right_result() {
        let document =
            |wrong: u32| format!(r#"{{"rows": [{{"wrong": {wrong}, "busbw_gbs": 480.2}}]}}"#);
        let expect = "all-reduce between 8 GPUs: 480 GB/s of bus bandwidth";
        assert_eq!(show_bandwidth(&document(0), 8).as_deref(), Ok(expect));
        assert_eq!(
            show_bandwidth(&document(3), 8),
            Err("3 values of an all-reduce wrong".to_owned())
        );
        assert!(show_bandwidth("", 8).is_err() && show_bandwidth("{}", 8).is_err());
    }

    #[test]
    fn check_on_a_missing_gpu_is_a_failed_check() {
        let words = ["1000000", "norms"].map(OsString::from);
        assert_eq!(main(&words).expect("it was read"), Status::Findings);
        assert!(main(&["norms".into()]).is_err());
    }
}
