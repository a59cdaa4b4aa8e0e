//! Sends the executable of this process to a host whose cache does not have it.

use std::io::{self, Read};
use std::time::Duration;

use super::binary::Binary;
use super::digest::CHUNK_BYTES;
use super::fault::{Fault, FaultKind};
use crate::transport::LinkWriter;

/// Sends the executable and nothing after it, in pieces of which each may take as long as the limit; calls
/// `on_piece` after each.
pub(super) async fn push(
    binary: &Binary,
    writer: &LinkWriter,
    limit: Duration,
    on_piece: impl FnMut(),
) -> Result<(), Fault> {
    match send_pieces(binary, writer, limit, on_piece).await {
        Ok(()) => Ok(()),
        // A node that stopped reading reports the reason.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Fault::new(
            FaultKind::NoAgent,
            format!("cannot send the agent to the host: {error}"),
        )),
    }
}

async fn send_pieces(
    binary: &Binary,
    writer: &LinkWriter,
    limit: Duration,
    mut on_piece: impl FnMut(),
) -> io::Result<()> {
    let mut file = binary.open()?;
    let mut piece = vec![0; CHUNK_BYTES];
    let mut left = binary.bytes;
    while 0 < left {
        let length = file.read(&mut piece)?;
        if length == 0 {
            return Err(io::Error::other(
                "the executable of remuda became shorter while it was sent",
            ));
        }
        let writing = writer.write_all(&piece[..length], &[]);
        match tokio::time::timeout(limit, writing).await {
            Ok(written) => written?,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
        left = left.saturating_sub(length as u64);
        on_piece();
    }
    Ok(())
}
