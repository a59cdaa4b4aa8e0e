//! Results as text, in the columns of nccl-tests. Comments begin with `#`, so that tools that read
//! its tables read ours. Pure.

use std::fmt::Write;

use super::document::{Document, Row};
use super::pairs::Pairs;
use super::sweep::Options;
use crate::runtime::{BetweenNodes, Thresholds};

/// A matrix of more places than this is not read; the slowest pairs are.
const PLACES_MAX: usize = 16;
/// Pairs that are listed then.
const SLOWEST: usize = 10;

/// A number of bytes in the largest unit that divides it: `512`, `64K`, `1M`.
pub fn show_bytes_short(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let unit = units.iter().find(|(shift, _)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// `1 rank`, `2 ranks`.
pub fn show_ranks(ranks: usize) -> String {
    format!("{ranks} {}", if ranks == 1 { "rank" } else { "ranks" })
}

/// The sizes at which a group changes its ways.
fn push_thresholds(text: &mut String, thresholds: &Thresholds) {
    let Thresholds { eager_bytes, round_bytes, short_bytes, between_nodes } = thresholds;
    let size = |bytes: usize| show_bytes_short(bytes as u64);
    if let Some(eager) = eager_bytes {
        let _ =
            writeln!(text, "# sums up to {}: one meeting, numbers beside the flags", size(*eager));
    }
    if let Some(short) = short_bytes {
        let short = size(*short);
        let _ =
            writeln!(text, "# sums up to {short}: folded on every node; above: each rank a slice");
    }
    let round = size(*round_bytes);
    let _ = writeln!(text, "# numbers outside of shared memory: {round} of a rank at a time");
    if let Some(BetweenNodes { streams, overlap, order }) = between_nodes {
        let streams = if *streams == 1 { "1 stream".into() } else { format!("{streams} streams") };
        let rounds = if *overlap { "rounds overlap" } else { "one round at a time" };
        let _ = writeln!(text, "# between nodes: {streams} to a peer, {rounds}, order {order}");
    }
}

/// What stands above the rows: hosts and their ranks, thresholds where they are wanted, columns. With
/// an earlier run, two columns compare.
pub fn show_head(
    options: &Options,
    hosts: &[(String, usize)],
    thresholds: Option<&Thresholds>,
    earlier: bool,
) -> String {
    let mut text = String::new();
    let (collective, world) =
        (options.collective, hosts.iter().map(|(_, ranks)| ranks).sum::<usize>());
    let (iterations, warmup) = (options.iterations, options.warmup);
    let checked = if options.is_checked { "checked" } else { "not checked" };
    let _ = writeln!(
        text,
        "# remuda bench {collective}: {}, backend {}",
        show_ranks(world),
        options.backend
    );
    let _ = writeln!(text, "# {iterations} after {warmup}, results {checked}");
    for (host, ranks) in hosts {
        let _ = writeln!(text, "# {host}: {}", show_ranks(*ranks));
    }
    if let Some(thresholds) = thresholds {
        push_thresholds(&mut text, thresholds);
    }
    let _ = writeln!(text, "#");
    let names = ["size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"];
    let units = ["(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", ""];
    let (then, then_unit) =
        if earlier { (["was", "ratio"], ["(GB/s)", ""]) } else { ([""; 2], [""; 2]) };
    push_columns(&mut text, "#", &names, then);
    push_columns(&mut text, "#", &units, then_unit);
    text
}

fn push_columns(text: &mut String, lead: &str, cells: &[&str; 9], then: [&str; 2]) {
    const WIDTHS: [usize; 9] = [11, 13, 7, 7, 6, 10, 8, 8, 7];
    let mut line = lead.to_owned();
    for (cell, width) in cells.iter().zip(WIDTHS) {
        let _ = write!(line, " {cell:>width$}");
    }
    for cell in then {
        let _ = write!(line, " {cell:>8}");
    }
    let _ = writeln!(text, "{}", line.trim_end());
}

/// A row, beside the same size of an earlier run.
pub fn show_row(row: &Row, earlier: Option<&Document>) -> String {
    let root = row.root.map_or_else(|| "-1".to_owned(), |root| root.to_string());
    let wrong = row.wrong.map_or_else(|| "N/A".to_owned(), |wrong| wrong.to_string());
    let cells = [
        row.bytes.to_string(),
        row.count.to_string(),
        row.dtype.clone(),
        row.op.clone(),
        root,
        significant(row.time_us),
        significant(row.algbw_gbs),
        significant(row.busbw_gbs),
        wrong,
    ];
    let then =
        earlier.and_then(|earlier| earlier.row_like(row)).map_or_else(Default::default, |was| {
            let ratio = row.busbw_gbs / was.busbw_gbs;
            let ratio = if ratio.is_finite() { format!("{ratio:.2}") } else { String::new() };
            [significant(was.busbw_gbs), ratio]
        });
    let mut text = String::new();
    push_columns(
        &mut text,
        " ",
        &cells.each_ref().map(String::as_str),
        then.each_ref().map(String::as_str),
    );
    text
}

/// Two digits behind the point, fewer where there are many before it.
fn significant(value: f64) -> String {
    match value {
        _ if 10_000.0 <= value => format!("{value:.0}"),
        _ if 100.0 <= value => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// What stands below the rows.
pub fn show_foot(rows: &[Row]) -> String {
    let mut text = String::new();
    if rows.iter().any(|row| row.wrong.is_some()) {
        let wrong: u64 = rows.iter().filter_map(|row| row.wrong).sum();
        let verdict = if wrong == 0 { "OK" } else { "FAILED" };
        let _ = writeln!(text, "# Out of bounds values : {wrong} {verdict}");
    }
    let average = rows.iter().map(|row| row.busbw_gbs).sum::<f64>() / rows.len().max(1) as f64;
    let _ = writeln!(text, "# Avg bus bandwidth    : {average:.4}");
    text
}

/// GB/s between all places, and the slowest pair by name.
pub fn show_pairs(pairs: &Pairs) -> String {
    let size = show_bytes_short(pairs.bytes);
    let mut text =
        format!("# remuda bench send-recv --pairs: {size} each way at once, GB/s each way\n");
    let slowest_first = pairs.slowest_first();
    if pairs.names.len() <= PLACES_MAX {
        push_matrix(&mut text, pairs);
    } else {
        for row in slowest_first.iter().take(SLOWEST) {
            let (left, right, gbs) = (&row.left, &row.right, significant(row.busbw_gbs));
            let _ = writeln!(text, "  {left} - {right}: {gbs}");
        }
    }
    if let Some(slowest) = slowest_first.first() {
        let (left, right, gbs) = (&slowest.left, &slowest.right, slowest.busbw_gbs);
        let middle = slowest_first[slowest_first.len() / 2].busbw_gbs;
        let _ = writeln!(text, "# Slowest pair : {left} - {right}, {gbs:.2} GB/s");
        let _ = writeln!(text, "# Median       : {middle:.2} GB/s");
    }
    text
}

fn push_matrix(text: &mut String, pairs: &Pairs) {
    let names = &pairs.names;
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(7);
    let _ = write!(text, "# {:width$}", "");
    for name in names {
        let _ = write!(text, " {name:>width$}");
    }
    for (left, name) in names.iter().enumerate() {
        let _ = write!(text, "\n  {name:>width$}");
        for right in 0..names.len() {
            let cell = pairs.gbs(left, right).map_or_else(|| "-".to_owned(), significant);
            let _ = write!(text, " {cell:>width$}");
        }
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::backend::Backend;
    use crate::bench::collective::Collective;
    use crate::bench::sizes::{Sizes, Stride};
    use crate::bench::timing::{Average, Iterations};
    use crate::runtime::{Dtype, ReduceOp};

    #[test]
    fn a_table_has_the_columns_of_nccl_tests() {
        let options = Options {
            collective: Collective::AllReduce,
            backend: Backend::Host,
            sizes: Sizes::new(8, 8, Stride::Factor(2)).expect("there is a size"),
            dtypes: vec![Dtype::F32],
            reduce: vec![ReduceOp::Sum],
            root: 0,
            iterations: Iterations::Exactly(20),
            warmup: 5,
            is_checked: true,
            average: Average::Mean,
            is_registered: true,
        };
        let rows = [Row::for_test(8, 1.234), Row::for_test(1 << 26, 20_500.0)];
        let earlier = Document {
            version: 1,
            collective: "all-reduce".to_owned(),
            backend: "host".to_owned(),
            world_size: 4,
            nodes: 2,
            rows: vec![Row::for_test(1 << 26, 41_000.0)],
            pairs: Vec::new(),
        };
        let hosts = [("n1".to_owned(), 3), ("n2".to_owned(), 1)];
        let mut text = show_head(&options, &hosts, None, true);
        for row in &rows {
            text += &show_row(row, Some(&earlier));
        }
        text += &show_foot(&rows);
        let expect = "\
# remuda bench all-reduce: 4 ranks, backend host
# 20 iterations after 5, results checked
# n1: 3 ranks
# n2: 1 rank
#
#        size         count    type   redop   root       time    algbw    busbw  #wrong      was    ratio
#         (B)    (elements)                              (us)   (GB/s)   (GB/s)           (GB/s)
            8             2     f32     sum     -1       1.23     0.01     0.01       0
     67108864      16777216     f32     sum     -1      20500     3.27     3.27       0     1.64     2.00
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 1.6400
";
        assert_eq!(text, expect);
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [(0, "0"), (8, "8"), (1024, "1K"), (1536, "1536"), (3 << 30, "3G")] {
            assert_eq!(show_bytes_short(bytes), text);
        }
    }
}
