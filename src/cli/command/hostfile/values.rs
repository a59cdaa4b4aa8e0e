//! Options that several commands share.

use std::path::Path;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::cli::resolve::hostfile::{LoadError, read_as};
use crate::cli::resolve::trust::Trust;
use crate::pool::dialect::HostfileFormat;
use crate::pool::{Dialect, ReadOptions, Reading, SelectorArgs, SlotCount};

/// Dialect, default slots and accepted owners of files.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct ReadArgs {
    /// Dialect of the file [default: detected]
    #[arg(long, value_name = "DIALECT", value_enum)]
    from: Option<DialectArg>,
    /// Slots of each host for which the file gives no number
    #[arg(long, value_name = "N", value_parser = parse_slots)]
    slots: Option<SlotCount>,
    /// Accept files that every user can write
    #[arg(long = "allow_insecure_files", alias = "allow-insecure-files")]
    allow_insecure_files: bool,
}

impl ReadArgs {
    /// Returns which files are accepted.
    pub(super) fn trust(&self) -> Trust {
        Trust::of(self.allow_insecure_files)
    }

    /// Returns the options for the parser.
    pub(super) fn options(&self) -> ReadOptions {
        ReadOptions {
            dialect: self.from.map(|from| from.0),
            slots: self.slots,
            ..ReadOptions::default()
        }
    }

    /// Reads a file, or standard input for `-`; the result may contain errors in the text.
    pub(super) fn read(&self, path: &Path) -> Result<Reading, LoadError> {
        read_as(path, self.trust(), self.options())
    }
}

/// Selection of hosts and slots, as for a launch.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(rename_all = "snake_case")]
pub(super) struct SelectArgs {
    /// Hosts and slots to use: `HOST[:SLOT,…][@HOST…]`
    #[arg(short, long, value_name = "HOSTS")]
    include: Option<String>,
    /// Hosts and slots not to use: `HOST[:SLOT,…][@HOST…]`
    #[arg(short, long, value_name = "HOSTS")]
    exclude: Option<String>,
    /// Use the first N hosts
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    num_nodes: Option<String>,
    /// Use the first N slots of each host
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true)]
    num_gpus: Option<String>,
}

impl SelectArgs {
    /// Returns the selection, or `None` without such options.
    pub(super) fn selector(&self) -> Option<SelectorArgs> {
        let all = [&self.include, &self.exclude, &self.num_nodes, &self.num_gpus];
        all.iter().any(|text| text.is_some()).then(|| SelectorArgs {
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            num_nodes: self.num_nodes.clone(),
            num_gpus: self.num_gpus.clone(),
        })
    }
}

/// Dialect of a hostfile (`--from`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DialectArg(Dialect);

impl ValueEnum for DialectArg {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [DialectArg; Dialect::ALL.len()] = {
            let mut all = [DialectArg(Dialect::DeepSpeed); Dialect::ALL.len()];
            let mut at = 0;
            while at < all.len() {
                all[at] = DialectArg(Dialect::ALL[at]);
                at += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()).aliases(self.0.aliases().iter().copied()))
    }
}

/// Target format of a conversion (`--to`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToArg {
    /// Hostfile of another tool.
    Target(HostfileFormat),
    /// JSON document of remuda.
    Json,
}

impl ValueEnum for ToArg {
    fn value_variants<'a>() -> &'a [Self] {
        const OTHERS: usize = 2;
        const ALL: [ToArg; Dialect::ALL.len() + OTHERS] = {
            let mut all = [ToArg::Json; Dialect::ALL.len() + OTHERS];
            let mut at = 0;
            while at < Dialect::ALL.len() {
                all[at] = ToArg::Target(HostfileFormat::Dialect(Dialect::ALL[at]));
                at += 1;
            }
            all[at] = ToArg::Target(HostfileFormat::Nodeset);
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Target(HostfileFormat::Dialect(Dialect::Ranges)) => PossibleValue::new("ranges"),
            Self::Target(HostfileFormat::Dialect(dialect)) => {
                PossibleValue::new(dialect.name()).aliases(dialect.aliases().iter().copied())
            }
            Self::Target(HostfileFormat::Nodeset) => {
                PossibleValue::new("nodeset").aliases(["pdsh", "clustershell"])
            }
            Self::Json => PossibleValue::new("json"),
        })
    }
}

fn parse_slots(text: &str) -> Result<SlotCount, String> {
    let limit = crate::pool::SLOTS_MAX;
    let count = text.parse().ok().and_then(SlotCount::new);
    count.ok_or_else(|| format!("expected a whole number from 1 to {limit}"))
}
