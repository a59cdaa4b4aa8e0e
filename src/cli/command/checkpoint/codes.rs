//! The codes of errors of `remuda checkpoint` (`F…`).

use crate::base::{Explanation, explanation};

/// A path without a checkpoint.
pub(super) const NO_CHECKPOINT: &str = "F001";
/// A checkpoint whose files were changed, truncated or lost.
pub(super) const DAMAGED: &str = "F002";
/// A checkpoint of a newer version.
pub(super) const NEWER_FORMAT: &str = "F003";
/// A file of an export that exists or cannot be written.
pub(super) const CANNOT_EXPORT: &str = "F004";
/// A checkpoint that has nothing to export.
pub(super) const NOT_EXPORTABLE: &str = "F005";

/// A model that cannot be imported.
pub(super) const CANNOT_IMPORT: &str = "F006";

/// The `remuda explain` page of every code.
pub(in crate::cli) const EXPLANATIONS: &[Explanation] = &[
    explanation(
        NO_CHECKPOINT,
        "there is no checkpoint",
        "A checkpoint is a directory such as `step-00000012` with an `index.json`, or a \
         `.safetensors` file of an earlier version of `remuda train`. A directory of several \
         checkpoints stands for the one that its file `latest` names, or for the newest one:\n\n    \
         remuda checkpoint show run\n    remuda checkpoint show run/step-00000012\n\nA safetensors file that \
         another program wrote is not a checkpoint: it has no optimizer state.",
    ),
    explanation(
        DAMAGED,
        "a checkpoint is damaged",
        "The index of a checkpoint has the size and the SHA-256 of every part of every file. A file \
         is missing, has another size, or has other bytes than when it was saved: a disk or a copy \
         failed, or another program wrote it. remuda never uses such bytes. Copy the file again, or \
         use an earlier checkpoint. With `--resume auto`, a training uses the newest undamaged checkpoint. To \
         list all damage:\n\n    remuda checkpoint verify run",
    ),
    explanation(
        NEWER_FORMAT,
        "the format of a checkpoint is not known",
        "A newer version of remuda has written the checkpoint. Use that version, or a newer one.",
    ),
    explanation(
        CANNOT_EXPORT,
        "an export cannot be written",
        "An export replaces no file. A directory of `hf:` must not contain a model, because Hugging \
         Face would read files of both. Remove the old files, or use another path, and check the \
         free space of its disk (`df`):\n\n    remuda checkpoint export run --to model.safetensors\n    \
         remuda checkpoint export run --to hf:model --dtype bf16",
    ),
    explanation(
        NOT_EXPORTABLE,
        "a checkpoint cannot be exported",
        "An export consists of the parameters of the model: the tensors without a `/` in their name. \
         The checkpoint has none, or two of them would get one name. `remuda checkpoint show` lists \
         the tensors. A directory of Hugging Face (`hf:DIR`) is written for `remuda train --model gpt2` only, \
         because transformers has no class for other models of remuda; their parameters can be written to one \
         file:\n\n    remuda checkpoint export run --to model.safetensors",
    ),
    explanation(
        CANNOT_IMPORT,
        "a model cannot be imported",
        "An import reads `config.json` and `model.safetensors` (or the files of \
         `model.safetensors.index.json`) of a directory of Hugging Face. The model must be a GPT-2 with its \
         usual settings, because the bundled GPT has no others; the message names the key or the tensor. \
         If the directory has only `pytorch_model.bin`, load the model with `transformers` and call \
         `save_pretrained(DIR)`, which writes `model.safetensors`. The checkpoint is written to a directory \
         without checkpoints, and has zeros as moments of AdamW:\n\n    remuda \
         checkpoint import gpt2 --to run\n    remuda train --resume run --data shard.bin --steps 1000",
    ),
];
