//! Resources of a pod: the amount that the scheduler reserves, and the limit. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::names::is_qualified_name;
use super::quantity::Quantity;
use crate::pool::nearest;

/// Resources of Kubernetes itself; the names of device resources have a domain.
const NATIVE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const HUGE_PAGES: &str = "hugepages-";
/// Words in the resource names of network devices that need locked memory.
const RDMA: [&str; 5] = ["rdma", "hca", "roce", "infiniband", "efa"];

/// Resources of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources(BTreeMap<String, Amounts>);

/// The amounts of one resource; at least one of the two is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Amounts {
    limit: Option<Quantity>,
    request: Option<Quantity>,
}

/// Why a container cannot be given a resource.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    /// A name with invalid characters.
    #[error("`{0}` is not the name of a resource")]
    Name(String),
    /// A name without a domain that Kubernetes does not know.
    #[error("Kubernetes has no resource `{name}`")]
    Unknown {
        /// The unknown name.
        name: String,
        /// The name that was probably intended.
        near: Option<&'static str>,
    },
    /// The same resource twice.
    #[error("`{0}` is given twice")]
    Twice(String),
    /// A request above its limit.
    #[error("a request of {request} is more than the limit of {limit}")]
    AboveLimit {
        /// The amount to reserve.
        request: Quantity,
        /// The limit that it exceeds.
        limit: Quantity,
    },
    /// A request for devices without a limit, or one that differs from it.
    #[error("the request for `{0}` must be equal to its limit")]
    Devices(String),
    /// A fraction of a device.
    #[error("`{0}` is counted in whole numbers")]
    Whole(String),
    /// A fraction of a byte.
    #[error("`{name}` is counted in whole bytes")]
    Bytes {
        /// Name of the resource.
        name: String,
        /// A quantity that was probably intended.
        near: Option<String>,
    },
    /// Less than a thousandth of a processor.
    #[error("`cpu` is counted in steps of `1m`")]
    Cpu,
}

impl ResourceError {
    /// A correction for the user.
    pub fn help(&self) -> String {
        match self {
            Self::Name(_) => {
                "write `cpu`, `memory`, or a name with a domain: `rdma/hca`".to_owned()
            }
            Self::Unknown { near: Some(near), .. } => format!("did you mean `{near}`?"),
            Self::Unknown { near: None, .. } => {
                "write cpu, memory or ephemeral-storage; devices have a domain, such as `rdma/hca`"
                    .to_owned()
            }
            Self::Twice(_) => "give each resource once".to_owned(),
            Self::AboveLimit { .. } => {
                "`--resource` is the limit, `--request` at most as much".to_owned()
            }
            Self::Devices(name) => format!("leave `--request {name}=…` out"),
            Self::Bytes { near: Some(near), .. } => format!("did you mean `{near}`?"),
            Self::Bytes { near: None, .. } | Self::Whole(_) | Self::Cpu => {
                "write a coarser quantity".to_owned()
            }
        }
    }

    /// Whether the error is in the name, not in the quantity after it.
    pub fn is_about_name(&self) -> bool {
        matches!(self, Self::Name(_) | Self::Unknown { .. } | Self::Twice(_) | Self::Devices(_))
    }
}

impl Resources {
    /// Adds a limit, which is also the request unless one is set.
    pub fn add_limit(&mut self, name: &str, limit: Quantity) -> Result<(), ResourceError> {
        check_name(name)?;
        check_amount(name, &limit)?;
        let amounts = self.0.entry(name.to_owned()).or_default();
        if amounts.limit.replace(limit).is_some() {
            return Err(ResourceError::Twice(name.to_owned()));
        }
        Ok(())
    }

    /// Adds a request, which may not exceed the limit. All limits must have been added before.
    pub fn add_request(&mut self, name: &str, request: Quantity) -> Result<(), ResourceError> {
        check_name(name)?;
        check_amount(name, &request)?;
        let amounts = self.0.entry(name.to_owned()).or_default();
        match &amounts.limit {
            Some(limit) if request.exceeds(limit) => {
                return Err(ResourceError::AboveLimit { request, limit: limit.clone() });
            }
            Some(limit) if request.equals(limit) => {}
            _ if is_indivisible(name) => return Err(ResourceError::Devices(name.to_owned())),
            Some(_) | None => {}
        }
        if amounts.request.replace(request).is_some() {
            return Err(ResourceError::Twice(name.to_owned()));
        }
        Ok(())
    }

    /// Whether this resource has a request or a limit.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether memory must be locked for a network device.
    pub fn has_rdma(&self) -> bool {
        let mut names = self.0.keys().filter(|name| name.contains('/'));
        names.any(|name| RDMA.iter().any(|word| name.to_lowercase().contains(word)))
    }

    /// The `resources` of a container; `None` if there are none.
    pub(super) fn to_json(&self) -> Option<Value> {
        let map = |of: fn(&Amounts) -> Option<&Quantity>| -> Map<String, Value> {
            let present = self.0.iter().filter_map(|(name, amounts)| Some((name, of(amounts)?)));
            present.map(|(name, amount)| (name.clone(), amount.to_string().into())).collect()
        };
        let limits = map(|amounts| amounts.limit.as_ref());
        let requests = map(|amounts| amounts.request.as_ref().or(amounts.limit.as_ref()));
        if requests.is_empty() {
            return None;
        }
        let mut given = Map::new();
        if !limits.is_empty() {
            given.insert("limits".to_owned(), limits.into());
        }
        given.insert("requests".to_owned(), requests.into());
        Some(given.into())
    }
}

/// Resources of which a container cannot use more than it requests.
fn is_indivisible(name: &str) -> bool {
    name.contains('/') || name.starts_with(HUGE_PAGES)
}

fn check_name(name: &str) -> Result<(), ResourceError> {
    if !is_qualified_name(name) {
        return Err(ResourceError::Name(name.to_owned()));
    }
    if name.contains('/') || NATIVE.contains(&name) || name.starts_with(HUGE_PAGES) {
        return Ok(());
    }
    let near = match name {
        "mem" | "ram" => Some("memory"),
        "cpus" | "cores" => Some("cpu"),
        "gpu" | "gpus" => Some("--gpus"),
        _ => nearest(name, NATIVE),
    };
    Err(ResourceError::Unknown { name: name.to_owned(), near })
}

fn check_amount(name: &str, amount: &Quantity) -> Result<(), ResourceError> {
    if name == "cpu" {
        return if amount.is_milli() { Ok(()) } else { Err(ResourceError::Cpu) };
    }
    if amount.is_whole() {
        return Ok(());
    }
    if name.contains('/') {
        return Err(ResourceError::Whole(name.to_owned()));
    }
    // `500m` of memory is half a byte, which is certainly a mistake.
    let near = amount.to_string().strip_suffix('m').map(|number| format!("{number}Mi"));
    Err(ResourceError::Bytes { name: name.to_owned(), near })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `NAME=LIMIT` and `NAME<REQUEST`, separated by blanks.
    fn resources(text: &str) -> Result<Resources, ResourceError> {
        let mut resources = Resources::default();
        let quantity = |text: &str| Quantity::parse(text).expect("a quantity");
        for word in text.split_whitespace() {
            if let Some((name, limit)) = word.split_once('=') {
                resources.add_limit(name, quantity(limit))?;
            } else {
                let (name, request) = word.split_once('<').expect("a request");
                resources.add_request(name, quantity(request))?;
            }
        }
        Ok(resources)
    }

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let found = match resources(text) {
            Ok(resources) => resources.to_json().map_or(String::new(), |json| json.to_string()),
            Err(error) => format!("{error}: {}", error.help()),
        };
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn limit_is_the_default_request() {
        check("", "");
        check(
            "cpu=8 memory=64Gi",
            r#"{"limits":{"cpu":"8","memory":"64Gi"},"requests":{"cpu":"8","memory":"64Gi"}}"#,
        );
        check("cpu=8 cpu<500m", r#"{"limits":{"cpu":"8"},"requests":{"cpu":"500m"}}"#);
        check("memory<1Gi", r#"{"requests":{"memory":"1Gi"}}"#);
        check("a/b=2 a/b<2", r#"{"limits":{"a/b":"2"},"requests":{"a/b":"2"}}"#);
    }

    #[test]
    fn resource_errors_suggest_corrections() {
        check("mem=1", "Kubernetes has no resource `mem`: did you mean `memory`?");
        check("memry=1", "Kubernetes has no resource `memry`: did you mean `memory`?");
        check("gpu=1", "Kubernetes has no resource `gpu`: did you mean `--gpus`?");
        check("cpu=1 cpu=2", "`cpu` is given twice: give each resource once");
        check("cpu<1 cpu<2", "`cpu` is given twice: give each resource once");
        check("memory=500m", "`memory` is counted in whole bytes: did you mean `500Mi`?");
        check("cpu=0.0005", "`cpu` is counted in steps of `1m`: write a coarser quantity");
        check("a/b=1.5", "`a/b` is counted in whole numbers: write a coarser quantity");
        check(
            "cpu=1 cpu<2",
            "a request of 2 is more than the limit of 1: `--resource` is the limit, `--request` at \
             most as much",
        );
        let devices =
            "the request for `a/b` must be equal to its limit: leave `--request a/b=…` out";
        check("a/b=2 a/b<1", devices);
        check("a/b<1", devices);
        let name = "write `cpu`, `memory`, or a name with a domain: `rdma/hca`";
        check("a/=1", &format!("`a/` is not the name of a resource: {name}"));
    }

    #[test]
    fn rdma_devices_are_recognised() {
        let has = |text: &str| resources(text).expect("valid resources").has_rdma();
        for rdma in ["rdma/hca_shared=1", "vpc.amazonaws.com/efa=4", "nvidia.com/roce_gw=1"] {
            assert!(has(rdma), "{rdma}");
        }
        for other in ["cpu=1", "nvidia.com/gpu=8", "memory=1Gi"] {
            assert!(!has(other), "{other}");
        }
    }
}
