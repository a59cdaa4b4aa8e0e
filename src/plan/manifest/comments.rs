//! Comments of a manifest: a short line above a field. Pure.

/// Field path suffixes, each with its comment. In a path, `[name]` stands for a list item that has
/// this name.
const COMMENTS: [(&str, &str); 29] = [
    ("publishNotReadyAddresses", "pods find each other by name before they are ready"),
    ("spec.clusterIP", "headless: every pod gets its own DNS name"),
    ("completionMode", "every pod has an index, which is its node rank"),
    ("backoffLimit", "pods that may fail before the job does (--max_restarts)"),
    ("podReplacementPolicy", "a pod is replaced once it has ended, not while it is terminating"),
    (
        "podFailurePolicy",
        "evicted pods, and pods stopped because another pod failed (99), do not count; a restart cannot \
         fix the statuses of the last rule, which end the job",
    ),
    ("activeDeadlineSeconds", "limit of the run time of the job, in seconds (--deadline)"),
    ("ttlSecondsAfterFinished", "seconds from the end of the job until it is deleted (--ttl)"),
    ("suspend", "Kueue starts the job when its queue has room"),
    ("terminationGracePeriodSeconds", "between SIGTERM and SIGKILL: time to save a checkpoint"),
    ("automountServiceAccountToken", "pods do not call the API of Kubernetes"),
    ("fsGroup", "group that owns the volumes: pods do not run as root"),
    ("volumes[key]", "the same Secret in every pod authenticates the pods of the job"),
    ("secret.defaultMode", "0444: pods do not run as root"),
    ("volumes[shm]", "/dev/shm, which has 64 MiB otherwise: NCCL and data loaders need more"),
    ("volumes[tmp]", "the root filesystem cannot be written"),
    ("env[REMUDA_JOIN_TIMEOUT]", "how long pods wait for each other: images may still be pulled"),
    ("env[REMUDA_PEER_EXIT]", "exit status of pods that are stopped because another pod failed"),
    ("env[REMUDA_NUM_GPUS]", "workers of each pod"),
    ("env[REMUDA_NODE_RANK]", "the launcher has 0, workers have 1 and more"),
    ("startupProbe", "remuda answers as soon as it runs, before it has found the other pods"),
    ("terminationMessagePolicy", "if remuda wrote no message: the end of the log"),
    ("resources", "limits: most that a pod can use; requests: amount that its node reserves"),
    ("capabilities.add", "RDMA locks memory"),
    ("affinity", "pods are placed close to each other where there is room (--topology_key)"),
    ("runLauncherAsWorker", "the launcher is node 0; ssh is not used"),
    ("minAvailable", "all pods are started, or none"),
    ("mlPolicy.torch", "sets PET_NNODES and PET_NODE_RANK in the pods"),
    ("args", "words after `remuda pod`"),
];

/// Comments that were not written yet: each is written once in a text.
#[derive(Clone, Debug)]
pub(super) struct Comments(Vec<(&'static str, &'static str)>);

impl Comments {
    pub(super) fn new() -> Self {
        Self(COMMENTS.to_vec())
    }

    /// The comment for the field of this path, at its first occurrence.
    pub(super) fn take_comment(&mut self, path: &str) -> Option<&'static str> {
        let matches = |(end, _): &(&str, &str)| {
            path.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        let at = self.0.iter().position(matches)?;
        Some(self.0.remove(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comment_is_written_once_per_field() {
        let mut comments = Comments::new();
        assert_eq!(comments.take_comment("spec.unsuspend"), None);
        assert!(comments.take_comment("spec.runPolicy.suspend").is_some());
        assert_eq!(comments.take_comment("spec.suspend"), None);
        assert!(comments.take_comment("spec.template.spec.volumes[shm]").is_some());
        assert_eq!(comments.take_comment("spec.volumes[other]"), None);
    }
}
