//! A pseudo-terminal whose screen a test reads.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// The two ends of one: ours, and the one that a program takes for its terminal.
pub(crate) fn open() -> (OwnedFd, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&ours).expect("granted");
    unlockpt(&ours).expect("unlocked");
    let name = ptsname(&ours, Vec::new()).expect("a name");
    let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    let theirs = File::options().read(true).write(true).open(path).expect("the other end");
    (ours, theirs.into())
}
