//! Saves and loads checkpoints of any size, and prints how long that took, as JSON.
//!
//! ```text
//! remuda run --num_gpus 2 target/release/examples/checkpoints DIR MEGABYTES
//! ```
//!
//! `save` writes the values from where they are; `pause` is the time for which `start_save` stops the training, and
//! `beside` the time until the checkpoint is complete; `load` reads a checkpoint that is not in memory, if the
//! program may ask the kernel for that.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use remuda::base::clock;
use remuda::runtime::checkpoint::{
    CheckpointWriter, LoadChoice, SavedState, TensorPiece, TensorRead, WriterOptions,
    load_checkpoint,
};
use remuda::runtime::{Error, Group};

const NAMES: [&str; 3] = ["weight", "weight/exp_avg", "weight/exp_avg_sq"];
const COLUMNS: usize = 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, megabytes] = &arguments[..] else {
        return Err("usage: checkpoints DIR MEGABYTES".into());
    };
    let group = match Group::from_env() {
        Err(Error::NoEnvironment { .. }) => Group::single()?,
        joined => joined?,
    };
    let megabytes: usize = megabytes.parse()?;
    let rows = (megabytes << 20) / (NAMES.len() * COLUMNS * size_of::<f32>());
    measure(&group, dir.as_ref(), rows)
}

fn measure(group: &Group, dir: &Path, rows: usize) -> Result<(), Box<dyn std::error::Error>> {
    let elements = rows * COLUMNS;
    let cut = |rank: usize| elements * rank / group.world_size();
    let own = cut(group.rank())..cut(group.rank() + 1);
    let value = |element: usize| f32::from_bits((element as u32).wrapping_mul(0x9e37_79b9) >> 2);
    let values: Vec<f32> = own.clone().map(value).collect();
    let piece = |name: &&str| TensorPiece::new(*name, &[rows, COLUMNS], own.clone(), &values);
    let pieces: Vec<_> = NAMES.iter().map(piece).collect();
    let state = |step| SavedState { step, ..SavedState::default() };

    let mut writer = CheckpointWriter::new(group, dir, WriterOptions::default())?;
    let begin = start(group)?;
    let report = writer.save(&state(1), &pieces)?;
    let save = begin.elapsed();
    // The first copy also gets its memory from the kernel.
    writer.start_save(&state(2), &pieces);
    writer.finish().into_iter().collect::<Result<Vec<_>, _>>()?;
    let begin = start(group)?;
    let started = writer.start_save(&state(3), &pieces);
    let pause = begin.elapsed();
    writer.finish().into_iter().collect::<Result<Vec<_>, _>>()?;
    let beside = begin.elapsed();

    // The memory is there already, as that of a model is, and has other values.
    let mut loaded = vec![vec![f32::NAN; values.len()]; NAMES.len()];
    // Without permission the files may be in memory.
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "1");
    let begin = start(group)?;
    load_checkpoint(group, &report.path, LoadChoice::Exact, |reader| {
        let reads = NAMES.iter().zip(&mut loaded);
        reader.read_all(reads.map(|(name, out)| TensorRead { name, range: own.clone(), out }))
    })?;
    let load = begin.elapsed();
    assert!(loaded.iter().all(|found| *found == values), "what was loaded is what was saved");
    if group.rank() == 0 {
        let line = format!(
            "{{\"bytes\":{},\"copied_bytes\":{},\"save_s\":{},\"pause_s\":{},\"beside_s\":{},\"load_s\":{}}}",
            report.bytes,
            started.bytes,
            save.as_secs_f64(),
            pause.as_secs_f64(),
            beside.as_secs_f64(),
            load.as_secs_f64(),
        );
        writeln!(std::io::stdout(), "{line}")?;
    }
    Ok(())
}

/// The time after all ranks have joined.
fn start(group: &Group) -> Result<Instant, Error> {
    group.barrier()?;
    Ok(clock::now())
}
