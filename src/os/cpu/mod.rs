//! Processors and memory.
//!
//! | file | contents |
//! |---|---|
//! | `affinity`, `simd` | processors that a process may use, and their instruction sets |
//! | `memory` | memory that processes share, and sleeping on a word of it |
//! | `malloc`, `text_pages` | settings and releases of this process's own memory |

#[cfg(feature = "cli")]
pub mod affinity;
#[cfg(feature = "cli")]
pub mod malloc;
pub mod memory;
pub(crate) mod simd;
#[cfg(feature = "cli")]
pub mod text_pages;
