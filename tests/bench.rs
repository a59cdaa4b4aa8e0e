//! Command lines of `remuda bench`: tables, documents, charts, `--threshold`, and refused lines.
//!
//! `tests/bench/refused.expected` contains every refused line with its screen and exit status;
//! `UPDATE_EXPECTED=1 cargo test --test program bench::` rewrites it.

use std::fs;

use crate::support::expected::check_expected;
use crate::support::scratch::{Scratch, screen_of, text};
use serde_json::Value;

/// Options of a measurement that takes milliseconds.
const SMALL: &str = "-e 64K -f 8 -n 3 -w 1";

#[track_caller]
fn document_of(scratch: &Scratch, line: &str) -> Value {
    serde_json::from_str(&scratch.succeed(line)).expect("standard output is one document")
}

#[test]
fn bench_table_of_each_collective_is_correct() {
    let scratch = Scratch::new("bench", "tables");
    for collective in [
        "all-reduce",
        "all-gather",
        "reduce-scatter",
        "broadcast",
        "reduce",
        "gather",
        "scatter",
        "all-to-all",
        "send-recv",
    ] {
        let table = scratch.succeed(&format!("{collective} --num_gpus 3 {SMALL}"));
        assert!(table.starts_with(&format!("# remuda bench {collective}: 3 ranks")), "{table}");
        assert!(table.contains("# Out of bounds values : 0 OK\n"), "{table}");
        assert!(table.contains("# Avg bus bandwidth    : "), "{table}");
        let rows = table.lines().filter(|line| line.starts_with(' ')).count();
        assert!((5..=6).contains(&rows), "{table}");
    }
}

#[test]
fn bench_verbose_shows_algorithm_thresholds() {
    let scratch = Scratch::new("bench", "thresholds");
    let table = scratch.succeed(&format!("all-reduce -v --num_gpus 2 {SMALL}"));
    let expect = "# reductions up to 4K: one barrier, data is exchanged together with the flags\n\
                  # if a buffer is not in shared memory, 256K of each rank are copied at a time\n#\n";
    assert!(table.contains(expect), "{table}");
    scratch.write("hosts", "n1 slots=1\nn2 slots=1\nn3 slots=1\n");
    let table = scratch.succeed(&format!("all-reduce -v -H hosts --launcher local {SMALL}"));
    let expect = "# reductions up to 8K: every node combines all data; larger ones: every rank combines a \
                  part\n\
                  # if a buffer is not in shared memory, 1M of each rank are copied at a time\n\
                  # between nodes: 1 stream per peer, one round at a time, order canonical\n#\n";
    assert!(table.contains(expect), "{table}");
    let ring = "all-reduce -v -H hosts --launcher local --order any --env REMUDA_STREAMS=2";
    let table = scratch.succeed(&format!("{ring} {SMALL}"));
    let expect = "# between nodes: 2 streams per peer, one round at a time, order any\n#\n";
    assert!(table.contains(expect), "{table}");
    let streams = "all-reduce -H hosts --launcher local --env REMUDA_STREAMS=17";
    let refused = scratch.run(&format!("{streams} {SMALL}"));
    let expect =
        "environment variable `REMUDA_STREAMS` is `17`, which is not a number from 1 to 16";
    let stderr = text(&refused.stderr);
    assert!(stderr.contains(expect), "{stderr}");
    assert_eq!(refused.status.code(), Some(78), "{stderr}");
}

#[test]
fn bench_repeats_short_operations_more_often() {
    let scratch = Scratch::new("bench", "iterations");
    let head = "# as many iterations as fit 0.1 s (20 to 5000) after 5 warm-up iterations, results checked\n";
    let table = scratch.succeed("all-reduce --num_gpus 2 -e 8");
    assert!(table.contains(head), "{table}");
    let exactly = scratch.succeed("all-reduce --num_gpus 2 -e 8 -n 7 -w 0");
    assert!(
        exactly.contains("# 7 iterations after 0 warm-up iterations, results checked\n"),
        "{exactly}"
    );
    let of = |line: &str, rows: &str| {
        let document = document_of(&scratch, line);
        let rows = document[rows].as_array().expect("rows").iter();
        rows.map(|row| row["iterations"].as_u64().expect("a number")).collect::<Vec<_>>()
    };
    let chosen = of("all-reduce --num_gpus 2 -e 64 -w 0 --json", "rows");
    assert!(chosen.iter().all(|times| (20..=5000).contains(times)), "{chosen:?}");
    assert_eq!(of("all-reduce --num_gpus 2 -e 16 -n 7 --json", "rows"), [7, 7]);
    let chosen = of("send-recv --pairs --num_gpus 3 -e 64 --json", "pairs");
    assert!(chosen.iter().all(|times| (20..=5000).contains(times)), "{chosen:?}");
}

#[test]
fn bench_of_two_hosts_names_them() {
    let scratch = Scratch::new("bench", "hosts");
    scratch.write("hosts", "n1 slots=2\nn2 slots=1\n");
    let table = scratch.succeed(&format!("all-reduce -H hosts --launcher local {SMALL}"));
    assert!(table.contains("\n# n1: 2 ranks") && table.contains("\n# n2: 1 rank\n"), "{table}");
    assert!(table.contains(": 0 OK"), "{table}");
    let pairs = scratch.succeed("send-recv --pairs -H hosts --launcher local -e 64K -n 3");
    assert!(pairs.contains("# Slowest pair : n1 - n2, "), "{pairs}");
}

#[test]
fn bench_document_has_all_rows_and_is_comparable() {
    let scratch = Scratch::new("bench", "documents");
    let line = "reduce_scatter -b 1K -e 4K -d all -o max -n 2 -r 1 --json";
    let document = document_of(&scratch, line);
    let number = |value: &Value, name: &str| value[name].as_f64().expect("a number");
    let head = ["version", "backend", "world_size", "nodes"].map(|name| document[name].clone());
    assert_eq!(head, [Value::from(1), Value::from("host"), Value::from(2), Value::from(1)]);
    let rows = document["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 7 * 3, "seven types, three sizes");
    for row in rows {
        assert_eq!((&row["op"], &row["wrong"]), (&Value::from("max"), &Value::from(0)), "{row}");
        let expect = number(row, "bytes") / number(row, "time_us") / 1e3;
        assert!((number(row, "algbw_gbs") - expect).abs() <= 1e-9 * expect, "{row}");
        assert!((number(row, "busbw_gbs") - expect / 2.0).abs() <= 1e-9 * expect, "{row}");
    }

    scratch.write("earlier.json", document.to_string());
    let line = "reduce-scatter -b 1K -e 8K -o max -n 2 --compare earlier.json --plot now.svg";
    let table = scratch.succeed(line);
    assert!(table.contains("#wrong      was    ratio"), "{table}");
    let cells = |size: &str| {
        let row = table.lines().find(|line| line.split_whitespace().next() == Some(size));
        row.expect("a row").split_whitespace().count()
    };
    assert_eq!(
        (cells("1024"), cells("8192")),
        (15, 13),
        "8 KiB were not measured in the earlier run"
    );
    assert!(table.contains("# compared with: 2 ranks (earlier.json)\n"), "{table}");
    let svg = fs::read_to_string(scratch.path("now.svg")).expect("the chart was written");
    assert!(svg.contains(">earlier, 2 ranks<") && svg.matches("<polyline").count() == 2, "{svg}");

    scratch.write(
        "mpi.txt",
        "# OSU MPI Allreduce Latency Test v7.3\n# Size  Latency(us)\n1024  2.0\n",
    );
    let table = scratch.succeed("all-reduce -b 1K -e 2K -n 2 --compare mpi.txt");
    let row = table.lines().find(|line| line.trim_start().starts_with("1024 ")).expect("a row");
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!((cells.len(), cells[13]), (15, "0.51"), "{table}");
    assert!(table.contains("# compared with: ranks unknown, assumed 2 (mpi.txt)\n"), "{table}");
}

#[test]
fn bench_table_is_comparable_and_shows_its_ranks() {
    let scratch = Scratch::new("bench", "own-table");
    let table = scratch.succeed("all-reduce --num_gpus 3 -b 1K -e 2K -n 2");
    let row = table.lines().find(|line| line.starts_with(' ')).expect("a row");
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!((cells.len(), cells[2]), (13, "float"), "{table}");
    assert_eq!(cells[5..9], ["-", "-", "-", "-"], "all-reduce works in place: {table}");
    scratch.write("three.txt", &table);
    let line = "all-reduce --num_gpus 2 -b 1K -e 2K -n 2 --compare three.txt";
    let later = scratch.succeed(line);
    assert!(later.contains("# compared with: 3 ranks (three.txt)\n"), "{later}");
    let row = later.lines().find(|line| line.starts_with(' ')).expect("a row");
    let number = |cell: Option<&str>| cell.and_then(|cell| cell.parse::<f64>().ok());
    let was = number(row.split_whitespace().nth(13)).expect("the earlier bandwidth");
    // It is calculated from a rounded time.
    let then = number(cells.get(11).copied()).expect("a bandwidth");
    assert!((was - then).abs() < 0.011, "{table}{later}");
    let none = scratch.succeed(&format!("{line} -d double"));
    let remark = "# nothing compared: no size, type and reduction in common\n";
    assert!(none.contains(remark) && !none.contains("   ratio"), "{none}");

    let line = format!("{line} --json --plot now.svg");
    let compared = &document_of(&scratch, &line)["compared"][0];
    assert_eq!((&compared["file"], &compared["world_size"]), (&"three.txt".into(), &3.into()));
}

#[test]
fn bench_document_has_time_hosts_and_order() {
    let scratch = Scratch::new("bench", "provenance");
    scratch.write("hosts", "n1 slots=2\nn2 slots=1\n");
    let line = "reduce -r 2 -H hosts --launcher local -e 8 -n 2 --json";
    let document = document_of(&scratch, line);
    assert_eq!((&document["order"], &document["root"]), (&"canonical".into(), &2.into()));
    assert_eq!(document["remuda"], env!("CARGO_PKG_VERSION"));
    let time = document["time"].as_str().expect("a time");
    assert!(time.len() == 20 && time.starts_with("20") && time.ends_with('Z'), "{time}");
    let hosts = document["hosts"].as_array().expect("hosts").iter();
    let hosts: Vec<_> = hosts.map(|host| (&host["name"], &host["ranks"])).collect();
    assert_eq!(hosts, [(&"n1".into(), &2.into()), (&"n2".into(), &1.into())]);
    let order = "--order any -H hosts --launcher local -e 8 -n 2";
    let table = scratch.succeed(&format!("all-reduce {order}"));
    assert!(table.contains(", backend host, order any\n"), "{table}");
    let table = scratch.succeed(&format!("broadcast {order}"));
    let remark = ", order any (same as canonical: no reduction)\n";
    assert!(table.contains(remark), "{table}");
}

#[test]
fn bench_table_shows_shared_processors() {
    let scratch = Scratch::new("bench", "processors");
    let processors = std::thread::available_parallelism().expect("Linux reports it").get();
    let table = scratch.succeed(&format!("all-reduce --num_gpus {} -e 8 -n 2", processors + 1));
    let noun = if processors == 1 { "processor" } else { "processors" };
    let remark = format!(": {} ranks share {processors} {noun}\n", processors + 1);
    assert!(table.contains(&remark), "{table}");
    let table = scratch.succeed("all-reduce --num_gpus 1 -e 8 -n 2");
    assert!(table.contains(": 1 rank\n") && !table.contains("share"), "{table}");
}

#[test]
fn bench_pairs_have_a_document_and_a_heat_map() {
    let scratch = Scratch::new("bench", "pairs");
    let line = "send-recv --pairs --num_gpus 3 -e 4K -n 2 --json --plot heat.svg";
    let document = document_of(&scratch, line);
    let pairs = document["pairs"].as_array().expect("pairs");
    let names: Vec<_> = pairs.iter().map(|pair| (&pair["left"], &pair["right"])).collect();
    let [first, second, third] = ["rank 0", "rank 1", "rank 2"].map(Value::from);
    assert_eq!(names, [(&first, &second), (&first, &third), (&second, &third)]);
    let svg = fs::read_to_string(scratch.path("heat.svg")).expect("the chart was written");
    assert_eq!(svg.matches(" - rank ").count(), 6, "both ways: {svg}");
    assert_eq!(svg.matches(">rank 1<").count(), 2, "a row and a column: {svg}");
    assert!(svg.contains(">0<") && svg.contains(" GB/s</text>"), "a scale: {svg}");
}

/// A full disk is detected only when the chart is written: the results are shown, and the status is 73.
#[test]
fn chart_on_a_full_disk_is_status_73() {
    let scratch = Scratch::new("bench", "full");
    let line = "all-reduce --num_gpus 2 -e 1K -n 3 -q --plot /dev/full";
    let output = scratch.run(line);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(73), "{stderr}");
    assert!(stdout.contains("# Avg bus bandwidth"), "{stdout}");
    let begin = "error[B003]: cannot write `/dev/full`: no space left on device\n";
    assert!(stderr.starts_with(begin), "{stderr}");
    let slow = scratch.run(&format!("{line} --threshold 1e6"));
    let stderr = text(&slow.stderr);
    assert_eq!(slow.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error[B003]") && stderr.contains("error[B004]"), "{stderr}");
}

/// Workers that a job starts as its program check the path themselves.
#[test]
fn workers_check_the_chart_path_before_measuring() {
    let scratch = Scratch::new("run", "workers-chart");
    let line = "-q -n 1 --accelerator cpu --no_python --no_local_rank";
    let remuda = env!("CARGO_BIN_EXE_remuda");
    let output = scratch.run(&format!("{line} {remuda} bench all-reduce -e 1K -n 3 --plot ."));
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), &stdout[..]), (Some(73), ""), "{stderr}");
    assert!(stderr.starts_with("error[B003]: cannot write `.`: it is a directory\n"), "{stderr}");
}

#[test]
fn threshold_that_is_missed_is_status_1() {
    let scratch = Scratch::new("bench", "threshold");
    let reached = scratch.run("all-reduce -e 1K -n 3 --threshold 0.000001 -q");
    assert_eq!(reached.status.code(), Some(0), "{}", text(&reached.stderr));
    let missed = scratch.run("all-reduce -e 1K -n 3 --threshold 1e6 -q");
    let stderr = text(&missed.stderr);
    assert_eq!(missed.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error[B004]: bus bandwidth is "), "{stderr}");
    assert!(stderr.contains(" GB/s (at ") && stderr.contains("--threshold 1000000"), "{stderr}");
    let pairs = scratch.run("send-recv --pairs -e 1K -n 3 --threshold 1e6 -q");
    assert_eq!(pairs.status.code(), Some(1));
    let stderr = text(&pairs.stderr);
    assert!(stderr.contains("bandwidth between rank 0 and rank 1 is "), "{stderr}");
}

/// A missed threshold is the only error, also with several hosts.
#[test]
fn threshold_missed_on_hosts_is_one_error() {
    let scratch = Scratch::new("bench", "hosts-threshold");
    scratch.write("hosts", "n1 slots=2\nn2 slots=1\n");
    let line = "all-reduce -H hosts --launcher local -e 1K -n 3 --threshold 1e6";
    let missed = scratch.run(line);
    let stderr = screen_of(&missed);
    assert_eq!(missed.status.code(), Some(1), "{stderr}");
    let lines: Vec<&str> = stderr.lines().collect();
    let [launch, record, error] = lines[..] else { panic!("{stderr}") };
    let begin = [launch, record].map(|line| line.split_whitespace().next());
    assert_eq!(begin, [Some("Launch"), Some("Logs")], "{stderr}");
    let rest = error.strip_prefix("error[B004]: bus bandwidth is ").expect("the threshold error");
    assert!(rest.ends_with("), below --threshold 1000000"), "{stderr}");
}

/// The same for `remuda bench` as the program of a job, as in pods.
#[test]
fn threshold_missed_in_workers_is_one_error() {
    let scratch = Scratch::new("run", "workers-threshold");
    let line = "-q -n 2 --accelerator cpu --no_python --no_local_rank";
    let bench = "bench all-reduce -e 1K -n 3 --threshold 1e6";
    let missed = scratch.run(&format!("{line} {} {bench}", env!("CARGO_BIN_EXE_remuda")));
    let stderr = screen_of(&missed);
    assert_eq!(missed.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("error[B004]: bus bandwidth is "), "{stderr}");
}

/// Command lines that are refused before the job starts.
const REFUSED: [&str; 33] = [
    "",
    "all-reduse",
    "all-reduce -b 4 -e 2",
    "all-reduce -b 1.5M",
    "all-reduce -e 9999999T",
    "all-reduce -i n2",
    "all-reduce -e n1@n2:0",
    "all-reduce -i 1 -e 1G",
    "all-reduce -i 1K -f 2",
    "all-reduce -d fp8",
    "all-reduce -o summ",
    "all-reduce --pairs",
    "all-reduce --backend ncl",
    "send-recv --pairs --backend staged",
    "send-recv --pairs --compare x.json",
    "broadcast --num_gpus 2 -r 2",
    "all-reduce --compare missing.json",
    "all-reduce --compare broken.json",
    "all-reduce --compare words.txt",
    "all-reduce --order ring",
    "all-reduce --compare bytes.bin",
    "all-reduce --compare gather.txt",
    "send-recv --compare bandwidth.txt",
    "all-reduce --compare .",
    "all-reduce --compare /dev/zero",
    "all-reduce --plot missing/plot.svg",
    "all-reduce --plot .",
    "all-reduce --plot bw.png",
    "all-reduce --threshold fast",
    "all-gather --compare other.json",
    "all-reduce --compare other.json --json",
    "send-recv --pairs --num_gpus 1 --threshold 5",
    "broadcast --num_gpus 1 --threshold 5",
];

#[test]
fn bench_refuses_unusable_lines_before_the_start() {
    let scratch = Scratch::new("bench", "refused");
    scratch.write("broken.json", "{\"version\": 7}");
    scratch.write("words.txt", "everything was fast\n");
    scratch.write("gather.txt", "# Collective test starting: all_gather_perf\n8 2.5\n");
    scratch.write("bandwidth.txt", "# OSU MPI Bandwidth Test v7.3\n8 2.5\n");
    scratch.write("bytes.bin", [0x7f, b'E', b'L', b'F', 0xff]);
    let other = "{\"version\":1,\"collective\":\"all-reduce\",\"world_size\":2,\"rows\":[]}";
    scratch.write("other.json", other);
    let all = scratch.screens(&REFUSED, str::to_owned);
    assert!(!scratch.path("runs").exists(), "no job was started");
    check_expected("tests/bench/refused.expected".as_ref(), &all);
}

#[test]
fn bench_refuses_sizes_above_the_memory() {
    let scratch = Scratch::new("bench", "memory");
    let output = scratch.run("all-gather -b 16T");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(71), "{stderr}");
    let head = "error[B001]: 2 workers would need about 48.0 TiB of memory, ";
    assert!(stderr.starts_with(head), "{stderr}");
    assert!(stderr.ends_with("help: use a smaller `--maxbytes`\n"), "{stderr}");
}

#[test]
#[cfg(feature = "nccl")]
fn bench_backend_without_a_gpu_is_refused() {
    if remuda::runtime::device::device_count().is_ok() {
        // This machine has a GPU; another test uses it.
        return;
    }
    let scratch = Scratch::new("bench", "no-gpu");
    for backend in ["nccl", "staged"] {
        let output = scratch.run(&format!("all-reduce --backend {backend} --num_gpus 2 {SMALL}"));
        let screen = text(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{screen}");
        let why = format!("error[B005]: there is no GPU on this machine for backend `{backend}`\n");
        assert!(screen.starts_with(&why), "{screen}");
        assert!(screen.contains("help: leave `--backend` out"), "{screen}");
    }
    // The library returns an error too.
    let error = remuda::runtime::device::open_device(0).expect_err("there is none").to_string();
    let why = "cannot use a GPU: there is no CUDA driver (`libcuda.so.1`) on this machine";
    assert_eq!(error, why);
}
