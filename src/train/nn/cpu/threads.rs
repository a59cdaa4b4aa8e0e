//! Distribution of work to threads, by rows and never within a sum.
//!
//! The caller divides work into tiles by shape alone; the number of threads affects only which
//! thread computes a tile, not its result. One, two or three threads give the same bits.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Number of threads that a model uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads(NonZeroUsize);

impl Threads {
    /// The calling thread alone.
    pub const ONE: Self = Self(NonZeroUsize::MIN);

    /// `count` threads, including the calling one.
    pub fn new(count: NonZeroUsize) -> Self {
        Self(count)
    }

    /// Runs `work` on every tile and returns when all are done; neighbours go to the same thread.
    pub fn run<T: Send>(self, tiles: impl IntoIterator<Item = T>, work: impl Fn(T) + Sync) {
        match self.0.get() {
            1 => tiles.into_iter().for_each(work),
            count => run_on(count, tiles.into_iter().collect(), &work),
        }
    }
}

fn run_on<T: Send>(count: usize, mut tiles: Vec<T>, work: &(impl Fn(T) + Sync)) {
    let share = tiles.len().div_ceil(count).max(1);
    let mut parts = Vec::new();
    while share < tiles.len() {
        parts.push(Mutex::new(tiles.split_off(tiles.len() - share)));
    }
    let work_on = |part: &Mutex<Vec<T>>| {
        let part = std::mem::take(&mut *part.lock().unwrap_or_else(PoisonError::into_inner));
        part.into_iter().for_each(work);
    };
    thread::scope(|scope| {
        for part in &parts {
            let started = thread::Builder::new().spawn_scoped(scope, || work_on(part));
            // If no more threads can be started, the work is slower, but its result is the same.
            if started.is_err() {
                work_on(part);
            }
        }
        tiles.into_iter().for_each(work);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_process_each_tile_once() {
        for count in 1..6 {
            for len in 0..12 {
                let mut tiles = vec![0; len];
                let threads = Threads::new(NonZeroUsize::new(count).expect("count begins at 1"));
                threads.run(tiles.iter_mut().enumerate(), |(i, tile)| *tile += i + 1);
                assert_eq!(tiles, (1..=len).collect::<Vec<_>>(), "{count} threads");
            }
        }
    }
}
