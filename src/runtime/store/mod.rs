//! The store: where ranks of a job find each other.
//!
//! [`State`] is what it means, without I/O; [`Server`] serves it on one thread, in the agent of node
//! 0; [`Client`] is a worker's side. Connections are authenticated and encrypted (see
//! [`secure`](crate::secure)); everything is bounded.

mod client;
mod connection;
mod server;
mod state;

pub use client::{Client, ClientError, Identity};
pub use server::{OnRefused, Server, ServerOptions};
pub use state::{
    BYTES_MAX, ClientId, KEY_BYTES_MAX, KEYS_MAX, Refusal, Reply, Request, State, VALUE_BYTES_MAX,
    WAITED_KEYS_MAX, gone_key,
};
