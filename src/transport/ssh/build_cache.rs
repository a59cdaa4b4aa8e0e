//! The cache of a node for the executables that launchers have sent to it, one folder for each build.

use std::cmp::Reverse;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::order;

use super::binary::SELF_EXE;
use super::digest::is_digest;

/// Number of builds that a cache keeps regardless of their age.
const BUILDS_KEPT_MAX: usize = 4;
/// Age below which a build is kept because a job may still run it: jobs run for days.
const BUILD_AGE_MIN: Duration = Duration::from_secs(14 * 24 * 3600);

/// Removes old builds beside a new one; called on a node. Errors are ignored, because no other step
/// depends on it.
pub fn prune_cache(now: Duration) {
    let Some(cache) = fs::read_link(SELF_EXE).ok().and_then(|own| cache_of(&own)) else {
        return;
    };
    let mut builds = builds_in(&cache);
    order::sort_by_key(&mut builds, |(changed, _)| Reverse(*changed));
    for (changed, path) in builds.into_iter().skip(BUILDS_KEPT_MAX) {
        if changed + (BUILD_AGE_MIN.as_secs() as i64) < now.as_secs() as i64 {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Path of the cache: `CACHE/DIGEST/remuda` → `CACHE`.
fn cache_of(own: &Path) -> Option<PathBuf> {
    let build = own.parent()?;
    is_digest(build.file_name()?.to_str()?).then(|| build.parent().map(Path::to_owned))?
}

fn builds_in(cache: &Path) -> Vec<(i64, PathBuf)> {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let builds = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_digest));
    builds.filter_map(|entry| Some((entry.metadata().ok()?.mtime(), entry.path()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_is_recognized_by_the_digest_in_its_path() {
        let digest = "a".repeat(64);
        let own = format!("/var/tmp/.remuda-x/{digest}/remuda");
        assert_eq!(cache_of(Path::new(&own)), Some("/var/tmp/.remuda-x".into()));
        assert_eq!(cache_of(Path::new("/usr/local/bin/remuda")), None);
    }
}
