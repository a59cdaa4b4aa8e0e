//! Checks of options: contradictions, missing options that another option needs, options without an
//! effect.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use super::args::{ClusterArgs, ProgramArgs, WatchArgs};
use super::line::{ArgvSpan, CommandLine, RefusedLine, codes, refuse_value};
use super::machine_codes::INVALID_FOR_WORKERS;
use super::run::RunArgs;
use super::values::{LauncherArg, StdinArg};
use super::{first_word, launcher_args};
use crate::base::{Diagnostic, HostName, env_vars};
use crate::pool::variable_name_problem;
use crate::report::summary::show_duration;
use crate::report::{PLACEHOLDERS, unknown_placeholder};

/// Checks a whole line of `remuda run`.
pub(super) fn run(args: &RunArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    cluster(&args.cluster, typed)?;
    program(&args.program, typed)?;
    watch(&args.watch, typed)?;
    if args.workers.autotuning.is_some() {
        let place = typed.name_span("autotuning").unwrap_or_else(|| typed.end_span());
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
        let why = "the other nodes would not be restarted";
        return Err(cannot_combine(typed, "no_ssh", "max_restarts", why));
    }
    Ok(())
}

/// Checks the options about where a job runs.
pub(super) fn cluster(args: &ClusterArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    let reach = &args.transport;
    if reach.key_file.is_some() && !reach.no_ssh {
        return Err(needs_other(typed, "key_file", "no_ssh"));
    }
    for (name, given) in [
        ("job_id", reach.job_id.is_some()),
        ("join_timeout", reach.join_timeout.is_some()),
        ("local_addr", reach.local_addr.is_some()),
    ] {
        if given && reach.key_file.is_none() {
            return Err(needs_other(typed, name, "key_file"));
        }
    }
    match args.transport.launcher {
        Some(LauncherArg::Unsupported(name)) => Err(typed.refuse(
            &[typed.value_span("launcher").unwrap_or_else(|| typed.end_span())],
            |spans| {
                let message = format!("`--launcher {name}` is not supported yet");
                Diagnostic::error(codes::NOT_SUPPORTED, spans[0], message)
                    .label("not supported yet")
                    .help(
                        "`--launcher pdsh` connects to every host over ssh and does not need pdsh",
                    )
            },
        )),
        Some(LauncherArg::Local | LauncherArg::Ssh | LauncherArg::Pdsh) | None => {
            launcher_args(args, typed)
        }
    }
}

/// Checks the words for pdsh: those that remuda's own fan-out does not support are refused.
fn launcher_args(args: &ClusterArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    const NAME: &str = "launcher_args";
    let Some(words) = &args.transport.launcher_args else { return Ok(()) };
    launcher_args::parse(words).map(|_| ()).map_err(|bad| {
        let place = typed.value_span(NAME).unwrap_or_else(|| typed.end_span());
        let value = typed.last(NAME).and_then(|given| given.value.as_ref());
        let text = value.map_or_else(String::new, |(text, _)| text.to_string_lossy().into_owned());
        refuse_value(typed, place, NAME, &text, &bad)
    })
}

/// Options of jobs that have no effect on a command on every host: they are hidden there, and
/// refused.
pub(super) const NOT_FOR_SSH: [&str; 15] = [
    "num_gpus",
    "oversubscribe",
    "share",
    "master_addr",
    "master_port",
    "node_rank",
    "no_ssh",
    "key_file",
    "job_id",
    "join_timeout",
    "local_addr",
    "launcher_args",
    "max_restarts",
    "pre_term_signal",
    "preflight",
];

/// Checks a line of `remuda ssh`.
pub(super) fn ssh(typed: &CommandLine) -> Result<(), RefusedLine> {
    let Some(name) = NOT_FOR_SSH.into_iter().find(|name| typed.last(name).is_some()) else {
        return Ok(());
    };
    let place = typed.name_span(name).unwrap_or_else(|| typed.end_span());
    Err(typed.refuse(&[place], |spans| {
        let message = format!("`--{name}` does not apply to `remuda ssh`");
        Diagnostic::error(codes::NOT_SUPPORTED, spans[0], message)
            .label("for jobs only")
            .help("leave it out: the command runs once on every host")
    }))
}

/// Options of jobs that have no effect on a check of hosts.
pub(super) const NOT_FOR_DOCTOR: [&str; 8] = [
    "no_local_rank",
    "share",
    "no_ssh",
    "node_rank",
    "key_file",
    "job_id",
    "join_timeout",
    "local_addr",
];

/// Checks a line of `remuda doctor`.
pub(super) fn doctor(typed: &CommandLine) -> Result<(), RefusedLine> {
    let Some(name) = NOT_FOR_DOCTOR.into_iter().find(|name| typed.last(name).is_some()) else {
        return Ok(());
    };
    let place = typed.name_span(name).unwrap_or_else(|| typed.end_span());
    Err(typed.refuse(&[place], |spans| {
        let message = format!("`--{name}` does not apply to `remuda doctor`");
        Diagnostic::error(codes::NOT_SUPPORTED, spans[0], message)
            .label("for jobs only")
            .help("leave it out: no job is started")
    }))
}

/// Checks the options for a program with workers that find each other through the launcher.
pub(super) fn connected(args: &ClusterArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    if !args.transport.no_ssh || args.transport.key_file.is_some() {
        return Ok(());
    }
    let place = typed.name_span("no_ssh").unwrap_or_else(|| typed.end_span());
    Err(typed.refuse(&[place], |spans| {
        let message = "nodes that are started one by one are not connected";
        Diagnostic::error(codes::CANNOT_COMBINE, spans[0], message)
            .label("the workers could not connect to each other")
            .help("give every node a `--key_file`, or leave `--no_ssh` out: one command starts all nodes")
    }))
}

/// Checks the options about supervision.
pub(super) fn watch(args: &WatchArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
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
    let Some(beat) = args.heartbeat.filter(|beat| lease <= *beat * 3) else {
        return Ok(());
    };
    let place = typed.value_span("heartbeat").unwrap_or_else(|| typed.end_span());
    Err(typed.refuse(&[place], |spans| {
        let message = format!("a heartbeat interval of {} is too long", show_duration(beat));
        Diagnostic::error(codes::BAD_VALUE, spans[0], message)
            .label(format!(
                "expected less than a third of `--lease`, which is {}",
                show_duration(lease)
            ))
            .help("leave `--heartbeat` out, or give a longer `--lease`")
    }))
}

/// Checks that the rank that reads standard input is less than the number of workers.
pub(super) fn stdin(
    args: &WatchArgs,
    workers: usize,
    typed: &CommandLine,
) -> Result<(), RefusedLine> {
    match args.stdin {
        Some(StdinArg::Rank(rank)) if workers <= rank as usize => {
            let place = typed.value_span("stdin").unwrap_or_else(|| typed.end_span());
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

/// Checks the options about what every worker runs.
pub(super) fn program(args: &ProgramArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    if args.module && args.no_python {
        return Err(cannot_combine(typed, "module", "no_python", "a module needs Python"));
    }
    if args.module || args.no_python {
        return Ok(());
    }
    first_word::check(&args.script_and_args, typed)
}

/// Converts `node01=8` → `node01:8`.
pub(super) fn as_host_list(word: &str) -> Option<String> {
    let (host, slots) = word.split_once('=')?;
    let is_number = !slots.is_empty() && slots.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && HostName::parse(host).is_ok()).then(|| format!("{host}:{slots}"))
}

/// Returns the error for an option that needs another one.
pub(super) fn needs_other(typed: &CommandLine, flag: &str, other: &str) -> RefusedLine {
    let place = typed.name_span(flag).unwrap_or_else(|| typed.end_span());
    typed.refuse(&[place], |spans| {
        let message = format!("`--{flag}` needs `--{other}`");
        Diagnostic::error(codes::NEEDS_OTHER, spans[0], message)
            .label("has no effect alone")
            .help(format!("add `--{other}`, or leave `--{flag}` out"))
    })
}

/// Returns the error for two options that contradict each other.
pub(super) fn cannot_combine(
    typed: &CommandLine,
    left: &str,
    right: &str,
    why: &str,
) -> RefusedLine {
    let place = |flag| typed.name_span(flag).unwrap_or_else(|| typed.end_span());
    typed.refuse(&[place(right), place(left)], |spans| {
        let message = format!("`--{left}` and `--{right}` cannot be combined");
        Diagnostic::error(codes::CANNOT_COMBINE, spans[0], message)
            .label(why)
            .related(spans[1], "")
            .help("keep one of the two")
    })
}
