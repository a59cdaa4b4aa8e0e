//! Notes of workers about themselves.

use serde::{Deserialize, Serialize};

use super::{Rank, prefix};

/// Note of a worker about itself, which its agent forwards to the launcher; the launcher shows it, and no
/// other process depends on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Note {
    /// The group is complete and the work begins.
    Ready,
    /// A training step has ended.
    Step {
        /// Number of the step, starting at 1.
        step: u64,
        /// Total number of steps.
        steps: Option<u64>,
        /// Loss of the step.
        loss: Option<f64>,
        /// Speed of all workers together.
        tokens_per_s: Option<f64>,
    },
    /// An operation failed because another rank was lost or aborted: the cause is that rank.
    PeerLost {
        /// Rank of the worker.
        rank: Rank,
    },
    /// This rank aborts the collectives of all ranks: an operation failed on it, or the program aborted the
    /// group. Sent before the other ranks are notified, so that it arrives before they fail because of it.
    GaveUp {
        /// The reason, of at most 1024 bytes.
        reason: String,
    },
    /// The program does something else than training steps, such as a checkpoint, until its next phase.
    Phase {
        /// Name of the phase, of at most 64 bytes; `None` if it trains again.
        name: Option<String>,
    },
    /// An exception ends the program. Sent before the process exits, which can take long.
    Failed {
        /// `Type: message`, of at most 1024 bytes.
        exception: String,
    },
}

/// Largest reason or exception of a note in bytes; the rest is cut off.
const REASON_BYTES_MAX: usize = 1024;
/// Largest name of a phase in bytes; the rest is cut off.
const PHASE_BYTES_MAX: usize = 64;

impl Note {
    /// The note of a rank that gave up for a reason.
    pub fn gave_up(reason: &str) -> Self {
        Self::GaveUp { reason: prefix(reason, REASON_BYTES_MAX).to_owned() }
    }

    /// The note of a rank that begins a phase, or trains again.
    pub fn phase(name: Option<&str>) -> Self {
        Self::Phase { name: name.map(|name| prefix(name, PHASE_BYTES_MAX).to_owned()) }
    }

    /// The note of a rank whose program is ended by an exception.
    pub fn failed(exception: &str) -> Self {
        Self::Failed { exception: prefix(exception, REASON_BYTES_MAX).to_owned() }
    }
}
