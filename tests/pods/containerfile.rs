//! `remuda k8s containerfile`: its files, user and entry point fit the printed manifest.

use std::path::Path;

use crate::pods::manifest::printed;
use crate::support::launch::{REMUDA, command};

/// The instructions: a word, and what is behind it.
fn instructions(text: &str) -> Vec<(&str, &str)> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').expect("a word and more")).collect()
}

fn run(words: &[&str]) -> String {
    let done = command(REMUDA).args(words).output().expect("it starts");
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).expect("text")
}

#[test]
fn containerfile_fits_the_printed_manifest() {
    let text = run(&["k8s", "containerfile"]);
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/Containerfile");
    assert_eq!(text, std::fs::read_to_string(kept).expect("it is kept"));
    let instructions = instructions(&text);
    let all = |word: &str| -> Vec<&str> {
        let found = instructions.iter().filter(|(instruction, _)| *instruction == word);
        found.map(|(_, rest)| *rest).collect()
    };
    let known = ["FROM", "COPY", "WORKDIR", "USER", "ENTRYPOINT"];
    assert!(instructions.iter().all(|(word, _)| known.contains(word)), "{instructions:?}");
    let documents = printed(&["--nodes=2", "--cpus=1", "--", "train.py"]);
    let pod = &documents[1]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    // The program, where a name without a path is looked for, and the script, in the working directory.
    assert_eq!(all("COPY")[0], "--chmod=0755 remuda /usr/local/bin/remuda");
    let [directory] = all("WORKDIR")[..] else { panic!("one") };
    let script = container["args"].as_array().expect("words").last().expect("one");
    let script = script.as_str().expect("text");
    assert_eq!(all("COPY")[1], format!("{script} {directory}/{script}"));
    let [user] = all("USER")[..] else { panic!("one") };
    let wanted = &pod["securityContext"]["runAsUser"];
    assert_eq!(user, format!("{wanted}:{wanted}"));
    let [entry] = all("ENTRYPOINT")[..] else { panic!("one") };
    let entry: serde_json::Value = serde_json::from_str(entry).expect("a list");
    assert_eq!(entry, container["command"]);
    assert_eq!(entry, serde_json::json!(["remuda", "pod"]));
    run(&["pod", "--help"]);
}

#[test]
fn containerfile_quotes_valid_commands() {
    let text = run(&["k8s", "containerfile"]);
    let line = text.lines().find_map(|line| line.strip_prefix("#   remuda ")).expect("one");
    let words: Vec<&str> = line.split(' ').collect();
    assert!(run(&words).contains("kind: Job\n"));
    assert!(text.contains("--tag registry.example/train:1"), "the same image");
    assert!(line.contains("--image registry.example/train:1"), "the same image");
}
