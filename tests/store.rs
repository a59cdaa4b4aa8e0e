//! Goal: ranks find each other through the store, and peers without the key get no data.
//! Method: a real server on loopback, real clients, and sockets that send invalid bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use remuda::base::{Epoch, JobId, Rank, clock};
use remuda::runtime::store::{
    Client, ClientError, Server, ServerOptions, StoreIdentity, departed_key,
};
use remuda::secure::{HandshakeError, JobKey, Preamble, Purpose, Role, derive_rank_key, dial};

const WORLD: u32 = 4;

struct Fixture {
    server: Server,
    refused: Receiver<String>,
}

fn serve() -> Fixture {
    let (sender, refused) = mpsc::channel();
    let options = ServerOptions {
        job: JobId("j1".into()),
        epoch: Epoch(3),
        key_of: Box::new(|rank| {
            (rank.0 < WORLD).then(|| derive_rank_key(&secret(), Epoch(3), rank))
        }),
        on_refused: Box::new(move |_, reason| drop(sender.send(reason.to_string()))),
    };
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), options).unwrap();
    Fixture { server, refused }
}

fn secret() -> JobKey {
    JobKey::from_random([9; 32])
}

/// Deadline that only ends a hang.
fn soon() -> Instant {
    clock::now() + Duration::from_secs(60)
}

fn identity(rank: u32) -> StoreIdentity {
    let key = derive_rank_key(&secret(), Epoch(3), Rank(rank));
    StoreIdentity {
        job: JobId("j1".into()),
        epoch: Epoch(3),
        rank: Rank(rank),
        key,
        advertised_ip: None,
    }
}

fn connect(address: SocketAddr, identity: &StoreIdentity) -> Result<Client, ClientError> {
    Client::connect(address, identity, Purpose::Ask, soon())
}

/// Whether the peer has closed the connection without sending a byte.
fn is_closed(mut stream: TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    match stream.read(&mut [0; 64]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn ranks_find_each_other() {
    let fixture = serve();
    let address = fixture.server.address();
    thread::scope(|scope| {
        for rank in 0..WORLD {
            scope.spawn(move || {
                let mut client = connect(address, &identity(rank)).unwrap();
                client.set(&format!("address/{rank}"), &[rank as u8], soon()).unwrap();
                let keys = (0..WORLD).map(|rank| format!("address/{rank}")).collect();
                let addresses = client.wait(keys, soon()).unwrap();
                assert_eq!(addresses, (0..WORLD as u8).map(|rank| vec![rank]).collect::<Vec<_>>());
                client.add("n", 1, soon()).unwrap();
                client.barrier("all", WORLD, soon()).unwrap();
                assert_eq!(client.add("n", 0, soon()).unwrap(), i64::from(WORLD));
            });
        }
    });
}

#[test]
fn wait_ends_at_its_deadline() {
    let fixture = serve();
    let mut client = connect(fixture.server.address(), &identity(0)).unwrap();
    let deadline = clock::now() + Duration::from_millis(20);
    assert!(matches!(client.wait(vec!["never".into()], deadline), Err(ClientError::Deadline)));
}

/// A late reply is not taken for the reply to the next request.
#[test]
fn request_after_a_timeout_gets_its_own_reply() {
    let fixture = serve();
    let mut client = connect(fixture.server.address(), &identity(0)).unwrap();
    client.set("ours", b"1", soon()).unwrap();
    for _ in 0..3 {
        let late = client.peek("missing", clock::now());
        assert!(matches!(late, Err(ClientError::Deadline)), "{late:?}");
    }
    assert_eq!(client.peek("ours", soon()).unwrap().as_deref(), Some(&b"1"[..]));
}

#[track_caller]
fn check_refused(identity: &StoreIdentity, expect: &HandshakeError, reason: &str) {
    let fixture = serve();
    match connect(fixture.server.address(), identity) {
        Err(ClientError::Handshake(error)) => assert_eq!(error, *expect),
        other => panic!("expected a refusal, not {other:?}"),
    }
    assert_eq!(fixture.refused.recv().unwrap(), reason);
}

#[test]
fn store_rejects_a_different_key_epoch_job_or_rank() {
    let right = identity(1);
    let wrong_key = "handshake failed: the peer has a different key";
    let other_secret = StoreIdentity {
        key: derive_rank_key(&JobKey::from_random([8; 32]), Epoch(3), Rank(1)),
        ..right.clone()
    };
    check_refused(&other_secret, &HandshakeError::Key, wrong_key);
    let other_rank = StoreIdentity { rank: Rank(2), ..right.clone() };
    check_refused(&other_rank, &HandshakeError::Key, wrong_key);
    let no_rank = StoreIdentity { rank: Rank(WORLD), ..right.clone() };
    check_refused(&no_rank, &HandshakeError::Key, "there is no rank 4");
    let other_job = StoreIdentity { job: JobId("j2".into()), ..right.clone() };
    check_refused(&other_job, &HandshakeError::Key, "it belongs to job `j2`");
    let old = StoreIdentity { epoch: Epoch(2), ..right };
    let epochs = HandshakeError::Epoch { own: Epoch(2), peer: Epoch(3) };
    check_refused(&old, &epochs, "it is in attempt 3, the store in attempt 4");
}

#[test]
fn second_connection_of_a_rank_is_rejected() {
    let fixture = serve();
    let address = fixture.server.address();
    let first = connect(address, &identity(1)).unwrap();
    assert!(matches!(
        connect(address, &identity(1)),
        Err(ClientError::Handshake(HandshakeError::Refused(_)))
    ));
    assert_eq!(fixture.refused.recv().unwrap(), "rank 1 is already connected");
    Client::connect(address, &identity(1), Purpose::Watch, soon()).unwrap();
    drop(first);
}

#[test]
fn store_has_a_key_for_every_rank_that_left() {
    let fixture = serve();
    let address = fixture.server.address();
    let mut stays = connect(address, &identity(0)).unwrap();
    let leaves = Client::connect(address, &identity(1), Purpose::Watch, soon()).unwrap();
    assert_eq!(stays.peek(&departed_key(Rank(1)), soon()).unwrap(), None);
    drop(leaves);
    assert_eq!(stays.wait(vec![departed_key(Rank(1))], soon()).unwrap(), [b""]);
}

#[track_caller]
fn check_invalid_bytes(bytes: &[u8], reason: &str) {
    let fixture = serve();
    let mut stream = TcpStream::connect(fixture.server.address()).unwrap();
    stream.write_all(bytes).unwrap();
    assert_eq!(fixture.refused.recv().unwrap(), reason);
    assert!(is_closed(stream));
}

#[test]
fn connection_with_invalid_bytes_is_closed() {
    check_invalid_bytes(b"GET / HTTP/1.1\r\n\r\n", "not the remuda protocol (looks like HTTP)");
    check_invalid_bytes(b"\x16\x03\x01\x02\x00\x01", "not the remuda protocol (looks like TLS)");
    check_invalid_bytes(b"SSH-2.0-x\r\n", "not the remuda protocol (looks like ssh)");
    check_invalid_bytes(
        b"remuda\x01\x00\xff\xff\xff\xff",
        "the first message has 131082 bytes, at most 256 are read",
    );
    let other = "the peer uses protocol version 99, this remuda uses version 1";
    check_invalid_bytes(b"remuda\x63\x00\x00\x00\x00\x00", other);
}

#[test]
fn replayed_handshake_is_rejected() {
    let fixture = serve();
    let preamble = Preamble { job: JobId("j1".into()), role: Role::Rank(Rank(1), Purpose::Ask) };
    let (_, flight) = dial(&preamble, &identity(1).key, Epoch(3)).unwrap();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(fixture.server.address()).unwrap();
        stream.write_all(&flight).unwrap();
        let mut reply = [0; 2];
        stream.read_exact(&mut reply).unwrap();
        // Without the ephemeral key of the first message, nothing can be sent on this connection.
        stream.write_all(&[0x20, 0].into_iter().chain([0; 32]).collect::<Vec<_>>()).unwrap();
        assert_eq!(
            fixture.refused.recv().unwrap(),
            "a message was modified, repeated or reordered in transit"
        );
    }
}

#[test]
fn silent_connections_do_not_block_ranks() {
    let fixture = serve();
    let address = fixture.server.address();
    let mut early = connect(address, &identity(0)).unwrap();
    let silent: Vec<_> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
    early.set("still", b"here", soon()).unwrap();
    let mut late = connect(address, &identity(1)).unwrap();
    assert_eq!(late.wait(vec!["still".into()], soon()).unwrap(), [b"here"]);
    drop(silent);
}

#[test]
fn incomplete_handshake_times_out() {
    let fixture = serve();
    let mut stream = TcpStream::connect(fixture.server.address()).unwrap();
    stream.write_all(b"remuda\x01").unwrap();
    assert_eq!(fixture.refused.recv().unwrap(), "handshake timed out (5 s)");
    assert!(is_closed(stream));
}
