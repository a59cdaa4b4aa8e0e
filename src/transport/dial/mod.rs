//! Nodes that are started one by one: node 0 listens ([`Acceptor`]), the others connect to it
//! ([`Dialer`]).
//!
//! ```text
//! node 0:  dispatcher ══ link ══ pump ── Noise over TCP ── pump ══ link ══ agent   : node N
//!                                 gate                      member
//! ```
//!
//! Everything on the connection is encrypted with a key that all nodes have. A connection without
//! the key gets no reply and is closed. The bytes of a link pass through unchanged; a few control
//! messages of remuda travel beside them (`words`): which node joins, with which plan, and how the
//! job ended.

mod agent;
mod bind;
mod dialer;
mod gate;
mod handshake;
mod line;
mod member;
mod notices;
mod pump;
mod rules;
mod strangers;
mod words;

use std::time::Duration;

pub use bind::{BindError, BoundListener};
pub use dialer::{Dialer, JoinFault};
pub use gate::{Acceptor, HANDSHAKES_MAX, Joined};
pub use member::{AttachedMember, MemberConnection, MemberEvent};
pub use rules::Rules;
pub use words::{JobOver, JoinRefusal};

/// Pause between two attempts: an eighth of the time waited so far, within bounds.
fn share_of(waited: Duration, min: Duration, max: Duration) -> Duration {
    (waited / 8).clamp(min, max)
}
