//! The wait for a node that connects by itself, and why it did not join in time.

use std::time::Instant;

use super::join_limit::JoinLimit;
use crate::base::NodeRank;
use crate::transport::dial::{Acceptor, Joined};
use crate::transport::{Absence, Fault, FaultKind};

/// When a node that connects by itself must have joined.
#[derive(Clone, Copy)]
pub(super) struct JoinDeadline {
    at: Instant,
    /// The limit from which the instant follows.
    pub(super) limit: JoinLimit,
}

impl JoinDeadline {
    /// The deadline of a node that has been waited for since `join_from`.
    pub(super) fn after(join_from: Instant, limit: JoinLimit) -> Self {
        Self { at: join_from + limit.time, limit }
    }
}

/// Waits until a node has joined, by the link with this number, or is known to be absent.
pub(super) async fn wait_for_node(
    acceptor: &Acceptor,
    JoinDeadline { at, limit }: JoinDeadline,
    (node, link): (NodeRank, u32),
) -> Result<Joined, Absence> {
    match tokio::time::timeout_at(at.into(), acceptor.wait_for(node)).await {
        Ok(Some(joined)) => joined,
        Ok(None) | Err(_) => Err(Absence::Fault(absent_fault(acceptor, (node, link), limit).await)),
    }
}

/// The fault of a node that did not join in time: rejected connections with another key prove the
/// reason.
async fn absent_fault(
    acceptor: &Acceptor,
    (node, link): (NodeRank, u32),
    limit: JoinLimit,
) -> Fault {
    let limit = limit.show();
    let mut message = format!("node {node} did not join within {limit}");
    if 0 < link {
        message += "; its first connection was lost";
    }
    let Some(rejected) = acceptor.wrong_keys(node).await else {
        let rejected = match acceptor.last_rejection().await {
            Some(last) => format!("; a connection was rejected, {last}"),
            None => String::new(),
        };
        return Fault::new(FaultKind::NotJoined, message + &rejected);
    };
    let own_key = acceptor.key_label();
    let message = format!(
        "node {node} did not join within {limit}: {rejected}; the key of node 0 has the {own_key}"
    );
    Fault::new(FaultKind::OtherKey, message)
}
