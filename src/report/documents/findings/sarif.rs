//! SARIF 2.1.0, for code hosts and editors that read it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::located::{
    CheckedFile, LocatedDiagnostic, TextRegion, locate_diagnostics, severity_name,
};
use crate::{config, pool};

/// What was checked: code hosts keep the results of each kind until the next document of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// `remuda hostfile check`.
    Hostfiles,
    /// `remuda config check`.
    Configurations,
}

impl CheckKind {
    /// Identifier of a run, which ends with `/`: the part before it is the category on code hosts.
    fn id(self) -> &'static str {
        match self {
            Self::Hostfiles => "remuda-hostfile-check/",
            Self::Configurations => "remuda-config-check/",
        }
    }
}

/// Formats the document; ends with a line end.
pub fn show_sarif(kind: CheckKind, files: &[CheckedFile<'_>]) -> String {
    let placed = locate_diagnostics(files);
    let codes: BTreeSet<&str> = placed.iter().map(|placed| placed.diagnostic.code).collect();
    let document = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "remuda",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": codes.iter().map(|code| rule(code)).collect::<Vec<_>>(),
            }},
            "automationDetails": {"id": kind.id()},
            "columnKind": "unicodeCodePoints",
            "results": placed.iter().map(result).collect::<Vec<_>>(),
        }],
    });
    serde_json::to_string_pretty(&document).expect("keys are strings") + "\n"
}

/// A code with its explanation, as `remuda explain` prints it.
fn rule(code: &str) -> Value {
    let hostfiles = pool::codes::EXPLANATIONS.into_iter().flatten();
    let mut all = hostfiles.chain(config::codes::EXPLANATIONS.into_iter().flatten());
    let Some(found) = all.find(|found| found.code == code) else { return json!({"id": code}) };
    let first = found.text.split("\n\n").next().unwrap_or(found.text);
    // A paragraph that announces an example says nothing without it.
    let first = if first.ends_with(':') { found.text } else { first };
    json!({
        "id": code,
        "shortDescription": {"text": found.title},
        "fullDescription": {"text": first},
        "help": {
            "text": found.text,
            // Examples are indented by four blanks, which is a code block in Markdown too.
            "markdown": format!("**{}**\n\n{}", found.title, found.text),
        },
    })
}

fn result(placed: &LocatedDiagnostic<'_>) -> Value {
    let found = placed.diagnostic;
    let help = found.help.as_ref().map_or(String::new(), |help| format!("\nhelp: {help}"));
    let mut result = json!({
        "ruleId": found.code,
        "level": severity_name(found.severity),
        "message": {"text": format!("{}{help}", found.message)},
        "locations": [location(placed.file, placed.region)],
    });
    if let (Some(change), Some(place)) = (&found.suggestion, placed.replaced_region) {
        result["fixes"] = json!([{
            "description": {"text": found.help.as_deref().unwrap_or("apply the suggested change")},
            "artifactChanges": [{
                "artifactLocation": {"uri": uri(placed.file)},
                "replacements": [{
                    "deletedRegion": region(place),
                    "insertedContent": {"text": change.replacement},
                }],
            }],
        }]);
    }
    result
}

fn location(file: &str, place: Option<TextRegion>) -> Value {
    let mut location = json!({"artifactLocation": {"uri": uri(file)}});
    if let Some(place) = place {
        location["region"] = region(place);
    }
    json!({"physicalLocation": location})
}

fn region(place: TextRegion) -> Value {
    json!({
        "startLine": place.line,
        "startColumn": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    })
}

/// A path as a relative reference, or as a URI if it is absolute.
fn uri(file: &str) -> String {
    let file = file.strip_prefix("./").unwrap_or(file);
    let scheme = if file.starts_with('/') { "file://" } else { "" };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let shown = |byte| {
        if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    scheme.chars().map(String::from).chain(file.bytes().map(shown)).collect()
}
