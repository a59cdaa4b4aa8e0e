//! The last screen of a failed job, which ends with the first failure.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::neutral::escape_control_into;
use crate::base::Rank;
use crate::wire::Stream;

/// The content of the screen.
#[derive(Clone, Debug, Default)]
pub struct Failure {
    /// Stable code, `R101`.
    pub code: &'static str,
    /// The failure in one line.
    pub title: String,
    /// Facts, one per line.
    pub facts: Vec<String>,
    /// The last lines of the worker.
    pub last_lines: Option<(Stream, Vec<Vec<u8>>)>,
    /// The worker whose last lines these are, if it is another one than that of the title.
    pub lines_of: Option<Rank>,
    /// File with all output of the worker.
    pub log: Option<PathBuf>,
    /// Commands that help.
    pub help: Vec<String>,
}

/// The screen that shows a report. Its files and earlier lines are those of node 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportScreen {
    /// That of node 0, or of the launcher.
    Node0,
    /// That of another node, where the files and lines do not exist.
    OtherNode,
}

/// Formats the screen.
pub fn show_failure(failure: &Failure, screen: ReportScreen) -> String {
    let mut out = format!("error[{}]: {}\n", failure.code, failure.title);
    for fact in &failure.facts {
        let _ = writeln!(out, "  {fact}");
    }
    if let Some((stream, lines)) = &failure.last_lines {
        let whose =
            failure.lines_of.map_or_else(|| "its".to_owned(), |rank| format!("rank {rank}'s"));
        let _ = writeln!(out, "  last lines of {whose} {stream}:");
        for line in lines {
            let mut shown = Vec::new();
            escape_control_into(&mut shown, line);
            let _ = writeln!(out, "    | {}", String::from_utf8_lossy(&shown));
        }
    }
    if let Some(log) = &failure.log {
        let label = match screen {
            ReportScreen::Node0 => "log",
            ReportScreen::OtherNode => "log on node 0",
        };
        let _ = writeln!(out, "  {label}: {}", log.display());
    }
    for help in &failure.help {
        let _ = writeln!(out, "help: {help}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_output_cannot_imitate_remuda() {
        let failure = Failure {
            code: "R101",
            title: "rank 1 failed".to_owned(),
            last_lines: Some((Stream::Stderr, vec![b"\x1b[2Kerror: no".to_vec()])),
            ..Failure::default()
        };
        assert_eq!(
            show_failure(&failure, ReportScreen::Node0),
            "error[R101]: rank 1 failed\n  last lines of its stderr:\n    | \\x1b[2Kerror: no\n"
        );
    }

    #[test]
    fn other_nodes_see_the_output_of_workers_unchanged() {
        let lines =
            ["the traceback is above", "/r/run.json has the cause of each", "  log: /tmp/a"];
        let failure = Failure {
            code: "R101",
            title: "rank 1 failed".to_owned(),
            last_lines: Some((Stream::Stdout, lines.map(Into::into).to_vec())),
            log: Some("/r/rank1.stdout".into()),
            ..Failure::default()
        };
        assert_eq!(
            show_failure(&failure, ReportScreen::OtherNode),
            "error[R101]: rank 1 failed\n  last lines of its stdout:\n    | the traceback is above\n    \
             | /r/run.json has the cause of each\n    |   log: /tmp/a\n  log on node 0: /r/rank1.stdout\n"
        );
    }
}
