//! Starts a job: its plan, the options of its launch, and what is printed before it.

mod announcement;
mod applied_options;
mod builtin_worker;
mod examination;
mod exports;
mod face;
mod job;
mod job_args;
mod log_files;
mod misplaced;
mod options;
mod preflight;
mod program;
mod size;

pub(super) use announcement::{print_local_file, print_replacements};
pub(super) use builtin_worker::{is_worker, join_group, this_executable, use_cpu_slots};
pub(super) use examination::{WantedProgram, collect_facts};
pub(super) use exports::exports;
pub(super) use face::{Face, FaceFlags, TeePrefix, TorchrunFace, TorchrunStreams, launcher_flags};
pub(super) use job::{print_command, start, start_as, start_program};
pub(super) use job_args::JobArgs;
pub(super) use options::{PrintedRanks, options};
pub(super) use program::WorkerProgram;
pub(super) use size::check_size;
