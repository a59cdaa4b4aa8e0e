//! Checks of `remuda bench` before anything is measured; errors point at the place of the command
//! line.

use std::io::Read;
use std::path::Path;

use crate::base::{Diagnostic, Status};
use crate::bench::{Backend, Collective, EarlierResults, Options, SizesError, parse_results};
use crate::cli::command::bench::args::BenchArgs;
use crate::cli::command::bench::codes::{CANNOT_WRITE, NO_GPU, RESULTS_UNREADABLE, TOO_LARGE};
use crate::cli::error::CliError;
use crate::cli::line::{CommandLine, RefusedLine, cannot_combine, codes};
use crate::cli::output_files::check_file;
use crate::cli::resolve::{self, ResolvedCluster};
use crate::inventory::available_memory;
use crate::launch::Transport;
use crate::os::files::input_file::{InputReader, open};
use crate::report::text::{show_bytes, show_count, show_io_error};
use crate::runtime::Dtype;

/// Maximum size of a file of earlier results, in bytes.
const RESULTS_BYTES_MAX: u64 = 64 << 20;

/// Checks the options against each other and against the place where the job runs.
pub(super) fn run(
    args: &BenchArgs,
    typed: &CommandLine,
    cluster: &ResolvedCluster,
) -> Result<(), CliError> {
    if args.step_bytes.is_some() && args.step_factor.is_some() {
        let why = "both set the next size";
        return Err(cannot_combine(typed, "stepfactor", "stepbytes", why).into());
    }
    let options = args.resolve().map_err(|error| bad_sizes(error, typed))?;
    check_combinations(args, typed)?;
    let workers = cluster.workers();
    check_ranks(args, options.root, workers, typed)?;
    // On other machines, the workers check this.
    if matches!(cluster.transport, Transport::Ssh(_)) {
        return Ok(());
    }
    check_backend(args, typed)?;
    check_memory(&options, workers, available_memory(), typed)?;
    check_files(args, workers, typed)
}

fn check_combinations(args: &BenchArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    if args.pairs && args.collective != Collective::SendRecv {
        let place = typed.name_or_end("pairs");
        return Err(typed.refuse(&[place], |spans| {
            let message = format!("pairs are not measured with `{}`", args.collective);
            Diagnostic::error(codes::CANNOT_COMBINE, spans[0], message)
                .help("type `remuda bench send-recv --pairs`")
        }));
    }
    if args.pairs && args.backend != Backend::Host {
        let why = "pairs are measured in host memory only";
        return Err(cannot_combine(typed, "pairs", "backend", why));
    }
    if args.pairs && !args.compare.is_empty() {
        return Err(cannot_combine(typed, "pairs", "compare", "pairs have no sizes"));
    }
    if args.json && !args.compare.is_empty() && args.plot.is_none() {
        let why = "`--json` shows no earlier results";
        return Err(cannot_combine(typed, "json", "compare", why));
    }
    Ok(())
}

/// Checks that there are enough ranks, and that the root is one of them.
fn check_ranks(
    args: &BenchArgs,
    root: usize,
    workers: usize,
    typed: &CommandLine,
) -> Result<(), RefusedLine> {
    if workers < 2 {
        for (flag, given) in [("pairs", args.pairs), ("threshold", args.threshold.is_some())] {
            let Some(place) = typed.name_span(flag).filter(|_| given) else { continue };
            return Err(typed.refuse(&[place], |spans| {
                let message = format!("`--{flag}` needs at least two ranks");
                Diagnostic::error(codes::CANNOT_COMBINE, spans[0], message)
                    .help("start two ranks or more: `--num_gpus 2`")
            }));
        }
    }
    if root < workers {
        return Ok(());
    }
    Err(typed.refuse(&[typed.value_or_end("root")], |spans| {
        Diagnostic::error(codes::BAD_VALUE, spans[0], format!("there is no rank {root}"))
            .label(format!("ranks are 0 to {}", workers - 1))
    }))
}

fn check_backend(args: &BenchArgs, typed: &CommandLine) -> Result<(), CliError> {
    if args.backend == Backend::Host || resolve::gpu_count() != 0 {
        return Ok(());
    }
    let refused = typed.refuse(&[typed.value_or_end("backend")], |spans| {
        let message = format!("there is no GPU on this machine for backend `{}`", args.backend);
        Diagnostic::error(NO_GPU, spans[0], message)
            .help("leave `--backend` out to measure host memory")
    });
    Err(CliError::refused(Status::Config, refused))
}

/// Checks that earlier results can be read, and that the plot can be written.
fn check_files(args: &BenchArgs, workers: usize, typed: &CommandLine) -> Result<(), CliError> {
    for file in &args.compare {
        read_earlier(file, args.collective, workers).map_err(|(status, why)| {
            let message = format!("cannot use `{}`: {why}", file.display());
            let refused = typed.refuse(&[typed.value_or_end("compare")], |spans| {
                Diagnostic::error(RESULTS_UNREADABLE, spans[0], message).help(
                    "use the standard output of `remuda bench --json`, or a table of nccl-tests \
                         or the OSU micro-benchmarks",
                )
            });
            CliError::refused(status, refused)
        })?;
    }
    let Some(file) = &args.plot else { return Ok(()) };
    check_file(file).map_err(|why| {
        let message = format!("cannot write `{}`: {why}", file.display());
        let refused = typed.refuse(&[typed.value_or_end("plot")], |spans| {
            Diagnostic::error(CANNOT_WRITE, spans[0], message)
                .help("name a file in a directory that exists and that you can write")
        });
        CliError::refused(Status::CantCreate, refused)
    })
}

fn bad_sizes(error: SizesError, typed: &CommandLine) -> CliError {
    let (flags, help): (&[_], _) = match error {
        SizesError::Empty => {
            (&["maxbytes", "minbytes"], "the size of `-b` must not be greater than that of `-e`")
        }
        SizesError::TooMany { .. } => (&["stepbytes"], "use a larger step, or `-f 2`"),
    };
    let given = flags.iter().find_map(|flag| typed.value_span(flag));
    let refused = typed.refuse(&[given.unwrap_or_else(|| typed.end_span())], |spans| {
        Diagnostic::error(codes::BAD_VALUE, spans[0], error.to_string()).help(help)
    });
    refused.into()
}

/// Reads earlier results of the same collective from a file. If the file does not contain the
/// number of ranks, `world` is assumed.
pub(super) fn read_earlier(
    file: &Path,
    collective: Collective,
    world: usize,
) -> Result<EarlierResults, (Status, String)> {
    let mut bytes = Vec::new();
    let read = open(file).and_then(InputReader::new);
    read.and_then(|file| file.take(RESULTS_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| (Status::NoInput, show_io_error(&error)))?;
    if RESULTS_BYTES_MAX < bytes.len() as u64 {
        let limit = RESULTS_BYTES_MAX >> 20;
        return Err((Status::BadInput, format!("it is larger than {limit} MiB")));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| (Status::BadInput, "it is not a text file".to_owned()))?;
    parse_results(&text, file.display().to_string(), collective, world)
        .map_err(|error| (Status::BadInput, error.to_string()))
}

/// Checks that all workers of this machine have enough memory for the greatest size.
fn check_memory(
    options: &Options,
    workers: usize,
    available: Option<u64>,
    typed: &CommandLine,
) -> Result<(), CliError> {
    let Some(available) = available.map(|bytes| bytes as f64) else { return Ok(()) };
    let needed = |dtype: &Dtype| {
        let shape = options.collective.shape(options.sizes.last(), dtype.bytes(), workers);
        (shape.input + shape.output) as f64 * dtype.bytes() as f64
    };
    let total = options.dtypes.iter().map(needed).fold(0.0, f64::max) * workers as f64;
    if total <= available {
        return Ok(());
    }
    let refused = typed.refuse(&[typed.value_or_end("maxbytes")], |spans| {
        let (workers, total) = (show_count(workers, "worker"), show_bytes(total));
        let available = show_bytes(available);
        let message =
            format!("{workers} would need about {total} of memory, {available} are available");
        Diagnostic::error(TOO_LARGE, spans[0], message).help("use a smaller `--maxbytes`")
    });
    Err(CliError::refused(Status::OsLimit, refused))
}
