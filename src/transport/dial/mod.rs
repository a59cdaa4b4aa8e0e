//! Nodes that are started one by one: node 0 listens ([`Gate`]), the others dial in ([`Dialer`]).
//!
//! ```text
//! node 0:  dispatcher ══ link ══ pump ── Noise over TCP ── pump ══ link ══ agent   : node N
//!                                 gate                      member
//! ```
//!
//! Everything on the connection is encrypted with a key that all nodes were given. Who does not have
//! it gets no answer, only a close. The bytes of a link pass through as they are; a few words of our
//! own travel beside them (`words`): who joins, with which plan, and how the job ended.

mod bind;
mod dialer;
mod gate;
mod handshake;
mod line;
mod member;
mod notices;
mod pump;
mod strangers;
mod words;

use std::time::Duration;

pub use bind::{BindError, BoundListener};
pub use dialer::{Dialer, JoinFault};
pub use gate::{Acceptor, HANDSHAKES_MAX, Joined, Rules};
pub use member::{Attached, MemberConnection, News};
pub use words::{JobOver, JoinRefusal};

/// An eighth of the time that somebody has waited, within bounds: what lies between two attempts.
fn share_of(waited: Duration, min: Duration, max: Duration) -> Duration {
    (waited / 8).clamp(min, max)
}
