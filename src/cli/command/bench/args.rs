//! Options of a measurement: parsing, conversion to the options of the workers, and the equivalent
//! command line of a worker.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args};

use crate::bench::{
    Average, Backend, BytesError, Collective, Iterations, Options, Sizes, SizesError, Stride,
    parse_bytes,
};
use crate::cli::line::{BadValue, parse_whole};
use crate::pool::nearest;
use crate::runtime::{Dtype, ReduceOp, ReduceOrder};

/// Smallest message size without `-b`, in bytes.
const MIN_BYTES_DEFAULT: u64 = 8;
/// Largest message size without `-e`, in bytes.
const MAX_BYTES_DEFAULT: u64 = 64 << 20;
/// Message size of `--pairs`, in bytes.
const PAIR_BYTES_DEFAULT: u64 = 8 << 20;
/// Largest number of iterations.
const ITERATIONS_MAX: i64 = 1_000_000;

/// Options of a measurement; hosts and slots are launch options.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that was typed or not")]
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Measurement", rename_all = "snake_case")]
pub(super) struct BenchArgs {
    /// Collective: all-reduce, all-gather, reduce-scatter, broadcast, reduce, gather, scatter, all-to-all
    /// or send-recv
    #[arg(value_name = "COLLECTIVE", value_parser = parse_collective)]
    pub(super) collective: Collective,
    /// Memory and transport: host (CPU memory), nccl (GPU memory), or staged (GPU memory, copied through
    /// the host; ranks can share a GPU)
    #[arg(long, value_name = "BACKEND", default_value = "host", value_parser = parse_backend)]
    pub(super) backend: Backend,
    /// Smallest message size: `8`, `64K`, `1M` [default: 8]
    #[arg(short = 'b', long = "minbytes", value_name = "SIZE", value_parser = parse_size)]
    pub(super) min_bytes: Option<u64>,
    /// Largest message size [default: 64M; 8M with --pairs]
    #[arg(short = 'e', long = "maxbytes", value_name = "SIZE", value_parser = parse_max_bytes)]
    pub(super) max_bytes: Option<u64>,
    /// Multiply the size by N at each step [default: 2]
    #[arg(short = 'f', long = "stepfactor", value_name = "N", value_parser = parse_factor)]
    pub(super) step_factor: Option<u64>,
    /// Add SIZE bytes at each step instead of multiplying
    #[arg(short = 'i', long = "stepbytes", value_name = "SIZE", value_parser = parse_step_bytes)]
    pub(super) step_bytes: Option<u64>,
    /// Timed iterations per size, as in nccl-tests; the number of ranks is --num_gpus [default: as many as
    /// fit in 0.1 s, 20 to 5000]
    #[arg(short = 'n', long, value_name = "N", value_parser = parse_iterations)]
    pub(super) iters: Option<u32>,
    /// Untimed warm-up iterations per size (at least 1 without -n)
    #[arg(short = 'w', long, value_name = "N", default_value = "5", value_parser = parse_count)]
    pub(super) warmup_iters: u32,
    /// Check the results: 0 or 1
    #[arg(short = 'c', long, value_name = "0|1", default_value = "1", value_parser = parse_switch, action = ArgAction::Set)]
    pub(super) check: bool,
    /// Data type: float, double, half, bfloat16, int32, int64, uint8, or `all`
    #[arg(short = 'd', long, value_name = "TYPE", default_value = "float", value_parser = parse_dtypes)]
    pub(super) datatype: Dtypes,
    /// Reduction: sum, prod, min, max, avg, or `all`
    #[arg(short = 'o', long, value_name = "OP", default_value = "sum", value_parser = parse_ops)]
    pub(super) op: ReduceOps,
    /// Order of a reduction: canonical, with the same bits for every placement of ranks, or any: a ring
    /// of nodes, or the order of NCCL [default: canonical; any with --backend nccl]
    #[arg(long, value_name = "ORDER", value_parser = parse_order)]
    pub(super) order: Option<ReduceOrder>,
    /// Root rank of broadcast, reduce, gather and scatter
    #[arg(short = 'r', long, value_name = "RANK", default_value = "0", value_parser = parse_count)]
    pub(super) root: u32,
    /// Time to report: 0 that of rank 0, 1 the mean, 2 the minimum, 3 the maximum of all ranks
    #[arg(short = 'a', long, value_name = "0-3", default_value = "1", value_parser = parse_average)]
    pub(super) average: Average,
    /// Use registered memory: buffers of the group for in-place operations, or buffers registered with
    /// NCCL: 0 or 1 [default: 1; 0 on GPUs]
    #[arg(short = 'R', long, value_name = "0|1", value_parser = parse_switch, action = ArgAction::Set)]
    pub(super) local_register: Option<bool>,
    /// With send-recv: measure every pair of nodes separately (of ranks on a single node), and name the
    /// slowest pair
    #[arg(long)]
    pub(super) pairs: bool,
    /// Exit with 1 if the bus bandwidth of the best size, or of any pair, is lower
    #[arg(long, value_name = "GB/s", value_parser = parse_threshold)]
    pub(super) threshold: Option<f64>,
    /// Compare with earlier results of --json, or with a table of nccl-tests or the OSU micro-benchmarks
    /// (repeatable; the columns show the first)
    #[arg(long, value_name = "FILE")]
    pub(super) compare: Vec<PathBuf>,
    /// Write a chart of bus bandwidth over size, with a curve for each type and reduction, or a heat map
    /// of pairs, to this SVG file
    #[arg(long, value_name = "FILE", value_parser = OsStringValueParser::new().try_map(parse_svg_path))]
    pub(super) plot: Option<PathBuf>,
    /// Print algorithm thresholds, TCP streams per peer (REMUDA_STREAMS) and the NCCL version
    #[arg(short = 'v', long)]
    pub(super) verbose: bool,
    /// Prints the results as JSON. The option itself is one of the launch options.
    #[arg(skip)]
    pub(super) json: bool,
}

/// Data types of `--datatype`: one type, or all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dtypes(Vec<Dtype>);

/// Reductions of `--op`: one reduction, or all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReduceOps(Vec<ReduceOp>);

/// Data types by their names in nccl-tests and in remuda.
const DTYPES: [(&str, Dtype); 14] = [
    ("float", Dtype::F32),
    ("double", Dtype::F64),
    ("half", Dtype::F16),
    ("bfloat16", Dtype::Bf16),
    ("int32", Dtype::I32),
    ("int64", Dtype::I64),
    ("uint8", Dtype::U8),
    ("f32", Dtype::F32),
    ("f64", Dtype::F64),
    ("f16", Dtype::F16),
    ("bf16", Dtype::Bf16),
    ("i32", Dtype::I32),
    ("i64", Dtype::I64),
    ("u8", Dtype::U8),
];

const OPS: [(&str, ReduceOp); 5] = [
    ("sum", ReduceOp::Sum),
    ("prod", ReduceOp::Prod),
    ("min", ReduceOp::Min),
    ("max", ReduceOp::Max),
    ("avg", ReduceOp::Avg),
];

/// Returns the values of an option or an argument, for completions; of several names of a type the
/// first.
pub(in crate::cli) fn possible_values(id: &str) -> Vec<&'static str> {
    match id {
        "collective" => Collective::ALL.map(Collective::name).to_vec(),
        "datatype" => names(&DTYPES[..7]).chain(["all"]).collect(),
        "backend" => Backend::ALL.map(Backend::name).to_vec(),
        "op" => names(&OPS).chain(["all"]).collect(),
        "order" => ReduceOrder::ALL.map(ReduceOrder::name).to_vec(),
        _ => Vec::new(),
    }
}

fn names<T>(table: &[(&'static str, T)]) -> impl Iterator<Item = &'static str> {
    table.iter().map(|(name, _)| *name)
}

impl BenchArgs {
    /// Returns the message sizes, in bytes.
    pub(super) fn sizes(&self) -> Result<Sizes, SizesError> {
        let stride = match (self.step_bytes, self.step_factor) {
            (Some(bytes), _) => Stride::Bytes(bytes),
            (None, factor) => Stride::Factor(factor.unwrap_or(2)),
        };
        let last = if self.pairs { PAIR_BYTES_DEFAULT } else { MAX_BYTES_DEFAULT };
        let (first, last) = match (self.min_bytes, self.max_bytes) {
            (Some(first), Some(last)) => (first, last),
            (Some(first), None) => (first, last.max(first)),
            (None, Some(last)) => (MIN_BYTES_DEFAULT.min(last), last),
            (None, None) => (MIN_BYTES_DEFAULT, last),
        };
        Sizes::new(first, last, stride)
    }

    /// Converts the options to those of the workers; the options have been checked.
    pub(super) fn resolve(&self) -> Result<Options, SizesError> {
        Ok(Options {
            collective: self.collective,
            backend: self.backend,
            sizes: self.sizes()?,
            dtypes: self.datatype.0.clone(),
            reduce: self.op.0.clone(),
            root: self.root as usize,
            iterations: self.iters.map_or(Iterations::Auto, Iterations::Exactly),
            warmup: self.warmup_iters,
            is_checked: self.check,
            average: self.average,
            is_registered: self.local_register.unwrap_or(self.backend == Backend::Host),
        })
    }

    /// Returns the equivalent command line, with which a worker is started.
    pub(super) fn worker_args(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![self.collective.name().into()];
        let mut push = |name: &str, value: Option<OsString>| {
            if let Some(value) = value {
                words.extend([format!("--{name}").into(), value]);
            }
        };
        let text = |value: &dyn ToString| Some(value.to_string().into());
        push("backend", text(&self.backend));
        push("minbytes", self.min_bytes.and_then(|bytes| text(&bytes)));
        push("maxbytes", self.max_bytes.and_then(|bytes| text(&bytes)));
        push("stepfactor", self.step_factor.and_then(|factor| text(&factor)));
        push("stepbytes", self.step_bytes.and_then(|bytes| text(&bytes)));
        push("iters", self.iters.and_then(|times| text(&times)));
        push("warmup_iters", text(&self.warmup_iters));
        push("check", text(&u8::from(self.check)));
        push("datatype", text(&name_of_values(&self.datatype.0, &DTYPES)));
        push("op", text(&name_of_values(&self.op.0, &OPS)));
        push("order", self.order.and_then(|order| text(&order)));
        push("root", text(&self.root));
        push("average", text(&(self.average as u8)));
        push("local_register", self.local_register.and_then(|is_on| text(&u8::from(is_on))));
        push("threshold", self.threshold.and_then(|threshold| text(&threshold)));
        for file in &self.compare {
            push("compare", Some(file.into()));
        }
        push("plot", self.plot.clone().map(OsString::from));
        let switches =
            [("--pairs", self.pairs), ("--verbose", self.verbose), ("--json", self.json)];
        words.extend(switches.iter().filter(|switch| switch.1).map(|switch| switch.0.into()));
        words
    }
}

/// Returns the name of one value, or `all`.
fn name_of_values<T: PartialEq>(values: &[T], table: &[(&'static str, T)]) -> &'static str {
    let one = |value: &T| table.iter().find(|(_, known)| known == value).map(|(name, _)| *name);
    match values {
        [value] => one(value).unwrap_or("all"),
        _ => "all",
    }
}

/// Returns the value of a table with this name, or all values without duplicates.
fn values_of<T: Copy + PartialEq>(text: &str, table: &[(&str, T)]) -> Result<Vec<T>, BadValue> {
    if text == "all" {
        let mut values: Vec<T> = Vec::new();
        for (_, value) in table {
            if !values.contains(value) {
                values.push(*value);
            }
        }
        return Ok(values);
    }
    let found = table.iter().find(|(name, _)| *name == text).map(|(_, value)| vec![*value]);
    let names = || table.iter().map(|(name, _)| *name).chain(["all"]);
    found.ok_or_else(|| unknown(text, &names().collect::<Vec<_>>()))
}

fn unknown(text: &str, names: &[&str]) -> BadValue {
    let help = match nearest(text, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("expected one of {}", names.join(", ")),
    };
    BadValue::new("unknown").help(help)
}

/// Parses a collective: `all-reduce`, `all_reduce` and `allreduce` are the same.
fn parse_collective(text: &str) -> Result<Collective, BadValue> {
    let found = Collective::from_name(text);
    found.ok_or_else(|| unknown(text, &Collective::ALL.map(Collective::name)))
}

fn parse_backend(text: &str) -> Result<Backend, BadValue> {
    let found = Backend::ALL.into_iter().find(|backend| backend.name() == text);
    found.ok_or_else(|| unknown(text, &Backend::ALL.map(Backend::name)))
}

fn parse_size(text: &str) -> Result<u64, BadValue> {
    parse_bytes(text).map_err(|error| {
        let help = match error {
            BytesError::NoNumber | BytesError::NoUnit => "write `8`, `64K`, `128M` or `1G`",
            BytesError::TooLarge => "write `128M` or `1G`; units are K, M, G and T",
        };
        BadValue::new(error.to_string()).help(help)
    })
}

/// Parses a size. If the text is a list of hosts, the letter was meant as in `remuda run`, and the
/// help names the `option` for hosts.
fn parse_size_or_hosts(text: &str, (verb, option): (&str, &str)) -> Result<u64, BadValue> {
    let names_hosts = text.starts_with(|first: char| first.is_alphabetic() || first == '@');
    let help = || format!("to {verb} hosts: `--{option} {text}`; a size is `64M`");
    parse_size(text).map_err(|bad| if names_hosts { bad.help(help()) } else { bad })
}

/// Parses the size of `-e`; in `remuda run`, the letter excludes hosts.
fn parse_max_bytes(text: &str) -> Result<u64, BadValue> {
    parse_size_or_hosts(text, ("exclude", "exclude"))
}

/// Parses the size of `-i`, which must be greater than 0; in `remuda run`, the letter includes
/// hosts.
fn parse_step_bytes(text: &str) -> Result<u64, BadValue> {
    match parse_size_or_hosts(text, ("include", "include"))? {
        0 => Err(BadValue::new("it must be greater than 0").help("write a size such as `1M`")),
        bytes => Ok(bytes),
    }
}

fn parse_factor(text: &str) -> Result<u64, BadValue> {
    parse_whole(text, 2..=1 << 20).map(|factor| factor as u64)
}

fn parse_iterations(text: &str) -> Result<u32, BadValue> {
    parse_whole(text, 1..=ITERATIONS_MAX).map(|times| times as u32)
}

fn parse_count(text: &str) -> Result<u32, BadValue> {
    parse_whole(text, 0..=ITERATIONS_MAX).map(|times| times as u32)
}

fn parse_switch(text: &str) -> Result<bool, BadValue> {
    parse_whole(text, 0..=1).map(|switch| switch == 1)
}

fn parse_dtypes(text: &str) -> Result<Dtypes, BadValue> {
    values_of(text, &DTYPES).map(Dtypes)
}

fn parse_ops(text: &str) -> Result<ReduceOps, BadValue> {
    values_of(text, &OPS).map(ReduceOps)
}

fn parse_order(text: &str) -> Result<ReduceOrder, BadValue> {
    let found = ReduceOrder::ALL.into_iter().find(|order| order.name() == text);
    found.ok_or_else(|| unknown(text, &ReduceOrder::ALL.map(ReduceOrder::name)))
}

fn parse_average(text: &str) -> Result<Average, BadValue> {
    const AVERAGES: [Average; 4] = [Average::Rank0, Average::Mean, Average::Min, Average::Max];
    parse_whole(text, 0..=3).map(|at| AVERAGES[at as usize])
}

/// Parses the name of an SVG file; extensions of other picture formats are refused.
fn parse_svg_path(file: OsString) -> Result<PathBuf, BadValue> {
    const OTHERS: [&str; 8] = ["png", "jpg", "jpeg", "gif", "webp", "pdf", "ps", "eps"];
    let file = PathBuf::from(file);
    let ending = file.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    if ending.is_none_or(|ending| !OTHERS.contains(&ending.as_str())) {
        return Ok(file);
    }
    let named = file.with_extension("svg");
    let help = format!("name it `{}`", named.display());
    Err(BadValue::new("charts are written as SVG").help(help))
}

fn parse_threshold(text: &str) -> Result<f64, BadValue> {
    let threshold = text.parse().ok().filter(|gbs: &f64| gbs.is_finite() && 0.0 < *gbs);
    threshold.ok_or_else(|| BadValue::new("expected GB/s, a number above 0").help("write `10.5`"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::command::bench::worker::WorkerLine;

    fn parse(line: &str) -> Result<BenchArgs, String> {
        let parsed = WorkerLine::try_parse_from(line.split_whitespace());
        parsed.map(WorkerLine::bench).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn check_words(line: &str) {
        let args = parse(line).expect("the line is fine");
        let again = WorkerLine::try_parse_from(args.worker_args()).expect("words are a line again");
        assert_eq!(again.bench(), args);
    }

    #[test]
    fn worker_line_has_the_same_options() {
        check_words("all-reduce");
        check_words("allgather -b 1K -e 1G -f 4 -n 100 -w 0 -c 0 -d half -a 3 -R 0 --json");
        check_words("REDUCE_SCATTER -b 5 -e 50 -i 5 -o all -d all -r 3 --plot p --order any");
        check_words("send-recv --pairs --threshold 10.5 --compare a --compare b");
    }

    #[track_caller]
    fn check_sizes(line: &str, expect: &[u64]) {
        let args = parse(&format!("all-reduce {line}")).expect("the line is fine");
        assert_eq!(args.sizes().map(|sizes| sizes.iter().collect::<Vec<_>>()), Ok(expect.to_vec()));
    }

    #[test]
    fn missing_sizes_fit_the_given_size() {
        check_sizes("-b 16M -f 2", &[16 << 20, 32 << 20, 64 << 20]);
        check_sizes("-b 1G", &[1 << 30]);
        check_sizes("-e 4", &[4]);
        check_sizes("-b 10 -e 30 -i 10", &[10, 20, 30]);
        assert!(parse("all-reduce -b 2 -e 1").expect("values are fine").sizes().is_err());
    }

    #[track_caller]
    fn check_refused(line: &str, part: &str) {
        let message = parse(line).expect_err("the line makes no sense");
        assert!(message.contains(part), "{message}");
    }

    #[test]
    fn invalid_values_are_refused() {
        check_refused("", "COLLECTIVE");
        check_refused("all-reduse", "unknown");
        check_refused("all-reduce -b x", "expected a size");
        check_refused("all-reduce -i 0", "it must be greater than 0");
        check_refused("all-reduce --plot a.PNG", "written as SVG");
        check_refused("all-reduce -f 1", "expected a number from 2 to");
        check_refused("all-reduce -n 0", "expected a number from 1 to");
        check_refused("all-reduce --threshold 0", "expected GB/s");
        check_refused("all-reduce -d int8", "unknown");
        check_refused("all-reduce --order none", "unknown");
    }
}
