//! Saving and continuing of a training on a device, with other numbers of ranks, at other stages and on a CPU.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use remuda::runtime::Group;
use remuda::runtime::checkpoint::{CheckpointWriter, LoadChoice, SavedState, WriterOptions};
use remuda::runtime::engine::{
    DeviceReplica, Engine, EngineConfig, Precision, ReplicaState, Section, Sharding,
};
use remuda::train::{DeviceMlp, Mlp, Samples, Threads};

use super::emulated_streams::Order;
use super::stages::WIDE;
use super::training::{Open, adam, config, emulated, samples_of};
use crate::support::proof::has;

const LANES: usize = 4;

/// Directory that is removed in the end.
pub(super) struct Dir(pub(super) PathBuf);

impl Dir {
    pub(super) fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("remuda-{name}-{}", std::process::id())))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Trains until a step; first continues from the directory, or saves there in the end.
fn train<R: ReplicaState<Batch = Samples<f32>>>(
    engine: &mut Engine<R>,
    until: usize,
    (load, save): (Option<&Path>, Option<&Path>),
) -> String {
    if let Some(dir) = load {
        engine.load_checkpoint(dir, LoadChoice::Exact, |_| Ok(())).expect("it is loaded");
    }
    while engine.global_steps() < until as u64 {
        let step = engine.global_steps() as usize;
        engine.train_batch(|lane| samples_of(WIDE[0], step, lane)).expect("a step");
    }
    if let Some(dir) = save {
        let options = WriterOptions::default();
        let mut writer = CheckpointWriter::new(engine.group(), dir, options).expect("a writer");
        engine.save_checkpoint(&mut writer, SavedState::default()).expect("it is copied");
        assert!(writer.finish().into_iter().all(|outcome| outcome.is_ok()), "it is saved");
    }
    engine.digest().expect("the digest")
}

/// Number of ranks, stage and precision of a training.
type Way = (usize, Sharding, Precision);

/// Settings of a training.
fn config_of((ranks, sharding, precision): Way) -> EngineConfig {
    EngineConfig { sharding, ..config(LANES / ranks, adam(), precision) }
}

/// The same on devices of several ranks, which have equal digests.
fn on_devices(
    way: Way,
    until: usize,
    files: (Option<&Path>, Option<&Path>),
    open: &dyn Open,
) -> String {
    let trained = Group::on_threads(way.0, |group| {
        let device = open();
        let model = DeviceMlp::new(device.clone(), &WIDE, way.2.into());
        let mut engine: Engine<DeviceReplica<DeviceMlp>> =
            Engine::on_device(group, device, model, config_of(way)).expect("an engine");
        Ok(train(&mut engine, until, files))
    });
    let trained = trained.expect("all ranks end");
    assert!(trained.iter().all(|digest| *digest == trained[0]), "{trained:?}");
    trained[0].clone()
}

/// Reads a checkpoint on CPUs, and saves it again; returns its digest.
fn on_cpus(way: Way, dir: &Path, copy: &Path) -> String {
    let read = Group::on_threads(way.0, |group| {
        let mut engine =
            Engine::new(group, Mlp::new(&WIDE, Threads::ONE), config_of(way)).expect("an engine");
        let digest = train(&mut engine, 0, (Some(dir), Some(copy)));
        let parameters = engine.table().len();
        assert_eq!(engine.gather(Section::Weights).expect("the weights").len(), parameters);
        Ok(digest)
    });
    read.expect("it ends").swap_remove(0)
}

/// Files below a directory, by name, with their content.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(dir).expect("it is below").to_owned();
                found.insert(name, std::fs::read(&path).expect("a file"));
            }
        }
    }
    found
}

/// Checks that a training that was saved goes on as if it had not been, and that its files are those of CPUs.
pub(super) fn check(open: &dyn Open) {
    let stages = Sharding::ALL;
    for precision in [Precision::F32, Precision::Bf16] {
        let undisturbed = on_devices((1, stages[0], precision), 4, (None, None), open);
        for (first, second) in [
            ((2, stages[0], precision), (1, stages[3], precision)),
            ((4, stages[1], precision), (2, stages[2], precision)),
            ((2, stages[2], precision), (4, stages[3], precision)),
            ((4, stages[3], precision), (1, stages[0], precision)),
        ] {
            let dir = Dir::new(&format!("device-checkpoint-{first:?}").replace([' ', ','], "-"));
            let (kept, copy) = (dir.0.join("kept"), dir.0.join("copy"));
            let saved = on_devices(first, 2, (None, Some(&kept)), open);
            assert_eq!(on_cpus(first, &kept, &copy), saved, "{first:?} on CPUs");
            assert!(files(&kept) == files(&copy), "{first:?}: CPUs save the same files");
            let loaded = on_devices(second, 2, (Some(&kept), None), open);
            assert_eq!(loaded, saved, "{first:?}, then {second:?}");
            let continued = on_devices(second, 4, (Some(&kept), None), open);
            assert_eq!(continued, undisturbed, "{first:?}, then {second:?}");
            assert_ne!(continued, saved, "it has learned more");
        }
    }
}

#[test]
fn training_on_devices_continues_with_other_ranks_and_stages() {
    if has("compiler", "training_on_devices_continues_with_other_ranks_and_stages") {
        check(&|| emulated(Order::Random(5)));
    }
}
