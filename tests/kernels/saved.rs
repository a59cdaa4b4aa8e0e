//! Saving and continuing of a training on a device, with other numbers of ranks and on a CPU.

use std::path::{Path, PathBuf};

use remuda::runtime::Group;
use remuda::runtime::checkpoint::{CheckpointWriter, LoadChoice, SavedState, WriterOptions};
use remuda::runtime::engine::{DeviceReplica, Engine, Precision, ReplicaState, Section};
use remuda::train::{DeviceMlp, Mlp, Samples, Threads};

use super::emulated_streams::Order;
use super::training::{Open, SIZES, adam, config, emulated, samples};
use crate::support::proof::has;

const LANES: usize = 2;

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
        engine.train_batch(|lane| samples(step, lane)).expect("a step");
    }
    if let Some(dir) = save {
        let options = WriterOptions::default();
        let mut writer = CheckpointWriter::new(engine.group(), dir, options).expect("a writer");
        engine.save_checkpoint(&mut writer, SavedState::default()).expect("it is copied");
        assert!(writer.finish().into_iter().all(|outcome| outcome.is_ok()), "it is saved");
    }
    engine.digest().expect("the digest")
}

/// The same on devices of `ranks` ranks, which have equal digests.
fn on_devices(
    (ranks, precision): (usize, Precision),
    until: usize,
    files: (Option<&Path>, Option<&Path>),
    open: &dyn Open,
) -> String {
    let trained = Group::on_threads(ranks, |group| {
        let device = open();
        let model = DeviceMlp::new(device.clone(), &SIZES, precision.into());
        let config = config(LANES / ranks, adam(), precision);
        let mut engine: Engine<DeviceReplica<DeviceMlp>> =
            Engine::on_device(group, device, model, config).expect("an engine");
        Ok(train(&mut engine, until, files))
    });
    let trained = trained.expect("all ranks end");
    assert!(trained.iter().all(|digest| *digest == trained[0]), "{trained:?}");
    trained[0].clone()
}

/// Weights of a checkpoint, as a CPU reads them.
fn on_cpu(dir: &Path, precision: Precision) -> (String, usize) {
    let read = Group::on_threads(1, |group| {
        let config = config(LANES, adam(), precision);
        let mut engine =
            Engine::new(group, Mlp::new(&SIZES, Threads::ONE), config).expect("an engine");
        let digest = train(&mut engine, 0, (Some(dir), None));
        Ok((digest, engine.gather(Section::Weights).expect("the weights").len()))
    });
    read.expect("it ends").remove(0)
}

/// Checks that a training that was saved goes on as if it had not been.
pub(super) fn check(open: &dyn Open) {
    for precision in [Precision::F32, Precision::Bf16] {
        let dir = Dir::new(&format!("device-checkpoint-{precision:?}"));
        let undisturbed = on_devices((1, precision), 4, (None, None), open);
        let saved = on_devices((2, precision), 2, (None, Some(&dir.0)), open);
        let loaded = on_devices((1, precision), 2, (Some(&dir.0), None), open);
        assert_eq!(loaded, saved, "{precision:?}");
        assert_eq!(on_cpu(&dir.0, precision).0, saved, "{precision:?}: on a CPU");
        let continued = on_devices((1, precision), 4, (Some(&dir.0), None), open);
        assert_eq!(continued, undisturbed, "{precision:?}");
        assert_ne!(continued, saved, "it has learned more");
    }
}

#[test]
fn training_on_a_device_continues_at_another_number_of_ranks() {
    if has("compiler", "training_on_a_device_continues_at_another_number_of_ranks") {
        check(&|| emulated(Order::Random(5)));
    }
}
