//! Router of a job's output: workers' lines to the screen and to files, remuda's own lines to
//! standard error. It keeps the last lines of every worker and redraws the status line.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::live_status::LiveStatus;
use super::prefix_text::{WorkerLabel, default_name};
use super::redirects::Redirects;
use super::stream_buffer::{HiddenLines, LineFormat, StreamBuffer};
use super::style::Style;
use super::tail::Tail;
use crate::base::order;
use crate::base::{Epoch, Rank, Status, clock};
use crate::job::{Evidence, WENT_ON_AFTER};
use crate::report::emulation::first_control;
use crate::report::gather::GatheredOutput;
use crate::report::logs::{FileKey, LogPath, LogRetention, LogWriter, RankLog};
use crate::report::terminal::{Area, Screens, StatusPlace, Terminal, Tty, WorkerStep};
use crate::report::text::{paint_message, show_count, show_io_error, show_last_output};
use crate::wire::Stream;

/// Least time between two changes of the status area.
const STATUS_INTERVAL: Duration = Duration::from_millis(100);

/// Time between two checks of a screen that does not accept output.
const STALL_RECHECK: Duration = Duration::from_millis(100);

/// The router of a job's output.
pub struct OutputRouter {
    streams: BTreeMap<(Rank, Stream), StreamBuffer>,
    style: Style,
    /// Streams with timed work, and the earliest time at which one of them is due.
    timed_streams: BTreeSet<(Rank, Stream)>,
    next_timer: Option<Instant>,
    screens: Screens,
    /// Output so far, if it is gathered.
    gathered: Option<BTreeMap<(Rank, Stream), GatheredOutput>>,
    /// Whether the workers' output goes to files instead of the screen.
    has_rank_files: bool,
    /// The log files; `None` if no output is kept.
    files: Option<LogWriter>,
    status: Option<LiveStatus>,
    /// The status line of a job that is being stopped, kept in case the job is restarted.
    ended_status: Option<LiveStatus>,
    terminal: Terminal,
    /// After a failure only this worker is shown; the output of all workers is kept in files.
    shown_only: Option<Rank>,
    /// Workers that reported the loss of a peer and are hidden; `None` if all workers are shown.
    peer_lost: Option<BTreeSet<Rank>>,
    /// Whether the failure to write standard output was reported.
    failure_reported: bool,
    /// Bytes that were passed to the screens.
    shown_bytes: u64,
}

impl OutputRouter {
    /// Makes a router for these workers and descriptors.
    pub fn new(workers: &[WorkerLabel], style: &Style, stdout: OwnedFd, stderr: OwnedFd) -> Self {
        let place = style.terminal.status;
        let tty =
            stderr.as_fd().try_clone_to_owned().ok().filter(|_| place != StatusPlace::Nowhere);
        Self {
            streams: buffers_of(workers, style),
            style: style.clone(),
            timed_streams: BTreeSet::new(),
            next_timer: None,
            gathered: style.gather.then(BTreeMap::new),
            has_rank_files: style.rank_files.is_some(),
            files: start_files(workers, style),
            status: tty.map(|tty| LiveStatus::new(Tty::new(tty), style.terminal)),
            ended_status: None,
            screens: Screens::new(stdout, stderr, place),
            terminal: style.terminal,
            shown_only: None,
            peer_lost: style.hide_after_peer_loss.then(BTreeSet::new),
            failure_reported: false,
            shown_bytes: 0,
        }
    }

    /// Handles a piece of output; the bytes to show are kept until [`Self::flush`].
    pub fn output(&mut self, rank: Rank, stream: Stream, bytes: Vec<u8>) {
        let is_after_failure = self.is_hidden(rank);
        let is_quiet =
            is_after_failure || self.peer_lost.as_ref().is_some_and(|left| left.contains(&rank));
        let Some(buffer) = self.streams.get_mut(&(rank, stream)) else {
            return;
        };
        buffer.tail.push(&bytes);
        let is_kept = buffer.is_kept;
        let copied = buffer.filter.as_mut().map(|(filter, node)| (*node, filter.push(&bytes)));
        if let Some(gathered) = &mut self.gathered {
            gathered.entry((rank, stream)).or_default().push(&bytes);
            buffer.hidden_until = buffer.tail.total();
        } else if !self.has_rank_files && !is_quiet && buffer.is_shown {
            buffer.format.show(&bytes, self.screens.pending(stream));
            self.shown_bytes += bytes.len() as u64;
            buffer.shown_until = self.shown_bytes;
            self.update_stream_status((rank, stream), &bytes);
        } else {
            buffer.hidden_until = buffer.tail.total();
            if is_after_failure && !self.has_rank_files && buffer.is_shown {
                buffer.hidden_lines.push(&bytes);
            }
        }
        let Some(files) = &self.files else { return };
        match (is_kept, self.has_rank_files) {
            (true, true) => {
                files.write(FileKey::Stream(rank, stream), bytes.clone());
                files.write(FileKey::Rank(rank), bytes);
            }
            (true, false) => files.write(FileKey::Stream(rank, stream), bytes),
            (false, true) => files.write(FileKey::Rank(rank), bytes),
            (false, false) => {}
        }
        if let Some((node, lines)) = copied.filter(|(_, lines)| !lines.is_empty()) {
            files.write(FileKey::Filtered(node, stream), lines);
        }
    }

    /// Updates the rows that a stream can redraw after these bytes, and the time of its timed work.
    fn update_stream_status(&mut self, of: (Rank, Stream), bytes: &[u8]) {
        let Some(buffer) = self.streams.get(&of) else { return };
        let LineFormat::Lines(cutter) = &buffer.format else {
            // A program that moves the cursor itself uses the whole terminal.
            if self.status.is_some() && first_control(bytes).is_some() {
                self.end_status();
                self.ended_status = None;
            }
            return;
        };
        if let Some(due) = cutter.due() {
            self.timed_streams.insert(of);
            self.next_timer = Some(self.next_timer.map_or(due, |until| until.min(due)));
        }
        if let Some(status) = &mut self.status {
            status.set(of, buffer.format.redrawable_rows());
        }
    }

    /// Runs the timed work of the streams.
    fn run_stream_timers(&mut self) {
        let now = clock::now();
        if self.next_timer.is_none_or(|until| now < until) {
            return;
        }
        self.next_timer = None;
        for of in std::mem::take(&mut self.timed_streams) {
            let is_hidden = self.is_hidden(of.0);
            let Some(buffer) = self.streams.get_mut(&of) else { continue };
            if let (LineFormat::Lines(cutter), false) = (&mut buffer.format, is_hidden) {
                cutter.on_timer(now, self.screens.pending(of.1));
                self.update_stream_status(of, b"");
            }
        }
    }

    /// Ends a prompt: the terminal has echoed the end of a line that was typed.
    pub fn end_prompt(&mut self) {
        let Some(live) = &mut self.status else { return };
        let Some(of) = live.prompt_of.take() else { return };
        self.screens.commit_status();
        live.is_stale = true;
        if let Some(StreamBuffer { format: LineFormat::Lines(cutter), .. }) =
            self.streams.get_mut(&of)
        {
            cutter.end_prompt();
        }
        self.update_stream_status(of, b"");
    }

    /// The terminal may have echoed the key of a signal, such as `^\`.
    pub fn expect_echo(&mut self) {
        if self.terminal.status != StatusPlace::Nowhere {
            self.screens.expect_echo();
        }
    }

    /// Whether the worker is hidden because another one has failed. If rank 0 reports for all, it
    /// stays visible: it reports what has been saved, after it detects the loss of a peer.
    fn is_hidden(&self, rank: Rank) -> bool {
        let reports_for_all = self.peer_lost.is_some() && rank == Rank(0);
        !reports_for_all && self.shown_only.is_some_and(|only| only != rank)
    }

    /// Ends a stream.
    pub fn end(&mut self, rank: Rank, stream: Stream) {
        let is_hidden = self.is_hidden(rank);
        let Some(buffer) = self.streams.get_mut(&(rank, stream)) else {
            return;
        };
        if !is_hidden {
            buffer.format.finish(self.screens.pending(stream));
        }
        if let Some(status) = &mut self.status {
            status.set((rank, stream), None);
        }
        if let (true, Some(files)) = (buffer.is_kept, &self.files) {
            files.end(FileKey::Stream(rank, stream));
        }
        if let (Some((filter, node)), Some(files)) = (&mut buffer.filter, &self.files) {
            files.write(FileKey::Filtered(*node, stream), filter.finish());
        }
    }

    /// Adds a line of remuda.
    pub fn print_message(&mut self, text: &str) {
        let text = paint_message(&self.terminal.charset.adapt(text), self.terminal.paint);
        self.shown_bytes += text.len() as u64;
        self.screens.push_message(text.as_bytes());
    }

    /// Output of a worker, if output is gathered.
    pub fn gathered(&self, rank: Rank, stream: Stream) -> Option<&GatheredOutput> {
        self.gathered.as_ref()?.get(&(rank, stream))
    }

    /// Adds gathered output to a screen.
    pub fn show(&mut self, stream: Stream, bytes: &[u8]) {
        self.screens.pending(stream).extend_from_slice(bytes);
    }

    /// Records a step of a worker.
    pub fn step(&mut self, rank: Rank, step: WorkerStep) {
        if let Some(live) = &mut self.status {
            live.status.step(rank, clock::now(), step);
            live.is_stale = true;
        }
    }

    /// Records the phase of a worker.
    pub fn phase(&mut self, rank: Rank, phase: Option<String>) {
        if let Some(live) = &mut self.status {
            live.status.phase(rank, phase);
            live.is_stale = true;
        }
    }

    /// Records that a worker reported the loss of a peer; the cause is reported elsewhere.
    pub fn on_peer_lost(&mut self, rank: Rank) {
        if let Some(left) = &mut self.peer_lost {
            left.insert(rank);
        }
    }

    /// Shows only this worker from now on; the output of the others goes to their files. Ends the
    /// status line.
    pub fn show_only(&mut self, only: Rank) {
        self.shown_only.get_or_insert(only);
        self.end_status();
    }

    /// Starts an epoch: all workers are shown again, and their last lines are discarded.
    pub fn begin_epoch(&mut self, epoch: Epoch) {
        self.shown_only = None;
        self.peer_lost.iter_mut().for_each(BTreeSet::clear);
        self.status = self
            .ended_status
            .take()
            .map(|live| LiveStatus::new(live.tty, self.terminal))
            .or(self.status.take());
        for buffer in self.streams.values_mut() {
            // Discards part of a line of a worker that was hidden.
            buffer.format.finish(&mut Vec::new());
            (buffer.tail, buffer.hidden_until) = (Tail::default(), 0);
            buffer.hidden_lines = HiddenLines::default();
        }
        if let Some(files) = &self.files {
            files.begin_epoch(epoch);
            let redirected = self.streams.iter().filter(|(_, buffer)| buffer.has_redirect);
            for ((rank, stream), _) in redirected {
                files.write(FileKey::Stream(*rank, *stream), Vec::new());
            }
            for ((_, stream), buffer) in &self.streams {
                if let Some((_, node)) = buffer.filter {
                    files.write(FileKey::Filtered(node, *stream), Vec::new());
                }
            }
        }
    }

    /// Replaces the workers of an epoch that has begun and in which nothing was received yet.
    pub fn set_workers(&mut self, workers: &[WorkerLabel]) {
        self.streams = buffers_of(workers, &self.style);
        self.timed_streams.clear();
    }

    /// Leaves the terminal to another program until [`Self::resume_terminal`]. Waits for the pending output,
    /// as long as the terminal accepts some.
    pub fn release_terminal(&mut self) {
        if let Some(live) = &mut self.status {
            live.is_released = true;
            self.screens.set_status("");
        }
        self.flush();
        self.screens.drain();
    }

    /// Takes the terminal back.
    pub fn resume_terminal(&mut self) {
        if let Some(live) = &mut self.status {
            (live.is_released, live.is_stale) = (false, true);
        }
    }

    /// Ends the status line, because the job is being stopped.
    pub fn end_status(&mut self) {
        if let Some(live) = self.status.take() {
            self.ended_status = Some(live);
            self.screens.set_status("");
        }
    }

    /// Bytes that have not been shown yet.
    pub fn pending_bytes(&self) -> usize {
        self.screens.pending_bytes()
    }

    /// When [`Self::on_timer`] should be called if no other method is called before.
    pub fn due(&self) -> Option<Instant> {
        let recheck = self.screens.has_stalled().then(|| clock::now() + STALL_RECHECK);
        // A slow disk is reported after the screen accepts output again.
        let files = self.files.as_ref().filter(|_| recheck.is_none()).and_then(LogWriter::due);
        [recheck, self.status_due(), files, self.next_timer].into_iter().flatten().min()
    }

    fn status_due(&self) -> Option<Instant> {
        let live = self.status.as_ref().filter(|live| live.is_stale && !live.is_released)?;
        Some(live.drawn_at.map_or_else(clock::now, |drawn| drawn + STATUS_INTERVAL))
    }

    /// Writes the pending output to the screens.
    pub fn flush(&mut self) {
        self.run_stream_timers();
        self.show_status();
        // A screen that accepts output again receives a line about the dropped lines.
        if self.screens.flush() {
            self.report_losses();
            self.screens.flush();
        }
    }

    fn show_status(&mut self) {
        // Printing lines erases and redraws the status line, so it must be up to date then.
        let has_lines = !self.screens.pending(Stream::Stderr).is_empty();
        let due = self.status_due();
        let now = clock::now();
        if due.is_none_or(|due| now < due && !has_lines) {
            return;
        }
        if let Some(live) = &mut self.status {
            let size = live.tty.size();
            let area = size.map_or_else(Area::default, |size| live.status.area(size, live.paint));
            let text = area.rows.join("\n");
            live.is_stale = !self.screens.set_status(&text) || size.is_none();
            live.prompt_of = area.prompt_of.filter(|_| !live.is_stale);
            live.drawn_at = (live.is_stale || !text.is_empty()).then_some(now);
        }
    }

    /// Like [`Self::flush`] without new output: reports dropped lines on a screen that accepts
    /// output again, and updates the status line.
    pub fn on_timer(&mut self) {
        self.screens.recheck_stalled();
        self.flush();
    }

    /// Waits until all output is on the screen, as long as the screen accepts some.
    pub fn finish(&mut self) {
        self.end_status();
        self.screens.finish();
        let warnings = self.files.as_mut().map(LogWriter::finish);
        self.warn(warnings.unwrap_or_default());
        self.report_losses();
        self.screens.finish();
    }

    /// Why the workers' output could not be shown; a reader that closed the pipe is no failure.
    pub fn output_failure(&self) -> Option<std::io::Error> {
        let errno = self.screens.failure().filter(|errno| *errno != Errno::PIPE)?;
        Some(errno.into())
    }

    /// Reports once why output is not shown any more.
    fn report_failure(&mut self) {
        let Some(errno) = self.screens.failure().filter(|_| !self.failure_reported) else {
            return;
        };
        self.failure_reported = true;
        if errno == Errno::PIPE {
            self.print_message("note: standard output was closed; the job continues without it\n");
            return;
        }
        let why = show_io_error(&errno.into());
        self.print_message(&format!(
            "warning: cannot write standard output: {why}; the job continues without it, and a success \
             exits with {}\n",
            Status::Io.code()
        ));
    }

    fn report_losses(&mut self) {
        self.report_failure();
        let dropped = self.screens.take_dropped_lines();
        if 0 < dropped {
            let lines = show_count(dropped as usize, "line");
            self.print_message(&format!(
                "warning: {lines} not shown: the terminal did not accept output\n"
            ));
        }
        let warnings = self.files.as_mut().map(LogWriter::take_messages);
        self.warn(warnings.unwrap_or_default());
    }

    fn warn(&mut self, warnings: Vec<String>) {
        for text in warnings {
            self.print_message(&format!("warning: {text}\n"));
        }
    }

    /// The last lines of a worker, from its standard error or else from its standard output.
    pub fn last_lines(&self, rank: Rank) -> Option<(Stream, Vec<Vec<u8>>)> {
        [Stream::Stderr, Stream::Stdout].into_iter().find_map(|stream| {
            let lines = self.streams.get(&(rank, stream))?.tail.last_lines();
            (!lines.is_empty()).then_some((stream, lines))
        })
    }

    /// The part of a worker's output that explains its failure.
    pub fn evidence(&self, rank: Rank) -> Option<Evidence> {
        let tails = || {
            let streams = [Stream::Stderr, Stream::Stdout].into_iter();
            streams.filter_map(|stream| Some(&self.streams.get(&(rank, stream))?.tail))
        };
        let found = tails().find_map(Tail::evidence)?;
        let since = found.at + WENT_ON_AFTER;
        let later_output = tails().filter_map(|tail| tail.first_arrival_since(since)).min();
        Some(Evidence { later_output, ..found })
    }

    /// The last line of a worker's standard error before this instant, or else of its standard output.
    pub fn last_line(&self, rank: Rank, until: Instant) -> Option<(Stream, String)> {
        [Stream::Stderr, Stream::Stdout].into_iter().find_map(|stream| {
            let line = self.streams.get(&(rank, stream))?.tail.last_line(until)?;
            Some((stream, line))
        })
    }

    /// The streams of which lines were hidden because another worker had failed, and how many.
    pub fn hidden_lines(&self) -> Vec<(Rank, Stream, usize)> {
        let counts =
            self.streams.iter().map(|(of, buffer)| (of.0, of.1, buffer.hidden_lines.count()));
        counts.filter(|(_, _, count)| 0 < *count).collect()
    }

    /// Whether a stream of a worker contains a traceback.
    pub fn has_traceback(&self, rank: Rank) -> bool {
        let streams = [Stream::Stderr, Stream::Stdout].into_iter();
        let mut buffers = streams.filter_map(|stream| self.streams.get(&(rank, stream)));
        buffers.any(|buffer| buffer.tail.traceback_start().is_some())
    }

    /// When the last output of a worker before this instant was received.
    pub fn last_output(&self, rank: Rank, until: Instant) -> Option<Instant> {
        let of_stream = |stream| self.streams.get(&(rank, stream))?.tail.last_arrival(until);
        [Stream::Stderr, Stream::Stdout].into_iter().filter_map(of_stream).max()
    }

    /// Adds a line of remuda about a worker that runs, with the time since its last output.
    pub fn print_state(&mut self, rank: Rank, state: &str) {
        let now = clock::now();
        let since = self.last_output(rank, now).map(|at| now.saturating_duration_since(at));
        self.print_message(&format!("{state}, {}\n", show_last_output(since)));
    }

    /// The worker whose traceback is on the screen, with one or two lines below at most and tracebacks of
    /// the same exception: this worker, else one of these other workers that raised the exception.
    pub fn shown_traceback(&self, rank: Rank, stream: Stream, same: &[Rank]) -> Option<Rank> {
        /// Length of a line about the other workers.
        const LATER_BYTES_MAX: u64 = 256;
        let ranks = || std::iter::once(rank).chain(same.iter().copied());
        let buffer = |rank| self.streams.get(&(rank, stream));
        let last = ranks().filter_map(|rank| Some(buffer(rank)?.shown_until)).max()?;
        let is_near = self.shown_bytes - last <= LATER_BYTES_MAX;
        let is_whole = |rank: &Rank| {
            let start = |found: &StreamBuffer| found.tail.traceback_start();
            buffer(*rank)
                .is_some_and(|found| start(found).is_some_and(|start| found.hidden_until <= start))
        };
        ranks().find(is_whole).filter(|_| is_near)
    }

    /// The file that holds a stream, if there is one.
    pub fn log_path(&self, rank: Rank, stream: Stream) -> Option<PathBuf> {
        self.files.as_ref()?.path(FileKey::Stream(rank, stream))
    }
}

/// The states of the streams of these workers.
fn buffers_of(workers: &[WorkerLabel], style: &Style) -> BTreeMap<(Rank, Stream), StreamBuffer> {
    let width = workers.iter().map(|label| default_name(label).len()).max().unwrap_or(0);
    let of_worker = |label: &WorkerLabel| {
        [Stream::Stdout, Stream::Stderr]
            .map(|stream| ((label.rank, stream), StreamBuffer::new(label, stream, style, width)))
    };
    order::map(workers.iter().flat_map(of_worker))
}

/// The file of a stream, if it has one.
fn stream_log(label: &WorkerLabel, stream: Stream, style: &Style) -> Option<RankLog> {
    if let Some(redirects) = &style.redirects
        && redirects.place(label, stream).has_file
    {
        let directory = redirects.directory.clone();
        let path = LogPath::Attempt(directory, Redirects::worker(label), stream);
        return Some(RankLog::new(path, LogRetention::All));
    }
    let name = format!("rank{}.{}", label.job_rank, stream);
    let path = LogPath::Run(style.log_dir.as_ref()?.join(name));
    Some(RankLog::new(path, style.retention))
}

/// Makes a file for each stream below `--log_dir`, and one for each rank with
/// `--enable_each_rank_log`; the latter are opened at once, so that a worker without output has one
/// too.
fn start_files(workers: &[WorkerLabel], style: &Style) -> Option<LogWriter> {
    let mut logs = BTreeMap::new();
    for label in workers {
        for stream in [Stream::Stdout, Stream::Stderr] {
            if let Some(log) = stream_log(label, stream, style) {
                logs.insert(FileKey::Stream(label.rank, stream), log);
            }
            if let Some(redirects) = &style.redirects
                && !redirects.filters(label, stream).is_empty()
            {
                let path = LogPath::Filtered(redirects.directory.clone(), label.node, stream);
                let log = RankLog::new(path, LogRetention::All);
                logs.insert(FileKey::Filtered(label.node, stream), log);
            }
        }
        if let Some(files) = &style.rank_files {
            let log = RankLog::new(LogPath::Rank(files.path(label.job_rank)), LogRetention::All);
            logs.insert(FileKey::Rank(label.rank), log);
        }
    }
    let is_early = |log: &RankLog| log.exists_from_start();
    let early: Vec<_> = logs.iter().filter(|(_, log)| is_early(log)).map(|(key, _)| *key).collect();
    let files = (!logs.is_empty()).then(|| LogWriter::start(logs))?;
    for file in early {
        files.write(file, Vec::new());
    }
    Some(files)
}
