//! The end of the Slurm job of which this process is a part.

use std::path::Path;
use std::time::Duration;

use crate::base::{clock, env_vars};
use crate::cli::resolve::program::search_path;
use crate::launch::AllocationEnd;
use crate::os::process::command_output::output_for_input;

/// Time limit for the answer of `squeue`.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Returns the end of the allocation, if there is one; the workers are asked to stop `lead` before it.
pub(in crate::cli) fn allocation_end(lead: Duration) -> Option<AllocationEnd> {
    let job = env_vars::get_text(env_vars::SLURM_JOB_ID).filter(|job| !job.is_empty())?;
    Some(AllocationEnd {
        name: format!("Slurm job {job}"),
        left: time_left_by_variable(),
        lead,
        // A command, which takes longer than a start. The limit of a job can be changed while it runs.
        ask: time_left_by_command,
    })
}

fn time_left_by_variable() -> Option<Duration> {
    let end = env_vars::get_of_slurm(env_vars::SLURM_JOB_END_TIME)?.parse().ok()?;
    Some(Duration::from_secs(end).saturating_sub(clock::wall()))
}

fn time_left_by_command() -> Option<Duration> {
    let job = env_vars::get_text(env_vars::SLURM_JOB_ID)?;
    let program = search_path("squeue")?;
    let arguments = ["-h", "-j", &job, "-o", "%A %L"];
    let answer = output_for_input(&program, &arguments, Path::new("/"), &[], ANSWER_LIMIT);
    left_of_job(&answer.ok()?, &job)
}

/// Finds the time left of a job in lines of numbers and times: for one task of a job array, whose number is also that of
/// the array, `squeue` lists all tasks.
fn left_of_job(answer: &str, job: &str) -> Option<Duration> {
    let rows = answer.lines().filter_map(|line| line.trim().split_once(' '));
    let (_, left) = rows.into_iter().find(|(number, _)| *number == job)?;
    parse_left(left.trim())
}

/// Parses a time as Slurm shows it: `DAYS-HH:MM:SS`, `HH:MM:SS`, `MM:SS`; `None` for `UNLIMITED` and other
/// words.
fn parse_left(text: &str) -> Option<Duration> {
    let (days, rest) = text.split_once('-').unwrap_or(("0", text));
    let mut seconds = 0;
    for part in rest.split(':') {
        seconds = seconds * 60 + part.parse::<u64>().ok()?;
    }
    Some(Duration::from_secs(days.parse::<u64>().ok()? * 86_400 + seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_of_a_job_array_has_a_row_among_others() {
        let answer = "62 30:00\n61 0:45\n63 1-00:00:00\n";
        assert_eq!(left_of_job(answer, "61"), Some(Duration::from_secs(45)));
        assert_eq!(left_of_job(answer, "6"), None);
        assert_eq!(left_of_job("61 UNLIMITED\n", "61"), None);
    }

    #[test]
    fn times_of_slurm_are_read() {
        let seconds = |text| parse_left(text).map(|left| left.as_secs());
        assert_eq!(seconds("59:30"), Some(3570));
        assert_eq!(seconds("1:00:05"), Some(3605));
        assert_eq!(seconds("2-01:00:00"), Some(2 * 86_400 + 3600));
        for other in ["UNLIMITED", "NOT_SET", "INVALID", ""] {
            assert_eq!(seconds(other), None, "{other}");
        }
    }
}
