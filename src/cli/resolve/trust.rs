//! Which files are trusted: by their owner and their permissions.

/// Which owners and permissions of a file are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Files that not every user can write.
    Owner,
    /// All files (`--allow_insecure_files`).
    All,
}

impl Trust {
    /// Returns what `--allow_insecure_files` means.
    pub(in crate::cli) fn of(allow_insecure_files: bool) -> Self {
        if allow_insecure_files { Self::All } else { Self::Owner }
    }
}

/// Whether a file belongs to a user that is not trusted: root trusts every owner, other users trust
/// only themselves and root.
pub(super) fn is_foreign(owner: u32, own: u32) -> bool {
    own != 0 && owner != 0 && owner != own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_root_and_the_own_user_are_trusted() {
        assert!(!is_foreign(1000, 1000));
        assert!(!is_foreign(0, 1000));
        assert!(is_foreign(1001, 1000));
        assert!(!is_foreign(1001, 0));
    }
}
