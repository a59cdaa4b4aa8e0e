//! Signals of the user → events.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::os::heard::PendingSignal;
use crate::os::signals;

/// What the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UserRequest {
    /// End the job.
    Stop(i32),
    /// Say how every worker is doing, and go on (SIGQUIT).
    Tell,
    /// Stop the clock until somebody continues us (Ctrl-Z).
    Suspend,
    /// A signal for the workers alone (SIGUSR1, SIGUSR2).
    Forward(i32),
}

impl UserRequest {
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
    interrupt: PendingSignal,
    terminate: PendingSignal,
    hangup: PendingSignal,
    quit: PendingSignal,
    suspend: PendingSignal,
    user1: PendingSignal,
    user2: PendingSignal,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: PendingSignal::listen(libc::SIGINT)?,
            terminate: PendingSignal::listen(libc::SIGTERM)?,
            hangup: PendingSignal::listen(libc::SIGHUP)?,
            quit: PendingSignal::listen(libc::SIGQUIT)?,
            suspend: PendingSignal::listen(libc::SIGTSTP)?,
            user1: PendingSignal::listen(libc::SIGUSR1)?,
            user2: PendingSignal::listen(libc::SIGUSR2)?,
        })
    }

    /// The first that asks for the end, where nothing runs yet.
    pub(super) async fn stop(&mut self) -> i32 {
        loop {
            match self.next().await {
                UserRequest::Stop(signal) => return signal,
                UserRequest::Suspend => signals::stop_self(),
                UserRequest::Tell | UserRequest::Forward(_) => {}
            }
        }
    }

    /// Sends what has come, and nobody has asked for, to this process once more: others listen by now.
    pub(super) fn pass_on(&mut self) {
        let mut ask = Context::from_waker(Waker::noop());
        while let Poll::Ready(UserRequest::Stop(signal)) = pin!(self.next()).poll(&mut ask) {
            signals::send_to_self(signal);
        }
    }

    pub(super) async fn next(&mut self) -> UserRequest {
        tokio::select! {
            () = self.interrupt.recv() => UserRequest::Stop(libc::SIGINT),
            () = self.terminate.recv() => UserRequest::Stop(libc::SIGTERM),
            () = self.hangup.recv() => UserRequest::Stop(libc::SIGHUP),
            () = self.quit.recv() => UserRequest::Tell,
            () = self.suspend.recv() => UserRequest::Suspend,
            () = self.user1.recv() => UserRequest::Forward(libc::SIGUSR1),
            () = self.user2.recv() => UserRequest::Forward(libc::SIGUSR2),
        }
    }
}
