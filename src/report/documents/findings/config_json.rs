//! `config check --format json`: a versioned document.

use serde::Serialize;
use serde_json::Value;

use super::json::{DiagnosticDocument, diagnostic};
use super::located::{CheckedFile, locate_diagnostics};
use crate::base::Findings;
use crate::config::{ConfigReading, ConfigValue, ValueOrigin, WorldSize};
use crate::report::diagnostic::Lines;

/// Version of the document; it increases when a field changes its meaning.
pub const CONFIG_VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    diagnostics: Vec<DiagnosticDocument<'a>>,
    configs: Vec<ConfigDocument<'a>>,
}

#[derive(Serialize)]
struct ConfigDocument<'a> {
    file: &'a str,
    /// `DeepSpeed` or `accelerate`.
    tool: &'static str,
    /// Whether the file has no error; else there are no values.
    is_usable: bool,
    world_size: u64,
    /// Whether the number of ranks was not given.
    is_world_size_assumed: bool,
    /// Numbers of ranks that the batch sizes fit; empty: all, or none.
    legal_world_sizes: &'a [u64],
    values: Vec<ValueDocument<'a>>,
    no_effect: Vec<IneffectiveDocument<'a>>,
}

#[derive(Serialize)]
struct ValueDocument<'a> {
    key: &'a str,
    value: Value,
    /// `file`, `default`, `auto` or `derived`.
    origin: &'static str,
    /// The rule of `auto`, or what the value follows from.
    rule: Option<&'a str>,
}

#[derive(Serialize)]
struct IneffectiveDocument<'a> {
    key: &'a str,
    line: usize,
    column: usize,
    reason: &'a str,
}

/// Formats the document of some files, and the errors of files that could not be read; ends with a line end.
pub fn show_config_json(readings: &[&ConfigReading], unreadable: &[&Findings]) -> String {
    let read = readings.iter().map(|reading| &reading.findings);
    let all = read.chain(unreadable.iter().copied());
    let file = |findings| CheckedFile { findings, hosts: Vec::new(), world: None };
    let files: Vec<CheckedFile<'_>> = all.map(file).collect();
    let placed = locate_diagnostics(&files);
    let document = Document {
        version: CONFIG_VERSION,
        diagnostics: placed.iter().map(diagnostic).collect(),
        configs: readings.iter().copied().map(config).collect(),
    };
    serde_json::to_string_pretty(&document).expect("keys are strings") + "\n"
}

fn config(reading: &ConfigReading) -> ConfigDocument<'_> {
    let is_usable = !reading.findings.has_errors();
    let lines = Lines::new(&reading.findings.source);
    let no_effect = reading.ineffective.iter().map(|idle| {
        let (line, column) = lines.position(idle.span.start);
        IneffectiveDocument { key: &idle.path, line, column, reason: &idle.reason }
    });
    let values = reading.values.iter().map(|found| {
        let (origin, rule) = match &found.origin {
            ValueOrigin::File => ("file", None),
            ValueOrigin::Default => ("default", None),
            ValueOrigin::Auto { rule, .. } => ("auto", Some(*rule)),
            ValueOrigin::Derived(words) => ("derived", Some(words.as_str())),
        };
        ValueDocument { key: &found.path, value: json(&found.value), origin, rule }
    });
    ConfigDocument {
        file: &reading.findings.source.name,
        tool: reading.dialect.tool(),
        is_usable,
        world_size: reading.world_size.get(),
        is_world_size_assumed: matches!(reading.world_size, WorldSize::Assumed(_)),
        legal_world_sizes: &reading.legal_world_sizes,
        values: if is_usable { values.collect() } else { Vec::new() },
        no_effect: no_effect.collect(),
    }
}

fn json(value: &ConfigValue) -> Value {
    match value {
        ConfigValue::Null => Value::Null,
        ConfigValue::Bool(on) => Value::Bool(*on),
        ConfigValue::Whole(number) => Value::from(*number),
        ConfigValue::Float(number) => Value::from(*number),
        ConfigValue::Text(text) => Value::String(text.clone()),
        ConfigValue::List(items) => items.iter().map(|item| json(&item.value)).collect(),
        ConfigValue::Map(entries) => {
            entries.iter().map(|entry| (entry.key.clone(), json(&entry.node.value))).collect()
        }
    }
}
