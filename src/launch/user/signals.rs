//! Signals of the user, as requests.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::os::process::signal_stream::PendingSignal;
use crate::os::process::signals;

/// A request of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::launch) enum UserRequest {
    /// End the job.
    Stop(i32),
    /// Print the state of every worker, and go on (SIGQUIT).
    ShowState,
    /// Suspend the job until this process is continued (Ctrl-Z).
    Suspend,
    /// Forward a signal to the workers (SIGUSR1, SIGUSR2).
    Forward(i32),
}

impl UserRequest {
    /// The request of a signal that another process of the job received; `None` for signals that
    /// concern only that process.
    pub(in crate::launch) fn from_signal(signal: i32) -> Option<Self> {
        match signal {
            libc::SIGINT | libc::SIGTERM | libc::SIGHUP => Some(Self::Stop(signal)),
            libc::SIGUSR1 | libc::SIGUSR2 => Some(Self::Forward(signal)),
            _ => None,
        }
    }
}

/// The signals that remuda handles. SIGHUP and SIGTERM stay ignored if they were at the start (nohup).
pub(in crate::launch) struct Signals {
    interrupt: PendingSignal,
    terminate: PendingSignal,
    hangup: PendingSignal,
    quit: PendingSignal,
    suspend: PendingSignal,
    user1: PendingSignal,
    user2: PendingSignal,
}

impl Signals {
    pub(in crate::launch) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: PendingSignal::listen_to_keys(libc::SIGINT)?,
            terminate: PendingSignal::listen(libc::SIGTERM)?,
            hangup: PendingSignal::listen(libc::SIGHUP)?,
            quit: PendingSignal::listen_to_keys(libc::SIGQUIT)?,
            suspend: PendingSignal::listen(libc::SIGTSTP)?,
            user1: PendingSignal::listen(libc::SIGUSR1)?,
            user2: PendingSignal::listen(libc::SIGUSR2)?,
        })
    }

    /// Waits for the first signal that requests the end, while nothing runs yet.
    pub(in crate::launch) async fn wait_for_stop(&mut self) -> i32 {
        loop {
            match self.next().await {
                UserRequest::Stop(signal) => return signal,
                UserRequest::Suspend => signals::stop_self(),
                UserRequest::ShowState | UserRequest::Forward(_) => {}
            }
        }
    }

    /// Sends pending signals to this process once more, because other handlers are installed by
    /// now.
    pub(in crate::launch) fn resend_pending(&mut self) {
        let mut ask = Context::from_waker(Waker::noop());
        while let Poll::Ready(UserRequest::Stop(signal)) = pin!(self.next()).poll(&mut ask) {
            signals::send_to_self(signal);
        }
    }

    pub(in crate::launch) async fn next(&mut self) -> UserRequest {
        tokio::select! {
            () = self.interrupt.recv() => UserRequest::Stop(libc::SIGINT),
            () = self.terminate.recv() => UserRequest::Stop(libc::SIGTERM),
            () = self.hangup.recv() => UserRequest::Stop(libc::SIGHUP),
            () = self.quit.recv() => UserRequest::ShowState,
            () = self.suspend.recv() => UserRequest::Suspend,
            () = self.user1.recv() => UserRequest::Forward(libc::SIGUSR1),
            () = self.user2.recv() => UserRequest::Forward(libc::SIGUSR2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_concern_the_job_are_requests() {
        #[track_caller]
        fn check(signal: i32, expect: Option<UserRequest>) {
            assert_eq!(UserRequest::from_signal(signal), expect, "signal {signal}");
        }
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            check(signal, Some(UserRequest::Stop(signal)));
        }
        for signal in [libc::SIGUSR1, libc::SIGUSR2] {
            check(signal, Some(UserRequest::Forward(signal)));
        }
        for signal in [libc::SIGQUIT, libc::SIGTSTP, libc::SIGCHLD, libc::SIGWINCH] {
            check(signal, None);
        }
    }
}
