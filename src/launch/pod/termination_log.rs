//! The termination message of a pod: how its part in the job ended.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

use serde::Serialize;

use crate::base::{JobId, NodeRank, Status, prefix};

/// Maximum size of a termination message that Kubernetes keeps.
const MESSAGE_BYTES_MAX: usize = 4096;

/// The termination message: JSON of at most 4096 bytes.
#[derive(Serialize)]
struct Message<'a> {
    version: u32,
    /// The job and the index of the node; unknown if the start was refused.
    job: Option<&'a str>,
    node: Option<u32>,
    status: u8,
    /// The node that was the cause of a failure.
    cause: Option<u32>,
    /// The final screen, truncated at its end if it is too long.
    text: &'a str,
}

/// The file from which the kubelet reads how a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminationLog {
    /// Path of the file, usually `/dev/termination-log`.
    pub path: PathBuf,
    /// Whether a missing file is created: true if the user named it. The kubelet creates its own.
    pub is_named: bool,
}

impl TerminationLog {
    /// Opens the file, empty. It is created only where nothing exists, and no link is followed for
    /// that.
    fn open(&self) -> io::Result<File> {
        // A pipe without a reader would block the end of the job.
        let mut options = OpenOptions::new();
        let options = options.write(true).custom_flags(libc::O_NONBLOCK);
        match options.clone().truncate(true).open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.is_named => {
                let file = options.create_new(true).open(&self.path)?;
                // Another user reads it, whatever the umask of this process is.
                file.set_permissions(Permissions::from_mode(0o644))?;
                Ok(file)
            }
            opened => opened,
        }
    }
}

/// Writes how the job ended for the supervisor of the pod. A failure to write is ignored: it is not
/// worth another failure.
pub(in crate::launch) fn write_termination_message(
    file: Option<&TerminationLog>,
    (job, node): (&JobId, NodeRank),
    status: Status,
    (text, cause): (&str, Option<NodeRank>),
) {
    if let Some(file) = file {
        write_message(file, Some((job.0.as_str(), node)), status, (text, cause));
    }
}

/// Writes why nothing was started, when no job is known yet.
pub fn write_refusal_message(file: &TerminationLog, status: Status, text: &str) {
    write_message(file, None, status, (text, None));
}

fn write_message(
    file: &TerminationLog,
    owner: Option<(&str, NodeRank)>,
    status: Status,
    (text, cause): (&str, Option<NodeRank>),
) {
    let message = Message {
        version: 1,
        job: owner.map(|(job, _)| job),
        node: owner.map(|(_, node)| node.0),
        status: status.code(),
        cause: cause.map(|cause| cause.0),
        text,
    };
    let _ = file.open().and_then(|mut file| file.write_all(truncate_to_fit(message).as_bytes()));
}

/// The message, with as much of the beginning of the text as fits: the cause is first.
fn truncate_to_fit(mut message: Message<'_>) -> String {
    loop {
        let json = serde_json::to_string(&message).expect("numbers and texts serialize");
        if json.len() <= MESSAGE_BYTES_MAX {
            return json;
        }
        let bytes_max = message.text.len() - (json.len() - MESSAGE_BYTES_MAX).div_ceil(6).max(1);
        message.text = prefix(message.text, bytes_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn termination_message_is_truncated_to_fit() {
        for text in ["short", &"\u{1}é\n".repeat(5000), &"x".repeat(5000), &"\u{7}".repeat(9000)] {
            let message =
                Message { version: 1, job: Some("a"), node: Some(3), status: 7, cause: None, text };
            let json = truncate_to_fit(message);
            assert!(json.len() <= MESSAGE_BYTES_MAX);
            let back: serde_json::Value = serde_json::from_str(&json).expect("JSON");
            let kept = back["text"].as_str().expect("a text");
            assert!(text.starts_with(kept) && (kept == text || 600 < kept.len()), "{}", kept.len());
        }
    }
}
