//! Importer of result tables: of nccl-tests, of the OSU micro-benchmarks, of remuda, and of any
//! program that prints a size and microseconds in the first two columns. Pure.

use super::collective::Collective;
use super::row::{DocumentError, ParseResult, Row, check_collective};

/// Smallest number of columns of nccl-tests: size, count, type, operation, root, then time, two
/// bandwidths and wrong values, out of place and then in place.
const NCCL_COLUMNS: usize = 9;
const OUT_OF_PLACE: usize = 5;
const IN_PLACE: usize = 9;
/// Distance from the column of a time to that of its bus bandwidth.
const TO_BUSBW: usize = 2;

/// Names of types in nccl-tests, and in remuda.
const DTYPES: [(&str, &str); 7] = [
    ("float", "f32"),
    ("double", "f64"),
    ("half", "f16"),
    ("bfloat16", "bf16"),
    ("int32", "i32"),
    ("int64", "i64"),
    ("uint8", "u8"),
];

/// Name of a type in nccl-tests.
pub(crate) fn nccl_dtype(dtype: &str) -> &str {
    DTYPES.iter().find(|(_, known)| *known == dtype).map_or(dtype, |(name, _)| name)
}

/// Name of a type of nccl-tests in remuda.
fn remuda_dtype(name: &str) -> &str {
    DTYPES.iter().find(|(known, _)| *known == name).map_or(name, |(_, dtype)| dtype)
}

/// Parses a table of a collective. If it does not contain the number of ranks, its own bus
/// bandwidth is used, or else that for `world` ranks.
pub(crate) fn parse_table(text: &str, collective: Collective, world: usize) -> ParseResult {
    if let Some(found) = text.lines().find_map(parse_collective) {
        check_collective(&found, collective)?;
    }
    let ranks = parse_ranks(text);
    let row = |line: &str| parse_row(line, collective, (ranks, world));
    let rows: Vec<Row> = text.lines().filter_map(row).collect();
    if rows.is_empty() { Err(DocumentError::UnknownFormat) } else { Ok((ranks, rows)) }
}

/// Name of the collective in a line: in a heading of remuda, in the name of a program of nccl-tests
/// (`all_reduce_perf`), or in a title of the OSU micro-benchmarks.
fn parse_collective(line: &str) -> Option<String> {
    if let Some(heading) = line.strip_prefix("# remuda bench ") {
        return heading.split_once(':').map(|(name, _)| name.to_owned());
    }
    if let Some((_, title)) = line.split_once("OSU MPI") {
        return parse_osu_title(title.split(" Test").next()?);
    }
    let program = line.split_whitespace().find(|word| word.ends_with("_perf"))?;
    let name = program.rsplit('/').next()?.trim_end_matches("_perf");
    Some(
        Collective::from_name(name)
            .map_or_else(|| name.to_owned(), |known| known.name().to_owned()),
    )
}

/// Name of the collective in a title such as `-CUDA Allreduce Latency`; for any other test, such as
/// bandwidth, the whole title.
fn parse_osu_title(title: &str) -> Option<String> {
    let (_, title) = title.split_once(' ')?;
    let name = match title.strip_suffix("Latency").map(str::trim_end) {
        Some("") => "send-recv",
        Some("All-to-All Personalized Exchange") => "all-to-all",
        Some(name) => name,
        None => title,
    };
    let known = Collective::from_name(name);
    Some(known.map_or_else(|| name.to_owned(), |known| known.name().to_owned()))
}

/// Number of ranks in the heading: a number in that of remuda, one line for each rank in that of
/// nccl-tests.
fn parse_ranks(text: &str) -> Option<usize> {
    let heading = text.lines().find_map(|line| line.strip_prefix("# remuda bench "));
    if let Some((_, number)) = heading.and_then(|heading| heading.split_once(": ")) {
        return number.split_whitespace().next()?.parse().ok();
    }
    let is_rank = |line: &&str| {
        let mut words = line.split_whitespace();
        let [lead, word, number] = [words.next(), words.next(), words.next()];
        lead == Some("#")
            && word == Some("Rank")
            && number.is_some_and(|number| number.parse::<usize>().is_ok())
    };
    Some(text.lines().filter(is_rank).count()).filter(|ranks| 0 < *ranks)
}

fn parse_row(
    line: &str,
    collective: Collective,
    (ranks, world): (Option<usize>, usize),
) -> Option<Row> {
    let cells: Vec<&str> = line.split_whitespace().collect();
    let bytes: u64 = cells.first()?.parse().ok()?;
    let is_nccl = NCCL_COLUMNS <= cells.len() && cells[2].starts_with(|c: char| c.is_alphabetic());
    let number = |at: usize| cells.get(at)?.parse().ok().filter(|number| 0.0 < *number);
    // Of the two results of nccl-tests, the one that matches the operation of remuda is preferred.
    let times = match (is_nccl, collective.is_in_place()) {
        (false, _) => [1, 1],
        (true, true) => [IN_PLACE, OUT_OF_PLACE],
        (true, false) => [OUT_OF_PLACE, IN_PLACE],
    };
    let (at, time_us): (usize, f64) = times.into_iter().find_map(|at| Some((at, number(at)?)))?;
    let algbw_gbs = bytes as f64 / time_us / 1e3;
    let own_busbw = || number(at + TO_BUSBW).filter(|_| is_nccl && ranks.is_none());
    let factor = || collective.bus_factor(ranks.unwrap_or(world));
    Some(Row {
        bytes,
        count: 0,
        dtype: if is_nccl { remuda_dtype(cells[2]).to_owned() } else { String::new() },
        op: if is_nccl { cells[3].to_owned() } else { String::new() },
        root: None,
        time_us,
        algbw_gbs,
        busbw_gbs: own_busbw().unwrap_or_else(|| algbw_gbs * factor()),
        wrong: None,
        iterations: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, collective: Collective) -> (Option<usize>, Vec<Row>) {
        parse_table(text, collective, 4).expect("there are rows")
    }

    #[track_caller]
    fn check(text: &str, collective: Collective, expect: &[(u64, f64, &str, &str)]) {
        let (_, rows) = read(text, collective);
        let rows = rows.iter();
        let found: Vec<_> =
            rows.map(|row| (row.bytes, row.time_us, &row.dtype[..], &row.op[..])).collect();
        assert_eq!(found, expect);
    }

    const NCCL: &str = "\
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
        1024           256     float     sum      -1    12.50    0.08    0.15      0    10.25    0.10    0.20      0
        2048           512     float     sum      -1    13.00    0.16    0.24      0    11.00    0.19    0.28      0
# Out of bounds values : 0 OK
";

    #[test]
    fn table_of_nccl_tests_is_read() {
        let expect = [(1024, 10.25, "f32", "sum"), (2048, 11.0, "f32", "sum")];
        check(NCCL, Collective::AllReduce, &expect);
        let expect = [(1024, 12.5, "f32", "sum"), (2048, 13.0, "f32", "sum")];
        check(NCCL, Collective::AllGather, &expect);
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "these are the numbers of the text")]
    fn table_of_nccl_tests_has_ranks_in_its_heading() {
        let head = "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 2\n\
                    # Using devices\n\
                    #  Rank  0 Group  0 Pid   7 on   node1 device  0 [0000:04:00] NVIDIA H100\n\
                    #  Rank  1 Group  0 Pid   7 on   node1 device  1 [0000:05:00] NVIDIA H100\n";
        let (ranks, rows) = read(&format!("{head}{NCCL}"), Collective::AllReduce);
        assert_eq!(ranks, Some(2));
        assert_eq!(rows[0].busbw_gbs, rows[0].algbw_gbs, "two ranks: the factor is 1");
        let (ranks, rows) = read(NCCL, Collective::AllReduce);
        assert_eq!((ranks, rows[0].busbw_gbs), (None, 0.20), "the table's own value");
    }

    #[test]
    fn tables_of_osu_and_plain_tables_are_read() {
        let osu = "\n# OSU MPI Allreduce Latency Test v7.3\n# Size       Avg Latency(us)\n\
                   4                       0.98\n8   1.00   0.9  1.1  1000\n";
        check(osu, Collective::AllReduce, &[(4, 0.98, "", ""), (8, 1.0, "", "")]);
        check("memory 52.7\n1024 1.8\n", Collective::AllReduce, &[(1024, 1.8, "", "")]);
    }

    #[test]
    fn table_of_another_collective_is_rejected() {
        #[track_caller]
        fn check(head: &str, collective: Collective, expect: Option<&str>) {
            let read = parse_table(&format!("{head}\n1024 1.8\n"), collective, 4);
            let error = read.err().map(|error| error.to_string());
            let expect = expect
                .map(|found| format!("it contains results of `{found}`, not of `{collective}`"));
            assert_eq!(error, expect, "{head}");
        }
        use Collective::{AllReduce, AllToAll, SendRecv};
        check("# Collective test starting: all_gather_perf", AllReduce, Some("all-gather"));
        check("+ ./build/sendrecv_perf -b 8", SendRecv, None);
        check("# Collective test starting: hypercube_perf", AllReduce, Some("hypercube"));
        check("# OSU MPI Allreduce Latency Test", AllReduce, None);
        check("# OSU MPI-CUDA Allreduce Latency Test v7.1", AllReduce, None);
        check("# OSU MPI Reduce_scatter Latency Test", AllReduce, Some("reduce-scatter"));
        check("# OSU MPI All-to-All Personalized Exchange Latency Test", AllToAll, None);
        check("# OSU MPI Latency Test", SendRecv, None);
        check("# OSU MPI Bandwidth Test", SendRecv, Some("Bandwidth"));
        check("# remuda bench broadcast: 2 ranks, backend host", AllReduce, Some("broadcast"));
        check("# some all-reduce", AllReduce, None);
    }

    #[test]
    fn table_without_ranks_uses_the_assumed_bus_factor() {
        let (ranks, rows) = read("3000 1.5", Collective::AllReduce);
        assert_eq!((ranks, rows[0].algbw_gbs, rows[0].busbw_gbs), (None, 2.0, 3.0));
    }

    #[test]
    fn table_parser_rejects_other_texts() {
        for text in ["", "# size time\n", "12\n", "12 many\n", "0 0\n", "all is well\n"] {
            let read = parse_table(text, Collective::AllReduce, 2);
            assert!(matches!(read, Err(DocumentError::UnknownFormat)), "{text}");
        }
    }
}
