//! Settings of malloc for processes that forward data and keep little of it.

/// Uses one heap for all threads, which is not returned to the kernel and requested again for every
/// piece of output. Must be called before there are threads.
pub fn use_one_arena() {
    #[cfg(target_env = "gnu")]
    {
        /// Blocks of at least this size get their own mapping.
        const OWN_MAPPING_BYTES: libc::c_int = 1 << 20;
        /// Free bytes that may remain at the end of the heap.
        const FREE_BYTES_MAX: libc::c_int = 2 << 20;
        // SAFETY: the parameters are plain numbers; glibc ignores one that it does not know.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
            libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_MAPPING_BYTES);
            libc::mallopt(libc::M_TRIM_THRESHOLD, FREE_BYTES_MAX);
        }
    }
}
