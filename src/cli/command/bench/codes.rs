//! The codes of errors of `remuda bench` (`B…`).

use crate::base::{Explanation, explanation};

/// Sizes that need more memory than there is.
pub(super) const TOO_LARGE: &str = "B001";
/// Earlier results that cannot be read.
pub(super) const RESULTS_UNREADABLE: &str = "B002";
/// A plot that cannot be written.
pub(super) const CANNOT_WRITE: &str = "B003";
/// Results that are wrong, or below the threshold.
pub(super) const BELOW_THRESHOLD: &str = "B004";
/// A backend for GPUs on a machine without one.
pub(super) const NO_GPU: &str = "B005";

/// The `remuda explain` page of every code.
pub(in crate::cli) const EXPLANATIONS: &[Explanation] = &[
    explanation(
        TOO_LARGE,
        "the largest size needs more memory than there is",
        "Every worker allocates a send buffer and, if the operation does not work in place, a \
         receive buffer. remuda adds up the buffers of all workers on this machine and compares \
         the sum with the free memory before the measurement starts. Use a smaller `--maxbytes`, \
         or start fewer workers (`--num_gpus`).",
    ),
    explanation(
        RESULTS_UNREADABLE,
        "earlier results cannot be read",
        "`--compare` takes the standard output of `remuda bench … --json`. Keep the output of a \
         reference run:\n\n    remuda bench all-reduce -H hosts --json > baseline.json\n\n`--compare` \
         also takes what nccl-tests, the OSU micro-benchmarks and `remuda bench` \
         print:\n\n    mpirun -np 2 osu_allreduce > mpi.txt\n    remuda bench all-reduce \
         --num_gpus 2 --compare mpi.txt\n\nIt takes any table whose first two columns are bytes \
         and microseconds. If the file names its collective, it must be the collective that is \
         measured. The line above the rows shows the number of ranks of the earlier run; if the \
         file does not contain it, remuda computes the bus bandwidth for the current number of \
         ranks.",
    ),
    explanation(
        CANNOT_WRITE,
        "the plot cannot be written",
        "Rank 0 writes the file of `--plot`. Its node checks the file before the measurement \
         starts. An error that only appears later, such as a full disk, is reported at the end: \
         the results are on the screen, and the exit status is 73. The plot is an SVG file, \
         which every browser can show. Name a file in a directory that exists and that you can \
         write.",
    ),
    explanation(
        BELOW_THRESHOLD,
        "the measurement is below the threshold or wrong",
        "Wrong results always fail: the cause is memory, a network adapter, a driver, or a bug \
         in remuda. With `--threshold GB/s` the bus bandwidth of the best size must reach the \
         threshold; with `--pairs` the bandwidth of every pair of nodes must. The exit status is \
         1, so that a job starts on usable nodes only:\n\n    remuda bench all-reduce -H hosts \
         --threshold 10 && remuda run -H hosts train.py",
    ),
    explanation(
        NO_GPU,
        "there is no GPU to measure",
        "The backends `nccl` and `staged` measure transfers between GPUs. remuda looks for the \
         GPU device files of this machine before it starts anything; on other hosts the workers \
         look. remuda does not fall back to host memory, because a threshold would then test \
         something else. Leave out `--backend` to measure host memory.",
    ),
];
