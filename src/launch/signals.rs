//! Signals of the user → events.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tokio::signal::unix::{Signal, SignalKind, signal};

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
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
    quit: Option<Signal>,
    suspend: Option<Signal>,
    user1: Option<Signal>,
    user2: Option<Signal>,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: listen(libc::SIGINT)?,
            terminate: listen(libc::SIGTERM)?,
            hangup: listen(libc::SIGHUP)?,
            quit: listen(libc::SIGQUIT)?,
            suspend: listen(libc::SIGTSTP)?,
            user1: listen(libc::SIGUSR1)?,
            user2: listen(libc::SIGUSR2)?,
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
            () = recv(&mut self.interrupt) => Wish::Stop(libc::SIGINT),
            () = recv(&mut self.terminate) => Wish::Stop(libc::SIGTERM),
            () = recv(&mut self.hangup) => Wish::Stop(libc::SIGHUP),
            () = recv(&mut self.quit) => Wish::Tell,
            () = recv(&mut self.suspend) => Wish::Suspend,
            () = recv(&mut self.user1) => Wish::Forward(libc::SIGUSR1),
            () = recv(&mut self.user2) => Wish::Forward(libc::SIGUSR2),
        }
    }
}

fn listen(number: i32) -> io::Result<Option<Signal>> {
    if signals::is_ignored(number) {
        return Ok(None);
    }
    signal(SignalKind::from_raw(number)).map(Some)
}

async fn recv(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => match signal.recv().await {
            Some(()) => {}
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}
