//! Threads that share the blocks of a checkpoint.

use std::num::NonZeroUsize;
use std::thread;

/// Largest number of threads that read a checkpoint: beyond it disks are no faster.
const THREADS_MAX: usize = 16;

/// Number of threads for reading: one for each processor on which this process may run.
pub(super) fn reading_threads() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get).min(THREADS_MAX)
}

/// Executes `work` on this thread and on others beside it until all have returned; it takes what it does from a
/// queue that all share. If the system has no more threads, the others do their part.
pub(super) fn on_threads(threads: usize, work: &(impl Fn() + Sync)) {
    thread::scope(|scope| {
        for _ in 1..threads {
            let thread = thread::Builder::new().name("remuda-blocks".to_owned());
            let _ = thread.spawn_scoped(scope, work);
        }
        work();
    });
}
