//! `--deepspeed_config`: the file is read here once, and every problem of it is reported before anything starts.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use super::args::{PrecisionArg, TrainArgs};
use super::codes::{CONFIG_DIFFERS, NOT_IN_ENGINE};
use super::engine_config::{LineSettings, engine_config};
use super::typed_line::TypedLine;
use crate::base::{Findings, Status};
use crate::cli::command::config::file::read_bytes;
use crate::cli::error::CliError;
use crate::cli::resolve::ResolvedCluster;
use crate::config::{
    ConfigCommand, ConfigInputs, ConfigReading, Ineffective, PrecisionConfig, ReportConfig,
    TrainingConfig, ZeroStage, read_config,
};
use crate::train::{ScalarFormat, ScalarNames, ScalarOutput};

/// Takes the settings of the engine from the file of the line, if there is one. Returns notes about keys
/// without effect.
pub(super) fn apply(
    line: &TypedLine<'_>,
    args: &mut TrainArgs,
    cluster: &ResolvedCluster,
) -> Result<String, CliError> {
    let Some(path) = args.deepspeed_config.clone() else { return Ok(String::new()) };
    let reading = read(&path, &inputs(line, args, cluster.workers()))?;
    let Some(config) = &reading.config else { return Err(refused(reading.findings)) };
    check_agreement(line, args, config)?;
    let of_line = LineSettings {
        line: args.engine(0),
        steps: args.steps,
        blocks: args.layers.map_or(4, NonZeroUsize::get),
        workers_per_node: cluster.workers_per_node(),
    };
    let engine = engine_config(config, &of_line).map_err(|missing| {
        let message = format!("`remuda train` does not support {} yet", missing.what);
        let help = format!("write {} in the file", missing.instead);
        let place = line.0.value_or_end("deepspeed_config");
        line.refuse(Status::Config, NOT_IN_ENGINE, place, message, |found| found.help(help))
    })?;
    args.batch_size = NonZeroUsize::new(config.batch.micro as usize);
    args.accumulate = NonZeroUsize::new(engine.accumulate);
    args.stage = engine.sharding.stage();
    args.precision = precision(config);
    args.activation_checkpointing = engine.plan.recompute != 0;
    args.engine = Some(engine);
    args.monitor = monitors(&config.reports);
    Ok(notes(&reading))
}

/// Reads a file, or the file of DeepSpeed that it names.
fn read(path: &Path, inputs: &ConfigInputs) -> Result<ConfigReading, CliError> {
    let unreadable =
        |findings| CliError::Findings { status: Status::NoInput, findings: vec![findings] };
    let bytes = read_bytes(path).map_err(unreadable)?;
    let reading = read_config(&path.display().to_string(), &bytes, inputs);
    match reading.included.clone().filter(|included| Path::new(included) != path) {
        Some(included) if !reading.findings.has_errors() => read(Path::new(&included), inputs),
        _ => Ok(reading),
    }
}

fn refused(findings: Findings) -> CliError {
    CliError::Findings { status: Status::Config, findings: vec![findings] }
}

/// What fills `auto`: options that were typed, the number of workers and the width of the model.
fn inputs(line: &TypedLine<'_>, args: &TrainArgs, workers: usize) -> ConfigInputs {
    let is_typed = |flag: &str| line.0.last(flag).is_some();
    let count = |given: Option<NonZeroUsize>| given.map(|count| count.get() as u64);
    ConfigInputs {
        command: ConfigCommand::Train,
        world_size: Some(workers as u64),
        micro_batch: count(args.batch_size),
        accumulation: count(args.accumulate),
        hidden_size: count(args.width).or(Some(128)),
        learning_rate: is_typed("lr").then_some(args.lr),
        weight_decay: is_typed("weight_decay").then_some(args.weight_decay),
        clip: is_typed("clip").then_some(args.clip),
        warmup: is_typed("warmup").then_some(args.warmup),
        steps: Some(args.steps),
    }
}

/// Refuses options that contradict the file.
fn check_agreement(
    line: &TypedLine<'_>,
    args: &TrainArgs,
    config: &TrainingConfig,
) -> Result<(), CliError> {
    let count = |given: Option<NonZeroUsize>| given.map(|count| count.to_string());
    let stage = match config.zero.stage {
        ZeroStage::None => 0,
        ZeroStage::Optimizer => 1,
        ZeroStage::Gradients => 2,
        ZeroStage::Parameters => 3,
    };
    let optimizer = config.optimizer;
    let pairs = [
        ("batch_size", count(args.batch_size), Some(config.batch.micro.to_string())),
        ("accumulate", count(args.accumulate), Some(config.batch.accumulation.to_string())),
        ("stage", Some(args.stage.to_string()), Some(stage.to_string())),
        ("precision", Some(args.precision.to_string()), Some(precision(config).to_string())),
        ("lr", Some(args.lr.to_string()), optimizer.map(|found| found.learning_rate.to_string())),
        (
            "weight_decay",
            Some(args.weight_decay.to_string()),
            optimizer.map(|found| found.weight_decay.to_string()),
        ),
        (
            "clip",
            Some(args.clip.to_string()),
            Some(config.gradient_clipping.unwrap_or(0.0).to_string()),
        ),
    ];
    for (flag, typed, in_file) in pairs {
        let (Some(typed), Some(in_file)) = (typed, in_file) else { continue };
        if line.0.last(flag).is_none() || typed == in_file {
            continue;
        }
        let message =
            format!("`--{flag} {typed}` contradicts `--deepspeed_config`, which has {in_file}");
        let place = line.0.value_or_end(flag);
        return Err(line.refuse(Status::Config, CONFIG_DIFFERS, place, message, |found| {
            found.help(format!("leave `--{flag}` out, or write `auto` in the file"))
        }));
    }
    Ok(())
}

fn precision(config: &TrainingConfig) -> PrecisionArg {
    match config.precision {
        PrecisionConfig::Full => PrecisionArg::F32,
        PrecisionConfig::Bf16 { .. } => PrecisionArg::Bf16,
        PrecisionConfig::Fp16(_) => PrecisionArg::F16,
    }
}

/// Outputs of the monitors that the file turns on.
fn monitors(reports: &ReportConfig) -> Vec<ScalarOutput> {
    let formats =
        [(ScalarFormat::TensorBoard, &reports.tensorboard), (ScalarFormat::Csv, &reports.csv)];
    let outputs = formats.into_iter().filter_map(|(format, monitor)| {
        let monitor = monitor.as_ref()?;
        let dir = PathBuf::from(&monitor.output_path).join(&monitor.job_name);
        Some(ScalarOutput { dir, format, names: ScalarNames::DeepSpeed })
    });
    outputs.collect()
}

/// One line for each key without effect.
fn notes(reading: &ConfigReading) -> String {
    let file = &reading.findings.source.name;
    let line = |Ineffective { path, reason, .. }: &Ineffective| {
        format!("note: {file}: `{path}` has no effect here: {reason}\n")
    };
    reading.ineffective.iter().map(line).collect()
}
