//! Help about unknown options in lines of torchrun and accelerate: the option of that launcher with the same
//! meaning, or the launcher that has the option. Pure.

use super::known_options::Equivalent::{
    self, Devices, Endpoint, OfAccelerate, Options, Same, Script, ScriptSwitch, Selection, Total,
    Unneeded, UnneededValue,
};
use super::known_options::{ON_CPUS, SCHEDULER, names_in_faces};
use super::unknown_option::{EVERY_GPU, UnknownOption, did_you_mean, endpoint_words, is_automatic};
use crate::base::python_int;
use crate::base::shell::quoted;
use crate::cli::line::flags::{Flags, OriginalLauncher, underscored};
use crate::config::accelerate::{FlagKind, all_flags};

/// Returns the equivalent of an option of another program in a line of torchrun or accelerate.
pub(super) fn explain(
    option: UnknownOption<'_>,
    meant: Equivalent,
    flags: &Flags,
) -> Option<String> {
    let is_accelerate = flags.original() == OriginalLauncher::Accelerate;
    let name = underscored(option.name());
    Some(match meant {
        Same("num_gpus") => workers(option, flags),
        UnneededValue(SCHEDULER) if option.device_count().is_some() => workers(option, flags),
        Total => total(option, flags),
        Devices => devices(option, flags),
        Selection => selection(is_accelerate).to_owned(),
        Same("env") if name == "env" && !option.has_hosts() => {
            let value = option.value().unwrap_or("NAME=VALUE");
            format!("set the variable before the line: `{} {} …`", quoted(value), option.program)
        }
        Same(own) => {
            let own = names_in_faces(own).find_map(|name| flags.shown(name))?;
            did_you_mean(own, option.value())
        }
        Endpoint => {
            let names = ["main_process_ip", "main_process_port"];
            let words = endpoint_words(option.value().unwrap_or("HOST:PORT"), names);
            format!("did you mean `{words}`?")
        }
        Script | ScriptSwitch if is_accelerate => did_you_mean_deepspeed(option, &name)?,
        Script | ScriptSwitch => option.script_hint(meant),
        UnneededValue(_) if name == "rdzv_timeout" => {
            let seconds = format!("join_timeout={}", option.value().unwrap_or("SECONDS"));
            did_you_mean(flags.shown("rdzv_conf")?, Some(&seconds))
        }
        Unneeded(_) if name == "no_local_rank" && flags.has("use_env") => {
            did_you_mean(flags.shown("use_env")?, None)
        }
        Unneeded(why) | UnneededValue(why) => option.needless(why),
        Options(ON_CPUS) if is_accelerate => did_you_mean_cpu(option, &name),
        Options(ON_CPUS) if name != "cpu" => option.needless("the script selects its device"),
        Options(words) => {
            let first = words.trim_start_matches('-').split([' ', '=']).next()?;
            flags.has(first).then(|| format!("did you mean `{words}`?"))?
        }
        OfAccelerate => return None,
    })
}

/// Returns the launcher that has an option, if it is not that of the line.
pub(super) fn owner(option: UnknownOption<'_>, flags: &Flags) -> Option<String> {
    let name = underscored(option.name());
    let is_shown = |help: &str| !help.is_empty();
    let of_accelerate = all_flags().find(|flag| flag.name == name && is_shown(flag.help));
    let has = |launcher: OriginalLauncher| {
        flags.original() != launcher && launcher.flags().any(|flag| flag == name)
    };
    let typed = option.typed_name;
    match of_accelerate {
        Some(flag) if flags.original() != OriginalLauncher::Accelerate => {
            let (script, words) = option.script_and_option(flag.kind != FlagKind::Switch);
            Some(format!(
                "`{typed}` is an option of accelerate: `remuda accelerate launch {words} {script}`"
            ))
        }
        _ if has(OriginalLauncher::Torchrun) => {
            Some(format!("`{typed}` is an option of torchrun: `remuda torchrun` has it"))
        }
        _ if has(OriginalLauncher::DeepSpeed) => {
            Some(format!("`{typed}` is an option of DeepSpeed's launcher: `remuda run` has it"))
        }
        _ => None,
    }
}

/// Returns the equivalent of a number of workers on each node.
fn workers(option: UnknownOption<'_>, flags: &Flags) -> String {
    let number = option.device_count().or(option.value());
    if let Some(own) = flags.shown("nproc_per_node") {
        let number = number.map(|number| match number {
            "all" | "cuda" => "gpu",
            number => number,
        });
        return did_you_mean(own, Some(number.unwrap_or("N")));
    }
    if number.is_some_and(is_automatic) {
        return option.needless(EVERY_GPU);
    }
    let of_all = |nodes: i64| Some(number.and_then(python_int)?.checked_mul(nodes)?.to_string());
    match (option.nodes(), option.has_hosts()) {
        (None, false) => did_you_mean("num_processes", Some(number.unwrap_or("N"))),
        (nodes, _) => {
            let all = nodes.and_then(of_all);
            let meant = did_you_mean("num_processes", Some(all.as_deref().unwrap_or("N")));
            format!("{meant} it is the number of workers of all machines")
        }
    }
}

/// Returns the equivalent of a number of all workers.
fn total(option: UnknownOption<'_>, flags: &Flags) -> String {
    let number = option.value().filter(|value| python_int(value).is_some());
    let Some(own) = flags.shown("nproc_per_node") else {
        return did_you_mean("num_processes", Some(number.unwrap_or("N")));
    };
    let of_one = |nodes: i64| {
        let all = number.and_then(python_int)?;
        (all % nodes == 0).then(|| (all / nodes).to_string())
    };
    match (option.nodes(), option.has_hosts()) {
        (None, false) => did_you_mean(own, Some(number.unwrap_or("N"))),
        (nodes, _) => {
            let share = nodes.and_then(of_one);
            let meant = did_you_mean(own, Some(share.as_deref().unwrap_or("N")));
            format!("{meant} it is the number of workers on each node")
        }
    }
}

/// Returns the equivalent of `--gpus 2`, `--gpus 0,2`, `--gpus all`.
fn devices(option: UnknownOption<'_>, flags: &Flags) -> String {
    let Some(list) = option.device_list() else { return workers(option, flags) };
    match flags.shown("gpu_ids") {
        Some(own) => did_you_mean(own, Some(list)),
        None => format!(
            "set the variable before the line: `CUDA_VISIBLE_DEVICES={list} {} --nproc-per-node {} …`",
            option.program,
            list.split(',').count()
        ),
    }
}

/// Returns accelerate's option for workers on CPUs, with their number where the name says that there are several.
fn did_you_mean_cpu(option: UnknownOption<'_>, name: &str) -> String {
    const COUNT: &str = "num_processes";
    let is_count = |word: &String| underscored(word.trim_start_matches('-')).starts_with(COUNT);
    let is_counted = option.given.iter().any(|given| given.flag == COUNT)
        || option.words_after.iter().any(is_count);
    if name.contains("multi") && !is_counted {
        return format!("did you mean `--cpu --{COUNT} N`? N is the number of all workers");
    }
    did_you_mean("cpu", None)
}

/// Returns the equivalent of `--include` and `--exclude`.
fn selection(is_accelerate: bool) -> &'static str {
    if is_accelerate {
        "`-H n1,n2` names the hosts, `--gpu_ids 0,2` selects devices"
    } else {
        "`-H n1,n2` names the hosts, CUDA_VISIBLE_DEVICES selects devices"
    }
}

/// Returns the option of accelerate for an option that scripts of DeepSpeed have.
fn did_you_mean_deepspeed(option: UnknownOption<'_>, name: &str) -> Option<String> {
    let value = option.value().map_or_else(|| "FILE".to_owned(), quoted);
    let words = match name {
        kind @ ("fp16" | "bf16") => format!("--mixed_precision {kind}"),
        "deepspeed_config" | "ds_config" => {
            format!("--use_deepspeed --deepspeed_config_file {value}")
        }
        "config" | "conf" => format!("--config_file {value}"),
        "deepspeed" => "--use_deepspeed".to_owned(),
        "zero" | "stage" => format!("--zero_stage {}", option.value().unwrap_or("N")),
        _ => return None,
    };
    Some(format!("did you mean `{words}`?"))
}
