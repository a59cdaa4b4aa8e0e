//! Cache of the tokens of short words. A text repeats most of its words.

/// Number of entries, a power of two: 1.5 MiB.
const ENTRIES: usize = 1 << 15;
/// Largest word in bytes, and largest number of its tokens: an entry has 48 bytes.
const WORD_BYTES_MAX: usize = 22;
const WORD_TOKENS_MAX: usize = 6;

/// A word with its tokens; a length of 0 is no word.
#[derive(Clone, Copy, Debug)]
struct KnownWord {
    tokens: [u32; WORD_TOKENS_MAX],
    bytes: [u8; WORD_BYTES_MAX],
    length: u8,
    count: u8,
}

/// Place for one word per hash, so that no input makes it large or slow.
#[derive(Debug)]
pub(super) struct WordCache {
    entries: Vec<KnownWord>,
}

impl WordCache {
    pub(super) fn new() -> Self {
        let empty = KnownWord {
            tokens: [0; WORD_TOKENS_MAX],
            bytes: [0; WORD_BYTES_MAX],
            length: 0,
            count: 0,
        };
        Self { entries: vec![empty; ENTRIES] }
    }

    /// Returns the tokens of a word that is known.
    pub(super) fn get(&self, word: &[u8]) -> Option<&[u32]> {
        let entry = &self.entries[place_of(word)];
        let bytes = entry.bytes.get(..word.len())?;
        let is_same = usize::from(entry.length) == word.len() && bytes == word;
        is_same.then(|| &entry.tokens[..usize::from(entry.count)])
    }

    /// Replaces the word at the place of this one, unless this one is too long.
    pub(super) fn insert(&mut self, word: &[u8], tokens: &[u32]) {
        if WORD_BYTES_MAX < word.len() || WORD_TOKENS_MAX < tokens.len() {
            return;
        }
        let entry = &mut self.entries[place_of(word)];
        entry.bytes[..word.len()].copy_from_slice(word);
        entry.tokens[..tokens.len()].copy_from_slice(tokens);
        (entry.length, entry.count) = (word.len() as u8, tokens.len() as u8);
    }
}

/// Hash of a word; only its first bytes count, because longer words have no entry.
fn place_of(word: &[u8]) -> usize {
    let mut hash = word.len() as u64;
    for part in word[..word.len().min(WORD_BYTES_MAX)].chunks(8) {
        let mut bytes = [0; 8];
        bytes[..part.len()].copy_from_slice(part);
        hash = (hash ^ u64::from_le_bytes(bytes)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 32;
    }
    hash as usize % ENTRIES
}
