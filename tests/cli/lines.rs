//! `remuda run` parses a line as DeepSpeed's launcher does, with the rules of Python's argparse. Every
//! case that is not marked as remuda's own was tried with argparse.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use remuda::cli::line::{CommandLine, DEEPSPEED_FLAGS, RefusedLine};
use remuda::cli::run::{ParsedRun, RunArgs, parse};

fn read(words: &[&str]) -> Result<ParsedRun, RefusedLine> {
    parse("deepspeed", words.iter().map(OsString::from).collect())
}

/// `num_gpus=2 quiet | script arguments`, `help`, or the code of the refusal.
fn outcome(words: &[&str]) -> String {
    match read(words) {
        Ok(ParsedRun::Run(args, typed)) => show(&args, &typed),
        Ok(ParsedRun::Text(_)) => "help".to_owned(),
        Err(refused) => refused.findings.diagnostics[0].code.to_owned(),
    }
}

fn show(args: &RunArgs, typed: &CommandLine) -> String {
    let option = |given: &remuda::cli::line::GivenOption| match &given.value {
        Some((value, _)) => format!("{}={} ", given.flag, value.display()),
        None => format!("{} ", given.flag),
    };
    let options: String = typed.options.iter().map(option).collect();
    let words: Vec<_> = args.program.script_and_args.iter().map(|word| word.display()).collect();
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    format!("{options}| {}", words.join(" "))
}

/// Words are separated by blanks; `␣` is a blank in a word, `''` an empty word.
#[track_caller]
fn check(line: &str, expect: &str) {
    let words: Vec<String> = line
        .split(' ')
        .filter(|word| !word.is_empty())
        .map(|word| word.replace('␣', " ").replace("''", ""))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(outcome(&words), expect, "for `{line}`");
}

#[test]
fn options_end_at_the_script() {
    check("x.py", "| x.py");
    check("--num_gpus 2 x.py --num_gpus 3 -H foo", "num_gpus=2 | x.py --num_gpus 3 -H foo");
    check("--module pkg.mod --arg x", "module | pkg.mod --arg x");
    check("x.py -q --help -h --bogus -- -1", "| x.py -q --help -h --bogus -- -1");
    check("- x", "| - x");
    check("'' x", "|  x");
    check("--bogus␣b x.py", "| --bogus b x.py");
    check("-x␣b x.py", "| -x b x.py");
}

#[test]
fn values_are_attached_or_follow() {
    check("--hostfile=f x.py", "hostfile=f | x.py");
    check("--hostfile f x.py", "hostfile=f | x.py");
    check("-Hf -ia:0 x.py", "hostfile=f include=a:0 | x.py");
    check("-H=f x.py", "hostfile=f | x.py");
    check("-e= x.py", "exclude= | x.py");
    check("-i '' x.py", "include= | x.py");
    check("--include= x.py", "include= | x.py");
    check("--include=a=b x.py", "include=a=b | x.py");
    check("-qH f x.py", "quiet hostfile=f | x.py");
    check("-qHf x.py", "quiet hostfile=f | x.py");
    check("-qi a x.py", "quiet include=a | x.py");
    check("-qqq x.py", "quiet quiet quiet | x.py");
    check("-Hq x.py", "hostfile=q | x.py");
    check("--num_gpus 2 --num_gpus 3 x.py", "num_gpus=2 num_gpus=3 | x.py");
}

#[test]
fn last_value_is_used() {
    let Ok(ParsedRun::Run(args, _)) = read(&["--num_gpus", "2", "-n", "3", "-Ha", "-H", "b", "x"])
    else {
        panic!("a job");
    };
    assert_eq!(args.cluster.num_gpus.as_deref(), Some("3"));
    assert_eq!(args.cluster.hostfile.as_deref(), Some("b".as_ref()));
}

#[test]
fn unique_abbreviations_are_accepted() {
    check("--host f x.py", "hostfile=f | x.py");
    check("--num_g 2 x.py", "num_gpus=2 | x.py");
    check("--num_a=2 x.py", "num_gpus=2 | x.py");
    check("--launcher_arg ssh x.py", "launcher_args=ssh | x.py");
    check("--ssh 22 x.py", "ssh_port=22 | x.py");
    check("--mod x", "module | x");
    check("--no_ssh x.py", "no_ssh | x.py");
    check("--no_ssh_ x.py", "no_ssh_check | x.py");
    check("--launcher local x.py", "launcher=local | x.py");
    check("--bind_cores x.py", "bind_cores_to_rank | x.py");
    check("--ve v x.py", "venv_script=v | x.py");
    check("--log_l debug x.py", "log_level=debug | x.py");
    check("--en d --sav --auto run x.py", "enable_each_rank_log=d save_pid autotuning=run | x.py");
    let several =
        ["--num", "--num_", "--launch", "--m", "--no_s", "--bind", "--bind_core", "--h", "--e"];
    for start in several {
        check(&format!("{start} x.py"), "C002");
    }
    check("--num=3 x.py", "C002");
    check("--=3 x.py", "C001");
}

#[test]
fn value_must_not_look_like_an_option() {
    check("--launcher_args -x x.py", "C003");
    check("--launcher_args -x␣y x.py", "launcher_args=-x y | x.py");
    check("--launcher_args=-x x.py", "launcher_args=-x | x.py");
    check("--launcher_args -q␣y x.py", "C003");
    check("--launcher_args --module=a␣b x.py", "C003");
    check("--launcher_args --modulo=a␣b x.py", "launcher_args=--modulo=a b | x.py");
    check("--exclude -1 x.py", "exclude=-1 | x.py");
    check("--exclude -1.5 x.py", "exclude=-1.5 | x.py");
    check("--exclude -1a x.py", "C003");
    check("--hostfile -- x.py", "C003");
    check("--hostfile - x.py", "hostfile=- | x.py");
    check("--hostfile", "C003");
    check("--num_nodes -1 x.py", "num_nodes=-1 | x.py");
    // Options of remuda are values where DeepSpeed expects a value.
    check("--launcher_args -n␣4 x.py", "launcher_args=-n 4 | x.py");
    check("--launcher_args --timeout=5␣x x.py", "launcher_args=--timeout=5 x | x.py");
}

#[test]
fn negative_numbers_are_not_options() {
    check("-1 x.py", "| -1 x.py");
    check("-.5", "| -.5");
    check("-1. x.py", "C001");
    check("-1e3 x.py", "C001");
}

#[test]
fn switch_with_a_value_is_refused() {
    check("--quiet=1 x.py", "C004");
    check("--no_ssh= x.py", "C004");
    check("-q= x.py", "C004");
    check("-qx x.py", "C004");
}

#[test]
fn help_takes_precedence_over_errors() {
    check("-h", "help");
    check("--help", "help");
    check("-qh", "help");
    check("--bogus --help", "help");
    check("--num_gpus 2 -h --bogus", "help");
    check("-hq x.py", "help");
    check("--help=1", "C004");
}

#[test]
fn words_that_continue_h_are_unknown_options() {
    check("-hostfile hosts x.py", "C001");
    check("-host n1:2 x.py", "C001");
    check("-n 2 -hosts n1 x.py", "C001");
    check("-qhostfile x.py", "C001");
    check("-ho --help", "help");
}

#[test]
fn unknown_options_are_refused() {
    check("--bogus x.py", "C001");
    check("--bogus 3 x.py", "C001");
    check("-x x.py", "C001");
    check("", "C005");
    check("--num_gpus 2", "C005");
    check("--", "C005");
    check("--elastic_training x.py", "C008");
    check("--min_elastic_nodes 1 x.py", "C008");
    check("--max_elastic_nodes=1 x.py", "C008");
}

#[test]
fn integers_have_the_syntax_of_python() {
    for good in ["1_0", "+1", "␣1␣", "007", "-1"] {
        check(
            &format!("--node_rank={good} x.py"),
            &format!("node_rank={} | x.py", good.replace('␣', " ")),
        );
        check(
            &format!("--num_gpus={good} x.py"),
            &format!("num_gpus={} | x.py", good.replace('␣', " ")),
        );
    }
    for bad in ["0x1", "1.0", "''", "a", "1__0", "1_", "1␣0"] {
        check(&format!("--node_rank={bad} x.py"), "C006");
        check(&format!("--num_nodes={bad} x.py"), "C006");
    }
    // Unlike DeepSpeed: ports have a range.
    check("--master_port 99999999999999999999999 x.py", "C006");
    check("--master_port 0 x.py", "C006");
    check("--master_port 65535 x.py", "master_port=65535 | x.py");
}

#[test]
fn choices_are_case_sensitive_except_launchers() {
    check("--log_level INFO x.py", "C006");
    check("--log_level critical x.py", "log_level=critical | x.py");
    check("--autotuning walk x.py", "C006");
    check("--launcher PDSH x.py", "launcher=PDSH | x.py");
    check("--launcher foo x.py", "C006");
}

/// On purpose: the two dashes are passed to the script; DeepSpeed removes them once for each time
/// that it parses.
#[test]
fn two_dashes_after_the_script_belong_to_the_script() {
    check("-- x.py", "| x.py");
    check("-- --num_gpus x.py", "| --num_gpus x.py");
    check("x.py -- z", "| x.py -- z");
    check("-- x.py -- z", "| x.py -- z");
    check("x.py a -- z", "| x.py a -- z");
    check("x.py --", "| x.py --");
    check("-q -- x.py -- -- z", "quiet | x.py -- -- z");
    check("-- --", "| --");
}

/// Unlike in DeepSpeed, `-` and `_` are equivalent.
#[test]
fn dashes_and_underscores_are_equivalent() {
    check("--num-gpus 2 x.py", "num_gpus=2 | x.py");
    check("--num-g=2 --log-l debug x.py", "num_gpus=2 log_level=debug | x.py");
    check("--no-ssh-check --dry_run x.py", "no_ssh_check dry-run | x.py");
    check("-n 2 -qn3 x.py", "num_gpus=2 quiet num_gpus=3 | x.py");
}

#[test]
fn own_options_cannot_be_abbreviated() {
    check("--timeout 5 x.py", "timeout=5 | x.py");
    check("--timeou 5 x.py", "C001");
    check("--dry-ru x.py", "C001");
    check("--js x.py", "C001");
}

/// Every beginning of every option of DeepSpeed has the same meaning as there.
#[test]
fn own_options_change_no_abbreviation() {
    let mut beginnings: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for flag in DEEPSPEED_FLAGS {
        for end in 1..=flag.len() {
            beginnings.entry(&flag[..end]).or_default().push(flag);
        }
    }
    for (beginning, flags) in beginnings {
        let exact = flags.iter().find(|flag| **flag == beginning);
        let expect = match (&flags[..], exact) {
            ([only], _) | (_, Some(only)) => {
                Some(if *only == "num_accelerators" { "num_gpus" } else { only })
            }
            _ => None,
        };
        let found = resolve(beginning);
        assert_eq!(found.as_deref(), expect, "for `--{beginning}`");
    }
}

/// The option of an abbreviation, whether or not it takes a value.
fn resolve(beginning: &str) -> Option<String> {
    let word = format!("--{beginning}");
    let values: [&[&str]; 3] = [&[], &["1"], &["debug"]];
    let mut seen = None;
    for value in values.into_iter().chain([["run"].as_slice(), &["local"]]) {
        match read(&[&[&*word], value, &["x.py"]].concat()) {
            Ok(ParsedRun::Text(_)) => return Some("help".to_owned()),
            Ok(ParsedRun::Run(_, typed)) => seen = Some(typed.options[0].flag.clone()),
            Err(refused) if refused.findings.diagnostics[0].code == "C002" => return None,
            Err(_) => {}
        }
    }
    seen
}

#[test]
fn words_of_the_script_are_bytes() {
    let odd = [&b"\xff\xfe"[..], b"a\nb", b"", b" ", b"$HOME"];
    let words: Vec<OsString> = odd.iter().map(|word| OsString::from_vec(word.to_vec())).collect();
    let line = [&[OsString::from("x.py")], &words[..]].concat();
    let Ok(ParsedRun::Run(args, _)) = parse("remuda run", line) else { panic!("a job") };
    assert_eq!(args.program.script_and_args[1..], words);
}
