//! One save, as every rank runs it.
//!
//! 1. Rank 0 creates a directory beside the checkpoints.
//! 2. Every rank writes its file there and syncs it.
//! 3. Rank 0 receives what the ranks have written, writes the index, and gives the directory its name.
//!
//! After each part all ranks get the same outcome, so that none waits for one that has failed.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::clock;
use crate::os::files::disk_space::free_bytes;
use crate::runtime::checkpoint::agree::{broadcast, collect, own_place, place_of};
use crate::runtime::checkpoint::assemble::{Contribution, assemble};
use crate::runtime::checkpoint::commit::{
    CheckpointDraft, FileError, Pruned, failed, new_token, older_bytes, prune, record_job,
};
use crate::runtime::checkpoint::durable::write_shard;
use crate::runtime::checkpoint::error::{ProblemKind, RankPlace, RankProblem, SaveError};
use crate::runtime::checkpoint::names::{JOB, shard_name};
use crate::runtime::checkpoint::settings::{SaveSettings, SaveStage};
use crate::runtime::checkpoint::shard::ShardContent;
use crate::runtime::checkpoint::space::{DiskSpace, on_disk};
use crate::runtime::checkpoint::state::SavedState;
use crate::runtime::checkpoint::tensor::TensorPiece;
use crate::runtime::comm::group::Group;

/// Result of a save; equal on all ranks, except for the duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveReport {
    /// Path of the checkpoint.
    pub path: PathBuf,
    /// Number of completed steps.
    pub step: u64,
    /// Size of all files in bytes.
    pub bytes: u64,
    /// Older checkpoints that were removed.
    pub removed: Vec<PathBuf>,
    /// Older checkpoints that could not be removed, with the reasons.
    pub not_removed: Vec<(PathBuf, String)>,
    /// Time from the begin of the writing to the end.
    pub duration: Duration,
}

/// What rank 0 tells the others at the end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Completed {
    bytes: u64,
    pruned: Pruned,
}

/// Outcome of a part of a save, equal on all ranks.
type Verdict<T> = Result<T, Refusal>;

/// Why a part of a save has failed.
#[derive(Debug, Serialize, Deserialize)]
struct Refusal {
    problems: Vec<RankProblem>,
    /// Size of the files of all ranks, if it is known.
    needed: Option<u64>,
    space: Option<Box<DiskSpace>>,
}

impl Refusal {
    fn new(problems: Vec<RankProblem>, needed: Option<u64>) -> Self {
        Self { problems, needed, space: None }
    }

    /// Removes the files of the draft, before the other ranks learn of the failure, so that they find the directory as it
    /// was. Then looks at the disk, if it is full.
    fn abandon(self, draft: &CheckpointDraft, settings: &SaveSettings) -> Self {
        draft.abandon();
        if self.problems.iter().all(|problem| problem.kind != ProblemKind::NoSpace) {
            return self;
        }
        let (dir, keep) = (draft.dir.clone(), settings.keep);
        let (free, older) = (free_bytes(&dir), older_bytes(&dir));
        let space = DiskSpace { dir, needed: self.needed, free, keep, older };
        Self { space: Some(Box::new(space)), ..self }
    }
}

/// A rank has not written its file.
#[derive(Debug, Serialize, Deserialize)]
struct NotWritten {
    problem: RankProblem,
    /// Size that the file would have; `None`: it was not known yet.
    bytes: Option<u64>,
}

/// State of a run as one rank saves it.
pub(super) struct SaveInput<'a> {
    pub(super) state: &'a SavedState,
    /// This rank's pieces, or the reason why it has none.
    pub(super) pieces: Result<&'a [TensorPiece<'a>], RankProblem>,
}

/// Saves a checkpoint; all ranks of the group call it.
pub(super) fn save(
    group: &Group,
    settings: &SaveSettings,
    input: &SaveInput<'_>,
) -> Result<SaveReport, SaveError> {
    let begin = clock::now();
    let is_first = group.rank() == 0;
    let (dir, step) = (settings.dir.clone(), input.state.step);
    let mut draft = CheckpointDraft { dir, step, token: new_token() };
    let path = draft.complete_path();
    let refused =
        |Refusal { problems, space, .. }| SaveError::Failed { path: path.clone(), problems, space };
    let begun: Option<Verdict<u64>> = is_first.then(|| {
        let made = draft.begin(settings.is_locked).map(|()| draft.token);
        made.map_err(|error| {
            let problems = vec![of_file(&own_place(group), &error)];
            Refusal::new(problems, None).abandon(&draft, settings)
        })
    });
    draft.token = broadcast(group, begun.as_ref())?.map_err(refused)?;
    settings.on_stage(SaveStage::Begun);

    let written = write_own(group, settings, &draft, input);
    let outcome = collect(group, &written).and_then(|all| {
        let completed: Option<Verdict<Completed>> = is_first.then(|| {
            let completed = complete(group, settings, &draft, input.state, all);
            completed.map_err(|refusal| refusal.abandon(&draft, settings))
        });
        broadcast(group, completed.as_ref())
    });
    if is_first && outcome.is_err() {
        draft.abandon();
    }
    let Completed { bytes, pruned } = outcome?.map_err(refused)?;
    let removed = pruned.removed.iter().map(|name| draft.dir.join(name)).collect();
    let kept = pruned.kept.into_iter();
    let not_removed = kept.map(|(name, reason)| (draft.dir.join(name), reason)).collect();
    let duration = clock::now() - begin;
    Ok(SaveReport { path, step, bytes, removed, not_removed, duration })
}

fn of_file(place: &RankPlace, error: &FileError) -> RankProblem {
    RankProblem::of_file(place, &error.text, &error.source)
}

/// Writes the file of this rank.
fn write_own(
    group: &Group,
    settings: &SaveSettings,
    draft: &CheckpointDraft,
    input: &SaveInput<'_>,
) -> Result<Contribution, NotWritten> {
    let (place, rank) = (own_place(group), group.rank());
    let unknown = |problem| NotWritten { problem, bytes: None };
    let pieces = input.pieces.clone().map_err(unknown)?;
    for piece in pieces {
        let problem = |text| unknown(place.problem(ProblemKind::Pieces, text));
        piece.check().map_err(problem)?;
    }
    let content = ShardContent::new(input.state, rank, pieces);
    if content.pieces.is_empty() {
        settings.on_stage(SaveStage::Written);
        settings.on_stage(SaveStage::Synced);
        return Ok(Contribution::new(input.state, pieces, None));
    }
    let path = draft.path().join(shard_name(rank));
    let write = || {
        let (file, digests) = write_shard(&path, &content.parts(), settings.block_bytes)
            .map_err(failed("write", &path))?;
        settings.on_stage(SaveStage::Written);
        // Some disks report only now that they are full.
        file.sync_all().map_err(failed("write", &path))?;
        settings.on_stage(SaveStage::Synced);
        Ok(digests)
    };
    let digests = write().map_err(|error| NotWritten {
        problem: of_file(&place, &error),
        bytes: Some(content.bytes()),
    })?;
    Ok(Contribution::new(input.state, pieces, Some((&content, &digests))))
}

/// Completes the checkpoint on rank 0.
fn complete(
    group: &Group,
    settings: &SaveSettings,
    draft: &CheckpointDraft,
    state: &SavedState,
    written: Vec<Result<Contribution, NotWritten>>,
) -> Verdict<Completed> {
    let (mut contributions, mut problems) = (Vec::new(), Vec::new());
    // Its index takes a block at least.
    let mut needed = Some(on_disk(1));
    for written in written {
        let bytes = match written {
            Ok(contribution) => {
                let bytes = contribution.bytes;
                contributions.push(contribution);
                Some(bytes)
            }
            Err(NotWritten { problem, bytes }) => {
                problems.push(problem);
                bytes
            }
        };
        needed = needed.zip(bytes).map(|(sum, bytes)| sum + on_disk(bytes));
    }
    if !problems.is_empty() {
        return Err(Refusal::new(problems, needed));
    }
    let index = assemble(state, settings.block_bytes, &contributions).map_err(|problems| {
        let named = |problem: RankProblem| {
            place_of(group, problem.rank.index()).problem(problem.kind, problem.text)
        };
        Refusal::new(problems.into_iter().map(named).collect(), needed)
    })?;
    let place = own_place(group);
    let on_disk = |error: FileError| Refusal::new(vec![of_file(&place, &error)], needed);
    draft.check_files(&index).map_err(on_disk)?;
    draft.complete(&index, &|stage| settings.on_stage(stage)).map_err(on_disk)?;
    if let Some(job) = &settings.job {
        let file = draft.dir.join(JOB);
        record_job(&draft.dir, draft.step, job).map_err(failed("write", &file)).map_err(on_disk)?;
    }
    let keep = settings.keep;
    let pruned = keep.map_or_else(Pruned::default, |keep| prune(&draft.dir, draft.step, keep));
    settings.on_stage(SaveStage::Pruned);
    let bytes = index.files.iter().map(|file| file.bytes).sum();
    Ok(Completed { bytes, pruned })
}
