//! Goal: the shared-memory protocol of ranks is correct in every order of execution, and in every
//! view of memory that the language allows.
//! Method: the source files `cells` and `flag` are compiled here against loom's model of atomics,
//! threads and sleeping; loom then runs each test in all orders with a few preemptions.
//!
//! A waiter of the model never wakes by itself, whereas a real one checks again after some
//! milliseconds: a lost wake-up is a deadlock here, which loom reports.

mod model;

/// The modules that these files import, under the same paths.
mod base {
    pub(crate) use remuda::base::clock;
}

mod os {
    pub(crate) use crate::model::atomic;

    pub(crate) mod cpu {
        pub(crate) use crate::model::memory;
    }
}

mod runtime;

use std::convert::Infallible;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use remuda::runtime::Departure;
use runtime::comm::core::spin::Spin;
use runtime::comm::shm::cells::{AbortCell, BufferLocation, Mailbox, RankCell, wait_barrier};
use runtime::comm::shm::flag::Flag;

/// Checks once, then sleeps: in a model a second check yields nothing new.
const NO_SPIN: Spin = Spin { pauses: 0, yields: 0 };

/// Runs a test in all orders that have at most this number of preemptions.
fn check(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(test);
}

/// Check of a waiter that never aborts.
const NEVER_ABORTS: fn() -> Result<(), Infallible> = || Ok(());
/// Work of a waiter between two checks: none.
const IDLE: fn() -> Result<bool, Infallible> = || Ok(false);

fn wait(flag: &Flag, target: u32) {
    let Ok(()) = flag.wait(target, NO_SPIN, NEVER_ABORTS);
}

/// Data of one rank: loom fails if two threads access it at the same time.
#[derive(Default)]
struct Numbers(UnsafeCell<u64>);

// SAFETY: loom checks at every access that no other thread accesses it at the same time.
unsafe impl Sync for Numbers {}

impl Numbers {
    fn write(&self, value: u64) {
        // SAFETY: as above; loom fails the test before a second reference could exist.
        self.0.with_mut(|pointer| unsafe { *pointer = value });
    }

    fn read(&self) -> u64 {
        // SAFETY: as above.
        self.0.with(|pointer| unsafe { *pointer })
    }
}

#[test]
fn raised_flag_wakes_waiter_and_publishes_writes() {
    check(3, || {
        let shared = Arc::new((Flag::default(), Numbers::default()));
        let owner = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1.write(1);
                shared.0.raise(1);
            })
        };
        wait(&shared.0, 1);
        assert_eq!(shared.1.read(), 1);
        owner.join().unwrap();
    });
}

#[test]
fn raised_flag_wakes_both_waiters() {
    check(2, || {
        let flag = Arc::new(Flag::default());
        let waiters = [0; 2].map(|_| {
            let flag = flag.clone();
            thread::spawn(move || wait(&flag, 2))
        });
        flag.raise(1);
        flag.raise(2);
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

/// Shared memory of a node: the cell and the data of each rank.
#[derive(Default)]
struct Node {
    cells: Vec<RankCell>,
    numbers: Vec<Numbers>,
}

impl Node {
    fn of(ranks: usize) -> Arc<Self> {
        let cells = (0..ranks).map(|_| RankCell::default()).collect();
        let numbers = (0..ranks).map(|_| Numbers::default()).collect();
        Arc::new(Self { cells, numbers })
    }

    fn meet(&self, me: usize, meeting: u32) {
        let Ok(()) =
            wait_barrier(&self.cells[me], self.cells.iter(), meeting, NO_SPIN, IDLE, NEVER_ABORTS);
    }

    /// Opens an operation as the engine does: publishes the entry of this rank, meets the other
    /// ranks, and reads their entries.
    fn enter(&self, me: usize, meeting: u32, round: u64) {
        let buffer = BufferLocation::Direct(me);
        self.cells[me].entry(round).write([round, 7, 7], buffer);
        self.meet(me, meeting);
        for (rank, cell) in self.cells.iter().enumerate() {
            assert_eq!(cell.entry(round).read(), ([round, 7, 7], BufferLocation::Direct(rank)));
        }
    }
}

/// Runs the ranks of a node, the last one on this thread, and waits for all.
fn run(ranks: usize, rank: impl Fn(&Node, usize) + Copy + Send + 'static) {
    let node = Node::of(ranks);
    let others: Vec<_> = (0..ranks - 1)
        .map(|me| {
            let node = node.clone();
            thread::spawn(move || rank(&node, me))
        })
        .collect();
    rank(&node, ranks - 1);
    for other in others {
        other.join().unwrap();
    }
}

#[test]
fn barrier_publishes_earlier_writes() {
    check(3, || {
        run(2, |node, me| {
            for round in 1..=2 {
                node.numbers[me].write(round);
                node.meet(me, 2 * round as u32 - 1);
                assert_eq!(node.numbers[1 - me].read(), round);
                // Without this barrier one rank would write while the other still reads.
                node.meet(me, 2 * round as u32);
            }
        });
    });
}

#[test]
fn barrier_of_three_waits_for_the_last_rank() {
    check(1, || {
        run(3, |node, me| {
            node.numbers[me].write(1);
            node.meet(me, 1);
            assert_eq!((0..3).map(|rank| node.numbers[rank].read()).sum::<u64>(), 3);
        });
    });
}

/// Short operations have one barrier: a rank can be one operation ahead of a peer that still reads,
/// so two entries suffice.
#[test]
fn two_entries_suffice_for_one_barrier_operations() {
    check(3, || {
        run(2, |node, me| {
            for round in 1..=4 {
                node.enter(me, round as u32, round);
            }
        });
    });
}

/// The proof that the test above can fail.
#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn one_entry_is_not_enough() {
    check(3, || {
        run(2, |node, me| {
            for round in 1..=4_u64 {
                // Always the same one of the two entries.
                node.cells[me].entry(0).write([round, 7, 7], BufferLocation::Staged(me));
                node.meet(me, round as u32);
                for cell in &node.cells {
                    assert_eq!(cell.entry(0).read().0, [round, 7, 7]);
                }
            }
        });
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn one_barrier_per_round_is_a_data_race() {
    check(3, || {
        run(2, |node, me| {
            for round in 1..=2 {
                node.numbers[me].write(round);
                node.meet(me, round as u32);
                node.numbers[1 - me].read();
            }
        });
    });
}

/// The mailbox has two halves: the sender writes one while the receiver still reads the other.
#[test]
fn message_in_pieces_arrives_whole() {
    check(2, || {
        let shared = Arc::new((Mailbox::default(), [Numbers::default(), Numbers::default()]));
        let sender = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (mailbox, halves) = &*shared;
                mailbox.entry().write([1, 2, 3], BufferLocation::Staged(64));
                for piece in 1..=3_u32 {
                    wait(&mailbox.received, piece.saturating_sub(2));
                    halves[piece as usize % 2].write(u64::from(piece));
                    mailbox.posted.raise(piece);
                }
                wait(&mailbox.received, 3);
            })
        };
        let (mailbox, halves) = &*shared;
        for piece in 1..=3_u32 {
            wait(&mailbox.posted, piece);
            assert_eq!(mailbox.entry().read(), ([1, 2, 3], BufferLocation::Staged(64)));
            assert_eq!(halves[piece as usize % 2].read(), u64::from(piece));
            mailbox.received.raise(piece);
        }
        sender.join().unwrap();
    });
}

#[test]
fn one_of_two_abort_records_wins_whole() {
    let record = |by: u32| format!("rank {by} aborts").into_bytes();
    check(2, move || {
        let cell = Arc::new(AbortCell::default());
        let writers = [0, 1].map(|by| {
            let cell = cell.clone();
            thread::spawn(move || cell.set(&record(by)))
        });
        let early = cell.get();
        for writer in writers {
            writer.join().unwrap();
        }
        let late = cell.get().expect("it was raised");
        assert!(late == record(0) || late == record(1), "{late:?}");
        assert!(early.is_none_or(|early| early == late), "the first one stays");
    });
}

/// A rank that arrived at a barrier and then left is not mistaken for one that never arrived.
#[test]
fn departure_publishes_earlier_writes() {
    check(3, || {
        let cell = Arc::new(RankCell::default());
        let leaver = {
            let cell = cell.clone();
            thread::spawn(move || {
                cell.flag.raise(1);
                cell.set_departure(Departure::Exited);
            })
        };
        if cell.departure().is_some() {
            assert!(cell.flag.has_reached(1));
        }
        leaver.join().unwrap();
    });
}

#[test]
fn abandoned_wait_agrees_with_raised_flag() {
    check(3, || {
        let flag = Arc::new(Flag::default());
        let owner = {
            let flag = flag.clone();
            thread::spawn(move || {
                flag.raise(1);
                flag.wake();
            })
        };
        let waited = flag.wait(1, NO_SPIN, || Err("aborted"));
        if waited.is_ok() {
            assert!(flag.has_reached(1));
        }
        owner.join().unwrap();
    });
}
