//! Lists of hosts instead of a hostfile: every command reads them in the same way.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const REMUDA: &str = env!("CARGO_BIN_EXE_remuda");

fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("host_lists").join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("the target directory is writable");
    dir
}

/// Hosts are simulated on this machine.
#[expect(clippy::disallowed_methods, reason = "these tests start the real program")]
fn remuda(dir: &Path, line: &str) -> Output {
    let mut command = Command::new(REMUDA);
    command.args(line.split(' ')).current_dir(dir).stdin(Stdio::null()).env_clear();
    command.env("PATH", "/usr/bin:/bin").env("XDG_STATE_HOME", dir.join("state"));
    command.output().expect("remuda starts")
}

#[test]
fn list_with_slots_is_read_by_every_launcher() {
    let dir = scratch("launchers");
    for command in ["run", "bench all-reduce", "train"] {
        for list in ["n1:2,n2:2", "n[1-2]:2", "n1,n2 --slots 2"] {
            let words = if command == "run" { " --no_python /bin/true" } else { "" };
            let line = format!("{command} --dry-run --accelerator cpu -H {list}{words}");
            let output = remuda(&dir, &line);
            let shown = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && shown.contains("world size 4,"),
                "{line}: {output:?}"
            );
        }
    }
}

#[test]
fn list_without_slots_is_enough_for_ssh_and_doctor() {
    let dir = scratch("tools");
    let output = remuda(&dir, "ssh -H n1,n2 --launcher local -- echo hello");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains("n[1-2]"), "{output:?}");
    let output = remuda(&dir, "doctor -H n1,n2 --launcher local --quick --json");
    assert_ne!(output.status.code(), Some(2), "{output:?}");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("\"n1\"") && shown.contains("\"n2\""), "{output:?}");
}

#[test]
fn lone_name_is_a_host_where_slots_do_not_matter() {
    let dir = scratch("lone");
    let output = remuda(&dir, "ssh -H n1 --launcher local -- echo hello");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && shown.contains("n1") && shown.contains("hello"),
        "{output:?}"
    );
    std::fs::write(dir.join("n1"), "other\n").expect("a hostfile");
    let output = remuda(&dir, "ssh -H n1 --allow_insecure_files --launcher local -- echo hello");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains("other"), "{output:?}");
}

#[test]
fn file_named_like_a_list_takes_precedence() {
    let dir = scratch("file");
    std::fs::write(dir.join("n1:2,n2:2"), "other slots=1\n").expect("a hostfile");
    let line =
        "run --dry-run --accelerator cpu --allow_insecure_files -H n1:2,n2:2 --no_python true";
    let output = remuda(&dir, line);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("other") && shown.contains("world size 1,"), "{output:?}");
}
