//! `tokenizer.json` of Hugging Face. It can describe many kinds of tokenizers; every setting that would
//! change a token is either followed or refused.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::error::VocabularyError;
use super::listed::{ListedVocabulary, TokenNames};
use super::split::{SplitPattern, WhiteSpaceAtEnd};
use super::vocabulary::Vocabulary;

/// Pattern of Llama 3, as its file has it.
const LLAMA3_PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

#[derive(Deserialize)]
struct TokenizerFile {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    model: Value,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
}

#[derive(Deserialize)]
struct BpeModel {
    vocab: TokenNames,
    merges: Vec<ListedMerge>,
    #[serde(default)]
    ignore_merges: bool,
}

/// A merge in the spelling of older files, or of newer ones.
#[derive(Deserialize)]
#[serde(untagged)]
enum ListedMerge {
    Line(String),
    Pair(String, String),
}

/// Whether a document is a `tokenizer.json`; a `vocab.json` has tokens as its keys.
pub(super) fn is_tokenizer(document: &Value) -> bool {
    document.get("model").is_some_and(Value::is_object)
}

/// Reads a `tokenizer.json`.
pub(super) fn parse_tokenizer(path: &Path, document: Value) -> Result<Vocabulary, VocabularyError> {
    let json = |error: serde_json::Error| VocabularyError::json(path, &error);
    let file: TokenizerFile = serde_json::from_value(document).map_err(json)?;
    let unsupported = |found: String| VocabularyError::unsupported(path, found);
    let pattern = check_kind(&file).map_err(unsupported)?;
    let mut model: BpeModel = serde_json::from_value(file.model).map_err(json)?;
    let special: Vec<(String, u32)> =
        file.added_tokens.into_iter().map(|token| (token.content, token.id)).collect();
    for (name, _) in &special {
        model.vocab.remove(name);
    }
    let mut list = ListedVocabulary::new(path, &model.vocab, special)?;
    for (number, merge) in (1..).zip(&model.merges) {
        let added = match merge {
            ListedMerge::Line(line) => list.add_merge(line),
            ListedMerge::Pair(left, right) => list.add_pair(left, right),
        };
        let malformed =
            |why| VocabularyError::malformed(path, None, format!("merge {number}: {why}"));
        added.map_err(malformed)?;
    }
    let vocabulary = Vocabulary { pattern, ..list.finish(path)? };
    Ok(if model.ignore_merges { vocabulary.with_whole_words() } else { vocabulary })
}

/// Checks everything besides the lists; the error is what is not supported.
fn check_kind(file: &TokenizerFile) -> Result<SplitPattern, String> {
    let model = &file.model;
    match model.get("type").map_or(Some("BPE"), Value::as_str) {
        Some("BPE") => {}
        found => return Err(format!("its model is `{}`", found.unwrap_or("unnamed"))),
    }
    if !file.normalizer.is_null() {
        return Err(format!("its normalizer is `{}`", kind_of(&file.normalizer)));
    }
    for key in ["dropout", "byte_fallback", "continuing_subword_prefix", "end_of_word_suffix"] {
        let is_unset = |value: &Value| {
            value.is_null() || *value == Value::Bool(false) || value.as_str() == Some("")
        };
        if let Some(value) = model.get(key).filter(|value| !is_unset(value)) {
            return Err(format!("its model has `{key}`: {value}"));
        }
    }
    if let Some(added) = file.added_tokens.iter().find(|added| !added.special) {
        let AddedToken { content, id, .. } = added;
        return Err(format!("token {id}, `{}`, is added beside the model", content.escape_debug()));
    }
    split_pattern(&file.pre_tokenizer)
}

fn split_pattern(pre_tokenizer: &Value) -> Result<SplitPattern, String> {
    let has = |step: &Value, key: &str, default: bool| {
        step.get(key).and_then(Value::as_bool).unwrap_or(default)
    };
    let is_byte_level = |step: &Value, use_regex: bool| {
        kind_of(step) == "ByteLevel" && has(step, "use_regex", true) == use_regex
    };
    let steps = match pre_tokenizer.get("pretokenizers").and_then(Value::as_array) {
        Some(steps) => steps.as_slice(),
        None => std::slice::from_ref(pre_tokenizer),
    };
    if steps.iter().any(|step| has(step, "add_prefix_space", kind_of(step) == "ByteLevel")) {
        return Err("it adds a blank before a text (`add_prefix_space`)".to_owned());
    }
    match steps {
        [step] if is_byte_level(step, true) => Ok(SplitPattern::Gpt2),
        [split, step] if is_byte_level(step, false) && kind_of(split) == "Split" => {
            let pattern = split.pointer("/pattern/Regex").and_then(Value::as_str);
            let is_isolated = split.get("behavior").and_then(Value::as_str) == Some("Isolated");
            if pattern == Some(LLAMA3_PATTERN) && is_isolated && !has(split, "invert", false) {
                return Ok(SplitPattern::Gpt4(WhiteSpaceAtEnd::AfterLineEnds));
            }
            let pattern = split.get("pattern").unwrap_or(&Value::Null);
            Err(format!("its pre-tokenizer has the pattern {pattern}"))
        }
        steps => {
            let kinds: Vec<&str> = steps.iter().map(kind_of).collect();
            Err(format!("its pre-tokenizer is `{}`", kinds.join("`, `")))
        }
    }
}

/// Kind of a step; `nothing` if it is not set.
fn kind_of(step: &Value) -> &str {
    step.get("type").and_then(Value::as_str).unwrap_or("nothing")
}
