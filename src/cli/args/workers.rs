//! Options about the program of the workers, their processors and their log files.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::cli::args::values::{AutotuningArg, CoreList, TorchBackendArg, parse_cores};

/// Program of the workers.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Program", rename_all = "snake_case")]
pub struct ProgramArgs {
    /// Run SCRIPT as a module: `python -m SCRIPT`
    #[arg(long)]
    pub module: bool,
    /// Execute SCRIPT directly, without Python; an ELF file needs no option
    #[arg(long)]
    pub no_python: bool,
    /// Do not pass `--local_rank=N` to the script
    #[arg(long)]
    pub no_local_rank: bool,
    /// Python interpreter [default: $PYTHON_EXEC, that of the active virtual or conda environment, that
    /// beside remuda if it is installed in one, the first in PATH]
    #[arg(long, value_name = "FILE")]
    pub python: Option<OsString>,
    /// Script, then its own arguments
    #[arg(required = true, num_args = 1.., trailing_var_arg = true, value_name = "SCRIPT")]
    pub script_and_args: Vec<OsString>,
}

/// Processors, environment and log files of the workers.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Workers", rename_all = "snake_case")]
pub struct WorkerArgs {
    /// Bind each worker to its own processors
    #[arg(long)]
    pub bind_cores_to_rank: bool,
    /// With --bind_cores_to_rank: processors to divide among the workers: `0,2-4,6` [default: all]
    #[arg(long, value_name = "CORES", value_parser = parse_cores)]
    pub bind_core_list: Option<CoreList>,
    /// Activation script of a Python environment, sourced on every node
    #[arg(long, value_name = "FILE")]
    pub venv_script: Option<PathBuf>,
    /// Backend of the groups that a program of torch makes with `gloo`, as accelerate and the Trainer do
    /// [default: gloo]
    #[arg(long, value_name = "NAME", value_enum)]
    pub torch_backend: Option<TorchBackendArg>,
    /// Write the output of each rank to DIR/TIME_rankN.log and not to the screen
    #[arg(long, value_name = "DIR")]
    pub enable_each_rank_log: Option<OsString>,
    /// Write the process id of the launcher to /tmp/PID.deepspeed
    #[arg(long)]
    pub save_pid: bool,
    /// Process id in the name of that file: that of the parent process if it gave one, else that of
    /// this process.
    #[arg(skip)]
    pub pid_in_file_name: Option<u32>,
    /// DeepSpeed's search for a fast configuration; not part of remuda
    #[arg(long, value_name = "HOW", value_enum, hide = true)]
    pub autotuning: Option<AutotuningArg>,
}

impl WorkerArgs {
    /// Returns the directory of `--enable_each_rank_log`; DeepSpeed's default is the *text* `None`.
    pub fn rank_log_dir(&self) -> Option<PathBuf> {
        let given = self.enable_each_rank_log.as_ref();
        given.filter(|dir| !dir.is_empty() && *dir != "None").map(PathBuf::from)
    }
}
