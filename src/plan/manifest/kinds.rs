//! The object of each controller around the template of its pods. Pure.

use serde_json::{Value, json};

use super::kubeflow;
use super::pod_spec::{PEER_EXIT, PodOptions, metadata, pod_template};
use super::spec::{Controller, ManifestError, ManifestSpec};

/// Exit statuses of errors in a command line, a file or a program, which no restart fixes.
const HOPELESS: [u8; 7] = [2, 65, 66, 77, 78, 126, 127];
/// Label with the Kueue queue of a job.
const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";

/// The objects, in the order in which they must be created.
pub fn manifest(wanted: &ManifestSpec) -> Result<Vec<Value>, ManifestError> {
    wanted.check()?;
    let mut objects = Vec::new();
    if let Some(key) = &wanted.key {
        objects.push(object(
            wanted,
            ("v1", "Secret"),
            &wanted.secret,
            ("stringData", json!({"key": key})),
        ));
    }
    objects.extend(match wanted.controller {
        Controller::Job => vec![service(wanted), job(wanted)],
        Controller::JobSet => vec![job_set(wanted)],
        Controller::LeaderWorkerSet => vec![leader_worker_set(wanted)],
        Controller::Trainer => vec![trainer(wanted)],
        Controller::Volcano => vec![volcano(wanted)],
        Controller::MpiJob => vec![kubeflow::mpi_job(wanted)],
        Controller::PyTorchJob => vec![kubeflow::pytorch_job(wanted)],
    });
    Ok(objects)
}

/// An object of this version and kind, with `content` as its only field.
pub(super) fn object(
    wanted: &ManifestSpec,
    (version, kind): (&str, &str),
    name: &str,
    (content, value): (&str, Value),
) -> Value {
    let mut metadata = metadata(wanted);
    metadata["name"] = json!(name);
    // A runtime of the Trainer belongs to the whole cluster.
    if let Some(namespace) = wanted.namespace.as_ref().filter(|_| kind != "ClusterTrainingRuntime")
    {
        metadata["namespace"] = json!(namespace);
    }
    json!({"apiVersion": version, "kind": kind, "metadata": metadata, content: value})
}

/// Puts an object into its Kueue queue; Kueue starts the object when it clears its `suspend` field.
/// `suspended` is the part of the object that has this field.
pub(super) fn enqueue(wanted: &ManifestSpec, object: &mut Value, suspended: Option<&str>) {
    let Some(queue) = &wanted.scheduling.queue else { return };
    object["metadata"]["labels"][QUEUE_NAME] = json!(queue);
    if let Some(part) = suspended {
        object.pointer_mut(part).expect("it was made with it")["suspend"] = json!(true);
    }
}

/// Writes the limit of the job's run time, and how long the job is kept after its end, in seconds.
pub(super) fn write_times(wanted: &ManifestSpec, policy: &mut Value) {
    write_deadline(wanted, policy);
    if let Some(ttl) = wanted.ttl_s {
        policy["ttlSecondsAfterFinished"] = json!(ttl);
    }
}

fn write_deadline(wanted: &ManifestSpec, policy: &mut Value) {
    if let Some(deadline) = wanted.deadline_s {
        policy["activeDeadlineSeconds"] = json!(deadline);
    }
}

/// A headless Service. It publishes the names of pods that are not ready: they are ready only once
/// they have found each other.
fn service(wanted: &ManifestSpec) -> Value {
    let spec = json!({
        "clusterIP": "None",
        "publishNotReadyAddresses": true,
        "selector": {"batch.kubernetes.io/job-name": wanted.name},
        "ports": [
            {"name": "gate", "port": wanted.port + 1},
            {"name": "store", "port": wanted.port + 2},
        ],
    });
    object(wanted, ("v1", "Service"), &wanted.name, ("spec", spec))
}

fn job(wanted: &ManifestSpec) -> Value {
    let address = format!("{0}-0.{0}", wanted.name);
    let mut template = pod_template(wanted, &PodOptions::new(Some(address), Some("Never")));
    template["spec"]["subdomain"] = json!(wanted.name);
    let mut spec = job_spec(wanted, &template);
    write_times(wanted, &mut spec);
    let mut job = object(wanted, ("batch/v1", "Job"), &wanted.name, ("spec", spec));
    enqueue(wanted, &mut job, Some("/spec"));
    job
}

fn job_spec(wanted: &ManifestSpec, template: &Value) -> Value {
    json!({
        "completions": wanted.nodes,
        "parallelism": wanted.nodes,
        "completionMode": "Indexed",
        "backoffLimit": wanted.restarts_max,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "Ignore", "onExitCodes": exits(&[PEER_EXIT])},
            {"action": "FailJob", "onExitCodes": exits(&HOPELESS)},
        ]},
        "template": template,
    })
}

fn exits(statuses: &[u8]) -> Value {
    json!({"containerName": "remuda", "operator": "In", "values": statuses})
}

fn job_set(wanted: &ManifestSpec) -> Value {
    let address = format!("{0}-node-0-0.{0}", wanted.name);
    let template = pod_template(wanted, &PodOptions::new(Some(address), Some("Never")));
    let mut job = job_spec(wanted, &template);
    write_deadline(wanted, &mut job);
    let mut spec = json!({
        "network": {
            "enableDNSHostnames": true,
            "publishNotReadyAddresses": true,
            "subdomain": wanted.name,
        },
        // Without a `failurePolicy` a failed Job fails the set: the Job's own rules have already
        // decided that another start would not help, or that the limit is reached.
        "replicatedJobs": [
            {"name": "node", "replicas": 1, "template": {"spec": job}},
        ],
    });
    if let Some(ttl) = wanted.ttl_s {
        spec["ttlSecondsAfterFinished"] = json!(ttl);
    }
    let of = ("jobset.x-k8s.io/v1alpha2", "JobSet");
    let mut set = object(wanted, of, &wanted.name, ("spec", spec));
    enqueue(wanted, &mut set, Some("/spec"));
    set
}

fn leader_worker_set(wanted: &ManifestSpec) -> Value {
    let spec = json!({
        "replicas": 1,
        "leaderWorkerTemplate": {
            "size": wanted.nodes,
            // A lost pod is replaced alone. Of the API's values (`RestartPolicyType` in
            // api/leaderworkerset/v1) the others recreate the group, and `Default` is deprecated.
            "restartPolicy": "None",
            "workerTemplate": pod_template(wanted, &PodOptions::new(None, Some("Always"))),
        },
    });
    let of = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet");
    let mut set = object(wanted, of, &wanted.name, ("spec", spec));
    // Kueue holds back the pods of the set, one by one.
    enqueue(wanted, &mut set, None);
    set
}

fn trainer(wanted: &ManifestSpec) -> Value {
    // The container name by which a TrainJob selects the container to change.
    let options = PodOptions { container: "node", ..PodOptions::new(None, Some("Never")) };
    let mut job = json!({"template": pod_template(wanted, &options)});
    write_deadline(wanted, &mut job);
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
        "mlPolicy": {"numNodes": wanted.nodes, "torch": {}},
        "template": {"spec": {"replicatedJobs": [node]}},
    });
    let of = ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime");
    let mut runtime = object(wanted, of, &wanted.name, ("spec", spec));
    // The label by which clients of the Trainer find runtimes.
    runtime["metadata"]["labels"]["trainer.kubeflow.org/framework"] = json!("torch");
    runtime
}

fn volcano(wanted: &ManifestSpec) -> Value {
    let address = format!("{0}-node-0.{0}", wanted.name);
    let template = pod_template(wanted, &PodOptions::new(Some(address), Some("Never")));
    let mut spec = json!({
        "schedulerName": "volcano",
        "minAvailable": wanted.nodes,
        // The Job fails after this number of restarts, and 0 selects the default.
        "maxRetry": wanted.restarts_max + 1,
        "plugins": {"env": [], "svc": ["--publish-not-ready-addresses=true"]},
        "policies": volcano_policies(wanted),
        "tasks": [
            {"name": "node", "replicas": wanted.nodes, "template": template},
        ],
    });
    if let Some(queue) = &wanted.scheduling.queue {
        spec["queue"] = json!(queue);
    }
    if let Some(class) = &wanted.scheduling.priority_class {
        spec["priorityClassName"] = json!(class);
    }
    if let Some(ttl) = wanted.ttl_s {
        spec["ttlSecondsAfterFinished"] = json!(ttl);
    }
    object(wanted, ("batch.volcano.sh/v1alpha1", "Job"), &wanted.name, ("spec", spec))
}

/// Policies of a task; the first that matches applies. `RestartPod` (bus/v1alpha1) replaces the pod
/// alone; `RestartTask` would replace all of them.
fn volcano_policies(wanted: &ManifestSpec) -> Vec<Value> {
    let hopeless = |status: &u8| json!({"exitCode": status, "action": "TerminateJob"});
    let mut policies: Vec<_> = HOPELESS.iter().map(hopeless).collect();
    if 0 < wanted.restarts_max {
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

    fn wanted(controller: Controller) -> ManifestSpec {
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
            let wanted = ManifestSpec { name: name.to_owned(), ..wanted(Controller::JobSet) };
            manifest(&wanted).err()
        };
        assert_eq!(with("train"), None);
        for bad in ["", "Train", "1train", "train-", "a.b", "a b"] {
            assert_eq!(with(bad), Some(ManifestError::Name(bad.to_owned())));
        }
        assert!(matches!(with(&"x".repeat(55)), Some(ManifestError::Long(_))));
        let secret = ManifestSpec { secret: "a_b".to_owned(), ..wanted(Controller::Job) };
        let secret = manifest(&secret).expect_err("no name");
        assert_eq!(secret, ManifestError::Secret("a_b".to_owned()));
    }

    #[test]
    fn key_is_printed_only_on_request() {
        for controller in ALL {
            let silent = show_yaml(&manifest(&wanted(controller)).expect("it is fine"));
            assert!(!silent.contains("kind: Secret"), "{silent}");
            let key = Some("c2VjcmV0".to_owned());
            let told = manifest(&ManifestSpec { key, ..wanted(controller) }).expect("it is fine");
            assert_eq!(told[0]["kind"], "Secret");
        }
    }

    #[test]
    fn single_pod_works_with_every_controller() {
        for controller in ALL {
            let one = manifest(&ManifestSpec { nodes: 1, ..wanted(controller) });
            let text = show_yaml(&one.expect("it is fine"));
            assert!(!text.contains("\n    Worker:"), "{text}");
        }
    }
}
