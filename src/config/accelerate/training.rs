//! What a file of accelerate says about training, as the tree of a `ds_config.json` in which every value has
//! its place in the YAML: the same checks and rules apply to both.

use super::file::{Paradigm, paradigm_of, parse_config_file, read_entries};
use crate::base::{Diagnostic, Source, Span};
use crate::config::check::Ineffective;
use crate::config::codes::{BAD_CONFIG_VALUE, CONTRADICTION, REFUSED};
use crate::config::training::RecomputeConfig;
use crate::config::tree::{AUTO, ConfigEntry, ConfigNode, ConfigValue};

/// The tree, and what a `ds_config.json` has no key for.
pub(in crate::config) struct AccelerateTree {
    pub(in crate::config) root: ConfigNode,
    pub(in crate::config) problems: Vec<Diagnostic>,
    pub(in crate::config) ineffective: Vec<Ineffective>,
    /// Values that the file does not have, with where they come from.
    pub(in crate::config) implied: Vec<(&'static str, &'static str)>,
    pub(in crate::config) recomputes: Option<(RecomputeConfig, Span)>,
    /// Whether the parameters of stage 3 are divided over the ranks of a node only.
    pub(in crate::config) shards_within_node: bool,
    /// `num_processes`.
    pub(in crate::config) ranks: Option<u64>,
    /// `deepspeed_config_file`.
    pub(in crate::config) included: Option<String>,
}

const BLOCKS: &str = "parameters are gathered one block of the model at a time";
const OWN_CHECKPOINTS: &str = "checkpoints have the format of remuda";
const RANK_0: &str = "rank 0 sends its weights to all ranks at the start";
const AHEAD: &str = "the next block is always gathered ahead";
const NAMES: &str = "parameters keep their names";
const OF_LAUNCH: &str = "for `remuda accelerate launch`, which reads it";
const NO_COMPILER: &str = "remuda has no graph compiler";
const OTHER_ENGINE: &str = "use `zero_stage: 3`, which shards the parameters as well";

/// Keys of `fsdp_config` without effect.
const IDLE_FSDP: &[(&str, &str)] = &[
    ("version", "both versions of FSDP mean the same here"),
    ("min_num_params", BLOCKS),
    ("auto_wrap_policy", BLOCKS),
    ("transformer_layer_cls_to_wrap", BLOCKS),
    ("ignored_modules", BLOCKS),
    ("backward_prefetch", AHEAD),
    ("forward_prefetch", AHEAD),
    ("state_dict_type", OWN_CHECKPOINTS),
    ("use_orig_params", NAMES),
    ("cpu_ram_efficient_loading", RANK_0),
    ("sync_module_states", RANK_0),
];

/// Keys of `deepspeed_config` without effect.
const IDLE_DEEPSPEED: &[(&str, &str)] = &[
    ("zero3_init_flag", "parameters are made in shards at stage 3"),
    ("deepspeed_hostfile", OF_LAUNCH),
    ("deepspeed_exclusion_filter", OF_LAUNCH),
    ("deepspeed_inclusion_filter", OF_LAUNCH),
    ("deepspeed_multinode_launcher", OF_LAUNCH),
    ("deepspeed_moe_layer_cls_names", "the models of remuda have no experts"),
];

/// Keys of `deepspeed_config` that the generated file has, with their paths.
const DEEPSPEED_KEYS: &[(&str, &[&str])] = &[
    ("gradient_accumulation_steps", &["gradient_accumulation_steps"]),
    ("gradient_clipping", &["gradient_clipping"]),
    ("zero_stage", &["zero_optimization", "stage"]),
    ("offload_optimizer_device", &["zero_optimization", "offload_optimizer", "device"]),
    ("offload_param_device", &["zero_optimization", "offload_param", "device"]),
    ("offload_optimizer_nvme_path", &["zero_optimization", "offload_optimizer", "nvme_path"]),
    ("offload_param_nvme_path", &["zero_optimization", "offload_param", "nvme_path"]),
    ("zero3_save_16bit_model", &["zero_optimization", "stage3_gather_16bit_weights_on_model_save"]),
];

/// Reads the text of a file; the tree has its problems as a file of accelerate, too.
///
/// # Errors
/// If the text is no mapping of YAML.
pub(in crate::config) fn training_tree(source: Source) -> Result<AccelerateTree, Box<Diagnostic>> {
    let entries = read_entries(&source.text)?;
    let mut builder = Builder::new(&entries);
    builder.tree.problems = match parse_config_file(source) {
        Ok(file) => file.warnings,
        Err(findings) => findings.diagnostics,
    };
    builder.precision();
    match builder.paradigm() {
        Some(Paradigm::DeepSpeed) => builder.deepspeed(),
        Some(Paradigm::Fsdp) => builder.fsdp(),
        Some(Paradigm::Megatron) => builder.megatron(),
        // A type that does not exist has been reported.
        Some(Paradigm::Simple | Paradigm::MultiDevice) | None => builder.data_parallel(),
    }
    builder.others();
    Ok(builder.tree)
}

struct Builder<'a> {
    entries: &'a [ConfigEntry],
    tree: AccelerateTree,
}

impl<'a> Builder<'a> {
    fn new(entries: &'a [ConfigEntry]) -> Self {
        let ranks = entries.iter().find(|entry| entry.key == "num_processes");
        let ranks = ranks.and_then(|entry| match entry.node.value {
            ConfigValue::Whole(number) => u64::try_from(number).ok().filter(|ranks| 0 < *ranks),
            _ => None,
        });
        let root = ConfigNode { value: ConfigValue::Map(Vec::new()), span: Span::new(0, 0) };
        let tree = AccelerateTree {
            root,
            problems: Vec::new(),
            ineffective: Vec::new(),
            implied: Vec::new(),
            recomputes: None,
            shards_within_node: false,
            ranks,
            included: None,
        };
        Self { entries, tree }
    }

    fn paradigm(&self) -> Option<Paradigm> {
        match &self.top("distributed_type")?.node.value {
            ConfigValue::Text(text) => paradigm_of(text),
            _ => None,
        }
    }

    fn top(&self, key: &str) -> Option<&'a ConfigEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// The entries of a mapping.
    fn mapping(&self, key: &str) -> &'a [ConfigEntry] {
        self.top(key).and_then(|entry| entry.node.value.entries()).unwrap_or_default()
    }

    /// Puts a value into the tree.
    fn put(&mut self, path: &[&str], value: ConfigValue, entry: &ConfigEntry) {
        insert(&mut self.tree.root, path, value, entry);
    }

    /// Puts a value that the file does not have.
    fn imply(&mut self, path: &'static str, value: ConfigValue, words: &'static str) {
        let at = self.entries.first().map_or(Span::new(0, 0), |entry| entry.key_span);
        let node = ConfigNode { value: ConfigValue::Null, span: at };
        let entry = ConfigEntry { key: String::new(), key_span: at, node };
        let parts: Vec<&str> = path.split('.').collect();
        self.put(&parts, value, &entry);
        self.tree.implied.push((path, words));
    }

    fn idle(&mut self, section: &str, entry: &ConfigEntry, reason: &str) {
        let path =
            if section.is_empty() { entry.key.clone() } else { format!("{section}.{}", entry.key) };
        self.tree.ineffective.push(Ineffective {
            path,
            span: entry.key_span,
            reason: reason.to_owned(),
        });
    }

    fn refuse(&mut self, span: Span, what: &str, instead: &str) {
        let problem = Diagnostic::error(REFUSED, span, format!("remuda does not support {what}"));
        self.tree.problems.push(problem.label("refused").help(instead));
    }

    fn bad_value(&mut self, entry: &ConfigEntry, expected: &str) {
        let message = format!("the value of `{}` is invalid", entry.key);
        let problem = Diagnostic::error(BAD_CONFIG_VALUE, entry.node.span, message);
        self.tree.problems.push(problem.label(format!("expected {expected}")));
    }

    /// `mixed_precision`.
    fn precision(&mut self) {
        let Some(entry) = self.top("mixed_precision") else { return };
        let ConfigValue::Text(text) = &entry.node.value else { return };
        let on = ConfigValue::Bool(true);
        match text.to_lowercase().as_str() {
            "fp16" => self.put(&["fp16", "enabled"], on, entry),
            "bf16" => self.put(&["bf16", "enabled"], on, entry),
            "fp8" => self.refuse(entry.node.span, "`mixed_precision: fp8`", "use `bf16`"),
            // `no`, or a value that the reader of the file has refused.
            _ => {}
        }
    }

    /// The batch sizes are those of the script's data loader.
    fn batch_of_loader(&mut self) {
        const LOADER: &str = "the batch size of the loader: `--batch_size`, else 8";
        let auto = || ConfigValue::Text(AUTO.to_owned());
        self.imply("train_micro_batch_size_per_gpu", auto(), LOADER);
        self.imply("train_batch_size", auto(), "micro-batch × accumulation × world size");
    }

    fn deepspeed(&mut self) {
        let entries = self.mapping("deepspeed_config");
        if let Some(file) = entries.iter().find(|entry| entry.key == "deepspeed_config_file")
            && let ConfigValue::Text(path) = &file.node.value
            && !path.eq_ignore_ascii_case("none")
        {
            self.tree.included = Some(path.clone());
            self.refuse_beside_file(file, entries);
            return self.batch_of_loader();
        }
        for entry in entries {
            if let Some((_, reason)) = IDLE_DEEPSPEED.iter().find(|(key, _)| *key == entry.key) {
                self.idle("deepspeed_config", entry, reason);
            }
            if let Some((_, path)) = DEEPSPEED_KEYS.iter().find(|(key, _)| *key == entry.key) {
                self.deepspeed_key(entry, path);
            }
        }
        if !entries.iter().any(|entry| entry.key == "zero_stage") {
            self.imply(
                "zero_optimization.stage",
                ConfigValue::Whole(2),
                "the default of accelerate",
            );
        }
        if !entries.iter().any(|entry| entry.key == "gradient_clipping") {
            let auto = ConfigValue::Text(AUTO.to_owned());
            self.imply("gradient_clipping", auto, "`--clip`, else 1");
        }
        self.batch_of_loader();
    }

    /// Puts a key of `deepspeed_config` into the tree. accelerate passes every value as text.
    fn deepspeed_key(&mut self, entry: &ConfigEntry, path: &[&str]) {
        let value = match &entry.node.value {
            ConfigValue::Null => return,
            ConfigValue::Text(text) if text.eq_ignore_ascii_case("none") && path.len() != 3 => {
                return;
            }
            ConfigValue::Text(text) if path == ["gradient_accumulation_steps"] => {
                text.parse().map_or_else(|_| ConfigValue::Text(text.clone()), ConfigValue::Whole)
            }
            ConfigValue::Text(text) if path == ["gradient_clipping"] => {
                text.parse().map_or_else(|_| ConfigValue::Text(text.clone()), ConfigValue::Float)
            }
            ConfigValue::Text(text) if path.ends_with(&["nvme_path"]) && text == "none" => return,
            value => value.clone(),
        };
        self.put(path, value, entry);
    }

    /// accelerate refuses a file of DeepSpeed together with settings that it would have.
    fn refuse_beside_file(&mut self, file: &ConfigEntry, entries: &[ConfigEntry]) {
        let is_own = |entry: &&ConfigEntry| {
            DEEPSPEED_KEYS.iter().any(|(key, _)| *key == entry.key)
                && entry.node.value != ConfigValue::Null
        };
        let precision = self.top("mixed_precision").filter(|entry| {
            let is_no = matches!(&entry.node.value, ConfigValue::Text(text) if text == "no");
            !is_no && entry.node.value != ConfigValue::Bool(false)
        });
        for entry in entries.iter().filter(is_own).chain(precision) {
            let message =
                format!("`{}` cannot be set together with `deepspeed_config_file`", entry.key);
            let problem = Diagnostic::error(CONTRADICTION, entry.key_span, message);
            self.tree.problems.push(
                problem
                    .label("accelerate also refuses it")
                    .related(file.key_span, "this file has the settings")
                    .help("remove it, and write it into that file"),
            );
        }
    }

    fn fsdp(&mut self) {
        let entries = self.mapping("fsdp_config");
        let get = |name: &str| {
            entries
                .iter()
                .find(|entry| entry.key.strip_prefix("fsdp_").unwrap_or(&entry.key) == name)
        };
        let is_second = get("version").is_some_and(|entry| {
            matches!(&entry.node.value, ConfigValue::Whole(2))
                || entry.node.value == ConfigValue::Text("2".to_owned())
        });
        let strategy = get(if is_second { "reshard_after_forward" } else { "sharding_strategy" });
        let stage = strategy.map(|entry| self.fsdp_stage(entry, is_second));
        if let (Some(entry), Some(stage)) = (strategy, stage) {
            self.put(&["zero_optimization", "stage"], ConfigValue::Whole(stage), entry);
        } else {
            let words = "FULL_SHARD, the default of FSDP";
            self.imply("zero_optimization.stage", ConfigValue::Whole(3), words);
        }
        for name in
            ["offload_params", "activation_checkpointing", "activation_checkpointing_offload"]
        {
            let Some(entry) = get(name) else { continue };
            match truth(&entry.node.value) {
                None => self.bad_value(entry, "`true` or `false`"),
                Some(false) if name == "activation_checkpointing" => {
                    self.tree.recomputes = Some((RecomputeConfig::Off, entry.node.span));
                }
                Some(false) => {}
                Some(true) => self.fsdp_switch(name, entry),
            }
        }
        for (name, reason) in IDLE_FSDP {
            if let Some(entry) = get(name) {
                self.idle("fsdp_config", entry, reason);
            }
        }
        let unused = get(if is_second { "sharding_strategy" } else { "reshard_after_forward" });
        if let Some(entry) = unused {
            self.idle("fsdp_config", entry, "for the other version of FSDP (`fsdp_version`)");
        }
        self.without_clipping();
        self.batch_of_loader();
    }

    /// The stage of ZeRO that a strategy of FSDP is.
    fn fsdp_stage(&mut self, entry: &ConfigEntry, is_second: bool) -> i64 {
        if is_second {
            return match truth(&entry.node.value) {
                Some(true) => 3,
                Some(false) => 2,
                None => {
                    self.bad_value(entry, "`true` or `false`");
                    3
                }
            };
        }
        let word = match &entry.node.value {
            ConfigValue::Text(text) => text.to_uppercase(),
            ConfigValue::Whole(number) => number.to_string(),
            _ => String::new(),
        };
        match word.as_str() {
            "FULL_SHARD" | "1" => 3,
            // Where gradients and optimizer state are divided over all ranks, both mean the same.
            "SHARD_GRAD_OP" | "2" | "HYBRID_SHARD_ZERO2" | "5" => 2,
            "NO_SHARD" | "3" => 0,
            "HYBRID_SHARD" | "4" => {
                self.tree.shards_within_node = true;
                3
            }
            _ => {
                self.bad_value(
                    entry,
                    "`FULL_SHARD`, `SHARD_GRAD_OP`, `NO_SHARD`, `HYBRID_SHARD` or `HYBRID_SHARD_ZERO2`",
                );
                3
            }
        }
    }

    fn fsdp_switch(&mut self, name: &str, entry: &ConfigEntry) {
        match name {
            "offload_params" => {
                for section in ["offload_param", "offload_optimizer"] {
                    let path = ["zero_optimization", section, "device"];
                    self.put(&path, ConfigValue::Text("cpu".to_owned()), entry);
                }
            }
            "activation_checkpointing" => {
                self.tree.recomputes = Some((RecomputeConfig::EveryBlock, entry.node.span));
            }
            _ => self.refuse(
                entry.key_span,
                "`activation_cpu_offload` (activations in host memory)",
                "use `fsdp_activation_checkpointing`, which keeps fewer activations",
            ),
        }
    }

    fn megatron(&mut self) {
        if let Some(entry) = self.top("distributed_type") {
            self.refuse(
                entry.node.span,
                "the parallelism of Megatron-LM",
                "use `distributed_type: DEEPSPEED` with `zero_stage: 3`",
            );
        }
        self.data_parallel();
    }

    fn data_parallel(&mut self) {
        self.without_clipping();
        self.batch_of_loader();
    }

    fn without_clipping(&mut self) {
        let words = "accelerate leaves clipping to the script";
        self.imply("gradient_clipping", ConfigValue::Float(0.0), words);
    }

    /// Mappings that concern every paradigm.
    fn others(&mut self) {
        for entry in self.entries {
            match entry.key.as_str() {
                "dynamo_config" | "dynamo_backend" => self.idle("", entry, NO_COMPILER),
                "fp8_config" => self.idle("", entry, "`mixed_precision` is not `fp8`"),
                _ => {}
            }
        }
        let entries = self.mapping("parallelism_config");
        let size = |name: &str| {
            let is_named = |entry: &&ConfigEntry| {
                entry.key.strip_prefix("parallelism_config_").unwrap_or(&entry.key) == name
            };
            entries
                .iter()
                .find(is_named)
                .filter(|entry| matches!(entry.node.value, ConfigValue::Whole(ranks) if 1 < ranks))
        };
        for (name, what) in [
            ("tp_size", "tensor parallelism"),
            ("cp_size", "context parallelism"),
            ("sp_size", "sequence parallelism"),
        ] {
            if let Some(entry) = size(name) {
                self.refuse(entry.node.span, what, OTHER_ENGINE);
            }
        }
        if let (Some(_), Some(entry)) = (size("dp_replicate_size"), size("dp_shard_size")) {
            let path = ["zero_optimization", "zero_hpz_partition_size"];
            self.put(&path, entry.node.value.clone(), entry);
        }
    }
}

/// Reads a truth value as accelerate does.
fn truth(value: &ConfigValue) -> Option<bool> {
    match value {
        ConfigValue::Bool(on) => Some(*on),
        ConfigValue::Null | ConfigValue::Whole(0) => Some(false),
        ConfigValue::Whole(1) => Some(true),
        ConfigValue::Text(text) => match text.to_lowercase().as_str() {
            "y" | "yes" | "t" | "true" | "on" | "1" => Some(true),
            "n" | "no" | "f" | "false" | "off" | "0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Puts a value into a tree of objects, and makes the objects on its way. Places are those of `entry`.
fn insert(node: &mut ConfigNode, path: &[&str], value: ConfigValue, entry: &ConfigEntry) {
    let (ConfigValue::Map(entries), [first, rest @ ..]) = (&mut node.value, path) else { return };
    let at = entries.iter().position(|known| known.key == *first).unwrap_or_else(|| {
        let value = ConfigValue::Map(Vec::new());
        let node = ConfigNode { value, span: entry.node.span };
        entries.push(ConfigEntry { key: (*first).to_owned(), key_span: entry.key_span, node });
        entries.len() - 1
    });
    if rest.is_empty() {
        entries[at].node.value = value;
    } else {
        insert(&mut entries[at].node, rest, value, entry);
    }
}
