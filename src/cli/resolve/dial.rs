//! `--no_ssh` with a key: nodes are started separately and connect to each other as one job.

use std::borrow::Cow;
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use crate::base::shell::quoted;
use crate::base::{Diagnostic, JobId, Status};
use crate::cli::codes::pod as codes;
use crate::cli::error::CliError;
use crate::cli::line::{self, CommandLine};
use crate::cli::resolve::trust::is_foreign;
use crate::launch::{DialOptions, JoinLimit, NodeOptions, PortOrigin};
use crate::os::files::fds;
use crate::os::files::input_file::{InputReader, open};
use crate::os::net::interfaces;
use crate::report::text::show_io_error;
use crate::secure::{JobKey, KEY_FILE_BYTES_MAX, derive_job_id};
use crate::transport::dial::{KeyOrigin, NameStart};

/// Default time limit for all nodes to join: some nodes may still be pulling an image, be
/// unscheduled, or be booting.
pub(super) const JOIN_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The option of remuda that sets the time limit.
pub(super) const JOIN_OPTION: &str = "--join_timeout";
/// Offset of the port for agents from the port of rank 0.
const AGENT_PORT_OFFSET: u16 = 1;
/// Distance of a port for agents that is far from the port of rank 0.
const AGENT_PORT_DISTANCE: u16 = 4999;
/// Offset of the port of the store from the port of rank 0.
const STORE_PORT_OFFSET: u16 = 2;

/// Options about the connection of the nodes.
pub(super) struct DialArgs<'a> {
    pub(in crate::cli) key: KeySource<'a>,
    pub(in crate::cli) job_id: Option<&'a str>,
    pub(in crate::cli) join_timeout: Option<Duration>,
    /// The option that sets it; empty: there is none.
    pub(in crate::cli) join_option: &'static str,
    /// An address of this node, or an interface with an address.
    pub(in crate::cli) local_addr: Option<&'a str>,
    /// Address of node 0.
    pub(in crate::cli) address: &'a str,
    pub(in crate::cli) ports: NodePorts,
    pub(in crate::cli) peer_exit: Option<u8>,
    pub(in crate::cli) options: NodeOptions,
}

/// Returns the options of a line of `remuda run`, or of another one that was made from it.
pub(super) fn options_of_run(typed: &CommandLine) -> NodeOptions {
    NodeOptions { number: typed.option_name("node_rank"), port: typed.option_name("master_port") }
}

/// Where the key of a job comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeySource<'a> {
    /// A file on a machine that may have other users.
    File(&'a Path),
    /// A Secret that is mounted in a pod: it belongs to root, and all users in the pod can read it.
    Mounted(&'a Path),
    /// The nodes have no secret in common: the key follows from the public name of the job.
    RunId(&'a str),
}

/// Ports of node 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum NodePorts {
    /// The port of rank 0; the one after it is for agents, the next one for the store.
    From(u16),
    /// The port of rank 0; the one for agents is far from it, and the kernel chooses that of the store.
    Apart(u16),
    /// A port for agents; the kernel chooses the others.
    Agents(u16),
}

impl NodePorts {
    /// Returns the port of rank 0, if it is fixed.
    pub(in crate::cli) fn master(self) -> Option<u16> {
        match self {
            Self::From(port) | Self::Apart(port) => Some(port),
            Self::Agents(_) => None,
        }
    }
}

/// Returns the options of the transport, and warnings.
pub(super) fn dial(
    args: &DialArgs<'_>,
    typed: &CommandLine,
) -> Result<(DialOptions, String), CliError> {
    let (port, port_origin, store_port) = match args.ports {
        NodePorts::Agents(port) => (port, PortOrigin::Own, 0),
        NodePorts::Apart(master) => (agent_port(master), PortOrigin::OfMaster(master), 0),
        NodePorts::From(master) => {
            let port = master.saturating_add(AGENT_PORT_OFFSET);
            (port, PortOrigin::AfterMaster, store_port(master, typed)?)
        }
    };
    let join_limit =
        JoinLimit { time: args.join_timeout.unwrap_or(JOIN_TIMEOUT), option: args.join_option };
    let (key, key_origin, warning) = match args.key {
        KeySource::File(path) | KeySource::Mounted(path) => {
            let (key, warning) = read_key(path, args.key)?;
            (key, KeyOrigin::File(path.display().to_string()), warning)
        }
        KeySource::RunId(name) => {
            (JobKey::of_public_name(name), KeyOrigin::RunId(name.to_owned()), String::new())
        }
    };
    let job = args.job_id.map(|name| JobId(name.to_owned()));
    let options = DialOptions {
        job: job.unwrap_or_else(|| derive_job_id(&key, args.ports.master().unwrap_or(port))),
        key,
        key_origin,
        address: args.address.to_owned(),
        port,
        port_origin,
        listener: None,
        store_port,
        local_addr: args.local_addr.map(own_address).transpose()?,
        join_limit,
        return_limit: join_limit,
        problems: Vec::new(),
        peer_exit: args.peer_exit,
        is_task: false,
        shares_screen: false,
        has_host_names: true,
        options: args.options.clone(),
        name_start: NameStart::Late,
        wait_help: Box::default(),
    };
    Ok((options, warning))
}

/// Returns the port for agents that is far from the port of rank 0. Jobs that share machines often have
/// neighbouring ports, and the port must follow from the line, which is all that the other nodes know.
fn agent_port(master_port: u16) -> u16 {
    const LOW: u16 = 10_000;
    if master_port < LOW {
        master_port + AGENT_PORT_DISTANCE
    } else {
        // Below the ports that the kernel gives to connections, if possible.
        master_port - AGENT_PORT_DISTANCE
    }
}

/// Returns the port of the store after that of rank 0.
fn store_port(master_port: u16, typed: &CommandLine) -> Result<u16, CliError> {
    if let Some(port) = master_port.checked_add(STORE_PORT_OFFSET) {
        return Ok(port);
    }
    let place = typed.value_span("master_port").unwrap_or_else(|| typed.end_span());
    let refused = typed.refuse(&[place], |spans| {
        let message = format!("there are no two ports after {master_port}");
        Diagnostic::error(line::codes::BAD_VALUE, spans[0], message)
            .label(format!("expected at most {} with several nodes", u16::MAX - STORE_PORT_OFFSET))
            .help("remuda uses the next port for agents and the one after it for the store")
    });
    Err(refused.into())
}

/// Parses an address of this machine, or the name of an interface.
fn own_address(text: &str) -> Result<IpAddr, CliError> {
    let all = interfaces::addresses().unwrap_or_default();
    find_address(text, &all).ok_or_else(|| {
        let message = format!("`{text}` is neither an address nor an interface of this node");
        let known = all.iter().filter(|(_, address)| !address.is_loopback());
        let known = known.map(|(name, address)| format!("{name} {address}"));
        CliError::new(Status::Config, codes::BAD_LOCAL_ADDR, message)
            .help(format!("this node has {}", known.collect::<Vec<_>>().join(", ")))
    })
}

/// Returns the address itself, or an address of the interface: the first IPv4 address, else the
/// first IPv6 address that other nodes can reach.
fn find_address(text: &str, all: &[(String, IpAddr)]) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        // All of 127.0.0.0/8 belongs to this machine, but is not in the list.
        let is_own = address.is_loopback() || all.iter().any(|(_, own)| *own == address);
        return is_own.then_some(address);
    }
    let of_interface = || all.iter().filter(|(name, _)| name == text).map(|(_, address)| *address);
    let is_far = |address: &IpAddr| match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    of_interface().find(IpAddr::is_ipv4).or_else(|| of_interface().find(is_far))
}

/// Returns the key, and a warning if other users can read it. If others can write the file, it is
/// refused. Others can read a mounted Secret, too, but it is mounted for one pod only, so there is
/// no warning.
fn read_key(path: &Path, source: KeySource<'_>) -> Result<(JobKey, String), CliError> {
    let shown = path.display();
    let is_mounted = matches!(source, KeySource::Mounted(_));
    let unreadable = |error: &std::io::Error| {
        let message = format!("cannot read the key file `{shown}`: {}", show_io_error(error));
        let help = unreadable_help(path, error, is_mounted);
        CliError::new(Status::NoInput, codes::KEY_UNREADABLE, message).help(help)
    };
    let file = match descriptor_of_path(path) {
        // The descriptor is for this process, and workers must not inherit it.
        Some(number) => fds::close_on_exec(number).and_then(|()| open(path)),
        None => open(path),
    };
    let file = file.map_err(|error| unreadable(&error))?;
    let found = file.metadata().map_err(|error| unreadable(&error))?;
    let own = rustix::process::geteuid().as_raw();
    let refused = |code: &'static str, why: &str, help: &str| {
        let message = format!("the key file `{shown}` {why}");
        Err(CliError::new(Status::Permission, code, message).help(help))
    };
    if found.mode() & 0o022 != 0 && !found.file_type().is_dir() {
        return refused(
            codes::KEY_WRITABLE,
            "is writable by other users",
            &writable_help(path, is_mounted),
        );
    }
    if is_foreign(found.uid(), own) {
        let why = format!("belongs to another user (uid {})", found.uid());
        return refused(
            codes::KEY_OF_OTHER_USER,
            &why,
            "its owner can start workers under your account: copy it to a file of your own",
        );
    }
    let mut text = Vec::new();
    let read = InputReader::new(file)
        .and_then(|file| file.take(KEY_FILE_BYTES_MAX as u64 + 1).read_to_end(&mut text));
    read.map_err(|error| unreadable(&error))?;
    let key = JobKey::from_text(&text).map_err(|error| {
        let message = format!("the key file `{shown}`: {error}");
        CliError::new(Status::BadInput, codes::NO_KEY, message).help(MAKE_KEY_HELP)
    })?;
    let is_secret = is_mounted && found.uid() == 0;
    let warning = if !is_secret && found.file_type().is_file() && found.mode() & 0o044 != 0 {
        let code = codes::KEY_READABLE;
        let file = quoted(path);
        format!(
            "warning[{code}]: other users can read the key file `{shown}`; type `chmod 600 {file}`\n"
        )
    } else {
        String::new()
    };
    Ok((key, warning))
}

/// Returns help for a key file that other users can write.
fn writable_help(path: &Path, is_mounted: bool) -> String {
    let file = quoted(path);
    let otherwise = if is_mounted {
        "; in a pod, give the Secret's volume `defaultMode: 0400`, or 0444 for users other than root"
    } else {
        ", or create a new key"
    };
    format!("type `chmod go-w {file}`{otherwise}")
}

/// Returns help for a key file that cannot be read. In a pod the file belongs to root, and the user
/// of the pod may be another.
fn unreadable_help(path: &Path, error: &std::io::Error, is_mounted: bool) -> Cow<'static, str> {
    let is_refused = error.kind() == std::io::ErrorKind::PermissionDenied;
    match (is_mounted, is_refused) {
        (false, false) => MAKE_KEY_HELP.into(),
        (false, true) => {
            let file = quoted(path);
            format!(
                "it must belong to you: type `sudo chown $USER {file}`, then `chmod 600 {file}`"
            )
            .into()
        }
        (true, false) => {
            "mount the same Secret in every pod, and give the path of its entry".into()
        }
        (true, true) => "a Secret's volume with `defaultMode: 0400` is readable by root only: for \
                         another user set `defaultMode: 0444`, or 0440 and an `fsGroup`"
            .into(),
    }
}

const MAKE_KEY_HELP: &str = "create one key and copy it to every node: \
                        `(umask 077; head -c 32 /dev/urandom > key)`";

/// Returns the number of a descriptor that the parent process passed: `/dev/fd/3`.
fn descriptor_of_path(path: &Path) -> Option<i32> {
    let text = path.to_str()?;
    let number =
        ["/dev/fd/", "/proc/self/fd/"].into_iter().find_map(|head| text.strip_prefix(head))?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_neighbouring_jobs_do_not_collide() {
        assert_eq!(agent_port(29_500), 24_501);
        for master in 1..=u16::MAX {
            let own = agent_port(master);
            assert!(1024 < own && AGENT_PORT_DISTANCE == own.abs_diff(master), "{master}");
            for neighbour in (1..100).filter_map(|distance| master.checked_add(distance)) {
                assert!(own != neighbour && own != agent_port(neighbour), "{master} {neighbour}");
                assert_ne!(master, agent_port(neighbour), "{neighbour}");
            }
        }
    }

    #[test]
    fn address_is_found_by_ip_or_interface() {
        let all = [
            ("lo", "127.0.0.1"),
            ("eth0", "fe80::1"),
            ("eth0", "fd00::4"),
            ("eth0", "10.0.0.4"),
            ("net1", "fe80::2"),
            ("net1", "fd01::4"),
            ("net2", "fe80::3"),
        ];
        let all = all.map(|(name, ip)| (name.to_owned(), ip.parse().expect("an address")));
        let shown = |text: &str| {
            find_address(text, &all).map_or_else(String::new, |address| address.to_string())
        };
        assert_eq!(shown("10.0.0.4"), "10.0.0.4");
        assert_eq!(shown("127.0.0.3"), "127.0.0.3");
        assert_eq!(shown("eth0"), "10.0.0.4");
        assert_eq!(shown("net1"), "fd01::4");
        for nothing in ["10.0.0.5", "net2", "net3", "", "::"] {
            assert_eq!(shown(nothing), "", "{nothing}");
        }
    }

    #[test]
    fn descriptor_is_parsed_from_path() {
        assert_eq!(descriptor_of_path(Path::new("/dev/fd/3")), Some(3));
        assert_eq!(descriptor_of_path(Path::new("/proc/self/fd/12")), Some(12));
        assert_eq!(descriptor_of_path(Path::new("/etc/key")), None);
        assert_eq!(descriptor_of_path(Path::new("/dev/fd/key")), None);
    }
}
