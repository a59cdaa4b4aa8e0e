//! Unreachable hosts: all of them are on one screen with the output of ssh, and no worker is started.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;

use crate::ssh::cluster::{Cluster, can_run};
use crate::support::launch::{Outcome, REMUDA, command, on_hosts};
use crate::support::terminal::{self, Recording};
use crate::support::wait_for;

#[test]
fn every_unreachable_host_is_reported_at_once() {
    if !can_run("every_unreachable_host_is_reported_at_once") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1), ("n3", 1), ("n4", 1), ("n5", 1)]);
    // A name that does not resolve, a port without a listener, a host key that is not known.
    cluster.configure_client(
        "Host n2\n  HostName n2.invalid\nHost n3\n  HostName 127.0.0.1\n  Port 1\n\
         Host n4\n  HostKeyAlias stranger\nHost *",
    );
    let started = cluster.dir().join("started");
    let outcome = launch.program(["touch".into(), started.clone()]).end().code(69);
    let outcome = outcome.says("error[R107]: 3 of 5 hosts cannot be reached; nothing was started");
    let outcome =
        outcome.says("the name does not resolve:\n    n2: ssh: Could not resolve hostname");
    let outcome =
        outcome.says("connection refused:\n    n3: ssh: connect to host 127.0.0.1 port 1");
    let outcome = outcome.says("the host key is not known:\n    n4: ");
    let outcome = outcome
        .says("help: log in once with `ssh -o BatchMode=no -o StrictHostKeyChecking=ask -F ");
    let outcome = outcome.says("help: to continue without them: --exclude n2@n3@n4");
    assert!(!started.exists(), "a worker was started: {outcome:?}");
}

/// A script in PATH whose `-F` precedes that of remuda, which ssh uses.
#[test]
fn script_in_the_place_of_ssh_names_the_option_to_type() {
    if !can_run("script_in_the_place_of_ssh_names_the_option_to_type") {
        return;
    }
    let launch = on_hosts(&[("n1.invalid", 1)]).options(["--launcher", "ssh"]);
    let ssh = launch.dir().join("bin/ssh");
    fs::create_dir(launch.dir().join("bin")).expect("a directory");
    fs::write(&ssh, "#!/bin/sh\nexec /usr/bin/ssh -F /dev/null \"$@\"\n").expect("a script");
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).expect("permissions can be set");
    let path = format!("{}/bin:/usr/bin:/bin", launch.dir().display());
    let note = format!(
        "note: `{}` is a script with `-F`, which has no effect here; type `--ssh_config /dev/null`\n",
        ssh.display()
    );
    let outcome = launch.env("PATH", path).sh("true").end().code(69).says(&note);
    drop(outcome.says(
        "  help: correct the name, or add a HostName for it to your ssh configuration (`--ssh_config FILE` names \
         another one)\n",
    ));
}

#[test]
fn configuration_error_names_the_file_of_the_user() {
    if !can_run("configuration_error_names_the_file_of_the_user") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    cluster.configure_client("Host n1\n  Prot 22\nHost *");
    let file = cluster.dir().join("ssh_config");
    let outcome = launch.sh("exit 0").end().code(69);
    outcome.says(&format!("{}: line 2: Bad configuration option: prot", file.display()));
}

#[test]
fn refused_login_is_reported_without_another_attempt() {
    if !can_run("refused_login_is_reported_without_another_attempt") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    fs::write(cluster.dir().join("authorized_keys"), "").expect("a file");
    let outcome = launch.sh("exit 0").end().code(77);
    outcome.says("2 of 2 hosts cannot be reached").says("Permission denied (publickey)");
    assert_eq!((cluster.connections(0), cluster.connections(1)), (1, 1));
}

/// The sshd of every host accepts connections and sends nothing; `--timeout` passes before any start.
#[test]
fn timeout_during_logins_names_the_pending_hosts() {
    if !can_run("timeout_during_logins_names_the_pending_hosts") {
        return;
    }
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 2), ("n3", 1)]);
    let port = silent.local_addr().expect("bound").port();
    cluster.configure_client(&format!("Host n*\n  HostName 127.0.0.1\n  Port {port}\nHost *"));
    let outcome = launch.options(["--timeout", "300ms"]).sh("echo ran").end().code(124);
    let expected = "\
error[R105]: the job was not ready to start within 300 ms (--timeout); nothing was started
  still logging in to: n[1-3]
help: `ssh -v -F DIR/ssh_config n1 true` shows where the login stops
";
    assert_eq!(screen(&outcome), expected);
    assert_eq!(outcome.stdout_text(), "");
    let outcome = outcome.does_not_say("Stopping");
    assert!(outcome.runs().is_empty(), "a job that never started has no record: {outcome:#?}");
}

/// Makes a host accept the login and then send nothing; its shell ends with the connection.
const HANG: &str = "ForceCommand cat >/dev/null";

#[test]
fn hosts_that_hang_after_the_login_time_out() {
    if !can_run("hosts_that_hang_after_the_login_time_out") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    cluster.configure(HANG);
    let outcome = launch.options(["--agent_timeout", "300ms"]).sh("exit 0").end().code(69);
    let expected = "\
error[R107]: 2 of 2 hosts cannot take part; nothing was started
  no response after the ssh login:
    n[1-2]: no agent within 0.3 s
  help: check that `ssh -F DIR/ssh_config n1 true` ends: a start-up file or the home directory may hang; \
`--agent_timeout TIME` waits longer
";
    assert_eq!(screen(&outcome), expected);
    assert_eq!(outcome.screen().find("error["), Some(0), "{outcome:#?}");
}

/// A wait of some seconds prints one line; a shorter one prints none.
#[test]
fn waiting_launch_prints_one_line_before_it_fails() {
    if !can_run("waiting_launch_prints_one_line_before_it_fails") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    cluster.configure(HANG);
    let outcome = launch.options(["--agent_timeout", "9s"]).sh("exit 0").end().code(69);
    let (waiting, error) = outcome.stderr.split_once('\n').expect("two parts");
    let (waiting, since) = waiting.rsplit_once(", ").expect("a time");
    assert_eq!(waiting, "   Waiting  for n1, n2 to start the agent (after the ssh login)");
    assert!(since.ends_with(" s so far"), "{since}");
    let expected = "error[R107]: 2 of 2 hosts cannot take part; nothing was started\n";
    assert!(error.starts_with(expected), "{outcome:#?}");
}

/// SIGQUIT prints the state of the connection to each host.
#[test]
fn sigquit_shows_the_progress_of_logins() {
    if !can_run("sigquit_shows_the_progress_of_logins") {
        return;
    }
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("bound").port();
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    cluster.configure(HANG);
    cluster.configure_client(&format!("Host n1\n  HostName 127.0.0.1\n  Port {port}\nHost *"));
    let job = launch.sh("exit 0").start();
    // The launcher handles signals before it starts an ssh.
    wait_for("an ssh", || job.processes().into_iter().find(|process| process.name == "ssh"));
    let line = "   Waiting  for n2 to start the agent (after the ssh login), ";
    wait_for(line, || {
        job.signal(Signal::QUIT);
        job.stderr().contains(line).then_some(())
    });
    job.wait_for_error("   Waiting  for n1 to accept the ssh login, ");
    job.signal(Signal::TERM);
    job.end().code(143).says("error[R106]: the job was stopped by SIGTERM; nothing was started");
}

/// An agent whose checks hang still sends heartbeats.
#[test]
fn preflight_checks_that_hang_time_out() {
    if !can_run("preflight_checks_that_hang_time_out") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let script = cluster.dir().join("environment");
    fs::write(&script, "sleep 1000\n").expect("written");
    let launch = launch.options(["--agent_timeout", "8s"]).option("--venv_script").option(script);
    let outcome = launch.sh("exit 0").end().code(69);
    let expected = "\
error[R100]: 2 of 2 nodes cannot take part; nothing was started
  n[1-2]: preflight checks did not finish within 8.0 s (--agent_timeout)
help: check that `ssh -F DIR/ssh_config n1 '. DIR/environment'` returns; `--venv_script` or a file system there \
may hang
";
    assert_eq!(screen(&outcome), expected);
}

/// The problem is one line for all its nodes, and so is the `--exclude` that continues without them.
#[test]
fn nodes_with_the_same_problem_are_one_line() {
    if !can_run("nodes_with_the_same_problem_are_one_line") {
        return;
    }
    let hosts = [("n1", 1), ("n2", 1), ("n3", 1), ("n4", 1), ("n5", 1)];
    let (cluster, launch) = Cluster::new(&hosts);
    let bin = cluster.dir().join("bin");
    fs::create_dir(&bin).expect("a directory");
    std::os::unix::fs::symlink("/bin/true", bin.join("tool")).expect("a link");
    for host in 0..hosts.len() {
        let more = if host % 2 == 0 { format!(":{}", bin.display()) } else { String::new() };
        cluster.set_variable_of(host, "PATH", &format!("/usr/bin:/bin{more}"));
    }
    let config = cluster.dir().join("ssh_config");
    let again = launch.another().on(&hosts).option("--ssh_config").option(config);
    let outcome = launch.program(["tool"]).end().code(127);
    let expected = "\
error[R100]: 2 of 5 nodes cannot take part; nothing was started
  n[2,4]: program `tool` is not in PATH
help: give its full path; PATH on that node is `/usr/bin:/bin`
help: to continue without them: --exclude n2@n4
";
    assert_eq!(outcome.screen(), expected);
    let again = again.options(["--accelerator", "cpu", "--no_python", "--exclude", "n2@n4"]);
    again.program(["tool"]).end().code(0);
}

/// If the working directory is missing, relative paths are not reported in addition.
#[test]
fn missing_directory_is_one_error() {
    if !can_run("missing_directory_is_one_error") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    let parent = cluster.dir().join("parent");
    let cwd = parent.join("work");
    fs::create_dir_all(&cwd).expect("directories");
    let mount = format!("mount -t tmpfs none \"{}\"", parent.display());
    let mut probe = command("unshare");
    probe.args(["--mount", "sh", "-c"]).arg(&mount).stderr(std::process::Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        crate::support::proof::skip("mount", "missing_directory_is_one_error");
        return;
    }
    cluster.configure_one(
        1,
        &format!(
            "ForceCommand exec unshare --mount sh -c '{mount}; eval \"$SSH_ORIGINAL_COMMAND\"'"
        ),
    );
    let outcome = launch.cwd(&cwd).program(["./program"]).end();
    let expected = "\
error[R100]: 2 of 2 nodes cannot take part; nothing was started
  n1: program `./program` does not exist
help: give the full path, or `cd` to its directory first; searched in `DIR/parent/work`; the same path must exist on every node
  n2: cannot use the working directory `DIR/parent/work`: no such file or directory
help: the same path must exist on every node
";
    assert_eq!(screen(&outcome), expected);
}

/// Missing files are reported without starting workers.
#[test]
fn files_of_a_training_are_checked_before_the_start() {
    if !can_run("files_of_a_training_are_checked_before_the_start") {
        return;
    }
    let hosts = [("n1", 1), ("n2", 1), ("n3", 1)];
    let (cluster, launch) = Cluster::new(&hosts);
    let config = cluster.dir().join("ssh_config");
    let kept = cluster.dir().join("kept");
    fs::create_dir(&kept).expect("a directory");
    fs::write(kept.join("step-00000007.safetensors"), "x").expect("a file");
    let train = launch.another().command("train").on(&hosts).option("--ssh_config").option(config);
    let train = train.options(["--data", "/nowhere/text", "--resume", "/nowhere/kept"]);
    let outcome = train.option("--checkpoint_dir").option(&kept).end().code(66);
    let expected = "\
error[R100]: 3 of 3 nodes cannot take part; nothing was started
  n[1-3]: cannot read `/nowhere/text`: no such file or directory
help: `--data`: every worker reads it: the same path must exist on every node
  n1: cannot read `/nowhere/kept`: no such file or directory
help: `--resume`: rank 0 reads it: the path must exist on its node
  n1: `DIR/kept` is in use: it contains `step-00000007.safetensors`
help: to continue that run, add `--resume DIR/kept`; for a new run, name an empty directory in `--checkpoint_dir`
";
    assert_eq!(screen(&outcome), expected);
    assert_eq!(outcome.screen().find("error["), Some(0), "{outcome:#?}");
}

/// If this node were excluded, the next first node would have the same problem.
#[test]
fn problem_of_rank_0_does_not_suggest_exclude() {
    if !can_run("problem_of_rank_0_does_not_suggest_exclude") {
        return;
    }
    let hosts = [("n1", 1), ("n2", 1)];
    let (cluster, launch) = Cluster::new(&hosts);
    let config = cluster.dir().join("ssh_config");
    let train = launch.another().command("train").on(&hosts).option("--ssh_config").option(config);
    let outcome = train.options(["--resume", "/nowhere/kept"]).end().code(66);
    let expected = "\
error[R100]: 1 of 2 nodes cannot take part; nothing was started
  n1: cannot read `/nowhere/kept`: no such file or directory
help: `--resume`: rank 0 reads it: the path must exist on its node
";
    assert_eq!(screen(&outcome), expected);
    let outcome = launch.options(["--master_addr", "192.0.2.1"]).sh("exit 0").end().code(78);
    let expected = "\
error[R100]: 1 of 2 nodes cannot take part; nothing was started
  n1: cannot listen on `192.0.2.1`: it is not an address of this node
help: `--master_addr` must be an address or a name of the first node
";
    assert_eq!(screen(&outcome), expected);
}

/// The printed command prompts, even if the configuration forbids prompts.
#[test]
fn help_for_an_unknown_key_can_be_typed() {
    if !can_run("help_for_an_unknown_key_can_be_typed") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    cluster.configure_client("Host n1\n  HostKeyAlias stranger\n  BatchMode yes\nHost *");
    let config = cluster.dir().join("ssh_config");
    let again = launch.another().on(&[("n1", 1)]).option("--ssh_config").option(config);
    let outcome = launch.sh("exit 0").end().code(77);
    let expected = "\
error[R107]: the host cannot be reached; nothing was started
  the host key is not known:
    n1: Host key verification failed.
  help: log in once with `ssh -o BatchMode=no -o StrictHostKeyChecking=ask -F DIR/ssh_config n1` and \
compare the fingerprint
";
    assert_eq!(screen(&outcome), expected);
    let line = outcome.stderr.lines().find(|line| line.contains("log in once")).expect("a help");
    let line = line.split('`').nth(1).expect("a command");
    let (screen, theirs) = terminal::open();
    let keyboard = rustix::io::dup(&screen).expect("a copy");
    let recording = Recording::start(screen);
    let mut ssh = command("setsid");
    // ssh prompts on its terminal, independent of its standard input.
    ssh.args(["--ctty", "--wait", "sh", "-c", &format!("exec {line} true")]);
    ssh.stdin(theirs.try_clone().expect("a copy")).stdout(theirs.try_clone().expect("a copy"));
    let mut typed = ssh.stderr(theirs).spawn().expect("setsid starts");
    // Copies of the terminal's other end would keep it open.
    drop(ssh);
    recording.wait_for("Are you sure you want to continue connecting");
    rustix::io::write(&keyboard, b"yes\n").expect("typed");
    assert!(typed.wait().expect("it ends").success());
    drop((recording.end(), keyboard));
    let again = again.options(["--accelerator", "cpu", "--no_python"]);
    again.program(["true"]).end().code(0);
}

/// Everything from the first error on, with the files of the test in `DIR`.
fn screen(outcome: &Outcome) -> String {
    let text = outcome.screen().replace(&*outcome.dir().to_string_lossy(), "DIR");
    let error = text.find("error[").unwrap_or_else(|| panic!("no error: {text}"));
    text[error..].to_owned()
}

/// The command in the help fails with the same message as the launch.
#[test]
fn help_quotes_a_command_that_fails_in_the_same_way() {
    if !can_run("help_quotes_a_command_that_fails_in_the_same_way") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    fs::write(cluster.dir().join("hostfile"), "stranger@n1 slots=1\nn2 slots=1\n").expect("a file");
    let port = cluster.port(0).to_string();
    let outcome = launch.options(["--ssh_port", &port]).sh("exit 0").end().code(69);
    let expected = format!(
        "\
error[R107]: 2 of 2 hosts cannot be reached; nothing was started
  connection refused:
    n2: ssh: connect to host 127.0.0.3 port {port}: Connection refused
  help: check that its sshd runs and listens on this port (`--ssh_port`)
  permission denied:
    n1: stranger@127.0.0.2: Permission denied (publickey).
  help: `ssh -o BatchMode=yes -F DIR/ssh_config -p {port} stranger@n1 true` must succeed without a prompt; see `ssh-add -l`
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

/// The old key is in the known_hosts file that the user's configuration names.
#[test]
fn help_for_a_changed_key_removes_it_from_its_file() {
    if !can_run("help_for_a_changed_key_removes_it_from_its_file") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    cluster.change_host_key(0);
    let outcome = launch.sh("exit 0").end().code(77);
    let (port, said) = (cluster.port(0), screen(&outcome));
    let expected = format!(
        "  help: if the host was reinstalled, remove its old key with \
         `ssh-keygen -f DIR/known_hosts -R '[127.0.0.2]:{port}'`\n\
         help: to continue without it: --exclude n1\n"
    );
    assert!(said.ends_with(&expected), "{said}");
    let removal = format!("ssh-keygen -f \"$1\" -R '[127.0.0.2]:{port}'");
    let mut shell = command("sh");
    shell.args(["-c", &removal, "sh"]).arg(cluster.dir().join("known_hosts"));
    assert!(shell.output().expect("sh starts").status.success());
    assert_eq!(cluster.known_hosts().lines().count(), 1);
}

#[test]
fn doctor_and_preflight_print_the_same_finding() {
    if !can_run("doctor_and_preflight_print_the_same_finding") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    fs::write(cluster.dir().join("hostfile"), "stranger@n1 slots=1\n").expect("a file");
    let expected = "\
error[D001]: n1 cannot be reached: permission denied
  n1: stranger@127.0.0.2: Permission denied (publickey).
  help: `ssh -o BatchMode=yes -F DIR/ssh_config stranger@n1 true` must succeed without a prompt; see `ssh-add -l`
";
    let outcome = launch.option("--preflight").sh("exit 0").end().code(69);
    let so = "error[R100]: the only host failed the checks; nothing was started\n\
              help: fix the problems above; `remuda doctor` with the same options gives details\n";
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
fn changed_host_key_is_always_refused() {
    if !can_run("changed_host_key_is_always_refused") {
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
        assert_eq!(cluster.known_hosts(), known, "{policy}: known_hosts is unchanged");
    }
}

#[test]
fn unknown_host_key_follows_the_configuration() {
    if !can_run("unknown_host_key_follows_the_configuration") {
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
fn dropped_connection_is_tried_again() {
    if !can_run("dropped_connection_is_tried_again") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1), ("n2", 1)]);
    cluster.drop_connections(1, 2);
    launch.sh("exit 0").end().code(0);
    assert_eq!((cluster.connections(0), cluster.connections(1)), (1, 3));
}

#[test]
fn host_that_drops_every_connection_fails() {
    if !can_run("host_that_drops_every_connection_fails") {
        return;
    }
    let (cluster, launch) = Cluster::new(&[("n1", 1)]);
    cluster.drop_connections(0, usize::MAX);
    let outcome = launch.sh("exit 0").end().code(69);
    let outcome = outcome.says("kex_exchange_identification");
    let expected = "help: possible causes: too many connections (MaxStartups; try a smaller `--fanout`), a ban \
                    of this machine (fail2ban, hosts.deny), missing host keys, another service on this port; \
                    see `ssh -v -F DIR/ssh_config n1 true`\n";
    let said = screen(&outcome);
    assert!(said.contains("dropped before authentication, several times:\n"), "{said}");
    assert!(said.ends_with(expected), "{said}");
    assert_eq!(cluster.connections(0), 4);
}

#[test]
fn missing_ssh_is_an_error() {
    if !can_run("missing_ssh_is_an_error") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 1)]);
    let outcome = launch.under("PATH=/nowhere").sh("exit 0").end().code(127);
    outcome.says("there is no `ssh` in PATH");
}

#[test]
fn missing_configuration_is_an_error() {
    if !can_run("missing_configuration_is_an_error") {
        return;
    }
    let (_cluster, launch) = Cluster::new(&[("n1", 1)]);
    let launch = launch.options(["--ssh_config", "/nowhere/config"]);
    launch.sh("exit 0").end().code(66).says("cannot read `/nowhere/config`");
}

/// The mandatory options are first in the file, and the first value applies.
#[test]
fn configuration_cannot_forward_or_run_anything() {
    if !can_run("configuration_cannot_forward_or_run_anything") {
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
    assert!(!cluster.dir().join("shared").exists(), "a master that outlives the launcher");
}
