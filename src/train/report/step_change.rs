//! [`StepChange`]: how the steps of a run that resumes differ from those of its checkpoint.

use std::fmt;

use crate::runtime::checkpoint::{DataPosition, SavedState};

/// Largest number of possible numbers of workers that the help lists.
const LISTED_MAX: u64 = 8;

/// Samples of a step before and after a resume. Its text is the end of the line about the resume: nothing
/// if all is as before, and a warning if the number of workers changed the number of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepChange {
    /// Samples of the steps so far, if they are known.
    pub before: Option<DataPosition>,
    /// Samples of the following steps.
    pub now: DataPosition,
    /// Number of workers so far, if it is known.
    pub workers_before: Option<u64>,
    /// Number of workers now, at least 1.
    pub workers: u64,
}

impl StepChange {
    /// Compares the steps of a checkpoint with those of a run of `workers` workers.
    pub(crate) fn between(saved: &SavedState, now: DataPosition, workers: usize) -> Self {
        Self {
            before: saved.data,
            now,
            workers_before: saved.division.as_ref().map(|division| division.world_size),
            workers: workers.max(1) as u64,
        }
    }

    /// Shows samples of a step that are divided in the same way, or in another way.
    fn show_division(&self, before: DataPosition, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (now, samples) = (self.now, self.now.samples_per_step());
        if now.lanes != before.lanes {
            let ((all, each), (all_before, each_before)) =
                ((now.lanes, now.batch_size), (before.lanes, before.batch_size));
            return write!(
                f,
                "; a step has {all} × {each} samples now, {all_before} × {each_before} before"
            );
        }
        match self.workers_before {
            Some(workers) if workers != self.workers => {
                let each = now.lanes / self.workers;
                write!(f, "; gradient accumulation {each} keeps the {samples} samples of a step")
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The help of the warning: what keeps the number of samples of a step.
    fn show_help(&self, before: DataPosition, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (samples, workers) = (before.samples_per_step(), self.workers);
        write!(f, "\nhelp: to keep {samples} samples: {}", workers_for(before.lanes))?;
        if samples.is_multiple_of(workers) {
            write!(f, ", or `--accumulate 1 --batch_size {}`", samples / workers)?;
        }
        write!(
            f,
            "; if a run begins with `--lanes N`, the samples of a step stay the same with every number of \
             workers that divides N"
        )
    }
}

/// The numbers of workers that can divide the micro-batches of a step evenly.
fn workers_for(lanes: u64) -> String {
    let all = (1..=lanes.min(1 << 16)).filter(|count| lanes.is_multiple_of(*count));
    let shown: Vec<String> = all.take(LISTED_MAX as usize).map(|count| count.to_string()).collect();
    match shown.split_last() {
        Some((_, [])) | None => "1 worker".to_owned(),
        Some((last, others)) => format!("{} or {last} workers", others.join(", ")),
    }
}

impl fmt::Display for StepChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(before) = self.before else { return Ok(()) };
        let (now, workers) = (self.now, self.workers);
        if now.seed != before.seed {
            write!(f, "; seed {} now, {} before", now.seed, before.seed)?;
        }
        let (samples, samples_before) = (now.samples_per_step(), before.samples_per_step());
        if samples == samples_before {
            return self.show_division(before, f);
        }
        let change = format!("a step has {samples} samples now, {samples_before} before");
        if before.lanes.is_multiple_of(workers) {
            return write!(f, "; {change}");
        }
        let batches = if before.lanes == 1 { "micro-batch" } else { "micro-batches" };
        let lanes = before.lanes;
        write!(
            f,
            "\nwarning: {change}: {lanes} {batches} cannot be divided among {workers} workers"
        )?;
        self.show_help(before, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(lanes: u64, batch_size: u64) -> DataPosition {
        DataPosition { lanes, batch_size, seed: 5, samples: None, fingerprint: None }
    }

    #[track_caller]
    fn check(before: DataPosition, now: DataPosition, workers: [u64; 2], expected: &str) {
        let [workers_before, workers] = workers;
        let change =
            StepChange { before: Some(before), now, workers_before: Some(workers_before), workers };
        assert_eq!(change.to_string(), expected);
    }

    #[test]
    fn changes_of_a_step_have_their_text() {
        check(steps(2, 12), steps(2, 12), [2, 2], "");
        check(
            steps(3, 12),
            steps(3, 12),
            [3, 1],
            "; gradient accumulation 3 keeps the 36 samples of a step",
        );
        check(steps(2, 12), steps(3, 8), [2, 3], "; a step has 3 × 8 samples now, 2 × 12 before");
        check(steps(2, 12), steps(2, 6), [2, 2], "; a step has 12 samples now, 24 before");
        check(
            steps(2, 12),
            DataPosition { seed: 6, ..steps(2, 12) },
            [2, 2],
            "; seed 6 now, 5 before",
        );
        check(
            steps(2, 12),
            steps(3, 12),
            [2, 3],
            "\nwarning: a step has 36 samples now, 24 before: 2 micro-batches cannot be divided among \
             3 workers\nhelp: to keep 24 samples: 1 or 2 workers, or `--accumulate 1 --batch_size 8`; if a run \
             begins with `--lanes N`, the samples of a step stay the same with every number of workers that \
             divides N",
        );
        check(
            steps(1, 4),
            steps(3, 4),
            [1, 3],
            "\nwarning: a step has 12 samples now, 4 before: 1 micro-batch cannot be divided among \
             3 workers\nhelp: to keep 4 samples: 1 worker; if a run begins with `--lanes N`, the samples of \
             a step stay the same with every number of workers that divides N",
        );
    }
}
