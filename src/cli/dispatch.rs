//! Dispatch: selects the command by the name of the program and the first word.
//!
//! Each command has its own parser. Only this file checks the word that selects the command, so that
//! a script called `hostfile` is never read as a command.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use super::command::entry::CommandEntry;
use super::command::parse::print_requested;
use super::command::{accelerate, run, torchrun};
use super::error::CliError;
use super::executable;
use super::face::torchrun::job::TorchLauncher;
use super::help;
use super::line::{
    CommandLine, Instead, codes, instead_of, is_launcher, is_python, launcher_named,
    launcher_of_python, version_line,
};
use super::registry::COMMANDS;
use crate::base::shell::quoted_line;
use crate::base::{Diagnostic, Span, Status, env_vars, show_typed};
use crate::os::files::fds;
use crate::os::process::signals;
use crate::pool::nearest;
use crate::report::{self, Terminal, print, print_error};

/// Name of torch's launcher.
const TORCHRUN: &str = "torchrun";
/// Names of Hugging Face's launcher.
const ACCELERATE: &str = "accelerate";
const ACCELERATE_LAUNCH: &str = "accelerate-launch";

/// The program name by which remuda was started. It has no subcommands here, so that a script
/// called `train` is a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InvokedAs {
    /// Commands.
    Remuda,
    /// The launcher of DeepSpeed, by one of its names.
    DeepSpeed(&'static str),
    /// The launcher of torch.
    Torchrun,
    /// The launcher of Hugging Face; with `launch` in its name, or as the first word.
    Accelerate(&'static str),
    /// A launcher whose lines remuda does not read.
    Other(&'static str),
}

impl InvokedAs {
    fn of(program: &OsStr) -> Self {
        const DEEPSPEED: [&str; 3] = ["deepspeed", "ds", "deepspeed.pt"];
        let name = Path::new(program).file_name().unwrap_or_default();
        match DEEPSPEED.into_iter().find(|known| name == *known) {
            Some(name) => Self::DeepSpeed(name),
            None if name == TORCHRUN => Self::Torchrun,
            None if name == ACCELERATE => Self::Accelerate(ACCELERATE),
            None if name == ACCELERATE_LAUNCH => Self::Accelerate(ACCELERATE_LAUNCH),
            None => {
                let other = name.to_str().and_then(launcher_named);
                other.map_or(Self::Remuda, Self::Other)
            }
        }
    }
}

/// Runs the program.
pub fn main() -> ExitCode {
    // A file that is opened as descriptor 0, 1 or 2 would be used as a standard stream.
    if fds::fill_stdio().is_err() {
        return Status::OsLimit.into();
    }
    signals::ignore_file_size_signal();
    report::start_log();
    report::install_panic_hook("remuda");
    let mut words = std::env::args_os();
    let invoked_as = InvokedAs::of(&words.next().unwrap_or_default());
    let words = words.collect();
    let dispatched = std::panic::catch_unwind(|| match invoked_as {
        InvokedAs::Remuda => dispatch(words),
        InvokedAs::DeepSpeed(name) => {
            note_command(name, &words);
            run::main_as_deepspeed(name, words)
        }
        InvokedAs::Other(name) => Err(unknown_launcher(name, words)),
        InvokedAs::Torchrun => torchrun::main(TORCHRUN, TorchLauncher::Torchrun, words),
        InvokedAs::Accelerate(ACCELERATE_LAUNCH) => accelerate::launch(ACCELERATE_LAUNCH, words),
        InvokedAs::Accelerate(_) => accelerate::main(ACCELERATE, words),
    });
    match dispatched {
        Ok(Ok(status)) => status.into(),
        Ok(Err(error)) => {
            print_error(&error.screen(Terminal::detect().paint));
            error.status().into()
        }
        // The panic hook has reported the place and the cause.
        Err(_) => Status::Bug.into(),
    }
}

fn dispatch(words: Vec<OsString>) -> Result<Status, CliError> {
    let Some((command, rest)) = words.split_first() else { return Err(no_command_given()) };
    let rest = rest.to_vec();
    let named = command.to_str();
    if let Some(entry) = COMMANDS.iter().find(|entry| named == Some(entry.name)) {
        return (entry.main)(rest, COMMANDS);
    }
    match named {
        Some("help") if !rest.is_empty() => {
            dispatch(rest.into_iter().chain([OsString::from("--help")]).collect())
        }
        Some("help" | "--help" | "-h") => {
            Err(print_requested(&help::front_page(COMMANDS, help::width()).into()))
        }
        Some("--version" | "-V") => {
            print(&version_line()).map_err(CliError::output)?;
            Ok(Status::Success)
        }
        _ => Err(unknown_command(words)),
    }
}

/// Says which command a user may mean whose first word is no script here: under this name there are no commands.
fn note_command(program: &str, words: &[OsString]) {
    let Some(word) = words.first().filter(|word| !Path::new(word).exists()) else { return };
    let mut commands = COMMANDS.iter().filter(|entry| entry.help.is_some());
    if let Some(CommandEntry { name, .. }) = commands.find(|entry| *word == *entry.name) {
        let meant = format!("the command is `remuda {name}`");
        print_error(&format!("note: `{program}` reads `{name}` as a script; {meant}\n"));
    }
}

fn no_command_given() -> CliError {
    let typed = CommandLine::new("remuda", Vec::new());
    let refused = typed.refuse(&[typed.end_span()], |spans| {
        Diagnostic::error(codes::NEEDS_OTHER, spans[0], "a command is missing")
            .label("expected here")
            .help("`remuda --help` lists the commands; `remuda run SCRIPT` runs a script")
    });
    refused.into()
}

/// remuda was started by the name of a launcher whose lines it does not read.
fn unknown_launcher(name: &str, words: Vec<OsString>) -> CliError {
    let typed = CommandLine::new(name, words);
    let help = line_for_launcher(name, &typed.words);
    // The line begins with the name.
    let refused = typed.refuse(&[typed.word_span(0)], |_| {
        let message = format!("this is remuda, and it does not read lines of {name}");
        let place = Span::new(0, name.len());
        Diagnostic::error(codes::UNKNOWN_COMMAND, place, message).label("").help(help)
    });
    refused.into()
}

fn unknown_command(words: Vec<OsString>) -> CliError {
    let typed = CommandLine::new("remuda", words);
    let word = typed.words[0].to_string_lossy();
    let names = COMMANDS.iter().filter(|entry| entry.help.is_some()).map(|entry| entry.name);
    let help = match nearest(&word, names) {
        _ if is_launcher(&word) || is_python(&word) => line_for_launcher(&word, &typed.words[1..]),
        _ if word == "-m" && is_module_of_launcher(&typed.words) => {
            line_for_launcher("python", &typed.words)
        }
        _ if is_line_of_run(&word, &typed.words) => {
            format!("did you mean `remuda run {}`?", quoted_line(&typed.words))
        }
        _ if let Some(help) = instead_of_command(&word) => help,
        Some(near) => format!("did you mean `remuda {near}`?"),
        None if let Some(near) = nearest(&word, ["--help", "--version"]) => {
            format!("did you mean `remuda {near}`?")
        }
        None if !word.contains('/') && executable::search_path(&word).is_some() => format!(
            "to run the program `{word}`, type `remuda run --no_python --no_local_rank {}`",
            quoted_line(&typed.words)
        ),
        None => "`remuda --help` lists the commands; `remuda run SCRIPT` runs a script".to_owned(),
    };
    let refused = typed.refuse(&[typed.word_span(0)], |spans| {
        let message = format!("there is no command `{}`", show_typed(&word));
        Diagnostic::error(codes::UNKNOWN_COMMAND, spans[0], message).label("unknown").help(help)
    });
    refused.into()
}

/// Returns what serves the purpose of a command that other tools have.
fn instead_of_command(word: &str) -> Option<String> {
    let help = match word {
        "version" => "type `remuda --version`".to_owned(),
        "ds_ssh" | "pdsh" | "clush" => "type `remuda ssh -H HOSTS -- COMMAND`".to_owned(),
        "ds_report" => "type `remuda doctor`".to_owned(),
        "ds_bench" => "type `remuda bench all-reduce`".to_owned(),
        "salloc" => "type `salloc … remuda run SCRIPT`: the allocation starts remuda".to_owned(),
        "flux" | "bsub" | "blaunch" | "qsub" | "pbsdsh" => {
            "write `remuda run SCRIPT` in the script of the job: it starts workers on all of its hosts".to_owned()
        }
        "nohup" | "env" | "nice" | "setsid" | "stdbuf" | "taskset" | "time" | "timeout" => {
            format!("type `{word} … remuda run SCRIPT`: `{word}` starts remuda")
        }
        "numactl" => {
            "type `remuda run --bind_cores_to_rank SCRIPT`: each worker has cores of its own, and memory near them".to_owned()
        }
        "docker" | "podman" => format!("type `{word} run … remuda run SCRIPT`: the container starts remuda"),
        "apptainer" | "singularity" => {
            format!("type `{word} exec … remuda run SCRIPT`: the container starts remuda")
        }
        "kubectl" | "kubernetes" => {
            "type `remuda k8s manifest --image IMAGE SCRIPT | kubectl apply -f -`: every pod runs `remuda pod`".to_owned()
        }
        "log" | "logs" | "history" => format!(
            "the newest run is in `{}/latest`: the output of every rank, and `run.json`; `--run_dir DIR` \
             selects another place",
            runs_place()
        ),
        "status" | "top" | "ps" => {
            "press Ctrl-\\ in the terminal of the job, or send SIGQUIT to `remuda`: it prints every rank"
                .to_owned()
        }
        "kill" | "stop" | "cancel" => {
            "press Ctrl-C in the terminal of the job, or send SIGTERM to `remuda`: it stops all workers"
                .to_owned()
        }
        _ => return None,
    };
    Some(help)
}

/// Where run directories are, as the user would type it.
fn runs_place() -> &'static str {
    let is_set = |name: &str| env_vars::get(name).is_some();
    if is_set(env_vars::REMUDA_RUN_DIR) {
        "$REMUDA_RUN_DIR"
    } else if is_set(env_vars::XDG_STATE_HOME) {
        "$XDG_STATE_HOME/remuda/runs"
    } else {
        "~/.local/state/remuda/runs"
    }
}

/// Whether these words start a launcher behind `python`.
fn is_module_of_launcher(words: &[OsString]) -> bool {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    launcher_of_python(&words).is_some()
}

/// Returns what to type instead of the line of another launcher.
fn line_for_launcher(launcher: &str, rest: &[OsString]) -> String {
    let rest: Vec<String> = rest.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    match instead_of(launcher, &rest) {
        Instead::Command { name, words } => format!("type `remuda {name} {}`", quoted_line(words)),
        Instead::Run { words, remark: None } => format!("type `remuda run {}`", quoted_line(words)),
        Instead::Run { words, remark: Some(remark) } => {
            format!("type `remuda run {}`; {remark}", quoted_line(words))
        }
        Instead::Whole(words) => format!("type `{}`", quoted_line(words)),
    }
}

/// Whether `run` was left out: `remuda -n 2 train.py`, `remuda train.py`.
fn is_line_of_run(first: &str, words: &[OsString]) -> bool {
    let is_script = || {
        Path::new(first).extension().is_some_and(|found| found == "py")
            || Path::new(first).is_file()
    };
    let parses = || matches!(run::parse("remuda run", words.to_vec()), Ok(run::ParsedRun::Run(..)));
    (first.starts_with('-') || is_script()) && parses()
}
