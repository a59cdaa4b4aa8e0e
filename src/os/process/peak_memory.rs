//! The peak of the memory that this process alone has used.

use std::fs;

/// Peaks of the memory of a process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessPeak {
    /// Its own memory, without files and memory that it shares with others. The shared pages of the present are
    /// subtracted from the peak of all pages, so this is too high if the process has released shared pages since.
    pub private: u64,
    /// All pages that it has mapped and used.
    pub resident: u64,
}

/// Returns the peaks of this process; `None`: unknown.
pub fn peak_memory() -> Option<ProcessPeak> {
    parse(&fs::read_to_string("/proc/self/status").ok()?)
}

/// Parses `/proc/PID/status`.
fn parse(status: &str) -> Option<ProcessPeak> {
    let bytes_of = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
        kib.checked_mul(1024)
    };
    let shared = bytes_of("RssFile")? + bytes_of("RssShmem")?;
    let resident = bytes_of("VmHWM")?;
    Some(ProcessPeak { private: resident.saturating_sub(shared), resident })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_pages_are_subtracted_from_the_peak() {
        let status = "VmHWM:\t  900 kB\nVmRSS:\t 800 kB\nRssAnon:\t 100 kB\nRssFile:\t  200 kB\n\
                      RssShmem:\t  300 kB\n";
        let peak = ProcessPeak { private: 400 << 10, resident: 900 << 10 };
        assert_eq!(parse(status), Some(peak));
        assert_eq!(parse("VmHWM:\t  900 kB\n"), None);
        assert!(peak_memory().is_some_and(|peak| 100_000 < peak.private));
    }
}
