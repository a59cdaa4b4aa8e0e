//! Checkpoints of earlier versions: one safetensors file.

use std::fs;
use std::path::Path;

use remuda::runtime::checkpoint::{
    CheckpointReader, DataPosition, LoadChoice, OpenError, open_newest, verify_checkpoint,
};

use crate::checkpoint::test_dir::TestDir;
use crate::support::checkpoints::save_all;

const FORMAT_1: &[u8] = include_bytes!("../vectors/checkpoint-format-1.safetensors");
const FORMAT_2: &[u8] = include_bytes!("../vectors/checkpoint-format-2.safetensors");

fn open(path: &Path) -> CheckpointReader {
    CheckpointReader::open(path).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn checkpoints_of_one_file_are_read() {
    let dir = TestDir::new("one-file");
    for (format, step, lanes) in [(FORMAT_1, 2, 1), (FORMAT_2, 300, 4)] {
        let path = dir.path(&format!("step-{step:08}.safetensors"));
        fs::write(&path, format).expect("it is written");
        let reader = open(&path);
        assert_eq!(reader.state().step, step);
        let data = DataPosition { lanes, batch_size: 2, seed: 5, samples: None, fingerprint: None };
        assert_eq!(reader.state().data, Some(data));
        assert!(reader.is_single_file());
        assert_eq!(verify_checkpoint(&path, 2).expect("it opens"), []);
        let file = safetensors::SafeTensors::deserialize(format).expect("it is valid");
        for tensor in reader.tensors() {
            let old = match tensor.name.split_once('/') {
                Some((name, "exp_avg")) => format!("optimizer.first.{name}"),
                Some((name, "exp_avg_sq")) => format!("optimizer.second.{name}"),
                _ => tensor.name.clone(),
            };
            let expect = file.tensor(&old).expect("it is there");
            assert_eq!(expect.shape(), tensor.shape);
            let mut bytes = vec![0; expect.data().len()];
            reader.read_bytes(&tensor.name, 0..tensor.elements(), &mut bytes).expect("it is read");
            assert_eq!(bytes, expect.data(), "{old}");
        }
        assert_eq!(reader.tensors().count(), file.len());
    }
    // Beside checkpoints of this version, each is in its place.
    assert_eq!(open_newest(&dir.0, LoadChoice::Exact, 1).expect("valid").reader.state().step, 300);
    save_all(2, &dir.0, &[400]);
    assert_eq!(open(&dir.0).state().step, 400);
    fs::write(dir.path("step-00000400/index.json"), "{").expect("it is written");
    let newest = open_newest(&dir.0, LoadChoice::NewestValid, 1).expect("there is another");
    assert_eq!((newest.reader.state().step, newest.damaged.len()), (300, 1));
}

#[test]
fn flipped_bit_of_one_file_is_found() {
    let dir = TestDir::new("one-file-flipped");
    let path = dir.path("a.safetensors");
    // The first format has a digest of the values only.
    let values = FORMAT_1.len() - 768;
    for (format, start) in [(FORMAT_1, values), (FORMAT_2, 0)] {
        for at in start..format.len() {
            for mask in [1 << (at % 8), 0x03, 0xff] {
                let mut flipped = format.to_vec();
                flipped[at] ^= mask;
                fs::write(&path, flipped).expect("it is written");
                let is_found = match verify_checkpoint(&path, 1) {
                    Ok(damage) => !damage.is_empty(),
                    Err(OpenError::Newer { .. } | OpenError::NotCheckpoint { .. }) => true,
                    Err(_) => false,
                };
                assert!(is_found, "byte {at}, mask {mask:#04x}");
            }
        }
        for length in (0..format.len()).step_by(3) {
            fs::write(&path, &format[..length]).expect("it is written");
            assert!(CheckpointReader::open(&path).is_err(), "{length} bytes");
        }
    }
}

#[test]
fn other_files_are_not_checkpoints() {
    #[track_caller]
    fn check(path: &Path, bytes: &[u8], expect: &str) {
        fs::write(path, bytes).expect("it is written");
        let text = CheckpointReader::open(path).expect_err("it is none").to_string();
        let expect = format!("`{}` is not a checkpoint: {expect}", path.display());
        assert_eq!(text, expect);
    }
    let dir = TestDir::new("other-file");
    let path = dir.path("a.safetensors");
    check(&path, b"", "it is not a safetensors file");
    check(&path, b"\xff\xff\xff\xff\xff\xff\xff\xff{}", "it is not a safetensors file");
    check(&path, b"\x02\0\0\0\0\0\0\0{}", "remuda has not written it");
    let refused = CheckpointReader::open(Path::new("/dev/zero")).expect_err("it is a device");
    assert!(refused.to_string().ends_with("it is not a regular file: it is a device"), "{refused}");
}
