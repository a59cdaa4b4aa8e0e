//! Bytes ↔ messages. A frame is its length as four little-endian bytes, then that many bytes of
//! postcard. A length is never trusted: what exceeds [`FRAME_BYTES_MAX`] ends the link before
//! anything is allocated for it.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::message::{FromAgent, Stream};
use crate::base::Rank;

/// Largest frame: the environment of a node with many workers fits.
pub const FRAME_BYTES_MAX: usize = 64 << 20;

/// Largest piece of output in one frame.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;

const HEAD_BYTES: usize = 4;

/// Why a link cannot be understood any more.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// A length that no peer of ours sends.
    #[error("a frame of {0} bytes is longer than the limit of {FRAME_BYTES_MAX}")]
    TooLong(usize),
    /// Bytes that are no message.
    #[error("a frame holds no known message")]
    Malformed,
}

/// A message as a frame.
pub fn encode<M: Serialize>(message: &M) -> Vec<u8> {
    let frame = postcard::to_extend(message, vec![0; HEAD_BYTES])
        .expect("growing a vector does not fail and every message is serialisable");
    with_length(frame, 0)
}

/// The frame of `FromAgent::Output` up to its bytes, of which `bytes` follow on the link. Saves
/// copying them.
pub fn encode_output_head(rank: Rank, stream: Stream, bytes: usize) -> Vec<u8> {
    let empty = FromAgent::Output { rank, stream, bytes: Vec::new() };
    let mut head = postcard::to_extend(&empty, vec![0; HEAD_BYTES])
        .expect("growing a vector does not fail and every message is serialisable");
    // The encoding of an empty list is the single byte 0; put the real length in its place.
    let zero = head.pop();
    debug_assert_eq!(zero, Some(0), "a list starts with its length");
    let head = postcard::to_extend(&bytes, head).expect("growing a vector does not fail");
    with_length(head, bytes)
}

fn with_length(mut frame: Vec<u8>, following: usize) -> Vec<u8> {
    let length = frame.len() - HEAD_BYTES + following;
    assert!(length <= FRAME_BYTES_MAX, "a message of ours exceeds the limit");
    frame[..HEAD_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
    frame
}

/// Collects bytes of a link and gives whole messages back.
#[derive(Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
}

impl Decoder {
    /// Room for at least `wanted` more bytes: append to it what was read.
    pub fn room(&mut self, wanted: usize) -> &mut Vec<u8> {
        if 0 < self.start {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.reserve(wanted);
        &mut self.buffer
    }

    /// Adds bytes that were read elsewhere.
    pub fn push(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).extend_from_slice(bytes);
    }

    /// The next whole message; `None` until more bytes have come.
    pub fn message<M: DeserializeOwned>(&mut self) -> Result<Option<M>, FrameError> {
        let pending = &self.buffer[self.start..];
        let Some((head, rest)) = pending.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*head) as usize;
        if FRAME_BYTES_MAX < length {
            return Err(FrameError::TooLong(length));
        }
        let Some(frame) = rest.get(..length) else {
            return Ok(None);
        };
        let message = postcard::from_bytes(frame).map_err(|_| FrameError::Malformed)?;
        self.start += HEAD_BYTES + length;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::WorkerExit;
    use crate::wire::ToAgent;

    #[test]
    fn a_message_survives_any_cut() {
        let message = ToAgent::Stdin { rank: Rank(3), bytes: b"hello".to_vec() };
        let frame = [encode(&message), encode(&ToAgent::Kill)].concat();
        for cut in 0..=frame.len() {
            let mut decoder = Decoder::default();
            let mut found: Vec<ToAgent> = Vec::new();
            for part in [&frame[..cut], &frame[cut..]] {
                decoder.push(part);
                while let Some(message) = decoder.message().expect("well formed") {
                    found.push(message);
                }
            }
            assert_eq!(found, [message.clone(), ToAgent::Kill], "cut at {cut}");
        }
    }

    #[test]
    fn output_sent_in_two_parts_is_the_same_message() {
        for bytes in [0, 1, 127, 128, 65_536] {
            let payload = vec![7u8; bytes];
            let head = encode_output_head(Rank(2), Stream::Stderr, bytes);
            let whole = encode(&FromAgent::Output {
                rank: Rank(2),
                stream: Stream::Stderr,
                bytes: payload.clone(),
            });
            assert_eq!([head, payload].concat(), whole);
        }
    }

    #[test]
    fn a_monstrous_length_ends_the_link_before_anything_is_allocated() {
        let mut decoder = Decoder::default();
        decoder.push(&u32::MAX.to_le_bytes());
        let error = decoder.message::<ToAgent>().expect_err("too long");
        assert_eq!(error, FrameError::TooLong(u32::MAX as usize));
    }

    #[test]
    fn garbage_is_an_error_and_not_a_panic() {
        let mut decoder = Decoder::default();
        decoder.push(&[2, 0, 0, 0, 255, 255]);
        assert_eq!(decoder.message::<FromAgent>(), Err(FrameError::Malformed));
    }

    /// Old and new builds must agree: a change of these bytes needs a new `VERSION`.
    #[test]
    fn the_bytes_of_a_message_never_change() {
        let exited = FromAgent::Exited {
            rank: Rank(5),
            exit: WorkerExit::Signal { signal: 9, core: false },
            at_us: 300,
            sent: vec![15],
            oom_kills: 0,
        };
        assert_eq!(encode(&exited), [10, 0, 0, 0, 7, 5, 1, 18, 0, 172, 2, 1, 30, 0]);
        assert_eq!(encode(&ToAgent::Signal(15)), [2, 0, 0, 0, 3, 30]);
    }
}
