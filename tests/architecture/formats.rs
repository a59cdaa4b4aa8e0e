//! Formats: what a process sends, saves or prints for another program. A file that serializes belongs to a
//! format of the table, and every format names the tests that hold it.

use crate::source::{Source, rust_files};

/// How it is made sure that the reader understands what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// Golden bytes or a golden text: a change of them needs a new version.
    Bytes,
    /// A test reads the fields that users rely on.
    Fields,
    /// Writer and reader are the same build, which the tests show.
    Build,
    /// Writer and reader are one program: a fork of the same executable, or the ranks of one job.
    Program,
}

/// A format, the files that define it, and the tests that hold it.
struct Format {
    name: &'static str,
    files: &'static [&'static str],
    held: Held,
    tests: &'static [&'static str],
}

const fn format(
    name: &'static str,
    files: &'static [&'static str],
    held: Held,
    tests: &'static [&'static str],
) -> Format {
    Format { name, files, held, tests }
}

const FORMATS: &[Format] = &[
    format(
        "messages of launcher and agent",
        &["src/wire/", "src/base/", "src/plan/workers/", "src/secure/keys.rs"],
        Held::Bytes,
        &["bytes_of_every_message_match_golden_bytes"],
    ),
    format(
        "frames of agent and worker",
        &["src/runtime/contract.rs"],
        Held::Bytes,
        &[
            "messages_match_golden_bytes_of_version_3",
            "worker_rejects_a_different_contract_version",
        ],
    ),
    format(
        "requests to the store",
        &["src/runtime/comm/store/state.rs"],
        Held::Bytes,
        &["store_messages_match_golden_bytes"],
    ),
    format(
        "first bytes of a connection",
        &["src/secure/flight.rs", "src/secure/handshake.rs", "src/secure/peer_key.rs"],
        Held::Bytes,
        &["first_flight_matches_golden_bytes_of_version_1", "first_flight_names_foreign_protocols"],
    ),
    format(
        "what ranks tell each other through the store",
        &["src/runtime/comm/bootstrap/", "src/runtime/comm/core/", "src/runtime/comm/tcp/mesh.rs"],
        Held::Program,
        &[],
    ),
    format("messages of agent and shim", &["src/agent/shim/"], Held::Program, &[]),
    format(
        "messages of nodes that join",
        &["src/transport/dial/"],
        Held::Build,
        &["node_of_another_build_or_job_is_refused"],
    ),
    format(
        "tickets",
        &["src/transport/manager/ticket.rs"],
        Held::Build,
        &["ticket_of_another_build_is_refused"],
    ),
    format(
        "checkpoints, and what a training saves in them",
        &[
            "src/runtime/checkpoint/",
            "src/runtime/engine/",
            "src/runtime/optim/",
            "src/runtime/parallel/zero/",
            "src/train/options.rs",
        ],
        Held::Bytes,
        &[
            "index_matches_golden_text_of_version_1",
            "newer_format_is_recognized",
            "checkpoints_of_one_file_are_read",
            "checkpoints_are_shown_and_verified",
        ],
    ),
    format(
        "models and vocabularies of Hugging Face",
        &["src/train/hugging_face/", "src/train/tokenizer/"],
        Held::Fields,
        &["export_of_gpt2_has_the_layout_of_transformers", "all_formats_have_the_same_tokens"],
    ),
    format(
        "records of a training",
        &["src/train/report/"],
        Held::Fields,
        &["run_writes_metrics_plot_and_checkpoints", "progress_events_have_their_text"],
    ),
    format(
        "`--dry-run --json`",
        &["src/report/documents/plan.rs", "src/report/documents/plan_settings.rs"],
        Held::Bytes,
        &["plan_document_matches_golden_file"],
    ),
    format(
        "findings of a hostfile",
        &["src/report/documents/findings/json.rs", "src/report/documents/findings/sarif.rs"],
        Held::Fields,
        &["findings_have_machine_readable_formats", "sarif_rule_has_descriptions_and_help"],
    ),
    format(
        "findings of a configuration",
        &["src/report/documents/findings/config_json.rs"],
        Held::Fields,
        &["document_has_values_origins_and_notes", "findings_have_formats_of_code_hosts"],
    ),
    format(
        "`remuda doctor --gpu --json`",
        &["src/cli/command/gpu_check.rs"],
        Held::Fields,
        &["document_has_every_check"],
    ),
    format(
        "hosts of a job",
        &["src/report/documents/world.rs"],
        Held::Fields,
        &["convert_writes_every_dialect_and_reports_losses"],
    ),
    format(
        "`run.json`",
        &["src/report/documents/record.rs"],
        Held::Fields,
        &["successful_job_has_a_complete_record", "record_of_a_running_job_names_its_plan"],
    ),
    format(
        "message of a pod that has ended",
        &["src/launch/pod/termination_log.rs"],
        Held::Fields,
        &["refused_pod_writes_its_termination_log", "termination_message_is_truncated_to_fit"],
    ),
    format(
        "manifests",
        &["src/plan/manifest/"],
        Held::Fields,
        &["every_manifest_fits_its_published_schema"],
    ),
    format(
        "facts of the doctor",
        &["src/doctor/screen.rs"],
        Held::Fields,
        &[
            "doctor_document_has_a_version_and_usable_hosts",
            "doctor_document_contains_hosts_and_findings",
        ],
    ),
    format(
        "results of a benchmark",
        &["src/bench/"],
        Held::Fields,
        &["bench_document_is_read_back", "bench_document_has_time_hosts_and_order"],
    ),
    format(
        "`remuda checkpoint --json`",
        &["src/cli/command/checkpoint/"],
        Held::Bytes,
        &["checkpoints_are_shown_and_verified"],
    ),
    format(
        "`remuda sample --json`",
        &["src/cli/command/sample/"],
        Held::Fields,
        &["sample_of_tokens_has_the_text_of_their_vocabulary"],
    ),
    format(
        "`remuda tokenize --json`",
        &["src/cli/command/tokenize/"],
        Held::Bytes,
        &["texts_are_written_as_shards"],
    ),
];

/// Whether the code of a file, without its tests, serializes types or makes JSON.
fn serializes(file: &Source) -> bool {
    let tests = file.test_regions();
    let is_code = |at: usize| !tests.iter().any(|test| test.contains(&at));
    let derived = file.items_deriving(&["Serialize", "Deserialize"]);
    let tokens = file.tokens();
    let is_json = tokens
        .windows(2)
        .any(|pair| pair[0].text == "json" && pair[1].text == "!" && is_code(pair[0].at));
    is_json || derived.iter().any(|item| is_code(item.start))
}

/// The formats to which a file belongs.
fn formats_of(path: &str) -> Vec<&'static str> {
    let has = |format: &&Format| format.files.iter().any(|prefix| path.starts_with(prefix));
    FORMATS.iter().filter(has).map(|format| format.name).collect()
}

#[test]
fn every_file_that_serializes_has_one_format() {
    let files = rust_files();
    let own = files.iter().filter(|file| file.path.starts_with("src/") && serializes(file));
    let lost = own.filter(|file| formats_of(&file.path).len() != 1);
    crate::assert_clean(
        lost.map(|file| format!("{}: formats {:?}", file.path, formats_of(&file.path))),
    );
}

#[test]
fn every_format_names_files_and_existing_tests() {
    let files = rust_files();
    let has_test = |name: &&&str| {
        let function = format!("fn {name}()");
        files.iter().any(|file| file.text.contains(&function))
    };
    let is_there = |prefix: &&&str| {
        files.iter().any(|file| file.path.starts_with(**prefix) && serializes(file))
    };
    let problems = FORMATS.iter().filter_map(|format| {
        let missing: Vec<_> = format.tests.iter().filter(|name| !has_test(name)).collect();
        let empty: Vec<_> = format.files.iter().filter(|prefix| !is_there(prefix)).collect();
        let is_held = format.held == Held::Program || !format.tests.is_empty();
        let is_clean = missing.is_empty() && empty.is_empty() && is_held;
        (!is_clean).then(|| format!("{}: {missing:?} {empty:?}", format.name))
    });
    crate::assert_clean(problems);
}

#[test]
fn planted_serialization_is_found() {
    #[track_caller]
    fn check(text: &str, expect: bool) {
        assert_eq!(serializes(&Source::new("src/a.rs", text)), expect, "for `{text}`");
    }
    check("#[derive(Clone, Serialize)]\nstruct A;", true);
    check("fn f() { serde_json::json!({}) }", true);
    check("#[derive(Clone)]\nstruct A;", false);
    check("#[cfg(test)] mod tests { #[derive(Serialize)] struct A; }", false);
    assert_eq!(formats_of("src/wire/new.rs"), ["messages of launcher and agent"]);
    assert_eq!(formats_of("src/launch/new.rs"), [""; 0]);
}
