//! `remuda ssh` over simulated hosts: whole screens and exit statuses.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::delays::without_delays;
use crate::support::launch::{REMUDA, command};

/// Standard output, standard error and the exit status of a command on hosts `n1` … `n4`.
fn run(name: &str, options: &[&str], words: &[&OsStr]) -> (String, String, Option<i32>) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("everywhere").join(name);
    fs::create_dir_all(&directory).expect("a directory for the test");
    let hostfile = directory.join("hosts");
    fs::write(&hostfile, "n1 slots=8\nn2 slots=8\nn3 slots=8\nn4 slots=2\n").expect("written");
    fs::set_permissions(&hostfile, Permissions::from_mode(0o600)).expect("it is ours");
    let mut ssh = command(REMUDA);
    ssh.arg("ssh").args(["--launcher", "local", "--run_dir"]).arg(directory.join("runs"));
    ssh.arg("-H").arg(&hostfile).args(options).arg("--").args(words);
    ssh.env("HOME", &directory).current_dir(&directory);
    let output = ssh.output().expect("remuda starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(output.stdout), without_delays(&text(output.stderr)), output.status.code())
}

#[track_caller]
fn check(name: &str, options: &[&str], script: &str, expect: (&str, &str, i32)) {
    let words = ["sh", "-c", script].map(OsStr::new);
    let (stdout, stderr, code) = run(name, options, &words);
    assert_eq!((stdout.as_str(), stderr.as_str(), code), (expect.0, expect.1, Some(expect.2)));
}

const SEPARATOR: &str = "---------------";

#[test]
fn equal_output_of_hosts_is_printed_once() {
    let expect = format!("{SEPARATOR}\nn[1-4] (4)\n{SEPARATOR}\nhello\n");
    check("alike", &[], "echo hello", (&expect, "", 0));
    let expect =
        format!("{SEPARATOR}\nn[1,3-4] (3)\n{SEPARATOR}\na\n{SEPARATOR}\nn2\n{SEPARATOR}\nb\n");
    check("differ", &[], "[ $RANK = 1 ] && echo b || echo a", (&expect, "", 0));
    let expect = format!("{SEPARATOR}\nn[2-3] (2)\n{SEPARATOR}\nx\n");
    check("chosen", &["-i", "n2@n3:0"], "echo x", (&expect, "", 0));
    check("silent", &[], ":", ("", "", 0));
}

#[test]
fn dry_run_prints_hosts_and_line_and_starts_nothing() {
    let options = ["--dry-run", "--env", "A=b", "--env", "API_KEY=1"];
    let words = ["touch", "it ran"].map(OsStr::new);
    let (stdout, stderr, code) = run("planned", &options, &words);
    let lines: Vec<&str> = stdout.lines().filter(|line| !line.contains("propagated")).collect();
    let line = "command on every host: touch 'it ran'";
    let variables = ["  --env       A=b", "  --env       API_KEY=***"];
    let is_wide = stdout.contains("propagated");
    let variables =
        variables.map(|line| if is_wide { line.into() } else { line.replace("      ", " ") });
    let [first, second] = &variables;
    assert_eq!(lines, ["4 hosts: n[1-4]", line, first, second, "nothing was started"]);
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    let (stdout, _, code) = run("planned", &["--dry-run", "--json"], &words);
    let plan: serde_json::Value = serde_json::from_str(&stdout).expect("a plan");
    assert_eq!((plan["world_size"].as_u64(), code), (Some(4), Some(0)));
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("everywhere/planned");
    assert!(!directory.join("it ran").exists());
}

#[test]
fn failed_host_is_listed_and_stops_no_other_host() {
    let out = format!("{SEPARATOR}\nn[1,4] (2)\n{SEPARATOR}\nend\n");
    let err = "error: n[2-3] (2): exited with code 3\n";
    let script = "case $RANK in [12]) exit 3;; esac; sleep 0.3; echo end";
    check("fails", &[], script, (&out, err, 3));
    let err = format!(
        "{SEPARATOR}\nn[1-4] (4)\n{SEPARATOR}\nno\nerror: n[1-4] (4): exited with code 5\n"
    );
    check("all", &[], "echo no >&2; exit 5", ("", &err, 5));
}

#[test]
fn no_gather_prints_lines_with_their_hosts() {
    for option in ["-b", "--no_gather"] {
        let words = ["sh", "-c", "echo $RANK"].map(OsStr::new);
        let (stdout, stderr, code) = run(option, &[option], &words);
        let mut lines: Vec<_> = stdout.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["n1: 0", "n2: 1", "n3: 2", "n4: 3"]);
        assert_eq!((stderr.as_str(), code), ("", Some(0)));
    }
}

#[test]
fn arguments_are_passed_byte_for_byte() {
    let words: Vec<&OsStr> = ["printf", "<%s>\\n", "a b", "$HOME", "", "'\"", "-x", "--", "*"]
        .map(OsStr::new)
        .into_iter()
        .chain([OsStr::from_bytes(b"n\nl")])
        .collect();
    let (stdout, _, code) = run("bytes", &["-i", "n1"], &words);
    let expect = "<a b>\n<$HOME>\n<>\n<'\">\n<-x>\n<-->\n<*>\n<n\nl>\n";
    assert_eq!((stdout, code), (format!("{SEPARATOR}\nn1\n{SEPARATOR}\n{expect}"), Some(0)));
}

/// As in ssh and pdsh: no program has such a name.
#[test]
fn one_word_with_shell_syntax_is_run_by_sh() {
    let (stdout, stderr, code) = run("shell", &["--no_gather"], &[OsStr::new("echo $((20 + 3))")]);
    let mut lines: Vec<&str> = stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["n1: 23", "n2: 23", "n3: 23", "n4: 23"], "{stderr}");
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(run("exit", &["-i", "n1"], &[OsStr::new("exit 4")]).2, Some(4));
}

#[test]
fn timeout_stops_the_command() {
    let (_, stderr, code) = run("time", &["--timeout", "200ms"], &["sleep", "60"].map(OsStr::new));
    assert_eq!(code, Some(124), "{stderr}");
}
