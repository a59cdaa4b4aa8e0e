//! GPT-2 as Hugging Face stores it: its `config.json`, and the layout of its weights.

use serde_json::json;

use crate::train::nn::gpt::GptArchitecture;
use crate::train::nn::model_id::ModelId;

/// Matrices of a block whose rows and columns Hugging Face stores in each other's place, as those of its
/// `Conv1D`.
const TRANSPOSED: [&str; 4] =
    ["attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"];

/// Returns whether Hugging Face stores a parameter of GPT-2 transposed.
pub fn is_transposed(name: &str) -> bool {
    TRANSPOSED.iter().any(|matrix| name.ends_with(matrix))
}

/// Returns the `config.json` of a model, or `None` if `transformers` has no such model: only that of GPT-2 is
/// known there.
pub fn config_json(model: &ModelId) -> Option<String> {
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
    let config = json!({
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
        "bos_token_id": null,
        "eos_token_id": null,
    });
    Some(serde_json::to_string_pretty(&config).expect("texts and numbers have a JSON form") + "\n")
}
