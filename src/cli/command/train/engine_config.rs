//! [`engine_config`]: a training configuration as settings of the engine. Pure.

use crate::config::{
    CommunicationType, DecayTarget, LossScaleConfig, OneCycleConfig, OptimizerConfig,
    PrecisionConfig, RecomputeConfig, ScheduleConfig, ShardGroupConfig, ShardMemory,
    TrainingConfig, UpdateRule, WarmupCurve, ZeroConfig, ZeroStage,
};
use crate::runtime::engine::{
    EngineConfig, Offload, PlanOptions, Precision, Prefetch, Sharding, StatePlace,
};
use crate::runtime::optim::{
    AdamOptions, CycleMomentum, DynamicScaling, LionOptions, LossScaling, LrRangeTest, LrSchedule,
    OneCycle, Optimizer, SgdOptions, TorchFactor, Warmup, WarmupCosineLr, WarmupDecayLr,
    WarmupKind, WarmupLr, WeightDecay,
};

/// A setting that the engine does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine does not have {what} yet; write {instead}")]
pub struct NotInEngine {
    /// What the file asks for.
    pub what: &'static str,
    /// What to write instead.
    pub instead: &'static str,
    /// Path of the key that asks for it.
    pub key: &'static str,
}

/// Shards within nodes, where nodes differ.
const UNEVEN_NODES: NotInEngine = NotInEngine {
    what: "`HYBRID_SHARD` on nodes with different numbers of workers",
    instead: "`FULL_SHARD`",
    key: "zero_optimization.stage",
};

/// What a program says that a file does not.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnSettings {
    /// Settings where the file leaves the choice to the program.
    pub otherwise: EngineConfig,
    /// Steps of the schedule of learning rates, if the file does not have their number.
    pub steps: u64,
    /// Number of blocks of the model.
    pub blocks: usize,
    /// Number of workers of every node; `None` if it differs.
    pub workers_per_node: Option<usize>,
}

/// Returns the settings of the engine. The samples of a micro-batch are `found.batch.micro`; they are no setting of
/// the engine.
///
/// # Errors
/// If the engine does not have one of them.
pub fn engine_config(
    found: &TrainingConfig,
    own: &OwnSettings,
) -> Result<EngineConfig, NotInEngine> {
    let OwnSettings { otherwise, steps, blocks, workers_per_node } = own;
    let rate =
        found.optimizer.map_or(otherwise.schedule.rate(0), |optimizer| optimizer.learning_rate);
    let schedule = match (&found.schedule, found.optimizer) {
        (Some(schedule), _) => schedule_of(schedule, rate, *steps),
        (None, Some(_)) => LrSchedule::Constant { rate },
        (None, None) => otherwise.schedule,
    };
    let (precision, loss_scaling) = precision_of(found.precision);
    Ok(EngineConfig {
        accumulate: found.batch.accumulation as usize,
        sharding: sharding_of(found.zero.stage),
        optimizer: found
            .optimizer
            .map_or(otherwise.optimizer, |optimizer| optimizer_of(&optimizer)),
        schedule,
        clip: found.gradient_clipping,
        precision,
        loss_scaling,
        gradient_rounding: found.communication.and_then(rounding_of),
        no_sync: false,
        persistent_len_max: found.zero.persistence_threshold as usize,
        shard_group: match found.zero.shard_group {
            ShardGroupConfig::All => otherwise.shard_group,
            ShardGroupConfig::Ranks(ranks) => Some(ranks as usize),
            ShardGroupConfig::Node => {
                let ranks = workers_per_node.ok_or(UNEVEN_NODES)?;
                Some(ranks).filter(|ranks| 1 < *ranks)
            }
        },
        offload: offload_of(&found.zero),
        exchange: otherwise.exchange,
        plan: PlanOptions {
            prefetch: Prefetch::Elements(found.zero.prefetch_bucket as usize),
            reduce_max: found.zero.reduce_bucket as usize,
            recompute: found
                .recomputation
                .map_or(otherwise.plan.recompute, |found| blocks_of_segment(found, *blocks)),
        },
        seed: otherwise.seed,
    })
}

/// Blocks whose activations are computed again together; 0: they are kept.
pub(super) fn blocks_of_segment(found: RecomputeConfig, blocks: usize) -> usize {
    match found {
        RecomputeConfig::Off => 0,
        RecomputeConfig::EveryBlock => 1,
        RecomputeConfig::Segments(count) => blocks.div_ceil(count.max(1) as usize),
    }
}

/// Places of the state that is offloaded. Parts of parameters are in the memory of the host anyway.
fn offload_of(zero: &ZeroConfig) -> Offload {
    let optimizer = match &zero.optimizer_memory {
        ShardMemory::Files(dir) => StatePlace::Files(dir.into()),
        ShardMemory::Host => StatePlace::Host,
        ShardMemory::Device => StatePlace::Computing,
    };
    let parameters = match &zero.parameter_memory {
        ShardMemory::Files(dir) => Some(dir.into()),
        ShardMemory::Device | ShardMemory::Host => None,
    };
    Offload { optimizer, parameters }
}

fn sharding_of(stage: ZeroStage) -> Sharding {
    match stage {
        ZeroStage::None => Sharding::None,
        ZeroStage::Optimizer => Sharding::Optimizer,
        ZeroStage::Gradients => Sharding::Gradients,
        ZeroStage::Parameters => Sharding::Parameters,
    }
}

fn rounding_of(communication: CommunicationType) -> Option<Precision> {
    match communication {
        CommunicationType::Fp32 => None,
        CommunicationType::Fp16 => Some(Precision::F16),
        CommunicationType::Bf16 => Some(Precision::Bf16),
    }
}

fn precision_of(found: PrecisionConfig) -> (Precision, LossScaling) {
    match found {
        PrecisionConfig::Full => (Precision::F32, LossScaling::None),
        // Steps with a gradient that is not finite are skipped in either case.
        PrecisionConfig::Bf16 { .. } => (Precision::Bf16, LossScaling::None),
        PrecisionConfig::Fp16(LossScaleConfig::Static(scale)) => {
            (Precision::F16, LossScaling::Static { scale })
        }
        PrecisionConfig::Fp16(LossScaleConfig::Dynamic {
            initial_power,
            window,
            hysteresis,
            is_consecutive,
            scale_min,
        }) => {
            let dynamic = DynamicScaling {
                initial_power: initial_power.max(0) as u32,
                window,
                hysteresis: hysteresis.max(1) as u32,
                consecutive_hysteresis: is_consecutive,
                scale_min: scale_min as f64,
            };
            (Precision::F16, LossScaling::Dynamic(dynamic))
        }
    }
}

fn optimizer_of(found: &OptimizerConfig) -> Optimizer {
    let weight_decay = found.weight_decay;
    match found.rule {
        UpdateRule::Adam { betas, epsilon, decay, bias_correction, .. } => {
            let decay = match decay {
                DecayTarget::Parameter => WeightDecay::Decoupled,
                DecayTarget::Gradient => WeightDecay::L2,
            };
            Optimizer::Adam(AdamOptions { betas, epsilon, weight_decay, decay, bias_correction })
        }
        UpdateRule::Sgd { momentum, dampening, nesterov } => {
            Optimizer::Sgd(SgdOptions { momentum, dampening, nesterov, weight_decay })
        }
        UpdateRule::Lion { betas } => Optimizer::Lion(LionOptions { betas, weight_decay }),
    }
}

fn schedule_of(found: &ScheduleConfig, rate: f64, run: u64) -> LrSchedule {
    let scaled = |factor| LrSchedule::Scaled { rate, factor };
    match *found {
        ScheduleConfig::WarmupLr { rate_min, rate_max, steps, curve } => {
            let warmup = warmup_of(steps, curve);
            LrSchedule::Warmup(WarmupLr { rate_min, rate_max, warmup })
        }
        ScheduleConfig::WarmupDecayLr { rate_min, rate_max, steps, curve, total_steps } => {
            let (warmup, total_steps) = (warmup_of(steps, curve), total_steps.unwrap_or(run));
            LrSchedule::WarmupDecay(WarmupDecayLr { rate_min, rate_max, warmup, total_steps })
        }
        ScheduleConfig::WarmupCosineLr {
            ratio_min: warmup_min_ratio,
            cosine_ratio_min: cos_min_ratio,
            steps,
            curve,
            total_steps,
        } => LrSchedule::WarmupCosine(WarmupCosineLr {
            rate,
            warmup: warmup_of(steps, curve),
            warmup_min_ratio,
            cos_min_ratio,
            total_steps: total_steps.unwrap_or(run),
        }),
        ScheduleConfig::OneCycle(cycle) => LrSchedule::OneCycle(one_cycle_of(&cycle)),
        ScheduleConfig::LrRangeTest { rate_min, step_size, growth, is_staircase } => {
            let staircase = is_staircase;
            LrSchedule::RangeTest(LrRangeTest { rate_min, step_size, growth, staircase })
        }
        ScheduleConfig::CosineAnnealingLr { half_period, rate_min } => {
            LrSchedule::CosineAnnealing { rate, rate_min, steps: half_period }
        }
        ScheduleConfig::LinearLr { start_factor: start, end_factor: end, steps } => {
            scaled(TorchFactor::Linear { start, end, steps })
        }
        ScheduleConfig::ConstantLr { factor, steps } => {
            scaled(TorchFactor::Constant { factor, steps })
        }
        ScheduleConfig::PolynomialLr { steps, power } => {
            scaled(TorchFactor::Polynomial { steps, power })
        }
        ScheduleConfig::StepLr { step_size, factor: gamma } => {
            scaled(TorchFactor::Step { step_size, gamma })
        }
        ScheduleConfig::ExponentialLr { factor: gamma } => {
            scaled(TorchFactor::Exponential { gamma })
        }
    }
}

fn one_cycle_of(cycle: &OneCycleConfig) -> OneCycle {
    OneCycle {
        rate_min: cycle.rate_min,
        rate_max: cycle.rate_max,
        first_steps: cycle.first_steps,
        second_steps: cycle.second_steps,
        first_stairs: cycle.first_stairs,
        second_stairs: cycle.second_stairs,
        decay_steps: cycle.decay_steps,
        decay_rate: cycle.rate_decay,
        momentum: cycle.momentum.map(|momentum| CycleMomentum {
            min: momentum.min,
            max: momentum.max,
            decay_rate: momentum.growth,
        }),
    }
}

fn warmup_of(steps: u64, curve: WarmupCurve) -> Warmup {
    let kind = match curve {
        WarmupCurve::Log => WarmupKind::Log,
        WarmupCurve::Linear => WarmupKind::Linear,
    };
    Warmup { steps, kind }
}
