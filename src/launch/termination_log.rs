//! Message in which a pod leaves how its part in the job ended, for whoever looks at it later.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

use serde::Serialize;

use crate::base::{JobId, NodeRank, Status};

/// What Kubernetes keeps of a termination message.
const MESSAGE_BYTES_MAX: usize = 4096;

/// What is left for whoever looks at a pod that has ended.
#[derive(Serialize)]
struct Message<'a> {
    version: u32,
    /// Which job and which node of it; of a start that was refused nobody may know.
    job: Option<&'a str>,
    node: Option<u32>,
    status: u8,
    /// The node that was the cause of a failure.
    cause: Option<u32>,
    /// The last screen.
    text: &'a str,
}

/// The file in which the kubelet finds how a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminationLog {
    /// Its path.
    pub path: PathBuf,
    /// Whether it is made if it is not there: the user has named it. The kubelet makes its own.
    pub is_named: bool,
}

impl TerminationLog {
    /// Opens it, empty. A file is made only where there is nothing, and no link is followed to make one.
    fn open(&self) -> io::Result<File> {
        // A pipe that has no reader would hold up the end of the job.
        let mut options = OpenOptions::new();
        let options = options.write(true).custom_flags(libc::O_NONBLOCK);
        match options.clone().truncate(true).open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.is_named => {
                let file = options.create_new(true).open(&self.path)?;
                // Another user reads it, whatever this one's umask is.
                file.set_permissions(Permissions::from_mode(0o644))?;
                Ok(file)
            }
            opened => opened,
        }
    }
}

/// Writes how the job ended where the keeper of the pod reads it. What cannot be written is not worth
/// another failure.
pub(super) fn leave_message(
    file: Option<&TerminationLog>,
    (job, node): (&JobId, NodeRank),
    status: Status,
    (text, cause): (&str, Option<NodeRank>),
) {
    if let Some(file) = file {
        write_message(file, Some((job.0.as_str(), node)), status, (text, cause));
    }
}

/// Writes there why nothing was started, and nothing is known of a job.
pub fn leave_refusal(file: &TerminationLog, status: Status, text: &str) {
    write_message(file, None, status, (text, None));
}

fn write_message(
    file: &TerminationLog,
    whose: Option<(&str, NodeRank)>,
    status: Status,
    (text, cause): (&str, Option<NodeRank>),
) {
    let message = Message {
        version: 1,
        job: whose.map(|(job, _)| job),
        node: whose.map(|(_, node)| node.0),
        status: status.code(),
        cause: cause.map(|cause| cause.0),
        text,
    };
    let _ = file.open().and_then(|mut file| file.write_all(fitting(message).as_bytes()));
}

/// As much of the text as there is room for, from its beginning: the cause stands first.
fn fitting(mut message: Message<'_>) -> String {
    loop {
        let json = serde_json::to_string(&message).expect("numbers and texts serialize");
        if json.len() <= MESSAGE_BYTES_MAX {
            return json;
        }
        let mut end = message.text.len() - (json.len() - MESSAGE_BYTES_MAX).div_ceil(6).max(1);
        while !message.text.is_char_boundary(end) {
            end -= 1;
        }
        message.text = &message.text[..end];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_beginning_of_a_long_text_and_fits() {
        for text in ["short", &"\u{1}é\n".repeat(5000), &"x".repeat(5000), &"\u{7}".repeat(9000)] {
            let message =
                Message { version: 1, job: Some("a"), node: Some(3), status: 7, cause: None, text };
            let json = fitting(message);
            assert!(json.len() <= MESSAGE_BYTES_MAX);
            let back: serde_json::Value = serde_json::from_str(&json).expect("JSON");
            let kept = back["text"].as_str().expect("a text");
            assert!(text.starts_with(kept) && (kept == text || 600 < kept.len()), "{}", kept.len());
        }
    }
}
