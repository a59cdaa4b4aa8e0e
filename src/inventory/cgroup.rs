//! Control groups: directories that contain the limits of this process, in versions 1 and 2.

use std::fs;
use std::path::{Path, PathBuf};

/// Control group of this process, or an ancestor of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cgroup {
    /// Directory in the hierarchy of the requested controller, in version 1.
    V1(PathBuf),
    /// Directory in the unified hierarchy of version 2.
    V2(PathBuf),
}

/// All groups whose limits of `controller` apply to this process: its own and every ancestor.
///
/// `membership` is `/proc/self/cgroup`, `root` the directory where the hierarchies are mounted.
/// Inside a container the path may be that of the host: some of these directories then do not
/// exist, but the mount itself is among them.
pub(super) fn groups(membership: &Path, root: &Path, controller: &str) -> Vec<Cgroup> {
    let membership = fs::read_to_string(membership).unwrap_or_default();
    membership.lines().filter_map(|line| hierarchy(line, root, controller)).flatten().collect()
}

/// Groups of one line of `/proc/self/cgroup`: `0::/path` is version 2, `4:cpu,cpuacct:/path` is
/// version 1.
fn hierarchy(line: &str, root: &Path, controller: &str) -> Option<Vec<Cgroup>> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let path = Path::new(path.trim_start_matches('/'));
    if controllers.is_empty() {
        return Some(path.ancestors().map(|group| Cgroup::V2(root.join(group))).collect());
    }
    let mount = root.join(controller);
    let has_controller = controllers.split(',').any(|name| name == controller);
    has_controller.then(|| path.ancestors().map(|group| Cgroup::V1(mount.join(group))).collect())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Creates a tree of control groups; returns the membership file and the mount directory.
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
    fn cgroup_ancestors_of_the_controller_count() {
        let (membership, root) =
            tree("groups", "4:cpu,cpuacct:/box\n3:memory:/\n0::/pod/box\n", &[]);
        let (v1, v2) =
            (|path: &str| Cgroup::V1(root.join(path)), |path: &str| Cgroup::V2(root.join(path)));
        let of = |controller| groups(&membership, &root, controller);
        assert_eq!(of("cpu"), [v1("cpu/box"), v1("cpu/"), v2("pod/box"), v2("pod"), v2("")]);
        assert_eq!(of("memory"), [v1("memory/"), v2("pod/box"), v2("pod"), v2("")]);
        assert_eq!(groups(Path::new("/nowhere"), &root, "cpu"), []);
    }
}
