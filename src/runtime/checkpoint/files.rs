//! Files of a checkpoint, opened when they are read. What is read is checked by the digests of its blocks.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::{lock, show_io_error};
use crate::os::files::input_file::open_regular;
use crate::os::files::writeback::start_reading;
use crate::runtime::checkpoint::block_read::{BlockPlace, BlockRead};
use crate::runtime::checkpoint::digest::BlockDigest;
use crate::runtime::checkpoint::error::Damage;
use crate::runtime::checkpoint::index::CheckpointIndex;
use crate::runtime::checkpoint::shard;
use crate::runtime::checkpoint::threads::on_threads;

/// Largest number of files that are open at a time: a process may have no more than 1024.
const OPEN_MAX: usize = 64;
/// Blocks that the kernel reads while those before them are checked.
const AHEAD_BLOCKS: usize = 4;
/// Bytes in which the header of a file is looked for, to recognize a file in the wrong place.
const HEAD_BYTES: u64 = 16 << 20;

/// Files of a checkpoint.
pub(super) struct CheckpointFiles {
    dir: PathBuf,
    block_bytes: u64,
    files: Vec<CheckedFile>,
    /// Open files, the last used one at the end.
    open: Mutex<VecDeque<(usize, Arc<File>)>>,
}

/// File with digests of its blocks, or without if it was checked as a whole.
struct CheckedFile {
    name: String,
    bytes: u64,
    blocks: Vec<Block>,
}

struct Block {
    digest: BlockDigest,
    is_valid: AtomicBool,
}

impl CheckpointFiles {
    pub(super) fn new(dir: &Path, index: &CheckpointIndex) -> Self {
        let file = |file: &super::index::IndexedFile| CheckedFile {
            name: file.name.clone(),
            bytes: file.bytes,
            blocks: file
                .blocks
                .iter()
                .map(|digest| Block { digest: *digest, is_valid: AtomicBool::new(false) })
                .collect(),
        };
        Self {
            dir: dir.to_owned(),
            block_bytes: index.block_bytes,
            files: index.files.iter().map(file).collect(),
            open: Mutex::default(),
        }
    }

    /// Number of blocks of a file.
    pub(super) fn blocks(&self, file: usize) -> usize {
        self.files[file].blocks.len()
    }

    /// Damage that the size of a file shows.
    pub(super) fn check_size(&self, file: usize) -> Result<(), Damage> {
        let CheckedFile { name, bytes, .. } = &self.files[file];
        let path = self.dir.join(name);
        let found = match std::fs::metadata(&path) {
            Ok(found) => found.len(),
            Err(error) => return Err(self.unreadable(file, &error)),
        };
        if found == *bytes {
            return Ok(());
        }
        self.check_origin(file)?;
        Err(Damage::Size { file: name.clone(), bytes: found, expected: *bytes })
    }

    /// Reads blocks with up to this number of threads; `index` names the tensors of damaged blocks.
    ///
    /// # Errors
    /// The damage of the first damaged block; the memory of later ones is unspecified.
    pub(super) fn read(
        &self,
        index: &CheckpointIndex,
        blocks: Vec<BlockRead<'_>>,
        threads: usize,
    ) -> Result<(), Damage> {
        let places: Vec<BlockPlace> = blocks.iter().map(|block| block.place).collect();
        places.iter().take(AHEAD_BLOCKS).for_each(|place| self.start_reading(*place));
        // What was checked before is only copied, which needs no other threads.
        let unchecked = places.iter().filter(|place| self.unchecked(**place).is_some()).count();
        let blocks = Mutex::new(blocks.into_iter().enumerate());
        let first = Mutex::new(None::<(usize, Damage)>);
        let next = || if lock(&first).is_some() { None } else { lock(&blocks).next() };
        let work = || {
            let mut scratch = Vec::new();
            while let Some((at, block)) = next() {
                if let Some(ahead) = places.get(at + AHEAD_BLOCKS) {
                    self.start_reading(*ahead);
                }
                if let Err(damage) = self.read_block(index, block, &mut scratch) {
                    let mut first = lock(&first);
                    if first.as_ref().is_none_or(|(known, _)| at < *known) {
                        *first = Some((at, damage));
                    }
                }
            }
        };
        on_threads(threads.min(unchecked), &work);
        match first.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, damage)) => Err(damage),
            None => Ok(()),
        }
    }

    /// Reads parts of a block; `scratch` is memory for a block of which only parts are needed.
    fn read_block(
        &self,
        index: &CheckpointIndex,
        block: BlockRead<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Damage> {
        let BlockRead { place, mut parts } = block;
        let opened = self.open(place.file)?;
        let bytes = self.bytes_of(place);
        let read = |out: &mut [u8], start: usize| {
            let read = opened.read_exact_at(out, bytes.start + start as u64);
            read.map_err(|error| self.unreadable(place.file, &error))
        };
        let length = (bytes.end - bytes.start) as usize;
        match (self.unchecked(place), &mut parts[..]) {
            (None, parts) => parts.iter_mut().try_for_each(|part| read(part.out, part.start)),
            (Some(block), [part]) if part.range() == (0..length) => {
                read(part.out, 0)?;
                self.check_block(index, place, block, part.out)
            }
            (Some(block), parts) => {
                scratch.resize(length, 0);
                read(scratch, 0)?;
                self.check_block(index, place, block, scratch)?;
                for part in parts {
                    part.out.copy_from_slice(&scratch[part.range()]);
                }
                Ok(())
            }
        }
    }

    /// Checks a block; `scratch` is memory for it.
    pub(super) fn verify_block(
        &self,
        index: &CheckpointIndex,
        place: BlockPlace,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Damage> {
        self.read_block(index, BlockRead { place, parts: Vec::new() }, scratch)
    }

    /// A block that no reader has checked yet; `None` if its file has no digests.
    fn unchecked(&self, place: BlockPlace) -> Option<&Block> {
        let block = self.files[place.file].blocks.get(place.number)?;
        (!block.is_valid.load(Ordering::Relaxed)).then_some(block)
    }

    /// Range of a block in its file.
    fn bytes_of(&self, place: BlockPlace) -> Range<u64> {
        let start = place.number as u64 * self.block_bytes;
        start..(start + self.block_bytes).min(self.files[place.file].bytes)
    }

    /// Lets the kernel read a block while those before it are checked. A checked block is in the memory
    /// of the kernel already.
    fn start_reading(&self, place: BlockPlace) {
        if self.unchecked(place).is_none() {
            return;
        }
        // A file that cannot be opened is told when it is read.
        if let Ok(opened) = self.open(place.file) {
            start_reading(&opened, &self.bytes_of(place));
        }
    }

    fn check_block(
        &self,
        index: &CheckpointIndex,
        place: BlockPlace,
        block: &Block,
        bytes: &[u8],
    ) -> Result<(), Damage> {
        if BlockDigest::of(bytes) == block.digest {
            block.is_valid.store(true, Ordering::Relaxed);
            return Ok(());
        }
        let file = place.file;
        self.check_origin(file)?;
        let bytes = self.bytes_of(place);
        let tensors = index.tensors_in(file, &bytes);
        Err(Damage::Changed { file: self.files[file].name.clone(), bytes, tensors })
    }

    /// Fails if the header of a file says that it belongs elsewhere.
    fn check_origin(&self, file: usize) -> Result<(), Damage> {
        let name = &self.files[file].name;
        let mut beginning = Vec::new();
        let opened = File::open(self.dir.join(name));
        let read = opened.and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut beginning));
        let origin = read.ok().and_then(|_| shard::origin(&beginning));
        let own = super::names::parse_step(&self.dir_name());
        match origin {
            Some((step, rank))
                if super::names::shard_name(rank) != *name
                    || own.is_some_and(|own| own != step) =>
            {
                Err(Damage::Foreign { file: name.clone(), step, rank })
            }
            _ => Ok(()),
        }
    }

    fn dir_name(&self) -> String {
        self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn unreadable(&self, file: usize, error: &io::Error) -> Damage {
        let CheckedFile { name, bytes: expected, .. } = &self.files[file];
        let (file, expected) = (name.clone(), *expected);
        match error.kind() {
            io::ErrorKind::NotFound => Damage::Missing { file },
            io::ErrorKind::UnexpectedEof => {
                let bytes = std::fs::metadata(self.dir.join(name)).map_or(0, |found| found.len());
                Damage::Size { file, bytes, expected }
            }
            _ => Damage::Unreadable { file, reason: show_io_error(error) },
        }
    }

    fn open(&self, file: usize) -> Result<Arc<File>, Damage> {
        let mut open = lock(&self.open);
        if let Some(at) = open.iter().position(|(known, _)| *known == file) {
            let entry = open.remove(at).expect("it was found");
            let opened = entry.1.clone();
            open.push_back(entry);
            return Ok(opened);
        }
        let path = self.dir.join(&self.files[file].name);
        let opened = open_regular(&path).map_err(|error| self.unreadable(file, &error))?;
        let opened = Arc::new(opened);
        if OPEN_MAX <= open.len() {
            open.pop_front();
        }
        open.push_back((file, opened.clone()));
        Ok(opened)
    }
}
