//! State of one stream of a worker: its lines, and the end that is kept.

use super::line_filter::LineFilter;
use super::prefix_text::{WorkerLabel, paint_prefix, prefix};
use super::prefixed_lines::{Bars, ControlChars, LineCutter};
use super::style::Style;
use super::tail::Tail;
use crate::base::{NodeRank, clock};
use crate::report::terminal::{RedrawableRows, StatusPlace};
use crate::wire::Stream;

pub(super) struct StreamBuffer {
    pub(super) format: LineFormat,
    pub(super) tail: Tail,
    /// Whether there is a file for the stream.
    pub(super) is_kept: bool,
    /// Whether its file exists from the start, also without output.
    pub(super) has_redirect: bool,
    /// Whether the screen shows it.
    pub(super) is_shown: bool,
    /// Copies some of its lines to a file of the node.
    pub(super) filter: Option<(LineFilter, NodeRank)>,
    /// Length of the stream when bytes of it were last hidden from the screen.
    pub(super) hidden_until: u64,
    /// Lines that were hidden from the screen because another worker has failed.
    pub(super) hidden_lines: HiddenLines,
    /// Value of `OutputRouter::shown_bytes` when bytes of it were last shown.
    pub(super) shown_until: u64,
}

pub(super) enum LineFormat {
    /// Whole lines, so that the lines of several workers do not mix.
    Lines(LineCutter),
    /// Bytes as they are received.
    Bytes,
}

/// Counts lines; the last one may have no end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HiddenLines {
    ended: usize,
    has_open: bool,
}

impl HiddenLines {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.ended += memchr::memchr_iter(b'\n', bytes).count();
        self.has_open = bytes.last().map_or(self.has_open, |last| *last != b'\n');
    }

    pub(super) fn count(self) -> usize {
        self.ended + usize::from(self.has_open)
    }
}

impl StreamBuffer {
    /// Makes the state of a stream; names fill a column of `width`.
    pub(super) fn new(label: &WorkerLabel, stream: Stream, style: &Style, width: usize) -> Self {
        let (terminal, paint) = match stream {
            Stream::Stdout => (style.terminal.stdout, style.terminal.stdout_paint),
            Stream::Stderr => (style.terminal.stderr, style.terminal.paint),
        };
        let place = style.redirects.as_ref().map(|redirects| redirects.place(label, stream));
        let tee_prefix = style.redirects.as_ref().map(|redirects| redirects.tee_prefix.as_str());
        let template = tee_prefix.filter(|_| place.is_some_and(|place| place.has_tee_prefix));
        let template = template.or(style.prefix.as_deref());
        let format = if style.solo == Some(label.rank) {
            LineFormat::Bytes
        } else {
            let charset = style.terminal.charset;
            let prefix = prefix(label, stream, template, (width, charset));
            let prefix = paint_prefix(prefix, label.node, paint).into_bytes();
            let control_chars = if terminal { ControlChars::Escaped } else { ControlChars::Raw };
            let has_status = terminal && style.terminal.status != StatusPlace::Nowhere;
            let bars = if has_status { Bars::InStatus } else { Bars::AtIntervals };
            LineFormat::Lines(LineCutter::new(prefix, control_chars, bars, charset))
        };
        Self {
            format,
            tail: Tail::default(),
            is_kept: style.log_dir.is_some() || place.is_some_and(|place| place.has_file),
            has_redirect: place.is_some_and(|place| place.has_file),
            is_shown: place.is_none_or(|place| place.is_shown),
            filter: line_filter(label, stream, style),
            hidden_until: 0,
            hidden_lines: HiddenLines::default(),
            shown_until: 0,
        }
    }
}

fn line_filter(
    label: &WorkerLabel,
    stream: Stream,
    style: &Style,
) -> Option<(LineFilter, NodeRank)> {
    let redirects = style.redirects.as_ref()?;
    let texts = redirects.filters(label, stream);
    let prefix = prefix(label, stream, Some(&redirects.file_prefix), (0, style.terminal.charset));
    (!texts.is_empty()).then(|| (LineFilter::new(prefix.into_bytes(), texts), label.node))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_lines_count_one_without_an_end() {
        let count = |pieces: &[&[u8]]| {
            let mut hidden = HiddenLines::default();
            for piece in pieces {
                hidden.push(piece);
            }
            hidden.count()
        };
        assert_eq!(count(&[]), 0);
        assert_eq!(count(&[b"one\ntw", b"o\n"]), 2);
        assert_eq!(count(&[b"one\ntw", b"", b"o"]), 2);
    }
}
