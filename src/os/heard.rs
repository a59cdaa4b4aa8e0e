//! A signal as something to wait for.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::signals;

/// A signal that is heard from now on. One that was ignored at start (nohup) stays ignored, and never
/// comes.
pub struct PendingSignal(Option<Signal>);

impl PendingSignal {
    /// Must be called inside a runtime.
    pub fn listen(number: i32) -> io::Result<Self> {
        if signals::is_ignored(number) {
            return Ok(Self(None));
        }
        signal(SignalKind::from_raw(number)).map(|signal| Self(Some(signal)))
    }

    /// Waits for the next one.
    pub async fn recv(&mut self) {
        let came = match &mut self.0 {
            Some(signal) => signal.recv().await,
            None => None,
        };
        if came.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
