//! Hosts that are not reached: all of them on one screen, in ssh's own words, and nothing started.

use std::fs;
use std::net::TcpListener;

use crate::cluster::{Cluster, can_run};
use crate::support::launch::{Outcome, REMUDA, command};

#[test]
fn every_bad_host_is_told_at_once_and_nothing_starts() {
    if !can_run("every_bad_host_is_told_at_once_and_nothing_starts") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1), ("n3", 1), ("n4", 1), ("n5", 1)]);
    // A name that nobody has, a port where nobody listens, a key that nobody trusts.
    cluster.configure_client(
        "Host n2\n  HostName n2.invalid\nHost n3\n  HostName 127.0.0.1\n  Port 1\n\
         Host n4\n  HostKeyAlias stranger\nHost *",
    );
    let started = cluster.dir().join("started");
    let outcome = launch.program(["touch".into(), started.clone()]).end().code(69);
    let outcome = outcome.says("error[R107]: 3 of 5 hosts cannot be reached; nothing was started");
    let outcome =
        outcome.says("the name does not resolve:\n    n2: ssh: Could not resolve hostname");
    let outcome = outcome.says("nobody listens:\n    n3: ssh: connect to host 127.0.0.1 port 1");
    let outcome = outcome.says("the host key is not known:\n    n4: ");
    let outcome = outcome.says("help: log in once with `ssh -o StrictHostKeyChecking=ask -F ");
    let outcome = outcome.says("help: to go on without them: --exclude 'n2@n3@n4'");
    assert!(!started.exists(), "all or nothing: {outcome:?}");
}

#[test]
fn a_mistake_in_the_users_configuration_is_told_of_the_users_file() {
    if !can_run("a_mistake_in_the_users_configuration_is_told_of_the_users_file") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    cluster.configure_client("Host n1\n  Prot 22\nHost *");
    let file = cluster.dir().join("ssh_config");
    let outcome = launch.sh("exit 0").end().code(69);
    outcome.says(&format!("{}: line 2: Bad configuration option: prot", file.display()));
}

#[test]
fn who_is_not_let_in_is_told_once_and_not_tried_again() {
    if !can_run("who_is_not_let_in_is_told_once_and_not_tried_again") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    fs::write(cluster.dir().join("authorized_keys"), "").expect("a file");
    let outcome = launch.sh("exit 0").end().code(77);
    outcome.says("2 of 2 hosts cannot be reached").says("Permission denied (publickey)");
    assert_eq!((cluster.connections(0), cluster.connections(1)), (1, 1));
}

/// Hosts whose sshd never says a word: the time is over before anybody could start.
#[test]
fn a_time_that_is_over_while_hosts_are_reached_says_whom_we_waited_for() {
    if !can_run("a_time_that_is_over_while_hosts_are_reached_says_whom_we_waited_for") {
        return;
    }
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 2), ("n3", 1)]);
    let port = silent.local_addr().expect("bound").port();
    cluster.configure_client(&format!("Host n*\n  HostName 127.0.0.1\n  Port {port}\nHost *"));
    let outcome = launch.options(["--timeout", "300ms"]).sh("echo ran").end().code(124);
    let expected = "\
error[R105]: the job was not ready to start within 300 ms; nothing was started
  still connecting to: n[1-3]
";
    assert_eq!(screen(&outcome), expected);
    assert_eq!(outcome.stdout_text(), "");
    let outcome = outcome.does_not_say("Stopping");
    assert!(outcome.runs().is_empty(), "a job that never began has no record: {outcome:#?}");
}

/// Everything from the first error on, with the files of the test in `DIR`.
fn screen(outcome: &Outcome) -> String {
    let text = outcome.stderr.replace(&*outcome.dir().to_string_lossy(), "DIR");
    let error = text.find("error[").unwrap_or_else(|| panic!("no error: {text}"));
    text[error..].to_owned()
}

/// A user who types what the help says meets what we met.
#[test]
fn help_says_the_line_that_fails_in_the_same_way() {
    if !can_run("help_says_the_line_that_fails_in_the_same_way") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    fs::write(cluster.dir().join("hostfile"), "stranger@n1 slots=1\nn2 slots=1\n").expect("a file");
    let port = cluster.port(0).to_string();
    let outcome = launch.options(["--ssh_port", &port]).sh("exit 0").end().code(69);
    let expected = format!(
        "\
error[R107]: 2 of 2 hosts cannot be reached; nothing was started
  nobody listens:
    n2: ssh: connect to host 127.0.0.3 port {port}: Connection refused
  help: is its sshd running, and on this port? see `--ssh_port`
  permission denied:
    n1: stranger@127.0.0.2: Permission denied (publickey).
  help: `ssh -F DIR/ssh_config -p {port} stranger@n1 true` must work without a question; see `ssh-add -l`
"
    );
    assert_eq!(screen(&outcome), expected);
    let config = cluster.dir().join("ssh_config");
    let by_hand =
        command("ssh").arg("-F").arg(config).args(["-p", &port, "stranger@n1", "true"]).output();
    let words = by_hand.expect("ssh starts").stderr;
    let words = String::from_utf8_lossy(&words);
    assert_eq!(words.trim_end(), "stranger@127.0.0.2: Permission denied (publickey).");
}

/// The old key stands in the file of the user's own configuration.
#[test]
fn help_removes_a_changed_key_from_the_file_in_which_it_stands() {
    if !can_run("help_removes_a_changed_key_from_the_file_in_which_it_stands") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    cluster.change_host_key(0);
    let outcome = launch.sh("exit 0").end().code(77);
    let (port, said) = (cluster.port(0), screen(&outcome));
    let expected = format!(
        "  help: if the host was reinstalled, remove its old key with \
         `ssh-keygen -f DIR/known_hosts -R '[127.0.0.2]:{port}'`\n\
         help: to go on without it: --exclude 'n1'\n"
    );
    assert!(said.ends_with(&expected), "{said}");
    let removal = format!("ssh-keygen -f \"$1\" -R '[127.0.0.2]:{port}'");
    let mut shell = command("sh");
    shell.args(["-c", &removal, "sh"]).arg(cluster.dir().join("known_hosts"));
    assert!(shell.output().expect("sh starts").status.success());
    assert_eq!(cluster.known_hosts().lines().count(), 1);
}

#[test]
fn a_doctor_and_a_preflight_say_the_same_line() {
    if !can_run("a_doctor_and_a_preflight_say_the_same_line") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    fs::write(cluster.dir().join("hostfile"), "stranger@n1 slots=1\n").expect("a file");
    let expected = "\
error[D001]: n1: cannot be reached: permission denied
  n1: stranger@127.0.0.2: Permission denied (publickey).
  help: `ssh -F DIR/ssh_config stranger@n1 true` must work without a question; see `ssh-add -l`
";
    let outcome = launch.option("--preflight").sh("exit 0").end().code(69);
    let so = "error[R100]: the only host cannot take part; nothing was started\n\
              help: mend what stands above; `remuda doctor` with the same options looks deeper\n";
    assert_eq!(screen(&outcome), expected.to_owned() + so);
    let mut doctor = command(REMUDA);
    doctor.args(["doctor", "--no_python", "--accelerator", "cpu", "-H"]);
    doctor.arg(cluster.dir().join("hostfile"));
    doctor.arg("--ssh_config").arg(cluster.dir().join("ssh_config"));
    let text = String::from_utf8(doctor.output().expect("remuda starts").stdout).expect("text");
    let text = text.replace(&*cluster.dir().to_string_lossy(), "DIR");
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_changed_host_key_is_refused_whatever_else_the_user_allows() {
    if !can_run("a_changed_host_key_is_refused_whatever_else_the_user_allows") {
        return;
    }
    for policy in ["yes", "ask", "accept-new"] {
        let (cluster, launch) = Cluster::new(&[("n1", 1)]);
        cluster.configure_client(&format!("StrictHostKeyChecking {policy}"));
        cluster.change_host_key(0);
        let known = cluster.known_hosts();
        let outcome = launch.sh("exit 0").end().code(77);
        let outcome = outcome.says("the host key has changed:").says("known_hosts:1");
        let outcome =
            outcome.says("The fingerprint for the ED25519 key sent by the remote host is");
        let outcome = outcome.says("the key known before: SHA256:");
        assert_eq!(outcome.stderr.matches("SHA256:").count(), 2, "{outcome:#?}");
        assert_eq!(cluster.known_hosts(), known, "{policy}: nobody may change what is known");
    }
}

#[test]
fn an_unknown_host_key_is_the_users_decision() {
    if !can_run("an_unknown_host_key_is_the_users_decision") {
        return;
    }
    for (policy, code) in [("yes", 77), ("ask", 77), ("accept-new", 0)] {
        let (cluster, launch) = Cluster::new(&[("n1", 1)]);
        cluster.configure_client(&format!("StrictHostKeyChecking {policy}"));
        cluster.forget_host_keys();
        let _outcome = launch.sh("exit 0").end().code(code);
        assert_eq!(!cluster.known_hosts().is_empty(), code == 0, "{policy}");
    }
}

#[test]
fn a_dropped_connection_is_tried_again() {
    if !can_run("a_dropped_connection_is_tried_again") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    cluster.drop_connections(1, 2);
    launch.sh("exit 0").end().code(0);
    assert_eq!((cluster.connections(0), cluster.connections(1)), (1, 3));
}

#[test]
fn a_host_that_drops_every_connection_is_given_up() {
    if !can_run("a_host_that_drops_every_connection_is_given_up") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    cluster.drop_connections(0, usize::MAX);
    let outcome = launch.sh("exit 0").end().code(69);
    let outcome = outcome.says("kex_exchange_identification");
    let expected = "help: its sshd may be full (MaxStartups; try a smaller `--fanout`), ban us (fail2ban, \
                    hosts.deny), lack host keys, or be no sshd: see `ssh -v -F DIR/ssh_config n1 true`\n";
    let said = screen(&outcome);
    assert!(said.contains("dropped before authentication, several times:\n"), "{said}");
    assert!(said.ends_with(expected), "{said}");
    assert_eq!(cluster.connections(0), 4);
}

#[test]
fn a_machine_without_ssh_says_so() {
    if !can_run("a_machine_without_ssh_says_so") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 1)]);
    let outcome = launch.under("PATH=/nowhere").sh("exit 0").end().code(127);
    outcome.says("there is no `ssh` in PATH");
}

#[test]
fn a_configuration_that_is_not_there_is_an_error() {
    if !can_run("a_configuration_that_is_not_there_is_an_error") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 1)]);
    let launch = launch.options(["--ssh_config", "/nowhere/config"]);
    launch.sh("exit 0").end().code(66).says("cannot read `/nowhere/config`");
}

/// Ours come first in the file, and the first value wins.
#[test]
fn a_configuration_cannot_forward_or_run_anything() {
    if !can_run("a_configuration_cannot_forward_or_run_anything") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    let ran = cluster.dir().join("ran");
    cluster.configure_client(&format!(
        "ForwardAgent yes\nPermitLocalCommand yes\nLocalCommand touch {}\nRemoteCommand false\n\
         RequestTTY force\nLocalForward 127.0.0.1:1 127.0.0.1:1\nExitOnForwardFailure yes\n\
         ControlMaster auto\nControlPath {}/shared\nControlPersist yes",
        ran.display(),
        cluster.dir().display(),
    ));
    let outcome = launch.sh("echo agent=$SSH_AUTH_SOCK; tty").env("SSH_AUTH_SOCK", "/nowhere");
    let outcome = outcome.end().code(1);
    assert_eq!(outcome.stdout_text(), "agent=\nnot a tty\n");
    assert!(!ran.exists());
    assert!(!cluster.dir().join("shared").exists(), "a master that outlives us");
}
