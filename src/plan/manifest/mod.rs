//! Kubernetes objects that start `remuda pod` in every pod of a job: JSON values, and their text as
//! YAML. Pure.
//!
//! `spec` is the input, and `quantity`, `resources`, `names` and `scheduling` are its parts;
//! `pod_spec` creates the template of a pod, `kinds` and `kubeflow` the object of each controller
//! around it; `comments` and `yaml` write them.

mod comments;
mod kinds;
mod kubeflow;
mod names;
mod object;
mod pod_spec;
mod quantity;
mod resources;
mod scheduling;
mod spec;
mod yaml;

pub use kinds::manifest;
pub use names::{
    PairError, is_label_value, is_qualified_name, is_subdomain, parse_annotation, parse_label,
};
pub use quantity::{Quantity, QuantityError};
pub use resources::{ResourceError, Resources};
pub use scheduling::{Scheduling, Toleration, TolerationError};
pub use spec::{Controller, ManifestError, ManifestSpec, PodAccess, Support};
pub use yaml::show_yaml;
