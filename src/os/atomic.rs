//! Atomics through which threads and processes synchronise. Protocols use only these names, so that
//! a test can replace them by a model that tries every order of events.

pub use std::hint::spin_loop;
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub use std::thread::yield_now;
