//! Signals of the user → events.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::os::heard::Heard;
use crate::os::signals;

/// What the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// End the job.
    Stop(i32),
    /// Say how every worker is doing, and go on (SIGQUIT).
    Tell,
    /// Stop the clock until somebody continues us (Ctrl-Z).
    Suspend,
    /// A signal for the workers alone (SIGUSR1, SIGUSR2).
    Forward(i32),
}

impl Wish {
    /// What a signal asks for that was sent to another process of the job; nothing that concerns
    /// that process alone.
    pub(super) fn of(signal: i32) -> Option<Self> {
        match signal {
            libc::SIGINT | libc::SIGTERM | libc::SIGHUP => Some(Self::Stop(signal)),
            libc::SIGUSR1 | libc::SIGUSR2 => Some(Self::Forward(signal)),
            _ => None,
        }
    }
}

/// Every signal that we listen to. Those that were ignored at start (nohup) stay ignored.
pub(super) struct Signals {
    interrupt: Heard,
    terminate: Heard,
    hangup: Heard,
    quit: Heard,
    suspend: Heard,
    user1: Heard,
    user2: Heard,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: Heard::listen(libc::SIGINT)?,
            terminate: Heard::listen(libc::SIGTERM)?,
            hangup: Heard::listen(libc::SIGHUP)?,
            quit: Heard::listen(libc::SIGQUIT)?,
            suspend: Heard::listen(libc::SIGTSTP)?,
            user1: Heard::listen(libc::SIGUSR1)?,
            user2: Heard::listen(libc::SIGUSR2)?,
        })
    }

    /// The first that asks for the end, where nothing runs yet.
    pub(super) async fn stop(&mut self) -> i32 {
        loop {
            match self.next().await {
                Wish::Stop(signal) => return signal,
                Wish::Suspend => signals::stop_self(),
                Wish::Tell | Wish::Forward(_) => {}
            }
        }
    }

    /// Sends what has come, and nobody has asked for, to this process once more: others listen by now.
    pub(super) fn pass_on(&mut self) {
        let mut ask = Context::from_waker(Waker::noop());
        while let Poll::Ready(Wish::Stop(signal)) = pin!(self.next()).poll(&mut ask) {
            signals::send_to_self(signal);
        }
    }

    pub(super) async fn next(&mut self) -> Wish {
        tokio::select! {
            () = self.interrupt.recv() => Wish::Stop(libc::SIGINT),
            () = self.terminate.recv() => Wish::Stop(libc::SIGTERM),
            () = self.hangup.recv() => Wish::Stop(libc::SIGHUP),
            () = self.quit.recv() => Wish::Tell,
            () = self.suspend.recv() => Wish::Suspend,
            () = self.user1.recv() => Wish::Forward(libc::SIGUSR1),
            () = self.user2.recv() => Wish::Forward(libc::SIGUSR2),
        }
    }
}
