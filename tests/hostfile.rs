//! Every file of `hostfiles/` beside the screen that it gives, and files that only a test can make.
//!
//! `UPDATE_EXPECTED=1 cargo test --test hostfile` rewrites the expectations.

#![cfg(feature = "cli")]

#[path = "support/golden.rs"]
mod golden;

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Parser;
use golden::Golden;
use proptest::prelude::*;
use remuda::base::{Severity, Status};
use remuda::cli::hostfile::{HostfileArgs, LoadError, Loaded, Outcome, Trust, load, run};
use remuda::pool::{self, HOSTS_MAX};
use remuda::report::diagnostic::{Paint, show_findings};

/// The screen of a hostfile and how its check ends.
fn screen_of(path: &Path, has_errors: bool) -> String {
    let bytes = fs::read(path).expect("the file is readable");
    let (hostfile, findings) = pool::read(&path.display().to_string(), &bytes);
    assert_eq!(findings.has_errors(), has_errors, "for {}", path.display());
    let loaded = Loaded { hostfile, findings };
    format!("{}exit status {}\n", loaded.screen(Paint::Plain), loaded.status().code())
}

#[test]
fn valid_files_are_read_and_show_what_is_expected() {
    let valid = Golden { directory: "hostfiles/valid", extension: "txt" };
    valid.check(|path| screen_of(path, false));
}

#[test]
fn invalid_files_show_what_is_expected() {
    let invalid = Golden { directory: "hostfiles/invalid", extension: "txt" };
    invalid.check(|path| screen_of(path, true));
}

/// Codes of files that only a test can make, or that are too large to keep.
const WITHOUT_FILE: &[&str] = &["H010", "H019", "H024", "H025", "H026", "H027", "H028"];

#[test]
fn every_code_of_a_hostfile_has_a_file_that_shows_it() {
    let stories = pool::codes::EXPLANATIONS.into_iter().flatten();
    let hostfiles = stories.filter(|found| found.code.starts_with('H'));
    golden::check_codes(&["hostfiles/valid", "hostfiles/invalid"], hostfiles, WITHOUT_FILE);
}

/// A directory of its own for each test, below the target directory.
fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostfile").join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("the target directory is writable");
    directory
}

#[track_caller]
fn check_load(path: &Path, status: Status, message: &str) -> LoadError {
    let error = load(path, Trust::Owner).expect_err("it cannot be loaded");
    assert_eq!(error.status(), status);
    let screen = error.screen(Paint::Plain);
    assert!(screen.contains(message), "`{message}` is not in:\n{screen}");
    assert!(screen.contains("help: "), "no help in:\n{screen}");
    error
}

#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    let directory = scratch("kinds");
    check_load(&directory, Status::NoInput, "is not a regular file: it is a directory");
    let fifo = directory.join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("a pipe can be made");
    check_load(&fifo, Status::NoInput, "is not a regular file: it is a pipe");
    check_load(Path::new("/dev/zero"), Status::NoInput, "it is a device");
    check_load(
        Path::new("/dev/null"),
        Status::NoInput,
        "help: leave -H out to run on this machine",
    );
}

#[test]
fn a_missing_file_is_an_error_that_says_how_to_go_on() {
    let missing = scratch("missing").join("hosts");
    let error = check_load(&missing, Status::NoInput, "error[H010]");
    assert!(error.screen(Paint::Plain).contains("leave -H out to run on this machine"));
}

#[test]
fn an_unreadable_file_says_why() {
    let path = scratch("unreadable").join("hosts");
    fs::write(&path, "worker-0 slots=4\n").expect("written");
    fs::set_permissions(&path, Permissions::from_mode(0o000)).expect("it is ours");
    if rustix::process::geteuid().is_root() {
        // Root may read everything; a link to itself is what even root cannot open.
        fs::remove_file(&path).expect("it is ours");
        std::os::unix::fs::symlink(&path, &path).expect("a link can be made");
    }
    check_load(&path, Status::NoInput, "error[H025]: cannot read hostfile");
}

#[test]
fn a_file_that_everybody_can_write_needs_consent() {
    let path = scratch("writable").join("hosts");
    fs::write(&path, "worker-0 slots=4\n").expect("written");
    fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("it is ours");
    check_load(&path, Status::Permission, "is writable by everyone");
    let loaded = load(&path, Trust::Anyone).expect("consent was given");
    assert_eq!(loaded.hostfile.hosts().len(), 1);
}

#[test]
fn a_malformed_file_ends_a_launch_with_65() {
    let path = scratch("malformed").join("hosts");
    fs::write(&path, "worker-0 slots=0\n").expect("written");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
    check_load(&path, Status::BadInput, "error[H004]");
}

#[test]
fn a_file_that_is_no_hostfile_is_not_read_to_its_end() {
    let path = scratch("large").join("hosts");
    let file = fs::File::create(&path).expect("made");
    file.set_len(1 << 40).expect("a file with holes");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
    check_load(&path, Status::BadInput, "error[H028]");
    fs::remove_file(&path).expect("it is ours");
}

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    hostfile: HostfileArgs,
}

fn check_command(files: &[&Path]) -> Outcome {
    let words = ["hostfile", "check"].map(PathBuf::from);
    let files = files.iter().map(|file| file.to_path_buf());
    let args = Command::try_parse_from(words.into_iter().chain(files)).expect("a command line");
    run(&args.hostfile, Paint::Plain)
}

#[test]
fn check_goes_through_all_files_and_ends_with_the_worst_of_them() {
    let directory = scratch("command");
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
        path
    };
    let good = write("good", "worker-0 slots=4\n");
    let bad = write("bad", "worker-0 slots=0\n");
    let missing = directory.join("missing");

    let outcome = check_command(&[&good]);
    assert_eq!(outcome.stdout, format!("{}: 1 host, 4 slots\n", good.display()));
    assert_eq!((outcome.status, outcome.stderr), (Status::Success, String::new()));

    let outcome = check_command(&[&bad, &good]);
    assert!(outcome.stdout.contains("1 error, 0 warnings"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("1 host, 4 slots"), "{}", outcome.stdout);
    assert_eq!(outcome.status, Status::Findings);

    let outcome = check_command(&[&missing, &bad]);
    assert!(outcome.stderr.contains("does not exist"), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("error[H004]"), "{}", outcome.stdout);
    assert_eq!(outcome.status.code(), 2);
}

#[test]
fn a_line_of_ten_megabytes_is_one_finding_and_is_not_drawn() {
    let mut text = vec![b'x'; 10 << 20];
    text.extend_from_slice(b"\nworker-0 slots=4\n");
    let (hostfile, findings) = pool::read("hosts", &text);
    assert_eq!(hostfile.hosts().len(), 1);
    assert_eq!(findings.diagnostics.len(), 1);
    let screen = show_findings(&findings, Paint::Plain);
    assert!(screen.contains("error[H018]: line longer than 4096 bytes: 10485760"), "{screen}");
    assert!(screen.len() < 1000, "{} bytes of screen", screen.len());
}

#[test]
fn a_million_bad_lines_end_at_the_limit_and_fit_on_a_screen() {
    let text = "worker slots=0\n".repeat(1_000_000);
    let (hostfile, findings) = pool::read("hosts", text.as_bytes());
    assert_eq!(hostfile.hosts().len(), 0);
    let last = findings.diagnostics.last().expect("there are findings");
    assert_eq!(last.message, format!("more than {HOSTS_MAX} hosts"));
    let screen = show_findings(&findings, Paint::Plain);
    assert!(screen.lines().count() < 100, "{screen}");
}

#[test]
fn as_many_hosts_as_the_limit_are_fine() {
    let lines = (0..HOSTS_MAX).map(|host| format!("worker-{host} slots=8\n"));
    let (hostfile, findings) = pool::read("hosts", lines.collect::<String>().as_bytes());
    assert_eq!(hostfile.hosts().len(), HOSTS_MAX);
    assert_eq!(findings.diagnostics, []);
}

#[test]
fn colours_are_only_added_where_they_are_asked_for() {
    let (_, findings) = pool::read("hosts", b"worker-0 slots=0\n");
    let plain = show_findings(&findings, Paint::Plain);
    assert!(plain.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)), "{plain}");
    assert!(show_findings(&findings, Paint::Colour).contains('\u{1b}'));
}

/// Bytes as they come in hostfiles, mixed with all others.
fn hostfile_bytes() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just(b"worker-0".to_vec()),
        Just(b"worker-1".to_vec()),
        Just(b"slots=4".to_vec()),
        Just(b"slots".to_vec()),
        Just(b"=".to_vec()),
        Just(b"max_slots=2".to_vec()),
        Just(b" ".to_vec()),
        Just(b"\n".to_vec()),
        Just("\u{a0}".as_bytes().to_vec()),
        Just("\u{fffd}".as_bytes().to_vec()),
        Just(b"=4".to_vec()),
        Just(b"#".to_vec()),
        Just(b"[::1".to_vec()),
        Just(b"a@b:1,c".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..6),
    ];
    proptest::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes_give_hosts_that_can_be_used_and_a_screen(bytes in hostfile_bytes()) {
        let (hostfile, findings) = pool::read("hosts", &bytes);
        let names: BTreeSet<_> = hostfile.hosts().iter().map(|host| host.name.as_str()).collect();
        prop_assert_eq!(names.len(), hostfile.hosts().len());
        for host in hostfile.hosts() {
            prop_assert_eq!(&findings.source.text[host.span.start..host.span.end], host.name.as_str());
        }
        let is_entry = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        let entries = findings.source.text.split('\n').filter(is_entry).count();
        prop_assert!(1.max(entries) <= hostfile.hosts().len() + findings.count(Severity::Error));
        let screen = show_findings(&findings, Paint::Plain);
        prop_assert_eq!(screen.is_empty(), findings.diagnostics.is_empty());
        prop_assert!(screen.chars().all(|c| c == '\n' || !c.is_control()), "{screen:?}");
    }

    #[test]
    fn a_canonical_file_comes_back_as_it_was_written(slots in proptest::collection::vec(1u32..=1024, 1..20)) {
        let lines = slots.iter().enumerate().map(|(host, slots)| format!("w{host} slots={slots}\n"));
        let (hostfile, findings) = pool::read("hosts", lines.collect::<String>().as_bytes());
        let found: Vec<u32> = hostfile.hosts().iter().map(|host| host.slots.get()).collect();
        prop_assert_eq!(found, slots);
        prop_assert_eq!(findings.count(Severity::Error) + findings.count(Severity::Warning), 0);
    }
}
