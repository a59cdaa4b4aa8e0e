//! A line of `accelerate launch` as a job of remuda.

use std::ffi::OsString;
use std::path::Path;

use super::args::{AccelerateArgs, launch_definition};
use super::config_file;
use super::count::{check_count_without_gpus, check_gpu_ids, no_count, processes};
use super::environment::{LaunchFacts, WorkerVariable, slow_links, variables};
use super::hosts::{self, HostsSetting, MPI_HOSTS, Split};
use super::machine::{given_rank, machine_number};
use super::made_lines::{applied_variables, made_line};
use super::notes::{
    note_of_cpus, note_of_shares, warning_of_needed_gpus, warning_of_no_gpus, warning_of_no_hosts,
};
use super::settings::{Settings, refuse_setting};
use crate::base::diagnostic::Severity;
use crate::base::{Diagnostic, Findings, Slot, Status, env_vars};
use crate::cli::args::{RunArgs, check, remote_flag, remote_words};
use crate::cli::command::run;
use crate::cli::command::torchrun;
use crate::cli::error::CliError;
use crate::cli::face::torchrun::job::{self as torch_job, TorchLauncher};
use crate::cli::face::torchrun::notes::{no_effect, note_of_hosts, warning_of_one};
use crate::cli::line::{CommandLine, cannot_combine, codes, needs_other, python_int};
use crate::cli::resolve::environment::working_directory;
use crate::cli::resolve::{self, ResolvedCluster};
use crate::cli::start::{Face, JobArgs, launcher_flags, start_as};
use crate::config::accelerate::{ConfigFile, NOT_SUPPORTED, Paradigm};
use crate::inventory;
use crate::launch::LauncherFlag;
use crate::pool::SLOTS_MAX;
use crate::report::diagnostic::show_problems;
use crate::report::text::{paint_message, show_count};
use crate::report::{Terminal, print_error};

/// Options of which a line has one at most.
const KINDS: [(&str, Paradigm); 4] = [
    ("multi_gpu", Paradigm::MultiDevice),
    ("cpu", Paradigm::Simple),
    ("use_deepspeed", Paradigm::DeepSpeed),
    ("use_fsdp", Paradigm::Fsdp),
];

/// Option that sets the number of machines.
const MACHINES: &str = "--num_machines";

/// How the workers are started.
enum StartMethod {
    /// One process without a group.
    OneProcess,
    /// As torchrun does, with these options.
    Torchrun(Vec<OsString>),
    /// As DeepSpeed's launcher does, on the hosts of a hostfile, with these options.
    DeepSpeed(Vec<OsString>),
}

/// A job, from the settings.
struct AccelerateJob<'a> {
    settings: &'a Settings,
    args: &'a AccelerateArgs,
    typed: &'a CommandLine,
    paradigm: Paradigm,
    uses_cpu: bool,
    /// Whether the line or the file says that the workers use CPUs.
    says_cpu: bool,
    /// Whether this machine has GPUs of NVIDIA or Intel, or the file names devices that are not counted.
    has_devices: bool,
    /// GPUs of this machine.
    gpus: usize,
    processes: usize,
    machines: usize,
}

/// Runs the job of a line.
pub(in crate::cli) fn start(
    args: &AccelerateArgs,
    typed: &CommandLine,
) -> Result<Status, CliError> {
    refuse_unsupported(args, typed)?;
    check::script(&args.script_and_args, typed)?;
    refuse_two_kinds(args, typed)?;
    refuse_conflicts(args, typed)?;
    let file = config(args, typed)?;
    let terminal = Terminal::detect();
    if let Some(file) = &file {
        print_warnings(file, terminal);
    }
    let settings = Settings::collect(args, typed, file.as_ref())?;
    if !settings.is_on("module") && !settings.is_on("no_python") {
        check::python_script(&args.script_and_args, typed, &["no_python"])?;
    }
    let job = AccelerateJob::new(args, typed, &settings, file.as_ref())?;
    job.check_workers(file.as_ref())?;
    job.check_port(file.as_ref())?;
    job.check_rank(file.as_ref())?;
    job.check_fsdp(file.as_ref())?;
    let method = job.method(file.as_ref())?;
    let env = job.variables(file.as_ref())?;
    job.print_notes(&method, terminal);
    let applied = applied_variables(&env, typed, file.as_ref());
    let made = |program, options| {
        made_line(program, job.words(options), (typed, file.as_ref()), applied.clone())
    };
    match method {
        StartMethod::OneProcess => {
            let (args, made) = run::parse_made(made("remuda run", one_process_words(&env)))?;
            start_one(args, &made, terminal)
        }
        StartMethod::Torchrun(options) => {
            let (args, made) = torchrun::parse_made(made("remuda torchrun", options))?;
            let variables: Vec<String> = env.iter().map(WorkerVariable::assignment).collect();
            torch_job::start(&args, &made, TorchLauncher::Torchrun, &variables, flags)
        }
        StartMethod::DeepSpeed(mut options) => {
            options.extend(env_words(&env));
            let (args, made) = run::parse_made(made("remuda run", options))?;
            run::start(args, &made)
        }
    }
}

fn refuse_unsupported(args: &AccelerateArgs, typed: &CommandLine) -> Result<(), CliError> {
    let given = NOT_SUPPORTED.iter().find(|flag| args.is_typed(flag.name));
    let Some(flag) = given else { return Ok(()) };
    let refused = typed.refuse(&[typed.name_or_end(flag.name)], |spans| {
        let message = format!("`--{}` is not supported", flag.name);
        Diagnostic::error(codes::NOT_SUPPORTED, spans[0], message)
            .label("for TPUs or SageMaker")
            .help(if typed.program.starts_with("remuda ") {
                "type `accelerate launch` instead of `remuda accelerate launch`"
            } else {
                // A link of remuda has the name of accelerate.
                "type `python -m accelerate.commands.launch`, which is accelerate itself"
            })
    });
    Err(refused.into())
}

fn refuse_two_kinds(args: &AccelerateArgs, typed: &CommandLine) -> Result<(), CliError> {
    let mut given = KINDS.iter().map(|(name, _)| *name).filter(|name| args.is_typed(name));
    match (given.next(), given.next()) {
        (Some(first), Some(second)) => {
            Err(cannot_combine(typed, first, second, "a second kind of training").into())
        }
        _ => Ok(()),
    }
}

/// Refuses combinations that accelerate refuses.
fn refuse_conflicts(args: &AccelerateArgs, typed: &CommandLine) -> Result<(), CliError> {
    let value = |name: &str| args.matches.get_one::<String>(name).map(String::as_str);
    let processes = value("num_processes").and_then(python_int);
    if args.is_typed("multi_gpu") && processes.is_some_and(|count| count < 2) {
        let places = [typed.name_or_end("multi_gpu"), typed.value_or_end("num_processes")];
        let refused = typed.refuse(&places, |spans| {
            Diagnostic::error(codes::CANNOT_COMBINE, spans[0], "`--multi_gpu` needs two workers")
                .label("several GPUs")
                .related(spans[1], "fewer than two workers")
                .help("leave `--multi_gpu` out, or give `--num_processes 2` or more")
        });
        return Err(refused.into());
    }
    if args.is_typed("module") && args.is_typed("no_python") {
        return Err(cannot_combine(typed, "module", "no_python", "a module needs Python").into());
    }
    if args.is_typed("use_parallelism_config") && !args.is_typed("use_fsdp") {
        return Err(needs_other(typed, "use_parallelism_config", "use_fsdp").into());
    }
    Ok(())
}

/// Reads the file of the line, or the default file. `--cpu` alone reads none.
fn config(args: &AccelerateArgs, typed: &CommandLine) -> Result<Option<ConfigFile>, CliError> {
    if let Some(path) = args.matches.get_one::<String>("config_file") {
        return config_file::read(Path::new(path), Some(typed)).map(Some);
    }
    let path = config_file::default_path().filter(|_| !args.is_typed("cpu"));
    path.map(|path| config_file::read(&path, None)).transpose()
}

fn print_warnings(file: &ConfigFile, terminal: Terminal) {
    if file.warnings.is_empty() {
        return;
    }
    let findings = Findings { source: file.source.clone(), diagnostics: file.warnings.clone() };
    debug_assert!(findings.count(Severity::Error) == 0);
    print_error(&show_problems(&findings, terminal.paint));
}

impl<'a> AccelerateJob<'a> {
    fn new(
        args: &'a AccelerateArgs,
        typed: &'a CommandLine,
        settings: &'a Settings,
        file: Option<&ConfigFile>,
    ) -> Result<Self, CliError> {
        let gpus = resolve::visible_gpus();
        let typed_kind = KINDS.iter().find(|(name, _)| args.is_typed(name));
        let megatron = args.is_typed("use_megatron_lm").then_some(Paradigm::Megatron);
        let chosen = typed_kind.map(|(_, kind)| *kind).or(megatron);
        let has_devices = 0 < gpus || 0 < resolve::visible_xpus();
        if chosen == Some(Paradigm::MultiDevice) && !has_devices && file.is_none() {
            check_count_without_gpus(settings, typed)?;
        }
        let processes = processes(settings, file, typed, gpus)?;
        let guessed =
            if 1 < processes && 1 < gpus { Paradigm::MultiDevice } else { Paradigm::Simple };
        let paradigm = chosen.or(file.map(|file| file.paradigm)).unwrap_or(guessed);
        // Workers without a GPU form a group only if they are told to use the CPU.
        let is_cpu_group = paradigm == Paradigm::Simple && 1 < processes && !has_devices;
        let is_cpu_set = settings.is_on("cpu") || settings.is_on("use_cpu");
        let is_type_of_cpus =
            |file: &ConfigFile| file.paradigm == Paradigm::Simple && !file.is_for_one;
        let uses_cpu = is_cpu_set || is_cpu_group;
        if let Some(file) = file.filter(|_| paradigm == Paradigm::MultiDevice) {
            check_gpu_ids(settings, file, typed)?;
        }
        if processes == 0 && paradigm != Paradigm::Simple && !settings.is_on("cpu") {
            return Err(no_count(typed));
        }
        let mpi_hosts = settings.text(MPI_HOSTS).filter(|_| paradigm == Paradigm::Simple);
        let of_hosts = HostsSetting::of(args, mpi_hosts.as_deref());
        let machines = hosts::machines(args, typed, settings, file, of_hosts)?;
        let paradigm = if settings.is_on("cpu") { Paradigm::Simple } else { paradigm };
        Ok(Self {
            settings,
            args,
            typed,
            paradigm,
            uses_cpu,
            says_cpu: is_cpu_set || file.is_some_and(is_type_of_cpus),
            has_devices: has_devices || file.is_some_and(has_uncounted_devices),
            gpus,
            processes,
            machines,
        })
    }

    /// Whether the line gives the kind of training; the file's is ignored then.
    fn has_typed_kind(&self) -> bool {
        let kinds = KINDS.iter().map(|(name, _)| *name).filter(|name| *name != "cpu");
        kinds.chain(["use_megatron_lm"]).any(|name| self.args.is_typed(name))
    }

    /// Refuses workers of which a machine would have none or too many.
    fn check_workers(&self, file: Option<&ConfigFile>) -> Result<(), CliError> {
        const WORKERS: &str = "num_processes";
        let (all, machines) = (self.processes, self.machines);
        let needs_one_each = self.paradigm == Paradigm::DeepSpeed && 1 < machines;
        let smallest = if needs_one_each { machines } else { 0 };
        let largest = SLOTS_MAX as usize * machines;
        if (smallest..=largest).contains(&all) {
            return Ok(());
        }
        let shown = show_count(machines, "machine");
        Err(refuse_setting(self.typed, file, WORKERS, |span, place| {
            Diagnostic::error(place.code(), span, format!("`{WORKERS}` is {all}"))
                .label(format!("expected a number from {} to {largest}", smallest.max(1)))
                .help(format!(
                    "it is the number of all workers: {shown} with at most {SLOTS_MAX} each"
                ))
        }))
    }

    /// Refuses a port that does not exist.
    fn check_port(&self, file: Option<&ConfigFile>) -> Result<(), CliError> {
        const PORT: &str = "main_process_port";
        let largest = u16::MAX;
        let port = self.settings.whole(PORT).unwrap_or(0);
        if (0..=i64::from(largest)).contains(&port) {
            return Ok(());
        }
        Err(refuse_setting(self.typed, file, PORT, |span, _| {
            Diagnostic::error(codes::BAD_VALUE, span, format!("`{PORT}` is {port}"))
                .label(format!("expected a number from 0 to {largest}"))
        }))
    }

    /// Refuses a number that none of several machines has.
    fn check_rank(&self, file: Option<&ConfigFile>) -> Result<(), CliError> {
        const RANK: &str = "machine_rank";
        let (rank, machines) = (self.settings.whole(RANK).unwrap_or(0), self.machines);
        if machines == 1 || (0..machines as i64).contains(&rank) {
            return Ok(());
        }
        Err(refuse_setting(self.typed, file, RANK, |span, place| {
            Diagnostic::error(place.code(), span, format!("`{RANK}` is {rank}"))
                .label(format!("expected a number from 0 to {}", machines - 1))
                .help(format!("there are {machines} machines (`num_machines`); they count from 0"))
        }))
    }

    /// Refuses weights that only rank 0 loads and does not send.
    fn check_fsdp(&self, file: Option<&ConfigFile>) -> Result<(), CliError> {
        const LOADS: &str = "fsdp_cpu_ram_efficient_loading";
        const SENDS: &str = "fsdp_sync_module_states";
        let is_wrong = self.settings.is_on(LOADS) && !self.settings.is_on(SENDS);
        if self.paradigm != Paradigm::Fsdp || !is_wrong {
            return Ok(());
        }
        let message = format!("`{LOADS}` needs `{SENDS}`");
        let help = format!("set `{SENDS}` to true, or `{LOADS}` to false");
        Err(refuse_setting(self.typed, file, SENDS, |span, _| {
            Diagnostic::error(codes::NEEDS_OTHER, span, message)
                .label("rank 0 does not send the weights")
                .help(help)
        }))
    }

    /// Decides how the workers are started.
    fn method(&self, file: Option<&ConfigFile>) -> Result<StartMethod, CliError> {
        let launcher = self.settings.text("deepspeed_multinode_launcher");
        let launcher = launcher.unwrap_or_else(|| "pdsh".to_owned());
        let is_deepspeed = self.paradigm == Paradigm::DeepSpeed;
        if is_deepspeed && 1 < self.machines && launcher != "standard" {
            hosts::check_launcher(&launcher, self.typed, file)?;
            return self.deepspeed_words(&launcher, file).map(StartMethod::DeepSpeed);
        }
        let is_alone = self.processes <= 1 && self.machines == 1 && self.args.hostfile.is_none();
        if self.paradigm == Paradigm::Simple && is_alone && self.mpi_hosts().is_none() {
            let launcher = self.args.has_launcher.then_some("launcher");
            if let Some(flag) = launcher.or(remote_flag(self.typed)) {
                return Err(needs_other(self.typed, flag, "hostfile").into());
            }
            return Ok(StartMethod::OneProcess);
        }
        self.torchrun_words().map(StartMethod::Torchrun)
    }

    /// Returns the number that the line or the file gives this machine.
    fn given_rank(&self) -> Option<i64> {
        given_rank(self.args, self.settings, self.machines)
    }

    fn mpi_hosts(&self) -> Option<String> {
        self.settings.text(MPI_HOSTS).filter(|_| self.paradigm == Paradigm::Simple)
    }

    fn print_notes(&self, method: &StartMethod, terminal: Terminal) {
        let unused: &[&str] = match method {
            StartMethod::Torchrun(_) => &["machine_rank", "main_process_ip"],
            StartMethod::DeepSpeed(words) if !words.contains(&"--no_ssh".into()) => {
                &["machine_rank"]
            }
            StartMethod::DeepSpeed(_) | StartMethod::OneProcess => &[],
        };
        let hosts = self.args.hostfile.as_ref();
        let of_hosts = hosts.and_then(|_| note_of_hosts(self.typed, unused));
        let is_typed = |option: &&str| self.args.is_typed(option);
        let alone = match (self.machines, hosts) {
            (1, None) => ["machine_rank", "main_process_ip"].into_iter().find(is_typed),
            _ => None,
        };
        let of_machine =
            alone.map(|name| warning_of_one("machine", &no_effect(&format!("--{name}")), MACHINES));
        let notes = note_of_shares(self.split()).into_iter().chain(of_hosts).chain(of_machine);
        for note in notes.chain(self.note_of_devices()) {
            print_error(&paint_message(&note, terminal.paint));
        }
    }

    /// Says what several workers do on a machine without a GPU, if the settings do not say it.
    fn note_of_devices(&self) -> Option<String> {
        if self.processes < 2 || self.has_devices || self.says_cpu {
            return None;
        }
        let has_hosts = self.args.hostfile.is_some();
        // The shares of the machines are rounded down.
        let workers = self.split().share() * self.machines;
        match self.paradigm {
            Paradigm::Simple => Some(note_of_cpus(workers, has_hosts)),
            Paradigm::MultiDevice if !has_hosts => Some(warning_of_no_gpus(self.typed, workers)),
            Paradigm::DeepSpeed if !has_hosts && self.machines == 1 => {
                Some(warning_of_needed_gpus("DeepSpeed", workers))
            }
            Paradigm::Fsdp if !has_hosts => Some(warning_of_needed_gpus("FSDP", workers)),
            Paradigm::MultiDevice | Paradigm::DeepSpeed | Paradigm::Fsdp | Paradigm::Megatron => {
                None
            }
        }
    }

    fn split(&self) -> Split {
        Split { workers: self.processes, machines: self.machines }
    }

    /// Options of `remuda run` for DeepSpeed on several machines.
    fn deepspeed_words(
        &self,
        launcher: &str,
        file: Option<&ConfigFile>,
    ) -> Result<Vec<OsString>, CliError> {
        let mut words = Vec::new();
        let mut add = |flag, value| words.extend(option_word(flag, value));
        let split = self.split();
        let exclude = self.settings.text("deepspeed_exclusion_filter");
        let include = self.settings.text("deepspeed_inclusion_filter");
        let is_filtered = exclude.is_some() || include.is_some();
        let of_setting = || self.settings.text("deepspeed_hostfile").map(OsString::from);
        if let Some(path) = of_setting().filter(|_| self.args.hostfile.is_none()) {
            let split = Some(split).filter(|_| !is_filtered);
            hosts::check_deepspeed_hostfile(Path::new(&path), self.typed, file, split)?;
        }
        let hosts = self.args.hostfile.clone().or_else(of_setting);
        if hosts.is_none() && launcher != "nossh" && !resolve::has_usual_hosts(Terminal::detect())?
        {
            let warning =
                warning_of_no_hosts(self.machines, split.share(), self.given_rank().is_some());
            print_error(&paint_message(&warning, Terminal::detect().paint));
        }
        // A host may have no number of slots.
        add("slots", hosts.as_ref().map(|_| split.share().to_string()));
        if launcher == "nossh" {
            let found = machine_number(self.given_rank(), self.typed, self.machines)?;
            if let Some(note) = &found.note {
                print_error(&paint_message(note, Terminal::detect().paint));
            }
            add("node_rank", Some(found.number.to_string()));
        } else {
            add("launcher", (!self.args.has_launcher).then(|| launcher.to_owned()));
        }
        add("include", include.filter(|_| exclude.is_none()));
        add("exclude", exclude);
        add("num_gpus", (!is_filtered).then(|| (self.processes / self.machines).to_string()));
        add("master_addr", self.settings.text("main_process_ip"));
        let port = self.settings.whole("main_process_port").filter(|port| *port != 0);
        add("master_port", port.map(|port| port.to_string()));
        words.extend(hosts.into_iter().flat_map(|hosts| ["--hostfile".into(), hosts]));
        words.push(if launcher == "nossh" { "--no_ssh" } else { "--no_local_rank" }.into());
        Ok(words)
    }

    /// Options of torchrun for the job.
    fn torchrun_words(&self) -> Result<Vec<OsString>, CliError> {
        let mut words = Vec::new();
        let mut add = |flag, value| words.extend(option_word(flag, value));
        let hosts = self.args.hostfile.clone().or_else(|| self.mpi_hosts().map(OsString::from));
        let is_sized = self.settings.whole("num_processes").is_some();
        let has_hosts = hosts.is_some();
        if has_hosts && !is_sized {
            hosts::check_slots(self.args, self.typed)?;
        } else {
            add("nproc-per-node", Some(self.split().share().to_string()));
        }
        let port = self.settings.whole("main_process_port");
        let port_text = port.filter(|port| *port != 0).map(|port| port.to_string());
        let is_open = !has_hosts && 1 < self.machines;
        let address = self.settings.text("main_process_ip");
        if is_open && address.is_none() && !self.args.is_typed("machine_rank") {
            // A line of torchrun without an address uses the hosts of an allocation.
            resolve::allocated_nodes(Terminal::detect())?.ok_or_else(|| self.no_address())?;
            add("nnodes", Some(self.machines.to_string()));
            add("master-port", port_text);
        } else if is_open {
            let address = address.ok_or_else(|| self.no_address())?;
            add("nnodes", Some(self.machines.to_string()));
            add("node-rank", self.given_rank().map(|rank| rank.to_string()));
            let port = port_text.unwrap_or_else(|| crate::plan::MASTER_PORT.to_string());
            if self.settings.text("rdzv_backend").as_deref() == Some("static") {
                add("master-addr", Some(address));
                add("master-port", Some(port));
            } else {
                add("rdzv-endpoint", Some(format!("{address}:{port}")));
            }
        } else {
            let is_given = hosts::is_given(self.args, self.settings);
            let is_limited = is_given && (1 < self.machines || has_hosts);
            add("nnodes", is_limited.then(|| self.machines.to_string()));
            add("master-port", port_text);
            // accelerate gives every job a port, and torchrun a run id of its own only to jobs without one.
            let has_id = env_vars::get_text("PET_RDZV_ID").is_some();
            add("rdzv-id", (!has_id).then(|| "none".to_owned()));
        }
        add("rdzv-backend", self.settings.text("rdzv_backend"));
        let conf = self.settings.text("rdzv_conf").filter(|conf| !conf.is_empty());
        add("rdzv-conf", conf);
        add("max-restarts", self.settings.text("max_restarts"));
        add("role", self.settings.text("role"));
        add("tee", self.settings.text("tee"));
        add("log-dir", self.settings.text("log_dir"));
        words.extend(hosts.into_iter().flat_map(|hosts| ["--hostfile".into(), hosts]));
        Ok(words)
    }

    /// Returns these options, the other options that every way to start has, and the script.
    fn words(&self, mut words: Vec<OsString>) -> Vec<OsString> {
        for (setting, option) in [("module", "--module"), ("no_python", "--no_python")] {
            words.extend(self.settings.is_on(setting).then(|| option.into()));
        }
        words.extend_from_slice(&self.args.own_words);
        words.extend(remote_words(self.typed));
        words.push("--".into());
        words.extend_from_slice(&self.args.script_and_args);
        words
    }

    fn no_address(&self) -> CliError {
        let refused = self.typed.refuse(&[self.typed.value_or_end("num_machines")], |spans| {
            let message = "the address of machine 0 is not given";
            let help = if resolve::own_task().is_some() {
                "give `--main_process_ip HOST`: HOST is the machine of the first task; every machine has the number \
                 of its task"
            } else {
                "give `--main_process_ip HOST --machine_rank N` on every machine, or `-H n1,n2` on one"
            };
            Diagnostic::error(codes::NEEDS_OTHER, spans[0], message).label("several machines").help(help)
        });
        refused.into()
    }

    /// Returns the variables of the workers.
    fn variables(&self, file: Option<&ConfigFile>) -> Result<Vec<WorkerVariable>, CliError> {
        let mut fields = file.map_or_else(Vec::new, |file| file.deepspeed_keys.clone());
        let is_from_file = file.is_some_and(|file| {
            file.settings.iter().any(|setting| setting.name == "mixed_precision")
        });
        if is_from_file && !self.args.is_typed("mixed_precision") {
            fields.push("mixed_precision".to_owned());
        }
        let here = working_directory()?.to_string_lossy().into_owned();
        let path = env_vars::get_text(env_vars::PYTHONPATH).filter(|path| !path.is_empty());
        let has_xpus = self.gpus == 0 && 0 < resolve::visible_xpus();
        let facts = LaunchFacts {
            paradigm: self.paradigm,
            uses_cpu: self.uses_cpu,
            visible_devices: match file.and_then(|file| file.device_variable) {
                Some(variable) => variable,
                None if has_xpus => env_vars::ZE_AFFINITY_MASK,
                None => env_vars::CUDA_VISIBLE_DEVICES,
            },
            threads: self.threads(),
            deepspeed_fields: fields.join(","),
            python_path: path.map_or_else(|| here.clone(), |path| format!("{path}:{here}")),
            uses_megatron: self.paradigm == Paradigm::Megatron
                || self.args.is_typed("use_megatron_lm"),
            uses_parallelism: self.settings.is_on("use_parallelism_config")
                || !self.has_typed_kind() && file.is_some_and(|file| file.has_parallelism),
        };
        let mut found = variables(self.settings, &facts);
        if self.paradigm != Paradigm::Simple && 1 < self.gpus {
            let given = |name: &str| env_vars::get(name).is_some();
            found.extend(slow_links(&inventory::gpus_and_driver(), given));
        }
        Ok(found)
    }

    /// OMP_NUM_THREADS of a worker: that of the environment; on CPUs the machine is shared out.
    fn threads(&self) -> u64 {
        if let Some(threads) = self.settings.whole("num_cpu_threads_per_process") {
            return threads.max(1) as u64;
        }
        let given = env_vars::get_text(env_vars::OMP_NUM_THREADS);
        if let Some(threads) = given.and_then(|text| text.trim().parse().ok()) {
            return threads;
        }
        let workers = self.split().share();
        if self.uses_cpu { (inventory::usable_cpus() / workers).max(1) as u64 } else { 1 }
    }
}

/// Whether a file names a kind of device that is not counted here.
fn has_uncounted_devices(file: &ConfigFile) -> bool {
    file.device_variable.is_some_and(|variable| variable != env_vars::CUDA_VISIBLE_DEVICES)
}

/// Options of `remuda run` for one process without a group.
fn one_process_words(env: &[WorkerVariable]) -> Vec<OsString> {
    let options = ["--accelerator=cpu", "--no_local_rank"].map(OsString::from);
    options.into_iter().chain(env_words(env)).collect()
}

/// Starts one process without a group.
fn start_one(args: RunArgs, made: &CommandLine, terminal: Terminal) -> Result<Status, CliError> {
    let RunArgs { watch, workers, program, .. } = args;
    let mut cluster = ResolvedCluster::here(vec![Slot(0)], None);
    let tasks = resolve::separate_tasks_note(MACHINES);
    for note in tasks.into_iter().chain(resolve::unused_nodes_note(MACHINES)) {
        cluster.warnings += &paint_message(&note, terminal.paint);
    }
    let settings = made.applied_settings();
    let job = JobArgs { watch: &watch, workers: &workers, settings, terminal };
    start_as(Face::OneProcess(flags), cluster, job, &program)
}

/// Options of `accelerate launch`.
fn flags() -> Vec<LauncherFlag> {
    launcher_flags(&launch_definition("accelerate launch"))
}

/// Returns an option with its value, if it has one.
fn option_word(flag: &str, value: Option<String>) -> Option<OsString> {
    value.map(|value| format!("--{flag}={value}").into())
}

fn env_words(env: &[WorkerVariable]) -> impl Iterator<Item = OsString> {
    env.iter().map(|variable| format!("--env={}", variable.assignment()).into())
}
