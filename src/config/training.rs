//! The result of reading a configuration: what a training engine needs to know, with every value known.
//!
//! Plain data in plain units: samples, elements, steps, factors. A value that a stage or a type does not use
//! is not there, so an engine need not check which of two settings counts.

/// A configuration of a training engine.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingConfig {
    /// Number of ranks, all of which are data-parallel.
    pub world_size: u64,
    /// Sizes of the batch; their product is exact.
    pub batch: BatchSizes,
    /// Largest norm of the gradient of a step; `None`: no clipping.
    pub gradient_clipping: Option<f64>,
    /// The optimizer; `None`: the file has none, and the program chooses.
    pub optimizer: Option<OptimizerConfig>,
    /// The schedule of the learning rate; `None`: the rate of the optimizer is constant.
    pub schedule: Option<ScheduleConfig>,
    /// The type of computation, and how the loss is scaled.
    pub precision: PrecisionConfig,
    /// The type in which gradients are sent; `None`: f32.
    pub communication: Option<CommunicationType>,
    /// What is sharded over the ranks, and where it is.
    pub zero: ZeroConfig,
    /// Which activations are computed again in the backward pass; `None`: the file leaves it to the program.
    pub recomputation: Option<RecomputeConfig>,
    /// What is printed and written during training.
    pub reports: ReportConfig,
}

/// Sizes of the batch of a step: `train` = `micro` × `accumulation` × world size, all at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSizes {
    /// Samples of all ranks in a step.
    pub train: u64,
    /// Samples of a rank in a micro-batch.
    pub micro: u64,
    /// Micro-batches of a rank in a step.
    pub accumulation: u64,
}

/// An optimizer with its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimizerConfig {
    /// Learning rate before the schedule.
    pub learning_rate: f64,
    /// Factor of the decay, 0 or more.
    pub weight_decay: f64,
    /// The rule of a step.
    pub rule: UpdateRule,
}

/// The rule of an optimizer's step. DeepSpeed and torch spell out each formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UpdateRule {
    /// Adam and AdamW.
    Adam {
        /// Factors of the first and of the second moment, from 0 to below 1.
        betas: [f64; 2],
        /// Added to the root of the second moment.
        epsilon: f64,
        /// Where weight decay acts.
        decay: DecayTarget,
        /// Whether the moments are corrected for their start at 0.
        bias_correction: bool,
    },
    /// Stochastic gradient descent.
    Sgd {
        /// Factor of the last update; 0: none.
        momentum: f64,
        /// Part of the gradient that does not enter the momentum.
        dampening: f64,
        /// Whether the momentum is applied before the gradient.
        nesterov: bool,
    },
    /// Steps by the sign of a running mean.
    Lion {
        /// Factors of the update and of the momentum, from 0 to below 1.
        betas: [f64; 2],
    },
}

/// Where weight decay acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecayTarget {
    /// On the parameter itself: AdamW.
    Parameter,
    /// On the gradient: Adam with L2 regularization.
    Gradient,
}

/// The curve of a warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmupCurve {
    /// ln(i + 1) / ln N.
    Log,
    /// i / N.
    Linear,
}

/// A schedule of the learning rate. Steps are steps of the optimizer; a number of steps that is `None` is that
/// of the whole run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScheduleConfig {
    /// From one rate to another, then constant.
    WarmupLr {
        /// Rate at the first step.
        rate_min: f64,
        /// Rate after the warm-up.
        rate_max: f64,
        /// Steps of the warm-up, at least 1.
        steps: u64,
        /// The curve between the two.
        curve: WarmupCurve,
    },
    /// From one rate to another, then linearly back.
    WarmupDecayLr {
        /// Rate at the first step, and at the end.
        rate_min: f64,
        /// Rate after the warm-up.
        rate_max: f64,
        /// Steps of the warm-up, at least 1.
        steps: u64,
        /// The curve of the warm-up.
        curve: WarmupCurve,
        /// Steps until the decay ends.
        total_steps: Option<u64>,
    },
    /// A warm-up, then half a cosine; ratios of the optimizer's rate.
    WarmupCosineLr {
        /// Ratio at the first step.
        ratio_min: f64,
        /// Ratio at the end.
        cosine_ratio_min: f64,
        /// Steps of the warm-up, at least 1.
        steps: u64,
        /// The curve of the warm-up.
        curve: WarmupCurve,
        /// Steps until the cosine ends.
        total_steps: Option<u64>,
    },
    /// Up, down, and a decay.
    OneCycle(OneCycleConfig),
    /// A rate that grows until training diverges.
    LrRangeTest {
        /// Rate at the first step.
        rate_min: f64,
        /// Steps of an interval, at least 1.
        step_size: u64,
        /// Growth in an interval, relative to `rate_min`.
        growth: f64,
        /// Whether the rate is constant within an interval.
        is_staircase: bool,
    },
    /// torch's half cosine, which rises again after `half_period` steps.
    CosineAnnealingLr {
        /// Steps from the largest to the smallest rate.
        half_period: u64,
        /// The smallest rate.
        rate_min: f64,
    },
    /// torch's line between two factors of the optimizer's rate.
    LinearLr {
        /// Factor at the first step.
        start_factor: f64,
        /// Factor after `steps` steps.
        end_factor: f64,
        /// Steps between the two.
        steps: u64,
    },
    /// torch's factor for some steps, then 1.
    ConstantLr {
        /// The factor of the optimizer's rate.
        factor: f64,
        /// Steps with the factor.
        steps: u64,
    },
    /// torch's power of a line that ends at 0.
    PolynomialLr {
        /// Steps until the rate is 0.
        steps: u64,
        /// Power of the line.
        power: f64,
    },
    /// torch's factor every some steps.
    StepLr {
        /// Steps with the same rate, at least 1.
        step_size: u64,
        /// Factor of the rate at each change.
        factor: f64,
    },
    /// torch's factor every step.
    ExponentialLr {
        /// Factor of the rate at each change.
        factor: f64,
    },
}

/// The settings of a cycle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneCycleConfig {
    /// Rate at the start and at the end of the cycle.
    pub rate_min: f64,
    /// Rate in its middle.
    pub rate_max: f64,
    /// Steps of the first half, at least 1.
    pub first_steps: u64,
    /// Steps of the second half.
    pub second_steps: u64,
    /// Stairs of the first half; 0: a line.
    pub first_stairs: u64,
    /// Stairs of the second half; 0: a line.
    pub second_stairs: u64,
    /// Decay of the rate after the cycle, in `decay_steps`.
    pub rate_decay: f64,
    /// Steps of a unit of decay; 0: no decay.
    pub decay_steps: u64,
    /// How the first beta moves against the rate; `None`: it is constant.
    pub momentum: Option<MomentumCycle>,
}

/// The momentum of a cycle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MomentumCycle {
    /// Momentum in the middle of the cycle.
    pub min: f64,
    /// Momentum at its ends.
    pub max: f64,
    /// Growth after the cycle, in units of its decay.
    pub growth: f64,
}

/// The type of computation. Master weights and moments are f32 in each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PrecisionConfig {
    /// f32 throughout.
    Full,
    /// bf16, without a scale of the loss.
    Bf16 {
        /// Whether a step with an infinite or undefined gradient is skipped.
        skips_overflow: bool,
    },
    /// fp16 with a scale of the loss.
    Fp16(LossScaleConfig),
}

/// The scale of the loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossScaleConfig {
    /// Always this factor, above 0.
    Static(f64),
    /// A power of two that follows overflows.
    Dynamic {
        /// Exponent of the first scale: it is 2 to this power.
        initial_power: i64,
        /// Steps without an overflow after which the scale doubles, at least 1.
        window: u64,
        /// Overflows until the scale is halved.
        hysteresis: i64,
        /// Whether a step without an overflow refills the hysteresis.
        is_consecutive: bool,
        /// The smallest scale, at least 1.
        scale_min: u64,
    },
}

/// A type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommunicationType {
    /// 32 bits.
    Fp32,
    /// 16 bits, 5 of them exponent.
    Fp16,
    /// 16 bits, 8 of them exponent.
    Bf16,
}

/// What is sharded over the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ZeroStage {
    /// Nothing: every rank has everything.
    None,
    /// The states of the optimizer.
    Optimizer,
    /// Also the gradients.
    Gradients,
    /// Also the parameters.
    Parameters,
}

/// Sharding, and the memory in which shards are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZeroConfig {
    /// What is sharded.
    pub stage: ZeroStage,
    /// Ranks over which parameters are divided (stage 3).
    pub shard_group: ShardGroupConfig,
    /// Elements of a bucket of gradients, at least 1.
    pub reduce_bucket: u64,
    /// Elements of parameters that are gathered ahead of their use (stage 3).
    pub prefetch_bucket: u64,
    /// Parameters with fewer elements stay whole on every rank (stage 3).
    pub persistence_threshold: u64,
    /// Elements that the optimizer updates at a time.
    pub sub_group: u64,
    /// Whether a saved model has the whole 16-bit weights (stage 3).
    pub gathers_16bit_weights: bool,
    /// Where the states of the optimizer are.
    pub optimizer_memory: ShardMemory,
    /// Where the shard of the parameters is (stage 3).
    pub parameter_memory: ShardMemory,
}

/// Ranks over which the parameters of stage 3 are divided; the other groups of ranks have copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardGroupConfig {
    /// All ranks.
    All,
    /// This number of successive ranks, at least 2.
    Ranks(u64),
    /// The ranks of a node.
    Node,
}

/// The memory in which a shard is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardMemory {
    /// That of the device; on a CPU slot the memory of the host.
    Device,
    /// That of the host.
    Host,
    /// Files in this directory.
    Files(String),
}

/// Which activations are computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecomputeConfig {
    /// None: all are kept.
    Off,
    /// The blocks are cut into this number of segments, at least 1; the input of each is kept.
    Segments(u64),
    /// The input of each block is kept.
    EveryBlock,
}

/// What is printed and written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportConfig {
    /// Directory of TensorBoard's event files: `output_path/job_name`.
    pub tensorboard: Option<MonitorConfig>,
    /// Directory of CSV files, one a scalar.
    pub csv: Option<MonitorConfig>,
}

/// The place of a monitor's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorConfig {
    /// The directory; empty: the current one, as in DeepSpeed.
    pub output_path: String,
    /// Directory inside of it.
    pub job_name: String,
}
