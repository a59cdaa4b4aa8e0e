//! `hostfile check --format json`: a versioned document.

use serde::Serialize;

use super::located::{CheckedFile, LocatedDiagnostic, locate_diagnostics, severity_name};
use crate::base::Applicability;
use crate::report::world::{self, host_documents};

/// Version of the document; it increases when a field changes its meaning.
pub const FINDINGS_VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    diagnostics: Vec<DiagnosticDocument<'a>>,
    hosts: Vec<HostDocument<'a>>,
    /// The worlds that selections leave of the files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    worlds: Vec<WorldDocument<'a>>,
}

#[derive(Serialize)]
struct WorldDocument<'a> {
    file: &'a str,
    world_size: usize,
    hosts: Vec<world::HostDocument<'a>>,
}

/// A finding of a file, with its place.
#[derive(Serialize)]
pub(super) struct DiagnosticDocument<'a> {
    code: &'static str,
    severity: &'static str,
    file: &'a str,
    line: Option<usize>,
    column: Option<usize>,
    end_column: Option<usize>,
    message: &'a str,
    help: Option<&'a str>,
    suggestion: Option<SuggestionDocument<'a>>,
}

/// A change of one line.
#[derive(Serialize)]
struct SuggestionDocument<'a> {
    line: usize,
    column: usize,
    end_column: usize,
    replacement: &'a str,
    /// Whether `--fix` applies it without a prompt.
    certain: bool,
}

#[derive(Serialize)]
struct HostDocument<'a> {
    file: &'a str,
    name: &'a str,
    slots: u32,
}

/// Formats the document; ends with a line end.
pub fn show_json(files: &[CheckedFile<'_>]) -> String {
    let placed = locate_diagnostics(files);
    let hosts = files.iter().flat_map(|file| {
        let name = &*file.findings.source.name;
        file.hosts.iter().map(move |(host, slots)| HostDocument {
            file: name,
            name: host,
            slots: *slots,
        })
    });
    let document = Document {
        version: FINDINGS_VERSION,
        diagnostics: placed.iter().map(diagnostic).collect(),
        hosts: hosts.collect(),
        worlds: files.iter().filter_map(world).collect(),
    };
    serde_json::to_string_pretty(&document).expect("keys are strings") + "\n"
}

fn world<'a>(file: &CheckedFile<'a>) -> Option<WorldDocument<'a>> {
    let (pool, file) = (file.world?, &*file.findings.source.name);
    Some(WorldDocument { file, world_size: pool.slot_count(), hosts: host_documents(pool) })
}

/// Returns the document of a finding.
pub(super) fn diagnostic<'a>(placed: &LocatedDiagnostic<'a>) -> DiagnosticDocument<'a> {
    let (found, place) = (placed.diagnostic, placed.region);
    let suggestion =
        found.suggestion.as_ref().zip(placed.replaced_region).map(|(change, place)| {
            SuggestionDocument {
                line: place.line,
                column: place.column,
                end_column: place.end_column,
                replacement: &change.replacement,
                certain: change.applicability == Applicability::Certain,
            }
        });
    DiagnosticDocument {
        code: found.code,
        severity: severity_name(found.severity),
        file: placed.file,
        line: place.map(|place| place.line),
        column: place.map(|place| place.column),
        end_column: place.map(|place| place.end_column),
        message: &found.message,
        help: found.help.as_deref(),
        suggestion,
    }
}
