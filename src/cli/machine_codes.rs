//! The stable codes of what this machine and its environment refuse to a command (`M…`).

use crate::base::{Explanation, story};

/// A variable of the environment that cannot be used.
pub(super) const BAD_VARIABLE: &str = "M001";
/// Nobody says how many devices there are.
pub(super) const DEVICES_UNKNOWN: &str = "M002";
/// No device may be used.
pub(super) const NO_DEVICE: &str = "M003";
/// More devices are wanted than there are.
pub(super) const TOO_FEW_DEVICES: &str = "M004";
/// No Python.
pub(super) const NO_PYTHON: &str = "M005";
/// A file or a directory that cannot be made.
pub(super) const NOT_MADE: &str = "M006";
/// A file or a directory that cannot be read.
pub(super) const NOT_READ: &str = "M007";
/// What workers are to be given is more, or other, than they can be given.
pub(super) const NOT_FOR_WORKERS: &str = "M008";
/// Standard output cannot be written.
pub(super) const NOT_PRINTED: &str = "M009";
/// The system refuses what it never refuses.
pub(super) const SYSTEM: &str = "M010";
/// A worker finds no group to join.
pub(super) const NO_GROUP: &str = "M011";

/// Their stories.
pub(super) const EXPLANATIONS: &[Explanation] = &[
    story(
        BAD_VARIABLE,
        "a variable of the environment cannot be used",
        "The message names the variable and what may stand in it. It was read because DeepSpeed reads it \
         as well (`DS_ACCELERATOR`, `LOCAL_SIZE`), or because an option asks for it (`--env NAME`, \
         --bind_cores_to_rank). Correct it or `unset` it; an option that says the same outranks it.",
    ),
    story(
        DEVICES_UNKNOWN,
        "nobody says how many devices this machine has",
        "GPUs of NVIDIA are counted. Of other accelerators the variable that makes devices visible says \
         how many there are, or `--num_gpus N` does, or a hostfile.",
    ),
    story(
        NO_DEVICE,
        "no device may be used",
        "GPUs were asked for, by `--accelerator cuda` or DS_ACCELERATOR, and this machine has none, or \
         CUDA_VISIBLE_DEVICES leaves none; the message says which of the two. In a container GPUs must be \
         handed in (`--gpus all`). `--accelerator cpu` uses the CPU. `remuda doctor` shows what is seen.",
    ),
    story(
        TOO_FEW_DEVICES,
        "more devices are wanted than there are",
        "Each worker has a device of its own. Ask for fewer (`--num_gpus`), let workers share them \
         (--oversubscribe), or give every worker CPU time (`--accelerator cpu`).",
    ),
    story(
        NO_PYTHON,
        "no Python",
        "A script is given to the interpreter that --python or PYTHON_EXEC names, else to that of the \
         active virtual or conda environment, else to the first `python3` or `python` in PATH. None of \
         them is there. A program that is no Python script needs none:\n\n    \
         remuda run --no_python ./worker",
    ),
    story(
        NOT_MADE,
        "a file or a directory cannot be made",
        "The message names the option or the directory, and what the system said. Nothing was started. \
         Name a directory that exists, or one whose parent you may write.",
    ),
    story(
        NOT_READ,
        "a file or a directory cannot be read",
        "The message names it, and what the system said. A working directory that is gone was removed \
         after this shell had entered it: `cd` to one that is there.",
    ),
    story(
        NOT_FOR_WORKERS,
        "workers cannot be given this",
        "Arguments and variables of a process are limited by the kernel: one to 131071 bytes, all \
         together to a quarter of the stack (`ulimit -s`); none may hold a NUL byte. And variables that \
         say who a worker is (RANK, WORLD_SIZE, …) are set by remuda alone. The message says which \
         limit it was.",
    ),
    story(
        NOT_PRINTED,
        "standard output cannot be written",
        "The disk behind it is full, or it is closed. A reader that goes away (`| head`) is no error.",
    ),
    story(
        SYSTEM,
        "the system refuses what it never refuses",
        "The kernel gave no random numbers, or our own executable could not be found or read, perhaps \
         because it was replaced or removed while it ran.",
    ),
    story(
        NO_GROUP,
        "a worker finds no group to join",
        "The program is a worker: it is started by `remuda run`, `remuda train` or `remuda bench`, and \
         finds the others by the variables that these give it. The message says what is missing, or who \
         could not be reached.",
    ),
];
