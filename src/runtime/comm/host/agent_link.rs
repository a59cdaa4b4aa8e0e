//! The connection of a worker to the agent of its node, for notes.

use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use crate::base::lock;
use crate::runtime::contract::{Note, encode_frame};

/// Number of earlier notes at which a note is dropped: the agent does not read.
const UNSENT_MAX: usize = 1024;

/// Connection to the agent, on which sending a note never blocks.
pub(crate) struct AgentLink {
    /// The socket, and the frames that the kernel has not accepted, at most [`UNSENT_MAX`].
    stream: Mutex<(UnixStream, VecDeque<Vec<u8>>)>,
}

impl AgentLink {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream: Mutex::new((stream, VecDeque::new())) }
    }

    /// Sends a note, or drops it when the agent has not read many earlier ones.
    pub(crate) fn send_note(&self, note: &Note) {
        let mut guard = lock(&self.stream);
        let (stream, unsent) = &mut *guard;
        if unsent.len() < UNSENT_MAX {
            unsent.push_back(encode_frame(note));
        }
        // Frames that the kernel does not accept now are sent first the next time; a lost agent is
        // detected by the watchdog. The kernel takes a small frame as a whole or not at all, so frames
        // that other parts of the program write, such as the Python package, are not mixed with it.
        while let Some(frame) = unsent.front_mut() {
            let Ok(count @ 1..) = stream.write(frame) else { return };
            frame.drain(..count);
            if frame.is_empty() {
                unsent.pop_front();
            }
        }
    }
}
