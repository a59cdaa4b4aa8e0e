//! `config.json` of GPT-2, and the layout of its weights.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::train::nn::gpt::{GptArchitecture, GptConfig};
use crate::train::nn::model_id::ModelId;

/// Matrices of a block whose rows and columns Hugging Face stores in each other's place, as those of its
/// `Conv1D`.
const TRANSPOSED: [&str; 4] =
    ["attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"];

/// Number of tokens of GPT-2; the last one ends a text.
const GPT2_VOCABULARY: usize = 50_257;

/// Largest size in a `config.json`.
const SIZE_MAX: usize = 1 << 24;

/// Returns whether Hugging Face stores a parameter of GPT-2 transposed.
pub fn is_transposed(name: &str) -> bool {
    TRANSPOSED.iter().any(|matrix| name.ends_with(matrix))
}

/// Returns the `config.json` of a model, with what was kept of an imported one, or `None` if `transformers` has no such model: only that of GPT-2 is
/// known there.
pub fn config_json(model: &ModelId, kept: &KeptSettings) -> Option<String> {
    let &ModelId::Gpt {
        architecture: GptArchitecture::Gpt2,
        layers,
        heads,
        width,
        block,
        vocabulary,
        ..
    } = model
    else {
        return None;
    };
    // Without it `generate` does not end before the largest number of tokens.
    let end_of_text = (vocabulary == GPT2_VOCABULARY).then_some(GPT2_VOCABULARY - 1);
    let mut config = json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "n_layer": layers,
        "n_head": heads,
        "n_embd": width,
        "n_positions": block,
        "n_ctx": block,
        "vocab_size": vocabulary,
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": true,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "bos_token_id": end_of_text,
        "eos_token_id": end_of_text,
    });
    if let Some(fields) = config.as_object_mut() {
        fields.extend(kept.0.clone());
    }
    Some(serde_json::to_string_pretty(&config).expect("texts and numbers have a JSON form") + "\n")
}

/// Probabilities of dropout of GPT-2, and what `transformers` takes if a file does not have them.
const DROPOUT: [&str; 3] = ["attn_pdrop", "embd_pdrop", "resid_pdrop"];
const DROPOUT_DEFAULT: f64 = 0.1;
/// Other keys that change nothing in the arithmetic here, and that users of an export may need.
const KEPT_KEYS: [&str; 4] = ["bos_token_id", "eos_token_id", "pad_token_id", "initializer_range"];
/// Place of the kept settings in [`SavedState::client`](crate::runtime::checkpoint::SavedState::client).
const CLIENT_KEY: &str = "hugging_face";

/// Settings of an imported model that training here does not use. They are in its checkpoints, so that an export has
/// them again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptSettings(Map<String, Value>);

impl KeptSettings {
    /// Takes them from a `config.json` that was checked.
    fn of_config(config: &Map<String, Value>) -> Self {
        let dropout = DROPOUT.map(|key| {
            let given = config.get(key).filter(|value| value.is_number());
            (key.to_owned(), given.cloned().unwrap_or_else(|| DROPOUT_DEFAULT.into()))
        });
        let others = KEPT_KEYS
            .iter()
            .filter_map(|key| config.get(*key).map(|value| ((*key).to_owned(), value.clone())));
        Self(dropout.into_iter().chain(others).collect())
    }

    /// Reads them from the state that a checkpoint has.
    pub fn of_client(client: &Value) -> Self {
        Self(client.get(CLIENT_KEY).and_then(Value::as_object).cloned().unwrap_or_default())
    }

    /// Returns them as state for a checkpoint.
    pub fn to_client(&self) -> Value {
        json!({ CLIENT_KEY: self.0 })
    }

    /// Returns the probabilities of dropout that are not 0, with their keys.
    pub fn dropout(&self) -> Vec<(&str, f64)> {
        let given = DROPOUT.iter().filter_map(|key| Some((*key, self.0.get(*key)?.as_f64()?)));
        given.filter(|(_, probability)| *probability != 0.0).collect()
    }
}

/// Kind of a model, which every `config.json` has.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct ModelType {
    model_type: Option<String>,
}

/// What a `config.json` says of a GPT-2. Keys that change nothing in the arithmetic are not read.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
#[expect(clippy::struct_excessive_bools, reason = "they are those of the file")]
struct ModelConfig {
    n_layer: usize,
    n_head: usize,
    n_embd: usize,
    n_positions: usize,
    vocab_size: usize,
    #[serde(default)]
    n_inner: Option<usize>,
    #[serde(default = "gelu_new")]
    activation_function: String,
    #[serde(default = "norm_epsilon")]
    layer_norm_epsilon: f64,
    #[serde(default = "yes")]
    scale_attn_weights: bool,
    #[serde(default)]
    scale_attn_by_inverse_layer_idx: bool,
    #[serde(default)]
    add_cross_attention: bool,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
}

fn gelu_new() -> String {
    "gelu_new".to_owned()
}

fn norm_epsilon() -> f64 {
    1e-5
}

fn yes() -> bool {
    true
}

/// Reads a `config.json`: the sizes, and what is kept for an export.
///
/// # Errors
/// The key that the bundled GPT-2 has in another way, or what is wrong with the text.
pub fn read_config(text: &[u8]) -> Result<(GptConfig, KeptSettings), String> {
    // Before the sizes, which other models name otherwise.
    let kind: ModelType = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    match kind.model_type.as_deref() {
        Some("gpt2") => {}
        Some(other) => return Err(format!("`model_type` is `{other}` instead of `gpt2`")),
        None => return Err("it has no `model_type`, which is `gpt2`".to_owned()),
    }
    let found: ModelConfig = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let expect = |key: &str, is_equal: bool, shown: String, expected: &str| {
        if is_equal { Ok(()) } else { Err(format!("`{key}` is {shown} instead of {expected}")) }
    };
    let flag = |key: &str, found: bool, expected: bool| {
        expect(key, found == expected, found.to_string(), if expected { "true" } else { "false" })
    };
    let ModelConfig { n_embd, n_head, .. } = found;
    let activation = &found.activation_function;
    let is_gelu = matches!(&activation[..], "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast");
    expect("activation_function", is_gelu, format!("`{activation}`"), "`gelu_new`")?;
    let inner = found.n_inner.unwrap_or(4 * n_embd);
    expect("n_inner", inner == 4 * n_embd, inner.to_string(), &(4 * n_embd).to_string())?;
    let epsilon = found.layer_norm_epsilon;
    expect("layer_norm_epsilon", (epsilon - 1e-5).abs() < 1e-12, epsilon.to_string(), "1e-5")?;
    flag("scale_attn_weights", found.scale_attn_weights, true)?;
    let by_layer = found.scale_attn_by_inverse_layer_idx;
    flag("scale_attn_by_inverse_layer_idx", by_layer, false)?;
    flag("add_cross_attention", found.add_cross_attention, false)?;
    flag("tie_word_embeddings", found.tie_word_embeddings, true)?;
    let sizes = [found.n_layer, n_head, n_embd, found.n_positions, found.vocab_size];
    if sizes.iter().any(|size| !(1..=SIZE_MAX).contains(size)) {
        return Err(format!("a size is not in 1..={SIZE_MAX}"));
    }
    if !n_embd.is_multiple_of(n_head) {
        return Err(format!("`n_embd` {n_embd} is not a multiple of `n_head` {n_head}"));
    }
    let all: Map<String, Value> =
        serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let config = GptConfig {
        architecture: GptArchitecture::Gpt2,
        vocabulary: found.vocab_size,
        block: found.n_positions,
        layers: found.n_layer,
        heads: n_head,
        width: n_embd,
    };
    Ok((config, KeptSettings::of_config(&all)))
}
