//! Command lines over real connections: `remuda ssh`, `--venv_script`, `--bind_cores_to_rank`,
//! `--launcher_args`.

use std::fs;
use std::process::Output;

use crate::ssh::cluster::{Cluster, can_run};
use crate::support::delays::without_delays;
use crate::support::launch::{Launch, REMUDA, command};
use crate::support::process::MARK;

/// `remuda ssh` on the hosts of a cluster, with its status.
fn ssh(cluster: &Cluster, launch: &Launch, options: &[&str], script: &str) -> Output {
    let dir = cluster.dir();
    let mut ssh = command(REMUDA);
    ssh.args(["ssh", "-f"]).arg(dir.join("hostfile")).arg("--ssh_config");
    ssh.arg(dir.join("ssh_config")).arg("--run_dir").arg(dir.join("runs")).args(options);
    ssh.args(["--", "sh", "-c", script]).env(MARK, launch.mark()).env_remove("NO_COLOR");
    ssh.output().expect("remuda starts")
}

fn text(bytes: &[u8]) -> String {
    without_delays(&String::from_utf8_lossy(bytes))
}

#[test]
fn ssh_runs_on_the_hosts_that_can_be_reached() {
    if !can_run("ssh_runs_on_the_hosts_that_can_be_reached") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1), ("n3", 1)]);
    // A job would use the address of the first host for rank 0.
    cluster.configure_client("Host n1\n  HostName 127.0.0.1\n  Port 1\nHost *");
    let output = ssh(&cluster, &launch, &[], "echo hello");
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let rule = "---------------";
    assert_eq!(stdout, format!("{rule}\nn[2-3] (2)\n{rule}\nhello\n"), "{stderr}");
    let expect = "error[R107]: 1 of 3 hosts cannot be reached; the command ran on the other nodes\n  \
                  connection refused:\n    n1: ssh: connect to host 127.0.0.1 port 1: Connection refused\n  \
                  help: check that its sshd runs and listens on this port (`--ssh_port`)\n";
    assert_eq!(stderr, expect);
    assert_eq!(output.status.code(), Some(69));

    let output = ssh(&cluster, &launch, &[], "[ $RANK = 2 ] && exit 90; exit 3");
    let stderr = text(&output.stderr);
    let expect =
        format!("{expect}error: n2 (1): exited with code 3\nerror: n3 (1): exited with code 90\n");
    assert_eq!((stderr, output.status.code()), (expect, Some(90)));

    let output = ssh(&cluster, &launch, &["-i", "n1"], "echo hello");
    let stderr = text(&output.stderr);
    assert!(stderr.contains("the host cannot be reached; nothing was started"), "{stderr}");
    assert_eq!(output.status.code(), Some(69));
}

/// The login works, and then the host sends nothing.
#[test]
fn silent_host_does_not_cancel_the_other_hosts() {
    if !can_run("silent_host_does_not_cancel_the_other_hosts") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1), ("n3", 1)]);
    // It ends with its connection.
    cluster.configure_one(1, "ForceCommand cat >/dev/null");
    let output = ssh(&cluster, &launch, &["--timeout", "10s"], "echo hello");
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let rule = "---------------";
    assert_eq!(stdout, format!("{rule}\nn[1,3] (2)\n{rule}\nhello\n"), "{stderr}");
    let expect = "error[R107]: 1 of 3 hosts cannot take part; the command ran on the other nodes\n  \
                  no response after the ssh login:\n    n2: no answer within 10 s (--timeout)\n";
    assert!(stderr.contains(expect), "{stderr}");
    assert_eq!(output.status.code(), Some(69));
}

/// ssh and pdsh do the same.
#[test]
fn ssh_passes_a_shell_line_to_a_shell() {
    if !can_run("ssh_passes_a_shell_line_to_a_shell") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let check = |words: &[&str], expect: (&str, &str, i32)| {
        let mut ssh = command(REMUDA);
        ssh.args(["ssh", "-f"]).arg(cluster.dir().join("hostfile")).arg("--ssh_config");
        ssh.arg(cluster.dir().join("ssh_config")).arg("--").args(words);
        let output = ssh.env(MARK, launch.mark()).output().expect("remuda starts");
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        let code = output.status.code().expect("no signal");
        assert_eq!((&*stdout, &*stderr, code), expect, "{words:?}");
    };
    let rule = "---------------";
    let failed = "error: n[1-2] (2): exited with code 4\n";
    check(&["exit 4"], ("", failed, 4));
    check(&["exit", "4"], ("", failed, 4));
    let both = format!("{rule}\nn[1-2] (2)\n{rule}\n/\n");
    check(&["cd / && pwd | cat"], (&both, "", 0));
    let literal = format!("{rule}\nn[1-2] (2)\n{rule}\n$HOME | x\n");
    check(&["echo", "$HOME | x"], (&literal, "", 0));
}

#[test]
fn ssh_refuses_a_command_that_no_host_has() {
    if !can_run("ssh_refuses_a_command_that_no_host_has") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let mut ssh = command(REMUDA);
    ssh.args(["ssh", "-f"]).arg(cluster.dir().join("hostfile")).arg("--ssh_config");
    ssh.arg(cluster.dir().join("ssh_config")).args(["--", "/nowhere/program"]);
    let output = ssh.env(MARK, launch.mark()).output().expect("remuda starts");
    let stderr = text(&output.stderr);
    let expect = "error[R100]: 2 of 2 nodes cannot take part; nothing was started\n  \
                  n[1-2]: program `/nowhere/program` does not exist\n\
                  help: the same path must exist on every node\n";
    assert_eq!(stderr, expect);
    assert_eq!(output.status.code(), Some(127));
}

#[test]
fn each_host_reads_the_venv_script_before_workers_start() {
    if !can_run("each_host_reads_the_venv_script_before_workers_start") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let script = cluster.dir().join("activate");
    fs::write(&script, "export FROM_SCRIPT=\"it ran\"\n").expect("a file");
    let launch = launch.option("--venv_script").option(&script).option("--prefix").option("");
    let outcome = launch.sh("echo $CROSS_RANK $FROM_SCRIPT").end().code(0);
    let mut lines: Vec<_> = outcome.stdout_text().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 it ran", "1 it ran"]);

    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    let script = cluster.dir().join("activate");
    fs::write(&script, "exit 3\n").expect("a file");
    launch.option("--venv_script").option(&script).sh("touch started").end().code(78);
}

/// The first processor that this test may use.
fn processor() -> String {
    let status = fs::read_to_string("/proc/self/status").expect("mounted");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = list.expect("a line of the kernel").trim().split([',', '-']).next();
    first.expect("there is one").to_owned()
}

#[test]
fn workers_of_another_host_are_bound_to_the_listed_cores() {
    if !can_run("workers_of_another_host_are_bound_to_the_listed_cores") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let processor = processor();
    let launch = launch.options(["--bind_cores_to_rank", "--bind_core_list", &processor]);
    let script = "echo $OMP_NUM_THREADS $(sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status)";
    let outcome = launch.option("--prefix").option("").sh(script).end().code(0);
    assert_eq!(outcome.stdout_text(), format!("1 {processor}\n").repeat(2));
}

#[test]
fn launcher_args_of_pdsh_set_the_login_user() {
    if !can_run("launcher_args_of_pdsh_set_the_login_user") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let user = text(&command("id").arg("-un").output().expect("id starts").stdout);
    let launch = launch.option(format!("--launcher_args=-f 1 -l {} -S", user.trim()));
    let outcome = launch.option("--prefix").option("").sh("id -un").end().code(0);
    assert_eq!(outcome.stdout_text(), user.repeat(2));

    let (_cluster, launch) = Cluster::new(&[("n1", 1)]);
    let outcome = launch.option("--launcher_args=-l unknown-user").sh("exit 0").end();
    outcome.code(77).says("unknown-user@127.0.0.2: Permission denied");
}
