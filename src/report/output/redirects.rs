//! Streams of workers that go to files of their own, to the screen, or to both: torchrun's
//! `--redirects`, `--tee` and `--local-ranks-filter`.

use std::collections::{BTreeMap, BTreeSet};

use super::prefix_text::WorkerLabel;
use crate::base::LocalRank;
use crate::report::logs::{AttemptDir, AttemptPlace};
use crate::wire::Stream;

/// Some of the two streams of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputStreams {
    /// No stream.
    #[default]
    None,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Standard output and standard error.
    Both,
}

impl OutputStreams {
    /// Whether the stream is one of them.
    pub fn includes(self, stream: Stream) -> bool {
        match self {
            Self::None => false,
            Self::Stdout => stream == Stream::Stdout,
            Self::Stderr => stream == Stream::Stderr,
            Self::Both => true,
        }
    }
}

/// Streams of the workers of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamSet {
    /// The same of every worker.
    Every(OutputStreams),
    /// Those of some workers, by their ranks on the node; no stream of others.
    Some(BTreeMap<u32, OutputStreams>),
}

impl StreamSet {
    fn includes(&self, worker: LocalRank, stream: Stream) -> bool {
        match self {
            Self::Every(streams) => streams.includes(stream),
            Self::Some(streams) => {
                streams.get(&worker.0).is_some_and(|streams| streams.includes(stream))
            }
        }
    }

    /// Whether no stream of any worker is in the set.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Every(streams) => *streams == OutputStreams::None,
            Self::Some(streams) => streams.values().all(|streams| *streams == OutputStreams::None),
        }
    }
}

/// Where the streams of workers go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirects {
    /// Directory of the files.
    pub directory: AttemptDir,
    /// Streams that go to their files and not to the screen.
    pub redirected: StreamSet,
    /// Streams that go to their files and, with a prefix, to the screen.
    pub tee: StreamSet,
    /// Prefix of the lines of these streams on the screen.
    pub tee_prefix: String,
    /// Prefix of their lines in the files of a node.
    pub file_prefix: String,
    /// Ranks on each node whose output the screen shows; `None`: all.
    pub shown: Option<BTreeSet<u32>>,
    /// Texts of the lines of `tee` that are copied to a file for all workers of a node.
    pub stdout_filters: Vec<String>,
    /// The same for standard error.
    pub stderr_filters: Vec<String>,
}

/// Where a stream goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamPlace {
    pub(super) is_shown: bool,
    /// Whether its lines on the screen have the prefix of `--tee`.
    pub(super) has_tee_prefix: bool,
    pub(super) has_file: bool,
}

impl Redirects {
    /// Where a stream of a worker goes.
    pub(super) fn place(&self, worker: &WorkerLabel, stream: Stream) -> StreamPlace {
        let rank = worker.local_rank;
        let has_tee = self.tee.includes(rank, stream);
        let is_redirected = self.redirected.includes(rank, stream);
        let passes = self.shown.as_ref().is_none_or(|shown| shown.contains(&rank.0));
        StreamPlace {
            is_shown: passes && (has_tee || !is_redirected),
            has_tee_prefix: has_tee,
            has_file: has_tee || is_redirected,
        }
    }

    /// Texts of the lines of a stream that are copied; empty if the worker's lines are not.
    pub(super) fn filters(&self, worker: &WorkerLabel, stream: Stream) -> &[String] {
        let place = self.place(worker, stream);
        match stream {
            _ if !(place.has_tee_prefix && place.is_shown) => &[],
            Stream::Stdout => &self.stdout_filters,
            Stream::Stderr => &self.stderr_filters,
        }
    }

    /// The worker among the files.
    pub(super) fn worker(label: &WorkerLabel) -> AttemptPlace {
        AttemptPlace { node: label.node, local_rank: label.local_rank }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{HostName, NodeRank, Rank};

    fn label(local_rank: u32) -> WorkerLabel {
        WorkerLabel {
            rank: Rank(local_rank),
            job_rank: Rank(local_rank),
            local_rank: LocalRank(local_rank),
            node: NodeRank(0),
            host: HostName::parse("n1").expect("a name"),
        }
    }

    #[test]
    fn streams_go_to_files_and_screens_as_under_torchrun() {
        let redirects = Redirects {
            directory: AttemptDir::of_run("/logs".into(), false),
            redirected: StreamSet::Some(
                [(0, OutputStreams::Both), (1, OutputStreams::Stdout)].into(),
            ),
            tee: StreamSet::Every(OutputStreams::Stderr),
            tee_prefix: String::new(),
            file_prefix: String::new(),
            shown: Some([0, 2].into()),
            stdout_filters: vec!["x".to_owned()],
            stderr_filters: vec!["y".to_owned()],
        };
        let place = |rank, stream| {
            let place = redirects.place(&label(rank), stream);
            (place.is_shown, place.has_tee_prefix, place.has_file)
        };
        assert_eq!(place(0, Stream::Stdout), (false, false, true), "redirected");
        assert_eq!(place(0, Stream::Stderr), (true, true, true), "both: the screen as well");
        assert_eq!(place(1, Stream::Stderr), (false, true, true), "filtered");
        assert_eq!(place(2, Stream::Stdout), (true, false, false), "neither");
        assert_eq!(redirects.filters(&label(0), Stream::Stderr), ["y"]);
        assert!(redirects.filters(&label(0), Stream::Stdout).is_empty(), "no --tee");
        assert!(redirects.filters(&label(1), Stream::Stderr).is_empty(), "not shown");
        assert!(!redirects.tee.is_empty() && StreamSet::Every(OutputStreams::None).is_empty());
    }
}
