//! Findings in files, for programs: JSON, SARIF and the annotations of GitHub.

mod config_json;
mod github;
mod json;
mod located;
mod sarif;

pub use config_json::{CONFIG_VERSION, show_config_json};
pub use github::show_github;
pub use json::{FINDINGS_VERSION, show_json};
pub use located::CheckedFile;
pub use sarif::{CheckKind, show_sarif};
