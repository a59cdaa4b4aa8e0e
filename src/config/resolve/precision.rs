//! `fp16`, `bf16` and the types of gradients.

use super::resolver::Resolver;
use crate::base::Diagnostic;
use crate::config::codes::{BAD_SETTING, CONTRADICTION};
use crate::config::training::{CommunicationType, LossScaleConfig, PrecisionConfig};
use crate::config::tree::ConfigValue;

/// Exponents of f32, in which the scale of the loss is kept.
const SCALE_POWERS: std::ops::RangeInclusive<i64> = -126..=127;

impl Resolver<'_> {
    /// The type of computation.
    pub(super) fn precision(&mut self) -> PrecisionConfig {
        let is_fp16 = self.section("fp16").flag("enabled");
        let is_bf16 = self.section("bf16").flag("enabled");
        if is_fp16 && is_bf16 {
            self.both_enabled();
        }
        self.grad_accum_dtype();
        if is_fp16 {
            return PrecisionConfig::Fp16(self.loss_scale());
        }
        if is_bf16 {
            let skips_overflow = self.section("bf16").flag("check_grad_overflow");
            return PrecisionConfig::Bf16 { skips_overflow };
        }
        PrecisionConfig::Full
    }

    fn both_enabled(&mut self) {
        let spans = (self.value_span("bf16.enabled"), self.value_span("fp16.enabled"));
        if let (Some(bf16), Some(fp16)) = spans {
            let problem = Diagnostic::error(CONTRADICTION, bf16, "fp16 and bf16 are both enabled");
            self.problems.push(
                problem
                    .label("enabled here")
                    .related(fp16, "and here")
                    .help("set one of the two to `false`; bf16 needs no loss scale"),
            );
        }
    }

    fn loss_scale(&mut self) -> LossScaleConfig {
        let mut fp16 = self.section("fp16");
        let scale = fp16.number("loss_scale");
        if scale != 0.0 {
            return LossScaleConfig::Static(scale);
        }
        let initial_power = fp16.whole("initial_scale_power");
        let window = fp16.whole("loss_scale_window");
        let hysteresis = fp16.whole("hysteresis");
        let is_consecutive = fp16.flag("consecutive_hysteresis");
        let scale_min = fp16.whole("min_loss_scale");
        self.above_0("fp16.loss_scale_window", window);
        self.above_0("fp16.min_loss_scale", scale_min);
        if !SCALE_POWERS.contains(&initial_power) {
            self.bad_value(
                "fp16.initial_scale_power",
                &format!("`fp16.initial_scale_power` cannot be {initial_power}"),
                "expected a whole number from -126 to 127",
            );
        }
        LossScaleConfig::Dynamic {
            initial_power,
            window: u64::try_from(window).unwrap_or_default(),
            hysteresis,
            is_consecutive,
            scale_min: u64::try_from(scale_min).unwrap_or_default(),
        }
    }

    fn above_0(&mut self, path: &str, value: i64) {
        if value < 1 {
            let message =
                format!("`{path}` cannot be {value} with a dynamic scale (`loss_scale` 0)");
            self.bad_value(path, &message, "expected a whole number of at least 1");
        }
    }

    fn bad_value(&mut self, path: &str, message: &str, label: &str) {
        if let Some(span) = self.value_span(path) {
            self.problems.push(Diagnostic::error(BAD_SETTING, span, message).label(label));
        }
    }

    fn grad_accum_dtype(&mut self) {
        let path = "data_types.grad_accum_dtype";
        match self.settings.given(path) {
            None | Some(ConfigValue::Null) => {}
            Some(ConfigValue::Text(name)) if name == "fp32" => {
                self.section("data_types").text_or_none("grad_accum_dtype");
            }
            Some(_) => self.idle(path, "gradients are always accumulated in f32"),
        }
    }

    /// The type in which gradients are sent.
    pub(super) fn communication(&mut self) -> Option<CommunicationType> {
        match self.section("").text_or_none("communication_data_type")?.as_str() {
            "fp16" => Some(CommunicationType::Fp16),
            "bf16" => Some(CommunicationType::Bf16),
            _ => Some(CommunicationType::Fp32),
        }
    }
}
