//! Vocabularies of tiktoken: a line for every token, its bytes in base64 and its rank.
//!
//! The file does not say how text is divided, nor the special tokens. Its number of tokens decides: one that
//! fits u16 is GPT-2's or like it; of the larger ones those of GPT-4 and of Llama 3 are known.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::error::VocabularyError;
use super::listed::END_OF_TEXT;
use super::split::{SplitPattern, WhiteSpaceAtEnd};
use super::vocabulary::{
    CheckedTokens, TokenList, Vocabulary, WholeWords, merges_of_ranks, tokens_by_bytes,
};

/// Number of tokens of GPT-4's `cl100k_base`.
const GPT4_TOKENS: usize = 100_256;
/// Number of tokens of Llama 3.
const LLAMA3_TOKENS: usize = 128_000;

/// Whether a text begins with a line of this format.
pub(super) fn is_tiktoken(text: &str) -> bool {
    text.lines().next().is_some_and(|line| parse_line(line).is_ok())
}

/// Reads a `.tiktoken` file.
pub(super) fn parse_tiktoken(path: &Path, text: &str) -> Result<Vocabulary, VocabularyError> {
    let mut list = TokenList::default();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty()) {
        parse_line(line)
            .and_then(|(bytes, rank)| list.add(rank, &bytes))
            .map_err(|why| VocabularyError::malformed(path, number, why))?;
    }
    let (pattern, special) = conventions(&list).ok_or_else(|| {
        let count = list.count();
        let found = format!("how text is divided for a vocabulary of {count} tokens is not known");
        VocabularyError::unsupported(path, found)
    })?;
    for (_, token) in &special {
        list.reserve(*token).map_err(|why| VocabularyError::malformed(path, None, why))?;
    }
    let CheckedTokens { tokens, of_byte } = list.finish(path)?;
    let by_bytes = tokens_by_bytes(&tokens);
    Ok(Vocabulary {
        tokens,
        of_byte,
        special: special.into_iter().map(|(name, token)| (name.to_owned(), token)).collect(),
        merges: merges_of_ranks(&by_bytes),
        pattern,
        whole_words: WholeWords::AreTokens(by_bytes),
    })
}

fn parse_line(line: &str) -> Result<(Vec<u8>, u32), String> {
    let expected = || format!("expected base64, a blank and a rank, found `{line}`");
    let (bytes, rank) = line.split_once(' ').ok_or_else(expected)?;
    let bytes = STANDARD.decode(bytes).map_err(|_| expected())?;
    Ok((bytes, rank.parse().map_err(|_| expected())?))
}

/// Rule and special tokens that belong to a list of tokens.
fn conventions(list: &TokenList) -> Option<(SplitPattern, Vec<(&'static str, u32)>)> {
    let after = list.count() as u32;
    match list.count() {
        GPT4_TOKENS => {
            let pattern = SplitPattern::Gpt4(WhiteSpaceAtEnd::OneWord);
            Some((pattern, vec![(END_OF_TEXT, after + 1)]))
        }
        LLAMA3_TOKENS => {
            let special = vec![("<|begin_of_text|>", after), ("<|end_of_text|>", after + 1)];
            Some((SplitPattern::Gpt4(WhiteSpaceAtEnd::AfterLineEnds), special))
        }
        count if u16::try_from(count).is_ok() => {
            Some((SplitPattern::Gpt2, vec![(END_OF_TEXT, list.first_free())]))
        }
        _ => None,
    }
}
