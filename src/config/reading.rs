//! Reading of a file: its dialect, its tree, its meaning.

use std::collections::BTreeMap;

use super::accelerate::{AccelerateTree, training_tree};
use super::check::{CheckedTree, Ineffective, check_tree};
use super::codes::CONFIG_NOT_TEXT;
use super::hjson::parse_hjson;
use super::inputs::ConfigInputs;
use super::resolve::{Resolution, ResolvedValue, WorldSize, resolve};
use super::training::{RecomputeConfig, ShardGroupConfig, TrainingConfig};
use crate::base::order;
use crate::base::{Diagnostic, Findings, NotUtf8, Source, Span, decode_text};

/// The kind of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigDialect {
    /// `ds_config.json` of DeepSpeed.
    DeepSpeed,
    /// The YAML that `accelerate config` writes.
    Accelerate,
}

impl ConfigDialect {
    /// The tool that the file is for.
    pub fn tool(self) -> &'static str {
        match self {
            Self::DeepSpeed => "DeepSpeed",
            Self::Accelerate => "accelerate",
        }
    }

    /// The dialect of a file: YAML by the end of its name, or by a key that only accelerate has at the start
    /// of a line.
    pub fn detect(name: &str, text: &str) -> Self {
        let is_yaml = [".yaml", ".yml"].iter().any(|end| name.to_lowercase().ends_with(end));
        let is_json = name.to_lowercase().ends_with(".json");
        let has_key = |line: &str| {
            line.starts_with("distributed_type:") || line.starts_with("compute_environment:")
        };
        if is_yaml || !is_json && text.lines().any(has_key) {
            Self::Accelerate
        } else {
            Self::DeepSpeed
        }
    }
}

/// Whether a text is a `ds_config.json`, where a file of accelerate is expected; that may be JSON as well.
pub fn is_deepspeed_config(text: &str) -> bool {
    const OWN_KEYS: [&str; 6] = [
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "zero_optimization",
        "optimizer",
        "bf16",
    ];
    let root = parse_hjson(text).root;
    let entries = root.as_ref().and_then(|root| root.value.entries()).unwrap_or_default();
    let has = |key: &str| entries.iter().any(|entry| entry.key == key);
    OWN_KEYS.into_iter().any(has) && !has("distributed_type") && !has("compute_environment")
}

/// What a file says about training.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigReading {
    /// The text and all of its problems, in the order of the text.
    pub findings: Findings,
    /// The kind of the file.
    pub dialect: ConfigDialect,
    /// The configuration; `None` if the file has errors.
    pub config: Option<TrainingConfig>,
    /// The number of ranks for which it was resolved.
    pub world_size: WorldSize,
    /// Numbers of ranks for which the batch sizes are correct; empty: all, or none.
    pub legal_world_sizes: Vec<u64>,
    /// The values that apply, with their origins.
    pub values: Vec<ResolvedValue>,
    /// The places of the values that the file gives, by the paths of their keys.
    pub places: BTreeMap<String, Span>,
    /// Keys without effect, in the order of the text.
    pub ineffective: Vec<Ineffective>,
    /// The file of DeepSpeed that a file of accelerate names: it has the settings.
    pub included: Option<String>,
}

/// Reads the bytes of a file named `name`, for some arguments.
pub fn read_config(name: &str, bytes: &[u8], inputs: &ConfigInputs) -> ConfigReading {
    let (text, problem) = decode_text(bytes);
    let dialect = ConfigDialect::detect(name, &text);
    let source = Source { name: name.to_owned(), text };
    if let Some(problem) = problem {
        return unreadable(source, dialect, vec![not_text(problem)]);
    }
    match dialect {
        ConfigDialect::DeepSpeed => read_deepspeed(source, inputs),
        ConfigDialect::Accelerate => read_accelerate(source, inputs),
    }
}

fn not_text(problem: NotUtf8) -> Diagnostic {
    let message = problem.message();
    match problem {
        NotUtf8::Utf16 => {
            let help = "type `iconv -f UTF-16 -t UTF-8 FILE > NEW`, and use NEW";
            Diagnostic::whole(CONFIG_NOT_TEXT, message).help(help)
        }
        NotUtf8::Byte { byte, span, .. } => Diagnostic::error(CONFIG_NOT_TEXT, span, message)
            .label(format!("byte 0x{byte:02x}"))
            .help("save the file as UTF-8"),
    }
}

/// A file whose tree is not known.
fn unreadable(
    source: Source,
    dialect: ConfigDialect,
    diagnostics: Vec<Diagnostic>,
) -> ConfigReading {
    ConfigReading {
        findings: Findings { source, diagnostics },
        dialect,
        config: None,
        world_size: WorldSize::Assumed(1),
        legal_world_sizes: Vec::new(),
        values: Vec::new(),
        places: BTreeMap::new(),
        ineffective: Vec::new(),
        included: None,
    }
}

fn read_deepspeed(source: Source, inputs: &ConfigInputs) -> ConfigReading {
    let document = parse_hjson(&source.text);
    let Some(root) = document.root else {
        return unreadable(source, ConfigDialect::DeepSpeed, document.problems);
    };
    let checked = check_tree(&root);
    let is_object = root.value.entries().is_some();
    if !is_object {
        return unreadable(source, ConfigDialect::DeepSpeed, checked.problems);
    }
    let mut reading = resolved(source, ConfigDialect::DeepSpeed, checked, inputs);
    reading.findings.diagnostics.extend(document.problems);
    finish(reading)
}

fn read_accelerate(source: Source, inputs: &ConfigInputs) -> ConfigReading {
    let tree = match training_tree(source.clone()) {
        Ok(tree) => tree,
        Err(problem) => return unreadable(source, ConfigDialect::Accelerate, vec![*problem]),
    };
    let AccelerateTree {
        root,
        problems,
        ineffective,
        implied,
        recomputes,
        shards_within_node,
        ranks,
        included,
    } = tree;
    let inputs = ConfigInputs { world_size: inputs.world_size.or(ranks), ..inputs.clone() };
    let checked = check_tree(&root);
    let mut reading = resolved(source, ConfigDialect::Accelerate, checked, &inputs);
    reading.findings.diagnostics.extend(problems);
    reading.ineffective.extend(ineffective);
    reading.included = included;
    for (path, words) in implied {
        super::resolve::set_origin(&mut reading.values, path, words);
    }
    if shards_within_node {
        if let Some(config) = &mut reading.config {
            config.zero.shard_group = ShardGroupConfig::Node;
        }
        super::resolve::note_shards_of_node(&mut reading.values);
    }
    if let Some((recomputation, place)) = recomputes {
        reading.places.insert("fsdp_config.fsdp_activation_checkpointing".to_owned(), place);
        if let Some(config) = &mut reading.config {
            config.recomputation = Some(recomputation);
        }
        if recomputation == RecomputeConfig::EveryBlock {
            super::resolve::note_recomputation(&mut reading.values);
        }
    }
    finish(reading)
}

/// Resolves a checked tree.
fn resolved(
    source: Source,
    dialect: ConfigDialect,
    checked: CheckedTree,
    inputs: &ConfigInputs,
) -> ConfigReading {
    let CheckedTree { settings, mut problems, mut ineffective } = checked;
    let Resolution { config, world_size, legal, values, problems: more, ineffective: idle } =
        resolve(&settings, inputs);
    problems.extend(more);
    ineffective.extend(idle);
    ConfigReading {
        findings: Findings { source, diagnostics: problems },
        dialect,
        config,
        world_size,
        legal_world_sizes: legal,
        values,
        places: settings.places(),
        ineffective,
        included: None,
    }
}

/// Sorts the problems, and removes the configuration of a file with errors.
fn finish(mut reading: ConfigReading) -> ConfigReading {
    let start = |span: Option<Span>| span.map(|span| span.start);
    order::sort_by_key(&mut reading.findings.diagnostics, |found| start(found.span));
    order::sort_by_key(&mut reading.ineffective, |found| found.span.start);
    reading.ineffective.dedup();
    if reading.findings.has_errors() {
        reading.config = None;
    }
    reading
}
