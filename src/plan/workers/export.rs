//! Variables that come from the user or from the launcher's environment, each with its origin.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::base::env_vars;
use crate::base::order;
use crate::plan::accelerator::Accelerator;

/// A variable that every worker gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Name of the variable.
    pub name: OsString,
    /// Value of the variable.
    pub value: OsString,
    /// Where the variable comes from.
    pub origin: VariableOrigin,
}

impl Export {
    /// The variable of `--env NAME=VALUE`.
    pub fn flag(name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        Self { name: name.into(), value: value.into(), origin: VariableOrigin::Flag }
    }
}

/// Where a variable of the workers comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VariableOrigin {
    /// The option `--env`.
    Flag,
    /// The option of this name, which sets the variable.
    Option(&'static str),
    /// A line of an environment file.
    File {
        /// The file's name, as it is shown.
        file: String,
        /// The line, counted from 1.
        line: usize,
    },
    /// The option `--env`, whose value is at this place: a line of `remuda.toml`, or a variable.
    Setting(String),
    /// The launcher's environment: a variable whose name begins with a propagated prefix.
    Propagated,
}

impl fmt::Display for VariableOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("--env"),
            Self::Option(name) => f.write_str(name),
            Self::File { file, line } => write!(f, "{file}:{line}"),
            Self::Setting(place) => f.write_str(place),
            Self::Propagated => f.write_str("propagated"),
        }
    }
}

/// Prefixes of names that are propagated to other nodes, for every accelerator.
const PREFIXES: [&str; 4] = ["MLFLOW", "PYTHON", "MV2", "UCX"];
/// Variables that are not propagated where [`env_vars::AISC_JOB_NAME`] is set.
const NOT_ON_AISC: [&str; 2] = ["NCCL_IB_HCA", "UCX_NET_DEVICES"];

/// The variables of the launcher's environment that a job of several nodes propagates, as in
/// DeepSpeed: variables whose names begin with certain prefixes, and a `PYTHONPATH` that begins
/// with the working directory.
pub fn propagated_exports(
    environment: &BTreeMap<Vec<u8>, Vec<u8>>,
    cwd: &OsStr,
    accelerator: Accelerator,
) -> Vec<Export> {
    let own_prefixes: &[&str] = match accelerator {
        Accelerator::Cpu
        | Accelerator::GpuIfAny
        | Accelerator::Xpu
        | Accelerator::Mps
        | Accelerator::Hpu => &[],
        Accelerator::Cuda | Accelerator::Rocm => &["NCCL"],
        Accelerator::Npu => &["ASCEND", "HCCL", "LD_LIBRARY", "PATH"],
        Accelerator::Mlu => &["NEUWARE_HOME", "CNCL", "LD_LIBRARY", "PATH"],
        Accelerator::Sdaa => &["NCCL", "LD_LIBRARY", "PATH"],
        Accelerator::Supa => &["BCCL", "BIREN", "SUPA", "LD_LIBRARY", "PATH"],
        Accelerator::Klxpu => &["BKCL", "XPU", "XMLIR", "LD_LIBRARY", "PATH"],
    };
    let has_prefix = |name: &[u8]| {
        PREFIXES.iter().chain(own_prefixes).any(|prefix| name.starts_with(prefix.as_bytes()))
    };
    let on_aisc = environment.contains_key(env_vars::AISC_JOB_NAME.as_bytes());
    let is_excluded =
        |name: &[u8]| on_aisc && NOT_ON_AISC.iter().any(|other| name == other.as_bytes());
    let exported = environment.iter().filter(|(name, _)| has_prefix(name) && !is_excluded(name));
    let mut found = order::map(exported.map(|(name, value)| (name.clone(), value.clone())));
    let path = found.entry(env_vars::PYTHONPATH.into()).or_default();
    *path = prepend_dir(cwd.as_bytes(), path);
    let export = |(name, value)| Export {
        name: OsString::from_vec(name),
        value: OsString::from_vec(value),
        origin: VariableOrigin::Propagated,
    };
    found.into_iter().map(export).collect()
}

/// A search path with `directory` first. DeepSpeed writes `cwd:` where the variable is set and
/// empty; Python reads both alike.
fn prepend_dir(directory: &[u8], path: &[u8]) -> Vec<u8> {
    if path.is_empty() { directory.to_vec() } else { [directory, b":", path].concat() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(environment: &[(&str, &str)], accelerator: Accelerator, expect: &[(&str, &str)]) {
        let bytes = |text: &&str| text.as_bytes().to_vec();
        let environment =
            environment.iter().map(|(name, value)| (bytes(name), bytes(value))).collect();
        let found = propagated_exports(&environment, "/work".as_ref(), accelerator);
        let found: Vec<_> = found
            .iter()
            .map(|export| {
                (export.name.to_str().expect("text"), export.value.to_str().expect("text"))
            })
            .collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn propagated_variables_match_deepspeed() {
        let launcher = [
            ("CUDA_HOME", "/c"),
            ("HF_HOME", "/h"),
            ("MLFLOW_URI", "http://x?y=1&z"),
            ("MV2_X", ""),
            ("MYNCCL", "1"),
            ("NCCL_DEBUG", "INFO"),
            ("NCCL_IB_HCA", "mlx5"),
            ("OMP_NUM_THREADS", "3"),
            ("PYTHONIOENCODING", "utf8"),
            ("PYTHONPATHX", "1"),
            ("UCX_NET_DEVICES", "eth0"),
        ];
        let common = [
            ("MLFLOW_URI", "http://x?y=1&z"),
            ("MV2_X", ""),
            ("PYTHONIOENCODING", "utf8"),
            ("PYTHONPATH", "/work"),
            ("PYTHONPATHX", "1"),
            ("UCX_NET_DEVICES", "eth0"),
        ];
        check(&launcher, Accelerator::Cpu, &common);
        let mut cuda = common.to_vec();
        cuda.splice(2..2, [("NCCL_DEBUG", "INFO"), ("NCCL_IB_HCA", "mlx5")]);
        check(&launcher, Accelerator::Cuda, &cuda);
        let mut aisc = launcher.to_vec();
        aisc.push(("AISC_JOB_NAME", "j"));
        cuda.retain(|(name, _)| !NOT_ON_AISC.contains(name));
        check(&aisc, Accelerator::Cuda, &cuda);
    }

    #[test]
    fn accelerators_add_their_own_prefixes() {
        let names = ["BCCL_X", "BKCL_X", "CNCL_X", "HCCL_X", "LD_LIBRARY_PATH", "NCCL_X", "PATH"];
        let launcher: Vec<_> = names.map(|name| (name, "1")).to_vec();
        let check_own = |accelerator, own: &[&'static str]| {
            let mut expect: Vec<_> = own.iter().map(|name| (*name, "1")).collect();
            expect.push(("PYTHONPATH", "/work"));
            check(&launcher, accelerator, &expect);
        };
        check_own(Accelerator::Mps, &[]);
        check_own(Accelerator::Hpu, &[]);
        check_own(Accelerator::Npu, &["HCCL_X", "LD_LIBRARY_PATH", "PATH"]);
        check_own(Accelerator::Mlu, &["CNCL_X", "LD_LIBRARY_PATH", "PATH"]);
        check_own(Accelerator::Sdaa, &["LD_LIBRARY_PATH", "NCCL_X", "PATH"]);
        check_own(Accelerator::Supa, &["BCCL_X", "LD_LIBRARY_PATH", "PATH"]);
        check_own(Accelerator::Klxpu, &["BKCL_X", "LD_LIBRARY_PATH", "PATH"]);
    }

    #[test]
    fn pythonpath_begins_with_working_directory() {
        check(&[("PYTHONPATH", "/a:/b")], Accelerator::Cpu, &[("PYTHONPATH", "/work:/a:/b")]);
        check(&[("PYTHONPATH", "")], Accelerator::Cpu, &[("PYTHONPATH", "/work")]);
        check(&[], Accelerator::Cpu, &[("PYTHONPATH", "/work")]);
    }
}
