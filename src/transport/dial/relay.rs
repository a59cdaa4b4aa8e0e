//! Relays the bytes of a link between a local descriptor and an encrypted connection, and control
//! messages beside them.

use std::io;

use tokio::sync::mpsc;

use super::control_messages::Control;
use super::secure_channel::{PIECE_BYTES_MAX, Received, SecureReader, SecureWriter};
use crate::transport::{LinkReader, LinkWriter};

/// Decides what an agent receives of the bytes that node 0 sends.
pub trait LinkFilter: Send {
    /// Returns bytes for the agent after the next bytes of node 0.
    ///
    /// # Errors
    /// If they are no messages that node 0 may send; the link then ends.
    fn filter(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>>;
}

/// This machine's end of a link.
pub(super) struct LocalLink {
    pub(super) reader: LinkReader,
    pub(super) writer: LinkWriter,
    /// Applied to the bytes of the connection.
    pub(super) filter: Option<Box<dyn LinkFilter>>,
}

/// An event that a pump reports.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RelayEvent {
    Control(Control),
    /// The local end of the link was closed.
    LocalEnded,
}

/// Relays until the peer has closed the connection, then closes it too: the other end of the local
/// descriptor then reads the end of the stream. Control messages are sent until their senders are
/// dropped.
pub(super) async fn relay(
    local: LocalLink,
    (mut writer, mut reader): (SecureWriter, SecureReader),
    controls: mpsc::UnboundedReceiver<Control>,
    on_event: impl Fn(RelayEvent) + Send + Sync,
) {
    let LocalLink { reader: local_reader, writer: local_writer, filter } = local;
    let outwards = async {
        let _ = relay_outgoing(&mut writer, &local_reader, controls, &on_event).await;
        writer.shutdown().await;
        // The peer closes the connection when it has received everything.
        std::future::pending::<()>().await;
    };
    let inwards = relay_incoming(&mut reader, (&local_writer, filter), &on_event);
    tokio::select! {
        () = outwards => {}
        () = inwards => {}
    }
}

async fn relay_outgoing(
    writer: &mut SecureWriter,
    local: &LinkReader,
    mut controls: mpsc::UnboundedReceiver<Control>,
    on_event: &(impl Fn(RelayEvent) + Sync),
) -> io::Result<()> {
    let (mut has_controls, mut has_link) = (true, true);
    while has_controls || has_link {
        tokio::select! {
            biased;
            control = controls.recv(), if has_controls => match control {
                Some(control) => writer.send_control(&control).await?,
                None => has_controls = false,
            },
            piece = local.read_piece(PIECE_BYTES_MAX), if has_link => {
                let piece = piece.unwrap_or_default();
                has_link = !piece.is_empty();
                if has_link {
                    writer.send_link_bytes(&piece).await?;
                } else {
                    on_event(RelayEvent::LocalEnded);
                }
            }
        }
    }
    Ok(())
}

async fn relay_incoming(
    reader: &mut SecureReader,
    (local, mut filter): (&LinkWriter, Option<Box<dyn LinkFilter>>),
    on_event: &(impl Fn(RelayEvent) + Sync),
) {
    // A message that was changed in transit counts as the end of the connection.
    while let Ok(Some(received)) = reader.next().await {
        match received {
            // The reading side reports a local end that is closed.
            Received::Link(bytes) => {
                let passed = match &mut filter {
                    None => Ok(bytes),
                    Some(filter) => filter.filter(&bytes),
                };
                let Ok(passed) = passed else { return };
                let _ = local.write_all(&passed, &[]).await;
            }
            Received::Control(Control::LinkEnded) => local.shutdown(),
            Received::Control(control @ Control::AgentEnded(_)) => {
                on_event(RelayEvent::Control(control));
                local.shutdown();
            }
            Received::Control(control) => on_event(RelayEvent::Control(control)),
        }
    }
}
