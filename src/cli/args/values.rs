//! Parsers of option values, and their errors.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::base::{HostName, show_typed};
use crate::cli::line::{self, BadValue, parse_whole, python_int};
use crate::plan::Accelerator;
use crate::pool::{SLOTS_MAX, SlotCount, nearest};
use crate::transport::manager::{PROCESS_MANAGERS, ProcessManager};

/// Maximum duration; in milliseconds it fits into 32 bits.
const DURATION_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// Minimum lease; see [`parse_lease`].
const LEASE_MIN: Duration = Duration::from_millis(500);
/// Maximum number of processors in a list; far more than Linux supports.
const CORES_MAX: u32 = 1 << 20;

/// Kind of devices of slots (`--accelerator`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceleratorArg {
    /// GPUs if there are any, else CPUs.
    Auto,
    /// This kind of device.
    Kind(Accelerator),
}

impl ValueEnum for AcceleratorArg {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Auto,
            Self::Kind(Accelerator::Cpu),
            Self::Kind(Accelerator::Cuda),
            Self::Kind(Accelerator::Rocm),
            Self::Kind(Accelerator::Xpu),
            Self::Kind(Accelerator::Npu),
            Self::Kind(Accelerator::Mps),
            Self::Kind(Accelerator::Hpu),
            Self::Kind(Accelerator::Mlu),
            Self::Kind(Accelerator::Sdaa),
            Self::Kind(Accelerator::Supa),
            Self::Kind(Accelerator::Klxpu),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self {
            Self::Auto | Self::Kind(Accelerator::GpuIfAny) => ("auto", "GPUs where there are any"),
            Self::Kind(Accelerator::Cpu) => ("cpu", "Processor time"),
            Self::Kind(Accelerator::Cuda) => ("cuda", "NVIDIA GPUs"),
            Self::Kind(Accelerator::Rocm) => ("rocm", "AMD GPUs"),
            Self::Kind(Accelerator::Xpu) => ("xpu", "Intel GPUs"),
            Self::Kind(Accelerator::Npu) => ("npu", "Ascend NPUs"),
            Self::Kind(Accelerator::Mps) => ("mps", "Apple GPUs"),
            Self::Kind(Accelerator::Hpu) => ("hpu", "Intel Gaudi"),
            Self::Kind(Accelerator::Mlu) => ("mlu", "Cambricon MLUs"),
            Self::Kind(Accelerator::Sdaa) => ("sdaa", "Tecorigin SDAA"),
            Self::Kind(Accelerator::Supa) => ("supa", "Biren SUPA"),
            Self::Kind(Accelerator::Klxpu) => ("klxpu", "Kunlunxin XPUs"),
        };
        Some(PossibleValue::new(name).help(help))
    }
}

/// Transport to the nodes (`--launcher`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LauncherArg {
    /// Simulates every host on this machine.
    Local,
    /// Ssh to every host including this machine.
    Ssh,
    /// The default of DeepSpeed, which behaves as if the option was not given: a job on this
    /// machine alone uses no ssh.
    Pdsh,
    /// What the surroundings offer: Slurm inside an allocation, else as [`Self::Pdsh`].
    Auto,
    /// A process manager starts the agents.
    Manager(&'static ProcessManager),
}

/// Returns the values of `--launcher`.
pub(in crate::cli) fn launcher_values() -> Vec<&'static str> {
    let managers = PROCESS_MANAGERS.iter().map(|manager| manager.option);
    ["auto", "local", "ssh", "pdsh"].into_iter().chain(managers).collect()
}

/// Returns the help text of `--launcher`.
pub(super) fn launcher_help() -> String {
    let managers = PROCESS_MANAGERS.map(|manager| format!("`{}`", manager.option)).join(", ");
    format!(
        "How remuda starts its process on each host, the agent: over `ssh` (or `pdsh`, the same); through a process \
         manager ({managers}); or `local`, which simulates every host on this machine [default: `slurm` inside an \
         allocation of Slurm, else `ssh`]"
    )
}

/// Returns the values of `--launcher` for MPIs: `a`, `b` or `c`.
fn mpi_values() -> String {
    let mpis = PROCESS_MANAGERS.iter().filter(|manager| manager.is_mpi());
    let names: Vec<String> = mpis.map(|manager| format!("`{}`", manager.option)).collect();
    let (last, others) = names.split_last().expect("remuda knows several MPIs");
    format!("{} or {last}", others.join(", "))
}

/// Least severe messages that are printed (`--log_level`); later levels print fewer messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum LogLevel {
    /// All messages.
    Debug,
    /// Progress, warnings and errors.
    Info,
    /// Warnings and errors.
    Warning,
    /// Errors.
    Error,
    /// The same as `error`.
    Critical,
}

/// Mode of DeepSpeed's search for a fast configuration (`--autotuning`), which is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AutotuningArg {
    /// Search.
    Tune,
    /// Search, then train.
    Run,
}

/// Backend of the groups that a program of torch makes with `gloo` (`--torch_backend`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TorchBackendArg {
    /// The collectives of remuda: needs the Python package of remuda.
    #[value(alias = "swap")]
    Remuda,
    /// That of the program.
    Gloo,
}

impl TorchBackendArg {
    /// Returns the value of `REMUDA_TORCH_BACKEND` for the workers.
    pub(in crate::cli) fn name(self) -> &'static str {
        match self {
            Self::Remuda => "remuda",
            Self::Gloo => "gloo",
        }
    }
}

/// Workers that read standard input (`--stdin`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinArg {
    /// One worker.
    Rank(u32),
    /// Every worker.
    All,
    /// No worker.
    None,
}

/// Processors in ascending order without repetition: `0,2-4,6`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreList(pub Vec<RangeInclusive<u32>>);

/// Words of a text, split by the rules of a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words(pub Vec<String>);

pub(super) fn parse_launcher(text: &str) -> Result<LauncherArg, BadValue> {
    let name = text.to_lowercase();
    match &*name {
        "local" => return Ok(LauncherArg::Local),
        "ssh" => return Ok(LauncherArg::Ssh),
        "pdsh" => return Ok(LauncherArg::Pdsh),
        "auto" => return Ok(LauncherArg::Auto),
        _ => {}
    }
    if let Some(manager) = PROCESS_MANAGERS.iter().find(|known| known.option == name) {
        return Ok(LauncherArg::Manager(manager));
    }
    let values = launcher_values();
    let bad = BadValue::new(format!("expected one of {}", values.join(", ")));
    let is_mpi = ["mpi", "mpirun", "mpiexec"].contains(&&*name);
    Err(match nearest(&name, values) {
        _ if is_mpi => bad.help(format!("{}: the MPI of `mpirun` here", mpi_values())),
        _ if name == "srun" => bad.help("type `slurm`, which starts the agents by `srun`"),
        _ if ["torchrun", "accelerate"].contains(&&*name) => {
            bad.help(format!("leave it out; `remuda {name}` reads lines of {name}"))
        }
        Some(near) => bad.help(format!("did you mean `{near}`?")),
        None => bad.help("`pdsh` and `ssh` both connect to the hosts over ssh"),
    })
}

/// Checks the value of `--launcher`, and keeps it as it is.
pub(in crate::cli) fn parse_launcher_word(text: &str) -> Result<String, BadValue> {
    parse_launcher(text).map(|_| text.to_owned())
}

pub(super) fn parse_stdin(text: &str) -> Result<StdinArg, BadValue> {
    match text {
        "all" => Ok(StdinArg::All),
        "none" => Ok(StdinArg::None),
        _ => match parse_whole(text, 0..=i64::from(u32::MAX)) {
            Ok(rank) => Ok(StdinArg::Rank(rank as u32)),
            Err(_) => Err(BadValue::new("expected a rank, `all` or `none`")),
        },
    }
}

/// Parses a duration: `10`, `10s`, `500ms`, `2m`, `1h`.
pub(in crate::cli) fn parse_duration(text: &str) -> Result<Duration, BadValue> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ if number.is_empty() => return Err(not_a_duration()),
        _ => {
            return Err(BadValue::new(format!("`{}` is not a unit of time", show_typed(unit)))
                .help("write ms, s, m or h: `500ms`, `10s`, `2m`, `1h`"));
        }
    };
    let number: f64 = number.parse().map_err(|_| not_a_duration())?;
    match Duration::try_from_secs_f64(number * seconds) {
        Ok(time) if time <= DURATION_MAX => Ok(time),
        _ => Err(BadValue::new("this time is too long").help("write 720h at most")),
    }
}

fn not_a_duration() -> BadValue {
    BadValue::new("expected a time").help("write a number and a unit: `500ms`, `10s`, `2m`, `1h`")
}

/// Parses a time limit. 0 is refused, because it would end every job.
pub(in crate::cli) fn parse_timeout(text: &str) -> Result<Duration, BadValue> {
    match parse_duration(text)? {
        Duration::ZERO => Err(BadValue::new("the timeout must be greater than 0")
            .help("leave it out for no limit, or write one: `90`, `2m`, `1h`")),
        limit => Ok(limit),
    }
}

/// Parses the time for which a process waits.
pub(super) fn parse_wait(text: &str) -> Result<Duration, BadValue> {
    match parse_duration(text)? {
        Duration::ZERO => Err(BadValue::new("the timeout must be greater than 0")
            .help("write how long to wait: `90`, `2m`")),
        limit => Ok(limit),
    }
}

/// Parses a lease. It must be longer than a short stall of the machine, which would end healthy
/// jobs.
pub(super) fn parse_lease(text: &str) -> Result<Duration, BadValue> {
    match parse_duration(text)? {
        lease if lease < LEASE_MIN => {
            Err(BadValue::new("the minimum lease is 500ms").help("write 500ms or more"))
        }
        lease => Ok(lease),
    }
}

/// Parses a TCP port for listening or connecting.
pub(super) fn parse_port(text: &str) -> Result<u16, BadValue> {
    parse_whole(text, 1..=65535).map(|port| port as u16)
}

/// Parses the port of rank 0; the error suggests to leave the option out.
pub(super) fn parse_master_port(text: &str) -> Result<u16, BadValue> {
    parse_port(text)
        .map_err(|bad| bad.help("without `--master_port` the port is 29500, or a free port"))
}

/// Parses a name or an address of rank 0 of torch; an empty text is the same as no option, as in
/// DeepSpeed.
pub(super) fn parse_master_addr(text: &str) -> Result<String, BadValue> {
    if text.is_empty() || text.parse::<IpAddr>().is_ok() {
        return Ok(text.to_owned());
    }
    match HostName::parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(BadValue::new(error.to_string())
            .help("write the name or the address of the first node")),
    }
}

/// Parses a name for a job, which is part of the names of files and processes.
pub(super) fn parse_job_id(text: &str) -> Result<String, BadValue> {
    const BYTES_MAX: usize = 63;
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let begins_well = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins_well && text.len() <= BYTES_MAX && text.bytes().all(is_good) {
        return Ok(text.to_owned());
    }
    Err(BadValue::new("expected letters, digits, `-`, `_` and `.`, 63 at most")
        .help("a name such as `llama-7b.3`, the same on every node"))
}

/// Parses a process id, or DeepSpeed's 0 for none.
pub(super) fn parse_pid(text: &str) -> Result<u32, BadValue> {
    parse_whole(text, 0..=i64::from(i32::MAX)).map(|pid| pid as u32)
}

/// Parses a whole number.
pub(super) fn parse_int(text: &str) -> Result<i64, BadValue> {
    parse_whole(text, i64::MIN..=i64::MAX)
}

/// Parses a whole number of at least 1.
pub(in crate::cli) fn parse_positive_int(text: &str) -> Result<u64, BadValue> {
    parse_whole(text, 1..=i64::MAX).map(|number| number as u64)
}

/// Checks a count whose range depends on the pool; the result is the text itself. `2:4` is accepted
/// here, because the selection has a better error for it.
pub(super) fn parse_count(text: &str) -> Result<String, BadValue> {
    let is_range = text
        .split_once(':')
        .is_some_and(|(low, high)| python_int(low).and(python_int(high)).is_some());
    if is_range { Ok(text.to_owned()) } else { parse_int(text).map(|_| text.to_owned()) }
}

/// Parses a number of slots of a host.
pub(in crate::cli) fn parse_slots(text: &str) -> Result<SlotCount, BadValue> {
    let slots = parse_whole(text, 1..=i64::from(SLOTS_MAX))?;
    Ok(SlotCount::new(slots as u32).expect("it is within the limits"))
}

/// Parses words for another program.
pub(super) fn parse_words(text: &str) -> Result<Words, BadValue> {
    line::split(text).map(Words)
}

/// Parses `0,2-4,6,8-9`: processors in ascending order without repetition.
pub(super) fn parse_cores(text: &str) -> Result<CoreList, BadValue> {
    let mut ranges: Vec<RangeInclusive<u32>> = Vec::new();
    for item in text.split(',') {
        let range = parse_core_range(item)?;
        if ranges.last().is_some_and(|last| range.start() <= last.end()) {
            let label = format!("`{item}` is not greater than the processor before it");
            return Err(BadValue::new(label)
                .help("list processors in ascending order, each once: `0,2-4,6`"));
        }
        ranges.push(range);
    }
    Ok(CoreList(ranges))
}

fn parse_core_range(item: &str) -> Result<RangeInclusive<u32>, BadValue> {
    let shown = show_typed(item);
    let number = |text: &str| match python_int(text).and_then(|core| u32::try_from(core).ok()) {
        Some(core) if core < CORES_MAX => Ok(core),
        Some(core) => Err(BadValue::new(format!("no machine has a processor {core}"))),
        None => Err(BadValue::new(format!("`{shown}` is not a processor or a range of them"))
            .help("write numbers and ranges with commas: `0,2-4,6`")),
    };
    let (first, last) = match item.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(item)?, number(item)?),
    };
    if first <= last {
        return Ok(first..=last);
    }
    Err(BadValue::new(format!("the range `{shown}` is descending"))
        .help(format!("write `{last}-{first}`")))
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
    fn durations_have_units() {
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

    #[track_caller]
    fn check_cores(text: &str, expect: Result<&str, &str>) {
        let found = parse_cores(text).map(|CoreList(ranges)| format!("{ranges:?}"));
        let found = found.as_deref().map_err(|bad| &*bad.label);
        assert_eq!(found, expect, "for `{text}`");
    }

    #[test]
    fn lists_of_cores_are_ascending() {
        check_cores("0,2-4,6,8-9", Ok("[0..=0, 2..=4, 6..=6, 8..=9]"));
        check_cores("5-1", Err("the range `5-1` is descending"));
        check_cores("a", Err("`a` is not a processor or a range of them"));
        check_cores("1-2-3", Err("`1-2-3` is not a processor or a range of them"));
        check_cores("", Err("`` is not a processor or a range of them"));
        check_cores("0,,1", Err("`` is not a processor or a range of them"));
        check_cores("0-3,3", Err("`3` is not greater than the processor before it"));
        check_cores("4,2", Err("`2` is not greater than the processor before it"));
        check_cores("0-9999999", Err("no machine has a processor 9999999"));
    }
}
