//! Tables of other programs, read as earlier results: those of nccl-tests, of the OSU
//! micro-benchmarks, and any with a size and microseconds in its first two columns. Pure.

use super::collective::Collective;
use super::document::{Document, Row, VERSION};

/// Columns of nccl-tests: size, count, type, operation, root, then time, bandwidths and wrong numbers,
/// out of place and in place.
const NCCL_COLUMNS: usize = 9;
const OUT_OF_PLACE: usize = 5;
const IN_PLACE: usize = 9;

/// The rows of a table that somebody else has measured with `world` ranks; `None` where there are none.
pub(super) fn read_table(text: &str, collective: Collective, world: usize) -> Option<Document> {
    let row = |line: &str| read_row(line, collective, world);
    let rows: Vec<Row> = text.lines().filter_map(row).collect();
    let document = Document {
        version: VERSION,
        collective: collective.name().to_owned(),
        backend: String::new(),
        world_size: world,
        nodes: 0,
        rows,
        pairs: Vec::new(),
    };
    (!document.rows.is_empty()).then_some(document)
}

fn read_row(line: &str, collective: Collective, world: usize) -> Option<Row> {
    let cells: Vec<&str> = line.split_whitespace().collect();
    let bytes: u64 = cells.first()?.parse().ok()?;
    let is_nccl = NCCL_COLUMNS <= cells.len() && cells[2].starts_with(|c: char| c.is_alphabetic());
    // Ours work in place where nccl-tests does both.
    let time_at = match collective {
        _ if !is_nccl => 1,
        Collective::AllReduce | Collective::Reduce | Collective::Broadcast
            if IN_PLACE < cells.len() =>
        {
            IN_PLACE
        }
        _ => OUT_OF_PLACE,
    };
    let time_us: f64 = cells.get(time_at)?.parse().ok().filter(|time| 0.0 < *time)?;
    let algbw_gbs = bytes as f64 / time_us / 1e3;
    Some(Row {
        bytes,
        count: 0,
        dtype: if is_nccl { our_dtype(cells[2]).to_owned() } else { String::new() },
        op: if is_nccl { cells[3].to_owned() } else { String::new() },
        root: None,
        time_us,
        algbw_gbs,
        busbw_gbs: algbw_gbs * collective.bus_factor(world),
        wrong: None,
        iterations: None,
    })
}

/// A type of nccl-tests in our words.
fn our_dtype(name: &str) -> &str {
    match name {
        "float" => "f32",
        "double" => "f64",
        "half" => "f16",
        "bfloat16" => "bf16",
        "int32" => "i32",
        "int64" => "i64",
        "uint8" => "u8",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, collective: Collective, expect: &[(u64, f64, &str, &str)]) {
        let document = read_table(text, collective, 4).expect("there are rows");
        let rows = document.rows.iter();
        let found: Vec<_> =
            rows.map(|row| (row.bytes, row.time_us, &row.dtype[..], &row.op[..])).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn nccl_tests() {
        let table = "\
# nThread 1 nGpus 1 minBytes 8 maxBytes 2048 step: 2(factor) warmup iters: 5 iters: 20
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
        1024           256     float     sum      -1    12.50    0.08    0.15      0    10.25    0.10    0.20      0
        2048           512     float     sum      -1    13.00    0.16    0.24      0    11.00    0.19    0.28      0
# Out of bounds values : 0 OK
";
        let expect = [(1024, 10.25, "f32", "sum"), (2048, 11.0, "f32", "sum")];
        check(table, Collective::AllReduce, &expect);
        let expect = [(1024, 12.5, "f32", "sum"), (2048, 13.0, "f32", "sum")];
        check(table, Collective::AllGather, &expect);
    }

    #[test]
    fn osu_and_plain_tables() {
        let osu = "\n# OSU MPI Allreduce Latency Test v7.3\n# Size       Avg Latency(us)\n\
                   4                       0.98\n8   1.00   0.9  1.1  1000\n";
        check(osu, Collective::AllReduce, &[(4, 0.98, "", ""), (8, 1.0, "", "")]);
        check("memory 52.7\n1024 1.8\n", Collective::AllReduce, &[(1024, 1.8, "", "")]);
    }

    #[test]
    fn bandwidth_is_of_the_collective() {
        let document = read_table("3000 1.5", Collective::AllReduce, 4).expect("a row");
        assert_eq!((document.rows[0].algbw_gbs, document.rows[0].busbw_gbs), (2.0, 3.0));
    }

    #[test]
    fn other_texts_have_no_rows() {
        for text in ["", "# size time\n", "12\n", "12 many\n", "0 0\n", "all is well\n"] {
            assert_eq!(read_table(text, Collective::AllReduce, 2), None, "{text}");
        }
    }
}
