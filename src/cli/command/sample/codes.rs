//! The codes of errors of `remuda sample` (`V…`, as those of `remuda tokenize`).

use crate::base::{Explanation, explanation};

/// A vocabulary, or a text, that is not that of the training.
pub(super) const OTHER_VOCABULARY: &str = "V006";
/// A prompt that the vocabulary cannot express.
pub(super) const BAD_PROMPT: &str = "V007";
/// A checkpoint of a model without a text.
pub(super) const NO_TEXT: &str = "V008";

/// The `remuda explain` page of every code.
pub(in crate::cli) const EXPLANATIONS: &[Explanation] = &[
    explanation(
        OTHER_VOCABULARY,
        "the vocabulary is not that of the model",
        "A checkpoint has the numbers of tokens and not what they stand for. The tokens of a model that was \
         trained on a text are the bytes that occur in it, in their order, so `--data` must name the same \
         files, or be left out if the training had no `--data`. The tokens of a model that was trained on \
         shards are those of `remuda tokenize --vocab`:\n\n    remuda sample run --data book.txt --prompt \
         'It was'\n    remuda sample run --vocab gpt2 --prompt 'It was'",
    ),
    explanation(
        BAD_PROMPT,
        "the model cannot read the prompt",
        "The prompt has a character that does not occur in the text of the training, it has no token at all, \
         or there is no prompt and the vocabulary has no token for the start of a text. Write another \
         `--prompt`.",
    ),
    explanation(
        NO_TEXT,
        "the model has no text",
        "`remuda sample` continues texts. The checkpoint is that of an MLP, which assigns samples to \
         classes. `remuda checkpoint show` lists what a checkpoint contains.",
    ),
];
