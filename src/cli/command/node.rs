//! `remuda node`: what a process manager starts on every node of a job. Users do not type it.

use std::io::{BufRead, Read};
use std::path::PathBuf;

use crate::base::{NodeRank, Status, env_vars};
use crate::cli::error::CliError;
use crate::cli::line::codes::BAD_VALUE;
use crate::launch;
use crate::os::machine::machine_name;
use crate::os::net::interfaces;
use crate::transport::manager::{PROCESS_MANAGERS, Ticket, TicketError};

/// Largest ticket that is read.
const TICKET_BYTES_MAX: u64 = 16 << 20;

/// Serves the job of the ticket in the named file, or on standard input.
pub(in crate::cli) fn main(words: &[std::ffi::OsString]) -> Result<Status, CliError> {
    let line = match words {
        [] => read_line(&mut std::io::stdin().lock()),
        [path, ..] => std::fs::File::open(PathBuf::from(path))
            .and_then(|file| read_line(&mut std::io::BufReader::new(file))),
    };
    let line = line.map_err(|error| refused(&error.to_string()))?;
    let ticket = Ticket::parse(&line).map_err(|error: TicketError| refused(&error.to_string()))?;
    // A manager may start a process on every node of an allocation, also on those without a part.
    let Some(node) = own_node(&ticket) else { return Ok(Status::Success) };
    Ok(launch::serve_node(&ticket, node)?)
}

fn read_line(input: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    input.take(TICKET_BYTES_MAX).read_line(&mut line)?;
    Ok(line)
}

fn refused(why: &str) -> CliError {
    CliError::usage(BAD_VALUE, format!("`remuda node`: {why}"))
        .help("process managers start it for `remuda run --launcher slurm` and the like")
}

/// Which node this machine is: by the name that the manager gives it, its own names and addresses, or the
/// number of this process.
fn own_node(ticket: &Ticket) -> Option<NodeRank> {
    let mut variables = PROCESS_MANAGERS.iter().filter_map(|manager| manager.node_name_variable);
    if let Some(name) = variables.find_map(env_vars::get_text) {
        return ticket.node_of(&[name], number());
    }
    let addresses = interfaces::addresses().unwrap_or_default();
    let addresses = addresses.into_iter().filter(|(_, address)| !address.is_loopback());
    let mut names: Vec<String> = addresses.map(|(_, address)| address.to_string()).collect();
    names.push(machine_name());
    ticket.node_of(&names, number())
}

/// Number of this process in the manager's command.
fn number() -> Option<usize> {
    let mut variables = PROCESS_MANAGERS.iter().filter_map(|manager| manager.number_variable);
    variables.find_map(|name| env_vars::get_text(name)?.parse().ok())
}
