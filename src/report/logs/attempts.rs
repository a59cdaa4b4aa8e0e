//! Log files in torchrun's layout, `DIR/ID_NAME/attempt_N/LOCAL_RANK/stdout.log`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::disk::Disk;
use super::private_files::create_private;
use super::run_dir::{make_dirs, make_unique};
use crate::base::{Epoch, LocalRank, NodeRank};
use crate::wire::Stream;

/// Longest wait for the disk.
const STALL_LIMIT: Duration = Duration::from_secs(1);

/// A worker among the files of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptPlace {
    /// Node of the worker.
    pub node: NodeRank,
    /// Rank of the worker on its node.
    pub local_rank: LocalRank,
}

/// The directory of a job in which every start of the workers has a directory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptDir {
    root: PathBuf,
    /// Whether the files of each node are in a directory of their own, because the files of all
    /// nodes are here.
    has_nodes: bool,
    /// Whether the directory belongs to the run, which keeps its error files elsewhere.
    is_of_run: bool,
}

impl AttemptDir {
    /// Describes files in the directory of the run.
    pub fn of_run(root: PathBuf, has_nodes: bool) -> Self {
        Self { root, has_nodes, is_of_run: true }
    }

    /// Makes `PARENT/NAME` and its parents; if another job has made it, `PARENT/NAME-2` and so on. No thread may
    /// exist yet.
    pub fn create(parent: &Path, name: &str, has_nodes: bool) -> io::Result<Self> {
        make_dirs(parent, 0o777)?;
        let root = make_unique(parent, name, 0o777)?;
        Ok(Self { root, has_nodes, is_of_run: false })
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Removes the empty directory of a job that never began.
    pub fn discard(&self) {
        if self.is_of_run {
            return;
        }
        let root = self.root.clone();
        let _ = Disk::default().run(STALL_LIMIT, move || fs::remove_dir(root));
    }

    /// File of a stream of a worker.
    pub(in crate::report) fn stream(
        &self,
        epoch: Epoch,
        place: AttemptPlace,
        stream: Stream,
    ) -> PathBuf {
        self.worker(epoch, place).join(format!("{stream}.log"))
    }

    fn worker(&self, epoch: Epoch, place: AttemptPlace) -> PathBuf {
        self.attempt(epoch, place.node).join(place.local_rank.to_string())
    }

    /// File of chosen lines of a stream of all workers of a node.
    pub(in crate::report) fn filtered(
        &self,
        epoch: Epoch,
        node: NodeRank,
        stream: Stream,
    ) -> PathBuf {
        self.attempt(epoch, node).join(format!("filtered_{stream}.log"))
    }

    fn attempt(&self, epoch: Epoch, node: NodeRank) -> PathBuf {
        let root =
            if self.has_nodes { self.root.join(format!("node_{node}")) } else { self.root.clone() };
        root.join(format!("attempt_{epoch}"))
    }

    /// Keeps copies of the error files of an epoch, `error.json` beside the logs of each worker, as
    /// many as the disk accepts in time.
    pub fn keep_error_files(&self, epoch: Epoch, files: Vec<(AttemptPlace, Vec<u8>)>) {
        if self.is_of_run {
            return;
        }
        let own = self.clone();
        let _ = Disk::default().run(STALL_LIMIT, move || {
            for (place, bytes) in files {
                let directory = own.worker(epoch, place);
                fs::create_dir_all(&directory)?;
                create_private(&directory.join("error.json"))?.write_all(&bytes)?;
            }
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jobs with one rendezvous id have one name.
    #[test]
    fn two_jobs_of_one_name_have_two_directories() {
        let name = format!("remuda-attempts-{}", std::process::id());
        let parent = std::env::temp_dir().join(name);
        let create = || AttemptDir::create(&parent, "7_job", false).expect("a writable directory");
        let paths = [(); 2].map(|()| create().path().to_owned());
        assert_eq!(paths, ["7_job", "7_job-2"].map(|name| parent.join(name)));
        fs::remove_dir_all(parent).expect("removed");
    }
}
