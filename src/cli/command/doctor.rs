//! `remuda doctor`: checks of the hosts of a hostfile, and the quick checks before a job.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory, Parser};

use crate::base::{Diagnostic, HostName, Span, Status};
use crate::cli::args::{ClusterArgs, ProgramArgs, check};
use crate::cli::codes::machine::CANNOT_CREATE;
use crate::cli::command::entry::CommandEntry;
use crate::cli::command::gpu_check;
use crate::cli::command::hostfile;
use crate::cli::command::parse::parse_with_settings;
use crate::cli::error::CliError;
use crate::cli::line::CommandLine;
use crate::cli::line::codes::UNEXPECTED_WORD;
use crate::cli::resolve::{self, ResolvedCluster};
use crate::cli::settings::{with_settings_options, with_sources};
use crate::cli::start::{WantedProgram, collect_facts, print_local_file};
use crate::doctor::{self, diagnose, show_json, usable_hosts};
use crate::pool::dialect::{HostfileFormat, write};
use crate::pool::{Dialect, Host, ReadOptions, Reading, SlotCount};
use crate::report::text::{paint_message, show_count, show_io_error, show_step};
use crate::report::{Terminal, print, print_error, print_message, print_screen};
use crate::wire::Depth;

/// Text after the list of options in the help.
const HELP_FOOTER: &str = "\
Exit status: 0 no finding, 1 errors or warnings, 2 no host could be checked, 130 interrupted (the
findings until then are shown).

Findings have codes: `remuda explain D022` explains one.";

/// Options of jobs that have no effect on a check of hosts: they are hidden, and refused.
const NOT_FOR_DOCTOR: [&str; 8] = [
    "no_local_rank",
    "share",
    "no_ssh",
    "node_rank",
    "key_file",
    "job_id",
    "join_timeout",
    "local_addr",
];

/// Check all hosts at the same time, over the connection that a job would use, and report what would
/// prevent a start or make a job slow. Nothing is changed on the hosts.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "remuda doctor",
    bin_name = "remuda doctor",
    version,
    args_override_self = true,
    after_help = HELP_FOOTER,
    rename_all = "snake_case"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option")]
struct DoctorCli {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Write the usable hosts (those without errors) to FILE, in the dialect of the hostfile
    #[arg(long, alias = "good", value_name = "FILE", help_heading = "Doctor")]
    usable: Option<PathBuf>,
    /// Print all facts and findings as JSON
    #[arg(long, help_heading = "Doctor")]
    json: bool,
    /// Skip slow checks: versions of Python and of libraries
    #[arg(long, help_heading = "Doctor")]
    quick: bool,
    /// Check what the GPUs of this machine compute: every kernel of `remuda train` and products of matrices
    /// against references, copies. No host is called
    #[arg(long, help_heading = "Doctor")]
    gpu: bool,
    /// Test connections between all pairs of nodes even if there are more than 64 nodes
    #[arg(long, help_heading = "Doctor")]
    full: bool,
    #[command(flatten)]
    program: ProgramArgs,
}

/// Returns the definition: the options of `run`. If a script is given, doctor looks for it on every
/// host.
pub(in crate::cli) fn definition() -> Command {
    with_settings_options(DoctorCli::command()).mut_args(|arg| match arg.get_id().as_str() {
        "script_and_args" => {
            arg.required(false).help("Script to look for on every node; its arguments are ignored")
        }
        id if NOT_FOR_DOCTOR.contains(&id) => arg.hide(true),
        _ => arg,
    })
}

/// Parses the command line, checks the hosts, and prints the report. If the checks cannot start,
/// the exit status is 2.
pub(in crate::cli) fn main(
    words: Vec<OsString>,
    entries: &[CommandEntry],
) -> Result<Status, CliError> {
    check_and_print(words, entries).or_else(|error| {
        // Help was requested.
        if error.status() == Status::Success {
            return Err(error);
        }
        print_error(&error.screen(Terminal::detect().paint));
        Ok(Status::Usage)
    })
}

fn check_and_print(words: Vec<OsString>, entries: &[CommandEntry]) -> Result<Status, CliError> {
    let (cli, typed) = parse_with_settings::<DoctorCli>(definition(), words, entries)?;
    check_hosts(cli, &typed).map_err(|error| with_sources(error, &typed))
}

fn check_hosts(mut cli: DoctorCli, typed: &CommandLine) -> Result<Status, CliError> {
    let terminal = Terminal::detect();
    if cli.gpu {
        return gpu_check::check_gpus(cli.json, terminal);
    }
    check::only_for_jobs(typed, &NOT_FOR_DOCTOR, "leave it out: no job is started")?;
    check::cluster(&cli.cluster, typed)?;
    refuse_hostfile_as_script(&cli, typed)?;
    // Too few devices are a finding, not an error.
    let oversubscribed = std::mem::replace(&mut cli.cluster.devices.oversubscribe, true);
    // A hostfile of the usable hosts needs their slots.
    cli.cluster.slots_of_list = SlotCount::new(1).filter(|_| cli.usable.is_none());
    let mut cluster = resolve::resolve_hosts(&cli.cluster, typed, terminal)?;
    if !oversubscribed {
        cluster.devices.slots_are = resolve::slots_are(&cli.cluster.devices, false)?;
    }
    print_local_file(typed.applied_settings(), terminal);
    print_error(&cluster.warnings);
    let depth = if cli.quick { Depth::Quick } else { Depth::Full };
    let wanted = wanted_program(&cli.program)?;
    if let Some(file) = &cli.usable {
        hostfile::probe(file).map_err(|error| cannot_write(file, &error))?;
    }
    let (facts, interrupted) = collect_facts(&cluster, &wanted, depth, cli.full, terminal)?;
    let findings = diagnose(&facts);
    if cli.json {
        print(&show_json(&facts, &findings)).map_err(CliError::output)?;
    } else {
        let screen = doctor::show(&facts, &findings);
        let screen = paint_message(&screen, terminal.stdout_paint);
        print_screen(&screen).map_err(CliError::output)?;
    }
    if let Some(file) = &cli.usable {
        let usable: Vec<&HostName> = usable_hosts(&facts, &findings).collect();
        write_usable(file, &usable, &cluster, terminal)?;
    }
    Ok(interrupted.map_or_else(|| doctor::status(&facts, &findings), Status::Interrupted))
}

/// Refuses `remuda doctor hosts`: other tools that check hostfiles take the file as an argument.
fn refuse_hostfile_as_script(cli: &DoctorCli, typed: &CommandLine) -> Result<(), CliError> {
    let Some(word) = cli.program.script_and_args.first() else { return Ok(()) };
    let file = Path::new(word);
    let is_hostfile = || hostfile::load(file, hostfile::Trust::All, ReadOptions::default()).is_ok();
    if cli.cluster.hostfile.is_some() || !file.is_file() || !is_hostfile() {
        return Ok(());
    }
    let place = typed.word_span(typed.words.len() - cli.program.script_and_args.len());
    Err(typed
        .refuse(&[place], |spans| {
            let message = format!("`{}` is a hostfile, not a script", file.display());
            Diagnostic::error(UNEXPECTED_WORD, spans[0], message)
                .label("read as the script of a job")
                .help(format!("did you mean `-H {}`?", file.display()))
        })
        .into())
}

/// Returns the program; without a script it is the Python that would be run, if this machine has
/// one.
fn wanted_program(args: &ProgramArgs) -> Result<WantedProgram, CliError> {
    if !args.script_and_args.is_empty() {
        return Ok(WantedProgram::of(
            &resolve::program(args, None, resolve::NO_PYTHON_OPTION)?.program,
        ));
    }
    if args.no_python {
        return Ok(WantedProgram { program: None, script: None, is_python: false });
    }
    let python = match resolve::interpreter(args.python.as_ref(), None) {
        Err(error) if args.python.is_some() => return Err(error),
        python => python.ok(),
    };
    Ok(WantedProgram { is_python: python.is_some(), program: python, script: None })
}

/// Writes the usable hosts in the dialect of the hostfile.
fn write_usable(
    file: &Path,
    usable: &[&HostName],
    cluster: &ResolvedCluster,
    terminal: Terminal,
) -> Result<(), CliError> {
    let all = cluster.nodes.len();
    let (text, losses) = match &cluster.origin.hostfile {
        // The file may contain hosts from an earlier run, which must not be taken for the result of
        // this run.
        _ if usable.is_empty() => ("# no host is usable\n".to_owned(), Vec::new()),
        Some(reading) => usable_hostfile(reading, usable),
        None => (usable_list(cluster, usable), Vec::new()),
    };
    hostfile::create(file, &text).map_err(|error| cannot_write(file, &error))?;
    let mut text = show_step(
        "Wrote",
        &format!("{}: {} of {}", file.display(), usable.len(), show_count(all, "host")),
    );
    for loss in losses {
        let _ = writeln!(text, "note: {loss}");
    }
    print_message(&text, terminal.paint);
    Ok(())
}

fn cannot_write(file: &Path, error: &io::Error) -> CliError {
    let message = format!("cannot write `{}`: {}", file.display(), show_io_error(error));
    CliError::new(Status::CantCreate, CANNOT_CREATE, message)
        .help("name a file in a directory that you can write: `--usable FILE`")
}

/// Returns the hostfile with the usable hosts only. In remuda's own dialect, lines and comments stay
/// as they are; other dialects are rewritten.
fn usable_hostfile(reading: &Reading, usable: &[&HostName]) -> (String, Vec<String>) {
    let usable: std::collections::HashSet<&HostName> = usable.iter().copied().collect();
    let hosts = reading.hostfile.hosts();
    if reading.dialect == Dialect::DeepSpeed {
        let dropped: std::collections::HashSet<usize> = hosts
            .iter()
            .filter(|host| !usable.contains(&host.name))
            .map(|host| host.line)
            .collect();
        let lines = (1..).zip(reading.findings.source.text.lines());
        let lines = lines.filter(|(number, _)| !dropped.contains(number));
        return (lines.fold(String::new(), |text, (_, line)| text + line + "\n"), Vec::new());
    }
    let hosts: Vec<Host> =
        hosts.iter().filter(|host| usable.contains(&host.name)).cloned().collect();
    let written = write(&hosts, HostfileFormat::Dialect(reading.dialect));
    (written.text, written.losses)
}

/// Returns a hostfile for hosts that are not from a file.
fn usable_list(cluster: &ResolvedCluster, usable: &[&HostName]) -> String {
    let nodes = cluster.nodes.iter().filter(|(host, _)| usable.contains(&host));
    let host = |(name, slots): &(HostName, Vec<_>)| Host {
        name: name.clone(),
        user: None,
        slots: SlotCount::new(slots.len() as u32).expect("a node has slots, and no host too many"),
        max_slots: None,
        line: 1,
        span: Span::new(0, 0),
    };
    let hosts: Vec<Host> = nodes.map(host).collect();
    write(&hosts, HostfileFormat::Dialect(Dialect::DeepSpeed)).text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{ReadOptions, read_any};

    #[track_caller]
    fn check(text: &str, usable: &[&str], expect: &str) {
        let reading = read_any("hosts", text.as_bytes(), ReadOptions::default());
        assert!(!reading.findings.has_errors(), "{:?}", reading.findings);
        let usable: Vec<HostName> =
            usable.iter().map(|name| HostName::parse(name).expect("a name")).collect();
        assert_eq!(usable_hostfile(&reading, &usable.iter().collect::<Vec<_>>()).0, expect);
    }

    #[test]
    fn lines_of_usable_hosts_are_kept() {
        check(
            "# rack 1\nn1 slots=8\nada@n2 slots=8  # new\n\nn3 slots=4",
            &["n2", "n3"],
            "# rack 1\nada@n2 slots=8  # new\n\nn3 slots=4\n",
        );
        check("n1:8\nn2:8\nn3:8\n", &["n1", "n3"], "n1:8\nn3:8\n");
        check(
            "SLURM_JOB_NODELIST=n[1-9]\nSLURM_TASKS_PER_NODE=4(x9)\n",
            &["n1", "n2", "n3", "n7"],
            "SLURM_JOB_NODELIST=n[1-3,7]\nSLURM_TASKS_PER_NODE=4(x4)\n",
        );
    }
}
