//! [`EventFile`]: a file of scalars that TensorBoard reads.
//!
//! A file is a sequence of TFRecord frames, each of which contains a protobuf message `Event`. Only the four
//! kinds of fields that scalars need are encoded here.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process;

use crate::base::clock;
use crate::os::machine::machine_name;
use crate::train::report::scalar::Scalar;

/// First content of every file.
const VERSION: &str = "brain.Event:2";

/// Open event file; a reader sees each step as soon as it was written.
#[derive(Debug)]
pub(crate) struct EventFile {
    file: File,
}

impl EventFile {
    /// Creates a file in a directory, which is created if it does not exist. Events that earlier files of
    /// the directory have for `resumed_at` and later are hidden, because the run repeats them.
    pub(crate) fn create(dir: &Path, resumed_at: Option<u64>) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let now = clock::wall();
        let mut file = create_new(dir, now.as_secs())?;
        let mut bytes = Vec::new();
        push_frame(&mut bytes, &event(now.as_secs_f64(), 0, &EventContent::Version));
        if let Some(first) = resumed_at {
            push_frame(&mut bytes, &event(now.as_secs_f64(), first, &EventContent::Restart));
        }
        file.write_all(&bytes)?;
        Ok(Self { file })
    }

    /// Adds an event for every scalar, at `at` on the horizontal axis.
    pub(crate) fn write(&mut self, at: u64, scalars: &[Scalar]) -> io::Result<()> {
        let now = clock::wall().as_secs_f64();
        let mut bytes = Vec::new();
        for scalar in scalars {
            push_frame(&mut bytes, &event(now, at, &EventContent::Scalar(scalar)));
        }
        self.file.write_all(&bytes)
    }
}

/// Creates a file that does not exist yet: a process can have several in one second.
fn create_new(dir: &Path, seconds: u64) -> io::Result<File> {
    let mut number = 0;
    loop {
        match File::create_new(dir.join(file_name(seconds, number))) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            file => return file,
        }
    }
}

/// Name of a file: TensorBoard reads files whose names contain `tfevents`, in the order of the names.
fn file_name(seconds: u64, number: u32) -> PathBuf {
    let host = machine_name().replace('/', "_");
    format!("events.out.tfevents.{seconds:010}.{host}.{}.{number}", process::id()).into()
}

/// Content of an event.
#[derive(Clone, Copy, Debug)]
enum EventContent<'a> {
    /// Version of the format.
    Version,
    /// Start of a session that replaces later events.
    Restart,
    Scalar(&'a Scalar),
}

/// Encodes a message `Event`.
fn event(wall: f64, at: u64, content: &EventContent<'_>) -> Vec<u8> {
    let mut event = vec![0x09];
    event.extend(wall.to_le_bytes());
    if at != 0 {
        event.push(0x10);
        push_varint(&mut event, at);
    }
    match content {
        EventContent::Version => push_bytes(&mut event, 0x1a, VERSION.as_bytes()),
        // `SessionLog` with `status` START.
        EventContent::Restart => push_bytes(&mut event, 0x3a, &[0x08, 1]),
        EventContent::Scalar(scalar) => {
            let mut value = Vec::new();
            push_bytes(&mut value, 0x0a, scalar.tag.as_bytes());
            value.push(0x15);
            value.extend((scalar.value as f32).to_le_bytes());
            let mut summary = Vec::new();
            push_bytes(&mut summary, 0x0a, &value);
            push_bytes(&mut event, 0x2a, &summary);
        }
    }
    event
}

/// Adds a field of bytes; `key` is its number and type.
fn push_bytes(message: &mut Vec<u8>, key: u8, bytes: &[u8]) {
    message.push(key);
    push_varint(message, bytes.len() as u64);
    message.extend(bytes);
}

fn push_varint(message: &mut Vec<u8>, mut number: u64) {
    while 0x7f < number {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}

/// Adds a TFRecord frame: length and data, each with its checksum.
fn push_frame(bytes: &mut Vec<u8>, data: &[u8]) {
    let len = (data.len() as u64).to_le_bytes();
    bytes.extend(len);
    bytes.extend(masked_crc(&len).to_le_bytes());
    bytes.extend(data);
    bytes.extend(masked_crc(data).to_le_bytes());
}

fn masked_crc(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32 with the polynomial of Castagnoli.
fn crc32c(data: &[u8]) -> u32 {
    !data.iter().fold(u32::MAX, |crc, &byte| CRC_TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

const CRC_TABLE: [u32; 256] = crc_table();

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let (mut crc, mut bit) = (index as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(wall: f64, at: u64, content: &EventContent<'_>, expect: &str) {
        let mut bytes = Vec::new();
        push_frame(&mut bytes, &event(wall, at, content));
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex.concat(), expect.replace(' ', ""));
    }

    #[test]
    fn crc32c_has_its_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    /// The bytes of torch's `SummaryWriter`.
    #[test]
    fn events_have_the_bytes_of_torch() {
        check(
            1000.0,
            0,
            &EventContent::Version,
            "1800000000000000a37f4b22 090000000000408f401a0d627261696e2e4576656e743a32 73ae6b56",
        );
        check(
            1000.25,
            7,
            &EventContent::Scalar(&Scalar { tag: "a/b".into(), value: 1.5 }),
            "1900000000000000 8bf10828 090000000000428f40 1007 2a0c0a0a0a03612f62150000c03f 6d049201",
        );
    }

    /// Reads the number of a varint, as protobuf defines it.
    fn read_varint(bytes: &[u8]) -> u64 {
        let parts = bytes.iter().enumerate();
        parts.fold(0, |number, (at, byte)| number | u64::from(byte & 0x7f) << (7 * at))
    }

    proptest! {
        #[test]
        fn varints_are_read_back(number: u64) {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, number);
            prop_assert_eq!(read_varint(&bytes), number);
            let (last, rest) = bytes.split_last().expect("at least one byte");
            prop_assert!(last & 0x80 == 0 && rest.iter().all(|byte| byte & 0x80 != 0));
        }
    }
}
