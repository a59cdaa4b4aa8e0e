//! One JSON object a step, a line each.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::Serialize;

use super::progress::StepReport;

/// The line of a step; `val_loss` only where the held-out part was evaluated.
#[derive(Serialize)]
struct Line {
    step: u64,
    loss: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    val_loss: Option<f64>,
    tokens_per_s: f64,
    ms: f64,
}

/// A file that grows by a line a step.
#[derive(Debug)]
pub(super) struct Metrics {
    file: BufWriter<File>,
}

impl Metrics {
    /// Opens the file: a new one, or for a run that goes on, the end of the old one.
    pub(super) fn open(path: &Path, step: u64) -> io::Result<Self> {
        let file = match step {
            0 => File::create(path)?,
            _ => File::options().create(true).append(true).open(path)?,
        };
        Ok(Self { file: BufWriter::new(file) })
    }

    /// Adds a step. Lines are complete in the file after each evaluation, so it can be watched.
    pub(super) fn write(&mut self, report: &StepReport) -> io::Result<()> {
        let &StepReport { step, loss, val_loss, items_per_s, ms, .. } = report;
        let round = |x: f64| (x * 1000.0).round() / 1000.0;
        let line = Line { step, loss, val_loss, tokens_per_s: items_per_s.round(), ms: round(ms) };
        serde_json::to_writer(&mut self.file, &line)?;
        self.file.write_all(b"\n")?;
        match val_loss {
            Some(_) => self.file.flush(),
            None => Ok(()),
        }
    }

    /// Brings what is left to the file.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.file.flush()
    }
}
