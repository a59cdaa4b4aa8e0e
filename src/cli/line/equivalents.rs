//! Help about unknown options: the equivalent option of remuda, or the option that was mistyped. Pure.

use std::ffi::OsString;

use super::known_options::Equivalent::{
    self, Devices, Endpoint, OfAccelerate, Options, Same, Script, ScriptSwitch, Selection, Total,
    Unneeded, UnneededValue,
};
use super::known_options::{SCHEDULER, meaning, nearest_meaning, option_and_value};
use super::unknown_option::{EVERY_GPU, UnknownOption, did_you_mean, endpoint_words, is_automatic};
use crate::base::shell::quoted;
use crate::base::{HostName, python_int};
use crate::cli::line::face_options;
use crate::cli::line::flags::{Flags, OptionOwner, OriginalLauncher, underscored};
use crate::cli::line::typed::CommandLine;
use crate::pool::nearest;

/// Options of Slurm's `sbatch` that users type often, and that `remuda sbatch` passes on.
const PASSED_TO_SBATCH: [&str; 12] = [
    "gres",
    "gpus-per-task",
    "mem-per-cpu",
    "mem-per-gpu",
    "nodelist",
    "reservation",
    "dependency",
    "mail-type",
    "mail-user",
    "licenses",
    "begin",
    "switches",
];
/// Returns help about the probable meaning of the unknown option at this word, or `None` if no
/// option is similar.
pub(super) fn suggestion(
    typed: &CommandLine,
    at: usize,
    program: &str,
    flags: &Flags,
) -> Option<String> {
    with_option(typed, at, program, |option| match option.typed_name {
        name if name.starts_with("--") => guess(option, flags),
        name if name.chars().count() <= 2 => guess_letter(option, flags),
        _ => guess_one_dash(option, flags),
    })
}

/// Returns help about a number of all workers at this word.
pub(super) fn total(typed: &CommandLine, at: usize, flags: &Flags) -> String {
    with_option(typed, at, &typed.program, |option| Some(option.total(flags))).unwrap_or_default()
}

fn with_option(
    typed: &CommandLine,
    at: usize,
    program: &str,
    help: impl Fn(UnknownOption<'_>) -> Option<String>,
) -> Option<String> {
    let word = typed.words.get(at)?.to_string_lossy();
    let text = |words: &[OsString]| {
        words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let (words_before, words_after) = (text(typed.words_before(at)), text(&typed.words[at + 1..]));
    let (typed_name, attached_value) = option_and_value(&word);
    let given = &typed.options;
    help(UnknownOption {
        typed_name,
        attached_value,
        words_before: &words_before,
        words_after: &words_after,
        program,
        given,
    })
}

fn guess(option: UnknownOption<'_>, flags: &Flags) -> Option<String> {
    let typed_name = option.name();
    let name = underscored(typed_name);
    if let Some(help) = option.of_sbatch() {
        return Some(help);
    }
    let known = meaning(&name);
    let help = known.and_then(|meant| option.explain(meant, flags));
    if let Some(help) = help.or_else(|| option.of_other_launcher(flags)) {
        return Some(help);
    }
    let selector = typed_name.split_once(':').filter(|(host, slots)| {
        let is_slots = slots.bytes().all(|byte| byte.is_ascii_digit() || b",-".contains(&byte));
        is_slots && !slots.is_empty() && HostName::parse(host).is_ok()
    });
    if selector.is_some() && flags.has("include") {
        return Some(format!("did you mean `--include {typed_name}`?"));
    }
    if known.is_some() {
        return None;
    }
    let near = nearest_option(&name, flags.longs());
    let letters = |near: &str| strsim::osa_distance(&name, &underscored(near));
    // `--checkpoint_evry`: the name of an option of another program is more similar.
    let other = nearest_meaning(&name)
        .filter(|(other, _)| near.is_none_or(|near| letters(other) < letters(near)));
    let other = other.and_then(|(_, meant)| option.explain(meant, flags));
    other.or_else(|| near.map(|near| format!("did you mean `--{near}`?")))
}

/// Returns the same help for a long name after one dash: `-hostfile` of mpirun, `-module`.
fn guess_one_dash(option: UnknownOption<'_>, flags: &Flags) -> Option<String> {
    let name = underscored(option.name());
    let is_hostfile = name == "hostfile" || meaning(&name) == Some(Same("hostfile"));
    if is_hostfile && flags.has("hostfile") {
        let value = option.value().map_or_else(|| "HOSTS".to_owned(), quoted);
        return Some(format!("did you mean `-H {value}`?"));
    }
    if flags.exact(&name, OptionOwner::All).is_some() {
        return Some(format!("did you mean `--{}`?", option.name()));
    }
    guess(option, flags)
}

/// Returns the same help for an option of one letter: `-N` of srun, `-x NAME=VALUE` of mpirun.
fn guess_letter(option: UnknownOption<'_>, flags: &Flags) -> Option<String> {
    let is_variable = |value: &str| {
        let name = value.split('=').next().unwrap_or_default();
        !name.is_empty()
            && name.bytes().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == b'_')
    };
    if let Some(help) = option.of_sbatch() {
        return Some(help);
    }
    let meant = match option.name() {
        "N" => Same("num_nodes"),
        "n" => Same("num_gpus"),
        "G" => Devices,
        "f" => Same("hostfile"),
        "v" => Options("--log_level debug"),
        "w" if option.program != "remuda ssh" => Same("hostfile"),
        "p" | "A" | "t" | "C" | "q" | "J" => UnneededValue(SCHEDULER),
        "x" if option.value().is_some_and(is_variable) => Same("env"),
        // nccl-tests: GPUs of a thread.
        "g" if flags.has("minbytes") => Same("num_gpus"),
        _ => return None,
    };
    option.explain(meant, flags)
}

/// Returns the option that was probably mistyped: one letter of a short name differs, two of a
/// longer one, three at most.
fn nearest_option<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let letters = typed.chars().count();
    let budget = match letters {
        0..=2 => return None,
        3..=5 => 1,
        6..=11 => 2,
        _ => 3,
    };
    let found = nearest(typed, names)?;
    (strsim::osa_distance(typed, &underscored(found)) <= budget).then_some(found)
}

impl UnknownOption<'_> {
    /// Returns what an option of Slurm's `sbatch` is for `remuda sbatch`.
    fn of_sbatch(self) -> Option<String> {
        if self.program != "remuda sbatch" {
            return None;
        }
        // `-n2` or `-n 2`
        let tasks = self.name().strip_prefix('n').filter(|count| python_int(count).is_some());
        let value = tasks.or_else(|| self.value()).unwrap_or("N");
        let passed = |name: &str| {
            let setting = quoted(format!("{name}={value}"));
            Some(format!("`--option {setting}` passes it to sbatch"))
        };
        match if tasks.is_some() { "n" } else { self.name() } {
            "gpus-per-node" | "gpu" | "G" => {
                Some(format!("did you mean `--gpus {}`?", quoted(value)))
            }
            "ntasks-per-node" | "ntasks" | "n" => Some(format!(
                "leave it out: each GPU has a worker; `-- -n {value}` before the script sets their number"
            )),
            "e" => passed("error"),
            "D" => passed("chdir"),
            name if PASSED_TO_SBATCH.contains(&name) => passed(name),
            _ => None,
        }
    }

    /// Returns help about an option that another launcher has, for a line of a launcher.
    fn of_other_launcher(self, flags: &Flags) -> Option<String> {
        let is_launcher = is_face(flags) || flags.has("no_local_rank");
        is_launcher.then(|| face_options::owner(self, flags))?
    }

    fn explain(self, meant: Equivalent, flags: &Flags) -> Option<String> {
        if is_face(flags) {
            return face_options::explain(self, meant, flags);
        }
        Some(match meant {
            Same("num_gpus") if flags.has("num_gpus") && self.value().is_some_and(is_automatic) => {
                self.needless(EVERY_GPU)
            }
            Same("num_gpus") | UnneededValue(SCHEDULER)
                if self.device_count().is_some() && flags.has("num_gpus") =>
            {
                did_you_mean("num_gpus", self.device_count())
            }
            Same("env") if flags.has("env") && self.name() == "genv" => {
                let [name, value, ..] = self.words_after else { return None };
                format!("did you mean `--env {}`?", quoted(format!("{name}={value}")))
            }
            Same(own) if flags.has(own) => did_you_mean(own, self.value()),
            Endpoint if flags.has("master_addr") => {
                let endpoint = self.value().unwrap_or("HOST:PORT");
                let words = endpoint_words(endpoint, ["master_addr", "master_port"]);
                format!(
                    "did you mean `{words}`? `remuda torchrun --rdzv-endpoint {} …` reads it",
                    quoted(endpoint)
                )
            }
            OfAccelerate if flags.has("no_local_rank") => {
                let (script, option) = self.script_and_option(true);
                format!(
                    "`remuda accelerate launch {option} {script}` reads a configuration file of accelerate"
                )
            }
            Total if flags.has("num_gpus") => self.total(flags),
            Devices if flags.has("num_gpus") => self.devices(),
            Options("--log_dir DIR") if self.given.iter().any(|one| one.flag == "log_dir") => {
                self.needless("`--log_dir` keeps the output of every rank, which is also printed")
            }
            Options(words) => {
                let first = words.trim_start_matches('-').split([' ', '=']).next()?;
                let value = self.value().map_or_else(|| "N".to_owned(), quoted);
                let is_there = flags.has(first);
                is_there.then(|| format!("did you mean `{}`?", words.replace("{}", &value)))?
            }
            Script | ScriptSwitch if flags.has("no_local_rank") => self.script_hint(meant),
            Script | ScriptSwitch if flags.has("deepspeed_config") => self.of_trainer()?,
            Unneeded(why) | UnneededValue(why) if flags.has("num_nodes") => self.needless(why),
            Same(_) | Endpoint | OfAccelerate | Total | Devices | Selection | Script
            | ScriptSwitch | Unneeded(_) | UnneededValue(_) => return None,
        })
    }

    /// Returns the equivalent of an option of a training script, for a command that trains itself.
    fn of_trainer(self) -> Option<String> {
        let value = |default: &str| self.value().map_or_else(|| default.to_owned(), quoted);
        let words = match underscored(self.name()).as_str() {
            kind @ ("fp16" | "bf16") => format!("--precision {kind}"),
            "zero_stage" | "zero" => format!("--stage {}", value("N")),
            "ds_config" | "conf" => format!("--deepspeed_config {}", value("FILE")),
            "deepspeed" | "deepscale" => {
                let own =
                    "the engine is always used; `--stage N` and `--deepspeed_config FILE` set it";
                return Some(format!("leave `{}` out: {own}", self.typed_name));
            }
            _ => return None,
        };
        Some(format!("did you mean `{words}`?"))
    }

    /// Returns the equivalent of a number of all workers, `-np 8`: with hosts, the number follows
    /// from their slots.
    fn total(self, flags: &Flags) -> String {
        let is_short = flags
            .short(b'n', OptionOwner::All)
            .is_some_and(|flag| Some(flag) == flags.exact("num_gpus", OptionOwner::All));
        let own = if is_short { "-n" } else { "--num_gpus" };
        if self.has_hosts() {
            let why = format!("all slots of the hosts are used; `{own} N` is per host");
            return self.needless(&why);
        }
        let number = self.value().filter(|value| python_int(value).is_some()).unwrap_or("N");
        format!("did you mean `{own} {number}`?")
    }

    /// Returns the equivalent of `--gpus 2`, `--gpus 0,2`, `--gpus all`.
    fn devices(self) -> String {
        if let Some(list) = self.device_list() {
            return format!("did you mean `--include localhost:{list}`?");
        }
        match self.value() {
            Some(number) if python_int(number).is_some() => did_you_mean("num_gpus", Some(number)),
            Some(word) if is_automatic(word) => self.needless(EVERY_GPU),
            _ => {
                "`--num_gpus N` uses the first N devices, `--include localhost:0,2` selects devices"
                    .to_owned()
            }
        }
    }
}

/// Whether a command reads lines of torchrun or accelerate.
fn is_face(flags: &Flags) -> bool {
    flags.original() != OriginalLauncher::DeepSpeed
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::args::RunArgs;

    /// Checks the guess for the first word of a line of `remuda run`.
    #[track_caller]
    fn check(line: &str, expect: Option<&str>) {
        let flags = Flags::of(&mut RunArgs::command());
        let typed = CommandLine::new("remuda run", line.split(' ').map(Into::into).collect());
        let found = suggestion(&typed, 0, "remuda run", &flags);
        assert_eq!(found.as_deref(), expect, "for `{line}`");
    }

    #[test]
    fn options_of_other_launchers_have_equivalents() {
        check("--nproc_per_node 4 x.py", Some("did you mean `--num_gpus 4`?"));
        check("--nproc-per-node=4 x.py", Some("did you mean `--num_gpus 4`?"));
        check("--np 4 x.py", Some("did you mean `-n 4`?"));
        check("--gres gpu:4 x.py", Some("did you mean `--num_gpus 4`?"));
        check("--gres=gpu:a100:4 x.py", Some("did you mean `--num_gpus 4`?"));
        check("--gpus-per-node a100:2 x.py", Some("did you mean `--num_gpus 2`?"));
        check("--gpus 2 x.py", Some("did you mean `--num_gpus 2`?"));
        check("--gpus 0,2 x.py", Some("did you mean `--include localhost:0,2`?"));
        check("--gpu 3 x.py", Some("did you mean `--include localhost:3`?"));
        check("--gpus all x.py", Some("leave `--gpus` out: every GPU of this machine is used"));
        check("--devices=2 x.py", Some("did you mean `--num_gpus 2`?"));
        check("--nnodes 2 x.py", Some("did you mean `--num_nodes 2`?"));
        check("--main_process_port 1 x.py", Some("did you mean `--master_port 1`?"));
        check("--machinefile hosts x.py", Some("did you mean `--hostfile hosts`?"));
        check(
            "--standalone x.py",
            Some("leave `--standalone` out: without `-H` the job runs on this machine"),
        );
        check(
            "--rdzv_backend c10d x.py",
            Some(
                "leave `--rdzv_backend` out: remuda connects the nodes without a rendezvous backend",
            ),
        );
        check(
            "--mixed_precision bf16 x.py",
            Some("did you mean `--env ACCELERATE_MIXED_PRECISION=bf16`?"),
        );
        check("--cpus-per-task 8 x.py", Some("did you mean `--env OMP_NUM_THREADS=8`?"));
        check(
            "--rdzv_endpoint n1:29500 x.py",
            Some(
                "did you mean `--master_addr n1 --master_port 29500`? `remuda torchrun \
                 --rdzv-endpoint n1:29500 …` reads it",
            ),
        );
        check(
            "--config_file a.yaml x.py",
            Some(
                "`remuda accelerate launch --config_file a.yaml x.py` reads a configuration file of \
                 accelerate",
            ),
        );
        check("--verbose x.py", Some("did you mean `--log_level debug`?"));
        check("--localhost:0,2 x.py", Some("did you mean `--include localhost:0,2`?"));
        check("--worker-1:0 x.py", Some("did you mean `--include worker-1:0`?"));
    }

    #[test]
    fn letters_of_other_launchers_have_equivalents() {
        check("-N 2", Some("did you mean `--num_nodes 2`?"));
        check("-N2", Some("did you mean `--num_nodes 2`?"));
        check("-w n1,n2", Some("did you mean `--hostfile n1,n2`?"));
        let scheduler = "`salloc` and `sbatch` request nodes; remuda uses those of the allocation";
        check("-p gpu", Some(&format!("leave `-p` out: {scheduler}")));
        check("-G 2", Some("did you mean `--num_gpus 2`?"));
        check("-G 0,1", Some("did you mean `--include localhost:0,1`?"));
        check("-f hosts", Some("did you mean `--hostfile hosts`?"));
        check("-x NCCL_DEBUG=INFO", Some("did you mean `--env NCCL_DEBUG=INFO`?"));
        check("-x train.py", None);
        check("-z 1", None);
        check("-g 2", None);
    }

    #[test]
    fn names_after_one_dash_have_equivalents() {
        check("-hostfile hosts x.py", Some("did you mean `-H hosts`?"));
        check("-hosts n1,n2 x.py", Some("did you mean `-H n1,n2`?"));
        check("-host n1:2 x.py", Some("did you mean `-H n1:2`?"));
        check("-machinefile hosts x.py", Some("did you mean `-H hosts`?"));
        check("-ppn 4 x.py", Some("did you mean `--num_gpus 4`?"));
        check("-module pkg", Some("did you mean `--module`?"));
        let directory = "workers start in the working directory of remuda, so `cd` to it first";
        check("-wdir /x x.py", Some(&format!("leave `-wdir` out: {directory}")));
        check("--wdir=/x x.py", Some(&format!("leave `--wdir` out: {directory}")));
        let order = "ranks follow the order of the hosts and of their slots";
        check("--rankfile f x.py", Some(&format!("leave `--rankfile` out: {order}")));
    }

    #[test]
    fn number_of_all_workers_follows_from_hosts() {
        let out = "out: all slots of the hosts are used; `-n N` is per host";
        check("--np 6 -H hosts x.py", Some(&format!("leave `--np` {out}")));
        check(
            "--num_processes=6 --hostfile=hosts x.py",
            Some(&format!("leave `--num_processes` {out}")),
        );
        check("--num_processes 6 x.py", Some("did you mean `-n 6`?"));
        check(
            "--nproc_per_node auto x.py",
            Some("leave `--nproc_per_node` out: every GPU of this machine is used"),
        );
        check(
            "--nproc_per_node=gpu x.py",
            Some("leave `--nproc_per_node` out: every GPU of this machine is used"),
        );
    }

    #[test]
    fn options_of_the_script_are_shown_after_it() {
        check(
            "--deepspeed_config ds.json train.py",
            Some(
                "`--deepspeed_config` is an option of the script: `remuda run train.py --deepspeed_config ds.json`",
            ),
        );
        check(
            "--deepspeed train.py",
            Some("`--deepspeed` is an option of the script: `remuda run train.py --deepspeed`"),
        );
        check(
            "--zero 2 x.py --lr 1",
            Some("`--zero` is an option of the script: `remuda run x.py --lr 1 --zero 2`"),
        );
        check("--zero", Some("`--zero` is an option of the script: `remuda run SCRIPT --zero`"));
        check(
            "--config=a.yaml train.py",
            Some("`--config` is an option of the script: `remuda run train.py --config=a.yaml`"),
        );
    }

    #[test]
    fn only_similar_words_are_guessed() {
        check("--num_gpuz 2", Some("did you mean `--num_gpus`?"));
        check("--timeou 5", Some("did you mean `--timeout`?"));
        check("--dryrun", Some("did you mean `--dry-run`?"));
        check("--enable_each_rnak_logs d", Some("did you mean `--enable_each_rank_log`?"));
        check("--master_adress n1", Some("did you mean `--master_addr n1`?"));
        for far in ["--lr 1", "--bogus", "--epochs 3", "--zerro", "--x", "--seed 1", "--model gpt2"]
        {
            check(far, None);
        }
    }

    #[test]
    fn option_of_another_command_is_not_guessed() {
        let mut command = clap::Command::new("c").arg(clap::Arg::new("json").long("json"));
        let flags = Flags::of(&mut command);
        for name in ["nproc_per_node", "gpus", "deepspeed_config", "standalone", "verbose", "np"] {
            let typed = CommandLine::new("remuda explain", vec![format!("--{name}").into()]);
            assert_eq!(suggestion(&typed, 0, "remuda explain", &flags), None, "for `{name}`");
        }
    }
}
