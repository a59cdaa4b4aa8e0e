//! [`Scalar`]: a number of a step with its name, in the names of remuda or of DeepSpeed.

use crate::train::options::ScalarNames;
use crate::train::report::progress::StepReport;

/// Number of a step, with the name under which charts show it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scalar {
    /// Name; parts before a `/` group charts.
    pub(crate) tag: String,
    pub(crate) value: f64,
}

/// Returns the numbers of a step that a reader of charts wants.
pub(crate) fn scalars_of(report: &StepReport, names: ScalarNames) -> Vec<Scalar> {
    match names {
        ScalarNames::Plain => plain(report),
        ScalarNames::DeepSpeed => of_deepspeed(report),
    }
}

fn plain(report: &StepReport) -> Vec<Scalar> {
    let StepReport { outcome, val_loss, skipped, items_per_s, unit, seconds, .. } = report;
    let rate = format!("train/{unit}_per_s");
    let always = [
        ("train/loss", f64::from(outcome.loss)),
        ("train/lr", outcome.rate),
        ("train/grad_norm", outcome.norm),
        ("train/skipped", *skipped as f64),
        (&rate, *items_per_s),
        ("seconds/data", seconds.data),
        ("seconds/forward", seconds.forward),
        ("seconds/backward", seconds.backward),
        ("seconds/step", seconds.step),
        ("seconds/eval", seconds.eval),
        ("seconds/save", seconds.save),
    ];
    let scale = report.scale().map(|scale| ("train/loss_scale", scale));
    let evaluated = val_loss.map(|loss| ("val/loss", loss));
    always.into_iter().chain(scale).chain(evaluated).map(scalar).collect()
}

fn of_deepspeed(report: &StepReport) -> Vec<Scalar> {
    let always = [("train_loss", f64::from(report.outcome.loss)), ("lr", report.outcome.rate)];
    let scale = report.scale().map(|scale| ("loss_scale", scale));
    let all = always.into_iter().chain(scale).map(scalar);
    all.map(|one| Scalar { tag: format!("Train/Samples/{}", one.tag), ..one }).collect()
}

fn scalar((tag, value): (&str, f64)) -> Scalar {
    Scalar { tag: tag.to_owned(), value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::report::progress::sample_report;

    #[track_caller]
    fn check(report: &StepReport, names: ScalarNames, expect: &str) {
        let shown =
            scalars_of(report, names).into_iter().map(|one| format!("{} {}", one.tag, one.value));
        assert_eq!(shown.collect::<Vec<_>>().join(", "), expect);
    }

    #[test]
    fn scalars_have_the_names_of_their_reader() {
        let report = sample_report();
        check(
            &report,
            ScalarNames::Plain,
            "train/loss 2.5, train/lr 0.0015, train/grad_norm 0.8125, train/skipped 3, \
             train/tokens_per_s 46080.4, seconds/data 0.5, seconds/forward 1, seconds/backward 2, \
             seconds/step 0.25, seconds/eval 0, seconds/save 0, train/loss_scale 1024, val/loss 2.75",
        );
        check(
            &report,
            ScalarNames::DeepSpeed,
            "Train/Samples/train_loss 2.5, Train/Samples/lr 0.0015, Train/Samples/loss_scale 1024",
        );
        let mut full = report;
        full.outcome.loss_scale = 1.0;
        check(
            &full,
            ScalarNames::DeepSpeed,
            "Train/Samples/train_loss 2.5, Train/Samples/lr 0.0015",
        );
    }
}
