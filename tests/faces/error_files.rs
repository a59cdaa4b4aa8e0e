//! Error files of workers (`TORCHELASTIC_ERROR_FILE`): what they say, where they are kept, and who gets them.
//! Tests that follow torch's own name them.

use std::fs;

use serde_json::Value;

use super::torchrun::{files, torchrun};
use super::upstream::{python, shell};

/// An exception as torch's `@record` writes it.
const RECORDED: &str =
    r#"{"message": {"message": "ValueError: bad", "extraInfo": {"timestamp": "1700000000"}}}"#;

/// A worker that leaves this text as its error file, and exits with 3.
fn leave(text: &str) -> String {
    format!("printf %s '{text}' >\"$TORCHELASTIC_ERROR_FILE\"; exit 3")
}

#[test]
fn error_file_of_a_worker_is_beside_its_logs() {
    let launch = torchrun(&["--rdzv-id=j"], &leave(RECORDED));
    let logs = launch.dir().join("logs");
    let outcome = launch.option("--log-dir").option(&logs).end().code(3);
    let _outcome = outcome.says("ValueError: bad");
    let expected = ("j/attempt_0/0/error.json".to_owned(), RECORDED.to_owned());
    assert_eq!(files(&logs), [expected]);
}

/// `test_run_sad_function`, `test_record_child_failure`: a launcher that was started by another one, as in
/// stacked jobs, leaves the error file of its cause to it.
#[test]
fn outer_launcher_gets_the_error_file_of_the_cause() {
    let script = format!("if [ $RANK = 1 ]; then {}; else sleep 60; fi", leave(RECORDED));
    let launch = torchrun(&["--nproc-per-node=2"], &script);
    let outer = launch.dir().join("outer.json");
    let _outcome = launch.env("TORCHELASTIC_ERROR_FILE", &outer).end().code(3);
    let mut expected: Value = serde_json::from_str(RECORDED).expect("JSON");
    expected["message"]["errorCode"] = 3.into();
    let found = fs::read_to_string(&outer).expect("it was written");
    assert_eq!(serde_json::from_str::<Value>(&found).expect("JSON"), expected);
}

#[test]
fn without_a_recorded_failure_the_outer_launcher_gets_no_file() {
    for (script, code) in [("true", 0), ("exit 3", 3)] {
        let launch = torchrun(&[], script);
        let outer = launch.dir().join("outer.json");
        let _outcome = launch.env("TORCHELASTIC_ERROR_FILE", &outer).end().code(code);
        assert!(!outer.exists(), "{script}");
    }
}

/// `test_process_failure`, `…_new_format`, `test_process_mast_error_format`,
/// `test_failure_incorrect_reply_file`, where torch raises an exception of its own.
#[test]
fn error_file_of_each_format_gives_its_message() {
    let nested = r#"{"message": {"message": "E: foobar", "extraInfo": {"timestamp": "10"}}}"#;
    for (content, said) in [
        (nested, "failed: E: foobar\n"),
        (r#"{"message": "test error", "timestamp": 10}"#, "failed: test error\n"),
        (r#"{"message": "test error", "timestamp": "10"}"#, "failed: test error\n"),
        (r#"{"unknown_key": "unknown_value"}"#, "exited with code 3 after "),
        ("", "exited with code 3 after "),
    ] {
        let script = format!("printf %s '{content}' >\"$TORCHELASTIC_ERROR_FILE\"; exit 3");
        let outcome = shell(&[], &script).end().code(3);
        outcome.says(&format!("error[R101]: rank 0 (localhost) {said}"));
    }
}

/// `test_get_failures`, `test_child_failed_error`: the time in the error file decides, not the order of exits.
#[test]
fn earliest_error_file_is_the_cause() {
    let text = "import json, os, signal, sys, time\n\
                signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
                rank = int(os.environ['RANK'])\n\
                extra = {'py_callstack': '', 'timestamp': str(int(time.time()) - 10 * rank)}\n\
                with open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as file:\n    \
                json.dump({'message': {'message': f'E: of {rank}', 'extraInfo': extra}}, file)\n\
                open(f'met.{rank}', 'w').close()\n\
                while not all(os.path.exists(f'met.{other}') for other in range(3)):\n    \
                time.sleep(0.01)\n\
                sys.exit(1)\n";
    let outcome = python(&["--nproc-per-node=3"], text).end().code(1);
    outcome.says("error[R101]: rank 2 (localhost) failed: E: of 2\n");
}
