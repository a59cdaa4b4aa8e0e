//! How nodes are reached.

use crate::base::{HostName, Slot};
use crate::cli::args::PlaceArgs;
use crate::cli::error::CliError;
use crate::cli::values::LauncherArg;

/// Without ssh only this machine can be reached.
pub(super) fn check_transport(
    args: &PlaceArgs,
    nodes: &[(HostName, Vec<Slot>)],
) -> Result<(), CliError> {
    let is_here = |host: &HostName| matches!(host.as_str(), "localhost" | "127.0.0.1" | "[::1]");
    match (args.reach.launcher, nodes) {
        (Some(LauncherArg::Local), _) => Ok(()),
        (None, [(host, _)]) if is_here(host) => Ok(()),
        _ => Err(CliError::config("hosts other than this machine cannot be reached yet")
            .help("`--launcher local` starts every host of the hostfile on this machine")),
    }
}
