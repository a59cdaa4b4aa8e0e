//! Hosts of `remuda run`: a hostfile in any dialect, a list of hosts, or a scheduler's allocation.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::hostfile::{scratch, write};

const REMUDA: &str = env!("CARGO_BIN_EXE_remuda");

/// Plans a job in an empty environment; returns standard output, standard error and the status.
#[expect(clippy::disallowed_methods, reason = "these tests start the real program")]
fn dry_run(directory: &Path, flags: &[&str], variables: &[(&str, &str)]) -> (String, String, i32) {
    let mut command = Command::new(REMUDA);
    command.args(["run", "--dry-run", "--accelerator", "cpu"]).args(flags);
    command.args(["--no_python", "/bin/true"]);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("XDG_STATE_HOME", directory.join("state"));
    command.envs(variables.iter().copied()).current_dir(directory).stdin(Stdio::null());
    let output = command.output().expect("remuda starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (text(output.stdout), text(output.stderr), output.status.code().expect("it exits"))
}

#[track_caller]
fn check(
    directory: &Path,
    flags: &[&str],
    variables: &[(&str, &str)],
    hosts: &[&str],
    world: usize,
    notes: &str,
) {
    let (shown, stderr, status) = dry_run(directory, flags, variables);
    assert_eq!(status, 0, "{stderr}");
    let found: Vec<&str> = shown
        .lines()
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    assert_eq!(found, hosts, "{shown}");
    assert!(shown.contains(&format!("world size {world},")), "{shown}");
    assert_eq!(stderr, notes);
}

#[test]
fn run_reads_any_dialect() {
    let directory = scratch("run_dialect");
    write(&directory.join("ompi"), "a slots=2 max_slots=4\nb slots=2\n");
    let notes = "note: ompi: read as an Open MPI hostfile: `max_slots=4` on line 1\n";
    check(&directory, &["-H", "ompi"], &[], &["a", "b"], 4, notes);
    write(&directory.join("ds"), "a slots=2\nb slots=2\n");
    check(&directory, &["-H", "ds"], &[], &["a", "b"], 4, "");
    write(&directory.join("pbs"), "a\na\nb\n");
    let notes = "note: pbs: read as a PBS hostfile: `a` on line 2\n";
    check(&directory, &["-H", "pbs"], &[], &["a", "b"], 3, notes);
}

#[test]
fn run_accepts_host_list() {
    let directory = scratch("run_list");
    let check = |list: &str, hosts: &[&str], world| {
        check(&directory, &["-H", list], &[], hosts, world, "");
    };
    check("a:2,b:2", &["a", "b"], 4);
    check("a:2", &["a"], 2);
    check("n[1-2]:2", &["n1", "n2"], 4);
    let (_, stderr, status) = dry_run(&directory, &["-H", "hsots"], &[]);
    let expect = "error[H010]: hostfile `hsots` does not exist";
    assert!(stderr.contains(expect) && stderr.contains("`-H HOST:4`"), "{stderr}");
    assert_eq!(status, 66);
    let (_, stderr, status) = dry_run(&directory, &["-H", "a,b"], &[]);
    assert!(stderr.contains("error[H002]") && stderr.contains("`-H a:N,b:N`"), "{stderr}");
    assert_eq!(status, 65);
    let (_, stderr, status) = dry_run(&directory, &["-H", "n[1-2]"], &[]);
    assert!(stderr.contains("error[H002]: the number of slots of `n[1-2]` is missing"), "{stderr}");
    assert_eq!(status, 65);
    // An existing file of that name takes precedence.
    write(&directory.join("a:2,b:2"), "c slots=1\n");
    check("a:2,b:2", &["c"], 1);
}

#[test]
fn slots_option_sets_missing_slot_counts() {
    let directory = scratch("run_slots");
    write(&directory.join("names"), "a\nb\n");
    check(&directory, &["-H", "names", "--slots", "2"], &[], &["a", "b"], 4, "");
    check(&directory, &["-H", "n[1-2]", "--slots", "3"], &[], &["n1", "n2"], 6, "");
    let (_, stderr, status) = dry_run(&directory, &["--slots", "2"], &[]);
    assert!(stderr.contains("`--slots` needs `--hostfile`"), "{stderr}");
    assert_eq!(status, 2);
}

#[test]
fn allocation_is_used_and_named() {
    let directory = scratch("allocation");
    let slurm = [
        ("SLURM_JOB_ID", "17"),
        ("SLURM_JOB_NODELIST", "n[01-02]"),
        ("SLURM_TASKS_PER_NODE", "2(x2)"),
    ];
    let notes = "note: hosts are those of the allocation of Slurm job 17\n";
    check(&directory, &[], &slurm, &["n01", "n02"], 4, notes);
    write(&directory.join("ds"), "a slots=2\n");
    let notes = "note: a is not a node of Slurm job 17, so ssh starts all agents; `--launcher ssh` does so without this \
                 note\n";
    check(&directory, &["-H", "ds"], &slurm, &["a"], 2, notes);
    check(&directory, &["-H", "ds", "--launcher", "ssh"], &slurm, &["a"], 2, "");

    write(&directory.join("nodes"), "n1\nn1\nn2\n");
    let nodes = directory.join("nodes");
    let nodes = nodes.to_str().expect("text");
    let notes = "note: hosts are those of the allocation of PBS\n";
    check(&directory, &[], &[("PBS_NODEFILE", nodes)], &["n1", "n2"], 3, notes);
    let notes = "note: hosts are those of the allocation of LSF\n";
    check(&directory, &[], &[("LSB_MCPU_HOSTS", "n1 2 n2 2")], &["n1", "n2"], 4, notes);
    check(&directory, &[], &[("LSB_DJOB_HOSTFILE", nodes)], &["n1", "n2"], 3, notes);
    write(&directory.join("pe"), "n1 2 all.q@n1 UNDEFINED\nn2 2 all.q@n2 UNDEFINED\n");
    let pe = directory.join("pe");
    let notes = "note: hosts are those of the allocation of Grid Engine\n";
    let pe = [("PE_HOSTFILE", pe.to_str().expect("text"))];
    check(&directory, &[], &pe, &["n1", "n2"], 4, notes);
}

#[test]
fn tasks_of_a_slurm_step_are_nodes() {
    let directory = scratch("step");
    let step = [
        ("SLURM_JOB_NODELIST", "n[1-2]"),
        ("SLURM_TASKS_PER_NODE", "1(x2)"),
        ("SLURM_STEP_NUM_TASKS", "2"),
        ("SLURM_JOB_ID", "17"),
        ("SLURM_STEP_ID", "3"),
        ("SLURM_PROCID", "0"),
    ];
    let (shown, notes, status) = dry_run(&directory, &[], &step);
    assert_eq!(status, 0, "{notes}");
    assert!(shown.contains("node-1"), "{shown}");
    let note = "note: this process is task 0 of 2 of Slurm step 17.3: each task is a node with 1 worker (-n)";
    assert!(notes.starts_with(note), "{notes}");
    let (shown, _, _) = dry_run(&directory, &["--launcher", "local"], &step);
    assert!(shown.contains("localhost"), "{shown}");
}

#[test]
fn invalid_allocation_is_reported() {
    let directory = scratch("bad_allocation");
    let slurm = [("SLURM_JOB_NODELIST", "n[1-3]"), ("SLURM_TASKS_PER_NODE", "2(x2)")];
    let (_, stderr, status) = dry_run(&directory, &[], &slurm);
    assert!(
        stderr.contains("error[H035]: the counts are for 2 nodes, and the list has 3 nodes"),
        "{stderr}"
    );
    assert!(stderr.contains("environment:2:"), "{stderr}");
    assert_eq!(status, 65);
    let bare = [("SLURM_JOB_NODELIST", "n[1-3]"), ("SLURM_JOB_ID", "17")];
    let (_, stderr, status) = dry_run(&directory, &[], &bare);
    assert!(stderr.contains("or use `--slots 8` for all nodes"), "{stderr}");
    assert_eq!(status, 65);
    let notes = "note: hosts are those of the allocation of Slurm job 17\n";
    check(&directory, &["--slots", "8"], &bare, &["n1", "n2", "n3"], 24, notes);
    let (_, stderr, status) = dry_run(&directory, &[], &[("PBS_NODEFILE", "/nowhere/nodes")]);
    assert!(stderr.contains("error[H010]"), "{stderr}");
    assert_eq!(status, 66);
}

/// Data that all ranks share is in memory once. The document is larger than a pipe, so the process can
/// be examined while it waits for a reader, with the whole plan in memory.
#[test]
#[expect(clippy::disallowed_methods, reason = "these tests start the real program")]
fn dry_run_of_a_large_job_takes_little_memory() {
    const KIB_MAX: u64 = 100 << 10;
    let directory = scratch("large");
    let mut command = Command::new(REMUDA);
    command.args(["run", "--dry-run", "--json", "--accelerator", "cpu", "-H", "n[1-4096]:64"]);
    command.args(["--no_python", "/bin/true"]).env_clear().current_dir(&directory);
    command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("remuda starts");
    let mut head = vec![0; 1 << 20];
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_exact(&mut head).expect("the document is longer");
    let status = fs::read_to_string(format!("/proc/{}/status", child.id()))
        .expect("remuda waits for the reader");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(peak < KIB_MAX, "{peak} KiB");
    // A reader that closes the pipe early is not an error.
    drop(stdout);
    assert!(child.wait().expect("a child of this test").success());
}
