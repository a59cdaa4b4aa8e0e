//! Checks before a job is started: the process manager, and with `--preflight` the hosts.

use crate::base::{Severity, Status};
use crate::cli::error::CliError;
use crate::cli::resolve::ResolvedCluster;
use crate::cli::start::examination::{WantedProgram, collect_facts};
use crate::doctor::{self, Finding, diagnose, usable_hosts};
use crate::launch::Transport;
use crate::launch::codes::{CANNOT_START, UNREACHABLE};
use crate::plan::Program;
use crate::report::{Terminal, print_message};
use crate::transport::manager::check_program;
use crate::wire::Depth;

/// Help for the case that no host is usable.
const FIX_HELP: &str =
    "fix the problems above; `remuda doctor` with the same options gives details";

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

/// Refuses a process manager whose program is not in PATH, or is that of another MPI.
pub(super) fn check_manager(transport: &Transport) -> Result<(), CliError> {
    let Transport::Managed(options) = transport else { return Ok(()) };
    check_program(options.manager).map_err(|fault| {
        let help = fault.help().unwrap_or_default();
        let message = format!("{}; nothing was started", fault.detail);
        CliError::new(fault.kind.status(), UNREACHABLE, message).help(help)
    })
}
