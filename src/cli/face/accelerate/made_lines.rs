//! Lines of other commands that are made from the settings of a job: their errors are shown where the user
//! wrote the settings.

use std::ffi::OsString;

use super::environment::WorkerVariable;
use crate::cli::line::{
    AppliedOption, AppliedSettings, CommandLine, LineOrigin, RefusedInput, SettingOrigin,
    SettingPlace, SettingsSource,
};
use crate::config::accelerate::ConfigFile;
use crate::config::codes::BAD_CONFIG_VALUE;
use crate::report::diagnostic::show_place;

/// Options of torchrun and of `remuda run`, and the settings of accelerate from which they are made, where the
/// names differ.
const NAMES: &[(&str, &str)] = &[
    ("nproc_per_node", "num_processes"),
    ("num_gpus", "num_processes"),
    ("slots", "num_processes"),
    ("nnodes", "num_machines"),
    ("node_rank", "machine_rank"),
    ("master_addr", "main_process_ip"),
    ("rdzv_endpoint", "main_process_ip"),
    ("master_port", "main_process_port"),
    ("launcher", "deepspeed_multinode_launcher"),
    ("include", "deepspeed_inclusion_filter"),
    ("exclude", "deepspeed_exclusion_filter"),
    ("hostfile", "deepspeed_hostfile"),
    ("hostfile", "mpirun_hostfile"),
];

/// Returns a line of `program` with these words, which were made from a line of accelerate and its file.
pub(super) fn made_line(
    program: &str,
    words: Vec<OsString>,
    (typed, file): (&CommandLine, Option<&ConfigFile>),
    applied: AppliedSettings,
) -> CommandLine {
    let source = file.map(|file| {
        let places = file.settings.iter().map(|one| SettingPlace {
            name: one.name.clone(),
            flag: one.name.clone(),
            span: one.span,
            word: None,
        });
        SettingsSource {
            source: file.source.clone(),
            values: places.collect(),
            code: BAD_CONFIG_VALUE,
            input: RefusedInput::File,
        }
    });
    let origin = LineOrigin::translated(typed, NAMES, source);
    CommandLine::made(program, words, LineOrigin { applied: Some(applied), ..origin })
}

/// Returns where the variables of the workers are from, for a dry run: an option of accelerate, a line of its file,
/// or accelerate itself.
pub(super) fn applied_variables(
    env: &[WorkerVariable],
    typed: &CommandLine,
    file: Option<&ConfigFile>,
) -> AppliedSettings {
    let origin = |setting: &str| {
        if typed.last(setting).is_some() {
            return Some(SettingOrigin::Launcher(format!("--{setting}")));
        }
        let file = file?;
        let place = file.settings.iter().find(|one| one.name == setting)?;
        Some(SettingOrigin::Launcher(show_place(&file.source, place.span)))
    };
    let option = |variable: &WorkerVariable| AppliedOption {
        name: "env".to_owned(),
        value: Some(variable.assignment()),
        origin: variable
            .setting
            .as_deref()
            .and_then(origin)
            .unwrap_or_else(|| SettingOrigin::Launcher("accelerate".to_owned())),
    };
    AppliedSettings { local_file: None, options: env.iter().map(option).collect() }
}
