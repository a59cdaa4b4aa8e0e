//! Help for a worker that tried to read standard input and had none.

use crate::base::Rank;

/// Text that Python prints when `pdb` or `input()` finds standard input at its end.
const END_OF_INPUT_ERRORS: [&str; 3] =
    ["bdb.BdbQuit", "EOFError: EOF when reading a line", "EOFError: EOF when reading from stdin"];

/// The option for reading the terminal, if the last lines of a worker show that it tried to read.
pub(super) fn input_hint<'a>(
    rank: Rank,
    reads_input: bool,
    last_lines: impl IntoIterator<Item = &'a Vec<u8>>,
) -> Option<String> {
    let is_at_end = |line: &Vec<u8>| {
        let line = String::from_utf8_lossy(line);
        END_OF_INPUT_ERRORS.iter().any(|words| line.trim_start().starts_with(words))
    };
    let wanted_input = !reads_input && last_lines.into_iter().any(is_at_end);
    wanted_input.then(|| {
        format!(
            "rank {rank} has no standard input; `--stdin {rank}` connects it to the terminal, for pdb"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debugger_without_input_has_a_hint() {
        let hint = |reads_input, line: &str| {
            input_hint(Rank(1), reads_input, &[b"Traceback".to_vec(), line.as_bytes().to_vec()])
        };
        let expect =
            "rank 1 has no standard input; `--stdin 1` connects it to the terminal, for pdb";
        assert_eq!(hint(false, "bdb.BdbQuit").as_deref(), Some(expect));
        assert_eq!(hint(false, "EOFError: EOF when reading a line").as_deref(), Some(expect));
        assert_eq!(hint(true, "bdb.BdbQuit"), None, "it was connected");
        assert_eq!(hint(false, "EOFError: Ran out of input"), None, "that is pickle");
    }
}
