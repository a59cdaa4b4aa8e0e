//! The stable codes of what can be wrong with a measurement (`B…`).

use crate::base::{Explanation, story};

/// Sizes that take more memory than there is.
pub(super) const TOO_LARGE: &str = "B001";
/// Earlier results that cannot be read.
pub(super) const EARLIER_UNREADABLE: &str = "B002";
/// A picture that cannot be written.
pub(super) const CANNOT_WRITE: &str = "B003";
/// Results that are wrong, or below the threshold.
pub(super) const NOT_GOOD_ENOUGH: &str = "B004";
/// A backend of GPUs where there is none.
pub(super) const NO_GPU: &str = "B005";

/// Their stories.
pub(in crate::cli) const EXPLANATIONS: &[Explanation] = &[
    story(
        TOO_LARGE,
        "the greatest size needs more memory than there is",
        "Every worker has memory for what it gives and, where an operation does not work in place, for \
         what it takes. That of all workers of this machine is counted beforehand and compared with the \
         memory that is free. Give a smaller --maxbytes, or start fewer workers.",
    ),
    story(
        EARLIER_UNREADABLE,
        "earlier results cannot be read",
        "--compare takes what `remuda bench … --json` wrote to its standard output. Keep one of a good \
         day:\n\n    remuda bench all-reduce -H hosts --json > good.json\n\n\
         It also takes what nccl-tests and the OSU micro-benchmarks print, measured with as many ranks:\n\n    \
         mpirun -np 2 osu_allreduce > mpi.txt\n    \
         remuda bench all-reduce --num_gpus 2 --compare mpi.txt\n\n\
         and any table whose first two columns are bytes and microseconds.",
    ),
    story(
        CANNOT_WRITE,
        "a picture cannot be written",
        "Where --plot goes is looked at before anything is measured, on the node of rank 0, which writes \
         it. What nobody can see beforehand, such as a disk that is full, is told at the end: the results \
         are on the screen by then, and the exit status is 73 all the same. The picture is SVG, which \
         every browser shows.",
    ),
    story(
        NOT_GOOD_ENOUGH,
        "the measurement fails the gate",
        "Wrong numbers always fail it: memory, a network card or a driver is at fault, or we are. With \
         --threshold GB/s the bus bandwidth of the best size must reach it, with --pairs that of every \
         pair. The exit status is 1, so that `remuda bench … && remuda run …` starts a job on good nodes \
         only.",
    ),
    story(
        NO_GPU,
        "there is no GPU to measure",
        "The backends `nccl` and `staged` move numbers of GPUs; whether this machine has any is looked \
         at by the files of their devices before anything starts. On other hosts the workers find out \
         themselves. There is no way back to the host's memory: a gate must not measure something \
         else than it was asked for.",
    ),
];
