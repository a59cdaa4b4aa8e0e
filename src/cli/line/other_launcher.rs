//! Lines of other launchers and of Python in the place of a script, `mpirun -np 4 ./worker`, and the
//! words of remuda with the same meaning. Pure.

use super::flags::underscored;
use crate::base::python_int;
use crate::cli::line::known_options::{Equivalent, is_script, meaning, option_and_value};
use crate::cli::line::nested_launcher::{
    is_python, launcher_of_python, nested_launcher, python_line,
};
use crate::cli::line::salloc_options::{SallocOption, salloc_option};
use crate::cli::line::unknown_option::{endpoint_words, is_automatic};

/// Other launchers of scripts of Python, which users type in front of a script.
const SCRIPT_LAUNCHERS: [&str; 13] = [
    "torchrun",
    "accelerate",
    "accelerate-launch",
    "deepspeed",
    "ds",
    "horovodrun",
    "ray",
    "colossalai",
    "composer",
    "torchx",
    "ft_launcher",
    "lightning",
    "fabric",
];
/// Launchers that run any program, and not only scripts of Python.
const RUN_PROGRAMS: [&str; 13] = [
    "mpirun",
    "mpirun.openmpi",
    "mpirun.mpich",
    "mpiexec",
    "mpiexec.openmpi",
    "mpiexec.mpich",
    "mpiexec.hydra",
    "orterun",
    "prterun",
    "prun",
    "srun",
    "jsrun",
    "aprun",
];

/// What to type instead of the line of another launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Instead {
    /// Another command of remuda, and the words after it: the command reads lines of that launcher.
    Command {
        /// `torchrun`, or `accelerate launch`.
        name: &'static str,
        /// Options, script and arguments.
        words: Vec<String>,
    },
    /// Words after `remuda run`.
    Run {
        /// Options, script and arguments.
        words: Vec<String>,
        /// What these words leave out.
        remark: Option<String>,
    },
    /// The whole line: the launcher, or the scheduler, starts remuda.
    Whole(Vec<String>),
}

/// Returns the name of another launcher, if this is one.
pub(in crate::cli) fn launcher_named(name: &str) -> Option<&'static str> {
    SCRIPT_LAUNCHERS.into_iter().chain(RUN_PROGRAMS).find(|known| *known == name)
}

/// Whether this is the name of another launcher.
pub(in crate::cli) fn is_launcher(name: &str) -> bool {
    launcher_named(name).is_some()
}

/// Returns what to type instead of a line that begins with a launcher or an interpreter.
pub(in crate::cli) fn instead_of(name: &str, rest: &[String]) -> Instead {
    let command = |name, words: &[String]| Instead::Command {
        name,
        words: if words.is_empty() { script() } else { words.to_vec() },
    };
    let run = |words: Option<Vec<String>>| Instead::Run {
        words: words.unwrap_or_else(script),
        remark: None,
    };
    match (name, rest) {
        ("torchrun", rest) => command("torchrun", rest),
        ("ft_launcher", rest) => command("torchrun", &without_ft_options(rest)),
        ("accelerate-launch", rest) => command("accelerate launch", rest),
        ("accelerate", [first, rest @ ..]) if first == "launch" => {
            command("accelerate launch", rest)
        }
        ("accelerate", rest) => command("accelerate", rest),
        ("torchx", rest) => command("torchrun", &torchx_words(rest)),
        // The options of DeepSpeed are those of remuda.
        ("deepspeed" | "ds", rest) => run(Some(rest.to_vec()).filter(|rest| !rest.is_empty())),
        ("ray", rest) => ray(rest),
        (name, rest) if is_python(name) => match launcher_of_python(rest) {
            Some(("run", rest)) => run(Some(rest.to_vec()).filter(|rest| !rest.is_empty())),
            Some((name, rest)) => command(name, rest),
            None => run(python_line(rest)),
        },
        (name, rest) => Translator::new(name, rest).instead(rest),
    }
}

fn script() -> Vec<String> {
    vec!["SCRIPT".to_owned()]
}

/// Returns a line of `ft_launcher` without the options that torchrun does not have.
fn without_ft_options(rest: &[String]) -> Vec<String> {
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(word) = rest.get(at).filter(|word| word.starts_with('-')) {
        at += 1;
        if !underscored(word).starts_with("__ft_") {
            words.push(word.clone());
        } else if !word.contains('=') && rest.get(at).is_some_and(|next| !next.starts_with('-')) {
            at += 1;
        }
        // The value of an option of torchrun.
        if let Some(value) = rest.get(at).filter(|next| !next.starts_with('-') && !is_script(next))
            && words.last() == Some(word)
            && !word.contains('=')
        {
            words.push(value.clone());
            at += 1;
        }
    }
    words.extend_from_slice(&rest[at..]);
    words
}

/// Returns words of torchrun for a line of torchx: `run dist.ddp -j 2x8 --script x.py`.
fn torchx_words(rest: &[String]) -> Vec<String> {
    let value = |names: [&str; 2]| {
        let at = rest.iter().position(|word| names.contains(&word.as_str()))?;
        rest.get(at + 1).cloned()
    };
    let size = value(["-j", "--j"]);
    let mut words = Vec::new();
    let workers = match size.as_deref().map(|size| size.split_once('x').unwrap_or(("1", size))) {
        Some(("1", workers)) => workers,
        Some((nodes, workers)) => {
            words.extend(["-H", "HOSTS", "--nnodes", nodes].map(str::to_owned));
            workers
        }
        None => "N",
    };
    words.extend(["--nproc-per-node", workers].map(str::to_owned));
    match value(["-m", "--m"]) {
        Some(module) => words.extend(["-m".to_owned(), module]),
        None => words.extend(value(["--script", "-script"]).map_or_else(script, |name| vec![name])),
    }
    let args = rest.iter().position(|word| word == "--").map_or(&[][..], |at| &rest[at + 1..]);
    words.extend_from_slice(args);
    words
}

/// Ray has lines that start a cluster, and lines that give it a job.
fn ray(rest: &[String]) -> Instead {
    let job = rest.iter().position(|word| word == "--").map(|at| &rest[at + 1..]);
    let words = job.and_then(|job| match job.split_first()? {
        (first, rest) if is_python(first) => {
            Some([&["--no_local_rank".to_owned()], &*python_line(rest)?].concat())
        }
        _ => Some([&["--no_python".to_owned(), "--no_local_rank".to_owned()], job].concat()),
    });
    Instead::Run {
        words: words.unwrap_or_else(script),
        remark: Some("remuda does not start Ray clusters".to_owned()),
    }
}

/// Returns the meaning of an option of a launcher.
fn meaning_in(launcher: &str, typed_name: &str) -> Option<Equivalent> {
    use Equivalent::{Devices, Same, Total, Unneeded, UnneededValue};
    const NEEDLESS: &str = "";
    let name = underscored(typed_name.trim_start_matches('-'));
    let is_slurm = launcher == "srun";
    Some(match (typed_name, &*name) {
        ("-a" | "-b" | "-c" | "-d" | "-g" | "-l" | "-r", _) if launcher == "jsrun" => {
            UnneededValue(NEEDLESS)
        }
        ("-p", _) if launcher == "jsrun" => Total,
        ("-d" | "-cc", _) if launcher == "aprun" => UnneededValue(NEEDLESS),
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
        (_, "num_nodes") => Same("num_nodes"),
        _ => return meaning(&name),
    })
}

/// The numbers of a line, which decide together.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    nodes: Option<i64>,
    total: Option<i64>,
    per_node: Option<i64>,
}

/// Translation of a line of a launcher, which is in progress.
struct Translator<'a> {
    launcher: &'a str,
    has_hosts: bool,
    counts: Counts,
    /// The options for remuda.
    line: Vec<String>,
    /// The options for `salloc`.
    allocation: Vec<String>,
    /// Whether one of them is more than a number of tasks.
    needs_resources: bool,
    /// Whether the hosts come and go.
    is_elastic: bool,
}

impl<'a> Translator<'a> {
    fn new(launcher: &'a str, rest: &[String]) -> Self {
        let names_hosts = |word: &&String| {
            let name = word.split('=').next().unwrap_or_default();
            word.starts_with('-')
                && meaning_in(launcher, name) == Some(Equivalent::Same("hostfile"))
        };
        let options = rest.iter().take_while(|word| *word != "--");
        let has_hosts = options.clone().any(|word| names_hosts(&word));
        Self {
            launcher,
            has_hosts,
            counts: Counts::default(),
            line: Vec::new(),
            allocation: Vec::new(),
            needs_resources: false,
            is_elastic: false,
        }
    }

    /// Returns what to type.
    fn instead(mut self, typed: &[String]) -> Instead {
        let mut rest = typed;
        let has_subcommand = matches!(self.launcher, "colossalai" | "lightning" | "fabric");
        while let Some((word, after)) = rest.split_first().filter(|_| has_subcommand)
            && matches!(word.as_str(), "run" | "model")
        {
            rest = after;
        }
        while let Some((word, after)) = rest.split_first()
            && word.starts_with('-')
        {
            rest = after;
            if word == "--" {
                break;
            }
            let (name, attached) = option_and_value(word);
            let next = after.first().map(String::as_str);
            let text = attached.or(next).unwrap_or_default();
            let takes_value = match self.launcher {
                "srun" if !self.has_hosts => self.slurm_option(word, (name, attached), text),
                _ => self.option(name, text),
            };
            if takes_value && attached.is_none() {
                rest = after.get(1..).unwrap_or_default();
            }
        }
        if let Some(nested) =
            nested_launcher(rest).filter(|_| RUN_PROGRAMS.contains(&self.launcher))
        {
            let options = &typed[..typed.len() - rest.len()];
            return Instead::Whole([&[self.launcher.to_owned()], options, &*nested].concat());
        }
        let has_nodes = self.counts.nodes.is_some_and(|nodes| 1 < nodes);
        let is_allocated = self.needs_resources || has_nodes && !self.allocation.is_empty();
        let remark = self.add_counts(is_allocated);
        let elastic = "hosts that come and go are `-H HOSTS --min_nodes N`";
        let remark = remark.or_else(|| self.is_elastic.then(|| elastic.to_owned()));
        // `mpirun -np 2 A : -np 1 B` starts two programs.
        let runs_several = RUN_PROGRAMS.contains(&self.launcher);
        let end = rest.iter().position(|word| word == ":").filter(|_| runs_several);
        let several = end.map(|_| "a job has one program, the one before `:`".to_owned());
        let (remark, rest) = (several.or(remark), &rest[..end.unwrap_or(rest.len())]);
        let words = self.with_program(rest).unwrap_or_else(script);
        if is_allocated {
            let start = ["remuda".to_owned(), "run".to_owned()];
            return Instead::Whole(
                [&["salloc".to_owned()], &*self.allocation, &start, &words].concat(),
            );
        }
        Instead::Run { words, remark }
    }

    /// Adds an option of `srun`, for `salloc` if that has it; returns whether it takes a value.
    fn slurm_option(
        &mut self,
        word: &str,
        (name, attached): (&str, Option<&str>),
        text: &str,
    ) -> bool {
        let kept = salloc_option(name);
        let takes_value = match kept {
            Some(SallocOption::Resource { takes_value }) => {
                self.needs_resources = true;
                takes_value
            }
            Some(SallocOption::TaskCount) | None => self.option(name, text),
        };
        if kept.is_some() {
            let value = attached.is_none() && takes_value;
            self.allocation.push(word.to_owned());
            self.allocation.extend(value.then(|| text.to_owned()));
        }
        takes_value
    }

    /// Adds the words for an option; returns whether it takes a value.
    fn option(&mut self, typed_name: &str, text: &str) -> bool {
        match typed_name {
            "-m" | "--module" => return self.switch(&["--module"]),
            "--no_python" | "--no-python" => {
                return self.switch(&["--no_python", "--no_local_rank"]);
            }
            "--oversubscribe" => return self.switch(&["--oversubscribe"]),
            "--min-np" | "--max-np" | "--host-discovery-script" => {
                self.is_elastic = true;
                return true;
            }
            _ => {}
        }
        let number = python_int(text);
        match meaning_in(self.launcher, typed_name) {
            Some(Equivalent::Total) => self.counts.total = number,
            Some(Equivalent::Same("num_nodes")) => self.counts.nodes = number,
            Some(Equivalent::Same("num_gpus")) => self.counts.per_node = number,
            Some(Equivalent::Devices) if number.is_some() => {
                self.counts.per_node = number;
            }
            Some(Equivalent::Devices) if !is_automatic(text) => {
                self.add(&["--include", &format!("localhost:{text}")]);
            }
            Some(Equivalent::Same("hostfile")) => self.add(&["-H", text]),
            Some(Equivalent::Same(own)) => self.add(&[&format!("--{own}"), text]),
            Some(Equivalent::Endpoint) => {
                let words = endpoint_words(text, ["master_addr", "master_port"]);
                self.add(&words.split(' ').collect::<Vec<_>>());
            }
            Some(Equivalent::Options(words)) if words.contains("{}") => {
                let words = words.replace("{}", text);
                self.add(&words.split(' ').collect::<Vec<_>>());
            }
            Some(Equivalent::Options(words)) => {
                let is_switch = matches!(
                    typed_name.trim_start_matches('-'),
                    "cpu" | "use_cpu" | "use_deepspeed" | "verbose" | "debug"
                );
                return !(is_switch && self.switch_words(words));
            }
            Some(Equivalent::ScriptSwitch | Equivalent::Unneeded(_)) => return false,
            // An unknown option has a value unless the next word looks like a program.
            None if text.starts_with('-') || text.contains('/') || is_script(text) => return false,
            Some(
                Equivalent::Script
                | Equivalent::UnneededValue(_)
                | Equivalent::OfAccelerate
                | Equivalent::Selection
                | Equivalent::Devices,
            )
            | None => {}
        }
        true
    }

    fn add(&mut self, words: &[&str]) {
        self.line.extend(words.iter().map(|word| (*word).to_owned()));
    }

    /// Adds words for an option that takes no value.
    fn switch(&mut self, words: &[&str]) -> bool {
        self.add(words);
        false
    }

    fn switch_words(&mut self, words: &str) -> bool {
        self.add(&words.split(' ').collect::<Vec<_>>());
        true
    }

    /// Adds the numbers of nodes and workers; returns what they do not say. The slots of an allocation are
    /// its GPUs, or else its tasks.
    fn add_counts(&mut self, is_allocated: bool) -> Option<String> {
        let Counts { nodes, total, per_node } = self.counts;
        let divided = |by: i64| total.filter(|total| 0 < by && total % by == 0).map(|all| all / by);
        let nodes = nodes.or_else(|| divided(per_node?)).filter(|nodes| 1 < *nodes);
        let per_node = per_node.or_else(|| divided(nodes?)).or(match (nodes, self.has_hosts) {
            (None, false) if !is_allocated => total,
            _ => None,
        });
        let mut words = Vec::new();
        if let Some(nodes) = nodes.filter(|_| !is_allocated) {
            let hosts = if self.has_hosts { "" } else { "-H HOSTS " };
            words.push(format!("{hosts}--num_nodes {nodes}"));
        }
        let is_gpu_option =
            |word: &String| word == "-G" || word.starts_with("--gpus") || word.contains("gpu:");
        let has_gpus = self.allocation.iter().any(is_gpu_option);
        let per_node = per_node.filter(|_| !is_allocated || has_gpus);
        words.extend(per_node.map(|workers| format!("-n {workers}")));
        let words = words.join(" ");
        let words: Vec<_> = words.split(' ').filter(|word| !word.is_empty()).collect();
        self.line.splice(..0, words.into_iter().map(str::to_owned));
        let is_open = total.is_some() && per_node.is_none();
        is_open.then(|| "it uses all slots of the hosts; `-n N` limits them per host".to_owned())
    }

    /// Adds the program and its arguments.
    fn with_program(&self, rest: &[String]) -> Option<Vec<String>> {
        let mut line = self.line.clone();
        let program = rest.first()?;
        let has = |line: &[String], name: &str| line.iter().any(|word| word == name);
        let without_rank = "--no_local_rank".to_owned();
        if is_python(program) {
            line.push(without_rank);
            line.extend(python_line(&rest[1..])?);
            return Some(line);
        }
        let runs_programs = RUN_PROGRAMS.contains(&self.launcher) || self.launcher == "horovodrun";
        let is_python = is_script(program) || has(&line, "--module") || !runs_programs;
        if is_python && !has(&line, "--no_local_rank") {
            line.push(without_rank);
        } else if !is_python && !program.contains('/') {
            line.extend(["--no_python".to_owned(), without_rank]);
        }
        line.extend_from_slice(rest);
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks what to type after `remuda`; a remark is behind `;`.
    #[track_caller]
    fn check(line: &str, expect: &str) {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let found = match instead_of(&words[0], &words[1..]) {
            Instead::Command { name, words } => format!("{name} {}", words.join(" ")),
            Instead::Run { words, remark: None } => format!("run {}", words.join(" ")),
            Instead::Run { words, remark: Some(remark) } => {
                format!("run {}; {remark}", words.join(" "))
            }
            Instead::Whole(words) => format!("- {}", words.join(" ")),
        };
        assert_eq!(found, expect, "for `{line}`");
    }

    #[test]
    fn lines_that_remuda_reads_stay_as_they_are() {
        check("torchrun --nproc_per_node 4 x.py --lr 1", "torchrun --nproc_per_node 4 x.py --lr 1");
        check("torchrun", "torchrun SCRIPT");
        check(
            "accelerate launch --config_file c.yaml x.py",
            "accelerate launch --config_file c.yaml x.py",
        );
        check("accelerate-launch x.py", "accelerate launch x.py");
        check("accelerate env", "accelerate env");
        check("python -m torch.distributed.run x.py", "torchrun x.py");
        check("python3 -m torch.distributed.launch x.py", "torch.distributed.launch x.py");
        check("python -m accelerate.commands.launch x.py", "accelerate launch x.py");
        check("python3 -u -X dev -m torch.distributed.run x.py", "torchrun x.py");
        check("python -m torch.run --nproc_per_node 2 x.py", "torchrun --nproc_per_node 2 x.py");
        check("python -m accelerate.commands.accelerate_cli launch x.py", "accelerate launch x.py");
        check("python -u -m deepspeed --num_gpus 2 x.py", "run --num_gpus 2 x.py");
        check("python -m deepspeed.launcher.runner", "run SCRIPT");
        check("deepspeed --num_gpus 2 x.py --lr 1", "run --num_gpus 2 x.py --lr 1");
        check("deepspeed", "run SCRIPT");
        check(
            "ft_launcher --ft-initial-rank-heartbeat-timeout 30 --nproc_per_node 4 --ft-x=1 x.py a",
            "torchrun --nproc_per_node 4 x.py a",
        );
    }

    #[test]
    fn lines_of_python_are_lines_of_run() {
        check("python x.py --lr 1", "run x.py --lr 1");
        check("python3 -u -m pkg --lr 1", "run --module pkg --lr 1");
        check("python", "run SCRIPT");
    }

    #[test]
    fn lines_of_mpi_are_translated() {
        check("mpirun -np 4 ./worker 8", "run -n 4 ./worker 8");
        check(
            "mpirun -np 4 -hostfile hosts ./worker",
            "run -H hosts ./worker; it uses all slots of the hosts; `-n N` limits them per host",
        );
        check("mpirun -np 2 -x A=1 python -u x.py", "run -n 2 --env A=1 --no_local_rank x.py");
        check("mpiexec -n 2 python3 -m pkg", "run -n 2 --no_local_rank --module pkg");
        check("mpirun -np 2 hostname", "run -n 2 --no_python --no_local_rank hostname");
        check("prterun -n 2 ./w", "run -n 2 ./w");
        check("mpirun -np 8 -npernode 4 ./w", "run -H HOSTS --num_nodes 2 -n 4 ./w");
        check("aprun -n 16 -N 8 -d 4 ./w", "run -H HOSTS --num_nodes 2 -n 8 ./w");
        check("jsrun -n 4 -g 1 -c 7 ./w", "run -n 4 ./w");
        check("mpirun", "run SCRIPT");
        check("mpirun.openmpi", "run SCRIPT");
    }

    #[test]
    fn lines_of_slurm_keep_their_counts() {
        check(
            "srun -N 2 --ntasks-per-node 8 -p gpu ./w",
            "- salloc -N 2 --ntasks-per-node 8 -p gpu remuda run ./w",
        );
        check("srun -N2 -n16 x.py", "- salloc -N2 -n16 remuda run --no_local_rank x.py");
        check("srun -N 2 ok.py", "- salloc -N 2 remuda run --no_local_rank ok.py");
        check(
            "srun -N 4 --gpus-per-node 8 python -u x.py",
            "- salloc -N 4 --gpus-per-node 8 remuda run --no_local_rank x.py",
        );
        check(
            "srun -N 2 -G 16 --ntasks-per-node=8 -c 6 -p gpu -t 2:00 --exclusive -l x.py",
            "- salloc -N 2 -G 16 --ntasks-per-node=8 -c 6 -p gpu -t 2:00 --exclusive remuda run -n 8 \
             --no_local_rank x.py",
        );
        check(
            "srun -N 4 --ntasks-per-node 8 --gpus-per-task 1 x.py",
            "- salloc -N 4 --ntasks-per-node 8 --gpus-per-task 1 remuda run -n 8 --no_local_rank x.py",
        );
        check(
            "srun -n 32 --gpus-per-task 1 x.py",
            "- salloc -n 32 --gpus-per-task 1 remuda run --no_local_rank x.py",
        );
        check("srun -n4 x.py", "run -n 4 --no_local_rank x.py");
        check(
            "srun -N 2 --gres gpu:8 torchrun --nnodes 2 x.py",
            "- srun -N 2 --gres gpu:8 remuda torchrun --nnodes 2 x.py",
        );
        check(
            "srun -N 2 python -u -m torch.distributed.run x.py",
            "- srun -N 2 remuda torchrun x.py",
        );
        check(
            "mpirun -f hosts -n 16 -ppn 4 accelerate launch x.py",
            "- mpirun -f hosts -n 16 -ppn 4 remuda accelerate launch x.py",
        );
    }

    #[test]
    fn lines_of_other_launchers_are_translated() {
        check(
            "mpirun -np 2 python x.py : -np 1 python y.py",
            "run -n 2 --no_local_rank x.py; a job has one program, the one before `:`",
        );
        check(
            "horovodrun -np 4 --min-np 2 --host-discovery-script d.sh python x.py",
            "run -n 4 --no_local_rank x.py; hosts that come and go are `-H HOSTS --min_nodes N`",
        );
        check(
            "horovodrun -np 4 -H n1:2,n2:2 python x.py",
            "run -H n1:2,n2:2 --no_local_rank x.py; it uses all slots of the hosts; `-n N` limits them \
             per host",
        );
        check("composer -n 8 x.py --lr 1", "run -n 8 --no_local_rank x.py --lr 1");
        check(
            "colossalai run --nproc_per_node 4 --host n1,n2 x.py",
            "run -n 4 -H n1,n2 --no_local_rank x.py",
        );
        check(
            "lightning run model --strategy ddp --devices=4 --num-nodes 2 x.py",
            "run -H HOSTS --num_nodes 2 -n 4 --no_local_rank x.py",
        );
        check(
            "torchx run -s slurm dist.ddp -j 2x8 --script x.py -- --lr 1",
            "torchrun -H HOSTS --nnodes 2 --nproc-per-node 8 x.py --lr 1",
        );
        check("torchx run dist.ddp -j 1x4 --script x.py", "torchrun --nproc-per-node 4 x.py");
        let ray = "remuda does not start Ray clusters";
        check("ray start --head", &format!("run SCRIPT; {ray}"));
        check("ray job submit -- python w.py", &format!("run --no_local_rank w.py; {ray}"));
    }
}
