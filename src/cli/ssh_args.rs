//! Flags about ssh.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::values::parse_wait;

/// Flags about ssh that DeepSpeed does not have.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Ssh", rename_all = "snake_case")]
pub struct SshArgs {
    /// Configuration of ssh instead of the user's and the system's, as `ssh -F`; `none`: no other
    #[arg(long, value_name = "FILE")]
    pub ssh_config: Option<PathBuf>,
    /// Key exchange; `fast` puts curve25519 first: several times cheaper, not post-quantum
    #[arg(long, value_name = "KIND", value_enum, default_value = "user")]
    pub ssh_kex: KexArg,
    /// Who speaks to the ssh process of a connection: `native` we ourselves, `process` a second ssh for
    /// each host, for sandboxes and wrappers in which ours fails
    #[arg(long, value_name = "WHO", value_enum, default_value = "native")]
    pub ssh_mux: MuxArg,
    /// Connections that are made at the same time [default: 64; 8 through a jump host]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub fanout: Option<u32>,
    /// Time within which the agent must start on a host after the ssh login; the host is then given up
    #[arg(long, value_name = "TIME", value_parser = parse_wait, default_value = "2m")]
    pub agent_timeout: Duration,
    /// A remuda that is installed on the nodes [default: this one is brought to the first of
    /// $XDG_RUNTIME_DIR/remuda, /var/tmp/.remuda-$LOGNAME, ~/.cache/remuda there]
    #[arg(long, value_name = "FILE")]
    pub agent_path: Option<PathBuf>,
}

/// See [`SshArgs::ssh_kex`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KexArg {
    /// What the ssh configuration says.
    User,
    /// Curve25519 first.
    Fast,
}

/// See [`SshArgs::ssh_mux`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MuxArg {
    /// We speak its protocol.
    Native,
    /// OpenSSH does.
    Process,
}
