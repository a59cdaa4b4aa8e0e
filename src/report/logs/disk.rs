//! File I/O on a thread of its own with a timeout, because the file system may hang: a file server
//! that does not respond delays the caller for a bounded time only.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::os::process::io_with_timeout::timeout_error;

/// Runner of file I/O for one file system, one operation at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    /// Whether an earlier operation has not finished yet.
    is_busy: Arc<AtomicBool>,
}

impl Disk {
    /// Runs an operation and returns its result. If it has not finished within the limit, it is
    /// left running; until it finishes, further operations fail at once.
    pub(super) fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        operation: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        if self.is_busy.swap(true, Ordering::Acquire) {
            return Err(timeout_error());
        }
        let (sender, receiver) = mpsc::sync_channel(1);
        let is_busy = Arc::clone(&self.is_busy);
        let work = move || {
            let result = operation();
            is_busy.store(false, Ordering::Release);
            let _ = sender.send(result);
        };
        if let Err(error) = std::thread::Builder::new().name("disk".to_owned()).spawn(work) {
            self.is_busy.store(false, Ordering::Release);
            return Err(error);
        }
        receiver.recv_timeout(limit).unwrap_or_else(|_| Err(timeout_error()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hung_disk_is_skipped_until_it_responds() {
        let (disk, limit) = (Disk::default(), Duration::from_secs(60));
        assert_eq!(disk.run(limit, || Ok(1)).expect("the disk responds"), 1);
        let (go, gate) = mpsc::channel::<()>();
        let (sender, resumed) = mpsc::channel();
        let hung = disk.run(Duration::from_millis(1), move || {
            let _ = gate.recv();
            let _ = sender.send(());
            Ok(())
        });
        assert_eq!(hung.expect_err("the operation hangs").kind(), io::ErrorKind::TimedOut);
        // This operation fails at once, although its limit is long.
        assert!(disk.run(limit, || Ok(())).is_err());
        drop(go);
        resumed.recv().expect("the operation resumes");
        while disk.is_busy.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        assert_eq!(disk.run(limit, || Ok(2)).expect("the disk responds"), 2);
    }
}
