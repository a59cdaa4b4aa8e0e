//! [`CheckpointWriter`]: saves checkpoints, at once or beside the training.

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::clock;
use crate::runtime::checkpoint::agree::{broadcast, own_place};
use crate::runtime::checkpoint::commit::prune;
use crate::runtime::checkpoint::digest::BLOCK_BYTES;
use crate::runtime::checkpoint::error::{ProblemKind, RankProblem, SaveError};
use crate::runtime::checkpoint::lock::DirectoryLock;
use crate::runtime::checkpoint::probe::check_shared_directory;
use crate::runtime::checkpoint::save::{SaveInput, SaveReport, save};
use crate::runtime::checkpoint::settings::{SaveSettings, StageObserver};
use crate::runtime::checkpoint::state::SavedState;
use crate::runtime::checkpoint::tensor::{TensorInfo, TensorPiece};
use crate::runtime::comm::core::options::InitOptions;
use crate::runtime::comm::group::Group;

/// Default deadline of the operations of a save. A rank waits in them for the slowest disk.
pub const SAVE_TIMEOUT: Duration = Duration::from_secs(3600);

/// Options of a writer.
#[derive(Default)]
pub struct WriterOptions {
    /// Number of checkpoints to keep; `None`: all. Checkpoints of later steps belong to another run and are
    /// kept.
    pub keep: Option<NonZeroUsize>,
    /// Ranks that write.
    pub writers: Writers,
    /// Job of which every checkpoint is recorded as the last one, for its restarts.
    pub job: Option<String>,
    /// Lock of the directory, if rank 0 already has it; else the writer locks it.
    pub lock: Option<DirectoryLock>,
    /// Deadline of the operations of a save; `None`: [`SAVE_TIMEOUT`].
    pub timeout: Option<Duration>,
    /// Size in bytes of the parts of a file that have digests of their own; `None`: 4 MiB.
    pub block_bytes: Option<u64>,
    /// Called by every rank at every stage of a save that it reaches.
    pub on_stage: Option<Arc<StageObserver>>,
}

/// Ranks that write files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writers {
    /// Every rank that has pieces; they must share the directory.
    #[default]
    AllRanks,
    /// Rank 0 alone has pieces; the others need not have the directory.
    FirstRank,
}

/// Writer of the checkpoints of a run, in one directory; every rank holds one.
///
/// Every rank writes its pieces into a file of its own. A checkpoint is a directory that appears at once, when
/// all files are on the disk: if a rank fails, the disk is full, or a process is killed at any moment, the
/// earlier checkpoints remain as they are, and what was written is removed by the next save.
///
/// All ranks of the group call [`Self::new`], [`Self::save`] and [`Self::start_save`] in the same order; the
/// other methods do not communicate. Saves use a group of their own, so operations of the group of the training
/// can run at the same time.
pub struct CheckpointWriter {
    /// A group of its own, split from that of the training.
    group: Group,
    settings: Arc<SaveSettings>,
    /// Held by rank 0 as long as the writer lives.
    #[expect(dead_code, reason = "its drop releases the lock")]
    lock: Option<DirectoryLock>,
    running: Option<JoinHandle<(Snapshot, Result<SaveReport, SaveError>)>>,
    /// Copy of the last save; its memory is used again.
    snapshot: Snapshot,
    outcomes: Vec<Result<SaveReport, SaveError>>,
}

/// A save that has been started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartedSave {
    /// Number of bytes that this rank has copied.
    pub bytes: u64,
    /// Time for which the call waited for the save before.
    pub waited: Duration,
    /// Time for which the call copied.
    pub copied: Duration,
}

/// Outcome of the claim of rank 0.
#[derive(Serialize, Deserialize)]
enum Claim {
    Held { is_locked: bool },
    InUse,
    Failed(RankProblem),
}

impl CheckpointWriter {
    /// Creates a writer; all ranks of the group call it. Creates and locks the directory, and checks that all
    /// ranks share it.
    ///
    /// # Errors
    /// Equal on all ranks: if another run has locked the directory, a rank cannot write in it, or ranks have
    /// another one.
    pub fn new(group: &Group, dir: &Path, options: WriterOptions) -> Result<Self, SaveError> {
        let timeout = options.timeout.unwrap_or(SAVE_TIMEOUT);
        let own = InitOptions { timeout, ..InitOptions::default() };
        let group = group.split_with(0, group.rank(), &own)?.expect("all ranks have a color");
        let mut lock = options.lock;
        let claimed = (group.rank() == 0).then(|| claim(&group, dir, &mut lock));
        let is_locked = match broadcast(&group, claimed.as_ref())? {
            Claim::Held { is_locked } => is_locked,
            Claim::InUse => return Err(SaveError::InUse { dir: dir.to_owned() }),
            Claim::Failed(problem) => {
                let (path, problems) = (dir.to_owned(), vec![problem]);
                return Err(SaveError::Failed { path, problems, space: None });
            }
        };
        if options.writers == Writers::AllRanks {
            check_shared_directory(&group, dir)?;
        }
        let settings = SaveSettings {
            dir: dir.to_owned(),
            is_locked,
            keep: options.keep,
            job: options.job,
            block_bytes: options.block_bytes.unwrap_or(BLOCK_BYTES).max(1),
            observer: options.on_stage,
        };
        Ok(Self {
            group,
            settings: Arc::new(settings),
            lock,
            running: None,
            snapshot: Snapshot::default(),
            outcomes: Vec::new(),
        })
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.settings.dir
    }

    /// Saves a checkpoint, and waits until it is complete. Values are written from where they are. A save that
    /// was started before is finished first; [`Self::poll`] returns its outcome.
    ///
    /// # Errors
    /// Equal on all ranks, unless the group fails.
    pub fn save(
        &mut self,
        state: &SavedState,
        pieces: &[TensorPiece<'_>],
    ) -> Result<SaveReport, SaveError> {
        self.wait();
        save(&self.group, &self.settings, &SaveInput { state, pieces: Ok(pieces) })
    }

    /// Copies the state, and saves it on a thread. A save that was started before is finished first.
    ///
    /// The outcome is returned by [`Self::poll`] and [`Self::finish`].
    pub fn start_save(&mut self, state: &SavedState, pieces: &[TensorPiece<'_>]) -> StartedSave {
        let begin = clock::now();
        self.wait();
        let waited = clock::now() - begin;
        let mut snapshot = std::mem::take(&mut self.snapshot);
        let taken = snapshot.take(state, pieces).map_err(|text| {
            // Reported by the thread, so that all ranks learn of it.
            own_place(&self.group).problem(ProblemKind::Memory, text)
        });
        let started = StartedSave {
            bytes: snapshot.bytes.len() as u64,
            waited,
            copied: (clock::now() - begin).saturating_sub(waited),
        };
        let (group, settings) = (self.group.clone(), self.settings.clone());
        // Holds one snapshot, once the thread exists.
        let (sender, receiver) = mpsc::channel::<(Snapshot, Result<(), RankProblem>)>();
        let body = move || {
            let (snapshot, taken) = receiver.recv().expect("it is sent when the thread exists");
            let outcome = snapshot.save(&group, &settings, taken);
            (snapshot, outcome)
        };
        if let Ok(thread) = thread::Builder::new().name("remuda-save".to_owned()).spawn(body) {
            sender.send((snapshot, taken)).expect("the thread waits for it");
            self.running = Some(thread);
        } else {
            // There are no more threads: this one writes.
            self.outcomes.push(snapshot.save(&self.group, &self.settings, taken));
            self.snapshot = snapshot;
        }
        started
    }

    /// Removes the oldest checkpoints so that as many remain as [`WriterOptions::keep`] says. Called after `loaded`, the
    /// checkpoint of this step, was read without damage: it stays, whatever the later ones are. Returns those that could
    /// not be removed, with the reasons. Without this, old checkpoints are removed only after the next save, for which the
    /// disk may have no room.
    pub fn prune_before(&self, loaded: &Path, step: u64) -> Vec<(PathBuf, String)> {
        let SaveSettings { dir, keep, .. } = &*self.settings;
        let real = |dir: &Path| dir.canonicalize().ok();
        let is_here = real(dir).is_some() && loaded.parent().and_then(real) == real(dir);
        let Some(keep) = keep.filter(|_| is_here && self.group.rank() == 0) else {
            return Vec::new();
        };
        let kept = prune(dir, step, keep).kept.into_iter();
        kept.map(|(name, why)| (dir.join(name), why)).collect()
    }

    /// Returns the outcomes of started saves that are complete, and were not returned before.
    pub fn poll(&mut self) -> Vec<Result<SaveReport, SaveError>> {
        if self.running.as_ref().is_some_and(JoinHandle::is_finished) {
            self.wait();
        }
        std::mem::take(&mut self.outcomes)
    }

    /// Waits for the save that was started last; returns the outcomes that were not returned before.
    pub fn finish(&mut self) -> Vec<Result<SaveReport, SaveError>> {
        self.wait();
        std::mem::take(&mut self.outcomes)
    }

    fn wait(&mut self) {
        if let Some(thread) = self.running.take() {
            let (snapshot, outcome) = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            self.snapshot = snapshot;
            self.outcomes.push(outcome);
        }
    }
}

impl Drop for CheckpointWriter {
    /// Finishes a save that was started.
    fn drop(&mut self) {
        if let Some(thread) = self.running.take() {
            // A panic of the thread has been reported by its hook.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for CheckpointWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CheckpointWriter({})", self.settings.dir.display())
    }
}

/// Creates the directory and locks it, unless the lock is already held.
fn claim(group: &Group, dir: &Path, lock: &mut Option<DirectoryLock>) -> Claim {
    if let Err(error) = std::fs::create_dir_all(dir) {
        return Claim::Failed(RankProblem::of_directory(&own_place(group), dir, &error));
    }
    if lock.is_none() {
        match DirectoryLock::claim(dir) {
            Ok(claimed) => *lock = Some(claimed),
            Err(_) => return Claim::InUse,
        }
    }
    Claim::Held { is_locked: lock.as_ref().is_some_and(DirectoryLock::is_held) }
}

/// Copy of a rank's state.
#[derive(Default)]
struct Snapshot {
    state: SavedState,
    pieces: Vec<CopiedPiece>,
    bytes: Vec<u8>,
}

struct CopiedPiece {
    tensor: TensorInfo,
    range: Range<usize>,
    /// Place of the values in the copy.
    place: Range<usize>,
}

impl Snapshot {
    /// Copies a state; an error says why it cannot.
    fn take(&mut self, state: &SavedState, pieces: &[TensorPiece<'_>]) -> Result<(), String> {
        let total = pieces.iter().map(|piece| piece.bytes.len()).sum();
        self.pieces.clear();
        self.bytes.clear();
        self.state = state.clone();
        if self.bytes.try_reserve_exact(total).is_err() {
            return Err(format!("there is no memory for a copy of {total} bytes"));
        }
        for piece in pieces {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(piece.bytes);
            self.pieces.push(CopiedPiece {
                tensor: piece.tensor.clone(),
                range: piece.range.clone(),
                place: start..self.bytes.len(),
            });
        }
        Ok(())
    }

    fn save(
        &self,
        group: &Group,
        settings: &SaveSettings,
        taken: Result<(), RankProblem>,
    ) -> Result<SaveReport, SaveError> {
        let piece = |copied: &'_ CopiedPiece| TensorPiece {
            tensor: copied.tensor.clone(),
            range: copied.range.clone(),
            bytes: &self.bytes[copied.place.clone()],
        };
        let pieces: Vec<_> = self.pieces.iter().map(piece).collect();
        let pieces = taken.map(|()| &pieces[..]);
        save(group, settings, &SaveInput { state: &self.state, pieces })
    }
}
