//! Options of supervision and output.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::cli::args::supervision::{parse_heartbeat_interval, parse_restarts, parse_warning};
use crate::cli::args::values::{
    LogLevel, StdinArg, parse_duration, parse_lease, parse_stdin, parse_timeout,
};
use crate::job::Warning;
use crate::report::text::MessageLevel;

/// Options of supervision and output.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that was typed or not")]
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Job", rename_all = "snake_case")]
pub struct WatchArgs {
    /// Stop the job after this time: `90` (seconds), `500ms`, `2m`, `1h`
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    pub timeout: Option<Duration>,
    /// Time between SIGTERM and SIGKILL when workers are stopped
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10s")]
    pub grace: Duration,
    /// Restart all workers after a failure, at most N times
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 0, value_parser = parse_restarts)]
    pub max_restarts: u32,
    /// Signal to send before SIGTERM, and how long before it: `USR1:20` [default: 10s before]
    #[arg(long, value_name = "SIGNAL[:TIME]", value_parser = parse_warning)]
    pub pre_term_signal: Option<Warning>,
    /// Time without a heartbeat after which a node is lost
    #[arg(long, value_name = "TIME", value_parser = parse_lease, default_value = "30s")]
    pub lease: Duration,
    /// Interval of heartbeats [default: a tenth of --lease, at most 3s]
    #[arg(long, alias = "beat", value_name = "TIME", value_parser = parse_heartbeat_interval)]
    pub heartbeat: Option<Duration>,
    /// Set an environment variable in every worker; `NAME` alone passes the launcher's value (repeatable)
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<OsString>,
    /// Rank that reads standard input, `all` or `none` [default: rank 0 if the job has one
    /// worker, else none]
    #[arg(long, value_name = "RANK", value_parser = parse_stdin)]
    pub stdin: Option<StdinArg>,
    /// Prefix of the lines of workers, with `{host}`, `{rank}`, `{local_rank}`, `{stream}`; may be empty
    #[arg(long, value_name = "TEXT")]
    pub prefix: Option<String>,
    /// Write the whole output of the workers below this directory, in one directory for each job,
    /// without a size limit; remuda removes none of them
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
    /// Directory for run directories: the oldest are removed above 100 runs, 16 GiB or 90 days, those of
    /// `ssh` and `bench` above 50, 1 GiB or 30 days [default: $XDG_STATE_HOME/remuda/runs]
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Check every host first, as `remuda doctor --quick` does; an error prevents the start
    #[arg(long)]
    pub preflight: bool,
    /// Print the plan of the job and start nothing
    #[arg(long = "dry-run")]
    pub dry_run: bool,
    /// With --dry-run: print the plan as JSON
    #[arg(long)]
    pub json: bool,
    /// With --dry-run: show values that look like secrets
    #[arg(long)]
    pub show_env: bool,
    /// Print messages of the launcher from this level up
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "info")]
    pub log_level: LogLevel,
    /// Print only errors of the launcher; the output of workers is not affected
    #[arg(short, long)]
    pub quiet: bool,
}

impl WatchArgs {
    /// Returns the level of printed messages; `--quiet` takes precedence, as in DeepSpeed.
    pub fn level(&self) -> LogLevel {
        if self.quiet { LogLevel::Error } else { self.log_level }
    }

    /// Returns the severity of the messages about the progress of the job that are printed.
    pub fn message_level(&self) -> MessageLevel {
        match self.level() {
            LogLevel::Debug | LogLevel::Info => MessageLevel::Info,
            LogLevel::Warning => MessageLevel::Warning,
            LogLevel::Error | LogLevel::Critical => MessageLevel::Error,
        }
    }

    /// Whether messages about the progress of the job are printed.
    pub fn prints_progress(&self) -> bool {
        self.level() <= LogLevel::Info
    }

    /// Whether warnings are printed.
    pub fn prints_warnings(&self) -> bool {
        self.level() <= LogLevel::Warning
    }
}
