//! A checkpoint from a GPT-2 of Hugging Face, from which trainings continue.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use crate::base::order;
use crate::base::show_io_error;
use crate::runtime::checkpoint::{
    CheckpointWriter, SaveError, SavedState, TensorPiece, WriterOptions, state_tensor,
};
use crate::runtime::dtype::element::Element as _;
use crate::runtime::dtype::half::{Bf16, F16};
use crate::runtime::engine::{Model as _, Parameter, ParameterTable};
use crate::runtime::optim::Optimizer;
use crate::runtime::{self, Group};
use crate::train::data::mmap::MappedFile;
use crate::train::hugging_face::layout::{KeptSettings, is_transposed, read_config};
use crate::train::nn::cpu::threads::Threads;
use crate::train::nn::gpt::{Gpt, GptConfig};
use crate::train::nn::model_id::{ModelId, TOKENS_OF_SHARDS};

/// Prefix of the names in models that were saved with their head.
const PREFIX: &str = "transformer.";
/// Weight of the head, which is that of the token embedding.
const HEAD: &str = "lm_head.weight";

/// Model that was imported.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedModel {
    /// Path of the checkpoint.
    pub path: PathBuf,
    /// Kind and sizes of the model.
    pub model: ModelId,
    /// Number of its parameters.
    pub parameters: usize,
    /// Settings that training here does not use.
    pub kept: KeptSettings,
}

/// Error of an import.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A file cannot be read.
    #[error("cannot read `{}`: {}", path.display(), show_io_error(source))]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file is not what its name says: it is truncated or was changed.
    #[error("`{}` cannot be imported: {problem}", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        problem: String,
    },
    /// The model is no GPT-2.
    #[error("`{}` cannot be imported: {problem}", path.display())]
    Content {
        /// Path of the file or the directory.
        path: PathBuf,
        /// Reason.
        problem: String,
    },
    /// The checkpoint cannot be written.
    #[error(transparent)]
    Save(#[from] SaveError),
    /// There is not enough memory to write the checkpoint.
    #[error(transparent)]
    Group(#[from] runtime::Error),
}

/// Index of a model in several files.
#[derive(Deserialize)]
struct ModelIndex {
    weight_map: BTreeMap<String, String>,
}

/// Reads `config.json` and the safetensors of a directory, and writes them as checkpoint of step 0 below
/// `to`. The moments of AdamW are zeros.
///
/// # Errors
/// If a file cannot be read or written, or the model is not that of GPT-2.
pub fn import_gpt2(dir: &Path, to: &Path) -> Result<ImportedModel, ImportError> {
    let path = dir.join("config.json");
    let text =
        fs::read(&path).map_err(|source| ImportError::Read { path: path.clone(), source })?;
    let (config, kept) = read_config(&text).map_err(|problem| {
        if is_json(&text) {
            ImportError::Content { path, problem }
        } else {
            ImportError::Damaged { path, problem }
        }
    })?;
    let table = Gpt::<f32>::new(config, Threads::ONE).parameters().clone();
    let mut params = vec![0.0; table.len()];
    let mut missing: BTreeSet<&str> = table.iter().map(|one| one.name.as_str()).collect();
    for path in files_of(dir)? {
        let content = |problem: String| ImportError::Content { path: path.clone(), problem };
        let file = MappedFile::open(&path)
            .map_err(|source| ImportError::Read { path: path.clone(), source })?;
        let damaged = |problem: String| ImportError::Damaged { path: path.clone(), problem };
        let tensors =
            SafeTensors::deserialize(&file).map_err(|error| damaged(error.to_string()))?;
        let mut tensors = tensors.tensors();
        order::sort_by(&mut tensors, |(one, _), (other, _)| one.cmp(other));
        for (name, tensor) in tensors {
            let own = name.strip_prefix(PREFIX).unwrap_or(&name);
            if let Some(parameter) = table.get(own) {
                read_tensor(parameter, &tensor, &mut params[parameter.range.clone()])
                    .map_err(content)?;
                missing.remove(own);
            } else if !is_redundant(own) {
                return Err(content(format!("GPT-2 has no tensor `{own}`")));
            }
        }
    }
    if let Some(first) = missing.first() {
        let problem = format!("{} tensors are missing, the first is `{first}`", missing.len());
        return Err(ImportError::Content { path: dir.to_owned(), problem });
    }
    let model = identity(config);
    let state =
        SavedState { model: model.to_string(), client: kept.to_client(), ..SavedState::default() };
    let path = save(to, &state, &table, &params)?;
    Ok(ImportedModel { path, model, parameters: params.len(), kept })
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

/// The safetensors of a model: those of its index, or the only one.
fn files_of(dir: &Path) -> Result<Vec<PathBuf>, ImportError> {
    let path = dir.join("model.safetensors.index.json");
    let text = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(vec![dir.join("model.safetensors")]);
        }
        read => read.map_err(|source| ImportError::Read { path: path.clone(), source })?,
    };
    let index: ModelIndex = serde_json::from_slice(&text)
        .map_err(|error| ImportError::Damaged { path, problem: error.to_string() })?;
    let names: BTreeSet<String> = index.weight_map.into_values().collect();
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

/// Whether a tensor says nothing new: masks of attention, and the head, which is the token embedding.
fn is_redundant(name: &str) -> bool {
    name == HEAD || name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")
}

/// Reads a tensor into its place in the flat parameters.
fn read_tensor(
    parameter: &Parameter,
    tensor: &TensorView<'_>,
    out: &mut [f32],
) -> Result<(), String> {
    let is_turned = is_transposed(&parameter.name);
    let mut expected = parameter.shape.clone();
    if is_turned {
        expected.reverse();
    }
    if tensor.shape() != expected {
        let (name, found) = (&parameter.name, tensor.shape());
        return Err(format!("`{name}` has the shape {found:?} instead of {expected:?}"));
    }
    let values = widened(tensor).ok_or_else(|| {
        format!("`{}` has the type {:?}, which is not read as f32", parameter.name, tensor.dtype())
    })?;
    match &expected[..] {
        &[rows, cols] if is_turned => {
            for (at, value) in values.iter().enumerate() {
                out[at % cols * rows + at / cols] = *value;
            }
        }
        _ => out.copy_from_slice(&values),
    }
    Ok(())
}

/// Elements of a tensor of floats. Files are little-endian and not aligned.
fn widened(tensor: &TensorView<'_>) -> Option<Vec<f32>> {
    let bytes = tensor.data();
    let mut wide = vec![0.0; tensor.shape().iter().product()];
    match tensor.dtype() {
        Dtype::F32 => bytemuck::cast_slice_mut(&mut wide).copy_from_slice(bytes),
        Dtype::BF16 => Bf16::widen(&collect::<Bf16>(bytes), &mut wide),
        Dtype::F16 => F16::widen(&collect::<F16>(bytes), &mut wide),
        _ => return None,
    }
    Some(wide)
}

/// Elements from bytes that are not aligned.
fn collect<T: bytemuck::Pod>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

fn identity(config: GptConfig) -> ModelId {
    let GptConfig { architecture, vocabulary, block, layers, heads, width } = config;
    let bytes = TOKENS_OF_SHARDS.to_owned();
    ModelId::Gpt { architecture, layers, heads, width, block, vocabulary, bytes }
}

/// Writes a checkpoint of step 0, as a run of one rank would.
fn save(
    to: &Path,
    state: &SavedState,
    table: &ParameterTable,
    params: &[f32],
) -> Result<PathBuf, ImportError> {
    let zeros = vec![0.0; params.len()];
    let moments = Optimizer::default().state_names();
    let mut pieces = Vec::new();
    for parameter in table {
        let weight = std::iter::once((parameter.name.clone(), params));
        let of_moment = |moment: &&str| (state_tensor(&parameter.name, moment), &zeros[..]);
        for (name, all) in weight.chain(moments.iter().map(of_moment)) {
            let (shape, range) = (&parameter.shape, parameter.range.clone());
            pieces.push(TensorPiece::new(name, shape, 0..range.len(), &all[range]));
        }
    }
    let groups = Group::threads(1)?;
    let mut writer = CheckpointWriter::new(&groups[0], to, WriterOptions::default())?;
    Ok(writer.save(state, &pieces)?.path)
}
