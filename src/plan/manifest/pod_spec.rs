//! Template of a pod of a job: one container that runs `remuda pod`. Pure.

use serde_json::{Value, json};

use super::spec::{Controller, ManifestSpec};
use crate::base::env_vars;

/// How long pods wait for each other: the default of `remuda pod`, written out so that it can be
/// changed.
const JOIN_TIMEOUT: &str = "30m";
/// User id of the pods, and the group id that owns their volumes.
const USER: u32 = 10001;
/// Directory where the key is mounted.
const KEY_DIR: &str = "/etc/remuda";
/// Exit status of pods that are stopped because another one failed: the Job does not count them.
pub(super) const PEER_EXIT: u8 = 99;
/// Field with the number of a pod of an Indexed Job, the same that the Trainer reads.
const COMPLETION_INDEX: &str = "metadata.annotations['batch.kubernetes.io/job-completion-index']";
/// Field with the number of a pod of an `MPIJob`; with `runLauncherAsWorker` the launcher's is 0
/// (`newWorker` in pkg/controller/mpi_job_controller.go).
const REPLICA_INDEX: &str = "metadata.labels['training.kubeflow.org/replica-index']";

/// The differences between the pods of the controllers.
#[derive(Clone, Debug)]
pub(super) struct PodOptions {
    /// Address of node 0, unless pods determine it themselves.
    pub(super) address: Option<String>,
    /// Restart policy of the container; `None`: the controller sets it.
    pub(super) restart: Option<&'static str>,
    /// Name of the container.
    pub(super) container: &'static str,
    /// Path of the readiness probe.
    pub(super) ready_path: &'static str,
}

impl PodOptions {
    pub(super) fn new(address: Option<String>, restart: Option<&'static str>) -> Self {
        Self { address, restart, container: "remuda", ready_path: "/readyz" }
    }
}

/// Labels of every object and of every pod.
pub(super) fn labels(input: &ManifestSpec) -> Value {
    let mut labels = json!({
        "app.kubernetes.io/name": input.name,
        "app.kubernetes.io/managed-by": "remuda",
    });
    for (key, value) in &input.labels {
        labels[key] = json!(value);
    }
    labels
}

/// Metadata of an object or of a pod.
pub(super) fn metadata(input: &ManifestSpec) -> Value {
    let mut metadata = json!({"labels": labels(input)});
    for (key, value) in &input.annotations {
        metadata["annotations"][key] = json!(value);
    }
    metadata
}

/// Template of a pod of the job. The pod determines its node number itself, and the address of node
/// 0 if its platform provides it.
pub(super) fn pod_template(input: &ManifestSpec, options: &PodOptions) -> Value {
    let mut spec = json!({
        "terminationGracePeriodSeconds": input.grace_s,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container(input, options)],
        "volumes": [
            {"name": "key", "secret": {"secretName": input.secret, "defaultMode": 0o444}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": input.shm.to_string()}},
            {"name": "tmp", "emptyDir": {}},
        ],
    });
    if let Some(restart) = options.restart {
        spec["restartPolicy"] = json!(restart);
    }
    write_volumes(input, &mut spec);
    write_access(input, &mut spec);
    input.scheduling.write(&mut spec, &input.name);
    let mut template = json!({"spec": spec});
    template["metadata"] = metadata(input);
    template
}

fn write_volumes(input: &ManifestSpec, spec: &mut Value) {
    if !input.volumes.is_empty() {
        // A volume belongs to root unless the pod has a group for it.
        spec["securityContext"]["fsGroup"] = json!(USER);
        spec["securityContext"]["fsGroupChangePolicy"] = json!("OnRootMismatch");
    }
    for (number, (claim, _)) in input.volumes.iter().enumerate() {
        let source = json!({"claimName": claim});
        let volume = json!({"name": volume_name(number), "persistentVolumeClaim": source});
        push(&mut spec["volumes"], volume);
    }
}

/// Writes account and pull secrets. Only pods with an account of their own get a token of the API.
fn write_access(input: &ManifestSpec, spec: &mut Value) {
    let access = &input.access;
    match &access.service_account {
        Some(account) => spec["serviceAccountName"] = json!(account),
        None => spec["automountServiceAccountToken"] = json!(false),
    }
    if !access.image_pull_secrets.is_empty() {
        let secrets = access.image_pull_secrets.iter().map(|name| json!({"name": name}));
        spec["imagePullSecrets"] = secrets.collect();
    }
}

fn volume_name(number: usize) -> String {
    format!("volume-{number}")
}

fn push(list: &mut Value, item: Value) {
    list.as_array_mut().expect("the field is a list").push(item);
}

fn container(input: &ManifestSpec, options: &PodOptions) -> Value {
    let probe = |path: &str, failures: u32| json!({"httpGet": {"path": path, "port": "status"}, "periodSeconds": 10, "failureThreshold": failures});
    let mut container = json!({
        "name": options.container,
        "image": input.image,
        "command": ["remuda", "pod"],
        "args": input.words,
        "env": environment(input, options.address.as_deref()),
        "ports": [
            {"name": "gate", "containerPort": input.port + 1},
            {"name": "store", "containerPort": input.port + 2},
            {"name": "status", "containerPort": input.status_port},
        ],
        "startupProbe": probe("/livez", 30),
        "livenessProbe": probe("/livez", 6),
        "readinessProbe": probe(options.ready_path, 3),
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
    for (number, (_, path)) in input.volumes.iter().enumerate() {
        let mount = json!({"name": volume_name(number), "mountPath": path});
        push(&mut container["volumeMounts"], mount);
    }
    if let Some(resources) = input.resources.to_json() {
        container["resources"] = resources;
    }
    if input.resources.has_rdma() {
        container["securityContext"]["capabilities"]["add"] = json!(["IPC_LOCK"]);
    }
    container
}

fn environment(input: &ManifestSpec, address: Option<&str>) -> Value {
    let mut variables = vec![
        (env_vars::REMUDA_NUM_GPUS, input.slots.to_string()),
        (env_vars::REMUDA_MASTER_PORT, input.port.to_string()),
        (env_vars::REMUDA_KEY_FILE, format!("{KEY_DIR}/key")),
        (env_vars::REMUDA_JOB_ID, input.name.clone()),
        (env_vars::REMUDA_JOIN_TIMEOUT, JOIN_TIMEOUT.to_owned()),
        (env_vars::REMUDA_PEER_EXIT, PEER_EXIT.to_string()),
        (env_vars::REMUDA_STATUS_ADDR, format!("0.0.0.0:{}", input.status_port)),
        // The root file system is read-only, and an arbitrary user has no home.
        ("HOME", "/tmp".to_owned()),
    ];
    // A TrainJob may set another number of pods than its runtime, and passes it in this variable.
    variables.push(match input.controller {
        Controller::Trainer => (env_vars::PET_NNODES, input.nodes.to_string()),
        _ => (env_vars::REMUDA_NODES, input.nodes.to_string()),
    });
    variables.extend(input.accelerator.map(|kind| (env_vars::REMUDA_ACCELERATOR, kind.to_owned())));
    variables.extend(address.map(|address| (env_vars::REMUDA_MASTER_ADDR, address.to_owned())));
    let mut variables: Vec<Value> =
        variables.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    let index = match input.controller {
        // A TrainJob without a `trainer` sets no variables in its pods; those that it sets replace
        // these.
        Controller::Trainer => Some((env_vars::PET_NODE_RANK, COMPLETION_INDEX)),
        Controller::MpiJob => Some((env_vars::REMUDA_NODE_RANK, REPLICA_INDEX)),
        Controller::Job
        | Controller::JobSet
        | Controller::LeaderWorkerSet
        | Controller::Volcano
        | Controller::PyTorchJob => None,
    };
    if let Some((name, path)) = index {
        let from = json!({"fieldRef": {"fieldPath": path}});
        variables.push(json!({"name": name, "valueFrom": from}));
    }
    variables.into()
}
