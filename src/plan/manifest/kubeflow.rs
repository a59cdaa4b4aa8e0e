//! Jobs of Kubeflow's operators with two kinds of pods: one is node 0, the others are the other
//! nodes. Pure.

use serde_json::{Value, json};

use super::pod_spec::{PodOptions, pod_template};
use super::spec::ManifestSpec;
use crate::plan::manifest::object::{enqueue, object, write_time_limits};

/// An `MPIJob` whose launcher is node 0. Its pods run no sshd: they find each other like those of a
/// Job.
pub(super) fn mpi_job(input: &ManifestSpec) -> Value {
    let address = format!("{0}-launcher.{0}", input.name);
    // A pod that is not ready may have no DNS name yet, and node 0 waits for its own name.
    let options = PodOptions { ready_path: "/livez", ..PodOptions::new(Some(address), None) };
    let spec = json!({
        "slotsPerWorker": input.slots,
        "runLauncherAsWorker": true,
        "runPolicy": run_policy(input),
        "mpiReplicaSpecs": replicas(input, "Launcher", &pod_template(input, &options)),
    });
    let of = ("kubeflow.org/v2beta1", "MPIJob");
    let mut job = object(input, of, &input.name, ("spec", spec));
    enqueue(input, &mut job, Some("/spec/runPolicy"));
    job
}

/// A `PyTorchJob` whose master is node 0: `RANK` and `WORLD_SIZE` of its pods count nodes.
pub(super) fn pytorch_job(input: &ManifestSpec) -> Value {
    let address = format!("{}-master-0", input.name);
    // The container name that the operator requires (`PytorchJobDefaultContainerName`).
    let options = PodOptions {
        container: "pytorch",
        ready_path: "/livez",
        ..PodOptions::new(Some(address), None)
    };
    let spec = json!({
        "runPolicy": run_policy(input),
        "pytorchReplicaSpecs": replicas(input, "Master", &pod_template(input, &options)),
    });
    let mut job = object(input, ("kubeflow.org/v1", "PyTorchJob"), &input.name, ("spec", spec));
    enqueue(input, &mut job, Some("/spec/runPolicy"));
    job
}

fn run_policy(input: &ManifestSpec) -> Value {
    let mut policy = json!({"cleanPodPolicy": "Running", "backoffLimit": input.restarts_max});
    write_time_limits(input, &mut policy);
    policy
}

/// Node 0 and the others, if there are any.
fn replicas(input: &ManifestSpec, first: &str, template: &Value) -> Value {
    // A restarted container has the name, and therefore the node number, of the one before.
    // `ExitCode` would treat every status below 128 as one that no restart fixes.
    let restart = if input.restarts_max == 0 { "Never" } else { "OnFailure" };
    let replica =
        |number: u32| json!({"replicas": number, "restartPolicy": restart, "template": template});
    let mut replicas = json!({first: replica(1)});
    if let others @ 1.. = input.nodes.saturating_sub(1) {
        replicas["Worker"] = replica(others);
    }
    replicas
}
