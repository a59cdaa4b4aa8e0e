//! [`CheckpointReader`]: reads any range of any tensor, whatever the number of ranks that saved it.

use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::base::show_io_error;
use crate::runtime::checkpoint::block_read::{FileRead, divide};
use crate::runtime::checkpoint::directory::{LoadChoice, find};
use crate::runtime::checkpoint::error::{Damage, OpenError};
use crate::runtime::checkpoint::files::CheckpointFiles;
use crate::runtime::checkpoint::index::{CheckpointIndex, IndexError};
use crate::runtime::checkpoint::names::{INDEX, parse_step};
use crate::runtime::checkpoint::single_file;
use crate::runtime::checkpoint::state::SavedState;
use crate::runtime::checkpoint::tensor::{TensorInfo, differences};
use crate::runtime::checkpoint::threads::reading_threads;
use crate::runtime::dtype::element::{Dtype, Element};
use crate::runtime::dtype::half::{Bf16, F16};

/// Elements that are converted at once.
const CONVERTED: usize = 64 << 10;

/// Reader of a complete checkpoint: a directory, or a file of earlier builds.
///
/// Bytes that it returns are those that were saved: every block of a file is checked by its digest when it is
/// read for the first time. Several threads can read at the same time.
pub struct CheckpointReader {
    path: PathBuf,
    index: CheckpointIndex,
    files: CheckpointFiles,
    layout: SavedLayout,
}

/// Layout of a checkpoint on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SavedLayout {
    Directory,
    /// One file, which was checked as a whole when it was opened.
    File,
}

/// Range of a tensor, and the memory into which its elements are read.
#[derive(Debug)]
pub struct TensorRead<'a> {
    /// Name of the tensor.
    pub name: &'a str,
    /// Range of its elements, in row-major order.
    pub range: Range<usize>,
    /// Memory for them; it has their number.
    pub out: &'a mut [f32],
}

/// File of a checkpoint and its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedFile {
    /// Name of the file in the checkpoint.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
}

impl CheckpointReader {
    /// Opens a checkpoint: a path to one, or to a directory, of which the one that `latest` names is opened, or
    /// the newest one if there is no `latest`. Index and sizes of files are checked.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let found = find(path, LoadChoice::Exact)?;
        Self::open_one(&found.dir.join(&found.names[0]))
    }

    /// Opens exactly this checkpoint.
    pub(super) fn open_one(path: &Path) -> Result<Self, OpenError> {
        let reader = Self::open_unchecked(path)?;
        let damage = reader.check_sizes();
        if damage.is_empty() {
            return Ok(reader);
        }
        Err(OpenError::Damaged { path: path.to_owned(), damage })
    }

    /// Opens a checkpoint without a look at its files.
    pub(super) fn open_unchecked(path: &Path) -> Result<Self, OpenError> {
        let read = |source| OpenError::Read { path: path.to_owned(), source };
        let (index, dir, layout) = if fs::metadata(path).map_err(read)?.is_dir() {
            (read_index(path)?, path, SavedLayout::Directory)
        } else {
            let dir = path.parent().unwrap_or(Path::new(""));
            (single_file::open(path)?, dir, SavedLayout::File)
        };
        let files = CheckpointFiles::new(dir, &index);
        Ok(Self { path: path.to_owned(), index, files, layout })
    }

    /// Damage that the sizes of the files show.
    pub(super) fn check_sizes(&self) -> Vec<Damage> {
        let all = 0..self.index.files.len();
        all.filter_map(|file| self.files.check_size(file).err()).collect()
    }

    /// Returns the path of the checkpoint.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the state besides the tensors.
    pub fn state(&self) -> &SavedState {
        &self.index.state
    }

    /// Returns the tensors in the order of their names.
    pub fn tensors(&self) -> impl Iterator<Item = TensorInfo> + '_ {
        self.index.tensors.keys().filter_map(|name| self.index.info(name))
    }

    /// Returns the tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<TensorInfo> {
        self.index.info(name)
    }

    /// Returns the number of files in which a tensor is.
    pub fn files_of(&self, name: &str) -> usize {
        let pieces = self.index.tensors.get(name).map_or(&[][..], |tensor| &tensor.pieces);
        let mut files: Vec<usize> = pieces.iter().map(|piece| piece.file).collect();
        files.sort_unstable();
        files.dedup();
        files.len()
    }

    /// Returns the files with values.
    pub fn files(&self) -> Vec<SavedFile> {
        let file = |file: &super::index::IndexedFile| SavedFile {
            name: file.name.clone(),
            bytes: file.bytes,
        };
        self.index.files.iter().map(file).collect()
    }

    /// Returns whether the checkpoint is a file of an earlier build.
    pub fn is_single_file(&self) -> bool {
        self.layout != SavedLayout::Directory
    }

    pub(super) fn index(&self) -> &CheckpointIndex {
        &self.index
    }

    pub(super) fn checked_files(&self) -> &CheckpointFiles {
        &self.files
    }

    /// Checks that the tensors are exactly these.
    ///
    /// # Errors
    /// [`OpenError::OtherModel`] lists every difference.
    pub fn check_tensors(&self, expected: &[TensorInfo]) -> Result<(), OpenError> {
        let names = self.index.tensors.keys().map(String::as_str);
        let differences = differences(|name| self.index.info(name), names, expected);
        if differences.is_empty() {
            return Ok(());
        }
        Err(OpenError::OtherModel { path: self.path.clone(), differences })
    }

    /// Reads elements of a tensor of type `f32`, `f16` or `bf16`.
    ///
    /// # Errors
    /// [`OpenError::Request`] if there is no such tensor or range, `out` has another length, or the tensor has
    /// another type; [`OpenError::Damaged`] if the bytes are not those that were saved.
    pub fn read(&self, name: &str, range: Range<usize>, out: &mut [f32]) -> Result<(), OpenError> {
        self.read_all([TensorRead { name, range, out }])
    }

    /// Reads ranges of many tensors, as [`Self::read`] reads one: every block once, by one thread for each
    /// processor.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_all<'a>(
        &self,
        reads: impl IntoIterator<Item = TensorRead<'a>>,
    ) -> Result<(), OpenError> {
        let mut of_files = Vec::new();
        for TensorRead { name, range, out } in reads {
            let tensor = self.checked_range(name, &range)?;
            if out.len() != range.len() {
                let problem = format!("{} elements of `{name}` into {}", range.len(), out.len());
                return Err(self.request(problem));
            }
            match tensor.dtype {
                Dtype::F32 => {
                    let bytes = bytemuck::cast_slice_mut(out);
                    of_files.extend(self.file_reads(&tensor, range, bytes));
                }
                Dtype::F16 => self.read_widened::<F16>(&tensor, range, out)?,
                Dtype::Bf16 => self.read_widened::<Bf16>(&tensor, range, out)?,
                dtype @ (Dtype::F64 | Dtype::I32 | Dtype::I64 | Dtype::U8) => {
                    let problem = format!("`{name}` has the type {dtype} and is not read as f32");
                    return Err(self.request(problem));
                }
            }
        }
        self.read_files(of_files)
    }

    fn read_widened<T: Element<Sum = f32>>(
        &self,
        tensor: &TensorInfo,
        range: Range<usize>,
        out: &mut [f32],
    ) -> Result<(), OpenError> {
        let mut narrow = vec![<T as bytemuck::Zeroable>::zeroed(); CONVERTED.min(out.len())];
        let mut start = range.start;
        for part in out.chunks_mut(CONVERTED) {
            let narrow = &mut narrow[..part.len()];
            let bytes = bytemuck::cast_slice_mut(narrow);
            self.read_files(self.file_reads(tensor, start..start + part.len(), bytes))?;
            T::widen(narrow, part);
            start += part.len();
        }
        Ok(())
    }

    /// Reads the bytes of elements of a tensor, little-endian.
    ///
    /// # Errors
    /// As [`Self::read`], for a tensor of any type.
    pub fn read_bytes(
        &self,
        name: &str,
        range: Range<usize>,
        out: &mut [u8],
    ) -> Result<(), OpenError> {
        let tensor = self.checked_range(name, &range)?;
        let size = tensor.dtype.bytes();
        if out.len() != range.len() * size {
            let problem = format!("{} elements of `{name}` into {} bytes", range.len(), out.len());
            return Err(self.request(problem));
        }
        self.read_files(self.file_reads(&tensor, range, out))
    }

    /// Where the elements of a range are.
    fn file_reads<'a>(
        &self,
        tensor: &TensorInfo,
        range: Range<usize>,
        out: &'a mut [u8],
    ) -> Vec<FileRead<'a>> {
        let size = tensor.dtype.bytes();
        let pieces = &self.index.tensors[&tensor.name].pieces;
        let first = pieces.partition_point(|piece| piece.end <= range.start);
        let mut rest = out;
        let mut reads = Vec::new();
        for piece in pieces[first..].iter().take_while(|piece| piece.start < range.end) {
            let (start, end) = (piece.start.max(range.start), piece.end.min(range.end));
            let (out, later) = rest.split_at_mut((end - start) * size);
            rest = later;
            let offset = piece.offset + ((start - piece.start) * size) as u64;
            reads.push(FileRead { file: piece.file, offset, out });
        }
        reads
    }

    fn read_files(&self, reads: Vec<FileRead<'_>>) -> Result<(), OpenError> {
        let blocks = divide(reads, self.index.block_bytes);
        let read = self.files.read(&self.index, blocks, reading_threads());
        read.map_err(|damage| self.damaged(damage))
    }

    fn checked_range(&self, name: &str, range: &Range<usize>) -> Result<TensorInfo, OpenError> {
        let Some(tensor) = self.index.info(name) else {
            return Err(self.request(format!("there is no tensor `{name}`")));
        };
        if range.end < range.start || tensor.elements() < range.end {
            let Range { start, end } = range;
            return Err(self.request(format!("the range {start}..{end} is not within {tensor}")));
        }
        Ok(tensor)
    }

    fn request(&self, problem: String) -> OpenError {
        OpenError::Request { path: self.path.clone(), problem }
    }

    fn damaged(&self, damage: Damage) -> OpenError {
        OpenError::Damaged { path: self.path.clone(), damage: vec![damage] }
    }
}

impl fmt::Debug for CheckpointReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CheckpointReader({})", self.path.display())
    }
}

/// Reads the index of a directory.
fn read_index(path: &Path) -> Result<CheckpointIndex, OpenError> {
    let damaged = |damage| OpenError::Damaged { path: path.to_owned(), damage: vec![damage] };
    let file = INDEX.to_owned();
    let bytes = match fs::read(path.join(INDEX)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(damaged(Damage::Missing { file }));
        }
        Err(error) => {
            return Err(damaged(Damage::Unreadable { file, reason: show_io_error(&error) }));
        }
    };
    let index = match CheckpointIndex::decode(&bytes) {
        Ok(index) => index,
        Err(IndexError::Newer(format)) => {
            return Err(OpenError::Newer { path: path.to_owned(), format });
        }
        Err(IndexError::Damaged(reason)) => return Err(damaged(Damage::Invalid { file, reason })),
    };
    let name = path.file_name().and_then(|name| name.to_str());
    match name.and_then(parse_step) {
        Some(step) if step != index.state.step => {
            let reason = format!("it is of step {}", index.state.step);
            Err(damaged(Damage::Invalid { file, reason }))
        }
        _ => Ok(index),
    }
}
