//! Checks of options: contradictions, missing options that another option needs, options without an
//! effect.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use crate::base::{Diagnostic, env_vars};
use crate::cli::args::values::{LauncherArg, StdinArg};
use crate::cli::args::{ClusterArgs, ProgramArgs, RunArgs, WatchArgs, first_word, pdsh};
use crate::cli::codes::machine::INVALID_FOR_WORKERS;
use crate::cli::line::{
    ArgvSpan, CommandLine, RefusedLine, cannot_combine, codes, needs_other, refuse_value,
};
use crate::pool::variable_name_problem;
use crate::report::text::show_duration;
use crate::report::{PLACEHOLDERS, unknown_placeholder};

/// Checks a whole line of `remuda run`.
pub(in crate::cli) fn run(args: &RunArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    cluster(&args.cluster, typed)?;
    program(&args.program, typed)?;
    watch(&args.watch, typed)?;
    if args.workers.autotuning.is_some() {
        let place = typed.name_or_end("autotuning");
        return Err(typed.refuse(&[place], |spans| {
            Diagnostic::error(codes::NOT_SUPPORTED, spans[0], "remuda does not support autotuning")
                .label("only in DeepSpeed")
                .help(
                    "tune with DeepSpeed, then run the script with the configuration that it found",
                )
        }));
    }
    let is_alone = args.cluster.transport.no_ssh && args.cluster.transport.key_file.is_none();
    if is_alone && 0 < args.watch.max_restarts {
        return Err(restarts_without_connection(typed));
    }
    Ok(())
}

/// Returns the error for `--max_restarts` on a node that is not connected to the others.
fn restarts_without_connection(typed: &CommandLine) -> RefusedLine {
    let places = ["max_restarts", "no_ssh"].map(|name| typed.name_or_end(name));
    typed.refuse(&places, |spans| {
        let message = "`--no_ssh` and `--max_restarts` cannot be combined";
        Diagnostic::error(codes::CANNOT_COMBINE, spans[0], message)
            .label(
                "without --key_file the nodes are not connected, so no node can restart the others",
            )
            .related(spans[1], "")
            .help("add `--key_file FILE` on every node, or leave `--max_restarts` out")
    })
}

/// Refuses a key on a line that starts all nodes: their agents get a key of the job.
pub(in crate::cli) fn key_file(args: &ClusterArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    if args.transport.key_file.is_some() && !args.transport.no_ssh {
        return Err(needs_other(typed, "key_file", "no_ssh"));
    }
    Ok(())
}

/// Checks the options about where a job runs.
pub(in crate::cli) fn cluster(args: &ClusterArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    let transport = &args.transport;
    for (name, given) in [
        ("job_id", transport.job_id.is_some()),
        ("join_timeout", transport.join_timeout.is_some()),
        ("local_addr", transport.local_addr.is_some()),
    ] {
        if given && transport.key_file.is_none() {
            return Err(needs_other(typed, name, "key_file"));
        }
    }
    match transport.launcher {
        // Its words are those of the process manager.
        Some(LauncherArg::Manager(_)) => Ok(()),
        Some(LauncherArg::Auto | LauncherArg::Local | LauncherArg::Ssh | LauncherArg::Pdsh)
        | None => launcher_args(args, typed),
    }
}

/// Checks the words for pdsh: those that remuda's own fan-out does not support are refused.
fn launcher_args(args: &ClusterArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    const NAME: &str = "launcher_args";
    let Some(words) = &args.transport.launcher_args else { return Ok(()) };
    pdsh::parse(words).map(|_| ()).map_err(|bad| {
        let place = typed.value_or_end(NAME);
        let value = typed.last(NAME).and_then(|given| given.value.as_ref());
        let text = value.map_or_else(String::new, |(text, _)| text.to_string_lossy().into_owned());
        refuse_value(typed, place, NAME, &text, &bad)
    })
}

/// Refuses the first of these options that the line has: they are for jobs only, and hidden.
pub(in crate::cli) fn only_for_jobs(
    typed: &CommandLine,
    names: &[&str],
    help: &str,
) -> Result<(), RefusedLine> {
    let Some(name) = names.iter().find(|name| typed.last(name).is_some()) else {
        return Ok(());
    };
    let place = typed.name_or_end(name);
    Err(typed.refuse(&[place], |spans| {
        let message = format!("`--{name}` does not apply to `{}`", typed.program);
        Diagnostic::error(codes::NOT_SUPPORTED, spans[0], message).label("for jobs only").help(help)
    }))
}

/// Checks the options for a program with workers that find each other through the launcher.
pub(in crate::cli) fn connected(
    args: &ClusterArgs,
    typed: &CommandLine,
) -> Result<(), RefusedLine> {
    if !args.transport.no_ssh || args.transport.key_file.is_some() {
        return Ok(());
    }
    let place = typed.name_or_end("no_ssh");
    Err(typed.refuse(&[place], |spans| {
        let message = "nodes that are started one by one are not connected";
        Diagnostic::error(codes::CANNOT_COMBINE, spans[0], message)
            .label("the workers could not connect to each other")
            .help("give every node a `--key_file`, or leave `--no_ssh` out: one command starts all nodes")
    }))
}

/// Checks the options about supervision.
pub(in crate::cli) fn watch(args: &WatchArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    for (needs, given) in [("json", args.json), ("show_env", args.show_env)] {
        if given && !args.dry_run {
            return Err(needs_other(typed, needs, "dry-run"));
        }
    }
    env(args, typed)?;
    heartbeat(args, typed)?;
    prefix(args, typed)
}

/// Checks every `--env`: the name, and for `--env NAME`, which copies a variable of the launcher's
/// environment, that the variable is set.
fn env(args: &WatchArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    args.env.iter().try_for_each(|text| one_env(text, typed))
}

fn one_env(text: &OsString, typed: &CommandLine) -> Result<(), RefusedLine> {
    let of_name = typed.options.iter().filter(|given| given.flag == "env");
    let place = of_name.filter_map(|given| given.value.as_ref()).find(|(value, _)| value == text);
    let place = place.map_or_else(|| typed.end_span(), |(_, place)| *place);
    let equals = text.as_bytes().iter().position(|byte| *byte == b'=');
    let name = text.display().to_string();
    let name = name.split('=').next().unwrap_or_default();
    if env_vars::RESERVED.contains(&name) {
        let end = place.end.min(place.start + name.len());
        return Err(typed.refuse(&[ArgvSpan { end, ..place }], |spans| {
            let message = format!("`{name}` is set by remuda itself");
            Diagnostic::error(INVALID_FOR_WORKERS, spans[0], message)
                .label("cannot be set with `--env`")
                .help(match name {
                    env_vars::MASTER_ADDR => "leave it out, and pass `--master_addr`",
                    env_vars::MASTER_PORT => "leave it out, and pass `--master_port`",
                    _ => "leave it out",
                })
        }));
    }
    if let Some(problem) = variable_name_problem(name) {
        let end = place.start + equals.unwrap_or(text.len()).max(1);
        let place = ArgvSpan { end: end.min(place.end), ..place };
        return Err(typed.refuse(&[place], |spans| Diagnostic { span: Some(spans[0]), ..problem }));
    }
    if equals.is_some() || env_vars::get(name).is_some() {
        return Ok(());
    }
    Err(typed.refuse(&[place], |spans| {
        let message = format!("`--env {name}`: the variable is not set here");
        Diagnostic::error(codes::BAD_VALUE, spans[0], message)
            .label("no value to pass on")
            .help(format!("give it a value: `--env {name}=VALUE`"))
    }))
}

/// Checks the interval of heartbeats: two heartbeats may be lost, and the third must still be
/// received within the lease.
fn heartbeat(args: &WatchArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    let lease = args.lease;
    let Some(interval) = args.heartbeat.filter(|interval| lease <= *interval * 3) else {
        return Ok(());
    };
    let place = typed.value_or_end("heartbeat");
    Err(typed.refuse(&[place], |spans| {
        let message = format!("a heartbeat interval of {} is too long", show_duration(interval));
        Diagnostic::error(codes::BAD_VALUE, spans[0], message)
            .label(format!(
                "expected less than a third of `--lease`, which is {}",
                show_duration(lease)
            ))
            .help("leave `--heartbeat` out, or give a longer `--lease`")
    }))
}

/// Checks that the rank that reads standard input is less than the number of workers.
pub(in crate::cli) fn stdin(
    args: &WatchArgs,
    workers: usize,
    typed: &CommandLine,
) -> Result<(), RefusedLine> {
    match args.stdin {
        Some(StdinArg::Rank(rank)) if workers <= rank as usize => {
            let place = typed.value_or_end("stdin");
            let label = match workers {
                1 => "the only rank is 0".to_owned(),
                _ => format!("ranks are 0 to {}", workers - 1),
            };
            Err(typed.refuse(&[place], |spans| {
                let message = format!("`--stdin` cannot be `{rank}`");
                Diagnostic::error(codes::BAD_VALUE, spans[0], message).label(label)
            }))
        }
        _ => Ok(()),
    }
}

/// Checks the names in `--prefix`: `{rnak}` would be printed unchanged before every line.
fn prefix(args: &WatchArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    let unknown = args.prefix.as_deref().and_then(unknown_placeholder);
    let (Some((at, name)), Some(place)) = (unknown, typed.value_span("prefix")) else {
        return Ok(());
    };
    let start = place.start + at;
    Err(typed.refuse(&[ArgvSpan { start, end: start + name.len(), ..place }], |spans| {
        let known: Vec<String> = PLACEHOLDERS.iter().map(|name| format!("`{name}`")).collect();
        let message = format!("`--prefix` has no placeholder `{name}`");
        Diagnostic::error(codes::BAD_VALUE, spans[0], message)
            .label("unknown")
            .help(format!("the placeholders are {}", known.join(", ")))
    }))
}

/// Checks that the script of a line of another launcher is one word.
pub(in crate::cli) fn script(words: &[OsString], typed: &CommandLine) -> Result<(), RefusedLine> {
    first_word::one_word(words, typed)
}

/// Checks that the script of a line of another launcher, which runs it with Python, is no program, launcher or
/// command of remuda; `without_python` are its options for programs.
pub(in crate::cli) fn python_script(
    words: &[OsString],
    typed: &CommandLine,
    without_python: &[&str],
) -> Result<(), RefusedLine> {
    first_word::script_of_face(words, typed, without_python)
}

/// Checks the options about what every worker runs.
pub(in crate::cli) fn program(args: &ProgramArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    if args.module && args.no_python {
        return Err(cannot_combine(typed, "module", "no_python", "a module needs Python"));
    }
    if args.module || args.no_python {
        return Ok(());
    }
    first_word::check(args, typed)
}
