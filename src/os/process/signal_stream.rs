//! Receiver of one signal in an async runtime.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::os::process::signals;

/// Receiver of a signal, from its creation on. A signal that was ignored at start (nohup) stays
/// ignored, and is never received.
pub struct PendingSignal(Option<Signal>);

impl PendingSignal {
    /// Starts to receive a signal. Must be called inside a runtime.
    pub fn listen(number: i32) -> io::Result<Self> {
        if signals::is_ignored(number) {
            return Ok(Self(None));
        }
        signal(SignalKind::from_raw(number)).map(|signal| Self(Some(signal)))
    }

    /// Starts to receive SIGINT or SIGQUIT, also if it was ignored at the start: a shell without job control starts a
    /// command with `&` so, and Ctrl-C at such a script should end the command. Must be called inside a runtime.
    pub fn listen_to_keys(number: i32) -> io::Result<Self> {
        signal(SignalKind::from_raw(number)).map(|signal| Self(Some(signal)))
    }

    /// Waits for the next signal; for ever if the signal is ignored.
    pub async fn recv(&mut self) {
        let received = match &mut self.0 {
            Some(signal) => signal.recv().await,
            None => None,
        };
        if received.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
