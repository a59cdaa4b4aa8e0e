//! The schedule of the learning rate.

use super::resolver::{Resolver, SectionView};
use super::values::ValueOrigin;
use crate::base::Diagnostic;
use crate::config::codes::{BAD_SETTING, UNLIKELY};
use crate::config::keys::{SCHEDULES, ScheduleKind};
use crate::config::training::{MomentumCycle, OneCycleConfig, ScheduleConfig, WarmupCurve};
use crate::config::tree::ConfigValue;

const PARAMS: &str = "scheduler.params";
/// Rate of an optimizer without `lr`.
const RATE: f64 = 0.001;

impl Resolver<'_> {
    /// The schedule of the file; `None` if it has none, or none that exists.
    pub(super) fn schedule(&mut self, optimizer_rate: Option<f64>) -> Option<ScheduleConfig> {
        let Some(ConfigValue::Text(name)) = self.settings.given("scheduler.type") else {
            return None;
        };
        let kind = SCHEDULES.iter().find(|one| one.name == name)?.kind?;
        self.note("scheduler.type", ConfigValue::Text(name.clone()), ValueOrigin::File);
        let rate = optimizer_rate.or(self.inputs.learning_rate).unwrap_or(RATE);
        let mut params = self.section_with(kind.params(), PARAMS);
        let found = match kind {
            ScheduleKind::WarmupLr | ScheduleKind::WarmupDecayLr | ScheduleKind::WarmupCosineLr => {
                warmup(kind, &mut params, rate)
            }
            ScheduleKind::OneCycle => ScheduleConfig::OneCycle(one_cycle(&mut params)),
            ScheduleKind::LrRangeTest => ScheduleConfig::LrRangeTest {
                rate_min: params.number("lr_range_test_min_lr"),
                step_size: params.count("lr_range_test_step_size"),
                growth: params.number("lr_range_test_step_rate"),
                is_staircase: params.flag("lr_range_test_staircase"),
            },
            ScheduleKind::CosineAnnealingLr => ScheduleConfig::CosineAnnealingLr {
                half_period: params.count("T_max"),
                rate_min: params.number("eta_min"),
            },
            ScheduleKind::LinearLr => ScheduleConfig::LinearLr {
                start_factor: params.number("start_factor"),
                end_factor: params.number("end_factor"),
                steps: params.count("total_iters"),
            },
            ScheduleKind::ConstantLr => ScheduleConfig::ConstantLr {
                factor: params.number("factor"),
                steps: params.count("total_iters"),
            },
            ScheduleKind::PolynomialLr => ScheduleConfig::PolynomialLr {
                steps: params.count("total_iters"),
                power: params.number("power"),
            },
            ScheduleKind::StepLr => ScheduleConfig::StepLr {
                step_size: params.count("step_size"),
                factor: params.number("gamma"),
            },
            ScheduleKind::ExponentialLr => {
                ScheduleConfig::ExponentialLr { factor: params.number("gamma") }
            }
        };
        self.check_schedule(&found);
        Some(found)
    }

    fn check_schedule(&mut self, schedule: &ScheduleConfig) {
        match schedule {
            ScheduleConfig::WarmupDecayLr { steps, total_steps: Some(total), .. }
            | ScheduleConfig::WarmupCosineLr { steps, total_steps: Some(total), .. }
                if total < steps =>
            {
                let Some(span) = self.value_span("scheduler.params.total_num_steps") else {
                    return;
                };
                let message =
                    format!("`total_num_steps` {total} is less than `warmup_num_steps` {steps}");
                let problem = Diagnostic::warning(UNLIKELY, span, message);
                self.problems.push(
                    problem
                        .label("ends within the warm-up")
                        .help("`total_num_steps` includes the warm-up"),
                );
            }
            ScheduleConfig::LinearLr { start_factor, .. } if *start_factor == 0.0 => {
                let Some(span) = self.value_span("scheduler.params.start_factor") else { return };
                let problem = Diagnostic::error(BAD_SETTING, span, "`start_factor` cannot be 0");
                self.problems.push(problem.label("expected a number above 0, at most 1"));
            }
            _ => {}
        }
        let path = "scheduler.params.warmup_type";
        if let (Some(ConfigValue::Text(word)), Some(span)) =
            (self.settings.given(path), self.value_span(path))
            && !matches!(word.as_str(), "log" | "linear")
        {
            let message = format!("unknown warm-up `{}`", word.escape_debug());
            let problem = Diagnostic::warning(UNLIKELY, span, message);
            self.problems.push(
                problem
                    .label("taken for `log`, by DeepSpeed as well")
                    .help("write `log` or `linear`"),
            );
        }
    }
}

fn warmup(kind: ScheduleKind, params: &mut SectionView<'_, '_>, rate: f64) -> ScheduleConfig {
    let steps = params.count("warmup_num_steps");
    let curve = match params.text("warmup_type").as_str() {
        "linear" => WarmupCurve::Linear,
        _ => WarmupCurve::Log,
    };
    if kind == ScheduleKind::WarmupCosineLr {
        return ScheduleConfig::WarmupCosineLr {
            ratio_min: params.number("warmup_min_ratio"),
            cosine_ratio_min: params.number("cos_min_ratio"),
            steps,
            curve,
            total_steps: params.count_or_none("total_num_steps"),
        };
    }
    let rate_min = params.number("warmup_min_lr");
    if kind == ScheduleKind::WarmupLr {
        let rate_max = params.number_or("warmup_max_lr", rate, "the rate of the optimizer");
        return ScheduleConfig::WarmupLr { rate_min, rate_max, steps, curve };
    }
    let is_auto = params.resolver.is_auto("scheduler.params.warmup_max_lr");
    let derived = if is_auto { rate } else { RATE };
    ScheduleConfig::WarmupDecayLr {
        rate_min,
        rate_max: params.number_or("warmup_max_lr", derived, "the default of the schedule"),
        steps,
        curve,
        total_steps: params.count_or_none("total_num_steps"),
    }
}

fn one_cycle(params: &mut SectionView<'_, '_>) -> OneCycleConfig {
    let first_steps = params.count("cycle_first_step_size");
    let first_stairs = params.count("cycle_first_stair_count");
    let cycles_momentum = params.flag("cycle_momentum");
    OneCycleConfig {
        rate_min: params.number("cycle_min_lr"),
        rate_max: params.number("cycle_max_lr"),
        first_steps,
        second_steps: params.count_or_none("cycle_second_step_size").unwrap_or(first_steps),
        first_stairs,
        second_stairs: params.count_or_none("cycle_second_stair_count").unwrap_or(first_stairs),
        rate_decay: params.number("decay_lr_rate"),
        decay_steps: params.count("decay_step_size"),
        momentum: cycles_momentum.then(|| MomentumCycle {
            min: params.number("cycle_min_mom"),
            max: params.number("cycle_max_mom"),
            growth: params.number("decay_mom_rate"),
        }),
    }
}
