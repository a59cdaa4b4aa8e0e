//! The connection of a worker to the agent of its node, for notes.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

use crate::runtime::contract::{Note, encode_frame};

/// Bytes of earlier notes above which a note is dropped: the agent does not read.
const UNSENT_MAX: usize = 64 << 10;

/// Connection to the agent, on which sending a note never blocks.
pub(crate) struct AgentLink {
    /// The socket, and the bytes of notes that the kernel has not accepted.
    stream: Mutex<(UnixStream, Vec<u8>)>,
}

impl AgentLink {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream: Mutex::new((stream, Vec::new())) }
    }

    /// Sends a note, or drops it when the agent has not read many earlier ones.
    pub(crate) fn send_note(&self, note: &Note) {
        let mut guard = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let (stream, unsent) = &mut *guard;
        if unsent.len() < UNSENT_MAX {
            unsent.extend_from_slice(&encode_frame(note));
        }
        // Bytes that the kernel does not accept now are sent first the next time; a lost agent is
        // detected by the watchdog.
        if let Ok(count) = stream.write(unsent) {
            unsent.drain(..count);
        }
    }
}
