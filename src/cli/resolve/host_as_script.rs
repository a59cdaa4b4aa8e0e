//! A host in the place of the script: `--include n1 n2 train.py`.

use std::collections::HashSet;
use std::path::Path;

use crate::base::Diagnostic;
use crate::base::shell::quoted;
use crate::cli::args::ProgramArgs;
use crate::cli::line::{CommandLine, RefusedLine, codes};
use crate::cli::resolve::cluster::ResolvedCluster;

/// Refuses a host behind a selector whose hosts are separated by blanks, unless a file has its name.
pub(in crate::cli) fn check_script_is_no_host(
    program: &ProgramArgs,
    cluster: &ResolvedCluster,
    typed: &CommandLine,
) -> Result<(), RefusedLine> {
    let words = &program.script_and_args;
    let given =
        typed.options.iter().rev().find(|given| ["include", "exclude"].contains(&&*given.flag));
    let (Some(given), Some(script), Some(hostfile)) =
        (given, words.first(), &cluster.origin.hostfile)
    else {
        return Ok(());
    };
    let pool = hostfile.hostfile.pool();
    let names: HashSet<&str> = pool.nodes().iter().map(|(host, _)| host.as_str()).collect();
    let hosts = words.iter().map_while(|word| word.to_str().filter(|word| names.contains(word)));
    let hosts: Vec<&str> = hosts.collect();
    let Some((value, _)) = given.value.as_ref().filter(|_| !hosts.is_empty()) else {
        return Ok(());
    };
    if Path::new(script).exists() {
        return Ok(());
    }
    let list = format!("{}@{}", value.to_string_lossy(), hosts.join("@"));
    let place = typed.word_span(typed.words.len() - words.len());
    Err(typed.refuse(&[place], |spans| {
        let message = format!("`{}` is a host, and stands in the place of the script", hosts[0]);
        Diagnostic::error(codes::BAD_VALUE, spans[0], message)
            .label("expected the script")
            .help(format!("hosts are separated by `@`: `--{} {}`", given.flag, quoted(list)))
    }))
}
