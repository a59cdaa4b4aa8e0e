//! `remuda ssh`: runs a command on every host and gathers the output.

use std::ffi::OsString;
use std::path::Path;

use clap::{Command, CommandFactory, Parser};

use crate::base::shell::{quoted, quoted_line};
use crate::base::{Diagnostic, HostName, Rank, Slot, Status};
use crate::cli::args::{ClusterArgs, WatchArgs, WorkerArgs, check};
use crate::cli::command::entry::CommandEntry;
use crate::cli::command::parse::parse_with_settings;
use crate::cli::error::CliError;
use crate::cli::line::CommandLine;
use crate::cli::line::codes::UNEXPECTED_WORD;
use crate::cli::resolve::{self, ResolvedCluster};
use crate::cli::settings::{with_settings_options, with_sources};
use crate::cli::start::{self, JobArgs, PrintedRanks, check_size, exports};
use crate::launch::{self, Framing, Transport};
use crate::plan::{self, Conventions, Export, JobSpec, Program, RendezvousPort};
use crate::pool::SlotCount;
use crate::report::{RunClass, Terminal, print_error};

/// Text after the list of options in the help.
const HELP_FOOTER: &str = "\
Exit status: 0 if the command returned 0 on every host, else the greatest status of a host, or 69 for an
unreachable host; the hosts that failed are listed with their statuses.";

/// Run a command once on every host, and show equal output of several hosts once.
///
/// A host that fails, or is unreachable, does not stop the others.
///
/// Several words are a program and its arguments, without a shell: `-- ls -l /data`. A single word with
/// blanks or other characters of a shell is a line for `sh`: `-- 'cd /data && du -sh *'`.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "remuda ssh",
    bin_name = "remuda ssh",
    version,
    args_override_self = true,
    after_help = HELP_FOOTER
)]
struct SshCli {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    watch: WatchArgs,
    /// Show lines immediately, each with its host, and do not gather equal output
    #[arg(short = 'b', long = "no_gather")]
    no_gather: bool,
    /// Command, then its own arguments
    #[arg(required = true, num_args = 1.., trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Options of jobs that have no effect on a command on every host: they are hidden, and refused.
const NOT_FOR_SSH: [&str; 15] = [
    "num_gpus",
    "oversubscribe",
    "share",
    "master_addr",
    "master_port",
    "node_rank",
    "no_ssh",
    "key_file",
    "job_id",
    "join_timeout",
    "local_addr",
    "launcher_args",
    "max_restarts",
    "pre_term_signal",
    "preflight",
];

/// Refuses `remuda ssh n1 uptime` and `remuda ssh n1`, the syntax of ssh: a name of a host in the
/// place of the command.
fn refuse_host_as_command(command: &[OsString], typed: &CommandLine) -> Result<(), CliError> {
    let Some(name) = command[0].to_str().filter(|name| !SHELL_BUILTINS.contains(name)) else {
        return Ok(());
    };
    let is_list = || resolve::hostfile::as_list(Path::new(name)).is_some();
    let is_host = HostName::parse(name).is_ok() || is_list();
    if !is_host || resolve::search_path(name).is_some() {
        return Ok(());
    }
    let place = typed.word_span(typed.words.len() - command.len());
    let rest = command[1..].strip_prefix(&["--".into()]).unwrap_or(&command[1..]);
    let rest = match rest {
        [] => "COMMAND".to_owned(),
        rest => quoted_line(rest),
    };
    Err(typed
        .refuse(&[place], |spans| {
            Diagnostic::error(
                UNEXPECTED_WORD,
                spans[0],
                format!("there is no program `{name}` here"),
            )
            .label("read as the command")
            .help(format!("hosts are named with `-H`: `remuda ssh -H {} -- {rest}`", quoted(name)))
        })
        .into())
}

/// Builtins of shells, which are not programs.
const SHELL_BUILTINS: [&str; 16] = [
    ".", ":", "alias", "cd", "command", "eval", "exec", "exit", "export", "hash", "set", "source",
    "type", "ulimit", "umask", "unset",
];

/// Returns the command for a shell where `ssh` and `pdsh` would use one: a single word in shell
/// syntax, or a builtin. Several words are a program and its arguments, and are not interpreted.
fn shell_command(command: &[OsString]) -> Option<Vec<OsString>> {
    let first = command.first()?.to_str()?;
    let words: Vec<OsString> = if command.len() == 1 && has_shell_syntax(first) {
        vec![first.into()]
    } else if SHELL_BUILTINS.contains(&first) {
        // The shell runs the words as a command without interpreting them.
        let mut words: Vec<OsString> = vec![r#""$@""#.into(), "sh".into()];
        words.extend_from_slice(command);
        words
    } else {
        return None;
    };
    Some(["sh".into(), "-c".into()].into_iter().chain(words).collect())
}

/// Whether a word has shell syntax, which names of programs do not contain in practice.
fn has_shell_syntax(word: &str) -> bool {
    word.starts_with('~')
        || word.contains([' ', '\t', '\n', '|', '&', ';', '<', '>', '(', ')', '$', '`', '*', '?'])
}

/// Returns the definition of the command: options of jobs are hidden, and `-f` is the hostfile, as
/// in `ds_ssh`.
pub(in crate::cli) fn definition() -> Command {
    with_settings_options(SshCli::command()).mut_args(|arg| match arg.get_id().as_str() {
        "hostfile" => arg.visible_short_alias('f'),
        id if NOT_FOR_SSH.contains(&id) => arg.hide(true),
        _ => arg,
    })
}

/// Parses the command line, and runs the command.
pub(in crate::cli) fn main(
    words: Vec<OsString>,
    entries: &[CommandEntry],
) -> Result<Status, CliError> {
    let (cli, typed) = parse_with_settings::<SshCli>(definition(), words, entries)?;
    run(cli, &typed).map_err(|error| with_sources(error, &typed))
}

fn run(mut cli: SshCli, typed: &CommandLine) -> Result<Status, CliError> {
    let help = "leave it out: the command runs once on every host";
    check::only_for_jobs(typed, &NOT_FOR_SSH, help)?;
    check::cluster(&cli.cluster, typed)?;
    check::watch(&cli.watch, typed)?;
    let terminal = Terminal::detect();
    // The devices and slots of a host do not matter for a command.
    cli.cluster.devices.oversubscribe = true;
    let names_hosts = cli.cluster.hostfile.is_some();
    let one_slot = SlotCount::new(1).filter(|_| names_hosts);
    cli.cluster.slots = cli.cluster.slots.or(one_slot);
    cli.cluster.slots_of_list = one_slot;
    cli.watch.prefix.get_or_insert_with(|| "{host}: ".to_owned());
    let cluster = resolve::resolve_hosts(&cli.cluster, typed, terminal)?;
    check::stdin(&cli.watch, cluster.nodes.len(), typed)?;
    if cluster.transport == Transport::Local && !names_hosts {
        refuse_host_as_command(&cli.command, typed)?;
    }
    let (workers, settings) = (WorkerArgs::default(), typed.applied_settings());
    let args = JobArgs { watch: &cli.watch, workers: &workers, settings, terminal };
    let exports = exports(&cluster, args, true)?;
    let spec = command_spec(cli.command, &cluster, exports);
    let plan = plan::plan(&spec)?;
    check_size(&plan)?;
    if cli.watch.dry_run {
        return start::print_command(&plan, args);
    }
    if cli.watch.prints_progress() {
        start::print_local_file(settings, terminal);
    }
    let ranks = (PrintedRanks::All, Rank(0));
    let (mut options, note) =
        start::options(args, &spec, cluster.transport, ranks, RunClass::Tool)?;
    print_error(&note);
    options.failure.lets_others_run = true;
    options.output.style.gather = !cli.no_gather;
    options.failure.continue_with = cluster.continue_with;
    options.output.shows_progress = false;
    options.output.framing = Framing::None;
    Ok(launch::run(&plan, &options)?)
}

/// Returns the job that runs the command once on every host.
fn command_spec(
    command: Vec<OsString>,
    cluster: &ResolvedCluster,
    exports: Vec<Export>,
) -> JobSpec {
    let command = shell_command(&command).unwrap_or(command);
    let (program, args) = command.split_first().expect("clap requires a command");
    let hosts = cluster.nodes.iter();
    JobSpec {
        nodes: hosts.map(|(host, _)| (host.clone(), vec![Slot(0)])).collect(),
        accelerator: cluster.devices.accelerator,
        device_names: Vec::new(),
        program: Program::Exec { program: program.clone(), local_rank: false },
        args: args.to_vec(),
        master_addr: cluster.master.addr.clone(),
        master_port: RendezvousPort::or_usual(cluster.master.port),
        conventions: Conventions::DeepSpeed,
        restarts_max: 0,
        exports,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &[&str], expect: Option<&[&str]>) {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(shell_command(&words(command)), expect.map(words), "{command:?}");
    }

    #[test]
    fn shell_syntax_is_run_by_sh() {
        check(&["exit 4"], Some(&["sh", "-c", "exit 4"]));
        check(&["cd /x && ls | wc -l"], Some(&["sh", "-c", "cd /x && ls | wc -l"]));
        check(&["~/bin/tool"], Some(&["sh", "-c", "~/bin/tool"]));
        check(&["exit", "4"], Some(&["sh", "-c", "\"$@\"", "sh", "exit", "4"]));
        check(&["ulimit"], Some(&["sh", "-c", "\"$@\"", "sh", "ulimit"]));
        check(&["uptime"], None);
        check(&["ls", "a b", "$HOME"], None);
        check(&["/opt/bin/tool", "exit"], None);
    }
}
