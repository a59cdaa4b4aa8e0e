//! Network interfaces and InfiniBand adapters, read from `/sys/class`.

use std::fs;
use std::path::Path;

use crate::base::order;

/// A network interface that is up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nic {
    /// Name, such as `eth0`.
    pub name: String,
    /// Speed in megabits per second; `None` for many virtual interfaces.
    pub speed_mbit: Option<u32>,
    /// Largest packet in bytes.
    pub mtu: u32,
}

/// A port of an InfiniBand adapter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IbPort {
    /// Adapter and port, such as `mlx5_0/1`.
    pub name: String,
    /// State, such as `ACTIVE`.
    pub state: String,
    /// Rate, such as `400 Gb/sec (4X NDR)`.
    pub rate: String,
}

/// The interfaces of a directory like `/sys/class/net` that are up, without the loopback.
pub fn nics(class: &Path) -> Vec<Nic> {
    const LOOPBACK: &str = "lo";
    let nic = |name: String| {
        let dir = class.join(&name);
        // The state of a tunnel, or of a bridge without members, is `unknown`.
        let is_up = matches!(text(&dir, "operstate").as_deref(), Some("up" | "unknown"));
        // The driver of an interface that is down or virtual reports -1 or nothing.
        let speed_mbit = number(&dir, "speed").filter(|speed| 0 < *speed);
        let mtu = number(&dir, "mtu").unwrap_or(0);
        is_up.then_some(Nic { name, speed_mbit, mtu })
    };
    names(class).into_iter().filter(|name| name != LOOPBACK).filter_map(nic).collect()
}

/// The ports of a directory like `/sys/class/infiniband`.
pub fn ib_ports(class: &Path) -> Vec<IbPort> {
    let mut found = Vec::new();
    for adapter in names(class) {
        let dir = class.join(&adapter).join("ports");
        for port in names(&dir) {
            let dir = dir.join(&port);
            let Some(state) = text(&dir, "state") else { continue };
            let state = state.rsplit(": ").next().unwrap_or_default().to_owned();
            let rate = text(&dir, "rate").unwrap_or_default();
            found.push(IbPort { name: format!("{adapter}/{port}"), state, rate });
        }
    }
    found
}

fn names(dir: &Path) -> Vec<String> {
    let entries = dir.read_dir().into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    order::sort(&mut names);
    names
}

fn text(dir: &Path, name: &str) -> Option<String> {
    Some(fs::read_to_string(dir.join(name)).ok()?.trim().to_owned())
}

fn number(dir: &Path, name: &str) -> Option<u32> {
    text(dir, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::testing;
    use std::path::PathBuf;

    fn tree(name: &str, files: &[(&str, &str)]) -> PathBuf {
        testing::tree(&format!("networks/{name}"), files)
    }

    #[test]
    fn nics_have_their_speed_if_known() {
        let root = tree(
            "net",
            &[
                ("eth0/operstate", "up\n"),
                ("eth0/speed", "100000\n"),
                ("eth0/mtu", "9000\n"),
                ("eth1/operstate", "down\n"),
                ("lo/operstate", "unknown\n"),
                ("tun0/operstate", "unknown\n"),
                ("tun0/speed", "-1\n"),
                ("tun0/mtu", "1500\n"),
            ],
        );
        let nic = |name: &str, speed_mbit, mtu| Nic { name: name.to_owned(), speed_mbit, mtu };
        assert_eq!(nics(&root), [nic("eth0", Some(100_000), 9000), nic("tun0", None, 1500)]);
        assert!(nics(Path::new("/nowhere/at/all")).is_empty());
    }

    #[test]
    fn ib_ports_have_state_and_rate() {
        let root = tree(
            "infiniband",
            &[
                ("mlx5_0/ports/1/state", "4: ACTIVE\n"),
                ("mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n"),
                ("mlx5_1/ports/1/state", "1: DOWN\n"),
            ],
        );
        let port = |name: &str, state: &str, rate: &str| IbPort {
            name: name.to_owned(),
            state: state.to_owned(),
            rate: rate.to_owned(),
        };
        let expect =
            [port("mlx5_0/1", "ACTIVE", "400 Gb/sec (4X NDR)"), port("mlx5_1/1", "DOWN", "")];
        assert_eq!(ib_ports(&root), expect);
    }
}
