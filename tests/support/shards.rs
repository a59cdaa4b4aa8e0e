//! Shards of tokens, and vocabularies, for trainings.

use std::path::Path;

use remuda::train::{ExistingFiles, ShardOptions, ShardWriter, TokenType};

use super::scratch::Scratch;

/// Tokens of a vocabulary for the word `the`, besides those of the bytes, and its merges.
pub(crate) const WORDS_OF_THE: [(&str, u32); 3] =
    [("th", 256), ("the", 257), ("<|endoftext|>", 258)];
pub(crate) const MERGES_OF_THE: &str = "#version: 0.2\nt h\nth e\n";

/// Writes tokens as a shard.
pub(crate) fn write_shard(path: &Path, tokens: impl Iterator<Item = u32>) {
    let options = ShardOptions {
        path: path.to_owned(),
        token_type: TokenType::U16,
        tokens_max: None,
        existing: ExistingFiles::Replace,
    };
    let mut shard = ShardWriter::create(options).expect("the directory can be written");
    shard.write(&tokens.collect::<Vec<_>>()).expect("they fit");
    shard.finish().expect("it is written");
}

/// Writes the directory `small` with a vocabulary of the bytes, these names and tokens, and these merges.
pub(crate) fn write_vocabulary(scratch: &Scratch, names: &[(&str, u32)], merges: &str) {
    std::fs::create_dir_all(scratch.path("small")).expect("a new directory");
    scratch.write("small/vocab.json", vocab_json(names));
    scratch.write("small/merges.txt", merges);
}

/// Letters that stand for bytes in a `vocab.json`, in the order of the bytes.
fn byte_letters() -> Vec<char> {
    let is_itself = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut replaced = (0x100..).filter_map(char::from_u32);
    let mut letter = |byte: u8| {
        if is_itself(byte) { char::from(byte) } else { replaced.next().expect("a letter") }
    };
    (0..=255).map(&mut letter).collect()
}

/// A `vocab.json`: the bytes, then `names`, numbered from 256 or as they say.
pub(crate) fn vocab_json(names: &[(&str, u32)]) -> String {
    let bytes = byte_letters().into_iter().map(String::from).zip(0..);
    let names = names.iter().map(|(name, token)| ((*name).to_owned(), *token));
    let all: serde_json::Map<_, _> =
        bytes.chain(names).map(|(name, token)| (name, token.into())).collect();
    serde_json::Value::Object(all).to_string()
}
