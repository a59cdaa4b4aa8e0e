//! Metrics file: one line with a JSON object for each step.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::train::report::plot::Curve;
use crate::train::report::progress::{PhaseSeconds, StepReport, Summary};

/// Largest size of the last line.
const LAST_LINE_BYTES_MAX: u64 = 4096;

/// Line of a step; `val_loss` is present only if the held-out part was evaluated. Files of earlier builds
/// have fewer fields.
#[derive(Serialize, Deserialize)]
struct Line {
    step: u64,
    /// `null` if it was not finite.
    loss: Option<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    val_loss: Option<f64>,
    #[serde(default)]
    lr: f64,
    /// `null` if it was not finite.
    #[serde(default)]
    grad_norm: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loss_scale: Option<f64>,
    /// Number of steps so far without an update.
    #[serde(default)]
    skipped: u64,
    tokens_per_s: f64,
    ms: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seconds: Option<PhaseSeconds>,
    /// Why the run has ended with this step, if that was an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Last line of a run.
#[derive(Serialize)]
struct LastLine<'a> {
    step: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    val_loss: Option<f64>,
    /// The most bytes that a worker has used, and the forecast.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_peak: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_forecast: Option<u64>,
    /// The most that a worker had mapped, with pages of other workers and of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_resident: Option<u64>,
    /// SHA-256 of parameters and moments in full precision.
    digest: &'a str,
}

/// Returns whether a metrics file ends with the record of a run that has ended.
pub fn has_last_record(path: &Path) -> bool {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LAST_LINE_BYTES_MAX)))?;
        let mut end = Vec::new();
        file.take(LAST_LINE_BYTES_MAX).read_to_end(&mut end)?;
        io::Result::Ok(end)
    };
    let is_regular = fs::metadata(path).is_ok_and(|found| found.is_file());
    let end = if is_regular { read().unwrap_or_default() } else { Vec::new() };
    let end = String::from_utf8_lossy(&end);
    let last = end.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
    end.ends_with('\n') && last.is_some_and(|line| line.get("digest").is_some())
}

/// Metrics file of a run.
#[derive(Debug)]
pub(crate) struct Metrics {
    file: BufWriter<File>,
}

impl Metrics {
    /// Opens the file of a run that has completed `step` steps. Lines of these steps are kept and
    /// returned as a curve; lines that an earlier run wrote after its last checkpoint are removed,
    /// because those steps are repeated.
    ///
    /// # Errors
    /// If another process has the file open as its metrics: each would write over the other's lines.
    pub(crate) fn open(path: &Path, step: u64) -> io::Result<(Self, Curve)> {
        let (mut options, mut old) = (File::options(), String::new());
        options.read(0 < step).write(true).create(true).truncate(false);
        let mut file = options.open(path)?;
        // Pipes and devices keep nothing, and any number of runs can write to them.
        if file.metadata()?.is_file() {
            match file.try_lock() {
                // Some file systems have no locks.
                Ok(()) | Err(TryLockError::Error(_)) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(io::Error::other("another run is writing it"));
                }
            }
            if 0 < step {
                file.read_to_string(&mut old)?;
                file.rewind()?;
            }
            file.set_len(0)?;
        }
        let mut metrics = Self { file: BufWriter::new(file) };
        let mut curve = Curve::default();
        let lines = old.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
        for line in lines.filter(|line| line.step <= step) {
            metrics.push(&line)?;
            curve.push(line.step, line.loss.map_or(f64::NAN, f64::from), line.val_loss);
        }
        metrics.file.flush()?;
        Ok((metrics, curve))
    }

    /// Adds a step. Every line is flushed, so that the file can be followed and a killed run keeps its lines.
    pub(crate) fn write(&mut self, report: &StepReport) -> io::Result<()> {
        let StepReport { outcome, val_loss, items_per_s, ms, skipped, seconds, .. } = report;
        let round = |x: f64| (x * 1000.0).round() / 1000.0;
        self.push(&Line {
            step: outcome.step,
            loss: Some(outcome.loss).filter(|loss| loss.is_finite()),
            val_loss: *val_loss,
            lr: outcome.rate,
            grad_norm: outcome.norm.is_finite().then_some(outcome.norm),
            loss_scale: report.scale(),
            skipped: *skipped,
            tokens_per_s: items_per_s.round(),
            ms: round(*ms),
            seconds: Some(*seconds),
            error: report.error.clone(),
        })?;
        self.file.flush()
    }

    fn push(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.file, line)?;
        self.file.write_all(b"\n")
    }

    /// Adds the last line, and flushes the remaining ones.
    pub(crate) fn finish(mut self, summary: &Summary, digest: &str) -> io::Result<()> {
        let &Summary { step, val_loss, memory, .. } = summary;
        let (memory_peak, memory_forecast) =
            (memory.map(|bytes| bytes.peak), memory.map(|bytes| bytes.forecast));
        let memory_resident = memory.map(|bytes| bytes.resident);
        let last =
            LastLine { step, val_loss, memory_peak, memory_forecast, memory_resident, digest };
        self.push(&last)?;
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_record_is_recognized() {
        let path = std::env::temp_dir().join(format!("remuda-record-{}", std::process::id()));
        let steps = "{\"step\":1,\"loss\":2.5}\n".repeat(1000);
        for (end, expected) in [
            ("", false),
            ("{\"step\":1000,\"digest\":\"0f\"}\n", true),
            ("{\"step\":1000,\"digest\":\"0f\"}", false),
            ("{\"step\":1000,\"dig", false),
        ] {
            fs::write(&path, format!("{steps}{end}")).expect("it is written");
            assert_eq!(has_last_record(&path), expected, "{end}");
        }
        fs::remove_file(&path).expect("it was created");
        assert!(!has_last_record(&path) && !has_last_record(Path::new("/dev/zero")));
    }

    #[test]
    fn file_has_one_writer_and_a_device_any_number() {
        let path = std::env::temp_dir().join(format!("remuda-metrics-{}", std::process::id()));
        let first = Metrics::open(&path, 0).expect("nobody writes it");
        let refused = Metrics::open(&path, 3).map(drop).expect_err("the first one writes it");
        assert_eq!(refused.to_string(), "another run is writing it");
        drop(first);
        drop(Metrics::open(&path, 3).expect("nobody writes it any more"));
        std::fs::remove_file(&path).expect("it was created");
        let device = Path::new("/dev/null");
        let writers = [0, 3].map(|step| Metrics::open(device, step).expect("it takes everything"));
        drop(writers);
    }
}
