//! Nodes that are reached over ssh: they need sshd and a shell, nothing else.
//!
//! ```text
//! launcher ── pipes ── ssh master ══ connection ══ sshd ── sh ─exec→ agent
//!     └ janitor        one for each host
//! ```
//!
//! Each host has one connection and one command. The connection is a process of OpenSSH, so the
//! user's configuration of names, keys, agents and jumps applies; channels over it use the crate
//! `openssh`, or a second process of OpenSSH. The command is a constant. The agent is taken from
//! the node's cache (`build_cache`), or the launcher sends it through the same channel (`push`).

mod agent;
mod binary;
mod bootstrap;
mod build_cache;
mod channel;
mod command_line;
mod config;
mod connect;
mod control_dir;
mod digest;
mod fault;
mod known_key;
mod master;
mod options;
mod push;
mod session;
mod settings;
mod sockets;

pub use crate::transport::stderr::LineCallback;
pub use agent::AGENT_KILLED;
pub use binary::has_digest;
pub use build_cache::prune_cache;
pub use connect::{Ssh, announce_ready, can_send_path};
pub use options::{AGENT_LIMIT, Kex, Mux, SshConfig, SshOptions};
