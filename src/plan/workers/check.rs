//! Checks of a spec before it is planned: everything that `execve` would refuse later, on some
//! node.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::plan::error::{PlanError, WORKERS_MAX};
use crate::plan::spec::JobSpec;
use crate::plan::workers::env::is_reserved;
use crate::plan::workers::export::Export;

/// Limit of Linux for one argument or one `NAME=value`, without its final NUL.
const STRING_BYTES_MAX: usize = 131_071;

/// Checks the hosts; returns the number of workers.
pub(crate) fn world_size(spec: &JobSpec) -> Result<u32, PlanError> {
    let mut hosts = HashSet::new();
    let mut workers = 0usize;
    for (host, slots) in &spec.nodes {
        if !hosts.insert(host) {
            return Err(PlanError::DuplicateHost { host: host.clone() });
        }
        if slots.is_empty() {
            return Err(PlanError::NoSlots { host: host.clone() });
        }
        workers += slots.len();
    }
    match u32::try_from(workers) {
        Ok(0) => Err(PlanError::NoNodes),
        Ok(count) if count <= WORKERS_MAX => Ok(count),
        _ => Err(PlanError::TooManyWorkers { workers }),
    }
}

/// Checks the variables that the user set.
pub(crate) fn exports(exports: &[Export]) -> Result<(), PlanError> {
    for Export { name, value, .. } in exports {
        if is_reserved(name) {
            return Err(PlanError::Reserved { name: show(name) });
        }
        if !is_variable_name(name) {
            return Err(PlanError::BadName { name: show(name) });
        }
        if value.as_bytes().contains(&0) {
            return Err(PlanError::NulInValue { name: show(name) });
        }
        let bytes = name.len() + 1 + value.len();
        if STRING_BYTES_MAX < bytes {
            return Err(PlanError::ValueTooLong { name: show(name), bytes });
        }
    }
    Ok(())
}

/// Checks the command of a worker; argument 0 is the program.
pub(crate) fn argv<'a>(argv: impl Iterator<Item = Cow<'a, OsStr>>) -> Result<(), PlanError> {
    for (index, argument) in argv.enumerate() {
        if index == 0 && argument.is_empty() {
            return Err(PlanError::EmptyProgram);
        }
        if STRING_BYTES_MAX < argument.len() {
            return Err(PlanError::ArgumentTooLong { index, bytes: argument.len() });
        }
        if argument.as_bytes().contains(&0) {
            return Err(PlanError::NulInArgument { index });
        }
    }
    Ok(())
}

/// Whether a name fits in `NAME=value`; shells accept less, but bash itself exports
/// `BASH_FUNC_f%%`.
fn is_variable_name(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| !name.is_empty() && !name.contains(['=', '\0']))
}

fn show(name: &OsStr) -> String {
    name.to_string_lossy().escape_debug().to_string()
}
