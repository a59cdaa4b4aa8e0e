//! The peak of the memory that this process alone has used.

use std::fs;

/// Returns the peak of this process's own memory in bytes, without files and memory that it shares with
/// others; `None`: unknown. The shared pages of the present are subtracted from the peak of all pages, so the
/// result is too high if the process has released shared pages since.
pub fn peak_private_memory() -> Option<u64> {
    parse(&fs::read_to_string("/proc/self/status").ok()?)
}

/// Parses `/proc/PID/status`.
fn parse(status: &str) -> Option<u64> {
    let bytes_of = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
        kib.checked_mul(1024)
    };
    let shared = bytes_of("RssFile")? + bytes_of("RssShmem")?;
    Some(bytes_of("VmHWM")?.saturating_sub(shared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_pages_are_subtracted_from_the_peak() {
        let status = "VmHWM:\t  900 kB\nVmRSS:\t 800 kB\nRssAnon:\t 100 kB\nRssFile:\t  200 kB\n\
                      RssShmem:\t  300 kB\n";
        assert_eq!(parse(status), Some(400 << 10));
        assert_eq!(parse("VmHWM:\t  900 kB\n"), None);
        assert!(peak_private_memory().is_some_and(|bytes| 100_000 < bytes));
    }
}
