//! The whole command line as one definition, for whatever is made from it: completion and manuals. A
//! line is never parsed by it, so that a script called `train` stays a script.

use clap::{Command, CommandFactory, Parser};

use super::run::RunArgs;
use super::{HostfileFace, bench, completion, doctor, explain, k8s, launch, man, pod, ssh};

/// A cluster job runner, command-line compatible with the DeepSpeed launcher
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda", version, disable_help_subcommand = true)]
struct Whole;

/// `remuda` with all of its commands, in the order of `remuda --help`.
pub(super) fn whole() -> Command {
    Whole::command().subcommands([
        RunArgs::command().name("run"),
        pod::definition().name("pod"),
        k8s::definition().name("k8s"),
        launch::definition().name("launch"),
        #[cfg(feature = "train")]
        super::train::definition().name("train"),
        bench::definition().name("bench"),
        ssh::definition().name("ssh"),
        HostfileFace::command().name("hostfile"),
        doctor::definition().name("doctor"),
        explain::definition().name("explain"),
        completion::definition().name("completion"),
        man::definition().name("man"),
    ])
}
