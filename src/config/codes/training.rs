//! The codes of problems in a configuration of DeepSpeed (`G…`), with their pages.

use crate::base::{Explanation, explanation};

/// Bytes that are not UTF-8.
pub const CONFIG_NOT_TEXT: &str = "G001";
/// A text that is no Hjson.
pub const SYNTAX: &str = "G002";
/// A key that an object has twice.
pub const DUPLICATE_KEY: &str = "G003";
/// A file or a section that is no object.
pub const NOT_AN_OBJECT: &str = "G004";
/// A key that DeepSpeed refuses.
pub const UNKNOWN_KEY: &str = "G005";
/// A key that DeepSpeed ignores, because it does not know it.
pub const IGNORED_KEY: &str = "G006";
/// A value of another type than that of its key.
pub const WRONG_TYPE: &str = "G007";
/// A value that its key cannot have.
pub const BAD_SETTING: &str = "G008";
/// A feature that DeepSpeed removed.
pub const REMOVED: &str = "G009";
/// A setting that remuda does not have.
pub const REFUSED: &str = "G010";
/// A setting without effect in remuda.
pub const NO_EFFECT: &str = "G011";
/// An old spelling.
pub const OLD_SPELLING: &str = "G012";
/// A batch size, or a number of accumulation steps, below 1.
pub const BATCH_NOT_POSITIVE: &str = "G013";
/// Three batch sizes that contradict each other.
pub const BATCH_IDENTITY: &str = "G014";
/// Neither of the two batch sizes.
pub const BATCH_MISSING: &str = "G015";
/// Two settings that exclude each other.
pub const CONTRADICTION: &str = "G016";
/// `auto` as the value of a key that has no rule for it.
pub const NO_AUTO: &str = "G017";
/// A key that is required beside another one.
pub const MISSING_KEY: &str = "G018";
/// An optimizer or a schedule that does not exist.
pub const UNKNOWN_NAME: &str = "G019";
/// A setting that is probably not meant.
pub const UNLIKELY: &str = "G020";
/// A configuration file that could not be read.
pub const CONFIG_UNREADABLE: &str = "G021";

pub(super) const PAGES: &[Explanation] = &[
    explanation(
        CONFIG_NOT_TEXT,
        "the configuration is not UTF-8",
        "A configuration is text in UTF-8. DeepSpeed stops at the first byte that is not. To convert a \
         file that an editor on Windows saved as UTF-16:\n\n    iconv -f UTF-16 -t UTF-8 ds_config.json > \
         new.json",
    ),
    explanation(
        SYNTAX,
        "the configuration is not Hjson",
        "DeepSpeed reads its configuration as Hjson: JSON with comments (`//`, `#`, `/* */`), in which \
         quotes and commas are optional. A text without quotes ends only at the end of its line, so commas \
         and brackets belong to it, and `{stage: 2}` on one line is not closed; numbers, `true`, `false` and `null` \
         end at a comma or a bracket. `NaN` and `Infinity` are not numbers. Reading stops at this error; \
         other errors of the file are shown when it is corrected.",
    ),
    explanation(
        DUPLICATE_KEY,
        "a key is given twice",
        "JSON does not say which of two values counts, so DeepSpeed refuses a file in which an object has \
         a key twice, at any depth. Remove one of them.",
    ),
    explanation(
        NOT_AN_OBJECT,
        "expected an object",
        "The file, and each of its sections, is an object: `{\"KEY\": VALUE, …}`. Only `zero_optimization` \
         can be `true` or `false`, which is the old spelling of stage 1 and stage 0. DeepSpeed fails with \
         a TypeError or an AttributeError.",
    ),
    explanation(
        UNKNOWN_KEY,
        "unknown key",
        "DeepSpeed refuses unknown keys in `zero_optimization`, `fp16`, `bf16`, the monitors, \
         `comms_logger`, `timers.throughput`, `tensor_parallel`, `compile`, and in the `params` of an \
         optimizer or a schedule. Correct the key or remove it. COMPAT.md lists all keys.",
    ),
    explanation(
        IGNORED_KEY,
        "unknown key that DeepSpeed ignores",
        "At the top level, and in sections such as `activation_checkpointing`, DeepSpeed looks up the keys \
         that it knows and ignores all others without a message, so a misspelled key is a setting that \
         does not exist. Correct the key, or remove it.",
    ),
    explanation(
        WRONG_TYPE,
        "a value of the wrong type",
        "The message states what the key can be. In sections that DeepSpeed checks, `\"2\"` and `2.0` are \
         whole numbers and `\"true\"`, `\"yes\"`, `1` are true; `5e8` is a whole number and `\"5e8\"` is \
         not. Elsewhere DeepSpeed takes any value and fails when it uses it; remuda wants the type of the \
         default. JSON spells `true`, `false` and `null` in lower case.",
    ),
    explanation(
        BAD_SETTING,
        "a value that the key cannot have",
        "The message states the limits, or the words that the key can have. The limits are those of \
         DeepSpeed 0.19.8 and of the optimizers of torch.",
    ),
    explanation(
        REMOVED,
        "a feature that DeepSpeed removed",
        "DeepSpeed 0.19.8 refuses these keys, because they would be ignored otherwise and the training \
         would differ from what the file says. remuda never had them. Remove the key; the help states \
         what replaces it.",
    ),
    explanation(
        REFUSED,
        "a setting that remuda does not have",
        "The setting changes the training, the memory that it needs or the files that it writes, and remuda \
         does not have it. If remuda ignored the setting, the training would differ from the file, so \
         remuda refuses it. The help states what to use instead. COMPAT.md lists all keys.",
    ),
    explanation(
        NO_EFFECT,
        "a setting without effect in remuda",
        "The setting tunes a mechanism of DeepSpeed that remuda does not have or does not need, and the \
         numbers of the training do not depend on it. The file needs no change.",
    ),
    explanation(
        OLD_SPELLING,
        "old spelling of a setting",
        "DeepSpeed still reads this spelling and prints a warning. The note states what it means and how \
         it is spelled today. The file needs no change.",
    ),
    explanation(
        BATCH_NOT_POSITIVE,
        "a batch size below 1",
        "`train_batch_size`, `train_micro_batch_size_per_gpu` and `gradient_accumulation_steps` are at \
         least 1. A missing one is computed from the others by whole divisions, and becomes 0 if the \
         batch is too small for the number of ranks: 8 samples on 16 ranks. Increase the batch, or use \
         fewer ranks.",
    ),
    explanation(
        BATCH_IDENTITY,
        "the batch sizes contradict each other",
        "`train_batch_size` is `train_micro_batch_size_per_gpu` × `gradient_accumulation_steps` × the \
         number of ranks, exactly. Two of the three keys are enough; the third follows. The help lists \
         the numbers of ranks for which the file is correct, or else the nearest batches. `--world_size N` \
         or `-H HOSTS` checks it before any GPU is used.",
    ),
    explanation(
        BATCH_MISSING,
        "no batch size",
        "`train_batch_size` or `train_micro_batch_size_per_gpu` is required; `gradient_accumulation_steps` \
         alone does not say how many samples a step has.\n\n    \"train_micro_batch_size_per_gpu\": 4",
    ),
    explanation(
        CONTRADICTION,
        "two settings that exclude each other",
        "DeepSpeed refuses these combinations: fp16 together with bf16; a setting of one ZeRO stage with \
         another stage; the old and the new spelling of one setting. Remove one of the two.",
    ),
    explanation(
        NO_AUTO,
        "`auto` where no rule fills it",
        "The Hugging Face Trainer replaces `\"auto\"` in some keys by its own arguments. remuda has a rule \
         for the same keys; `remuda config check` prints it. In any other key DeepSpeed keeps the text \
         `auto` and fails when it computes with it. Write a value, or remove the key.",
    ),
    explanation(
        MISSING_KEY,
        "a required key is missing",
        "The setting needs another key beside it, which has no default: `total_num_steps` of \
         `WarmupDecayLR`, `nvme_path` of an offload to NVMe, the `type` of `params`. Add the key.",
    ),
    explanation(
        UNKNOWN_NAME,
        "unknown optimizer or schedule",
        "DeepSpeed knows Adam, AdamW, Lion and some others in any spelling of their letters, and takes \
         any other optimizer from `torch.optim` and any other schedule from `torch.optim.lr_scheduler`, \
         spelled exactly. remuda has Adam, AdamW, SGD and Lion, and the schedules WarmupLR, \
         WarmupDecayLR, WarmupCosineLR, OneCycle, LRRangeTest, CosineAnnealingLR, LinearLR, ConstantLR, \
         PolynomialLR, StepLR and ExponentialLR.",
    ),
    explanation(
        UNLIKELY,
        "a setting that is probably not meant",
        "The value is accepted, by DeepSpeed too, but the training will hardly be what was meant: a \
         warm-up that is longer than the training, or a schedule whose rate ends at 0 before the steps \
         do. Correct one of the two numbers.",
    ),
    explanation(
        CONFIG_UNREADABLE,
        "the configuration cannot be read",
        "The file does not exist, is not a regular file, is larger than 4 MiB, or the operating system \
         refused to read it; the message contains the reason. `-` is standard input.",
    ),
];
