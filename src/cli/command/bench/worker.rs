//! The worker of `remuda bench`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::base::{Status, clock};
use crate::bench::{
    Backend, BenchNode, Document, EarlierResults, Head, OpenBackend, Options, Row, Shortfall,
    VERSION, check_threshold, check_wrong, gather_hosts, measure, measure_pairs, show_foot,
    show_heat_map, show_pairs, show_results, show_row,
};
use crate::cli::command::bench::args::BenchArgs;
use crate::cli::command::bench::check::read_earlier;
use crate::cli::command::bench::codes::{BELOW_THRESHOLD, CANNOT_WRITE, RESULTS_UNREADABLE};
use crate::cli::error::CliError;
use crate::cli::line::codes::BAD_VALUE;
use crate::cli::output_files::check_file;
use crate::cli::start::join_group;
use crate::os::calendar::utc;
use crate::report::text::show_io_error;
use crate::report::{print, print_error, print_screen};
use crate::runtime::{Error, Group, InitOptions, Note, ReduceOrder};

/// Name of the command that makes this executable a worker.
pub(in crate::cli) const WORKER_COMMAND: &str = "bench-worker";

/// The hidden form of the command that every worker is started with; alone, it is a group of one.
#[derive(Parser, Debug)]
#[command(name = "remuda bench-worker", no_binary_name = true)]
pub(super) struct WorkerLine {
    #[command(flatten)]
    bench: BenchArgs,
    #[arg(long)]
    json: bool,
}

impl WorkerLine {
    /// Returns the options as they were given to the launcher.
    pub(super) fn bench(self) -> BenchArgs {
        BenchArgs { json: self.json, ..self.bench }
    }
}

/// Runs a worker of the job; only rank 0 prints.
pub(in crate::cli) fn worker_main(words: Vec<OsString>) -> Result<Status, CliError> {
    let line = WorkerLine::try_parse_from(words)
        .map_err(|error| CliError::usage(BAD_VALUE, error.to_string()))?;
    let args = line.bench();
    let options = args.resolve().map_err(|error| CliError::usage(BAD_VALUE, error.to_string()))?;
    let group = join_group(&InitOptions {
        order: args.order.unwrap_or_default(),
        ..InitOptions::default()
    })?;
    let world = group.world_size();
    let earlier = if group.rank() == 0 { prepare(&args, world)? } else { Vec::new() };
    let (document, chart) = match measure_all(&group, &args, &options, &earlier) {
        Ok(document) => document,
        Err(error) => {
            print_error(&format!("remuda bench: rank {}: {error}\n", group.rank()));
            return Ok(status_of(&error));
        }
    };
    // All ranks have the results, so no rank waits until rank 0 has written them.
    if group.rank() != 0 {
        return Ok(Status::Success);
    }
    if args.json {
        print(&document.show()).map_err(CliError::output)?;
    }
    let chart_status = write_chart(chart, args.plot.as_deref());
    match check_results(&document, args.threshold) {
        Ok(()) => Ok(chart_status),
        Err(shortfall) => {
            print_error(&format!("error[{BELOW_THRESHOLD}]: {shortfall}\n"));
            Ok(Status::Findings)
        }
    }
}

fn status_of(error: &Error) -> Status {
    match error {
        #[cfg(feature = "nccl")]
        Error::Device(_) => Status::Config,
        error if error.is_of_system() => Status::OsLimit,
        _ => Status::Protocol,
    }
}

/// Prepares rank 0 before anything is measured: reads the earlier results, and checks that the
/// chart can be written.
fn prepare(args: &BenchArgs, world: usize) -> Result<Vec<EarlierResults>, CliError> {
    if let Some(file) = &args.plot {
        check_file(file).map_err(|why| {
            let message = format!("cannot write `{}`: {why}", file.display());
            CliError::new(Status::CantCreate, CANNOT_WRITE, message)
        })?;
    }
    let read = |file: &PathBuf| {
        read_earlier(file, args.collective, world).map_err(|(status, why)| {
            let file = file.display();
            CliError::new(status, RESULTS_UNREADABLE, format!("cannot use `{file}`: {why}"))
        })
    };
    args.compare.iter().map(read).collect()
}

/// Measures all sizes, and prints each result immediately; only rank 0 draws the chart.
fn measure_all(
    group: &Group,
    args: &BenchArgs,
    options: &Options,
    earlier: &[EarlierResults],
) -> Result<(Document, Option<String>), Error> {
    let prints = group.rank() == 0 && !args.json;
    let draws_chart = group.rank() == 0 && args.plot.is_some();
    // If the output cannot be written, the measurement continues.
    let say = |text: &str| {
        if prints {
            let _ = print_screen(text);
        }
    };
    let opened = OpenBackend::open(group, options.backend, args.order)?;
    let hosts = gather_hosts(group)?;
    group.note(&Note::Ready);
    let order = args.order.unwrap_or(options.backend.default_order());
    let mut document = new_document(options, order, hosts, earlier);
    if args.pairs {
        let pairs = measure_pairs(group, options)?;
        say(&show_pairs(&pairs));
        document.pairs = pairs.rows();
        let chart =
            draws_chart.then(|| show_heat_map("send-recv: GB/s each way between pairs", &pairs));
        return Ok((document, chart));
    }
    // NCCL has its own thresholds.
    let is_own_runtime = options.backend != Backend::Nccl;
    let thresholds = (args.verbose && is_own_runtime).then(|| group.thresholds());
    let thresholds = thresholds.as_ref();
    let library = args.verbose.then(|| opened.library()).flatten();
    let slow_because = opened.slow_because();
    let head = Head {
        options,
        order,
        hosts: &document.hosts,
        library: library.as_deref(),
        slow_because: slow_because.as_deref(),
        thresholds,
        earlier: earlier.first(),
    };
    say(&head.show());
    let beside = head.comparable_earlier();
    let collective = options.collective;
    document.rows =
        measure(&opened, options, &mut |row: &Row| say(&show_row(row, collective, beside)))?;
    say(&show_foot(&document.rows));
    let chart = draws_chart.then(|| show_results(&document, earlier));
    Ok((document, chart))
}

/// Builds a document with everything that is known before the first size.
fn new_document(
    options: &Options,
    order: ReduceOrder,
    hosts: Vec<BenchNode>,
    earlier: &[EarlierResults],
) -> Document {
    Document {
        version: VERSION,
        remuda: env!("CARGO_PKG_VERSION"),
        time: utc(clock::wall()),
        collective: options.collective.name().to_owned(),
        backend: options.backend.name().to_owned(),
        order: order.name().to_owned(),
        root: options.collective.has_root().then_some(options.root),
        world_size: hosts.iter().map(|host| host.ranks).sum(),
        nodes: hosts.len(),
        hosts,
        rows: Vec::new(),
        pairs: Vec::new(),
        compared: earlier.iter().map(EarlierResults::compared).collect(),
    }
}

/// Writes the chart. The results have been printed before.
fn write_chart(chart: Option<String>, file: Option<&Path>) -> Status {
    let (Some(chart), Some(file)) = (chart, file) else { return Status::Success };
    let Err(error) = fs::write(file, chart) else { return Status::Success };
    let (file, why) = (file.display(), show_io_error(&error));
    print_error(&format!("error[{CANNOT_WRITE}]: cannot write `{file}`: {why}\n"));
    Status::CantCreate
}

fn check_results(document: &Document, threshold: Option<f64>) -> Result<(), Shortfall> {
    check_wrong(&document.rows)?;
    check_threshold(&document.rows, &document.pairs, threshold)
}
