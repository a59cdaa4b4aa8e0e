//! What other projects use in their CI: the step of `action.yml`, and the hooks of pre-commit.

use std::fs;
use std::path::Path;

use regex::Regex;

use crate::support::launch::{REMUDA, command};
use crate::support::scratch::Scratch;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Runs the step of the action as GitHub runs it; returns its output, status, and what it hands on.
fn step(directory: &Path, variables: &[(&str, &str)]) -> (String, i32, String) {
    let action = fs::read_to_string(Path::new(ROOT).join("action.yml")).expect("a file");
    let line = action.lines().find_map(|line| line.trim().strip_prefix("run: ")).expect("a step");
    let handed_on = directory.join("outputs");
    let mut bash = command("bash");
    bash.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", line]).current_dir(directory);
    bash.env("GITHUB_ACTION_PATH", ROOT).env("GITHUB_OUTPUT", &handed_on).env("REMUDA", REMUDA);
    let done = bash.envs(variables.iter().copied()).output().expect("bash starts");
    assert!(done.stderr.is_empty(), "{done:?}");
    let text = String::from_utf8(done.stdout).expect("text");
    let status = done.status.code().expect("a status");
    (text, status, fs::read_to_string(handed_on).unwrap_or_default())
}

#[test]
fn step_of_the_action_writes_annotations_and_sarif() {
    let scratch = Scratch::new("action", "findings");
    let directory = scratch.path("");
    fs::create_dir_all(scratch.path("a b/c")).expect("a folder");
    scratch.write("hostfile", "n1 slots=8\nn1 slots=4\n");
    scratch.write("a b/c/x.hostfile", "n1 slot=1\n");
    scratch.write("ds_config.json", "{\"train_batch_size\": 16}\n");
    let files = [("HOSTFILES", "hostfile\n  **/*.hostfile \n\n"), ("CONFIGS", "*.json")];
    let (text, status, handed_on) = step(&directory, &files);
    assert_eq!(
        text,
        "::error file=hostfile,line=2,col=1,endColumn=3,title=H003::host `n1` is listed twice%0Ahelp: name each \
         host once\n\
         ::error file=a b/c/x.hostfile,line=1,col=4,endColumn=8,title=H001::unknown key `slot`%0Ahelp: did you \
         mean `slots`?\n"
    );
    assert_eq!((status, &*handed_on), (1, "sarif=remuda-sarif\n"));
    for (name, results) in [("hostfile", 2), ("config", 0)] {
        let text =
            fs::read_to_string(directory.join("remuda-sarif").join(name).with_extension("sarif"));
        let found: serde_json::Value = serde_json::from_str(&text.expect("a file")).expect("JSON");
        assert_eq!(found["runs"][0]["results"].as_array().map(Vec::len), Some(results));
    }
}

#[test]
fn step_of_the_action_reports_what_it_cannot_check() {
    #[track_caller]
    fn check(directory: &Path, variable: (&str, &str), expect: &str, status: i32) {
        let (text, found, _) = step(directory, &[variable]);
        assert_eq!((&*text, found), (expect, status));
    }
    let scratch = Scratch::new("action", "refused");
    let directory = scratch.path("");
    check(&directory, ("CONFIGS", ""), "", 0);
    check(&directory, ("CONFIGS", "no/*.json"), "::error::no file matches `no/*.json`\n", 2);
    let missing = "::error file=hosts,title=H010::hostfile `hosts` does not exist";
    let (text, status, _) = step(&directory, &[("HOSTFILES", "hosts")]);
    assert!(text.starts_with(missing) && status == 2, "{text}");
    let absent = "::error::there is no `no-remuda` in PATH; install it in a step before this one\n";
    check(&directory, ("REMUDA", "no-remuda"), absent, 127);
}

/// Values of a key in the manifest of the hooks.
fn values(manifest: &str, key: &str) -> Vec<String> {
    let lines = manifest.lines().map(|line| line.trim_start_matches("- ").trim());
    lines.filter_map(|line| line.strip_prefix(key)).map(str::to_owned).collect()
}

#[test]
fn hooks_select_files_by_their_usual_names() {
    let manifest = fs::read_to_string(Path::new(ROOT).join(".pre-commit-hooks.yaml"));
    let manifest = manifest.expect("a file");
    assert_eq!(values(&manifest, "id: "), ["remuda-hostfile-check", "remuda-config-check"]);
    let files: Vec<Regex> = values(&manifest, "files: ")
        .iter()
        .map(|pattern| Regex::new(pattern).expect("a pattern"))
        .collect();
    for (name, hook) in [
        ("hostfile", Some(0)),
        ("conf/hostfile", Some(0)),
        ("conf/cluster.hostfile", Some(0)),
        ("my_hostfile.txt", Some(0)),
        ("hostfile.py", None),
        ("localhostfile", None),
        ("ds_config.json", Some(1)),
        ("conf/deepspeed_zero3.json", Some(1)),
        ("accelerate_config.yaml", Some(1)),
        ("remuda.toml", Some(1)),
        ("package.json", None),
        ("pyproject.toml", None),
    ] {
        let found = files.iter().position(|pattern| pattern.is_match(name));
        assert_eq!(found, hook, "{name}");
    }
    let hook = |entry: &str| entry.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for entry in values(&manifest, "entry: ") {
        let [program, words @ ..] = &hook(&entry)[..] else { panic!("an empty entry") };
        assert_eq!(program, "remuda");
        let mut check = command(REMUDA);
        let done = check.args(words).arg("/nonexistent/file").output().expect("it starts");
        assert_eq!(done.status.code(), Some(2), "{entry}: {done:?}");
    }
}
