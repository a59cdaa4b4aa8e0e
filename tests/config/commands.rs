//! `remuda config check` beside its golden files: formats, hosts, files that cannot be read.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::config::config;

/// An empty directory for one test, below the target directory.
fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("config").join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("the target directory is writable");
    directory
}

fn word(path: &Path) -> &str {
    path.to_str().expect("text")
}

const VALID: &str = "tests/config/valid/adam_fp16_zero.json";

#[test]
fn hosts_give_the_world_size() {
    for (hosts, status) in [("n1:4,n2:4", 0), ("n1:3", 1), ("n[1-16]:1", 1)] {
        let outcome = config(&["check", "-H", hosts, VALID]);
        assert_eq!(outcome.status.code(), status, "{hosts}: {}", outcome.stdout);
    }
    let directory = scratch("hosts");
    let hostfile = directory.join("hosts");
    fs::write(&hostfile, "n1 slots=2\nn2 slots=2\n").expect("written");
    let outcome = config(&["check", "-H", word(&hostfile), "--allow_insecure_files", VALID]);
    assert!(outcome.stdout.contains("on 4 ranks"), "{}", outcome.stdout);
    let missing = config(&["check", "-H", word(&directory.join("none")), VALID]);
    assert_eq!(missing.status.code(), 2, "{}", missing.stderr);
    assert!(missing.stderr.contains("error[H010]"), "{}", missing.stderr);
}

#[test]
fn files_that_cannot_be_read_are_status_2() {
    let directory = scratch("unreadable");
    let missing = directory.join("missing.json");
    let outcome = config(&["check", word(&missing), VALID]);
    assert_eq!(outcome.status.code(), 2);
    let name = missing.display();
    let expect = format!(
        "error[G021]: configuration `{name}` does not exist\n --> {name}\n\
         help: correct the path; `-` is standard input\n"
    );
    assert_eq!(outcome.stderr, expect);
    assert!(outcome.stdout.contains("configuration of DeepSpeed"), "{}", outcome.stdout);
    let outcome = config(&["check", word(&directory)]);
    assert!(outcome.stderr.contains("it is a directory"), "{}", outcome.stderr);
    let large = directory.join("large.json");
    fs::write(&large, " ".repeat((4 << 20) + 1)).expect("written");
    let outcome = config(&["check", word(&large)]);
    assert!(outcome.stderr.contains("is larger than 4 MiB"), "{}", outcome.stderr);
    let outcome = config(&["check", "--json", word(&missing)]);
    let document: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    assert_eq!(document["diagnostics"][0]["code"], "G021");
    assert_eq!((outcome.status.code(), outcome.stderr.as_str()), (2, ""));
}

#[test]
fn document_has_values_origins_and_notes() {
    let file = "tests/config/valid/zero3_auto.json";
    let outcome = config(&["check", "--json", "--world_size", "4", "--hidden_size", "768", file]);
    assert_eq!(outcome.status.code(), 0);
    let document: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    assert_eq!(document["version"], 1);
    let found = &document["configs"][0];
    assert_eq!(found["tool"], "DeepSpeed");
    assert_eq!(found["world_size"], 4);
    assert_eq!(found["is_usable"], true);
    let value = |key: &str| {
        let values = found["values"].as_array().expect("values");
        values.iter().find(|one| one["key"] == key).unwrap_or_else(|| panic!("no {key}")).clone()
    };
    assert_eq!(value("train_batch_size")["value"], 8);
    assert_eq!(value("train_batch_size")["origin"], "auto");
    assert_eq!(value("fp16.enabled")["value"], false);
    assert_eq!(value("zero_optimization.reduce_bucket_size")["value"], 589_824);
    assert_eq!(value("zero_optimization.stage3_prefetch_bucket_size")["value"], 530_841);
    assert_eq!(value("zero_optimization.stage3_param_persistence_threshold")["value"], 7_680);
    assert_eq!(value("train_micro_batch_size_per_gpu")["origin"], "file");
    let idle = found["no_effect"].as_array().expect("keys");
    assert!(
        idle.iter()
            .any(|one| { one["key"] == "zero_optimization.overlap_comm" && one["line"] == 23 })
    );
    let same =
        config(&["check", "--format", "json", "--world_size", "4", "--hidden_size", "768", file]);
    assert_eq!(same.stdout, outcome.stdout);
}

#[test]
fn findings_have_formats_of_code_hosts() {
    let file = "tests/config/invalid/contradictions.json";
    let outcome = config(&["check", "--format", "sarif", file]);
    let sarif: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let run = &sarif["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().expect("rules");
    assert!(rules.iter().all(|rule| rule["shortDescription"]["text"].is_string()), "{rules:?}");
    assert_eq!(run["results"][0]["ruleId"], "G016");
    assert_eq!(outcome.status.code(), 1);
    let lines = config(&["check", "--format", "github", file]).stdout;
    assert!(lines.starts_with("::error file=tests/config/invalid/contradictions.json,line=4,"));
    // Keys without effect are notes here, and no findings.
    let file = "tests/config/valid/zero3_auto.json";
    let outcome = config(&["check", "--format", "github", file]);
    assert!(outcome.stdout.starts_with("::notice file="), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("title=G011::`zero_optimization"), "{}", outcome.stdout);
    assert_eq!(outcome.status.code(), 0);
}

#[test]
fn file_that_accelerate_names_is_checked_too() {
    let directory = scratch("included");
    let inner = directory.join("ds_config.json");
    fs::write(&inner, "{\"train_batch_size\": 12, \"zero_optimization\": {\"stage\": 2}}")
        .expect("written");
    let outer = directory.join("accelerate.yaml");
    let text = format!(
        "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  \
         deepspeed_config_file: {}\n",
        inner.display()
    );
    fs::write(&outer, text).expect("written");
    let outcome = config(&["check", word(&outer)]);
    assert!(outcome.stdout.contains("checked below"), "{}", outcome.stdout);
    assert!(
        outcome.stdout.contains("`train_batch_size` 12 is not a multiple of 8 ranks"),
        "{}",
        outcome.stdout
    );
    assert_eq!(outcome.status.code(), 1);
}

#[test]
fn suggestions_keep_quotation_marks() {
    let directory = scratch("suggestions");
    let file = directory.join("ds_config.json");
    fs::write(&file, "{\"train_batch_sise\": 8, 'fp61': {}, gradient_clip: 1}").expect("written");
    let shown = config(&["check", word(&file)]).stdout;
    for expect in ["+ {\"train_batch_size\": 8", "'fp16'", "did you mean `fp16`?"] {
        assert!(shown.contains(expect), "no {expect:?} in {shown}");
    }
}
