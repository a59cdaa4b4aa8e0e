//! GPU errors in the kernel's log, if this process may read it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// Number of newest errors that are reported.
const XIDS_MAX: usize = 8;
/// Bound of the records read; the kernel's log holds only some megabytes, so it has fewer.
const RECORDS_MAX: usize = 1 << 20;

/// Numbers of errors of a GPU itself, of its memory or links: they do not depend on the program that runs.
/// NVIDIA's list of Xid errors has the others too.
const DEVICE_XIDS: [u32; 12] = [48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140];

/// Error lines of the driver (`Xid`), newest last; empty if the log cannot be read.
pub fn xids() -> Vec<String> {
    open().map_or_else(Vec::new, |mut log| read_xids(&mut log))
}

/// The log from its present end on.
pub fn open_log_at_end() -> Option<File> {
    let mut log = open()?;
    log.seek(SeekFrom::End(0)).ok()?;
    Some(log)
}

fn open() -> Option<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").ok()
}

/// Error lines of the driver that have not been read, newest last.
pub fn read_xids(log: &mut File) -> Vec<String> {
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

/// Whether an error line is about a process: about this one, or about a whole GPU.
pub fn xid_concerns(line: &str, pid: u32) -> bool {
    xid_is_of_device(line) || line.split(", ").any(|part| part == format!("pid={pid}"))
}

/// Whether an error line is about a GPU itself, whichever program runs.
pub fn xid_is_of_device(line: &str) -> bool {
    let number = line.split_once("): ").and_then(|(_, rest)| rest.split(',').next()?.parse().ok());
    number.is_some_and(|number| DEVICE_XIDS.contains(&number))
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
    fn xid_concerns_its_process_or_every_process_of_the_gpu() {
        // As driver 580 logs them.
        let of_program = "Xid (PCI:0000:00:06): 43, pid=7024, name=python3, channel 0x0000000a";
        assert!(xid_concerns(of_program, 7024) && !xid_is_of_device(of_program));
        assert!(!xid_concerns(of_program, 702));
        let of_device = "Xid (PCI:0000:1a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.";
        assert!(xid_concerns(of_device, 1) && xid_is_of_device(of_device));
        assert!(!xid_concerns("Xid", 1) && !xid_concerns("", 1));
    }

    #[test]
    fn xids_reads_a_bounded_log() {
        assert!(xids().len() <= XIDS_MAX);
    }
}
