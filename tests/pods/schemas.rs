//! Printed manifests are validated against the schemas that Kubernetes and its controllers publish, with
//! foreign programs and a foreign YAML reader; an unknown field is an error.
//!
//! Kubernetes' own schemas are those of the oldest release that will do and of the newest; of JobSet and
//! the Trainer it is the models that Kubeflow publishes. Of LeaderWorkerSet, Volcano, MPIJob and PyTorchJob
//! no registry has any: only their pods are looked at here, and the rest in `manifest` and
//! `manifest_options`, from their sources.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::support::launch::{REMUDA, command};
use crate::support::proof::has;

fn printed(words: &[&str]) -> String {
    let mut printed = command(REMUDA);
    printed.args(["k8s", "manifest", "--image=registry.example/train:1"]).args(words);
    let printed = printed.args(["--", "train.py", "--lr=1e-3", "yes"]).output().expect("it starts");
    assert!(printed.status.success(), "{printed:?}");
    String::from_utf8(printed.stdout).expect("text")
}

/// Output about each document, or about the errors.
fn hold(manifest: &str) -> Result<String, String> {
    let mut check = command(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/schemas"));
    let piped = check.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut checking = piped.spawn().expect("it starts");
    let mut input = checking.stdin.take().expect("a pipe");
    input.write_all(manifest.as_bytes()).expect("it reads");
    drop(input);
    let done = checking.wait_with_output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    if done.status.success() { Ok(text(done.stdout)) } else { Err(text(done.stderr)) }
}

const KUBERNETES: &str = "Kubernetes 1.29 and 1.37";

/// Kind of the controller, and the expected output about its documents.
const FITS: [(&str, &str); 7] = [
    ("job", "Service: KUBERNETES\nJob: KUBERNETES\n"),
    ("jobset", "JobSet: JobSet v1alpha2\n"),
    ("trainer", "ClusterTrainingRuntime: Trainer v1alpha1\n"),
    ("lws", "LeaderWorkerSet: its pods alone\n"),
    ("volcano", "Job: its pods alone\n"),
    ("mpijob", "MPIJob: its pods alone\n"),
    ("pytorchjob", "PyTorchJob: its pods alone\n"),
];

/// Every option that adds a field of its own; those that one controller does not understand are left out.
fn every_option(kind: &str) -> Vec<&'static str> {
    let mut options = vec![
        "--resource=cpu=8,memory=64Gi,rdma/hca_shared=1,ephemeral-storage=10Gi",
        "--request=cpu=500m",
        "--gpu_resource=amd.com/gpu",
        "--volume=data:/data",
        "--toleration=gpu:NoSchedule",
        "--toleration=team=ml",
        "--node_selector=disk=ssd",
        "--topology_key=topology.kubernetes.io/zone",
        "--priority_class=high",
        "--service_account=trainer",
        "--image_pull_secret=registry",
        "--label=team=ml",
        "--annotation=note=a b",
    ];
    let understood = [
        ("--queue=gpus", ["trainer"].as_slice()),
        ("--ttl=1h", &["lws", "trainer"]),
        ("--deadline=24h", &["lws", "volcano"]),
    ];
    options.extend(
        understood.into_iter().filter(|(_, not)| !not.contains(&kind)).map(|(option, _)| option),
    );
    options
}

#[test]
fn every_manifest_option_fits_the_published_schemas() {
    if !has("schemas", "every_manifest_option_fits_the_published_schemas") {
        return;
    }
    let sizes = ["--nodes=4", "--gpus=8", "--namespace=ml"];
    let all = |(kind, _): &(&str, &str)| {
        printed(&[&sizes[..], &every_option(kind), &["--kind", kind]].concat())
    };
    let told = hold(&FITS.iter().map(all).collect::<String>());
    let expect: String = FITS.iter().map(|(_, told)| *told).collect();
    assert_eq!(told, Ok(expect.replace("KUBERNETES", KUBERNETES)));
}

#[test]
fn every_manifest_fits_its_published_schema() {
    if !has("schemas", "every_manifest_fits_its_published_schema") {
        return;
    }
    let sizes = ["--nodes=4", "--gpus=8", "--with_key", "--namespace=ml", "--max_restarts=2"];
    let all = |(kind, _): &(&str, &str)| {
        printed(&[&sizes[..], &["--resource=rdma/hca_shared=1", "--kind", kind]].concat())
    };
    let told = hold(&FITS.iter().map(all).collect::<String>());
    let expect = |(_, told): &(&str, &str)| format!("Secret: KUBERNETES\n{told}");
    let expect: String = FITS.iter().map(expect).collect();
    assert_eq!(told, Ok(expect.replace("KUBERNETES", KUBERNETES)));
}

/// Kind of the controller, and a field of what is printed for it.
const FIELDS: [(&str, &str); 11] = [
    ("job", "publishNotReadyAddresses"),
    ("job", "podReplacementPolicy"),
    ("job", "readinessProbe"),
    ("jobset", "subdomain"),
    ("jobset", "completionMode"),
    ("trainer", "numNodes"),
    ("trainer", "readinessProbe"),
    ("lws", "readinessProbe"),
    ("volcano", "readinessProbe"),
    ("mpijob", "readinessProbe"),
    ("pytorchjob", "readinessProbe"),
];

#[test]
fn misspelt_field_does_not_fit_the_schema() {
    if !has("schemas", "misspelt_field_does_not_fit_the_schema") {
        return;
    }
    let misspelt = |(kind, field): &(&str, &str)| {
        let good = printed(&["--nodes=2", "--cpus=1", "--kind", kind]);
        let key = format!("{field}:");
        assert!(good.contains(&key), "{field} is not in it");
        good.replacen(&key, &format!("{field}s:"), 1)
    };
    let told = hold(&FIELDS.iter().map(misspelt).collect::<String>());
    let told = told.expect_err("the fields are unknown");
    assert_eq!(told.lines().count(), FIELDS.len(), "{told}");
    for ((kind, field), line) in FIELDS.iter().zip(told.lines()) {
        assert!(line.contains(&format!("{field}s")), "{kind}: {line}");
    }
}
