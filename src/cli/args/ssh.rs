//! Options of ssh.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::args::values::parse_wait;
use crate::cli::line::{BadValue, parse_whole};

/// Options of ssh that DeepSpeed does not have.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Ssh", rename_all = "snake_case")]
pub struct SshArgs {
    /// Configuration file of ssh instead of those of user and system, as `ssh -F`; `none`: no file
    #[arg(long, value_name = "FILE")]
    pub ssh_config: Option<PathBuf>,
    /// Key exchange: `user`, as in your ssh configuration, or `fast`, which tries curve25519 first (faster,
    /// but not post-quantum)
    #[arg(long, value_name = "KIND", value_enum, default_value = "user")]
    pub ssh_kex: KexArg,
    /// Who opens channels: `native`, remuda itself, or `process`, a second ssh process for each host; use
    /// `process` if `native` fails
    #[arg(long, value_name = "HOW", value_enum, default_value = "native")]
    pub ssh_mux: MuxArg,
    /// Connections to establish at the same time [default: 64; 8 through a jump host]
    #[arg(long, value_name = "N", value_parser = parse_fanout)]
    pub fanout: Option<u32>,
    /// Time limit for the agent to start after the ssh login, and again for its checks; if it is exceeded,
    /// the host counts as unreachable
    #[arg(long, value_name = "TIME", value_parser = parse_wait, default_value = "2m")]
    pub agent_timeout: Duration,
    /// Path of remuda on the nodes [default: this executable is copied to the first of
    /// $XDG_RUNTIME_DIR/remuda, /var/tmp/.remuda-$LOGNAME, ~/.cache/remuda that works]
    #[arg(long, value_name = "FILE")]
    pub agent_path: Option<PathBuf>,
}

/// Key exchange of ssh connections; see [`SshArgs::ssh_kex`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KexArg {
    /// That of the ssh configuration.
    User,
    /// Curve25519 first.
    Fast,
}

/// Multiplexing of ssh connections; see [`SshArgs::ssh_mux`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MuxArg {
    /// Channels are opened within remuda, by the protocol of OpenSSH.
    Native,
    /// Channels are opened by a second ssh process.
    Process,
}

fn parse_fanout(text: &str) -> Result<u32, BadValue> {
    parse_whole(text, 1..=4096).map(|count| count as u32)
}
