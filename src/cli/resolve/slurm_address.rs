//! Addresses of nodes of Slurm, whose names may be known to Slurm alone: it reaches a node at its NodeAddr.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use crate::base::{HostName, env_vars};
use crate::cli::resolve::program::search_path;
use crate::os::process::command_output::output_of;
use crate::pool::nodeset::fold_set;

/// The program of Slurm that shows nodes.
const SCONTROL: &str = "scontrol";
/// Time limit for it: it waits for a controller that does not answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// An address at which nodes meet.
pub(in crate::cli) struct MeetingAddress {
    pub(in crate::cli) text: String,
    /// A note if it is not the name that was given.
    pub(in crate::cli) note: Option<String>,
}

/// Returns the address at which the nodes meet whose line or scheduler gives this name: the name itself, or the address
/// that Slurm has if this process is in an allocation of it and the name does not resolve.
pub(in crate::cli) fn meeting_address(name: &str) -> MeetingAddress {
    let is_name = name.parse::<IpAddr>().is_err();
    let is_open = is_name && is_in_allocation() && !resolves(name);
    match is_open.then(|| ask(&[name])).and_then(|mut found| found.remove(name)) {
        Some(address) => MeetingAddress {
            note: Some(format!(
                "note: the name `{name}` does not resolve here: the nodes meet at its address in Slurm, {address} \
                 (NodeAddr)\n"
            )),
            text: address,
        },
        None => MeetingAddress { text: name.to_owned(), note: None },
    }
}

/// Returns the addresses that Slurm has for these hosts, if this process is in an allocation of it and their names do
/// not resolve. The first host stands for all: a lookup of each would delay large jobs.
pub(super) fn addresses<'a>(
    mut hosts: impl Iterator<Item = &'a HostName> + Clone,
) -> HashMap<HostName, String> {
    let names: Vec<&str> = hosts.clone().map(HostName::as_str).collect();
    let is_open = is_in_allocation() && hosts.next().is_some_and(|first| !resolves(first.as_str()));
    let found = if is_open { ask(&names) } else { HashMap::new() };
    let host = |(name, address): (String, String)| Some((HostName::parse(&name).ok()?, address));
    found.into_iter().filter_map(host).collect()
}

fn is_in_allocation() -> bool {
    env_vars::get(env_vars::SLURM_JOB_ID).is_some()
}

/// Whether a name has an address that other machines may have been given too: /etc/hosts of Debian has a loopback
/// address for the machine's own name.
fn resolves(name: &str) -> bool {
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let found = (bare, 0).to_socket_addrs();
    bare == "localhost"
        || found.is_ok_and(|mut found| found.any(|address| !address.ip().is_loopback()))
}

/// Asks Slurm for the addresses of these nodes. Those whose address is their name are left out.
fn ask(names: &[&str]) -> HashMap<String, String> {
    let Some(program) = search_path(SCONTROL) else { return HashMap::new() };
    let set = fold_set(names.iter().copied());
    let words = ["show", "node", "-o", &set];
    output_of(&program, &words, Path::new("/"), ANSWER_LIMIT)
        .map_or_else(|_| HashMap::new(), |text| parse(&text))
}

/// Parses the output of `scontrol show node -o`: one line for each node.
fn parse(text: &str) -> HashMap<String, String> {
    let value = |line: &str, name: &str| {
        let mut words = line.split_whitespace();
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
    };
    let node = |line: &str| Some((value(line, "NodeName")?, value(line, "NodeAddr")?));
    text.lines().filter_map(node).filter(|(name, address)| name != address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_that_differ_from_the_name() {
        let text = "NodeName=n1 Arch=x86_64 OS=Linux 6.1 #1 SMP NodeAddr=10.0.0.1 NodeHostName=n1 Port=1\n\
                    NodeName=n2 NodeAddr=n2 NodeHostName=n2\nNode n3 not found\n";
        let found = parse(text);
        assert_eq!(found, [("n1".to_owned(), "10.0.0.1".to_owned())].into());
    }

    #[test]
    fn loopback_address_of_a_name_is_none_for_other_machines() {
        assert!(resolves("10.0.0.1") && resolves("[fe80::1]") && resolves("localhost"));
        assert!(!resolves("127.0.1.1") && !resolves("n1.invalid"));
    }
}
