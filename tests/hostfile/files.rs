//! Files that cannot be loaded, and files that a test has to create.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use remuda::base::Status;
use remuda::cli::hostfile::{LoadError, Trust, load};
use remuda::pool::{Dialect, ReadOptions};
use remuda::report::diagnostic::Paint;

use crate::hostfile::{scratch, write};

#[track_caller]
fn check_load(path: &Path, status: Status, message: &str) -> LoadError {
    let error = load(path, Trust::Owner, ReadOptions::default()).expect_err("it cannot be loaded");
    assert_eq!(error.status(), status);
    let screen = error.screen(Paint::Plain);
    assert!(screen.contains(message), "`{message}` is not in:\n{screen}");
    assert!(screen.contains("help: "), "no help in:\n{screen}");
    error
}

#[test]
fn special_file_is_refused_without_blocking() {
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
    let why = "is not a regular file: it is a pipe that no process writes to";
    check_load(&fifo, Status::NoInput, why);
    check_load(Path::new("/dev/zero"), Status::NoInput, "it is a device");
    let help = "help: it names no host; a job without -H runs on this machine";
    check_load(Path::new("/dev/null"), Status::NoInput, help);
}

#[test]
fn missing_file_error_has_help() {
    let missing = scratch("missing").join("hosts");
    let error = check_load(&missing, Status::NoInput, "error[H010]");
    let help = "correct the path; without a hostfile the command runs on this machine";
    assert!(error.screen(Paint::Plain).contains(help));
}

#[test]
fn unreadable_file_error_names_reason() {
    let path = scratch("unreadable").join("hosts");
    fs::write(&path, "worker-0 slots=4\n").expect("written");
    fs::set_permissions(&path, Permissions::from_mode(0o000)).expect("the test owns the file");
    if rustix::process::geteuid().is_root() {
        // Root can read every file, but cannot open a link to itself.
        fs::remove_file(&path).expect("the test owns the file");
        std::os::unix::fs::symlink(&path, &path).expect("a link can be made");
    }
    check_load(&path, Status::NoInput, "error[H025]: cannot read hostfile");
}

#[test]
fn world_writable_file_needs_consent() {
    let path = scratch("writable").join("hosts");
    fs::write(&path, "worker-0 slots=4\n").expect("written");
    fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("the test owns the file");
    check_load(&path, Status::Permission, "every user can write hostfile");
    let loaded = load(&path, Trust::All, ReadOptions::default()).expect("consent was given");
    assert_eq!(loaded.hostfile.hosts().len(), 1);
}

#[test]
fn malformed_file_has_status_65() {
    let path = scratch("malformed").join("hosts");
    fs::write(&path, "worker-0 slots=0\n").expect("written");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("the test owns the file");
    check_load(&path, Status::BadInput, "error[H004]");
}

#[test]
fn huge_file_is_refused_unread() {
    let path = scratch("large").join("hosts");
    let file = fs::File::create(&path).expect("made");
    file.set_len(1 << 40).expect("a file with holes");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("the test owns the file");
    check_load(&path, Status::BadInput, "error[H028]");
    fs::remove_file(&path).expect("the test owns the file");
}

#[test]
fn load_reads_any_dialect() {
    let path = scratch("dialect").join("hosts");
    write(&path, "worker-0:4\nworker-1:2\n");
    let reading = load(&path, Trust::Owner, ReadOptions::default()).expect("a hostfile");
    assert_eq!(reading.dialect, Dialect::Hydra);
    assert_eq!(reading.hostfile.slot_count(), 6);
}
