//! Nodes that are started one by one: node 0 listens ([`Acceptor`]), the others connect to it
//! ([`Dialer`]).
//!
//! ```text
//! node 0:  dispatcher ══ link ══ relay ── Noise over TCP ── relay ══ link ══ agent   : node N
//!                               acceptor                    member
//! ```
//!
//! Everything on the connection is encrypted with a key that all nodes have. A connection without
//! the key gets no reply and is closed. The key may be public ([`KeyOrigin::RunId`]): then a node
//! executes nothing that it received ([`LinkFilter`]). The bytes of a link pass through unchanged; a few control
//! messages of remuda travel beside them (`control_messages`): which node joins, with which plan,
//! and how the job ended.

mod acceptor;
mod agent;
mod auth_failures;
mod bind;
mod control_messages;
mod dialer;
mod join_handshake;
mod join_wait;
mod member;
mod notices;
mod probe;
mod relay;
mod retry_pause;
mod rules;
mod secure_channel;

pub use acceptor::{Acceptor, HANDSHAKES_MAX, Joined};
pub use bind::{BindError, BoundListener};
pub use control_messages::{JobOver, JoinRefusal};
pub use dialer::{Dialer, JoinFault};
pub use join_wait::JoinWait;
pub use member::{AttachedMember, MemberConnection, MemberEvent};
pub use notices::NameStart;
pub use probe::is_node_0;
pub use relay::LinkFilter;
pub use rules::{KeyOrigin, Rules};
