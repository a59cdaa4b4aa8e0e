//! The list of process managers, in the order in which help texts name them.

use super::kinds;
use super::spec::ProcessManager;

/// Every process manager that `--launcher` knows.
pub static PROCESS_MANAGERS: [&ProcessManager; 8] = [
    &kinds::SLURM,
    &kinds::OPEN_MPI,
    &kinds::MPICH,
    &kinds::INTEL_MPI,
    &kinds::MVAPICH,
    &kinds::PBS,
    &kinds::LSF,
    &kinds::FLUX,
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn managers_have_names_of_their_own_and_a_program() {
        let options: HashSet<_> = PROCESS_MANAGERS.iter().map(|manager| manager.option).collect();
        let names: HashSet<_> = PROCESS_MANAGERS.iter().map(|manager| manager.name).collect();
        assert_eq!((options.len(), names.len()), (PROCESS_MANAGERS.len(), PROCESS_MANAGERS.len()));
        let is_word = |option: &str| option.bytes().all(|byte| byte.is_ascii_lowercase());
        assert!(options.iter().all(|option| is_word(option)), "{options:?}");
        assert!(PROCESS_MANAGERS.iter().all(|manager| !manager.programs.is_empty()));
    }
}
