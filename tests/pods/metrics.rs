//! `/metrics` of a job of pods, parsed as strictly as by Prometheus' own checker.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;

use crate::pods::nodes::Nodes;
use crate::support::launch::{Launch, REMUDA};
use crate::support::wait_for;

/// Samples by name and labels.
type Samples = BTreeMap<String, f64>;

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// `a="x",b="y"`, without escapes.
fn are_labels(text: &str) -> bool {
    text.split(',').all(|pair| {
        let value = pair.split_once('=').filter(|(name, _)| is_name(name));
        let value = value.and_then(|(_, value)| value.strip_prefix('"')?.strip_suffix('"'));
        value.is_some_and(|value| !value.contains(['"', '\\']))
    })
}

/// Reads the text format 0.0.4: every family has its HELP, then its TYPE, then its samples, once.
fn parse(text: &str) -> Samples {
    assert!(text.ends_with('\n'), "the last line has an end");
    let (mut samples, mut families) = (Samples::new(), BTreeSet::new());
    let (mut help, mut family) = (None, None);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, words) = rest.split_once(' ').expect("a name and a text");
            assert!(is_name(name) && name.starts_with("remuda_") && !words.is_empty(), "{line}");
            assert!(families.insert(name), "{name} is there twice");
            (help, family) = (Some(name), None);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a kind");
            assert_eq!(help, Some(name), "its HELP precedes it");
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            family = Some(name);
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a series and a value");
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            assert_eq!(family, Some(name), "its TYPE precedes it: {line}");
            let labels = labels.strip_suffix('}').unwrap_or(labels);
            assert!(labels.is_empty() || are_labels(labels), "{line}");
            let value: f64 = value.parse().expect("a number");
            assert!(samples.insert(series.to_owned(), value).is_none(), "{line} is there twice");
        }
    }
    samples
}

/// The head and the body of what this path is answered.
fn ask(address: (&str, u16), path: &str) -> (String, String) {
    let mut stream = wait_for("a status port", || TcpStream::connect(address).ok());
    write!(stream, "GET {path} HTTP/1.1\r\nHost: pod\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

fn metrics(address: (&str, u16)) -> Samples {
    let (head, body) = ask(address, "/metrics");
    let content_type = "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8";
    assert!(head.contains(content_type), "{head}");
    parse(&body)
}

/// One of two pods that train for a long time; probes are answered at an address of its own.
fn pod(nodes: &Nodes, rank: usize, status_addr: &str) -> Launch {
    let launch = Launch::new().command("pod").options(["--accelerator", "cpu", "--no_python"]);
    let launch = launch.options(["--no_local_rank", "--master_addr=127.0.0.1", "--nodes=2"]);
    let launch = launch.option(format!("--master_port={}", nodes.port));
    let launch = launch.env("JOB_COMPLETION_INDEX", rank.to_string());
    let launch = launch.env("REMUDA_KEY_FILE", nodes.dir().join("key"));
    let launch = launch.env("REMUDA_STATUS_ADDR", status_addr);
    let sizes =
        "--model gpt --layers 1 --heads 2 --width 16 --block 8 --batch_size 1 --steps 1000000";
    launch.program([REMUDA, "train"]).program(sizes.split(' '))
}

#[test]
fn metrics_describe_training_in_pods() {
    let nodes = Nodes::new(&[1, 1]);
    // Next to the ports of the job, so that no other test has them.
    let port = nodes.port + 1;
    let (first_at, second_at) = (("127.0.0.2", port), ("127.0.0.3", port));
    let second = pod(&nodes, 1, &format!("127.0.0.3:{port}")).start();
    let first = pod(&nodes, 0, &format!("127.0.0.2:{port}")).start();
    let all = wait_for("a step", || {
        let all = metrics(first_at);
        (all.contains_key("remuda_step") && 1.5 < all["remuda_workers{state=\"running\"}"])
            .then_some(all)
    });
    let expect = [
        ("remuda_up", 1.0),
        ("remuda_ready", 1.0),
        ("remuda_restarts_total", 0.0),
        ("remuda_workers{state=\"exited\"}", 0.0),
        ("remuda_workers{state=\"failed\"}", 0.0),
        ("remuda_nodes{state=\"connected\"}", 2.0),
        ("remuda_nodes{state=\"missing\"}", 0.0),
        ("remuda_steps_planned", 1_000_000.0),
    ];
    for (series, value) in expect {
        assert_eq!(all.get(series), Some(&value), "{series} in {all:#?}");
    }
    for series in [
        "remuda_job_start_time_seconds",
        "remuda_step",
        "remuda_loss",
        "remuda_tokens_per_second",
        "remuda_output_bytes_total{stream=\"stdout\"}",
    ] {
        assert!(all.get(series).is_some_and(|value| 0.0 < *value), "{series} in {all:#?}");
    }
    for series in [
        "remuda_last_step_age_seconds",
        "remuda_heartbeat_age_seconds{node=\"pod-0\"}",
        "remuda_heartbeat_age_seconds{node=\"pod-1\"}",
    ] {
        assert!(all.get(series).is_some_and(|value| 0.0 <= *value), "{series} in {all:#?}");
    }
    let names: Vec<_> = metrics(second_at).into_keys().collect();
    assert_eq!(
        names,
        ["remuda_ready", "remuda_restarts_total", "remuda_up"],
        "node 0 knows the rest"
    );
    for path in ["/livez", "/readyz"] {
        let (head, body) = ask(first_at, path);
        assert!(head.contains("\r\nContent-Type: text/plain; charset=utf-8\r\n"), "{head}");
        assert_eq!(body, "ok\n");
    }
    first.signal(Signal::TERM);
    first.end().code(143);
    second.end().code(143);
}
