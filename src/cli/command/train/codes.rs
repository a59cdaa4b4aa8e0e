//! The codes of errors of `remuda train` (`T…`).

use crate::base::{Explanation, explanation};

/// A text that cannot be read.
pub(super) const TEXT_UNREADABLE: &str = "T001";
/// A text that is too short for the model.
pub(super) const TEXT_TOO_SHORT: &str = "T002";
/// Sizes that a model cannot have together.
pub(super) const BAD_SIZES: &str = "T003";
/// A file that is not a checkpoint, or not a complete one.
pub(super) const CHECKPOINT_UNUSABLE: &str = "T004";
/// A checkpoint of a different run.
pub(super) const CHECKPOINT_DIFFERS: &str = "T005";
/// A file or directory that cannot be created.
pub(super) const CANNOT_WRITE: &str = "T006";
/// A run that needs more memory than there is.
pub(super) const TOO_LARGE: &str = "T007";
/// A checkpoint directory that belongs to another run.
pub(super) const IN_USE: &str = "T008";

/// An option that contradicts `--deepspeed_config`.
pub(super) const CONFIG_DIFFERS: &str = "T009";
/// A setting of `--deepspeed_config` that the engine does not have.
pub(super) const NOT_IN_ENGINE: &str = "T010";

/// Shard groups into which the workers cannot be divided.
pub(super) const BAD_SHARD_GROUP: &str = "T011";

/// Settings that training on a GPU does not have.
pub(super) const NOT_ON_GPU: &str = "T012";

/// A loss or a gradient that is not a finite number.
pub(super) const DIVERGED: &str = "T013";
/// Steps that are skipped, so that nothing is learned.
pub(super) const NO_UPDATES: &str = "T014";

/// A GPU or a library with which a rank cannot compute what the others compute.
pub(super) const OTHER_GPU: &str = "T015";

/// A run that needs more memory of a GPU than is free.
pub(super) const GPU_TOO_SMALL: &str = "T016";

/// The `remuda explain` page of every code.
pub(in crate::cli) const EXPLANATIONS: &[Explanation] = &[
    explanation(
        TEXT_UNREADABLE,
        "the training text cannot be read",
        "`--data` takes regular files that you can read. Without `--data` the model is trained on \
         the built-in text, a snapshot of the text of this project:\n\n    remuda train --data \
         text.txt",
    ),
    explanation(
        TEXT_TOO_SHORT,
        "the text is too short",
        "A tenth of the text is kept for validation and must hold at least one block. Use a \
         longer text, or a smaller `--block`.",
    ),
    explanation(
        BAD_SIZES,
        "the sizes do not fit together",
        "Every attention head gets an equal part of the width, so `--width` must be a multiple \
         of `--heads`:\n\n    remuda train --width 128 --heads 4\n\nWith shards, `--vocabulary` must be \
         larger than every token in them; leave it out to use the largest token plus 1, rounded up to a \
         multiple of 64. A text has no `--vocabulary`: its tokens are its bytes.",
    ),
    explanation(
        CHECKPOINT_UNUSABLE,
        "the checkpoint cannot be used",
        "`--resume` takes a checkpoint that `remuda train` wrote, or the \
         `--checkpoint_dir` of a run, whose newest complete checkpoint is used. Name one of the \
         two:\n\n    remuda train --resume kept",
    ),
    explanation(
        CHECKPOINT_DIFFERS,
        "the checkpoint belongs to a different run",
        "A run can only continue with the model, the sizes and the text that it started with. \
         Leave the sizes out of the command line: they are read from the checkpoint.",
    ),
    explanation(
        CANNOT_WRITE,
        "a result cannot be written",
        "remuda checks the files for checkpoints, metrics, TensorBoard, CSV and plots before the training \
         starts, so that no training is lost at its end. Name a directory that exists and that you can \
         write, and check the free space of its disk (`df`).",
    ),
    explanation(
        TOO_LARGE,
        "the model needs more memory than there is",
        "remuda adds up weights, gradients, optimizer state and activations of all workers on \
         this machine and compares the sum with the free memory before the training starts; \
         `--dry-run` shows the sum by use and stage. Memory that the workers of a machine share is counted once, at the \
         worker that owns it. Divide the state over the workers (`--stage`), make \
         `--width`, `--layers`, `--block` or `--batch_size` smaller, or start fewer workers \
         (`--num_gpus`).",
    ),
    explanation(
        CONFIG_DIFFERS,
        "an option contradicts the training configuration",
        "Options of the command line fill the values that are `auto` in the file of `--deepspeed_config`. If \
         the file and the command line both set a value, the two must be equal: leave the option out, or write \
         `auto` in the file.",
    ),
    explanation(
        NOT_IN_ENGINE,
        "the engine does not have this setting yet",
        "`remuda config check FILE` shows what a file means. `remuda train` refuses settings that change the \
         result and that its engine does not have yet; choose one that the message names.",
    ),
    explanation(
        BAD_SHARD_GROUP,
        "the workers cannot be divided into shard groups",
        "With `--shard_group N` (in a file of DeepSpeed `zero_hpz_partition_size`, in a file of accelerate \
         `HYBRID_SHARD`) every N workers with successive ranks hold the parameters together; the other groups \
         hold copies. N is a power of two that divides the number of workers, usually the number of workers of \
         a node:\n\n    remuda train -H hosts --stage 3 --shard_group 8\n\nIf there are \
         several groups, the number of micro-batches (`--accumulate`) or the number of workers must be a power \
         of two; with `--no_sync`, only the number of micro-batches counts.",
    ),
    explanation(
        NOT_ON_GPU,
        "training on a GPU does not have this setting",
        "With `--device cuda` every worker trains on a GPU, at any stage, with the optimizer in the memory of the GPU, \
         of the host or in files, and parameters in files. The heads of a GPT have a multiple of 4 features in 32 bits, and of \
         8 in 16 bits. One kernel computes attention (`--attention flash`) in 16 bits and for heads of 64 or 128 features:\n\n    \
         remuda train --device cuda --stage 3 --precision bf16 --width 256 --heads 4\n\nFor all others, matrix products do \
         (`--attention products`), which take more time and memory. Everything else trains on processors (`--device cpu`).",
    ),
    explanation(
        DIVERGED,
        "the training diverges",
        "The loss or the gradient of a step is NaN or infinite, and no loss scale is left that could be reduced. The \
         step is the last record of `--metrics`, with `null` for what is not finite and with the `error`. Usual causes \
         are a learning rate that is too high (`--lr`, `--warmup`), gradients that are not clipped (`--clip 1`), and, in \
         the first step, inputs or initial weights that are not finite. Continue from a checkpoint before the loss \
         began to rise:\n\n    remuda train --resume kept/step-00000100 --checkpoint_dir other --lr 1e-4",
    ),
    explanation(
        NO_UPDATES,
        "steps are skipped, so nothing is learned",
        "In 16 bits, a step whose gradient is not finite is skipped: the parameters stay as they are. In bf16, and in \
         fp16 with a fixed `loss_scale`, nothing adapts, so a run ends with this error after 10 such steps one after the \
         other, or if all of its steps were skipped; it is a warning if the last steps were skipped. In fp16 with a \
         scale that adapts, it is a warning if all steps were skipped: each further overflow halves the scale, so more \
         `--steps` or a smaller `initial_scale_power` help. Otherwise give a smaller `--lr`, or compute in fp32:\n\n    \
         remuda train --precision fp32",
    ),
    explanation(
        OTHER_GPU,
        "a worker has another GPU or another library",
        "With `--deterministic` all workers use the same algorithms for products of matrices, and another kind of GPU or \
         another version of cuBLASLt has other ones. Use nodes with the same GPUs and libraries:\n\n    remuda doctor \
         -H hosts\n\nWithout `--deterministic` such a worker chooses its own algorithms, and says so. The training is correct, \
         but its bits then depend on which worker computes what.",
    ),
    explanation(
        GPU_TOO_SMALL,
        "the training needs more memory than is free on a GPU",
        "With `--device cuda`, remuda adds up what a worker keeps on its GPU: weights, gradients, optimizer state and \
         activations. All workers compare the sum with the memory that the driver of their GPU calls free, before they \
         allocate any. `--dry-run` shows it by use and stage, and `nvidia-smi` which processes have the rest of the \
         memory. The message names the changes that are enough, with the same samples in every step: activations \
         that are computed again, several smaller micro-batches in the place of one, the state divided over the workers, \
         the state of the optimizer in the memory of the host:\n\n    remuda train --device cuda --precision bf16 \
         --width 768 --heads 12 --batch_size 4 --accumulate 4 --activation_checkpointing",
    ),
    explanation(
        IN_USE,
        "the checkpoint directory belongs to another run",
        "The directory of `--checkpoint_dir` contains checkpoints, and the command line has no \
         `--resume`. Checkpoints are named by their step, so two runs in one directory would replace each \
         other's. Nothing was changed. To continue the run whose checkpoints are there:\n\n    remuda \
         train --checkpoint_dir kept --resume kept\n\nTo start a new run, name an empty \
         directory:\n\n    remuda train --checkpoint_dir kept-2\n\nIf the same command is started again \
         and again, as by a Kubernetes Job, use `--resume auto`: the training starts if the directory is \
         empty, and continues if it is not.\n\nA run that goes on from an earlier step \
         (`--resume kept/step-00000100`) would replace the later checkpoints there, so it is refused too: name \
         another directory for it.",
    ),
];
