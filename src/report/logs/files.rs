//! Writes the workers' output to files, on a thread of its own, so that a disk that hangs delays
//! neither screens nor workers.
//!
//! A slow disk delays output as a slow screen does: the queue is bounded, and a full queue makes
//! the sender wait. If the disk has accepted nothing for a second, further output is left out,
//! counted and reported, and the file contains a line where bytes are missing: a worker must not wait
//! for its log.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use super::rank_log::RankLog;
use super::rank_logs::{FileKey, RankLogs};
use crate::base::{Epoch, clock};
use crate::report::monitor::Monitor;

/// Most bytes in the queue; each piece counts as [`TASK_OVERHEAD_BYTES`] more than it has.
const QUEUED_BYTES_MAX: usize = 8 << 20;
const TASK_OVERHEAD_BYTES: usize = 64;
/// Time without progress after which senders do not wait for the disk.
const STALL_LIMIT: Duration = Duration::from_secs(1);
/// Time without progress after which a warning is printed, also if no bytes are lost yet.
const STALL_WARNING: Duration = Duration::from_secs(5);

/// Handle of the thread. Dropping it does not wait, [`LogWriter::finish`] does.
pub(in crate::report) struct LogWriter {
    shared: Arc<Shared>,
    /// Whether the current stall of the disk was reported.
    stall_reported: bool,
}

type Shared = Monitor<State>;

struct State {
    queue: VecDeque<Task>,
    queued_bytes: usize,
    is_busy: bool,
    /// When the disk last accepted bytes, or had none to write.
    last_progress: Instant,
    /// Bytes that were left out of each file and are not yet mentioned in it.
    gaps: BTreeMap<FileKey, u64>,
    /// Number of all bytes that were left out.
    omitted_bytes: u64,
    /// Files that exist.
    created: BTreeMap<FileKey, PathBuf>,
    /// The first write error, until it is reported.
    error: Option<String>,
    /// Whether a write has failed.
    has_failed: bool,
}

enum Task {
    Write(FileKey, Vec<u8>),
    /// This number of bytes is missing here.
    Gap(FileKey, u64),
    End(FileKey),
    BeginEpoch(Epoch),
}

impl LogWriter {
    /// Starts the thread that owns the files.
    pub(in crate::report) fn start(logs: BTreeMap<FileKey, RankLog>) -> Self {
        let state = State {
            queue: VecDeque::new(),
            queued_bytes: 0,
            is_busy: false,
            last_progress: clock::now(),
            gaps: BTreeMap::new(),
            omitted_bytes: 0,
            created: BTreeMap::new(),
            error: None,
            has_failed: false,
        };
        let shared = Arc::new(Shared::new(state));
        let writer = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("files".to_owned());
        if let Err(why) = thread.spawn(move || writer.run(RankLogs::new(logs))) {
            shared
                .lock()
                .record_error(format!("cannot start the thread that writes log files: {why}"));
        }
        Self { shared, stall_reported: false }
    }

    /// Adds bytes to a file. The first call makes the file, even without bytes.
    pub(in crate::report) fn write(&self, file: FileKey, bytes: Vec<u8>) {
        let Some(mut state) = self.shared.wait_for_room() else {
            let mut state = self.shared.lock();
            *state.gaps.entry(file).or_default() += bytes.len() as u64;
            state.omitted_bytes += bytes.len() as u64;
            return;
        };
        state.queue_gap(file);
        self.shared.add(state, Task::Write(file, bytes));
    }

    /// Ends a file.
    pub(in crate::report) fn end(&self, file: FileKey) {
        let mut state = self.shared.lock();
        state.queue_gap(file);
        self.shared.add(state, Task::End(file));
    }

    /// Starts an epoch: further output is of restarted workers, which have files of their own.
    pub(in crate::report) fn begin_epoch(&self, epoch: Epoch) {
        self.shared.add(self.shared.lock(), Task::BeginEpoch(epoch));
    }

    /// Path of a file that has been made.
    pub(in crate::report) fn path(&self, file: FileKey) -> Option<PathBuf> {
        self.shared.lock().created.get(&file).cloned()
    }

    /// When [`Self::take_messages`] should be called.
    pub(in crate::report) fn due(&self) -> Option<Instant> {
        let state = self.shared.lock();
        (!state.is_idle() && !self.stall_reported).then(|| state.last_progress + STALL_WARNING)
    }

    /// Messages about the files, each returned once.
    pub(in crate::report) fn take_messages(&mut self) -> Vec<String> {
        let mut state = self.shared.lock();
        let mut messages: Vec<_> = state.error.take().into_iter().collect();
        let idle = clock::now().saturating_duration_since(state.last_progress);
        let limit = if state.gaps.is_empty() { STALL_WARNING } else { STALL_LIMIT };
        let is_stalled = !state.is_idle() && limit <= idle;
        if is_stalled && !self.stall_reported {
            messages.push(
                "cannot write log files (disk not responding); workers continue, and their log files \
                 may be incomplete"
                    .to_owned(),
            );
        }
        self.stall_reported = is_stalled;
        messages
    }

    /// Waits until everything is written, as long as the disk makes progress; returns messages
    /// about missing bytes.
    pub(in crate::report) fn finish(&mut self) -> Vec<String> {
        let mut state = self.shared.lock();
        while !state.is_idle() {
            let remaining =
                (state.last_progress + STALL_LIMIT).saturating_duration_since(clock::now());
            if remaining.is_zero() {
                break;
            }
            state = self.shared.wait(state, remaining);
        }
        let unwritten: usize = state.queue.iter().map(Task::bytes).sum();
        state.omitted_bytes += unwritten as u64;
        state.queue.clear();
        state.queued_bytes = 0;
        let missing = std::mem::take(&mut state.omitted_bytes);
        drop(state);
        let mut messages = self.take_messages();
        if 0 < missing {
            messages.push(format!(
                "{missing} bytes are missing in the log files: the disk did not respond"
            ));
        }
        messages
    }
}

impl Shared {
    /// Waits for room in the queue; `None` if the disk has stalled.
    fn wait_for_room(&self) -> Option<MutexGuard<'_, State>> {
        let mut state = self.lock();
        while QUEUED_BYTES_MAX <= state.queued_bytes {
            let remaining =
                (state.last_progress + STALL_LIMIT).saturating_duration_since(clock::now());
            if remaining.is_zero() {
                return None;
            }
            state = self.wait(state, remaining);
        }
        Some(state)
    }

    fn add(&self, mut state: MutexGuard<'_, State>, task: Task) {
        // A disk that had nothing to write has not stalled.
        if state.is_idle() {
            state.last_progress = clock::now();
        }
        state.queued_bytes += task.cost();
        state.queue.push_back(task);
        drop(state);
        self.notify_all();
    }

    fn run(&self, mut logs: RankLogs) {
        loop {
            let task = self.next();
            let file = task.file();
            let result = perform(&mut logs, task);
            let mut state = self.lock();
            (state.is_busy, state.last_progress) = (false, clock::now());
            if let Some(file) = file {
                state.record_result(file, &mut logs, result);
            } else {
                state.created.clear();
            }
            drop(state);
            self.notify_all();
        }
    }

    fn next(&self) -> Task {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.queue.pop_front() {
                state.queued_bytes -= task.cost();
                (state.is_busy, state.last_progress) = (true, clock::now());
                return task;
            }
            state = self.wait_for_change(state);
        }
    }
}

/// Performs a task, which may block on the disk.
fn perform(logs: &mut RankLogs, task: Task) -> std::io::Result<()> {
    match task {
        Task::Write(file, bytes) => logs.push(file, &bytes),
        Task::Gap(file, bytes) => {
            let note = format!("\n[{bytes} bytes left out: the disk did not respond]\n");
            logs.push(file, note.as_bytes())
        }
        Task::End(file) => logs.finish(file),
        Task::BeginEpoch(epoch) => {
            logs.begin_epoch(epoch);
            Ok(())
        }
    }
}

impl Task {
    /// Size of the task in the queue.
    fn cost(&self) -> usize {
        self.bytes() + TASK_OVERHEAD_BYTES
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Write(_, bytes) => bytes.len(),
            Self::Gap(..) | Self::End(_) | Self::BeginEpoch(_) => 0,
        }
    }

    fn file(&self) -> Option<FileKey> {
        match self {
            Self::Write(file, _) | Self::Gap(file, _) | Self::End(file) => Some(*file),
            Self::BeginEpoch(_) => None,
        }
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.is_busy
    }

    /// Queues the mark of a gap before the bytes that follow it.
    fn queue_gap(&mut self, file: FileKey) {
        if let Some(bytes) = self.gaps.remove(&file) {
            let task = Task::Gap(file, bytes);
            self.queued_bytes += task.cost();
            self.queue.push_back(task);
        }
    }

    /// Records the result of a task; a file that cannot be written is abandoned.
    fn record_result(&mut self, file: FileKey, logs: &mut RankLogs, result: std::io::Result<()>) {
        let Some(log) = logs.get(file) else { return };
        match result {
            Ok(()) if log.is_created() => {
                self.created.entry(file).or_insert_with(|| log.path().to_owned());
            }
            Ok(()) => {}
            Err(why) => {
                self.record_error(format!("cannot write `{}`: {why}", log.path().display()));
                logs.remove(file);
            }
        }
    }

    /// Keeps only the first error: the others usually have the same reason.
    fn record_error(&mut self, why: String) {
        if !std::mem::replace(&mut self.has_failed, true) {
            self.error = Some(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rank_log::{LogPath, LogRetention};
    use super::*;
    use crate::base::Rank;
    use crate::wire::Stream;

    const FILE: FileKey = FileKey::Stream(Rank(0), Stream::Stdout);

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let directory =
                std::env::temp_dir().join(format!("remuda-files-{}-{name}", std::process::id()));
            std::fs::create_dir(&directory).expect("a directory for the test");
            Self(directory)
        }

        fn files(&self) -> LogWriter {
            LogWriter::start(
                [(FILE, RankLog::new(LogPath::Run(self.path()), LogRetention::All))].into(),
            )
        }

        fn path(&self) -> PathBuf {
            self.0.join("rank0")
        }

        fn text(&self) -> String {
            std::fs::read_to_string(self.path()).expect("the file exists")
        }

        /// Makes a FIFO, so that opening it blocks until it has a reader.
        fn hang(&self) {
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            let kind = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, self.path(), kind, mode, 0).expect("a FIFO");
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn finished_file_has_all_output() {
        let scratch = Scratch::new("all");
        let mut files = scratch.files();
        assert_eq!(files.path(FILE), None, "nothing was written yet");
        for piece in ["one ", "two ", "three\n"] {
            files.write(FILE, piece.into());
        }
        files.end(FILE);
        assert_eq!(files.finish(), [""; 0]);
        assert_eq!(scratch.text(), "one two three\n");
        assert_eq!(files.path(FILE), Some(scratch.path()));
    }

    #[test]
    fn hung_disk_does_not_block_and_lost_bytes_are_counted() {
        let scratch = Scratch::new("hangs");
        scratch.hang();
        let mut files = scratch.files();
        for _ in 0..=QUEUED_BYTES_MAX >> 20 {
            files.write(FILE, vec![b'x'; 1 << 20]);
        }
        files.write(FILE, vec![b'x'; 10]);
        let messages = files.take_messages();
        assert!(messages.len() == 1, "{messages:?}");
        assert!(messages[0].contains("disk not responding"), "{messages:?}");
        assert_eq!(files.take_messages(), [""; 0], "once");
        let messages = files.finish();
        // All bytes except those that the thread is writing.
        let missing = format!("{} bytes are missing in", QUEUED_BYTES_MAX + 10);
        let last = messages.last().expect("a message about the missing bytes");
        assert!(last.starts_with(&missing), "{messages:?}");
    }

    #[test]
    fn file_marks_its_gaps() {
        let scratch = Scratch::new("gap");
        let mut files = scratch.files();
        files.write(FILE, b"before".to_vec());
        files.shared.lock().gaps.insert(FILE, 7);
        files.write(FILE, b"after".to_vec());
        files.shared.lock().gaps.insert(FILE, 8);
        files.end(FILE);
        files.finish();
        let expected = "before\n[7 bytes left out: the disk did not respond]\nafter\n[8 bytes left out: \
                        the disk did not respond]\n";
        assert_eq!(scratch.text(), expected);
    }

    #[test]
    fn write_error_is_reported_once() {
        let scratch = Scratch::new("full");
        // A link at the file's path is not followed.
        std::os::unix::fs::symlink("/dev/full", scratch.path()).expect("a link");
        let mut files = scratch.files();
        for _ in 0..3 {
            files.write(FILE, b"x".to_vec());
        }
        let messages = files.finish();
        assert!(messages.len() == 1, "{messages:?}");
        assert!(messages[0].starts_with("cannot write `"), "{messages:?}");
        assert_eq!(files.finish(), [""; 0]);
    }
}
