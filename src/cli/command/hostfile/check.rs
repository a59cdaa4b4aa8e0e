//! `remuda hostfile check`.

use std::path::{Path, PathBuf};

use crate::base::order;
use crate::base::{Diagnostic, Findings, Severity, Status, show_typed};
use crate::cli::command::hostfile::values::{ReadArgs, SelectArgs};
use crate::cli::command::hostfile::write;
use crate::cli::command::output::{CommandOutput, FindingsFormat, count};
use crate::cli::resolve::hostfile::{self, LoadError, fixes_note};
use crate::pool::{self, HostSource, Pool, ReadOptions, Reading, SelectorArgs, codes, fix, select};
use crate::report::diagnostic::{Paint, show_findings, show_line_ranges};
use crate::report::findings::{CheckKind, CheckedFile, show_github, show_json, show_sarif};
use crate::report::world::show_world;

/// Arguments of `remuda hostfile check`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct CheckArgs {
    /// Files to check; `-` is standard input; `n1:8,n2:8` is a list of hosts
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write the changes that are certain to the files
    #[arg(long)]
    fix: bool,
    /// Format of the findings
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "human")]
    format: FindingsFormat,
    /// Codes of warnings and notes to ignore, such as H039
    #[arg(long, value_name = "CODE", value_delimiter = ',', value_parser = parse_code)]
    allow: Vec<String>,
    #[command(flatten)]
    read: ReadArgs,
    #[command(flatten)]
    select: SelectArgs,
}

/// One file after the checks.
struct Checked {
    /// The file, or `None` if it could not be read.
    reading: Option<Reading>,
    /// Findings in the text, then findings of the selection.
    findings: Vec<Findings>,
    /// Hosts and slots that the selection leaves.
    world: Option<Pool>,
    /// A note about changes of the file.
    note: String,
    status: Status,
}

pub(super) fn run(args: &CheckArgs, paint: Paint) -> CommandOutput {
    let mut out = CommandOutput::new();
    let mut all = Vec::new();
    for file in &args.files {
        let checked = match check(file, args) {
            Ok(checked) => checked,
            Err(error) if args.format == FindingsFormat::Human => {
                out.refuse(&error, paint);
                continue;
            }
            Err(error) => unreadable_file(&error),
        };
        out.worsen(checked.status);
        if args.format == FindingsFormat::Human {
            out.stdout += &screen(&checked, paint);
            out.stderr += &checked.note;
        } else {
            all.push(checked);
        }
    }
    let files: Vec<CheckedFile<'_>> = all.iter().flat_map(documents).collect();
    out.stdout += &match args.format {
        FindingsFormat::Human => String::new(),
        FindingsFormat::Json => show_json(&files),
        FindingsFormat::Sarif => show_sarif(CheckKind::Hostfiles, &files),
        FindingsFormat::Github => show_github(&files),
    };
    out
}

fn check(file: &Path, args: &CheckArgs) -> Result<Checked, LoadError> {
    let options = args.read.options();
    let mut reading = args.read.read(file)?;
    let mut note = fixes_note(file, &reading.findings, options.dialect);
    if args.fix {
        (reading, note) = fix_file(file, reading, options)?;
    }
    add_lints(&mut reading, &args.allow);
    if args.fix && note.is_empty() && reading.findings.diagnostics.iter().any(is_counted) {
        note = nothing_fixed(file);
    }
    if reading.findings.source.name == hostfile::LIST_NAME {
        reading.findings.diagnostics.retain(|found| found.code != codes::DIALECT);
    }
    let selected = args.select.selector().filter(|_| !reading.findings.has_errors());
    let mut found = Vec::new();
    let world = selected.and_then(|selector| selected_world(&reading, &selector, &mut found));
    if world.as_ref().is_some_and(|world| !is_uneven(world)) {
        reading.findings.diagnostics.retain(|found| found.code != codes::UNEQUAL_SLOTS);
    }
    let findings = [vec![reading.findings.clone()], found].concat();
    let status = status(&findings);
    Ok(Checked { reading: Some(reading), findings, world, note, status })
}

/// Adds findings about content that is valid but probably not intended, and removes the warnings
/// and notes of `--allow`.
fn add_lints(reading: &mut Reading, allow: &[String]) {
    let lints = pool::lint(reading);
    let mut diagnostics = std::mem::take(&mut reading.findings.diagnostics);
    diagnostics.extend(lints);
    order::sort_by_key(&mut diagnostics, |found| found.span.map(|span| span.start));
    let is_allowed = |found: &Diagnostic| {
        found.severity < Severity::Error
            && allow.iter().any(|code| code.eq_ignore_ascii_case(found.code))
    };
    diagnostics.retain(|found| !is_allowed(found));
    reading.findings.diagnostics = diagnostics;
}

fn parse_code(text: &str) -> Result<String, String> {
    let mut all = codes::EXPLANATIONS.into_iter().flatten();
    match all.find(|page| page.code.eq_ignore_ascii_case(text)) {
        Some(page) => Ok(page.code.to_owned()),
        None => Err("expected the code of a finding, such as H039".to_owned()),
    }
}

/// Returns the exit status; notes do not count as findings.
fn status(findings: &[Findings]) -> Status {
    let is_dirty = findings.iter().flat_map(|one| &one.diagnostics).any(is_counted);
    if is_dirty { Status::Findings } else { Status::Success }
}

/// Whether a finding is an error or a warning.
fn is_counted(found: &Diagnostic) -> bool {
    Severity::Note < found.severity
}

/// Whether hosts have different numbers of slots.
fn is_uneven(world: &Pool) -> bool {
    let mut counts = world.nodes().iter().map(|(_, slots)| slots.len());
    let first = counts.next();
    counts.any(|count| Some(count) != first)
}

/// The source of the hosts, for messages about a selection.
fn host_source(reading: &Reading) -> HostSource {
    match reading.findings.source.name.as_str() {
        hostfile::LIST_NAME => HostSource::typed_list(),
        "-" => HostSource::Named("standard input".to_owned()),
        name => HostSource::Hostfile(name.to_owned()),
    }
}

fn selected_world(
    reading: &Reading,
    selector: &SelectorArgs,
    findings: &mut Vec<Findings>,
) -> Option<Pool> {
    match select(&reading.hostfile.pool(), &host_source(reading), selector) {
        Ok(selected) => {
            findings.extend(selected.findings);
            Some(selected.pool)
        }
        Err(found) => {
            findings.extend(found);
            None
        }
    }
}

/// Writes the changes that are certain, and reads the file again.
fn fix_file(
    file: &Path,
    reading: Reading,
    options: ReadOptions,
) -> Result<(Reading, String), LoadError> {
    if file.as_os_str() == "-" {
        let note = fixes_note(file, &reading.findings, options.dialect);
        return Ok((reading, note));
    }
    let fixed = fix(reading, options);
    let name = file.display();
    if fixed.changed_lines.is_empty() {
        return Ok((fixed.reading, String::new()));
    }
    let changes = count(fixed.changed_lines.len() as u64, "change");
    let lines = show_line_ranges(fixed.changed_lines.iter().copied());
    write::replace(file, &fixed.reading.findings.source.text)
        .map_err(|source| LoadError::NotWritten { path: file.to_owned(), source })?;
    Ok((fixed.reading, format!("note: {name}: {changes} made, on {lines}\n")))
}

/// The note for `--fix` if there are findings, but no certain change.
fn nothing_fixed(file: &Path) -> String {
    format!(
        "note: {}: --fix changed nothing: no correction is certain; edit the file\n",
        file.display()
    )
}

/// Text with the findings of a file, or with the number of its hosts and slots.
fn screen(checked: &Checked, paint: Paint) -> String {
    let mut screen: String =
        checked.findings.iter().map(|findings| show_findings(findings, paint)).collect();
    if let Some(reading) = checked.reading.as_ref().filter(|_| checked.status == Status::Success) {
        let name = show_typed(&reading.findings.source.name);
        let hosts = count(reading.hostfile.hosts().len() as u64, "host");
        let slots = count(reading.hostfile.slot_count(), "slot");
        screen = format!("{screen}{name}: {hosts}, {slots}\n");
    }
    match &checked.world {
        Some(world) => format!("{screen}\n{}", show_world(world)),
        None => screen,
    }
}

fn unreadable_file(error: &LoadError) -> Checked {
    Checked {
        reading: None,
        findings: vec![error.as_findings()],
        world: None,
        note: String::new(),
        status: error.check_status(),
    }
}

fn documents(checked: &Checked) -> Vec<CheckedFile<'_>> {
    let mut files: Vec<CheckedFile<'_>> = checked
        .findings
        .iter()
        .map(|findings| CheckedFile { findings, hosts: Vec::new(), world: None })
        .collect();
    if let (Some(file), Some(reading)) = (files.first_mut(), &checked.reading) {
        let hosts = reading.hostfile.hosts().iter();
        file.world = checked.world.as_ref();
        file.hosts = hosts.map(|host| (host.name.as_str(), host.slots.get())).collect();
    }
    files
}
