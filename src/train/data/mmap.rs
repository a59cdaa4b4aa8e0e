//! Memory-mapped file, which is read on access.

use std::io;
use std::ops::Deref;
use std::path::Path;

use crate::os::files::input_file::open_regular;

/// Content of a file, which must not be shortened while it is mapped.
#[derive(Debug)]
pub(crate) struct MappedFile(memmap2::Mmap);

impl MappedFile {
    /// Maps a file.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = open_regular(path)?;
        // SAFETY: the mapping is private and read-only, and the file is a training text that does
        // not change during the run. If it is modified, other bytes are read; if it is truncated,
        // the kernel terminates this process with SIGBUS, as is right for a lost input.
        unsafe { memmap2::Mmap::map(&file) }.map(Self)
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
