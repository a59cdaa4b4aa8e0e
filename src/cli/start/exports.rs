//! Variables of the workers, and the warnings about a cluster and its environment files.

use crate::cli::args::WatchArgs;
use crate::cli::error::CliError;
use crate::cli::resolve::ResolvedCluster;
use crate::cli::resolve::environment::{self, FileExports, JobScope};
use crate::launch::Transport;
use crate::plan::Export;
use crate::report::{Terminal, print_error};

/// Returns the variables for the workers, after the warnings are printed. Environment files are those
/// of DeepSpeed.
pub(in crate::cli) fn exports(
    cluster: &ResolvedCluster,
    watch: &WatchArgs,
    reads_files: bool,
    terminal: Terminal,
) -> Result<Vec<Export>, CliError> {
    let accelerator = cluster.devices.accelerator;
    let files = if reads_files {
        environment::read_files(cluster.origin.trust, accelerator, terminal.paint)?
    } else {
        FileExports::default()
    };
    if watch.prints_warnings() {
        print_error(&cluster.warnings);
        print_error(&files.warnings);
    }
    let scope = match cluster.transport {
        // Each node of a line of torchrun has an environment of its own.
        Transport::Dial(_) if !reads_files => JobScope::Here,
        Transport::Local | Transport::Ssh(_) | Transport::Dial(_) | Transport::Managed(_) => {
            JobScope::of(cluster.nodes.len(), &cluster.transport)
        }
    };
    environment::exports(&watch.env, files, scope, accelerator)
}
