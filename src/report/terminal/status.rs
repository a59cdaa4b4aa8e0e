//! The status area: the progress of the job in the last rows of a terminal, which are redrawn.
//! Pure: the time and the size of the terminal are arguments.
//!
//! A prompt of a worker is shown alone. Otherwise the lowest rank is shown. Steps that workers
//! report are shown before progress bars that they draw themselves, unless only the number of the
//! step is known: remuda counts the steps of programs that report nothing. A step that is reported
//! before a line is written is received before that line, so the newest step stays until the next
//! one is received or the last one is done.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use unicode_width::UnicodeWidthChar;

use super::properties::Charset;
use crate::base::Rank;
use crate::report::diagnostic::Paint;
use crate::report::text::{escape_control_into, paint_message, show_duration, show_step};
use crate::wire::Stream;

/// Most bytes of a progress bar that are kept: more than any terminal is wide.
const BAR_BYTES_MAX: usize = 2048;
/// Most rows of the area.
const AREA_ROWS_MAX: usize = 12;
/// Running time after which the remaining time is estimated.
const ESTIMATE_AFTER: Duration = Duration::from_secs(2);

/// A step that a worker reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerStep {
    /// Number of the step, from 1.
    pub step: u64,
    /// Number of all steps.
    pub steps: Option<u64>,
    /// Loss of the step.
    pub loss: Option<f64>,
    /// Speed of all workers.
    pub tokens_per_s: Option<f64>,
}

/// The facts that the status area shows.
pub(in crate::report) struct StatusText {
    paces: BTreeMap<Rank, Pace>,
    /// What workers do instead of training steps.
    phases: BTreeMap<Rank, String>,
    /// The rows that streams can redraw.
    redrawable: BTreeMap<(Rank, Stream), RedrawableRows>,
    charset: Charset,
}

/// The rows that a stream can redraw, not yet escaped.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::report) struct RedrawableRows {
    /// Prefix of each row.
    pub(in crate::report) prefix: Vec<u8>,
    /// Progress bars, from the top.
    pub(in crate::report) rows: Vec<Vec<u8>>,
    /// A line without an end.
    pub(in crate::report) prompt: Option<Vec<u8>>,
}

/// The rows to draw, from the top.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::report) struct Area {
    pub(in crate::report) rows: Vec<String>,
    /// The stream whose prompt is the only row; the cursor stays behind it.
    pub(in crate::report) prompt_of: Option<(Rank, Stream)>,
}

/// The first step that a worker reported, and its newest.
struct Pace {
    first: (u64, Instant),
    newest: (WorkerStep, Instant),
}

impl StatusText {
    /// Creates a status without rows.
    pub(in crate::report) fn new(charset: Charset) -> Self {
        let (paces, phases, redrawable) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { paces, phases, redrawable, charset }
    }

    /// Records a step of a worker.
    pub(in crate::report) fn step(&mut self, rank: Rank, now: Instant, step: WorkerStep) {
        let first = (step.step, now);
        let begin = Pace { first, newest: (step, now) };
        let pace = self.paces.entry(rank).or_insert(begin);
        // A worker that starts again is measured again.
        if step.step < pace.newest.0.step {
            pace.first = first;
        }
        pace.newest = (step, now);
    }

    /// Records what a worker does instead of training steps; [`None`]: it trains again.
    pub(in crate::report) fn phase(&mut self, rank: Rank, phase: Option<String>) {
        match phase {
            Some(phase) => self.phases.insert(rank, phase),
            None => self.phases.remove(&rank),
        };
    }

    /// Sets the rows that a stream can redraw; [`None`] if there are none. True if they have
    /// changed.
    pub(in crate::report) fn set(
        &mut self,
        of: (Rank, Stream),
        mut newest: Option<RedrawableRows>,
    ) -> bool {
        let texts = newest.iter_mut().flat_map(|newest| {
            newest.rows.truncate(AREA_ROWS_MAX);
            newest.rows.iter_mut().chain(&mut newest.prompt).chain([&mut newest.prefix])
        });
        texts.for_each(|text| text.truncate(BAR_BYTES_MAX));
        match newest {
            None => self.redrawable.remove(&of).is_some(),
            Some(newest) if self.redrawable.get(&of) == Some(&newest) => false,
            Some(newest) => {
                self.redrawable.insert(of, newest);
                true
            }
        }
    }

    /// The rows to draw: narrower than `columns`, and fewer than the terminal has; none if there is
    /// nothing to show.
    pub(in crate::report) fn area(&self, (columns, rows): (usize, usize), paint: Paint) -> Area {
        // A terminal that has written its last column may already be in the next line.
        let columns = columns.saturating_sub(1);
        let shown = |prefix: &[u8], text: &[u8]| {
            let mut line = prefix.to_vec();
            escape_control_into(&mut line, text);
            cut_to_width(&String::from_utf8_lossy(&line), columns, self.charset.ellipsis())
        };
        let prompt = self.redrawable.iter().find_map(|(of, redrawn)| {
            Some((*of, shown(&redrawn.prefix, redrawn.prompt.as_ref()?)))
        });
        if let Some((of, row)) = prompt {
            return Area { rows: vec![row], prompt_of: Some(of) };
        }
        let first_phase = self.phases.keys().next();
        let reporter = self.paces.keys().next().into_iter().chain(first_phase).min().copied();
        let is_counted = self.paces.values().next().is_none_or(Pace::is_counted);
        if let Some(rank) = reporter.filter(|_| !is_counted || self.redrawable.is_empty()) {
            let line = self.progress_text(rank).map(|text| {
                let line = paint_message(&show_step("Running", &text), paint);
                cut_to_width(&line, columns, self.charset.ellipsis())
            });
            return Area { rows: line.into_iter().collect(), prompt_of: None };
        }
        let lowest = self.redrawable.keys().next().map(|(rank, _)| *rank);
        let of_lowest = self.redrawable.iter().filter(|((rank, _), _)| Some(*rank) == lowest);
        let bars = of_lowest
            .flat_map(|(_, redrawn)| redrawn.rows.iter().map(|row| shown(&redrawn.prefix, row)));
        let rows_max = AREA_ROWS_MAX.min(rows.saturating_sub(1)).max(1);
        Area { rows: bars.take(rows_max).collect(), prompt_of: None }
    }
}

impl StatusText {
    /// The phase and the steps of a worker; `None` if the last step is done.
    fn progress_text(&self, rank: Rank) -> Option<String> {
        let pace = self.paces.get(&rank).filter(|pace| !pace.is_done()).map(Pace::text);
        let parts: Vec<String> = self.phases.get(&rank).cloned().into_iter().chain(pace).collect();
        (!parts.is_empty()).then(|| parts.join("  "))
    }
}

impl Pace {
    /// Whether only the number of the step is known.
    fn is_counted(&self) -> bool {
        let WorkerStep { step: _, steps, loss, tokens_per_s } = self.newest.0;
        steps.is_none() && loss.is_none() && tokens_per_s.is_none()
    }

    /// Whether the last step is done, so that there is no progress to show.
    fn is_done(&self) -> bool {
        let newest = &self.newest.0;
        newest.steps.is_some_and(|steps| steps <= newest.step)
    }

    fn text(&self) -> String {
        let WorkerStep { step, steps, loss, tokens_per_s } = self.newest.0;
        let steps_per_s = self.steps_per_s();
        let position = match steps {
            Some(steps) => format!("step {step:>0$}/{steps}", steps.to_string().len()),
            None => format!("step {step}"),
        };
        let speed = match (tokens_per_s, steps_per_s) {
            (Some(speed), _) => Some(format!("{speed:.0} tokens/s")),
            (None, speed) => speed.map(|speed| format!("{speed:.1} steps/s")),
        };
        let left = steps.zip(steps_per_s).map(|(steps, speed)| {
            format!("{} left", show_estimate(steps.saturating_sub(step) as f64 / speed))
        });
        let loss = loss.map(|loss| format!("loss {loss:.4}"));
        let facts = [Some(position), loss, speed, left];
        facts.into_iter().flatten().collect::<Vec<_>>().join("  ")
    }

    /// Steps per second, once it can be estimated.
    fn steps_per_s(&self) -> Option<f64> {
        let time = self.newest.1.saturating_duration_since(self.first.1);
        let steps = self.newest.0.step.saturating_sub(self.first.0);
        (ESTIMATE_AFTER <= time && 0 < steps).then(|| steps as f64 / time.as_secs_f64())
    }
}

/// Formats an estimate without tenths of seconds.
fn show_estimate(seconds: f64) -> String {
    if seconds < 120.0 {
        format!("{seconds:.0} s")
    } else {
        Duration::try_from_secs_f64(seconds).map_or_else(|_| "years".to_owned(), show_duration)
    }
}

/// The part of a line that fits into `columns`, as a terminal measures it: colours have no width,
/// some characters take two columns. A colour that is on at the end is switched off.
fn cut_to_width(line: &str, columns: usize, more: &str) -> String {
    const RESET: &str = "\x1b[0m";
    let (mut out, mut used, mut is_coloured) = (String::new(), 0, false);
    // Position of the mark if the line is too long: the last one that leaves a column for it.
    let mut last_cut = 0;
    let mut rest = line.trim_end_matches('\n');
    while let Some(character) = rest.chars().next() {
        if character == '\x1b' {
            let end = rest.find('m').map_or(rest.len(), |end| end + 1);
            out.push_str(&rest[..end]);
            rest = &rest[end..];
            is_coloured = true;
            continue;
        }
        rest = &rest[character.len_utf8()..];
        let shown = if character.is_control() { ' ' } else { character };
        let width = shown.width().unwrap_or(0);
        if used + more.chars().count() <= columns {
            last_cut = out.len();
        }
        if columns < used + width {
            out.truncate(last_cut);
            out.push_str(if columns < more.chars().count() { "" } else { more });
            break;
        }
        out.push(shown);
        used += width;
    }
    if is_coloured {
        out.push_str(RESET);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;

    #[track_caller]
    fn check_cut(line: &str, columns: usize, expect: &str) {
        assert_eq!(cut_to_width(line, columns, "…"), expect, "{columns} columns of {line:?}");
    }

    #[test]
    fn line_is_cut_by_columns_not_bytes() {
        check_cut("plain", 5, "plain");
        check_cut("plain", 4, "pla…");
        check_cut("plain", 1, "…");
        check_cut("plain", 0, "");
        check_cut("größe", 5, "größe");
        check_cut("漢字漢字", 8, "漢字漢字");
        check_cut("漢字漢字", 7, "漢字漢…");
        check_cut("漢字漢字", 6, "漢字…");
        check_cut("漢字漢字", 5, "漢字…");
        check_cut("e\u{301}e\u{301}", 2, "e\u{301}e\u{301}");
        check_cut("a\tb\n", 3, "a b");
        check_cut("\x1b[31mred\x1b[0m", 3, "\x1b[31mred\x1b[0m\x1b[0m");
        check_cut("\x1b[31mred and more", 4, "\x1b[31mred…\x1b[0m");
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]
        #[test]
        fn rows_are_never_wider_than_the_terminal(
            text in "([a-z ]|ö|漢|😀|\u{301}|\u{1b}\\[1;31m|\u{1b}\\[0m|\t){0,40}", columns in 0usize..50
        ) {
            let mut shown = cut_to_width(&text, columns, "...");
            while let Some(start) = shown.find('\x1b') {
                let end = start + shown[start..].find('m').expect("whole sequences") + 1;
                shown.replace_range(start..end, "");
            }
            let width: usize = shown.chars().map(|c| c.width().unwrap_or(9)).sum();
            proptest::prop_assert!(width <= columns, "{} columns: {:?}", columns, shown);
        }
    }

    fn reported(step: u64, steps: Option<u64>) -> WorkerStep {
        WorkerStep { step, steps, loss: Some(2.5), tokens_per_s: Some(46_080.4) }
    }

    #[test]
    fn lowest_rank_is_shown_with_remaining_time() {
        let (mut status, start) = (StatusText::new(Charset::Utf8), clock::now());
        let line = |status: &StatusText| status.area((80, 24), Paint::Plain).rows.concat();
        assert_eq!(line(&status), "");
        status.step(Rank(1), start, reported(7, None));
        assert_eq!(line(&status), "   Running  step 7  loss 2.5000  46080 tokens/s");
        status.step(Rank(0), start, reported(10, Some(1000)));
        assert_eq!(line(&status), "   Running  step   10/1000  loss 2.5000  46080 tokens/s");
        status.step(Rank(0), start + Duration::from_secs(3), reported(100, Some(1000)));
        assert_eq!(
            line(&status),
            "   Running  step  100/1000  loss 2.5000  46080 tokens/s  30 s left"
        );
        let without_loss =
            WorkerStep { loss: None, tokens_per_s: None, ..reported(100, Some(1000)) };
        status.step(Rank(0), start + Duration::from_secs(3), without_loss);
        assert_eq!(line(&status), "   Running  step  100/1000  30.0 steps/s  30 s left");
        status.step(Rank(0), start + Duration::from_secs(4), reported(1, Some(1000)));
        assert_eq!(line(&status), "   Running  step    1/1000  loss 2.5000  46080 tokens/s");
    }

    #[test]
    fn last_step_is_not_shown() {
        let (mut status, now) = (StatusText::new(Charset::Utf8), clock::now());
        let line = |status: &StatusText| status.area((80, 24), Paint::Plain).rows.concat();
        let shown = "   Running  step  7/30  loss 2.5000  46080 tokens/s";
        status.step(Rank(0), now, reported(7, Some(30)));
        assert_eq!(line(&status), shown);
        status.step(Rank(0), now, reported(30, Some(30)));
        assert_eq!(line(&status), "", "the last step is done");
        status.step(Rank(0), now, reported(7, Some(30)));
        assert_eq!(line(&status), shown, "it has restarted");
    }

    #[test]
    fn phase_is_shown_before_the_steps() {
        let (mut status, now) = (StatusText::new(Charset::Utf8), clock::now());
        let line = |status: &StatusText| status.area((80, 24), Paint::Plain).rows.concat();
        status.phase(Rank(1), Some("data".to_owned()));
        assert_eq!(line(&status), "   Running  data");
        status.step(Rank(0), now, reported(30, Some(30)));
        assert_eq!(line(&status), "", "rank 0 is done");
        status.phase(Rank(0), Some("checkpoint".to_owned()));
        assert_eq!(line(&status), "   Running  checkpoint");
        status.step(Rank(0), now, reported(7, None));
        assert_eq!(line(&status), "   Running  checkpoint  step 7  loss 2.5000  46080 tokens/s");
        status.phase(Rank(0), None);
        assert_eq!(line(&status), "   Running  step 7  loss 2.5000  46080 tokens/s");
    }

    #[test]
    fn bars_are_shown_before_steps_that_are_counted() {
        let (mut status, now) = (StatusText::new(Charset::Utf8), clock::now());
        let rows = |status: &StatusText| status.area((80, 24), Paint::Plain).rows;
        let counted = WorkerStep { step: 7, steps: None, loss: None, tokens_per_s: None };
        status.step(Rank(0), now, counted);
        assert_eq!(rows(&status), ["   Running  step 7"]);
        status.set((Rank(0), Stream::Stderr), Some(bars("0 ", &["epoch"])));
        assert_eq!(rows(&status), ["0 epoch"]);
        status.step(Rank(0), now, WorkerStep { loss: Some(2.5), ..counted });
        assert_eq!(rows(&status), ["   Running  step 7  loss 2.5000"]);
    }

    fn bars(prefix: &str, rows: &[&str]) -> RedrawableRows {
        let rows = rows.iter().map(|row| row.as_bytes().to_vec()).collect();
        RedrawableRows { prefix: prefix.as_bytes().to_vec(), rows, prompt: None }
    }

    #[test]
    fn bar_of_a_worker_cannot_draw_elsewhere() {
        let mut status = StatusText::new(Charset::Ascii);
        let shown = |status: &StatusText| status.area((40, 24), Paint::Plain).rows;
        let (third, first) = ((Rank(3), Stream::Stderr), (Rank(1), Stream::Stdout));
        assert!(status.set(third, Some(bars("n1:3 | ", &["50%\x1b[2J"]))));
        assert!(!status.set(third, Some(bars("n1:3 | ", &["50%\x1b[2J"]))), "unchanged");
        assert_eq!(shown(&status), ["n1:3 | 50%\\x1b[2J"]);
        assert!(status.set(first, Some(bars("", &["first"]))));
        assert_eq!(shown(&status), ["first"]);
        assert!(status.set(first, None));
        assert!(!status.set(first, None), "there are no rows");
        let long = "x".repeat(100_000);
        status.set(third, Some(bars("", &[&long])));
        assert_eq!(shown(&status)[0], format!("{}...", "x".repeat(36)));
        assert!(status.redrawable[&third].rows[0].len() <= BAR_BYTES_MAX);
    }

    #[test]
    fn area_shows_the_bars_of_the_lowest_rank() {
        let mut status = StatusText::new(Charset::Utf8);
        let rows = |status: &StatusText, height| status.area((40, height), Paint::Plain).rows;
        status.set((Rank(0), Stream::Stderr), Some(bars("0 ", &["epoch", "batch"])));
        status.set((Rank(0), Stream::Stdout), Some(bars("0 ", &["other"])));
        status.set((Rank(1), Stream::Stderr), Some(bars("1 ", &["epoch"])));
        assert_eq!(rows(&status, 24), ["0 other", "0 epoch", "0 batch"]);
        assert_eq!(rows(&status, 3), ["0 other", "0 epoch"]);
        assert_eq!(rows(&status, 1), ["0 other"]);
        status.set((Rank(0), Stream::Stderr), None);
        status.set((Rank(0), Stream::Stdout), None);
        assert_eq!(rows(&status, 24), ["1 epoch"]);
        status.set((Rank(1), Stream::Stdout), Some(bars("1 ", &["1"; 100])));
        assert_eq!(rows(&status, 1000).len(), AREA_ROWS_MAX);
    }

    #[test]
    fn prompt_is_shown_alone() {
        let mut status = StatusText::new(Charset::Utf8);
        status.set((Rank(0), Stream::Stderr), Some(bars("0 ", &["epoch"])));
        let of = (Rank(1), Stream::Stdout);
        let prompt = Some(b"(Pdb) ".to_vec());
        status.set(of, Some(RedrawableRows { prefix: b"1 ".to_vec(), rows: Vec::new(), prompt }));
        let area = status.area((40, 24), Paint::Plain);
        assert_eq!(area, Area { rows: vec!["1 (Pdb) ".to_owned()], prompt_of: Some(of) });
    }
}
