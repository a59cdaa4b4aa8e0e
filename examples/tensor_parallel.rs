//! Matrix product with weights in tiles over a grid of ranks, as in the training of large models:
//! every rank multiplies one tile, and each row of the grid adds its partial results.
//!
//! ```text
//! remuda run -n 4 target/release/examples/tensor_parallel
//! ```

use std::io::Write;

use remuda::runtime::{Error, Group, ReduceOp};

/// Sizes of `y = W x`, for several vectors `x` at once.
const OUTPUTS: usize = 96;
const INPUTS: usize = 64;
const BATCH: usize = 8;

pub(crate) fn main() -> Result<(), Error> {
    let world = Group::from_env()?;
    // Two columns if possible: ranks 0 and 1 share a block of outputs, and so on.
    let columns = if world.world_size().is_multiple_of(2) { 2 } else { 1 };
    let rows = world.world_size() / columns;
    let (row, column) = (world.rank() / columns, world.rank() % columns);
    let row_group = world.split(row, column)?.expect("every rank has a row");
    let column_group = world.split(column, row)?.expect("every rank has a column");

    let (outputs, inputs) = (part(OUTPUTS, rows, row), part(INPUTS, columns, column));
    // In memory that the ranks of a node share, so that the reduction needs no copy.
    let mut y = world.alloc::<f32>(outputs.len() * BATCH)?;
    for (at, output) in outputs.clone().enumerate() {
        for batch in 0..BATCH {
            y[at * BATCH + batch] = inputs.clone().map(|i| weight(output, i) * x(i, batch)).sum();
        }
    }
    // Every rank has used a part of the inputs only.
    row_group.all_reduce(&mut y, ReduceOp::Sum)?;

    // The largest error over all blocks of outputs.
    let mut worst = [0.0f32];
    for (at, output) in outputs.enumerate() {
        for batch in 0..BATCH {
            let expect: f32 = (0..INPUTS).map(|i| weight(output, i) * x(i, batch)).sum();
            worst[0] = worst[0].max((y[at * BATCH + batch] - expect).abs());
        }
    }
    column_group.all_reduce(&mut worst, ReduceOp::Max)?;
    if world.rank() == 0 {
        let line = format!("{rows} × {columns} tiles, largest error {:.1e}", worst[0]);
        writeln!(std::io::stdout(), "{line}")
            .map_err(|error| Error::BadArgument(format!("cannot write to stdout: {error}")))?;
    }
    if worst[0] < 1e-4 {
        Ok(())
    } else {
        Err(Error::BadArgument("the product is wrong".to_owned()))
    }
}

/// Part `index` of `count` things that `parts` ranks share.
fn part(count: usize, parts: usize, index: usize) -> std::ops::Range<usize> {
    count * index / parts..count * (index + 1) / parts
}

fn weight(output: usize, input: usize) -> f32 {
    ((output * INPUTS + input) * 7919 % 1009) as f32 / 1009.0 - 0.5
}

fn x(input: usize, batch: usize) -> f32 {
    ((input * BATCH + batch) * 104_729 % 997) as f32 / 997.0 - 0.5
}
