//! Jobs of Kubeflow's operators whose pods are of two kinds: one is node 0, the others follow. Pure.

use serde_json::{Value, json};

use super::kinds::{enqueue, object, write_times};
use super::pod_spec::{PodOptions, pod_template};
use super::spec::ManifestSpec;

/// An `MPIJob` whose launcher is node 0. Its pods run no sshd: they find each other as those of a Job do.
pub(super) fn mpi_job(wanted: &ManifestSpec) -> Value {
    let address = format!("{0}-launcher.{0}", wanted.name);
    // A name of a pod that is not ready may not exist yet, and node 0 waits for its own.
    let options = PodOptions { ready_path: "/livez", ..PodOptions::new(Some(address), None) };
    let spec = json!({
        "slotsPerWorker": wanted.slots,
        "runLauncherAsWorker": true,
        "runPolicy": run_policy(wanted),
        "mpiReplicaSpecs": replicas(wanted, "Launcher", &pod_template(wanted, &options)),
    });
    let of = ("kubeflow.org/v2beta1", "MPIJob");
    let mut job = object(wanted, of, &wanted.name, ("spec", spec));
    enqueue(wanted, &mut job, Some("/spec/runPolicy"));
    job
}

/// A `PyTorchJob` whose master is node 0: `RANK` and `WORLD_SIZE` of its pods are those of nodes.
pub(super) fn pytorch_job(wanted: &ManifestSpec) -> Value {
    let address = format!("{}-master-0", wanted.name);
    // The name by which the operator finds the container (`PytorchJobDefaultContainerName`).
    let options = PodOptions {
        container: "pytorch",
        ready_path: "/livez",
        ..PodOptions::new(Some(address), None)
    };
    let spec = json!({
        "runPolicy": run_policy(wanted),
        "pytorchReplicaSpecs": replicas(wanted, "Master", &pod_template(wanted, &options)),
    });
    let mut job = object(wanted, ("kubeflow.org/v1", "PyTorchJob"), &wanted.name, ("spec", spec));
    enqueue(wanted, &mut job, Some("/spec/runPolicy"));
    job
}

fn run_policy(wanted: &ManifestSpec) -> Value {
    let mut policy = json!({"cleanPodPolicy": "Running", "backoffLimit": wanted.restarts_max});
    write_times(wanted, &mut policy);
    policy
}

/// Node 0 and the others, if there are any.
fn replicas(wanted: &ManifestSpec, first: &str, template: &Value) -> Value {
    // A container that is started again has the name, and so the part, of the one before. `ExitCode`
    // would take every status below 128 for one that no restart mends.
    let restart = if wanted.restarts_max == 0 { "Never" } else { "OnFailure" };
    let replica =
        |number: u32| json!({"replicas": number, "restartPolicy": restart, "template": template});
    let mut replicas = json!({first: replica(1)});
    if let others @ 1.. = wanted.nodes.saturating_sub(1) {
        replicas["Worker"] = replica(others);
    }
    replicas
}
