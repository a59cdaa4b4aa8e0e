//! The codes of errors of this machine and its environment (`M…`).

use crate::base::{Explanation, explanation};

/// An environment variable with an invalid value.
pub(in crate::cli) const BAD_VARIABLE: &str = "M001";
/// The number of devices is not known.
pub(in crate::cli) const DEVICES_UNKNOWN: &str = "M002";
/// No device is available.
pub(in crate::cli) const NO_DEVICE: &str = "M003";
/// There are fewer devices than workers.
pub(in crate::cli) const TOO_FEW_DEVICES: &str = "M004";
/// Python was not found.
pub(in crate::cli) const NO_PYTHON: &str = "M005";
/// A file or a directory that cannot be created.
pub(in crate::cli) const CANNOT_CREATE: &str = "M006";
/// A file or a directory that cannot be read.
pub(in crate::cli) const CANNOT_READ: &str = "M007";
/// Arguments or variables that workers cannot have.
pub(in crate::cli) const INVALID_FOR_WORKERS: &str = "M008";
/// Standard output cannot be written.
pub(in crate::cli) const CANNOT_PRINT: &str = "M009";
/// The operating system refused a basic operation.
pub(in crate::cli) const SYSTEM: &str = "M010";
/// A worker has no group to join.
pub(in crate::cli) const NO_GROUP: &str = "M011";
/// Slurm has not queued the batch job.
pub(in crate::cli) const NOT_QUEUED: &str = "M012";

/// The `remuda explain` page of every code.
pub(in crate::cli) const EXPLANATIONS: &[Explanation] = &[
    explanation(
        BAD_VARIABLE,
        "an environment variable has an invalid value",
        "The message names the variable and the values that it can have. remuda reads it because \
         DeepSpeed reads it as well (`DS_ACCELERATOR`, `LOCAL_SIZE`), or because an option needs \
         it (`--env NAME`, `--bind_cores_to_rank`). Correct it or `unset` it. An option with the \
         same meaning overrides it.",
    ),
    explanation(
        DEVICES_UNKNOWN,
        "the number of devices of this machine is not known",
        "remuda counts NVIDIA GPUs only. For another accelerator, set the number: in the \
         variable that makes its devices visible, in a hostfile, or with\n\n    remuda run \
         --num_gpus 8 train.py",
    ),
    explanation(
        NO_DEVICE,
        "no device is available",
        "`--accelerator cuda` or DS_ACCELERATOR selects GPUs, and this machine has none, or \
         CUDA_VISIBLE_DEVICES hides all of them; the message says which. A container needs \
         access to the GPUs (`docker run --gpus all`). `--accelerator cpu` uses the CPU. To show \
         the GPUs that remuda sees:\n\n    remuda doctor",
    ),
    explanation(
        TOO_FEW_DEVICES,
        "there are fewer devices than workers",
        "Each worker gets its own device. Start fewer workers (`--num_gpus`), let workers share \
         devices (`--oversubscribe`), or use the CPU (`--accelerator cpu`).",
    ),
    explanation(
        NO_PYTHON,
        "Python was not found",
        "A script runs with the interpreter that `--python` or PYTHON_EXEC names, else with that \
         of the active virtual or conda environment, else with that of the environment in which \
         remuda is installed, else with the first `python3` or `python` in PATH. None of them exists. Name an interpreter; a program that is not a Python \
         script needs none:\n\n    remuda run --python /opt/venv/bin/python train.py\n    remuda \
         run --no_python ./worker",
    ),
    explanation(
        CANNOT_CREATE,
        "a file or a directory cannot be created",
        "The message names the option or the directory, and the error of the operating system. \
         Nothing was started. Name a directory that exists, or one whose parent directory you \
         can write.",
    ),
    explanation(
        CANNOT_READ,
        "a file or a directory cannot be read",
        "The message names the file or directory, and the error of the operating system. If the \
         working directory no longer exists, it was removed after this shell entered it: `cd` to \
         a directory that exists.",
    ),
    explanation(
        INVALID_FOR_WORKERS,
        "the arguments or variables of the workers are not allowed",
        "The kernel limits the arguments and environment variables of a process: 131,071 bytes \
         for each, and a quarter of the stack (`ulimit -s`) for all; none may contain a NUL \
         byte. The variables that describe a worker (RANK, WORLD_SIZE, …) can be set by remuda \
         only. The message names the limit. Pass large values in a file.",
    ),
    explanation(
        CANNOT_PRINT,
        "standard output cannot be written",
        "The disk that standard output is written to is full, or standard output is closed. A \
         reader that exits early (`| head`) is not an error. Check the disk:\n\n    df .",
    ),
    explanation(
        SYSTEM,
        "the operating system refused a basic operation",
        "The kernel returned no random numbers, or the executable of remuda could not be found \
         or read, for example because it was replaced or removed while it was running. Start \
         remuda again; the message names the operation.",
    ),
    explanation(
        NO_GROUP,
        "a worker has no group to join",
        "This program is a worker. `remuda run`, `remuda train` or `remuda bench` must start it: \
         it connects to the other workers by the environment variables that they set. The \
         message names the variable that is missing or the worker that did not \
         respond.\n\n    remuda run -n 2 ./worker",
    ),
    explanation(
        NOT_QUEUED,
        "Slurm has not queued the batch job",
        "`remuda sbatch` passes its script to Slurm's `sbatch`. There is no such program on this \
         machine, or it refused the script; the message then has its words, for example an \
         unknown partition or a limit of the account. Nothing was queued. The script is printed \
         by:\n\n    remuda sbatch --print train.py\n\nThe partitions and their limits are shown \
         by:\n\n    sinfo -s",
    ),
];
