//! Options of ssh.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::args::values::{parse_lease, parse_port, parse_wait};
use crate::cli::line::{BadValue, CommandLine, GivenOption, parse_whole};

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
    /// How remuda opens channels of an ssh connection: `native`, by itself; `process`, by a second ssh process
    /// for each host. If `native` fails, use `process`
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

/// Options for hosts that one command starts, for the command line of another launcher. The names are those
/// of `remuda run`, so that every message about hosts names an option that the line can have.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "With -H", rename_all = "snake_case")]
pub struct RemoteArgs {
    /// Port of the ssh server on every host
    #[arg(long, value_name = "PORT", allow_negative_numbers = true, value_parser = parse_port)]
    pub ssh_port: Option<u16>,
    /// Accept hostfiles that every user can write
    #[arg(long)]
    pub allow_insecure_files: bool,
    /// Time without a heartbeat after which a node counts as lost
    #[arg(long, value_name = "TIME", value_parser = parse_lease)]
    pub lease: Option<Duration>,
    /// Options of ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
}

/// Those of [`RemoteArgs`] that have no effect without `-H`.
const HOST_FLAGS: [&str; 8] = [
    "ssh_port",
    "ssh_config",
    "ssh_kex",
    "ssh_mux",
    "fanout",
    "agent_timeout",
    "agent_path",
    "allow_insecure_files",
];

/// Returns those of [`RemoteArgs`] that a line has, as words of `remuda run`.
pub(in crate::cli) fn remote_words(typed: &CommandLine) -> Vec<OsString> {
    let given = HOST_FLAGS.iter().chain(&["lease"]).filter_map(|flag| typed.last(flag));
    let word = |given: &GivenOption| {
        let mut word = OsString::from(format!("--{}", given.flag));
        if let Some((value, _)) = &given.value {
            word.push("=");
            word.push(value);
        }
        word
    };
    given.map(word).collect()
}

/// Returns the first of [`RemoteArgs`] of a line that has no effect without `-H`.
pub(in crate::cli) fn remote_flag(typed: &CommandLine) -> Option<&'static str> {
    HOST_FLAGS.into_iter().find(|flag| typed.last(flag).is_some())
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
