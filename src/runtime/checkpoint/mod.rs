//! Checkpoints of a run on any number of ranks: a directory with a file of every rank and an index.
//!
//! ```text
//! run/latest                              names the newest complete checkpoint
//! run/step-00000012/index.json            tensors: type, shape, and where their pieces are; digests; state
//! run/step-00000012/rank-00000.safetensors   pieces of rank 0
//! ```
//!
//! A checkpoint is complete or absent: it is written beside, synced, and renamed. Because the index speaks of
//! tensors and not of ranks, a checkpoint is read by any number of ranks, and every byte that is read is
//! checked by a digest.
//!
//! | file | contents |
//! |---|---|
//! | `writer`, `settings`, `save`, `commit`, `durable`, `space` | saving: interface, settings, protocol of the ranks, files; full disks |
//! | `reader`, `block_read`, `files`, `threads`, `load`, `verify` | reading: interface, blocks, files, threads, loading by a group, verification |
//! | `directory`, `newest`, `lock`, `probe` | checkpoints of a directory; the newest undamaged one; lock; whether all ranks share it |
//! | `index`, `assemble`, `shard`, `names`, `digest`, `tensor`, `state` | the format, as functions of data |
//! | `single_file` | checkpoints of earlier builds |
//! | `export` | files for other programs |

mod agree;
mod assemble;
mod block_read;
mod commit;
mod digest;
mod directory;
mod durable;
mod error;
mod export;
mod files;
mod index;
mod load;
mod lock;
mod names;
mod newest;
mod probe;
mod reader;
mod save;
mod settings;
mod shard;
mod single_file;
mod space;
mod state;
mod tensor;
mod threads;
mod verify;
mod writer;

pub use commit::{last_of_job, record_job};
pub use directory::{LoadChoice, is_checkpoint};
pub use error::{Damage, OpenError, ProblemKind, RankPlace, RankProblem, SaveError};
pub use export::{
    ExportError, ExportOptions, ExportReport, ExportTarget, ExportedTensor, FloatType,
    export_checkpoint,
};
pub use load::{LoadedCheckpoint, load_checkpoint, open_newest};
pub use lock::{DirectoryInUse, DirectoryLock};
pub use names::{split_tensor, state_tensor};
pub use newest::{CheckedBytes, NewestCheckpoint, newest_undamaged};
pub use probe::check_shared_directory;
pub use reader::{CheckpointReader, SavedFile, TensorRead};
pub use save::SaveReport;
pub use settings::{SaveStage, StageObserver};
pub use space::DiskSpace;
pub use state::{DataPosition, Division, SavedState};
pub use tensor::{TensorInfo, TensorPiece};
pub use verify::{list_checkpoints, verify_checkpoint};
pub use writer::{CheckpointWriter, SAVE_TIMEOUT, StartedSave, WriterOptions, Writers};
