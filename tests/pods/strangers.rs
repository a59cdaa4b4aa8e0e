//! A connection without the key gets no reply and has no effect.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::pods::nodes::Nodes;
use crate::support::process::Role;
use crate::support::{LIMIT, wait_for};

/// First bytes of foreign connections: HTTP, TLS, ssh, an unknown protocol, another version of remuda,
/// an excessive length, a malformed preamble.
const FOREIGN_BYTES: [&[u8]; 7] = [
    b"GET / HTTP/1.1\r\nHost: node\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"\0\0\0\0\0\0\0\0",
    b"remuda\x63\x00\0\0\0\0",
    b"remuda\x01\x00\xff\xff\xff\xff",
    b"remuda\x01\x00\x02\x00\x00\x00\xff\xff",
];

fn call(port: u16) -> TcpStream {
    // Node 0 prints the wait shortly before it listens.
    let stream = wait_for("a listener", || TcpStream::connect(("127.0.0.1", port)).ok());
    stream.set_read_timeout(Some(LIMIT)).expect("a socket");
    stream
}

/// Sends the bytes, and expects the end of the connection without a reply.
#[track_caller]
fn check_unanswered(port: u16, bytes: &[u8]) {
    let mut stream = call(port);
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    // A close with unread bytes is a reset.
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(answer, b"", "an answer to {bytes:?}");
}

#[test]
fn foreign_connections_get_no_reply_and_do_not_affect_the_job() {
    let nodes = Nodes::new(&[1, 1]);
    let script = "echo running; read line; echo $line";
    let first = nodes.node(0).option("--stdin=0").stdin(std::process::Stdio::piped());
    let mut first = first.sh(script).start();
    first.wait_for_error("Waiting");
    let port = nodes.port + 1;
    for bytes in FOREIGN_BYTES {
        check_unanswered(port, bytes);
    }
    let second = nodes.node(1).sh(script).start();
    first.wait_for_lines("running", 2);
    for bytes in FOREIGN_BYTES {
        check_unanswered(port, bytes);
        // The store sends no reply either.
        check_unanswered(port + 1, bytes);
    }
    first.take_stdin().write_all(b"still here\n").expect("rank 0 reads");
    let first = first
        .end()
        .code(0)
        .says("note: rejected connection from 127.0.0.1: not the remuda protocol");
    assert!(first.stdout_text().contains("still here"), "{first:#?}");
    second.end().code(0);
}

#[test]
fn silent_connections_do_not_delay_nodes() {
    let nodes = Nodes::new(&[1, 1]);
    let first = nodes.node(0).sh("true").start();
    first.wait_for_error("Waiting");
    // More than the handshakes that run at the same time; each stays until it is closed.
    let connections: Vec<TcpStream> = (0..300).map(|_| call(nodes.port + 1)).collect();
    let mut slow = call(nodes.port + 1);
    slow.write_all(b"rem").expect("it is connected");
    nodes.node(1).sh("true").end().code(0);
    first.end().code(0);
    drop((connections, slow));
}

#[test]
fn replayed_handshake_is_rejected() {
    let nodes = Nodes::new(&[1, 1]);
    // A proxy records the bytes of a node and closes the connection.
    let listener = std::net::TcpListener::bind(("127.0.0.1", nodes.port + 1)).expect("a free port");
    let second = nodes.node(1).sh("sleep 600").start();
    let mut recorded = vec![0; 512];
    let (mut stream, _) = listener.accept().expect("the node connects");
    let length = stream.read(&mut recorded).expect("the node sends its first flight");
    recorded.truncate(length);
    drop((stream, listener));
    let first = nodes.node(0).sh("sleep 600").start();
    second.wait_for_role(Role::Worker, 1);
    first.wait_for_role(Role::Worker, 1);
    // It receives a reply that it cannot decrypt, and nothing else.
    let mut stream = call(nodes.port + 1);
    stream.write_all(&recorded).expect("it is connected");
    stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket");
    let mut answer = [0; 512];
    let answered = stream.read(&mut answer).unwrap_or(0);
    assert!(answered <= 64, "{answered} bytes");
    stream.write_all(&[20, 0]).expect("it is connected");
    stream.write_all(&[7; 20]).expect("it is connected");
    let _ = stream.shutdown(Shutdown::Write);
    first.signal(rustix::process::Signal::TERM);
    first.end().code(143);
    second.end().code(143);
}
