//! SARIF documents against the schema that OASIS publishes, with a foreign program.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::support::launch::{REMUDA, command};
use crate::support::proof::has;

/// Files with this ending in a folder of the repository and below.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn document(words: &[&str], files: &[PathBuf]) -> String {
    let mut check = command(REMUDA);
    let checked = check.args(words).args(["--format", "sarif", "--"]).args(files).output();
    String::from_utf8(checked.expect("it starts").stdout).expect("text")
}

/// What the schema does not allow; empty: nothing.
fn problems(document: &str) -> String {
    let mut check = command(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/schemas"));
    let check = check.arg("--sarif").stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut checking = check.spawn().expect("it starts");
    let mut input = checking.stdin.take().expect("a pipe");
    input.write_all(document.as_bytes()).expect("it reads");
    drop(input);
    let done = checking.wait_with_output().expect("it ends");
    let text = String::from_utf8(done.stderr).expect("text");
    assert_eq!(done.status.success(), text.is_empty(), "{text}");
    text
}

#[track_caller]
fn check(words: &[&str], files: &[PathBuf], category: &str, rules_min: usize) {
    assert!(!files.is_empty());
    let text = document(words, files);
    assert_eq!(problems(&text), "");
    let found: Value = serde_json::from_str(&text).expect("JSON");
    let run = &found["runs"][0];
    assert_eq!(run["automationDetails"]["id"], category);
    let rules = run["tool"]["driver"]["rules"].as_array().expect("rules");
    assert!(rules_min < rules.len(), "{} rules", rules.len());
    for rule in rules {
        for (name, kind) in [
            ("shortDescription", "text"),
            ("fullDescription", "text"),
            ("help", "text"),
            ("help", "markdown"),
        ] {
            let text = rule[name][kind].as_str().unwrap_or_default();
            assert!(!text.is_empty() && !text.ends_with(':'), "{name} of {rule}");
        }
    }
    let uri = &run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
    assert!(uri.as_str().expect("a URI").starts_with("file:///"), "{uri}");
}

#[test]
fn sarif_documents_fit_the_published_schema() {
    if !has("schemas", "sarif_documents_fit_the_published_schema") {
        return;
    }
    let mut hostfiles = files("hostfiles", ".txt");
    hostfiles.push("/nonexistent/hosts".into());
    check(&["hostfile", "check"], &hostfiles, "remuda-hostfile-check/", 20);
    let mut configs = files("tests/config", ".json");
    configs.extend(files("tests/config", ".yaml"));
    configs.push("/nonexistent/ds_config.json".into());
    check(&["config", "check"], &configs, "remuda-config-check/", 10);
    let broken = document(&["hostfile", "check"], &hostfiles).replace("startLine", "beginLine");
    assert_ne!(problems(&broken), "", "a misspelt field is found");
}
