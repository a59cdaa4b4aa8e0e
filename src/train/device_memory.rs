//! [`DeviceMemoryError`]: a training that needs more memory of a device than is free, and what to change so that it fits.

use std::fmt;
use std::num::NonZeroUsize;

use crate::base::show_bytes;
use crate::runtime::engine::{Sharding, StatePlace};
use crate::runtime::{CollectiveError, Group};
use crate::train::options::{ModelOptions, TrainOptions};
use crate::train::worker_memory::WorkerMemory;

/// Largest factor by which a micro-batch is divided in an advice.
const FACTOR_MAX: usize = 1024;

/// A training that needs more memory of a device than is free; every rank has this error.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceMemoryError {
    /// Memory that the training would need on every device, in bytes.
    pub forecast: WorkerMemory,
    /// Bytes that are free on the device with the least free memory.
    pub free: u64,
    /// Rank with that device.
    pub rank: usize,
    /// Number of ranks.
    pub workers: usize,
    /// Alternatives that fit. The changes of one belong together.
    pub cures: Vec<Vec<MemoryCure>>,
}

/// A change of the settings with which a training needs less memory of a device. The samples of a step stay the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryCure {
    /// The activations of every block are computed again.
    Recompute {
        /// Number of blocks.
        blocks: usize,
    },
    /// Each micro-batch becomes several smaller ones.
    Split {
        /// Samples of a micro-batch then.
        batch_size: usize,
        /// Micro-batches of a worker in a step then.
        accumulate: usize,
        /// Number of micro-batches that each becomes.
        factor: usize,
    },
    /// The state is divided over the workers.
    Stage(Sharding),
    /// The state of the optimizer is kept in the memory of the host.
    OffloadOptimizer,
}

/// Names of the settings of a run, as its user gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingNames {
    /// Options of the line.
    Options,
    /// The same, where `--lanes` gives the micro-batches of all workers.
    OptionsWithLanes(usize),
    /// Keys of the file of `--deepspeed_config`.
    Keys,
}

impl MemoryCure {
    /// Changes of each kind, those that change the least first.
    fn kinds(options: &TrainOptions, workers: usize) -> [Vec<Self>; 4] {
        let (engine, samples) = (&options.engine, options.batch_size.get());
        let recompute = match &options.model {
            ModelOptions::Gpt(gpt) if engine.plan.recompute == 0 => {
                vec![Self::Recompute { blocks: gpt.layers }]
            }
            ModelOptions::Gpt(_) | ModelOptions::Mlp(_) => Vec::new(),
        };
        let factors =
            (2..=samples.min(FACTOR_MAX)).filter(|factor| samples.is_multiple_of(*factor));
        let split = factors.map(|factor| Self::Split {
            batch_size: samples / factor,
            accumulate: engine.accumulate.saturating_mul(factor),
            factor,
        });
        let above = Sharding::ALL.into_iter().filter(|stage| engine.sharding < *stage);
        let stages = above.filter(|_| 1 < workers).map(Self::Stage);
        let is_on_device = engine.offload.optimizer == StatePlace::Computing;
        let offload = is_on_device.then_some(Self::OffloadOptimizer);
        [recompute, split.collect(), stages.collect(), offload.into_iter().collect()]
    }

    /// Returns the options with this change.
    pub fn of(self, options: &TrainOptions) -> TrainOptions {
        let mut options = options.clone();
        match self {
            Self::Recompute { .. } => options.engine.plan.recompute = 1,
            Self::Split { batch_size, accumulate, .. } => {
                options.batch_size = NonZeroUsize::new(batch_size).unwrap_or(NonZeroUsize::MIN);
                options.engine.accumulate = accumulate;
            }
            Self::Stage(sharding) => options.engine.sharding = sharding,
            Self::OffloadOptimizer => options.engine.offload.optimizer = StatePlace::Host,
        }
        options
    }

    /// The options with several changes.
    fn all(cures: &[Self], options: &TrainOptions) -> TrainOptions {
        cures.iter().fold(options.clone(), |options, cure| cure.of(&options))
    }

    /// The option to write.
    fn option(self, lanes: Option<usize>) -> String {
        match (self, lanes) {
            (Self::Recompute { .. }, _) => "`--activation_checkpointing`".to_owned(),
            (Self::Split { batch_size, factor, .. }, Some(lanes)) => {
                format!("`--batch_size {batch_size} --lanes {}`", lanes.saturating_mul(factor))
            }
            (Self::Split { batch_size, accumulate, .. }, None) => {
                format!("`--batch_size {batch_size} --accumulate {accumulate}`")
            }
            (Self::Stage(sharding), _) => format!("`--stage {}`", sharding.stage()),
            // There is no option for it.
            (Self::OffloadOptimizer, _) => self.key(),
        }
    }

    /// The key to write, with its value.
    fn key(self) -> String {
        match self {
            Self::Recompute { blocks } => {
                format!("`activation_checkpointing.number_checkpoints` {blocks}")
            }
            Self::Split { batch_size, accumulate, .. } => format!(
                "`train_micro_batch_size_per_gpu` {batch_size} with `gradient_accumulation_steps` {accumulate}"
            ),
            Self::Stage(sharding) => format!("`zero_optimization.stage` {}", sharding.stage()),
            Self::OffloadOptimizer => {
                "`zero_optimization.offload_optimizer.device` \"cpu\"".to_owned()
            }
        }
    }

    /// What to write for changes that belong together.
    fn show_all(cures: &[Self], names: SettingNames) -> String {
        let keys = || in_words(&cures.iter().map(|cure| cure.key()).collect::<Vec<_>>());
        let lanes = match names {
            SettingNames::Keys => return keys(),
            SettingNames::OptionsWithLanes(lanes) => Some(lanes),
            SettingNames::Options => None,
        };
        if cures.contains(&Self::OffloadOptimizer) {
            return format!("{} in a file of `--deepspeed_config`", keys());
        }
        in_words(&cures.iter().map(|cure| cure.option(lanes)).collect::<Vec<_>>())
    }
}

/// `a, b and c`.
fn in_words(parts: &[String]) -> String {
    match parts.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// Returns the alternatives with which `bytes` of the options are at most `free`: single changes, or if none is enough,
/// those that are enough together.
fn cures(
    options: &TrainOptions,
    workers: usize,
    free: f64,
    bytes: impl Fn(&TrainOptions) -> f64,
) -> Vec<Vec<MemoryCure>> {
    let fits = |options: &TrainOptions| bytes(options) <= free;
    let kinds = MemoryCure::kinds(options, workers);
    let first_fit = |kind: &[MemoryCure], options: &TrainOptions| {
        kind.iter().copied().find(|cure| fits(&cure.of(options)))
    };
    let alone: Vec<_> = kinds.iter().filter_map(|kind| first_fit(kind, options)).collect();
    if !alone.is_empty() {
        return alone.into_iter().map(|cure| vec![cure]).collect();
    }
    let mut together: Vec<MemoryCure> = Vec::new();
    for kind in &kinds {
        let options = MemoryCure::all(&together, options);
        let bytes_of = |cure: &MemoryCure| bytes(&cure.of(&options));
        let smallest = kind.iter().copied().min_by(|a, b| bytes_of(a).total_cmp(&bytes_of(b)));
        let chosen = first_fit(kind, &options).or(smallest);
        together.extend(chosen.filter(|cure| bytes_of(cure) < bytes(&options)));
    }
    let are_enough = |cures: &[MemoryCure]| fits(&MemoryCure::all(cures, options));
    if !are_enough(&together) {
        return Vec::new();
    }
    for index in (0..together.len()).rev() {
        let mut others = together.clone();
        others.remove(index);
        if are_enough(&others) {
            together = others;
        }
    }
    vec![together]
}

impl DeviceMemoryError {
    /// Compares the forecast with the memory that is free on the devices of all ranks, `None` where that is not known.
    /// All ranks call it before they allocate memory, and all get the error if the training does not fit a device.
    ///
    /// # Errors
    /// If the group has failed.
    pub(in crate::train) fn find(
        group: &Group,
        options: &TrainOptions,
        vocabulary: usize,
        free: Option<u64>,
    ) -> Result<Option<Self>, CollectiveError> {
        let workers = group.world_size();
        let own = free.and_then(|free| i64::try_from(free).ok()).unwrap_or(i64::MAX);
        let mut of_ranks = vec![0i64; workers];
        group.all_gather(&[own], &mut of_ranks)?;
        let least = of_ranks.into_iter().enumerate().min_by_key(|(_, free)| *free);
        let (rank, free) = least.expect("a group has a rank");
        let of =
            |options: &TrainOptions| WorkerMemory::forecast_on_device(options, vocabulary, workers);
        let forecast = of(options);
        if forecast.total() <= free as f64 {
            return Ok(None);
        }
        let cures = cures(options, workers, free as f64, |options| of(options).total());
        Ok(Some(Self { forecast, free: free as u64, rank, workers, cures }))
    }

    /// Returns what to do about it.
    pub fn help(&self, names: SettingNames) -> String {
        let alternatives: Vec<_> =
            self.cures.iter().map(|cures| MemoryCure::show_all(cures, names)).collect();
        if alternatives.is_empty() {
            return "no setting is enough: use a smaller model (`--width`, `--layers`, `--block`) or more GPUs \
                    (`--stage 3` divides the state over them)"
                .to_owned();
        }
        format!("it fits with {}", alternatives.join("; or with "))
    }
}

impl fmt::Display for DeviceMemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { forecast, free, rank, workers, .. } = self;
        let (needed, free) = (show_bytes(forecast.total()), show_bytes(*free as f64));
        if 1 < *workers {
            write!(
                f,
                "the training needs about {needed} of the memory of every GPU; on that of rank {rank} {free} are free"
            )?;
        } else {
            write!(
                f,
                "the training needs about {needed} of the memory of the GPU; {free} are free"
            )?;
        }
        let most = forecast.uses().into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let (what, bytes) = most.expect("there are uses");
        write!(f, ". The largest part is {what}: {}", show_bytes(bytes))
    }
}

impl std::error::Error for DeviceMemoryError {}
