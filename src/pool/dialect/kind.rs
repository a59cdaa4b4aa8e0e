//! The dialects and their names.

use std::fmt;

/// A format of hosts and slots, named after the program that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dialect {
    /// The format `host slots=4`.
    DeepSpeed,
    /// The format `host slots=4 max_slots=8 // comment`; a bare host is repeated once for each
    /// slot.
    OpenMpi,
    /// The format `host:4` of MPICH and Intel MPI.
    Hydra,
    /// The variables `SLURM_JOB_NODELIST=n[1-4]` and `SLURM_TASKS_PER_NODE=2(x4)`.
    Slurm,
    /// One line for each slot.
    Pbs,
    /// The format `host 4` or `a 2 b 2`, or a host repeated once for each slot.
    Lsf,
    /// The format `host 4 queue@host <NULL>`.
    Sge,
    /// The format `a:4,b:4`.
    Horovod,
    /// The format `n[1-4]:8` or `n[1-4] slots=8`, with host names as in pdsh and ClusterShell.
    Ranges,
}

impl Dialect {
    /// All dialects; for lines that fit several, the earlier one is chosen.
    pub const ALL: [Self; 9] = [
        Self::DeepSpeed,
        Self::OpenMpi,
        Self::Hydra,
        Self::Ranges,
        Self::Pbs,
        Self::Horovod,
        Self::Lsf,
        Self::Sge,
        Self::Slurm,
    ];

    /// The name of the dialect on a command line: `--from openmpi`.
    pub fn name(self) -> &'static str {
        match self {
            Self::DeepSpeed => "deepspeed",
            Self::OpenMpi => "openmpi",
            Self::Hydra => "mpich",
            Self::Slurm => "slurm",
            Self::Pbs => "pbs",
            Self::Lsf => "lsf",
            Self::Sge => "sge",
            Self::Horovod => "horovod",
            Self::Ranges => "ranges",
        }
    }

    /// Other accepted names of the dialect.
    pub fn aliases(self) -> &'static [&'static str] {
        match self {
            Self::DeepSpeed => &["ds"],
            Self::OpenMpi => &["ompi", "prrte"],
            Self::Hydra => &["hydra", "impi", "intel"],
            Self::Slurm | Self::Lsf | Self::Horovod => &[],
            Self::Pbs => &["torque"],
            Self::Sge => &["uge"],
            Self::Ranges => &["pdsh", "clustershell", "nodeset"],
        }
    }
}

/// The name of the dialect in messages: `Open MPI`.
impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeepSpeed => "DeepSpeed",
            Self::OpenMpi => "Open MPI",
            Self::Hydra => "MPICH",
            Self::Slurm => "Slurm",
            Self::Pbs => "PBS",
            Self::Lsf => "LSF",
            Self::Sge => "Grid Engine",
            Self::Horovod => "Horovod",
            Self::Ranges => "host range",
        })
    }
}

/// Limit of the characters of the evidence that are shown.
pub(crate) const EVIDENCE_CHARS_MAX: usize = 40;

pub(super) fn article(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::OpenMpi | Dialect::Hydra | Dialect::Lsf => "an",
        Dialect::DeepSpeed
        | Dialect::Slurm
        | Dialect::Pbs
        | Dialect::Sge
        | Dialect::Horovod
        | Dialect::Ranges => "a",
    }
}

/// The dialect with its article: `an Open MPI hostfile`.
pub(crate) fn with_article(dialect: Dialect) -> String {
    match dialect {
        Dialect::Ranges => "a hostfile with host ranges".to_owned(),
        _ => format!("{} {dialect} hostfile", article(dialect)),
    }
}
