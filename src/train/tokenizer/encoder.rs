//! Text to tokens, with the work space that texts share.

use super::cache::WordCache;
use super::letters::CharClasses;
use super::merge::Merger;
use super::vocabulary::{Vocabulary, WholeWords};

/// Encoder of one thread: its vocabulary, and the words that it knows.
#[derive(Debug)]
pub struct Encoder<'a> {
    vocabulary: &'a Vocabulary,
    classes: CharClasses,
    cache: WordCache,
    merger: Merger,
}

impl<'a> Encoder<'a> {
    /// Creates an encoder that knows no word.
    pub(super) fn new(vocabulary: &'a Vocabulary) -> Self {
        let (cache, merger) = (WordCache::new(), Merger::default());
        Self { vocabulary, classes: CharClasses::get(), cache, merger }
    }

    /// Appends the tokens of a text. All of it is ordinary text: the name of a special token, too.
    pub fn encode(&mut self, text: &str, tokens: &mut Vec<u32>) {
        let pattern = self.vocabulary.pattern;
        let mut rest = text;
        while !rest.is_empty() {
            let (word, after) = rest.split_at(pattern.first_word(rest, self.classes));
            self.add_word(word.as_bytes(), tokens);
            rest = after;
        }
    }

    fn add_word(&mut self, word: &[u8], tokens: &mut Vec<u32>) {
        let vocabulary = self.vocabulary;
        if let [byte] = word {
            return tokens.push(vocabulary.of_byte[usize::from(*byte)]);
        }
        if let Some(known) = self.cache.get(word) {
            return tokens.extend_from_slice(known);
        }
        let start = tokens.len();
        let whole = match &vocabulary.whole_words {
            WholeWords::AreTokens(of_bytes) => of_bytes.get(word),
            WholeWords::AreMerged => None,
        };
        if let Some(token) = whole {
            tokens.push(*token);
        } else {
            tokens.extend(word.iter().map(|byte| vocabulary.of_byte[usize::from(*byte)]));
            self.merger.merge(&vocabulary.merges, tokens, start);
        }
        self.cache.insert(word, &tokens[start..]);
    }
}
