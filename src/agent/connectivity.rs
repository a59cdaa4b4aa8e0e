//! Connectivity test: every agent listens on one port and connects to the listeners of the other
//! agents. Both sides prove that they know the listener's token, which they received over their
//! links.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::base::clock;
use crate::base::order;
use crate::wire::{ProbeFault, ProbeListener, ProbeResult, ProofDirection, Token};

/// Time limit of one connection attempt.
const PROBE_LIMIT: Duration = Duration::from_secs(4);
/// Maximum number of connections that one listener answers at the same time, and that one node
/// opens.
const PROBES_MAX: usize = 256;
/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves connections: answers every peer that knows the token, until the task is dropped.
pub(super) async fn serve_probes(listener: std::net::TcpListener, token: Token) {
    let listener = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
    // Without a listener, the peers report a failed connection.
    let Ok(listener) = listener else { return };
    let permits = Arc::new(Semaphore::new(PROBES_MAX));
    let mut probes = JoinSet::new();
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                probes.spawn(async move {
                    let _ = tokio::time::timeout(PROBE_LIMIT, answer_probe(stream, token)).await;
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
        while probes.try_join_next().is_some() {}
    }
}

async fn answer_probe(mut stream: TcpStream, token: Token) -> io::Result<()> {
    let mut proof = [0; 32];
    stream.read_exact(&mut proof).await?;
    if proof == token.proof(ProofDirection::Connecting) {
        stream.write_all(&token.proof(ProofDirection::Listening)).await?;
    }
    Ok(())
}

/// Connects to all of these listeners; returns the results in their order.
pub(super) async fn probe_all(listeners: Vec<ProbeListener>) -> Vec<ProbeResult> {
    let permits = Arc::new(Semaphore::new(PROBES_MAX));
    let mut probes = JoinSet::new();
    for (number, listener) in listeners.into_iter().enumerate() {
        let permits = Arc::clone(&permits);
        probes.spawn(async move {
            let _permit = permits.acquire().await;
            (number, probe(&listener).await)
        });
    }
    let mut results = probes.join_all().await;
    order::sort_by_key(&mut results, |(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Connects to one listener, and resolves the name of its owner at the same time.
async fn probe(listener: &ProbeListener) -> ProbeResult {
    let before = clock::now();
    let connection = tokio::time::timeout(PROBE_LIMIT, authenticate(listener.addr, listener.token));
    let (connected, resolved) = tokio::join!(connection, resolve_name(listener.name.as_deref()));
    let outcome = match connected {
        Ok(Ok(())) => Ok((clock::now() - before).as_micros() as u32),
        Ok(Err(error)) => Err(probe_fault(&error)),
        Err(_) => Err(ProbeFault::NoAnswer),
    };
    ProbeResult { owner: listener.owner, outcome, resolved }
}

/// Returns the addresses to which a name resolves on this node.
async fn resolve_name(name: Option<&str>) -> Option<Vec<IpAddr>> {
    let found =
        tokio::time::timeout(PROBE_LIMIT, tokio::net::lookup_host((name?, 0))).await.ok()?;
    let mut addresses: Vec<IpAddr> =
        found.into_iter().flatten().map(|address| address.ip()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    Some(addresses)
}

/// Connects to a listener; both sides prove that they know the token.
async fn authenticate(address: SocketAddr, token: Token) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&token.proof(ProofDirection::Connecting)).await?;
    let mut answer = [0; 32];
    let length = stream.read_exact(&mut answer).await;
    match length {
        Ok(_) if answer == token.proof(ProofDirection::Listening) => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Classifies a failed connection.
fn probe_fault(error: &io::Error) -> ProbeFault {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => ProbeFault::Refused,
        io::ErrorKind::TimedOut => ProbeFault::NoAnswer,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => ProbeFault::NoRoute,
        io::ErrorKind::InvalidData => ProbeFault::WrongPeer,
        _ => ProbeFault::Other(crate::report::text::show_io_error(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::NodeRank;
    use crate::wire::ListenerOwner;

    const TOKEN: Token = Token([7; 16]);

    fn at(addr: SocketAddr, token: Token) -> ProbeListener {
        ProbeListener {
            owner: ListenerOwner::Node(NodeRank(0)),
            name: Some("127.0.0.1".to_owned()),
            addr,
            token,
        }
    }

    #[test]
    fn probe_listener_accepts_only_its_token() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let open = listener.local_addr().expect("bound");
            let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let free = closed.local_addr().expect("bound");
            drop(closed);
            tokio::spawn(serve_probes(listener, TOKEN));
            let listeners = vec![at(open, TOKEN), at(open, Token([8; 16])), at(free, TOKEN)];
            let results = probe_all(listeners).await;
            assert!(results[0].outcome.is_ok(), "{results:?}");
            assert_eq!(results[1].outcome, Err(ProbeFault::WrongPeer));
            assert_eq!(results[2].outcome, Err(ProbeFault::Refused));
            assert_eq!(results[0].resolved, Some(vec![[127, 0, 0, 1].into()]));
        });
    }
}
