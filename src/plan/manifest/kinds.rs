//! The object of each controller around the template of its pods. Pure.

use serde_json::{Value, json};

use super::kubeflow;
use super::pod_spec::{PEER_EXIT, PodOptions, pod_template};
use super::spec::{Controller, ManifestError, ManifestSpec};
use crate::plan::manifest::object::{enqueue, object, write_deadline, write_time_limits};

/// Exit statuses of errors in a command line, a file or a program, which no restart fixes.
const PERMANENT_FAILURES: [u8; 7] = [2, 65, 66, 77, 78, 126, 127];

/// The objects, in the order in which they must be created.
pub fn manifest(input: &ManifestSpec) -> Result<Vec<Value>, ManifestError> {
    input.check()?;
    let mut objects = Vec::new();
    if let Some(key) = &input.key {
        objects.push(object(
            input,
            ("v1", "Secret"),
            &input.secret,
            ("stringData", json!({"key": key})),
        ));
    }
    objects.extend(match input.controller {
        Controller::Job => vec![service(input), job(input)],
        Controller::JobSet => vec![job_set(input)],
        Controller::LeaderWorkerSet => vec![leader_worker_set(input)],
        Controller::Trainer => vec![trainer(input)],
        Controller::Volcano => vec![volcano(input)],
        Controller::MpiJob => vec![kubeflow::mpi_job(input)],
        Controller::PyTorchJob => vec![kubeflow::pytorch_job(input)],
    });
    Ok(objects)
}

/// A headless Service. It publishes the names of pods that are not ready: they are ready only once
/// they have found each other.
fn service(input: &ManifestSpec) -> Value {
    let spec = json!({
        "clusterIP": "None",
        "publishNotReadyAddresses": true,
        "selector": {"batch.kubernetes.io/job-name": input.name},
        "ports": [
            {"name": "gate", "port": input.port + 1},
            {"name": "store", "port": input.port + 2},
        ],
    });
    object(input, ("v1", "Service"), &input.name, ("spec", spec))
}

fn job(input: &ManifestSpec) -> Value {
    let address = format!("{0}-0.{0}", input.name);
    let mut template = pod_template(input, &PodOptions::new(Some(address), Some("Never")));
    template["spec"]["subdomain"] = json!(input.name);
    let mut spec = job_spec(input, &template);
    write_time_limits(input, &mut spec);
    let mut job = object(input, ("batch/v1", "Job"), &input.name, ("spec", spec));
    enqueue(input, &mut job, Some("/spec"));
    job
}

fn job_spec(input: &ManifestSpec, template: &Value) -> Value {
    json!({
        "completions": input.nodes,
        "parallelism": input.nodes,
        "completionMode": "Indexed",
        "backoffLimit": input.restarts_max,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "Ignore", "onExitCodes": on_exit_codes(&[PEER_EXIT])},
            {"action": "FailJob", "onExitCodes": on_exit_codes(&PERMANENT_FAILURES)},
        ]},
        "template": template,
    })
}

fn on_exit_codes(statuses: &[u8]) -> Value {
    json!({"containerName": "remuda", "operator": "In", "values": statuses})
}

fn job_set(input: &ManifestSpec) -> Value {
    let address = format!("{0}-node-0-0.{0}", input.name);
    let template = pod_template(input, &PodOptions::new(Some(address), Some("Never")));
    let mut job = job_spec(input, &template);
    write_deadline(input, &mut job);
    let mut spec = json!({
        "network": {
            "enableDNSHostnames": true,
            "publishNotReadyAddresses": true,
            "subdomain": input.name,
        },
        // Without a `failurePolicy` a failed Job fails the set: the Job's own rules have already
        // decided that another start would not help, or that the limit is reached.
        "replicatedJobs": [
            {"name": "node", "replicas": 1, "template": {"spec": job}},
        ],
    });
    if let Some(ttl) = input.ttl_s {
        spec["ttlSecondsAfterFinished"] = json!(ttl);
    }
    let of = ("jobset.x-k8s.io/v1alpha2", "JobSet");
    let mut set = object(input, of, &input.name, ("spec", spec));
    enqueue(input, &mut set, Some("/spec"));
    set
}

fn leader_worker_set(input: &ManifestSpec) -> Value {
    let spec = json!({
        "replicas": 1,
        "leaderWorkerTemplate": {
            "size": input.nodes,
            // A lost pod is replaced alone. Of the API's values (`RestartPolicyType` in
            // api/leaderworkerset/v1) the others recreate the group, and `Default` is deprecated.
            "restartPolicy": "None",
            "workerTemplate": pod_template(input, &PodOptions::new(None, Some("Always"))),
        },
    });
    let of = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet");
    let mut set = object(input, of, &input.name, ("spec", spec));
    // Kueue holds back the pods of the set, one by one.
    enqueue(input, &mut set, None);
    set
}

fn trainer(input: &ManifestSpec) -> Value {
    // The container name by which a TrainJob selects the container to change.
    let options = PodOptions { container: "node", ..PodOptions::new(None, Some("Never")) };
    let mut job = json!({"template": pod_template(input, &options)});
    write_deadline(input, &mut job);
    let node = json!({
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": job,
        },
    });
    let spec = json!({
        // With `torch` pods get PET_NNODES and their number. The number of workers of a pod is not
        // a field of a runtime since version 2.2 (`TorchMLPolicySource` in
        // pkg/apis/trainer/v1alpha1).
        "mlPolicy": {"numNodes": input.nodes, "torch": {}},
        "template": {"spec": {"replicatedJobs": [node]}},
    });
    let of = ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime");
    let mut runtime = object(input, of, &input.name, ("spec", spec));
    // The label by which clients of the Trainer find runtimes.
    runtime["metadata"]["labels"]["trainer.kubeflow.org/framework"] = json!("torch");
    runtime
}

fn volcano(input: &ManifestSpec) -> Value {
    let address = format!("{0}-node-0.{0}", input.name);
    let template = pod_template(input, &PodOptions::new(Some(address), Some("Never")));
    let mut spec = json!({
        "schedulerName": "volcano",
        "minAvailable": input.nodes,
        // The Job fails after this number of restarts, and 0 selects the default.
        "maxRetry": input.restarts_max + 1,
        "plugins": {"env": [], "svc": ["--publish-not-ready-addresses=true"]},
        "policies": volcano_policies(input),
        "tasks": [
            {"name": "node", "replicas": input.nodes, "template": template},
        ],
    });
    if let Some(queue) = &input.scheduling.queue {
        spec["queue"] = json!(queue);
    }
    if let Some(class) = &input.scheduling.priority_class {
        spec["priorityClassName"] = json!(class);
    }
    if let Some(ttl) = input.ttl_s {
        spec["ttlSecondsAfterFinished"] = json!(ttl);
    }
    object(input, ("batch.volcano.sh/v1alpha1", "Job"), &input.name, ("spec", spec))
}

/// Policies of a task; the first that matches applies. `RestartPod` (bus/v1alpha1) replaces the pod
/// alone; `RestartTask` would replace all of them.
fn volcano_policies(input: &ManifestSpec) -> Vec<Value> {
    let terminate_on = |status: &u8| json!({"exitCode": status, "action": "TerminateJob"});
    let mut policies: Vec<_> = PERMANENT_FAILURES.iter().map(terminate_on).collect();
    if 0 < input.restarts_max {
        policies.push(json!({"events": ["PodEvicted", "PodFailed"], "action": "RestartPod"}));
    }
    policies
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::manifest::quantity::Quantity;
    use crate::plan::manifest::resources::Resources;
    use crate::plan::manifest::scheduling::Scheduling;
    use crate::plan::manifest::show_yaml;
    use crate::plan::manifest::spec::PodAccess;

    fn input(controller: Controller) -> ManifestSpec {
        ManifestSpec {
            controller,
            name: "train".to_owned(),
            namespace: None,
            image: "registry.example/train:1".to_owned(),
            nodes: 2,
            slots: 8,
            accelerator: None,
            secret: "train-key".to_owned(),
            key: None,
            port: 29_500,
            status_port: 8080,
            grace_s: 120,
            shm: Quantity::parse("8Gi").expect("a quantity"),
            resources: Resources::default(),
            volumes: Vec::new(),
            scheduling: Scheduling::default(),
            access: PodAccess::default(),
            labels: Vec::new(),
            annotations: Vec::new(),
            ttl_s: None,
            deadline_s: None,
            restarts_max: 3,
            words: vec!["train.py".to_owned(), "--lr=1e-3".to_owned()],
        }
    }

    const ALL: [Controller; 7] = [
        Controller::Job,
        Controller::JobSet,
        Controller::LeaderWorkerSet,
        Controller::Trainer,
        Controller::Volcano,
        Controller::MpiJob,
        Controller::PyTorchJob,
    ];

    #[test]
    fn names_are_checked_down_to_the_last_pod() {
        let with = |name: &str| {
            let input = ManifestSpec { name: name.to_owned(), ..input(Controller::JobSet) };
            manifest(&input).err()
        };
        assert_eq!(with("train"), None);
        for bad in ["", "Train", "1train", "train-", "a.b", "a b"] {
            assert_eq!(with(bad), Some(ManifestError::Name(bad.to_owned())));
        }
        assert!(matches!(with(&"x".repeat(55)), Some(ManifestError::NameTooLong(_))));
        let secret = ManifestSpec { secret: "a_b".to_owned(), ..input(Controller::Job) };
        let secret = manifest(&secret).expect_err("an invalid name");
        assert_eq!(secret, ManifestError::Secret("a_b".to_owned()));
    }

    #[test]
    fn key_is_printed_only_on_request() {
        for controller in ALL {
            let text = show_yaml(&manifest(&input(controller)).expect("a valid input"));
            assert!(!text.contains("kind: Secret"), "{text}");
            let key = Some("c2VjcmV0".to_owned());
            let objects =
                manifest(&ManifestSpec { key, ..input(controller) }).expect("a valid input");
            assert_eq!(objects[0]["kind"], "Secret");
        }
    }

    #[test]
    fn single_pod_works_with_every_controller() {
        for controller in ALL {
            let one = manifest(&ManifestSpec { nodes: 1, ..input(controller) });
            let text = show_yaml(&one.expect("a valid input"));
            assert!(!text.contains("\n    Worker:"), "{text}");
        }
    }
}
