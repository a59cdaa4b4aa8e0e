//! Text of a user, as UTF-8.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::base::show_io_error;
use crate::os::files::input_file::{InputReader, irregular_kind, is_pipe, not_regular, open};
use crate::train::data::mmap::MappedFile;

/// Error of a text.
#[derive(Debug, thiserror::Error)]
pub enum TextFileError {
    /// A file cannot be read.
    #[error("cannot read text `{}`: {}", path.display(), show_io_error(source))]
    Read {
        /// Path of the file; `-` is standard input.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A text is not UTF-8.
    #[error("text `{}:{line}` is not UTF-8: byte {byte:#04x} at offset {offset}", path.display())]
    NotUtf8 {
        /// Path of the file; `-` is standard input.
        path: PathBuf,
        /// Line of the first byte that is in no character, from 1.
        line: usize,
        /// First byte that is not part of a character.
        byte: u8,
        /// Number of bytes before it.
        offset: usize,
    },
}

/// A text file: a mapped one, or what a pipe contained.
#[derive(Debug)]
pub struct TextFile {
    path: PathBuf,
    content: TextContent,
}

#[derive(Debug)]
enum TextContent {
    Mapped(MappedFile),
    Read(Vec<u8>),
}

impl TextFile {
    /// Opens a file, or reads a pipe.
    pub fn open(path: &Path) -> Result<Self, TextFileError> {
        let path = path.to_owned();
        let content = open(&path).and_then(|file| {
            let found = file.metadata()?;
            match irregular_kind(&found) {
                None => MappedFile::open(&path).map(TextContent::Mapped),
                // A shell replaces `<(command)` with the path of a pipe.
                Some(_) if is_pipe(&found) => read_all(InputReader::new(file)?),
                Some(kind) => Err(not_regular(kind)),
            }
        });
        match content {
            Ok(content) => Ok(Self { path, content }),
            Err(source) => Err(TextFileError::Read { path, source }),
        }
    }

    /// Reads standard input.
    pub fn stdin() -> Result<Self, TextFileError> {
        let path = PathBuf::from("-");
        match read_all(io::stdin().lock()) {
            Ok(content) => Ok(Self { path, content }),
            Err(source) => Err(TextFileError::Read { path, source }),
        }
    }

    /// Returns the text.
    pub fn text(&self) -> Result<&str, TextFileError> {
        let bytes: &[u8] = match &self.content {
            TextContent::Mapped(file) => file,
            TextContent::Read(bytes) => bytes,
        };
        std::str::from_utf8(bytes).map_err(|error| {
            let offset = error.valid_up_to();
            let line = bytes[..offset].split(|byte| *byte == b'\n').count();
            TextFileError::NotUtf8 { path: self.path.clone(), line, byte: bytes[offset], offset }
        })
    }
}

fn read_all(mut input: impl Read) -> io::Result<TextContent> {
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes)?;
    Ok(TextContent::Read(bytes))
}
