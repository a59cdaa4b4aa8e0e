//! Writer of standard output or standard error with a thread of its own, so that a suspended terminal
//! or a slow pipe delays nothing else.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use memchr::memchr_iter;
use rustix::io::Errno;

use crate::base::clock;
use crate::os::files::fds;
use crate::report::monitor::Monitor;

/// Most bytes in the queue; a writer with more waits, but not longer than [`STALL_LIMIT`].
const QUEUED_BYTES_MAX: usize = 4 << 20;
/// Time without progress after which a sink drops lines.
const STALL_LIMIT: Duration = Duration::from_secs(1);
/// Limits for written buffers that are reused: their number and the size of one.
const SPARES_MAX: usize = 4;
const SPARE_BYTES_MAX: usize = 1 << 20;

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfferResult {
    /// The bytes are queued.
    Queued,
    /// The sink has stalled; the bytes are lost.
    Stalled,
    /// The reader has closed the descriptor; nothing will be written any more.
    Closed,
}

/// Handle of the thread; dropping it does not wait, [`Sink::finish`] does.
pub(super) struct Sink {
    shared: Arc<Shared>,
}

type Shared = Monitor<State>;

struct State {
    queue: VecDeque<Vec<u8>>,
    queued_bytes: usize,
    /// The buffer that the thread is writing, and how much of it is written.
    writing: Option<(Arc<Vec<u8>>, usize)>,
    /// Empty buffers with capacity.
    spares: Vec<Vec<u8>>,
    /// When the descriptor last accepted bytes, or had none to write.
    last_progress: Instant,
    closed: bool,
    /// Why nothing can be written any more.
    failure: Option<Errno>,
}

impl Sink {
    /// Starts the thread that owns `fd`.
    pub(super) fn start(fd: OwnedFd) -> Self {
        let state = State {
            queue: VecDeque::new(),
            queued_bytes: 0,
            writing: None,
            spares: Vec::new(),
            last_progress: clock::now(),
            closed: false,
            failure: None,
        };
        let shared = Arc::new(Shared::new(state));
        let writer = Arc::clone(&shared);
        // A blocking write would hide whether the sink makes progress.
        let fd = fds::reopen_nonblocking(fd);
        let thread = std::thread::Builder::new().name("sink".to_owned());
        // Without a thread nothing is written, as after the reader has closed the descriptor.
        if thread.spawn(move || writer.write_all(&fd)).is_err() {
            shared.lock().closed = true;
        }
        Self { shared }
    }

    /// Queues bytes; waits while the queue is full and the sink makes progress. Bytes that are not
    /// accepted stay in the buffer.
    pub(super) fn offer(&self, bytes: &mut Vec<u8>) -> OfferResult {
        let mut state = self.shared.lock();
        loop {
            if state.closed {
                return OfferResult::Closed;
            }
            if state.queued_bytes < QUEUED_BYTES_MAX {
                break;
            }
            let remaining =
                (state.last_progress + STALL_LIMIT).saturating_duration_since(clock::now());
            if remaining.is_zero() {
                return OfferResult::Stalled;
            }
            state = self.shared.wait(state, remaining);
        }
        // A sink that had nothing to write has not stalled.
        if state.is_idle() {
            state.last_progress = clock::now();
        }
        state.queued_bytes += bytes.len();
        state.queue.push_back(std::mem::take(bytes));
        drop(state);
        self.shared.notify_all();
        OfferResult::Queued
    }

    /// An empty buffer, with capacity if a written one is available.
    pub(super) fn take_buffer(&self) -> Vec<u8> {
        self.shared.lock().spares.pop().unwrap_or_default()
    }

    /// Whether everything has been written.
    pub(super) fn is_idle(&self) -> bool {
        self.shared.lock().is_idle()
    }

    /// Whether a write would return at once, because it would be accepted or because it never will
    /// be.
    pub(super) fn has_room(&self) -> bool {
        let state = self.shared.lock();
        state.closed || state.queued_bytes < QUEUED_BYTES_MAX
    }

    /// Why nothing can be written any more; `EPIPE` if the reader has closed the descriptor.
    pub(super) fn failure(&self) -> Option<Errno> {
        self.shared.lock().failure
    }

    /// Waits until everything is written, as long as the sink makes progress.
    pub(super) fn drain(&self) {
        let _ = self.wait_drained();
    }

    /// Waits until everything is written, as long as the sink makes progress. Drops the rest, and
    /// returns the number of its lines.
    pub(super) fn finish(&self) -> u64 {
        let Err(mut state) = self.wait_drained() else {
            return 0;
        };
        state.closed = true;
        let unwritten = state.unwritten_lines();
        state.queue.clear();
        unwritten
    }

    /// Waits like [`Self::drain`]; if the sink stalls, returns its state.
    fn wait_drained(&self) -> Result<(), MutexGuard<'_, State>> {
        let mut state = self.shared.lock();
        while !state.closed && !state.is_idle() {
            let remaining =
                (state.last_progress + STALL_LIMIT).saturating_duration_since(clock::now());
            if remaining.is_zero() {
                return Err(state);
            }
            state = self.shared.wait(state, remaining);
        }
        Ok(())
    }
}

impl Shared {
    fn write_all(&self, fd: &OwnedFd) {
        loop {
            let bytes = self.next();
            let written = self.write_one(fd, &bytes);
            let mut state = self.lock();
            state.writing = None;
            state.last_progress = clock::now();
            if written {
                state.recycle(bytes);
            } else {
                state.closed = true;
                state.queue.clear();
            }
            drop(state);
            self.notify_all();
            if !written {
                return;
            }
        }
    }

    fn next(&self) -> Arc<Vec<u8>> {
        let mut state = self.lock();
        loop {
            if let Some(bytes) = state.queue.pop_front() {
                state.queued_bytes -= bytes.len();
                state.last_progress = clock::now();
                let bytes = Arc::new(bytes);
                state.writing = Some((Arc::clone(&bytes), 0));
                return bytes;
            }
            state = self.wait_for_change(state);
        }
    }

    /// Writes a buffer; false if the reader has closed the descriptor.
    fn write_one(&self, fd: &OwnedFd, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if self.lock().closed {
                return false;
            }
            match rustix::io::write(fd.as_fd(), bytes) {
                Ok(written) => {
                    bytes = &bytes[written..];
                    self.lock().on_written(written);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => wait_writable(fd),
                Err(errno) => {
                    self.lock().failure = Some(errno);
                    return false;
                }
            }
        }
        true
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.writing.is_none()
    }

    fn on_written(&mut self, bytes: usize) {
        self.last_progress = clock::now();
        if let Some((_, written)) = &mut self.writing {
            *written += bytes;
        }
    }

    /// Number of queued lines that are not written.
    fn unwritten_lines(&self) -> u64 {
        let current = self.writing.iter().map(|(bytes, written)| &bytes[*written..]);
        let rest = current.chain(self.queue.iter().map(Vec::as_slice));
        rest.map(|bytes| memchr_iter(b'\n', bytes).count() as u64).sum()
    }

    /// Keeps a buffer for reuse, because its pages are in memory already.
    fn recycle(&mut self, bytes: Arc<Vec<u8>>) {
        let Some(mut bytes) = Arc::into_inner(bytes) else { return };
        if self.spares.len() < SPARES_MAX && bytes.capacity() <= SPARE_BYTES_MAX {
            bytes.clear();
            self.spares.push(bytes);
        }
    }
}

fn wait_writable(fd: &OwnedFd) {
    use rustix::event::{PollFd, PollFlags, poll};
    let _ = poll(&mut [PollFd::new(fd, PollFlags::OUT)], None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sink_keeps_the_order() {
        let (read, write) = fds::pipe().expect("a pipe");
        let sink = Sink::start(write);
        let reader = std::thread::spawn(move || {
            let mut all = vec![0; 3_000];
            let mut length = 0;
            while length < all.len() {
                length += rustix::io::read(&read, &mut all[length..]).expect("read");
            }
            all
        });
        for byte in 0..3u8 {
            assert_eq!(sink.offer(&mut vec![byte; 1000]), OfferResult::Queued);
        }
        let all = reader.join().expect("the reader exits");
        assert_eq!(all, [[0u8; 1000], [1; 1000], [2; 1000]].concat());
    }

    #[test]
    fn idle_sink_has_not_stalled() {
        let (read, write) = fds::pipe().expect("a pipe");
        let sink = Sink::start(write);
        sink.shared.lock().last_progress -= 2 * STALL_LIMIT;
        assert_eq!(sink.offer(&mut b"last lines\n".to_vec()), OfferResult::Queued);
        assert_eq!(sink.finish(), 0);
        let mut shown = [0; 16];
        assert_eq!(rustix::io::read(&read, &mut shown).expect("written"), 11);
    }

    #[test]
    fn dropped_lines_are_counted_exactly() {
        let (read, write) = fds::pipe().expect("a pipe");
        let sink = Sink::start(write);
        for _ in 0..4 {
            assert_eq!(sink.offer(&mut b"ten bytes\n".repeat(100_000)), OfferResult::Queued);
        }
        let lost = sink.finish();
        let mut shown = vec![0; 1 << 20];
        let length = rustix::io::read(&read, &mut shown).expect("a full pipe");
        assert_eq!(lost + memchr_iter(b'\n', &shown[..length]).count() as u64, 400_000);
    }

    #[test]
    fn stalled_reader_loses_lines_but_does_not_block() {
        let (read, write) = fds::pipe().expect("a pipe");
        let sink = Sink::start(write);
        let mut offered = OfferResult::Queued;
        for _ in 0..16 {
            offered = sink.offer(&mut vec![b'x'; 1 << 20]);
        }
        assert_eq!(offered, OfferResult::Stalled);
        drop(read);
        while sink.offer(&mut vec![b'x']) != OfferResult::Closed {
            std::thread::yield_now();
        }
    }
}
