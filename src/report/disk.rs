//! A look at a disk that may hang, or a word to it: on a thread of its own, so that a file server that is
//! gone holds up nobody for longer than was said.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crate::os::errand::hangs;

/// One disk, asked by one caller at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    /// Somebody still waits for what it was asked before.
    is_busy: Arc<AtomicBool>,
}

impl Disk {
    /// What an errand comes back with. One that has not come back after so long is left alone, and as
    /// long as it is away the next ones are not even sent.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        limit: Duration,
        errand: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        if self.is_busy.swap(true, Ordering::Acquire) {
            return Err(hangs());
        }
        let (tell, told) = mpsc::channel();
        let is_busy = Arc::clone(&self.is_busy);
        let work = move || {
            let result = errand();
            is_busy.store(false, Ordering::Release);
            let _ = tell.send(result);
        };
        if let Err(error) = std::thread::Builder::new().name("disk".to_owned()).spawn(work) {
            self.is_busy.store(false, Ordering::Release);
            return Err(error);
        }
        told.recv_timeout(limit).unwrap_or_else(|_| Err(hangs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_hangs_is_left_alone_and_asked_again_once_it_is_back() {
        let (disk, long) = (Disk::default(), Duration::from_secs(60));
        assert_eq!(disk.ask(long, || Ok(1)).expect("it answers"), 1);
        let (go, gate) = mpsc::channel::<()>();
        let (tell, back) = mpsc::channel();
        let hung = disk.ask(Duration::from_millis(1), move || {
            let _ = gate.recv();
            let _ = tell.send(());
            Ok(())
        });
        assert_eq!(hung.expect_err("it hangs").kind(), io::ErrorKind::TimedOut);
        // Nobody waits for this one, however long it may take.
        assert!(disk.ask(long, || Ok(())).is_err());
        drop(go);
        back.recv().expect("it comes back");
        while disk.is_busy.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        assert_eq!(disk.ask(long, || Ok(2)).expect("it answers"), 2);
    }
}
