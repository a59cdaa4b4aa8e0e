//! What was typed. Filling these structs validates and resolves nothing: the world is consulted in
//! `lower`, once.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// Milliseconds of it fit into 32 bits.
const DURATION_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// See [`parse_lease`].
const LEASE_MIN: Duration = Duration::from_millis(500);

/// Where a job runs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Where", rename_all = "snake_case")]
pub(super) struct PlaceArgs {
    /// Hosts and their slots: one `name slots=N` a line [default: /job/hostfile if there is one,
    /// else this machine]
    #[arg(short = 'H', long, value_name = "FILE")]
    pub(super) hostfile: Option<PathBuf>,
    /// Hosts and slots to use: `HOST[:SLOT,…][@HOST…]`
    #[arg(short, long, value_name = "HOSTS")]
    pub(super) include: Option<String>,
    /// Hosts and slots to leave out: `HOST[:SLOT,…][@HOST…]`
    #[arg(short, long, value_name = "HOSTS")]
    pub(super) exclude: Option<String>,
    /// Use the first N hosts
    #[arg(long, alias = "num-nodes", value_name = "N", allow_negative_numbers = true)]
    pub(super) num_nodes: Option<String>,
    /// Use the first N slots of each host; without a hostfile, start N workers here
    #[arg(
        short = 'n',
        long,
        alias = "num-gpus",
        aliases = ["num_accelerators", "num-accelerators"],
        value_name = "N",
        allow_negative_numbers = true
    )]
    pub(super) num_gpus: Option<String>,
    /// What a slot is [default: auto, cuda where there is a GPU]
    #[arg(long, value_name = "KIND", value_enum)]
    pub(super) accelerator: Option<AcceleratorArg>,
    /// More workers than there are GPUs
    #[arg(long)]
    pub(super) oversubscribe: bool,
    /// How nodes are reached; `local` starts every host of the hostfile on this machine
    #[arg(long, value_name = "HOW", value_enum, ignore_case = true)]
    pub(super) launcher: Option<LauncherArg>,
    /// Where rank 0 of torch listens
    #[arg(long, alias = "master-addr", value_name = "ADDR")]
    pub(super) master_addr: Option<String>,
    /// Its port [default: 29500, or one that is free]
    #[arg(long, alias = "master-port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) master_port: Option<u16>,
    /// Use a hostfile that others can write
    #[arg(long, alias = "allow-insecure-files")]
    pub(super) allow_insecure_files: bool,
    #[command(flatten)]
    pub(super) ssh: super::ssh_args::SshArgs,
}

/// How a job is watched over and shown.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that was typed or not")]
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "How", rename_all = "snake_case")]
pub(super) struct WatchArgs {
    /// Time that the job may take: `90`, `500ms`, `2m`, `1h`
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(super) timeout: Option<Duration>,
    /// Time between asking workers to stop and killing them
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10s")]
    pub(super) grace: Duration,
    /// Silence after which a node counts as lost
    #[arg(long, value_name = "TIME", value_parser = parse_lease, default_value = "30s")]
    pub(super) lease: Duration,
    /// Set a variable in every worker; without a value, pass ours on (repeatable)
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(super) env: Vec<OsString>,
    /// Who reads standard input: a rank, `all` or `none` [default: a single worker does]
    #[arg(long, value_name = "RANK", value_parser = parse_stdin)]
    pub(super) stdin: Option<StdinArg>,
    /// What workers' lines begin with: `{host}` `{rank}` `{local_rank}` `{stream}`, or nothing
    #[arg(long, value_name = "TEXT")]
    pub(super) prefix: Option<String>,
    /// Keep everything that workers write in this directory, without a limit
    #[arg(long, alias = "log-dir", value_name = "DIR")]
    pub(super) log_dir: Option<PathBuf>,
    /// Where run directories are made [default: $XDG_STATE_HOME/remuda/runs]
    #[arg(long, alias = "run-dir", value_name = "DIR")]
    pub(super) run_dir: Option<PathBuf>,
    /// Print what would be started, and start nothing
    #[arg(long = "dry-run", alias = "dry_run")]
    pub(super) dry_run: bool,
    /// With --dry-run: as JSON
    #[arg(long, requires = "dry_run")]
    pub(super) json: bool,
    /// With --dry-run: show also values that look like secrets
    #[arg(long, alias = "show-env")]
    pub(super) show_env: bool,
    /// Say only what went wrong
    #[arg(short, long)]
    pub(super) quiet: bool,
}

/// What every worker runs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "What", rename_all = "snake_case")]
pub(super) struct ProgramArgs {
    /// The script is a module: `python -m`
    #[arg(long)]
    pub(super) module: bool,
    /// Run the program itself, without Python
    #[arg(long, alias = "no-python", conflicts_with = "module")]
    pub(super) no_python: bool,
    /// Do not pass `--local_rank=N` to the script
    #[arg(long, alias = "no-local-rank")]
    pub(super) no_local_rank: bool,
    /// The interpreter [default: $PYTHON_EXEC, the active environment's, the first in PATH]
    #[arg(long, value_name = "FILE")]
    pub(super) python: Option<OsString>,
    /// The script, then its own arguments
    #[arg(required = true, num_args = 1.., trailing_var_arg = true, value_name = "SCRIPT")]
    pub(super) script_and_args: Vec<OsString>,
}

/// See [`PlaceArgs::accelerator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum AcceleratorArg {
    /// GPUs where there are any.
    Auto,
    /// Processor time.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
}

/// See [`PlaceArgs::launcher`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LauncherArg {
    /// Every host is this machine.
    Local,
    /// Over ssh.
    #[value(alias = "pdsh")]
    Ssh,
}

/// See [`WatchArgs::stdin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StdinArg {
    /// One worker.
    Rank(u32),
    /// Every worker.
    All,
    /// Nobody.
    None,
}

fn parse_stdin(text: &str) -> Result<StdinArg, String> {
    match text {
        "all" => Ok(StdinArg::All),
        "none" => Ok(StdinArg::None),
        _ => {
            text.parse().map(StdinArg::Rank).map_err(|_| "expected a rank, `all` or `none`".into())
        }
    }
}

/// `10`, `10s`, `500ms`, `2m`, `1h`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("`{unit}` is not a unit of time; write ms, s, m or h")),
    };
    let number: f64 = number.parse().map_err(|_| "expected a number, such as 10, 500ms or 2m")?;
    match Duration::try_from_secs_f64(number * seconds) {
        Ok(time) if time <= DURATION_MAX => Ok(time),
        _ => Err("this time is too long".to_owned()),
    }
}

/// A lease that is shorter than a hiccup of the machine would end healthy jobs.
fn parse_lease(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        lease if lease < LEASE_MIN => Err("a lease has at least 500ms".to_owned()),
        lease => Ok(lease),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Option<u64>) {
        let found = parse_duration(text).ok().map(|time| time.as_millis() as u64);
        assert_eq!(found, expect, "for `{text}`");
    }

    #[test]
    fn durations() {
        check("10", Some(10_000));
        check("10s", Some(10_000));
        check("0.5", Some(500));
        check("500ms", Some(500));
        check("2m", Some(120_000));
        check("1h", Some(3_600_000));
        check("", None);
        check("ten", None);
        check("5 days", None);
        check("-1", None);
        check("1e400", None);
        check("30000h", None);
    }
}
