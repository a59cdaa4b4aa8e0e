//! Converts options to the [`Transport`] to the nodes.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::shell::{quoted, quoted_line};
use crate::base::{HostName, Status};
use crate::cli::args::pdsh::{self, PdshArgs};
use crate::cli::args::values::LauncherArg;
use crate::cli::args::{KexArg, MuxArg, SshArgs, TransportArgs};
use crate::cli::codes::machine::CANNOT_READ;
use crate::cli::error::CliError;
use crate::cli::line::CommandLine;
use crate::cli::line::codes::BAD_VALUE;
use crate::cli::resolve::{no_ssh, slurm_address};
use crate::launch::Transport;
use crate::os::files::input_file::{is_pipe, not_regular, open};
use crate::pool::Users;
use crate::report::text::{show_help, show_io_error};
use crate::transport::manager::kinds::{MPICH, MVAPICH, OPEN_MPI};
use crate::transport::manager::{ManagerOptions, ProcessManager};
use crate::transport::ssh::{Kex, Mux, SshConfig, SshOptions, can_send_path};

/// Returns the transport: ssh to every host including this machine, so that all nodes get the same
/// environment. Only a job on this machine alone, with the name `machine`, needs no ssh.
pub(super) fn transport<'a>(
    args: &TransportArgs,
    hosts: impl Iterator<Item = &'a HostName> + Clone,
    mut users: Users,
    machine: &str,
) -> Result<Transport, CliError> {
    if let Some(LauncherArg::Manager(manager)) = args.launcher {
        return Ok(Transport::Managed(manager_options(manager, args)?));
    }
    let words = args.launcher_args.as_ref().map(pdsh::parse);
    let pdsh = words
        .map_or_else(PdshArgs::default, |read| read.expect("the check of the line has parsed it"));
    // The login of another user on this machine is a different place. Words for pdsh have no effect
    // on a job that needs no ssh.
    let is_here = |host: &HostName| {
        let is_loopback = matches!(host.as_str(), "localhost" | "127.0.0.1" | "[::1]");
        (is_loopback || no_ssh::has_name(machine, host)) && !users.contains_key(host)
    };
    let mut one = hosts.clone();
    let is_alone_here = one.next().is_none_or(is_here) && one.next().is_none();
    let all = hosts.clone();
    if let Some(user) = &pdsh.user {
        for host in hosts {
            users.entry(host.clone()).or_insert_with(|| user.clone());
        }
    }
    match args.launcher {
        Some(LauncherArg::Local) => Ok(Transport::Local),
        Some(LauncherArg::Auto | LauncherArg::Pdsh) | None
            if is_alone_here && !args.force_multi =>
        {
            Ok(Transport::Local)
        }
        _ => {
            let mut options = options(args.ssh_port, &args.ssh)?;
            options.addresses = slurm_address::addresses(all);
            options.fanout = options.fanout.or(pdsh.fanout.map(|fanout| fanout as usize));
            Ok(Transport::Ssh(SshOptions { users, ..options }))
        }
    }
}

/// Returns a note if the names of hosts are known to Slurm alone.
pub(super) fn note_of_addresses(transport: &Transport) -> Option<String> {
    let Transport::Ssh(options) = transport else { return None };
    (!options.addresses.is_empty()).then(|| {
        "note: the names of the hosts do not resolve here: ssh connects to their addresses in Slurm (NodeAddr)\n"
            .to_owned()
    })
}

/// Returns how a process manager starts agents.
pub(super) fn manager_options(
    manager: &'static ProcessManager,
    args: &TransportArgs,
) -> Result<ManagerOptions, CliError> {
    Ok(ManagerOptions {
        manager,
        words: args.launcher_args.as_ref().map_or_else(Vec::new, |words| words.0.clone()),
        agent_path: args.ssh.agent_path.as_deref().map(agent_path).transpose()?,
        join_limit: args.ssh.agent_timeout,
    })
}

/// Options that only connections over ssh have.
const SSH_OPTIONS: [&str; 5] = ["ssh_config", "ssh_port", "ssh_kex", "ssh_mux", "fanout"];

/// Returns a note about typed options for ssh if a process manager starts the agents.
pub(in crate::cli) fn unused_ssh_options(
    typed: &CommandLine,
    transport: &Transport,
) -> Option<String> {
    let Transport::Managed(options) = transport else { return None };
    let unused: Vec<_> = SSH_OPTIONS.into_iter().filter_map(|name| typed.spelling(name)).collect();
    let verb = if unused.len() == 1 { "has" } else { "have" };
    let file = typed.last("ssh_config").and_then(|given| given.value.as_ref());
    let help = file.and_then(|(file, _)| help_for_ssh_of(options.manager, file));
    (!unused.is_empty()).then(|| {
        format!(
            "note: {} {verb} no effect: {} starts the agents, not ssh\n{}",
            unused.join(", "),
            options.manager.name,
            show_help(help.as_deref())
        )
    })
}

/// Returns how a process manager passes a configuration file to the ssh that it starts itself.
fn help_for_ssh_of(manager: &ProcessManager, file: &OsStr) -> Option<String> {
    let words = quoted_line(&["-F".into(), file.to_owned()]);
    let how = match manager.option {
        option if option == OPEN_MPI.option => {
            format!("`--launcher_args={}`", quoted(format!("--mca plm_rsh_args \"{words}\"")))
        }
        option if option == MPICH.option || option == MVAPICH.option => {
            format!("`HYDRA_LAUNCHER_EXTRA_ARGS={}` in the environment", quoted(words))
        }
        _ => return None,
    };
    Some(format!("{how} passes the file to the ssh that {} starts", manager.name))
}

fn options(port: Option<u16>, args: &SshArgs) -> Result<SshOptions, CliError> {
    Ok(SshOptions {
        port,
        users: Users::new(),
        addresses: HashMap::new(),
        config: match &args.ssh_config {
            None => SshConfig::Default,
            Some(file) if file == Path::new("none") => SshConfig::Nothing,
            Some(file) => SshConfig::File(check_readable(file)?),
        },
        kex: match args.ssh_kex {
            KexArg::User => Kex::Configured,
            KexArg::Fast => Kex::Fast,
        },
        mux: match args.ssh_mux {
            MuxArg::Native => Mux::Native,
            MuxArg::Process => Mux::Process,
        },
        fanout: args.fanout.map(|fanout| fanout as usize),
        agent_limit: args.agent_timeout,
        agent_path: args.agent_path.as_deref().map(agent_path).transpose()?,
        wait_limit: Duration::ZERO,
        verbose: false,
    })
}

fn check_readable(file: &Path) -> Result<PathBuf, CliError> {
    // Ssh reads the file again for every host, and a pipe would be empty then. `/dev/null` is
    // accepted.
    let opened = open(file)
        .and_then(|opened| opened.metadata())
        .and_then(|found| if is_pipe(&found) { Err(not_regular("a pipe")) } else { Ok(()) });
    opened.map(|()| file.to_owned()).map_err(|error| {
        let message = format!("cannot read `{}`: {}", file.display(), show_io_error(&error));
        CliError::new(Status::NoInput, CANNOT_READ, message)
            .help("`--ssh_config` accepts the same files as `ssh -F`")
    })
}

fn agent_path(path: &Path) -> Result<String, CliError> {
    let text = path.to_str().filter(|_| path.is_absolute() && can_send_path(path));
    text.map(str::to_owned).ok_or_else(|| {
        CliError::usage(BAD_VALUE, format!("--agent_path {}: not an absolute path", path.display()))
            .help("it is a path on the nodes, such as `/opt/remuda/bin/remuda`")
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::base::UserName;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        transport: TransportArgs,
    }

    /// Parses `[USER@]HOST`.
    fn named(word: &str) -> (HostName, Option<(HostName, UserName)>) {
        let (user, host) = word.rsplit_once('@').map_or((None, word), |(u, h)| (Some(u), h));
        let host = HostName::parse(host).expect("a host name");
        let user = user.map(|user| (host.clone(), UserName::parse(user).expect("a user name")));
        (host, user)
    }

    #[track_caller]
    fn check(flags: &[&str], hosts: &[&str], over_ssh: bool) {
        let words = std::iter::once("test").chain(flags.iter().copied());
        let line = Line::try_parse_from(words).expect("known flags");
        let (names, users): (Vec<_>, Vec<_>) = hosts.iter().map(|word| named(word)).unzip();
        let users = users.into_iter().flatten().collect();
        let found =
            transport(&line.transport, names.iter(), users, "head.cluster").expect("valid flags");
        assert_eq!(matches!(found, Transport::Ssh(_)), over_ssh, "for {hosts:?}");
    }

    #[test]
    fn only_jobs_on_this_machine_need_no_ssh() {
        check(&[], &["localhost"], false);
        check(&[], &["127.0.0.1"], false);
        check(&[], &["head"], false);
        check(&[], &["HEAD.cluster"], false);
        check(&[], &["head.elsewhere"], true);
        check(&[], &["ada@head"], true);
        check(&["--force_multi"], &["head"], true);
        check(&[], &["n3"], true);
        check(&[], &["localhost", "n3"], true);
        check(&[], &["ada@localhost"], true);
        check(&["--launcher", "local"], &["ada@n3"], false);
        check(&["--launcher", "ssh"], &["localhost"], true);
        check(&["--launcher", "pdsh"], &["localhost"], false);
        check(&["--launcher_args=-l ada"], &["localhost"], false);
        check(&["--launcher", "PDSH"], &["n3"], true);
        check(&["--launcher", "pdsh", "--force_multi"], &["localhost"], true);
        check(&["--force_multi"], &["localhost"], true);
        check(&["--launcher", "local"], &["n3", "n4"], false);
    }
}
