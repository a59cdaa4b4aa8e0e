//! Result tables with the columns of nccl-tests. Comments begin with `#`, so that tools for nccl-tests
//! tables can also read those of remuda. Pure.

use std::fmt::Write;

use super::backend::Backend;
use super::collective::Collective;
use super::document::EarlierResults;
use super::hosts::BenchNode;
use super::import::nccl_dtype;
use super::pairs::Pairs;
use super::row::Row;
use super::sweep::Options;
use crate::runtime::{BetweenNodes, ReduceOrder, Thresholds};

/// Largest number of nodes or ranks shown as a matrix; above, the slowest pairs are listed instead.
const MATRIX_MAX: usize = 16;
/// Number of slowest pairs that are listed.
const SLOWEST: usize = 10;

/// Shows a number of bytes in the largest unit that divides it, such as `512`, `64K` or `1M`.
pub fn show_bytes_short(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let unit = units.iter().find(|(shift, _)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// Shows a number of ranks, such as `1 rank` or `2 ranks`.
pub fn show_ranks(ranks: usize) -> String {
    format!("{ranks} {}", if ranks == 1 { "rank" } else { "ranks" })
}

/// Appends the sizes at which a group changes its algorithms.
fn push_thresholds(text: &mut String, thresholds: &Thresholds) {
    let Thresholds { eager_bytes, round_bytes, short_bytes, between_nodes } = thresholds;
    let size = |bytes: usize| show_bytes_short(bytes as u64);
    if let Some(eager) = eager_bytes {
        let eager = size(*eager);
        let _ = writeln!(
            text,
            "# reductions up to {eager}: one barrier, data is exchanged together with the flags"
        );
    }
    if let Some(short) = short_bytes {
        let short = size(*short);
        let _ = writeln!(
            text,
            "# reductions up to {short}: every node combines all data; larger ones: every rank combines a part"
        );
    }
    let round = size(*round_bytes);
    let _ = writeln!(
        text,
        "# if a buffer is not in shared memory, {round} of each rank are copied at a time"
    );
    if let Some(BetweenNodes { streams, overlap, order }) = between_nodes {
        let streams = if *streams == 1 { "1 stream".into() } else { format!("{streams} streams") };
        let rounds = if *overlap { "overlapping rounds" } else { "one round at a time" };
        let _ = writeln!(text, "# between nodes: {streams} per peer, {rounds}, order {order}");
    }
}

/// Heading of a table.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Options of the measurement.
    pub options: &'a Options,
    /// Order of reductions.
    pub order: ReduceOrder,
    /// Hosts of the job.
    pub hosts: &'a [BenchNode],
    /// External library that moves the data, if it is to be shown.
    pub library: Option<&'a str>,
    /// Why transfers are slower than they could be.
    pub slow_because: Option<&'a str>,
    /// Sizes at which algorithms change, if they are to be shown.
    pub thresholds: Option<&'a Thresholds>,
    /// Earlier results to compare with; they add two columns if they have a row in common.
    pub earlier: Option<&'a EarlierResults>,
}

impl<'a> Head<'a> {
    fn world(&self) -> usize {
        self.hosts.iter().map(|host| host.ranks).sum()
    }

    /// Earlier results that are shown beside the rows; `None` if they have no row in common.
    pub fn comparable_earlier(&self) -> Option<&'a EarlierResults> {
        self.earlier.filter(|earlier| self.options.has_rows_in_common(earlier, self.world()))
    }

    /// Returns the text of the heading.
    pub fn show(&self) -> String {
        let Options { collective, backend, iterations, warmup, .. } = self.options;
        let world = self.world();
        let checked = if self.options.is_checked { "checked" } else { "not checked" };
        let order = self.show_order();
        let mut text = format!(
            "# remuda bench {collective}: {}, backend {backend}, {order}\n\
             # {iterations} after {warmup} warm-up iterations, results {checked}\n",
            show_ranks(world)
        );
        for BenchNode { name, ranks, processors } in self.hosts {
            let _ = write!(text, "# {name}: {}", show_ranks(*ranks));
            let _ = match processors {
                _ if ranks <= processors => writeln!(text),
                1 => writeln!(text, " share 1 processor"),
                _ => writeln!(text, " share {processors} processors"),
            };
        }
        if let Some(library) = self.library {
            let _ = writeln!(text, "# {library}");
        }
        if let Some(reason) = self.slow_because {
            let _ = writeln!(text, "# {reason}");
        }
        if let Some(thresholds) = self.thresholds {
            push_thresholds(&mut text, thresholds);
        }
        if let Some(earlier) = self.earlier {
            push_earlier(&mut text, earlier, world, self.comparable_earlier().is_some());
        }
        push_column_names(&mut text, self.comparable_earlier().is_some());
        text
    }

    /// Order of reductions for the heading, with the reason if `any` does not differ from
    /// `canonical`.
    fn show_order(&self) -> String {
        let Options { collective, backend, .. } = self.options;
        let order = self.order;
        let reason = match (order, backend) {
            (ReduceOrder::Canonical, _) => None,
            _ if !collective.reduces() => Some("no reduction"),
            (ReduceOrder::Any, Backend::Nccl) => None,
            (ReduceOrder::Any, Backend::Host | Backend::Staged) => match self.hosts.len() {
                _ if *collective != Collective::AllReduce => {
                    Some("only all-reduce has another order")
                }
                1 => Some("one node"),
                _ => None,
            },
        };
        reason.map_or_else(
            || format!("order {order}"),
            |reason| format!("order {order} (same as canonical: {reason})"),
        )
    }
}

fn push_earlier(text: &mut String, earlier: &EarlierResults, world: usize, is_beside: bool) {
    let EarlierResults { file, world_size, .. } = earlier;
    let _ = match world_size {
        Some(ranks) => writeln!(text, "# compared with: {} ({file})", show_ranks(*ranks)),
        None => writeln!(text, "# compared with: ranks unknown, assumed {world} ({file})"),
    };
    if !is_beside {
        let _ = writeln!(text, "# nothing compared: no size, type and reduction in common");
    }
}

/// Appends the names of the columns and their units. An operation is measured either in place or
/// out of place; the other group of columns exists for readers of nccl-tests tables.
fn push_column_names(text: &mut String, earlier: bool) {
    let _ = writeln!(text, "#\n#{:61}out-of-place{:24}in-place", "", "");
    let names = ["time", "algbw", "busbw", "#wrong"];
    let units = ["(us)", "(GB/s)", "(GB/s)", ""];
    let (compared, compared_units) =
        if earlier { (["was", "ratio"], ["(GB/s)", ""]) } else { ([""; 2], [""; 2]) };
    push_columns(text, "#", &["size", "count", "type", "redop", "root"], [names; 2], compared);
    push_columns(text, "#", &["(B)", "(elements)", "", "", ""], [units; 2], compared_units);
}

fn push_columns(
    text: &mut String,
    lead: &str,
    cells: &[&str; 5],
    groups: [[&str; 4]; 2],
    compared: [&str; 2],
) {
    let mut line = lead.to_owned();
    let groups = groups.iter().flat_map(|group| group.iter().zip([9, 7, 7, 7]));
    for (cell, width) in cells.iter().zip([11, 13, 8, 6, 6]).chain(groups) {
        let _ = write!(line, " {cell:>width$}");
    }
    for cell in compared {
        let _ = write!(line, " {cell:>8}");
    }
    let _ = writeln!(text, "{}", line.trim_end());
}

/// Shows a row of the table, with the earlier result of the same size.
pub fn show_row(row: &Row, collective: Collective, earlier: Option<&EarlierResults>) -> String {
    /// Cells of the group that is not measured: an operation is either in place or out of place.
    const NOT_MEASURED: [&str; 4] = ["-"; 4];
    let root = row.root.map_or_else(|| "-1".to_owned(), |root| root.to_string());
    let wrong = row.wrong.map_or_else(|| "N/A".to_owned(), |wrong| wrong.to_string());
    let (bytes, count) = (row.bytes.to_string(), row.count.to_string());
    let figures = [row.time_us, row.algbw_gbs, row.busbw_gbs].map(significant);
    let measured = [&figures[0][..], &figures[1], &figures[2], &wrong];
    let groups =
        if collective.is_in_place() { [NOT_MEASURED, measured] } else { [measured, NOT_MEASURED] };
    let before = earlier.and_then(|earlier| earlier.matching_row(row.bytes, &row.dtype, &row.op));
    let compared = before.map_or_else(Default::default, |before| {
        let ratio = row.busbw_gbs / before.busbw_gbs;
        let ratio = if ratio.is_finite() { format!("{ratio:.2}") } else { String::new() };
        [significant(before.busbw_gbs), ratio]
    });
    let mut text = String::new();
    let cells = [&bytes[..], &count, nccl_dtype(&row.dtype), &row.op, &root];
    push_columns(&mut text, " ", &cells, groups, compared.each_ref().map(String::as_str));
    text
}

/// Shows a number with two decimals, with one from 100 on, and with none from 10,000 on.
fn significant(value: f64) -> String {
    match value {
        _ if 10_000.0 <= value => format!("{value:.0}"),
        _ if 100.0 <= value => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Shows the lines below the rows: number of wrong values and average bus bandwidth.
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

/// Shows the bandwidth of all pairs in GB/s, with the slowest pair and the median.
pub fn show_pairs(pairs: &Pairs) -> String {
    let size = show_bytes_short(pairs.bytes);
    let mut text =
        format!("# remuda bench send-recv --pairs: {size} each way at once, GB/s each way\n");
    let slowest_first = pairs.slowest_first();
    if pairs.names.len() <= MATRIX_MAX {
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
    use crate::bench::document::parse_results;
    use crate::bench::sizes::{Sizes, Stride};
    use crate::bench::timing::{Average, Iterations};
    use crate::runtime::{Dtype, ReduceOp};

    fn options(collective: Collective) -> Options {
        Options {
            collective,
            backend: Backend::Host,
            sizes: Sizes::new(8, 1 << 26, Stride::Factor(1 << 23)).expect("there is a size"),
            dtypes: vec![Dtype::F32],
            reduce: vec![ReduceOp::Sum],
            root: 0,
            iterations: Iterations::Exactly(20),
            warmup: 5,
            is_checked: true,
            average: Average::Mean,
            is_registered: true,
        }
    }

    fn hosts(ranks: &[usize]) -> Vec<BenchNode> {
        let host = |(index, ranks): (usize, &usize)| BenchNode {
            name: format!("n{}", index + 1),
            ranks: *ranks,
            processors: 2,
        };
        ranks.iter().enumerate().map(host).collect()
    }

    fn earlier(rows: Vec<Row>) -> EarlierResults {
        EarlierResults { file: "r1/bw.json".to_owned(), world_size: Some(8), rows }
    }

    fn show(head: Head<'_>, rows: &[Row]) -> String {
        let collective = head.options.collective;
        let rows_shown =
            rows.iter().map(|row| show_row(row, collective, head.comparable_earlier()));
        head.show() + &rows_shown.collect::<String>() + &show_foot(rows)
    }

    fn head<'a>(
        options: &'a Options,
        order: ReduceOrder,
        hosts: &'a [BenchNode],
        earlier: Option<&'a EarlierResults>,
    ) -> Head<'a> {
        Head { options, order, hosts, library: None, slow_because: None, thresholds: None, earlier }
    }

    #[test]
    fn table_has_the_columns_of_nccl_tests() {
        let (options, hosts) = (options(Collective::AllReduce), hosts(&[3, 1]));
        let rows = [Row::for_test(8, 1.234), Row::for_test(1 << 26, 20_500.0)];
        let earlier = earlier(vec![Row::for_test(1 << 26, 41_000.0)]);
        let head = head(&options, ReduceOrder::Canonical, &hosts, Some(&earlier));
        let expect = "\
# remuda bench all-reduce: 4 ranks, backend host, order canonical
# 20 iterations after 5 warm-up iterations, results checked
# n1: 3 ranks share 2 processors
# n2: 1 rank
# compared with: 8 ranks (r1/bw.json)
#
#                                                             out-of-place                        in-place
#        size         count     type  redop   root      time   algbw   busbw  #wrong      time   algbw   busbw  #wrong      was    ratio
#         (B)    (elements)                             (us)  (GB/s)  (GB/s)              (us)  (GB/s)  (GB/s)           (GB/s)
            8             2    float    sum     -1         -       -       -       -      1.23    0.01    0.01       0
     67108864      16777216    float    sum     -1         -       -       -       -     20500    3.27    3.27       0     1.64     2.00
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 1.6400
";
        assert_eq!(show(head, &rows), expect);
    }

    #[test]
    fn table_of_remuda_is_read_back() {
        for collective in Collective::ALL {
            let (options, hosts) = (options(collective), hosts(&[2, 2]));
            let op = if collective.reduces() { "sum" } else { "none" };
            let row = |bytes, time_us| Row { op: op.to_owned(), ..Row::for_test(bytes, time_us) };
            let rows = [row(1 << 10, 1.25), row(1 << 26, 20_500.0)];
            let earlier = earlier(rows[1..].to_vec());
            let head = head(&options, ReduceOrder::Any, &hosts, Some(&earlier));
            let text = show(head, &rows);
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            let cells: Vec<usize> = lines.map(|line| line.split_whitespace().count()).collect();
            assert_eq!(cells, [13, 15], "the compared columns follow the others: {text}");
            let read =
                parse_results(&text, "a".to_owned(), collective, 9).expect("a table of remuda");
            let times = |rows: &[Row]| -> Vec<_> {
                rows.iter().map(|row| (row.bytes, row.time_us, row.dtype.clone())).collect()
            };
            assert_eq!((read.world_size, times(&read.rows)), (Some(4), times(&rows)));
        }
    }

    #[test]
    fn table_without_common_rows_is_not_compared() {
        let (options, hosts) = (options(Collective::AllReduce), hosts(&[1]));
        let rows = [Row::for_test(8, 1.0)];
        let mut earlier = earlier(vec![Row::for_test(16, 1.0)]);
        earlier.world_size = None;
        let head = head(&options, ReduceOrder::Canonical, &hosts, Some(&earlier));
        let text = show(head, &rows);
        let expect = "# compared with: ranks unknown, assumed 1 (r1/bw.json)\n\
                      # nothing compared: no size, type and reduction in common\n";
        assert!(text.contains(expect) && !text.contains("   ratio"), "{text}");
    }

    #[test]
    fn heading_names_an_order_without_effect() {
        #[track_caller]
        fn check(collective: Collective, backend: Backend, nodes: &[usize], expect: &str) {
            let options = Options { backend, ..options(collective) };
            let hosts = hosts(nodes);
            let order = ReduceOrder::Any;
            let head = head(&options, order, &hosts, None);
            assert_eq!(head.show_order(), expect);
        }
        let same = |why: &str| format!("order any (same as canonical: {why})");
        check(Collective::AllReduce, Backend::Host, &[1, 1], "order any");
        check(Collective::AllReduce, Backend::Host, &[2], &same("one node"));
        let only = same("only all-reduce has another order");
        check(Collective::ReduceScatter, Backend::Host, &[1, 1], &only);
        check(Collective::Broadcast, Backend::Nccl, &[1, 1], &same("no reduction"));
        check(Collective::Reduce, Backend::Nccl, &[2], "order any");
    }

    #[test]
    fn show_bytes_uses_the_largest_unit() {
        for (bytes, text) in [(0, "0"), (8, "8"), (1024, "1K"), (1536, "1536"), (3 << 30, "3G")] {
            assert_eq!(show_bytes_short(bytes), text);
        }
    }
}
