//! How the nodes of a job meet.

use std::time::Duration;

use crate::base::nearest;
use crate::cli::face::torchrun::size::NodeCount;
use crate::cli::line::{BadValue, parse_whole};
use crate::cli::resolve::NodePlace;
use crate::launch::{ElasticNodes, MeetingPoint, Newcomers};
use crate::plan::MASTER_PORT;

/// Usual port of a c10d rendezvous.
const C10D_PORT: u16 = 29400;

/// Kind of rendezvous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RendezvousBackend {
    /// Nodes have numbers, and the address of rank 0 is known.
    Static,
    /// Nodes meet at an address and get their numbers there.
    C10d,
}

impl RendezvousBackend {
    /// The port of an endpoint without one.
    pub(super) fn usual_port(self) -> u16 {
        match self {
            Self::Static => MASTER_PORT,
            Self::C10d => C10D_PORT,
        }
    }
}

/// Parses `--rdzv-backend`.
pub(super) fn parse_backend(text: &str) -> Result<RendezvousBackend, BadValue> {
    match text {
        "static" => Ok(RendezvousBackend::Static),
        "c10d" => Ok(RendezvousBackend::C10d),
        "etcd" | "etcd-v2" => Err(BadValue::new("remuda does not use etcd")),
        _ => {
            let bad = BadValue::new("expected `static` or `c10d`");
            Err(match nearest(text, ["static", "c10d"]) {
                Some(near) => bad.help(format!("did you mean `{near}`?")),
                None => bad,
            })
        }
    }
}

/// Address and port of the first node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) host: String,
    pub(super) port: Option<u16>,
}

/// Parses `HOST`, `HOST:PORT` or `[IPV6]:PORT`.
pub(super) fn parse_endpoint(text: &str) -> Result<Endpoint, BadValue> {
    const HELP: &str = "write `HOST`, `HOST:PORT` or `[IPV6]:PORT`";
    let text = text.trim();
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or(rest))),
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if !is_host(host) {
        return Err(BadValue::new("this is no address").help(HELP));
    }
    let port = port.map(|port| parse_whole(port, 0..=i64::from(u16::MAX))).transpose();
    let port = port.map_err(|_| BadValue::new("this port is no number up to 65535").help(HELP))?;
    Ok(Endpoint { host: host.to_owned(), port: port.map(|port| port as u16) })
}

/// Parses a name, an IPv4 address, or an IPv6 address with or without brackets.
pub(super) fn parse_host(text: &str) -> Result<String, BadValue> {
    let text = text.trim();
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if is_host(inner) {
        return Ok(inner.to_owned());
    }
    Err(BadValue::new("this is no address").help("write a name or an address of the first node"))
}

fn is_host(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "_.:-".contains(c))
}

/// Keys of `--rdzv-conf` with an effect.
pub(super) const CONF_KEYS: [&str; 5] =
    ["join_timeout", "timeout", "last_call_timeout", "newcomers", "is_host"];
/// Keys that torch reads and that have no effect here.
const CONF_KEYS_OF_TORCH: [&str; 8] = [
    "close_timeout",
    "heartbeat_timeout",
    "keep_alive_interval",
    "keep_alive_max_attempt",
    "rank",
    "read_timeout",
    "store_type",
    "use_libuv",
];

/// Settings of `--rdzv-conf`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RendezvousConf {
    /// Time limit of joining, in seconds.
    pub(super) join_limit: Option<f64>,
    /// Whether this process is the first node; `None`: its address decides.
    pub(super) is_host: Option<bool>,
    /// Time that a varying number of nodes waits for more nodes before the first start, in seconds.
    pub(super) last_call: Option<f64>,
    /// When nodes take part that join later.
    pub(super) newcomers: Newcomers,
    /// Keys that neither torch nor remuda reads.
    pub(super) unknown: Vec<String>,
}

/// Time that a varying number of nodes waits for more nodes before the first start, in seconds.
const LAST_CALL: f64 = 30.0;

impl RendezvousConf {
    /// How the number of nodes may vary.
    pub(super) fn elastic(&self, NodeCount { min, max }: NodeCount) -> ElasticNodes {
        let last_call = Duration::from_secs_f64(self.last_call.unwrap_or(LAST_CALL));
        let (meeting, newcomers) = (MeetingPoint::Node0, self.newcomers);
        ElasticNodes {
            min,
            max,
            meeting,
            last_call,
            newcomers,
            excludes_failing: false,
            lanes: None,
        }
    }

    /// Applies the settings to nodes to which the launcher connects.
    pub(super) fn adjust(&self, elastic: ElasticNodes) -> ElasticNodes {
        let last_call = self.last_call.map_or(elastic.last_call, Duration::from_secs_f64);
        ElasticNodes { last_call, newcomers: self.newcomers, ..elastic }
    }

    /// Which node this is, if the line gives no number.
    pub(super) fn place(&self) -> NodePlace {
        match self.is_host {
            None => NodePlace::ByAddress,
            Some(true) => NodePlace::First,
            Some(false) => NodePlace::Joins,
        }
    }
}

/// Parses `--rdzv-conf`.
pub(super) fn parse_conf(text: &str) -> Result<RendezvousConf, BadValue> {
    let mut conf = RendezvousConf::default();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let bad = || BadValue::new("expected KEY=VALUE pairs").help("write `join_timeout=60`");
        let (key, value) = pair.split_once('=').ok_or_else(bad)?;
        match (key.trim(), value.trim()) {
            ("", _) | (_, "") => return Err(bad()),
            (name @ ("timeout" | "join_timeout"), value) => {
                let seconds = value.parse::<f64>().ok().filter(|seconds| 0.0 < *seconds);
                let bad = || BadValue::new(format!("`{name}` is a number of seconds"));
                conf.join_limit = Some(seconds.ok_or_else(bad)?);
            }
            ("is_host", value) => conf.is_host = Some(parse_flag(value)?),
            ("last_call_timeout", value) => {
                let seconds = value.parse::<f64>().ok().filter(|seconds| 0.0 <= *seconds);
                let bad = || BadValue::new("`last_call_timeout` is a number of seconds");
                conf.last_call = Some(seconds.ok_or_else(bad)?);
            }
            ("newcomers", value) => conf.newcomers = parse_newcomers(value)?,
            (key, _) if CONF_KEYS_OF_TORCH.contains(&key) => {}
            (key, _) => conf.unknown.push(key.to_owned()),
        }
    }
    Ok(conf)
}

/// Parses when nodes take part that join later.
fn parse_newcomers(text: &str) -> Result<Newcomers, BadValue> {
    match text {
        "at_once" => Ok(Newcomers::AtOnce),
        "at_restart" => Ok(Newcomers::AtNextStart),
        _ => Err(BadValue::new("`newcomers` is `at_once` or `at_restart`")),
    }
}

/// Parses a truth value as torch's rendezvous does.
fn parse_flag(text: &str) -> Result<bool, BadValue> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "t" | "yes" | "y" => Ok(true),
        "0" | "false" | "f" | "no" | "n" => Ok(false),
        _ => Err(BadValue::new("`is_host` is `true` or `false`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_a_host_and_perhaps_a_port() {
        let parsed = |text| parse_endpoint(text).map(|found| (found.host, found.port));
        assert_eq!(parsed("n1"), Ok(("n1".to_owned(), None)));
        assert_eq!(parsed("n1.x:29400"), Ok(("n1.x".to_owned(), Some(29400))));
        assert_eq!(parsed("[fd00::1]:7"), Ok(("fd00::1".to_owned(), Some(7))));
        assert_eq!(parsed("localhost:0"), Ok(("localhost".to_owned(), Some(0))));
        for bad in ["", ":1", "n1:", "n1:x", "n1:65536", "a b:1"] {
            assert!(parse_endpoint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn hosts_lose_their_brackets() {
        assert_eq!(parse_host(" n1 "), Ok("n1".to_owned()));
        assert_eq!(parse_host("[::1]"), Ok("::1".to_owned()));
        for bad in ["", "a b", "[]", "[::1", "n1/x"] {
            assert!(parse_host(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn settings_are_pairs() {
        assert_eq!(parse_conf(""), Ok(RendezvousConf::default()));
        let conf = RendezvousConf {
            join_limit: Some(2.5),
            is_host: Some(true),
            last_call: Some(0.0),
            newcomers: Newcomers::AtNextStart,
            unknown: vec!["colour".to_owned()],
        };
        assert_eq!(
            parse_conf(
                "is_host=1, join_timeout=2.5,read_timeout=9,last_call_timeout=0,newcomers=at_restart,colour=red"
            ),
            Ok(conf)
        );
        for bad in ["a", "a=", "=b", "timeout=x", "timeout=0", "is_host=maybe", "newcomers=x"] {
            assert!(parse_conf(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn backends_without_a_server_are_known() {
        assert_eq!(parse_backend("c10d"), Ok(RendezvousBackend::C10d));
        let near = parse_backend("c10").expect_err("refused");
        assert_eq!(near.help.as_deref(), Some("did you mean `c10d`?"));
        assert!(parse_backend("etcd-v2").is_err());
    }
}
