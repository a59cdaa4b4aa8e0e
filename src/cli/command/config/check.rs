//! `remuda config check`.

use std::path::{Path, PathBuf};

use super::file::read_bytes;
use crate::base::diagnostic::Severity;
use crate::base::shell::quoted;
use crate::base::{Diagnostic, Findings, Source, Status};
use crate::cli::args::values::parse_positive_int;
use crate::cli::command::entry::CommandEntry;
use crate::cli::command::output::{CommandOutput, FindingsFormat};
use crate::cli::resolve::hostfile::{self, LoadError};
use crate::cli::resolve::trust::Trust;
use crate::cli::settings::{
    KnownOptions, check_settings, check_trust, is_settings_file, show_settings,
};
use crate::config::codes::{CONFIG_UNREADABLE, NO_EFFECT, SETTINGS_UNREADABLE};
use crate::config::{ConfigInputs, ConfigReading, WorldSize, read_config};
use crate::pool::{ReadOptions, SLOTS_MAX, SlotCount};
use crate::report::config::show_config;
use crate::report::diagnostic::{Paint, show_findings, show_problems};
use crate::report::escape_control;
use crate::report::findings::{CheckKind, CheckedFile, show_config_json, show_github, show_sarif};
use crate::report::in_locale;

/// Arguments of `remuda config check`.
#[derive(Clone, Debug, clap::Args)]
#[command(rename_all = "snake_case")]
pub(super) struct ConfigCheckArgs {
    /// Files to check: `ds_config.json`, the YAML of `accelerate config`, or `remuda.toml`; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Number of ranks [default: that of the hosts, else `num_processes` of the file, else any that fits]
    #[arg(long, value_name = "N", value_parser = parse_positive_int)]
    world_size: Option<u64>,
    /// Hosts whose slots are the ranks: a hostfile, or a list such as `n1:8,n2:8`
    #[arg(short = 'H', long, value_name = "FILE", conflicts_with = "world_size")]
    hostfile: Option<PathBuf>,
    /// Slots of each host for which the hostfile gives no number
    #[arg(long, value_name = "N", value_parser = parse_slots, requires = "hostfile")]
    slots: Option<SlotCount>,
    /// Accept hostfiles that every user can write
    #[arg(long = "allow_insecure_files", alias = "allow-insecure-files")]
    allow_insecure_files: bool,
    /// For `auto`: samples in a micro-batch of a rank
    #[arg(long, value_name = "N", value_parser = parse_positive_int)]
    batch_size: Option<u64>,
    /// For `auto`: micro-batches of a rank in a step
    #[arg(long, value_name = "N", value_parser = parse_positive_int)]
    accumulate: Option<u64>,
    /// For `auto`: hidden size of the model, from which the sizes of buckets follow
    #[arg(long, value_name = "N", value_parser = parse_positive_int)]
    hidden_size: Option<u64>,
    /// For `auto`: steps of the whole run
    #[arg(long, value_name = "N", value_parser = parse_positive_int)]
    steps: Option<u64>,
    /// Format of the findings
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "human")]
    format: FindingsFormat,
    /// The same as `--format json`
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

pub(super) fn run(args: &ConfigCheckArgs, entries: &[CommandEntry], paint: Paint) -> CommandOutput {
    let mut out = CommandOutput::new();
    let inputs = match inputs(args) {
        Ok(inputs) => inputs,
        Err(error) => {
            out.refuse(&error, paint);
            out.worsen(Status::Usage);
            return out;
        }
    };
    let mut readings = Vec::new();
    for file in &args.files {
        if is_settings_file(file) {
            readings.push(check_options(file, entries));
        } else {
            check(file, &inputs, &mut readings);
        }
    }
    for checked in &readings {
        out.worsen(checked.status());
    }
    let format = if args.json { FindingsFormat::Json } else { args.format };
    print_readings(&mut out, &readings, format, paint);
    out
}

/// A file after the checks.
enum CheckedConfig {
    Read(Box<ConfigReading>),
    /// `remuda.toml`, and the screen of its options.
    Options {
        findings: Findings,
        screen: String,
    },
    Unreadable(Findings),
}

impl CheckedConfig {
    fn status(&self) -> Status {
        match self {
            Self::Read(reading) => status_of(&reading.findings),
            Self::Options { findings, .. } => status_of(findings),
            Self::Unreadable(_) => Status::Usage,
        }
    }

    fn reading(&self) -> Option<&ConfigReading> {
        match self {
            Self::Read(reading) => Some(reading),
            Self::Options { .. } | Self::Unreadable(_) => None,
        }
    }

    /// All findings; keys without effect are notes.
    fn findings(&self) -> Findings {
        match self {
            Self::Options { findings, .. } | Self::Unreadable(findings) => findings.clone(),
            Self::Read(reading) => {
                let mut findings = reading.findings.clone();
                findings.diagnostics.extend(reading.ineffective.iter().map(|idle| {
                    let message = format!("`{}` has no effect: {}", idle.path, idle.reason);
                    Diagnostic::error(NO_EFFECT, idle.span, message).severity(Severity::Note)
                }));
                findings
            }
        }
    }
}

fn status_of(findings: &Findings) -> Status {
    let is_counted = |found: &Diagnostic| Severity::Note < found.severity;
    let is_dirty = findings.diagnostics.iter().any(is_counted);
    if is_dirty { Status::Findings } else { Status::Success }
}

/// Reads a `remuda.toml`, whose options are those of the commands.
fn check_options(path: &Path, entries: &[CommandEntry]) -> CheckedConfig {
    let bytes = match read_bytes(path) {
        Ok(bytes) => bytes,
        Err(findings) => return CheckedConfig::Unreadable(findings),
    };
    let source = match String::from_utf8(bytes) {
        Ok(text) => Source { name: path.display().to_string(), text },
        Err(_) => return CheckedConfig::Unreadable(not_text(path)),
    };
    let known = KnownOptions::of(entries);
    let mut file = check_settings(source, &known);
    file.findings.diagnostics.extend(check_trust(path));
    let screen = show_settings(&file, &known);
    CheckedConfig::Options { findings: file.findings, screen }
}

/// Reads a file, and the file of DeepSpeed that it names.
fn check(path: &Path, inputs: &ConfigInputs, readings: &mut Vec<CheckedConfig>) {
    let bytes = match read_bytes(path) {
        Ok(bytes) => bytes,
        Err(findings) => return readings.push(CheckedConfig::Unreadable(findings)),
    };
    let reading = read_config(&path.display().to_string(), &bytes, inputs);
    if reading.findings.has_errors() && is_hostfile(path) {
        return readings.push(CheckedConfig::Unreadable(not_a_config(path)));
    }
    let included = reading.included.clone().map(PathBuf::from);
    let ranks = reading.world_size;
    readings.push(CheckedConfig::Read(Box::new(reading)));
    let Some(included) = included.filter(|included| included != path) else { return };
    let world_size = match ranks {
        WorldSize::Given(ranks) => Some(ranks),
        WorldSize::Assumed(_) => None,
    };
    check(&included, &ConfigInputs { world_size, ..inputs.clone() }, readings);
}

/// Whether a file with errors is a hostfile without errors.
fn is_hostfile(path: &Path) -> bool {
    path.is_file() && hostfile::load(path, Trust::All, ReadOptions::default()).is_ok()
}

fn not_a_config(path: &Path) -> Findings {
    let name = path.display().to_string();
    let message = format!("`{name}` is a hostfile, not a training configuration");
    let help = format!("type `remuda hostfile check {}`", quoted(path));
    let problem = Diagnostic::whole(CONFIG_UNREADABLE, message).help(help);
    Findings { source: Source { name, text: String::new() }, diagnostics: vec![problem] }
}

fn not_text(path: &Path) -> Findings {
    let name = path.display().to_string();
    let problem = Diagnostic::whole(SETTINGS_UNREADABLE, format!("`{name}` is not UTF-8 text"));
    let problem = problem.help("write the file again, in UTF-8");
    Findings { source: Source { name, text: String::new() }, diagnostics: vec![problem] }
}

/// The number of ranks, and what fills `auto`.
fn inputs(args: &ConfigCheckArgs) -> Result<ConfigInputs, LoadError> {
    let of_hosts = args.hostfile.as_deref().map(|hosts| {
        let trust = Trust::of(args.allow_insecure_files);
        let options = ReadOptions { slots: args.slots, ..ReadOptions::default() };
        hostfile::load_value(hosts, trust, options, None)
            .map(|reading| reading.hostfile.slot_count())
    });
    Ok(ConfigInputs {
        world_size: of_hosts.transpose()?.or(args.world_size),
        micro_batch: args.batch_size,
        accumulation: args.accumulate,
        hidden_size: args.hidden_size,
        steps: args.steps,
        ..ConfigInputs::default()
    })
}

fn parse_slots(text: &str) -> Result<SlotCount, String> {
    let count = text.parse().ok().and_then(SlotCount::new);
    count.ok_or_else(|| format!("expected a whole number from 1 to {SLOTS_MAX}"))
}

fn print_readings(
    out: &mut CommandOutput,
    readings: &[CheckedConfig],
    format: FindingsFormat,
    paint: Paint,
) {
    let findings: Vec<Findings> = readings.iter().map(CheckedConfig::findings).collect();
    let files = || {
        let file = |findings| CheckedFile { findings, hosts: Vec::new(), world: None };
        findings.iter().map(file).collect::<Vec<_>>()
    };
    out.stdout += &match format {
        FindingsFormat::Human => String::new(),
        FindingsFormat::Json => {
            let others: Vec<&Findings> = readings
                .iter()
                .filter_map(|checked| match checked {
                    CheckedConfig::Options { findings, .. }
                    | CheckedConfig::Unreadable(findings) => Some(findings),
                    CheckedConfig::Read(_) => None,
                })
                .collect();
            let read: Vec<&ConfigReading> =
                readings.iter().filter_map(CheckedConfig::reading).collect();
            show_config_json(&read, &others)
        }
        FindingsFormat::Sarif => show_sarif(CheckKind::Configurations, &files()),
        FindingsFormat::Github => show_github(&files()),
    };
    if format != FindingsFormat::Human {
        return;
    }
    for checked in readings {
        match checked {
            CheckedConfig::Unreadable(findings) => out.stderr += &show_findings(findings, paint),
            CheckedConfig::Read(reading) => {
                let values = || show_config(reading);
                out.stdout += &in_locale(&screen(&reading.findings, values, paint));
            }
            CheckedConfig::Options { findings, screen: values } => {
                out.stdout += &in_locale(&screen(findings, || values.clone(), paint));
            }
        }
    }
}

/// The findings of a file, then its values if it has no error.
fn screen(findings: &Findings, values: impl Fn() -> String, paint: Paint) -> String {
    if findings.has_errors() {
        return show_findings(findings, paint);
    }
    let has_warnings = 0 < findings.count(Severity::Warning);
    let shown =
        if has_warnings { show_findings(findings, paint) } else { show_problems(findings, paint) };
    let gap = if shown.is_empty() { "" } else { "\n" };
    let verdict = if has_warnings {
        String::new()
    } else {
        format!("\n{}: no errors, no warnings\n", escape_control(&findings.source.name))
    };
    format!("{shown}{gap}{}{verdict}", values())
}
