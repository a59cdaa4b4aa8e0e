//! The virtual environment of the program that the workers execute. A Python that is named by its path runs with the
//! packages of its environment, but the programs that it starts (`ninja`, `accelerate`, another `python`) are searched in
//! PATH: they are those of the same environment only if its `bin` is first there.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::preflight::Environment;
use crate::base::env_vars;

/// Changes an environment as the `activate` of a virtual environment does.
pub(super) fn activate(root: &Path, env: &mut Environment) {
    let bin = root.join("bin");
    let path = env.get(env_vars::PATH.as_bytes()).cloned().unwrap_or_default();
    let mut entries = std::env::split_paths(OsStr::from_bytes(&path));
    if entries.next().as_ref() != Some(&bin) {
        let mut all: OsString = bin.into();
        if !path.is_empty() {
            all.push(":");
            all.push(OsString::from_vec(path));
        }
        env.insert(env_vars::PATH.into(), all.into_vec());
    }
    env.insert(env_vars::VIRTUAL_ENV.into(), root.as_os_str().as_bytes().to_vec());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activated(path: Option<&str>) -> (String, String) {
        let mut env = Environment::new();
        if let Some(path) = path {
            env.insert(b"PATH".to_vec(), path.into());
        }
        activate(Path::new("/v"), &mut env);
        let text = |name: &[u8]| String::from_utf8(env[name].clone()).expect("UTF-8");
        (text(b"PATH"), text(b"VIRTUAL_ENV"))
    }

    #[test]
    fn programs_of_the_environment_are_found_first() {
        let of_root = "/v".to_owned();
        assert_eq!(activated(Some("/usr/bin")), ("/v/bin:/usr/bin".to_owned(), of_root.clone()));
        assert_eq!(activated(Some("/v/bin:/bin")), ("/v/bin:/bin".to_owned(), of_root.clone()));
        assert_eq!(activated(None), ("/v/bin".to_owned(), of_root));
    }
}
