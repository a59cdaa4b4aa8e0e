//! The store: a key-value service through which the ranks of a job exchange addresses.
//!
//! [`State`] is the state machine, without I/O; [`Server`] serves it on one thread in the agent of node 0;
//! [`Client`] is the client of a worker. Connections are authenticated and encrypted (see
//! [`secure`](crate::secure)); all sizes are limited.

mod client;
mod connection;
mod server;
pub(crate) mod shared;
mod state;
pub(crate) mod wait_graph;

pub use client::{Client, ClientError, StoreIdentity};
pub use server::{OnRefused, Server, ServerOptions};
pub use state::{
    BYTES_MAX, ClientId, KEY_BYTES_MAX, KEYS_MAX, Reply, State, StoreRefusal, StoreRequest,
    VALUE_BYTES_MAX, WAITED_KEYS_MAX, departed_key,
};
