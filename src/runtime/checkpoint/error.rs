//! Errors of checkpoints.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::base::{Rank, debug_as_message, show_create_dir_error, show_io_error};
use crate::runtime::checkpoint::space::DiskSpace;
use crate::runtime::comm::core::error::{CollectiveError, show_ranks};
use crate::runtime::error::Error;

/// Largest number of items of a list in a message.
const SHOWN_MAX: usize = 8;
/// Largest number of tensors in a message about a damaged file: a parameter and its two moments.
const TENSORS_MAX: usize = 3;

/// Error of saving a checkpoint. All ranks get the same error, except if the group fails.
///
/// Complete checkpoints are never changed by a save that fails. Its debug form is its message.
#[derive(thiserror::Error)]
pub enum SaveError {
    /// Ranks that could not do their part.
    #[error("cannot save checkpoint `{}`: {}", path.display(), show_problems(problems))]
    Failed {
        /// Path of the checkpoint.
        path: PathBuf,
        /// Problems of the ranks that had one.
        problems: Vec<RankProblem>,
        /// What a full disk has, and what the checkpoint needs.
        space: Option<Box<DiskSpace>>,
    },
    /// Another run saves its checkpoints in the directory.
    #[error("another run is saving its checkpoints in `{}`", dir.display())]
    InUse {
        /// Path of the directory.
        dir: PathBuf,
    },
    /// The path is another directory for some ranks, because their hosts do not share the file system.
    #[error("`{}` is another directory on {} than on rank 0", dir.display(), show_places(ranks))]
    NotShared {
        /// Path of the directory.
        dir: PathBuf,
        /// Ranks that do not see the files of rank 0, or whose files rank 0 does not see.
        ranks: Vec<RankPlace>,
    },
    /// The group of the ranks failed.
    #[error(transparent)]
    Group(#[from] Error),
}

impl From<CollectiveError> for SaveError {
    fn from(error: CollectiveError) -> Self {
        Self::Group(error.into())
    }
}

impl SaveError {
    /// Returns what the user can do about it, if there is something.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Failed { space: Some(space), .. } => Some(space.help()),
            Self::Failed { .. } | Self::InUse { .. } | Self::NotShared { .. } | Self::Group(_) => {
                self.fixed_help().map(str::to_owned)
            }
        }
    }

    fn fixed_help(&self) -> Option<&'static str> {
        match self {
            Self::Failed { problems, .. } => {
                let has = |kind| problems.iter().any(|problem| problem.kind == kind);
                if has(ProblemKind::NoSpace) {
                    Some("delete files on its disk, or use a directory on another one")
                } else if has(ProblemKind::Files) {
                    Some("use a directory that all ranks can write")
                } else {
                    None
                }
            }
            Self::InUse { .. } => Some("wait until it exits, or use another directory"),
            Self::NotShared { .. } => {
                Some("use a directory of a file system that all hosts mount at the same path")
            }
            Self::Group(_) => None,
        }
    }
}

/// Problem of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankProblem {
    /// The rank, in the job.
    pub rank: Rank,
    /// Host of the rank.
    pub host: String,
    /// Kind of the problem.
    pub kind: ProblemKind,
    /// What failed, where and why.
    pub text: String,
}

/// Kind of a rank's problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProblemKind {
    /// The disk or the quota is full.
    NoSpace,
    /// A file cannot be read or written.
    Files,
    /// The pieces of the ranks are not the tensors.
    Pieces,
    /// There is not enough memory.
    Memory,
}

impl ProblemKind {
    fn of_io(error: &io::Error) -> Self {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        match error.kind() {
            StorageFull | QuotaExceeded => Self::NoSpace,
            _ => Self::Files,
        }
    }
}

impl RankProblem {
    /// Problem about a file; `text` says what failed.
    pub(super) fn of_file(place: &RankPlace, text: &str, error: &io::Error) -> Self {
        let text = format!("{text}: {}", show_io_error(error));
        place.problem(ProblemKind::of_io(error), text)
    }

    /// Problem about a directory that could not be created.
    pub(super) fn of_directory(place: &RankPlace, dir: &Path, error: &io::Error) -> Self {
        let why = show_create_dir_error(error);
        let text = format!("cannot create directory `{}`: {why}", dir.display());
        place.problem(ProblemKind::of_io(error), text)
    }
}

/// A rank and its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankPlace {
    /// The rank, in the job.
    pub rank: Rank,
    /// Host of the rank.
    pub host: String,
}

impl RankPlace {
    pub(super) fn problem(&self, kind: ProblemKind, text: String) -> RankProblem {
        RankProblem { rank: self.rank, host: self.host.clone(), kind, text }
    }
}

fn show_problems(problems: &[RankProblem]) -> String {
    let show = |problem: &RankProblem| {
        let RankProblem { rank, host, text, .. } = problem;
        format!("rank {rank} on host `{host}`: {text}")
    };
    show_list(problems.len(), problems.iter().map(show), "; ")
}

fn show_places(places: &[RankPlace]) -> String {
    let ranks: Vec<Rank> = places.iter().map(|place| place.rank).collect();
    let mut hosts: Vec<&str> = places.iter().map(|place| place.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let noun = if hosts.len() == 1 { "host" } else { "hosts" };
    let shown = show_list(hosts.len(), hosts.iter().map(|host| format!("`{host}`")), ", ");
    format!("{} ({noun} {shown})", show_ranks(&ranks))
}

/// Joins the first items of a list, with the number of the others.
pub(super) fn show_list(
    count: usize,
    items: impl Iterator<Item = String>,
    separator: &str,
) -> String {
    show_first(SHOWN_MAX, count, items, separator)
}

/// Joins the first `max` items of a list, with the number of the others.
fn show_first(
    max: usize,
    count: usize,
    items: impl Iterator<Item = String>,
    separator: &str,
) -> String {
    let shown: Vec<String> = items.take(max).collect();
    let more = match count.saturating_sub(max) {
        0 => String::new(),
        more => format!("{separator}and {more} more"),
    };
    shown.join(separator) + &more
}

/// Damage of a file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Damage {
    /// The file does not exist.
    Missing {
        /// Name of the file.
        file: String,
    },
    /// The file has another size than when it was saved.
    Size {
        /// Name of the file.
        file: String,
        /// Its size in bytes.
        bytes: u64,
        /// Its size in bytes when it was saved.
        expected: u64,
    },
    /// Bytes of the file were changed.
    Changed {
        /// Name of the file.
        file: String,
        /// Range that contains the changed bytes.
        bytes: Range<u64>,
        /// Tensors with elements in that range.
        tensors: Vec<String>,
    },
    /// The file belongs to another checkpoint, or to another rank.
    Foreign {
        /// Name of the file.
        file: String,
        /// Step of the checkpoint to which it belongs.
        step: u64,
        /// Number in the name that it had.
        rank: usize,
    },
    /// The file cannot be read.
    Unreadable {
        /// Name of the file.
        file: String,
        /// Reason of the operating system.
        reason: String,
    },
    /// The content of the index, of `latest` or of a checkpoint of one file is invalid.
    Invalid {
        /// Name of the file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Damage {
    /// Returns the name of the file.
    pub fn file(&self) -> &str {
        match self {
            Self::Missing { file }
            | Self::Size { file, .. }
            | Self::Changed { file, .. }
            | Self::Foreign { file, .. }
            | Self::Unreadable { file, .. }
            | Self::Invalid { file, .. } => file,
        }
    }

    /// Describes the damage without the tensors that it affects.
    fn without_tensors(&self) -> String {
        match self {
            Self::Missing { file } => format!("`{file}` is missing"),
            Self::Size { file, bytes, expected } => {
                let how = if bytes < expected { "truncated" } else { "extended" };
                format!("`{file}` was {how}: it has {bytes} bytes instead of {expected}")
            }
            Self::Changed { file, bytes: Range { start, end }, .. } => {
                let last = end - 1;
                format!(
                    "`{file}` was changed after it was saved, somewhere in bytes {start} to {last}"
                )
            }
            Self::Foreign { file, step, rank } => {
                format!("`{file}` is the file of rank {rank} of step {step}")
            }
            Self::Unreadable { file, reason } => format!("cannot read `{file}`: {reason}"),
            Self::Invalid { file, reason } => format!("`{file}`: {reason}"),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.without_tensors())?;
        match self {
            Self::Changed { tensors, .. } if !tensors.is_empty() => {
                let names = tensors.iter().map(|name| format!("`{name}`"));
                write!(
                    f,
                    ", which have values of {}",
                    show_first(TENSORS_MAX, tensors.len(), names, ", ")
                )
            }
            Self::Changed { .. }
            | Self::Missing { .. }
            | Self::Size { .. }
            | Self::Foreign { .. }
            | Self::Unreadable { .. }
            | Self::Invalid { .. } => Ok(()),
        }
    }
}

/// Error of opening or reading a checkpoint. Its debug form is its message.
#[derive(thiserror::Error)]
pub enum OpenError {
    /// A directory contains no checkpoint.
    #[error("there is no checkpoint in `{}`", dir.display())]
    Empty {
        /// Path of the directory.
        dir: PathBuf,
    },
    /// A file or directory cannot be read.
    #[error("cannot read checkpoint `{}`: {}", path.display(), show_io_error(source))]
    Read {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file of another program, or of none.
    #[error("`{}` is not a checkpoint: {reason}", path.display())]
    NotCheckpoint {
        /// Path of the file.
        path: PathBuf,
        /// What shows it.
        reason: &'static str,
    },
    /// A checkpoint was written by a newer version of remuda.
    #[error("checkpoint `{}` has the format `{format}`, which this version cannot read", path.display())]
    Newer {
        /// Path of the checkpoint.
        path: PathBuf,
        /// Format that its index names.
        format: String,
    },
    /// Files of a checkpoint are damaged.
    #[error("checkpoint `{}` is damaged: {}", path.display(), show_damage(damage))]
    Damaged {
        /// Path of the checkpoint.
        path: PathBuf,
        /// Damage of its files.
        damage: Vec<Damage>,
    },
    /// All checkpoints that could be used are damaged.
    #[error("{}", show_all_damaged(dir, damaged))]
    AllDamaged {
        /// Directory of the checkpoints.
        dir: PathBuf,
        /// Paths of the checkpoints with the damage of their files, the newest first.
        damaged: Vec<(PathBuf, Vec<Damage>)>,
    },
    /// A checkpoint belongs to another model.
    #[error("checkpoint `{}` is for another model: {}", path.display(), show_lines(differences))]
    OtherModel {
        /// Path of the checkpoint.
        path: PathBuf,
        /// Tensors that differ, with the difference.
        differences: Vec<String>,
    },
    /// The caller asked for elements that the checkpoint does not have in this form.
    #[error("checkpoint `{}`: {problem}", path.display())]
    Request {
        /// Path of the checkpoint.
        path: PathBuf,
        /// Problem of the request.
        problem: String,
    },
    /// Some ranks cannot read what others can.
    #[error("cannot load checkpoint `{}`: {}", path.display(), show_problems(problems))]
    Ranks {
        /// Path of the checkpoint.
        path: PathBuf,
        /// Problems of the ranks that had one.
        problems: Vec<RankProblem>,
    },
    /// The group of the ranks failed.
    #[error(transparent)]
    Group(#[from] Error),
}

debug_as_message!(SaveError, OpenError);

impl From<CollectiveError> for OpenError {
    fn from(error: CollectiveError) -> Self {
        Self::Group(error.into())
    }
}

fn show_damage(damage: &[Damage]) -> String {
    show_list(damage.len(), damage.iter().map(Damage::to_string), "; ")
}

fn show_all_damaged(dir: &Path, damaged: &[(PathBuf, Vec<Damage>)]) -> String {
    let title = match damaged.len() {
        1 => "the only checkpoint".to_owned(),
        count => format!("all {count} checkpoints"),
    };
    let verb = if damaged.len() == 1 { "is" } else { "are" };
    let show = |(path, damage): &(PathBuf, Vec<Damage>)| {
        let name = path.file_name().unwrap_or_default().display();
        let first = damage.first().map(Damage::without_tensors).unwrap_or_default();
        match damage.len().saturating_sub(1) {
            0 => format!("`{name}`: {first}"),
            more => format!("`{name}`: {first}, and {more} more"),
        }
    };
    let shown = show_list(damaged.len(), damaged.iter().map(show), "; ");
    format!("{title} in `{}` {verb} damaged: {shown}", dir.display())
}

fn show_lines(lines: &[String]) -> String {
    show_list(lines.len(), lines.iter().cloned(), "; ")
}
