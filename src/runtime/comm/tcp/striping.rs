//! Transfers to and from ranks of other nodes. Messages are divided into stripes, at most one for each
//! stream of a connection, and sent and received in the order in which they were posted. The first stripe of
//! a message is on the stream after the last stripe of the message before, so that short messages that are in
//! transit together use all streams.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::ops::Range;

use crate::os::files::io_errors::is_temporary;
use crate::runtime::comm::core::error::{Cause, Departure};
use crate::runtime::comm::core::fingerprint::{DifferentCall, Fingerprint, compare_calls};
use crate::runtime::comm::core::roster::RankRoster;

/// Smallest size in bytes of a stripe, which costs a header and a system call at both ends.
const STRIPE_BYTES_MIN: usize = 1 << 16;
/// Alignment of stripes in bytes: a cache line.
const STRIPE_UNIT: usize = 64;

/// Length in bytes of the header of a stripe: five words.
const HEADER_BYTES: usize = 40;
const HEADER_MAGIC: u64 = u64::from_le_bytes(*b"remudat1");

/// Stripes of a message over at most `streams` streams; as many as are worthwhile, equal on both
/// sides.
fn stripes(bytes: usize, streams: usize) -> impl Iterator<Item = Range<usize>> {
    let count = (bytes / STRIPE_BYTES_MIN).clamp(1, streams);
    let each = bytes.div_ceil(count).next_multiple_of(STRIPE_UNIT);
    (0..count).map(move |stripe| (stripe * each).min(bytes)..((stripe + 1) * each).min(bytes))
}

/// Header of every stripe: magic, length, fingerprint.
type Header = [u8; HEADER_BYTES];

fn encode_header(fingerprint: Fingerprint, bytes: usize) -> Header {
    let [kinds, count, seq] = fingerprint.encode();
    let words = [HEADER_MAGIC, bytes as u64, kinds, count, seq].map(u64::to_le_bytes);
    let mut header = [0; HEADER_BYTES];
    header.as_chunks_mut::<8>().0.copy_from_slice(&words);
    header
}

/// Part of a message, which is transferred on one stream.
struct Stripe {
    range: Range<usize>,
    header: Header,
    /// Number of bytes of header and data that have been transferred.
    transferred: usize,
}

impl Stripe {
    fn is_done(&self) -> bool {
        self.transferred == HEADER_BYTES + self.range.len()
    }

    /// Range of the message that has not been transferred.
    fn rest(&self) -> Range<usize> {
        self.range.start + self.transferred.saturating_sub(HEADER_BYTES)..self.range.end
    }

    /// Sends as many bytes as possible without blocking.
    fn send(&mut self, bytes: &[u8], mut stream: &TcpStream) -> io::Result<()> {
        while !self.is_done() {
            let header = &self.header[self.transferred.min(HEADER_BYTES)..];
            match stream.write_vectored(&[IoSlice::new(header), IoSlice::new(&bytes[self.rest()])])
            {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.transferred += count,
                Err(error) if is_temporary(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives the available bytes; `check` verifies the header as soon as it is complete, and `lost`
    /// returns the error for a closed connection.
    fn receive(
        &mut self,
        bytes: &mut [u8],
        mut stream: &TcpStream,
        check: impl Fn(&Header) -> Result<(), Cause>,
        lost: impl Fn() -> Cause,
    ) -> Result<(), Cause> {
        while !self.is_done() {
            let had_header = HEADER_BYTES <= self.transferred;
            // A short message is received completely in one system call.
            let (rest, moved) = (self.rest(), self.transferred.min(HEADER_BYTES));
            let mut targets = [&mut self.header[moved..], &mut bytes[rest]].map(IoSliceMut::new);
            match stream.read_vectored(&mut targets) {
                Ok(0) => return Err(lost()),
                Ok(count) => self.transferred += count,
                Err(error) if is_temporary(&error) => return Ok(()),
                Err(_) => return Err(lost()),
            }
            if !had_header && HEADER_BYTES <= self.transferred {
                check(&self.header)?;
            }
        }
        Ok(())
    }
}

/// Message in one direction, in borrowed or owned memory.
struct Message<B> {
    fingerprint: Fingerprint,
    bytes: B,
    /// Stream of the first stripe; the next ones follow it in a circle.
    first_stream: usize,
    /// Number of streams of the connection.
    streams: usize,
    stripes: Vec<Stripe>,
}

impl<B: AsRef<[u8]>> Message<B> {
    /// `next_stream` is that of the connection in the direction of the message.
    fn new(fp: Fingerprint, bytes: B, streams: usize, next_stream: &Cell<usize>) -> Self {
        let len = bytes.as_ref().len();
        let header = encode_header(fp, len);
        let stripe = |range| Stripe { range, header, transferred: 0 };
        let stripes: Vec<_> = stripes(len, streams).map(stripe).collect();
        let first_stream = next_stream.get();
        next_stream.set((first_stream + stripes.len()) % streams);
        Self { fingerprint: fp, bytes, first_stream, streams, stripes }
    }
}

impl<B> Message<B> {
    fn is_done(&self) -> bool {
        self.stripes.iter().all(Stripe::is_done)
    }

    /// Number of the stripe on a stream, if there is one that is incomplete.
    fn pending_on(&self, stream: usize) -> Option<usize> {
        let number = (stream + self.streams - self.first_stream) % self.streams;
        self.stripes.get(number).filter(|stripe| !stripe.is_done()).map(|_| number)
    }
}

/// Messages in one direction that are not complete, and those behind them that are.
struct MessageQueue<B> {
    messages: VecDeque<Message<B>>,
}

impl<B> Default for MessageQueue<B> {
    fn default() -> Self {
        Self { messages: VecDeque::new() }
    }
}

impl<B> MessageQueue<B> {
    fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    fn is_pending_on(&self, stream: usize) -> bool {
        self.messages.iter().any(|message| message.pending_on(stream).is_some())
    }

    /// Transfers the first incomplete stripe on every stream, and then those after it; returns whether
    /// any byte was transferred.
    fn pump(
        &mut self,
        streams: &[TcpStream],
        mut pump: impl FnMut(&mut Message<B>, usize, &TcpStream) -> Result<(), Cause>,
    ) -> Result<bool, Cause> {
        let mut has_moved = false;
        for (at, stream) in streams.iter().enumerate() {
            for message in &mut self.messages {
                let Some(number) = message.pending_on(at) else { continue };
                let before = message.stripes[number].transferred;
                pump(message, number, stream)?;
                has_moved |= before < message.stripes[number].transferred;
                if !message.stripes[number].is_done() {
                    break;
                }
            }
        }
        Ok(has_moved)
    }

    /// Removes the complete messages at the front, and returns their bytes.
    fn take_done(&mut self) -> impl Iterator<Item = B> {
        let done = self.messages.iter().take_while(|message| message.is_done()).count();
        self.messages.drain(..done).map(|message| message.bytes)
    }
}

/// Transfers to and from one peer.
struct PeerQueue<S, R> {
    peer: usize,
    sends: MessageQueue<S>,
    recvs: MessageQueue<R>,
}

/// Transfers to and from all peers. `S` and `R` contain the bytes that are sent and received.
pub(crate) struct Transfers<S, R> {
    queues: Vec<PeerQueue<S, R>>,
    sent: Vec<S>,
    received: Vec<R>,
}

/// Connection to a peer.
pub(crate) struct StripedConnection {
    streams: Vec<TcpStream>,
    /// Stream of the first stripe of the next message that is sent, and that is received. Both ends post the
    /// same messages in the same order, so that one is the other at the other end.
    next_send: Cell<usize>,
    next_recv: Cell<usize>,
}

impl StripedConnection {
    pub(crate) fn new(streams: Vec<TcpStream>) -> Self {
        Self { streams, next_send: Cell::new(0), next_recv: Cell::new(0) }
    }
}

/// Access to the connection to each peer.
pub(crate) trait Connections {
    fn connection(&self, peer: usize) -> &StripedConnection;
}

impl<S: AsRef<[u8]>, R: AsMut<[u8]> + AsRef<[u8]>> Transfers<S, R> {
    pub(crate) fn new() -> Self {
        Self { queues: Vec::new(), sent: Vec::new(), received: Vec::new() }
    }

    /// Queue of a peer, which is created at its first use.
    fn queue(&mut self, peer: usize) -> &mut PeerQueue<S, R> {
        let at = self.queues.iter().position(|queue| queue.peer == peer).unwrap_or_else(|| {
            let (sends, recvs) = (MessageQueue::default(), MessageQueue::default());
            self.queues.push(PeerQueue { peer, sends, recvs });
            self.queues.len() - 1
        });
        &mut self.queues[at]
    }

    pub(crate) fn post_send(
        &mut self,
        fp: Fingerprint,
        peer: usize,
        bytes: S,
        net: &impl Connections,
    ) {
        let StripedConnection { streams, next_send, .. } = net.connection(peer);
        let message = Message::new(fp, bytes, streams.len(), next_send);
        self.queue(peer).sends.messages.push_back(message);
    }

    pub(crate) fn post_recv(
        &mut self,
        fp: Fingerprint,
        peer: usize,
        bytes: R,
        net: &impl Connections,
    ) {
        let StripedConnection { streams, next_recv, .. } = net.connection(peer);
        let message = Message::new(fp, bytes, streams.len(), next_recv);
        self.queue(peer).recvs.messages.push_back(message);
    }

    /// Transfers as many bytes as possible without blocking; returns whether any byte was transferred.
    pub(crate) fn pump(
        &mut self,
        net: &impl Connections,
        roster: &RankRoster,
    ) -> Result<bool, Cause> {
        let mut has_moved = false;
        for PeerQueue { peer, sends, recvs } in &mut self.queues {
            let streams = &net.connection(*peer).streams;
            let lost = || roster.peer_lost(*peer, Departure::Gone);
            has_moved |= sends.pump(streams, |message, number, stream| {
                let bytes = message.bytes.as_ref();
                message.stripes[number].send(bytes, stream).map_err(|_| lost())
            })?;
            has_moved |= recvs.pump(streams, |message, number, stream| {
                let Message { fingerprint, bytes, stripes, .. } = message;
                let bytes = bytes.as_mut();
                let len = bytes.len();
                let check =
                    |received: &Header| check_header(received, *fingerprint, len, *peer, roster);
                stripes[number].receive(bytes, stream, check, lost)
            })?;
            self.sent.extend(sends.take_done());
            self.received.extend(recvs.take_done());
        }
        Ok(has_moved)
    }

    /// Takes the messages that have been sent; their memory can be reused.
    pub(crate) fn take_sent(&mut self) -> impl Iterator<Item = S> {
        self.sent.drain(..)
    }

    /// Takes the messages that have been received.
    pub(crate) fn take_received(&mut self) -> impl Iterator<Item = R> {
        self.received.drain(..)
    }

    /// Whether a message was received and not yet taken.
    pub(crate) fn has_received(&self) -> bool {
        !self.received.is_empty()
    }

    /// Whether there are no transfers.
    pub(crate) fn is_idle(&self) -> bool {
        self.queues.iter().all(|queue| queue.sends.is_empty() && queue.recvs.is_empty())
    }

    /// Peers whose messages are missing; if there are none, peers that have not received the messages
    /// of this rank.
    pub(crate) fn missing_peers(&self) -> Vec<usize> {
        let peers_with = |has: fn(&PeerQueue<S, R>) -> bool| {
            self.queues.iter().filter(move |queue| has(queue)).map(|queue| queue.peer)
        };
        let missing: Vec<_> = peers_with(|queue| !queue.recvs.is_empty()).collect();
        if missing.is_empty() {
            peers_with(|queue| !queue.sends.is_empty()).collect()
        } else {
            missing
        }
    }

    /// Calls `visit` for every stream with pending transfers: whether to send, whether to receive.
    pub(crate) fn visit_pending<'n>(
        &self,
        net: &'n impl Connections,
        mut visit: impl FnMut(&'n TcpStream, bool, bool),
    ) {
        for queue in &self.queues {
            for (at, stream) in net.connection(queue.peer).streams.iter().enumerate() {
                let sends = queue.sends.is_pending_on(at);
                let receives = queue.recvs.is_pending_on(at);
                if sends || receives {
                    visit(stream, sends, receives);
                }
            }
        }
    }
}

/// Compares a received header with that of the expected message.
fn check_header(
    received: &Header,
    fingerprint: Fingerprint,
    len: usize,
    peer: usize,
    roster: &RankRoster,
) -> Result<(), Cause> {
    let mut words = [0; 5];
    for (word, bytes) in words.iter_mut().zip(received.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let [magic, bytes, call @ ..] = words;
    compare_calls(fingerprint, || roster.job_rank(peer), call)?;
    if [magic, bytes] == [HEADER_MAGIC, len as u64] {
        return Ok(());
    }
    Err(DifferentCall::new(fingerprint, roster.job_rank(peer), call).into())
}
