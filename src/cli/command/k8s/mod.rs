//! `remuda k8s manifest`: prints the Kubernetes objects that start a job of pods. `remuda k8s
//! containerfile` prints an image definition for them. No cluster is contacted.
//!
//! `args` contains the options, `values` parses those that have a grammar of their own, and
//! `manifest` converts them to what `plan` prints.

mod args;
mod manifest;
mod values;

pub(in crate::cli) use manifest::{definition, main};
