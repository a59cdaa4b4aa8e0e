//! The typed result, field by field.

use remuda::config::{
    BatchSizes, CommunicationType, ConfigInputs, DecayTarget, LossScaleConfig, MomentumCycle,
    MonitorConfig, OneCycleConfig, OptimizerConfig, PrecisionConfig, RecomputeConfig, ReportConfig,
    ScheduleConfig, ShardGroupConfig, ShardMemory, TrainingConfig, UpdateRule, WarmupCurve,
    ZeroConfig, ZeroStage, read_config,
};

#[track_caller]
fn read(text: &str, world_size: u64) -> TrainingConfig {
    let inputs = ConfigInputs { world_size: Some(world_size), ..ConfigInputs::default() };
    let reading = read_config("ds_config.json", text.as_bytes(), &inputs);
    reading.config.unwrap_or_else(|| panic!("{:?}", reading.findings.diagnostics))
}

/// What a file without optional keys means.
fn plain(world_size: u64, batch: BatchSizes) -> TrainingConfig {
    TrainingConfig {
        world_size,
        batch,
        gradient_clipping: Some(1.0),
        optimizer: None,
        schedule: None,
        precision: PrecisionConfig::Full,
        communication: None,
        zero: ZeroConfig {
            shard_group: ShardGroupConfig::All,
            stage: ZeroStage::None,
            reduce_bucket: 500_000_000,
            prefetch_bucket: 0,
            persistence_threshold: 0,
            sub_group: 1_000_000_000,
            gathers_16bit_weights: false,
            optimizer_memory: ShardMemory::Device,
            parameter_memory: ShardMemory::Device,
        },
        recomputation: None,
        reports: ReportConfig { tensorboard: None, csv: None },
    }
}

#[test]
fn absent_keys_have_defaults() {
    let batch = BatchSizes { train: 8, micro: 4, accumulation: 1 };
    assert_eq!(read("{train_batch_size: 8\n}", 2), plain(2, batch));
}

/// The short file of a user: ZeRO-1, fp16 with a dynamic scale of 2^16, AdamW without decay.
#[test]
fn short_file_of_a_user_has_its_meaning() {
    let text = include_str!("valid/adam_fp16_zero.json");
    let mut expect = plain(4, BatchSizes { train: 8, micro: 2, accumulation: 1 });
    expect.zero.stage = ZeroStage::Optimizer;
    expect.precision = PrecisionConfig::Fp16(LossScaleConfig::Dynamic {
        initial_power: 16,
        window: 1000,
        hysteresis: 2,
        is_consecutive: false,
        scale_min: 1,
    });
    expect.optimizer = Some(OptimizerConfig {
        learning_rate: 0.00015,
        weight_decay: 0.0,
        rule: UpdateRule::Adam {
            betas: [0.9, 0.999],
            epsilon: 1e-8,
            decay: DecayTarget::Parameter,
            bias_correction: true,
        },
    });
    assert_eq!(read(text, 4), expect);
}

#[test]
fn every_key_that_works_is_in_the_result() {
    let text = include_str!("valid/every_effect.json");
    let found = read(text, 4);
    let monitor = |output_path: &str, job_name: &str| {
        Some(MonitorConfig { output_path: output_path.into(), job_name: job_name.into() })
    };
    let expect = TrainingConfig {
        world_size: 4,
        batch: BatchSizes { train: 32, micro: 4, accumulation: 2 },
        gradient_clipping: Some(0.5),
        optimizer: Some(OptimizerConfig {
            learning_rate: 3e-4,
            weight_decay: 0.1,
            rule: UpdateRule::Adam {
                betas: [0.9, 0.95],
                epsilon: 1e-9,
                decay: DecayTarget::Parameter,
                bias_correction: true,
            },
        }),
        schedule: Some(ScheduleConfig::WarmupDecayLr {
            rate_min: 0.0,
            rate_max: 3e-4,
            steps: 100,
            curve: WarmupCurve::Linear,
            total_steps: Some(1000),
        }),
        precision: PrecisionConfig::Bf16 { skips_overflow: true },
        communication: Some(CommunicationType::Bf16),
        zero: ZeroConfig {
            shard_group: ShardGroupConfig::All,
            stage: ZeroStage::Parameters,
            reduce_bucket: 50_000_000,
            prefetch_bucket: 10_000_000,
            persistence_threshold: 10_000,
            sub_group: 100_000_000,
            gathers_16bit_weights: true,
            optimizer_memory: ShardMemory::Files("/local/nvme".into()),
            parameter_memory: ShardMemory::Host,
        },
        recomputation: Some(RecomputeConfig::Segments(4)),
        reports: ReportConfig {
            tensorboard: monitor("runs", "gpt"),
            csv: monitor("csv", "DeepSpeedJobName"),
        },
    };
    assert_eq!(found, expect);
}

#[track_caller]
fn optimizer(text: &str) -> OptimizerConfig {
    read(&format!("{{train_batch_size: 1, optimizer: {text}}}"), 1).optimizer.expect("an optimizer")
}

#[test]
fn optimizers_have_the_defaults_of_their_makers() {
    use DecayTarget::{Gradient, Parameter};
    let decay = |found: &OptimizerConfig| match found.rule {
        UpdateRule::Adam { decay, bias_correction, .. } => {
            (decay, bias_correction, found.weight_decay)
        }
        _ => panic!("{found:?}"),
    };
    for (text, expect) in [
        ("{type: \"Adam\"}", (Parameter, true, 0.0)),
        ("{type: \"ADAM\", params: {adam_w_mode: false}}", (Gradient, true, 0.0)),
        ("{type: \"AdamW\", params: {adam_w_mode: false}}", (Parameter, true, 0.0)),
        ("{type: \"Adam\", params: {torch_adam: true}}", (Parameter, true, 0.01)),
        ("{type: \"Adam\", params: {torch_adam: true, adam_w_mode: false}}", (Gradient, true, 0.0)),
        ("{type: \"Adam\", params: {bias_correction: false}}", (Parameter, false, 0.0)),
    ] {
        assert_eq!(decay(&optimizer(text)), expect, "{text}");
    }
    let sgd = UpdateRule::Sgd { momentum: 0.9, dampening: 0.0, nesterov: true };
    assert_eq!(optimizer("{type: \"SGD\", params: {momentum: 0.9, nesterov: true}}").rule, sgd);
    let lion = optimizer("{type: \"lion\", params: {lr: 1}}");
    let rule = UpdateRule::Lion { betas: [0.9, 0.999] };
    assert_eq!(lion, OptimizerConfig { learning_rate: 1.0, weight_decay: 0.0, rule });
}

#[track_caller]
fn schedule(text: &str) -> ScheduleConfig {
    let text = format!(
        "{{train_batch_size: 1, optimizer: {{type: \"SGD\", params: {{lr: 0.5}}}}, scheduler: {text}}}"
    );
    read(&text, 1).schedule.expect("a schedule")
}

#[test]
fn schedules_have_the_defaults_of_their_makers() {
    let curve = WarmupCurve::Log;
    for (text, expect) in [
        (
            "{type: \"WarmupLR\"}",
            ScheduleConfig::WarmupLr { rate_min: 0.0, rate_max: 0.5, steps: 1000, curve },
        ),
        (
            "{type: \"WarmupDecayLR\", params: {total_num_steps: 2000}}",
            ScheduleConfig::WarmupDecayLr {
                rate_min: 0.0,
                rate_max: 0.001,
                steps: 1000,
                curve,
                total_steps: Some(2000),
            },
        ),
        (
            "{type: \"WarmupCosineLR\", params: {total_num_steps: \"auto\"}}",
            ScheduleConfig::WarmupCosineLr {
                ratio_min: 0.0,
                cosine_ratio_min: 0.0001,
                steps: 1000,
                curve,
                total_steps: None,
            },
        ),
        (
            "{type: \"LRRangeTest\"}",
            ScheduleConfig::LrRangeTest {
                rate_min: 0.001,
                step_size: 2000,
                growth: 1.0,
                is_staircase: false,
            },
        ),
        (
            "{type: \"OneCycle\", params: {cycle_min_lr: 0.1, cycle_max_lr: 0.2, cycle_first_stair_count: 3}}",
            ScheduleConfig::OneCycle(OneCycleConfig {
                rate_min: 0.1,
                rate_max: 0.2,
                first_steps: 2000,
                second_steps: 2000,
                first_stairs: 3,
                second_stairs: 3,
                rate_decay: 0.0,
                decay_steps: 0,
                momentum: Some(MomentumCycle { min: 0.8, max: 0.9, growth: 0.0 }),
            }),
        ),
        (
            "{type: \"CosineAnnealingLR\", params: {T_max: 10}}",
            ScheduleConfig::CosineAnnealingLr { half_period: 10, rate_min: 0.0 },
        ),
        (
            "{type: \"LinearLR\"}",
            ScheduleConfig::LinearLr { start_factor: 1.0 / 3.0, end_factor: 1.0, steps: 5 },
        ),
        ("{type: \"ConstantLR\"}", ScheduleConfig::ConstantLr { factor: 1.0 / 3.0, steps: 5 }),
        ("{type: \"PolynomialLR\"}", ScheduleConfig::PolynomialLr { steps: 5, power: 1.0 }),
        (
            "{type: \"StepLR\", params: {step_size: 7}}",
            ScheduleConfig::StepLr { step_size: 7, factor: 0.1 },
        ),
        (
            "{type: \"ExponentialLR\", params: {gamma: 0.9}}",
            ScheduleConfig::ExponentialLr { factor: 0.9 },
        ),
    ] {
        assert_eq!(schedule(text), expect, "{text}");
    }
}

#[test]
fn scale_is_static_or_dynamic() {
    let read = |fp16: &str| read(&format!("{{train_batch_size: 1, fp16: {fp16}}}"), 1).precision;
    let fixed = PrecisionConfig::Fp16(LossScaleConfig::Static(128.0));
    // The settings of the dynamic scale do not count.
    assert_eq!(read("{enabled: true, loss_scale: 128, loss_scale_window: 0}"), fixed);
    let dynamic = PrecisionConfig::Fp16(LossScaleConfig::Dynamic {
        initial_power: 8,
        window: 500,
        hysteresis: 4,
        is_consecutive: true,
        scale_min: 2,
    });
    let text = "{enabled: true, initial_scale_power: 8, loss_scale_window: 500, hysteresis: 4, \
                consecutive_hysteresis: true, min_loss_scale: 2}";
    assert_eq!(read(text), dynamic);
    assert_eq!(read("{enabled: false, loss_scale: 128}"), PrecisionConfig::Full);
}

/// The arithmetic is that of torch in either case; without a `weight_decay`, the default differs.
#[test]
fn torch_adam_has_an_effect_on_the_default_of_weight_decay_only() {
    #[track_caller]
    fn check(params: &str, is_idle: bool) {
        let text = format!(
            "{{\"train_batch_size\": 1, \"optimizer\": {{\"type\": \"AdamW\", \"params\": {{{params}}}}}}}"
        );
        let inputs = ConfigInputs { world_size: Some(1), ..ConfigInputs::default() };
        let reading = read_config("ds_config.json", text.as_bytes(), &inputs);
        let idle = reading.ineffective.iter().map(|idle| idle.path.as_str());
        let expected = if is_idle { vec!["optimizer.params.torch_adam"] } else { Vec::new() };
        assert_eq!(idle.collect::<Vec<_>>(), expected, "{params}");
    }
    check("\"torch_adam\": true", false);
    check("\"torch_adam\": true, \"weight_decay\": 0.1", true);
    check("\"torch_adam\": true, \"weight_decay\": 0", true);
    check("\"torch_adam\": false, \"weight_decay\": 0.1", false);
}
