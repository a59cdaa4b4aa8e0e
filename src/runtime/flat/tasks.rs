//! [`Parallel`]: how a computation over blocks of flat buffers uses threads. The blocks are divided by
//! position alone, so the threads change no result.

use std::sync::Mutex;

use crate::base::lock;

/// Runs independent tasks, on threads of the caller's choice.
pub trait Parallel: Sync {
    /// Calls `task(0)` to `task(count - 1)`, each once, in any order and on any threads; returns after the
    /// last one has returned.
    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync));
}

/// The calling thread alone, as [`Parallel`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Serial;

impl Parallel for Serial {
    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(task);
    }
}

/// Calls `work` once for each item, with one task for each.
pub(crate) fn for_each<T: Send>(
    parallel: &dyn Parallel,
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) + Sync,
) {
    // Each task takes its own item, so no lock is waited for.
    let items: Vec<Mutex<Option<T>>> =
        items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    parallel.run(items.len(), &|index| {
        let item = lock(&items[index]).take();
        if let Some(item) = item {
            work(item);
        }
    });
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A number of threads that take tasks in turn; each runs its own from the last to the first.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Strided(pub(crate) usize);

    impl Parallel for Strided {
        fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
            std::thread::scope(|scope| {
                for thread in 0..self.0 {
                    let stride = self.0;
                    scope.spawn(move || (thread..count).step_by(stride).rev().for_each(task));
                }
            });
        }
    }

    #[test]
    fn each_item_is_processed_once() {
        for count in 0..9 {
            for threads in [1, 2, 5] {
                let mut items = vec![1; count];
                for_each(&Strided(threads), items.iter_mut(), |item| *item += 1);
                for_each(&Serial, items.iter_mut(), |item| *item *= 3);
                assert_eq!(items, vec![6; count]);
            }
        }
    }
}
