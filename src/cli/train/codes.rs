//! The stable codes of what can be wrong with a training (`T…`).

use crate::base::{Explanation, story};

/// A text that cannot be read.
pub(super) const TEXT_UNREADABLE: &str = "T001";
/// A text that is too short for what is to be learned.
pub(super) const TEXT_TOO_SHORT: &str = "T002";
/// Sizes that no model can have together.
pub(super) const BAD_SIZES: &str = "T003";
/// Something that is no checkpoint, or not whole.
pub(super) const CHECKPOINT_UNUSABLE: &str = "T004";
/// A checkpoint of another run than the one that was asked for.
pub(super) const CHECKPOINT_DIFFERS: &str = "T005";
/// A file or directory that cannot be made.
pub(super) const CANNOT_WRITE: &str = "T006";
/// A run that takes more memory than there is.
pub(super) const TOO_LARGE: &str = "T007";
/// A directory of checkpoints that is another run's.
pub(super) const IN_USE: &str = "T008";

/// Their stories.
pub(in crate::cli) const EXPLANATIONS: &[Explanation] = &[
    story(
        TEXT_UNREADABLE,
        "the text to learn cannot be read",
        "--data takes regular files that you may read. Without it the model learns the text of this \
         project, which is enough for a first try.",
    ),
    story(
        TEXT_TOO_SHORT,
        "the text is too short",
        "A tenth of the text is kept for validation, and it must hold at least one block. Give more \
         text, or make --block smaller.",
    ),
    story(
        BAD_SIZES,
        "sizes that do not fit each other",
        "Every attention head gets an equal part of the width, so --width is a multiple of --heads.",
    ),
    story(
        CHECKPOINT_UNUSABLE,
        "the checkpoint cannot be used",
        "--resume takes a `.safetensors` file that `remuda train` wrote, or the --checkpoint_dir of a \
         run, of which the newest whole checkpoint is taken.",
    ),
    story(
        CHECKPOINT_DIFFERS,
        "the checkpoint is of another run",
        "A run goes on with the model, the sizes and the text that it began with. Leave the sizes out: \
         they are in the checkpoint.",
    ),
    story(
        CANNOT_WRITE,
        "a result cannot be written",
        "Where checkpoints, metrics and plots go is looked at before anything starts, so that no hour \
         of training is lost at its end.",
    ),
    story(
        TOO_LARGE,
        "the model needs more memory than there is",
        "Weights, gradients, optimizer state and activations of every worker of this machine are counted \
         beforehand and compared with the memory that is free. Make --width, --layers, --block or \
         --batch_size smaller, or start fewer workers.",
    ),
    story(
        IN_USE,
        "the directory of checkpoints is another run's",
        "Checkpoints are named by their steps, and the newest is the one with the greatest step. Two \
         runs in one directory would replace each other's, and --resume could take the wrong one. \
         Nothing was touched. Go on with the run that is there, or give another directory:\n\n    \
         remuda train --checkpoint_dir kept --resume kept\n    \
         remuda train --checkpoint_dir kept-2\n\n\
         What is started again and again by something else, a Job of Kubernetes, says --resume auto: it \
         begins where there is nothing, and goes on from then on.",
    ),
];
