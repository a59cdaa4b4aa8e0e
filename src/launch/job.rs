//! Jobs of programs: the launcher as a library.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::{Findings, HostName, JobId, Slot, Status, clock};
use crate::job::{FailureCause, PAUSE_MIN};
use crate::launch::options::{
    CauseRule, CommandOptions, ContinueWith, DeviceOptions, FailureOptions, Framing, GpuSharing,
    LaunchError, LimitOptions, Options, OutputOptions, StdinTo, SupervisorOptions, Transport,
};
use crate::launch::outcome::LaunchEnd;
use crate::launch::run::run_to_end;
use crate::os::files::input_file;
use crate::os::random::random_bytes;
use crate::plan::{
    self, Accelerator, Conventions, Export, JobSpec, LaunchPlan, MasterAddr, PlanError, Program,
    RendezvousPort,
};
use crate::pool::{self, HostSource, Pool, ReadOptions, SelectorArgs, SlotCount, Users};
use crate::report::diagnostic::{Paint, show_all};
use crate::report::text::MessageLevel;
use crate::report::{LogRetention, RunClass, RunDir, Style, Terminal};
use crate::secure::JobKey;
use crate::transport::ssh::{AGENT_LIMIT, SshConfig, SshOptions};
use crate::wire;

/// Time between the request to stop and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);
/// Time without a heartbeat after which a node is lost.
const LEASE: Duration = Duration::from_secs(30);
/// Maximum size of a hostfile, in bytes.
const HOSTFILE_BYTES_MAX: u64 = 64 << 20;

/// A distributed job that this program starts: what `remuda run` does, as a value.
///
/// The workers are processes of any program. They find each other by the variables that `remuda run`
/// sets. This program supervises them, shows their output and learns the first cause of a failure.
///
/// A program that uses this is its own agent, so its `main` first calls
/// [`serve_if_agent`](crate::agent::serve_if_agent):
///
/// ```no_run
/// use remuda::launch::Job;
///
/// fn main() -> Result<std::process::ExitCode, Box<dyn std::error::Error>> {
///     if let Some(status) = remuda::agent::serve_if_agent() {
///         return Ok(status.into());
///     }
///     let outcome = Job::hostfile("hosts")?
///         .include("n1@n2:0,1")
///         .python("train.py")
///         .args(["--lr", "0.1"])
///         .max_restarts(2)
///         .run()?;
///     Ok(outcome.status.into())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Job {
    pool: Pool,
    source: HostSource,
    selector: SelectorArgs,
    accelerator: Accelerator,
    program: Option<Program>,
    args: Vec<OsString>,
    exports: Vec<Export>,
    directory: Option<PathBuf>,
    run_dir: Option<PathBuf>,
    restarts_max: u32,
    time_limit: Option<Duration>,
    is_quiet: bool,
    transport: Transport,
}

/// How a [`Job`] ended.
#[derive(Clone, Debug)]
pub struct JobOutcome {
    /// Exit status of the job: that of the worker that failed first, or of remuda.
    pub status: Status,
    /// The failure that explains the end; `None`: every worker returned 0, or nothing was started.
    pub cause: Option<FailureCause>,
    /// Host of the cause, if it is known.
    pub host: Option<HostName>,
    /// The report that was printed about the end; empty if every worker returned 0.
    pub report: String,
}

/// Why a [`Job`] could not begin.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The hostfile could not be read.
    #[error("cannot read hostfile `{}`", .path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The hostfile, the names of hosts or a selector are invalid.
    #[error("{}", show_all(.0, Paint::Plain).trim_end())]
    Invalid(Vec<Findings>),
    /// A host or its number of slots is invalid.
    #[error("`{0}` is not a host with slots")]
    BadHost(String),
    /// [`Job::program`] or [`Job::python`] was not called.
    #[error("the job has no program")]
    NoProgram,
    /// Hosts, program and variables have no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The launch could not begin.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The kernel refused something.
    #[error("cannot start the job")]
    Os(#[from] io::Error),
}

impl Job {
    fn new(pool: Pool, source: HostSource, transport: Transport) -> Self {
        let accelerator = match transport {
            Transport::Local => Accelerator::Cpu,
            Transport::Ssh(_) | Transport::Dial(_) | Transport::Managed(_) => Accelerator::Cuda,
        };
        Self {
            pool,
            source,
            selector: SelectorArgs::default(),
            accelerator,
            program: None,
            args: Vec::new(),
            exports: Vec::new(),
            directory: None,
            run_dir: None,
            restarts_max: 0,
            time_limit: None,
            is_quiet: false,
            transport,
        }
    }

    /// Workers on this machine, at least one.
    pub fn local(workers: u32) -> Self {
        let host = HostName::parse("localhost").expect("a valid name");
        let pool = Pool::single(host, (0..workers.max(1)).map(Slot));
        Self::new(pool, HostSource::ThisMachine, Transport::Local)
    }

    /// Workers on the hosts of a hostfile in any dialect, over ssh, one for each slot.
    pub fn hostfile(path: impl AsRef<Path>) -> Result<Self, JobError> {
        let path = path.as_ref();
        let bytes = read(path).map_err(|source| {
            let path = path.to_owned();
            JobError::Unreadable { path, source }
        })?;
        let name = path.display().to_string();
        let reading = pool::read_any(&name, &bytes, ReadOptions::default());
        if reading.findings.has_errors() {
            return Err(JobError::Invalid(vec![reading.findings]));
        }
        let pool = reading.hostfile.pool();
        let transport = over_ssh(pool.users().clone());
        Ok(Self::new(pool, HostSource::Hostfile(name), transport))
    }

    /// Workers on these hosts, over ssh, with a number of slots for each host.
    pub fn hosts<'a>(hosts: impl IntoIterator<Item = (&'a str, u32)>) -> Result<Self, JobError> {
        let parse = |(name, slots): (&str, u32)| {
            let host = HostName::parse(name).ok();
            let found = host.zip(SlotCount::new(slots));
            found.ok_or_else(|| JobError::BadHost(format!("{name}:{slots}")))
        };
        let hosts = hosts.into_iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        Ok(Self::new(Pool::of(hosts), HostSource::typed_list(), over_ssh(Users::new())))
    }

    /// Uses these hosts and slots only: `HOST[:SLOT,…][@HOST…]`, as `--include`.
    #[must_use]
    pub fn include(mut self, filter: impl Into<String>) -> Self {
        self.selector.include = Some(filter.into());
        self
    }

    /// Does not use these hosts and slots, as `--exclude`.
    #[must_use]
    pub fn exclude(mut self, filter: impl Into<String>) -> Self {
        self.selector.exclude = Some(filter.into());
        self
    }

    /// Devices of the slots [default: GPUs of CUDA on hosts, CPUs on this machine].
    #[must_use]
    pub fn accelerator(mut self, accelerator: Accelerator) -> Self {
        self.accelerator = accelerator;
        self
    }

    /// Runs an executable as every worker.
    #[must_use]
    pub fn program(mut self, program: impl Into<OsString>) -> Self {
        self.program = Some(Program::Exec { program: program.into(), local_rank: false });
        self
    }

    /// Runs a script with the `python3` of PATH as every worker.
    #[must_use]
    pub fn python(mut self, script: impl Into<OsString>) -> Self {
        let (script, interpreter) = (script.into(), OsString::from("python3"));
        self.program =
            Some(Program::Python { script, module: false, local_rank: false, interpreter });
        self
    }

    /// Arguments of the program.
    #[must_use]
    pub fn args<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// A variable of every worker.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.exports.push(Export::flag(name.as_ref(), value.as_ref()));
        self
    }

    /// Working directory of the workers [default: that of this process].
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Parent of the directory with the output of all ranks and `run.json` [default: that of `remuda run`].
    #[must_use]
    pub fn run_dir(mut self, parent: impl Into<PathBuf>) -> Self {
        self.run_dir = Some(parent.into());
        self
    }

    /// Maximum number of restarts after a failure [default: 0].
    #[must_use]
    pub fn max_restarts(mut self, restarts: u32) -> Self {
        self.restarts_max = restarts;
        self
    }

    /// Time after which the job is stopped [default: none].
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Prints no line of remuda but errors; the output of workers is not affected.
    #[must_use]
    pub fn quiet(mut self) -> Self {
        self.is_quiet = true;
        self
    }

    /// Configuration that ssh reads in place of the user's, as `ssh -F`. No effect on this machine.
    #[must_use]
    pub fn ssh_config(mut self, file: impl Into<PathBuf>) -> Self {
        if let Transport::Ssh(ssh) = &mut self.transport {
            ssh.config = SshConfig::File(file.into());
        }
        self
    }

    /// Starts the workers and waits for the end of all of them.
    ///
    /// SIGINT, SIGTERM and SIGHUP stop the workers meanwhile; afterwards this process ignores them until it
    /// sets handlers of its own. Only one job runs at a time in a process.
    pub fn run(&self) -> Result<JobOutcome, JobError> {
        let plan = self.plan()?;
        let options = self.options(&plan)?;
        let LaunchEnd { status, text, cause, failure, .. } = run_to_end(&plan, &options)?;
        let host = cause.and_then(|node| plan.nodes.get(node.index()));
        let host = host.map(|node| node.host.clone());
        Ok(JobOutcome { status, cause: failure, host, report: text })
    }

    fn plan(&self) -> Result<LaunchPlan, JobError> {
        let selected = pool::select(&self.pool, &self.source, &self.selector);
        let selected = selected.map_err(JobError::Invalid)?;
        let master_addr = match self.transport {
            Transport::Local => MasterAddr::Given("127.0.0.1".to_owned()),
            _ => MasterAddr::AskNode0,
        };
        let spec = JobSpec {
            nodes: selected.pool.into_parts().0,
            accelerator: self.accelerator,
            device_names: Vec::new(),
            program: self.program.clone().ok_or(JobError::NoProgram)?,
            args: self.args.clone(),
            master_addr,
            master_port: RendezvousPort::Free,
            conventions: Conventions::DeepSpeed,
            restarts_max: self.restarts_max,
            exports: self.exports.clone(),
        };
        Ok(plan::plan(&spec)?)
    }

    fn options(&self, plan: &LaunchPlan) -> Result<Options, JobError> {
        let job = JobId::from_bytes(random_bytes()?);
        let run_dir = RunDir::create(self.run_dir.as_deref(), &job, RunClass::Job, clock::wall())?;
        let (program, script) = match self.program.clone().ok_or(JobError::NoProgram)? {
            Program::Exec { program, .. } => (program, None),
            Program::Python { script, interpreter, .. } => (interpreter, Some(script)),
        };
        Ok(Options {
            job,
            key: JobKey::from_random(random_bytes()?),
            command: CommandOptions {
                typed: std::env::args_os().collect(),
                flags: Vec::new,
                cwd: self.directory.clone().map_or_else(std::env::current_dir, Ok)?,
                program,
                script,
                files: Vec::new(),
                venv_script: None,
                kept_state: None,
                package: None,
            },
            limits: LimitOptions {
                grace: GRACE,
                lease: LEASE,
                heartbeat_interval: wire::heartbeat_interval(LEASE),
                job: self.time_limit,
                allocation: None,
                preflight: AGENT_LIMIT,
                group: Duration::ZERO,
            },
            failure: FailureOptions {
                restarts_max: self.restarts_max,
                first_pause: PAUSE_MIN,
                warning: None,
                lets_others_run: false,
                cause_rule: CauseRule::ExitCodes,
                continue_with: ContinueWith::Nothing,
            },
            output: self.output(run_dir, plan.world_size),
            devices: DeviceOptions {
                cores: None,
                gpu_sharing: match self.accelerator {
                    Accelerator::Cuda => GpuSharing::Exclusive,
                    _ => GpuSharing::None,
                },
            },
            stdin: StdinTo::None,
            supervisor: SupervisorOptions::default(),
            transport: self.transport.clone(),
            elastic: None,
        })
    }

    fn output(&self, run_dir: RunDir, workers: u32) -> OutputOptions {
        let terminal = Terminal::detect();
        let level = if self.is_quiet { MessageLevel::Error } else { MessageLevel::Info };
        OutputOptions {
            style: Style {
                prefix: None,
                solo: (workers == 1).then(crate::base::Rank::default),
                log_dir: Some(run_dir.path().to_owned()),
                retention: LogRetention::CAPPED,
                rank_files: None,
                redirects: None,
                gather: false,
                hide_after_peer_loss: false,
                least_message: level,
                terminal: if self.is_quiet { terminal.without_status() } else { terminal },
            },
            shows_progress: !self.is_quiet,
            announcement: String::new(),
            framing: if self.is_quiet { Framing::None } else { Framing::StartAndEnd },
            run_dir: Some(run_dir),
            log_dir: None,
            error_file: None,
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = input_file::InputReader::new(input_file::open(path)?)?;
    io::Read::read_to_end(&mut io::Read::take(file, HOSTFILE_BYTES_MAX), &mut bytes)?;
    Ok(bytes)
}

/// Every host, this machine included, over ssh as the user has configured it.
fn over_ssh(users: Users) -> Transport {
    Transport::Ssh(SshOptions { users, ..SshOptions::default() })
}
