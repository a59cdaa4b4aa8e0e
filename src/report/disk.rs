//! File I/O on a thread of its own with a timeout, because the file system may hang: a file server
//! that is gone delays the caller for a bounded time only.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crate::os::errand::hangs;

/// A disk that one caller at a time uses.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    /// Whether an earlier operation has not finished yet.
    is_busy: Arc<AtomicBool>,
}

impl Disk {
    /// Runs an operation and returns its result. If it has not finished within the limit, it is
    /// left running; until it finishes, further operations fail at once.
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
    fn hung_disk_is_skipped_until_it_responds() {
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
        // This operation fails at once, although its limit is long.
        assert!(disk.ask(long, || Ok(())).is_err());
        drop(go);
        back.recv().expect("it comes back");
        while disk.is_busy.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        assert_eq!(disk.ask(long, || Ok(2)).expect("it answers"), 2);
    }
}
