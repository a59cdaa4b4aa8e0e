//! Directories of tests, and checks of what is in them.

use std::path::{Path, PathBuf};

use remuda::runtime::checkpoint::{CheckpointReader, TensorInfo};

use crate::support::checkpoints::tensors;

/// A directory of one test, removed when dropped.
pub(crate) struct TestDir(pub(crate) PathBuf);

impl TestDir {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("checkpoint-{name}-{}", std::process::id());
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("the directory for tests can be written");
        Self(dir)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Checks that a checkpoint is that of a step, to the last bit.
#[track_caller]
pub(crate) fn check_content(path: &Path, step: u64) {
    let reader = CheckpointReader::open(path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(reader.state().step, step);
    let expected = tensors(step);
    let infos: Vec<TensorInfo> = expected.iter().map(|(tensor, _)| tensor.clone()).collect();
    reader.check_tensors(&infos).unwrap_or_else(|error| panic!("{error}"));
    for (tensor, values) in expected {
        let mut found = vec![0.0; values.len()];
        let read = reader.read(&tensor.name, 0..values.len(), &mut found);
        read.unwrap_or_else(|error| panic!("{error}"));
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&found), bits(&values), "{}", tensor.name);
    }
}
