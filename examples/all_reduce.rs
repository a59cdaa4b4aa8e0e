//! One rank of the all-reduce benchmark: `f32` sums in place, in the canonical order.
//! `scripts/bench collectives` runs it and compares it with other libraries.
//!
//! ```text
//! remuda run -n 2 target/release/examples/all_reduce 1048576 0.1 buffer
//! ```
//!
//! Prints one line per size: bytes, microseconds (the median of blocks; the time of a block is that
//! of its slowest rank). The data is in a `buffer` of the group, or in a `slice` of the rank alone.
//! `threads=N` as fourth argument runs the ranks as threads.

use std::io::Write;

use remuda::base::clock;
use remuda::runtime::{Error, Group, ReduceOp};

const BLOCKS: usize = 5;

fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize| words.get(at).map(String::as_str);
    let bad = |what: &str| Error::BadArgument(format!("{what} is not usable"));
    let bytes_max = word(0).unwrap_or("1048576").parse().map_err(|_| bad("BYTES_MAX"))?;
    let budget = word(1).unwrap_or("0.1").parse().map_err(|_| bad("BLOCK_SECONDS"))?;
    let in_buffer = word(2) != Some("slice");
    let threads = word(3).and_then(|word| word.strip_prefix("threads="));
    let run = |group: &Group| time_sizes(group, bytes_max, budget, in_buffer);
    match threads {
        None => run(&Group::from_env()?),
        Some(count) => Group::on_threads(count.parse().map_err(|_| bad("threads"))?, run).map(drop),
    }
}

fn time_sizes(group: &Group, bytes_max: usize, budget: f64, in_buffer: bool) -> Result<(), Error> {
    let mut bytes = 1024;
    while bytes <= bytes_max {
        let count = bytes / size_of::<f32>();
        let micros = if in_buffer {
            let mut data = group.alloc::<f32>(count)?;
            time(group, budget, |times| repeat(group, &mut data, times))?
        } else {
            let mut data = vec![0.0f32; count];
            time(group, budget, |times| repeat(group, &mut data, times))?
        };
        if group.rank() == 0 {
            let mut stdout = std::io::stdout();
            writeln!(stdout, "{bytes} {micros:.3}")
                .and_then(|()| stdout.flush())
                .map_err(|error| Error::BadArgument(format!("cannot write to stdout: {error}")))?;
        }
        bytes *= 4;
    }
    Ok(())
}

/// The median of blocks of about `budget` seconds, in microseconds.
fn time(
    group: &Group,
    budget: f64,
    mut repeat: impl FnMut(usize) -> Result<f64, Error>,
) -> Result<f64, Error> {
    let slowest = |seconds: f64| {
        let mut all = [seconds];
        group.all_reduce(&mut all, ReduceOp::Max)?;
        Ok::<_, Error>(all[0])
    };
    repeat(2)?;
    let times = ((budget / slowest(repeat(2)?)?) as usize).clamp(1, 5000);
    let mut blocks = Vec::new();
    for _ in 0..BLOCKS {
        blocks.push(slowest(repeat(times)?)?);
    }
    blocks.sort_by(f64::total_cmp);
    Ok(blocks[BLOCKS / 2] * 1e6)
}

/// Seconds of one operation, the mean of `times` repetitions.
fn repeat<R>(group: &Group, data: &mut R, times: usize) -> Result<f64, Error>
where
    R: remuda::runtime::Region<Element = f32> + std::ops::DerefMut<Target = [f32]>,
{
    data.fill(1.0);
    group.barrier()?;
    let start = clock::now();
    for _ in 0..times {
        group.all_reduce(data, ReduceOp::Sum)?;
    }
    Ok(start.elapsed().as_secs_f64() / times as f64)
}
