//! What the user may ask of a running job.

use std::io;
use std::time::Duration;

use tokio::sync::mpsc;

use super::allocation_timer::AllocationTimer;
use super::input::Input;
use super::pause::{Pause, PauseScope};
use super::signals::Signals;
use crate::base::{NodeRank, clock};
use crate::os::process::signals;

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
        nodes: impl Iterator<Item = NodeRank>,
    ) -> Option<impl FnOnce() + Send + 'static> {
        let scopes = nodes.map(PauseScope::Node).chain([PauseScope::Screen]);
        self.pause.start(clock::now(), scopes).then(|| {
            let screen_idle = self.screen_idle_sender.clone();
            move || {
                let _ = screen_idle.send(());
            }
        })
    }

    /// Stops this process; returns when it is continued, and for how long it was stopped.
    pub(in crate::launch) fn stop_launcher(&mut self) -> Duration {
        let since = clock::now();
        signals::stop_self();
        let suspended = clock::now() - since;
        self.pause.on_resumed(suspended);
        suspended
    }
}
