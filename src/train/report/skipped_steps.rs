//! [`SkippedSteps`]: steps that have not changed the parameters, and what they mean for a run. Pure.

use crate::runtime::optim::LossScaling;

/// Number of steps one after the other that are skipped before the run ends, if the scale of the loss cannot adapt: one
/// bad batch is no reason to end, but the parameters of such steps are the same, and so are their gradients.
pub(in crate::train) const SKIPPED_IN_ROW_MAX: u64 = 10;

/// Steps that were skipped because a gradient was not finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SkippedSteps {
    /// Number of skipped steps, at least 1.
    pub skipped: u64,
    /// Number of all steps of this run.
    pub steps: u64,
    /// Number of the last steps that were skipped one after the other; 0 if the last step was not.
    pub in_row: u64,
    /// How the loss is scaled.
    pub scaling: LossScaling,
    /// Scale of the loss in the next step.
    pub scale: f64,
}

/// What skipped steps mean for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipLevel {
    /// The run has learned.
    Note,
    /// Its last steps, or all of them while the scale of the loss adapts, have changed nothing.
    Warning,
    /// It has learned nothing, or learns nothing any more.
    Error,
}

impl SkippedSteps {
    /// Returns what the steps mean for the run.
    pub fn level(&self) -> SkipLevel {
        let Self { skipped, steps, in_row, scaling, .. } = self;
        let has_all = skipped == steps;
        match scaling {
            LossScaling::Dynamic(_) if has_all => SkipLevel::Warning,
            LossScaling::Dynamic(_) => SkipLevel::Note,
            LossScaling::None | LossScaling::Static { .. } => match in_row {
                0 => SkipLevel::Note,
                _ if has_all || SKIPPED_IN_ROW_MAX <= *in_row => SkipLevel::Error,
                _ => SkipLevel::Warning,
            },
        }
    }

    /// Returns how many steps were skipped, and why.
    pub fn message(&self) -> String {
        let Self { skipped, steps, in_row, scaling, scale } = self;
        let scale = show_scale(*scale);
        let why = match scaling {
            LossScaling::None => "their gradients are not finite".to_owned(),
            LossScaling::Static { .. } => format!("their gradients overflow at loss scale {scale}"),
            LossScaling::Dynamic(_) => {
                format!("their gradients overflow; the loss scale is {scale} now")
            }
        };
        if skipped < steps {
            let last = match in_row {
                0 => String::new(),
                1 => ", the last one too".to_owned(),
                _ => format!(", the last {in_row} one after the other"),
            };
            return format!("{skipped} of {steps} steps were skipped{last}: {why}");
        }
        let all = if *steps == 1 {
            "the only step was".to_owned()
        } else {
            format!("all {steps} steps were")
        };
        format!("{all} skipped, and the parameters are unchanged: {why}")
    }

    /// Returns what the user can do.
    pub fn help(&self) -> &'static str {
        match self.scaling {
            LossScaling::None if self.skipped < self.steps => {
                "give a smaller `--lr`, and continue from a checkpoint before the first skipped step"
            }
            LossScaling::None => "give a smaller `--lr`, or compute in fp32 (`--precision fp32`)",
            LossScaling::Static { .. } => {
                "write a smaller `loss_scale` in `fp16` of `--deepspeed_config`, or 0 for one that adapts; or \
                 compute in bf16 (`--precision bf16`)"
            }
            LossScaling::Dynamic(_) => {
                "each further overflow halves the scale: give more `--steps`, or a smaller \
                 `initial_scale_power` in `fp16` of `--deepspeed_config`; or compute in bf16 (`--precision bf16`)"
            }
        }
    }
}

/// A loss scale; a large one with an exponent.
pub(in crate::train) fn show_scale(scale: f64) -> String {
    if scale < 1e9 { scale.to_string() } else { format!("{scale:.2e}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::optim::DynamicScaling;

    /// Skipped steps of all steps, with the number of those at the end.
    #[track_caller]
    fn check_skipped(counts: [u64; 3], scaling: LossScaling, level: SkipLevel, expected: &str) {
        let [skipped, steps, in_row] = counts;
        let shown = SkippedSteps { skipped, steps, in_row, scaling, scale: 512.0 };
        assert_eq!((shown.level(), &*shown.message()), (level, expected));
    }

    #[test]
    fn skipped_steps_are_counted_and_told_by_what_they_mean() {
        use SkipLevel::{Error, Note, Warning};
        let dynamic = LossScaling::Dynamic(DynamicScaling::default());
        let overflow = "their gradients overflow; the loss scale is 512 now";
        check_skipped([2, 9, 0], dynamic, Note, &format!("2 of 9 steps were skipped: {overflow}"));
        let last = format!("2 of 9 steps were skipped, the last 2 one after the other: {overflow}");
        check_skipped([2, 9, 2], dynamic, Note, &last);
        let all = format!("all 9 steps were skipped, and the parameters are unchanged: {overflow}");
        check_skipped([9, 9, 9], dynamic, Warning, &all);
        let only = "the only step was skipped, and the parameters are unchanged: their gradients overflow at loss \
                    scale 512";
        check_skipped([1, 1, 1], LossScaling::Static { scale: 512.0 }, Error, only);
        let finite = "their gradients are not finite";
        let check = |counts, level, begin: &str| {
            check_skipped(counts, LossScaling::None, level, &format!("{begin}: {finite}"));
        };
        check([3, 9, 0], Note, "3 of 9 steps were skipped");
        check([3, 9, 1], Warning, "3 of 9 steps were skipped, the last one too");
        check([3, 9, 3], Warning, "3 of 9 steps were skipped, the last 3 one after the other");
        check([12, 19, 10], Error, "12 of 19 steps were skipped, the last 10 one after the other");
        check([2, 2, 2], Error, "all 2 steps were skipped, and the parameters are unchanged");
    }
}
