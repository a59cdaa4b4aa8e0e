//! The real launcher: a Python process that answers one question for each line, see
//! `scripts/conformance.d/reference.py`.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use remuda::base::env_vars::get_text;
use serde_json::{Value, json};

use crate::conformance::machine::Machine;
use crate::support::proof;

/// What the package needs from `scripts/test`.
const COMPONENT: &str = "peers";
/// The release that remuda is compared with.
const PACKAGE: &str = "peers/deepspeed-0.19.8";

/// The process, and a directory of its own.
pub(crate) struct Reference {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    directory: PathBuf,
    machine: Machine,
}

/// Error that DeepSpeed has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The exit status of DeepSpeed.
    pub(crate) status: u64,
    /// The message of its exception, or the last line of its screen.
    pub(crate) text: String,
}

impl Reference {
    /// Starts the process; `None` if the package is missing and not required.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp");
        let package = target.join(PACKAGE);
        let is_there = package.join("deepspeed/launcher").is_dir();
        if !proof::has(COMPONENT, test) {
            return None;
        }
        if !is_there {
            // `scripts/test` has fetched it.
            let is_needed = get_text("REMUDA_TEST_SKIPS").is_some();
            assert!(!is_needed, "no {}: `scripts/conformance --install`", package.display());
            proof::skip(COMPONENT, test);
            return None;
        }
        let directory =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("the target directory is writable");
        let mut child = start(&package, &directory);
        Some(Self {
            requests: child.stdin.take(),
            answers: BufReader::new(child.stdout.take().expect("it has a pipe")),
            child,
            machine: Machine::start(&directory, test),
            directory,
        })
    }

    /// Working directory of both launchers.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Machine on which remuda is started.
    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// DeepSpeed's answer to a question.
    pub(crate) fn ask(&mut self, question: &Value) -> Result<Value, Refusal> {
        let requests = self.requests.as_mut().expect("open until the end");
        writeln!(requests, "{question}").expect("the reference reads");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the reference answers");
        let answer: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        match answer.get("refused") {
            None => Ok(answer),
            Some(refused) => Err(Refusal {
                status: refused["status"].as_u64().expect("a status"),
                text: refused["text"].as_str().expect("a text").to_owned(),
            }),
        }
    }

    /// The hosts of a hostfile with their slots in decimal digits.
    pub(crate) fn hostfile(&mut self, bytes: &[u8]) -> Result<Vec<(String, String)>, Refusal> {
        let answer = self.ask(&json!({ "kind": "hostfile", "text": BASE64.encode(bytes) }))?;
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let pool = answer["pool"].as_array().expect("a list");
        Ok(pool.iter().map(|entry| (text(&entry[0]), text(&entry[1]))).collect())
    }
}

#[expect(clippy::disallowed_methods, reason = "the reference is a process")]
fn start(package: &Path, directory: &Path) -> Child {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/conformance.d/reference.py");
    // UTF-8, whatever the locale of this machine; and no bytecode beside the script.
    let mut command = Command::new("python3");
    command.args(["-X", "utf8", "-B"]).arg(script).arg(package).arg(directory);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().expect("python3 starts")
}

impl Drop for Reference {
    fn drop(&mut self) {
        // The process exits at the end of its input.
        drop(self.requests.take());
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
