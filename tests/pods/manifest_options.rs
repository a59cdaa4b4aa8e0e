//! Options of `remuda k8s manifest` for the resources and the placement of pods: the field of each, and
//! the whole screen of each value that an API server would reject.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use serde_json::Value;

use crate::pods::manifest::printed;
use crate::support::launch::{REMUDA, command};

/// The object of a kind, printed with these options.
fn object(kind: &str, options: &[&str]) -> Value {
    let kind = format!("--kind={kind}");
    let words = [&[kind.as_str(), "--nodes=2", "--gpus=8"], options, &["--", "train.py"]].concat();
    printed(&words).pop().expect("an object")
}

fn pod_of_job(options: &[&str]) -> PodSpec {
    let job: Job = serde_json::from_value(object("job", options)).expect("it is a Job");
    job.spec.expect("a spec").template.spec.expect("a pod")
}

/// Limits and requests, as `NAME=QUANTITY` with blanks in between.
fn resources(options: &[&str]) -> (String, String) {
    let given = pod_of_job(options).containers[0].resources.clone().expect("resources");
    let show = |all: Option<std::collections::BTreeMap<String, _>>| {
        let all = all.unwrap_or_default().into_iter();
        let quantity = |amount: k8s_openapi::apimachinery::pkg::api::resource::Quantity| amount.0;
        all.map(|(name, amount)| format!("{name}={}", quantity(amount)))
            .collect::<Vec<_>>()
            .join(" ")
    };
    (show(given.limits), show(given.requests))
}

#[test]
fn resources_are_limits_and_requests() {
    let all = "cpu=64 memory=512Gi nvidia.com/gpu=8".to_owned();
    let given = resources(&["--resource=cpu=64,memory=512Gi"]);
    assert_eq!(given, (all.clone(), all.clone()), "QoS class Guaranteed");
    let given =
        resources(&["--resource=cpu=64", "--resource=memory=512Gi", "--request", "cpu=500m"]);
    assert_eq!(given, (all, "cpu=500m memory=512Gi nvidia.com/gpu=8".to_owned()));
    let given = resources(&["--gpu_resource=amd.com/gpu", "--request=memory=1.5Gi"]);
    let requests = "amd.com/gpu=8 memory=1.5Gi".to_owned();
    assert_eq!(given, ("amd.com/gpu=8".to_owned(), requests));
}

#[test]
fn gpu_resource_names_the_accelerator() {
    let accelerator = |device: &str| {
        let pod = pod_of_job(&[&format!("--gpu_resource={device}")]);
        let env = pod.containers[0].env.clone().expect("variables");
        let found = env.into_iter().find(|variable| variable.name == "REMUDA_ACCELERATOR");
        found.and_then(|variable| variable.value)
    };
    assert_eq!(accelerator("nvidia.com/gpu"), None);
    assert_eq!(accelerator("amd.com/gpu").as_deref(), Some("rocm"));
    assert_eq!(accelerator("gpu.intel.com/i915").as_deref(), Some("xpu"));
    assert_eq!(accelerator("gpu.intel.com/xe").as_deref(), Some("xpu"));
}

#[test]
fn rdma_resource_lets_pods_lock_memory() {
    let capabilities = |options: &[&str]| {
        let pod = pod_of_job(options);
        let security = pod.containers[0].security_context.clone().expect("one");
        security.capabilities.expect("some").add
    };
    assert_eq!(capabilities(&[]), None);
    let added = capabilities(&["--resource=rdma/hca_shared=1"]);
    assert_eq!(added, Some(vec!["IPC_LOCK".to_owned()]));
}

#[test]
fn pods_get_a_token_only_with_a_service_account() {
    let pod = pod_of_job(&[]);
    assert_eq!(
        (pod.automount_service_account_token, pod.service_account_name),
        (Some(false), None)
    );
    let pod = pod_of_job(&[
        "--service_account=trainer",
        "--image_pull_secret=a",
        "--image_pull_secret=b",
    ]);
    assert_eq!(pod.automount_service_account_token, None);
    assert_eq!(pod.service_account_name.as_deref(), Some("trainer"));
    let secrets = pod.image_pull_secrets.expect("two").into_iter().map(|secret| secret.name);
    assert_eq!(secrets.collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn pods_are_placed_by_options() {
    let pod = pod_of_job(&[
        "--toleration=nvidia.com/gpu:NoSchedule",
        "--toleration=team=ml",
        "--node_selector=disk=ssd",
        "--topology_key=topology.kubernetes.io/rack",
        "--priority_class=high",
    ]);
    let tolerations = pod.tolerations.expect("two").into_iter();
    let tolerations: Vec<_> =
        tolerations.map(|one| (one.key, one.operator, one.value, one.effect)).collect();
    let text = |text: &str| Some(text.to_owned());
    let gpu = (text("nvidia.com/gpu"), text("Exists"), None, text("NoSchedule"));
    assert_eq!(tolerations, [gpu, (text("team"), text("Equal"), text("ml"), None)]);
    assert_eq!(pod.node_selector.expect("one")["disk"], "ssd");
    assert_eq!(pod.priority_class_name.as_deref(), Some("high"));
    let close = pod.affinity.and_then(|all| all.pod_affinity).expect("one");
    let close = close.preferred_during_scheduling_ignored_during_execution.expect("one");
    assert_eq!(close[0].pod_affinity_term.topology_key, "topology.kubernetes.io/rack");
}

#[test]
fn labels_and_annotations_are_on_jobs_and_pods() {
    let job = object("job", &["--label=team=ml", "--annotation=note=a b"]);
    for metadata in [&job["metadata"], &job["spec"]["template"]["metadata"]] {
        assert_eq!(metadata["labels"]["team"], "ml");
        assert_eq!(metadata["labels"]["app.kubernetes.io/name"], "train");
        assert_eq!(metadata["annotations"]["note"], "a b");
    }
}

#[test]
fn misspelt_manifest_option_is_not_passed_to_the_pods() {
    let error = "error[C001]: there is no option `--requst`";
    check_refused("--requst", error, ("--requst", "unknown"), "did you mean `--request`?");
}

/// Where each controller has its times, its queue and what Kueue suspends.
#[test]
fn queue_and_times_are_set_where_each_controller_reads_them() {
    let check = |kind: &str, options: &[&str], fields: &[(&str, Value)]| {
        let object = object(kind, options);
        for (path, value) in fields {
            assert_eq!(object.pointer(path), Some(value), "{kind}: {path}");
        }
    };
    let queue = ("/metadata/labels/kueue.x-k8s.io~1queue-name", Value::from("gpus"));
    let all = ["--queue=gpus", "--ttl=1h", "--deadline=90m"];
    let (ttl, deadline, yes) = (Value::from(3600), Value::from(5400), Value::from(true));
    let fields = |prefix: &str| {
        [
            (format!("{prefix}/suspend"), yes.clone()),
            (format!("{prefix}/ttlSecondsAfterFinished"), ttl.clone()),
            (format!("{prefix}/activeDeadlineSeconds"), deadline.clone()),
        ]
    };
    for (kind, prefix) in
        [("job", "/spec"), ("mpijob", "/spec/runPolicy"), ("pytorchjob", "/spec/runPolicy")]
    {
        let fields = fields(prefix);
        let fields = fields.iter().map(|(path, value)| (path.as_str(), value.clone()));
        check(kind, &all, &fields.chain([queue.clone()]).collect::<Vec<_>>());
    }
    let inner = "/spec/replicatedJobs/0/template/spec/activeDeadlineSeconds";
    check(
        "jobset",
        &all,
        &[
            queue.clone(),
            ("/spec/suspend", yes.clone()),
            ("/spec/ttlSecondsAfterFinished", ttl.clone()),
            (inner, deadline.clone()),
        ],
    );
    check("lws", &["--queue=gpus"], &[queue]);
    let volcano = ["--queue=gpus", "--ttl=1h", "--priority_class=high"];
    let queued = [("/spec/queue", "gpus".into()), ("/spec/priorityClassName", "high".into())];
    check("volcano", &volcano, &queued);
    let runtime = "/spec/template/spec/replicatedJobs/0/template/spec/activeDeadlineSeconds";
    check("trainer", &["--deadline=90m"], &[(runtime, deadline)]);
}

/// Fields of the APIs of Kubeflow's older operators, as far as they are used.
mod published {
    use serde::Deserialize;
    use serde_json::Value;

    /// `pkg/apis/kubeflow/v2beta1/types.go` of `kubeflow/mpi-operator`.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct MpiJobSpec {
        pub(super) slots_per_worker: u32,
        pub(super) run_launcher_as_worker: bool,
        pub(super) run_policy: RunPolicy,
        pub(super) mpi_replica_specs: MpiReplicas,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "PascalCase")]
    pub(super) struct MpiReplicas {
        pub(super) launcher: Replica,
        pub(super) worker: Option<Replica>,
    }

    /// `pkg/apis/kubeflow.org/v1/pytorch_types.go` of `kubeflow/training-operator`.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct PyTorchJobSpec {
        pub(super) run_policy: RunPolicy,
        pub(super) pytorch_replica_specs: PyTorchReplicas,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "PascalCase")]
    pub(super) struct PyTorchReplicas {
        pub(super) master: Replica,
        pub(super) worker: Option<Replica>,
    }

    /// The same in both.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct RunPolicy {
        pub(super) clean_pod_policy: CleanPodPolicy,
        pub(super) backoff_limit: u32,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    pub(super) enum CleanPodPolicy {
        All,
        Running,
        None,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct Replica {
        pub(super) replicas: u32,
        pub(super) restart_policy: RestartPolicy,
        pub(super) template: Value,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    pub(super) enum RestartPolicy {
        Always,
        OnFailure,
        Never,
        ExitCode,
    }
}

/// Variables of the only container, and what they hold or refer to.
fn variables(template: &Value) -> (String, Vec<(String, String)>) {
    let template: PodTemplateSpec = serde_json::from_value(template.clone()).expect("it fits");
    let container = template.spec.expect("a pod").containers.remove(0);
    let source = |variable: &k8s_openapi::api::core::v1::EnvVar| {
        let from = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
        variable.value.clone().or(from.map(|from| from.field_path.clone())).unwrap_or_default()
    };
    let env = container.env.unwrap_or_default();
    (container.name, env.iter().map(|one| (one.name.clone(), source(one))).collect())
}

#[track_caller]
fn check_variable(template: &Value, name: &str, value: &str) {
    let (_, variables) = variables(template);
    let found = variables.into_iter().find(|(other, _)| other == name);
    assert_eq!(found.map(|(_, value)| value).as_deref(), Some(value), "{name}");
}

#[test]
fn mpi_job_runs_its_launcher_as_node_0() {
    let spec = object("mpijob", &[])["spec"].clone();
    let spec: published::MpiJobSpec = serde_json::from_value(spec).expect("it fits");
    assert!(spec.run_launcher_as_worker);
    assert_eq!((spec.slots_per_worker, spec.run_policy.backoff_limit), (8, 3));
    assert_eq!(spec.run_policy.clean_pod_policy, published::CleanPodPolicy::Running);
    let (launcher, worker) = (spec.mpi_replica_specs.launcher, spec.mpi_replica_specs.worker);
    let worker = worker.expect("a worker");
    assert_eq!((launcher.replicas, worker.replicas), (1, 1));
    for replica in [launcher, worker] {
        assert_eq!(replica.restart_policy, published::RestartPolicy::OnFailure);
        let template = &replica.template;
        check_variable(template, "REMUDA_MASTER_ADDR", "train-launcher.train");
        check_variable(template, "REMUDA_NODES", "2");
        let index = "metadata.labels['training.kubeflow.org/replica-index']";
        check_variable(template, "REMUDA_NODE_RANK", index);
    }
}

#[test]
fn pytorch_job_runs_its_master_as_node_0() {
    let spec = object("pytorchjob", &["--max_restarts=0"])["spec"].clone();
    let spec: published::PyTorchJobSpec = serde_json::from_value(spec).expect("it fits");
    assert_eq!(spec.run_policy.backoff_limit, 0);
    let (master, worker) = (spec.pytorch_replica_specs.master, spec.pytorch_replica_specs.worker);
    let worker = worker.expect("a worker");
    assert_eq!((master.replicas, worker.replicas), (1, 1));
    for replica in [master, worker] {
        assert_eq!(replica.restart_policy, published::RestartPolicy::Never);
        assert_eq!(variables(&replica.template).0, "pytorch");
        check_variable(&replica.template, "REMUDA_MASTER_ADDR", "train-master-0");
        check_variable(&replica.template, "REMUDA_NODES", "2");
    }
}

fn run(words: &[&str]) -> (String, String, Option<i32>) {
    let mut manifest = command(REMUDA);
    manifest.args(["k8s", "manifest", "--image=i", "--nodes=2"]).args(words).arg("train.py");
    let manifest = manifest.output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (text(manifest.stdout), text(manifest.stderr), manifest.status.code())
}

#[test]
fn manifest_names_the_secret_that_must_exist() {
    let (_, notes, status) = run(&["--resource=cpu=1,memory=1Gi", "--namespace=ml"]);
    let expect = "\
note: the pods need a Secret `train-key` with an entry `key`; if it is missing, create it:
  head -c 32 /dev/urandom | kubectl create secret generic train-key --from-file=key=/dev/stdin \
                  --namespace=ml
";
    assert_eq!((notes.as_str(), status), (expect, Some(0)));
    let (_, notes, _) = run(&["--with_key", "--resource=memory=1Gi"]);
    let expect = "\
note: the pods reserve no cpu, and a full node evicts such pods first: give `--resource \
                  cpu=N,memory=SIZE`
";
    assert_eq!(notes, expect);
}

#[test]
fn manifest_explains_its_fields() {
    let (yaml, _, _) = run(&["--resource=cpu=1", "--queue=gpus"]);
    for comment in [
        "  # pods find each other by name before they are ready\n  publishNotReadyAddresses: true\n",
        "  # Kueue starts the job when its queue has room\n  suspend: true\n",
        "        # the same Secret in every pod authenticates the pods of the job\n        - name: key\n",
    ] {
        assert!(yaml.contains(comment), "{yaml}");
    }
}

/// The whole screen of a value: what cannot be, the line with the option at its end, the caret's
/// label and the help.
#[track_caller]
fn check_refused(option: &str, error: &str, (part, label): (&str, &str), help: &str) {
    let (stdout, screen, status) = run(&[option]);
    assert_eq!((stdout.as_str(), status), ("", Some(2)));
    let line = format!("remuda k8s manifest --image=i --nodes=2 {option} train.py");
    let at = line.find(option).expect("it is there") + option.rfind(part).expect("a part of it");
    let (column, carets) = (at + 1, "^".repeat(part.len()));
    let expect = format!(
        "{error}\n --> command line:1:{column}\n  |\n1 | {line}\n  | {:at$}{carets} {label}\n  |\nhelp: {help}\n",
        ""
    );
    assert_eq!(screen, expect);
}

#[test]
fn bad_quantities_are_refused_with_a_caret() {
    let refused = |value: &str, part: &str, label: &str, help: &str| {
        let error = format!("error[C006]: `--resource` cannot be `{value}`");
        check_refused(&format!("--resource={value}"), &error, (part, label), help);
    };
    refused("memory=64GB", "GB", "`GB` is not a unit of Kubernetes", "did you mean `64G`?");
    let units = "the units are m, k, M, G, T, P, E, and Ki, Mi, Gi, Ti, Pi, Ei";
    refused("memory=64Zi", "Zi", "`Zi` is not a unit of Kubernetes", units);
    let write = "write a number and a unit: `500m`, `1.5`, `16Gi`";
    refused("cpu=-1", "-1", "a quantity cannot be negative", write);
    refused("cpu=0", "0", "a quantity must be greater than 0", write);
    refused("cpu=x", "x", "expected a quantity", write);
    refused("memory=500m", "500m", "`memory` is counted in whole bytes", "did you mean `500Mi`?");
    refused("a/b=1.5", "1.5", "`a/b` is counted in whole numbers", "write a coarser quantity");
    refused("mem=1", "mem", "Kubernetes has no resource `mem`", "did you mean `memory`?");
    let names = "write `cpu=8`, `memory=64Gi` or `rdma/hca=1`";
    refused("cpu", "cpu", "expected NAME=QUANTITY", names);
    let (_, screen, status) = run(&["--gpus=1", "--resource=nvidia.com/gpu=1"]);
    let expect = "\
error[C006]: `--resource` cannot be `nvidia.com/gpu=1`
 --> command line:1:61
  |
1 | remuda k8s manifest --image=i --nodes=2 --gpus=1 --resource=nvidia.com/gpu=1 train.py
  |                                                             ^^^^^^^^^^^^^^ `--gpus` adds it
  |
help: leave one of the two out
";
    assert_eq!((screen.as_str(), status), (expect, Some(2)));
    let error = "error[C006]: `--shm` cannot be `8GB`";
    let label = "`GB` is not a unit of Kubernetes";
    check_refused("--shm=8GB", error, ("8GB", label), "did you mean `8G`?");
}

#[test]
fn bad_requests_are_refused_with_a_caret() {
    let (_, screen, status) = run(&["--resource=cpu=1", "--request=cpu=2"]);
    let expect = "\
error[C006]: `--request` cannot be `cpu=2`
 --> command line:1:72
  |
1 | remuda k8s manifest --image=i --nodes=2 --resource=cpu=1 --request=cpu=2 train.py
  |                                                                        ^ a request of 2 is more \
                  than the limit of 1
  |
help: `--resource` is the limit, `--request` at most as much
";
    assert_eq!((screen.as_str(), status), (expect, Some(2)));
    let (_, screen, status) = run(&["--resource=cpu=1,memory=1Gi,cpu=2"]);
    let expect = "\
error[C007]: `cpu` is given twice
 --> command line:1:69
  |
1 | remuda k8s manifest --image=i --nodes=2 --resource=cpu=1,memory=1Gi,cpu=2 train.py
  |                                                    -----            ^^^^^ a second time
  |                                                    |
  |                                                    the first time
  |
help: give it once
";
    assert_eq!((screen.as_str(), status), (expect, Some(2)));
}

#[test]
fn bad_placements_are_refused_with_a_caret() {
    let refused = |flag: &str, value: &str, label: &str, help: &str| {
        let error = format!("error[C006]: `--{flag}` cannot be `{value}`");
        check_refused(&format!("--{flag}={value}"), &error, (value, label), help);
    };
    let effects = "an effect is NoSchedule, PreferNoSchedule or NoExecute";
    refused("toleration", "a:b", "`b` is not an effect of a taint", effects);
    let pair = "write KEY=VALUE: `team=vision`";
    for flag in ["label", "annotation", "node_selector"] {
        refused(flag, "team", "expected KEY=VALUE", pair);
    }
    let key = "write a key: `topology.kubernetes.io/zone`";
    refused("topology_key", "/a", "expected the key of a label", key);
    let object = "expected the name of an object: letters a-z, digits, `-` and `.`";
    for flag in ["service_account", "image_pull_secret", "priority_class"] {
        refused(flag, "A_b", object, "`kubectl get` lists them");
    }
    let queues = "`kubectl get localqueues` lists those of Kueue";
    refused("queue", "-a", "expected the name of a queue", queues);
    let device = "write a name with a domain: `amd.com/gpu`, `gpu.intel.com/xe`";
    refused("gpu_resource", "gpu", "expected the resource of a device", device);
    let units = "write ms, s, m or h: `500ms`, `10s`, `2m`, `1h`";
    refused("ttl", "5x", "`x` is not a unit of time", units);
}

#[test]
fn contradicting_options_are_both_shown() {
    let (_, screen, status) = run(&["--cpus=2", "--gpu_resource=amd.com/gpu"]);
    let expect = "\
error[C007]: `--gpu_resource` and `--cpus` contradict each other
 --> command line:1:65
  |
1 | remuda k8s manifest --image=i --nodes=2 --cpus=2 --gpu_resource=amd.com/gpu train.py
  |                                                -                ^^^^^^^^^^^ workers have a GPU
  |                                                |
  |                                                workers have none
  |
help: give `--gpus N`, or leave `--gpu_resource` out
";
    assert_eq!((screen.as_str(), status), (expect, Some(2)));
    let (_, screen, status) = run(&["--label=team=a", "--label=team=b"]);
    let expect = "\
error[C007]: `team` is given twice
 --> command line:1:64
  |
1 | remuda k8s manifest --image=i --nodes=2 --label=team=a --label=team=b train.py
  |                                                 ------         ^^^^^^ a second time
  |                                                 |
  |                                                 the first time
  |
help: give it once
";
    assert_eq!((screen.as_str(), status), (expect, Some(2)));
    let (_, screen, status) = run(&["--kind=lws", "--ttl=5m"]);
    let expect = "\
error[C007]: `--kind lws` has no `--ttl`
 --> command line:1:58
  |
1 | remuda k8s manifest --image=i --nodes=2 --kind=lws --ttl=5m train.py
  |                                                ---       ^^ not supported by the controller
  |                                                |
  |                                                the controller
  |
help: a LeaderWorkerSet runs until it is deleted: leave it out, or use `--kind jobset`
";
    assert_eq!((screen.as_str(), status), (expect, Some(2)));
    let (_, screen, status) = run(&["--secret=A_b"]);
    let expect = "\
error[P010]: `A_b` is not a valid name of a Secret: use letters a-z, digits, `-` and `.`
help: use another `--secret`
";
    assert_eq!((screen.as_str(), status), (expect, Some(2)));
}

#[test]
fn unsupported_options_of_a_controller_are_refused() {
    let check = |kind: &str, option: &str, help: &str| {
        let kind = format!("--kind={kind}");
        let (stdout, screen, status) = run(&[&kind, option]);
        assert_eq!((stdout.as_str(), status), ("", Some(2)));
        let flag = option.split('=').next().unwrap_or_default();
        let title = format!("error[C007]: `{}` has no `{flag}`\n", kind.replace('=', " "));
        assert!(screen.starts_with(&title), "{screen}");
        assert!(screen.ends_with(&format!("\nhelp: {help}\n")), "{screen}");
    };
    let trainer = "it is a field of the TrainJob that refers to this runtime";
    check("trainer", "--queue=a", trainer);
    check("trainer", "--ttl=5m", trainer);
    let deleted =
        "a LeaderWorkerSet runs until it is deleted: leave it out, or use `--kind jobset`";
    check("lws", "--ttl=5m", deleted);
    check("lws", "--deadline=5m", deleted);
    check("volcano", "--deadline=5m", "give `--timeout TIME` to the pods, after the `--`");
}
