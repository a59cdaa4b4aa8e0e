//! Reads hostfiles, for every command that takes one.

use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::base::shell::quoted;
use crate::base::{Diagnostic, Findings, HostName, Severity, Source, Status};
use crate::cli::line::{CommandLine, as_host_list};
use crate::cli::resolve::trust::{Trust, is_foreign};
use crate::os::files::input_file::{InputReader, irregular_kind, is_pipe, open};
use crate::pool::nodeset::is_pattern;
use crate::pool::{
    self, Dialect, NAME_A_HOSTFILE, ReadOptions, Reading, SlotCount, SlotsOption, certain_changes,
    codes, nearest,
};
use crate::report::diagnostic::{Paint, show_findings, show_problems};
use crate::report::text::show_io_error;

/// Maximum size of a hostfile, in bytes; [`pool::HOSTS_MAX`] hosts with long names and comments
/// fit.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Name in messages of a list that was typed as an argument.
pub(in crate::cli) const LIST_NAME: &str = "list";

/// Name in messages of a list that was typed as the value of `-H`.
pub(in crate::cli) const OPTION_NAME: &str = "--hostfile";

/// Error while a hostfile is loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file does not exist, and a job needs it.
    #[error("hostfile `{}` does not exist", .0.display())]
    Missing(PathBuf),
    /// The file does not exist, and the command starts no job.
    #[error("hostfile `{}` does not exist", .0.display())]
    MissingInput(PathBuf),
    /// The path is a directory, a pipe or a device.
    #[error("hostfile `{}` is not a regular file: it is {kind}", .path.display())]
    NotAFile {
        /// Path of the file.
        path: PathBuf,
        /// The kind of the file.
        kind: &'static str,
    },
    /// The file could not be read.
    #[error("cannot read hostfile `{}`", .path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Every user can write the file, and so choose the hosts of the job.
    #[error("every user can write hostfile `{}`", .0.display())]
    WritableByAll(PathBuf),
    /// The file is larger than the limit.
    #[error("hostfile `{}` is larger than 64 MiB", .0.display())]
    TooLarge(PathBuf),
    /// The file could not be changed.
    #[error("cannot write hostfile `{}`", .path.display())]
    NotWritten {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file has errors.
    #[error("hostfile `{}` has errors", .0.source.name)]
    Malformed(Findings),
}

impl LoadError {
    /// Returns the exit status of a launch that fails with this error.
    pub fn status(&self) -> Status {
        match self {
            Self::Missing(_)
            | Self::MissingInput(_)
            | Self::NotAFile { .. }
            | Self::Unreadable { .. } => Status::NoInput,
            Self::WritableByAll(_) => Status::Permission,
            Self::TooLarge(_) | Self::Malformed(_) => Status::BadInput,
            Self::NotWritten { .. } => Status::Io,
        }
    }

    /// Returns the exit status of `hostfile check`: 2 if the file could not be checked.
    pub(in crate::cli) fn check_status(&self) -> Status {
        match self {
            Self::WritableByAll(_) | Self::TooLarge(_) | Self::Malformed(_) => Status::Findings,
            Self::Missing(_)
            | Self::MissingInput(_)
            | Self::NotAFile { .. }
            | Self::Unreadable { .. }
            | Self::NotWritten { .. } => Status::Usage,
        }
    }

    /// Returns the text that the user sees.
    pub fn screen(&self, paint: Paint) -> String {
        match self {
            // A list on the command line is short: its only error needs no count.
            Self::Malformed(findings)
                if findings.source.name.starts_with('-') && findings.diagnostics.len() == 1 =>
            {
                show_problems(findings, paint)
            }
            Self::Malformed(findings) => {
                let file = Path::new(&findings.source.name);
                let is_file = file.is_file();
                let note = if is_file { fixes_note(file, findings, None) } else { String::new() };
                show_findings(findings, paint) + &note
            }
            _ => show_findings(&self.as_findings(), paint),
        }
    }

    /// Returns the error in the words of the line: a list has the name of its option as it was typed.
    pub(in crate::cli) fn named_as(mut self, typed: &CommandLine) -> Self {
        let Self::Malformed(findings) = &mut self else { return self };
        if let Some(name) = typed.spelling("hostfile")
            && findings.source.name == OPTION_NAME
        {
            findings.source.name = name;
        }
        self
    }

    /// Returns what was probably meant by the path of a file that does not exist.
    fn missing_help(&self, path: &Path) -> String {
        let is_option = matches!(self, Self::Missing(_));
        let name = path.to_str().filter(|name| HostName::parse(name).is_ok());
        if let Some(list) = path.to_str().and_then(as_host_list) {
            return format!("did you mean `{list}`?");
        }
        if let Some(near) = near_hostfile(path).map(quoted) {
            return match name {
                _ if !is_option => format!("did you mean `{near}`?"),
                None => format!("did you mean `-H {near}`?"),
                Some(name) => format!(
                    "did you mean `-H {near}`? a host of this name is written with its slots: `-H {name}:4`"
                ),
            };
        }
        let without_slots = path.to_str().and_then(host_without_slots).filter(|_| is_option);
        if let Some(host) = without_slots {
            return format!(
                "the slots of a host are a number: `-H {host}:4`; without -H the job runs on this machine"
            );
        }
        let help = if !is_option {
            "correct the path; `-` is standard input"
        } else if all_host_names(&path.to_string_lossy()) {
            // A path that looks like names of hosts may be a list of hosts.
            "correct the path, or add slots to a host name: `-H HOST:4`; without -H the job runs on this machine"
        } else {
            "correct the path; without a hostfile the command runs on this machine"
        };
        help.to_owned()
    }

    pub(in crate::cli) fn as_findings(&self) -> Findings {
        let (code, path, help) = match self {
            Self::Malformed(findings) => return findings.clone(),
            Self::Missing(path) | Self::MissingInput(path) => {
                return finding(codes::FILE_MISSING, self, path, &self.missing_help(path));
            }
            // Users of DeepSpeed give this path if there is no hostfile.
            Self::NotAFile { path, .. } if path == Path::new("/dev/null") => {
                (codes::NOT_A_FILE, path, "it names no host; a job without -H runs on this machine")
            }
            Self::NotAFile { path, .. } => {
                (codes::NOT_A_FILE, path, "write the hosts to a file and use that file")
            }
            Self::Unreadable { path, source } if source.raw_os_error() == Some(libc::ELOOP) => {
                (codes::UNREADABLE, path, "the link points to itself; name the file")
            }
            Self::Unreadable { path, source } => {
                let help = format!("make it readable: `chmod u+r {}`", quoted(path));
                let message = format!("{self}: {}", show_io_error(source));
                return whole(codes::UNREADABLE, message, path, &help);
            }
            Self::WritableByAll(path) => {
                let quoted = quoted(path);
                let help = format!("type `chmod o-w {quoted}`, or add `--allow_insecure_files`");
                return finding(codes::WRITABLE_BY_ALL, self, path, &help);
            }
            Self::NotWritten { path, .. } => (
                codes::NOT_WRITTEN,
                path,
                "its directory must be writable, because the file is replaced",
            ),
            Self::TooLarge(path) => (codes::FILE_TOO_LARGE, path, NAME_A_HOSTFILE),
        };
        let message = match self {
            Self::Unreadable { source, .. } | Self::NotWritten { source, .. } => {
                format!("{self}: {}", show_io_error(source))
            }
            _ => self.to_string(),
        };
        let source = Source { name: path.display().to_string(), text: String::new() };
        Findings { source, diagnostics: vec![Diagnostic::whole(code, message).help(help)] }
    }
}

fn finding(code: &'static str, error: &LoadError, path: &Path, help: &str) -> Findings {
    whole(code, error.to_string(), path, help)
}

fn whole(code: &'static str, message: String, path: &Path, help: &str) -> Findings {
    let source = Source { name: path.display().to_string(), text: String::new() };
    Findings { source, diagnostics: vec![Diagnostic::whole(code, message).help(help)] }
}

/// The option with the slots of hosts without a number, in the lines of a launcher.
pub(in crate::cli) fn slots_option(program: &str) -> SlotsOption {
    match program.rsplit(' ').next() {
        Some("torchrun" | "torch.distributed.launch") => SlotsOption("--nproc-per-node"),
        Some("launch" | "accelerate-launch") if program.contains("accelerate") => {
            SlotsOption("--num_processes")
        }
        _ => SlotsOption::default(),
    }
}

/// Returns the note about the corrections that `hostfile check --fix` makes in a file; empty if there are
/// none.
pub(in crate::cli) fn fixes_note(
    file: &Path,
    findings: &Findings,
    dialect: Option<Dialect>,
) -> String {
    let changes = certain_changes(findings).len();
    let are = match changes {
        0 => return String::new(),
        1 => "correction is certain",
        _ => "corrections are certain",
    };
    let how = if file.as_os_str() == "-" {
        "`--fix` changes a file, not standard input".to_owned()
    } else {
        let them = if changes == 1 { "it" } else { "them" };
        let from = dialect.map_or(String::new(), |from| format!("--from {} ", from.name()));
        format!("to make {them}, type `remuda hostfile check --fix {from}{}`", quoted(file))
    };
    format!("note: {}: {changes} {are}; {how}\n", file.display())
}

/// Returns the hostfile with a similar name beside a file that does not exist.
pub(in crate::cli) fn near_hostfile(path: &Path) -> Option<PathBuf> {
    /// Maximum number of directory entries that are compared with the name.
    const ENTRIES_MAX: usize = 1000;
    let name = path.file_name()?.to_str()?;
    let directory = path.parent().unwrap_or(Path::new(""));
    let entries = std::fs::read_dir(Path::new(".").join(directory)).ok()?;
    let names = entries.flatten().take(ENTRIES_MAX).map(|entry| entry.file_name());
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.sort_unstable();
    let file = directory.join(nearest(name, names.iter().map(String::as_str))?);
    let is_hostfile = || load(&file, Trust::All, ReadOptions::default()).is_ok();
    (file.is_file() && is_hostfile()).then_some(file)
}

/// Whether the name of a host in place of a file is probably the mistyped name of a hostfile.
pub(in crate::cli) fn is_meant_as_file(path: &Path) -> bool {
    const ENDINGS: [&str; 10] =
        ["txt", "hosts", "hostfile", "conf", "cfg", "list", "lst", "json", "yaml", "yml"];
    let name = path.to_string_lossy().to_lowercase();
    let has_ending =
        Path::new(&name).extension().is_some_and(|end| ENDINGS.iter().any(|known| end == *known));
    let has_name =
        name == "hosts" || ["hostfile", "machinefile"].iter().any(|part| name.contains(part));
    has_ending || has_name || near_hostfile(path).is_some()
}

/// Returns a list of hosts that was given in place of a file: `n1:8,n2:8`, `n[1-4]:8`, `n1,n2`. If
/// a file of that name exists, it takes precedence.
pub(in crate::cli) fn as_list(path: &Path) -> Option<&str> {
    let text = path.to_str().filter(|text| is_list(text))?;
    path.symlink_metadata().is_err().then_some(text)
}

/// Reads a list of hosts that was typed as the value of an option or as an argument.
fn read_typed(text: &str, name: &str, options: ReadOptions) -> Reading {
    let mut reading = pool::read_any(name, text.as_bytes(), options);
    // The list was typed, so a note about its dialect is useless.
    reading.evidence = None;
    explain_two_counts(&mut reading.findings);
    let list = with_slots(text);
    let list = if name == LIST_NAME { list } else { format!("-H {list}") };
    // Only the first host without slots is reported: the help contains the whole corrected list.
    let mut is_reported = false;
    reading.findings.diagnostics.retain_mut(|found| {
        if found.code != codes::MISSING_SLOTS {
            return true;
        }
        found.help = Some(format!(
            "write the slots of each host, `{list}`, or add `{} N`",
            options.slots_option
        ));
        !std::mem::replace(&mut is_reported, true)
    });
    reading
}

/// Reports a host with two numbers, `n1:2:3`, once: the parser takes the first number for a part of the name,
/// which then has no slots.
fn explain_two_counts(findings: &mut Findings) {
    let text = findings.source.text.clone();
    let number_of = |found: &Diagnostic| {
        let start = found.span.filter(|_| found.code == codes::BAD_HOST)?.start;
        let item = items(text.get(..start)?).last()?;
        let rest = text[start..].strip_prefix(':')?;
        let first = rest.split([':', ',']).next().filter(|count| count.parse::<u32>().is_ok())?;
        let place = start - item.len()..start;
        Some((place, format!("write one number of slots: `{item}:{first}`")))
    };
    let mut places = Vec::new();
    for found in &mut findings.diagnostics {
        if let Some((place, help)) = number_of(found) {
            places.push(place);
            found.help = Some(help);
        }
    }
    findings.diagnostics.retain(|found| {
        let start = found.span.map(|span| span.start);
        let is_it = places.iter().any(|place| start.is_some_and(|start| place.contains(&start)));
        found.code != codes::MISSING_SLOTS || !is_it
    });
}

/// Returns the list with `:N` after every host without a number.
fn with_slots(text: &str) -> String {
    const SHOWN_BYTES_MAX: usize = 40;
    let items: Vec<String> = items(text)
        .map(|item| if is_counted(item) { item.to_owned() } else { format!("{item}:N") })
        .collect();
    let list = items.join(",");
    if list.len() <= SHOWN_BYTES_MAX { quoted(list) } else { "n1:N,n2:N".to_owned() }
}

/// Whether a text is a list of hosts and not a path: one host has a number or a range, several
/// hosts are separated by commas.
fn is_list(text: &str) -> bool {
    let is_item =
        |item: &str| is_counted(item) || is_pattern(item) || HostName::parse(item).is_ok();
    let is_lone_name = !text.contains(',') && !is_counted(text) && !is_pattern(text);
    !text.contains('/') && !is_lone_name && items(text).any(is_item)
}

/// Whether an item has a number of slots, such as `n1:8`.
pub(in crate::cli) fn is_counted(item: &str) -> bool {
    item.rsplit_once(':').is_some_and(|(_, count)| count.parse::<u32>().is_ok())
}

/// Splits at commas outside brackets.
fn items(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |letter: char| {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    })
}

/// Reads the value of `-H`: a file, or a list of hosts, `h1:4,h2:4`, if there is no such file.
///
/// `slots_of_list` is for hosts of a list without a number, for commands to which the slots of a host do not
/// matter. With it, or with slots for all hosts in `options`, a lone name is a list as well.
pub(in crate::cli) fn load_value(
    path: &Path,
    trust: Trust,
    options: ReadOptions,
    slots_of_list: Option<SlotCount>,
) -> Result<Reading, LoadError> {
    let slots = options.slots.or(slots_of_list);
    let lone = || slots.and_then(|_| as_lone_host(path));
    let Some(text) = as_list(path).or_else(lone) else {
        return load(path, trust, options);
    };
    let reading = read_typed(text, OPTION_NAME, ReadOptions { slots, ..options });
    if reading.findings.has_errors() {
        return Err(LoadError::Malformed(reading.findings));
    }
    Ok(reading)
}

/// Returns the name of a host that was given in place of a file, where a host needs no slots.
fn as_lone_host(path: &Path) -> Option<&str> {
    let name = path.to_str().filter(|name| HostName::parse(name).is_ok())?;
    (path.symlink_metadata().is_err() && !is_meant_as_file(path)).then_some(name)
}

/// Loads the hostfile of a launch; the result has no errors, but may have warnings.
pub fn load(path: &Path, trust: Trust, options: ReadOptions) -> Result<Reading, LoadError> {
    let loaded = read_file(path, trust, options)?;
    if loaded.findings.has_errors() {
        return Err(LoadError::Malformed(loaded.findings));
    }
    Ok(loaded)
}

/// Reads a file, or standard input for `-`; the result may contain errors in the text.
pub(in crate::cli) fn read_as(
    path: &Path,
    trust: Trust,
    options: ReadOptions,
) -> Result<Reading, LoadError> {
    if path.as_os_str() == "-" {
        read_from(io::stdin().lock(), path, options)
    } else if let Some(text) = as_list(path) {
        Ok(read_typed(text, LIST_NAME, options))
    } else {
        read_file(path, trust, options).map_err(|error| match error {
            LoadError::Missing(path) => LoadError::MissingInput(path),
            other => other,
        })
    }
}

fn read_file(path: &Path, trust: Trust, options: ReadOptions) -> Result<Reading, LoadError> {
    let file = open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => LoadError::Missing(path.to_owned()),
        _ => unreadable(path, error),
    })?;
    let found = file.metadata().map_err(|error| unreadable(path, error))?;
    // A shell replaces `<(command)` with the path of a pipe.
    if let Some(kind) = irregular_kind(&found).filter(|_| !is_pipe(&found)) {
        return Err(LoadError::NotAFile { path: path.to_owned(), kind });
    }
    if trust == Trust::Owner && found.mode() & 0o002 != 0 {
        return Err(LoadError::WritableByAll(path.to_owned()));
    }
    let input = InputReader::new(file).map_err(|error| unreadable(path, error))?;
    let mut loaded = read_from(input, path, options)?;
    let own = rustix::process::geteuid().as_raw();
    if trust == Trust::Owner && is_foreign(found.uid(), own) {
        loaded.findings.diagnostics.push(foreign_owner(found.uid()));
    }
    Ok(loaded)
}

fn unreadable(path: &Path, source: io::Error) -> LoadError {
    LoadError::Unreadable { path: path.to_owned(), source }
}

fn foreign_owner(owner: u32) -> Diagnostic {
    let message = format!("the hostfile belongs to another user (uid {owner})");
    Diagnostic::whole(codes::FOREIGN_OWNER, message)
        .severity(Severity::Note)
        .help("its owner decides where the job runs")
}

fn read_from(input: impl Read, path: &Path, options: ReadOptions) -> Result<Reading, LoadError> {
    let mut bytes = Vec::new();
    let read = input.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => {
            LoadError::NotAFile { path: path.to_owned(), kind: "a pipe that no process writes to" }
        }
        _ => unreadable(path, error),
    })?;
    if FILE_BYTES_MAX < bytes.len() as u64 {
        return Err(LoadError::TooLarge(path.to_owned()));
    }
    let name = String::from_utf8_lossy(path.as_os_str().as_bytes());
    Ok(pool::read_any(&name, &bytes, options))
}

/// Returns the host of `HOST:SLOTS` with slots that are no number.
fn host_without_slots(text: &str) -> Option<&str> {
    let (host, slots) = text.split_once(':')?;
    (HostName::parse(host).is_ok() && !slots.contains('/')).then_some(host)
}

fn all_host_names(list: &str) -> bool {
    list.split(',').all(|name| HostName::parse(name).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_cannot_be_read_is_named_in_the_help() {
        let source = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = LoadError::Unreadable { path: "my hosts".into(), source };
        let help = error.as_findings().diagnostics[0].help.clone();
        assert_eq!(help.as_deref(), Some("make it readable: `chmod u+r 'my hosts'`"));
    }

    #[test]
    fn advice_about_slots_has_the_option_of_the_launcher() {
        for (program, expect) in [
            ("remuda run", "--slots"),
            ("remuda launch", "--slots"),
            ("torchrun", "--nproc-per-node"),
            ("remuda torch.distributed.launch", "--nproc-per-node"),
            ("remuda accelerate launch", "--num_processes"),
            ("accelerate-launch", "--num_processes"),
        ] {
            assert_eq!(slots_option(program), SlotsOption(expect), "for `{program}`");
        }
    }

    #[test]
    fn names_of_files_are_not_hosts() {
        for name in ["hosts", "nodes.txt", "my_hostfile", "cluster.YAML"] {
            assert!(is_meant_as_file(Path::new(name)), "{name}");
        }
        for name in ["n1", "node-17", "gpu.cluster.local", "10.0.0.7"] {
            assert!(!is_meant_as_file(Path::new(name)), "{name}");
        }
    }
}
