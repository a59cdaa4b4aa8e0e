//! What a training configuration means, for people: the values that apply, and keys without effect.

use std::fmt::Write as _;

use crate::base::Findings;
use crate::config::{
    ConfigReading, ConfigValue, Ineffective, ResolvedValue, ValueOrigin, WorldSize, show_number,
};
use crate::report::diagnostic::Lines;
use crate::report::text::{Align, escape_control, show_columns};

/// World sizes that the first line lists.
const WORLD_SIZES_SHOWN: usize = 8;

/// Formats the values of a configuration, and its keys without effect.
pub fn show_config(reading: &ConfigReading) -> String {
    let mut out = head(reading);
    if let Some(file) = &reading.included {
        let file = escape_control(file);
        writeln!(out, "  the settings are those of {file}, checked below").expect(STRING);
    } else {
        out += "\n";
        let rows: Vec<[String; 3]> = reading.values.iter().map(row).collect();
        out += &table(&rows);
    }
    if !reading.ineffective.is_empty() {
        out += "\nno effect here:\n";
        let rows: Vec<[String; 3]> = idle_rows(&reading.findings, reading);
        out += &table(&rows);
    }
    out
}

const STRING: &str = "writing to a String cannot fail";

/// `ds_config.json: DeepSpeed configuration on 8 ranks`.
fn head(reading: &ConfigReading) -> String {
    let name = escape_control(&reading.findings.source.name);
    let tool = reading.dialect.tool();
    let ranks = ranks(reading.world_size.get());
    let mut line = format!("{name}: configuration of {tool} on {ranks}");
    if matches!(reading.world_size, WorldSize::Assumed(_)) {
        line += " (no --world_size)";
        if 1 < reading.legal_world_sizes.len() {
            let shown: Vec<String> = reading
                .legal_world_sizes
                .iter()
                .take(WORLD_SIZES_SHOWN)
                .map(u64::to_string)
                .collect();
            let more =
                if WORLD_SIZES_SHOWN < reading.legal_world_sizes.len() { ", …" } else { "" };
            let shown = shown.join(", ");
            let _ = write!(line, "; its batch sizes fit {shown}{more} ranks");
        }
    }
    line + "\n"
}

fn ranks(count: u64) -> String {
    if count == 1 { "1 rank".to_owned() } else { format!("{count} ranks") }
}

fn row(value: &ResolvedValue) -> [String; 3] {
    let origin = match &value.origin {
        ValueOrigin::File => "file".to_owned(),
        ValueOrigin::Default => "default".to_owned(),
        ValueOrigin::Auto { source, .. } => format!("auto: {source}"),
        ValueOrigin::Derived(words) => format!("= {words}"),
    };
    [value.path.clone(), shown(&value.value), origin]
}

/// A value without quotation marks, if it can be told from others without them.
fn shown(value: &ConfigValue) -> String {
    match value {
        ConfigValue::Text(text) if !text.is_empty() => escape_control(text),
        ConfigValue::Whole(number) if 1_000_000 <= *number => show_number(*number as f64),
        _ => escape_control(&value.show()),
    }
}

fn idle_rows(findings: &Findings, reading: &ConfigReading) -> Vec<[String; 3]> {
    let lines = Lines::new(&findings.source);
    let row = |idle: &Ineffective| {
        [format!("line {}", lines.number(idle.span.start)), idle.path.clone(), idle.reason.clone()]
    };
    reading.ineffective.iter().map(row).collect()
}

/// Formats rows of three columns, indented.
fn table(rows: &[[String; 3]]) -> String {
    let text = show_columns(rows, [Align::Left; 3]);
    text.split_inclusive('\n').flat_map(|line| ["  ", line]).collect()
}
