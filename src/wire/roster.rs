//! Who takes part in a job: the same for all nodes, so the launcher packs it once, whatever their
//! number. Names that follow each other mostly begin alike, and nodes mostly have equally many
//! workers: neither is said twice.

use serde::{Deserialize, Serialize};

/// Everybody, in the order of the nodes; ranks are counted through them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    /// Name of each node, and how many workers it has.
    pub nodes: Vec<(String, u32)>,
}

/// What an unpacked roster may hold: more than any job of ours.
const NAME_BYTES_MAX: usize = 64 << 20;
const RANKS_MAX: u64 = 1 << 24;

/// Why bytes are no roster.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum RosterError {
    /// No encoding of ours.
    #[error("the list of nodes is malformed")]
    Malformed,
    /// It would fill the memory.
    #[error("the list of nodes is longer than any")]
    TooLong,
}

#[derive(Serialize, Deserialize)]
struct Packed<'a> {
    /// So many workers, on each of so many nodes.
    runs: Vec<(u32, u32)>,
    /// How many bytes of the name before are also of this one, and the rest.
    #[serde(borrow)]
    names: Vec<(u32, &'a str)>,
}

impl Roster {
    /// As bytes.
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

    /// From bytes.
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

/// Of two texts that begin alike: so many bytes, up to a whole character.
fn shared_bytes(one: &str, other: &str) -> usize {
    let alike = one.char_indices().zip(other.chars()).take_while(|((_, a), b)| a == b);
    alike.last().map_or(0, |((at, a), _)| at + a.len_utf8())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roster(nodes: &[(&str, u32)]) -> Roster {
        Roster { nodes: nodes.iter().map(|(name, of)| ((*name).to_owned(), *of)).collect() }
    }

    #[test]
    fn thousands_of_nodes_take_a_few_bytes_each() {
        let nodes = (0..4096).map(|node| (format!("node-{node:05}.cluster"), 8)).collect();
        let roster = Roster { nodes };
        let bytes = roster.pack();
        assert!(bytes.len() < 4096 * 16, "{}", bytes.len());
        assert_eq!(Roster::unpack(&bytes), Ok(roster));
    }

    #[test]
    fn what_does_not_fit_together_is_no_roster() {
        let packed = |runs: &[(u32, u32)], names: &[(u32, &'static str)]| {
            let packed = Packed { runs: runs.to_vec(), names: names.to_vec() };
            Roster::unpack(&postcard::to_allocvec(&packed).expect("it serializes"))
        };
        assert_eq!(packed(&[(2, 1)], &[(0, "a")]), Ok(roster(&[("a", 2)])));
        let malformed = Err(RosterError::Malformed);
        assert_eq!(packed(&[(2, 1)], &[(1, "a")]), malformed, "nothing comes before the first");
        assert_eq!(packed(&[(2, 1)], &[(0, "ä"), (1, "b")]), malformed, "half a character");
        assert_eq!(packed(&[(2, 1)], &[(0, "a"), (0, "b")]), malformed, "no workers for the last");
        assert_eq!(packed(&[(2, 2)], &[(0, "a")]), malformed, "no node for workers");
        assert_eq!(packed(&[(0, u32::MAX)], &[(0, "a")]), Err(RosterError::TooLong));
        assert_eq!(packed(&[(u32::MAX, u32::MAX)], &[]), Err(RosterError::TooLong));
        assert_eq!(Roster::unpack(&[0xff; 3]), malformed);
    }

    proptest::proptest! {
        #[test]
        fn every_roster_comes_back(
            nodes in proptest::collection::vec(("[ab.ä]{0,6}", 0u32..4), 0..20),
        ) {
            let roster = Roster { nodes };
            proptest::prop_assert_eq!(Roster::unpack(&roster.pack()), Ok(roster));
        }

        #[test]
        fn no_bytes_are_a_panic(bytes in proptest::collection::vec(0u8.., 0..64)) {
            let _ = Roster::unpack(&bytes);
        }
    }
}
