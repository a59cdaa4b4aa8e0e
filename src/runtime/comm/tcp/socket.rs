//! Sockets between nodes: options, and waits for several of them.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use rustix::event::{PollFd, Timespec};

use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::Cause;
use crate::runtime::comm::core::spin::{Spin, Yielding};

/// Interval at which a wait on sockets checks for other events.
pub(super) const TICK: Duration = Duration::from_millis(50);

/// Number of ticks without a byte after which an abort takes effect: bytes that a rank sent before
/// it exited may still be in transit.
pub(super) const IDLE_TICKS_MAX: u32 = 4;

pub(super) fn backend_error(action: &str) -> impl Fn(&dyn std::fmt::Display) -> Cause {
    move |error| Cause::Backend(format!("cannot {action}: {error}"))
}

/// Sets the options of a new stream.
pub(super) fn set_stream_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)
}

/// Waits for events for at most a tick; returns whether there were none.
pub(super) fn poll(fds: &mut [PollFd<'_>]) -> Result<bool, Cause> {
    let tick = Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) };
    match rustix::event::poll(fds, Some(&tick)) {
        Ok(ready) => Ok(ready == 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(backend_error("poll sockets")(&error)),
    }
}

/// Idle strategy of a wait: decides when to poll again at once, when to sleep, and when to check
/// for failures.
pub(super) struct Idle {
    spin: Spin,
    yielding: Yielding,
    quiet_ticks: u32,
}

impl Idle {
    pub(super) fn new(deadline: Deadline) -> Self {
        Self { spin: deadline.spin, yielding: deadline.spin.yielding(), quiet_ticks: 0 }
    }

    /// Whether to poll again at once, after a poll that has `moved` bytes or not.
    pub(super) fn should_poll_again(&mut self, moved: bool) -> bool {
        if moved {
            self.yielding = self.spin.yielding();
            self.quiet_ticks = 0;
            return true;
        }
        self.yielding.next(std::thread::yield_now)
    }

    /// Whether it is time to check for failures.
    pub(super) fn is_check_due(&self) -> bool {
        0 < self.quiet_ticks && self.quiet_ticks.is_multiple_of(IDLE_TICKS_MAX)
    }

    /// Counts a poll of the sockets; calls `check` after a tick without an event.
    pub(super) fn after_poll(
        &mut self,
        timed_out: bool,
        check: impl FnOnce() -> Result<(), Cause>,
    ) -> Result<(), Cause> {
        if !timed_out {
            self.quiet_ticks = 0;
            return Ok(());
        }
        self.quiet_ticks += 1;
        match check() {
            Err(cause @ Cause::Deadline { .. }) => Err(cause),
            Err(cause) if IDLE_TICKS_MAX <= self.quiet_ticks => Err(cause),
            _ => Ok(()),
        }
    }
}
