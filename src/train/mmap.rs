//! A file as memory, read as it is touched.

use std::io;
use std::ops::Deref;
use std::path::Path;

use crate::os::input_file::open_regular;

/// The content of a file that nobody shortens while we read it.
#[derive(Debug)]
pub(super) struct MappedFile(memmap2::Mmap);

impl MappedFile {
    /// Maps a file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = open_regular(path)?;
        // SAFETY: the mapping is private and read-only, and the file is a training text that is left
        // alone during the run. Were it changed, we would read other bytes; were it cut short, the
        // kernel would end this process with SIGBUS, which is how a lost input should end it.
        unsafe { memmap2::Mmap::map(&file) }.map(Self)
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
