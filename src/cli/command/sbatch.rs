//! `remuda sbatch`: a line of `remuda run` as a batch job of Slurm.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::{ArgAction, CommandFactory, Parser};

use crate::base::Status;
use crate::base::shell::quoted;
use crate::cli::args::values::parse_timeout;
use crate::cli::args::{RunArgs, check};
use crate::cli::codes::machine::{CANNOT_READ, NOT_QUEUED, SYSTEM};
use crate::cli::command::entry::CommandEntry;
use crate::cli::command::parse::{parse_with_settings, refuse_bare};
use crate::cli::command::run::{self, ParsedRun};
use crate::cli::error::CliError;
use crate::cli::line::{BadValue, CommandLine, GivenOption, codes, parse_whole};
use crate::cli::resolve;
use crate::cli::settings::{SELECTION_OPTIONS, with_settings_options};
use crate::os::process::command_output::output_for_input;
use crate::plan::BatchScript;
use crate::report::print;
use crate::report::text::{show_count, show_io_error};

/// Text after the list of options in the help.
const HELP_FOOTER: &str = "\
LINE is what follows `remuda run` on a command line: options, script, arguments. Script and interpreter
are checked before the job is queued. Inside the job remuda starts its agents by one step of Slurm, so no
ssh is needed.

30 s plus `--grace` before the time limit, workers receive SIGTERM, so that they can save their state.
With --requeue, Slurm queues the job again if one of its nodes fails or the job is preempted; the program
then resumes from what it has saved. Any other end is final: a failed program, a lost agent (R103), the
time limit. After these, `scontrol requeue JOBID` queues a job again that was submitted with --requeue.
--option passes any other option to sbatch.";

/// Options of sbatch that this command gives itself.
const OWN_OPTIONS: [&str; 9] = [
    "job-name",
    "nodes",
    "ntasks-per-node",
    "gpus-per-node",
    "time",
    "array",
    "output",
    "open-mode",
    "requeue",
];

/// Longest time limit of a job.
const LIMIT_MAX: Duration = Duration::from_secs(365 * 86_400);

/// How a time limit is written.
const LIMIT_FORMS: &str = "write `90m`, `24h`, or as for sbatch: `90` (minutes), `90:00` (M:S), \
                           `24:00:00` (H:M:S), `1-12`, `1-12:30`, `1-12:30:00` (D-H:M:S)";

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
    /// Time limit of the job: `90m`, `24h`, or as for sbatch: `90` minutes, `24:00:00`, `1-12`
    #[arg(short, long, value_name = "TIME", value_parser = parse_limit)]
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
    /// File of the output, in which `%j` is the id of the job [default: NAME-%j.log]
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
    /// CPUs of each node
    #[arg(short, long, value_name = "N", value_parser = parse_count)]
    cpus_per_task: Option<u32>,
    /// Memory of each node: `64G`; 0: all
    #[arg(long, value_name = "SIZE")]
    mem: Option<String>,
    /// Features that the nodes must have: `a100&ib`
    #[arg(short = 'C', long, value_name = "FEATURES")]
    constraint: Option<String>,
    /// No other job on the nodes
    #[arg(long)]
    exclusive: bool,
    /// Queue several jobs, each with its number in SLURM_ARRAY_TASK_ID: `0-9`, `1,3%2`
    #[arg(long, value_name = "NUMBERS")]
    array: Option<String>,
    /// Further signal before the time limit, and how many seconds before it: `B:USR1@300`
    #[arg(long, value_name = "SIGNAL@SECONDS")]
    signal: Option<String>,
    /// Text that `sacct` shows
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    /// Further option of sbatch: `reservation=NAME`, `exclude=n[1-2]`
    #[arg(long, value_name = "NAME[=VALUE]", action = ArgAction::Append, value_parser = parse_option)]
    option: Vec<(String, Option<String>)>,
    /// Let Slurm queue the job again if a node fails or the job is preempted, and let `scontrol requeue` do so
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
    with_settings_options(SbatchCli::command())
}

fn parse_count(text: &str) -> Result<u32, BadValue> {
    parse_whole(text, 1..=1 << 20).map(|count| count as u32)
}

/// Parses a time limit with a unit, or in one of the forms of sbatch, in which a number alone counts
/// minutes.
fn parse_limit(text: &str) -> Result<Duration, BadValue> {
    let is_of_slurm = !text.contains(|c: char| c.is_ascii_alphabetic());
    if !is_of_slurm {
        return parse_timeout(text).map_err(|bad| bad.help(LIMIT_FORMS));
    }
    match slurm_seconds(text) {
        None => Err(BadValue::new("expected a time").help(LIMIT_FORMS)),
        Some(0) => Err(BadValue::new("the time limit must be greater than 0").help(LIMIT_FORMS)),
        Some(seconds) if LIMIT_MAX < Duration::from_secs(seconds) => {
            Err(BadValue::new("this time is too long").help("write `365-0` (365 days) at most"))
        }
        Some(seconds) => Ok(Duration::from_secs(seconds)),
    }
}

/// Returns the seconds of `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M` or `D-H:M:S`.
fn slurm_seconds(text: &str) -> Option<u64> {
    let number = |part: &str| {
        let is_number = !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
        part.parse::<u64>().ok().filter(|number| is_number && u32::try_from(*number).is_ok())
    };
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(number(days)?), rest),
        None => (None, text),
    };
    let parts = rest.split(':').map(number).collect::<Option<Vec<u64>>>()?;
    let (hours, minutes, seconds) = match (days, parts.as_slice()) {
        (None, [minutes]) => (0, *minutes, 0),
        (None, [minutes, seconds]) => (0, *minutes, *seconds),
        (Some(_), [hours]) => (*hours, 0, 0),
        (Some(_), [hours, minutes]) => (*hours, *minutes, 0),
        (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
        _ => return None,
    };
    Some(days.unwrap_or(0) * 86_400 + hours * 3600 + minutes * 60 + seconds)
}

/// Parses a further option, `NAME` or `NAME=VALUE`; its dashes may be there.
fn parse_option(text: &str) -> Result<(String, Option<String>), BadValue> {
    let text = text.trim_start_matches('-');
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    let is_name = !name.is_empty() && name.bytes().all(|c| c.is_ascii_lowercase() || c == b'-');
    if !is_name {
        return Err(BadValue::new("expected `NAME` or `NAME=VALUE`")
            .help("names are those of sbatch: `reservation=NAME`"));
    }
    if OWN_OPTIONS.contains(&name) {
        return Err(BadValue::new(format!("`--{name}` is set by `remuda sbatch` itself"))
            .help("`remuda sbatch --help` lists its options"));
    }
    Ok((name.to_owned(), value))
}

/// Parses the command line, checks the job, and prints or submits the script.
pub(in crate::cli) fn main(
    words: Vec<OsString>,
    entries: &[CommandEntry],
) -> Result<Status, CliError> {
    refuse_bare(&words, definition)?;
    let (mut cli, whole) = parse_with_settings::<SbatchCli>(definition(), words, entries)?;
    let length = cli.line.len();
    cli.line = with_selection(&whole, cli.line);
    let args = match run::parse_with_settings(cli.line.clone(), entries)? {
        ParsedRun::Run(args, mut typed) => {
            // Advice is about the whole line.
            let options = whole.words_before(whole.words.len() - length);
            let start = options
                .iter()
                .map(quoted)
                .fold(whole.program.clone(), |line, word| line + " " + &word);
            typed.program = start;
            check::program(&args.program, &typed)?;
            *args
        }
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

/// Returns the line of `remuda run` with the profile of this line, so that the job has it too.
fn with_selection(whole: &CommandLine, line: Vec<OsString>) -> Vec<OsString> {
    let word = |given: &GivenOption| match &given.value {
        Some((value, _)) => format!("--{}={}", given.flag, value.display()).into(),
        None => format!("--{}", given.flag).into(),
    };
    let own = SELECTION_OPTIONS.iter().filter_map(|name| whole.last(name)).map(word);
    own.chain(line).collect()
}

/// Reports a script or an interpreter that is missing on this machine, before the job waits in a queue.
fn check_program(args: &RunArgs) -> Result<(), CliError> {
    let venv_script = args.workers.venv_script.as_deref();
    let resolved = resolve::program(&args.program, venv_script, resolve::NO_PYTHON_OPTION)?;
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
    let mut line = vec![own.into_os_string(), "run".into()];
    line.extend_from_slice(&cli.line);
    Ok(BatchScript {
        name: cli.job_name.clone().unwrap_or(name),
        nodes: cli.nodes,
        gpus: cli.gpus,
        time: cli.time,
        array: cli.array.clone(),
        further: further_options(cli),
        requeue: cli.requeue,
        log_dir: directory.to_string_lossy().into_owned(),
        output: cli.output.clone(),
        line,
    })
}

/// Returns the options that are passed to sbatch as they are.
fn further_options(cli: &SbatchCli) -> Vec<(String, Option<String>)> {
    let cpus = cli.cpus_per_task.map(|cpus| cpus.to_string());
    let given = [
        ("partition", &cli.partition),
        ("account", &cli.account),
        ("qos", &cli.qos),
        ("cpus-per-task", &cpus),
        ("mem", &cli.mem),
        ("constraint", &cli.constraint),
        ("signal", &cli.signal),
        ("comment", &cli.comment),
    ];
    let given = given.into_iter().filter_map(|(name, value)| Some((name, Some(value.clone()?))));
    let exclusive = cli.exclusive.then_some(("exclusive", None));
    let own = given.chain(exclusive).map(|(name, value)| (name.to_owned(), value));
    own.chain(cli.option.iter().cloned()).collect()
}

fn system(what: &str, error: &std::io::Error) -> CliError {
    let message = format!("cannot find {what}: {}", show_io_error(error));
    CliError::new(Status::NotFound, SYSTEM, message)
}

/// Passes the script to `sbatch`, and says where the job's output will be.
fn submit(script: &BatchScript, text: &str) -> Result<Status, CliError> {
    let program = resolve::search_path("sbatch").ok_or_else(|| {
        CliError::new(Status::NotFound, NOT_QUEUED, "there is no `sbatch` in PATH")
            .help("submit on a machine of the cluster; `--print` prints the script")
    })?;
    let directory = Path::new(&script.log_dir);
    let text = text.as_bytes();
    let answer = output_for_input(&program, &["--parsable"], directory, text, SUBMIT_LIMIT);
    let answer = answer.map_err(|why| {
        let message = format!("`sbatch` did not queue the job: {why}");
        let help = help_of_slurm(&why).unwrap_or("`--print` shows the script");
        CliError::new(Status::Unreachable, NOT_QUEUED, message).help(help)
    })?;
    // With several clusters the answer is `ID;CLUSTER`.
    let job = answer.trim().split(';').next().unwrap_or_default();
    let log = script.log().replace("%j", job).replace("%A_%a", &format!("{job}_*"));
    let nodes = show_count(script.nodes as usize, "node");
    print(&format!(
        "Slurm job {job}: {} on {nodes}\n  output  {log}\n  state   squeue -j {job}\n  stop    scancel {job}\n",
        script.name
    ))
    .map_err(CliError::output)?;
    Ok(Status::Success)
}

/// What shows the values that Slurm accepts, by words of its error.
const HELP_OF_SLURM: [(&str, &str); 13] = [
    ("account/partition", ACCOUNTS),
    ("partition", PARTITIONS),
    ("account", ACCOUNTS),
    ("qos", ACCOUNTS),
    ("association", ACCOUNTS),
    ("gres", "`--gpus N` needs nodes with GPUs (GRES) in Slurm; `sinfo -o '%P %D %G'` lists them"),
    ("time limit", PARTITIONS),
    ("feature", "`sinfo -o '%P %D %f'` lists the features of nodes, for `--constraint`"),
    ("reservation", "`scontrol show reservation` lists the reservations"),
    ("node name", "`sinfo -N -o '%N %P %T'` lists the nodes"),
    ("memory", NODES),
    ("cpu count", NODES),
    ("node co", NODES),
];
const PARTITIONS: &str = "`sinfo -o '%P %a %l %D %G'` lists the partitions, their state, time limit, number of nodes and GPUs";
const ACCOUNTS: &str =
    "`sacctmgr show associations user=$USER format=account,partition,qos` lists what you may use";
const NODES: &str =
    "`sinfo -N -o '%N %P %c %m %G %T'` lists the CPUs, memory in MB, GPUs and state of each node";

/// Returns the command that shows what exists, for an error of `sbatch`.
fn help_of_slurm(why: &str) -> Option<&'static str> {
    let why = why.to_lowercase();
    HELP_OF_SLURM.into_iter().find(|(words, _)| why.contains(words)).map(|(_, help)| help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_limit(text: &str, expect: Option<u64>) {
        let found = parse_limit(text).ok().map(|limit| limit.as_secs());
        assert_eq!(found, expect, "for `{text}`");
    }

    #[test]
    fn errors_of_slurm_have_the_command_that_shows_what_exists() {
        let check =
            |why: &str, expect: Option<&str>| assert_eq!(help_of_slurm(why), expect, "{why}");
        check("Invalid partition name specified", Some(PARTITIONS));
        check("Invalid account or account/partition combination specified", Some(ACCOUNTS));
        check("Invalid qos specification", Some(ACCOUNTS));
        check("Requested time limit is invalid (missing or exceeds some limit)", Some(PARTITIONS));
        check("Requested node configuration is not available", Some(NODES));
        check("Node count specification invalid", Some(NODES));
        check("Memory specification can not be satisfied", Some(NODES));
        check("CPU count per node can not be satisfied", Some(NODES));
        check("Unable to contact slurm controller (connect failure)", None);
    }

    #[test]
    fn time_limits_have_the_forms_of_sbatch() {
        check_limit("24", Some(24 * 60));
        check_limit("90:30", Some(90 * 60 + 30));
        check_limit("24:00:00", Some(86_400));
        check_limit("1-12", Some(36 * 3600));
        check_limit("1-12:30", Some(36 * 3600 + 30 * 60));
        check_limit("1-00:00:00", Some(86_400));
        check_limit("40-0", Some(40 * 86_400));
        check_limit("90m", Some(5400));
        check_limit("24h", Some(86_400));
    }

    #[test]
    fn other_time_limits_are_refused() {
        for text in ["", "0", "0:00", "1:2:3:4", "1-", "-1", "1-2-3", "a:b", "+5:00", "1.5:00"] {
            check_limit(text, None);
        }
        check_limit("366-0", None);
        check_limit("5 days", None);
        check_limit("1.5", None);
    }
}
