//! Loading by all ranks of a group: all use the same checkpoint, and get the same outcome.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::base::order;
use crate::runtime::checkpoint::agree::{broadcast, collect, own_place};
use crate::runtime::checkpoint::directory::{LoadCandidates, LoadChoice, find, with_name};
use crate::runtime::checkpoint::error::{Damage, OpenError, ProblemKind, RankProblem};
use crate::runtime::checkpoint::reader::CheckpointReader;
use crate::runtime::checkpoint::verify::verify_checkpoint;
use crate::runtime::comm::group::Group;

/// A checkpoint that was loaded.
#[derive(Debug)]
pub struct LoadedCheckpoint<T> {
    /// The checkpoint.
    pub reader: CheckpointReader,
    /// What was read.
    pub value: T,
    /// Newer checkpoints that are damaged, with their damage.
    pub damaged: Vec<(PathBuf, Vec<Damage>)>,
    /// What the user may want to know about the choice.
    pub notes: Vec<String>,
}

/// Loads a checkpoint with all ranks of a group: `read` reads what this rank needs. If a rank finds damage in
/// what it reads, `choice` decides whether all ranks read an earlier checkpoint; `read` is then called for that one.
///
/// # Errors
/// Equal on all ranks. [`OpenError::Ranks`] if only some ranks cannot read it, for example because they do not
/// share the directory; then it names them.
pub fn load_checkpoint<T>(
    group: &Group,
    path: &Path,
    choice: LoadChoice,
    mut read: impl FnMut(&CheckpointReader) -> Result<T, OpenError>,
) -> Result<LoadedCheckpoint<T>, OpenError> {
    let is_first = group.rank() == 0;
    let path = &with_name(path);
    let found = is_first.then(|| CandidatesOfRank0::of(group, path, find(path, choice).as_ref()));
    let CandidatesOfRank0 { place, names, notes, problem } = broadcast(group, found.as_ref())?;
    if let Some(problem) = problem {
        // The error of this rank has its type; a rank that finds a checkpoint repeats that of rank 0.
        let others = |_| OpenError::Ranks { path: path.clone(), problems: vec![problem] };
        return Err(find(path, choice).map_or_else(|error| error, others));
    }
    let dir = match place {
        Place::Inside => path,
        Place::Beside => path.parent().unwrap_or(Path::new("")),
    };
    let mut damaged = Vec::new();
    for name in names {
        let path = dir.join(&name);
        let opened = CheckpointReader::open_one(&path);
        let read = opened.and_then(|reader| read(&reader).map(|value| (reader, value)));
        let outcomes = collect(group, &Outcome::of(group, read.as_ref().err()))?;
        let verdict = broadcast(group, is_first.then(|| Verdict::of(outcomes)).as_ref())?;
        match (verdict, read) {
            (Verdict::Loaded, Ok((reader, value))) => {
                return Ok(LoadedCheckpoint { reader, value, damaged, notes });
            }
            (Verdict::Damaged(damage), _) => damaged.push((path, damage)),
            // The error of this rank has its type.
            (Verdict::Failed(problems), Err(error)) if problems.len() == group.world_size() => {
                return Err(error);
            }
            (Verdict::Failed(problems), _) => return Err(OpenError::Ranks { path, problems }),
            (Verdict::Loaded, Err(error)) => return Err(error),
        }
    }
    Err(all_damaged(dir, choice, damaged))
}

/// Opens a checkpoint without a group, and checks all of it: the newest one that is not damaged, as `choice`
/// allows.
///
/// # Errors
/// If there is none. If all are damaged, the error names them.
pub fn open_newest(
    path: &Path,
    choice: LoadChoice,
    threads: usize,
) -> Result<LoadedCheckpoint<()>, OpenError> {
    let LoadCandidates { dir, names, notes } = find(path, choice)?;
    let mut damaged = Vec::new();
    for name in names {
        let path = dir.join(name);
        let damage = verify_checkpoint(&path, threads)?;
        if damage.is_empty() {
            let reader = CheckpointReader::open_one(&path)?;
            return Ok(LoadedCheckpoint { reader, value: (), damaged, notes });
        }
        damaged.push((path, damage));
    }
    Err(all_damaged(&dir, choice, damaged))
}

/// The error of candidates that are all damaged; there is at least one.
fn all_damaged(
    dir: &Path,
    choice: LoadChoice,
    mut damaged: Vec<(PathBuf, Vec<Damage>)>,
) -> OpenError {
    match choice {
        LoadChoice::NewestValid => OpenError::AllDamaged { dir: dir.to_owned(), damaged },
        LoadChoice::Exact => {
            let (path, damage) = damaged.swap_remove(0);
            OpenError::Damaged { path, damage }
        }
    }
}

/// Where the candidates are, relative to the path that every rank has been given.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Place {
    /// In the directory at the path.
    Inside,
    /// Beside it, because it is a checkpoint itself.
    Beside,
}

/// Candidates as rank 0 has found them.
#[derive(Debug, Serialize, Deserialize)]
struct CandidatesOfRank0 {
    place: Place,
    names: Vec<String>,
    notes: Vec<String>,
    /// Reason why there are none.
    problem: Option<RankProblem>,
}

impl CandidatesOfRank0 {
    fn of(group: &Group, path: &Path, found: Result<&LoadCandidates, &OpenError>) -> Self {
        match found {
            Ok(LoadCandidates { dir, names, notes }) => {
                let place = if dir == path { Place::Inside } else { Place::Beside };
                Self { place, names: names.clone(), notes: notes.clone(), problem: None }
            }
            Err(error) => {
                let problem = own_place(group).problem(ProblemKind::Files, error.to_string());
                let (names, notes) = (Vec::new(), Vec::new());
                Self { place: Place::Inside, names, notes, problem: Some(problem) }
            }
        }
    }
}

/// Outcome of one rank.
#[derive(Debug, Serialize, Deserialize)]
enum Outcome {
    Read,
    Damaged(Vec<Damage>),
    Failed(RankProblem),
}

impl Outcome {
    fn of(group: &Group, error: Option<&OpenError>) -> Self {
        match error {
            None => Self::Read,
            Some(OpenError::Damaged { damage, .. }) => Self::Damaged(damage.clone()),
            Some(other) => {
                let place = own_place(group);
                Self::Failed(place.problem(ProblemKind::Files, other.to_string()))
            }
        }
    }
}

/// Outcome of all ranks.
#[derive(Debug, Serialize, Deserialize)]
enum Verdict {
    Loaded,
    Damaged(Vec<Damage>),
    Failed(Vec<RankProblem>),
}

impl Verdict {
    fn of(outcomes: Vec<Outcome>) -> Self {
        let (mut all_damage, mut problems) = (Vec::new(), Vec::new());
        for outcome in outcomes {
            match outcome {
                Outcome::Read => {}
                Outcome::Damaged(damage) => all_damage.extend(damage),
                Outcome::Failed(problem) => problems.push(problem),
            }
        }
        if !problems.is_empty() {
            return Self::Failed(problems);
        }
        if all_damage.is_empty() {
            return Self::Loaded;
        }
        order::sort_by(&mut all_damage, |a: &Damage, b| a.file().cmp(b.file()));
        all_damage.dedup();
        Self::Damaged(all_damage)
    }
}
