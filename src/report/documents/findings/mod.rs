//! Findings in files, for programs: JSON, SARIF and the annotations of GitHub.

mod github;
mod json;
mod located;
mod sarif;

pub use github::show_github;
pub use json::{FINDINGS_VERSION, show_json};
pub use located::CheckedFile;
pub use sarif::show_sarif;
