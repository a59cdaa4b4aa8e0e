//! Nodes with problems made on purpose, behind real sshds. Every problem is found with its code; a
//! healthy node is not named.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;

use crate::doctor::{Doctor, lines_of};
use crate::ssh::cluster::{Cluster, can_run};
use crate::support::launch::{Launch, command};
use crate::support::proof::has;

/// Two nodes, and a doctor for them.
fn two(test: &str) -> Option<(Cluster, Launch)> {
    can_run(test).then(|| Cluster::new(&[("n1", 1), ("n2", 1)]))
}

/// Lines for the sshd of one node only.
fn configure(cluster: &Cluster, host: &str, line: &str) {
    let path = cluster.dir().join(format!("sshd_{host}"));
    let text = fs::read_to_string(&path).expect("written before");
    fs::write(&path, format!("{line}\n{text}")).expect("a file");
}

fn doctor(cluster: &Cluster) -> Doctor {
    Doctor::over_ssh(cluster.dir())
}

#[test]
fn doctor_finds_no_errors_on_healthy_nodes() {
    let Some((cluster, _launch)) = two("doctor_finds_no_errors_on_healthy_nodes") else { return };
    let said = doctor(&cluster).run();
    let said = said.says("n[1-2] (2)").says("OpenSSH_").does_not_say("error[");
    said.does_not_say("D005").does_not_say("D007").does_not_say("D030").does_not_say("D032");
}

#[test]
fn host_without_sshd_is_not_usable() {
    let Some((cluster, _launch)) = two("host_without_sshd_is_not_usable") else {
        return;
    };
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = closed.local_addr().expect("bound").port();
    drop(closed);
    let hostfile = "n1 slots=1\ngone slots=8 # rack 2\nn2 slots=1\n";
    fs::write(cluster.dir().join("hostfile"), hostfile).expect("a hostfile");
    cluster.configure_client(&format!("Host gone\n  HostName 127.0.0.9\n  Port {port}\nHost *"));
    let good = cluster.dir().join("good");
    let said = doctor(&cluster).word("--quick").word("--usable").word(&good.display().to_string());
    let said = said.run().code(1).says("error[D001]: gone cannot be reached: connection refused");
    said.says("Connection refused").says("errors on 1, 2 usable").does_not_say("debug1");
    assert_eq!(lines_of(&good), "n1 slots=1\nn2 slots=1\n");
}

#[test]
fn doctor_makes_a_usable_hostfile_from_a_pbs_file() {
    let test = "doctor_makes_a_usable_hostfile_from_a_pbs_file";
    if !can_run(test) || !has("netns", test) {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1), ("n3", 1), ("n5", 1)]);
    let (file, good) = (cluster.dir().join("nodes"), cluster.dir().join("good"));
    // PBS writes a line for each slot: 500.
    let lines = |host: &str| format!("{host}\n").repeat(100);
    let text = ["n1", "n2", "n3", "n4", "n5"].map(lines).concat();
    fs::write(&file, text).expect("a hostfile");
    // One name does not resolve, one directory is missing, one host refuses the login.
    cluster.configure_client("Host n4\n  HostName no.such.host.invalid\nHost *");
    let (here, empty) = (cluster.dir().join("here"), cluster.dir().join("empty"));
    fs::create_dir_all(here.join("job")).expect("a directory");
    fs::create_dir(&empty).expect("a directory");
    let mount = format!("mount --bind {} {}", empty.display(), here.display());
    in_own_mounts(&cluster, "n2", &mount);
    configure(&cluster, "n3", "AuthorizedKeysFile /dev/null");
    let doctor = doctor(&cluster).cwd(&here.join("job")).word("--quick").word("--no_python");
    let doctor = doctor.with("-H", &file.display().to_string());
    let said = doctor.word("--usable").word(&good.display().to_string()).run().code(1);
    let said = said.says("error[D001]: n4 cannot be reached: the name does not resolve");
    let said = said.says("error[D001]: n3 cannot be reached: permission denied");
    said.says("error[D009]: n2 cannot use the working directory").says("errors on 3, 2 usable");
    assert_eq!(lines_of(&good), lines("n1") + &lines("n5"));
    let launch = launch.option("-H").option(good).cwd(here.join("job"));
    let outcome = launch
        .options(["--num_gpus", "1", "--prefix", ""])
        .sh("echo $RANK of $WORLD_SIZE")
        .end()
        .code(0);
    let mut lines: Vec<_> = outcome.stdout_text().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 of 2", "1 of 2"]);
}

#[test]
fn doctor_reports_missing_directory_and_program() {
    let test = "doctor_reports_missing_directory_and_program";
    let Some((cluster, _launch)) = two(test) else { return };
    if !has("netns", test) {
        return;
    }
    let (here, hidden) = (cluster.dir().join("here"), cluster.dir().join("empty"));
    fs::create_dir(&here).expect("a directory");
    fs::create_dir(&hidden).expect("a directory");
    fs::write(here.join("train.sh"), "#!/bin/sh\n").expect("a file");
    make_executable(&here.join("train.sh"));
    // On the second node the directory is another one.
    let mount = format!("mount --bind {} {}", hidden.display(), here.display());
    in_own_mounts(&cluster, "n2", &mount);
    let said = doctor(&cluster).cwd(&here).word("--no_python").word("./train.sh").run().code(1);
    said.says("error[D010]: n2: program `./train.sh` does not exist").finds_only("D010", "n2");
    let inside = here.join("inside");
    fs::create_dir(&inside).expect("a directory");
    let said = doctor(&cluster).cwd(&inside).word("--no_python").run().code(1);
    said.says("error[D009]: n2 cannot use the working directory").says("errors on 1, 1 usable");
}

#[test]
fn doctor_reports_little_shared_memory() {
    let test = "doctor_reports_little_shared_memory";
    let Some((cluster, _launch)) = two(test) else { return };
    if !has("netns", test) {
        return;
    }
    in_own_mounts(&cluster, "n1", "mount -t tmpfs -o size=64m tmpfs /dev/shm");
    let said = doctor(&cluster).word("--quick").run().code(1);
    said.says("warning[D024]: n1: /dev/shm has only 64 MiB").says("--shm-size");
}

#[test]
fn doctor_reports_a_name_that_resolves_differently() {
    let test = "doctor_reports_a_name_that_resolves_differently";
    if !can_run(test) || !has("netns", test) {
        return;
    }
    let names = ["n1", "n2", "n3", "n4"];
    let (cluster, _launch) = Cluster::new(&names.map(|name| (name, 1)));
    for (name, net) in names.into_iter().zip([0, 0, 0, 9]) {
        let hosts = cluster.dir().join(format!("hosts_{name}"));
        fs::write(&hosts, format!("10.9.{net}.1 n1\n10.9.{net}.2 n2\n10.9.0.4 n4\n"))
            .expect("a file");
        in_own_mounts(&cluster, name, &format!("mount --bind {} /etc/hosts", hosts.display()));
    }
    let said = doctor(&cluster).word("--no_python").run().code(1);
    let said = said.says("warning[D037]: n4: `n[1-2]` resolves to another machine there");
    let said = said.says("n4: n1: 10.9.9.1 there, 10.9.0.1 elsewhere");
    said.says("help: compare `getent ahosts n1` with other hosts").finds_only("D037", "n4");
    let said = doctor(&cluster).word("--quick").run();
    said.does_not_say("D037");
}

#[test]
fn interrupted_doctor_shows_its_findings() {
    let Some((cluster, _launch)) = two("interrupted_doctor_shows_its_findings") else {
        return;
    };
    configure(&cluster, "n2", "ForceCommand exec sleep 600");
    let good = cluster.dir().join("good");
    let interrupt = ["timeout", "--preserve-status", "--signal=INT", "10"].map(str::to_owned);
    let doctor = doctor(&cluster).through(&interrupt).word("--quick").word("--no_python");
    let said = doctor.word("--usable").word(&good.display().to_string()).run().code(130);
    let said = said.says("error[D002]: n2: its agent sent no report: no answer before");
    said.says("2 hosts, 2 slots: errors on 1, 1 usable");
    assert_eq!(lines_of(&good), "n1 slots=1\n");
}

#[test]
fn doctor_reports_noisy_and_slow_login_shells() {
    let Some((cluster, _launch)) = two("doctor_reports_noisy_and_slow_login_shells") else {
        return;
    };
    let run = "eval \"$SSH_ORIGINAL_COMMAND\"";
    configure(&cluster, "n1", &format!("ForceCommand echo Welcome to n1; {run}"));
    configure(&cluster, "n2", &format!("ForceCommand sleep 2; {run}"));
    let said = doctor(&cluster).word("--quick").run().code(1);
    let said =
        said.says("warning[D005]: n1: its login shell prints text").says("n1: `Welcome to n1`");
    let said = said.says("warning[D006]: n2: its login shell is slow");
    let way = format!("-F {}/ssh_config n2", cluster.dir().display());
    said.says(&format!("help: `time ssh {way} true`; start-up files should return early"))
        .says("no errors, warnings on 2");
}

#[test]
fn doctor_reports_a_wrong_clock() {
    let test = "doctor_reports_a_wrong_clock";
    let Some((cluster, _launch)) = two(test) else { return };
    let library = late_clock(cluster.dir());
    let run = format!("export LD_PRELOAD={library}; eval \"$SSH_ORIGINAL_COMMAND\"");
    configure(&cluster, "n2", &format!("ForceCommand {run}"));
    let said = doctor(&cluster).word("--quick").run().code(1);
    said.says("warning[D007]: n2: its clock is ahead of the local one")
        .says("n2: by ")
        .finds_only("D007", "n2");
}

#[test]
fn doctor_reports_a_different_python_and_library() {
    let Some((cluster, _launch)) = two("doctor_reports_a_different_python_and_library") else {
        return;
    };
    let bin = cluster.dir().join("bin");
    fs::create_dir(&bin).expect("a directory");
    let python = bin.join("python");
    // Prints a version that the environment of its node sets.
    fs::write(&python, "#!/bin/sh\necho ${FAKE_VERSION:-3.11.2}\n").expect("a file");
    make_executable(&python);
    let lib = cluster.dir().join("lib");
    fs::create_dir(&lib).expect("a directory");
    fs::write(lib.join("libnccl.so.2.18.3"), "").expect("a file");
    let set = format!("export FAKE_VERSION=3.9.1 LD_LIBRARY_PATH={}", lib.display());
    configure(&cluster, "n2", &format!("ForceCommand {set}; eval \"$SSH_ORIGINAL_COMMAND\""));
    let doctor = doctor(&cluster).word("--python").word(&python.display().to_string());
    let said = doctor.with("--accelerator", "auto").run().code(1);
    let said = said.says("warning[D012]: n2: Python 3.9.1, most have 3.11.2");
    said.says("warning[D022]: n2: NCCL 2.18.3, most have ");
}

/// Every login of a node gets a mount namespace in which a line of `sh` was run.
fn in_own_mounts(cluster: &Cluster, host: &str, line: &str) {
    let script = cluster.dir().join(format!("mounts_{host}"));
    let text = format!("#!/bin/sh\n{line} || exit 9\neval \"$SSH_ORIGINAL_COMMAND\"\n");
    fs::write(&script, text).expect("a file");
    make_executable(&script);
    configure(cluster, host, &format!("ForceCommand exec unshare --mount {}", script.display()));
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permissions can be set");
}

/// A library that sets the wall clock ahead for the process that loads it, and no other clock.
fn late_clock(dir: &Path) -> String {
    const SOURCE: &str = "
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *time) {
    int status = syscall(SYS_clock_gettime, clock, time);
    if (status == 0 && clock == CLOCK_REALTIME) time->tv_sec += 90;
    return status;
}
";
    let (source, library) = (dir.join("late.c"), dir.join("late.so"));
    fs::write(&source, SOURCE).expect("a file");
    let mut cc = command("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).stdin(Stdio::null());
    assert!(cc.status().expect("cc starts").success());
    library.display().to_string()
}
