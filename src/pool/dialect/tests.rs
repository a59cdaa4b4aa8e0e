use crate::base::Severity;
use crate::pool::hostfile::hosts::SlotCount;
use proptest::prelude::*;

use super::*;
use crate::pool::SLOTS_MAX;
use crate::pool::hostfile::hosts::Host;

/// Formats the hosts as `a:2 b:1`, then the problems.
fn show(reading: &Reading) -> String {
    let hosts = reading.hostfile.hosts().iter();
    let mut out: Vec<String> =
        hosts.map(|host| format!("{}:{}", host.name, host.slots.get())).collect();
    for found in &reading.findings.diagnostics {
        let at = found.span.map_or("", |span| &reading.findings.source.text[span.start..span.end]);
        out.push(format!("{} `{at}`", found.message));
    }
    out.join("; ")
}

#[track_caller]
fn check(dialect: Dialect, text: &str, expect: &str) {
    let reading = read_any("hosts", text.as_bytes(), ReadOptions::default());
    assert_eq!(reading.dialect, dialect, "for {text:?}");
    assert_eq!(show(&reading), expect, "for {text:?}");
}

#[track_caller]
fn check_named(dialect: Dialect, text: &str, expect: &str) {
    let options = ReadOptions { dialect: Some(dialect), ..ReadOptions::default() };
    let reading = read_any("hosts", text.as_bytes(), options);
    assert_eq!(show(&reading), expect, "for {text:?}");
}

#[test]
fn dialect_is_detected_from_lines() {
    check(Dialect::DeepSpeed, "a slots=2\nb slots=1\n", "a:2; b:1");
    check(Dialect::OpenMpi, "a slots=2 max_slots=4\nb slots=1\n", "a:2; b:1");
    check(Dialect::OpenMpi, "a slots = 2 // fast\nb cpu=3\n", "a:2; b:3");
    check(Dialect::Hydra, "a:2\nb:1\n", "a:2; b:1");
    check(Dialect::Hydra, "a:2\nb\n", "a:2; b:1");
    check(Dialect::Pbs, "a\na\nb\n", "a:2; b:1");
    check(Dialect::Lsf, "a 2\nb 1\n", "a:2; b:1");
    check(Dialect::Lsf, "a 2 b 1\n", "a:2; b:1");
    check(Dialect::Lsf, "LSB_HOSTS=\"a a b\"\n", "a:2; b:1");
    check(Dialect::Lsf, "LSB_MCPU_HOSTS='a 2 b 1'\n", "a:2; b:1");
    check(
        Dialect::Sge,
        "a 2 all.q@a UNDEFINED\nb 1 all.q@b <NULL>\na 1 gpu.q@a 0,1\n",
        "a:3; b:1; host `a` is listed again after other hosts `a`",
    );
    check(Dialect::Horovod, "a:2,b:1\n", "a:2; b:1");
    check(Dialect::Ranges, "n[1-2]:2,b:1\n", "n1:2; n2:2; b:1");
    check(Dialect::Ranges, "n[01-02] slots=2\nb slots=1\n", "n01:2; n02:2; b:1");
    check(Dialect::Ranges, "a,b slots=3\n", "a:3; b:3");
    check(
        Dialect::Slurm,
        "SLURM_JOB_NODELIST=n[1-3]\nSLURM_TASKS_PER_NODE=2(x2),1\n",
        "n1:2; n2:2; n3:1",
    );
    check(
        Dialect::Slurm,
        "SLURM_JOB_ID=7\nSLURM_TASKS_PER_NODE=1(x2)\nSLURM_GPUS_PER_NODE=a100:8\nexport SLURM_JOB_NODELIST=\"n[1-2]\"\n",
        "n1:8; n2:8",
    );
    check(
        Dialect::Slurm,
        "SLURM_STEP_NODELIST=n1\nSLURM_JOB_NODELIST=n[1-2]\nSLURM_TASKS_PER_NODE=4\n",
        "n1:4",
    );
}

#[test]
fn ambiguous_text_is_read_as_deepspeed() {
    check(Dialect::DeepSpeed, "a slots=2\nb:1\n", "a:2; `b:1` is MPICH syntax `:1`");
    check(Dialect::DeepSpeed, "a slots=2\nb\n", "a:2; `slots=` is missing `b`");
    check(Dialect::DeepSpeed, "a\nb\n", "`slots=` is missing `a`; `slots=` is missing `b`");
    check(Dialect::DeepSpeed, "a slots = 2\n", "spaces around `=` are not allowed `slots = 2`");
    check(
        Dialect::DeepSpeed,
        "this is prose\nand more of it\n",
        "unexpected `is` `is prose`; unexpected `more` `more of it`",
    );
    check(
        Dialect::DeepSpeed,
        "a lots=2\nb slots = 1\nc:4\n",
        "unknown key `lots` `lots`; spaces around `=` are not allowed `slots = 1`; `c:4` is MPICH syntax `:4`",
    );
    check(
        Dialect::DeepSpeed,
        "a\nb 8\n",
        "`slots=` is missing `a`; `slots=` is missing before the number `8`",
    );
    check(Dialect::DeepSpeed, "", "no host in the file: the file is empty ``");
}

#[test]
fn mixed_dialects_are_both_named() {
    check(
        Dialect::Hydra,
        "a:2\nb:1\nc slots=4\n",
        "a:2; b:1; a DeepSpeed line in an MPICH hostfile `c slots=4`",
    );
    check(
        Dialect::OpenMpi,
        "a slots=2 max_slots=2\nb slots=1\nc:4\n",
        "a:2; b:1; `c:4` is MPICH syntax in an Open MPI hostfile `:4`",
    );
    check(Dialect::Lsf, "a 2\nb 2\nc:2\n", "a:2; b:2; an MPICH line in an LSF hostfile `c:2`");
}

#[test]
fn openmpi_slots_are_counted_as_in_open_mpi() {
    let named = |text, expect| check_named(Dialect::OpenMpi, text, expect);
    named("a\na\n", "a:2");
    named("a\nb\na\nb\n", "a:2; b:2; host `a` is listed again after other hosts `a`");
    named("a\nb slots=2\n", "b:2; `slots=` is missing `a`");
    named("a slots=2\na slots=1\n", "a:2; host `a` is listed twice `a`");
    named("a slots= 2\nb slots =1\n", "a:2; b:1");
    named("a slots=0\n", "slots must be a whole number of at least 1, not 0 `0`");
    named("a slots=4 max_slots=2\n", "a:4; `max_slots` is 2, below the 4 slots `2`");
    named("a slots=1 foo=3\n", "unknown key `foo` `foo`");
    named("a slots=1 slot=3\n", "unknown key `slot` `slot`");
    named("^a slots=1\n", "`^a`: `^` excludes a host of an allocation `^a`");
    named("+n1\n", "`+n1`: a relative host refers to an allocation `+n1`");
    named("a slots=1 slots=2\n", "`slots` given twice `slots`");
    named("// nothing\n", "no host in the file: all lines are comments ``");
}

#[test]
fn hydra_adds_slots_of_repeated_host() {
    let named = |text, expect| check_named(Dialect::Hydra, text, expect);
    named("a:1\nb:1\na:1\n", "a:2; b:1; host `a` is listed again after other hosts `a`");
    named("a\n", "a:1");
    named("a:0\n", "slots must be a whole number of at least 1, not 0 `0`");
    named("a:abc\n", "slots must be a whole number of at least 1, not `abc` `abc`");
    named("a:2 ifname=ib0\n", "a:2; `ifname=` is ignored `ifname=ib0`");
    named("a:2 user=ada\nb:1 user=-o\n", "a:2; user names may not begin with `-` `-o`");
    named("[::1]:2\n", "[::1]:2");
    named("a:1000\na:1000\n", "a:1000; slots of `a` add up to more than the limit 1024 `a`");
}

#[test]
fn slurm_counts_match_node_list() {
    let named = |text, expect| check_named(Dialect::Slurm, text, expect);
    named("n[1-2] 4\n", "n1:4; n2:4");
    named("n[1-2] 2(x3)\n", "the counts are for 3 nodes, and the list has 2 nodes `2(x3)`");
    named("n[1-2] 2(3)\n", "`2(3)` is not a count `2(3)`");
    named("n[1-2]\n", "the numbers of workers of the nodes are missing `n[1-2]`");
    named("n[1-3 2\n", "`[` is not closed `[`");
    named(
        "n[1-2] 2(x99999999999)\n",
        "the counts are for 65536 nodes, and the list has 2 nodes `2(x99999999999)`",
    );
}

#[test]
fn ranges_report_errors() {
    let named = |text, expect| check_named(Dialect::Ranges, text, expect);
    named("n[1-2]\n", "the number of slots of `n[1-2]` is missing `n[1-2]`");
    named("n[3-1]:2\n", "descending range: 1 is below 3 `3-1`");
    named("n[1-2],n2 slots=1\n", "n1:1; n2:1; host `n2` is listed twice `n2`");
    named("n[1-2] slot=1\n", "unknown key `slot` `slot`");
    named("a,,b:2\n", "b:2; the number of slots of `a` is missing `a`; a host name is missing ``");
}

#[test]
fn default_slots_apply_to_all_hosts() {
    let options =
        |dialect| ReadOptions { dialect, slots: SlotCount::new(8), ..ReadOptions::default() };
    let read = |dialect, text: &str| show(&read_any("hosts", text.as_bytes(), options(dialect)));
    assert_eq!(read(None, "a\nb slots=2\n"), "a:8; b:2");
    assert_eq!(read(Some(Dialect::Ranges), "n[1-2],c:1\n"), "n1:8; n2:8; c:1");
    assert_eq!(read(Some(Dialect::Slurm), "n[1-2]\n"), "n1:8; n2:8");
    assert_eq!(read(Some(Dialect::OpenMpi), "a\n"), "a:8");
}

#[test]
fn detected_dialect_names_its_evidence() {
    let reading = read_any("hosts", b"a slots=2\nb slots=2 max_slots=4\n", ReadOptions::default());
    let evidence = reading.show_evidence().expect("the dialect was detected");
    assert_eq!(evidence, "read as an Open MPI hostfile: `max_slots=4` on line 2");
}

fn hosts() -> impl Strategy<Value = Vec<(String, u32)>> {
    let name = prop_oneof![
        "[a-d][a-z]{0,3}[0-9]{0,3}(-ib)?",
        "[a-d]{1,2}[0-9]{2}",
        Just("[fe80::1]".to_owned()),
        Just("10.0.0.7".to_owned()),
    ];
    proptest::collection::vec((name, 1u32..=9), 1..12).prop_map(|mut hosts| {
        let mut seen = std::collections::HashSet::new();
        hosts.retain(|(name, _)| seen.insert(name.clone()));
        hosts
    })
}

/// Valid and invalid lines of all dialects, mixed.
fn any_text() -> impl Strategy<Value = Vec<u8>> {
    let word = proptest::sample::select(vec![
        "a",
        "b",
        "n[1-3]",
        "n[01-03",
        "a:2",
        "b:0",
        "a:2,b:3",
        "slots=2",
        "slots",
        "=",
        "max_slots=1",
        "//",
        "#",
        "SLURM_JOB_NODELIST=",
        "LSB_HOSTS=\"",
        "2(x2),1",
        "4",
        "q@a",
        "<NULL>",
        "^a",
        "+n1",
        "[::1]",
        "ada@b",
        "\n",
        "\n",
        " ",
        " ",
        "\r\n",
        "\u{a0}",
        "\u{0}",
        "\u{fffd}",
        "[9-1]",
        ",",
    ]);
    let piece = prop_oneof![
        9 => word.prop_map(|word| word.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..4),
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn written_hosts_are_read_back(hosts in hosts()) {
        let lines: Vec<String> =
            hosts.iter().map(|(name, slots)| format!("{name} slots={slots}\n")).collect();
        let text = lines.concat();
        let options = |dialect| ReadOptions { dialect: Some(dialect), ..ReadOptions::default() };
        let first = read_any("hosts", text.as_bytes(), options(Dialect::DeepSpeed));
        let key = |host: &Host| (host.name.to_string(), host.slots.get());
        let expect: Vec<_> = first.hostfile.hosts().iter().map(key).collect();
        prop_assert_eq!(expect.len(), hosts.len());
        for dialect in Dialect::ALL {
            let written = write(first.hostfile.hosts(), HostfileFormat::Dialect(dialect));
            let again = read_any("hosts", written.text.as_bytes(), options(dialect));
            let found: Vec<_> = again.hostfile.hosts().iter().map(key).collect();
            prop_assert_eq!(&found, &expect, "{}: {}", dialect, written.text);
            let errors = again.findings.count(Severity::Error);
            prop_assert_eq!(errors, 0, "{}: {}", dialect, show(&again));
        }
    }

    #[test]
    fn valid_deepspeed_file_is_read_as_deepspeed(bytes in any_text()) {
        let (hostfile, findings) = crate::pool::read("hosts", &bytes);
        let reading = read_any("hosts", &bytes, ReadOptions::default());
        if !findings.has_errors() {
            let key = |host: &Host| (host.name.clone(), host.slots);
            let expect: Vec<_> = hostfile.hosts().iter().map(key).collect();
            let found: Vec<_> = reading.hostfile.hosts().iter().map(key).collect();
            prop_assert_eq!(found, expect);
        }
    }

    #[test]
    fn any_bytes_give_usable_hosts_in_any_dialect(bytes in any_text()) {
        for dialect in [None].into_iter().chain(Dialect::ALL.map(Some)) {
            let reading = read_any("hosts", &bytes, ReadOptions { dialect, ..ReadOptions::default() });
            let hosts = reading.hostfile.hosts();
            let names: std::collections::HashSet<_> = hosts.iter().map(|host| &host.name).collect();
            prop_assert_eq!(names.len(), hosts.len());
            prop_assert!(hosts.iter().all(|host| host.slots.get() <= SLOTS_MAX));
            prop_assert!(!hosts.is_empty() || reading.findings.has_errors(), "{:?}", bytes);
            let text = &reading.findings.source.text;
            for span in reading.findings.diagnostics.iter().filter_map(|found| found.span) {
                prop_assert!(text.get(span.start..span.end).is_some());
            }
        }
    }
}
