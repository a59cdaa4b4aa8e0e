//! The log files of all ranks. A job may have more of them than a process may open: a bounded number is open at a
//! time.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use super::rank_log::RankLog;
use crate::base::{Epoch, NodeRank, Rank};
use crate::wire::Stream;

/// Log files that are open at a time. If more are needed, the one that was opened first is closed, and opened again
/// when it gets more output.
pub const OPEN_LOGS_MAX: usize = 1024;

/// Key of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::report) enum FileKey {
    /// One stream of a rank.
    Stream(Rank, Stream),
    /// Both streams of a rank.
    Rank(Rank),
    /// Chosen lines of one stream of all ranks of a node.
    Filtered(NodeRank, Stream),
}

pub(super) struct RankLogs {
    logs: BTreeMap<FileKey, RankLog>,
    /// Open files, in the order of their opening.
    open: VecDeque<FileKey>,
    open_max: usize,
}

impl RankLogs {
    pub(super) fn new(logs: BTreeMap<FileKey, RankLog>) -> Self {
        Self { logs, open: VecDeque::new(), open_max: OPEN_LOGS_MAX }
    }

    pub(super) fn get(&self, file: FileKey) -> Option<&RankLog> {
        self.logs.get(&file)
    }

    /// Adds bytes to a file; does nothing if the file was removed.
    pub(super) fn push(&mut self, file: FileKey, bytes: &[u8]) -> io::Result<()> {
        let Some(log) = self.logs.get(&file) else { return Ok(()) };
        if !log.is_open() {
            self.make_room();
            self.open.push_back(file);
        }
        self.logs.get_mut(&file).map_or(Ok(()), |log| log.push(bytes))
    }

    /// Puts the bytes of a file into order, and closes it.
    pub(super) fn finish(&mut self, file: FileKey) -> io::Result<()> {
        self.open.retain(|open| *open != file);
        self.logs.get_mut(&file).map_or(Ok(()), RankLog::finish)
    }

    /// Closes a file for good.
    pub(super) fn remove(&mut self, file: FileKey) {
        self.open.retain(|open| *open != file);
        self.logs.remove(&file);
    }

    /// Starts files of the next epoch; the file of both streams of a rank continues in it.
    pub(super) fn begin_epoch(&mut self, epoch: Epoch) {
        self.open.retain(|open| matches!(open, FileKey::Rank(_)));
        let of_epoch = self.logs.iter_mut().filter(|(key, _)| !matches!(key, FileKey::Rank(_)));
        of_epoch.for_each(|(_, log)| log.begin_epoch(epoch));
    }

    fn make_room(&mut self) {
        while self.open_max <= self.open.len() {
            let first = self.open.pop_front().expect("the limit is not 0");
            if let Some(log) = self.logs.get_mut(&first) {
                log.close();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rank_log::{LogPath, LogRetention};
    use super::*;

    const RANKS: u32 = 7;

    #[test]
    fn files_beyond_the_limit_get_all_their_bytes() {
        let name = format!("remuda-rank-logs-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).expect("a directory for the test");
        let capped = LogRetention::HeadAndTail { head: 2, tail: 4 };
        let keep = |rank| if rank == 0 { capped } else { LogRetention::All };
        let path = |rank: u32| directory.join(format!("rank{rank}"));
        let log =
            |rank| (FileKey::Rank(Rank(rank)), RankLog::new(LogPath::Run(path(rank)), keep(rank)));
        let mut logs = RankLogs { open_max: 3, ..RankLogs::new((0..RANKS).map(log).collect()) };
        for byte in "abcdefgh".bytes() {
            for rank in (0..RANKS).map(Rank) {
                logs.push(FileKey::Rank(rank), &[byte]).expect("written");
                let open = logs.logs.values().filter(|log| log.is_open()).count();
                assert!(open <= 3 && open == logs.open.len(), "{open} files are open");
            }
        }
        for rank in (0..RANKS).map(Rank) {
            logs.finish(FileKey::Rank(rank)).expect("finished");
        }
        assert_eq!(logs.open.len(), 0);
        for rank in 0..RANKS {
            let text = std::fs::read_to_string(path(rank)).expect("readable");
            let all = if rank == 0 { "ab\n[2 bytes left out]\nefgh" } else { "abcdefgh" };
            assert_eq!(text, all, "rank {rank}");
        }
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
