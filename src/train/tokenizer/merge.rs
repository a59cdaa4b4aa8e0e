//! Merging of the tokens of a word: the pair with the lowest rank first, of equal ranks the leftmost.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

/// Result of merging two adjacent tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Merge {
    /// Order of the merge: low ranks come first.
    pub(super) rank: u32,
    /// The token that replaces both.
    pub(super) token: u32,
}

/// Merge of every pair of tokens that has one.
#[derive(Debug, Default)]
pub(super) struct MergeTable {
    merges: HashMap<u64, Merge, BuildHasherDefault<PairHasher>>,
}

impl MergeTable {
    pub(super) fn insert(&mut self, left: u32, right: u32, merge: Merge) {
        self.merges.insert(key(left, right), merge);
    }

    fn get(&self, left: u32, right: u32) -> Option<Merge> {
        self.merges.get(&key(left, right)).copied()
    }
}

fn key(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// Hash of a pair. The pairs come from one vocabulary, so an input cannot choose colliding ones.
#[derive(Debug, Default)]
pub(super) struct PairHasher(u64);

impl Hasher for PairHasher {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, key: u64) {
        let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Words of more bytes are merged with a heap; the search of shorter ones is faster without.
const SHORT_MAX: usize = 48;

/// Index of no part.
const NONE: u32 = u32::MAX;

/// A token of a word, in a list of its neighbours.
#[derive(Clone, Copy, Debug)]
struct WordPart {
    token: u32,
    /// Index of the part before this one, or [`NONE`].
    before: u32,
    /// Index of the part after this one, or [`NONE`].
    after: u32,
}

/// A pair that may be merged: rank and index of its left part, then its tokens and the result.
type Candidate = Reverse<(u32, u32, [u32; 3])>;

/// Work space for merging, which is reused from word to word.
#[derive(Debug, Default)]
pub(super) struct Merger {
    /// Merge of each token with the next one.
    ranks: Vec<Option<Merge>>,
    parts: Vec<WordPart>,
    candidates: BinaryHeap<Candidate>,
}

impl Merger {
    /// Merges `tokens[start..]`, the tokens of the bytes of one word.
    pub(super) fn merge(&mut self, table: &MergeTable, tokens: &mut Vec<u32>, start: usize) {
        if tokens.len() - start <= SHORT_MAX {
            self.merge_short(table, tokens, start);
        } else {
            self.merge_long(table, tokens, start);
        }
    }

    /// Searches all pairs for each merge: quadratic time, without any list.
    fn merge_short(&mut self, table: &MergeTable, tokens: &mut Vec<u32>, start: usize) {
        self.ranks.clear();
        self.ranks.extend(tokens[start..].windows(2).map(|pair| table.get(pair[0], pair[1])));
        loop {
            let mut best: Option<(usize, Merge)> = None;
            for (at, merge) in self.ranks.iter().enumerate() {
                if let Some(merge) = merge
                    && best.is_none_or(|(_, best)| merge.rank < best.rank)
                {
                    best = Some((at, *merge));
                }
            }
            let Some((at, merge)) = best else { return };
            let place = start + at;
            tokens[place] = merge.token;
            tokens.remove(place + 1);
            self.ranks.remove(at);
            if let Some(rank) = self.ranks.get_mut(at) {
                *rank = table.get(merge.token, tokens[place + 1]);
            }
            if 0 < at {
                self.ranks[at - 1] = table.get(tokens[place - 1], merge.token);
            }
        }
    }

    /// Takes pairs from a heap: n log n for n bytes.
    fn merge_long(&mut self, table: &MergeTable, tokens: &mut Vec<u32>, start: usize) {
        let count = (tokens.len() - start) as u32;
        let part = |(at, &token): (usize, &u32)| {
            let at = at as u32;
            let after = if at + 1 < count { at + 1 } else { NONE };
            WordPart { token, before: at.wrapping_sub(1), after }
        };
        self.parts.clear();
        self.parts.extend(tokens[start..].iter().enumerate().map(part));
        self.candidates.clear();
        for at in 0..count {
            self.add_candidate(table, at);
        }
        while let Some(Reverse((_, at, [left, right, token]))) = self.candidates.pop() {
            let WordPart { token: found, after, .. } = self.parts[at as usize];
            // A part that was merged away has no successor.
            if found != left || after == NONE || self.parts[after as usize].token != right {
                continue;
            }
            let beyond = self.parts[after as usize].after;
            self.parts[after as usize] = WordPart { token: NONE, before: NONE, after: NONE };
            let part = &mut self.parts[at as usize];
            (part.token, part.after) = (token, beyond);
            let before = part.before;
            if beyond != NONE {
                self.parts[beyond as usize].before = at;
            }
            self.add_candidate(table, at);
            if before != NONE {
                self.add_candidate(table, before);
            }
        }
        tokens.truncate(start);
        tokens.extend(self.parts.iter().map(|part| part.token).filter(|token| *token != NONE));
    }

    /// Adds the pair that begins at a part.
    fn add_candidate(&mut self, table: &MergeTable, at: u32) {
        let WordPart { token, after, .. } = self.parts[at as usize];
        if after == NONE {
            return;
        }
        let right = self.parts[after as usize].token;
        if let Some(merge) = table.get(token, right) {
            self.candidates.push(Reverse((merge.rank, at, [token, right, merge.token])));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(merges: &[(u32, u32)]) -> MergeTable {
        let mut table = MergeTable::default();
        for (rank, &(left, right)) in (0..).zip(merges) {
            table.insert(left, right, Merge { rank, token: 100 + rank });
        }
        table
    }

    #[test]
    fn lowest_rank_is_merged_first() {
        let table = table(&[(2, 3), (1, 2), (1, 100)]);
        let mut tokens = vec![9, 1, 2, 3, 1, 2];
        Merger::default().merge(&table, &mut tokens, 1);
        assert_eq!(tokens, [9, 102, 101]);
    }

    #[test]
    fn leftmost_of_equal_pairs_is_merged_first() {
        let mut tokens = vec![1; 5];
        Merger::default().merge(&table(&[(1, 1)]), &mut tokens, 0);
        assert_eq!(tokens, [100, 100, 1]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn both_ways_of_merging_have_the_same_result(
            merges in prop::collection::vec(((0u32..4, 0u32..4), (0u32..2, 0u32..2)), 0..12),
            tokens in prop::collection::vec(0u32..4, 0..150),
        ) {
            // A merge has tokens or results of earlier merges as its parts.
            let mut pairs = Vec::new();
            for (at, ((left, right), (is_left, is_right))) in (0..).zip(merges) {
                let part = |token: u32, is_result: u32| {
                    if is_result == 1 && 0 < at { 100 + token % at } else { token }
                };
                pairs.push((part(left, is_left), part(right, is_right)));
            }
            let table = table(&pairs);
            let (mut short, mut long) = (tokens.clone(), tokens);
            Merger::default().merge_short(&table, &mut short, 0);
            Merger::default().merge_long(&table, &mut long, 0);
            prop_assert_eq!(short, long);
        }
    }
}
