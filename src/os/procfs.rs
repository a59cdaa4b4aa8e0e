//! Mapped libraries and TCP sockets, as listed in `/proc`. Every read has a size limit.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use rustix::process::Pid;

/// State of a connection that was closed recently.
const TIME_WAIT: &str = "06";

/// Maximum number of bytes read from one file of `/proc`.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Whether a process has mapped a shared library whose file name has this prefix, such as
/// `libtorch`.
pub fn maps_library(pid: Pid, prefix: &str) -> io::Result<bool> {
    any_line(&format!("/proc/{}/maps", pid.as_raw_pid()), |line| is_library(line, prefix))
}

/// Whether any TCP socket of this network namespace has this port, as its own or as that of its
/// peer. The kernel's record of a closed connection (`TIME_WAIT`) is not a socket.
pub fn has_tcp_socket(port: u16) -> io::Result<bool> {
    if any_line("/proc/self/net/tcp", |line| has_port(line, port))? {
        return Ok(true);
    }
    match any_line("/proc/self/net/tcp6", |line| has_port(line, port)) {
        // A kernel without IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => found,
    }
}

/// Whether any line of a file matches; an error if the file is longer than the limit.
fn any_line(path: &str, mut matches: impl FnMut(&str) -> bool) -> io::Result<bool> {
    let mut lines = BufReader::new(File::open(path)?.take(FILE_BYTES_MAX));
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if matches(&String::from_utf8_lossy(&line)) {
            return Ok(true);
        }
    }
    if lines.get_ref().limit() == 0 { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(false) }
}

/// Whether a line of `maps` names this library. The sixth word is the path; it may contain blanks.
fn is_library(line: &str, prefix: &str) -> bool {
    let Some((_, name)) = line.trim_end().rsplit_once('/') else { return false };
    name.starts_with(prefix) && name.contains(".so")
}

/// Whether a line of `tcp` has this port: `0: 0100007F:733C 00000000:0000 0A …`. The second and the
/// third word end in a port, the fourth is the state.
fn has_port(line: &str, port: u16) -> bool {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (Some(own), Some(peer), Some(state)) = (words.next(), words.next(), words.next()) else {
        return false;
    };
    let matches = |address: &str| {
        let (_, hex) = address.rsplit_once(':')?;
        Some(u16::from_str_radix(hex, 16) == Ok(port))
    };
    state != TIME_WAIT && [own, peer].into_iter().filter_map(matches).any(|found| found)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn mapped_library_is_found_by_file_name() {
        let line = |path: &str| format!("7f00-7f01 r-xp 00000000 fd:00 42        {path}\n");
        assert!(is_library(&line("/opt/my env/torch/lib/libtorch_cpu.so"), "libtorch"));
        assert!(is_library(&line("/lib/libtorch.so.2 (deleted)"), "libtorch"));
        assert!(!is_library(&line("/lib/libtorch.py"), "libtorch"));
        assert!(!is_library(&line("/libtorch/libc.so.6"), "libtorch"));
        assert!(!is_library(&line("[heap]"), "libtorch"));
        let own = rustix::process::getpid();
        assert!(maps_library(own, "libc").expect("readable"));
        assert!(!maps_library(own, "libtorch").expect("readable"));
    }

    #[test]
    fn tcp_socket_is_found_by_either_port() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("there are ports");
        let port = listener.local_addr().expect("bound").port();
        assert!(has_tcp_socket(port).expect("mounted"));
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        let other = stream.local_addr().expect("bound").port();
        assert!(has_tcp_socket(other).expect("mounted"));
        assert!(has_port("   1: 0100007F:A000 0100007F:733C 01 00000000:00000000", 29500));
        assert!(!has_port("   1: 0100007F:A000 0100007F:733C 06 00000000:00000000", 29500));
        assert!(!has_port("   1: 0100007F:A000 0100007F:733D 01 0000:733C", 29500));
        assert!(!has_port("  sl  local_address rem_address   st", 29500));
    }
}
