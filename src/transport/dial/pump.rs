//! Relays the bytes of a link between a local descriptor and an encrypted connection, and control
//! messages beside them.

use std::io;

use tokio::sync::mpsc;

use super::line::{PIECE_BYTES_MAX, Received, SecureReader, SecureWriter};
use super::words::Control;
use crate::transport::{LinkReader, LinkWriter};

/// This machine's end of a link.
pub(super) struct Local {
    pub(super) reader: LinkReader,
    pub(super) writer: LinkWriter,
}

/// An event that a pump reports.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pumped {
    Word(Control),
    /// The local end of the link was closed.
    LocalEnded,
}

/// Relays until the peer has closed the connection, then closes it too: the other end of the local
/// descriptor then reads the end of the stream. Control messages are sent until their senders are
/// dropped.
pub(super) async fn pump(
    local: Local,
    (mut mouth, mut ear): (SecureWriter, SecureReader),
    words: mpsc::UnboundedReceiver<Control>,
    tell: impl Fn(Pumped) + Send + Sync,
) {
    let Local { reader, writer } = local;
    let outwards = async {
        let _ = say_all(&mut mouth, &reader, words, &tell).await;
        mouth.end().await;
        // The peer closes the connection when it has received everything.
        std::future::pending::<()>().await;
    };
    let inwards = hear_all(&mut ear, &writer, &tell);
    tokio::select! {
        () = outwards => {}
        () = inwards => {}
    }
}

async fn say_all(
    mouth: &mut SecureWriter,
    reader: &LinkReader,
    mut words: mpsc::UnboundedReceiver<Control>,
    tell: &(impl Fn(Pumped) + Sync),
) -> io::Result<()> {
    let (mut has_words, mut has_link) = (true, true);
    let mut piece = Vec::with_capacity(PIECE_BYTES_MAX);
    while has_words || has_link {
        piece.clear();
        tokio::select! {
            biased;
            word = words.recv(), if has_words => match word {
                Some(word) => mouth.say(&word).await?,
                None => has_words = false,
            },
            read = reader.read(&mut piece), if has_link => {
                has_link = matches!(read, Ok(1..));
                if has_link {
                    mouth.pass(&piece).await?;
                } else {
                    tell(Pumped::LocalEnded);
                }
            }
        }
    }
    Ok(())
}

async fn hear_all(ear: &mut SecureReader, writer: &LinkWriter, tell: &(impl Fn(Pumped) + Sync)) {
    // A message that was changed in transit counts as the end of the connection.
    while let Ok(Some(said)) = ear.next().await {
        match said {
            // The reading side reports a local end that is closed.
            Received::Link(bytes) => drop(writer.write_all(&bytes, &[]).await),
            Received::Word(Control::LinkEnded) => writer.end(),
            Received::Word(word @ Control::AgentEnded(_)) => {
                tell(Pumped::Word(word));
                writer.end();
            }
            Received::Word(word) => tell(Pumped::Word(word)),
        }
    }
}
