//! Binding of a worker's environment, the last step before `execve`: symbolic values become text.

use std::ffi::{OsStr, OsString};

use crate::base::{Epoch, env_vars};
use crate::plan::workers::env_value::EnvValue;
use crate::plan::workers::launch_plan::{Bindings, WorkerPlan};

/// The value of `OMP_NUM_THREADS` when the user did not set one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadShare {
    /// The environment of the node sets it already: remuda does not set it.
    Inherited,
    /// CPUs of the node that remuda may use / workers of the node, at least 1.
    Share(u32),
}

impl ThreadShare {
    /// The equal share of one worker, at least 1.
    pub fn share(cpus: usize, workers: usize) -> Self {
        Self::Share(1.max(cpus / workers.max(1)) as u32)
    }
}

impl WorkerPlan {
    /// The variables to set, sorted by name, without symbolic values.
    ///
    /// The plan is that of the first epoch; torch counts the later ones as restarts.
    pub fn bind(
        &self,
        bindings: &Bindings,
        threads: ThreadShare,
        epoch: Epoch,
    ) -> Vec<(OsString, OsString)> {
        let restarts = OsStr::new(env_vars::TORCHELASTIC_RESTART_COUNT);
        self.env()
            .filter_map(|(name, value)| {
                let is_count = name == restarts;
                let bound = if is_count {
                    epoch.to_string().into()
                } else {
                    value.bind(bindings, threads)?
                };
                Some((name.to_owned(), bound))
            })
            .collect()
    }

    /// The variables to set only where the environment of the node does not have them.
    pub fn defaults(&self, threads: ThreadShare) -> Vec<(OsString, OsString)> {
        let default = |value: &EnvValue| match (value, threads) {
            (EnvValue::ThreadShare, ThreadShare::Share(count)) => Some(count.to_string().into()),
            (EnvValue::IfUnset(value), _) => Some(value.clone()),
            (EnvValue::ThreadShare, ThreadShare::Inherited)
            | (
                EnvValue::IfNoGpu(_)
                | EnvValue::Known(_)
                | EnvValue::MasterAddr
                | EnvValue::MasterPort
                | EnvValue::JobId
                | EnvValue::ErrorFile,
                _,
            ) => None,
        };
        let found =
            self.env().filter_map(|(name, value)| Some((name.to_owned(), default(&value)?)));
        found.collect()
    }

    /// The variables to set only where the node has no GPU and its environment does not have them.
    pub fn defaults_without_gpu(&self) -> Vec<(OsString, OsString)> {
        let found = self.env().filter_map(|(name, value)| match value.as_ref() {
            EnvValue::IfNoGpu(value) => Some((name.to_owned(), value.clone())),
            _ => None,
        });
        found.collect()
    }
}

impl EnvValue {
    /// The value of the variable; `None`: remuda does not set it.
    fn bind(&self, bindings: &Bindings, threads: ThreadShare) -> Option<OsString> {
        match (self, threads) {
            (Self::Known(value), _) => Some(value.clone()),
            (Self::MasterAddr, _) => Some(bindings.master_addr.clone().into()),
            (Self::MasterPort, _) => Some(bindings.master_port.to_string().into()),
            (Self::JobId, _) => Some(bindings.job.to_string().into()),
            (Self::ThreadShare, ThreadShare::Share(count)) => Some(count.to_string().into()),
            (Self::ThreadShare, ThreadShare::Inherited)
            | (Self::IfUnset(_) | Self::IfNoGpu(_) | Self::ErrorFile, _) => None,
        }
    }
}
