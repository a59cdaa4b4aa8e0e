//! A note on options of the launcher that stand behind the script, where they are arguments of the script. Pure.

use std::ffi::OsString;

use crate::base::shell::quoted;

/// Options of launchers that scripts hardly have, with dashes.
const LAUNCHER_ONLY: [&str; 17] = [
    "hostfile",
    "include",
    "exclude",
    "num-gpus",
    "nproc-per-node",
    "nnodes",
    "standalone",
    "max-restarts",
    "rdzv-backend",
    "rdzv-endpoint",
    "rdzv-id",
    "num-machines",
    "num-processes",
    "machine-rank",
    "main-process-ip",
    "main-process-port",
    "dry-run",
];

/// Returns a note on the first argument of a script that looks like an option of a launcher; `args` are the
/// words after the script.
pub(super) fn note_of_misplaced(args: &[OsString]) -> Option<String> {
    let misplaced = args.iter().map(|word| word.to_string_lossy()).find(|word| {
        let name = word.strip_prefix("--").map(|rest| rest.split('=').next().unwrap_or(rest));
        name.is_some_and(|name| LAUNCHER_ONLY.contains(&name.replace('_', "-").as_str()))
    })?;
    Some(format!(
        "note: `{}` stands behind the script, so it is an argument of the script; options of the launcher stand \
         before it\n",
        quoted(misplaced.as_ref())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(args: &[&str]) -> Option<String> {
        note_of_misplaced(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn options_of_launchers_behind_the_script_are_noted() {
        for word in ["--nproc_per_node", "--nproc-per-node=2", "--hostfile", "--num_processes=8"] {
            let shown = note(&["--lr", "0.1", word, "2"]).expect("a note");
            assert!(shown.starts_with(&format!("note: `{word}` stands behind")), "{shown}");
        }
    }

    #[test]
    fn arguments_of_scripts_are_not_noted() {
        assert_eq!(
            note(&["--num_nodes", "2", "--local_rank=0", "nnodes", "--", "--nnodes-max"]),
            None
        );
    }
}
