//! What `remuda k8s manifest` prints is what Kubernetes reads: its own types are filled from it.

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

fn template(pods: &Value) -> Value {
    let template: PodTemplateSpec = check(pods);
    let spec = template.spec.expect("a spec");
    assert_eq!(spec.containers[0].args.as_ref().expect("words").last().expect("one"), "yes");
    serde_json::to_value(Pod { spec: Some(spec), ..Pod::default() }).expect("it serializes")
}

#[test]
fn a_job_its_service_and_its_secret_are_read_by_the_types_of_kubernetes() {
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

#[test]
fn pods_of_every_controller_are_pods() {
    let options = ["--nodes=2", "--cpus=2", "--namespace=ml", "--resource=rdma/hca_shared=1"];
    let of = |kind: &str| {
        let kind = format!("--kind={kind}");
        let words: Vec<&str> = [kind.as_str()].into_iter().chain(options).collect();
        manifest(&words).remove(0)
    };
    let jobset = of("jobset");
    assert_eq!(jobset["metadata"]["namespace"], "ml");
    let job = &jobset["spec"]["replicatedJobs"][0]["template"];
    check::<k8s_openapi::api::batch::v1::JobTemplateSpec>(job);
    template(&job["spec"]["template"]);
    template(&of("lws")["spec"]["leaderWorkerTemplate"]["workerTemplate"]);
    template(&of("volcano")["spec"]["tasks"][0]["template"]);
    let runtime = of("trainer");
    assert_eq!(runtime["metadata"].get("namespace"), None, "it is the whole cluster's");
    let node = &runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"];
    template(&node["spec"]["template"]);
}

#[test]
fn the_pods_of_a_hostfile_are_its_hosts_and_must_be_alike() {
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("manifest");
    std::fs::create_dir_all(&dir).expect("a directory");
    let even = dir.join("even");
    std::fs::write(&even, "a slots=4\nb slots=4\nc slots=4\n").expect("a hostfile");
    let documents = manifest(&["-H", even.to_str().expect("text")]);
    assert_eq!(documents[1]["spec"]["completions"], 3);
    let uneven = dir.join("uneven");
    std::fs::write(&uneven, "a slots=4\nb slots=2\n").expect("a hostfile");
    let mut refused = command(REMUDA);
    refused.args(["k8s", "manifest", "--image=a", "-H"]).arg(&uneven).arg("train.py");
    let refused = refused.output().expect("it starts");
    assert_eq!(refused.status.code(), Some(78));
    let screen = String::from_utf8(refused.stderr).expect("text");
    assert!(screen.contains("error[P011]: hosts of 4 and of 2 slots cannot be pods"), "{screen}");
}
