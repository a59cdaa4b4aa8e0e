//! Reports when a socket is made in the private directory: an ssh master makes one when its
//! connection is up.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify;
use tokio::io::Interest;
use tokio::sync::watch;

use crate::os;

/// Starts the watch and returns a counter of changes. Must be called inside a runtime.
pub(super) fn watch(dir: &Path) -> io::Result<watch::Receiver<u64>> {
    let fd = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    inotify::add_watch(&fd, dir, inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO)?;
    let fd = os::files::async_fd::register(fd, Interest::READABLE)?;
    let (changes, seen) = watch::channel(0);
    tokio::spawn(async move {
        while fd.async_io(Interest::READABLE, drain).await.is_ok() {
            changes.send_modify(|count| *count += 1);
        }
        // Keeps the descriptor, and with it the watch, until the task ends.
        drop(fd);
    });
    Ok(seen)
}

/// Reads and discards the events: the receiver scans the directory itself.
fn drain(fd: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); 4096];
    rustix::io::read(fd, &mut space)?;
    Ok(())
}
