//! The codes of errors in a configuration file of accelerate (`A…`).

use crate::base::{Explanation, explanation};

/// A text that is no YAML.
pub const NOT_YAML: &str = "A001";
/// A key that accelerate does not have.
pub const UNKNOWN_FILE_KEY: &str = "A002";
/// A key with a value that it cannot have, or a key that is missing.
pub const BAD_CONFIG_VALUE: &str = "A003";
/// A setting of accelerate that remuda does not have.
pub const NOT_SUPPORTED_IN_FILE: &str = "A004";

pub(super) const PAGES: &[Explanation] = &[
    explanation(
        NOT_YAML,
        "the configuration file is not YAML",
        "`--config_file`, or the file that `accelerate config` wrote, must be a YAML mapping of keys to \
         values. Anchors, aliases and tags are not read. A key may be given once only. To write a new \
         file:\n\n    accelerate config --config_file FILE",
    ),
    explanation(
        UNKNOWN_FILE_KEY,
        "the configuration file has an unknown key",
        "accelerate refuses a file with an unknown key, so that a misspelled key is not ignored. Inside of \
         a mapping such as `fsdp_config` an unknown key is a warning, because accelerate ignores it. \
         Correct the key, or remove it.",
    ),
    explanation(
        BAD_CONFIG_VALUE,
        "a value of the configuration file is invalid",
        "The message names the key and what it can be. In YAML `no` without quotes is false and `'no'` is \
         text; `1e8` is text and `1.0e+8` is a number. `distributed_type` is required.",
    ),
    explanation(
        NOT_SUPPORTED_IN_FILE,
        "a setting of accelerate that remuda does not have",
        "remuda starts jobs on machines of your own: files for TPUs (`distributed_type: XLA`) and for \
         SageMaker (`compute_environment`) need accelerate itself.",
    ),
];
