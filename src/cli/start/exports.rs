//! Variables of the workers, and the warnings about a cluster and its environment files.

use crate::base::env_vars;
use crate::cli::args::values::TorchBackendArg;
use crate::cli::error::CliError;
use crate::cli::resolve::ResolvedCluster;
use crate::cli::resolve::environment::{self, FileExports, JobScope};
use crate::cli::start::job_args::JobArgs;
use crate::launch::Transport;
use crate::plan::{Export, VariableOrigin};
use crate::report::print_error;

/// Returns the variables for the workers, after the warnings are printed. Environment files are those
/// of DeepSpeed.
pub(in crate::cli) fn exports(
    cluster: &ResolvedCluster,
    args: JobArgs<'_>,
    reads_files: bool,
) -> Result<Vec<Export>, CliError> {
    let JobArgs { watch, workers, terminal, .. } = args;
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
    let mut exports = environment::exports(&watch.env, files, scope, accelerator)?;
    if let Some(backend) = workers.torch_backend {
        let at = exports.iter().position(|export| export.origin == VariableOrigin::Flag);
        exports.insert(at.unwrap_or(exports.len()), torch_backend(backend));
    }
    Ok(exports)
}

/// The variable by which the Python package in the workers gets the option; `--env` comes after it, and decides.
fn torch_backend(backend: TorchBackendArg) -> Export {
    Export {
        name: env_vars::REMUDA_TORCH_BACKEND.into(),
        value: backend.name().into(),
        origin: VariableOrigin::Option("--torch_backend"),
    }
}
