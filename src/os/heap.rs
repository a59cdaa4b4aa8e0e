//! The allocator of processes that pass things on and keep little.

/// One heap for all threads, which is not given back to the kernel and taken again for every piece
/// of output. To be called before there are threads.
pub fn share() {
    #[cfg(target_env = "gnu")]
    {
        /// Larger blocks are mappings of their own.
        const OWN_MAPPING_BYTES: libc::c_int = 1 << 20;
        /// What may lie free at the end of the heap.
        const FREE_BYTES_MAX: libc::c_int = 2 << 20;
        // SAFETY: the parameters are plain numbers; one that glibc does not know is passed over.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
            libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_MAPPING_BYTES);
            libc::mallopt(libc::M_TRIM_THRESHOLD, FREE_BYTES_MAX);
        }
    }
}
