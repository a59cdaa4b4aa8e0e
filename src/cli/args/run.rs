//! The options of `remuda run`.

use clap::Parser;

use crate::cli::args::{ClusterArgs, ElasticArgs, ProgramArgs, WatchArgs, WorkerArgs};

/// Text after the list of options in the help.
pub(super) const HELP_FOOTER: &str = "\
Options are placed before the script; every word after the script is an argument of the script.
Options of DeepSpeed can be abbreviated; `-` and `_` are the same in the name of an option.

Signals: SIGINT (^C), SIGTERM and SIGHUP stop the workers, a second one kills them, a third one ends the
launcher at once. SIGTSTP (^Z) suspends workers and time limits until SIGCONT (`fg`). SIGQUIT (^\\)
prints the state of every rank, and the job continues. SIGUSR1 and SIGUSR2 are forwarded to every worker.

Exit status: 0 if every worker of every node returned 0; else that of the worker that failed first,
128 + N if signal N ended it. Statuses of remuda itself: 2 command line, 65 bad input file, 66 missing
input, 69 host unreachable or GPU in use, 70 internal error, 71 system limit, 73/74 output, 75 node lost,
76 protocol, 77 permission, 78 configuration, 124 --timeout, 126/127 program not executable / not found,
129/130/143 stopped by SIGHUP/SIGINT/SIGTERM.";

/// Run a program on every slot of every host, and report the first cause of a failure.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "remuda run",
    bin_name = "remuda run",
    version,
    args_override_self = true,
    after_help = HELP_FOOTER
)]
pub struct RunArgs {
    /// Hosts and slots.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Hosts that the job can do without.
    #[command(flatten)]
    pub elastic: ElasticArgs,
    /// Script and arguments.
    #[command(flatten)]
    pub program: ProgramArgs,
    /// Processors, environment and log files of the workers.
    #[command(flatten)]
    pub workers: WorkerArgs,
    /// Options of supervision and output.
    #[command(flatten)]
    pub watch: WatchArgs,
}
