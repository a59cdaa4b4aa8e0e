//! `--include`, `--exclude`, `--num_nodes` and `--num_gpus`: the selection of DeepSpeed 0.19.8, and
//! the messages for invalid values.

use proptest::prelude::*;
use remuda::base::{HostName, Severity, Slot};
use remuda::pool::{self, Filter, HostSource, Pool, Selection, SelectorArgs, SlotFilter, select};
use remuda::report::diagnostic::{Paint, show_all};

/// Three hosts with 4, 4 and 2 slots.
fn three_hosts() -> Pool {
    pool_of("worker-0 slots=4\nworker-1 slots=4\nworker-2 slots=2\n")
}

fn pool_of(hostfile: &str) -> Pool {
    let (hostfile, findings) = pool::read("hosts", hostfile.as_bytes());
    assert_eq!(findings.diagnostics, []);
    hostfile.pool()
}

fn hosts() -> HostSource {
    HostSource::Hostfile("hosts".to_owned())
}

fn include(text: &str) -> SelectorArgs {
    SelectorArgs { include: Some(text.to_owned()), ..SelectorArgs::default() }
}

fn exclude(text: &str) -> SelectorArgs {
    SelectorArgs { exclude: Some(text.to_owned()), ..SelectorArgs::default() }
}

fn counts(nodes: &str, gpus: &str) -> SelectorArgs {
    SelectorArgs {
        num_nodes: Some(nodes.to_owned()),
        num_gpus: Some(gpus.to_owned()),
        ..SelectorArgs::default()
    }
}

/// Formats the selected pool as `w0 0,1; w1 2` and the warnings, or the errors: `CODE at column: message`.
fn outcome(pool: &Pool, args: &SelectorArgs) -> String {
    let (mut out, findings) = match select(pool, &hosts(), args) {
        Ok(selected) => (show(&selected.pool), selected.findings),
        Err(findings) => (Vec::new(), findings),
    };
    for diagnostic in findings.iter().flat_map(|findings| &findings.diagnostics) {
        let column = diagnostic.span.map_or(0, |span| span.start + 1);
        out.push(format!("{} at {column}: {}", diagnostic.code, diagnostic.message));
    }
    out.join("; ")
}

fn show(pool: &Pool) -> Vec<String> {
    let node = |(host, slots): &(HostName, Vec<Slot>)| {
        let slots: Vec<String> = slots.iter().map(Slot::to_string).collect();
        format!("{} {}", host.as_str().replace("worker-", "w"), slots.join(","))
    };
    pool.nodes().iter().map(node).collect()
}

#[track_caller]
fn check(args: &SelectorArgs, expect: &str) {
    assert_eq!(outcome(&three_hosts(), args), expect, "for {args:?}");
}

#[test]
fn no_filter_selects_everything() {
    check(&SelectorArgs::default(), "w0 0,1,2,3; w1 0,1,2,3; w2 0,1");
    check(&include(""), "w0 0,1,2,3; w1 0,1,2,3; w2 0,1");
}

#[test]
fn include_selects_as_deepspeed() {
    let check = |text, expect| check(&include(text), expect);
    check("worker-1", "w1 0,1,2,3");
    check("worker-1:0,2", "w1 0,2");
    check("worker-0@worker-1:0,2", "w0 0,1,2,3; w1 0,2");
    check("worker-1@worker-0", "w0 0,1,2,3; w1 0,1,2,3");
    check("worker-1:3,1,2", "w1 1,2,3");
    check("worker-1:1,1", "w1 1");
    check("worker-1:1@worker-1:0,1", "w1 0,1");
    check("worker-1: 1, 2", "w1 1,2");
    check("worker-1:1 ,2", "w1 1,2");
    check("worker-1:01", "w1 1");
    check("worker-1:+1", "w1 1");
}

#[test]
fn exclude_removes_as_deepspeed() {
    let check = |text, expect| check(&exclude(text), expect);
    check("worker-1", "w0 0,1,2,3; w2 0,1");
    check("worker-1:0", "w0 0,1,2,3; w1 1,2,3; w2 0,1");
    check("worker-1:0,1,2,3", "w0 0,1,2,3; w2 0,1");
    check("worker-0:0,1@worker-1:3", "w0 2,3; w1 0,1,2; w2 0,1");
    check("worker-1:1,1", "w0 0,1,2,3; w1 0,2,3; w2 0,1");
    check("worker-1:1@worker-1:1", "w0 0,1,2,3; w1 0,2,3; w2 0,1");
}

#[test]
fn whole_host_beside_its_slots_has_no_effect() {
    let warning = "`worker-1` is named as a whole and by slots: only the slots are used";
    check(&include("worker-1@worker-1:2"), &format!("w1 2; S011 at 1: {warning}"));
    check(&include("worker-1:2@worker-1"), &format!("w1 2; S011 at 12: {warning}"));
    let rest = "w0 0,1,2,3; w1 0,2,3; w2 0,1";
    check(&exclude("worker-1@worker-1:1"), &format!("{rest}; S011 at 1: {warning}"));
}

#[test]
fn suggested_selector_is_valid() {
    let text = "h1 slots=4\nh2 slots=4\nh3 slots=4\n";
    let pool = pool_of(text);
    for (typed, expect) in [
        ("h1,h2", "h1@h2"),
        ("h1;h2", "h1@h2"),
        ("h1, h2", "h1@h2"),
        ("h1 h2:0", "h1@h2:0"),
        ("h1:0;h2:1", "h1:0@h2:1"),
        ("h1:0,1,h2:0,1", "h1:0,1@h2:0,1"),
        ("h1:0,h2:1;h3:2", "h1:0@h2:1@h3:2"),
        ("h1:", "h1"),
        ("h1:0-2", "h1:0,1,2"),
    ] {
        let findings = select(&pool, &hosts(), &include(typed)).expect_err("not valid");
        let [problem] = &findings[0].diagnostics[..] else { panic!("{findings:?}") };
        let change = problem.suggestion.as_ref().expect("a suggestion");
        let mut changed = typed.to_owned();
        changed.replace_range(change.span.start..change.span.end, &change.replacement);
        assert_eq!(changed, expect, "for {typed}");
        assert!(select(&pool, &hosts(), &include(expect)).is_ok(), "for {typed}");
    }
    for typed in ["h1,h9", "h1:0:1", "h1:x:1"] {
        let findings = select(&pool, &hosts(), &include(typed)).expect_err("not valid");
        assert_eq!(findings[0].diagnostics[0].suggestion, None, "for {typed}");
    }
}

#[test]
fn host_names_match_hostfile_exactly() {
    for args in [include, exclude] {
        let check = |text, expect| check(&args(text), expect);
        check("worker-9", "S001 at 1: host `worker-9` is not in hostfile `hosts`");
        check("worker-9:0", "S001 at 1: host `worker-9` is not in hostfile `hosts`");
        check(" worker-1", "S001 at 1: host ` worker-1` is not in hostfile `hosts`");
        check("worker-1 ", "S001 at 1: host `worker-1 ` is not in hostfile `hosts`");
        check("WORKER-1", "S001 at 1: host `WORKER-1` is not in hostfile `hosts`");
        check("worker-*", "S001 at 1: host `worker-*` is not in hostfile `hosts`");
        check(
            "worker-1,worker-2",
            "S001 at 1: host `worker-1,worker-2` is not in hostfile `hosts`",
        );
        check(
            "worker-1;worker-2",
            "S001 at 1: host `worker-1;worker-2` is not in hostfile `hosts`",
        );
        check("user@worker-1", "S001 at 1: host `user` is not in hostfile `hosts`");
        check(" ", "S001 at 1: host ` ` is not in hostfile `hosts`");
        check("worker-1@worker-0:1@5", "S001 at 21: host `5` is not in hostfile `hosts`");
        check(
            "worker-1 @ worker-2",
            "S001 at 1: host `worker-1 ` is not in hostfile `hosts`; S001 at 11: host ` worker-2` is not in hostfile `hosts`",
        );
    }
}

#[test]
fn slots_must_exist_on_host() {
    for args in [include, exclude] {
        let check = |text, expect| check(&args(text), expect);
        check("worker-2:2", "S002 at 10: `worker-2` has no slot 2");
        check("worker-2:-1", "S002 at 10: slot numbers are at least 0");
        check("worker-1:1_0", "S002 at 10: `worker-1` has no slot 10");
        check("worker-1:", "S003 at 9: empty slot list after `:`");
        check("worker-1:0,", "S003 at 12: a slot number is missing beside a comma");
        check("worker-1:a", "S003 at 10: `a` is not a slot number");
        check("worker-1:0-3", "S003 at 10: `0-3` is not a slot number");
        check("worker-1:1.0", "S003 at 10: `1.0` is not a slot number");
        check(
            "worker-1:[0,1]",
            "S003 at 10: `[0` is not a slot number; S003 at 13: `1]` is not a slot number",
        );
        check("worker-1:0:1", "S005 at 11: second `:`");
    }
}

#[test]
fn at_sign_needs_host_on_both_sides() {
    check(&include("worker-1@"), "S004 at 10: empty host at column 10");
    check(&include("@worker-1"), "S004 at 1: empty host at column 1");
    check(&include("worker-0@@worker-1"), "S004 at 10: empty host at column 10");
    check(&include(":0"), "S004 at 1: empty host at column 1");
    check(&include("@"), "S004 at 1: empty host at column 1; S004 at 2: empty host at column 2");
}

#[test]
fn selector_reports_all_problems() {
    check(
        &include("worker-9@worker-2:7,x@worker-1:0"),
        "S001 at 1: host `worker-9` is not in hostfile `hosts`; S003 at 21: `x` is not a slot number",
    );
}

#[test]
fn ipv6_host_needs_brackets() {
    let pool = pool_of("[fe80::1] slots=2\nw slots=1\n");
    assert_eq!(outcome(&pool, &include("[fe80::1]:1")), "[fe80::1] 1");
    assert_eq!(outcome(&pool, &include("[fe80::1]@w")), "[fe80::1] 0,1; w 0");
    assert_eq!(outcome(&pool, &include("fe80::1:0,1")), "S005 at 6: second `:`");
}

#[test]
fn empty_selection_is_an_error() {
    let nothing = "the selection leaves nothing to run on";
    check(&exclude("worker-0@worker-1@worker-2"), &format!("S007 at 1: {nothing}"));
}

#[test]
fn conflicting_flags_are_refused() {
    let both = SelectorArgs { exclude: Some("worker-1".to_owned()), ..include("worker-0") };
    check(&both, "S006 at 20: `--include` and `--exclude` cannot be combined");
    let count = SelectorArgs { num_gpus: Some("2".to_owned()), ..include("worker-0") };
    check(&count, "S008 at 20: --include and --num_gpus cannot be combined");
    let zero = SelectorArgs { num_nodes: Some("0".to_owned()), ..exclude("worker-0") };
    check(&zero, "S008 at 20: --exclude and --num_nodes cannot be combined");
}

#[test]
fn counts_select_first_hosts_and_slots() {
    check(&counts("2", ""), "w0 0,1,2,3; w1 0,1,2,3");
    check(&counts("", "2"), "w0 0,1; w1 0,1; w2 0,1");
    check(&counts("2", "3"), "w0 0,1,2; w1 0,1,2");
    check(&counts(" 1 ", "+1"), "w0 0");
    check(&counts("-1", "-1"), "w0 0,1,2,3; w1 0,1,2,3; w2 0,1");
}

#[test]
fn counts_out_of_range_name_the_range() {
    check(&counts("9", ""), "S009 at 1: --num_nodes 9: hostfile `hosts` has 3 hosts");
    check(&counts("0", ""), "S009 at 1: --num_nodes 0: must be at least 1");
    check(&counts("-5", ""), "S009 at 1: --num_nodes -5: must be at least 1");
    check(&counts("1.5", ""), "S009 at 1: --num_nodes 1.5: not a whole number");
    check(&counts("2:4", ""), "S009 at 1: --num_nodes takes one number, not MIN:MAX");
    check(&counts("4:2", ""), "S009 at 1: --num_nodes 4:2: MIN is above MAX");
    check(&counts("", "3"), "S010 at 1: --num_gpus 3: `worker-2` has 2 slots");
    check(
        &counts("", "16"),
        "S010 at 1: --num_gpus 16: 3 of 3 hosts have too few slots; the first is `worker-0` with 4",
    );
    check(
        &counts("0", "x"),
        "S009 at 1: --num_nodes 0: must be at least 1; S010 at 1: --num_gpus x: not a whole number",
    );
}

#[test]
fn device_order_is_kept_unless_slots_are_named() {
    let host = HostName::parse("h").expect("a host name");
    let pool = Pool::single(host, [3, 1, 2].map(Slot));
    assert_eq!(outcome(&pool, &include("h")), "h 3,1,2");
    assert_eq!(outcome(&pool, &include("h:2,3")), "h 2,3");
    assert_eq!(outcome(&pool, &exclude("h:1")), "h 3,2");
    assert_eq!(outcome(&pool, &include("h:0")), "S002 at 3: `h` has no slot 0");
}

#[track_caller]
fn check_screen(args: &SelectorArgs, expect: &str) {
    let findings = select(&three_hosts(), &hosts(), args).expect_err("the selection is invalid");
    assert_eq!(show_all(&findings, Paint::Plain).trim_end(), expect.trim());
}

#[test]
fn selector_with_user_is_explained() {
    let (hostfile, _) = pool::read("hosts", b"ada@worker-0 slots=2\nworker-1 slots=2\n");
    let findings =
        select(&hostfile.pool(), &hosts(), &include("ada@worker-0")).expect_err("no such host");
    let expect = "
error[S001]: host `ada` is not in hostfile `hosts`
 --> --include:1:1
  |
1 | ada@worker-0
  | ^^^
  |
help: this is a user of the hostfile; name the host without its user
--include: 1 error";
    assert_eq!(show_all(&findings, Paint::Plain).trim_end(), expect.trim());
}

#[test]
fn screen_marks_position_and_suggests_fix() {
    check_screen(
        &include("worker-0@wroker-1:0"),
        "
error[S001]: host `wroker-1` is not in hostfile `hosts`
 --> --include:1:10
  |
1 | worker-0@wroker-1:0
  |          ^^^^^^^^
  |
help: did you mean `worker-1`?
  |
1 - worker-0@wroker-1:0
1 + worker-0@worker-1:0
  |
--include: 1 error",
    );
    check_screen(
        &include("worker-0@worker-1:0,9"),
        "
error[S002]: `worker-1` has no slot 9
 --> --include:1:21
  |
1 | worker-0@worker-1:0,9
  |          --------   ^ slots of worker-1 are 0-3
  |
help: slots are numbered from 0: `slots=4` has 0, 1, 2 and 3
--include: 1 error",
    );
    check_screen(
        &include("worker-0:0-2"),
        "
error[S003]: `0-2` is not a slot number
 --> --include:1:10
  |
1 | worker-0:0-2
  |          ^^^ ranges are not supported
  |
help: write `0,1,2`
  |
1 - worker-0:0-2
1 + worker-0:0,1,2
  |
--include: 1 error",
    );
    check_screen(
        &SelectorArgs { exclude: Some("worker-1".to_owned()), ..include("worker-0") },
        "
error[S006]: `--include` and `--exclude` cannot be combined
 --> command line:1:20
  |
1 | --include worker-0 --exclude worker-1
  | ---------          ^^^^^^^^^
  |
help: keep one of the two
command line: 1 error",
    );
}

fn some_pool() -> impl Strategy<Value = Pool> {
    proptest::collection::vec(1u32..9, 1..6).prop_map(|slots| {
        let lines =
            slots.iter().enumerate().map(|(host, slots)| format!("h{host} slots={slots}\n"));
        pool_of(&lines.collect::<String>())
    })
}

/// A pool and a selector that names each host, or some of its slots, or omits it.
fn pool_and_selector() -> impl Strategy<Value = (Pool, String)> {
    some_pool().prop_flat_map(|pool| {
        let choices: Vec<_> = pool
            .nodes()
            .iter()
            .map(|(_, slots)| (0..3u8, 0..slots.len(), 0..slots.len()))
            .collect();
        (Just(pool), choices).prop_map(|(pool, choices)| {
            let spec = |(host, (kind, first, second)): (&HostName, (u8, usize, usize))| match kind {
                0 => None,
                1 => Some(host.to_string()),
                _ => Some(format!("{host}:{first},{second}")),
            };
            let hosts = pool.nodes().iter().map(|(host, _)| host);
            let specs: Vec<String> = hosts.zip(choices).filter_map(spec).rev().collect();
            let selector = specs.join("@");
            (pool, selector)
        })
    })
}

fn slots_of(pool: &Pool) -> Vec<(HostName, Slot)> {
    let pairs = |(host, slots): &(HostName, Vec<Slot>)| {
        slots.iter().map(|slot| (host.clone(), *slot)).collect::<Vec<_>>()
    };
    pool.nodes().iter().flat_map(pairs).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn include_and_exclude_partition_the_pool((pool, selector) in pool_and_selector()) {
        prop_assume!(!selector.is_empty());
        let (included, _) = Selection::parse(&pool, &hosts(), &include(&selector)).expect("a good selector");
        let (excluded, _) = Selection::parse(&pool, &hosts(), &exclude(&selector)).expect("a good selector");
        let (kept, rest) = (slots_of(&included.apply(&pool)), slots_of(&excluded.apply(&pool)));
        let all = slots_of(&pool);
        let partition: Vec<_> =
            all.iter().filter(|pair| kept.contains(pair) != rest.contains(pair)).cloned().collect();
        prop_assert_eq!(partition.len(), all.len());
        // Both keep the order of the hostfile.
        prop_assert_eq!(&all.iter().filter(|pair| kept.contains(pair)).cloned().collect::<Vec<_>>(), &kept);
        prop_assert_eq!(&all.iter().filter(|pair| rest.contains(pair)).cloned().collect::<Vec<_>>(), &rest);
    }

    #[test]
    fn selection_is_subset_of_pool(pool in some_pool(), text in "[h0-9:,@ \\-\\[\\]x]{0,16}") {
        for args in [include(&text), exclude(&text)] {
            match select(&pool, &hosts(), &args) {
                Ok(selected) => {
                    let all = slots_of(&pool);
                    let kept = slots_of(&selected.pool);
                    prop_assert!(!kept.is_empty() && kept.iter().all(|pair| all.contains(pair)));
                }
                Err(findings) => {
                    prop_assert!(findings.iter().any(|one| 0 < one.count(Severity::Error)));
                    prop_assert!(!show_all(&findings, Paint::Plain).is_empty());
                }
            }
        }
    }

    #[test]
    fn filter_built_in_code_selects_the_same(pool in some_pool()) {
        let (host, slots) = pool.nodes()[0].clone();
        let mut filter = Filter::default();
        filter.insert(host.clone(), SlotFilter::Slots(slots[..1].iter().copied().collect()));
        let by_text = select(&pool, &hosts(), &include(&format!("{host}:{}", slots[0]))).expect("one slot");
        prop_assert_eq!(Selection::Include(filter).apply(&pool), by_text.pool);
    }
}
