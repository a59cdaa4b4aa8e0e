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
use crate::wire::{Occasion, ProbeFault, ProbeListener, ProbeResult, Token};

/// Time limit of one connection attempt.
const KNOCK_LIMIT: Duration = Duration::from_secs(4);
/// Maximum number of connections that one listener answers at the same time, and that one node
/// opens.
const KNOCKS_MAX: usize = 256;
/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(50);

/// Answers every peer that knows the token, until it is dropped.
pub(super) async fn wait_at(listener: std::net::TcpListener, token: Token) {
    let listener = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
    // Without a listener, the peers report a failed connection.
    let Ok(listener) = listener else { return };
    let places = Arc::new(Semaphore::new(KNOCKS_MAX));
    let mut knocks = JoinSet::new();
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                knocks.spawn(async move {
                    let _ = tokio::time::timeout(KNOCK_LIMIT, answer(stream, token)).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
        while knocks.try_join_next().is_some() {}
    }
}

async fn answer(mut stream: TcpStream, token: Token) -> io::Result<()> {
    let mut knock = [0; 32];
    stream.read_exact(&mut knock).await?;
    if knock == token.proof(Occasion::Knock) {
        stream.write_all(&token.proof(Occasion::Open)).await?;
    }
    Ok(())
}

/// Connects to all of these listeners; returns the results in their order.
pub(super) async fn knock_at(doors: Vec<ProbeListener>) -> Vec<ProbeResult> {
    let places = Arc::new(Semaphore::new(KNOCKS_MAX));
    let mut knocks = JoinSet::new();
    for (number, door) in doors.into_iter().enumerate() {
        let places = Arc::clone(&places);
        knocks.spawn(async move {
            let _place = places.acquire().await;
            (number, knock(&door).await)
        });
    }
    let mut dialed = knocks.join_all().await;
    dialed.sort_by_key(|(number, _)| *number);
    dialed.into_iter().map(|(_, dialed)| dialed).collect()
}

async fn knock(door: &ProbeListener) -> ProbeResult {
    let before = clock::now();
    let opened = tokio::time::timeout(KNOCK_LIMIT, be_let_in(door.addr, door.token));
    let (opened, resolved) = tokio::join!(opened, resolve(door.name.as_deref()));
    let outcome = match opened {
        Ok(Ok(())) => Ok((clock::now() - before).as_micros() as u32),
        Ok(Err(error)) => Err(fault(&error)),
        Err(_) => Err(ProbeFault::NoAnswer),
    };
    ProbeResult { whose: door.whose, outcome, resolved }
}

/// Returns the addresses to which a name resolves on this node.
async fn resolve(name: Option<&str>) -> Option<Vec<IpAddr>> {
    let found =
        tokio::time::timeout(KNOCK_LIMIT, tokio::net::lookup_host((name?, 0))).await.ok()?;
    let mut addresses: Vec<IpAddr> =
        found.into_iter().flatten().map(|address| address.ip()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    Some(addresses)
}

async fn be_let_in(address: SocketAddr, token: Token) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&token.proof(Occasion::Knock)).await?;
    let mut answer = [0; 32];
    let length = stream.read_exact(&mut answer).await;
    match length {
        Ok(_) if answer == token.proof(Occasion::Open) => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn fault(error: &io::Error) -> ProbeFault {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => ProbeFault::Refused,
        io::ErrorKind::TimedOut => ProbeFault::NoAnswer,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => ProbeFault::NoRoute,
        io::ErrorKind::InvalidData => ProbeFault::Stranger,
        _ => ProbeFault::Other(crate::report::summary::reason(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::NodeRank;
    use crate::wire::ListenerOwner;

    const OURS: Token = Token([7; 16]);

    fn at(addr: SocketAddr, token: Token) -> ProbeListener {
        ProbeListener {
            whose: ListenerOwner::Node(NodeRank(0)),
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
            tokio::spawn(wait_at(listener, OURS));
            let doors = vec![at(open, OURS), at(open, Token([8; 16])), at(free, OURS)];
            let dialed = knock_at(doors).await;
            assert!(dialed[0].outcome.is_ok(), "{dialed:?}");
            assert_eq!(dialed[1].outcome, Err(ProbeFault::Stranger));
            assert_eq!(dialed[2].outcome, Err(ProbeFault::Refused));
            assert_eq!(dialed[0].resolved, Some(vec![[127, 0, 0, 1].into()]));
        });
    }
}
