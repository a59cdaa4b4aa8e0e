//! Control groups: where the limits of this process are written, in either version.

use std::fs;
use std::path::{Path, PathBuf};

/// A group that we are in, or one above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// A directory of a hierarchy of version 1, which has the controller that was asked for.
    V1(PathBuf),
    /// A directory of the one hierarchy of version 2.
    V2(PathBuf),
}

/// Every group whose limits of `controller` hold for us: ours and all above it.
///
/// `membership` is `/proc/self/cgroup`, `root` where the hierarchies are mounted. Inside a container
/// the path may be that of the host: not all of these directories exist, but the mount itself is
/// among them.
pub(super) fn groups(membership: &Path, root: &Path, controller: &str) -> Vec<Group> {
    let membership = fs::read_to_string(membership).unwrap_or_default();
    membership.lines().filter_map(|line| hierarchy(line, root, controller)).flatten().collect()
}

/// The groups of one line: `0::/path` is version 2, `4:cpu,cpuacct:/path` is version 1.
fn hierarchy(line: &str, root: &Path, controller: &str) -> Option<Vec<Group>> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let path = Path::new(path.trim_start_matches('/'));
    if controllers.is_empty() {
        return Some(path.ancestors().map(|group| Group::V2(root.join(group))).collect());
    }
    let mount = root.join(controller);
    let is_ours = controllers.split(',').any(|name| name == controller);
    is_ours.then(|| path.ancestors().map(|group| Group::V1(mount.join(group))).collect())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A made-up tree: the file of memberships, and the directory where groups are mounted.
    pub(in crate::inventory) fn tree(
        name: &str,
        membership: &str,
        files: &[(&str, &str)],
    ) -> (PathBuf, PathBuf) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/cgroups").join(name);
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).expect("the target directory is writable");
        fs::write(root.join("membership"), membership).expect("written");
        for (path, text) in files {
            let path = root.join("fs").join(path);
            fs::create_dir_all(path.parent().expect("a file has a directory")).expect("made");
            fs::write(path, text).expect("written");
        }
        (root.join("membership"), root.join("fs"))
    }

    #[test]
    fn every_group_above_ours_counts_and_other_controllers_do_not() {
        let (membership, root) =
            tree("groups", "4:cpu,cpuacct:/box\n3:memory:/\n0::/pod/box\n", &[]);
        let (v1, v2) =
            (|path: &str| Group::V1(root.join(path)), |path: &str| Group::V2(root.join(path)));
        let of = |controller| groups(&membership, &root, controller);
        assert_eq!(of("cpu"), [v1("cpu/box"), v1("cpu/"), v2("pod/box"), v2("pod"), v2("")]);
        assert_eq!(of("memory"), [v1("memory/"), v2("pod/box"), v2("pod"), v2("")]);
        assert_eq!(groups(Path::new("/nowhere"), &root, "cpu"), []);
    }
}
