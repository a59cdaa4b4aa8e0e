//! Output of `remuda k8s manifest`, parsed into the types of Kubernetes.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec, Secret, Service};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::support::launch::{REMUDA, command};

/// The documents that are printed for a script.
fn manifest(words: &[&str]) -> Vec<Value> {
    let script = ["--", "train.py", "--lr=1e-3", "yes"];
    printed(&[words, &script].concat())
}

/// The documents that are printed.
pub(crate) fn printed(words: &[&str]) -> Vec<Value> {
    let mut printed = command(REMUDA);
    printed.args(["k8s", "manifest", "--image=registry.example/train:1"]).args(words);
    let printed = printed.output().expect("it starts");
    assert!(printed.status.success(), "{printed:?}");
    let text = String::from_utf8(printed.stdout).expect("text");
    let documents = serde_norway::Deserializer::from_str(&text);
    let read = documents.map(|document| Value::deserialize(document).expect("it is YAML"));
    read.filter(|document| !document.is_null()).collect()
}

/// Fills a type of Kubernetes, and sees that nothing was left over: a field that is misspelt would be.
#[track_caller]
fn check<T: DeserializeOwned + serde::Serialize>(document: &Value) -> T {
    let filled: T = serde_json::from_value(document.clone()).expect("it fits");
    assert_eq!(&serde_json::to_value(&filled).expect("it serializes"), document);
    filled
}

/// The whole screen of a manifest that no pod could follow.
#[track_caller]
fn check_refused(words: &[&str], screen: &str) {
    let mut printed = command(REMUDA);
    printed.args(["k8s", "manifest", "--image=i", "--nodes=2", "--gpus=1"]).args(words);
    let printed = printed.output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&printed.stderr), screen);
    assert_eq!((printed.status.code(), printed.stdout.len()), (Some(2), 0));
}

#[test]
fn manifest_refuses_options_that_every_pod_would_refuse() {
    check_refused(
        &["--", "--no_pyton", "train"],
        "error[C001]: there is no option `--no_pyton`\n --> command line:1:29\n  |\n\
         1 | remuda pod --max_restarts=3 --no_pyton train\n  |                             \
         ^^^^^^^^^^ unknown\n  |\nhelp: did you mean `--no_python`?\n",
    );
    check_refused(
        &["--", "--master_port=8079", "train.py"],
        "error[P013]: `--master_port` of the pods would differ from the manifest\n\
         help: give `--master_port` to `remuda k8s manifest`, before the `--`\n",
    );
    check_refused(
        &["--master_port=8079", "--", "train.py"],
        "error[P013]: port 8080 of the probes is one of the job's ports, 8079 to 8081\n\
         help: use another `--master_port` or `--status_port`\n",
    );
    let words = ["--nodes=2", "--gpus=1", "--", "--log_level=$(LEVEL)", "train.py"];
    assert_eq!(printed(&words).len(), 2, "the value that Kubernetes puts in is unknown");
}

#[test]
fn manifest_mounts_volumes_for_the_user_of_the_pods() {
    let volumes = ["--volume=data:/data", "--volume=runs-1:/runs"];
    let words = [&volumes[..], &["--nodes=2", "--gpus=1", "--", "train.py"]].concat();
    let objects = printed(&words);
    let spec = &check::<Job>(&objects[1]).spec.expect("a spec").template.spec.expect("a spec");
    let security = spec.security_context.as_ref().expect("one");
    assert_eq!((security.fs_group, security.run_as_user), (Some(10001), Some(10001)));
    let mounts = spec.containers[0].volume_mounts.iter().flatten();
    let mounts: Vec<_> = mounts.map(|mount| (&*mount.name, &*mount.mount_path)).collect();
    let claims = spec.volumes.iter().flatten().filter_map(|volume| {
        Some((&*volume.name, &*volume.persistent_volume_claim.as_ref()?.claim_name))
    });
    assert_eq!(claims.collect::<Vec<_>>(), [("volume-0", "data"), ("volume-1", "runs-1")]);
    assert_eq!(mounts[3..], [("volume-0", "/data"), ("volume-1", "/runs")]);
}

fn template(pods: &Value) -> Value {
    let template: PodTemplateSpec = check(pods);
    let spec = template.spec.expect("a spec");
    assert_eq!(spec.containers[0].args.as_ref().expect("words").last().expect("one"), "yes");
    serde_json::to_value(Pod { spec: Some(spec), ..Pod::default() }).expect("it serializes")
}

#[test]
fn manifest_of_a_job_fits_the_types_of_kubernetes() {
    let documents = manifest(&["--nodes=4", "--gpus=8", "--with_key", "--max_restarts=3"]);
    let secret: Secret = check(&documents[0]);
    let key = &secret.string_data.expect("text")["key"];
    assert!(32 <= key.len(), "{key}");
    let service: Service = check(&documents[1]);
    let service = service.spec.expect("a spec");
    assert_eq!(service.cluster_ip.as_deref(), Some("None"));
    assert_eq!(service.publish_not_ready_addresses, Some(true));
    let job: Job = check(&documents[2]);
    let spec = job.spec.expect("a spec");
    assert_eq!((spec.completions, spec.parallelism), (Some(4), Some(4)));
    assert_eq!(spec.completion_mode.as_deref(), Some("Indexed"));
    let pod = spec.template.spec.expect("a spec");
    assert_eq!(pod.restart_policy.as_deref(), Some("Never"));
    assert_eq!(pod.subdomain, job.metadata.name);
    let container = &pod.containers[0];
    let words = container.args.as_deref().expect("words");
    assert_eq!(words, ["--max_restarts=3", "train.py", "--lr=1e-3", "yes"]);
    let env = container.env.as_ref().expect("variables");
    let value = |name: &str| {
        let found = env.iter().find(|variable| variable.name == name);
        found.and_then(|found| found.value.as_deref()).unwrap_or_default()
    };
    assert_eq!(value("REMUDA_NODES"), "4");
    assert_eq!(value("REMUDA_MASTER_ADDR"), "train-0.train");
    assert_eq!(value("REMUDA_KEY_FILE"), "/etc/remuda/key");
    let limits = container.resources.as_ref().and_then(|given| given.limits.as_ref());
    assert_eq!(limits.expect("limits")["nvidia.com/gpu"].0, "8");
}

/// Fields of the APIs of controllers that are not Kubernetes' own, as far as remuda uses them. An unknown
/// field is dropped by the API server, or refused.
mod published {
    use serde::Deserialize;
    use serde_json::{Map, Value};

    /// `api/jobset/v1alpha2` of `kubernetes-sigs/jobset`.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct JobSetSpec {
        pub(super) network: Network,
        pub(super) replicated_jobs: Vec<ReplicatedJob>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct Network {
        #[serde(rename = "enableDNSHostnames")]
        pub(super) enable_dns_hostnames: bool,
        pub(super) publish_not_ready_addresses: bool,
        pub(super) subdomain: String,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct ReplicatedJob {
        pub(super) name: String,
        pub(super) replicas: Option<u32>,
        pub(super) template: Value,
    }

    /// `api/leaderworkerset/v1` of `kubernetes-sigs/lws`.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct LeaderWorkerSetSpec {
        pub(super) replicas: u32,
        pub(super) leader_worker_template: LeaderWorkerTemplate,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct LeaderWorkerTemplate {
        pub(super) size: u32,
        pub(super) restart_policy: RestartPolicy,
        pub(super) worker_template: Value,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    pub(super) enum RestartPolicy {
        RecreateGroupOnPodRestart,
        RecreateGroupAfterStart,
        Default,
        None,
    }

    /// `pkg/apis/trainer/v1alpha1` of `kubeflow/trainer`.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct TrainingRuntimeSpec {
        pub(super) ml_policy: MlPolicy,
        pub(super) template: JobSetTemplate,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct MlPolicy {
        pub(super) num_nodes: u32,
        /// It has had no `numProcPerNode` since version 2.2.
        pub(super) torch: Map<String, Value>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct JobSetTemplate {
        pub(super) spec: RuntimeJobs,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct RuntimeJobs {
        pub(super) replicated_jobs: Vec<ReplicatedJob>,
    }

    /// `batch/v1alpha1` and `bus/v1alpha1` of `volcano-sh/apis`.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct VolcanoJobSpec {
        pub(super) scheduler_name: String,
        pub(super) min_available: u32,
        pub(super) max_retry: u32,
        pub(super) plugins: Map<String, Value>,
        pub(super) policies: Vec<Policy>,
        pub(super) tasks: Vec<Task>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct Policy {
        #[serde(default)]
        pub(super) events: Vec<Event>,
        pub(super) exit_code: Option<u8>,
        pub(super) action: Action,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    pub(super) enum Event {
        PodFailed,
        PodEvicted,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    pub(super) enum Action {
        TerminateJob,
        RestartPod,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Task {
        pub(super) name: String,
        pub(super) replicas: u32,
        pub(super) template: Value,
    }
}

/// What is printed for one controller, with its `spec` as a type of its API.
fn of_kind<T: DeserializeOwned>(kind: &str, options: &[&str]) -> (Value, T) {
    let kind = format!("--kind={kind}");
    let words: Vec<&str> = [kind.as_str()].into_iter().chain(options.iter().copied()).collect();
    let document = manifest(&words).remove(0);
    let spec = serde_json::from_value(document["spec"].clone()).expect("it fits");
    (document, spec)
}

const OPTIONS: [&str; 4] =
    ["--nodes=2", "--cpus=2", "--namespace=ml", "--resource=rdma/hca_shared=1"];

#[test]
fn manifest_of_a_job_set_fits_its_api() {
    let (document, spec) = of_kind::<published::JobSetSpec>("jobset", &OPTIONS);
    assert_eq!(document["metadata"]["namespace"], "ml");
    assert_eq!(spec.network.subdomain, "train");
    assert!(spec.network.enable_dns_hostnames && spec.network.publish_not_ready_addresses);
    let [job] = &spec.replicated_jobs[..] else { panic!("one") };
    assert_eq!((job.name.as_str(), job.replicas), ("node", Some(1)));
    check::<k8s_openapi::api::batch::v1::JobTemplateSpec>(&job.template);
    template(&job.template["spec"]["template"]);
}

#[test]
fn manifest_of_a_leader_worker_set_fits_its_api() {
    let (_, spec) = of_kind::<published::LeaderWorkerSetSpec>("lws", &OPTIONS);
    let group = spec.leader_worker_template;
    assert_eq!((spec.replicas, group.size), (1, 2));
    assert_eq!(group.restart_policy, published::RestartPolicy::None);
    template(&group.worker_template);
}

#[test]
fn manifest_of_a_training_runtime_fits_its_api() {
    let (document, spec) = of_kind::<published::TrainingRuntimeSpec>("trainer", &OPTIONS);
    assert_eq!(document["metadata"].get("namespace"), None, "it is the whole cluster's");
    assert_eq!(document["metadata"]["labels"]["trainer.kubeflow.org/framework"], "torch");
    assert_eq!((spec.ml_policy.num_nodes, spec.ml_policy.torch.len()), (2, 0));
    let [node] = &spec.template.spec.replicated_jobs[..] else { panic!("one") };
    assert_eq!((node.name.as_str(), node.replicas), ("node", None));
    template(&node.template["spec"]["template"]);
    let container = &node.template["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["name"], "node");
    let env = container["env"].as_array().expect("variables");
    let of = |name: &str| env.iter().find(|variable| variable["name"] == name);
    // It would outweigh the PET_NNODES of a TrainJob that wants more of them.
    assert_eq!(of("REMUDA_NODES"), None);
    // For one that tells its pods nothing; these are the names that it replaces.
    assert_eq!(of("PET_NNODES").expect("it is there")["value"], "2");
    let rank = &of("PET_NODE_RANK").expect("it is there")["valueFrom"]["fieldRef"]["fieldPath"];
    assert_eq!(rank, "metadata.annotations['batch.kubernetes.io/job-completion-index']");
}

#[test]
fn manifest_of_a_volcano_job_fits_its_api() {
    let (_, spec) = of_kind::<published::VolcanoJobSpec>("volcano", &OPTIONS);
    assert_eq!((spec.scheduler_name.as_str(), spec.min_available), ("volcano", 2));
    assert_eq!(spec.max_retry, 4, "it fails with the last of them");
    assert!(["env", "svc"].iter().all(|plugin| spec.plugins.contains_key(*plugin)));
    let (last, hopeless) = spec.policies.split_last().expect("some");
    for policy in hopeless {
        assert!(policy.events.is_empty() && policy.exit_code.is_some());
        assert_eq!(policy.action, published::Action::TerminateJob);
    }
    assert_eq!(last.events, [published::Event::PodEvicted, published::Event::PodFailed]);
    assert_eq!(last.action, published::Action::RestartPod);
    let [task] = &spec.tasks[..] else { panic!("one") };
    assert_eq!((task.name.as_str(), task.replicas), ("node", 2));
    template(&task.template);
    let once = [&OPTIONS[..], &["--max_restarts=0"]].concat();
    let (_, spec) = of_kind::<published::VolcanoJobSpec>("volcano", &once);
    assert!(spec.policies.iter().all(|policy| policy.action == published::Action::TerminateJob));
    assert_eq!(spec.max_retry, 1, "0 would be the default");
}

#[test]
fn manifest_of_a_hostfile_has_a_pod_for_each_host() {
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("manifest");
    std::fs::create_dir_all(&dir).expect("a directory");
    let even = dir.join("even");
    std::fs::write(&even, "a slots=4\nb slots=4\nc slots=4\n").expect("a hostfile");
    let documents = manifest(&["-H", even.to_str().expect("text")]);
    assert_eq!(documents[1]["spec"]["completions"], 3);
    let documents = manifest(&["-H", "a:4,b:4"]);
    assert_eq!(documents[1]["spec"]["completions"], 2);
    let documents = manifest(&["-H", "a,b", "--slots=4"]);
    assert_eq!(documents[1]["spec"]["completions"], 2);
    let uneven = dir.join("uneven");
    std::fs::write(&uneven, "a slots=4\nb slots=2\n").expect("a hostfile");
    let mut refused = command(REMUDA);
    refused.args(["k8s", "manifest", "--image=a", "-H"]).arg(&uneven).arg("train.py");
    let refused = refused.output().expect("it starts");
    assert_eq!(refused.status.code(), Some(78));
    let screen = String::from_utf8(refused.stderr).expect("text");
    assert!(screen.contains("error[P011]: hosts of 4 and of 2 slots cannot be pods"), "{screen}");
}
