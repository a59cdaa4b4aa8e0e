//! [`LossScaler`]: the factor that keeps 16-bit gradients from vanishing, as a state machine.
//!
//! The loss is multiplied by the scale, so all gradients are; the update divides by it. The dynamic scale is
//! DeepSpeed's (0.19.8, ZeRO). DeepSpeed changes the scale before it divides, so gradients are halved on each
//! step on which the scale grows. Here a step takes the scale once ([`LossScaler::start_step`]), multiplies
//! and divides by what it took, and returns it.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How a loss is scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum LossScaling {
    /// Not at all: f32 and bf16.
    #[default]
    None,
    /// By the same factor in every step (`fp16.loss_scale` other than 0).
    Static {
        /// Factor, above 0.
        scale: f64,
    },
    /// By a factor that is halved after overflows and doubled after steps without any.
    Dynamic(DynamicScaling),
}

/// Settings of a dynamic scale, with the names that they have in the section `fp16` of DeepSpeed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DynamicScaling {
    /// The first scale is 2 to this power (`initial_scale_power`).
    pub initial_power: u32,
    /// Number of clean steps in a row after which the next clean one doubles the scale
    /// (`loss_scale_window`), 1 or more.
    pub window: u64,
    /// Number of overflows, 1 or more, of which the last one halves the scale (`hysteresis`); so does each
    /// further one, until the scale grows.
    pub hysteresis: u32,
    /// Whether a clean step lets the count of overflows start again (`consecutive_hysteresis`).
    pub consecutive_hysteresis: bool,
    /// Lowest scale (`min_loss_scale`), above 0.
    pub scale_min: f64,
}

/// State of a [`LossScaler`], as plain data for checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum LossScale {
    /// The scale does not change.
    Constant {
        /// Factor of the loss.
        scale: f64,
    },
    /// The scale changes.
    Dynamic {
        /// Factor of the loss in the next step.
        scale: f64,
        /// Number of clean steps since the last overflow.
        clean_steps: u64,
        /// Number of overflows, counted down, of which the last one halves the scale.
        hysteresis_left: u32,
    },
}

/// The scale of the loss: settings and state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScaler {
    scaling: LossScaling,
    state: LossScale,
}

/// Scale that a step took: the factor of its losses and the divisor of its gradients.
///
/// It cannot be copied, so a step has one scale, and returns it once.
#[derive(Debug, PartialEq)]
#[must_use = "the step divides the gradients by this scale and returns it with `finish_step`"]
pub struct StepScale {
    factor: f32,
}

/// Whether a gradient can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradientCheck {
    /// All elements are finite.
    Finite,
    /// An element is infinite or NaN: the step is skipped on all ranks.
    Overflow,
}

/// Overflow at the lowest scale, at which training cannot continue. The text is DeepSpeed's.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error(
    "gradients overflow at loss scale {scale}: \
     current loss scale already at minimum - cannot decrease scale anymore"
)]
pub struct ScaleAtMinimum {
    /// The lowest scale.
    pub scale: f64,
}

/// Setting that a loss scale cannot have. The texts are DeepSpeed's.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum ScalingError {
    /// A static scale is not finite or not above 0.
    #[error("fp16.loss_scale must be >= 0 (0 enables dynamic loss scaling), got {0}")]
    Scale(f64),
    /// The window is 0.
    #[error(
        "fp16.loss_scale_window must be > 0 when dynamic loss scaling is enabled (loss_scale=0)"
    )]
    Window,
    /// The hysteresis is 0.
    #[error("fp16.hysteresis must be > 0 when dynamic loss scaling is enabled (loss_scale=0)")]
    Hysteresis,
    /// The lowest scale is not finite or not above 0.
    #[error(
        "fp16.min_loss_scale must be > 0 when dynamic loss scaling is enabled (loss_scale=0), got {0}"
    )]
    Minimum(f64),
    /// The first scale is above the largest f32.
    #[error("fp16.initial_scale_power must be <= 127, got {0}")]
    InitialPower(u32),
}

impl Default for DynamicScaling {
    fn default() -> Self {
        Self {
            initial_power: 16,
            window: 1000,
            hysteresis: 2,
            consecutive_hysteresis: false,
            scale_min: 1.0,
        }
    }
}

impl LossScaling {
    /// Returns whether all settings are in their ranges.
    pub fn check(&self) -> Result<(), ScalingError> {
        // As f32, because losses and gradients are.
        let is_positive = |number: f64| (number as f32).is_finite() && 0.0 < number as f32;
        match *self {
            Self::Static { scale } if !is_positive(scale) => Err(ScalingError::Scale(scale)),
            Self::Dynamic(dynamic) if dynamic.window == 0 => Err(ScalingError::Window),
            Self::Dynamic(dynamic) if dynamic.hysteresis == 0 => Err(ScalingError::Hysteresis),
            Self::Dynamic(dynamic) if !is_positive(dynamic.scale_min) => {
                Err(ScalingError::Minimum(dynamic.scale_min))
            }
            Self::Dynamic(DynamicScaling { initial_power: power @ 128.., .. }) => {
                Err(ScalingError::InitialPower(power))
            }
            Self::None | Self::Static { .. } | Self::Dynamic(_) => Ok(()),
        }
    }

    /// State before the first step.
    fn first_state(&self) -> LossScale {
        match self {
            Self::None => LossScale::Constant { scale: 1.0 },
            Self::Static { scale } => LossScale::Constant { scale: *scale },
            Self::Dynamic(dynamic) => LossScale::Dynamic {
                scale: 2f64.powi(dynamic.initial_power.min(1023) as i32),
                clean_steps: 0,
                hysteresis_left: dynamic.hysteresis,
            },
        }
    }
}

impl LossScaler {
    /// Creates a scaler before the first step.
    pub fn new(scaling: LossScaling) -> Self {
        Self { scaling, state: scaling.first_state() }
    }

    /// Creates a scaler with a saved state. A state of the other kind is not used, because the run that
    /// saved it scaled its losses in another way: the scaler is then like a new one.
    pub fn resume(scaling: LossScaling, saved: LossScale) -> Self {
        let new = Self::new(scaling);
        match (saved, new.state) {
            (LossScale::Dynamic { .. }, LossScale::Dynamic { .. }) => Self { state: saved, ..new },
            (LossScale::Constant { .. } | LossScale::Dynamic { .. }, _) => new,
        }
    }

    /// Returns the state, to be saved between two steps.
    pub fn state(&self) -> LossScale {
        self.state
    }

    /// Returns the scale of the next step, for reports.
    pub fn scale(&self) -> f64 {
        match self.state {
            LossScale::Constant { scale } | LossScale::Dynamic { scale, .. } => scale,
        }
    }

    /// Takes the scale for a step.
    pub fn start_step(&self) -> StepScale {
        StepScale { factor: self.scale() as f32 }
    }

    /// Ends the step that took a scale, and sets the scale of the next one. An error leaves the scale as it
    /// was.
    pub fn finish_step(
        &mut self,
        _taken: StepScale,
        check: GradientCheck,
    ) -> Result<(), ScaleAtMinimum> {
        let LossScaling::Dynamic(settings) = self.scaling else { return Ok(()) };
        let LossScale::Dynamic { scale, clean_steps, hysteresis_left } = &mut self.state else {
            return Ok(());
        };
        match check {
            GradientCheck::Finite => {
                if settings.consecutive_hysteresis {
                    *hysteresis_left = settings.hysteresis;
                }
                if *clean_steps != 0 && clean_steps.is_multiple_of(settings.window.max(1)) {
                    *scale *= 2.0;
                    *hysteresis_left = settings.hysteresis;
                }
                *clean_steps += 1;
            }
            GradientCheck::Overflow => {
                *clean_steps = 0;
                if 1 < settings.hysteresis && 1 < *hysteresis_left {
                    *hysteresis_left -= 1;
                } else if *scale <= settings.scale_min {
                    return Err(ScaleAtMinimum { scale: *scale });
                } else {
                    *scale = (*scale / 2.0).max(settings.scale_min);
                }
            }
        }
        Ok(())
    }
}

impl StepScale {
    /// Returns the factor of each loss of the step.
    pub fn loss_factor(&self) -> f32 {
        self.factor
    }

    /// Returns the factor of the gradients of the step, the inverse of [`loss_factor`](Self::loss_factor).
    /// The factor of clipping is multiplied to it before it is rounded to f32.
    pub fn gradient_factor(&self) -> f64 {
        1.0 / f64::from(self.factor)
    }
}

impl GradientCheck {
    /// Returns the check of a gradient with this norm in f64: the norm is finite if and only if all f32
    /// elements are.
    pub fn of_norm(norm: f64) -> Self {
        if norm.is_finite() { Self::Finite } else { Self::Overflow }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::flat::norm::{clip_factor, global_norm};
    use crate::runtime::optim::optimizer::{Optimizer, SgdOptions};
    use proptest::prelude::*;

    const DYNAMIC: DynamicScaling = DynamicScaling {
        initial_power: 16,
        window: 4,
        hysteresis: 2,
        consecutive_hysteresis: false,
        scale_min: 1.0,
    };

    fn step(scaler: &mut LossScaler, check: GradientCheck) -> Result<(), ScaleAtMinimum> {
        let scale = scaler.start_step();
        scaler.finish_step(scale, check)
    }

    fn check_of(event: char) -> GradientCheck {
        if event == 'X' { GradientCheck::Overflow } else { GradientCheck::Finite }
    }

    /// Scales after each event, in units of 65536; `X` is an overflow.
    #[track_caller]
    fn check(settings: DynamicScaling, expect: &str) {
        let mut scaler = LossScaler::new(LossScaling::Dynamic(settings));
        let scales = "..........X.....X.X.....XX......".chars().map(|event| {
            step(&mut scaler, check_of(event)).expect("the scale is above its minimum");
            (scaler.scale() / 65536.0).to_string()
        });
        assert_eq!(scales.collect::<Vec<_>>(), expect.split(' ').collect::<Vec<_>>());
    }

    /// Values of DeepSpeed 0.19.8 with ZeRO.
    #[test]
    fn dynamic_scale_matches_deepspeed() {
        check(DYNAMIC, "1 1 1 1 2 2 2 2 4 4 4 4 4 4 4 8 8 8 4 4 4 4 4 8 8 4 4 4 4 4 8 8");
        check(
            DynamicScaling { consecutive_hysteresis: true, ..DYNAMIC },
            "1 1 1 1 2 2 2 2 4 4 4 4 4 4 4 8 8 8 8 8 8 8 8 16 16 8 8 8 8 8 16 16",
        );
        check(
            DynamicScaling { hysteresis: 1, ..DYNAMIC },
            "1 1 1 1 2 2 2 2 4 4 2 2 2 2 2 4 2 2 1 1 1 1 1 2 1 0.5 0.5 0.5 0.5 0.5 1 1",
        );
    }

    #[test]
    fn overflow_at_the_lowest_scale_is_an_error() {
        let settings = DynamicScaling { initial_power: 2, ..DYNAMIC };
        let mut scaler = LossScaler::new(LossScaling::Dynamic(settings));
        let mut scales = Vec::new();
        let error = loop {
            match step(&mut scaler, GradientCheck::Overflow) {
                Ok(()) => scales.push(scaler.scale()),
                Err(error) => break error,
            }
        };
        assert_eq!(scales, [4.0, 2.0, 1.0]);
        assert_eq!(error, ScaleAtMinimum { scale: 1.0 });
        let text = "gradients overflow at loss scale 1: current loss scale already at minimum - \
                    cannot decrease scale anymore";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn scale_grows_after_1000_clean_steps_by_default() {
        let mut scaler = LossScaler::new(LossScaling::Dynamic(DynamicScaling::default()));
        for _ in 0..1000 {
            step(&mut scaler, GradientCheck::Finite).expect("no overflow");
        }
        assert_eq!(scaler.scale().to_bits(), 65536f64.to_bits());
        step(&mut scaler, GradientCheck::Finite).expect("no overflow");
        assert_eq!(scaler.scale().to_bits(), 131_072f64.to_bits());
    }

    #[test]
    fn constant_scales_never_change() {
        for (scaling, expect) in
            [(LossScaling::None, 1.0f64), (LossScaling::Static { scale: 128.0 }, 128.0)]
        {
            let mut scaler = LossScaler::new(scaling);
            for event in "X.XXX....".chars() {
                step(&mut scaler, check_of(event)).expect("a constant scale has no minimum");
                assert_eq!(scaler.scale().to_bits(), expect.to_bits());
            }
        }
    }

    /// The optimizer sees the true gradient on every step, also on those on which the scale grows; in
    /// DeepSpeed it sees half of it on the third and the fifth.
    #[test]
    fn scale_that_multiplied_is_the_scale_that_divides() {
        let settings = DynamicScaling { initial_power: 4, window: 2, ..DYNAMIC };
        let mut scaler = LossScaler::new(LossScaling::Dynamic(settings));
        let optimizer = Optimizer::Sgd(SgdOptions::default());
        let mut scales = Vec::new();
        for number in 1..=6 {
            let scale = scaler.start_step();
            scales.push(scale.loss_factor());
            let scaled = [1.0, 2.0].map(|gradient: f32| gradient * scale.loss_factor());
            let norm = global_norm(&scaled) * scale.gradient_factor();
            assert_eq!(norm.to_bits(), 5f64.sqrt().to_bits(), "norm of step {number}");
            let factor = scale.gradient_factor() * clip_factor(norm, 10.0);
            scaler.finish_step(scale, GradientCheck::of_norm(norm)).expect("no overflow");
            let mut seen = [0.0f32; 2];
            let step = optimizer.step(number, -1.0, factor as f32);
            step.update(&mut seen, &mut [[0.0f32; 2]; 0], &scaled);
            assert_eq!(seen.map(f32::to_bits), [1.0f32, 2.0].map(f32::to_bits), "step {number}");
        }
        assert_eq!(scales, [16.0, 16.0, 16.0, 32.0, 32.0, 64.0]);
    }

    #[test]
    fn scale_above_all_f32_overflows_and_recovers() {
        let settings = DynamicScaling { initial_power: 127, window: 1, hysteresis: 1, ..DYNAMIC };
        let mut scaler = LossScaler::new(LossScaling::Dynamic(settings));
        for _ in 0..2 {
            step(&mut scaler, GradientCheck::Finite).expect("no overflow");
        }
        let scale = scaler.start_step();
        let check = GradientCheck::of_norm(f64::from(scale.loss_factor()));
        assert_eq!(check, GradientCheck::Overflow);
        scaler.finish_step(scale, check).expect("the scale is not at its minimum");
        assert!(scaler.start_step().loss_factor().is_finite());
    }

    #[test]
    fn settings_out_of_range_have_the_words_of_deepspeed() {
        #[track_caller]
        fn check(scaling: LossScaling, expect: &str) {
            let text = scaling.check().map_or_else(|error| error.to_string(), |()| "-".into());
            assert_eq!(text, expect);
        }
        let dynamic = |change: fn(&mut DynamicScaling)| {
            let mut settings = DYNAMIC;
            change(&mut settings);
            LossScaling::Dynamic(settings)
        };
        check(LossScaling::None, "-");
        check(
            LossScaling::Static { scale: 1e39 },
            &format!("fp16.loss_scale must be >= 0 (0 enables dynamic loss scaling), got {}", 1e39),
        );
        check(dynamic(|_| ()), "-");
        check(
            LossScaling::Static { scale: -1.0 },
            "fp16.loss_scale must be >= 0 (0 enables dynamic loss scaling), got -1",
        );
        let when = "must be > 0 when dynamic loss scaling is enabled (loss_scale=0)";
        check(dynamic(|d| d.window = 0), &format!("fp16.loss_scale_window {when}"));
        check(dynamic(|d| d.hysteresis = 0), &format!("fp16.hysteresis {when}"));
        check(dynamic(|d| d.scale_min = 0.0), &format!("fp16.min_loss_scale {when}, got 0"));
        check(
            dynamic(|d| d.initial_power = 128),
            "fp16.initial_scale_power must be <= 127, got 128",
        );
    }

    #[test]
    fn state_of_another_kind_is_not_used() {
        let dynamic = LossScaling::Dynamic(DYNAMIC);
        let saved = LossScaler::new(LossScaling::Static { scale: 8.0 }).state();
        assert_eq!(LossScaler::resume(dynamic, saved), LossScaler::new(dynamic));
        let saved = LossScaler::new(dynamic).state();
        assert_eq!(LossScaler::resume(LossScaling::None, saved).scale().to_bits(), 1f64.to_bits());
    }

    /// The scale by DeepSpeed's own variables: iteration `i`, iteration of the last overflow.
    struct ByIterations {
        scale: f64,
        i: i64,
        last: i64,
        left: u32,
    }

    impl ByIterations {
        /// Whether training continues.
        fn step(&mut self, settings: &DynamicScaling, overflows: bool) -> bool {
            if overflows {
                if settings.hysteresis == 1 || self.left == 1 {
                    if self.scale <= settings.scale_min {
                        return false;
                    }
                    self.scale = (self.scale / 2.0).max(settings.scale_min);
                } else {
                    self.left -= 1;
                }
                self.last = self.i;
            } else {
                if settings.consecutive_hysteresis {
                    self.left = settings.hysteresis;
                }
                let stable = self.i - self.last - 1;
                if 0 < stable && stable % settings.window as i64 == 0 {
                    if !settings.consecutive_hysteresis {
                        self.left = settings.hysteresis;
                    }
                    self.scale *= 2.0;
                }
            }
            self.i += 1;
            true
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// For all settings and events, also if the state is saved and loaded at any step.
        #[test]
        fn dynamic_scale_follows_the_rules_of_deepspeed(
            settings in (0u32..20, 1u64..6, 1u32..4, any::<bool>()),
            events in proptest::collection::vec((proptest::bool::weighted(0.3), any::<bool>()), 0..80),
        ) {
            let (initial_power, window, hysteresis, consecutive_hysteresis) = settings;
            let settings = DynamicScaling {
                initial_power,
                window,
                hysteresis,
                consecutive_hysteresis,
                scale_min: 1.0,
            };
            let scaling = LossScaling::Dynamic(settings);
            let mut scaler = LossScaler::new(scaling);
            let scale = 2f64.powi(initial_power as i32);
            let mut rules = ByIterations { scale, i: 0, last: -1, left: hysteresis };
            for (overflows, is_saved) in events {
                let check = check_of(if overflows { 'X' } else { '.' });
                let continues = rules.step(&settings, overflows);
                prop_assert_eq!(step(&mut scaler, check).is_ok(), continues);
                if !continues {
                    break;
                }
                if is_saved {
                    let bytes = postcard::to_allocvec(&scaler.state()).expect("plain data");
                    let state = postcard::from_bytes(&bytes).expect("what was written");
                    scaler = LossScaler::resume(scaling, state);
                }
                prop_assert_eq!(scaler.scale().to_bits(), rules.scale.to_bits());
            }
        }
    }
}
