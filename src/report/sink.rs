//! A descriptor that people read, written by a thread of its own: a terminal that has stopped or a
//! slow pipe holds up nobody else.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::base::clock;

/// Bytes that may wait; whoever has more waits itself, but not longer than [`STALL_LIMIT`].
const WAITING_BYTES_MAX: usize = 4 << 20;
/// A sink that takes nothing for this long loses lines.
const STALL_LIMIT: Duration = Duration::from_secs(1);

/// What became of bytes that were offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offered {
    /// They will be written.
    Taken,
    /// The sink has stalled; they are lost.
    Stalled,
    /// Nobody reads any more; nothing will ever be written.
    Closed,
}

/// Handle to the thread; dropping it does not wait, [`Sink::finish`] does.
pub(super) struct Sink {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    /// When the descriptor last took something, or had nothing to take.
    moved: Instant,
    busy: bool,
    closed: bool,
}

impl Sink {
    /// Starts the thread that owns `fd`.
    pub(super) fn start(fd: OwnedFd) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            moved: clock::now(),
            busy: false,
            closed: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let writer = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("sink".to_owned());
        // Without a thread nothing is written: the same as a reader that went away.
        if thread.spawn(move || writer.write_all(&fd)).is_err() {
            shared.lock().closed = true;
        }
        Self { shared }
    }

    /// Hands bytes over; waits while the sink moves but is full.
    pub(super) fn offer(&self, bytes: Vec<u8>) -> Offered {
        let mut state = self.shared.lock();
        loop {
            if state.closed {
                return Offered::Closed;
            }
            if state.waiting_bytes < WAITING_BYTES_MAX {
                break;
            }
            let patience = (state.moved + STALL_LIMIT).saturating_duration_since(clock::now());
            if patience.is_zero() {
                return Offered::Stalled;
            }
            state = self.shared.wait(state, patience);
        }
        state.waiting_bytes += bytes.len();
        state.waiting.push_back(bytes);
        drop(state);
        self.shared.changed.notify_all();
        Offered::Taken
    }

    /// Waits until everything is written, as long as the sink moves.
    pub(super) fn finish(&self) {
        let mut state = self.shared.lock();
        while !state.closed && (state.busy || !state.waiting.is_empty()) {
            let patience = (state.moved + STALL_LIMIT).saturating_duration_since(clock::now());
            if patience.is_zero() {
                return;
            }
            state = self.shared.wait(state, patience);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding the lock")
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, limit: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, limit);
        waited.expect("nobody panics while holding the lock").0
    }

    fn write_all(&self, fd: &OwnedFd) {
        loop {
            let bytes = self.next();
            let written = self.write_one(fd, &bytes);
            let mut state = self.lock();
            state.busy = false;
            state.moved = clock::now();
            if !written {
                state.closed = true;
                state.waiting.clear();
            }
            drop(state);
            self.changed.notify_all();
            if !written {
                return;
            }
        }
    }

    fn next(&self) -> Vec<u8> {
        let mut state = self.lock();
        loop {
            if let Some(bytes) = state.waiting.pop_front() {
                state.waiting_bytes -= bytes.len();
                state.busy = true;
                state.moved = clock::now();
                return bytes;
            }
            state = self.changed.wait(state).expect("nobody panics while holding the lock");
        }
    }

    /// False when nobody reads any more.
    fn write_one(&self, fd: &OwnedFd, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            match rustix::io::write(fd.as_fd(), bytes) {
                Ok(written) => {
                    bytes = &bytes[written..];
                    self.lock().moved = clock::now();
                }
                Err(rustix::io::Errno::INTR) => {}
                // The terminal was left non-blocking by somebody else: wait for it.
                Err(rustix::io::Errno::AGAIN) => wait_writable(fd),
                Err(_) => return false,
            }
        }
        true
    }
}

fn wait_writable(fd: &OwnedFd) {
    use rustix::event::{PollFd, PollFlags, poll};
    let _ = poll(&mut [PollFd::new(fd, PollFlags::OUT)], None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::fds;

    #[test]
    fn everything_arrives_in_order() {
        let (read, write) = fds::pipe().expect("a pipe");
        let sink = Sink::start(write);
        let reader = std::thread::spawn(move || {
            let mut all = vec![0; 3_000];
            let mut got = 0;
            while got < all.len() {
                got += rustix::io::read(&read, &mut all[got..]).expect("read");
            }
            all
        });
        for byte in 0..3u8 {
            assert_eq!(sink.offer(vec![byte; 1000]), Offered::Taken);
        }
        let all = reader.join().expect("the reader ends");
        assert_eq!(all, [[0u8; 1000], [1; 1000], [2; 1000]].concat());
    }

    #[test]
    fn a_reader_that_stops_costs_lines_and_not_time_without_end() {
        let (read, write) = fds::pipe().expect("a pipe");
        let sink = Sink::start(write);
        let mut offered = Offered::Taken;
        for _ in 0..16 {
            offered = sink.offer(vec![b'x'; 1 << 20]);
        }
        assert_eq!(offered, Offered::Stalled);
        drop(read);
        while sink.offer(vec![b'x']) != Offered::Closed {
            std::thread::yield_now();
        }
    }
}
