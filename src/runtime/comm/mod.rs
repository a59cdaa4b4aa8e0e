//! Process groups and their operations.
//!
//! | file or folder | contents |
//! |---|---|
//! | `group`, `blocking`, `nonblocking`, `work` | the API: groups, operations, handles |
//! | `caller_memory` | started operations on memory given as pointer, length and type |
//! | `collectives` | operations in flight on any kind of memory, for what is built on groups |
//! | `executor` | the thread that executes started operations |
//! | `host`, `device` | collectives in host and in device memory |
//! | `shm`, `tcp` | transport within a node and between nodes |
//! | `bootstrap`, `store` | rendezvous and subgroups |
//! | `core` | errors, operations, options, deadlines |

pub(crate) mod blocking;
pub(crate) mod bootstrap;
pub(crate) mod caller_memory;
pub(crate) mod collectives;
pub(crate) mod core;
#[cfg(feature = "nccl")]
pub mod device;
pub(crate) mod executor;
pub(crate) mod group;
pub(crate) mod host;
pub(crate) mod nonblocking;
pub(crate) mod shm;
pub mod store;
pub(crate) mod tcp;
pub(crate) mod work;
