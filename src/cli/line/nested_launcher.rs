//! Launchers inside another line: as modules of Python, behind another launcher, in the text of a shell. Pure.

/// Whether a name is that of a Python interpreter: `python`, `python3`, `python3.12`.
pub(in crate::cli) fn is_python(name: &str) -> bool {
    let version = name.strip_prefix("python");
    version.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}

/// Returns the command of remuda that reads the lines of a module of Python, and the words after the module, if
/// a line of the interpreter starts such a module: `-u -m torch.distributed.run x.py`.
pub(in crate::cli) fn launcher_of_python(rest: &[String]) -> Option<(&'static str, &[String])> {
    let (true, [module, rest @ ..]) = program_of_python(rest)? else { return None };
    Some(match (module.as_str(), rest) {
        ("torch.distributed.launch", rest) => ("torch.distributed.launch", rest),
        // There is no `torch.run`, but many type it.
        ("torch.distributed.run" | "torch.run", rest) => ("torchrun", rest),
        ("accelerate.commands.launch", rest) => ("accelerate launch", rest),
        ("accelerate.commands.accelerate_cli", [first, rest @ ..]) if first == "launch" => {
            ("accelerate launch", rest)
        }
        ("accelerate.commands.accelerate_cli", rest) => ("accelerate", rest),
        ("deepspeed" | "deepspeed.launcher.runner", rest) => ("run", rest),
        _ => return None,
    })
}

/// Returns the words for remuda of a line without its interpreter; `-m` becomes an option.
pub(super) fn python_line(rest: &[String]) -> Option<Vec<String>> {
    Some(match program_of_python(rest)? {
        (true, module) => [&["--module".to_owned()], module].concat(),
        (false, script) => script.to_vec(),
    })
}

/// Returns whether a line of the interpreter runs a module, and the words from the module or the script on.
fn program_of_python(rest: &[String]) -> Option<(bool, &[String])> {
    let (word, after) = rest.split_first()?;
    match word.as_str() {
        "-m" => (!after.is_empty()).then_some((true, after)),
        "-X" | "-W" => program_of_python(after.get(1..)?),
        option if option.starts_with('-') => program_of_python(after),
        _ => Some((false, rest)),
    }
}

/// Returns a program that is itself a launcher whose lines remuda reads, with remuda in its place: `torchrun x.py`,
/// also in the text of a shell. The outer launcher keeps its place.
pub(super) fn nested_launcher(program: &[String]) -> Option<Vec<String>> {
    let own = |name: &str, rest: &[String]| {
        let name = ["remuda"].into_iter().chain(name.split(' ')).map(str::to_owned);
        name.chain(rest.iter().cloned()).collect()
    };
    match program {
        [name, rest @ ..] if matches!(name.as_str(), "torchrun" | "accelerate") => {
            Some(own(name, rest))
        }
        [name, rest @ ..] if is_python(name) => {
            launcher_of_python(rest).map(|(name, rest)| own(name, rest))
        }
        [shell, options @ .., text] if matches!(shell.as_str(), "sh" | "bash") => {
            let words: Vec<&str> = text.split(' ').collect();
            let at = words.iter().position(|word| matches!(*word, "torchrun" | "accelerate"))?;
            let text = [&words[..at], &["remuda"], &words[at..]].concat().join(" ");
            Some([std::slice::from_ref(shell), options, &[text]].concat())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_in_the_text_of_a_shell_are_found() {
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let found = |line: &[&str]| nested_launcher(&words(line));
        assert_eq!(
            found(&["bash", "-c", "cd w; torchrun --node_rank $SLURM_PROCID x.py"]),
            Some(words(&["bash", "-c", "cd w; remuda torchrun --node_rank $SLURM_PROCID x.py"]))
        );
        assert_eq!(found(&["sh", "-c", "python x.py"]), None);
        assert_eq!(found(&["torchrun", "x.py"]), Some(words(&["remuda", "torchrun", "x.py"])));
    }
}
