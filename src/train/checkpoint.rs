//! Checkpoints of a run: parameters, both moments and the step, as a safetensors file.
//!
//! A file is written atomically: under another name, then synced and renamed, then the directory is synced.
//! Its header contains the SHA-256 of the whole file, with zeros in place of the digest itself, so a
//! change of any bit is detected.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};

use crate::os::files::input_file::open_regular;
use crate::runtime::engine::{Parameter, ParameterTable};
use crate::train::nn::model_id::ModelId;

/// Format of new files.
const FORMAT: &str = "remuda-train/2";
/// Format of earlier builds, which can still be read: its digest covers parameters and moments only.
const FORMAT_1: &str = "remuda-train/1";
/// Placeholder for the digest while the digest of the file is computed.
const NO_DIGEST: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// Bytes that are read to recognize a checkpoint, before the whole file is read.
const HEAD_BYTES: u64 = 64 << 10;
/// Prefixes of the tensor names of the moments, in order. Some optimizers have fewer than two.
const MOMENTS: [&str; 2] = ["optimizer.first.", "optimizer.second."];
/// File extension of checkpoints.
pub const EXTENSION: &str = "safetensors";

/// Error of saving or loading a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A file or directory cannot be read.
    #[error("cannot read checkpoint `{}`: {source}", path.display())]
    Read {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write checkpoint `{}`: {source}", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A directory contains no checkpoint.
    #[error("there is no checkpoint in `{}`", dir.display())]
    Missing {
        /// Path of the directory.
        dir: PathBuf,
    },
    /// A file is not a checkpoint of `remuda train`, or is damaged.
    #[error("`{}` is not a checkpoint of `remuda train`: {reason}", path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// Problem that was found in it.
        reason: String,
    },
    /// A checkpoint belongs to another model.
    #[error("checkpoint `{}` is for another model: `{found}` instead of `{expected}`", path.display())]
    Mismatch {
        /// Path of the file.
        path: PathBuf,
        /// Model of the file.
        found: String,
        /// Model of this run.
        expected: String,
    },
}

/// State of a run between two steps.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Checkpoint {
    /// Number of completed steps.
    pub(super) step: u64,
    /// Samples that these steps used, if the file contains them.
    pub(super) samples: Option<SampleRange>,
    /// Parameters and moments.
    pub(super) tensors: SavedTensors,
}

/// Parameters and moments of the optimizer, each in the order of the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SavedTensors {
    /// The parameters.
    pub(super) params: Vec<f32>,
    /// The moments; AdamW has two.
    pub(super) moments: Vec<Vec<f32>>,
}

impl SavedTensors {
    /// The parameters, then the moments.
    pub(super) fn into_sections(self) -> Vec<Vec<f32>> {
        std::iter::once(self.params).chain(self.moments).collect()
    }
}

impl Checkpoint {
    /// SHA-256 of parameters and moments, as hexadecimal text.
    fn digest(&self) -> String {
        let mut digest = Sha256::new();
        for buffer in std::iter::once(&self.tensors.params).chain(&self.tensors.moments) {
            digest.update(bytemuck::cast_slice(buffer));
        }
        format!("{:x}", digest.finalize())
    }
}

/// Entry of the file's metadata that contains the header of remuda.
const HEADER: &str = "remuda-train";

/// Header of a checkpoint.
#[derive(serde::Serialize, serde::Deserialize)]
struct Header {
    format: String,
    /// Identity of the model: kind, sizes, vocabulary.
    model: String,
    step: u64,
    /// Digest of the file with [`NO_DIGEST`] in place of the digest; in [`FORMAT_1`], of parameters and
    /// moments.
    sha256: String,
    /// Absent in files of the first builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    samples: Option<SampleRange>,
}

/// Samples that a run uses for each step; equal for every split of the same lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SampleRange {
    /// Number of lanes: micro-batches of all workers in a step.
    pub lanes: usize,
    /// Number of samples of each micro-batch.
    pub batch_size: usize,
    /// Seed from which the samples are drawn.
    pub seed: u64,
}

impl fmt::Display for SampleRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lanes, batch_size, seed } = self;
        write!(f, "{lanes} micro-batches of {batch_size} samples a step, seed {seed}")
    }
}

/// Path of the checkpoint after `step` steps.
pub(super) fn checkpoint_path(dir: &Path, step: u64) -> PathBuf {
    dir.join(format!("step-{step:08}.{EXTENSION}"))
}

/// Writes the state of a run to `path` atomically: the file has either its old or its new content.
pub(super) fn save(
    path: &Path,
    table: &ParameterTable,
    identity: &ModelId,
    (step, samples): (u64, SampleRange),
    tensors: &SavedTensors,
) -> Result<(), CheckpointError> {
    let moments = MOMENTS.into_iter().zip(&tensors.moments);
    let buffers: Vec<_> = std::iter::once(("", &tensors.params)).chain(moments).collect();
    let views = buffers.iter().flat_map(|&(prefix, buffer)| {
        table.iter().map(move |parameter| view(prefix, parameter, buffer))
    });
    let header = Header {
        format: FORMAT.to_owned(),
        model: identity.to_string(),
        step,
        sha256: NO_DIGEST.to_owned(),
        samples: Some(samples),
    };
    let header = serde_json::to_string(&header).expect("texts and numbers have a JSON form");
    // One entry only: the map has no order, and equal runs must give equal files.
    let metadata = HashMap::from([(HEADER.to_owned(), header)]);
    let mut bytes = safetensors::serialize(views, Some(metadata))
        .expect("shapes and lengths come from the same table");
    let digest_range = find_digest(&bytes, NO_DIGEST).expect("the header contains the placeholder");
    let digest = digest_of_file(&bytes, &digest_range);
    bytes[digest_range].copy_from_slice(digest.as_bytes());
    write_atomically(path, &bytes)
        .map_err(|source| CheckpointError::Write { path: path.to_owned(), source })
}

/// Finds the range of this digest in the header; `None` unless it occurs exactly once.
fn find_digest(bytes: &[u8], digest: &str) -> Option<Range<usize>> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let header = rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    // The entry is a JSON text within the JSON of the header.
    let entry = format!(r#"\"sha256\":\"{digest}\""#);
    let mut found = std::str::from_utf8(header).ok()?.match_indices(&entry);
    let ((first, _), None) = (found.next()?, found.next()) else { return None };
    let end = length.len() + first + entry.len() - r#"\""#.len();
    Some(end - digest.len()..end)
}

/// SHA-256 of a file with [`NO_DIGEST`] in the range of the digest, as hexadecimal text.
fn digest_of_file(bytes: &[u8], digest_range: &Range<usize>) -> String {
    let mut digest = Sha256::new();
    digest.update(&bytes[..digest_range.start]);
    digest.update(NO_DIGEST);
    digest.update(&bytes[digest_range.end..]);
    format!("{:x}", digest.finalize())
}

fn view<'a>(prefix: &str, parameter: &Parameter, buffer: &'a [f32]) -> (String, TensorView<'a>) {
    let bytes = bytemuck::cast_slice(&buffer[parameter.range.clone()]);
    let view = TensorView::new(Dtype::F32, parameter.shape.clone(), bytes)
        .expect("range and shape of a parameter have the same number of elements");
    (format!("{prefix}{}", parameter.name), view)
}

/// Replaces a file atomically, so that a crash at any time leaves the old or the new one.
fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    fs::create_dir_all(dir)?;
    let draft = path.with_extension("draft");
    let mut file = File::create(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(dir)?.sync_all()
}

/// Finds the checkpoint that `path` refers to: the file itself, or the newest one of a directory.
pub(super) fn find(path: &Path) -> Result<PathBuf, CheckpointError> {
    find_all(path).map(|mut found| found.swap_remove(0))
}

/// Finds the checkpoints that `path` refers to, at least one: the file itself, or all of a directory, the
/// newest first.
pub(super) fn find_all(path: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let read = |source| CheckpointError::Read { path: path.to_owned(), source };
    let mut found = list_checkpoints(path).map_err(read)?;
    found.reverse();
    if found.is_empty() {
        return Err(CheckpointError::Missing { dir: path.to_owned() });
    }
    Ok(found)
}

/// Lists a checkpoint and the earlier ones of its directory, the newest first.
pub(super) fn with_earlier(path: PathBuf) -> Vec<PathBuf> {
    let earlier = path.parent().and_then(|dir| list_checkpoints(dir).ok()).unwrap_or_default();
    let earlier = earlier.into_iter().rev().filter(|other| *other < path);
    let earlier: Vec<_> = earlier.collect();
    std::iter::once(path).chain(earlier).collect()
}

/// Reads the first file that is not damaged; `on_damaged` receives the errors of those before it. If
/// all are damaged, returns the first error.
pub(super) fn load_first_valid<T>(
    paths: Vec<PathBuf>,
    mut read: impl FnMut(&Path) -> Result<T, CheckpointError>,
    mut on_damaged: impl FnMut(&CheckpointError),
) -> Result<(PathBuf, T), CheckpointError> {
    let mut first_error: Option<CheckpointError> = None;
    for path in paths {
        match read(&path) {
            Ok(found) => return Ok((path, found)),
            Err(error @ CheckpointError::Malformed { .. }) => {
                on_damaged(&error);
                first_error.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(first_error.expect("there is at least one path"))
}

/// Returns the newest checkpoint of a directory; `None` if there is none or the directory is not readable.
pub fn newest_in(dir: &Path) -> Option<PathBuf> {
    list_checkpoints(dir).ok()?.pop()
}

/// Lists the checkpoints of a directory, the newest last.
fn list_checkpoints(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir)?;
    let mut paths =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
    // Steps are padded with zeros, so the last name is that of the newest checkpoint.
    paths.sort();
    Ok(paths)
}

/// Removes the oldest checkpoints in the directory of `newest`, so that `keep` remain. Checkpoints of
/// later steps and files with other names are not removed. Returns the files that could not be removed,
/// with their errors.
pub(super) fn prune(newest: &Path, keep: NonZeroUsize) -> Vec<(PathBuf, io::Error)> {
    let Some(dir) = newest.parent() else { return Vec::new() };
    let mut checkpoints = match list_checkpoints(dir) {
        Ok(checkpoints) => checkpoints,
        Err(error) => return vec![(dir.to_owned(), error)],
    };
    checkpoints.retain(|path| is_named_by_step(path) && *path <= *newest);
    checkpoints.truncate(checkpoints.len().saturating_sub(keep.get()));
    let remove = |path: PathBuf| fs::remove_file(&path).err().map(|error| (path, error));
    checkpoints.into_iter().filter_map(remove).collect()
}

/// Whether the file name has the form that [`checkpoint_path`] returns.
fn is_named_by_step(path: &Path) -> bool {
    let step = path.file_stem().and_then(|stem| stem.to_str()?.strip_prefix("step-"));
    step.is_some_and(|step| 8 <= step.len() && step.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Name of a file beside the checkpoints: it names the last checkpoint that a job with restarts has
/// saved. The checkpoints do not contain it, because equal runs must write equal files.
const JOB_FILE: &str = "last-of-job";

/// Records that this job has saved this checkpoint.
pub(super) fn record_job(path: &Path, job: &str) -> Result<(), CheckpointError> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    let text = format!("{job} {}\n", name.display());
    let file = dir.join(JOB_FILE);
    write_atomically(&file, text.as_bytes())
        .map_err(|source| CheckpointError::Write { path: file, source })
}

/// Returns the last checkpoint that this job has saved in the directory.
pub(super) fn last_of_job(dir: &Path, job: &str) -> Option<PathBuf> {
    let text = fs::read_to_string(dir.join(JOB_FILE)).ok()?;
    let (saved_by, name) = text.trim_end().split_once(' ')?;
    (saved_by == job).then(|| dir.join(name))
}

/// Metadata of a valid checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointInfo {
    /// Path of the file.
    pub path: PathBuf,
    /// Number of completed steps.
    pub step: u64,
    /// Identity of the model.
    pub model: ModelId,
    /// Samples that its steps used, if the file contains them.
    pub samples: Option<SampleRange>,
}

/// Finds a checkpoint (a file, or the newest one of a directory) and verifies all of it, for any model.
pub fn inspect(path: &Path) -> Result<CheckpointInfo, CheckpointError> {
    inspect_file(&find(path)?)
}

/// Finds the newest valid checkpoint of a directory. If none is valid, returns the error of the newest.
pub fn inspect_newest(dir: &Path) -> Result<CheckpointInfo, CheckpointError> {
    load_first_valid(find_all(dir)?, inspect_file, |_| ()).map(|(_, saved)| saved)
}

fn inspect_file(path: &Path) -> Result<CheckpointInfo, CheckpointError> {
    let bytes = read(path)?;
    let (step, model, samples) = inspect_bytes(&bytes).map_err(|error| error.of(path, ""))?;
    Ok(CheckpointInfo { path: path.to_owned(), step, model, samples })
}

fn inspect_bytes(bytes: &[u8]) -> Result<(u64, ModelId, Option<SampleRange>), ParseError> {
    let header = header(bytes)?;
    let foreign = || ParseError::Malformed(format!("its model is `{}`", header.model));
    let model: ModelId = header.model.parse().map_err(|()| foreign())?;
    let table = model.parameters(bytes.len() as u64).ok_or_else(foreign)?;
    let Checkpoint { step, samples, .. } = parse(bytes, header, &table, &model)?;
    Ok((step, model, samples))
}

/// Reads a checkpoint of this model.
pub(super) fn load(
    path: &Path,
    table: &ParameterTable,
    identity: &ModelId,
) -> Result<Checkpoint, CheckpointError> {
    let bytes = read(path)?;
    let found = header(&bytes).and_then(|header| parse(&bytes, header, table, identity));
    found.map_err(|error| error.of(path, &identity.to_string()))
}

fn read(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    let error = |source| CheckpointError::Read { path: path.to_owned(), source };
    let mut file = open_regular(path).map_err(error)?;
    let length = file.metadata().map_err(error)?.len();
    read_bytes(&mut file, length).map_err(error)
}

/// Reads a file; if it does not begin like a checkpoint, only its beginning.
fn read_bytes(file: &mut File, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut bytes)?;
    let is_safetensors = bytes.split_first_chunk::<8>().is_some_and(|(header, rest)| {
        u64::from_le_bytes(*header) <= length && rest.first() == Some(&b'{')
    });
    if is_safetensors {
        file.take(length.saturating_sub(HEAD_BYTES)).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Reason why the bytes of a file are not a checkpoint.
#[derive(Debug)]
enum ParseError {
    Malformed(String),
    Mismatch { found: String },
}

impl ParseError {
    fn of(self, path: &Path, expected: &str) -> CheckpointError {
        let (path, expected) = (path.to_owned(), expected.to_owned());
        match self {
            Self::Malformed(reason) => CheckpointError::Malformed { path, reason },
            Self::Mismatch { found } => CheckpointError::Mismatch { path, found, expected },
        }
    }
}

fn malformed(error: &safetensors::SafeTensorError) -> ParseError {
    ParseError::Malformed(error.to_string())
}

fn checksum_mismatch() -> ParseError {
    ParseError::Malformed("checksum mismatch: it was changed after it was saved".to_owned())
}

/// Parses the header and verifies the digest of the file; for [`FORMAT_1`], [`parse`] does that.
fn header(bytes: &[u8]) -> Result<Header, ParseError> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| malformed(&error))?;
    let entry = header.metadata().as_ref().and_then(|metadata| metadata.get(HEADER));
    let missing = || ParseError::Malformed(format!("its header has no `{HEADER}`"));
    let header: Header = serde_json::from_str(entry.ok_or_else(missing)?).map_err(|error| {
        ParseError::Malformed(format!("its `{HEADER}` cannot be parsed: {error}"))
    })?;
    match header.format.as_str() {
        FORMAT => {
            let is_valid = find_digest(bytes, &header.sha256)
                .is_some_and(|range| digest_of_file(bytes, &range) == header.sha256);
            if is_valid { Ok(header) } else { Err(checksum_mismatch()) }
        }
        FORMAT_1 => Ok(header),
        other => Err(ParseError::Malformed(format!("its format is `{other}`"))),
    }
}

fn parse(
    bytes: &[u8],
    header: Header,
    table: &ParameterTable,
    identity: &ModelId,
) -> Result<Checkpoint, ParseError> {
    if header.model != identity.to_string() {
        return Err(ParseError::Mismatch { found: header.model });
    }
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| malformed(&error))?;
    let params = read_tensors(&tensors, table, "")?;
    let has = |prefix: &&str| {
        table.iter().any(|of| tensors.tensor(&format!("{prefix}{}", of.name)).is_ok())
    };
    let moments =
        MOMENTS.into_iter().filter(has).map(|prefix| read_tensors(&tensors, table, prefix));
    let tensors = SavedTensors { params, moments: moments.collect::<Result<_, _>>()? };
    let checkpoint = Checkpoint { step: header.step, samples: header.samples, tensors };
    if header.format == FORMAT_1 && checkpoint.digest() != header.sha256 {
        return Err(checksum_mismatch());
    }
    Ok(checkpoint)
}

/// Copies the tensors with names that begin with `prefix` to a flat buffer.
fn read_tensors(
    tensors: &SafeTensors<'_>,
    table: &ParameterTable,
    prefix: &str,
) -> Result<Vec<f32>, ParseError> {
    let mut flat = vec![0.0; table.len()];
    for parameter in table {
        let name = format!("{prefix}{}", parameter.name);
        let tensor =
            tensors.tensor(&name).map_err(|error| ParseError::Malformed(error.to_string()))?;
        if tensor.dtype() != Dtype::F32 || tensor.shape() != parameter.shape {
            return Err(ParseError::Malformed(format!(
                "`{name}` is {:?} {:?} instead of F32 {:?}",
                tensor.dtype(),
                tensor.shape(),
                parameter.shape
            )));
        }
        // The bytes of a file may be unaligned, so they are copied, not cast.
        bytemuck::cast_slice_mut(&mut flat[parameter.range.clone()]).copy_from_slice(tensor.data());
    }
    Ok(flat)
}

#[cfg(test)]
mod tests;
