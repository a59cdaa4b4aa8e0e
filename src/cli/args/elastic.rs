//! Options about a number of hosts that may vary.

use std::time::Duration;

use clap::Args;

use crate::base::env_vars;
use crate::cli::args::WatchArgs;
use crate::cli::args::pod::{flag_or_variable, value_or_variable};
use crate::cli::args::values::parse_duration;
use crate::cli::error::CliError;
use crate::cli::line::{BadValue, CommandLine, parse_whole};

/// Largest number of hosts.
const HOSTS_MAX: i64 = 1 << 16;
/// Restarts of a job that continues after the loss of a host, unless the line gives a number.
const ELASTIC_RESTARTS: u32 = 10;

/// Hosts that a job can do without.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Hosts", rename_all = "snake_case")]
pub struct ElasticArgs {
    /// Continue without lost hosts while at least N hosts are left; a lost host joins again when it can be
    /// reached. Implies `--max_restarts 10`
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_hosts)]
    pub min_nodes: Option<u32>,
    /// Keep N of the hosts without workers, to replace lost hosts. Implies `--max_restarts 10`
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_hosts)]
    pub spares: Option<u32>,
    /// With --min_nodes or --spares: leave out a host that failed twice, if enough others are left
    #[arg(long)]
    pub exclude_failing: bool,
    /// With --min_nodes: how long a start waits for more hosts when enough are there [default: 30s for hosts that
    /// join by themselves, else 800ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub last_call: Option<Duration>,
}

impl ElasticArgs {
    /// Returns the option that makes the number of hosts vary, if one was given.
    pub(in crate::cli) fn given(&self) -> Option<&'static str> {
        match (self.min_nodes, self.spares) {
            (Some(_), _) => Some("min_nodes"),
            (None, Some(_)) => Some("spares"),
            (None, None) => None,
        }
    }

    /// Returns the option that has no effect unless the number of hosts varies, if one was given.
    pub(in crate::cli) fn dependent(&self) -> Option<&'static str> {
        match (self.exclude_failing, self.last_call) {
            (true, _) => Some("exclude_failing"),
            (false, Some(_)) => Some("last_call"),
            (false, None) => None,
        }
    }

    /// Returns the options, with variables of the environment for those that were not typed.
    pub(in crate::cli) fn with_environment(self) -> Result<Self, CliError> {
        let Self { min_nodes, spares, exclude_failing, last_call } = self;
        Ok(Self {
            min_nodes: value_or_variable(min_nodes, env_vars::REMUDA_MIN_NODES, parse_hosts)?,
            spares: value_or_variable(spares, env_vars::REMUDA_SPARES, parse_hosts)?,
            exclude_failing: flag_or_variable(exclude_failing, env_vars::REMUDA_EXCLUDE_FAILING)?,
            last_call: value_or_variable(last_call, env_vars::REMUDA_LAST_CALL, parse_duration)?,
        })
    }

    /// Sets the number of restarts of a job that continues without lost hosts, unless the line has one.
    pub(in crate::cli) fn set_restarts(&self, watch: &mut WatchArgs, typed: &CommandLine) {
        if self.given().is_some() && typed.last("max_restarts").is_none() {
            watch.max_restarts = ELASTIC_RESTARTS;
        }
    }
}

fn parse_hosts(text: &str) -> Result<u32, BadValue> {
    parse_whole(text, 1..=HOSTS_MAX).map(|hosts| hosts as u32)
}
