//! The codes of errors of `remuda tokenize` (`V…`).

use crate::base::{Explanation, explanation};

/// A vocabulary that cannot be used.
pub(super) const BAD_VOCABULARY: &str = "V001";
/// A text that cannot be read, or is not UTF-8.
pub(super) const BAD_TEXT: &str = "V002";
/// A separator that is no special token of the vocabulary.
pub(super) const NO_SEPARATOR: &str = "V003";
/// A token that does not fit the type of the shard.
pub(super) const TOKEN_TOO_LARGE: &str = "V004";
/// A shard that exists or cannot be written.
pub(super) const CANNOT_WRITE_SHARD: &str = "V005";

/// The `remuda explain` page of every code.
pub(in crate::cli) const EXPLANATIONS: &[Explanation] = &[
    explanation(
        BAD_VOCABULARY,
        "a vocabulary cannot be used",
        "`--vocab` names a `tokenizer.json` of Hugging Face, a `vocab.json` beside a `merges.txt`, a \
         `.tiktoken` file, or a directory that has one of them. The model must be a byte-level BPE with \
         the pre-tokenizer of GPT-2, GPT-4 or Llama 3: other tokenizers (WordPiece, Unigram, SentencePiece) give \
         other tokens, so remuda refuses their files. remuda downloads nothing. GPT-2's files are \
         `vocab.json` and `merges.txt` in the directory of any GPT-2 of Hugging Face, or \
         `r50k_base.tiktoken` of tiktoken:\n\n    hf download gpt2 vocab.json merges.txt \
         --local-dir gpt2\n    remuda tokenize book.txt -o book.bin --vocab gpt2/",
    ),
    explanation(
        BAD_TEXT,
        "a text cannot be read",
        "A text is a file, a pipe or standard input (`-`) in UTF-8. The message has the offset of the first \
         byte that is in no character: the file has another encoding, is not a text, or was cut within a \
         character. To convert a file:\n\n    iconv -f latin1 -t utf8 book.txt | remuda tokenize - -o \
         book.bin --vocab gpt2/",
    ),
    explanation(
        NO_SEPARATOR,
        "a separator is not in the vocabulary",
        "A special token is written before each text, so that a model learns where texts begin: \
         `<|endoftext|>`, or `<|begin_of_text|>` of Llama 3. The vocabulary has no such token, or not the \
         one that `--text_separator` names. `--text_separator none` writes no separator.",
    ),
    explanation(
        TOKEN_TOO_LARGE,
        "a token does not fit the type of the shard",
        "A `u16` has tokens up to 65,535, and the vocabulary has larger ones. Without `--dtype` remuda \
         selects the type that has all tokens of the vocabulary. A program that reads shards must support \
         `u32`: llm.c reads them for Llama 3.",
    ),
    explanation(
        CANNOT_WRITE_SHARD,
        "a shard cannot be written",
        "A file with the name of the shard exists, its directory does not exist or cannot be written, or the \
         disk is full. Nothing was changed: shards get their names when all of them are complete. `--force` \
         replaces files. A shard has at most 2,147,483,647 tokens; `--shard_tokens` divides longer \
         texts:\n\n    remuda tokenize *.txt -o train.bin --vocab gpt2/ --shard_tokens 100000000",
    ),
];
