//! Prefix of the lines of a worker.

use anstyle::AnsiColor;

use crate::base::{HostName, LocalRank, NodeRank, Rank};
use crate::report::diagnostic::Paint;
use crate::report::terminal::Charset;
use crate::wire::Stream;

/// The facts about a worker that its line prefix shows.
#[derive(Clone, Debug)]
pub struct WorkerLabel {
    /// Rank under which the output is received.
    pub rank: Rank,
    /// Its rank in the job.
    pub job_rank: Rank,
    /// Its rank on the node.
    pub local_rank: LocalRank,
    /// Node of the worker.
    pub node: NodeRank,
    /// The node's name.
    pub host: HostName,
}

pub(super) fn default_name(label: &WorkerLabel) -> String {
    format!("{}:{}", label.host, label.job_rank)
}

/// The placeholders that a template of a prefix may contain.
pub const PLACEHOLDERS: [&str; 4] = ["{host}", "{rank}", "{local_rank}", "{stream}"];

/// The first unknown `{name}` of a template, and its position.
pub fn unknown_placeholder(template: &str) -> Option<(usize, &str)> {
    let names = template.match_indices('{').filter_map(|(at, _)| {
        let name = &template[at..=at + template[at..].find('}')?];
        Some((at, name))
    });
    let is_name =
        |name: &str| name[1..name.len() - 1].chars().all(|c| c.is_alphanumeric() || c == '_');
    names.into_iter().find(|(_, name)| is_name(name) && !PLACEHOLDERS.contains(name))
}

/// The prefix of a stream's lines; names fill a column of `width`.
pub(super) fn prefix(
    label: &WorkerLabel,
    stream: Stream,
    template: Option<&str>,
    (width, charset): (usize, Charset),
) -> String {
    match template {
        None => format!("{:width$} {} ", default_name(label), charset.separator()),
        Some(template) => template
            .replace("{host}", label.host.as_str())
            .replace("{rank}", &label.job_rank.to_string())
            .replace("{local_rank}", &label.local_rank.to_string())
            .replace("{stream}", &stream.to_string()),
    }
}

/// The prefix in the colour of its node, so that the lines of one host are easy to find.
pub(super) fn paint_prefix(prefix: String, node: NodeRank, paint: Paint) -> String {
    const COLOURS: [AnsiColor; 6] = [
        AnsiColor::Cyan,
        AnsiColor::Yellow,
        AnsiColor::Green,
        AnsiColor::Magenta,
        AnsiColor::Blue,
        AnsiColor::Red,
    ];
    if paint == Paint::Plain || prefix.is_empty() {
        return prefix;
    }
    let style = COLOURS[node.index() % COLOURS.len()].on_default();
    format!("{style}{prefix}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_has_node_colour_on_terminals_only() {
        let prefix = || "w:0 │ ".to_owned();
        assert_eq!(paint_prefix(prefix(), NodeRank(0), Paint::Plain), "w:0 │ ");
        assert_eq!(paint_prefix(prefix(), NodeRank(0), Paint::Colour), "\x1b[36mw:0 │ \x1b[0m");
        assert_ne!(
            paint_prefix(prefix(), NodeRank(0), Paint::Colour),
            paint_prefix(prefix(), NodeRank(1), Paint::Colour)
        );
        assert_eq!(paint_prefix(String::new(), NodeRank(0), Paint::Colour), "");
    }

    #[test]
    fn unknown_placeholder_is_found() {
        #[track_caller]
        fn check(template: &str, expect: Option<(usize, &str)>) {
            assert_eq!(unknown_placeholder(template), expect, "{template}");
        }
        check("", None);
        check("[{host} {rank}.{local_rank} {stream}] ", None);
        check("{host} {foo}", Some((7, "{foo}")));
        check("ö{}", Some((2, "{}")));
        check("{ a set }", None);
        check("{rank", None);
        check("{{rank}}", None);
    }

    #[test]
    fn prefix_template_is_filled_in() {
        let host = HostName::parse("n3").expect("a name");
        let (rank, local_rank, node) = (Rank(7), LocalRank(1), NodeRank(3));
        let label = WorkerLabel { rank, job_rank: rank, local_rank, node, host };
        let fill = |template| prefix(&label, Stream::Stderr, Some(template), (0, Charset::Utf8));
        assert_eq!(fill("[{host} {rank}.{local_rank} {stream}] "), "[n3 7.1 stderr] ");
        assert_eq!(prefix(&label, Stream::Stdout, None, (6, Charset::Utf8)), "n3:7   │ ");
        assert_eq!(prefix(&label, Stream::Stdout, None, (6, Charset::Ascii)), "n3:7   | ");
    }
}
