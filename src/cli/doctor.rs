//! `remuda doctor`: checks of the hosts of a hostfile, and the quick checks before a job.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory, Parser};

use super::args::{ClusterArgs, ProgramArgs};
use super::check::NOT_FOR_DOCTOR;
use super::error::CliError;
use super::hostfile;
use super::line::CommandLine;
use super::line::codes::UNEXPECTED_WORD;
use super::lower::{self, ResolvedCluster};
use super::machine_codes::{CANNOT_CREATE, SYSTEM};
use crate::base::{Diagnostic, HostName, Severity, Span, Status};
use crate::doctor::{
    self, ClusterFacts, ExamRequest, ExamResult, Finding, MasterPort, NodeAccess, diagnose,
    show_json, usable_hosts,
};
use crate::launch::Transport;
use crate::launch::codes::CANNOT_START;
use crate::plan::{MasterAddr, Program};
use crate::pool::dialect::{HostfileFormat, write};
use crate::pool::{Dialect, Host, ReadOptions, Reading, SlotCount};
use crate::report::summary::{paint_message, show_count, show_io_error, show_step};
use crate::report::{Terminal, print, print_error, print_message};
use crate::wire::{Depth, Examine, PortRequest, Token};

/// Port of rank 0 if no other port is given.
const MASTER_PORT: u16 = 29500;

/// Help for the case that no host is usable.
const FIX_HELP: &str =
    "fix the problems above; `remuda doctor` with the same options gives details";

/// Text after the list of options in the help.
const HELP_FOOTER: &str = "\
Exit status: 0 no finding, 1 errors or warnings, 2 no host could be checked, 130 interrupted (the
findings until then are shown).

Findings have codes: `remuda explain D022` explains one.";

/// Check every host of a hostfile, all at the same time and over the connection that a job would use:
/// what would prevent a start, and what would make a job slow. Nothing is changed on the hosts.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "remuda doctor",
    bin_name = "remuda doctor",
    version,
    args_override_self = true,
    after_help = HELP_FOOTER,
    rename_all = "snake_case"
)]
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
    /// Test connections between all pairs of nodes even if there are more than 64 nodes
    #[arg(long, help_heading = "Doctor")]
    full: bool,
    #[command(flatten)]
    program: ProgramArgs,
}

/// Returns the definition: the options of `run`. If a script is given, doctor looks for it on every
/// host.
pub(super) fn definition() -> Command {
    DoctorCli::command().mut_args(|arg| match arg.get_id().as_str() {
        "script_and_args" => {
            arg.required(false).help("Script to look for on every node; its arguments are ignored")
        }
        id if NOT_FOR_DOCTOR.contains(&id) => arg.hide(true),
        _ => arg,
    })
}

/// Parses the command line, checks the hosts, and prints the report. If the checks cannot start,
/// the exit status is 2.
pub(super) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    check_and_print(words).or_else(|error| {
        // Help was requested.
        if error.status() == Status::Success {
            return Err(error);
        }
        print_error(&error.screen(Terminal::detect().paint));
        Ok(Status::Usage)
    })
}

fn check_and_print(words: Vec<OsString>) -> Result<Status, CliError> {
    let (mut cli, typed) = super::parse_with_definition::<DoctorCli>(definition(), words)?;
    let terminal = Terminal::detect();
    super::check::doctor(&typed)?;
    super::check::cluster(&cli.cluster, &typed)?;
    refuse_hostfile_as_script(&cli, &typed)?;
    // Too few devices are a finding, not an error.
    let oversubscribed = std::mem::replace(&mut cli.cluster.devices.oversubscribe, true);
    cli.cluster.slots_of_list = SlotCount::new(1);
    let mut cluster = lower::resolve_cluster(&cli.cluster, &typed, terminal)?;
    if !oversubscribed {
        cluster.slots_are = lower::slots_are(&cli.cluster.devices, false)?;
    }
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
        print(&paint_message(&screen, terminal.stdout_paint)).map_err(CliError::output)?;
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

/// Program that the workers of a job would run.
struct WantedProgram {
    program: Option<OsString>,
    script: Option<OsString>,
    is_python: bool,
}

impl WantedProgram {
    fn of(program: &Program) -> Self {
        let (path, script) = lower::program_and_script(program);
        let is_python = matches!(program, Program::Python { .. });
        Self { program: Some(path), script, is_python }
    }
}

/// Returns the program; without a script it is the Python that would be run, if this machine has
/// one.
fn wanted_program(args: &ProgramArgs) -> Result<WantedProgram, CliError> {
    if !args.script_and_args.is_empty() {
        return Ok(WantedProgram::of(&lower::program(args, None)?.0));
    }
    if args.no_python {
        return Ok(WantedProgram { program: None, script: None, is_python: false });
    }
    let python = match lower::interpreter(args.python.as_ref(), None) {
        Err(error) if args.python.is_some() => return Err(error),
        python => python.ok(),
    };
    Ok(WantedProgram { is_python: python.is_some(), program: python, script: None })
}

fn collect_facts(
    cluster: &ResolvedCluster,
    wanted: &WantedProgram,
    depth: Depth,
    all_ways: bool,
    terminal: Terminal,
) -> Result<(ClusterFacts, Option<i32>), CliError> {
    // If a node is started alone, only that node is checked, and not the address of rank 0.
    let (nodes, addr, port) = match cluster.local_node.or(cluster.dialing_node) {
        Some(node) => (&cluster.nodes[node.index()..=node.index()], Some("127.0.0.1"), None),
        None => (&cluster.nodes[..], given(&cluster.master_addr), cluster.master_port),
    };
    let port = port.map_or(MasterPort::Preferred(MASTER_PORT), MasterPort::Exact);
    let bytes = |text: &OsString| text.as_bytes().to_vec();
    let round = ExamRequest {
        access: match &cluster.transport {
            // If nodes dial in, only this node is checked.
            Transport::Local | Transport::Dial(_) => NodeAccess::Local,
            Transport::Ssh(options) => NodeAccess::Ssh(options.clone()),
        },
        nodes: nodes.iter().map(|(host, slots)| (host.clone(), slots.len() as u32)).collect(),
        node_request: Examine {
            cwd: bytes(&lower::environment::working_directory()?.into_os_string()),
            program: wanted.program.as_ref().map(bytes),
            is_python: wanted.is_python,
            script: wanted.script.as_ref().map(bytes),
            addr: addr.map(str::to_owned),
            others: Vec::new(),
            port: None,
            token: Token(lower::random_bytes()?),
            depth,
            spans_machines: false,
        },
        port: match port {
            MasterPort::Exact(port) => PortRequest::Exact(port),
            MasterPort::Preferred(port) => PortRequest::Preferred(port),
        },
        all_pairs: all_ways,
    };
    let ExamResult { nodes, interrupted } =
        doctor::examine_nodes(&round, &|line| print_message(line, terminal.paint))
            .map_err(|error| CliError::new(Status::OsLimit, SYSTEM, error.to_string()))?;
    Ok((ClusterFacts { nodes, slot_device: cluster.slots_are, port }, interrupted))
}

fn given(address: &MasterAddr) -> Option<&str> {
    match address {
        MasterAddr::Given(address) => Some(address),
        MasterAddr::AskNode0 => None,
    }
}

/// Runs the quick checks of `--preflight`. If there is an error, nothing is started.
pub(super) fn preflight(
    cluster: &ResolvedCluster,
    program: &Program,
    warns: bool,
    terminal: Terminal,
) -> Result<(), CliError> {
    let (facts, interrupted) =
        collect_facts(cluster, &WantedProgram::of(program), Depth::Quick, false, terminal)?;
    if let Some(signal) = interrupted {
        let message = "interrupted during the checks of the hosts; nothing was started";
        return Err(CliError::new(Status::Interrupted(signal), CANNOT_START, message));
    }
    let findings = diagnose(&facts);
    let least = if warns { Severity::Warning } else { Severity::Error };
    let shown: Vec<Finding> =
        findings.into_iter().filter(|finding| least <= finding.severity).collect();
    print_message(&doctor::show_findings(&facts, &shown), terminal.paint);
    let Some(status) = doctor::refusal(&shown) else { return Ok(()) };
    let (all, usable) = (facts.nodes.len(), usable_hosts(&facts, &shown).count());
    let (hosts, help) = match (all, usable) {
        (1, _) => ("the only host".to_owned(), FIX_HELP),
        (_, 0) => (format!("all {all} hosts"), FIX_HELP),
        _ => (
            format!("{} of {all} hosts", all - usable),
            "`remuda doctor --usable FILE` with the same options writes the usable hosts to FILE",
        ),
    };
    let message = format!("{hosts} failed the checks; nothing was started");
    Err(CliError::new(status, CANNOT_START, message).help(help))
}

/// Writes the usable hosts in the dialect of the hostfile.
fn write_usable(
    file: &Path,
    usable: &[&HostName],
    cluster: &ResolvedCluster,
    terminal: Terminal,
) -> Result<(), CliError> {
    let all = cluster.nodes.len();
    let (text, losses) = match &cluster.hostfile {
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
