//! The file that `accelerate config` writes: its keys and values.

use super::flags::{FlagKind, all_flags};
use super::value::SettingValue;
use crate::base::diagnostic::Severity;
use crate::base::{Diagnostic, Findings, Source, Span, env_vars, nearest};
use crate::config::codes::{BAD_CONFIG_VALUE, NOT_SUPPORTED_IN_FILE, NOT_YAML, UNKNOWN_FILE_KEY};
use crate::config::tree::{ConfigEntry, ConfigValue};
use crate::config::yaml::{YamlError, parse_yaml};

/// What a file says the job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paradigm {
    /// One process, or the CPUs of several machines.
    Simple,
    MultiDevice,
    DeepSpeed,
    Fsdp,
    Megatron,
}

/// Values of `distributed_type`; accelerate has one name for each kind of device.
const TYPES: &[(&str, Paradigm)] = &[
    ("NO", Paradigm::Simple),
    ("MULTI_CPU", Paradigm::Simple),
    ("MULTI_GPU", Paradigm::MultiDevice),
    ("MULTI_NPU", Paradigm::MultiDevice),
    ("MULTI_MLU", Paradigm::MultiDevice),
    ("MULTI_SDAA", Paradigm::MultiDevice),
    ("MULTI_MUSA", Paradigm::MultiDevice),
    ("MULTI_XPU", Paradigm::MultiDevice),
    ("MULTI_HPU", Paradigm::MultiDevice),
    ("MULTI_NEURON", Paradigm::MultiDevice),
    ("DEEPSPEED", Paradigm::DeepSpeed),
    ("FSDP", Paradigm::Fsdp),
    ("MEGATRON_LM", Paradigm::Megatron),
];

/// What a value of `distributed_type` says; `None`: there is no such value.
pub(crate) fn paradigm_of(distributed_type: &str) -> Option<Paradigm> {
    let found = TYPES.iter().find(|(name, _)| *name == distributed_type);
    found.map(|(_, paradigm)| *paradigm)
}

/// Variables that make devices visible, for values of `distributed_type` that name their kind.
const DEVICE_VARIABLES: &[(&str, &str)] = &[
    ("MULTI_GPU", env_vars::CUDA_VISIBLE_DEVICES),
    ("MULTI_NPU", env_vars::ASCEND_RT_VISIBLE_DEVICES),
    ("MULTI_MLU", env_vars::MLU_VISIBLE_DEVICES),
    ("MULTI_SDAA", env_vars::SDAA_VISIBLE_DEVICES),
    ("MULTI_MUSA", env_vars::MUSA_VISIBLE_DEVICES),
    ("MULTI_XPU", env_vars::ZE_AFFINITY_MASK),
    ("MULTI_HPU", env_vars::HABANA_VISIBLE_MODULES),
    ("MULTI_NEURON", env_vars::NEURON_RT_VISIBLE_CORES),
];

/// Keys of the file, with the name of the setting that they give.
const KEYS: &[(&str, &str)] = &[
    ("num_processes", "num_processes"),
    ("machine_rank", "machine_rank"),
    ("num_machines", "num_machines"),
    ("gpu_ids", "gpu_ids"),
    ("main_process_ip", "main_process_ip"),
    ("main_process_port", "main_process_port"),
    ("rdzv_backend", "rdzv_backend"),
    ("same_network", "same_network"),
    ("enable_cpu_affinity", "enable_cpu_affinity"),
    ("mixed_precision", "mixed_precision"),
    ("use_cpu", "use_cpu"),
    ("debug", "debug"),
];

/// Keys that earlier versions of accelerate wrote.
const FORMER_KEYS: &[&str] = &["ipex_config"];

/// Keys that are read elsewhere, or have no effect without a TPU.
const OTHER_KEYS: &[&str] = &[
    "compute_environment",
    "distributed_type",
    "main_training_function",
    "downcast_bf16",
    "tpu_name",
    "tpu_zone",
    "tpu_use_cluster",
    "tpu_use_sudo",
    "tpu_vm",
    "tpu_env",
    "command_file",
    "commands",
    "fp16",
    "dynamo_backend",
];

/// Mappings of the file, with the start of the names of their settings.
const SECTIONS: &[(&str, &str)] = &[
    ("deepspeed_config", ""),
    ("fsdp_config", "fsdp_"),
    ("fp8_config", "fp8_"),
    ("dynamo_config", "dynamo_"),
    ("parallelism_config", "parallelism_config_"),
    ("megatron_lm_config", "megatron_lm_"),
    ("mpirun_config", ""),
];

/// A setting that the file gives.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FileSetting {
    pub(crate) name: String,
    pub(crate) value: SettingValue,
    pub(crate) span: Span,
}

/// A configuration file.
#[derive(Clone, Debug)]
pub(crate) struct ConfigFile {
    pub(crate) source: Source,
    pub(crate) paradigm: Paradigm,
    /// Whether the file is for one process: `distributed_type: NO`.
    pub(crate) is_for_one: bool,
    pub(crate) settings: Vec<FileSetting>,
    /// Keys of `deepspeed_config`, in their order.
    pub(crate) deepspeed_keys: Vec<String>,
    /// Whether the file has a mapping `parallelism_config` with keys.
    pub(crate) has_parallelism: bool,
    /// Variable that makes devices visible, if `distributed_type` names their kind.
    pub(crate) device_variable: Option<&'static str>,
    /// Keys that accelerate ignores.
    pub(crate) warnings: Vec<Diagnostic>,
}

/// Reads the entries of a text.
///
/// # Errors
/// If it is no mapping of YAML.
pub(super) fn read_entries(text: &str) -> Result<Vec<ConfigEntry>, Box<Diagnostic>> {
    let root = parse_yaml(text).map_err(|error| Box::new(not_yaml(error)))?;
    let ConfigValue::Map(entries) = root.value else {
        let problem = Diagnostic::error(NOT_YAML, root.span, "the file has no keys")
            .help("give a file that `accelerate config` wrote");
        return Err(Box::new(problem));
    };
    Ok(entries)
}

/// Reads the text of a file.
///
/// # Errors
/// Every problem of the file, with its place.
pub(crate) fn parse_config_file(source: Source) -> Result<ConfigFile, Findings> {
    let entries = match read_entries(&source.text) {
        Ok(entries) => entries,
        Err(problem) => return Err(Findings { source, diagnostics: vec![*problem] }),
    };
    let mut reader = Reader::default();
    for entry in entries.iter().filter(|entry| !is_replaced(entry, &entries)) {
        reader.top(entry);
    }
    if reader.paradigm.is_none() && reader.problems.is_empty() {
        let problem = Diagnostic::whole(BAD_CONFIG_VALUE, "the key `distributed_type` is missing")
            .help("add `distributed_type: MULTI_GPU`, or `NO`, `FSDP`, `DEEPSPEED`");
        reader.problems.push(problem);
    }
    match reader.paradigm {
        Some(paradigm) if reader.problems.is_empty() => Ok(ConfigFile {
            source,
            paradigm,
            is_for_one: reader.is_for_one,
            settings: reader.settings,
            deepspeed_keys: reader.deepspeed_keys,
            has_parallelism: reader.has_parallelism,
            device_variable: reader.device_variable,
            warnings: reader.warnings,
        }),
        _ => Err(Findings { source, diagnostics: reader.problems }),
    }
}

/// Whether accelerate ignores an entry because the file has another one.
fn is_replaced(entry: &ConfigEntry, entries: &[ConfigEntry]) -> bool {
    let has = |key: &str| entries.iter().any(|other| other.key == key);
    match &*entry.key {
        "fp16" => has("mixed_precision"),
        "dynamo_config" => has("dynamo_backend"),
        _ => false,
    }
}

fn not_yaml(error: YamlError) -> Diagnostic {
    let problem = Diagnostic::error(NOT_YAML, error.span, error.message);
    match error.earlier {
        Some((span, label)) => problem.label("here").related(span, label),
        None => problem.label("cannot be read"),
    }
}

#[derive(Default)]
struct Reader {
    paradigm: Option<Paradigm>,
    is_for_one: bool,
    settings: Vec<FileSetting>,
    deepspeed_keys: Vec<String>,
    has_parallelism: bool,
    device_variable: Option<&'static str>,
    warnings: Vec<Diagnostic>,
    problems: Vec<Diagnostic>,
    is_in_mapping: bool,
}

impl Reader {
    /// Reads an entry of the file.
    fn top(&mut self, entry: &ConfigEntry) {
        let key = &*entry.key;
        if let Some((_, prefix)) = SECTIONS.iter().find(|(name, _)| *name == key) {
            self.section(entry, prefix);
        } else if let Some((_, name)) = KEYS.iter().find(|(known, _)| *known == key) {
            self.setting(entry, name);
        } else if OTHER_KEYS.contains(&key) {
            self.other(entry);
        } else {
            self.unknown(entry);
        }
    }

    fn setting(&mut self, entry: &ConfigEntry, name: &str) {
        let span = entry.node.span;
        if name == "mixed_precision" && !is_precision(&entry.node.value) {
            return self.bad_value(entry, "expected `no`, `fp16`, `bf16` or `fp8`");
        }
        match SettingValue::of_node(&entry.node) {
            // Scripts read the settings of mappings, which may be text: `auto`.
            Some(value) if !self.is_in_mapping && is_whole(name) && !value.is_whole_or_none() => {
                self.bad_value(entry, "expected a whole number");
            }
            // `mixed_precision: no` without quotes.
            Some(SettingValue::Bool(false)) if name == "mixed_precision" => {
                self.push(name, SettingValue::Text("no".to_owned()), span);
            }
            Some(value) => self.push(name, value, span),
            None => self.bad_value(entry, "expected a value, not a mapping"),
        }
    }

    fn other(&mut self, entry: &ConfigEntry) {
        let text = match &entry.node.value {
            ConfigValue::Text(text) => Some(text.as_str()),
            // `distributed_type: NO` without quotes.
            ConfigValue::Bool(false) if entry.key == "distributed_type" => Some("NO"),
            _ => None,
        };
        match (&*entry.key, text) {
            ("distributed_type", Some("XLA")) => {
                self.not_supported(entry, "TPUs are not supported");
            }
            ("distributed_type", text) => {
                self.paradigm = text.and_then(paradigm_of);
                self.is_for_one = text == Some("NO");
                let variable = DEVICE_VARIABLES.iter().find(|(name, _)| Some(*name) == text);
                self.device_variable = variable.map(|(_, variable)| *variable);
                if self.paradigm.is_none() {
                    let names: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
                    self.bad_value(entry, &format!("expected one of {}", names.join(", ")));
                    let near = text.and_then(|text| nearest(text, names));
                    if let (Some(near), Some(problem)) = (near, self.problems.last_mut()) {
                        problem.help = Some(format!("did you mean `{near}`?"));
                    }
                }
            }
            ("compute_environment", Some("LOCAL_MACHINE")) => {}
            ("compute_environment", _) => {
                self.not_supported(entry, "only `compute_environment: LOCAL_MACHINE` is supported");
            }
            ("fp16", _) if entry.node.value == ConfigValue::Bool(true) => {
                self.push(
                    "mixed_precision",
                    SettingValue::Text("fp16".to_owned()),
                    entry.node.span,
                );
            }
            ("dynamo_backend", Some(backend)) => {
                self.push(
                    "dynamo_backend",
                    SettingValue::Text(backend.to_owned()),
                    entry.node.span,
                );
            }
            ("tpu_use_cluster", _) if entry.node.value == ConfigValue::Bool(true) => {
                self.not_supported(entry, "TPUs are not supported");
            }
            _ => {}
        }
    }

    fn push(&mut self, name: &str, value: SettingValue, span: Span) {
        self.settings.push(FileSetting { name: name.to_owned(), value, span });
    }

    fn section(&mut self, entry: &ConfigEntry, prefix: &str) {
        let entries = match &entry.node.value {
            ConfigValue::Map(entries) => entries,
            ConfigValue::Null => return,
            _ => return self.bad_value(entry, "expected a mapping"),
        };
        if entry.key == "deepspeed_config" {
            self.deepspeed_keys = entries.iter().map(|inner| inner.key.clone()).collect();
        }
        self.has_parallelism |= entry.key == "parallelism_config" && !entries.is_empty();
        self.is_in_mapping = true;
        for inner in entries {
            let name = match inner.key.strip_prefix(prefix) {
                Some(_) => inner.key.clone(),
                None => format!("{prefix}{}", inner.key),
            };
            if all_flags().any(|flag| flag.name == name) || NO_FLAG.contains(&&*name) {
                self.setting(inner, &name);
            } else {
                self.ignored(inner, (&entry.key, prefix));
            }
        }
        self.is_in_mapping = false;
    }

    /// accelerate ignores unknown keys of a mapping.
    fn ignored(&mut self, entry: &ConfigEntry, (section, prefix): (&str, &str)) {
        let message = format!("the key `{}` of `{section}` is unknown", entry.key.escape_debug());
        let warning = Diagnostic::error(UNKNOWN_FILE_KEY, entry.key_span, message)
            .severity(Severity::Warning)
            .label("has no effect");
        let of_section = all_flags().map(|flag| flag.name).filter(|name| name.starts_with(prefix));
        // Keys of DeepSpeed have its name in front of them, which users leave out.
        let with_section = [section.trim_end_matches("config"), &entry.key].concat();
        let known: Vec<&str> = of_section.chain(NO_FLAG.iter().copied()).collect();
        let near = known.iter().copied().find(|name| *name == with_section);
        let near = near.or_else(|| nearest(&entry.key, known));
        self.warnings.push(match near {
            Some(near) => warning.help(format!("did you mean `{near}`?")),
            None => warning,
        });
    }

    fn unknown(&mut self, entry: &ConfigEntry) {
        let known = KEYS.iter().map(|(key, _)| *key).chain(OTHER_KEYS.iter().copied());
        let known = known.chain(SECTIONS.iter().map(|(key, _)| *key));
        let message = format!("unknown key `{}`", entry.key.escape_debug());
        let problem = Diagnostic::error(UNKNOWN_FILE_KEY, entry.key_span, message).label("unknown");
        let is_former = FORMER_KEYS.contains(&&*entry.key);
        self.problems.push(match nearest(&entry.key, known).filter(|_| !is_former) {
            None if is_former => problem.help("remove the key: accelerate 1.15 no longer has it"),
            Some(near) => {
                problem.help(format!("did you mean `{near}`?")).guess(entry.key_span, near)
            }
            None => problem.help("remove the key; accelerate refuses it too"),
        });
    }

    fn bad_value(&mut self, entry: &ConfigEntry, label: &str) {
        let message = format!("the value of `{}` is invalid", entry.key);
        let problem = Diagnostic::error(BAD_CONFIG_VALUE, entry.node.span, message);
        self.problems.push(problem.label(label));
    }

    fn not_supported(&mut self, entry: &ConfigEntry, message: &str) {
        let problem = Diagnostic::error(NOT_SUPPORTED_IN_FILE, entry.node.span, message);
        let help = "type `accelerate launch --config_file FILE SCRIPT`, with accelerate itself";
        self.problems.push(problem.label("here").help(help));
    }
}

/// Whether a setting is a whole number.
fn is_whole(name: &str) -> bool {
    all_flags().any(|flag| flag.name == name && flag.kind == FlagKind::Whole)
}

/// Whether `mixed_precision` can have a value; accelerate reads it in any case.
fn is_precision(value: &ConfigValue) -> bool {
    match value {
        ConfigValue::Null | ConfigValue::Bool(false) => true,
        ConfigValue::Text(text) => {
            ["no", "fp16", "bf16", "fp8"].iter().any(|name| text.eq_ignore_ascii_case(name))
        }
        _ => false,
    }
}

/// Settings that only a file gives.
const NO_FLAG: &[&str] = &["fsdp_ignored_modules"];

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<ConfigFile, Findings> {
        parse_config_file(Source { name: "config.yaml".to_owned(), text: text.to_owned() })
    }

    #[test]
    fn keys_of_mappings_are_settings() {
        let file = read_text(
            "distributed_type: FSDP\nfsdp_config:\n  offload_params: true\n  \
             fsdp_version: 2\nnum_processes: 8\nparallelism_config:\n  tp_size: 2\n",
        )
        .expect("a configuration");
        assert_eq!(file.paradigm, Paradigm::Fsdp);
        let names: Vec<&str> = file.settings.iter().map(|setting| &*setting.name).collect();
        let expected =
            ["fsdp_offload_params", "fsdp_version", "num_processes", "parallelism_config_tp_size"];
        assert_eq!(names, expected);
        assert!(file.has_parallelism);
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let text = "distributed_type: MULTI\nnum_proceses: 2\ndeepspeed_config: 3\n";
        let findings = read_text(text).expect_err("refused");
        let messages: Vec<&str> =
            findings.diagnostics.iter().map(|found| &*found.message).collect();
        assert_eq!(messages.len(), 3, "{messages:?}");
        assert_eq!(findings.diagnostics[1].help.as_deref(), Some("did you mean `num_processes`?"));
    }

    #[test]
    fn precision_without_quotes_is_a_word() {
        let file =
            read_text("distributed_type: NO\nmixed_precision: no\n").expect("a configuration");
        assert_eq!(file.settings[0].value, SettingValue::Text("no".to_owned()));
    }

    #[test]
    fn precision_is_one_that_accelerate_has() {
        for (word, is_known) in [("BF16", true), ("null", true), ("bf17", false), ("true", false)] {
            let read = read_text(&format!("distributed_type: NO\nmixed_precision: {word}\n"));
            assert_eq!(read.is_ok(), is_known, "for `{word}`: {read:?}");
        }
    }

    #[test]
    fn key_of_an_earlier_version_is_to_be_removed() {
        let findings = read_text("ipex_config:\n  ipex: false\n").expect_err("it is unknown");
        let help = findings.diagnostics[0].help.as_deref();
        assert_eq!(help, Some("remove the key: accelerate 1.15 no longer has it"));
    }

    #[test]
    fn unknown_keys_of_mappings_have_no_effect() {
        let text = "distributed_type: FSDP\nfsdp_config: {fsdp_colour: red}\n";
        let file = read_text(text).expect("a configuration");
        assert_eq!(file.warnings.len(), 1);
        assert_eq!(file.settings, []);
    }
}
