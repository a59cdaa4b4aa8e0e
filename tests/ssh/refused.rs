//! Hosts that are not reached: all of them on one screen, in ssh's own words, and nothing started.

use std::fs;

use crate::cluster::{Cluster, can_run};

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
    let outcome = outcome.says("help: to go on without them: --exclude 'n2@n3@n4'");
    assert!(!started.exists(), "all or nothing: {outcome:?}");
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
    outcome.says("dropped before authentication").says("kex_exchange_identification");
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
