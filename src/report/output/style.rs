//! Format of a job's output, and where it is kept.

use std::path::PathBuf;

use super::redirects::Redirects;
use crate::base::Rank;
use crate::report::logs::{LogRetention, RankFiles};
use crate::report::terminal::Terminal;
use crate::report::text::MessageLevel;

/// Format of the lines, and where they are kept.
#[derive(Clone, Debug)]
pub struct Style {
    /// Prefix of every line; `{host}`, `{rank}`, `{local_rank}`, `{stream}` are replaced. `None`:
    /// `host:rank │ `, aligned, for a job of several workers.
    pub prefix: Option<String>,
    /// The worker with output shown byte for byte, without a prefix, so that prompts and progress
    /// bars work.
    pub solo: Option<Rank>,
    /// Directory of the per-rank files.
    pub log_dir: Option<PathBuf>,
    /// How much of the files is kept.
    pub retention: LogRetention,
    /// Files that receive the workers' output instead of the screen.
    pub rank_files: Option<RankFiles>,
    /// Files for single streams, and the streams that the screen shows; `None`: all are shown.
    pub redirects: Option<Redirects>,
    /// Whether output is kept and shown at the end, once for all workers with the same output.
    pub gather: bool,
    /// Whether a worker that reports the loss of a peer is hidden from then on: its output only
    /// repeats that.
    pub hide_after_peer_loss: bool,
    /// The least severe messages about the progress of the job that are shown.
    pub least_message: MessageLevel,
    /// What kind of file the standard descriptors are.
    pub terminal: Terminal,
}
