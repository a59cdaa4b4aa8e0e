//! The input of a manifest, and the options that each controller supports. Pure.

use super::names::{LABEL_CHARS_MAX, is_subdomain};
use super::quantity::Quantity;
use super::resources::Resources;
use super::scheduling::Scheduling;

/// Controller that starts the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// An Indexed Job with a headless Service; it needs no operator.
    Job,
    /// A `JobSet` (`jobset.x-k8s.io`).
    JobSet,
    /// A `LeaderWorkerSet` (`leaderworkerset.x-k8s.io`).
    LeaderWorkerSet,
    /// A runtime of Kubeflow's Trainer.
    Trainer,
    /// A Volcano Job (`batch.volcano.sh`).
    Volcano,
    /// An `MPIJob` (`kubeflow.org/v2beta1`), whose launcher is node 0.
    MpiJob,
    /// A `PyTorchJob` (`kubeflow.org/v1`), whose master is node 0.
    PyTorchJob,
}

/// Which of the optional features a controller supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    /// The job can wait in a queue.
    pub queue: bool,
    /// The job can be deleted some time after its end.
    pub ttl: bool,
    /// The job can be stopped after some time.
    pub deadline: bool,
}

impl Controller {
    /// The options that the controller supports.
    pub fn support(self) -> Support {
        let all = Support { queue: true, ttl: true, deadline: true };
        match self {
            Self::Job | Self::JobSet | Self::MpiJob | Self::PyTorchJob => all,
            // A LeaderWorkerSet runs until it is deleted.
            Self::LeaderWorkerSet => Support { ttl: false, deadline: false, ..all },
            // Both are fields of the TrainJob that refers to the runtime.
            Self::Trainer => Support { queue: false, ttl: false, ..all },
            // Volcano would restart a pod that has reached its deadline.
            Self::Volcano => Support { deadline: false, ..all },
        }
    }

    /// The longest name of a pod of a job.
    pub(super) fn longest_pod_name(self, name: &str, nodes: u32) -> String {
        let last = nodes.saturating_sub(1);
        match self {
            Self::JobSet | Self::Trainer => format!("{name}-node-0-{last}"),
            Self::Volcano => format!("{name}-node-{last}"),
            Self::Job | Self::LeaderWorkerSet => format!("{name}-{last}"),
            Self::MpiJob | Self::PyTorchJob => match last.checked_sub(1) {
                Some(worker) => format!("{name}-worker-{worker}"),
                None => format!("{name}-launcher"),
            },
        }
    }
}

/// The input of a manifest.
#[derive(Clone, Debug)]
pub struct ManifestSpec {
    /// The controller that starts the pods.
    pub controller: Controller,
    /// Name of the job and of everything that belongs to it.
    pub name: String,
    /// Namespace; `None`: that of `kubectl`.
    pub namespace: Option<String>,
    /// Image with remuda and the program in it.
    pub image: String,
    /// Number of pods.
    pub nodes: u32,
    /// Workers of each pod.
    pub slots: u32,
    /// The device of a slot, as `--accelerator` names it; `None`: NVIDIA's GPUs, or the device in
    /// `words`.
    pub accelerator: Option<&'static str>,
    /// The Secret whose entry `key` is the key of the job.
    pub secret: String,
    /// The key, to be printed with the other objects.
    pub key: Option<String>,
    /// Port of rank 0; remuda uses the next two ports.
    pub port: u16,
    /// Port of the probes.
    pub status_port: u16,
    /// Seconds between SIGTERM and SIGKILL.
    pub grace_s: u32,
    /// Size of `/dev/shm`.
    pub shm: Quantity,
    /// Resources of each pod, GPUs among them.
    pub resources: Resources,
    /// Claims on volumes, and where each is mounted.
    pub volumes: Vec<(String, String)>,
    /// Placement of the pods.
    pub scheduling: Scheduling,
    /// The account and the secrets of the pods.
    pub access: PodAccess,
    /// Labels of the job and of its pods.
    pub labels: Vec<(String, String)>,
    /// Annotations of the job and of its pods.
    pub annotations: Vec<(String, String)>,
    /// Seconds from the end of the job until it is deleted.
    pub ttl_s: Option<u64>,
    /// Limit of the run time of the job, in seconds.
    pub deadline_s: Option<u64>,
    /// How often the workers are restarted.
    pub restarts_max: u32,
    /// Words after `remuda pod`.
    pub words: Vec<String>,
}

/// Account and secrets with which a pod is started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodAccess {
    /// Account of the pods, whose token they get; `None`: they get no token.
    pub service_account: Option<String>,
    /// Secrets with which the image is pulled.
    pub image_pull_secrets: Vec<String>,
}

/// Why there is no manifest for an input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The job's name is invalid: pod names are host names.
    #[error(
        "`{0}` is not a valid object name: use letters a-z, digits and `-`, and begin with a letter"
    )]
    Name(String),
    /// The name of the last pod is too long for a resolver.
    #[error("pod names such as `{0}` are longer than {LABEL_CHARS_MAX} characters")]
    NameTooLong(String),
    /// The Secret's name is invalid; it may have dots.
    #[error("`{0}` is not a valid name of a Secret: use letters a-z, digits, `-` and `.`")]
    Secret(String),
}

impl ManifestSpec {
    /// Checks the names that the API server would refuse.
    pub(super) fn check(&self) -> Result<(), ManifestError> {
        let is_label = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_lowercase())
                && is_subdomain(name)
                && !name.contains('.')
        };
        if !is_label(&self.name) {
            return Err(ManifestError::Name(self.name.clone()));
        }
        if !is_subdomain(&self.secret) {
            return Err(ManifestError::Secret(self.secret.clone()));
        }
        let longest = self.controller.longest_pod_name(&self.name, self.nodes);
        if LABEL_CHARS_MAX < longest.len() {
            Err(ManifestError::NameTooLong(longest))
        } else {
            Ok(())
        }
    }
}
