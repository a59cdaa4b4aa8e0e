//! Checkpoints of a run: parameters, both moments and the step, as a safetensors file.
//!
//! A file exists completely or not at all: it is written under another name, synced and renamed,
//! and the directory is synced.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};

use super::adamw::Moments;
use super::identity::Identity;
use super::model::{Parameter, ParameterTable};

/// Format of the files; files of another one are rejected.
const FORMAT: &str = "remuda-train/1";
/// Prefixes of the names of the moments.
const FIRST: &str = "optimizer.first.";
const SECOND: &str = "optimizer.second.";
/// What the names of checkpoints end with.
pub const EXTENSION: &str = "safetensors";

/// Why a run cannot be kept or found again.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A file or directory cannot be read.
    #[error("cannot read checkpoint `{}`: {source}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write checkpoint `{}`: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A directory holds no checkpoint.
    #[error("there is no checkpoint in `{}`", dir.display())]
    Missing {
        /// The directory.
        dir: PathBuf,
    },
    /// A file is not a checkpoint of ours, or is damaged.
    #[error("`{}` is not a checkpoint of `remuda train`: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A checkpoint of another model.
    #[error("checkpoint `{}` is of another model: `{found}` instead of `{expected}`", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// The model that the file is of.
        found: String,
        /// The model that this run asks for.
        expected: String,
    },
}

/// State of a run between two steps.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Checkpoint {
    /// Number of completed steps.
    pub(super) step: u64,
    /// Samples that these steps used, if the file contains them.
    pub(super) samples: Option<Samples>,
    /// The flat parameter buffer.
    pub(super) params: Vec<f32>,
    /// The optimizer's moments.
    pub(super) moments: Moments<f32>,
}

impl Checkpoint {
    /// SHA-256 of parameters and moments, as hexadecimal text.
    pub(super) fn digest(&self) -> String {
        digest(&self.params, &self.moments)
    }
}

/// SHA-256 of parameters and moments, as hexadecimal text.
pub(super) fn digest(params: &[f32], moments: &Moments<f32>) -> String {
    let mut digest = Sha256::new();
    for buffer in [params, &moments.first, &moments.second] {
        digest.update(bytemuck::cast_slice(buffer));
    }
    format!("{:x}", digest.finalize())
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
    /// SHA-256 of parameters and moments.
    sha256: String,
    /// Samples that the steps used; absent in files of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    samples: Option<Samples>,
}

/// Which samples a run takes for a step. Equal for every split of the same lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Samples {
    /// Micro-batches of all workers in a step.
    pub lanes: usize,
    /// Samples of each.
    pub batch_size: usize,
    /// Which ones follows from it.
    pub seed: u64,
}

impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lanes, batch_size, seed } = self;
        write!(f, "{lanes} micro-batches of {batch_size} samples a step, seed {seed}")
    }
}

/// Path of the checkpoint after `step` steps.
pub(super) fn path_of(dir: &Path, step: u64) -> PathBuf {
    dir.join(format!("step-{step:08}.{EXTENSION}"))
}

/// Writes the state of a run to `path`, which afterwards has either its old content or all of the
/// new.
pub(super) fn save(
    path: &Path,
    table: &ParameterTable,
    identity: &Identity,
    (step, samples): (u64, Samples),
    (params, moments): (&[f32], &Moments<f32>),
) -> Result<(), CheckpointError> {
    let buffers = [("", params), (FIRST, &moments.first), (SECOND, &moments.second)];
    let views = buffers.iter().flat_map(|&(prefix, buffer)| {
        table.iter().map(move |parameter| view(prefix, parameter, buffer))
    });
    let header = Header {
        format: FORMAT.to_owned(),
        model: identity.to_string(),
        step,
        sha256: digest(params, moments),
        samples: Some(samples),
    };
    let header = serde_json::to_string(&header).expect("texts and numbers have a JSON form");
    // One entry only: the map has no order, and equal runs must give equal files.
    let metadata = HashMap::from([(HEADER.to_owned(), header)]);
    let bytes = safetensors::serialize(views, Some(metadata))
        .expect("shapes and lengths come from the same table");
    replace(path, &bytes).map_err(|source| CheckpointError::Write { path: path.to_owned(), source })
}

fn view<'a>(prefix: &str, parameter: &Parameter, buffer: &'a [f32]) -> (String, TensorView<'a>) {
    let bytes = bytemuck::cast_slice(&buffer[parameter.range.clone()]);
    let view = TensorView::new(Dtype::F32, parameter.shape.clone(), bytes)
        .expect("a parameter's range is as long as its shape says");
    (format!("{prefix}{}", parameter.name), view)
}

/// Replaces a file atomically, so that a crash at any time leaves the old or the new one.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
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

/// The checkpoint that `path` refers to: the file itself, or the newest one in a directory.
pub(super) fn find(path: &Path) -> Result<PathBuf, CheckpointError> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let read = |source| CheckpointError::Read { path: path.to_owned(), source };
    let newest = all_in(path).map_err(read)?.pop();
    newest.ok_or_else(|| CheckpointError::Missing { dir: path.to_owned() })
}

/// The newest checkpoint of a directory, if it can be read and holds one.
pub fn newest_in(dir: &Path) -> Option<PathBuf> {
    all_in(dir).ok()?.pop()
}

/// The checkpoints of a directory, the newest last.
fn all_in(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir)?;
    let mut paths =
        entries.map(|entry| entry.map(|it| it.path())).collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|it| it == EXTENSION));
    // Steps are padded with zeros, so the last name is that of the newest checkpoint.
    paths.sort();
    Ok(paths)
}

/// Removes the oldest checkpoints in the directory of `newest`, so that `keep` are left. Later
/// ones, and files with other names, are left alone. Returns the files that could not be removed,
/// with their errors.
pub(super) fn prune(newest: &Path, keep: NonZeroUsize) -> Vec<(PathBuf, io::Error)> {
    let Some(dir) = newest.parent() else { return Vec::new() };
    let mut ours = match all_in(dir) {
        Ok(ours) => ours,
        Err(error) => return vec![(dir.to_owned(), error)],
    };
    ours.retain(|path| is_named_by_step(path) && *path <= *newest);
    ours.truncate(ours.len().saturating_sub(keep.get()));
    let remove = |path: PathBuf| fs::remove_file(&path).err().map(|error| (path, error));
    ours.into_iter().filter_map(remove).collect()
}

/// Whether a file has a name as [`path_of`] gives it.
fn is_named_by_step(path: &Path) -> bool {
    let step = path.file_stem().and_then(|stem| stem.to_str()?.strip_prefix("step-"));
    step.is_some_and(|step| 8 <= step.len() && step.bytes().all(|byte| byte.is_ascii_digit()))
}

/// File in a directory of checkpoints that names the last one that a job with restarts has saved.
/// It is not part of the checkpoints, because equal runs must give equal files.
const JOB_FILE: &str = "last-of-job";

/// Records that this job has saved this checkpoint.
pub(super) fn note_job(path: &Path, job: &str) -> Result<(), CheckpointError> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    let text = format!("{job} {}\n", name.display());
    let note = dir.join(JOB_FILE);
    replace(&note, text.as_bytes()).map_err(|source| CheckpointError::Write { path: note, source })
}

/// The last checkpoint that this job has saved in the directory.
pub(super) fn of_job(dir: &Path, job: &str) -> Option<PathBuf> {
    let text = fs::read_to_string(dir.join(JOB_FILE)).ok()?;
    let (saved_by, name) = text.trim_end().split_once(' ')?;
    (saved_by == job).then(|| dir.join(name))
}

/// A checkpoint that was found whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The file.
    pub path: PathBuf,
    /// Steps that it contains.
    pub step: u64,
    /// The model.
    pub model: Identity,
    /// Which samples its steps took, if the file says so.
    pub samples: Option<Samples>,
}

/// Finds a checkpoint (a file, or the newest one in a directory) and reads all of it, whatever model
/// it is of.
pub fn inspect(path: &Path) -> Result<Saved, CheckpointError> {
    let path = find(path)?;
    let bytes = read(&path)?;
    match inspect_bytes(&bytes) {
        Ok((step, model, samples)) => Ok(Saved { path, step, model, samples }),
        Err(error) => Err(error.of(&path, "")),
    }
}

fn inspect_bytes(bytes: &[u8]) -> Result<(u64, Identity, Option<Samples>), ParseError> {
    let header = header(bytes)?;
    let foreign = || ParseError::Malformed(format!("its model is `{}`", header.model));
    let model: Identity = header.model.parse().map_err(|()| foreign())?;
    let table = model.parameters(bytes.len() as u64).ok_or_else(foreign)?;
    parse(bytes, &table, &model)?;
    Ok((header.step, model, header.samples))
}

/// Reads a checkpoint of this model.
pub(super) fn load(
    path: &Path,
    table: &ParameterTable,
    identity: &Identity,
) -> Result<Checkpoint, CheckpointError> {
    let bytes = read(path)?;
    parse(&bytes, table, identity).map_err(|error| error.of(path, &identity.to_string()))
}

fn read(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    fs::read(path).map_err(|source| CheckpointError::Read { path: path.to_owned(), source })
}

/// Why the bytes of a file are not a checkpoint.
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

fn header(bytes: &[u8]) -> Result<Header, ParseError> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| malformed(&error))?;
    let entry = header.metadata().as_ref().and_then(|metadata| metadata.get(HEADER));
    let missing = || ParseError::Malformed(format!("its header has no `{HEADER}`"));
    let header: Header = serde_json::from_str(entry.ok_or_else(missing)?).map_err(|error| {
        ParseError::Malformed(format!("its `{HEADER}` cannot be parsed: {error}"))
    })?;
    if header.format == FORMAT {
        Ok(header)
    } else {
        Err(ParseError::Malformed(format!("its format is `{}`", header.format)))
    }
}

fn parse(
    bytes: &[u8],
    table: &ParameterTable,
    identity: &Identity,
) -> Result<Checkpoint, ParseError> {
    let header = header(bytes)?;
    if header.model != identity.to_string() {
        return Err(ParseError::Mismatch { found: header.model });
    }
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| malformed(&error))?;
    let params = gather(&tensors, table, "")?;
    let moments = Moments {
        first: gather(&tensors, table, FIRST)?,
        second: gather(&tensors, table, SECOND)?,
    };
    let checkpoint = Checkpoint { step: header.step, samples: header.samples, params, moments };
    if checkpoint.digest() != header.sha256 {
        return Err(ParseError::Malformed("checksum mismatch".to_owned()));
    }
    Ok(checkpoint)
}

/// Copies the tensors with names that begin with `prefix` to a flat buffer.
fn gather(
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
