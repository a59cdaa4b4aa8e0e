//! Scripts that cannot run: their problem is named before any worker starts.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::launch::{Launch, python, workers};

#[test]
fn interpreter_of_a_script_is_checked_before_the_start() {
    let check = |first_line: &str, code: i32, expect: &str| {
        let launch = workers(2);
        let script = launch.dir().join("job.sh");
        fs::write(&script, format!("{first_line}\necho started\n")).expect("a file");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("ours");
        let outcome = launch.program([script]).end().code(code).says(expect);
        assert_eq!(outcome.stdout_text(), "", "{first_line:?}");
        outcome
    };
    let convert = "help: convert its line ends: `sed -i 's/\\r$//' ";
    let line = "cannot be executed: its first line ends in CRLF, so the interpreter would be ";
    check("#!/bin/sh\r", 127, &format!("{line}`/bin/sh\\r`\n")).says(convert);
    check("#!/usr/bin/env python3\r", 127, &format!("{line}`python3\\r`\n")).says(convert);
    let missing = "the interpreter `/no/such/sh` in its first line does not exist\n";
    check("#!/no/such/sh -e", 127, missing).says("help: correct the first line: ");
    check(
        "#!/etc/passwd",
        126,
        "the interpreter `/etc/passwd` in its first line cannot be executed",
    );
}

/// Root reads every file, unless it has given up the right to.
#[test]
fn unreadable_script_is_found_before_the_start() {
    let (launch, dry_run) = (python(1), python(1).option("--dry-run"));
    let script = launch.dir().join("train.py");
    fs::write(&script, "print('started')\n").expect("a file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o000)).expect("ours");
    let limited = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"];
    let is_root = rustix::process::geteuid().is_root();
    let limit = |launch: Launch| if is_root { launch.through(&limited) } else { launch };
    let (launch, dry_run) = (limit(launch), limit(dry_run));
    let why = "train.py` cannot be read: permission denied; the job would not start\n";
    dry_run.program([&script]).end().code(0).says(why);
    let outcome = launch.program([script]).end().code(66).says("train.py`: permission denied\n");
    outcome.says("help: `chmod u+r ").does_not_say("started");
}
