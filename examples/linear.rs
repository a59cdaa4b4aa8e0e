//! Linear regression on all ranks: the smallest worker that trains.
//!
//! ```text
//! remuda run --num_gpus 2 target/release/examples/linear
//! ```

use std::io::Write;

use remuda::runtime::{
    DdpOptions, DistributedDataParallel, DistributedSampler, Error, Group, Layout, ReduceOp,
};

const ROWS: usize = 4096;
const BATCH: usize = 16;
const ACCUMULATE: usize = 2;

fn main() -> Result<(), Error> {
    let group = Group::from_env()?;
    let layout = Layout::new([("weight", 3), ("bias", 1)]);
    let mut params = vec![0.0f32; layout.len()];
    let options = DdpOptions { accumulate: ACCUMULATE, ..Default::default() };
    let mut ddp = DistributedDataParallel::new(&group, &layout, options)?;
    ddp.broadcast_params(&mut params)?;
    let mut lanes = DistributedSampler::lanes(ROWS, &group, ACCUMULATE);
    for epoch in 0..3 {
        for lane in &mut lanes {
            lane.set_epoch(epoch);
        }
        let mut order: Vec<_> = lanes.iter().map(DistributedSampler::indices).collect();
        let mut loss = [0.0f32];
        for _step in 0..lanes[0].len() / BATCH {
            loss = [0.0];
            for lane in &mut order {
                let rows: Vec<usize> = lane.take(BATCH).collect();
                loss[0] += ddp.micro_batch(|grads| backward(&params, &rows, grads.flat()))?;
            }
            let grads = ddp.reduce()?;
            params.iter_mut().zip(grads).for_each(|(param, grad)| *param -= 0.1 * *grad);
        }
        group.all_reduce(&mut loss, ReduceOp::Avg)?;
        if group.rank() == 0 {
            let loss = loss[0] / ACCUMULATE as f32;
            writeln!(std::io::stdout(), "epoch {epoch} loss {loss:.6} params {params:.3?}")
                .map_err(|error| Error::BadArgument(format!("cannot write to stdout: {error}")))?;
        }
    }
    Ok(())
}

/// Mean squared error of `y = x · weight + bias` over some rows, and its gradient.
fn backward(params: &[f32], rows: &[usize], grads: &mut [f32]) -> f32 {
    let scale = 1.0 / rows.len() as f32;
    rows.iter().fold(0.0, |loss, row| {
        let (x, y) = sample(*row);
        let inputs = [x[0], x[1], x[2], 1.0];
        let error = inputs.iter().zip(params).map(|(x, w)| x * w).sum::<f32>() - y;
        grads.iter_mut().zip(inputs).for_each(|(grad, x)| *grad += 2.0 * scale * error * x);
        loss + scale * error * error
    })
}

/// A row of the data: inputs that look random, and the output of the model to be found.
fn sample(row: usize) -> ([f32; 3], f32) {
    let noise = |n: usize| ((row * 3 + n + 1) * 7919 % 1009) as f32 / 504.5 - 1.0;
    let x = [noise(0), noise(1), noise(2)];
    (x, 2.0 * x[0] - 3.0 * x[1] + 0.5 * x[2] + 1.0)
}
