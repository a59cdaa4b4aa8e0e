//! `--preflight`: a job examines its hosts before it starts.

use std::fs;

use crate::support::launch::hosts;

#[test]
fn preflight_starts_a_job_on_healthy_hosts() {
    let launch = hosts(&[("n1", 1), ("n2", 1)]).option("--preflight");
    let outcome = launch.option("--prefix").option("").sh("echo of $RANK").end().code(0);
    let mut lines: Vec<_> = outcome.stdout_text().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["of 0", "of 1"]);
}

#[test]
fn preflight_error_prevents_the_start() {
    let launch = hosts(&[("n1", 1), ("n2", 1)]).option("--preflight");
    let proof = launch.dir().join("started");
    let script = format!("touch {}", proof.display());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let outcome = launch.option("--master_port").option(&port).sh(&script).end().code(78);
    let expect = format!("error[D029]: n1: port {port} of rank 0 is in use");
    outcome.says(&expect).says("1 of 2 hosts failed the checks; nothing was started");
    assert!(fs::metadata(proof).is_err(), "a worker was started");
}

#[test]
fn preflight_does_not_advise_to_exclude_the_only_host() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let launch = hosts(&[("n1", 1)]).options(["--preflight", "--master_port", &port]);
    let outcome = launch.sh("exit 0").end().code(78);
    let outcome = outcome.says("the only host failed the checks; nothing was started");
    outcome.says("help: fix the problems above");
}

#[test]
fn preflight_warning_does_not_prevent_the_start() {
    let launch = hosts(&[("n1", 12)]).options(["--preflight", "--prefix", ""]);
    let outcome = launch.sh("exit 0").end().code(0);
    let cpus = std::thread::available_parallelism().expect("known").get();
    if cpus < 12 {
        outcome.says("warning[D027]: n1: ");
    }
}
