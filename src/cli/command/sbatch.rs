//! `remuda sbatch`: a line of `remuda run` as a batch job of Slurm.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::{CommandFactory, Parser};

use crate::base::Status;
use crate::cli::args::RunArgs;
use crate::cli::args::values::parse_timeout;
use crate::cli::codes::machine::{CANNOT_READ, SYSTEM};
use crate::cli::command::parse::parse;
use crate::cli::command::run::{self, ParsedRun};
use crate::cli::error::CliError;
use crate::cli::line::{BadValue, codes, parse_whole};
use crate::cli::resolve;
use crate::os::process::command_output::output_for_input;
use crate::plan::BatchScript;
use crate::report::print;
use crate::report::text::{show_count, show_io_error};

/// Text after the list of options in the help.
const HELP_FOOTER: &str = "\
LINE is a line of `remuda run` without these two words: options, script, arguments. Script and interpreter
are checked before the job is queued. Inside the job remuda starts its agents by one step of Slurm, so no
ssh is needed.

With --time workers get SIGTERM before the limit, so that they can save their state. --requeue queues the
job again if a node fails or the job is preempted; the program then resumes from what it has saved.";

/// Time before the limit at which the job is asked to stop, beside the grace.
const WARNING_MARGIN: Duration = Duration::from_secs(30);

/// Time limit for the answer of `sbatch`.
const SUBMIT_LIMIT: Duration = Duration::from_secs(120);

/// Submit a line of `remuda run` to Slurm, or print the batch script.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda sbatch", bin_name = "remuda sbatch", version, after_help = HELP_FOOTER)]
struct SbatchCli {
    /// Number of nodes
    #[arg(short = 'N', long, value_name = "N", default_value = "1", value_parser = parse_count)]
    nodes: u32,
    /// GPUs of each node, one worker for each
    #[arg(long, value_name = "N", value_parser = parse_count)]
    gpus: Option<u32>,
    /// Time limit of the job: `90m`, `24h`
    #[arg(short, long, value_name = "TIME", value_parser = parse_timeout)]
    time: Option<Duration>,
    /// Partition
    #[arg(short, long, value_name = "NAME")]
    partition: Option<String>,
    /// Account that pays for the job
    #[arg(short = 'A', long, value_name = "NAME")]
    account: Option<String>,
    /// Quality of service
    #[arg(short, long, value_name = "NAME")]
    qos: Option<String>,
    /// Name of the job [default: that of the script]
    #[arg(short = 'J', long, value_name = "NAME")]
    job_name: Option<String>,
    /// Queue the job again after the failure of a node
    #[arg(long)]
    requeue: bool,
    /// Print the batch script and submit nothing
    #[arg(long)]
    print: bool,
    /// Line of `remuda run`
    #[arg(required = true, num_args = 1.., trailing_var_arg = true, value_name = "LINE")]
    line: Vec<OsString>,
}

/// Returns the definition of the command.
pub(in crate::cli) fn definition() -> clap::Command {
    SbatchCli::command()
}

fn parse_count(text: &str) -> Result<u32, BadValue> {
    parse_whole(text, 1..=1 << 20).map(|count| count as u32)
}

/// Parses the command line, checks the job, and prints or submits the script.
pub(in crate::cli) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    let (cli, _) = parse::<SbatchCli>(words)?;
    let args = match run::parse_as("remuda run", cli.line.clone())? {
        ParsedRun::Run(args, _) => *args,
        ParsedRun::Text(text) => {
            print(&text.to_string()).map_err(CliError::output)?;
            return Ok(Status::Success);
        }
    };
    check_program(&args)?;
    let script = script(&cli, &args)?;
    let text =
        script.text().map_err(|error| CliError::usage(codes::BAD_VALUE, error.to_string()))?;
    if cli.print {
        print(&text).map_err(CliError::output)?;
        return Ok(Status::Success);
    }
    submit(&script, &text)
}

/// Reports a script or an interpreter that is missing on this machine, before the job waits in a queue.
fn check_program(args: &RunArgs) -> Result<(), CliError> {
    let venv_script = args.workers.venv_script.as_deref();
    let resolved = resolve::program(&args.program, venv_script)?;
    let problems = resolve::missing_requirements(&resolved.program, venv_script)?;
    let Some(problem) = problems.into_iter().next() else { return Ok(()) };
    let message = format!("{}; nothing was submitted", problem.message);
    let error = CliError::new(Status::Worker(problem.status), CANNOT_READ, message);
    Err(match problem.help {
        Some(help) => error.help(help),
        None => error,
    })
}

fn script(cli: &SbatchCli, args: &RunArgs) -> Result<BatchScript, CliError> {
    let own = std::env::current_exe().map_err(|error| system("this executable", &error))?;
    let directory = std::env::current_dir().map_err(|error| system("this directory", &error))?;
    let first = Path::new(&args.program.script_and_args[0]);
    let name = first.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let placement = [("partition", &cli.partition), ("account", &cli.account), ("qos", &cli.qos)];
    let mut line = vec![own.into_os_string(), "run".into()];
    line.extend_from_slice(&cli.line);
    Ok(BatchScript {
        name: cli.job_name.clone().unwrap_or(name),
        nodes: cli.nodes,
        gpus: cli.gpus,
        time: cli.time,
        warning: args.watch.grace + WARNING_MARGIN,
        placement: placement
            .into_iter()
            .filter_map(|(option, value)| Some((option, value.clone()?)))
            .collect(),
        requeue: cli.requeue,
        log_dir: directory.to_string_lossy().into_owned(),
        line,
    })
}

fn system(what: &str, error: &std::io::Error) -> CliError {
    let message = format!("cannot find {what}: {}", show_io_error(error));
    CliError::new(Status::NotFound, SYSTEM, message)
}

/// Passes the script to `sbatch`, and says where the job's output will be.
fn submit(script: &BatchScript, text: &str) -> Result<Status, CliError> {
    let program = resolve::search_path("sbatch").ok_or_else(|| {
        CliError::new(Status::NotFound, SYSTEM, "there is no `sbatch` in PATH")
            .help("submit on a machine of the cluster; `--print` prints the script")
    })?;
    let directory = Path::new(&script.log_dir);
    let text = text.as_bytes();
    let answer = output_for_input(&program, &["--parsable"], directory, text, SUBMIT_LIMIT);
    let answer = answer.map_err(|why| {
        CliError::new(Status::Unreachable, SYSTEM, format!("`sbatch` did not queue the job: {why}"))
            .help("`--print` shows the script")
    })?;
    // With several clusters the answer is `ID;CLUSTER`.
    let job = answer.trim().split(';').next().unwrap_or_default();
    let log = script.log().replace("%j", job);
    let nodes = show_count(script.nodes as usize, "node");
    print(&format!(
        "Slurm job {job}: {} on {nodes}\n  output  {log}\n  state   squeue -j {job}\n  stop    scancel {job}\n",
        script.name
    ))
    .map_err(CliError::output)?;
    Ok(Status::Success)
}
