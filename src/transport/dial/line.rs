//! An encrypted connection as two halves: one says, one hears.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::words::Control;
use crate::secure::{Channel, Opener, PLAINTEXT_BYTES_MAX, Sealer};

/// Bytes of a link in one message; a little less than what fits.
pub(super) const PIECE_BYTES_MAX: usize = 60 << 10;
const _: () = assert!(PIECE_BYTES_MAX < PLAINTEXT_BYTES_MAX - 1);
const READ_BYTES: usize = 64 << 10;

/// First byte of a message: bytes of the link follow.
const LINK: u8 = 0;
/// A word follows.
const WORD: u8 = 1;

/// Silence of the network after which the kernel asks whether the other side is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(5);
const KEEPALIVE_COUNT: u32 = 3;

/// What may be said.
#[derive(Debug)]
pub(super) enum Received {
    Link(Vec<u8>),
    Word(Control),
}

/// The half that says.
pub(super) struct SecureWriter {
    stream: OwnedWriteHalf,
    sealer: Sealer,
    plain: Vec<u8>,
    wire: Vec<u8>,
}

/// The half that hears.
pub(super) struct SecureReader {
    stream: OwnedReadHalf,
    opener: Opener,
    wire: Vec<u8>,
}

/// Both halves, after a handshake that left these bytes.
pub(super) fn halves(
    stream: TcpStream,
    channel: Channel,
    left: Vec<u8>,
) -> (SecureWriter, SecureReader) {
    let (read, write) = stream.into_split();
    let (sealer, opener) = channel.split();
    let mouth = SecureWriter { stream: write, sealer, plain: Vec::new(), wire: Vec::new() };
    (mouth, SecureReader { stream: read, opener, wire: left })
}

/// Small messages go at once, and a network that swallows everything is noticed: what was sent and not
/// received for the length of the lease ends the connection.
pub(super) fn tune(stream: &TcpStream, lease: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_PAUSE)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_COUNT)?;
    sockopt::set_tcp_user_timeout(stream, lease.as_millis() as u32)?;
    Ok(())
}

impl SecureWriter {
    /// Says a word.
    pub(super) async fn say(&mut self, word: &Control) -> io::Result<()> {
        self.plain = postcard::to_extend(word, vec![WORD]).map_err(io::Error::other)?;
        self.send().await
    }

    /// Passes on bytes of the link, at most [`PIECE_BYTES_MAX`].
    pub(super) async fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.plain.clear();
        self.plain.push(LINK);
        self.plain.extend_from_slice(bytes);
        self.send().await
    }

    async fn send(&mut self) -> io::Result<()> {
        self.wire.clear();
        self.sealer.seal(&self.plain, &mut self.wire).map_err(io::Error::other)?;
        self.stream.write_all(&self.wire).await
    }

    /// Nothing more will be said.
    pub(super) async fn end(&mut self) {
        let _ = self.stream.shutdown().await;
    }
}

impl SecureReader {
    /// What comes next; `None` at the end. May be given up while it waits.
    pub(super) async fn next(&mut self) -> io::Result<Option<Received>> {
        loop {
            if let Some(plain) = self.opener.open(&mut self.wire).map_err(io::Error::other)? {
                return parse(plain).map(Some);
            }
            self.wire.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.wire).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Who is at the other end.
    pub(super) fn peer(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }
}

fn parse(mut plain: Vec<u8>) -> io::Result<Received> {
    let nonsense = || io::Error::new(io::ErrorKind::InvalidData, "a message that means nothing");
    match plain.first() {
        Some(&LINK) => {
            plain.remove(0);
            Ok(Received::Link(plain))
        }
        Some(&WORD) => {
            let word = postcard::from_bytes(&plain[1..]).map_err(|_| nonsense())?;
            Ok(Received::Word(word))
        }
        _ => Err(nonsense()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_and_words_are_understood() {
        assert!(matches!(parse(vec![LINK, 7, 8]), Ok(Received::Link(bytes)) if bytes == [7, 8]));
        let word = postcard::to_extend(&Control::Signal(15), vec![WORD]).expect("it serializes");
        assert!(matches!(parse(word), Ok(Received::Word(Control::Signal(15)))));
        for nonsense in [vec![], vec![2, 0], vec![WORD], vec![WORD, 250]] {
            assert!(parse(nonsense).is_err());
        }
    }
}
