//! List of the nodes of a job. It is the same for all nodes, so the launcher packs it only once.
//! The encoding omits the common prefix of successive names, and counts runs of nodes with equally
//! many workers.

use serde::{Deserialize, Serialize};

/// All nodes of a job, in the order of their ranks; worker ranks are counted through them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRoster {
    /// Name of each node, and its number of workers.
    pub nodes: Vec<(String, u32)>,
}

/// Limits of an unpacked roster: total bytes of the names, and number of ranks. No real job reaches
/// them.
const NAME_BYTES_MAX: usize = 64 << 20;
const RANKS_MAX: u64 = 1 << 24;

/// Why bytes cannot be unpacked.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum RosterError {
    /// The bytes are not a packed roster.
    #[error("the list of nodes is malformed")]
    Malformed,
    /// The unpacked roster would exceed the limits.
    #[error("the list of nodes is too long")]
    TooLong,
}

#[derive(Serialize, Deserialize)]
struct Packed<'a> {
    /// Runs of nodes with equally many workers: workers per node, number of nodes.
    runs: Vec<(u32, u32)>,
    /// For each name, the number of bytes that it shares with the name before, and the rest.
    #[serde(borrow)]
    names: Vec<(u32, &'a str)>,
}

impl NodeRoster {
    /// Encodes the roster.
    pub fn pack(&self) -> Vec<u8> {
        let (mut runs, mut names) =
            (Vec::<(u32, u32)>::new(), Vec::with_capacity(self.nodes.len()));
        let mut before = "";
        for (name, workers) in &self.nodes {
            match runs.last_mut() {
                Some((same, nodes)) if same == workers => *nodes += 1,
                _ => runs.push((*workers, 1)),
            }
            let shared = shared_bytes(before, name);
            names.push((shared as u32, &name[shared..]));
            before = name;
        }
        postcard::to_allocvec(&Packed { runs, names }).expect("texts and numbers serialize")
    }

    /// Decodes a roster.
    pub fn unpack(bytes: &[u8]) -> Result<Self, RosterError> {
        let Packed { runs, names } =
            postcard::from_bytes(bytes).map_err(|_| RosterError::Malformed)?;
        let of_run = |(workers, nodes): &(u32, u32)| u64::from(*workers).max(1) * u64::from(*nodes);
        if RANKS_MAX < runs.iter().map(of_run).fold(0, u64::saturating_add) {
            return Err(RosterError::TooLong);
        }
        let mut workers =
            runs.iter().flat_map(|(each, of)| std::iter::repeat_n(*each, *of as usize));
        let mut nodes: Vec<(String, u32)> = Vec::with_capacity(names.len());
        let mut length = 0;
        for (shared, rest) in names {
            let before = nodes.last().map_or("", |(name, _)| name.as_str());
            let shared = before.get(..shared as usize).ok_or(RosterError::Malformed)?;
            let name = [shared, rest].concat();
            length += name.len();
            if NAME_BYTES_MAX < length {
                return Err(RosterError::TooLong);
            }
            nodes.push((name, workers.next().ok_or(RosterError::Malformed)?));
        }
        if workers.next().is_some() { Err(RosterError::Malformed) } else { Ok(Self { nodes }) }
    }
}

/// Length in bytes of the common prefix of two texts, in whole characters.
fn shared_bytes(one: &str, other: &str) -> usize {
    let alike = one.char_indices().zip(other.chars()).take_while(|((_, a), b)| a == b);
    alike.last().map_or(0, |((at, a), _)| at + a.len_utf8())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roster(nodes: &[(&str, u32)]) -> NodeRoster {
        NodeRoster { nodes: nodes.iter().map(|(name, of)| ((*name).to_owned(), *of)).collect() }
    }

    #[test]
    fn roster_packs_thousands_of_nodes_small() {
        let nodes = (0..4096).map(|node| (format!("node-{node:05}.cluster"), 8)).collect();
        let roster = NodeRoster { nodes };
        let bytes = roster.pack();
        assert!(bytes.len() < 4096 * 16, "{}", bytes.len());
        assert_eq!(NodeRoster::unpack(&bytes), Ok(roster));
    }

    #[test]
    fn roster_rejects_inconsistent_bytes() {
        let packed = |runs: &[(u32, u32)], names: &[(u32, &'static str)]| {
            let packed = Packed { runs: runs.to_vec(), names: names.to_vec() };
            NodeRoster::unpack(&postcard::to_allocvec(&packed).expect("it serializes"))
        };
        assert_eq!(packed(&[(2, 1)], &[(0, "a")]), Ok(roster(&[("a", 2)])));
        let malformed = Err(RosterError::Malformed);
        assert_eq!(packed(&[(2, 1)], &[(1, "a")]), malformed, "no name precedes the first");
        assert_eq!(packed(&[(2, 1)], &[(0, "ä"), (1, "b")]), malformed, "half a character");
        assert_eq!(packed(&[(2, 1)], &[(0, "a"), (0, "b")]), malformed, "no workers for the last");
        assert_eq!(packed(&[(2, 2)], &[(0, "a")]), malformed, "no node for workers");
        assert_eq!(packed(&[(0, u32::MAX)], &[(0, "a")]), Err(RosterError::TooLong));
        assert_eq!(packed(&[(u32::MAX, u32::MAX)], &[]), Err(RosterError::TooLong));
        assert_eq!(NodeRoster::unpack(&[0xff; 3]), malformed);
    }

    proptest::proptest! {
        #[test]
        fn roster_survives_pack_and_unpack(
            nodes in proptest::collection::vec(("[ab.ä]{0,6}", 0u32..4), 0..20),
        ) {
            let roster = NodeRoster { nodes };
            proptest::prop_assert_eq!(NodeRoster::unpack(&roster.pack()), Ok(roster));
        }

        #[test]
        fn roster_unpack_never_panics(bytes in proptest::collection::vec(0u8.., 0..64)) {
            let _ = NodeRoster::unpack(&bytes);
        }
    }
}
