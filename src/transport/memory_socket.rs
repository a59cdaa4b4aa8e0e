//! A pair of connected sockets in memory, for two tasks of one process: no descriptor, no system call.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::base::lock;

/// Bytes that wait to be read; a writer waits until there is room.
///
/// Ten thousand writers may write before the first reader reads, so this is little; it costs a large message some turns
/// of the runtime.
const WAITING_BYTES_MAX: usize = 8 << 10;

/// One of two connected sockets. It is closed when it is dropped.
pub(super) struct MemorySocket {
    incoming: Arc<Queue>,
    outgoing: Arc<Queue>,
}

/// The bytes of one direction.
#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    /// Bytes were added, or the queue was closed.
    on_added: Notify,
    /// Bytes were removed, or the queue was closed.
    on_removed: Notify,
}

#[derive(Default)]
struct QueueState {
    bytes: Vec<u8>,
    is_closed: bool,
}

impl MemorySocket {
    /// Returns two sockets that are connected with each other.
    pub(super) fn pair() -> [Self; 2] {
        let queues: [Arc<Queue>; 2] = Default::default();
        let [a, b] = &queues;
        let near = Self { incoming: a.clone(), outgoing: b.clone() };
        [near, Self { incoming: b.clone(), outgoing: a.clone() }]
    }

    /// Appends the available bytes, at most `buffer`'s spare capacity; 0 is the end.
    pub(super) async fn read(&self, buffer: &mut Vec<u8>) -> usize {
        let piece = self.read_piece(buffer.capacity() - buffer.len()).await;
        buffer.extend_from_slice(&piece);
        piece.len()
    }

    /// Like [`Self::read`]; `None` if there are no bytes yet.
    pub(super) fn try_read(&self, buffer: &mut Vec<u8>) -> Option<usize> {
        let room = buffer.capacity() - buffer.len();
        let piece = self.incoming.take(room)?;
        buffer.extend_from_slice(&piece);
        Some(piece.len())
    }

    /// Returns the available bytes, at most this number; none is the end.
    pub(super) async fn read_piece(&self, bytes_max: usize) -> Vec<u8> {
        loop {
            if let Some(piece) = self.incoming.take(bytes_max) {
                return piece;
            }
            self.incoming.on_added.notified().await;
        }
    }

    /// Writes all bytes.
    ///
    /// # Errors
    /// `BrokenPipe` if one of the sockets was closed.
    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = self.outgoing.push(bytes).ok_or(io::ErrorKind::BrokenPipe)?;
            bytes = &bytes[written..];
            if !bytes.is_empty() {
                self.outgoing.on_removed.notified().await;
            }
        }
        Ok(())
    }

    /// Ends both directions. Bytes that wait can still be read.
    pub(super) fn shutdown(&self) {
        self.incoming.close();
        self.outgoing.close();
    }
}

impl Drop for MemorySocket {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Queue {
    /// Adds as many bytes as there is room for; `None` if the queue is closed.
    fn push(&self, bytes: &[u8]) -> Option<usize> {
        let mut state = self.lock();
        if state.is_closed {
            return None;
        }
        let count = bytes.len().min(WAITING_BYTES_MAX - state.bytes.len());
        state.bytes.extend_from_slice(&bytes[..count]);
        drop(state);
        self.on_added.notify_one();
        Some(count)
    }

    /// Removes the available bytes, at most this number; none is the end, `None` if there are no bytes yet. An empty
    /// queue keeps no memory.
    fn take(&self, bytes_max: usize) -> Option<Vec<u8>> {
        let mut state = self.lock();
        if state.bytes.is_empty() {
            return state.is_closed.then(Vec::new);
        }
        let taken = if state.bytes.len() <= bytes_max {
            std::mem::take(&mut state.bytes)
        } else {
            state.bytes.drain(..bytes_max).collect()
        };
        drop(state);
        self.on_removed.notify_one();
        Some(taken)
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.on_added.notify_one();
        self.on_removed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // Nothing panics while the lock is held.
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_runtime(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(test);
    }

    async fn read_all(socket: &MemorySocket) -> Vec<u8> {
        let mut received = Vec::new();
        loop {
            received.reserve(1000);
            if socket.read(&mut received).await == 0 {
                return received;
            }
        }
    }

    #[test]
    fn more_bytes_than_fit_arrive_in_order() {
        with_runtime(async {
            let [near, far] = MemorySocket::pair();
            let sent: Vec<u8> = (0..3 * WAITING_BYTES_MAX + 7).map(|at| (at % 251) as u8).collect();
            let write = async {
                near.write_all(&sent).await.expect("the other socket is open");
                drop(near);
            };
            let ((), received) = tokio::join!(write, read_all(&far));
            assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
        });
    }

    #[test]
    fn reader_gets_at_most_what_it_has_room_for() {
        with_runtime(async {
            let [near, far] = MemorySocket::pair();
            near.write_all(b"abcdef").await.expect("there is room");
            assert_eq!(far.read_piece(2).await, b"ab");
            let mut buffer = Vec::with_capacity(8);
            buffer.extend_from_slice(b"      ");
            assert_eq!(far.read(&mut buffer).await, 2);
            assert_eq!(buffer, b"      cd");
            assert_eq!(far.try_read(&mut Vec::with_capacity(8)), Some(2));
            assert_eq!(far.try_read(&mut Vec::with_capacity(8)), None, "nothing was written since");
        });
    }

    #[test]
    fn closed_socket_is_an_end_and_a_broken_pipe() {
        with_runtime(async {
            let [near, far] = MemorySocket::pair();
            near.write_all(b"last words").await.expect("the other socket is open");
            drop(near);
            assert_eq!(read_all(&far).await, b"last words");
            let error = far.write_all(b"x").await.expect_err("nobody reads");
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        });
    }

    #[test]
    fn waiting_reader_and_writer_notice_a_shutdown() {
        with_runtime(async {
            let [near, far] = MemorySocket::pair();
            let full = vec![0; WAITING_BYTES_MAX + 1];
            let write = near.write_all(&full);
            let shut_down = async {
                tokio::task::yield_now().await;
                far.shutdown();
            };
            let (written, received, ()) = tokio::join!(write, read_all(&near), shut_down);
            assert_eq!(written.expect_err("shut down").kind(), io::ErrorKind::BrokenPipe);
            assert_eq!(received, b"");
        });
    }
}
