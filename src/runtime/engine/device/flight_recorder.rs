//! [`FlightRecorder`]: the last exchanges between the devices, and how far this device is with each.
//!
//! A device that waits for another rank gives no sign. After a failure, the records tell which exchange it was, and
//! whether this device had begun it or still computed what comes before. The error has the few that matter, and a file
//! of the run has all.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::base::{clock, lock, show_bytes};
use crate::cuda::device::{Device, DeviceError, EventId, StreamId};

/// Number of exchanges that are kept.
const RECORDS_MAX: usize = 64;
/// Longest wait for the disk: the error matters more than the file.
const DISK_LIMIT: Duration = Duration::from_secs(2);
/// Number of exchanges that a report shows: the last one that has ended, and those that have not.
const SHOWN_MAX: usize = 6;

/// What ranks exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exchanged {
    /// Sum of the gradients of a unit.
    Gradient {
        /// Number of the unit.
        unit: usize,
    },
    /// Weights of a unit, before a pass.
    Weights {
        /// Number of the unit.
        unit: usize,
    },
    /// Updated weights of a unit.
    Update {
        /// Number of the unit.
        unit: usize,
    },
    /// Sums of squares for the norm of the gradient.
    Squares,
}

impl Exchanged {
    /// Name of what is exchanged, and the unit.
    fn parts(self) -> (&'static str, Option<usize>) {
        match self {
            Self::Gradient { unit } => ("gradient", Some(unit)),
            Self::Weights { unit } => ("weights", Some(unit)),
            Self::Update { unit } => ("update", Some(unit)),
            Self::Squares => ("squares", None),
        }
    }
}

impl fmt::Display for Exchanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gradient { unit } => write!(f, "gradient of unit {unit}"),
            Self::Weights { unit } => write!(f, "weights of unit {unit}"),
            Self::Update { unit } => write!(f, "updated weights of unit {unit}"),
            Self::Squares => f.write_str("squares of the gradient"),
        }
    }
}

/// How far a device is with an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Ended,
    /// It waits for the other ranks.
    Begun,
    /// It has not come to it.
    Queued,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "has ended",
            Self::Begun => "waits for other ranks",
            Self::Queued => "has not begun",
        })
    }
}

impl Progress {
    /// Name in a file.
    fn name(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Begun => "begun",
            Self::Queued => "queued",
        }
    }
}

/// The worker whose exchanges are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordedRank {
    pub(super) rank: usize,
    /// How many times the job was restarted before.
    pub(super) restarts: u32,
}

/// An exchange that was submitted.
struct Record {
    /// From 1.
    number: u64,
    what: Exchanged,
    bytes: usize,
    /// When it was submitted, since 1970.
    submitted: Duration,
    /// Recorded before and behind it.
    events: [EventId; 2],
}

/// Records of the exchanges in a stream.
pub(super) struct FlightRecorder {
    device: Arc<dyn Device>,
    stream: StreamId,
    records: Mutex<VecDeque<Record>>,
}

impl FlightRecorder {
    pub(super) fn new(device: &Arc<dyn Device>, stream: StreamId) -> Self {
        Self { device: device.clone(), stream, records: Mutex::default() }
    }

    /// Submits an exchange of `bytes` bytes, and records it.
    pub(super) fn record(
        &self,
        (what, bytes): (Exchanged, usize),
        submit: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let events = {
            let mut records = lock(&self.records);
            let events = self.free_events(&mut records)?;
            let number = records.back().map_or(1, |last| last.number + 1);
            self.device.record(self.stream, events[0])?;
            records.push_back(Record { number, what, bytes, submitted: clock::wall(), events });
            events
        };
        submit()?;
        self.device.record(self.stream, events[1])
    }

    /// The events of the oldest record, if they are no longer needed, or new ones.
    fn free_events(&self, records: &mut VecDeque<Record>) -> Result<[EventId; 2], DeviceError> {
        if records.len() < RECORDS_MAX {
            return Ok([self.device.create_event()?, self.device.create_event()?]);
        }
        Ok(records.pop_front().expect("there are records").events)
    }

    fn progress(&self, record: &Record) -> Result<Progress, DeviceError> {
        let [begun, ended] = record.events;
        Ok(match (self.device.is_complete(ended)?, self.device.is_complete(begun)?) {
            (true, _) => Progress::Ended,
            (false, true) => Progress::Begun,
            (false, false) => Progress::Queued,
        })
    }

    /// Reports the last exchange that has ended, and those that have not; empty if all have ended, or if the device does
    /// not answer.
    pub(super) fn report(&self) -> String {
        let records = lock(&self.records);
        let progress = records.iter().map(|record| self.progress(record));
        let Ok(progress) = progress.collect::<Result<Vec<_>, _>>() else { return String::new() };
        let Some(first) = progress.iter().position(|progress| *progress != Progress::Ended) else {
            return String::new();
        };
        let shown = records.iter().zip(progress).skip(first.saturating_sub(1));
        let hidden = shown.len().saturating_sub(SHOWN_MAX);
        let mut report = "; exchanges of this rank:".to_owned();
        for (Record { number, what, bytes, .. }, progress) in shown.take(SHOWN_MAX) {
            let size = show_bytes(*bytes as f64);
            // Writing to a text does not fail.
            let _ = write!(report, "\n  {number}: {what}, {size}, {progress}");
        }
        if 0 < hidden {
            let _ = write!(report, "\n  {hidden} later ones have not begun");
        }
        report
    }

    /// Appends all records to the file of a rank in a directory, one JSON object a line; returns the file. `None` if it
    /// cannot be written.
    pub(super) fn keep(&self, directory: &Path, of: RecordedRank) -> Option<PathBuf> {
        let path = directory.join(format!("rank{}.exchanges.jsonl", of.rank));
        let (file, lines) = (path.clone(), self.lines(of));
        let (sender, written) = mpsc::sync_channel(1);
        let write = move || {
            let _ = sender.send(append(&file, lines.as_bytes()));
        };
        thread::Builder::new().name("records".to_owned()).spawn(write).ok()?;
        written.recv_timeout(DISK_LIMIT).ok()?.ok().map(|()| path)
    }

    fn lines(&self, RecordedRank { rank, restarts }: RecordedRank) -> String {
        let now = clock::wall().as_millis();
        let mut lines = String::new();
        for record in &*lock(&self.records) {
            let (what, unit) = record.what.parts();
            let unit = unit.map_or("null".to_owned(), |unit| unit.to_string());
            // A device that has failed does not answer.
            let state = self.progress(record).map_or("unknown", Progress::name);
            let Record { number, bytes, submitted, .. } = record;
            // Writing to a text does not fail.
            let _ = writeln!(
                lines,
                "{{\"rank\":{rank},\"restarts\":{restarts},\"number\":{number},\"what\":\"{what}\",\"unit\":{unit},\
                 \"bytes\":{bytes},\"state\":\"{state}\",\"submitted_ms\":{},\"written_ms\":{now}}}",
                submitted.as_millis()
            );
        }
        lines
    }
}

/// Appends to a file that only the user can read.
fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)?.write_all(bytes)
}
