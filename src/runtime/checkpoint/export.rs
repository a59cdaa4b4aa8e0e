//! Files of a checkpoint's parameters for other programs: safetensors as Hugging Face reads them.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::base::order;
use crate::base::{show_create_dir_error, show_io_error};
use crate::runtime::checkpoint::commit::new_token;
use crate::runtime::checkpoint::durable::sync_dir;
use crate::runtime::checkpoint::error::OpenError;
use crate::runtime::checkpoint::names::{EXTENSION, split_tensor};
use crate::runtime::checkpoint::reader::CheckpointReader;
use crate::runtime::checkpoint::shard::encode_header;
use crate::runtime::checkpoint::tensor::{TensorInfo, dtype_name};
use crate::runtime::dtype::element::{Dtype, Element};
use crate::runtime::dtype::half::{Bf16, F16};

/// Elements that are read at once.
const CHUNK: usize = 1 << 20;
/// Name of the index of a model in several files.
const MODEL_INDEX: &str = "model.safetensors.index.json";
/// Name of the file that says what a model is.
const MODEL_CONFIG: &str = "config.json";

/// Options of an export.
pub struct ExportOptions<'a> {
    /// Type of floating-point tensors; `None`: the type in which they were saved.
    pub dtype: Option<FloatType>,
    /// Largest size in bytes of a file of a directory, unless a tensor is larger.
    pub file_bytes_max: u64,
    /// Name and layout of a parameter in the export; `None`: it is left out.
    pub convert: &'a dyn Fn(&TensorInfo) -> Option<ExportedTensor>,
    /// Text of the `config.json` of a directory; `None`: there is no such file.
    pub config: Option<&'a str>,
}

/// Floating-point type of exported tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatType {
    /// 32-bit float.
    F32,
    /// Upper half of a 32-bit float.
    Bf16,
    /// 16-bit float of IEEE 754.
    F16,
}

/// Name and layout of an exported parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedTensor {
    /// Name in the export.
    pub name: String,
    /// Whether rows and columns change places; for matrices only.
    pub is_transposed: bool,
}

/// Place of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportTarget {
    /// A single safetensors file.
    File(PathBuf),
    /// A directory as Hugging Face reads it: `model.safetensors`, or several files and their index.
    HuggingFace(PathBuf),
}

/// Result of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportReport {
    /// Files that were written.
    pub files: Vec<PathBuf>,
    /// Number of tensors.
    pub tensors: usize,
    /// Number of bytes of all tensors.
    pub bytes: u64,
}

/// Error of an export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A file of the export exists.
    #[error("`{}` exists", path.display())]
    Exists {
        /// Path of the file.
        path: PathBuf,
    },
    /// The directory of the export cannot be created.
    #[error("cannot create directory `{}`: {}", path.display(), show_create_dir_error(source))]
    CreateDir {
        /// Path of the directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write `{}`: {}", path.display(), show_io_error(source))]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The checkpoint has no parameters, or two of them have one name in the export.
    #[error("checkpoint `{}` cannot be exported: {problem}", path.display())]
    Content {
        /// Path of the checkpoint.
        path: PathBuf,
        /// Reason.
        problem: String,
    },
}

/// Tensor of the export.
struct PlannedTensor {
    source: TensorInfo,
    target: TensorInfo,
    is_transposed: bool,
}

/// Writes the parameters of a checkpoint, without the state of the optimizer. No file is replaced; if it fails,
/// none is left.
///
/// # Errors
/// If a file exists or cannot be written, or the checkpoint is damaged.
pub fn export_checkpoint(
    reader: &CheckpointReader,
    target: &ExportTarget,
    options: &ExportOptions<'_>,
) -> Result<ExportReport, ExportError> {
    let plan = plan(reader, options)?;
    let sizes: Vec<u64> = plan.iter().map(|tensor| tensor.target.bytes()).collect();
    let bytes = sizes.iter().sum();
    let (dir, files) = match target {
        ExportTarget::File(path) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (path.parent().unwrap_or(Path::new("")), vec![(name, 0..plan.len())])
        }
        ExportTarget::HuggingFace(dir) => {
            (&**dir, name_files(&divide(&sizes, options.file_bytes_max)))
        }
    };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let config = options.config.filter(|_| matches!(target, ExportTarget::HuggingFace(_)));
    check_free(dir, target, config.is_some())?;
    let mut export = ExportFiles::new(dir)?;
    for (name, range) in &files {
        export.write(name, |file| write_tensors(reader, &plan[range.clone()], file))?;
    }
    if 1 < files.len() {
        let index = model_index(&plan, &files, bytes);
        export.write(MODEL_INDEX, |file| Ok(file.write_all(index.as_bytes())?))?;
    }
    if let Some(config) = config {
        export.write(MODEL_CONFIG, |file| Ok(file.write_all(config.as_bytes())?))?;
    }
    let files = export.complete()?;
    Ok(ExportReport { files, tensors: plan.len(), bytes })
}

/// Tensors of the export, in the order of their names.
fn plan(
    reader: &CheckpointReader,
    options: &ExportOptions<'_>,
) -> Result<Vec<PlannedTensor>, ExportError> {
    let refused =
        |problem: String| Err(ExportError::Content { path: reader.path().to_owned(), problem });
    let mut plan = Vec::new();
    for source in reader.tensors().filter(|tensor| split_tensor(&tensor.name).1.is_none()) {
        let Some(ExportedTensor { name, is_transposed }) = (options.convert)(&source) else {
            continue;
        };
        let is_float = matches!(source.dtype, Dtype::F32 | Dtype::Bf16 | Dtype::F16);
        let dtype = match options.dtype.filter(|_| is_float) {
            None => source.dtype,
            Some(FloatType::F32) => Dtype::F32,
            Some(FloatType::Bf16) => Dtype::Bf16,
            Some(FloatType::F16) => Dtype::F16,
        };
        let mut shape = source.shape.clone();
        if is_transposed {
            if shape.len() != 2 || !is_float {
                return refused(format!("{source} is not a matrix of floats"));
            }
            shape.reverse();
        }
        plan.push(PlannedTensor {
            source,
            target: TensorInfo { name, dtype, shape },
            is_transposed,
        });
    }
    order::sort_by(&mut plan, |a, b| a.target.name.cmp(&b.target.name));
    let twice = plan.windows(2).find(|pair| pair[0].target.name == pair[1].target.name);
    match twice {
        Some(pair) => refused(format!("two tensors are called `{}`", pair[0].target.name)),
        None if plan.is_empty() => refused("it has no parameters".to_owned()),
        None => Ok(plan),
    }
}

/// Divides tensors of these sizes among files of at most `file_bytes_max`.
fn divide(sizes: &[u64], file_bytes_max: u64) -> Vec<Range<usize>> {
    let (mut ranges, mut start, mut sum) = (Vec::new(), 0, 0u64);
    for (at, size) in sizes.iter().enumerate() {
        if start < at && file_bytes_max < sum.saturating_add(*size) {
            ranges.push(start..at);
            (start, sum) = (at, 0);
        }
        sum = sum.saturating_add(*size);
    }
    ranges.push(start..sizes.len());
    ranges
}

fn name_files(ranges: &[Range<usize>]) -> Vec<(String, Range<usize>)> {
    let count = ranges.len();
    let name = |number: usize| match count {
        1 => format!("model.{EXTENSION}"),
        _ => format!("model-{number:05}-of-{count:05}.{EXTENSION}"),
    };
    ranges.iter().enumerate().map(|(at, range)| (name(at + 1), range.clone())).collect()
}

/// Index of a model in several files, as Hugging Face writes it.
fn model_index(plan: &[PlannedTensor], files: &[(String, Range<usize>)], bytes: u64) -> String {
    let elements: usize = plan.iter().map(|tensor| tensor.target.elements()).sum();
    let mut map = Map::new();
    for (file, range) in files {
        let names = plan[range.clone()].iter().map(|tensor| tensor.target.name.clone());
        map.extend(names.map(|name| (name, Value::from(file.clone()))));
    }
    let metadata = json!({ "total_parameters": elements, "total_size": bytes });
    let index = json!({ "metadata": metadata, "weight_map": map });
    serde_json::to_string_pretty(&index).expect("texts and numbers have a JSON form") + "\n"
}

/// Fails if a file would be replaced, or another model is in the directory: Hugging Face would read parts of
/// both.
fn check_free(dir: &Path, target: &ExportTarget, has_config: bool) -> Result<(), ExportError> {
    let path = match target {
        ExportTarget::File(path) => fs::symlink_metadata(path).is_ok().then(|| path.clone()),
        ExportTarget::HuggingFace(_) => {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            let is_model = |name: &str| {
                name == MODEL_INDEX
                    || has_config && name == MODEL_CONFIG
                    || name.starts_with("model") && name.ends_with(".safetensors")
            };
            let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
            names.filter(|name| is_model(name)).min().map(|name| dir.join(name))
        }
    };
    path.map_or(Ok(()), |path| Err(ExportError::Exists { path }))
}

/// Files that get their names when all are complete.
struct ExportFiles<'a> {
    dir: &'a Path,
    token: u64,
    names: Vec<String>,
}

/// Error of writing a file: of the file, or of what is written.
enum WriteError {
    File(io::Error),
    Open(OpenError),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<OpenError> for WriteError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl<'a> ExportFiles<'a> {
    fn new(dir: &'a Path) -> Result<Self, ExportError> {
        fs::create_dir_all(dir)
            .map_err(|source| ExportError::CreateDir { path: dir.to_owned(), source })?;
        Ok(Self { dir, token: new_token(), names: Vec::new() })
    }

    fn draft(&self, name: &str) -> PathBuf {
        self.dir.join(format!(".{name}.{:016x}", self.token))
    }

    /// Writes a file under another name, and syncs it.
    fn write(
        &mut self,
        name: &str,
        content: impl FnOnce(&mut BufWriter<&File>) -> Result<(), WriteError>,
    ) -> Result<(), ExportError> {
        self.names.push(name.to_owned());
        let write = || {
            let file = File::create_new(self.draft(name))?;
            let mut writer = BufWriter::with_capacity(CHUNK, &file);
            content(&mut writer)?;
            writer.flush()?;
            file.sync_all()?;
            Ok(())
        };
        write().map_err(|error| match error {
            WriteError::File(source) => ExportError::Write { path: self.dir.join(name), source },
            WriteError::Open(error) => error.into(),
        })
    }

    /// Gives all files their names, in the order in which they were written.
    fn complete(self) -> Result<Vec<PathBuf>, ExportError> {
        let mut files = Vec::new();
        for name in &self.names {
            let path = self.dir.join(name);
            if let Err(source) = fs::rename(self.draft(name), &path) {
                for file in files {
                    let _ = fs::remove_file(file);
                }
                return Err(ExportError::Write { path, source });
            }
            files.push(path);
        }
        let failed = |source| ExportError::Write { path: self.dir.to_owned(), source };
        sync_dir(self.dir).map_err(failed)?;
        Ok(files)
    }
}

impl Drop for ExportFiles<'_> {
    /// Removes the files of an export that has failed.
    fn drop(&mut self) {
        for name in &self.names {
            let _ = fs::remove_file(self.draft(name));
        }
    }
}

/// Writes tensors as safetensors.
fn write_tensors(
    reader: &CheckpointReader,
    tensors: &[PlannedTensor],
    file: &mut impl Write,
) -> Result<(), WriteError> {
    let mut entries = Map::from_iter([("__metadata__".to_owned(), json!({ "format": "pt" }))]);
    let mut end = 0;
    for PlannedTensor { target, .. } in tensors {
        let start = end;
        end += target.bytes();
        let entry = json!({
            "dtype": dtype_name(target.dtype), "shape": target.shape, "data_offsets": [start, end],
        });
        entries.insert(target.name.clone(), entry);
    }
    file.write_all(&encode_header(&Value::Object(entries)))?;
    tensors.iter().try_for_each(|tensor| write_tensor(reader, tensor, file))
}

fn write_tensor(
    reader: &CheckpointReader,
    tensor: &PlannedTensor,
    file: &mut impl Write,
) -> Result<(), WriteError> {
    let PlannedTensor { source, target, is_transposed } = tensor;
    let (name, elements) = (&source.name, source.elements());
    if *is_transposed {
        let mut values = vec![0f32; elements];
        reader.read(name, 0..elements, &mut values)?;
        return Ok(write_floats(&transposed(&values, source.shape[1]), target.dtype, file)?);
    }
    for start in (0..elements).step_by(CHUNK) {
        let range = start..elements.min(start + CHUNK);
        if source.dtype == target.dtype {
            let mut bytes = vec![0; range.len() * source.dtype.bytes()];
            reader.read_bytes(name, range, &mut bytes)?;
            file.write_all(&bytes)?;
        } else {
            let mut values = vec![0f32; range.len()];
            reader.read(name, range, &mut values)?;
            write_floats(&values, target.dtype, file)?;
        }
    }
    Ok(())
}

/// Matrix with rows and columns exchanged.
fn transposed(values: &[f32], columns: usize) -> Vec<f32> {
    let rows = values.len().checked_div(columns).unwrap_or(0);
    let column = |column| (0..rows).map(move |row| values[row * columns + column]);
    (0..columns).flat_map(column).collect()
}

fn write_floats(values: &[f32], dtype: Dtype, file: &mut impl Write) -> io::Result<()> {
    fn write<T: Element<Sum = f32>>(values: &[f32], file: &mut impl Write) -> io::Result<()> {
        let mut buffer = Vec::new();
        file.write_all(bytemuck::cast_slice(T::narrow(values, &mut buffer)))
    }
    match dtype {
        Dtype::Bf16 => write::<Bf16>(values, file),
        Dtype::F16 => write::<F16>(values, file),
        Dtype::F32 => write::<f32>(values, file),
        Dtype::F64 | Dtype::I32 | Dtype::I64 | Dtype::U8 => {
            unreachable!("only floating-point types of at most 32 bits are converted")
        }
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tensors_are_divided_in_order() {
        #[track_caller]
        fn check(sizes: &[u64], max: u64, expect: &[Range<usize>]) {
            assert_eq!(divide(sizes, max), expect);
        }
        check(&[3, 3, 3], 9, &[0..3]);
        check(&[3, 3, 3], 6, &[0..2, 2..3]);
        check(&[9, 1, 1, 9], 2, &[0..1, 1..3, 3..4]);
        check(&[0], 0, &[0..1]);
        let names: Vec<String> =
            name_files(&[0..1, 1..2]).into_iter().map(|(name, _)| name).collect();
        let expect = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
        assert_eq!(names, expect);
        assert_eq!(name_files(&[0..4])[0].0, "model.safetensors");
    }

    #[test]
    fn rows_and_columns_change_places() {
        let matrix = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        assert_eq!(transposed(&matrix, 3), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert_eq!(transposed(&transposed(&matrix, 3), 2), matrix);
        assert_eq!(transposed(&[], 0), [0f32; 0]);
    }

    proptest! {
        #[test]
        fn every_tensor_is_in_one_file(
            sizes in prop::collection::vec(0u64..100, 1..20),
            max in 0u64..200,
        ) {
            let ranges = divide(&sizes, max);
            let all: Vec<usize> = ranges.iter().flat_map(Clone::clone).collect();
            prop_assert_eq!(all, (0..sizes.len()).collect::<Vec<_>>());
            for range in ranges {
                let sum: u64 = sizes[range.clone()].iter().sum();
                prop_assert!(sum <= max || range.len() == 1);
            }
        }
    }
}
