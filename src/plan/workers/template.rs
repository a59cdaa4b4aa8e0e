//! Command and environment of a job's workers, stored once, with blanks for the parts that differ.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use crate::base::{LocalRank, NodeRank, Rank};
use crate::plan::spec::Program;
use crate::plan::workers::env_value::EnvValue;

/// The variables of a job by name, with blanks.
pub(crate) type TemplateEnv = BTreeMap<OsString, TemplateValue>;

/// A value of the template: the same for every worker, or a blank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TemplateValue {
    /// The same for every worker.
    Same(EnvValue),
    /// Rank of the worker in the job.
    Rank,
    /// Rank of the worker on its node.
    LocalRank,
    /// Rank of the node.
    NodeRank,
    /// Number of workers of the node.
    LocalSize,
    /// List of the devices of the node.
    Devices,
}

/// The data that all workers of a job share.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Template {
    before_local_rank: Vec<OsString>,
    passes_local_rank: bool,
    user_args: Vec<OsString>,
    /// The variables, sorted by name.
    env: Vec<(OsString, TemplateValue)>,
}

/// The data that all workers of one node share.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NodeShare {
    pub(crate) template: Arc<Template>,
    pub(crate) node_rank: NodeRank,
    /// Workers of the node.
    pub(crate) local_size: usize,
    /// The list of devices, `0,1,2`; equal lists of adjacent nodes are stored once.
    pub(crate) devices: Arc<OsStr>,
}

/// The ranks of one worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerPosition {
    pub(crate) rank: Rank,
    pub(crate) local_rank: LocalRank,
}

impl Template {
    /// Creates a template; `--local_rank` is placed before the user's own arguments.
    pub(crate) fn new(program: &Program, args: &[OsString], env: TemplateEnv) -> Self {
        let (head, passes_local_rank): (Vec<OsString>, bool) = match program {
            Program::Python { script, module, local_rank, interpreter } => {
                let mut head = vec![interpreter.clone(), "-u".into()];
                head.extend(module.then(|| "-m".into()));
                head.push(script.clone());
                (head, *local_rank)
            }
            Program::Exec { program, local_rank } => (vec![program.clone()], *local_rank),
        };
        Self {
            before_local_rank: head,
            passes_local_rank,
            user_args: args.to_vec(),
            env: env.into_iter().collect(),
        }
    }

    /// Program and arguments of a worker.
    pub(crate) fn argv(&self, local_rank: LocalRank) -> impl Iterator<Item = Cow<'_, OsStr>> {
        let passed = self
            .passes_local_rank
            .then(|| Cow::Owned(OsString::from(format!("--local_rank={local_rank}"))));
        let (head, tail) = (self.before_local_rank.iter(), self.user_args.iter());
        let borrowed = |word| Cow::Borrowed(OsString::as_os_str(word));
        head.map(borrowed).chain(passed).chain(tail.map(borrowed))
    }
}

impl NodeShare {
    /// The variables of a worker, sorted by name.
    pub(crate) fn env(
        &self,
        place: WorkerPosition,
    ) -> impl Iterator<Item = (&OsStr, Cow<'_, EnvValue>)> {
        let env = self.template.env.iter();
        env.map(move |(name, variable)| (name.as_os_str(), self.value(variable, place)))
    }

    fn value<'a>(&self, variable: &'a TemplateValue, place: WorkerPosition) -> Cow<'a, EnvValue> {
        let known = |value: String| Cow::Owned(EnvValue::Known(value.into()));
        match variable {
            TemplateValue::Same(value) => Cow::Borrowed(value),
            TemplateValue::Rank => known(place.rank.to_string()),
            TemplateValue::LocalRank => known(place.local_rank.to_string()),
            TemplateValue::NodeRank => known(self.node_rank.to_string()),
            TemplateValue::LocalSize => known(self.local_size.to_string()),
            TemplateValue::Devices => Cow::Owned(EnvValue::Known(self.devices.as_ref().to_owned())),
        }
    }
}
