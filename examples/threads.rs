//! Data parallelism without a launcher: four threads of this process fit a line to the same points, and end
//! with equal parameters (`cargo run --release --example threads`).

use std::io::Write;

use remuda::runtime::{
    DdpOptions, DistributedDataParallel, DistributedSampler, Error, EvenBatches, Group, Layout,
};

const RANKS: usize = 4;
const ROWS: usize = 1000;
const BATCH: usize = 10;

fn main() -> Result<(), Error> {
    let results = Group::on_threads(RANKS, train)?;
    for (rank, (params, loss)) in results.iter().enumerate() {
        writeln!(std::io::stdout(), "rank {rank}: slope and offset {params:.4?}, loss {loss:.6}")
            .map_err(|error| Error::BadArgument(format!("cannot write to stdout: {error}")))?;
    }
    Ok(())
}

/// Trains as one rank; returns the parameters and the mean squared error of all rows.
fn train(group: &Group) -> Result<(Vec<f32>, f32), Error> {
    let layout = Layout::new([("slope", 1), ("offset", 1)]);
    let mut params = vec![0.0f32; layout.len()];
    let mut ddp = DistributedDataParallel::new(group, &layout, DdpOptions::default())?;
    let mut sampler = DistributedSampler::lanes(ROWS, group, 1).remove(0);
    for epoch in 0..40 {
        sampler.set_epoch(epoch);
        for rows in sampler.indices().collect::<Vec<_>>().chunks_exact(BATCH) {
            ddp.micro_batch(|grads| backward(&params, rows, grads.flat()))?;
            let grads = ddp.reduce()?;
            params.iter_mut().zip(grads).for_each(|(param, grad)| *param -= 0.5 * *grad);
        }
    }
    let (batches, mut sum) = (EvenBatches::new(ROWS, 64, RANKS), 0.0);
    for round in 0..batches.rounds() {
        let errors = batches.rows(round, group.rank()).map(|row| error(&params, row));
        let errors: Vec<f32> = errors.map(|error| error * error).collect();
        sum += batches.gather(group, round, &errors)?.iter().sum::<f32>();
    }
    Ok((params, sum / ROWS as f32))
}

/// Distance from the point of a row, which is on the line `3x + 1`.
fn error(params: &[f32], row: usize) -> f32 {
    let x = row as f32 / ROWS as f32;
    params[0] * x + params[1] - (3.0 * x + 1.0)
}

/// Adds the gradient of the mean squared error of some rows.
fn backward(params: &[f32], rows: &[usize], grads: &mut [f32]) {
    for &row in rows {
        let step = 2.0 * error(params, row) / rows.len() as f32;
        grads[0] += step * (row as f32 / ROWS as f32);
        grads[1] += step;
    }
}
