//! Processors and memory.
//!
//! | file | contents |
//! |---|---|
//! | `affinity` | processors that a process may use |
//! | `simd`, `simd_versions` | their instruction sets, and functions compiled for several of them |
//! | `memory` | memory that processes share, and sleeping on a word of it |
//! | `malloc`, `text_pages` | settings and releases of this process's own memory |

#[cfg(feature = "cli")]
pub mod affinity;
#[cfg(feature = "cli")]
pub mod malloc;
pub mod memory;
pub(crate) mod simd;
pub(crate) mod simd_versions;
#[cfg(feature = "cli")]
pub mod text_pages;
