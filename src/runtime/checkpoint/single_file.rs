//! Checkpoints of one file, which earlier builds of `remuda train` wrote; they can only be read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::base::order;
use crate::os::files::input_file::open_regular;
use crate::runtime::checkpoint::error::{Damage, OpenError};
use crate::runtime::checkpoint::index::{
    CheckpointIndex, IndexedFile, IndexedPiece, IndexedTensor,
};
use crate::runtime::checkpoint::names::{parse_step, split_tensor, state_tensor};
use crate::runtime::checkpoint::state::{DataPosition, SavedState};
use crate::runtime::checkpoint::tensor::{elements_of, parse_dtype};

/// Formats: the digest of the first covers the tensors in the order of the model, that of the second the file.
const FORMAT_1: &str = "remuda-train/1";
const FORMAT_2: &str = "remuda-train/2";
/// Entry of the metadata.
const HEADER: &str = "remuda-train";
/// Prefixes of the moments, and their names today.
const MOMENTS: [(&str, &str); 2] =
    [("optimizer.first.", "exp_avg"), ("optimizer.second.", "exp_avg_sq")];
/// Largest header of safetensors.
const HEADER_BYTES_MAX: u64 = 100 << 20;
/// Bytes that are read at once.
const CHUNK: usize = 4 << 20;

/// Header of remuda.
#[derive(Deserialize)]
struct Header {
    format: String,
    model: String,
    step: u64,
    sha256: String,
    #[serde(default)]
    samples: Option<Samples>,
}

#[derive(Deserialize)]
struct Samples {
    lanes: u64,
    batch_size: u64,
    seed: u64,
}

/// Entry of a tensor in the header of safetensors.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

/// Opens a file, and checks its digest.
pub(super) fn open(path: &Path) -> Result<CheckpointIndex, OpenError> {
    let read = |source| OpenError::Read { path: path.to_owned(), source };
    let mut file = open_regular(path).map_err(read)?;
    let bytes = file.metadata().map_err(read)?.len();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let invalid = |reason: String| {
        let damage = vec![Damage::Invalid { file: name.clone(), reason }];
        OpenError::Damaged { path: path.to_owned(), damage }
    };
    let text = read_header(&mut file, bytes).map_err(read)?;
    // A file with the name of a checkpoint was one, and is damaged.
    let has_name = path.file_stem().and_then(|stem| stem.to_str()).and_then(parse_step).is_some();
    let foreign = |reason: &'static str| {
        if has_name {
            return invalid(reason.to_owned());
        }
        OpenError::NotCheckpoint { path: path.to_owned(), reason }
    };
    let text = text.ok_or_else(|| foreign("it is not a safetensors file"))?;
    let header = remuda_header(&text).map_err(&invalid)?;
    let header = header.ok_or_else(|| foreign("remuda has not written it"))?;
    let header = parse_header(&header).map_err(&invalid)?;
    if header.format != FORMAT_1 && header.format != FORMAT_2 {
        return Err(OpenError::Newer { path: path.to_owned(), format: header.format });
    }
    let start = (size_of::<u64>() + text.len()) as u64;
    let tensors = tensors(&text, start..bytes).map_err(&invalid)?;
    let found = match header.format.as_str() {
        FORMAT_1 => digest_of_tensors(&file, &tensors).map_err(read)?,
        _ => digest_of_file(&mut file, &text, &header.sha256).map_err(read)?,
    };
    if found.as_ref() != Some(&header.sha256) {
        return Err(invalid("checksum mismatch: it was changed after it was saved".to_owned()));
    }
    let data = header.samples.map(|Samples { lanes, batch_size, seed }| DataPosition {
        lanes,
        batch_size,
        seed,
        samples: None,
        fingerprint: None,
    });
    let (step, model) = (header.step, header.model);
    let state = SavedState { step, model, data, ..SavedState::default() };
    let files = vec![IndexedFile { name, bytes, blocks: Vec::new() }];
    Ok(CheckpointIndex { state, block_bytes: CHUNK as u64, files, tensors })
}

/// Text of the header of safetensors; `None` if the file does not begin with one.
fn read_header(file: &mut File, bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let mut length = Vec::new();
    file.take(8).read_to_end(&mut length)?;
    let Ok(length) = <[u8; 8]>::try_from(length) else { return Ok(None) };
    let length = u64::from_le_bytes(length);
    if HEADER_BYTES_MAX < length || bytes - 8 < length {
        return Ok(None);
    }
    let mut text = Vec::new();
    file.take(length).read_to_end(&mut text)?;
    Ok((text.len() as u64 == length && text.starts_with(b"{")).then_some(text))
}

/// Entry of remuda in the header of safetensors; `None` if another program wrote it.
fn remuda_header(text: &[u8]) -> Result<Option<String>, String> {
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(rename = "__metadata__", default)]
        metadata: BTreeMap<String, String>,
    }
    let mut metadata: Metadata = serde_json::from_slice(text)
        .map_err(|error| format!("its header cannot be parsed: {error}"))?;
    Ok(metadata.metadata.remove(HEADER))
}

fn parse_header(entry: &str) -> Result<Header, String> {
    serde_json::from_str(entry).map_err(|error| format!("its `{HEADER}` cannot be parsed: {error}"))
}

/// Tensors of the header, whose values are in this range of the file.
fn tensors(text: &[u8], data: Range<u64>) -> Result<BTreeMap<String, IndexedTensor>, String> {
    let mut entries: BTreeMap<String, Value> = serde_json::from_slice(text)
        .map_err(|error| format!("its header cannot be parsed: {error}"))?;
    entries.remove("__metadata__");
    let mut tensors = BTreeMap::new();
    for (name, entry) in entries {
        let shown = name.escape_default().to_string();
        let entry: Entry = serde_json::from_value(entry)
            .map_err(|error| format!("`{shown}` cannot be parsed: {error}"))?;
        let Entry { dtype, shape, data_offsets: (start, end) } = entry;
        let size = parse_dtype(&dtype).map(|dtype| dtype.bytes() as u64);
        let elements = elements_of(&shape);
        let is_valid = size.zip(elements).is_some_and(|(size, elements)| {
            end.checked_sub(start) == Some(elements as u64 * size) && end <= data.end - data.start
        });
        if !is_valid {
            return Err(format!("`{shown}` is not within the file"));
        }
        let whole = IndexedPiece {
            start: 0,
            end: elements.unwrap_or_default(),
            file: 0,
            offset: data.start + start,
        };
        let pieces = if whole.range().is_empty() { Vec::new() } else { vec![whole] };
        tensors.insert(new_name(&name), IndexedTensor { dtype, shape, pieces });
    }
    Ok(tensors)
}

/// Name of a tensor of a file in a directory.
fn new_name(name: &str) -> String {
    let moment = MOMENTS
        .iter()
        .find_map(|(prefix, state)| Some(state_tensor(name.strip_prefix(prefix)?, state)));
    moment.unwrap_or_else(|| name.to_owned())
}

/// SHA-256 of a file with zeros in place of its digest, which is in its header once; the file is read from
/// after the header.
fn digest_of_file(file: &mut File, text: &[u8], digest: &str) -> io::Result<Option<String>> {
    // The entry is a JSON text within the JSON of the header.
    let entry = format!(r#"\"sha256\":\"{digest}\""#);
    let Ok(header) = std::str::from_utf8(text) else { return Ok(None) };
    let mut places = header.match_indices(&entry);
    let (Some((at, _)), None) = (places.next(), places.next()) else { return Ok(None) };
    let end = at + entry.len() - r#"\""#.len();
    let mut blank = text.to_vec();
    blank[end - digest.len()..end].fill(b'0');
    let mut found = Sha256::new();
    found.update((text.len() as u64).to_le_bytes());
    found.update(blank);
    let mut chunk = vec![0; CHUNK];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(Some(format!("{:x}", found.finalize()))),
            length => found.update(&chunk[..length]),
        }
    }
}

/// SHA-256 of parameters and moments, each in the order of the model; `None` if it is not a bundled model.
fn digest_of_tensors(
    file: &File,
    tensors: &BTreeMap<String, IndexedTensor>,
) -> io::Result<Option<String>> {
    let parameters = tensors.iter().filter(|(name, _)| split_tensor(name).1.is_none());
    let placed = parameters.map(|(name, _)| Some((place_in_model(name)?, name)));
    let Some(mut placed) = placed.collect::<Option<Vec<_>>>() else { return Ok(None) };
    order::sort(&mut placed);
    let mut found = Sha256::new();
    for state in [None, Some(MOMENTS[0].1), Some(MOMENTS[1].1)] {
        for (_, parameter) in &placed {
            let name =
                state.map_or_else(|| (*parameter).clone(), |state| state_tensor(parameter, state));
            for piece in tensors.get(&name).map_or(&[][..], |tensor| &tensor.pieces) {
                let mut bytes = vec![0; piece.range().len() * size_of::<f32>()];
                file.read_exact_at(&mut bytes, piece.offset)?;
                found.update(bytes);
            }
        }
    }
    Ok(Some(format!("{:x}", found.finalize())))
}

/// Place of a parameter in the bundled models: a GPT and an MLP.
fn place_in_model(parameter: &str) -> Option<(usize, usize, usize)> {
    const BLOCK: [&str; 6] =
        ["ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"];
    const LAYER: [&str; 2] = ["weight", "bias"];
    let in_layer = |rest: &str, parts: &[&str]| {
        let (layer, part) = rest.split_once('.')?;
        let part = parts.iter().position(|known| *known == part)?;
        Some((2, layer.parse().ok()?, part))
    };
    match parameter {
        "wte.weight" => Some((0, 0, 0)),
        "wpe.weight" => Some((1, 0, 0)),
        "ln_f.weight" => Some((3, 0, 0)),
        _ => match parameter.strip_prefix("layers.") {
            Some(rest) => in_layer(rest, &LAYER),
            None => in_layer(parameter.strip_prefix("h.")?.strip_suffix(".weight")?, &BLOCK),
        },
    }
}
