//! [`FlightRecorder`]: the last exchanges between the devices, and how far this device is with each.
//!
//! A device that waits for another rank gives no sign. After a failure, the records tell which exchange it was, and
//! whether this device had begun it or still computed what comes before.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};

use crate::base::{lock, show_bytes};
use crate::cuda::device::{Device, DeviceError, EventId, StreamId};

/// Number of exchanges that are kept.
const RECORDS_MAX: usize = 64;
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

/// An exchange that was submitted.
struct Record {
    /// From 1.
    number: u64,
    what: Exchanged,
    bytes: usize,
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
            records.push_back(Record { number, what, bytes, events });
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
}
