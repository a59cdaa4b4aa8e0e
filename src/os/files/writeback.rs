//! Hints about files that are written or read once, from the beginning to the end.

use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsRawFd;

use rustix::fs::Advice;

/// Starts to write a range of a file to its disk, so that less is left for `fsync`. Does not wait, and does
/// nothing if the file system cannot do it.
pub fn start_writeback(file: &File, range: &Range<u64>) {
    let length = range.end.saturating_sub(range.start);
    let (start, length) = (range.start as libc::off64_t, length as libc::off64_t);
    // SAFETY: the call takes an open descriptor and plain numbers.
    let _ = unsafe {
        libc::sync_file_range(file.as_raw_fd(), start, length, libc::SYNC_FILE_RANGE_WRITE)
    };
}

/// Starts to read a range of a file into the memory of the kernel. Does not wait, and does nothing if the
/// file system cannot do it.
pub fn start_reading(file: &File, range: &Range<u64>) {
    let length = NonZeroU64::new(range.end.saturating_sub(range.start));
    if length.is_some() {
        let _ = rustix::fs::fadvise(file, range.start, length, Advice::WillNeed);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn hints_do_not_change_a_file() {
        let path = std::env::temp_dir().join(format!("remuda-hints-{}", std::process::id()));
        let mut file = File::create_new(&path).expect("a new file");
        file.write_all(&[7; 10_000]).expect("it is written");
        start_writeback(&file, &(0..10_000));
        // Beyond the end.
        start_writeback(&file, &(10_000..20_000));
        let mut read = File::open(&path).expect("it is there");
        for range in [0..5_000, 5_000..20_000, 3..3] {
            start_reading(&read, &range);
        }
        let mut bytes = Vec::new();
        read.read_to_end(&mut bytes).expect("it is read");
        assert_eq!(bytes, [7; 10_000]);
        fs::remove_file(path).expect("it is there");
    }
}
