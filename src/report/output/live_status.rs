//! The status area of a job that runs, on a terminal that has one.

use std::time::Instant;

use crate::base::Rank;
use crate::report::diagnostic::Paint;
use crate::report::terminal::{RedrawableRows, StatusText, Terminal, Tty};
use crate::wire::Stream;

/// The status area, on a terminal that has one.
pub(super) struct LiveStatus {
    pub(super) status: StatusText,
    pub(super) tty: Tty,
    pub(super) paint: Paint,
    /// Whether the area has changes that are not drawn yet.
    pub(super) is_stale: bool,
    /// When the area was last drawn.
    pub(super) drawn_at: Option<Instant>,
    /// The stream whose prompt is drawn.
    pub(super) prompt_of: Option<(Rank, Stream)>,
    /// Whether another program has the terminal at present.
    pub(super) is_released: bool,
}

impl LiveStatus {
    pub(super) fn new(tty: Tty, terminal: Terminal) -> Self {
        let status = StatusText::new(terminal.charset);
        let paint = terminal.paint;
        Self {
            status,
            tty,
            paint,
            is_stale: false,
            drawn_at: None,
            prompt_of: None,
            is_released: false,
        }
    }

    pub(super) fn set(&mut self, of: (Rank, Stream), redrawn: Option<RedrawableRows>) {
        self.is_stale |= self.status.set(of, redrawn);
    }
}
