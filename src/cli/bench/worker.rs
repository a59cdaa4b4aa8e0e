//! What every worker of `remuda bench` does.

use std::ffi::OsString;
use std::fs;

use clap::Parser;

use super::args::BenchArgs;
use super::check::read_earlier;
use super::codes::{CANNOT_WRITE, EARLIER_UNREADABLE, NOT_GOOD_ENOUGH};
use crate::base::Status;
use crate::bench::{
    Backend, Document, Opened, Options, Pairs, Row, Series, Shortfall, check_rows, check_wrong,
    measure, measure_pairs, show_curves, show_foot, show_head, show_heat, show_pairs, show_ranks,
    show_row,
};
use crate::cli::bundled::join_group;
use crate::cli::error::CliError;
use crate::cli::line::codes::BAD_VALUE;
use crate::report::summary::reason;
use crate::report::{print, print_error};
use crate::runtime::{Error, Group, InitOptions, Note};

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
    /// What the launcher was told.
    pub(super) fn bench(self) -> BenchArgs {
        BenchArgs { json: self.json, ..self.bench }
    }
}

/// A worker of the job; rank 0 speaks.
pub(in crate::cli) fn worker_main(words: Vec<OsString>) -> Result<Status, CliError> {
    let line = WorkerLine::try_parse_from(words)
        .map_err(|error| CliError::usage(BAD_VALUE, error.to_string()))?;
    let args = line.bench();
    let options = args.lower().map_err(|error| CliError::usage(BAD_VALUE, error.to_string()))?;
    let group = join_group(&InitOptions {
        order: args.order.unwrap_or_default(),
        ..InitOptions::default()
    })?;
    let world = group.world_size();
    let earlier = if group.rank() == 0 { read_all(&args, world)? } else { Vec::new() };
    let document = match measure_all(&group, &args, &options, &earlier) {
        Ok(document) => document,
        Err(error) => {
            print_error(&format!("remuda bench: rank {}: {error}\n", group.rank()));
            return Ok(status_of(&error));
        }
    };
    // All ranks know the results, so none waits for rank 0 to have written them.
    if group.rank() != 0 {
        return Ok(Status::Success);
    }
    if args.json {
        print(&document.show()).map_err(CliError::output)?;
    }
    match judge(&document, args.threshold) {
        Ok(()) => Ok(Status::Success),
        Err(shortfall) => {
            print_error(&format!("error[{NOT_GOOD_ENOUGH}]: {shortfall}\n"));
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

fn read_all(args: &BenchArgs, world: usize) -> Result<Vec<(String, Document)>, CliError> {
    let read = |file: &std::path::PathBuf| {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let document = read_earlier(file, args.collective, world).map_err(|(status, why)| {
            let file = file.display();
            CliError::new(status, EARLIER_UNREADABLE, format!("cannot use `{file}`: {why}"))
        })?;
        Ok((name, document))
    };
    args.compare.iter().map(read).collect()
}

/// Measures, and shows as it goes.
fn measure_all(
    group: &Group,
    args: &BenchArgs,
    options: &Options,
    earlier: &[(String, Document)],
) -> Result<Document, Error> {
    let placement = group.placement();
    let nodes = placement.nodes();
    let speaks = group.rank() == 0 && !args.json;
    // What nobody can be shown is no reason to stop.
    let say = |text: &str| {
        if speaks {
            let _ = print(text);
        }
    };
    let mut document = Document {
        version: 1,
        collective: options.collective.name().to_owned(),
        backend: options.backend.name().to_owned(),
        world_size: group.world_size(),
        nodes,
        rows: Vec::new(),
        pairs: Vec::new(),
    };
    let opened = Opened::open(group, options.backend, args.order)?;
    group.note(&Note::Ready);
    if args.pairs {
        let pairs = measure_pairs(group, options)?;
        say(&show_pairs(&pairs));
        document.pairs = pairs.rows();
        if group.rank() == 0 {
            draw_pairs(args, &pairs);
        }
        return Ok(document);
    }
    let host_of = |node: usize| {
        let ranks = placement.ranks_of(node);
        (placement.host_of(ranks[0]).to_owned(), ranks.len())
    };
    let hosts: Vec<(String, usize)> = (0..nodes).map(host_of).collect();
    // NCCL has its own.
    let is_ours = options.backend != Backend::Nccl;
    let thresholds = (args.verbose && is_ours).then(|| group.thresholds());
    let first = earlier.first().map(|(_, document)| document);
    say(&show_head(options, &hosts, thresholds.as_ref(), first.is_some()));
    document.rows = measure(&opened, options, &mut |row: &Row| say(&show_row(row, first)))?;
    say(&show_foot(&document.rows));
    if group.rank() == 0 {
        draw_rows(args, &document, earlier);
    }
    Ok(document)
}

fn draw_rows(args: &BenchArgs, document: &Document, earlier: &[(String, Document)]) {
    let now = format!("{}, {} now", show_ranks(document.world_size), document.backend);
    let mut series = vec![Series { name: &now, rows: &document.rows }];
    series.extend(earlier.iter().map(|(name, then)| Series { name, rows: &then.rows }));
    let title = format!("{}: bus bandwidth by size", document.collective);
    draw(args, || show_curves(&title, &series));
}

fn draw_pairs(args: &BenchArgs, pairs: &Pairs) {
    draw(args, || show_heat("send-recv: GB/s each way between pairs", pairs));
}

/// Results are on the screen by now: a picture that cannot be kept is said, and that is all.
fn draw(args: &BenchArgs, picture: impl FnOnce() -> String) {
    let Some(file) = &args.plot else { return };
    if let Err(error) = fs::write(file, picture()) {
        let (file, why) = (file.display(), reason(&error));
        print_error(&format!("error[{CANNOT_WRITE}]: cannot write `{file}`: {why}\n"));
    }
}

fn judge(document: &Document, threshold: Option<f64>) -> Result<(), Shortfall> {
    check_wrong(&document.rows)?;
    check_rows(&document.rows, &document.pairs, threshold)
}
