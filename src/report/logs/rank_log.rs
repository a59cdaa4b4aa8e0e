//! A file with one worker's output to one stream. Capped files keep their first bytes and their
//! newest bytes; between them is a line with the number of bytes that were left out.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::attempts::{AttemptDir, AttemptPlace};
use super::private_files::{
    create_new_private, create_private, epoch_dir, make_private_dirs, reopen_private,
};
use super::run_dir::{SAME_NAME_MAX, with_disk_timeout};
use crate::base::{Epoch, NodeRank, Rank};
use crate::wire::Stream;

/// The bytes of a stream that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogRetention {
    /// All bytes, without a limit.
    All,
    /// The first `head` and the newest `tail`.
    HeadAndTail {
        /// Bytes of the beginning.
        head: u64,
        /// Bytes of the end.
        tail: u64,
    },
}

impl LogRetention {
    /// 16 MiB for each stream: the first MiB and the newest 15.
    pub const CAPPED: Self = Self::HeadAndTail { head: 1 << 20, tail: 15 << 20 };
}

/// The files of `--enable_each_rank_log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankFiles {
    /// Directory of the files.
    pub directory: PathBuf,
    /// Prefix of the names: the time of the start, with a number if another job has the same time.
    pub stamp: String,
}

impl RankFiles {
    /// Makes the file of the first rank, which no other job has made, in an existing directory. The wait for
    /// the disk is bounded. No thread may exist yet.
    pub fn claim(directory: &Path, time: &str, first: Rank) -> io::Result<Self> {
        let others = (2..=SAME_NAME_MAX).map(|number| format!("{time}-{number}"));
        let mut last_error = io::Error::from(io::ErrorKind::AlreadyExists);
        for stamp in std::iter::once(time.to_owned()).chain(others) {
            let files = Self { directory: directory.to_owned(), stamp };
            match with_disk_timeout(|| create_new_private(&files.path(first)).map(drop)) {
                Ok(()) => return Ok(files),
                Err(error) => last_error = error,
            }
            if last_error.kind() != io::ErrorKind::AlreadyExists {
                break;
            }
        }
        Err(last_error)
    }

    /// The file of a rank.
    pub fn path(&self, rank: Rank) -> PathBuf {
        self.directory.join(format!("{}_rank{rank}.log", self.stamp))
    }

    /// Glob pattern of all files, for messages.
    pub fn pattern(&self) -> PathBuf {
        self.directory.join(format!("{}_rank*.log", self.stamp))
    }
}

/// Where the file of each epoch is.
pub(in crate::report) enum LogPath {
    /// The file of the first epoch; later ones have directories beside it.
    Run(PathBuf),
    /// One file for all epochs.
    Rank(PathBuf),
    /// A stream in torchrun's layout.
    Attempt(AttemptDir, AttemptPlace, Stream),
    /// Chosen lines of a stream of a node, in torchrun's layout.
    Filtered(AttemptDir, NodeRank, Stream),
}

impl LogPath {
    fn of(&self, epoch: Epoch) -> PathBuf {
        match self {
            Self::Run(first) => {
                let directory = first.parent().unwrap_or(Path::new(""));
                epoch_dir(directory, epoch).join(first.file_name().unwrap_or_default())
            }
            Self::Rank(path) => path.clone(),
            Self::Attempt(directory, worker, stream) => directory.stream(epoch, *worker, *stream),
            Self::Filtered(directory, node, stream) => directory.filtered(epoch, *node, *stream),
        }
    }
}

/// The log file, made when the first byte is written.
pub(in crate::report) struct RankLog {
    paths: LogPath,
    path: PathBuf,
    retention: LogRetention,
    file: LogFile,
    /// Number of bytes that were written to it.
    length: u64,
}

/// State of the file of an epoch.
enum LogFile {
    /// Nothing was written yet.
    Missing,
    Open(File),
    /// It exists, and more bytes can be added.
    Closed,
    /// All bytes have their final place.
    Ended,
}

impl RankLog {
    /// Describes a log file without making it.
    pub(in crate::report) fn new(paths: LogPath, keep: LogRetention) -> Self {
        let path = paths.of(Epoch(0));
        Self { paths, path, retention: keep, file: LogFile::Missing, length: 0 }
    }

    /// Starts a file of its own for the next epoch.
    pub(in crate::report) fn begin_epoch(&mut self, epoch: Epoch) {
        self.path = self.paths.of(epoch);
        (self.file, self.length) = (LogFile::Missing, 0);
    }

    /// Whether the file is made at the start, also without output.
    pub(in crate::report) fn exists_from_start(&self) -> bool {
        !matches!(self.paths, LogPath::Run(_))
    }

    /// Whether the file was made, by a write of any length.
    pub(in crate::report) fn is_created(&self) -> bool {
        !matches!(self.file, LogFile::Missing)
    }

    /// Whether the file is open.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.file, LogFile::Open(_))
    }

    /// Closes the file until more bytes are added.
    pub(super) fn close(&mut self) {
        if self.is_open() {
            self.file = LogFile::Closed;
        }
    }

    /// Path of the file, which may not exist yet.
    pub(in crate::report) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds bytes. Once the file is full, the newest bytes overwrite the oldest of the tail.
    pub(in crate::report) fn push(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if !self.is_open() {
            self.file = LogFile::Open(self.open()?);
        }
        let LogFile::Open(file) = &self.file else { unreachable!("it was opened just above") };
        while !bytes.is_empty() {
            let (at, room) = write_position(self.retention, self.length);
            let count = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            file.write_all_at(&bytes[..count], at)?;
            self.length += count as u64;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    fn open(&self) -> io::Result<File> {
        if self.is_created() {
            return reopen_private(&self.path);
        }
        match create_private(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // The first file of a later epoch makes the directory.
                make_private_dirs(self.path.parent().unwrap_or(Path::new("")))?;
                create_private(&self.path)
            }
            created => created,
        }
    }

    /// Puts the tail into order if it wrapped around, and closes the file.
    pub(in crate::report) fn finish(&mut self) -> io::Result<()> {
        if matches!(self.file, LogFile::Missing | LogFile::Ended) {
            return Ok(());
        }
        self.file = LogFile::Ended;
        let LogRetention::HeadAndTail { head, tail } = self.retention else { return Ok(()) };
        if self.length <= head + tail {
            return Ok(());
        }
        let mut ring = vec![0; tail as usize];
        let reopened = File::options().read(true).write(true).open(&self.path)?;
        reopened.read_exact_at(&mut ring, head)?;
        ring.rotate_left(((self.length - head) % tail) as usize);
        let omitted = self.length - head - tail;
        let note = format!("\n[{omitted} bytes left out]\n");
        reopened.write_all_at(note.as_bytes(), head)?;
        reopened.write_all_at(&ring, head + note.len() as u64)
    }
}

/// Position of byte number `length` in the file, and how many bytes fit there in one piece.
fn write_position(keep: LogRetention, length: u64) -> (u64, u64) {
    match keep {
        LogRetention::All => (length, u64::MAX),
        LogRetention::HeadAndTail { head, .. } if length < head => (length, head - length),
        LogRetention::HeadAndTail { head, tail } => {
            let in_ring = (length - head) % tail;
            (head + in_ring, tail - in_ring)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(name: &str, keep: LogRetention) -> RankLog {
        let directory =
            std::env::temp_dir().join(format!("remuda-rank-log-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory for the test");
        RankLog::new(LogPath::Run(directory.join(name)), keep)
    }

    /// Removes the file and its directory, which is the test's own.
    fn remove(file: &Path) {
        let directory = file.parent().expect("the file has a parent");
        std::fs::remove_dir_all(directory).expect("removed");
    }

    #[track_caller]
    fn check(name: &str, pieces: &[&str], expect: &str) {
        let mut log = log(name, LogRetention::HeadAndTail { head: 4, tail: 6 });
        for piece in pieces {
            log.push(piece.as_bytes()).expect("written");
        }
        log.finish().expect("finished");
        assert_eq!(std::fs::read_to_string(log.path()).expect("readable"), expect);
        remove(log.path());
    }

    #[test]
    fn capped_log_keeps_head_and_newest_bytes() {
        check("short", &["abc"], "abc");
        check("full", &["abcd", "efghij"], "abcdefghij");
        check("round", &["abcdefghijklm"], "abcd\n[3 bytes left out]\nhijklm");
        check(
            "pieces",
            &["ab", "cdefg", "hijklmnopqrstu", "v"],
            "abcd\n[12 bytes left out]\nqrstuv",
        );
    }

    #[test]
    fn every_epoch_has_its_own_files() {
        let mut log = log("epochs", LogRetention::All);
        let first = log.path().to_owned();
        log.push(b"0").expect("written");
        for restart in 1..3 {
            log.begin_epoch(Epoch(restart));
            log.push(restart.to_string().as_bytes()).expect("written");
            let directory =
                first.parent().expect("the file has a parent").join(format!("restart{restart}"));
            let text = std::fs::read_to_string(directory.join("epochs")).expect("readable");
            assert_eq!(text, restart.to_string());
        }
        assert_eq!(std::fs::read_to_string(&first).expect("readable"), "0");
        remove(&first);
    }

    #[test]
    fn rank_files_of_one_second_are_two_jobs() {
        let log = log("claimed", LogRetention::All);
        let directory = log.path().parent().expect("the file has a parent");
        let claim = || RankFiles::claim(directory, "20261122173109", Rank(3));
        let names = [(); 3].map(|()| claim().expect("a writable directory").pattern());
        let expect = ["20261122173109", "20261122173109-2", "20261122173109-3"];
        assert_eq!(names, expect.map(|stamp| directory.join(format!("{stamp}_rank*.log"))));
        remove(log.path());
    }

    #[test]
    fn log_without_output_makes_no_file() {
        let mut log = log("nothing", LogRetention::All);
        log.finish().expect("nothing to do");
        assert!(!log.path().exists());
        remove(log.path());
    }
}
