//! `remuda bench`: starts this executable as the workers of a job.

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::{Command, CommandFactory, Parser};

use super::check;
use super::worker::{WORKER_COMMAND, worker_main};
use crate::base::Status;
use crate::base::shell::quoted_line;
use crate::bench::Backend;
use crate::cli::args::{self, ClusterArgs, WatchArgs, WorkerArgs};
use crate::cli::command::bench::args::BenchArgs;
use crate::cli::command::entry::CommandEntry;
use crate::cli::command::parse::parse_with_settings;
use crate::cli::error::CliError;
use crate::cli::line::CommandLine;
use crate::cli::resolve;
use crate::cli::settings::{with_settings_options, with_sources};
use crate::cli::start::{self, JobArgs, PrintedRanks, WorkerProgram, start};
use crate::launch::CauseRule;
use crate::report::{RunClass, Terminal};

/// Measure a collective between all ranks: time, algorithm bandwidth and bus bandwidth for each size,
/// with the columns and options of nccl-tests. Results are checked.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "remuda bench",
    bin_name = "remuda bench",
    version,
    args_override_self = true,
    after_help = HELP_FOOTER
)]
struct BenchCli {
    #[command(flatten)]
    bench: BenchArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    watch: WatchArgs,
}

/// Text after the list of options in the help.
const HELP_FOOTER: &str = "\
Rank 0 prints the table, reads `--compare` and writes `--plot`, on its node. The default backend is that
of the bundled runtime: shared memory inside a node, TCP between nodes, and sums in the canonical
order. With `--backend nccl` data is in GPU memory, and NCCL sums it in an order of its own unless
`--order canonical` is given. If a backend cannot be used, that is an error: remuda never falls back to
another one.

The columns are those of nccl-tests. All-reduce, broadcast and reduce are measured in place, the other
operations out of place; the columns of the other mode contain `-`.

Exit status: 0; 1 if numbers are wrong or `--threshold` is not reached; else as for `remuda run`.";

/// Returns the definition of the command: short options of nccl-tests take precedence, and `--json`
/// applies to the results.
pub(in crate::cli) fn definition() -> Command {
    const NCCL_TESTS: [&str; 3] = ["include", "exclude", "num_gpus"];
    with_settings_options(BenchCli::command()).mut_args(|arg| match arg.get_id().as_str() {
        id if NCCL_TESTS.contains(&id) => arg.short(Resettable::Reset),
        "json" => arg.help("Print the results as JSON; with --dry-run, the plan of the job"),
        _ => arg,
    })
}

/// Parses the command line, and starts this executable as the worker of every slot.
pub(in crate::cli) fn main(
    words: Vec<OsString>,
    entries: &[CommandEntry],
) -> Result<Status, CliError> {
    if start::is_worker() {
        return worker_main(words);
    }
    let (cli, typed) = parse_with_settings::<BenchCli>(definition(), words, entries)?;
    run(cli, &typed).map_err(|error| with_sources(error, &typed))
}

fn run(mut cli: BenchCli, typed: &CommandLine) -> Result<Status, CliError> {
    if !cli.watch.dry_run {
        cli.bench.json = std::mem::take(&mut cli.watch.json);
    }
    args::check::cluster(&cli.cluster, typed)?;
    args::check::connected(&cli.cluster, typed)?;
    args::check::watch(&cli.watch, typed)?;
    let terminal = Terminal::detect();
    if cli.bench.backend == Backend::Host {
        let note = "`--backend nccl` measures GPUs";
        start::use_cpu_slots(&mut cli.cluster, note, terminal);
    }
    let cluster = resolve::resolve_cluster(&cli.cluster, typed, terminal)?;
    args::check::stdin(&cli.watch, cluster.workers(), typed)?;
    check::run(&cli.bench, typed, &cluster)?;
    let program = start::this_executable(&cluster.transport)?;
    let own = cli.bench.worker_args();
    let shown = Some(format!("the bundled benchmark: `remuda bench {}`", quoted_line(&own)));
    let words = std::iter::once(WORKER_COMMAND.into()).chain(own).collect();
    let worker_program = WorkerProgram::new(program, words, PrintedRanks::Rank0(CauseRule::Rank0));
    let worker_program = WorkerProgram { class: RunClass::Tool, shown, ..worker_program };
    let settings = typed.applied_settings();
    let job = JobArgs { watch: &cli.watch, workers: &WorkerArgs::default(), settings, terminal };
    start(cluster, job, worker_program)
}
