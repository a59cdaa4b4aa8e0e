//! The launcher's end of the link: its messages, its heartbeats, and the loss of the launcher.

use std::time::{Duration, Instant};

use super::alarms::Timer;
use super::serve::Agent;
use crate::base::{Status, clock};
use crate::report;
use crate::report::summary::show_duration;
use crate::transport::LinkReader;
use crate::wire::{Decoder, FrameError, FromAgent, ToAgent};

/// Interval of the agent's heartbeats until the lease is known.
pub(super) const INITIAL_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);
/// Time without a message of the launcher after which the agent prints a line.
const SILENCE_WARNING: Duration = Duration::from_secs(10);
/// Size of one read from the link.
const LINK_READ_BYTES: usize = 64 * 1024;

/// The connection to the launcher.
pub(super) struct LauncherLink {
    pub(super) reader: LinkReader,
    pub(super) decoder: Decoder,
    /// When its last message was received.
    pub(super) last_message_at: Instant,
    /// Whether it has announced that it will be suspended.
    pub(super) paused: bool,
}

/// Time limits set by the launcher.
pub(super) struct Terms {
    /// Time without a message of the launcher after which the workers are stopped.
    pub(super) lease: Option<Duration>,
    /// Interval of the agent's heartbeats.
    pub(super) heartbeat: Duration,
    /// Time between SIGTERM and SIGKILL.
    pub(super) grace: Duration,
}

impl LauncherLink {
    pub(super) fn new(reader: LinkReader) -> Self {
        Self { reader, decoder: Decoder::default(), last_message_at: clock::now(), paused: false }
    }

    /// Receives the next message; `None` at the end of the link.
    async fn next(&mut self) -> Result<Option<ToAgent>, FrameError> {
        loop {
            if let Some(message) = self.decoder.message()? {
                return Ok(Some(message));
            }
            match self.reader.read(self.decoder.room(LINK_READ_BYTES)).await {
                Ok(0) | Err(_) => return Ok(None),
                Ok(_) => {}
            }
        }
    }
}

/// Receives the next message of the launcher; waits for ever if there is no link.
pub(super) async fn next_message(
    launcher: Option<&mut LauncherLink>,
) -> Result<Option<ToAgent>, FrameError> {
    match launcher {
        Some(launcher) => launcher.next().await,
        None => std::future::pending().await,
    }
}

impl Agent {
    /// Handles the heartbeat timer, which was due at this time: sends a heartbeat and checks the
    /// lease.
    pub(super) fn on_heartbeat_due(&mut self, due: Instant) {
        let now = clock::now();
        self.timers.set(now + self.terms.heartbeat, Timer::Heartbeat);
        self.check_shim_heartbeat(now, now - due);
        let Some(launcher) = &mut self.launcher else {
            return;
        };
        self.outbox.send(&FromAgent::Heartbeat);
        // Time for which the agent itself was suspended does not count as silence of the launcher:
        // what was sent meanwhile is still to be read.
        launcher.last_message_at = now.min(launcher.last_message_at + (now - due));
        let silence = now - launcher.last_message_at;
        let (Some(lease), false) = (self.terms.lease, launcher.paused) else {
            return;
        };
        if lease < silence {
            // Stop first, print second: the reader of stderr may not respond either.
            self.failure = Some(Status::LeaseLost);
            self.on_launcher_lost();
            let lease = show_duration(lease);
            print_line(&format!(
                "lease expired: no message from the launcher for {lease} (--lease); stopping the \
                 workers"
            ));
        } else if SILENCE_WARNING < silence {
            print_line(&format!("no message from the launcher for {} s", silence.as_secs()));
        }
    }

    /// Stops the workers after a protocol error of the launcher, as after the loss of the launcher.
    pub(super) fn on_protocol_error(&mut self, why: &str) {
        self.failure = Some(Status::Protocol);
        self.on_launcher_lost();
        print_line(&format!("protocol error from the launcher: {why}; stopping the workers"));
    }

    /// Handles the end of the link or of the lease: SIGTERM, grace period, SIGKILL, then the agent
    /// exits.
    pub(super) fn on_launcher_lost(&mut self) {
        let was_paused = self.launcher.take().is_some_and(|launcher| launcher.paused);
        self.workers.discard_output();
        // A launcher that responds late must not attribute the exits that the agent now causes to
        // the workers.
        self.outbox.close();
        self.signal_workers(libc::SIGTERM);
        if was_paused {
            // A suspended process cannot handle SIGTERM.
            self.signal_workers(libc::SIGCONT);
        }
        self.timers.set(clock::now() + self.terms.grace, Timer::KillWorkers);
    }
}

/// Prints a line of the agent to standard error.
pub(super) fn print_line(text: &str) {
    report::try_print_error(&format!("remuda agent: {text}\n"));
}
