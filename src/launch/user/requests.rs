//! What the user may ask of a running job.

use std::io;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::allocation_timer::AllocationTimer;
use super::input::Input;
use super::pause::{Pause, PauseScope};
use super::signals::Signals;
use crate::base::NodeRank;

/// Signals, standard input and suspension of a job.
pub(in crate::launch) struct UserRequests {
    pub(in crate::launch) signals: Signals,
    /// Timer for the end of the allocation.
    pub(in crate::launch) allocation: AllocationTimer,
    pub(in crate::launch) stdin: Input,
    pub(in crate::launch) pause: Pause,
    /// Receives a message when the screen has no more output to write.
    pub(in crate::launch) screen_idle: mpsc::UnboundedReceiver<()>,
    screen_idle_sender: mpsc::UnboundedSender<()>,
}

impl UserRequests {
    /// Handles the signals of this process from now on.
    pub(in crate::launch) fn listen() -> io::Result<Self> {
        // Holds one message for each suspension by the user.
        let (screen_idle_sender, screen_idle) = mpsc::unbounded_channel();
        Ok(Self {
            signals: Signals::listen()?,
            allocation: AllocationTimer::default(),
            stdin: Input::default(),
            pause: Pause::default(),
            screen_idle,
            screen_idle_sender,
        })
    }

    /// Begins a suspension: the workers of these nodes and the screen stop first. Returns what to
    /// call when the screen has stopped; `None` if a suspension has begun already.
    pub(in crate::launch) fn begin_pause(
        &mut self,
        now: Instant,
        nodes: impl Iterator<Item = NodeRank>,
    ) -> Option<impl FnOnce() + Send + 'static> {
        let scopes = nodes.map(PauseScope::Node).chain([PauseScope::Screen]);
        self.pause.start(now, scopes).then(|| {
            let screen_idle = self.screen_idle_sender.clone();
            move || {
                let _ = screen_idle.send(());
            }
        })
    }

    /// The launcher, which stopped at an instant, was continued. Returns for how long it was stopped.
    pub(in crate::launch) fn on_continued(&mut self, since: Instant, now: Instant) -> Duration {
        let suspended = now.saturating_duration_since(since);
        self.pause.on_resumed(suspended);
        suspended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;

    const SECOND: Duration = Duration::from_secs(1);

    fn in_runtime(test: impl FnOnce(UserRequests)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        runtime.expect("a runtime").block_on(async {
            test(UserRequests::listen().expect("signals can be handled"));
        });
    }

    #[test]
    fn launcher_stops_when_workers_and_screen_have_stopped() {
        in_runtime(|mut user| {
            let (now, nodes) = (clock::now(), [NodeRank(0), NodeRank(1)]);
            let on_screen_idle = user.begin_pause(now, nodes.into_iter()).expect("the first one");
            assert!(user.begin_pause(now + SECOND, nodes.into_iter()).is_none(), "it has begun");
            for node in nodes {
                user.pause.on_stopped(PauseScope::Node(node));
            }
            assert!(user.pause.stop_at().expect("it has begun") > now, "the screen still writes");
            assert!(user.screen_idle.try_recv().is_err());
            on_screen_idle();
            user.screen_idle.try_recv().expect("the screen has stopped");
            user.pause.on_stopped(PauseScope::Screen);
            assert_eq!(user.pause.stop_at(), Some(now));
        });
    }

    #[test]
    fn suspensions_of_a_job_add_up_and_can_repeat() {
        in_runtime(|mut user| {
            let mut now = clock::now();
            for (number, seconds) in [(1, 7), (2, 5)] {
                let first = user.begin_pause(now, std::iter::once(NodeRank(0)));
                assert!(first.is_some(), "suspension {number}");
                let resumed = now + seconds * SECOND;
                assert_eq!(user.on_continued(now, resumed), seconds * SECOND);
                assert_eq!(user.pause.stop_at(), None, "the launcher runs");
                now = resumed + SECOND;
            }
            assert_eq!(user.pause.total(), 12 * SECOND);
        });
    }

    #[test]
    fn jobs_without_readers_do_not_read_standard_input() {
        in_runtime(|mut user| {
            user.stdin.start(std::iter::empty());
            assert_eq!(user.stdin.readers().count(), 0);
        });
    }
}
