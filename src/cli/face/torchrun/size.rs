//! Numbers of nodes and workers.

use crate::cli::line::{BadValue, parse_whole, python_int};
use crate::pool::SLOTS_MAX;

/// Maximum number of nodes.
const NODES_MAX: i64 = 1 << 16;

/// Number of nodes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeCount {
    /// Smallest number with which workers run.
    pub(super) min: usize,
    pub(super) max: usize,
}

impl NodeCount {
    /// Whether the number may vary while the job runs.
    pub(super) fn varies(self) -> bool {
        self.min != self.max
    }
}

/// Parses `--nnodes`: `N` or `MIN:MAX`.
pub(super) fn parse_nnodes(text: &str) -> Result<NodeCount, BadValue> {
    let parse = |text| parse_whole(text, 1..=NODES_MAX).map(|nodes| nodes as usize);
    let Some((min, max)) = text.split_once(':') else {
        return parse(text).map(|count| NodeCount { min: count, max: count });
    };
    let (min, max) = (parse(min)?, parse(max)?);
    if max < min {
        return Err(BadValue::new("the first number must not exceed the second"));
    }
    Ok(NodeCount { min, max })
}

/// Devices of this machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnDevices {
    /// GPUs that the environment makes visible.
    pub(super) gpus: usize,
    /// Intel GPUs, if their number is known.
    pub(super) xpus: usize,
    /// CPUs of the machine.
    pub(super) cpus: usize,
}

/// Parses `--nproc-per-node`.
pub(super) fn parse_nproc(text: &str, own: OwnDevices) -> Result<usize, BadValue> {
    let devices = |count: usize, kind: &str| match count {
        0 => Err(BadValue::new(format!("there is no {kind} here"))
            .help("write a number, `cpu`, or `auto`")),
        count => Ok(count),
    };
    match text {
        "gpu" => devices(own.gpus, "GPU"),
        "xpu" => devices(own.xpus, "Intel GPU"),
        "cpu" => Ok(own.cpus),
        "auto" => Ok([own.gpus, own.xpus].into_iter().find(|count| 0 < *count).unwrap_or(own.cpus)),
        _ if python_int(text).is_some() => {
            parse_whole(text, 1..=i64::from(SLOTS_MAX)).map(|count| count as usize)
        }
        _ => Err(BadValue::new("expected a number, `gpu`, `cpu`, `xpu` or `auto`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_nodes_may_vary() {
        let count = |min, max| Ok(NodeCount { min, max });
        assert_eq!(parse_nnodes("2"), count(2, 2));
        assert_eq!(parse_nnodes("3:3"), count(3, 3));
        assert_eq!(parse_nnodes("1:4"), count(1, 4));
        let label = |text| parse_nnodes(text).expect_err("refused").label;
        assert_eq!(label("0"), "expected a number from 1 to 65536");
        assert_eq!(label("2:1"), "the first number must not exceed the second");
        assert_eq!(label("x"), "expected a whole number");
    }

    #[test]
    fn workers_are_counted_by_device() {
        let own = OwnDevices { gpus: 0, xpus: 0, cpus: 6 };
        assert_eq!(parse_nproc("4", own), Ok(4));
        assert_eq!((parse_nproc("cpu", own), parse_nproc("auto", own)), (Ok(6), Ok(6)));
        let gpus = OwnDevices { gpus: 2, ..own };
        assert_eq!((parse_nproc("gpu", gpus), parse_nproc("auto", gpus)), (Ok(2), Ok(2)));
        assert_eq!(parse_nproc("gpu", own).expect_err("none").label, "there is no GPU here");
        assert_eq!(
            parse_nproc("0", own).expect_err("no worker").label,
            "expected a number from 1 to 1024"
        );
        assert!(parse_nproc("tpu", own).is_err());
    }
}
