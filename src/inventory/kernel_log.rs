//! GPU errors in the kernel's log, if this process may read it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;

/// Number of newest errors that are reported.
const XIDS_MAX: usize = 8;
/// Bound of the records read; the kernel's log holds only some megabytes, so it has fewer.
const RECORDS_MAX: usize = 1 << 20;

/// Error lines of the driver (`Xid`), newest last; empty if the log cannot be read.
pub fn xids() -> Vec<String> {
    let log = File::options().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
    let Ok(mut log) = log else { return Vec::new() };
    let mut found = Vec::new();
    let mut record = vec![0; 8192];
    for _ in 0..RECORDS_MAX {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(length) => found.extend(xid_in(&String::from_utf8_lossy(&record[..length]))),
            // The kernel overwrote a record before it was read; the next read goes on after it.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    found.split_off(found.len().saturating_sub(XIDS_MAX))
}

/// Error in a record of the log, such as
/// `6,1234,99,-;NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus.`
fn xid_in(record: &str) -> Option<String> {
    let (_, text) = record.split_once(';')?;
    let text = text.lines().next()?.strip_prefix("NVRM: ")?;
    text.starts_with("Xid").then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xid_is_found_in_a_log_record() {
        let record =
            "4,1203,99;NVRM: Xid (PCI:0000:1a:00): 79, pid=7, GPU has fallen off the bus.\n";
        let expect = "Xid (PCI:0000:1a:00): 79, pid=7, GPU has fallen off the bus.";
        assert_eq!(xid_in(record).as_deref(), Some(expect));
        assert_eq!(xid_in("6,1,2,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module\n"), None);
        assert_eq!(xid_in("no record"), None);
    }

    #[test]
    fn xids_reads_a_bounded_log() {
        assert!(xids().len() <= XIDS_MAX);
    }
}
