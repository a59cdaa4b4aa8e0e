//! Parts that all kinds of manifests share.

use serde_json::{Value, json};

use super::pod_spec::metadata;
use super::spec::ManifestSpec;

/// Label with the Kueue queue of a job.
pub(crate) const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";

/// An object of this version and kind, with `content` as its only field.
pub(crate) fn object(
    input: &ManifestSpec,
    (version, kind): (&str, &str),
    name: &str,
    (content, value): (&str, Value),
) -> Value {
    let mut metadata = metadata(input);
    metadata["name"] = json!(name);
    // A runtime of the Trainer belongs to the whole cluster.
    if let Some(namespace) = input.namespace.as_ref().filter(|_| kind != "ClusterTrainingRuntime") {
        metadata["namespace"] = json!(namespace);
    }
    json!({"apiVersion": version, "kind": kind, "metadata": metadata, content: value})
}

/// Puts an object into its Kueue queue; Kueue starts the object when it clears its `suspend` field.
/// `suspended` is the part of the object that has this field.
pub(crate) fn enqueue(input: &ManifestSpec, object: &mut Value, suspended: Option<&str>) {
    let Some(queue) = &input.scheduling.queue else { return };
    object["metadata"]["labels"][QUEUE_NAME] = json!(queue);
    if let Some(part) = suspended {
        object.pointer_mut(part).expect("the object has this part")["suspend"] = json!(true);
    }
}

/// Writes the limit of the job's run time, and how long the job is kept after its end, in seconds.
pub(crate) fn write_time_limits(input: &ManifestSpec, policy: &mut Value) {
    write_deadline(input, policy);
    if let Some(ttl) = input.ttl_s {
        policy["ttlSecondsAfterFinished"] = json!(ttl);
    }
}

pub(crate) fn write_deadline(input: &ManifestSpec, policy: &mut Value) {
    if let Some(deadline) = input.deadline_s {
        policy["activeDeadlineSeconds"] = json!(deadline);
    }
}
