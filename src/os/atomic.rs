//! What threads and processes agree through. Protocols name these alone, so that a test can put a
//! model in their place which tries every order of events.

pub use std::hint::spin_loop;
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub use std::thread::yield_now;
