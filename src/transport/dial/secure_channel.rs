//! An encrypted connection as two halves: one sends, the other receives.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::control_messages::Control;
use crate::secure::{Channel, Opener, PLAINTEXT_BYTES_MAX, Sealer};

/// Bytes of a link in one message; slightly less than the maximum.
pub(super) const PIECE_BYTES_MAX: usize = 60 << 10;
const _: () = assert!(PIECE_BYTES_MAX < PLAINTEXT_BYTES_MAX - 1);
const READ_BYTES: usize = 64 << 10;

/// First byte of a message that carries bytes of the link.
const LINK: u8 = 0;
/// First byte of a message that carries a control message.
const CONTROL: u8 = 1;

/// Time without data after which the kernel probes the peer.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(5);
const KEEPALIVE_COUNT: u32 = 3;

/// The content of a message.
#[derive(Debug)]
pub(super) enum Received {
    Link(Vec<u8>),
    Control(Control),
}

/// The half that sends.
pub(super) struct SecureWriter {
    stream: OwnedWriteHalf,
    sealer: Sealer,
}

/// The half that receives.
pub(super) struct SecureReader {
    stream: OwnedReadHalf,
    opener: Opener,
    wire: Vec<u8>,
}

/// Splits a connection into its halves; `left` are the bytes that followed the handshake.
pub(super) fn split(
    stream: TcpStream,
    channel: Channel,
    left: Vec<u8>,
) -> (SecureWriter, SecureReader) {
    let (read, write) = stream.into_split();
    let (sealer, opener) = channel.split();
    (SecureWriter { stream: write, sealer }, SecureReader { stream: read, opener, wire: left })
}

/// Sends small messages at once, and detects a network that drops everything: if data stays
/// unacknowledged for twice the lease, the connection ends. The lease is over before, so that a node is lost by
/// a reason with a time, not by a connection that closed.
pub(super) fn set_socket_options(stream: &TcpStream, lease: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_PAUSE)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_COUNT)?;
    sockopt::set_tcp_user_timeout(stream, user_timeout_ms(lease))?;
    Ok(())
}

/// Twice the lease, at most what the kernel accepts, which is 24 days.
fn user_timeout_ms(lease: Duration) -> u32 {
    lease.saturating_mul(2).as_millis().min(i32::MAX as u128) as u32
}

impl SecureWriter {
    /// Sends a control message.
    pub(super) async fn send_control(&mut self, control: &Control) -> io::Result<()> {
        self.send(&postcard::to_extend(control, vec![CONTROL]).map_err(io::Error::other)?).await
    }

    /// Sends bytes of the link, at most [`PIECE_BYTES_MAX`].
    pub(super) async fn send_link_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.send(&[&[LINK], bytes].concat()).await
    }

    /// Keeps no memory: there may be thousands of connections, and malloc costs little beside the encryption.
    async fn send(&mut self, plain: &[u8]) -> io::Result<()> {
        let mut wire = Vec::new();
        self.sealer.seal(plain, &mut wire).map_err(io::Error::other)?;
        self.stream.write_all(&wire).await
    }

    /// Closes the sending direction.
    pub(super) async fn shutdown(&mut self) {
        let _ = self.stream.shutdown().await;
    }
}

impl SecureReader {
    /// The next message; `None` at the end of the connection. Safe to cancel.
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

    /// Address of the peer, and of this machine.
    pub(super) fn ends(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.stream.peer_addr()?, self.stream.local_addr()?))
    }
}

fn parse(mut plain: Vec<u8>) -> io::Result<Received> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "malformed message");
    match plain.first() {
        Some(&LINK) => {
            plain.remove(0);
            Ok(Received::Link(plain))
        }
        Some(&CONTROL) => {
            let control = postcard::from_bytes(&plain[1..]).map_err(|_| malformed())?;
            Ok(Received::Control(control))
        }
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_another_kind_is_rejected() {
        assert!(matches!(parse(vec![LINK, 7, 8]), Ok(Received::Link(bytes)) if bytes == [7, 8]));
        let control =
            postcard::to_extend(&Control::Signal(15), vec![CONTROL]).expect("it serializes");
        assert!(matches!(parse(control), Ok(Received::Control(Control::Signal(15)))));
        for malformed in [vec![], vec![2, 0], vec![CONTROL], vec![CONTROL, 250]] {
            assert!(parse(malformed).is_err());
        }
    }
}
