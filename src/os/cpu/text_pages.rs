//! Release of the executable's text pages that are mapped into this process.

use std::ffi::{c_int, c_void};

use rustix::mm::Advice;

/// Unmaps the pages of code and constants that were used so far. Pages that are used again are
/// mapped from the page cache, 64 KiB at a time, without a disk access.
///
/// Parsing a command line and building a plan touches a few megabytes of an executable. A process
/// that only waits from here on should not hold them beside workers that need memory.
pub fn unmap_text_pages() {
    // SAFETY: the callback takes no data, keeps no pointer and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(unmap_object), std::ptr::null_mut()) };
}

/// Unmaps the segments of one loaded object that cannot have been written.
unsafe extern "C" fn unmap_object(
    object: *mut libc::dl_phdr_info,
    _bytes: usize,
    _data: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes an object that stays loaded while this function reads it.
    let (object, segments) = unsafe {
        let object = &*object;
        (object, std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)))
    };
    for segment in segments {
        // Relocations and variables are in segments that are writable, at least while loading.
        if segment.p_type != libc::PT_LOAD || segment.p_flags & libc::PF_W != 0 {
            continue;
        }
        let page = rustix::param::page_size();
        let (start, end) = (object.dlpi_addr + segment.p_vaddr, segment.p_vaddr + segment.p_memsz);
        let start = start as usize & !(page - 1);
        let bytes = (object.dlpi_addr + end) as usize - start;
        // SAFETY: the pages are an unchanged private mapping of a file, so the same bytes are read
        // when they are touched again. The kernel refuses other mappings, such as its own object.
        let _ = unsafe { rustix::mm::madvise(start as *mut c_void, bytes, Advice::LinuxDontNeed) };
    }
    0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Data in the segment of constants.
    static CONSTANTS: [u8; 1 << 16] = [7; 1 << 16];
    /// Data with addresses, which the loader wrote.
    static RELOCATED: [&str; 3] = ["a", "pointer", "each"];
    static WRITTEN: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn unmapped_text_pages_are_read_again() {
        WRITTEN.store(4711, Ordering::Relaxed);
        let formatted = format!("{RELOCATED:?}");
        for _ in 0..3 {
            unmap_text_pages();
            assert!(std::hint::black_box(&CONSTANTS).iter().all(|byte| *byte == 7));
            assert_eq!(format!("{:?}", std::hint::black_box(RELOCATED)), formatted);
            assert_eq!(WRITTEN.load(Ordering::Relaxed), 4711);
        }
    }

    /// Other tests run beside this one, but none of them touches these constants.
    #[test]
    fn unmapped_text_pages_leave_memory() {
        static MANY: [u8; 4 << 20] = [9; 4 << 20];
        let touch = || std::hint::black_box(&MANY).iter().step_by(4096).map(|b| *b as u64).sum();
        let sum: u64 = touch();
        assert_eq!(sum, 9 << 10);
        unmap_text_pages();
        assert!(resident_kib(&raw const MANY as usize) < 2 << 10);
    }

    /// Returns the resident KiB of the mapping that contains an address.
    fn resident_kib(address: usize) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("Linux");
        let mut holds = false;
        for line in smaps.lines() {
            if let Some((start, end)) = range(line) {
                holds = (start..end).contains(&address);
            }
            if let (true, Some(rest)) = (holds, line.strip_prefix("Rss:")) {
                return rest.trim().trim_end_matches(" kB").parse().expect("a number");
            }
        }
        panic!("no mapping holds {address:#x}");
    }

    fn range(line: &str) -> Option<(usize, usize)> {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let parse = |text| usize::from_str_radix(text, 16).ok();
        Some((parse(start)?, parse(end)?))
    }
}
