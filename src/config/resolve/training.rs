//! The whole configuration.

use super::batch::{BatchError, BatchKeys, legal_world_sizes, resolve_batch};
use super::resolver::Resolver;
use super::values::{ResolvedValue, ValueOrigin, WorldSize};
use crate::base::{Diagnostic, Span};
use crate::config::auto::{AutoRule, auto_rule};
use crate::config::check::{GivenSettings, GivenValue, Ineffective};
use crate::config::codes::{BATCH_IDENTITY, BATCH_MISSING, BATCH_NOT_POSITIVE};
use crate::config::inputs::{ConfigCommand, ConfigInputs};
use crate::config::training::{
    BatchSizes, MonitorConfig, RecomputeConfig, ReportConfig, TrainingConfig,
};
use crate::config::tree::ConfigValue;

const TRAIN: &str = "train_batch_size";
const MICRO: &str = "train_micro_batch_size_per_gpu";
const ACCUMULATION: &str = "gradient_accumulation_steps";
/// Micro-batch of the Hugging Face Trainer.
const MICRO_DEFAULT: i64 = 8;
/// World sizes that a message lists.
const WORLD_SIZES_SHOWN: usize = 12;

/// What the settings of a file mean.
pub(in crate::config) struct Resolution {
    /// The configuration; `None` if the batch sizes cannot be completed.
    pub(in crate::config) config: Option<TrainingConfig>,
    pub(in crate::config) world_size: WorldSize,
    /// World sizes for which the batch sizes are correct; empty: all, or none.
    pub(in crate::config) legal: Vec<u64>,
    pub(in crate::config) values: Vec<ResolvedValue>,
    pub(in crate::config) problems: Vec<Diagnostic>,
    pub(in crate::config) ineffective: Vec<Ineffective>,
}

/// Resolves settings for some arguments.
pub(in crate::config) fn resolve(settings: &GivenSettings, inputs: &ConfigInputs) -> Resolution {
    let mut resolver = Resolver::new(settings, inputs);
    let keys = resolver.batch_keys();
    let legal = legal_world_sizes(keys);
    let world_size = match inputs.world_size {
        Some(ranks) => WorldSize::Given(ranks),
        None => WorldSize::Assumed(legal.first().copied().unwrap_or(1)),
    };
    let batch = resolver.batch(keys, world_size);
    let gradient_clipping = Some(resolver.section("").number("gradient_clipping"));
    let optimizer = resolver.optimizer();
    let schedule = resolver.schedule(optimizer.map(|found| found.learning_rate));
    let precision = resolver.precision();
    let communication = resolver.communication();
    let zero = resolver.zero();
    let recomputation = resolver.recomputation();
    let reports = resolver.reports();
    let config = batch.map(|batch| TrainingConfig {
        world_size: world_size.get(),
        batch,
        gradient_clipping: gradient_clipping.filter(|norm| 0.0 < *norm),
        optimizer,
        schedule,
        precision,
        communication,
        zero,
        recomputation,
        reports,
    });
    let Resolver { values, problems, ineffective, .. } = resolver;
    Resolution { config, world_size, legal, values, problems, ineffective }
}

impl Resolver<'_> {
    /// The batch sizes of the file; `auto` is not given unless its rule has a value of its own. Options give
    /// those that the file has not and that do not follow from the other two.
    fn batch_keys(&self) -> BatchKeys {
        let given = |path| match self.settings.get(path).map(|setting| &setting.value) {
            Some(GivenValue::Is(ConfigValue::Whole(number))) => Some(*number),
            _ => None,
        };
        let whole = |number: Option<u64>| number.and_then(|number| i64::try_from(number).ok());
        let train = given(TRAIN);
        let mut micro = given(MICRO);
        let mut accumulation = given(ACCUMULATION);
        let typed = whole(self.inputs.accumulation);
        let is_derived = train.is_some() && micro.is_some();
        if self.is_auto(ACCUMULATION) {
            accumulation = typed.or((!is_derived).then_some(1));
        } else if self.settings.get(ACCUMULATION).is_none() && !is_derived {
            accumulation = typed;
        }
        let typed = whole(self.inputs.micro_batch);
        let is_derived = train.is_some() && accumulation.is_some();
        let default = train.is_none().then_some(MICRO_DEFAULT);
        if self.is_auto(MICRO) {
            micro = typed.or(default);
        } else if self.settings.get(MICRO).is_none() && !is_derived {
            micro = typed.or(default.filter(|_| self.is_auto(TRAIN)));
        }
        BatchKeys { train, micro, accumulation }
    }

    fn batch(&mut self, keys: BatchKeys, world_size: WorldSize) -> Option<BatchSizes> {
        let is_invalid = |path: &&str| {
            self.settings.get(path).is_some_and(|setting| setting.value == GivenValue::Invalid)
        };
        if [TRAIN, MICRO, ACCUMULATION].iter().any(is_invalid) {
            return None;
        }
        match resolve_batch(keys, world_size.get()) {
            Ok(sizes) => {
                self.note_batch(sizes, world_size.get());
                Some(sizes)
            }
            Err(error) => {
                self.problems.push(self.batch_problem(error, keys, world_size));
                None
            }
        }
    }

    fn note_batch(&mut self, sizes: BatchSizes, ranks: u64) {
        let BatchSizes { train, micro, accumulation } = sizes;
        let formulas = [
            (TRAIN, train, format!("{micro} × {accumulation} × {ranks}")),
            (MICRO, micro, format!("{train} / ({accumulation} × {ranks})")),
            (ACCUMULATION, accumulation, format!("{train} / ({micro} × {ranks})")),
        ];
        let has_train = self.settings.given(TRAIN).is_some();
        let has_micro = self.settings.given(MICRO).is_some();
        for (path, value, formula) in formulas {
            let (option, is_typed, is_derived) = match path {
                MICRO => ("`--batch_size`", self.inputs.micro_batch.is_some(), has_train),
                ACCUMULATION => {
                    let is_typed = self.inputs.accumulation.is_some();
                    ("`--accumulate`", is_typed, has_train && has_micro)
                }
                _ => ("", false, true),
            };
            let source = || match (is_typed, is_derived) {
                (true, _) => option.to_owned(),
                (false, true) => formula.clone(),
                (false, false) => format!("no {option}"),
            };
            let value = ConfigValue::Whole(i64::try_from(value).unwrap_or(i64::MAX));
            let origin = match self.settings.get(path).map(|setting| &setting.value) {
                Some(GivenValue::Is(ConfigValue::Whole(_))) => ValueOrigin::File,
                Some(GivenValue::Auto) => {
                    let auto =
                        |rule: &AutoRule| ValueOrigin::Auto { rule: rule.text, source: source() };
                    auto_rule(path).map_or(ValueOrigin::File, auto)
                }
                _ if path == ACCUMULATION && !has_train => ValueOrigin::Default,
                _ => ValueOrigin::Derived(formula),
            };
            self.note(path, value, origin);
        }
    }

    fn batch_problem(
        &self,
        error: BatchError,
        keys: BatchKeys,
        world_size: WorldSize,
    ) -> Diagnostic {
        let ranks = show_ranks(world_size);
        match error {
            BatchError::Missing => missing_sizes(self.key_span(ACCUMULATION)),
            BatchError::Train(train) => self.below_1(TRAIN, train),
            BatchError::Micro(micro) if keys.micro.is_some() => self.below_1(MICRO, micro),
            BatchError::Accumulation(found) if keys.accumulation.is_some() => {
                self.below_1(ACCUMULATION, found)
            }
            BatchError::Micro(_) => {
                let steps = keys.accumulation.unwrap_or(1);
                self.too_small(&format!("accumulation {steps} × {ranks}"), keys, world_size)
            }
            BatchError::Accumulation(_) => {
                let micro = keys.micro.unwrap_or(1);
                self.too_small(&format!("micro-batch {micro} × {ranks}"), keys, world_size)
            }
            BatchError::Identity { train, micro, accumulation } => {
                // A size that is not given follows from the others by a whole division.
                let product = match (keys.micro, keys.accumulation) {
                    (Some(_), Some(_)) => {
                        let product = format!("micro-batch {micro} × accumulation {accumulation}");
                        return self.identity_problem(
                            format!("`{TRAIN}` {train} is not {product} × {ranks}"),
                            keys,
                            world_size,
                        );
                    }
                    (Some(_), None) => format!("micro-batch {micro} × {ranks}"),
                    (None, Some(_)) => format!("accumulation {accumulation} × {ranks}"),
                    (None, None) => ranks,
                };
                let message = format!("`{TRAIN}` {train} is not a multiple of {product}");
                self.identity_problem(message, keys, world_size)
            }
        }
    }

    /// The error for sizes whose product is not the batch, at the keys that are given.
    fn identity_problem(
        &self,
        message: String,
        keys: BatchKeys,
        world_size: WorldSize,
    ) -> Diagnostic {
        let label = "micro-batch × accumulation × world size";
        let problem = self.at_train(BATCH_IDENTITY, message).label(label);
        let given = [(MICRO, keys.micro), (ACCUMULATION, keys.accumulation)];
        let given = given.into_iter().filter_map(|(path, value)| Some((path, value?)));
        let problem = given.fold(problem, |problem, (path, value)| match self.value_span(path) {
            Some(span) => problem.related(span, format!("{value}")),
            None => problem,
        });
        problem.help(batch_help(keys, world_size, self.inputs.command))
    }

    fn below_1(&self, path: &str, value: i64) -> Diagnostic {
        let message = format!("`{path}` is {value}");
        let problem = match self.value_span(path) {
            Some(span) => Diagnostic::error(BATCH_NOT_POSITIVE, span, message),
            None => Diagnostic::whole(BATCH_NOT_POSITIVE, message),
        };
        problem.label("expected a whole number of at least 1")
    }

    fn too_small(&self, least: &str, keys: BatchKeys, world_size: WorldSize) -> Diagnostic {
        let train = keys.train.unwrap_or_default();
        let message = format!("`{TRAIN}` {train} is less than {least}");
        let problem = self.at_train(BATCH_NOT_POSITIVE, message).label("too small");
        problem.help(batch_help(keys, world_size, self.inputs.command))
    }

    fn at_train(&self, code: &'static str, message: String) -> Diagnostic {
        match self.value_span(TRAIN) {
            Some(span) => Diagnostic::error(code, span, message),
            None => Diagnostic::whole(code, message),
        }
    }

    fn recomputation(&mut self) -> Option<RecomputeConfig> {
        let found = self.section("activation_checkpointing").count_or_none("number_checkpoints");
        found.map(RecomputeConfig::Segments)
    }

    fn reports(&mut self) -> ReportConfig {
        ReportConfig { tensorboard: self.monitor("tensorboard"), csv: self.monitor("csv_monitor") }
    }

    fn monitor(&mut self, path: &'static str) -> Option<MonitorConfig> {
        let mut section = self.section(path);
        section.flag("enabled").then(|| MonitorConfig {
            output_path: section.text("output_path"),
            job_name: section.text("job_name"),
        })
    }
}

fn missing_sizes(accumulation: Option<Span>) -> Diagnostic {
    let message = format!("neither `{TRAIN}` nor `{MICRO}` is given");
    let problem = match accumulation {
        Some(span) => Diagnostic::error(BATCH_MISSING, span, message).label("not enough by itself"),
        None => Diagnostic::whole(BATCH_MISSING, message),
    };
    problem.help(format!("add `\"{MICRO}\": N`, the samples of a rank in a micro-batch"))
}

/// The number of ranks for a message, with how to give it if it is assumed.
fn show_ranks(world_size: WorldSize) -> String {
    let ranks = world_size.get();
    let noun = if ranks == 1 { "rank" } else { "ranks" };
    match world_size {
        WorldSize::Given(_) => format!("{ranks} {noun}"),
        WorldSize::Assumed(_) => format!("{ranks} {noun} (give -H or --world_size)"),
    }
}

/// What corrects the sizes: the numbers of ranks that fit, else the nearest batches that fit.
fn batch_help(keys: BatchKeys, world_size: WorldSize, command: ConfigCommand) -> String {
    if let Some(help) = ranks_help(&legal_world_sizes(keys), command) {
        return help;
    }
    let part = keys.micro.unwrap_or(1).saturating_mul(keys.accumulation.unwrap_or(1));
    let unit = part.saturating_mul(i64::try_from(world_size.get()).unwrap_or(i64::MAX)).max(1);
    let below = keys.train.unwrap_or_default() / unit * unit;
    let above = below.saturating_add(unit);
    let both_given = keys.micro.is_some() && keys.accumulation.is_some();
    match below {
        _ if both_given => {
            format!("write `\"{TRAIN}\": {unit}`, or remove one of the three keys")
        }
        0 => format!("write `\"{TRAIN}\": {above}`"),
        _ => format!("write `\"{TRAIN}\": {below}`, or `{above}`"),
    }
}

/// How to start one of the numbers of ranks that fit; `None` without any.
fn ranks_help(sizes: &[u64], command: ConfigCommand) -> Option<String> {
    let is_one = sizes.len() == 1;
    let shown = show_alternatives(sizes)?;
    let how = match command {
        ConfigCommand::Check if is_one => {
            let noun = if shown == "1" { "rank" } else { "ranks" };
            format!("the batch sizes fit {shown} {noun}: type `--world_size {shown}`")
        }
        ConfigCommand::Check => format!(
            "the batch sizes fit {shown} ranks: type `--world_size N` with one of these numbers"
        ),
        ConfigCommand::Train if is_one => {
            let noun = if shown == "1" { "worker" } else { "workers" };
            format!("start {shown} {noun} (`--num_gpus {shown}`)")
        }
        ConfigCommand::Train => format!("start {shown} workers (`--num_gpus N`)"),
    };
    Some(format!("{how}, or change `{TRAIN}`"))
}

/// Numbers for a message: `1, 2 or 4`; `None` without any.
fn show_alternatives(numbers: &[u64]) -> Option<String> {
    let shown =
        |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<String>>().join(", ");
    match numbers {
        [] => None,
        [one] => Some(one.to_string()),
        _ if WORLD_SIZES_SHOWN < numbers.len() => {
            Some(shown(&numbers[..WORLD_SIZES_SHOWN]) + ", …")
        }
        [first @ .., last] => Some(format!("{} or {last}", shown(first))),
    }
}
