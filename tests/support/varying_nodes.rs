//! Jobs whose number of nodes varies: workers that say which attempt they belong to, and the launcher's lines about
//! who takes part.

use std::path::Path;

use super::launch::{Outcome, Running};

/// A worker that prints its rank and the attempt, and ends with 0 when a file exists.
pub(crate) fn worker_until(end: &Path) -> String {
    format!(
        "echo attempt=$TORCHELASTIC_RESTART_COUNT rank=$RANK/$WORLD_SIZE at=$MASTER_ADDR; \
         while ! test -e '{}'; do sleep 0.05; done",
        end.display()
    )
}

/// Waits for the first lines of this many workers of an attempt.
pub(crate) fn wait_for_workers(job: &Running, attempt: usize, count: usize) {
    job.wait_for_lines(&format!("attempt={attempt} "), count);
}

/// Lines about who takes part, without the names of the hosts.
pub(crate) fn members(outcome: &Outcome) -> Vec<String> {
    let lines = outcome.stderr.lines().filter(|line| line.starts_with("     Nodes"));
    let without_names = |line: &str| {
        let (count, rest) = line.split_once(": ").expect("the line names the hosts");
        format!("{count}{}", after_names(rest))
    };
    lines.map(without_names).collect()
}

/// What follows `n1, n2`: limits in parentheses, or a remark after a semicolon.
fn after_names(text: &str) -> &str {
    let end = [text.find(" ("), text.find(';')].into_iter().flatten().min();
    end.map_or("", |end| &text[end..])
}
