//! Identity of the model of a checkpoint: everything that must be equal to continue a run.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::train::nn::gpt::GptArchitecture;

/// Digest of the vocabulary in place of that of bytes, for tokens of shards.
pub const TOKENS_OF_SHARDS: &str = "tokens";
/// Largest vocabulary.
const VOCABULARY_MAX: usize = 1 << 24;

/// Kind and sizes of a model; its text form is part of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelId {
    /// A GPT and its vocabulary.
    Gpt {
        /// Variant of the layers.
        architecture: GptArchitecture,
        /// Number of blocks, each of attention and MLP.
        layers: usize,
        /// Number of attention heads of a block.
        heads: usize,
        /// Hidden size.
        width: usize,
        /// Context length in tokens.
        block: usize,
        /// Number of different bytes of the text, or of tokens.
        vocabulary: usize,
        /// Digest of the vocabulary, see [`Corpus::digest`](crate::train::Corpus::digest), or
        /// [`TOKENS_OF_SHARDS`].
        bytes: String,
    },
    /// An MLP classifier of synthetic samples.
    Mlp {
        /// Number of features of a sample.
        inputs: usize,
        /// Number of hidden layers.
        layers: usize,
        /// Hidden size.
        width: usize,
        /// Number of classes.
        classes: usize,
        /// Seed of the samples and of the map that is learned.
        teacher: u64,
    },
}

impl ModelId {
    /// Whether a model of this size can have been saved in so many bytes; otherwise the text is no identity.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        let fits = |sizes: &[usize]| {
            let product = sizes.iter().try_fold(1u64, |product, size| {
                (*size != 0).then(|| product.checked_mul(*size as u64))?
            });
            product.is_some_and(|numbers| numbers <= bytes)
        };
        match *self {
            Self::Gpt { layers, heads, width, block, vocabulary, ref bytes, .. } => {
                let is_whole = heads != 0 && width.is_multiple_of(heads.max(1));
                let most = if bytes == TOKENS_OF_SHARDS { VOCABULARY_MAX } else { 256 };
                let is_in_range = (1..=most).contains(&vocabulary);
                is_whole
                    && is_in_range
                    && fits(&[vocabulary, width])
                    && fits(&[layers, width, width])
                    && fits(&[block, width])
            }
            Self::Mlp { inputs, layers, width, classes, .. } => {
                fits(&[layers, width]) && fits(&[inputs, width]) && fits(&[classes])
            }
        }
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpt { architecture, layers, heads, width, block, vocabulary, bytes } => write!(
                f,
                "{architecture} layers={layers} heads={heads} width={width} block={block} \
                 vocabulary={vocabulary}:{bytes}"
            ),
            Self::Mlp { inputs, layers, width, classes, teacher } => write!(
                f,
                "mlp inputs={inputs} layers={layers} width={width} classes={classes} \
                 teacher={teacher}"
            ),
        }
    }
}

impl FromStr for ModelId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, rest) = text.split_once(' ').ok_or(())?;
        let fields: Option<BTreeMap<&str, &str>> =
            rest.split(' ').map(|field| field.split_once('=')).collect();
        let fields = fields.ok_or(())?;
        let number = |name| fields.get(name).and_then(|text| text.parse().ok()).ok_or(());
        let found = match kind {
            "gpt" | "gpt2" => {
                let is_gpt2 = kind == "gpt2";
                let architecture =
                    if is_gpt2 { GptArchitecture::Gpt2 } else { GptArchitecture::Plain };
                let vocabulary = fields.get("vocabulary").and_then(|text| text.split_once(':'));
                let (count, bytes) = vocabulary.ok_or(())?;
                Self::Gpt {
                    architecture,
                    layers: number("layers")?,
                    heads: number("heads")?,
                    width: number("width")?,
                    block: number("block")?,
                    vocabulary: count.parse().map_err(|_| ())?,
                    bytes: bytes.to_owned(),
                }
            }
            "mlp" => Self::Mlp {
                inputs: number("inputs")?,
                layers: number("layers")?,
                width: number("width")?,
                classes: number("classes")?,
                teacher: fields.get("teacher").and_then(|text| text.parse().ok()).ok_or(())?,
            },
            _ => return Err(()),
        };
        // A text with anything else in it is rejected.
        if found.to_string() == text { Ok(found) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPT: &str = "gpt layers=4 heads=4 width=128 block=64 vocabulary=96:0123abcd";
    const MLP: &str = "mlp inputs=784 layers=2 width=1024 classes=10 teacher=18446744073709551615";

    #[test]
    fn identity_survives_text() {
        for line in [GPT, &GPT.replace("gpt", "gpt2"), MLP] {
            let identity: ModelId = line.parse().expect("a valid line");
            assert_eq!(identity.to_string(), line);
            assert!(identity.fits(1 << 30));
        }
        let bad = ["", "gpt", "gpt layers=4", "cnn layers=4", &GPT.replace("128", "x"), &MLP[1..]];
        for line in bad.into_iter().chain([&*format!("{GPT} more=1"), &*GPT.replace(':', "-")]) {
            assert_eq!(line.parse::<ModelId>(), Err(()), "{line}");
        }
    }

    #[test]
    fn identity_rejects_sizes_beyond_the_file() {
        #[track_caller]
        fn check(line: &str, from: &str, to: &str) {
            let identity: ModelId = line.replace(from, to).parse().expect("well formed");
            assert!(!identity.fits(10_000_000), "{identity}");
        }
        check(GPT, "layers=4", "layers=4000000000");
        check(GPT, "layers=4", "layers=0");
        check(GPT, "width=128", "width=1844674407370955161");
        check(GPT, "heads=4", "heads=3");
        check(GPT, "heads=4", "heads=0");
        check(GPT, "vocabulary=96", "vocabulary=257");
        check(MLP, "layers=2", "layers=18446744073709551615");
        check(MLP, "inputs=784", "inputs=784000000");
        check(MLP, "classes=10", "classes=0");
    }
}
