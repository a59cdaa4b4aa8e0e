//! Options of the bundled trainer: parsing, conversion to the options of the trainer, and the
//! equivalent command line of a worker.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::de::DeserializeOwned;

use crate::base::env_vars;
use crate::cli::args::values::parse_positive_int;
use crate::cli::command::train::config_places::{ConfigPlace, ConfigPlaces};
use crate::cli::command::train::values::{
    AttentionArg, DeviceArg, ModelArg, PrecisionArg, ReduceOrderArg, name_of,
};
use crate::cli::line::{BadValue, parse_whole};
use crate::runtime::engine::{EngineConfig, Offload, PlanOptions, Sharding};
use crate::runtime::optim::{
    AdamOptions, DynamicScaling, LossScaling, LrSchedule, Optimizer, Schedule,
};
use crate::train::{
    CheckpointOptions, GptArchitecture, GptOptions, JobStart, MlpOptions, ModelOptions,
    ScalarFormat, ScalarNames, ScalarOutput, Threads, TrainOptions,
};

/// Options of model, data and training; hosts and slots are launch options.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Training", rename_all = "snake_case")]
pub(super) struct TrainArgs {
    /// Model: GPT or GPT-2 on a text, MLP on synthetic samples [default: that of `--resume`, else gpt]
    #[arg(long, value_name = "MODEL", value_enum)]
    pub(super) model: Option<ModelArg>,
    /// Text files, or shards of `remuda tokenize` [default: the built-in text]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(super) data: Vec<PathBuf>,
    /// With shards: number of tokens of the vocabulary [default: the largest token plus 1, rounded up to a
    /// multiple of 64]
    #[arg(long, value_name = "N")]
    pub(super) vocabulary: Option<NonZeroUsize>,
    /// Steps of the whole run, including those before `--resume`
    #[arg(long, value_name = "N", default_value = "1000", value_parser = parse_positive_int)]
    pub(super) steps: u64,
    /// Samples in a micro-batch of a worker [default: that of `--resume`, else 12 for gpt, 64 for mlp]
    #[arg(long, value_name = "N")]
    pub(super) batch_size: Option<NonZeroUsize>,
    /// Micro-batches of a worker in a step [default: as many as keep the batch of `--resume`, else 1]
    #[arg(long, value_name = "N")]
    pub(super) accumulate: Option<NonZeroUsize>,
    /// Micro-batches of all workers in a step. The number of workers must divide it: the same number gives the
    /// same model with any number of workers [default: workers × --accumulate]
    #[arg(long, value_name = "N")]
    pub(super) lanes: Option<NonZeroUsize>,
    /// Context length in tokens, for gpt [default: 64]
    #[arg(long, value_name = "N")]
    pub(super) block: Option<NonZeroUsize>,
    /// Number of transformer blocks or of hidden layers [default: 4 for gpt, 2 for mlp]
    #[arg(long, value_name = "N")]
    pub(super) layers: Option<NonZeroUsize>,
    /// Number of attention heads, for gpt [default: 4]
    #[arg(long, value_name = "N")]
    pub(super) heads: Option<NonZeroUsize>,
    /// With GPUs: how attention is computed, for gpt
    #[arg(long, value_name = "WAY", value_enum, default_value = "auto")]
    pub(super) attention: AttentionArg,
    /// Hidden size [default: 128 for gpt, 1024 for mlp]
    #[arg(long, value_name = "N")]
    pub(super) width: Option<NonZeroUsize>,
    /// Peak learning rate
    #[arg(long, value_name = "RATE", default_value = "1e-3", value_parser = parse_positive)]
    pub(super) lr: f64,
    /// Final learning rate [default: a tenth of --lr]
    #[arg(long, value_name = "RATE", value_parser = parse_amount)]
    pub(super) min_lr: Option<f64>,
    /// Step until which the learning rate falls to its final value: `--steps` can then grow without a change
    /// of it [default: --steps]
    #[arg(long, value_name = "N", value_parser = parse_positive_int)]
    pub(super) decay_steps: Option<u64>,
    /// Warm-up steps until the peak learning rate
    #[arg(long, value_name = "N", default_value = "100")]
    pub(super) warmup: u64,
    /// AdamW beta1, from 0 to below 1
    #[arg(long, value_name = "BETA", default_value = "0.9", value_parser = parse_fraction)]
    pub(super) beta1: f64,
    /// AdamW beta2, from 0 to below 1
    #[arg(long, value_name = "BETA", default_value = "0.99", value_parser = parse_fraction)]
    pub(super) beta2: f64,
    /// Weight decay of matrices and embeddings; biases and gains have none
    #[arg(long, value_name = "RATE", default_value = "0.1", value_parser = parse_amount)]
    pub(super) weight_decay: f64,
    /// Maximum norm of the gradient; 0: no clipping
    #[arg(long, value_name = "NORM", default_value = "1", value_parser = parse_amount)]
    pub(super) clip: f64,
    /// ZeRO stage: 0 divides nothing over the workers, 1 the optimizer state, 2 also gradients, 3 also
    /// parameters (FSDP); the results are the same
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_stage)]
    pub(super) stage: u8,
    /// With --stage 3: divide the parameters over every N workers instead of all, so that they are gathered
    /// within a node (hybrid sharding)
    #[arg(long, value_name = "N")]
    pub(super) shard_group: Option<NonZeroUsize>,
    /// Settings of the engine: `ds_config.json` of DeepSpeed, or the YAML of `accelerate config`. Options of
    /// the command line fill its `auto` and what it does not have; an option that contradicts the file is an
    /// error
    #[arg(long, visible_alias = "config", value_name = "FILE")]
    pub(super) deepspeed_config: Option<PathBuf>,
    /// The places of the keys of this file, once it has been read.
    #[arg(skip)]
    pub(super) config_places: Option<ConfigPlaces>,
    /// The same as JSON, for workers
    #[arg(long, hide = true, value_name = "JSON", value_parser = parse_json::<EngineConfig>)]
    pub(super) engine: Option<EngineConfig>,
    /// Where the model computes. GPUs were not tried yet with this version
    #[arg(long, value_name = "WHERE", value_enum, default_value = "auto")]
    pub(super) device: DeviceArg,
    /// With GPUs: the results are those of the same command on the same kind of GPUs with the same libraries. Else rank
    /// 0 measures which algorithm of a product is the fastest, and another run may have others
    #[arg(long)]
    pub(super) deterministic: bool,
    /// With GPUs: order in which NCCL adds the gradients of the workers
    #[arg(long, value_name = "ORDER", value_enum, default_value = "canonical")]
    pub(super) reduce_order: ReduceOrderArg,
    /// Type of weights and of the operands of products; sums, moments, master weights and, on CPUs,
    /// activations are f32
    #[arg(long, value_name = "TYPE", value_enum, default_value = "fp32")]
    pub(super) precision: PrecisionArg,
    /// Compute the activations of every block again in the backward pass, instead of keeping them
    #[arg(long)]
    pub(super) activation_checkpointing: bool,
    /// With --stage 2 or 3 and --accumulate: reduce the gradients once a step instead of after every
    /// micro-batch; each worker then keeps a whole gradient
    #[arg(long)]
    pub(super) no_sync: bool,
    /// Seed of initial weights, batches and the generated sample [default: that of `--resume`, else 1337]
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Steps between evaluations on held-out data; 0: only after the last step
    #[arg(long, value_name = "N", default_value = "100")]
    pub(super) eval_every: u64,
    /// Threads of each worker [default: OMP_NUM_THREADS, else 1]
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<NonZeroUsize>,
    /// Directory for checkpoints, written at the end and on ^C; a directory with checkpoints needs
    /// `--resume`
    #[arg(long, value_name = "DIR")]
    pub(super) checkpoint_dir: Option<PathBuf>,
    /// With --checkpoint_dir: write a checkpoint every N steps
    #[arg(long, value_name = "N", value_parser = parse_positive_int)]
    pub(super) save_every: Option<u64>,
    /// With --checkpoint_dir: keep the newest N checkpoints [default: all]
    #[arg(long, value_name = "N")]
    pub(super) keep: Option<NonZeroUsize>,
    /// Continue from a checkpoint, or from the newest one of a directory; sizes, batches and seed are
    /// those of the checkpoint, learning rates those of the command line. `auto`: continue from the
    /// newest of `--checkpoint_dir`, or begin if there is none: the same command for the first start and for
    /// restarts
    #[arg(long, value_name = "PATH|auto")]
    pub(super) resume: Option<PathBuf>,
    /// Write a JSON object for each step to this file: step, loss, val_loss, lr, grad_norm, loss_scale, skipped,
    /// tokens_per_s, ms, seconds by phase; error, if it ends the run. The last has val_loss over all held-out data,
    /// memory_peak, memory_forecast and memory_resident (with shared pages) in bytes, and digest, the SHA-256 of
    /// parameters and moments: equal for the same lanes
    #[arg(long, value_name = "FILE")]
    pub(super) metrics: Option<PathBuf>,
    /// Write a chart of the loss to this SVG file
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
    /// Write the numbers of each step to this directory, as event files of TensorBoard
    #[arg(long, value_name = "DIR")]
    pub(super) tensorboard: Option<PathBuf>,
    /// A monitor of `--deepspeed_config`, for workers
    #[arg(long, hide = true, value_name = "JSON", value_parser = parse_json::<ScalarOutput>)]
    pub(super) monitor: Vec<ScalarOutput>,
}

impl TrainArgs {
    /// Returns the model to train.
    pub(super) fn model(&self) -> ModelArg {
        self.model.unwrap_or(ModelArg::Gpt)
    }

    /// Converts the options to those of the trainer; the options have been checked.
    pub(super) fn resolve(&self) -> TrainOptions {
        let default = |gpt, mlp| match self.model() {
            ModelArg::Gpt | ModelArg::Gpt2 => gpt,
            ModelArg::Mlp => mlp,
        };
        let batch_size = self.batch_size.map_or(default(12, 64), NonZeroUsize::get);
        let seed = self.seed.unwrap_or(1337);
        let kept = |dir| CheckpointOptions { dir, every: self.save_every, keep: self.keep };
        TrainOptions {
            model: self.resolve_model(),
            batch_size: NonZeroUsize::new(batch_size).expect("the defaults are not 0"),
            engine: self.engine(seed),
            steps: self.steps,
            seed,
            threads: Threads::new(self.threads.unwrap_or_else(threads_of_environment)),
            eval_every: (0 < self.eval_every).then_some(self.eval_every),
            checkpoint: self.checkpoint_dir.clone().map(kept),
            resume: if self.is_auto() { self.checkpoint_dir.clone() } else { self.resume.clone() },
            may_start_fresh: self.is_auto(),
            start: job_start(),
            metrics: self.metrics.clone(),
            plot: self.plot.clone(),
            scalars: self.scalar_outputs(),
        }
    }

    /// Directories for the numbers of every step: that of the line, then those of the file.
    fn scalar_outputs(&self) -> Vec<ScalarOutput> {
        let of_line = self.tensorboard.clone().map(|dir| ScalarOutput {
            dir,
            format: ScalarFormat::TensorBoard,
            names: ScalarNames::Plain,
        });
        of_line.into_iter().chain(self.monitor.iter().cloned()).collect()
    }

    /// Settings of the engine: those of the file, else those of the line.
    pub(super) fn engine(&self, seed: u64) -> EngineConfig {
        let accumulate = self.accumulate.map_or(1, NonZeroUsize::get);
        if let Some(engine) = &self.engine {
            let no_sync = self.no_sync;
            return EngineConfig { accumulate, no_sync, seed, ..engine.clone() };
        }
        let rate_min = self.min_lr.unwrap_or(self.lr / 10.0);
        EngineConfig {
            accumulate,
            sharding: Sharding::from_stage(self.stage).expect("the stage was checked"),
            optimizer: Optimizer::Adam(AdamOptions {
                betas: [self.beta1, self.beta2],
                weight_decay: self.weight_decay,
                ..AdamOptions::default()
            }),
            schedule: LrSchedule::HalfCosine(Schedule {
                rate: self.lr,
                rate_min,
                warmup: self.warmup,
                steps: self.schedule_steps(),
            }),
            clip: (0.0 < self.clip).then_some(self.clip),
            precision: self.precision.into(),
            loss_scaling: match self.precision {
                PrecisionArg::F16 => LossScaling::Dynamic(DynamicScaling::default()),
                PrecisionArg::F32 | PrecisionArg::Bf16 => LossScaling::None,
            },
            gradient_rounding: None,
            no_sync: self.no_sync,
            persistent_len_max: 0,
            shard_group: self.shard_group.map(NonZeroUsize::get),
            offload: Offload::default(),
            exchange: self.reduce_order.into(),
            plan: PlanOptions {
                recompute: usize::from(self.activation_checkpointing),
                ..EngineConfig::default().plan
            },
            seed,
        }
    }

    /// The first of several keys that the file of `--deepspeed_config` gives.
    pub(super) fn config_place<'a>(&'a self, keys: &[&'a str]) -> Option<ConfigPlace<'a>> {
        self.config_places.as_ref()?.find(keys)
    }

    /// Steps of the schedule of learning rates, where no file decides it.
    pub(super) fn schedule_steps(&self) -> u64 {
        self.decay_steps.unwrap_or(self.steps)
    }

    /// Fixes the lanes of this many workers, for restarts with another number. Returns their number.
    pub(super) fn keep_lanes(&mut self, workers: usize) -> usize {
        let each = self.accumulate.map_or(1, NonZeroUsize::get);
        let lanes = self.lanes.or(NonZeroUsize::new(each * workers));
        self.lanes = lanes;
        lanes.map_or(1, NonZeroUsize::get)
    }

    /// Divides the lanes among this many workers; `false` if that is not possible.
    pub(super) fn share_lanes(&mut self, workers: usize) -> bool {
        let Some(lanes) = self.lanes else { return true };
        let each = lanes.get().checked_div(workers).and_then(NonZeroUsize::new);
        self.accumulate = each;
        each.is_some_and(|each| each.get() * workers == lanes.get())
    }

    /// Whether the run continues from a checkpoint if there is one, and else begins: `--resume
    /// auto`.
    pub(super) fn is_auto(&self) -> bool {
        self.resume.as_deref() == Some(Path::new("auto"))
    }

    fn resolve_model(&self) -> ModelOptions {
        let size = |given: Option<NonZeroUsize>, default| given.map_or(default, NonZeroUsize::get);
        match self.model() {
            ModelArg::Gpt | ModelArg::Gpt2 => ModelOptions::Gpt(GptOptions {
                architecture: match self.model() {
                    ModelArg::Gpt2 => GptArchitecture::Gpt2,
                    ModelArg::Gpt | ModelArg::Mlp => GptArchitecture::Plain,
                },
                block: size(self.block, 64),
                layers: size(self.layers, 4),
                heads: size(self.heads, 4),
                attention: self.attention.into(),
                width: size(self.width, 128),
                data: self.data.clone(),
                vocabulary: self.vocabulary.map(NonZeroUsize::get),
            }),
            ModelArg::Mlp => ModelOptions::Mlp(MlpOptions {
                inputs: 784,
                layers: size(self.layers, 2),
                width: size(self.width, 1024),
                classes: 10,
            }),
        }
    }

    /// Returns the equivalent command line, with which a worker is started.
    pub(super) fn worker_args(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        let mut push = |name: &str, value: Option<OsString>| {
            if let Some(value) = value {
                words.extend([format!("--{name}").into(), value]);
            }
        };
        let number = |n: &dyn ToString| Some(n.to_string().into());
        let count = |n: Option<NonZeroUsize>| n.map(|n| n.to_string().into());
        let path = |path: &Option<PathBuf>| path.clone().map(OsString::from);
        push("model", self.model.and_then(|model| number(&model)));
        for file in &self.data {
            push("data", Some(file.into()));
        }
        push("vocabulary", count(self.vocabulary));
        push("steps", number(&self.steps));
        push("batch_size", count(self.batch_size));
        push("accumulate", count(self.accumulate));
        push("lanes", count(self.lanes));
        push("block", count(self.block));
        push("layers", count(self.layers));
        push("heads", count(self.heads));
        push("attention", name_of(&self.attention));
        push("width", count(self.width));
        push("lr", number(&self.lr));
        push("min_lr", self.min_lr.and_then(|rate| number(&rate)));
        push("decay_steps", self.decay_steps.and_then(|steps| number(&steps)));
        push("warmup", number(&self.warmup));
        push("beta1", number(&self.beta1));
        push("beta2", number(&self.beta2));
        push("weight_decay", number(&self.weight_decay));
        push("clip", number(&self.clip));
        push("stage", number(&self.stage));
        push("shard_group", count(self.shard_group));
        push("precision", name_of(&self.precision));
        push("device", name_of(&self.device));
        push("reduce_order", name_of(&self.reduce_order));
        let engine = self.engine.as_ref().map(serde_json::to_string);
        push("engine", engine.and_then(Result::ok).map(OsString::from));
        push("seed", self.seed.and_then(|seed| number(&seed)));
        push("eval_every", number(&self.eval_every));
        push("threads", count(self.threads));
        push("checkpoint_dir", path(&self.checkpoint_dir));
        push("save_every", self.save_every.and_then(|n| number(&n)));
        push("keep", count(self.keep));
        push("resume", path(&self.resume));
        push("metrics", path(&self.metrics));
        push("plot", path(&self.plot));
        push("tensorboard", path(&self.tensorboard));
        for monitor in &self.monitor {
            push("monitor", serde_json::to_string(monitor).ok().map(OsString::from));
        }
        let flags = [
            (self.deterministic, "--deterministic"),
            (self.activation_checkpointing, "--activation_checkpointing"),
            (self.no_sync, "--no_sync"),
        ];
        words.extend(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.into()));
        words
    }
}

/// Returns the number of threads from OMP_NUM_THREADS, which the launcher sets for every worker.
pub(in crate::cli::command) fn threads_of_environment() -> NonZeroUsize {
    let value = env_vars::get_text(env_vars::OMP_NUM_THREADS);
    value.and_then(|text| text.parse().ok()).unwrap_or(NonZeroUsize::MIN)
}

/// Parses what the launcher has written for the worker.
fn parse_json<V: DeserializeOwned>(text: &str) -> Result<V, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// Parses a stage of ZeRO.
fn parse_stage(text: &str) -> Result<u8, BadValue> {
    parse_whole(text, 0..=3).map(|stage| stage as u8)
}

/// Parses a finite number above 0.
fn parse_positive(text: &str) -> Result<f64, String> {
    parse_checked(text, "a number above 0", |x| 0.0 < x)
}

/// Parses a finite number, 0 or more.
fn parse_amount(text: &str) -> Result<f64, String> {
    parse_checked(text, "a number, 0 or more", |x| 0.0 <= x)
}

/// Parses a number from 0 to below 1.
fn parse_fraction(text: &str) -> Result<f64, String> {
    parse_checked(text, "a number from 0 to below 1", |x| (0.0..1.0).contains(&x))
}

fn parse_checked(text: &str, wanted: &str, fits: fn(f64) -> bool) -> Result<f64, String> {
    let number = text.parse().ok().filter(|&x: &f64| x.is_finite() && fits(x));
    number.ok_or_else(|| format!("expected {wanted}"))
}

/// Returns the job, and whether this is a restart of it; `None` if the job has no restarts.
fn job_start() -> Option<JobStart> {
    let number = |name| env_vars::get_text(name)?.parse::<u32>().ok();
    let restarts_max = number(env_vars::TORCHELASTIC_MAX_RESTARTS)?;
    let restarts = number(env_vars::TORCHELASTIC_RESTART_COUNT)?;
    let job = env_vars::get_text(env_vars::REMUDA_JOB)?;
    (0 < restarts_max).then_some(JobStart { job, is_restart: 0 < restarts })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser, Debug)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        train: TrainArgs,
    }

    fn parse(line: &str) -> Result<TrainArgs, String> {
        let parsed = Line::try_parse_from(line.split_whitespace());
        parsed.map(|line| line.train).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn check_words(line: &str) {
        let args = parse(line).expect("the line is fine");
        let again = Line::try_parse_from(args.worker_args()).expect("words are a line again");
        assert_eq!(again.train, args);
    }

    #[test]
    fn worker_line_has_the_same_options() {
        check_words("");
        check_words("--model mlp --layers 3 --width 96 --batch_size 5 --threads 2 --lr 0.3");
        check_words("--steps 9 --decay_steps 5");
        check_words("--device cuda --reduce_order any");
        check_words(
            "--data a b --data c --min_lr 0 --clip 0 --eval_every 0 --seed 18446744073709551615",
        );
        check_words(
            "--checkpoint_dir d --save_every 7 --keep 2 --resume r --metrics m --plot p --lr 1e-30 \
             --tensorboard t",
        );
        check_words("--monitor {\"dir\":\"d\",\"format\":\"Csv\",\"names\":\"DeepSpeed\"}");
    }

    #[track_caller]
    fn check_refused(line: &str, part: &str) {
        let message = parse(line).expect_err("the line makes no sense");
        assert!(message.contains(part), "{message}");
    }

    #[test]
    fn invalid_values_are_refused() {
        check_refused("--lr 0", "expected a number above 0");
        check_refused("--beta2 1", "expected a number from 0 to below 1");
        check_refused("--clip NaN", "expected a number, 0 or more");
        check_refused("--steps 0", "--steps");
        check_refused("--batch_size 0", "invalid value '0'");
        check_refused("--step 3", "unexpected argument '--step'");
    }

    #[test]
    fn defaults_depend_on_the_model() {
        let gpt = parse("").expect("no options").resolve();
        assert_eq!(gpt.batch_size.get(), 12);
        assert!(
            matches!(&gpt.model, ModelOptions::Gpt(gpt) if (gpt.layers, gpt.width) == (4, 128))
        );
        let mlp = parse("--model mlp").expect("one option").resolve();
        assert_eq!(mlp.batch_size.get(), 64);
        assert!(
            matches!(&mlp.model, ModelOptions::Mlp(mlp) if (mlp.layers, mlp.width) == (2, 1024))
        );
    }
}
