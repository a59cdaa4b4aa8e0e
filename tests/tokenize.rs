//! Command lines of `remuda tokenize`, their files and screens.
//!
//! `tests/tokenize/*.expected` contain every line with its screens and exit status; `UPDATE_EXPECTED=1 cargo
//! test --test program tokenize::` rewrites them.

use std::fmt::Write as _;
use std::fs;

use remuda::train::{ShardError, TokenData, TokenShard, TokenType, Tokenizer};

use crate::support::expected::check_expected;
use crate::support::scratch::{Scratch, screen_of, text};
use crate::support::shards::{MERGES_OF_THE, WORDS_OF_THE, vocab_json, write_vocabulary};

/// A directory with the vocabulary `small` of 259 tokens, and two texts.
fn scratch(name: &str) -> Scratch {
    let scratch = Scratch::new("tokenize", name);
    write_vocabulary(&scratch, &WORDS_OF_THE, MERGES_OF_THE);
    scratch.write("a.txt", "the cat, the hat\n");
    scratch.write("b.txt", "é\n");
    scratch
}

/// All tokens of a shard.
fn tokens(scratch: &Scratch, file: &str) -> Vec<u32> {
    let shard = TokenShard::open(&scratch.path(file)).expect("a shard");
    let mut tokens = vec![0; shard.len()];
    shard.read(0, &mut tokens);
    tokens
}

#[test]
fn texts_are_written_as_shards() {
    let scratch = scratch("written");
    let mut found = String::new();
    for line in [
        "a.txt -o a.bin --vocab small",
        "a.txt b.txt -o ab.bin --vocab small/vocab.json --json",
        "a.txt b.txt -o part.bin --vocab small/merges.txt --shard_tokens 7 --dtype u32",
        "b.txt -o a.bin --vocab small --text_separator none --force --threads 3",
        "- -o stdin.bin --vocab small",
    ] {
        let output = scratch.run(line);
        let status = output.status.code().expect("it ends by itself");
        let (stdout, stderr) = (text(&output.stdout), screen_of(&output));
        let _ = write!(found, "$ remuda tokenize {line}\n{stdout}{stderr}[{status}]\n\n");
    }
    check_expected("tests/tokenize/written.expected".as_ref(), &found);

    let own = Tokenizer::open(&scratch.path("small")).expect("a vocabulary");
    let mut both = vec![258];
    both.extend(own.encode("the cat, the hat\n"));
    both.push(258);
    both.extend(own.encode("é\n"));
    assert_eq!(tokens(&scratch, "ab.bin"), both);
    assert_eq!(tokens(&scratch, "a.bin"), [0xc3, 0xa9, 0x0a]);
    assert_eq!(tokens(&scratch, "stdin.bin"), [258]);
    let parts: Vec<_> =
        (0..3).map(|number| scratch.path(&format!("part_{number:06}.bin"))).collect();
    let data = TokenData::open(&parts).expect("shards");
    let mut all = vec![0; data.len()];
    data.read(0, &mut all);
    assert_eq!(all, both);
    assert_eq!(TokenShard::open(&parts[0]).expect("a shard").token_type(), TokenType::U32);
    let is_draft = |name: &str| name.starts_with('.');
    let names = fs::read_dir(scratch.path("")).expect("a directory").flatten();
    let drafts = names.filter(|entry| is_draft(&entry.file_name().to_string_lossy()));
    assert_eq!(drafts.count(), 0);
}

#[test]
fn samples_cross_the_ends_of_shards() {
    let scratch = scratch("samples");
    scratch.succeed("a.txt b.txt -o part.bin --vocab small --shard_tokens 5");
    let numbers = 0..4;
    let parts: Vec<_> =
        numbers.map(|number| scratch.path(&format!("part_{number:06}.bin"))).collect();
    let data = TokenData::open(&parts).expect("shards");
    let mut all = vec![0; data.len()];
    data.read(0, &mut all);
    for length in 1..data.len() {
        let mut sample = vec![0; length + 1];
        for index in 0..data.samples(length).expect("samples") {
            data.read_sample(index, &mut sample);
            assert_eq!(sample, all[index * length..][..=length]);
        }
    }
    let none = data.samples(data.len()).expect_err("too long");
    assert!(matches!(none, ShardError::TooFewTokens { .. }), "{none}");
    assert!(data.check_vocabulary(259).is_ok());
    let outside = data.check_vocabulary(258).expect_err("258 is used").to_string();
    assert!(outside.contains("has token 258 at position 0"), "{outside}");
}

#[test]
fn damaged_shards_are_refused() {
    let scratch = scratch("damaged");
    scratch.succeed("a.txt -o a.bin --vocab small");
    let whole = fs::read(scratch.path("a.bin")).expect("a shard");
    let with = |at: usize, number: i32| {
        let mut bytes = whole.clone();
        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        bytes
    };
    for (bytes, expected) in [
        (Vec::new(), "it has 0 bytes, and the header alone has 1024"),
        (whole[..1023].to_vec(), "it has 1023 bytes, and the header alone has 1024"),
        (with(0, 5), "it begins with 5, not with 20240520 or 20240801"),
        (with(4, 2), "its version is 2, and 1 is supported"),
        (with(8, -1), "its number of tokens is -1"),
        (
            whole[..whole.len() - 1].to_vec(),
            "is truncated: expected 1052 bytes for 14 tokens, found 1051",
        ),
        ([&whole[..], &[0]].concat(), "is too long: expected 1052 bytes for 14 tokens, found 1053"),
    ] {
        scratch.write("damaged.bin", bytes);
        let error = TokenShard::open(&scratch.path("damaged.bin")).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(TokenShard::open(&scratch.path("none.bin")).is_err());
}

/// Vocabularies that are not usable, by the names of their files.
fn write_invalid_vocabularies(scratch: &Scratch) {
    let directory = |name: &str| fs::create_dir_all(scratch.path(name)).expect("a new directory");
    for (name, vocab, merges) in [
        ("syntax", "{\"a\": 0,\n\"b\": x}".to_owned(), ""),
        ("letter", "{\"a b\": 0}".to_owned(), ""),
        ("twice", "{\"a\": 7, \"b\": 7}".to_owned(), ""),
        ("bytes", "{\"a\": 0}".to_owned(), ""),
        ("huge", "{\"a\": 4294967295}".to_owned(), ""),
        ("pair", vocab_json(&[("th", 256)]), "#version: 0.2\nt h\nt h e\n"),
        ("result", vocab_json(&[("th", 256)]), "t h\nth e\n"),
    ] {
        directory(name);
        scratch.write(&format!("{name}/vocab.json"), vocab);
        scratch.write(&format!("{name}/merges.txt"), merges);
    }
    directory("alone");
    scratch.write("alone/vocab.json", vocab_json(&[]));
    directory("empty");
    directory("two");
    scratch.write("two/a.tiktoken", "");
    scratch.write("two/b.tiktoken", "");
    scratch.write("ranks.tiktoken", "YQ== 0\nYg== one\n");
    scratch.write("words.json", "{\"model\": {\"type\": \"WordPiece\", \"vocab\": {}}}");
    let bpe = "\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}";
    let blanks = "{\"type\": \"Whitespace\"}";
    scratch.write("blanks.json", format!("{{\"pre_tokenizer\": {blanks}, {bpe}}}"));
    scratch.write("lower.json", format!("{{\"normalizer\": {{\"type\": \"Lowercase\"}}, {bpe}}}"));
    scratch.write("notes.md", "# notes\n");
}

#[test]
fn unusable_lines_are_refused() {
    let scratch = scratch("refused");
    write_invalid_vocabularies(&scratch);
    scratch.write("latin1.txt", b"caf\xe9s\n");
    scratch.write("cut.txt", b"one\ntwo \xf0\x9f\x98");
    scratch.write("nothing.txt", "");
    scratch.write("there.bin", "there");
    fs::create_dir_all(scratch.path("wide")).expect("a new directory");
    scratch.write("wide/vocab.json", vocab_json(&[("th", 70_000)]));
    scratch.write("wide/merges.txt", "t h\n");
    let vocabularies = [
        "none",
        "empty",
        "two",
        "alone",
        "notes.md",
        "syntax",
        "letter",
        "twice",
        "bytes",
        "huge",
        "pair",
        "result",
        "ranks.tiktoken",
        "words.json",
        "blanks.json",
        "lower.json",
    ];
    let mut lines: Vec<String> =
        vocabularies.iter().map(|name| format!("a.txt -o a.bin --vocab {name}")).collect();
    let others = [
        "",
        "a.txt",
        "a.txt -o a.bin",
        "none.txt -o a.bin --vocab small",
        "small -o a.bin --vocab small",
        "a.txt latin1.txt -o a.bin --vocab small",
        "cut.txt -o a.bin --vocab small",
        "nothing.txt -o a.bin --vocab small --text_separator none",
        "a.txt -o there.bin --vocab small",
        "a.txt -o none/a.bin --vocab small",
        "a.txt -o small/ --vocab small --force",
        "a.txt -o a.bin --vocab small --text_separator <eos>",
        "a.txt -o a.bin --vocab wide",
        "a.txt -o a.bin --vocab wide --text_separator none --dtype u16",
        "a.txt -o a.bin --vocab small --dtype u8",
        "a.txt -o a.bin --vocab small --shard_tokens 0",
    ];
    lines.extend(others.map(str::to_owned));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let found = scratch.screens(&lines, str::to_owned);
    check_expected("tests/tokenize/refused.expected".as_ref(), &found);
    assert_eq!(fs::read(scratch.path("there.bin")).expect("a file"), b"there");
    assert!(!scratch.path("a.bin").exists());
}
