//! Distribution of work to threads, by rows and never within a sum.
//!
//! The caller divides work into tiles by shape alone; the number of threads affects only which
//! thread computes a tile, not its result. One, two or three threads give the same bits.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Mutex;

use rayon_core::{ThreadPool, ThreadPoolBuilder};

use crate::base::lock;
use crate::runtime::Parallel;

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

impl Parallel for Threads {
    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        Self::run(*self, 0..count, task);
    }
}

fn run_on<T: Send>(count: usize, mut tiles: Vec<T>, work: &(impl Fn(T) + Sync)) {
    // If no more threads can be started, the work is slower, but its result is the same.
    let Some(helpers) = helpers(count - 1) else { return tiles.into_iter().for_each(work) };
    let share = tiles.len().div_ceil(count).max(1);
    helpers.in_place_scope(|scope| {
        while share < tiles.len() {
            let part = tiles.split_off(tiles.len() - share);
            scope.spawn(move |_| part.into_iter().for_each(work));
        }
        tiles.into_iter().for_each(work);
    });
}

/// The threads beside the calling one. They are started once and wait for the next call: starting a
/// thread takes longer than the work of a small layer.
fn helpers(count: usize) -> Option<&'static ThreadPool> {
    static POOLS: Mutex<BTreeMap<usize, &'static ThreadPool>> = Mutex::new(BTreeMap::new());
    let mut pools = lock(&POOLS);
    if let Some(pool) = pools.get(&count) {
        return Some(pool);
    }
    let builder = ThreadPoolBuilder::new().num_threads(count);
    let pool = builder.thread_name(|index| format!("model-{index}")).build().ok()?;
    let pool = Box::leak(Box::new(pool));
    pools.insert(count, pool);
    Some(pool)
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
