//! State of one stream of a worker: its lines, and the end that is kept.

use super::lines::{Bars, ControlChars, LineCutter};
use super::prefix::{WorkerLabel, paint_prefix, prefix};
use super::style::Style;
use super::tail::Tail;
use crate::base::clock;
use crate::report::terminal::{RedrawableRows, StatusPlace};
use crate::wire::Stream;

pub(super) struct StreamBuffer {
    pub(super) format: LineFormat,
    pub(super) tail: Tail,
    /// Whether there is a file for the stream.
    pub(super) is_kept: bool,
    /// Length of the stream when bytes of it were last hidden from the screen.
    pub(super) hidden_until: u64,
    /// Value of `OutputRouter::shown_bytes` when bytes of it were last shown.
    pub(super) shown_until: u64,
}

pub(super) enum LineFormat {
    /// Whole lines, so that the lines of several workers do not mix.
    Lines(LineCutter),
    /// Bytes as they are received.
    Bytes,
}

impl StreamBuffer {
    /// Makes the state of a stream; names fill a column of `width`.
    pub(super) fn new(label: &WorkerLabel, stream: Stream, style: &Style, width: usize) -> Self {
        let (terminal, paint) = match stream {
            Stream::Stdout => (style.terminal.stdout, style.terminal.stdout_paint),
            Stream::Stderr => (style.terminal.stderr, style.terminal.paint),
        };
        let format = if style.solo == Some(label.rank) {
            LineFormat::Bytes
        } else {
            let charset = style.terminal.charset;
            let prefix = prefix(label, stream, style.prefix.as_deref(), (width, charset));
            let prefix = paint_prefix(prefix, label.node, paint).into_bytes();
            let control_chars = if terminal { ControlChars::Escaped } else { ControlChars::Raw };
            let has_status = terminal && style.terminal.status != StatusPlace::Nowhere;
            let bars = if has_status { Bars::InStatus } else { Bars::AtIntervals };
            LineFormat::Lines(LineCutter::new(prefix, control_chars, bars, charset))
        };
        let is_kept = style.log_dir.is_some();
        Self { format, tail: Tail::default(), is_kept, hidden_until: 0, shown_until: 0 }
    }
}

impl LineFormat {
    pub(super) fn show(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Lines(cutter) => cutter.push(clock::now(), bytes, out),
            Self::Bytes => out.extend_from_slice(bytes),
        }
    }

    /// The part of the stream that the status area may show.
    pub(super) fn redrawable_rows(&self) -> Option<RedrawableRows> {
        let Self::Lines(cutter) = self else { return None };
        let (rows, prompt) = (cutter.bar_rows(), cutter.prompt());
        let is_any = !rows.is_empty() || prompt.is_some();
        is_any.then(|| RedrawableRows { prefix: cutter.prefix().to_vec(), rows, prompt })
    }

    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Lines(cutter) => cutter.finish(out),
            Self::Bytes => {}
        }
    }
}
