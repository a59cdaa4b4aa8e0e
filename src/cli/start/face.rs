//! What a job has of the launcher whose command line was typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::CommandFactory;

use crate::base::{Status, show_create_dir_error};
use crate::cli::args::RunArgs;
use crate::cli::codes::machine::CANNOT_CREATE;
use crate::cli::error::CliError;
use crate::cli::resolve::NO_PYTHON_OPTION;
use crate::launch::{Cores, LauncherFlag, Options};
use crate::plan::{Conventions, NumaBinding, Program, RendezvousPort, TorchrunConventions};
use crate::report::{
    AttemptDir, OutputStreams, Redirects, StreamSet, StreamSetDocument, StreamSettings,
};

/// Returns the options of a launcher, for hints about an option that was typed after the script.
pub(in crate::cli) type FaceFlags = fn() -> Vec<LauncherFlag>;

/// The launcher whose command line was typed.
#[derive(Clone, Debug)]
pub(in crate::cli) enum Face {
    /// remuda, or DeepSpeed's launcher.
    Remuda,
    /// The launchers of torch.
    Torchrun(Box<TorchrunFace>),
    /// A launcher that starts one process without a group; it has these options.
    OneProcess(FaceFlags),
}

/// What a job has of torchrun.
#[derive(Clone, Debug)]
pub(in crate::cli) struct TorchrunFace {
    pub(in crate::cli) conventions: TorchrunConventions,
    /// Whether the script is run with `runpy.run_path`.
    pub(in crate::cli) runs_path: bool,
    /// Port of rank 0.
    pub(in crate::cli) port: RendezvousPort,
    pub(in crate::cli) streams: TorchrunStreams,
    /// `--numa-binding`.
    pub(in crate::cli) numa_binding: Option<NumaBinding>,
    /// The option for programs that are not scripts of Python.
    pub(in crate::cli) no_python: String,
    /// Its options; other launchers that start torch's processes have their own.
    pub(in crate::cli) flags: FaceFlags,
}

/// Where torchrun's options send the streams of workers.
#[derive(Clone, Debug)]
pub(in crate::cli) struct TorchrunStreams {
    /// `--log-dir`.
    pub(in crate::cli) directory: Option<PathBuf>,
    pub(in crate::cli) redirected: StreamSet,
    pub(in crate::cli) tee: StreamSet,
    pub(in crate::cli) tee_prefix: TeePrefix,
    /// `--local-ranks-filter`.
    pub(in crate::cli) shown: Option<std::collections::BTreeSet<u32>>,
    /// `--duplicate-stdout-filters`.
    pub(in crate::cli) stdout_filters: Vec<String>,
    /// `--duplicate-stderr-filters`.
    pub(in crate::cli) stderr_filters: Vec<String>,
}

/// Prefix of the lines of `--tee`, with placeholders of remuda.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) enum TeePrefix {
    /// That of torchrun, with the name of the role.
    Usual(String),
    /// The one that the user gives.
    Given(String),
}

impl TeePrefix {
    /// Returns the prefix on a screen that shows this many nodes: a local rank is one worker of each.
    pub(in crate::cli) fn on_screen(&self, nodes: usize) -> String {
        match self {
            Self::Usual(role) if 1 < nodes => format!("[{{host}}:{role}{{local_rank}}]:"),
            Self::Usual(_) | Self::Given(_) => self.in_files(),
        }
    }

    /// Returns the prefix in the files of a node.
    pub(in crate::cli) fn in_files(&self) -> String {
        match self {
            Self::Usual(role) => format!("[{role}{{local_rank}}]:"),
            Self::Given(prefix) => prefix.clone(),
        }
    }
}

impl TorchrunStreams {
    fn settings(&self, nodes: usize) -> StreamSettings {
        StreamSettings {
            log_dir: self.directory.as_ref().map(|dir| dir.to_string_lossy().into_owned()),
            redirects: set_document(&self.redirected),
            tee: set_document(&self.tee),
            tee_prefix: self.tee_prefix.on_screen(nodes),
            shown_local_ranks: self.shown.clone(),
            stdout_filters: self.stdout_filters.clone(),
            stderr_filters: self.stderr_filters.clone(),
        }
    }
}

fn set_document(set: &StreamSet) -> StreamSetDocument {
    let name = |streams: OutputStreams| match streams {
        OutputStreams::None => "none",
        OutputStreams::Stdout => "stdout",
        OutputStreams::Stderr => "stderr",
        OutputStreams::Both => "both",
    };
    match set {
        StreamSet::Every(streams) => StreamSetDocument::Every(name(*streams)),
        StreamSet::Some(of_rank) => StreamSetDocument::Some(
            of_rank.iter().map(|(rank, streams)| (*rank, name(*streams))).collect(),
        ),
    }
}

/// Runs a script by its path, as `--run-path` of torchrun does.
const RUN_PATH: &str =
    "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')";

impl Face {
    /// Returns the program and its arguments as this launcher starts them.
    pub(super) fn program(
        &self,
        program: Program,
        args: Vec<OsString>,
    ) -> (Program, Vec<OsString>) {
        match (self, program) {
            (Self::Torchrun(face), Program::Python { script, interpreter, local_rank, .. })
                if face.runs_path =>
            {
                let words = ["-u".into(), "-c".into(), RUN_PATH.into(), script];
                let passed = local_rank.then(|| OsString::from("--local-rank=${local_rank}"));
                let program = Program::Exec { program: interpreter, local_rank: false };
                (program, words.into_iter().chain(passed).chain(args).collect())
            }
            (_, program) => (program, args),
        }
    }

    /// Returns the variables that workers expect.
    pub(super) fn conventions(&self) -> Conventions {
        match self {
            Self::Remuda => Conventions::DeepSpeed,
            Self::Torchrun(face) => Conventions::Torchrun(face.conventions.clone()),
            Self::OneProcess(_) => Conventions::OneProcess,
        }
    }

    /// Returns the port of rank 0, if the line says one.
    pub(super) fn port(&self, given: Option<u16>) -> RendezvousPort {
        match self {
            Self::Remuda => RendezvousPort::or_usual(given),
            Self::OneProcess(_) => RendezvousPort::Free,
            Self::Torchrun(face) => face.port,
        }
    }

    /// Returns what a dry run says about the streams of workers. `nodes` is the number of nodes whose output
    /// is written here.
    pub(super) fn stream_settings(&self, nodes: usize) -> Option<StreamSettings> {
        match self {
            Self::Torchrun(face) => Some(face.streams.settings(nodes)),
            Self::Remuda | Self::OneProcess(_) => None,
        }
    }

    /// Applies the options of this launcher for processors and streams. `nodes` is the number of nodes
    /// whose output is written here.
    pub(super) fn apply(&self, options: &mut Options, nodes: usize) -> Result<(), CliError> {
        let cores = self.numa_binding().map(Cores::NearGpus);
        options.devices.cores = cores.or(options.devices.cores.take());
        if matches!(self, Self::Torchrun(_)) {
            // torchrun restarts workers at once.
            options.failure.first_pause = Duration::ZERO;
        }
        self.redirect(options, nodes)
    }

    /// Returns the value of `--numa-binding`.
    pub(super) fn numa_binding(&self) -> Option<NumaBinding> {
        match self {
            Self::Torchrun(face) => face.numa_binding,
            Self::Remuda | Self::OneProcess(_) => None,
        }
    }

    /// Returns the options of this launcher.
    pub(super) fn flags(&self) -> FaceFlags {
        match self {
            Self::Remuda => || launcher_flags(&RunArgs::command()),
            Self::Torchrun(face) => face.flags,
            Self::OneProcess(flags) => *flags,
        }
    }

    /// Returns the option of this launcher for programs that are not scripts of Python.
    pub(super) fn no_python(&self) -> &str {
        match self {
            Self::Torchrun(face) => &face.no_python,
            Self::Remuda | Self::OneProcess(_) => NO_PYTHON_OPTION,
        }
    }

    /// Whether environment files of DeepSpeed are read.
    pub(super) fn reads_environment_files(&self) -> bool {
        matches!(self, Self::Remuda)
    }

    /// Sends the streams of workers where the line says.
    fn redirect(&self, options: &mut Options, nodes: usize) -> Result<(), CliError> {
        let Self::Torchrun(face) = self else { return Ok(()) };
        let TorchrunFace { conventions, streams, .. } = &**face;
        let has_files = !(streams.redirected.is_empty() && streams.tee.is_empty());
        if !has_files && streams.directory.is_none() && streams.shown.is_none() {
            return Ok(());
        }
        let several = 1 < nodes;
        let run_dir = options.output.run_dir.as_ref().map(|run| run.path().to_owned());
        let directory = match (&streams.directory, run_dir) {
            (Some(parent), _) => {
                let job = options.job.to_string();
                let name = match &conventions.run_id {
                    Some(run_id) => format!("{run_id}_{job}"),
                    None => job,
                };
                AttemptDir::create(parent, &name, several).map_err(|error| {
                    let (shown, why) = (parent.display(), show_create_dir_error(&error));
                    let message = format!("--log-dir: cannot create directory `{shown}`: {why}");
                    CliError::new(Status::CantCreate, CANNOT_CREATE, message)
                        .help("name a directory that you can write: `--log-dir DIR`")
                })?
            }
            (None, Some(run_dir)) => AttemptDir::of_run(run_dir, several),
            (None, None) => {
                let message = "--redirects and --tee need a directory, and the run has none";
                return Err(CliError::new(Status::CantCreate, CANNOT_CREATE, message)
                    .help("give `--log-dir DIR`"));
            }
        };
        if !streams.tee.is_empty() {
            // Lines of one worker have the prefix too.
            options.output.style.solo = None;
        }
        options.output.style.redirects = Some(Redirects {
            directory,
            redirected: streams.redirected.clone(),
            tee: streams.tee.clone(),
            tee_prefix: streams.tee_prefix.on_screen(nodes),
            file_prefix: streams.tee_prefix.in_files(),
            shown: streams.shown.clone(),
            stdout_filters: streams.stdout_filters.clone(),
            stderr_filters: streams.stderr_filters.clone(),
        });
        Ok(())
    }
}

/// Returns the options of a definition.
pub(in crate::cli) fn launcher_flags(command: &clap::Command) -> Vec<LauncherFlag> {
    let flag = |arg: &clap::Arg| {
        let longs = arg.get_long_and_visible_aliases().unwrap_or_default();
        let longs = longs.into_iter().map(|long| format!("--{long}"));
        let short = arg.get_short().map(|letter| format!("-{letter}"));
        LauncherFlag {
            spellings: longs.chain(short).collect(),
            takes_value: arg.get_action().takes_values(),
        }
    };
    command.get_arguments().filter(|arg| !arg.is_positional()).map(flag).collect()
}
