//! The other end of the link: what it says, and what its silence or its end means.

use std::time::{Duration, Instant};

use super::alarms::Timer;
use super::serve::Agent;
use crate::base::{Status, clock};
use crate::report;
use crate::transport::LinkReader;
use crate::wire::{Decoder, FrameError, FromAgent, ToAgent};

/// How often we say that we live until we know the lease.
pub(super) const FIRST_BEAT: Duration = Duration::from_secs(3);
/// Silence of the launcher that is worth a line.
const SILENCE_WARNING: Duration = Duration::from_secs(10);
const LINK_READ_BYTES: usize = 64 * 1024;

/// The other end of the link.
pub(super) struct LauncherLink {
    pub(super) reader: LinkReader,
    pub(super) decoder: Decoder,
    /// When it last said something.
    pub(super) heard: Instant,
    /// It has said that it is about to stand still.
    pub(super) paused: bool,
}

/// What the launcher has told about times.
pub(super) struct Terms {
    /// Silence after which the workers are stopped.
    pub(super) lease: Option<Duration>,
    /// How often we say that we live.
    pub(super) beat: Duration,
    /// Between TERM and KILL.
    pub(super) grace: Duration,
}

impl LauncherLink {
    pub(super) fn new(reader: LinkReader) -> Self {
        Self { reader, decoder: Decoder::default(), heard: clock::now(), paused: false }
    }

    /// The next message; `None` at the end of the link.
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

pub(super) async fn next_message(
    launcher: Option<&mut LauncherLink>,
) -> Result<Option<ToAgent>, FrameError> {
    match launcher {
        Some(launcher) => launcher.next().await,
        None => std::future::pending().await,
    }
}

impl Agent {
    pub(super) fn beat(&mut self, due: Instant) {
        let now = clock::now();
        self.alarms.set(now + self.terms.beat, Timer::Beat);
        self.beat_shim(now, now - due);
        let Some(launcher) = &mut self.launcher else {
            return;
        };
        self.outbox.send(&FromAgent::Beat);
        // Nobody was silent while we stood still ourselves: what was said then is still to be read.
        launcher.heard = now.min(launcher.heard + (now - due));
        let silence = now - launcher.heard;
        let (Some(lease), false) = (self.terms.lease, launcher.paused) else {
            return;
        };
        if lease < silence {
            // Act first: whoever reads our words may be as silent as the launcher.
            self.failure = Some(Status::LeaseLost);
            self.launcher_gone();
            announce("the launcher has been silent for the whole lease; stopping the workers");
        } else if SILENCE_WARNING < silence {
            announce(&format!("nothing heard from the launcher for {} s", silence.as_secs()));
        }
    }

    /// A launcher that says what none of ours says is as good as gone.
    pub(super) fn not_understood(&mut self, why: &str) {
        self.failure = Some(Status::Protocol);
        self.launcher_gone();
        announce(&format!("the launcher cannot be understood: {why}; stopping the workers"));
    }

    /// End of the link, or of the lease: TERM, grace, KILL, and then our own end.
    pub(super) fn launcher_gone(&mut self) {
        let was_paused = self.launcher.take().is_some_and(|launcher| launcher.paused);
        self.crew.discard_output();
        // A launcher that comes back late must not take what we bring about for the workers' own doing.
        self.outbox.close();
        self.signal_workers(libc::SIGTERM);
        if was_paused {
            // Who stands still cannot answer.
            self.signal_workers(libc::SIGCONT);
        }
        self.alarms.set(clock::now() + self.terms.grace, Timer::Orphaned);
    }
}

pub(super) fn announce(text: &str) {
    report::print_error_now(&format!("remuda agent: {text}\n"));
}
