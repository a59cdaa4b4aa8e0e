//! How nodes are reached: flags → [`Transport`].

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::args::LauncherArg;
use super::error::CliError;
use crate::base::{HostName, Status};
use crate::launch::Transport;
use crate::transport::ssh::{Kex, SshConfig, SshOptions, is_tellable};

/// Flags about ssh.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Ssh", rename_all = "snake_case")]
pub(super) struct SshArgs {
    /// Port of every host, instead of what the ssh configuration says
    #[arg(long, alias = "ssh-port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) ssh_port: Option<u16>,
    /// Configuration of ssh instead of the user's and the system's, as `ssh -F`; `none`: no other
    #[arg(long, alias = "ssh-config", value_name = "FILE")]
    pub(super) ssh_config: Option<PathBuf>,
    /// Key exchange; `fast` puts curve25519 first: several times cheaper, not post-quantum
    #[arg(long, alias = "ssh-kex", value_name = "KIND", value_enum, default_value = "user")]
    pub(super) ssh_kex: KexArg,
    /// Connections that are made at the same time [default: 64; 8 through a jump host]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) fanout: Option<u32>,
    /// A remuda that is installed on the nodes; nothing is brought there
    #[arg(long, alias = "agent-path", value_name = "FILE")]
    pub(super) agent_path: Option<PathBuf>,
}

/// See [`SshArgs::ssh_kex`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum KexArg {
    /// What the ssh configuration says.
    User,
    /// Curve25519 first.
    Fast,
}

/// Ssh to every host, our own included, so that all nodes get the same environment; only a job on
/// this machine alone does without.
pub(super) fn transport<'a>(
    launcher: Option<LauncherArg>,
    ssh: &SshArgs,
    mut hosts: impl Iterator<Item = &'a HostName>,
) -> Result<Transport, CliError> {
    let is_here = |host: &HostName| matches!(host.as_str(), "localhost" | "127.0.0.1" | "[::1]");
    let is_alone_here = hosts.next().is_none_or(is_here) && hosts.next().is_none();
    match launcher {
        Some(LauncherArg::Local) => Ok(Transport::Local),
        None if is_alone_here => Ok(Transport::Local),
        Some(LauncherArg::Ssh) | None => Ok(Transport::Ssh(options(ssh)?)),
    }
}

fn options(args: &SshArgs) -> Result<SshOptions, CliError> {
    Ok(SshOptions {
        port: args.ssh_port,
        config: match &args.ssh_config {
            None => SshConfig::Usual,
            Some(file) if file == Path::new("none") => SshConfig::Nothing,
            Some(file) => SshConfig::File(readable(file)?),
        },
        kex: match args.ssh_kex {
            KexArg::User => Kex::Users,
            KexArg::Fast => Kex::Fast,
        },
        fanout: args.fanout.map(|fanout| fanout as usize),
        agent_path: args.agent_path.as_deref().map(agent_path).transpose()?,
    })
}

fn readable(file: &Path) -> Result<PathBuf, CliError> {
    let opened = std::fs::File::open(file);
    opened.map(|_| file.to_owned()).map_err(|error| {
        let message = format!("cannot read `{}`: {error}", file.display());
        CliError::new(Status::NoInput, message).help("`--ssh_config` takes what `ssh -F` takes")
    })
}

fn agent_path(path: &Path) -> Result<String, CliError> {
    let text = path.to_str().filter(|_| path.is_absolute() && is_tellable(path));
    text.map(str::to_owned).ok_or_else(|| {
        CliError::usage(format!("--agent_path {}: not an absolute path", path.display()))
            .help("it is a path on the nodes, such as `/opt/remuda/bin/remuda`")
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        ssh: SshArgs,
    }

    #[track_caller]
    fn check(launcher: Option<LauncherArg>, hosts: &[&str], over_ssh: bool) {
        let line = Line::try_parse_from(["test"]).expect("no flag is needed");
        let hosts: Vec<_> =
            hosts.iter().map(|host| HostName::parse(host).expect("a host name")).collect();
        let found = transport(launcher, &line.ssh, hosts.iter()).expect("no flag is wrong");
        assert_eq!(matches!(found, Transport::Ssh(_)), over_ssh, "for {hosts:?}");
    }

    #[test]
    fn only_a_job_on_this_machine_alone_does_without_ssh() {
        check(None, &["localhost"], false);
        check(None, &["127.0.0.1"], false);
        check(None, &["n3"], true);
        check(None, &["localhost", "n3"], true);
        check(Some(LauncherArg::Ssh), &["localhost"], true);
        check(Some(LauncherArg::Local), &["n3", "n4"], false);
    }
}
