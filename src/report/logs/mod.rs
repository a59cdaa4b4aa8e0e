//! Files of a run: the output of every rank, and the directories that hold it.

mod attempts;
mod disk;
mod ended_sizes;
mod files;
mod log_dir;
mod outer_error_file;
mod private_files;
mod rank_log;
mod rank_logs;
mod retention;
mod run_dir;
mod run_json;
mod saved_run;

pub use attempts::{AttemptDir, AttemptPlace};
pub(super) use files::LogWriter;
pub use log_dir::LogDir;
pub use outer_error_file::write_outer_error_file;
pub use private_files::{epoch_dir, make_private_dir};
pub(super) use rank_log::{LogPath, RankLog};
pub use rank_log::{LogRetention, RankFiles};
pub(super) use rank_logs::FileKey;
pub use rank_logs::OPEN_LOGS_MAX;
pub use retention::RunClass;
pub use run_dir::{RunDir, make_dirs, with_disk_timeout};
pub use saved_run::SavedRun;
