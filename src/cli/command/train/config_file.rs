//! `--deepspeed_config`: the file is read here once, and every problem of it is reported before anything starts.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use super::args::TrainArgs;
use super::codes::{CONFIG_DIFFERS, NOT_IN_ENGINE};
use super::config_places::ConfigPlaces;
use super::engine_config::{NotInEngine, OwnSettings, blocks_of_segment, engine_config};
use super::typed_line::TypedLine;
use super::values::{DeviceArg, PrecisionArg};
use crate::base::shell::quoted;
use crate::base::{Findings, Status};
use crate::cli::command::config::file::read_bytes;
use crate::cli::error::CliError;
use crate::cli::resolve::ResolvedCluster;
use crate::config::{
    ComputeType, ConfigCommand, ConfigDialect, ConfigInputs, ConfigReading, Ineffective,
    NO_OTHER_MEMORY, OptimizerConfig, PrecisionConfig, RecomputeConfig, ReportConfig,
    ScheduleConfig, ShardGroupConfig, TrainingConfig, UpdateRule, WorldSize, ZeroStage,
    read_config,
};
use crate::report::diagnostic::{Paint, show_place, show_problems};
use crate::train::{ScalarFormat, ScalarNames, ScalarOutput};

/// What `--activation_checkpointing` computes again.
const EVERY_BLOCK: &str = "every block";
/// Keys without effect that a note lists.
const KEYS_SHOWN_MAX: usize = 12;

/// Takes the settings of the engine from the file of the line, if there is one. Returns its warnings, and notes
/// about keys without effect.
pub(super) fn apply(
    line: &TypedLine<'_>,
    args: &mut TrainArgs,
    cluster: &ResolvedCluster,
    paint: Paint,
) -> Result<String, CliError> {
    let Some(path) = args.deepspeed_config.clone() else { return Ok(String::new()) };
    let reading = read(&path, &inputs(line, args, cluster.workers()))?;
    let Some(config) = &reading.config else { return Err(refused(reading.findings)) };
    args.config_places = Some(ConfigPlaces::of(&reading));
    check_agreement(line, args, config, cluster)?;
    let own = OwnSettings {
        otherwise: args.engine(0),
        steps: args.schedule_steps(),
        blocks: blocks_of(args),
        workers_per_node: cluster.workers_per_node(),
    };
    let engine =
        engine_config(config, &own).map_err(|missing| not_in_engine(line, args, &missing))?;
    args.batch_size = NonZeroUsize::new(config.batch.micro as usize);
    args.accumulate = NonZeroUsize::new(engine.accumulate);
    args.stage = engine.sharding.stage();
    args.precision = precision(config);
    args.activation_checkpointing = engine.plan.recompute != 0;
    args.engine = Some(engine);
    args.monitor = monitors(&config.reports);
    Ok(show_problems(&reading.findings, paint) + &notes(&reading, args.device))
}

/// A setting that the engine does not have, with its place in the file.
fn not_in_engine(line: &TypedLine<'_>, args: &TrainArgs, missing: &NotInEngine) -> CliError {
    let message = format!("`remuda train` does not support {} yet", missing.what);
    let help = format!("write {} in the file", missing.instead);
    if let Some(place) = args.config_place(&[missing.key]) {
        return place.refuse(Status::Config, NOT_IN_ENGINE, message, |found| found.help(help));
    }
    let place = line.0.value_or_end("deepspeed_config");
    line.refuse(Status::Config, NOT_IN_ENGINE, place, message, |found| found.help(help))
}

/// Returns the number of workers that a file of accelerate names. A file with errors is reported by [`apply`].
pub(super) fn processes(args: &TrainArgs) -> Option<u64> {
    let path = args.deepspeed_config.as_ref()?;
    let bytes = read_bytes(path).ok()?;
    let reading = read_config(&path.display().to_string(), &bytes, &ConfigInputs::default());
    match (reading.dialect, reading.world_size) {
        (ConfigDialect::Accelerate, WorldSize::Given(ranks)) => Some(ranks),
        _ => None,
    }
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

/// What fills `auto` and keys that the file does not have: options that were typed, the number of workers and
/// the width of the model.
fn inputs(line: &TypedLine<'_>, args: &TrainArgs, workers: usize) -> ConfigInputs {
    let is_typed = |flag: &str| line.0.last(flag).is_some();
    let count = |given: Option<NonZeroUsize>| given.map(|count| count.get() as u64);
    let beta = |flag, typed, default| if is_typed(flag) { typed } else { default };
    let has_betas = is_typed("beta1") || is_typed("beta2");
    ConfigInputs {
        command: ConfigCommand::Train,
        world_size: Some(workers as u64),
        micro_batch: count(args.batch_size),
        // `--lanes` has been divided among the workers.
        accumulation: count(args.accumulate),
        hidden_size: count(args.width).or(Some(128)),
        learning_rate: is_typed("lr").then_some(args.lr),
        betas: has_betas
            .then(|| [beta("beta1", args.beta1, 0.9), beta("beta2", args.beta2, 0.999)]),
        weight_decay: is_typed("weight_decay").then_some(args.weight_decay),
        clip: is_typed("clip").then_some(args.clip),
        warmup: is_typed("warmup").then_some(args.warmup),
        stage: is_typed("stage").then_some(args.stage),
        precision: is_typed("precision").then_some(match args.precision {
            PrecisionArg::F32 => ComputeType::Fp32,
            PrecisionArg::Bf16 => ComputeType::Bf16,
            PrecisionArg::F16 => ComputeType::Fp16,
        }),
        steps: Some(args.schedule_steps()),
    }
}

/// Refuses options that contradict the file.
fn check_agreement(
    line: &TypedLine<'_>,
    args: &TrainArgs,
    config: &TrainingConfig,
    cluster: &ResolvedCluster,
) -> Result<(), CliError> {
    let settings = options_of_both(args, config, cluster.workers())
        .into_iter()
        .chain(options_of_memory(args, config, cluster.workers_per_node()));
    for OptionOfBoth { flag, keys, typed, in_file } in settings {
        let Some(in_file) = in_file.filter(|in_file| *in_file != typed) else { continue };
        if line.0.last(flag).is_none() {
            continue;
        }
        let option = match flag {
            "activation_checkpointing" => format!("`--{flag}`"),
            _ => format!("`--{flag} {typed}`"),
        };
        let help = match flag {
            "warmup" | "min_lr" | "decay_steps" => {
                format!("leave `--{flag}` out: the file decides the schedule")
            }
            _ => format!("leave `--{flag}` out, or remove its setting from the file"),
        };
        if let Some(place) = args.config_place(keys) {
            let (key, file) = (place.key, place.file());
            // A number can follow from another key.
            let is_own = key == keys[0] || in_file.parse::<f64>().is_err();
            let has = if is_own { "has" } else { "makes it" };
            let message =
                format!("{option} contradicts `{key}` of `{file}`, which {has} {in_file}");
            let refused =
                place.refuse(Status::Config, CONFIG_DIFFERS, message, |found| found.help(help));
            return Err(refused);
        }
        let message = format!("{option} contradicts `--deepspeed_config`, which has {in_file}");
        let place = line.0.value_or_end(flag);
        let refused =
            line.refuse(Status::Config, CONFIG_DIFFERS, place, message, |found| found.help(help));
        return Err(refused);
    }
    Ok(())
}

/// Keys that decide an option, the nearest first. A file need not have the nearest: it may follow from the others.
const LANES: &[&str] =
    &["train_batch_size", "gradient_accumulation_steps", "train_micro_batch_size_per_gpu"];
const BATCH_SIZE: &[&str] = &["train_micro_batch_size_per_gpu", "train_batch_size"];
const ACCUMULATE: &[&str] = &["gradient_accumulation_steps", "train_batch_size"];
const RATE: &[&str] = &["optimizer.params.lr", "optimizer.type"];
const BETAS: &[&str] = &["optimizer.params.betas", "optimizer.type"];
const DECAY: &[&str] = &["optimizer.params.weight_decay", "optimizer.type"];
const SCHEDULE: &[&str] = &["scheduler.type", "optimizer.type"];
const WARMUP: &[&str] = &["scheduler.params.warmup_num_steps", "scheduler.type", "optimizer.type"];
const TOTAL: &[&str] = &["scheduler.params.total_num_steps", "scheduler.type", "optimizer.type"];

/// An option that a file can contradict.
struct OptionOfBoth {
    flag: &'static str,
    /// Keys of the file.
    keys: &'static [&'static str],
    typed: String,
    /// `None`: the file leaves it to the line.
    in_file: Option<String>,
}

fn options_of_both(args: &TrainArgs, config: &TrainingConfig, workers: usize) -> Vec<OptionOfBoth> {
    let count = |given: Option<NonZeroUsize>| given.map_or(0, NonZeroUsize::get).to_string();
    let (batch, optimizer) = (config.batch, config.optimizer);
    let each = batch.accumulation;
    let lanes = each * workers as u64;
    let is_other = args.lanes.is_some_and(|typed| typed.get() as u64 != lanes);
    let product = || format!("{lanes} (accumulation {each} × {workers} workers)");
    let stage = match config.zero.stage {
        ZeroStage::None => 0,
        ZeroStage::Optimizer => 1,
        ZeroStage::Gradients => 2,
        ZeroStage::Parameters => 3,
    };
    let beta = |index: usize| optimizer.map(|found| show_beta(&found, index));
    let of_optimizer =
        |value: fn(&OptimizerConfig) -> f64| optimizer.map(|found| value(&found).to_string());
    let clip = config.gradient_clipping.unwrap_or(0.0).to_string();
    let rate_min = args.min_lr.unwrap_or(0.0).to_string();
    let is_scheduled = config.schedule.is_some() || optimizer.is_some();
    let own_rate = is_scheduled.then(|| "a schedule of its own".to_owned());
    let option = |flag, keys, typed, in_file| OptionOfBoth { flag, keys, typed, in_file };
    let decay = of_optimizer(|found| found.weight_decay);
    let decay_steps = args.schedule_steps().to_string();
    vec![
        option("lanes", LANES, count(args.lanes), is_other.then(product)),
        option("batch_size", BATCH_SIZE, count(args.batch_size), Some(batch.micro.to_string())),
        option("accumulate", ACCUMULATE, count(args.accumulate), Some(each.to_string())),
        option(
            "stage",
            &["zero_optimization.stage"],
            args.stage.to_string(),
            Some(stage.to_string()),
        ),
        option(
            "precision",
            keys_of_precision(config),
            args.precision.to_string(),
            Some(precision(config).to_string()),
        ),
        option("lr", RATE, args.lr.to_string(), of_optimizer(|found| found.learning_rate)),
        option("min_lr", SCHEDULE, rate_min, own_rate),
        option("warmup", WARMUP, args.warmup.to_string(), show_warmup(config)),
        option("decay_steps", TOTAL, decay_steps, show_decay_steps(config)),
        option("beta1", BETAS, args.beta1.to_string(), beta(0)),
        option("beta2", BETAS, args.beta2.to_string(), beta(1)),
        option("weight_decay", DECAY, args.weight_decay.to_string(), decay),
        option("clip", &["gradient_clipping"], args.clip.to_string(), Some(clip)),
    ]
}

/// Options that change no result: what the memory of a worker has.
fn options_of_memory(
    args: &TrainArgs,
    config: &TrainingConfig,
    workers_per_node: Option<usize>,
) -> [OptionOfBoth; 2] {
    let of_node = || workers_per_node.map_or("the workers of a node".to_owned(), |n| n.to_string());
    let shard_group = match config.zero.shard_group {
        ShardGroupConfig::All => None,
        ShardGroupConfig::Ranks(ranks) => Some(ranks.to_string()),
        ShardGroupConfig::Node => Some(of_node()),
    };
    let blocks = blocks_of(args);
    let recomputed = |found| match (blocks_of_segment(found, blocks), found) {
        (1, _) => EVERY_BLOCK.to_owned(),
        (_, RecomputeConfig::Segments(count)) => format!("{count} segments"),
        _ => "no recomputation".to_owned(),
    };
    let group = args.shard_group.map_or(0, NonZeroUsize::get);
    [
        OptionOfBoth {
            flag: "shard_group",
            keys: &["zero_optimization.zero_hpz_partition_size"],
            typed: group.to_string(),
            in_file: shard_group,
        },
        OptionOfBoth {
            flag: "activation_checkpointing",
            keys: &[
                "activation_checkpointing.number_checkpoints",
                "fsdp_config.fsdp_activation_checkpointing",
            ],
            typed: EVERY_BLOCK.to_owned(),
            in_file: config.recomputation.map(recomputed),
        },
    ]
}

/// Number of blocks of the model.
fn blocks_of(args: &TrainArgs) -> usize {
    args.layers.map_or(4, NonZeroUsize::get)
}

fn keys_of_precision(config: &TrainingConfig) -> &'static [&'static str] {
    match config.precision {
        PrecisionConfig::Fp16(_) => &["fp16.enabled"],
        PrecisionConfig::Bf16 { .. } => &["bf16.enabled"],
        PrecisionConfig::Full => &["fp16.enabled", "bf16.enabled"],
    }
}

/// The averaging factor of the optimizer of a file, if it has some.
fn show_beta(optimizer: &OptimizerConfig, index: usize) -> String {
    match optimizer.rule {
        UpdateRule::Adam { betas, .. } | UpdateRule::Lion { betas } => betas[index].to_string(),
        UpdateRule::Sgd { .. } => "an optimizer without it".to_owned(),
    }
}

/// The warm-up of a file; `None` if the file leaves the learning rate to the line.
fn show_warmup(config: &TrainingConfig) -> Option<String> {
    match config.schedule {
        Some(
            ScheduleConfig::WarmupLr { steps, .. }
            | ScheduleConfig::WarmupDecayLr { steps, .. }
            | ScheduleConfig::WarmupCosineLr { steps, .. },
        ) => Some(steps.to_string()),
        Some(_) => Some("a schedule without it".to_owned()),
        None => config.optimizer.map(|_| "a constant learning rate".to_owned()),
    }
}

/// The length of the schedule of a file; `None` if the file leaves it to the line.
fn show_decay_steps(config: &TrainingConfig) -> Option<String> {
    match config.schedule {
        Some(
            ScheduleConfig::WarmupDecayLr { total_steps, .. }
            | ScheduleConfig::WarmupCosineLr { total_steps, .. },
        ) => total_steps.map(|steps| steps.to_string()),
        Some(_) => Some("a schedule without it".to_owned()),
        None => config.optimizer.map(|_| "a constant learning rate".to_owned()),
    }
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

/// One line about all keys without effect where the workers compute.
fn notes(reading: &ConfigReading, device: DeviceArg) -> String {
    let is_idle = |key: &&Ineffective| device != DeviceArg::Cuda || key.reason != NO_OTHER_MEMORY;
    let source = &reading.findings.source;
    match &reading.ineffective.iter().filter(is_idle).collect::<Vec<_>>()[..] {
        [] => String::new(),
        [Ineffective { path, span, reason }] => {
            let place = show_place(source, *span);
            format!("note: {place}: `{path}` has no effect here: {reason}\n")
        }
        several => {
            let names = several.iter().take(KEYS_SHOWN_MAX).map(|idle| format!("`{}`", idle.path));
            let names = names.collect::<Vec<_>>().join(", ");
            let more = if KEYS_SHOWN_MAX < several.len() { ", …" } else { "" };
            let (count, file) = (several.len(), quoted(&source.name));
            format!(
                "note: {count} keys of `{file}` have no effect here: {names}{more}; `remuda config check {file}` says \
                 why\n"
            )
        }
    }
}
