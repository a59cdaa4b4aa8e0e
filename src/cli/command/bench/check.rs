//! Checks of `remuda bench` before anything is measured; errors point at the place of the command
//! line.

use std::io::Read;
use std::path::Path;

use crate::base::{Diagnostic, Status};
use crate::bench::{Backend, Collective, EarlierResults, Options, SizesError, parse_results};
use crate::cli::command::bench::args::BenchArgs;
use crate::cli::command::bench::codes::{CANNOT_WRITE, NO_GPU, RESULTS_UNREADABLE, TOO_LARGE};
use crate::cli::error::CliError;
use crate::cli::line::{ArgvSpan as Words, CommandLine, cannot_combine, codes};
use crate::cli::output_files::check_file;
use crate::cli::resolve::{self, ResolvedCluster};
use crate::inventory::available_memory;
use crate::launch::Transport;
use crate::os::input_file::{InputReader, open};
use crate::report::summary::{show_bytes, show_count, show_io_error};
use crate::runtime::Dtype;

/// Maximum size of a file of earlier results, in bytes.
const RESULTS_BYTES_MAX: u64 = 64 << 20;

/// Checks the options against each other and against the place where the job runs.
pub(super) fn run(
    args: &BenchArgs,
    typed: &CommandLine,
    cluster: &ResolvedCluster,
) -> Result<(), CliError> {
    let value = |flag: &str| typed.value_span(flag).unwrap_or_else(|| typed.end_span());
    if args.step_bytes.is_some() && args.step_factor.is_some() {
        let why = "both set the next size";
        return Err(cannot_combine(typed, "stepfactor", "stepbytes", why).into());
    }
    let options = args.resolve().map_err(|error| bad_sizes(error, typed))?;
    if args.pairs && args.collective != Collective::SendRecv {
        let refused =
            typed.refuse(&[typed.name_span("pairs").unwrap_or(typed.end_span())], |spans| {
                let message = format!("pairs are not measured with `{}`", args.collective);
                Diagnostic::error(codes::CANNOT_COMBINE, spans[0], message)
                    .help("type `remuda bench send-recv --pairs`")
            });
        return Err(refused.into());
    }
    if args.pairs && args.backend != Backend::Host {
        let why = "pairs are measured in host memory only";
        return Err(cannot_combine(typed, "pairs", "backend", why).into());
    }
    if args.pairs && !args.compare.is_empty() {
        return Err(cannot_combine(typed, "pairs", "compare", "pairs have no sizes").into());
    }
    if args.json && !args.compare.is_empty() && args.plot.is_none() {
        let why = "`--json` shows no earlier results";
        return Err(cannot_combine(typed, "json", "compare", why).into());
    }
    let workers = cluster.workers();
    if workers < 2 {
        for (flag, given) in [("pairs", args.pairs), ("threshold", args.threshold.is_some())] {
            let Some(place) = typed.name_span(flag).filter(|_| given) else { continue };
            let refused = typed.refuse(&[place], |spans| {
                let message = format!("`--{flag}` needs at least two ranks");
                Diagnostic::error(codes::CANNOT_COMBINE, spans[0], message)
                    .help("start two ranks or more: `--num_gpus 2`")
            });
            return Err(refused.into());
        }
    }
    if workers <= options.root {
        let refused = typed.refuse(&[value("root")], |spans| {
            let message = format!("there is no rank {}", options.root);
            Diagnostic::error(codes::BAD_VALUE, spans[0], message)
                .label(format!("ranks are 0 to {}", workers - 1))
        });
        return Err(refused.into());
    }
    // On other machines, the workers check this.
    if matches!(cluster.transport, Transport::Ssh(_)) {
        return Ok(());
    }
    if args.backend != Backend::Host && resolve::gpu_count() == 0 {
        let refused = typed.refuse(&[value("backend")], |spans| {
            let message = format!("there is no GPU on this machine for backend `{}`", args.backend);
            Diagnostic::error(NO_GPU, spans[0], message)
                .help("leave `--backend` out to measure host memory")
        });
        return Err(CliError::refused(Status::Config, refused));
    }
    check_memory(&options, workers, available_memory(), value("maxbytes"), typed)?;
    for file in &args.compare {
        read_earlier(file, args.collective, workers).map_err(|(status, why)| {
            let message = format!("cannot use `{}`: {why}", file.display());
            let refused = typed.refuse(&[value("compare")], |spans| {
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
        let refused = typed.refuse(&[value("plot")], |spans| {
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
    place: Words,
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
    let refused = typed.refuse(&[place], |spans| {
        let (workers, total) = (show_count(workers, "worker"), show_bytes(total));
        let available = show_bytes(available);
        let message =
            format!("{workers} would need about {total} of memory, {available} are available");
        Diagnostic::error(TOO_LARGE, spans[0], message).help("use a smaller `--maxbytes`")
    });
    Err(CliError::refused(Status::OsLimit, refused))
}
