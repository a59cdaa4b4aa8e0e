//! Selection of the files of a vocabulary, and of their format.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::Value;

use super::error::VocabularyError;
use super::hugging_face::{is_tokenizer, parse_tokenizer};
use super::listed::parse_files;
use super::tiktoken::{is_tiktoken, parse_tiktoken};
use super::vocabulary::Vocabulary;
use crate::base::order;
use crate::os::files::input_file::read_regular;

/// Names of the files of a vocabulary.
const TOKENIZER_JSON: &str = "tokenizer.json";
const VOCAB_JSON: &str = "vocab.json";
const MERGES_TXT: &str = "merges.txt";

/// Reads the vocabulary at a path: a file, or a directory with one.
pub(super) fn open(path: &Path) -> Result<Vocabulary, VocabularyError> {
    let found = fs::metadata(path).map_err(VocabularyError::read(path))?;
    let path = if found.is_dir() { file_in(path)? } else { path.to_owned() };
    if path.file_name() == Some(OsStr::new(MERGES_TXT)) {
        return open_lists(&path.with_file_name(VOCAB_JSON), None);
    }
    let text = read_text(&path)?;
    if is_tiktoken(&text) || has_extension(&path, "tiktoken") {
        return parse_tiktoken(&path, &text);
    }
    if !text.trim_start().starts_with('{') {
        return Err(VocabularyError::unsupported(&path, "its format is not known"));
    }
    let document: Value =
        serde_json::from_str(&text).map_err(|error| VocabularyError::json(&path, &error))?;
    if is_tokenizer(&document) {
        return parse_tokenizer(&path, document);
    }
    open_lists(&path, Some(text))
}

/// The file to read in a directory. A `tokenizer.json` is preferred, because it says how text is divided.
fn file_in(dir: &Path) -> Result<PathBuf, VocabularyError> {
    for names in [&[TOKENIZER_JSON][..], &[VOCAB_JSON, MERGES_TXT]] {
        if names.iter().all(|name| dir.join(name).exists()) {
            return Ok(dir.join(names[0]));
        }
    }
    let entries = fs::read_dir(dir).and_then(|entries| {
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()
    });
    let mut files = entries.map_err(VocabularyError::read(dir))?;
    files.retain(|path| has_extension(path, "tiktoken"));
    order::sort(&mut files);
    let path = dir.to_owned();
    match &mut files[..] {
        [file] => Ok(std::mem::take(file)),
        [] => Err(VocabularyError::NotFound { path }),
        [first, second, ..] => {
            let (first, second) = (std::mem::take(first), std::mem::take(second));
            Err(VocabularyError::Several { path, first, second })
        }
    }
}

/// Reads a `vocab.json`, and the `merges.txt` beside it.
fn open_lists(vocab: &Path, text: Option<String>) -> Result<Vocabulary, VocabularyError> {
    let text = text.map_or_else(|| read_text(vocab), Ok)?;
    let merges = vocab.with_file_name(MERGES_TXT);
    let merges_text = read_text(&merges)?;
    parse_files((vocab, &text), (&merges, &merges_text))
}

fn read_text(path: &Path) -> Result<String, VocabularyError> {
    let bytes = read_regular(path).map_err(VocabularyError::read(path))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        VocabularyError::malformed(path, None, format!("byte {at} is not UTF-8"))
    })
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension() == Some(OsStr::new(extension))
}
