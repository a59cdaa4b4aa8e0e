//! `remuda k8s manifest`: the objects of Kubernetes that start a job of pods, and `remuda k8s
//! containerfile`, an image for them. Nothing is contacted.
//!
//! `args` are the options, `values` reads those that have a grammar of their own, `manifest` makes of
//! them what `plan` prints.

mod args;
mod manifest;
mod values;

pub(super) use manifest::{definition, main};
