//! Encoding of messages as frames. A frame is its length and its epoch, four little-endian bytes
//! each, then as many bytes of postcard. A length is never trusted: a frame above
//! [`FRAME_BYTES_MAX`] ends the link before memory is allocated for it. Frames of earlier epochs
//! are discarded.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::message::{FromAgent, Stream};
use crate::base::{Epoch, Rank};

/// Largest frame: the environment of a node with many workers fits.
pub const FRAME_BYTES_MAX: usize = 64 << 20;

/// Largest piece of output in one frame.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;

const WORD_BYTES: usize = size_of::<u32>();
const HEAD_BYTES: usize = 2 * WORD_BYTES;

/// Why the bytes of a link cannot be decoded; the link ends.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// A length above the limit, which no peer sends.
    #[error("a frame of {0} bytes is longer than the limit of {FRAME_BYTES_MAX}")]
    TooLong(usize),
    /// An epoch that has not begun on this side.
    #[error("received a frame of attempt {} in attempt {}", .received.attempt(), .current.attempt())]
    Epoch {
        /// Epoch of the frame.
        received: Epoch,
        /// Epoch of the link.
        current: Epoch,
    },
    /// Bytes that are not a message.
    #[error("a frame contains no known message")]
    Malformed,
}

/// Encodes a message as a frame.
pub fn encode<M: Serialize>(epoch: Epoch, message: &M) -> Vec<u8> {
    let frame = postcard::to_extend(message, vec![0; HEAD_BYTES])
        .expect("growing a vector does not fail and every message is serialisable");
    with_head(epoch, frame, 0)
}

/// Encodes the frame of a `FromAgent::Output` up to its payload of `bytes` bytes, which the caller
/// sends after it. Saves a copy of the payload.
pub fn encode_output_head(epoch: Epoch, rank: Rank, stream: Stream, bytes: usize) -> Vec<u8> {
    let empty = FromAgent::Output { rank, stream, bytes: Vec::new() };
    let mut head = postcard::to_extend(&empty, vec![0; HEAD_BYTES])
        .expect("growing a vector does not fail and every message is serialisable");
    // The encoding of an empty list is the single byte 0; put the real length in its place.
    let zero = head.pop();
    debug_assert_eq!(zero, Some(0), "a list starts with its length");
    let head = postcard::to_extend(&bytes, head).expect("growing a vector does not fail");
    with_head(epoch, head, bytes)
}

fn with_head(epoch: Epoch, mut frame: Vec<u8>, following: usize) -> Vec<u8> {
    let length = frame.len() - HEAD_BYTES + following;
    assert!(length <= FRAME_BYTES_MAX, "a message that remuda sends exceeds the limit");
    frame[..WORD_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
    frame[WORD_BYTES..HEAD_BYTES].copy_from_slice(&epoch.0.to_le_bytes());
    frame
}

/// Decoder of a link: collects bytes and returns whole messages.
#[derive(Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
    epoch: Option<Epoch>,
}

impl Decoder {
    /// Decoder for a link in `epoch`; the default decoder takes the epoch of the first frame.
    pub fn for_epoch(epoch: Epoch) -> Self {
        Self { epoch: Some(epoch), ..Self::default() }
    }

    /// Begins a new epoch: remaining frames of earlier epochs are discarded.
    pub fn begin_epoch(&mut self, epoch: Epoch) {
        self.epoch = Some(epoch);
    }

    /// The epoch of the link; `None` until a frame has been received.
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// Buffer with room for at least `wanted` more bytes, to which the caller appends what it
    /// reads.
    pub fn room(&mut self, wanted: usize) -> &mut Vec<u8> {
        if 0 < self.start {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.reserve(wanted);
        &mut self.buffer
    }

    /// Adds bytes that the caller has read into a buffer of its own.
    pub fn push(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).extend_from_slice(bytes);
    }

    /// Returns the next whole message of this epoch; `None` until more bytes have been received.
    /// Discards frames of earlier epochs.
    pub fn message<M: DeserializeOwned>(&mut self) -> Result<Option<M>, FrameError> {
        while let Some((epoch, length)) = self.head()? {
            let begin = self.start + HEAD_BYTES;
            let Some(frame) = self.buffer.get(begin..begin + length) else {
                return Ok(None);
            };
            let current = *self.epoch.get_or_insert(epoch);
            if current < epoch {
                return Err(FrameError::Epoch { received: epoch, current });
            }
            self.start = begin + length;
            if current == epoch {
                let message = postcard::from_bytes(frame).map_err(|_| FrameError::Malformed)?;
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// Returns epoch and length of the next frame.
    fn head(&self) -> Result<Option<(Epoch, usize)>, FrameError> {
        let pending = &self.buffer[self.start..];
        let Some((length, rest)) = pending.split_first_chunk::<WORD_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if FRAME_BYTES_MAX < length {
            return Err(FrameError::TooLong(length));
        }
        let epoch = rest.first_chunk::<WORD_BYTES>();
        Ok(epoch.map(|epoch| (Epoch(u32::from_le_bytes(*epoch)), length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ToAgent;

    #[test]
    fn decoder_joins_a_message_cut_anywhere() {
        let message = ToAgent::Stdin { rank: Rank(3), bytes: b"hello".to_vec() };
        let epoch = Epoch(3);
        let frame = [encode(epoch, &message), encode(epoch, &ToAgent::Kill)].concat();
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
    fn output_head_and_payload_equal_the_whole_frame() {
        for bytes in [0, 1, 127, 128, 65_536] {
            let payload = vec![7u8; bytes];
            let head = encode_output_head(Epoch(1), Rank(2), Stream::Stderr, bytes);
            let output =
                FromAgent::Output { rank: Rank(2), stream: Stream::Stderr, bytes: payload.clone() };
            let whole = encode(Epoch(1), &output);
            assert_eq!([head, payload].concat(), whole);
        }
    }

    #[test]
    fn decoder_rejects_long_frame_before_allocation() {
        let mut decoder = Decoder::default();
        decoder.push(&u32::MAX.to_le_bytes());
        let error = decoder.message::<ToAgent>().expect_err("too long");
        assert_eq!(error, FrameError::TooLong(u32::MAX as usize));
    }

    #[test]
    fn decoder_discards_frames_of_earlier_epochs() {
        let mut decoder = Decoder::for_epoch(Epoch(2));
        for (epoch, signal) in [(1, 1), (2, 2), (0, 3), (2, 4)] {
            decoder.push(&encode(Epoch(epoch), &ToAgent::Signal(signal)));
        }
        assert_eq!(decoder.message(), Ok(Some(ToAgent::Signal(2))));
        assert_eq!(decoder.message(), Ok(Some(ToAgent::Signal(4))));
        assert_eq!(decoder.message::<ToAgent>(), Ok(None));
        decoder.push(&encode(Epoch(3), &ToAgent::Kill));
        let (received, current) = (Epoch(3), Epoch(2));
        assert_eq!(decoder.message::<ToAgent>(), Err(FrameError::Epoch { received, current }));
    }

    #[test]
    fn decoder_takes_epoch_of_first_frame() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.epoch(), None);
        decoder.push(&encode(Epoch(7), &ToAgent::Kill));
        assert_eq!(decoder.message(), Ok(Some(ToAgent::Kill)));
        assert_eq!(decoder.epoch(), Some(Epoch(7)));
        decoder.push(&encode(Epoch(6), &ToAgent::Kill));
        assert_eq!(decoder.message::<ToAgent>(), Ok(None));
    }

    #[test]
    fn decoder_accepts_only_the_renewed_epoch() {
        let mut decoder = Decoder::for_epoch(Epoch(0));
        decoder.push(&encode(Epoch(0), &ToAgent::NextEpoch));
        assert_eq!(decoder.message(), Ok(Some(ToAgent::NextEpoch)));
        decoder.begin_epoch(Epoch(1));
        decoder.push(&encode(Epoch(0), &ToAgent::Kill));
        decoder.push(&encode(Epoch(1), &ToAgent::Signal(15)));
        assert_eq!(decoder.message(), Ok(Some(ToAgent::Signal(15))));
    }

    #[test]
    fn decoder_reports_garbage_as_error() {
        let mut decoder = Decoder::default();
        decoder.push(&[2, 0, 0, 0, 0, 0, 0, 0, 255, 255]);
        assert_eq!(decoder.message::<FromAgent>(), Err(FrameError::Malformed));
    }

    #[test]
    fn head_of_a_frame_is_its_length_and_epoch() {
        let frame = encode(Epoch(258), &ToAgent::Signal(15));
        assert_eq!(frame, [2, 0, 0, 0, 2, 1, 0, 0, 3, 30]);
    }
}
