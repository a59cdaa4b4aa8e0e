//! Lines of other launchers and of Python in the place of a script, `mpirun -np 4 ./worker`, and the
//! words of remuda with the same meaning. Pure.

use std::path::Path;

use super::flags::underscored;
use crate::cli::line::equivalents::{Equivalent, is_automatic, meaning};
use crate::pool::python_int;

/// Other launchers, which users type in front of a script.
pub(in crate::cli) const LAUNCHERS: [&str; 9] =
    ["torchrun", "accelerate", "deepspeed", "ds", "mpirun", "mpiexec", "srun", "horovodrun", "ray"];
/// Launchers that run any program, and not only scripts of Python.
const RUN_PROGRAMS: [&str; 4] = ["mpirun", "mpiexec", "srun", "horovodrun"];

/// Whether this is the name of another launcher.
pub(in crate::cli) fn is_launcher(name: &str) -> bool {
    LAUNCHERS.contains(&name)
}

/// Whether a name is that of a Python interpreter: `python`, `python3`, `python3.12`.
pub(in crate::cli) fn is_python(name: &str) -> bool {
    let version = name.strip_prefix("python");
    version.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}

/// Returns the words for remuda of a line without its interpreter; `-m` becomes an option.
pub(in crate::cli) fn python_line(rest: &[String]) -> Option<Vec<String>> {
    let at = rest.iter().position(|word| word == "-m" || !word.starts_with('-'))?;
    if rest[at] != "-m" {
        return Some(rest[at..].to_vec());
    }
    let module = &rest[at + 1..];
    (!module.is_empty()).then(|| [&["--module".to_owned()], module].concat())
}

/// Returns the words for remuda of a line of another launcher, which begins after its name; `None`
/// if there is no program.
pub(in crate::cli) fn translated(launcher: &str, rest: &[String]) -> Option<Vec<String>> {
    // The options of DeepSpeed are those of remuda.
    if matches!(launcher, "deepspeed" | "ds") {
        return (!rest.is_empty()).then(|| rest.to_vec());
    }
    let is_accelerate = launcher == "accelerate" && rest.first().is_some_and(|one| one == "launch");
    let mut rest = &rest[usize::from(is_accelerate)..];
    let has_hosts = rest.iter().any(|word| names_hosts(launcher, word));
    let launcher = Launcher { name: launcher, has_hosts };
    let mut line: Vec<String> = Vec::new();
    while let Some((word, after)) = rest.split_first()
        && word.starts_with('-')
    {
        rest = after;
        if word == "--" {
            break;
        }
        let (name, attached) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (&**word, None),
        };
        let next = after.first().map(String::as_str);
        let option = launcher.option(name, attached.or(next));
        line.extend(option.words);
        if option.takes_value && attached.is_none() {
            rest = after.get(1..)?;
        }
    }
    launcher.with_program(line, rest)
}

/// Whether an option names the hosts of the job.
fn names_hosts(launcher: &str, word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default();
    word.starts_with('-') && meaning_in(launcher, name) == Some(Equivalent::Same("hostfile"))
}

/// Returns the meaning of an option of a launcher.
fn meaning_in(launcher: &str, typed_name: &str) -> Option<Equivalent> {
    use Equivalent::{Devices, Same, Total, Unneeded, UnneededValue};
    const NEEDLESS: &str = "";
    let name = underscored(typed_name.trim_start_matches('-'));
    let is_slurm = launcher == "srun";
    Some(match (typed_name, &*name) {
        ("-n" | "-c", _) if RUN_PROGRAMS.contains(&launcher) && !is_slurm => Total,
        ("-n", _) => Total,
        ("-N", _) if is_slurm => Same("num_nodes"),
        ("-N", _) => Same("num_gpus"),
        ("-G", _) => Devices,
        ("-H" | "-f", _) | (_, "hostfile") => Same("hostfile"),
        ("-w", _) if is_slurm => Same("hostfile"),
        ("-x", _) => Same("env"),
        ("-c" | "-p" | "-A" | "-t" | "-J", _) if is_slurm => UnneededValue(NEEDLESS),
        // One command starts the workers of every node.
        (_, "node_rank" | "machine_rank" | "group_rank") => UnneededValue(NEEDLESS),
        ("-q" | "-v" | "-l" | "-u", _) => Unneeded(NEEDLESS),
        (_, "log_dir") => Same("log_dir"),
        (_, "max_restarts") => Same("max_restarts"),
        (_, "master_addr") => Same("master_addr"),
        (_, "master_port") => Same("master_port"),
        _ => return meaning(&name),
    })
}

/// Another launcher, and what its line says about hosts.
#[derive(Clone, Copy)]
struct Launcher<'a> {
    name: &'a str,
    has_hosts: bool,
}

/// An option of another launcher.
struct TranslatedOption {
    takes_value: bool,
    /// The words for remuda.
    words: Vec<String>,
}

impl Launcher<'_> {
    fn option(self, typed_name: &str, value: Option<&str>) -> TranslatedOption {
        let of_words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let switch =
            |words: &[&str]| TranslatedOption { takes_value: false, words: of_words(words) };
        let with_value =
            |words: &[&str]| TranslatedOption { takes_value: true, words: of_words(words) };
        match typed_name {
            "-m" | "--module" => return switch(&["--module"]),
            "--no_python" | "--no-python" => return switch(&["--no_python", "--no_local_rank"]),
            "--oversubscribe" => return switch(&["--oversubscribe"]),
            _ => {}
        }
        let text = value.unwrap_or_default();
        let is_number = python_int(text).is_some();
        match meaning_in(self.name, typed_name) {
            Some(Equivalent::Total) if self.has_hosts => with_value(&[]),
            Some(Equivalent::Total | Equivalent::Same("num_gpus") | Equivalent::Devices)
                if is_number =>
            {
                with_value(&["-n", text])
            }
            Some(Equivalent::Devices) if !is_automatic(text) => {
                with_value(&["--include", &format!("localhost:{text}")])
            }
            Some(Equivalent::Same("num_nodes")) => with_value(&self.nodes(text)),
            Some(Equivalent::Same("hostfile")) => with_value(&["-H", text]),
            Some(Equivalent::Same("num_gpus") | Equivalent::Total | Equivalent::Devices) => {
                with_value(&[])
            }
            Some(Equivalent::Same(own)) => with_value(&[&format!("--{own}"), text]),
            Some(Equivalent::Options(words)) if words.contains("{}") => {
                let words = words.replace("{}", text);
                with_value(&words.split(' ').collect::<Vec<_>>())
            }
            Some(Equivalent::Options(words)) => match typed_name.trim_start_matches('-') {
                "cpu" | "use_cpu" | "use_deepspeed" | "verbose" | "debug" => {
                    switch(&words.split(' ').collect::<Vec<_>>())
                }
                _ => with_value(&[]),
            },
            Some(Equivalent::ScriptSwitch | Equivalent::Unneeded(_)) => switch(&[]),
            // An unknown option has a value unless the next word looks like a program.
            None if text.starts_with('-') || text.contains('/') || is_script(text) => switch(&[]),
            Some(Equivalent::Script | Equivalent::UnneededValue(_)) | None => with_value(&[]),
        }
    }

    fn nodes(self, number: &str) -> Vec<&str> {
        match number {
            "1" | "1:1" => Vec::new(),
            _ if self.has_hosts || self.name == "srun" => vec!["--num_nodes", number],
            _ => vec!["-H", "HOSTS", "--num_nodes", number],
        }
    }

    /// Adds the program and its arguments.
    fn with_program(self, mut line: Vec<String>, rest: &[String]) -> Option<Vec<String>> {
        let program = rest.first()?;
        let has = |line: &[String], name: &str| line.iter().any(|word| word == name);
        let without_rank = "--no_local_rank".to_owned();
        if is_python(program) {
            line.push(without_rank);
            line.extend(python_line(&rest[1..])?);
            return Some(line);
        }
        let is_python =
            is_script(program) || has(&line, "--module") || !RUN_PROGRAMS.contains(&self.name);
        if is_python && !has(&line, "--no_local_rank") {
            line.push(without_rank);
        } else if !is_python && !program.contains('/') {
            line.extend(["--no_python".to_owned(), without_rank]);
        }
        line.extend_from_slice(rest);
        Some(line)
    }
}

fn is_script(word: &str) -> bool {
    Path::new(word).extension().is_some_and(|end| end == "py")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expect: Option<&str>) {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let found = translated(&words[0], &words[1..]).map(|words| words.join(" "));
        assert_eq!(found.as_deref(), expect, "for `{line}`");
    }

    #[test]
    fn lines_of_torchrun_are_translated() {
        check("torchrun --nproc_per_node 4 x.py --lr 1", Some("-n 4 --no_local_rank x.py --lr 1"));
        check("torchrun --nproc-per-node=2 x.py", Some("-n 2 --no_local_rank x.py"));
        check("torchrun --standalone --nproc_per_node gpu x.py", Some("--no_local_rank x.py"));
        check(
            "torchrun --nnodes 2 --node_rank 0 --nproc_per_node 4 --rdzv_endpoint n1:1 -m pkg",
            Some("-H HOSTS --num_nodes 2 -n 4 --module --no_local_rank pkg"),
        );
        check("torchrun --nnodes=1 --bogus 3 x.py", Some("--no_local_rank x.py"));
        check("torchrun --log_dir d --tee 3 x.py", Some("--log_dir d --no_local_rank x.py"));
        check("torchrun --no_python ./w", Some("--no_python --no_local_rank ./w"));
        check("torchrun", None);
        check("torchrun --nproc_per_node 4", None);
    }

    #[test]
    fn lines_of_other_launchers_are_translated() {
        check("deepspeed --num_gpus 2 x.py --lr 1", Some("--num_gpus 2 x.py --lr 1"));
        check("deepspeed", None);
        check(
            "accelerate launch --num_processes 2 --multi_gpu x.py",
            Some("-n 2 --no_local_rank x.py"),
        );
        check("accelerate launch --config_file c.yaml x.py", Some("--no_local_rank x.py"));
        check("mpirun -np 4 ./worker 8", Some("-n 4 ./worker 8"));
        check("mpirun -np 4 -hostfile hosts ./worker", Some("-H hosts ./worker"));
        check("mpirun -np 2 -x A=1 python -u x.py", Some("-n 2 --env A=1 --no_local_rank x.py"));
        check("mpiexec -n 2 python3 -m pkg", Some("-n 2 --no_local_rank --module pkg"));
        check("mpirun -np 2 hostname", Some("-n 2 --no_python --no_local_rank hostname"));
        check("srun -N 2 --ntasks-per-node 8 -p gpu ./w", Some("--num_nodes 2 -n 8 ./w"));
        check(
            "horovodrun -np 4 -H n1:2,n2:2 python x.py",
            Some("-H n1:2,n2:2 --no_local_rank x.py"),
        );
    }
}
