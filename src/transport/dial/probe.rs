//! Finds out whether the process that uses the port of node 0 is node 0 of the same job.

use std::time::Duration;

use tokio::net::TcpStream;

use super::bind::without_brackets;
use super::join_handshake::{FlightReply, send_first_flight};
use crate::base::{Epoch, JobId, NodeRank};
use crate::secure::JobKey;

/// Time limit for the reply, which is usually sent at once.
const REPLY_MAX: Duration = Duration::from_secs(3);

/// Whether a node 0 with this key accepts nodes at this address: no other process can answer the handshake. The
/// connection is closed before a node joins.
pub async fn is_node_0(address: &str, port: u16, (job, key): (&JobId, &JobKey)) -> bool {
    let handshake = async {
        let stream = TcpStream::connect((without_brackets(address), port)).await?;
        send_first_flight(stream, (job, Some(NodeRank(1))), key, Epoch(0)).await
    };
    let reply = tokio::time::timeout(REPLY_MAX, handshake).await;
    matches!(reply, Ok(Ok(FlightReply::Accepted(..))))
}
