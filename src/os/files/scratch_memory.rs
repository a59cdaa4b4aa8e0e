//! [`ScratchMemory`]: numbers in a file without a name.
//!
//! The kernel writes the file to its disk and takes the memory of its pages when it needs it. The file has no
//! name, so nothing remains of it, however the process ends.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;

use bytemuck::Pod;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::os::atomic::{AtomicU64, Ordering};

/// Elements in a mapped file that only this value knows.
#[derive(Debug)]
pub struct ScratchMemory<T> {
    base: NonNull<T>,
    len: usize,
    elements: PhantomData<T>,
}

// SAFETY: the value owns its elements as a `Vec` does; no other mapping of the file exists.
unsafe impl<T: Send> Send for ScratchMemory<T> {}
// SAFETY: as above; shared access only reads.
unsafe impl<T: Sync> Sync for ScratchMemory<T> {}

impl<T: Pod> ScratchMemory<T> {
    /// Creates a file of `len` zeros in a directory, and reserves its space, so that a full disk is an error
    /// here and not later.
    ///
    /// # Errors
    /// If the directory does not exist or cannot be written, or its disk is full.
    pub fn zeros(dir: &Path, len: usize) -> io::Result<Self> {
        // A mapping has at least one byte.
        let bytes = len.saturating_mul(size_of::<T>()).max(1);
        let file = unnamed_file(dir)?;
        file.set_len(bytes as u64)?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes as u64) {
            // Some file systems cannot reserve.
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a null hint lets the kernel choose unused addresses, so no mapping is replaced.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, access, flags, &file, 0) }?;
        let base =
            NonNull::new(base.cast()).expect("mmap without a hint never returns address zero");
        Ok(Self { base, len, elements: PhantomData })
    }

    /// Removes the pages from the memory of this process until they are used again; the elements stay.
    pub fn release(&self) {
        // SAFETY: the range is mapped, and as the mapping is shared, its pages keep their contents in the file.
        let _ = unsafe {
            rustix::mm::madvise(self.base.as_ptr().cast(), self.bytes(), Advice::LinuxDontNeed)
        };
    }

    fn bytes(&self) -> usize {
        (self.len * size_of::<T>()).max(1)
    }
}

impl<T> Drop for ScratchMemory<T> {
    fn drop(&mut self) {
        let bytes = (self.len * size_of::<T>()).max(1);
        // SAFETY: `zeros` mapped the range, and no slice of it outlives the value.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), bytes) };
    }
}

impl<T: Pod> Deref for ScratchMemory<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the mapping has `len` elements from a page boundary, every bit pattern of a `Pod` is valid,
        // and nothing else writes to a file without a name.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl<T: Pod> DerefMut for ScratchMemory<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`; the borrow of `self` is unique.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

/// Opens a new file in a directory that has no name there.
fn unnamed_file(dir: &Path) -> io::Result<File> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let flags = OFlags::TMPFILE.bits() as i32;
    match options.clone().custom_flags(flags).open(dir) {
        // Not every file system has files without names.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
        outcome => return outcome,
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!(".remuda-scratch-{}-{number}", std::process::id()));
    let file = options.create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_memory_keeps_its_elements_and_leaves_no_file() {
        let dir = std::env::temp_dir().join(format!("remuda-scratch-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let mut memory = ScratchMemory::<u32>::zeros(&dir, 5000).unwrap();
        assert!(memory.iter().all(|value| *value == 0));
        memory.iter_mut().zip(0..).for_each(|(value, index)| *value = index);
        memory.release();
        assert!(memory.iter().copied().eq(0..5000));
        assert_eq!(ScratchMemory::<f32>::zeros(&dir, 0).unwrap().len(), 0);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        fs::remove_dir(&dir).unwrap();
        let missing = ScratchMemory::<f32>::zeros(&dir, 1).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
