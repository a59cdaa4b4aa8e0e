//! The hosts of `-H` or `--mpirun_hostfile` in a line of accelerate: how many machines they are, and whether they have
//! slots for the workers. Starts nothing; `job` calls it.

use std::path::Path;

use super::args::AccelerateArgs;
use super::settings::{Settings, refuse_setting};
use crate::base::{Diagnostic, HostName, Slot, nearest, show_typed};
use crate::cli::args::values::launcher_values;
use crate::cli::error::CliError;
use crate::cli::line::{CommandLine, codes};
use crate::cli::resolve::hostfile::{LoadError, load_value, slots_option};
use crate::cli::resolve::trust::Trust;
use crate::config::accelerate::ConfigFile;
use crate::os::files::input_file::is_pipe;
use crate::pool::{Pool, ReadOptions, SLOTS_MAX, SlotCount};
use crate::report::Terminal;
use crate::report::text::show_count;

/// Setting that names the hosts of a job on CPUs.
pub(super) const MPI_HOSTS: &str = "mpirun_hostfile";

/// The option or the setting that names the hosts of a job.
#[derive(Clone, Copy)]
pub(super) struct HostsSetting<'a> {
    /// Name of the option in the code.
    pub(super) flag: &'static str,
    /// The same as users write it.
    pub(super) name: &'static str,
    /// Hostfile, or list of hosts.
    pub(super) path: &'a Path,
}

impl<'a> HostsSetting<'a> {
    /// Returns the hosts of the line, or those of the settings.
    pub(super) fn of(args: &'a AccelerateArgs, of_mpi: Option<&'a str>) -> Option<Self> {
        let of_line = args.hostfile.as_ref().map(|hosts| Self {
            flag: "hostfile",
            name: "-H",
            path: Path::new(hosts),
        });
        let of_mpi = of_mpi.map(|hosts| Self {
            flag: MPI_HOSTS,
            name: "--mpirun_hostfile",
            path: Path::new(hosts),
        });
        of_line.or(of_mpi)
    }
}

/// Returns the number of machines: that of the line or of the file, else the number of hosts.
///
/// # Errors
/// If the workers cannot be divided among the hosts. Hosts that cannot be read are reported where they are
/// used.
pub(super) fn machines(
    args: &AccelerateArgs,
    typed: &CommandLine,
    settings: &Settings,
    file: Option<&ConfigFile>,
    hosts_setting: Option<HostsSetting<'_>>,
) -> Result<usize, CliError> {
    let given = is_given(args, settings).then(|| settings.whole("num_machines").unwrap_or(1));
    let given = given.map(|machines| machines.max(1) as usize);
    let workers = settings.whole("num_processes").and_then(|all| usize::try_from(all).ok());
    let Some(HostsSetting { flag, name, path }) = hosts_setting else {
        return Ok(given.unwrap_or(1));
    };
    if std::fs::metadata(path).is_ok_and(|found| is_pipe(&found)) {
        // The hosts of a pipe are read once, by the job.
        return given.ok_or_else(|| no_machines(typed, flag));
    }
    let Some(pool) = read(path, workers) else { return Ok(given.unwrap_or(1)) };
    let hosts = pool.nodes();
    if let Some(machines) = given.filter(|machines| hosts.len() < *machines) {
        let why = format!("`{name}` names {}", show_count(hosts.len(), "host"));
        let help = |_: &str| format!("name more hosts, or write `--num_machines {}`", hosts.len());
        return Err(refuse(typed, file, ("num_machines", machines), &why, help));
    }
    let machines = given.unwrap_or(hosts.len()).max(1);
    if let Some(workers) = workers {
        let split = Split { workers, machines };
        // accelerate rounds the shares of a given number of machines down.
        if given.is_none() {
            split.check_equal(typed, file, name)?;
        }
        split.check_slots(typed, file, &hosts[..machines.min(hosts.len())])?;
    }
    Ok(machines)
}

/// Whether the line or the file says how many machines there are. The 1 of a file is what
/// `accelerate config` writes for a single machine, and hosts of the line outrank it.
pub(super) fn is_given(args: &AccelerateArgs, settings: &Settings) -> bool {
    let several = settings.whole("num_machines").is_some_and(|machines| 1 < machines);
    args.is_typed("num_machines") || several
}

/// Reads the hosts; those without a number of slots have as many as there are workers.
fn read(path: &Path, workers: Option<usize>) -> Option<Pool> {
    let options = ReadOptions { slots: Some(slots_for(workers)), ..ReadOptions::default() };
    let reading = load_value(path, Trust::All, options, None).ok()?;
    Some(reading.hostfile.pool())
}

/// Refuses hosts without a number of slots where the line gives no number of workers.
pub(super) fn check_slots(args: &AccelerateArgs, typed: &CommandLine) -> Result<(), CliError> {
    let path = args.hostfile.as_ref().map(Path::new);
    let path = path.filter(|path| !std::fs::metadata(path).is_ok_and(|found| is_pipe(&found)));
    let slots_option = slots_option(&typed.program);
    let options = ReadOptions { slots_option, ..ReadOptions::default() };
    match path.map(|path| load_value(path, Trust::All, options, None)) {
        Some(Err(error @ LoadError::Malformed(_))) => {
            let error = error.named_as(typed);
            let text = error.screen(Terminal::detect().paint);
            Err(CliError::Screen { status: error.status(), text })
        }
        _ => Ok(()),
    }
}

/// Refuses a launcher of several machines that neither DeepSpeed nor remuda has.
pub(super) fn check_launcher(
    launcher: &str,
    typed: &CommandLine,
    file: Option<&ConfigFile>,
) -> Result<(), CliError> {
    const NAME: &str = "deepspeed_multinode_launcher";
    let known = || ["standard", "nossh"].into_iter().chain(launcher_values());
    if known().any(|name| name == launcher.to_lowercase()) {
        return Ok(());
    }
    let label = format!("expected one of {}", known().collect::<Vec<_>>().join(", "));
    let near = nearest(launcher, known()).map(|near| format!("did you mean `{near}`?"));
    Err(refuse_setting(typed, file, NAME, |span, place| {
        let message = format!("`{}` cannot be `{}`", place.name(NAME), show_typed(launcher));
        let refused = Diagnostic::error(place.code(), span, message).label(label);
        near.into_iter().fold(refused, Diagnostic::help)
    }))
}

/// Refuses the hostfile of DeepSpeed's settings if it cannot be read, or if one of its hosts has too few
/// slots for the workers of a machine. `split` is absent if selectors choose the slots.
pub(super) fn check_deepspeed_hostfile(
    path: &Path,
    typed: &CommandLine,
    file: Option<&ConfigFile>,
    split: Option<Split>,
) -> Result<(), CliError> {
    // The job decides later whether it trusts the owner of the file.
    let slots = Some(slots_for(split.map(Split::share)));
    match load_value(path, Trust::All, ReadOptions { slots, ..ReadOptions::default() }, None) {
        Ok(reading) => {
            let pool = reading.hostfile.pool();
            split.map_or(Ok(()), |split| split.check_slots(typed, file, pool.nodes()))
        }
        Err(error @ LoadError::Missing(_)) => {
            Err(refuse_setting(typed, file, "deepspeed_hostfile", |span, place| {
                Diagnostic::error(place.code(), span, error.to_string())
                    .label("no such file")
                    .help("correct the path, or write the hosts in the line: `-H n1,n2`")
            }))
        }
        Err(error) => {
            let text = error.screen(Terminal::detect().paint);
            Err(CliError::Screen { status: error.status(), text })
        }
    }
}

/// Returns the number of slots of a host that has none in the list: as many as it needs.
fn slots_for(workers: Option<usize>) -> SlotCount {
    let slots = workers.unwrap_or(1).clamp(1, SLOTS_MAX as usize);
    SlotCount::new(slots as u32).expect("it is within the limits")
}

/// The workers of a job, which the machines share.
#[derive(Clone, Copy)]
pub(super) struct Split {
    pub(super) workers: usize,
    pub(super) machines: usize,
}

impl Split {
    /// Returns the number of workers of a machine.
    pub(super) fn share(self) -> usize {
        (self.workers / self.machines.max(1)).max(1)
    }

    /// Refuses workers that cannot be divided equally among the machines.
    fn check_equal(
        self,
        typed: &CommandLine,
        file: Option<&ConfigFile>,
        hosts: &str,
    ) -> Result<(), CliError> {
        let Self { workers, machines } = self;
        if workers.is_multiple_of(machines) {
            return Ok(());
        }
        let why = format!(
            "{} cannot be divided equally among the {machines} hosts of `{hosts}`",
            show_count(workers, "worker")
        );
        Err(self.refuse_workers(typed, file, &why, &format!("a multiple of {machines}")))
    }

    /// Refuses hosts with fewer slots than the workers of a machine.
    fn check_slots(
        self,
        typed: &CommandLine,
        file: Option<&ConfigFile>,
        hosts: &[(HostName, Vec<Slot>)],
    ) -> Result<(), CliError> {
        let share = self.share();
        let too_small = hosts.iter().find(|(_, slots)| slots.len() < share);
        let Some((host, slots)) = too_small.filter(|_| 0 < self.workers) else { return Ok(()) };
        let fewest = hosts.iter().map(|(_, slots)| slots.len()).min().unwrap_or(1);
        let why = format!(
            "{} on each of {}, but `{host}` has {}",
            show_count(share, "worker"),
            show_count(self.machines, "host"),
            show_count(slots.len(), "slot")
        );
        let fitting = format!("{} or less", fewest * self.machines);
        Err(self.refuse_workers(typed, file, &why, &fitting))
    }

    fn refuse_workers(
        self,
        typed: &CommandLine,
        file: Option<&ConfigFile>,
        why: &str,
        fitting: &str,
    ) -> CliError {
        refuse(typed, file, ("num_processes", self.workers), why, |name| {
            format!("`{name}` is the number of all workers: write {fitting}")
        })
    }
}

fn refuse(
    typed: &CommandLine,
    file: Option<&ConfigFile>,
    (setting, value): (&str, usize),
    why: &str,
    help: impl Fn(&str) -> String,
) -> CliError {
    refuse_setting(typed, file, setting, |span, place| {
        let name = place.name(setting);
        let message = format!("`{name}` cannot be {value}: {why}");
        Diagnostic::error(place.code(), span, message).label("out of range").help(help(&name))
    })
}

fn no_machines(typed: &CommandLine, flag: &str) -> CliError {
    let refused = typed.refuse(&[typed.value_or_end(flag)], |spans| {
        let message = "the number of machines is not given";
        Diagnostic::error(codes::NEEDS_OTHER, spans[0], message)
            .label("a pipe, which is read once")
            .help("give `--num_machines N`, or write the hosts to a file")
    });
    refused.into()
}
