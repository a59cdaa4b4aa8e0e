//! Command and environment of a job's workers, stored once, with blanks for the parts that differ.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use crate::base::{LocalRank, NodeRank, Rank};
use crate::plan::spec::{Conventions, JobSpec, Program};
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
    /// Number of workers of the job.
    WorldSize,
    /// Number of nodes of the job.
    NodeCount,
    /// List of the devices of the node.
    Devices,
    /// The value at the position of the worker's rank on its node.
    OneOf(Vec<OsString>),
}

/// The data that all workers of a job share.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Template {
    before_local_rank: Vec<OsString>,
    /// The option with the worker's rank on its node, before the user's arguments.
    local_rank_option: Option<&'static str>,
    /// Whether `${local_rank}` in the user's arguments stands for the worker's rank on its node.
    replaces_local_rank: bool,
    user_args: Vec<OsString>,
    /// The variables, sorted by name.
    env: Vec<(OsString, TemplateValue)>,
}

/// Numbers of workers and nodes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobSize {
    pub(crate) workers: u32,
    pub(crate) nodes: usize,
}

/// The data that all workers of one node share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeShare {
    pub(crate) template: Arc<Template>,
    pub(crate) node_rank: NodeRank,
    /// Workers of the node.
    pub(crate) local_size: usize,
    pub(crate) job_size: JobSize,
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
    pub(crate) fn new(spec: &JobSpec, env: TemplateEnv) -> Self {
        let (head, passes_local_rank): (Vec<OsString>, bool) = match &spec.program {
            Program::Python { script, module, local_rank, interpreter } => {
                let mut head = vec![interpreter.clone(), "-u".into()];
                head.extend(module.then(|| "-m".into()));
                head.push(script.clone());
                (head, *local_rank)
            }
            Program::Exec { program, local_rank } => (vec![program.clone()], *local_rank),
        };
        let (option, replaces_local_rank) = match spec.conventions {
            Conventions::DeepSpeed | Conventions::OneProcess => ("--local_rank", false),
            Conventions::Torchrun(_) => ("--local-rank", true),
        };
        Self {
            before_local_rank: head,
            local_rank_option: passes_local_rank.then_some(option),
            replaces_local_rank,
            user_args: spec.args.clone(),
            env: env.into_iter().collect(),
        }
    }

    /// Program and arguments of a worker.
    pub(crate) fn argv(&self, local_rank: LocalRank) -> impl Iterator<Item = Cow<'_, OsStr>> {
        let passed = self
            .local_rank_option
            .map(|option| Cow::Owned(OsString::from(format!("{option}={local_rank}"))));
        let (head, tail) = (self.before_local_rank.iter(), self.user_args.iter());
        let borrowed = |word| Cow::Borrowed(OsString::as_os_str(word));
        let argument = move |word| match (self.replaces_local_rank, borrowed(word)) {
            (true, word) => with_local_rank(word, local_rank),
            (false, word) => word,
        };
        let (first, head) = (head.clone().take(1), head.skip(1));
        first.map(borrowed).chain(head.map(argument)).chain(passed).chain(tail.map(argument))
    }
}

/// Replaces `${local_rank}` and `$local_rank`, and `$$` by `$`, as `string.Template` of Python does,
/// through which torchrun passes every argument. Other text stays.
fn with_local_rank(word: Cow<'_, OsStr>, local_rank: LocalRank) -> Cow<'_, OsStr> {
    const NAMES: [&[u8]; 2] = [b"{local_rank}", b"local_rank"];
    let bytes = word.as_bytes();
    if !bytes.contains(&b'$') {
        return word;
    }
    let continues_name =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let (mut replaced, mut rest) = (Vec::new(), bytes);
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'$' {
            replaced.push(*byte);
            continue;
        }
        let name = NAMES.iter().find(|name| after.starts_with(name));
        match name {
            Some(name) if name[0] == b'{' || !continues_name(after.get(name.len())) => {
                replaced.extend(local_rank.to_string().into_bytes());
                rest = &after[name.len()..];
            }
            _ => {
                replaced.push(b'$');
                rest = after.strip_prefix(b"$").unwrap_or(after);
            }
        }
    }
    Cow::Owned(OsString::from_vec(replaced))
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
            TemplateValue::WorldSize => known(self.job_size.workers.to_string()),
            TemplateValue::NodeCount => known(self.job_size.nodes.to_string()),
            TemplateValue::OneOf(values) => {
                let value = values.get(place.local_rank.0 as usize).cloned();
                Cow::Owned(EnvValue::Known(value.unwrap_or_default()))
            }
            TemplateValue::Devices => Cow::Owned(EnvValue::Known(self.devices.as_ref().to_owned())),
        }
    }
}
