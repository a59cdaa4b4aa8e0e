//! Pods of a TrainJob: the settings of the printed runtime, and those that a `trainer` replaces.

use serde_json::Value;

use crate::pods::cluster::{Cluster, can_run};
use crate::pods::manifest::printed;
use crate::support::launch::{Launch, Running};

/// What the Trainer gives the pods of a TrainJob that has a `trainer`, but for their numbers.
const TRAINER: [(&str, &str); 4] = [
    ("PET_NNODES", "3"),
    ("PET_NPROC_PER_NODE", "1"),
    ("PET_MASTER_ADDR", "alpaca-node-0-0.alpaca"),
    ("PET_MASTER_PORT", "29500"),
];

/// One of the pods, with the environment that its template leads to: variables that the Trainer gives
/// replace those of the same name.
fn start(cluster: &Cluster, container: &Value, rank: usize, given: &[(&str, &str)]) -> Running {
    let launch = cluster.contain(rank, Launch::new().command("pod"), "true");
    let mut launch = launch.env("JOB_COMPLETION_INDEX", rank.to_string());
    for variable in container["env"].as_array().expect("a list") {
        let name = variable["name"].as_str().expect("text");
        let value = match (&variable["value"], &variable["valueFrom"]["fieldRef"]["fieldPath"]) {
            (Value::String(value), Value::Null) => value.clone(),
            (Value::Null, Value::String(path)) if path.contains("job-completion-index") => {
                rank.to_string()
            }
            _ => panic!("{variable}"),
        };
        launch = match name {
            "REMUDA_KEY_FILE" => launch.env(name, cluster.file("key")),
            "HOME" => launch,
            _ => launch.env(name, value),
        };
    }
    for (name, value) in given {
        launch = launch.env(name, *value);
    }
    let words = container["args"].as_array().expect("words").iter();
    let words: Vec<_> = words.map(|word| word.as_str().expect("text")).collect();
    let end = words.iter().position(|word| *word == "--").expect("it was given");
    launch.options(words[..end].iter()).program(words[end + 1..].iter()).start()
}

#[track_caller]
fn check(pods: usize, given: &[(&str, &str)], who: &str) {
    let cluster = Cluster::of(("alpaca-node-0", "alpaca"), pods);
    let script = "echo $RANK/$WORLD_SIZE at $MASTER_ADDR";
    let options = ["--kind=trainer", "--nodes=2", "--cpus=2", "--no_python", "--no_local_rank"];
    let documents = printed(&[&options[..], &["--", "sh", "-c", script]].concat());
    let [node] =
        &documents[0]["spec"]["template"]["spec"]["replicatedJobs"].as_array().expect("a list")[..]
    else {
        panic!("one")
    };
    let container = &node["template"]["spec"]["template"]["spec"]["containers"][0];
    let running: Vec<_> = (0..pods).map(|rank| start(&cluster, container, rank, given)).collect();
    for (rank, pod) in running.into_iter().enumerate() {
        let outcome = pod.end().code(0);
        if rank == 0 {
            let text = outcome.stdout_text();
            let last = format!("{}/{} at alpaca-node-0-0.alpaca", pods * 2 - 1, pods * 2);
            assert!(text.contains(&last), "{text}");
            drop(outcome.says(who));
        }
    }
}

#[test]
fn train_job_without_a_trainer_uses_its_runtime() {
    if can_run("train_job_without_a_trainer_uses_its_runtime") {
        check(
            2,
            &[],
            "Pod  node 0 (Kubeflow: PET_NODE_RANK=0 PET_NNODES=2 JOB_COMPLETION_INDEX=0) of 2",
        );
    }
}

#[test]
fn trainer_may_request_more_pods_than_its_runtime() {
    if can_run("trainer_may_request_more_pods_than_its_runtime") {
        check(3, &TRAINER, "Pod  node 0 (Kubeflow: PET_NODE_RANK=0 PET_NNODES=3 ");
    }
}
