//! Vocabularies with a list of merges: `vocab.json` and `merges.txt`, and the same lists elsewhere.

use std::collections::BTreeMap;
use std::path::Path;

use super::byte_letters::bytes_of_letters;
use super::error::VocabularyError;
use super::merge::{Merge, MergeTable};
use super::split::SplitPattern;
use super::vocabulary::{CheckedTokens, TokenList, Vocabulary, WholeWords, tokens_by_bytes};

/// Name of the special token that ends a text.
pub(super) const END_OF_TEXT: &str = "<|endoftext|>";

/// A line that OpenAI's `vocab.bpe` and its copies begin with.
const VERSION_LINE: &str = "#version";

/// Names of tokens, in letters that stand for bytes, with their numbers.
pub(super) type TokenNames = BTreeMap<String, u32>;

/// Reads `vocab.json` and `merges.txt` of GPT-2's layout.
pub(super) fn parse_files(
    vocab: (&Path, &str),
    merges: (&Path, &str),
) -> Result<Vocabulary, VocabularyError> {
    let (path, text) = vocab;
    let mut names: TokenNames =
        serde_json::from_str(text).map_err(|error| VocabularyError::json(path, &error))?;
    let end = names.remove_entry(END_OF_TEXT);
    let mut list = ListedVocabulary::new(path, &names, end.into_iter().collect())?;
    for (number, line) in (1..).zip(merges.1.lines()) {
        if line.is_empty() || number == 1 && line.starts_with(VERSION_LINE) {
            continue;
        }
        list.add_merge(line).map_err(|why| VocabularyError::malformed(merges.0, number, why))?;
    }
    list.finish(path)
}

/// A vocabulary to which merges are added, in their order.
#[derive(Debug)]
pub(super) struct ListedVocabulary<'a> {
    names: &'a TokenNames,
    tokens: TokenList,
    special: Vec<(String, u32)>,
    merges: MergeTable,
    count: u32,
}

impl<'a> ListedVocabulary<'a> {
    pub(super) fn new(
        path: &Path,
        names: &'a TokenNames,
        special: Vec<(String, u32)>,
    ) -> Result<Self, VocabularyError> {
        let malformed = |why: String| VocabularyError::malformed(path, None, why);
        let mut tokens = TokenList::default();
        for (name, &token) in names {
            let bytes = bytes_of_letters(name).map_err(|letter| {
                malformed(format!("token {token}, `{name}`: `{letter}` stands for no byte"))
            })?;
            tokens.add(token, &bytes).map_err(malformed)?;
        }
        for (_, token) in &special {
            tokens.reserve(*token).map_err(malformed)?;
        }
        Ok(Self { names, tokens, special, merges: MergeTable::default(), count: 0 })
    }

    /// Adds the merge of a line `LEFT RIGHT`.
    pub(super) fn add_merge(&mut self, line: &str) -> Result<(), String> {
        match line.split_once(' ') {
            Some((left, right)) if !right.contains(' ') => self.add_pair(left, right),
            _ => Err(format!("expected two tokens with a blank between them, found `{line}`")),
        }
    }

    pub(super) fn add_pair(&mut self, left: &str, right: &str) -> Result<(), String> {
        let token = |name: &str| {
            let found = self.names.get(name).copied();
            found.ok_or_else(|| format!("merge of `{left}` and `{right}`: no token is `{name}`"))
        };
        let (first, second) = (token(left)?, token(right)?);
        let merge = Merge { rank: self.count, token: token(&format!("{left}{right}"))? };
        self.merges.insert(first, second, merge);
        self.count += 1;
        Ok(())
    }

    /// Returns the vocabulary, with words of GPT-2 that are always merged.
    pub(super) fn finish(self, path: &Path) -> Result<Vocabulary, VocabularyError> {
        let CheckedTokens { tokens, of_byte } = self.tokens.finish(path)?;
        Ok(Vocabulary {
            tokens,
            of_byte,
            special: self.special,
            merges: self.merges,
            pattern: SplitPattern::Gpt2,
            whole_words: WholeWords::AreMerged,
        })
    }
}

impl Vocabulary {
    /// Makes tokens of words that are tokens as a whole.
    pub(super) fn with_whole_words(mut self) -> Self {
        self.whole_words = WholeWords::AreTokens(tokens_by_bytes(&self.tokens));
        self
    }
}
