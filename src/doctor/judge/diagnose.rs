//! All findings about a cluster.

use std::cmp::Reverse;

use crate::base::order;
use crate::doctor::facts::{ClusterFacts, Finding};
use crate::doctor::judge::{compute, gpus, names, place, reach, ways};

/// All findings, the most severe first.
pub fn diagnose(cluster: &ClusterFacts) -> Vec<Finding> {
    let families = [
        reach::findings,
        place::findings,
        gpus::findings,
        compute::findings,
        ways::findings,
        names::findings,
    ];
    let mut found: Vec<Finding> = families.iter().flat_map(|family| family(cluster)).collect();
    order::sort_by_key(&mut found, |finding| (Reverse(finding.severity), finding.code));
    found
}
