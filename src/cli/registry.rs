//! The registry of commands: one list, from which dispatch, help pages, completions and manual pages
//! are made.

use super::command::entry::{CommandEntry, CommandHelp};
use super::command::{
    accelerate, agent, bench, completion, config, doctor, explain, gpu_check, hostfile, k8s,
    launch, links, man, node, pod, run, sbatch, ssh, torchrun,
};
use super::face::torchrun::job::TorchLauncher;

#[cfg(feature = "train")]
use super::command::{checkpoint, sample, tokenize, train};

/// Every command, in the order of `remuda --help`; then those that remuda itself starts.
pub(super) const COMMANDS: &[CommandEntry] = &[
    CommandEntry {
        name: "run",
        help: Some(CommandHelp {
            summary: Some("Run a program on every slot of every host"),
            definition: run::definition,
        }),
        main: run::main,
    },
    CommandEntry {
        // As `torchrun` and `accelerate`, a name in front of which only `remuda` is added.
        name: "deepspeed",
        help: None,
        main: |words, _| run::main_as_deepspeed("remuda deepspeed", words),
    },
    CommandEntry {
        name: "pod",
        help: Some(CommandHelp {
            summary: Some("Run one node of a job in each Kubernetes pod, without ssh"),
            definition: pod::definition,
        }),
        main: |words, _| pod::main(words),
    },
    CommandEntry {
        name: "k8s",
        help: Some(CommandHelp { summary: Some(JOBS_OF_CLUSTERS), definition: k8s::definition }),
        main: |words, _| k8s::main(words),
    },
    CommandEntry {
        name: "sbatch",
        help: Some(CommandHelp { summary: Some(JOBS_OF_CLUSTERS), definition: sbatch::definition }),
        main: sbatch::main,
    },
    CommandEntry {
        name: "torchrun",
        help: Some(CommandHelp { summary: Some(NODE_LINES), definition: torchrun::definition }),
        main: |words, _| torchrun::main("remuda torchrun", TorchLauncher::Torchrun, words),
    },
    CommandEntry {
        name: "torch.distributed.launch",
        help: Some(CommandHelp {
            summary: None,
            definition: torchrun::distributed_launch_definition,
        }),
        main: |words, _| {
            let program = "remuda torch.distributed.launch";
            torchrun::main(program, TorchLauncher::DistributedLaunch, words)
        },
    },
    CommandEntry {
        name: "torch.distributed.run",
        help: None,
        main: |words, _| {
            torchrun::main("remuda torch.distributed.run", TorchLauncher::Torchrun, words)
        },
    },
    CommandEntry {
        name: "launch",
        help: Some(CommandHelp { summary: Some(NODE_LINES), definition: launch::definition }),
        main: |words, _| launch::main(words),
    },
    CommandEntry {
        name: "accelerate",
        help: Some(CommandHelp {
            summary: Some("Run a script as `accelerate launch` does"),
            definition: accelerate::definition,
        }),
        main: |words, _| accelerate::main("remuda accelerate", words),
    },
    #[cfg(feature = "train")]
    CommandEntry {
        name: "train",
        help: Some(CommandHelp {
            summary: Some("Train a GPT or MLP with the bundled data-parallel runtime"),
            definition: train::definition,
        }),
        main: train::main,
    },
    #[cfg(feature = "train")]
    CommandEntry {
        name: "checkpoint",
        help: Some(CommandHelp {
            summary: Some("Show, verify, export and import checkpoints of trainings"),
            definition: checkpoint::definition,
        }),
        main: |words, _| checkpoint::main(words),
    },
    #[cfg(feature = "train")]
    CommandEntry {
        name: "tokenize",
        help: Some(CommandHelp { summary: Some(TEXTS), definition: tokenize::definition }),
        main: |words, _| tokenize::main(words),
    },
    #[cfg(feature = "train")]
    CommandEntry {
        name: "sample",
        help: Some(CommandHelp { summary: Some(TEXTS), definition: sample::definition }),
        main: |words, _| sample::main(words),
    },
    CommandEntry {
        name: "bench",
        help: Some(CommandHelp {
            summary: Some("Measure collectives between all ranks, as nccl-tests does"),
            definition: bench::definition,
        }),
        main: bench::main,
    },
    CommandEntry {
        name: "ssh",
        help: Some(CommandHelp {
            summary: Some("Run a command once on every host and gather the output"),
            definition: ssh::definition,
        }),
        main: ssh::main,
    },
    CommandEntry {
        name: "hostfile",
        help: Some(CommandHelp {
            summary: Some("Check, format, convert, show and compare hostfiles"),
            definition: hostfile::definition,
        }),
        main: |words, _| hostfile::main(words),
    },
    CommandEntry {
        name: "config",
        help: Some(CommandHelp {
            summary: Some("Check training configurations, and `remuda.toml`"),
            definition: config::definition,
        }),
        main: config::main,
    },
    CommandEntry {
        name: "doctor",
        help: Some(CommandHelp {
            summary: Some("Check every host before a job"),
            definition: doctor::definition,
        }),
        main: doctor::main,
    },
    CommandEntry {
        name: "explain",
        help: Some(CommandHelp { summary: Some(PAGES), definition: explain::definition }),
        main: |words, _| explain::main(words),
    },
    CommandEntry {
        name: "man",
        help: Some(CommandHelp { summary: Some(PAGES), definition: man::definition }),
        main: man::main,
    },
    CommandEntry {
        name: "completion",
        help: Some(CommandHelp { summary: Some(INSTALLATION), definition: completion::definition }),
        main: completion::main,
    },
    CommandEntry {
        name: "links",
        help: Some(CommandHelp { summary: Some(INSTALLATION), definition: links::definition }),
        main: |words, _| links::main(words),
    },
    CommandEntry { name: "agent", help: None, main: |words, _| Ok(agent::main(&words)) },
    CommandEntry { name: "node", help: None, main: |words, _| node::main(&words) },
    #[cfg(feature = "train")]
    CommandEntry {
        name: train::WORKER_COMMAND,
        help: None,
        main: |words, _| train::worker_main(words),
    },
    CommandEntry {
        name: gpu_check::CHECK_COMMAND,
        help: None,
        main: |words, _| gpu_check::main(&words),
    },
    CommandEntry {
        name: bench::WORKER_COMMAND,
        help: None,
        main: |words, _| bench::worker_main(words),
    },
];

/// Summary of two commands, which have one line on the first page.
const JOBS_OF_CLUSTERS: &str = "Print manifests for Kubernetes, or submit a job to Slurm";
/// The same, of two others.
const NODE_LINES: &str = "Run a line of torchrun, or of `deepspeed.launcher.launch`";
/// The same, of two others.
const PAGES: &str = "Explain a code such as `H003`, or show a manual page";
/// The same, of two others.
const INSTALLATION: &str = "Print shell completions, or make links named `torchrun`…";
/// The same, of two others.
#[cfg(feature = "train")]
const TEXTS: &str = "Write the tokens of texts, or continue a text with a GPT";
