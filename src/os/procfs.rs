//! Mapped libraries and TCP sockets, as listed in `/proc`. Every read has a size limit.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

use rustix::process::Pid;

/// State of a connection that was closed recently.
const TIME_WAIT: &str = "06";
/// How long the kernel keeps the record of such a connection.
const TIME_WAIT_LIMIT: Duration = Duration::from_secs(60);
/// Unit of the times in `tcp`: a clock tick of user space.
const TICK: Duration = Duration::from_millis(10);
/// State of a socket that accepts connections.
const LISTEN: &str = "0A";
/// Maximum number of descriptors of one process that are read.
const DESCRIPTORS_MAX: usize = 4096;

/// Maximum number of bytes read from one file of `/proc`.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Whether a process has mapped a shared library whose file name has this prefix, such as
/// `libtorch`.
pub fn maps_library(pid: Pid, prefix: &str) -> io::Result<bool> {
    any_line(&format!("/proc/{}/maps", pid.as_raw_pid()), |line| is_library(line, prefix))
}

/// Whether any TCP socket of this network namespace has this port, as its own or as that of its
/// peer. The kernel's record of a closed connection (`TIME_WAIT`) counts if the connection was closed
/// within this time.
pub fn has_tcp_socket(port: u16, closed_within: Duration) -> io::Result<bool> {
    any_socket(|line| has_port(line, port, closed_within))
}

/// Whether every one of these processes has a TCP socket that accepts connections; false if there
/// is no process.
pub fn all_listen(pids: &[Pid]) -> io::Result<bool> {
    let mut listening = BTreeSet::new();
    any_socket(|line| {
        listening.extend(listener_inode(line));
        false
    })?;
    let listens = |pid: &Pid| Ok(!listening.is_disjoint(&socket_inodes(*pid)?));
    let listens: io::Result<Vec<bool>> = pids.iter().map(listens).collect();
    listens.map(|listens| !listens.is_empty() && !listens.contains(&false))
}

/// Numbers of the sockets that a process has.
fn socket_inodes(pid: Pid) -> io::Result<BTreeSet<u64>> {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_pid()))?;
    let targets = descriptors.flatten().take(DESCRIPTORS_MAX).filter_map(|descriptor| {
        let target = fs::read_link(descriptor.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    });
    Ok(targets.collect())
}

/// Whether any line about a TCP socket of this network namespace matches.
fn any_socket(mut matches: impl FnMut(&str) -> bool) -> io::Result<bool> {
    if any_line("/proc/self/net/tcp", &mut matches)? {
        return Ok(true);
    }
    match any_line("/proc/self/net/tcp6", &mut matches) {
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
/// third word end in a port, the fourth is the state, and the sixth ends in the time until the kernel
/// forgets a closed connection.
fn has_port(line: &str, port: u16, closed_within: Duration) -> bool {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (Some(own), Some(peer), Some(state)) = (words.next(), words.next(), words.next()) else {
        return false;
    };
    let matches = |address: &str| {
        let (_, hex) = address.rsplit_once(':')?;
        Some(u16::from_str_radix(hex, 16) == Ok(port))
    };
    let mut remaining = || {
        let (_, hex) = words.nth(1)?.rsplit_once(':')?;
        Some(TICK * u32::from_str_radix(hex, 16).ok()?)
    };
    [own, peer].into_iter().filter_map(matches).any(|found| found)
        && (state != TIME_WAIT
            || remaining().is_some_and(|left| TIME_WAIT_LIMIT.saturating_sub(left) < closed_within))
}

/// The number of the socket in a line of `tcp`, the tenth word, if it accepts connections.
fn listener_inode(line: &str) -> Option<u64> {
    let mut words = line.split_ascii_whitespace().skip(3);
    (words.next()? == LISTEN).then(|| words.nth(5)?.parse().ok()).flatten()
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
        let has_tcp_socket = |port| has_tcp_socket(port, Duration::ZERO);
        assert!(has_tcp_socket(port).expect("mounted"));
        assert!(all_listen(&[rustix::process::getpid()]).expect("readable"));
        assert!(!all_listen(&[]).expect("readable"));
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        let other = stream.local_addr().expect("bound").port();
        assert!(has_tcp_socket(other).expect("mounted"));
        let has_port = |line| has_port(line, 29500, Duration::ZERO);
        assert!(has_port("   1: 0100007F:A000 0100007F:733C 01 00000000:00000000"));
        assert!(!has_port("   1: 0100007F:A000 0100007F:733C 06 00000000:00000000"));
        assert!(!has_port("   1: 0100007F:A000 0100007F:733D 01 0000:733C"));
        assert!(!has_port("  sl  local_address rem_address   st"));
    }

    #[test]
    fn closed_connection_counts_while_it_is_young() {
        // 40 s are left of 60.
        let line = "   1: 0100007F:A000 0100007F:733C 06 00000000:00000000 03:00000FA0 00000000";
        let within = |seconds| has_port(line, 29500, Duration::from_secs(seconds));
        assert!(within(21) && !within(20) && !within(0));
    }

    #[test]
    fn listener_is_found_by_its_number() {
        let line = |state| {
            format!("  0: 0100007F:A000 00000000:0000 {state} 0:0 00:0 0 0 0 4711 1 0000 100 0")
        };
        assert_eq!(listener_inode(&line(LISTEN)), Some(4711));
        assert_eq!(listener_inode(&line("01")), None);
        assert_eq!(listener_inode("  sl  local_address rem_address   st tx_queue"), None);
    }
}
