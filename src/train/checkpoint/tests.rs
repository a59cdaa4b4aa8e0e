use super::*;

/// Checkpoint of a GPT with a vocabulary of two letters, in format 1.
const OF_FORMAT_1: &[u8] = include_bytes!("../../../tests/vectors/checkpoint-format-1.safetensors");

const SAMPLES: SampleRange = SampleRange { lanes: 4, batch_size: 2, seed: 5 };

/// Bytes of a checkpoint of two kilobytes after step 300.
fn saved() -> Vec<u8> {
    let thread = std::thread::current().id();
    let name = format!("remuda-checkpoint-{}-{thread:?}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    let path = dir.join("saved.safetensors");
    let identity: ModelId =
        "mlp inputs=3 layers=1 width=2 classes=2 teacher=5".parse().expect("a model");
    let table = identity.parameters(1 << 20).expect("a small model");
    let flat = |from: f32| (0..table.len()).map(|at| from + at as f32).collect::<Vec<_>>();
    let tensors = SavedTensors { params: flat(-3.0), moments: vec![flat(0.5), flat(0.25)] };
    save(&path, &table, &identity, (300, SAMPLES), &tensors).expect("saving succeeds");
    let bytes = fs::read(&path).expect("the file exists");
    fs::remove_file(&path).expect("the file exists");
    let _ = fs::remove_dir(&dir);
    bytes
}

#[test]
fn checkpoint_is_read_as_saved() {
    let (step, model, samples) = inspect_bytes(&saved()).expect("the checkpoint is valid");
    assert_eq!((step, samples), (300, Some(SAMPLES)));
    assert_eq!(model.to_string(), "mlp inputs=3 layers=1 width=2 classes=2 teacher=5");
}

/// The digest covers everything in a file that affects the resumed run.
#[test]
fn checkpoint_with_a_flipped_bit_is_rejected() {
    let valid = saved();
    for at in 0..valid.len() {
        // Every single bit, and patterns that change one digit into another.
        let masks = (0..8).map(|bit| 1u8 << bit).chain([0x03, 0x05, 0x09, 0x55, 0xaa, 0xff]);
        for mask in masks {
            let mut flipped = valid.clone();
            flipped[at] ^= mask;
            assert!(inspect_bytes(&flipped).is_err(), "byte {at}, mask {mask:#04x}");
        }
    }
}

#[test]
fn checkpoint_of_wrong_length_is_rejected() {
    let valid = saved();
    for length in 0..valid.len() {
        assert!(inspect_bytes(&valid[..length]).is_err(), "{length} bytes");
    }
    let longer = [valid.as_slice(), &[0]].concat();
    assert!(inspect_bytes(&longer).is_err());
}

#[test]
fn checkpoint_with_a_foreign_digest_is_rejected() {
    let (valid, mut other) = (saved(), saved());
    let digest = header(&valid).expect("the checkpoint is valid").sha256;
    let range = find_digest(&valid, &digest).expect("the header contains the digest");
    let end = other.len() - 1;
    other[end] ^= 1;
    other[range.clone()].copy_from_slice(&valid[range]);
    assert!(inspect_bytes(&other).is_err());
}

#[test]
fn checkpoint_of_format_1_is_read() {
    let (step, model, samples) = inspect_bytes(OF_FORMAT_1).expect("the checkpoint is valid");
    assert!(model.to_string().starts_with("gpt "), "{model}");
    assert_eq!(step, 2);
    assert_eq!(samples, Some(SampleRange { lanes: 1, batch_size: 2, seed: 5 }));
    let mut flipped = OF_FORMAT_1.to_vec();
    *flipped.last_mut().expect("not empty") ^= 1;
    assert!(inspect_bytes(&flipped).is_err());
}

#[test]
fn checkpoint_reader_stops_early_in_other_files() {
    let path = std::env::temp_dir().join(format!("remuda-no-checkpoint-{}", std::process::id()));
    let file = File::create(&path).expect("a file");
    file.set_len(1 << 36).expect("a sparse file");
    let refused = inspect(&path).expect_err("the file contains zeros");
    fs::remove_file(&path).expect("the test has created it");
    assert!(matches!(refused, CheckpointError::Malformed { .. }), "{refused}");
    let refused = inspect(Path::new("/dev/zero")).expect_err("a device is not a checkpoint");
    assert!(refused.to_string().ends_with("it is not a regular file: it is a device"), "{refused}");
}

#[test]
fn checkpoints_are_tried_newest_first() {
    let paths = || ["c", "b", "a"].map(PathBuf::from).to_vec();
    let malformed =
        |path: &Path| CheckpointError::Malformed { path: path.to_owned(), reason: String::new() };
    let mut reported = Vec::new();
    let read = |path: &Path| if path == Path::new("c") { Err(malformed(path)) } else { Ok(7) };
    let found = load_first_valid(paths(), read, |error| reported.push(error.to_string()))
        .expect("b is valid");
    assert_eq!(found, (PathBuf::from("b"), 7));
    assert_eq!(reported.len(), 1);
    let none = load_first_valid(paths(), |path| Err::<(), _>(malformed(path)), |_| ());
    assert!(matches!(none, Err(CheckpointError::Malformed { path, .. }) if path == Path::new("c")));
}
