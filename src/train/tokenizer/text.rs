//! A tokenizer: vocabulary with encoder and decoder.

use std::num::NonZeroUsize;
use std::path::Path;

use super::encoder::Encoder;
use super::error::VocabularyError;
use super::listed::END_OF_TEXT;
use super::open;
use super::parallel::ParallelEncoder;
use super::vocabulary::Vocabulary;

/// Special tokens that separate texts in files of tokens: those that llm.c writes for GPT-2 and Llama 3.
const SEPARATORS: [&str; 2] = [END_OF_TEXT, "<|begin_of_text|>"];

/// Byte-level BPE tokenizer. Every text has tokens, and they stand for exactly its bytes.
#[derive(Debug)]
pub struct Tokenizer {
    vocabulary: Vocabulary,
}

/// A number that is no token of a vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token {token} is not in the vocabulary of {size} tokens")]
pub struct UnknownToken {
    /// The number.
    pub token: u32,
    /// Size of the vocabulary.
    pub size: usize,
}

impl Tokenizer {
    /// Opens the vocabulary of a file (`tokenizer.json`, `vocab.json` beside `merges.txt`, or a `.tiktoken`
    /// file) or of a directory that has one.
    pub fn open(path: &Path) -> Result<Self, VocabularyError> {
        open::open(path).map(|vocabulary| Self { vocabulary })
    }

    /// Returns an encoder for one thread, which knows no word.
    pub fn encoder(&self) -> Encoder<'_> {
        Encoder::new(&self.vocabulary)
    }

    /// Returns an encoder that uses several threads.
    pub fn parallel_encoder(&self, threads: NonZeroUsize) -> ParallelEncoder<'_> {
        ParallelEncoder::new(&self.vocabulary, threads)
    }

    /// Returns the number of rows that a model's table of tokens needs: one more than the largest token.
    pub fn vocabulary_size(&self) -> usize {
        self.vocabulary.tokens.len()
    }

    /// Returns a special token by its name.
    pub fn special(&self, name: &str) -> Option<u32> {
        let special = self.vocabulary.special.iter();
        special.into_iter().find(|(own, _)| own == name).map(|(_, token)| *token)
    }

    /// Returns the names of the special tokens.
    pub fn special_names(&self) -> impl Iterator<Item = &str> {
        self.vocabulary.special.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the special token that llm.c writes before each text: `<|endoftext|>` if there is one.
    pub fn separator(&self) -> Option<u32> {
        SEPARATORS.iter().find_map(|name| self.special(name))
    }

    /// Returns the tokens of a text. For several texts [`Self::encoder`] is faster.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::new();
        self.encoder().encode(text, &mut tokens);
        tokens
    }

    /// Returns the bytes of tokens, which are not UTF-8 if they begin or end within a character. Special
    /// tokens stand for their names.
    pub fn decode(&self, tokens: &[u32]) -> Result<Vec<u8>, UnknownToken> {
        let mut bytes = Vec::new();
        for &token in tokens {
            bytes.extend_from_slice(self.bytes_of(token)?);
        }
        Ok(bytes)
    }

    fn bytes_of(&self, token: u32) -> Result<&[u8], UnknownToken> {
        let Vocabulary { tokens, special, .. } = &self.vocabulary;
        if let Some(bytes) = tokens.get(token as usize).filter(|bytes| !bytes.is_empty()) {
            return Ok(bytes);
        }
        let found = special.iter().find(|(_, own)| *own == token);
        let unknown = UnknownToken { token, size: tokens.len() };
        found.map(|(name, _)| name.as_bytes()).ok_or(unknown)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::convert::Infallible;
    use std::fmt::Write as _;
    use std::sync::LazyLock;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use tiktoken_rs::CoreBPE;

    use super::*;
    use crate::train::tokenizer::byte_letters::letters_of_bytes;
    use crate::train::tokenizer::hugging_face::parse_tokenizer;
    use crate::train::tokenizer::listed::parse_files;
    use crate::train::tokenizer::tiktoken::parse_tiktoken;

    /// A text with the most frequent scripts and signs of source code, which the repository has.
    const TEXT: &str = include_str!("../data/corpus.txt");

    /// A tokenizer of tiktoken, and the same of remuda.
    struct Oracle {
        bpe: CoreBPE,
        tokens: Vec<Vec<u8>>,
        own: Tokenizer,
    }

    impl Oracle {
        fn new(bpe: CoreBPE, count: u32) -> Self {
            let tokens = (0..count).map(|token| bpe.decode_bytes(&[token]).expect("a token"));
            let tokens: Vec<Vec<u8>> = tokens.collect();
            let lines =
                (0..).zip(&tokens).fold(String::new(), |mut text, (rank, bytes): (u32, _)| {
                    writeln!(text, "{} {rank}", STANDARD.encode(bytes)).expect("a string");
                    text
                });
            let vocabulary = parse_tiktoken(Path::new("test.tiktoken"), &lines);
            Self { bpe, tokens, own: Tokenizer { vocabulary: vocabulary.expect("a vocabulary") } }
        }

        /// The two tokens of which each token of several bytes is merged, as letters.
        fn merges(&self) -> Vec<[String; 2]> {
            let ranks: HashMap<&[u8], usize> =
                self.tokens.iter().zip(0..).map(|(bytes, rank)| (&bytes[..], rank)).collect();
            let merge = |(rank, bytes): (usize, &Vec<u8>)| {
                let mut parts: Vec<&[u8]> = bytes.chunks(1).collect();
                let mut ends: Vec<usize> = (1..=bytes.len()).collect();
                while 2 < parts.len() {
                    let pair = |at: usize| {
                        let start = ends[at] - parts[at].len();
                        &bytes[start..ends[at + 1]]
                    };
                    let rank_at = |at: &usize| ranks.get(pair(*at)).copied().unwrap_or(usize::MAX);
                    let at = (0..parts.len() - 1).min_by_key(rank_at).expect("a pair");
                    assert!(rank_at(&at) < rank, "{bytes:?} is not merged of earlier tokens");
                    parts[at] = pair(at);
                    parts.remove(at + 1);
                    ends.remove(at);
                }
                [letters_of_bytes(parts[0]), letters_of_bytes(parts[1])]
            };
            let merged = self.tokens.iter().enumerate().filter(|(_, bytes)| 1 < bytes.len());
            merged.map(merge).collect()
        }

        fn names(&self) -> Value {
            let names = self.tokens.iter().zip(0..);
            names.map(|(bytes, token)| (letters_of_bytes(bytes), json!(token))).collect()
        }

        #[track_caller]
        fn check(&self, text: &str) {
            let tokens = self.own.encode(text);
            assert_eq!(tokens, self.bpe.encode_ordinary(text), "{text:?}");
            assert_eq!(self.own.decode(&tokens).expect("tokens of the text"), text.as_bytes());
        }
    }

    static GPT2: LazyLock<Oracle> =
        LazyLock::new(|| Oracle::new(tiktoken_rs::r50k_base().expect("GPT-2's"), 50_256));
    static GPT4: LazyLock<Oracle> =
        LazyLock::new(|| Oracle::new(tiktoken_rs::cl100k_base().expect("GPT-4's"), 100_256));

    #[test]
    fn texts_have_the_tokens_of_tiktoken() {
        for oracle in [&GPT2, &GPT4] {
            for text in [
                "",
                " ",
                "Hello, world! It's 2024; we'll see I'M they'VE.",
                "<|endoftext|>",
                "a\r\n\r\n  b\t\tc \u{a0}\u{3000}d\u{2028}\u{85}e   ",
                "१२३ ٣٤ Ⅷ ²³ ㊿ naïve cafe\u{301} Ⓐ \u{93f}क",
                "日本語のテキスト。中文，한국어 🤠👨‍👩‍👧\u{fe0f} \u{10ffff}\0",
                "'ſ 'S '' '' 'll'LL",
                &"ab".repeat(3000),
                &" ".repeat(500),
                &"!?".repeat(400),
                TEXT,
            ] {
                oracle.check(text);
            }
        }
    }

    #[test]
    fn all_formats_have_the_same_tokens() {
        let (names, merges) = (GPT2.names(), GPT2.merges());
        let lines: Vec<String> = merges.iter().map(|pair| pair.join(" ")).collect();
        let mut with_end = names.clone();
        with_end[END_OF_TEXT] = json!(50_256);
        let paths = [Path::new("vocab.json"), Path::new("merges.txt")];
        let texts = [with_end.to_string(), "#version: 0.2\n".to_owned() + &lines.join("\n") + "\n"];
        let listed = parse_files((paths[0], &texts[0]), (paths[1], &texts[1]));
        let document = |merges: Value| {
            json!({
                "version": "1.0", "normalizer": null,
                "added_tokens": [{ "id": 50_256, "content": END_OF_TEXT, "special": true }],
                "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false },
                "model": { "type": "BPE", "dropout": null, "continuing_subword_prefix": "",
                    "vocab": with_end, "merges": merges },
            })
        };
        let path = Path::new("tokenizer.json");
        let vocabularies = [
            listed,
            parse_tokenizer(path, document(json!(lines))),
            parse_tokenizer(path, document(json!(merges))),
        ];
        for vocabulary in vocabularies {
            let own = Tokenizer { vocabulary: vocabulary.expect("a vocabulary") };
            assert_eq!(own.encode(TEXT), GPT2.own.encode(TEXT));
            assert_eq!((own.separator(), own.vocabulary_size()), (Some(50_256), 50_257));
            assert_eq!(own.decode(&[50_256]).expect("a token"), END_OF_TEXT.as_bytes());
        }
    }

    #[test]
    fn threads_change_no_token() {
        let text = TEXT.repeat(12);
        let expected = GPT2.own.encode(&text);
        for threads in 1..=4 {
            let mut tokens = Vec::new();
            let mut encoder =
                GPT2.own.parallel_encoder(NonZeroUsize::new(threads).expect("threads"));
            let Ok(()) = encoder.encode(&text, |part| {
                tokens.extend_from_slice(part);
                Ok::<(), Infallible>(())
            });
            assert!(tokens == expected, "with {threads} threads");
        }
    }

    #[test]
    fn unknown_tokens_are_not_decoded() {
        let error = GPT2.own.decode(&[1, 50_257]).expect_err("no token");
        assert_eq!(error.to_string(), "token 50257 is not in the vocabulary of 50257 tokens");
        assert!(GPT2.own.decode(&[u32::MAX]).is_err());
    }

    /// Texts of letters, numbers, signs and white space of several scripts, in short runs.
    fn any_text() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            any::<char>().prop_map(String::from),
            "[a-zA-Z]{1,9}",
            "[ \t\r\n\u{a0}\u{2003}\u{3000}]{1,4}",
            "[0-9٣²Ⅷ]{1,5}",
            "'(s|t|re|ve|m|ll|d|S|ſ|LL|x)",
            "[-_.,:;!?(){}'\"$€\u{301}\u{93f}Ⓐ]{1,4}",
            "[éßЖдλあ中한]{1,4}",
            Just("👨\u{200d}👩\u{200d}👧".to_owned()),
        ];
        prop::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

        #[test]
        fn any_text_has_the_tokens_of_tiktoken(text in any_text()) {
            GPT2.check(&text);
            GPT4.check(&text);
        }

        #[test]
        fn any_file_is_a_vocabulary_or_has_a_reason(bytes in "[ -~\n]{0,60}", base in 0..4) {
            let path = Path::new("x");
            let start = ["", "YQ== 0\n", "{\"a\": 0}", "{\"model\": {\"vocab\": {}, \"merges\": []}}"];
            let text = start[base as usize].to_owned() + &bytes;
            let _ = parse_tiktoken(path, &text);
            let _ = parse_files((path, &text), (path, &bytes));
            let _ = parse_files((path, "{\"a\": 0, \"b\": 1, \"ab\": 2}"), (path, &bytes));
            if let Ok(document) = serde_json::from_str(&text) {
                let _ = parse_tokenizer(path, document);
            }
        }
    }
}
