//! Objects of Kubernetes that start `remuda pod` in every pod of a job. Pure.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::base::env_vars;

/// How long pods wait for each other: what `remuda pod` does by itself, where it can be seen and changed.
const JOIN_TIMEOUT: &str = "30m";
/// As whom pods run, and the group to which volumes are given.
const USER: u32 = 10001;
/// Where the key is mounted.
const KEY_DIR: &str = "/etc/remuda";
/// What pods end with that were stopped because of another one: the Job does not count them.
const PEER_EXIT: u8 = 99;
/// Exit statuses of a line, a file or a program that no other start would mend.
const HOPELESS: [u8; 7] = [2, 65, 66, 77, 78, 126, 127];
/// Where a pod of an Indexed Job has its number, as the Trainer takes it.
const INDEX: &str = "metadata.annotations['batch.kubernetes.io/job-completion-index']";
/// Letters of a label in DNS.
const LABEL_MAX: usize = 63;

/// Which controller starts the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// An Indexed Job with a headless Service; nothing but Kubernetes is needed.
    Job,
    /// `jobset.x-k8s.io`.
    JobSet,
    /// `leaderworkerset.x-k8s.io`.
    LeaderWorkerSet,
    /// A runtime of Kubeflow's Trainer.
    Trainer,
    /// `batch.volcano.sh`.
    Volcano,
}

/// What is to be started.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Who starts it.
    pub controller: Controller,
    /// Of the job and of everything that belongs to it.
    pub name: String,
    /// In which namespace, if not in the current one.
    pub namespace: Option<String>,
    /// With remuda and the program in it.
    pub image: String,
    /// Pods.
    pub nodes: u32,
    /// Workers of each.
    pub slots: u32,
    /// Whether a worker has a GPU.
    pub gpus: bool,
    /// The Secret whose entry `key` is the key of the job.
    pub secret: String,
    /// The key, to be printed with the rest.
    pub key: Option<String>,
    /// Port of rank 0; the two behind it are ours.
    pub port: u16,
    /// Port of the probes.
    pub status_port: u16,
    /// Between TERM and KILL.
    pub grace_s: u32,
    /// Size of `/dev/shm`.
    pub shm: String,
    /// A resource that each pod is to be given beside GPUs: name and number.
    pub resource: Option<(String, u32)>,
    /// Claims on volumes, and where each is mounted.
    pub volumes: Vec<(String, String)>,
    /// How often workers are started anew.
    pub restarts_max: u32,
    /// Words behind `remuda pod`.
    pub words: Vec<String>,
}

/// Why there is no such job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Names of pods are names of machines.
    #[error("`{0}` is no name of an object: letters a-z, digits and `-`, a letter first")]
    Name(String),
    /// The last pod would have a name that no resolver finds.
    #[error("the names of pods, such as `{0}`, would be longer than {LABEL_MAX} letters")]
    Long(String),
}

/// The objects, in the order in which they are to be made.
pub fn manifest(wanted: &Wanted) -> Result<Vec<Value>, ManifestError> {
    check(wanted)?;
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
    });
    Ok(objects)
}

fn check(wanted: &Wanted) -> Result<(), ManifestError> {
    for name in [&wanted.name, &wanted.secret] {
        let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
            && !name.ends_with('-')
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if !is_name {
            return Err(ManifestError::Name(name.clone()));
        }
    }
    let last = wanted.nodes.saturating_sub(1);
    let name = &wanted.name;
    let longest = match wanted.controller {
        Controller::JobSet | Controller::Trainer => format!("{name}-node-0-{last}"),
        Controller::Volcano => format!("{name}-node-{last}"),
        Controller::Job | Controller::LeaderWorkerSet => format!("{name}-{last}"),
    };
    if LABEL_MAX < longest.len() { Err(ManifestError::Long(longest)) } else { Ok(()) }
}

fn object(
    wanted: &Wanted,
    (version, kind): (&str, &str),
    name: &str,
    (content, value): (&str, Value),
) -> Value {
    let mut metadata = json!({"name": name, "labels": labels(wanted)});
    // A runtime of the Trainer is the whole cluster's.
    if let Some(namespace) = wanted.namespace.as_ref().filter(|_| kind != "ClusterTrainingRuntime")
    {
        metadata["namespace"] = json!(namespace);
    }
    json!({"apiVersion": version, "kind": kind, "metadata": metadata, content: value})
}

fn labels(wanted: &Wanted) -> Value {
    json!({"app.kubernetes.io/name": wanted.name, "app.kubernetes.io/managed-by": "remuda"})
}

/// Names of pods exist before the pods are ready: they are ready once they have found each other.
fn service(wanted: &Wanted) -> Value {
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

fn job(wanted: &Wanted) -> Value {
    let address = format!("{0}-0.{0}", wanted.name);
    let mut template = pod(wanted, Some(&address), "Never");
    template["spec"]["subdomain"] = json!(wanted.name);
    object(wanted, ("batch/v1", "Job"), &wanted.name, ("spec", job_spec(wanted, &template)))
}

fn job_spec(wanted: &Wanted, template: &Value) -> Value {
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

fn job_set(wanted: &Wanted) -> Value {
    let address = format!("{0}-node-0-0.{0}", wanted.name);
    let template = pod(wanted, Some(&address), "Never");
    let spec = json!({
        "network": {
            "enableDNSHostnames": true,
            "publishNotReadyAddresses": true,
            "subdomain": wanted.name,
        },
        // Without a `failurePolicy` a Job that failed is the end: its own rules have said that no
        // other start would help, or that there were enough.
        "replicatedJobs": [
            {"name": "node", "replicas": 1, "template": {"spec": job_spec(wanted, &template)}},
        ],
    });
    object(wanted, ("jobset.x-k8s.io/v1alpha2", "JobSet"), &wanted.name, ("spec", spec))
}

fn leader_worker_set(wanted: &Wanted) -> Value {
    let spec = json!({
        "replicas": 1,
        "leaderWorkerTemplate": {
            "size": wanted.nodes,
            // A pod that is lost is replaced alone. Of the API's values (`RestartPolicyType` in
            // api/leaderworkerset/v1) the others recreate the group, and `Default` is deprecated.
            "restartPolicy": "None",
            "workerTemplate": pod(wanted, None, "Always"),
        },
    });
    let of = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet");
    object(wanted, of, &wanted.name, ("spec", spec))
}

fn trainer(wanted: &Wanted) -> Value {
    let mut template = pod(wanted, None, "Never");
    // The name by which a TrainJob finds the container that it may change.
    template["spec"]["containers"][0]["name"] = json!("node");
    let node = json!({
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": template},
        },
    });
    let spec = json!({
        // With `torch` pods are given PET_NNODES and who they are. Workers of a pod are no field of a
        // runtime since version 2.2 (`TorchMLPolicySource` in pkg/apis/trainer/v1alpha1).
        "mlPolicy": {"numNodes": wanted.nodes, "torch": {}},
        "template": {"spec": {"replicatedJobs": [node]}},
    });
    let of = ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime");
    let mut runtime = object(wanted, of, &wanted.name, ("spec", spec));
    // By which clients of the Trainer find runtimes.
    runtime["metadata"]["labels"]["trainer.kubeflow.org/framework"] = json!("torch");
    runtime
}

fn volcano(wanted: &Wanted) -> Value {
    let address = format!("{0}-node-0.{0}", wanted.name);
    let spec = json!({
        "schedulerName": "volcano",
        "minAvailable": wanted.nodes,
        // The Job fails once it has restarted so often, and 0 stands for the default.
        "maxRetry": wanted.restarts_max + 1,
        "plugins": {"env": [], "svc": ["--publish-not-ready-addresses=true"]},
        "policies": volcano_policies(wanted),
        "tasks": [
            {"name": "node", "replicas": wanted.nodes, "template": pod(wanted, Some(&address), "Never")},
        ],
    });
    object(wanted, ("batch.volcano.sh/v1alpha1", "Job"), &wanted.name, ("spec", spec))
}

/// The first that fits is taken. `RestartPod` (bus/v1alpha1) replaces the pod alone; `RestartTask` would
/// replace all of them.
fn volcano_policies(wanted: &Wanted) -> Vec<Value> {
    let hopeless = |status: &u8| json!({"exitCode": status, "action": "TerminateJob"});
    let mut policies: Vec<_> = HOPELESS.iter().map(hopeless).collect();
    if 0 < wanted.restarts_max {
        policies.push(json!({"events": ["PodEvicted", "PodFailed"], "action": "RestartPod"}));
    }
    policies
}

/// A pod of the job. Who it is, and where pod 0 is if its platform says so, it finds by itself.
fn pod(wanted: &Wanted, address: Option<&str>, restart: &str) -> Value {
    let mut spec = json!({
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": wanted.grace_s,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container(wanted, address)],
        "volumes": [
            {"name": "key", "secret": {"secretName": wanted.secret, "defaultMode": 0o444}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": wanted.shm}},
            {"name": "tmp", "emptyDir": {}},
        ],
    });
    if !wanted.volumes.is_empty() {
        // A volume is root's until it is given to a group of the pod's.
        spec["securityContext"]["fsGroup"] = json!(USER);
        spec["securityContext"]["fsGroupChangePolicy"] = json!("OnRootMismatch");
    }
    for (number, (claim, _)) in wanted.volumes.iter().enumerate() {
        let source = json!({"claimName": claim});
        let volume = json!({"name": volume_name(number), "persistentVolumeClaim": source});
        push(&mut spec["volumes"], volume);
    }
    json!({"metadata": {"labels": labels(wanted)}, "spec": spec})
}

fn volume_name(number: usize) -> String {
    format!("volume-{number}")
}

fn push(list: &mut Value, item: Value) {
    list.as_array_mut().expect("it was made as a list").push(item);
}

fn container(wanted: &Wanted, address: Option<&str>) -> Value {
    let probe = |path: &str, failures: u32| json!({"httpGet": {"path": path, "port": "status"}, "periodSeconds": 10, "failureThreshold": failures});
    let mut container = json!({
        "name": "remuda",
        "image": wanted.image,
        "command": ["remuda", "pod"],
        "args": wanted.words,
        "env": environment(wanted, address),
        "ports": [
            {"name": "gate", "containerPort": wanted.port + 1},
            {"name": "store", "containerPort": wanted.port + 2},
            {"name": "status", "containerPort": wanted.status_port},
        ],
        "startupProbe": probe("/livez", 30),
        "livenessProbe": probe("/livez", 6),
        "readinessProbe": probe("/readyz", 3),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "key", "mountPath": KEY_DIR, "readOnly": true},
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    });
    for (number, (_, path)) in wanted.volumes.iter().enumerate() {
        push(
            &mut container["volumeMounts"],
            json!({"name": volume_name(number), "mountPath": path}),
        );
    }
    let mut limits = Map::new();
    if wanted.gpus {
        limits.insert("nvidia.com/gpu".to_owned(), json!(wanted.slots.to_string()));
    }
    if let Some((name, number)) = &wanted.resource {
        limits.insert(name.clone(), json!(number.to_string()));
    }
    if !limits.is_empty() {
        container["resources"] = json!({"limits": limits});
    }
    container
}

fn environment(wanted: &Wanted, address: Option<&str>) -> Value {
    let mut variables = vec![
        ("REMUDA_NUM_GPUS", wanted.slots.to_string()),
        ("REMUDA_MASTER_PORT", wanted.port.to_string()),
        ("REMUDA_KEY_FILE", format!("{KEY_DIR}/key")),
        ("REMUDA_JOB_ID", wanted.name.clone()),
        ("REMUDA_JOIN_TIMEOUT", JOIN_TIMEOUT.to_owned()),
        ("REMUDA_PEER_EXIT", PEER_EXIT.to_string()),
        ("REMUDA_STATUS_ADDR", format!("0.0.0.0:{}", wanted.status_port)),
        // The root is read-only, and an arbitrary user has no home.
        ("HOME", "/tmp".to_owned()),
    ];
    // A TrainJob may want another number of pods than its runtime, and tells them by this name.
    variables.push(match wanted.controller {
        Controller::Trainer => (env_vars::PET_NNODES, wanted.nodes.to_string()),
        _ => ("REMUDA_NODES", wanted.nodes.to_string()),
    });
    variables.extend(address.map(|address| ("REMUDA_MASTER_ADDR", address.to_owned())));
    let mut variables: Vec<Value> =
        variables.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    if wanted.controller == Controller::Trainer {
        // One without a `trainer` tells its pods nothing; what it tells replaces what is here.
        let from = json!({"fieldRef": {"fieldPath": INDEX}});
        variables.push(json!({"name": env_vars::PET_NODE_RANK, "valueFrom": from}));
    }
    variables.into()
}

/// The objects as documents of YAML.
pub fn show_yaml(objects: &[Value]) -> String {
    let mut text = String::new();
    for object in objects {
        text += "---\n";
        show_value(object, 0, &mut text);
    }
    text
}

/// What stands behind a key or a dash: in its line if it is small, else below it.
fn show_value(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let _ = write!(text, "{:depth$}{}:", "", scalar(&Value::String(key.clone())));
                show_below(value, depth + 2, text);
            }
        }
        Value::Array(items) => {
            for item in items {
                let mut below = String::new();
                show_value(item, depth + 2, &mut below);
                let _ = match item {
                    Value::Object(map) if !map.is_empty() => {
                        write!(text, "{:depth$}- {}", "", below.trim_start())
                    }
                    _ => writeln!(text, "{:depth$}- {}", "", scalar(item)),
                };
            }
        }
        _ => {}
    }
}

fn show_below(value: &Value, depth: usize, text: &mut String) {
    let is_empty = match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    };
    if is_empty {
        let _ = writeln!(text, " {}", scalar(value));
    } else {
        text.push('\n');
        show_value(value, depth, text);
    }
}

/// JSON is YAML; only what cannot be mistaken for anything else goes without quotes.
fn scalar(value: &Value) -> String {
    let is_plain = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
            && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
                .contains(&text.to_ascii_lowercase().as_str())
    };
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(controller: Controller) -> Wanted {
        Wanted {
            controller,
            name: "train".to_owned(),
            namespace: None,
            image: "registry.example/train:1".to_owned(),
            nodes: 2,
            slots: 8,
            gpus: true,
            secret: "train-key".to_owned(),
            key: None,
            port: 29_500,
            status_port: 8080,
            grace_s: 120,
            shm: "8Gi".to_owned(),
            resource: None,
            volumes: Vec::new(),
            restarts_max: 3,
            words: vec!["train.py".to_owned(), "--lr=1e-3".to_owned()],
        }
    }

    #[test]
    fn only_what_cannot_be_mistaken_goes_without_quotes() {
        let shown = |text: &str| scalar(&json!(text));
        for plain in ["remuda", "/livez", "batch/v1", "a-b_c.d"] {
            assert_eq!(shown(plain), plain);
        }
        for quoted in
            ["", "8080", "0.0.0.0:8080", "yes", "No", "a: b", "- a", "1e3", "~", "é", "a\nb"]
        {
            assert!(shown(quoted).starts_with('"'), "{quoted}");
        }
    }

    #[test]
    fn documents_are_indented_by_what_they_belong_to() {
        let value = json!({"a": [{"b": 1, "c": {"d": []}}, "e", {}], "f": {}});
        assert_eq!(
            show_yaml(&[value]),
            "---\na:\n  - b: 1\n    c:\n      d: []\n  - e\n  - {}\nf: {}\n"
        );
    }

    #[test]
    fn names_are_names_of_machines_down_to_the_last_pod() {
        let with = |name: &str| {
            let wanted = Wanted { name: name.to_owned(), ..wanted(Controller::JobSet) };
            manifest(&wanted).err()
        };
        assert_eq!(with("train"), None);
        for bad in ["", "Train", "1train", "train-", "a.b", "a b"] {
            assert_eq!(with(bad), Some(ManifestError::Name(bad.to_owned())));
        }
        assert!(matches!(with(&"x".repeat(55)), Some(ManifestError::Long(_))));
    }

    #[test]
    fn a_key_is_printed_only_when_it_is_asked_for() {
        for controller in [Controller::Job, Controller::JobSet, Controller::Volcano] {
            let silent = show_yaml(&manifest(&wanted(controller)).expect("it is fine"));
            assert!(!silent.contains("kind: Secret"), "{silent}");
            let key = Some("c2VjcmV0".to_owned());
            let told = manifest(&Wanted { key, ..wanted(controller) }).expect("it is fine");
            assert_eq!(told[0]["kind"], "Secret");
        }
    }
}
