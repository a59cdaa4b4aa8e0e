//! Help for a worker that lacks something: standard input, a module of Python, a variable of another launcher,
//! memory of its GPU, a free port.

use std::ffi::OsStr;
use std::path::Path;

use crate::base::Rank;

/// Text that Python prints when `pdb` or `input()` finds standard input at its end.
const END_OF_INPUT_ERRORS: [&str; 3] =
    ["bdb.BdbQuit", "EOFError: EOF when reading a line", "EOFError: EOF when reading from stdin"];

/// The options for reading the terminal, if the last lines of a worker show that it tried to read.
/// `has_option`: whether the line that was typed can have them.
pub(in crate::launch) fn input_hint<'a>(
    (rank, reads_input): (Rank, bool),
    has_option: bool,
    last_lines: impl IntoIterator<Item = &'a Vec<u8>>,
) -> Option<String> {
    let is_at_end = |line: &Vec<u8>| {
        let line = String::from_utf8_lossy(line);
        // torch prints `[rank1]: ` in front of it.
        let line = match line.split_once("]: ") {
            Some((rank, rest)) if rank.starts_with("[rank") => rest,
            _ => line.trim_start(),
        };
        END_OF_INPUT_ERRORS.iter().any(|words| line.starts_with(words))
    };
    let wanted_input = !reads_input && last_lines.into_iter().any(is_at_end);
    let option = if has_option { "" } else { "of `remuda run` " };
    wanted_input.then(|| {
        format!(
            "rank {rank} has no standard input; `--stdin all` {option}gives it to every rank, `--stdin {rank}` to \
             rank {rank} alone"
        )
    })
}

/// Variables of the tasks of process managers, and those of workers with the same numbers.
const TASK_VARIABLES: [(&str, &str); 10] = [
    ("SLURM_PROCID", "RANK"),
    ("OMPI_COMM_WORLD_RANK", "RANK"),
    ("PMI_RANK", "RANK"),
    ("SLURM_LOCALID", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK"),
    ("MPI_LOCALRANKID", "LOCAL_RANK"),
    ("SLURM_NTASKS", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"),
    ("PMI_SIZE", "WORLD_SIZE"),
    ("SLURM_NTASKS_PER_NODE", "LOCAL_WORLD_SIZE"),
];

/// The variable to read, if an exception says that one of a process manager is missing.
pub(in crate::launch) fn variable_hint(exception: &str) -> Option<String> {
    let missing = exception.strip_prefix("KeyError: ")?.trim_matches(['\'', '"']);
    let (name, own) = TASK_VARIABLES.iter().find(|(name, _)| *name == missing)?;
    Some(format!(
        "`{name}` belongs to a task that `srun` or `mpirun` starts; in workers of remuda this number is `{own}`"
    ))
}

/// Parts of exceptions that stand for one remedy.
const REMEDIES: [(&str, &str); 5] = [
    ("Unknown backend type remuda", PACKAGE),
    ("No module named 'remuda'", PACKAGE),
    ("CUDA out of memory", GPU_MEMORY),
    ("HIP out of memory", GPU_MEMORY),
    (
        "EADDRINUSE",
        "the port belongs to another process; MASTER_PORT is free for the workers of this job, so `init_process_group` \
         needs neither an address nor a port there; processes that a worker starts need a MASTER_PORT of their own",
    ),
];
const PACKAGE: &str = "this Python does not have the package `remuda`: install its wheel, or name the directory \
                       `python` of its source in PYTHONPATH";
const GPU_MEMORY: &str = "less memory is needed by smaller micro-batches, by activation checkpointing, and by shards of \
                          the parameters (ZeRO 3, FSDP)";

/// What to do about an exception with a known text.
pub(in crate::launch) fn remedy_hint(exception: &str) -> Option<String> {
    let found = REMEDIES.iter().find(|(text, _)| exception.contains(text));
    found.map(|(_, remedy)| (*remedy).to_owned())
}

/// The interpreter that lacks a module, and `option`, which selects another one.
pub(in crate::launch) fn module_hint(
    exception: &str,
    interpreter: &OsStr,
    option: Option<&str>,
) -> Option<String> {
    const LACKS_MODULE: [&str; 2] = ["ModuleNotFoundError: No module named ", "No module named "];
    let name = Path::new(interpreter).file_name()?.to_string_lossy();
    let is_python = ["python", "pypy"].iter().any(|python| name.starts_with(python));
    let lacks_module = LACKS_MODULE.iter().any(|text| exception.starts_with(text));
    (is_python && lacks_module).then(|| {
        let option =
            option.map_or_else(String::new, |option| format!("; `{option}` selects another"));
        format!("the interpreter is `{}`{option}", interpreter.to_string_lossy())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_with_the_number_of_a_missing_one_is_named() {
        let help = variable_hint("KeyError: 'SLURM_PROCID'").expect("it is known");
        assert!(help.ends_with("this number is `RANK`"), "{help}");
        assert_eq!(variable_hint("KeyError: 'SLURM_X'"), None);
        assert_eq!(variable_hint("ValueError: 'SLURM_PROCID'"), None);
    }

    #[test]
    fn known_exceptions_have_a_remedy() {
        let backend = remedy_hint("AssertionError: Unknown backend type remuda").expect("known");
        assert!(backend.contains("does not have the package `remuda`"), "{backend}");
        let module = remedy_hint("ModuleNotFoundError: No module named 'remuda'");
        assert_eq!(module.as_deref(), Some(PACKAGE));
        let memory =
            remedy_hint("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB");
        assert_eq!(memory.as_deref(), Some(GPU_MEMORY));
        assert_eq!(remedy_hint("AssertionError: Unknown backend type nccl2"), None);
    }

    #[test]
    fn interpreter_without_a_module_is_named() {
        let hint = |exception: &str, program: &str, is_chosen: bool| {
            module_hint(exception, OsStr::new(program), is_chosen.then_some("--python FILE"))
        };
        let (torch, python) = ("ModuleNotFoundError: No module named 'torch'", "/usr/bin/python3");
        let expect = "the interpreter is `/usr/bin/python3`";
        assert_eq!(hint(torch, python, false).as_deref(), Some(expect));
        let expect = format!("{expect}; `--python FILE` selects another");
        assert_eq!(hint(torch, python, true), Some(expect.clone()));
        assert_eq!(hint("No module named train", python, true), Some(expect));
        assert_eq!(hint(torch, "./train", true), None);
        assert_eq!(hint("ValueError: No module named x", python, true), None);
    }

    #[test]
    fn debugger_without_input_has_a_hint() {
        let hint = |reads_input, line: &str| {
            input_hint(
                (Rank(1), reads_input),
                true,
                &[b"Traceback".to_vec(), line.as_bytes().to_vec()],
            )
        };
        let expect = "rank 1 has no standard input; `--stdin all` gives it to every rank, `--stdin 1` to rank 1 alone";
        assert_eq!(hint(false, "bdb.BdbQuit").as_deref(), Some(expect));
        assert_eq!(hint(false, "EOFError: EOF when reading a line").as_deref(), Some(expect));
        assert_eq!(hint(false, "[rank1]: bdb.BdbQuit").as_deref(), Some(expect));
        assert_eq!(hint(true, "bdb.BdbQuit"), None, "it was connected");
        assert_eq!(hint(false, "EOFError: Ran out of input"), None, "that is pickle");
    }
}
