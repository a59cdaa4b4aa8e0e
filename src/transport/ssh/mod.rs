//! Nodes that are reached over ssh: sshd and a shell, nothing else.
//!
//! ```text
//! launcher ── pipes ── ssh master ══ connection ══ sshd ── sh ─exec→ agent
//!     └ janitor        one for each host
//! ```
//!
//! For each host one connection and one command. The connection is a process of OpenSSH, so what
//! the user's configuration says about names, keys, agents and jumps holds; channels over it are the
//! crate `openssh`, or a second process of OpenSSH. The command is a constant; the agent comes from the node's cache, or from here
//! through the same channel.

mod binary;
mod bootstrap;
mod call;
mod channel;
mod config;
mod connect;
mod control_dir;
mod fault;
mod known_key;
mod master;
mod options;
mod process;
mod settings;
mod sockets;

pub use binary::{confirm, prune_cache};
pub use connect::{Hear, Ssh, SshAgent, announce, is_tellable};
pub use options::{AGENT_LIMIT, Kex, Mux, SshConfig, SshOptions};
pub use process::end_processes;
