//! [`LossScaler`]: the factor of the loss that keeps 16-bit gradients in their range. Pure.
//!
//! The scale that multiplied the loss of a step is the scale that divides its gradients: a step reads
//! [`LossScaler::scale`] once, and the scale changes only afterwards, by [`LossScaler::on_step`].

use serde::{Deserialize, Serialize};

/// Way to choose the scale.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LossScaling {
    /// The loss is not scaled.
    #[default]
    None,
    /// The same scale always.
    Static(f64),
    /// A scale that is halved after an overflow, and doubled after a series of steps without one.
    Dynamic(DynamicScale),
}

/// Settings of a dynamic scale, with the names and defaults of DeepSpeed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DynamicScale {
    /// Exponent of the first scale, a power of two.
    pub initial_power: u32,
    /// Number of steps without an overflow after which the scale is doubled.
    pub window: u64,
    /// Number of overflows until the scale is halved.
    pub hysteresis: u64,
    /// Whether a step without an overflow restores the number of overflows.
    pub is_consecutive: bool,
    /// Smallest scale.
    pub min: f64,
}

impl Default for DynamicScale {
    fn default() -> Self {
        Self { initial_power: 16, window: 1000, hysteresis: 2, is_consecutive: false, min: 1.0 }
    }
}

/// The scale and what its next value depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScaler {
    scale: f64,
    dynamic: Option<DynamicState>,
}

/// State of a dynamic scale, as DeepSpeed counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct DynamicState {
    settings: DynamicScale,
    /// Steps since the last overflow, or since the first step.
    clean: u64,
    /// Overflows that are left until the scale is halved.
    left: u64,
}

/// An overflow at the smallest scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the loss scale is at its minimum")]
pub struct ScaleAtMinimum;

impl LossScaler {
    /// Creates a scale before the first step.
    pub fn new(scaling: &LossScaling) -> Self {
        match *scaling {
            LossScaling::None => Self { scale: 1.0, dynamic: None },
            LossScaling::Static(scale) => Self { scale, dynamic: None },
            LossScaling::Dynamic(settings) => Self {
                scale: f64::from(settings.initial_power).exp2(),
                dynamic: Some(DynamicState {
                    settings,
                    clean: 0,
                    left: settings.hysteresis.max(1),
                }),
            },
        }
    }

    /// Returns the scale of the current step.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Chooses the scale of the next step.
    ///
    /// # Errors
    /// If gradients overflowed at the smallest scale.
    pub fn on_step(&mut self, has_overflowed: bool) -> Result<(), ScaleAtMinimum> {
        let Some(DynamicState { settings, clean, left }) = &mut self.dynamic else { return Ok(()) };
        if has_overflowed {
            *clean = 0;
            if 1 < *left {
                *left -= 1;
                return Ok(());
            }
            if self.scale <= settings.min {
                return Err(ScaleAtMinimum);
            }
            self.scale = (self.scale / 2.0).max(settings.min);
            return Ok(());
        }
        if settings.is_consecutive {
            *left = settings.hysteresis.max(1);
        }
        // DeepSpeed looks at the count before the step, so the scale grows one step later than the window
        // says; after an overflow the overflow itself is the first step of the count.
        if 0 < *clean && clean.is_multiple_of(settings.window.max(1)) {
            self.scale *= 2.0;
            *left = settings.hysteresis.max(1);
        }
        *clean += 1;
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "scales are exact")]
mod tests {
    use super::*;

    const EVENTS: &str = "..........X.....X.X.....XX......";

    /// Scales after every step, in units of 65,536.
    fn scales(settings: DynamicScale) -> Vec<f64> {
        let mut scaler = LossScaler::new(&LossScaling::Dynamic(settings));
        let step = |event| {
            scaler.on_step(event == 'X').expect("far above the minimum");
            scaler.scale() / 65_536.0
        };
        EVENTS.chars().map(step).collect()
    }

    #[track_caller]
    fn check(settings: DynamicScale, expected: &str) {
        let expected: Vec<f64> =
            expected.split_whitespace().map(|scale| scale.parse().expect("a number")).collect();
        assert_eq!(scales(settings), expected);
    }

    /// Scales of DeepSpeed 0.19.8 with ZeRO, window 4.
    #[test]
    fn dynamic_scale_matches_deepspeed() {
        let settings = DynamicScale { window: 4, ..DynamicScale::default() };
        check(settings, "1 1 1 1 2 2 2 2 4 4 4 4 4 4 4 8 8 8 4 4 4 4 4 8 8 4 4 4 4 4 8 8");
        check(
            DynamicScale { is_consecutive: true, ..settings },
            "1 1 1 1 2 2 2 2 4 4 4 4 4 4 4 8 8 8 8 8 8 8 8 16 16 8 8 8 8 8 16 16",
        );
        check(
            DynamicScale { hysteresis: 1, ..settings },
            "1 1 1 1 2 2 2 2 4 4 2 2 2 2 2 4 2 2 1 1 1 1 1 2 1 0.5 0.5 0.5 0.5 0.5 1 1",
        );
    }

    #[test]
    fn overflow_at_the_smallest_scale_is_an_error() {
        let settings = DynamicScale { initial_power: 2, hysteresis: 1, ..DynamicScale::default() };
        let mut scaler = LossScaler::new(&LossScaling::Dynamic(settings));
        assert_eq!(scaler.on_step(true), Ok(()));
        assert_eq!(scaler.on_step(true), Ok(()));
        assert_eq!((scaler.scale(), scaler.on_step(true)), (1.0, Err(ScaleAtMinimum)));
    }

    #[test]
    fn static_scale_never_changes() {
        let mut scaler = LossScaler::new(&LossScaling::Static(24.0));
        for overflows in [true, false, true] {
            assert_eq!(scaler.on_step(overflows), Ok(()));
            assert_eq!(scaler.scale(), 24.0);
        }
    }

    #[test]
    fn scaler_is_saved_with_its_count() {
        let settings = DynamicScale { window: 4, ..DynamicScale::default() };
        let mut scaler = LossScaler::new(&LossScaling::Dynamic(settings));
        for event in EVENTS.chars() {
            let saved = serde_json::to_string(&scaler).expect("numbers are JSON");
            let mut again: LossScaler = serde_json::from_str(&saved).expect("as saved");
            scaler.on_step(event == 'X').expect("far above the minimum");
            again.on_step(event == 'X').expect("as above");
            assert_eq!(again, scaler);
        }
    }
}
