//! NCCL's RAS service: NCCL's own status of a job that hangs.
//!
//! Since NCCL 2.24 every process with a communicator has a thread that answers requests on a port
//! of its host, in lines of text.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::base::{clock, env_vars};

/// Address of the service unless `NCCL_RAS_ADDR` is set.
const ADDRESS_DEFAULT: &str = "localhost:28028";
/// Bytes of an answer that are shown; that of thousands of ranks is longer.
const ANSWER_BYTES_MAX: usize = 4096;

/// Time limit for the answer of the service when something hangs.
const REPORT_LIMIT: Duration = Duration::from_secs(5);

/// What the RAS service of this host says about an operation that hangs, to follow a message.
pub(crate) fn report() -> String {
    match status(REPORT_LIMIT) {
        Ok(status) => format!("; status of its RAS service:\n{status}"),
        Err(error) => format!("; its RAS service cannot be queried: {error}"),
    }
}

/// Queries the RAS service of this host for the status of the job, within `limit`.
pub fn status(limit: Duration) -> io::Result<String> {
    let address = env_vars::get_text(env_vars::NCCL_RAS_ADDR);
    let address = address.as_deref().unwrap_or(ADDRESS_DEFAULT);
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("`{address}` has no address"));
    for address in address.to_socket_addrs()? {
        match query(address, limit) {
            Ok(answer) => return Ok(answer),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Requests `VERBOSE STATUS`. The time limit is sent too, because the service queries the other
/// processes in turn.
fn query(address: SocketAddr, limit: Duration) -> io::Result<String> {
    let deadline = clock::now() + limit;
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_write_timeout(Some(limit))?;
    let seconds = limit.as_secs().saturating_sub(1).max(1);
    write!(stream, "CLIENT PROTOCOL 2\nTIMEOUT {seconds}\nVERBOSE STATUS\n")?;
    let mut answer = Vec::new();
    let mut bytes = [0; 4096];
    while answer.len() < ANSWER_BYTES_MAX {
        let left = deadline.saturating_duration_since(clock::now());
        if left.is_zero() {
            break;
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // An incomplete answer is more useful than the error.
            Err(_) if !answer.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    answer.truncate(ANSWER_BYTES_MAX);
    Ok(strip_acknowledgements(&String::from_utf8_lossy(&answer)))
}

/// Removes the lines with which the service acknowledges each setting.
fn strip_acknowledgements(answer: &str) -> String {
    let is_acknowledgement =
        |line: &str| line.starts_with("SERVER PROTOCOL") || line.trim() == "OK" || line.is_empty();
    let lines = answer.lines().map(str::trim_end).skip_while(|line| is_acknowledgement(line));
    lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn ras_client_reads_an_answer_until_the_close() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut request = vec![0; 256];
            let mut read = 0;
            while !String::from_utf8_lossy(&request[..read]).contains("VERBOSE STATUS\n") {
                read += stream.read(&mut request[read..]).expect("a request");
            }
            stream.write_all(b"SERVER PROTOCOL 2\nOK\nNCCL version 2.30.7\n\nrank 3 missing\n\n")
        });
        let answer = query(address, Duration::from_secs(60)).expect("an answer");
        assert_eq!(answer, "NCCL version 2.30.7\n\nrank 3 missing");
        server.join().expect("no panic").expect("written");
    }

    #[test]
    fn ras_client_without_a_listener_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        drop(listener);
        assert!(query(address, Duration::from_secs(60)).is_err());
    }
}
