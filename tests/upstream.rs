//! DeepSpeed's own launcher tests (`tests/unit/launcher`, of 0.19.8 and shortly after) as assertions
//! about remuda. A test here has the name of the case there, shortened to 60 characters; a case that
//! another file asserts is only listed.
//!
//! | case of DeepSpeed | what it asserts | where it is asserted |
//! |---|---|---|
//! | `test_run.py` `test_parser_mutual_exclusive` | both filters are refused, whatever the pool | `test_parser_mutual_exclusive` |
//! | … `test_parser_local` | one host: slots in, slots out, duplicates, nothing left | `test_parser_local` |
//! | … `test_parser_multinode` | two hosts | `test_parser_multinode`, `tests/selection.rs::exclude_removes_as_deepspeed` |
//! | … `test_parse_inclusion_exclusion` | a pool of counts; a bare host is all of its slots | `tests/selection.rs::include_selects_as_deepspeed` |
//! | … `test_parse_inclusion_exclusion_errors` | slots out of range, in either filter | `test_parse_inclusion_exclusion_errors` |
//! | … `test_visible_devices_resolve_to_the_requested_slots` | a mask of 0 and 2 is slots 0 and 2 | `test_visible_devices_resolve_to_the_requested_slots` |
//! | … `test_visible_devices_are_rejected_when_the_device_count_is_masked` | differs on purpose: the mask is the pool and no device is counted, so only hidden devices are refused | `test_visible_devices_are_rejected_when_masked` |
//! | … `test_parser_errors` | unknown hosts and slots, two `@` | `tests/selection.rs::host_names_match_hostfile_exactly`, `tests/selection.rs::slots_must_exist_on_host` |
//! | … `test_num_plus_parser` | counts beside filters, six times | `test_num_plus_parser` |
//! | … `test_hostfile_good` | comments, blanks, indents, four hosts | `test_hostfile_good` |
//! | … `test_hostfiles_bad` | five bad files | `test_hostfiles_bad` |
//! | `test_multinode_runner.py` `test_pdsh_runner` | differs on purpose: over remuda's own ssh sessions, with the same workers | `test_pdsh_runner` |
//! | … `test_openmpi_runner`, `test_mpich_runner`, `test_mvapich_runner`, `test_slurm_runner`, `test_impi_binding_without_local_numactl` | the process manager starts the agents, which start the same workers as over ssh | `test_openmpi_runner`, `tests/mpi.rs::open_mpi_starts_agents`, `tests/slurm/allocation.rs::step_starts_the_agents_of_all_nodes` |
//! | … `test_btl_nic_openmpi_runner`, `test_btl_nic_two_dashes_openmpi_runner` | `--launcher_arg` is read as `--launcher_args`, whose words go to MPI; without `--launcher openmpi` they are no options of pdsh and are refused | `test_btl_nic_openmpi_runner` |
//! | … `test_slurm_runner_resource_filter`, `test_slurm_runner_rejects_unsupported_filter`, `test_slurm_runner_num_nodes_and_gpus`, `test_runner_main_rejects_unsupported_filter` | differs on purpose: filters are accepted with Slurm, with and without `--force_multi` | `test_runner_main_rejects_unsupported_filter` |
//! | … `test_validate_active_resources_default_is_a_no_op` | any slots of any hosts | `test_validate_active_resources_default_is_a_no_op` |
//! | `test_user_args.py` `test_user_args` | four prompts reach the script, on one node and on two | `test_user_args`, `tests/ssh/launch.rs::arguments_arrive_unchanged` |
//! | … `test_bash_string_args` | arguments that come through xargs | `test_bash_string_args` |
//! | … `test_add_export_with_special_characters` | differs on purpose: nothing is quoted, because no shell parses it | `test_add_export_with_special_characters` |
//! | … `test_add_export_no_special_characters` | a path stays a path | `tests/environment.rs::workers_of_all_simulated_nodes_get_the_variables` |
//! | `test_ds_arguments.py` `test_no_ds_arguments`, `test_no_ds_enable_argument`, `test_no_ds_config_argument`, `test_core_deepscale_arguments`, `test_no_ds_parser`, `test_no_ds_arguments_no_ds_parser` | the script's own parser; a launcher has to leave it these flags | `test_core_deepscale_arguments` |
//! | … `test_core_binding_arguments` | a list of cores, and three bad ones | `test_core_binding_arguments`, `src/cli/args/values.rs::lists_of_cores_are_ascending` |
//! | … `test_numactl_cmd_fallback` | on purpose otherwise: there is no numactl | `tests/environment.rs::workers_are_bound_to_core_list_by_rank` |
//! | … `test_numactl_cmd_rejects_invalid_binding` | processors that are not there | `tests/environment.rs::impossible_core_binding_stops_the_launch` |
//! | `test_elastic.py`, until 0.19.7 | removed there; its flags are refused here | `tests/cli/lines.rs::unknown_options_are_refused` |

use std::ffi::OsString;
use std::fs;

use crate::support::launch::{Launch, hosts, python, workers};
use remuda::base::Slot;
use remuda::cli::run::{ParsedRun, parse};
use remuda::pool::{self, HostSource, Pool, SelectorArgs, select};
use serde_json::Value;

fn pool_of(hostfile: &str) -> Pool {
    let (hostfile, findings) = pool::read("hosts", hostfile.as_bytes());
    assert_eq!(findings.diagnostics, []);
    hostfile.pool()
}

/// `worker-0 0,1; worker-1 2`, or the codes of the errors.
fn selected(hostfile: &str, include: &str, exclude: &str) -> String {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let args = SelectorArgs {
        include: given(include),
        exclude: given(exclude),
        ..SelectorArgs::default()
    };
    let show = |slots: &[Slot]| slots.iter().map(Slot::to_string).collect::<Vec<_>>().join(",");
    let parts: Vec<String> = match select(&pool_of(hostfile), &HostSource::ThisMachine, &args) {
        Ok(selected) => {
            let nodes = selected.pool.nodes().iter();
            nodes.map(|(host, slots)| format!("{host} {}", show(slots))).collect()
        }
        Err(findings) => {
            let all = findings.iter().flat_map(|findings| &findings.diagnostics);
            all.map(|diagnostic| diagnostic.code.to_owned()).collect()
        }
    };
    parts.join("; ")
}

#[test]
fn test_parser_mutual_exclusive() {
    assert_eq!(selected("worker-0 slots=1\n", "A", "B"), "S006");
}

#[test]
fn test_parser_local() {
    let check = |include, exclude, expect| {
        assert_eq!(selected("worker-0 slots=4\n", include, exclude), expect);
    };
    check("", "", "worker-0 0,1,2,3");
    check("", "worker-0:1", "worker-0 0,2,3");
    check("", "worker-0:1,2", "worker-0 0,3");
    check("worker-0:1", "", "worker-0 1");
    check("worker-0:1,1", "", "worker-0 1");
    check("worker-0:1@worker-0:0,1", "", "worker-0 0,1");
    check("worker-0", "", "worker-0 0,1,2,3");
    // DeepSpeed goes on with nothing, and fails later.
    check("", "worker-0", "S007");
    check("", "worker-0:0,1,2,3", "S007");
}

const TWO_HOSTS: &str = "worker-0 slots=4\nworker-1 slots=4\n";

#[test]
fn test_parser_multinode() {
    assert_eq!(selected(TWO_HOSTS, "", ""), "worker-0 0,1,2,3; worker-1 0,1,2,3");
    assert_eq!(selected(TWO_HOSTS, "worker-1:0,3", ""), "worker-1 0,3");
}

#[test]
fn test_parse_inclusion_exclusion_errors() {
    for slots in ["worker-0:4", "worker-0:99", "worker-0:0,4"] {
        assert_eq!(selected("worker-0 slots=4\n", slots, ""), "S002", "for {slots}");
        assert_eq!(selected("worker-0 slots=4\n", "", slots), "S002", "for {slots}");
    }
}

/// The plan of a launch.
#[track_caller]
fn planned(launch: Launch) -> Value {
    let outcome = launch.options(["--dry-run", "--json"]).program(["true"]).end().code(0);
    serde_json::from_slice(&outcome.stdout).expect("JSON")
}

/// A launch on this machine, with only the GPUs of `mask` visible.
fn masked(mask: &str) -> Launch {
    hostless(&["--accelerator", "rocm"]).env("HIP_VISIBLE_DEVICES", mask)
}

/// A launch without a hostfile and without a number of workers.
fn hostless(options: &[&str]) -> Launch {
    Launch::new().options(["--no_python", "--no_local_rank"]).options(options.iter().copied())
}

#[test]
fn test_visible_devices_resolve_to_the_requested_slots() {
    let plan = planned(masked("0,2"));
    assert_eq!(plan["nodes"][0]["slots"], serde_json::json!([0, 2]));
    assert_eq!(plan["nodes"][0]["workers"][0]["env"]["HIP_VISIBLE_DEVICES"], "0,2");
}

#[test]
fn test_visible_devices_are_rejected_when_masked() {
    let of = |slot| masked("0,2").options(["-i", slot]);
    assert_eq!(planned(of("localhost:2"))["nodes"][0]["slots"], serde_json::json!([2]));
    let hidden = of("localhost:1").program(["true"]).end().code(2);
    hidden.says("error[S002]: `localhost` has no slot 1");
}

#[test]
fn test_num_plus_parser() {
    for filter in ["-i", "-e"] {
        for counts in ["--num_nodes 1", "--num_nodes 1 --num_gpus 1", "--num_gpus 1"] {
            let launch = hostless(&["--accelerator", "cpu"]).options(counts.split(' '));
            let refused = launch.options([filter, "localhost"]).sh("echo started").end().code(2);
            let refused = refused.says("error[S008]: ").says("cannot be combined");
            assert_eq!(refused.stdout_text(), "", "for {counts} {filter}");
        }
    }
}

#[test]
fn test_hostfile_good() {
    let pool = pool_of(
        "\n    worker-1 slots=2\n    worker-2 slots=2\n\n    localhost slots=1\n    \
         123.23.12.10 slots=2\n\n    #worker-1 slots=3\n    # this is a comment\n\n    ",
    );
    let nodes = pool.nodes().iter();
    let found: Vec<_> = nodes.map(|(host, slots)| (host.to_string(), slots.len())).collect();
    let expect = [("worker-1", 2), ("worker-2", 2), ("localhost", 1), ("123.23.12.10", 2)];
    assert_eq!(found, expect.map(|(host, slots)| (host.to_owned(), slots)));
}

/// All problems are reported; DeepSpeed stops at the first.
#[test]
fn test_hostfiles_bad() {
    let check = |text: &str, expect: &[(&str, usize)]| {
        let (_, findings) = pool::read("hosts", text.as_bytes());
        let line = |at: usize| text[..at].lines().count().max(1);
        let found: Vec<_> = findings
            .diagnostics
            .iter()
            .map(|found| (found.code, found.span.map_or(0, |span| line(span.start + 1))))
            .collect();
        assert_eq!(found, expect, "for {text:?}");
    };
    check("\n  worker-1 slots=2\n  worker-2 slots=1\n  worker-1 slots=1\n", &[("H003", 4)]);
    check("\n    this is bad slots=1\n    ", &[("H021", 2)]);
    check("\n    missingslots\n    ", &[("H002", 2)]);
    check("\n    ", &[("H020", 0)]);
    check(
        "\n worker-1 slots=2\n this is bad slots=1\n worker-2 slots=4\n missingslots\n\n ",
        &[("H021", 3), ("H002", 5)],
    );
}

/// The command line of a job on two hosts with four slots each.
fn on_two_hosts(options: &[&str]) -> Launch {
    crate::support::launch::on_hosts(&[("worker-0", 4), ("worker-1", 4)])
        .options(options.iter().copied())
}

#[test]
fn test_pdsh_runner() {
    let plan = planned(on_two_hosts(&["--launcher", "pdsh"]));
    assert_eq!(plan["world_size"], 8);
    assert_eq!(plan, planned(on_two_hosts(&["--launcher", "ssh"])));
}

/// Process managers start the same workers as ssh does; how they start agents is tested with real ones.
#[test]
fn test_openmpi_runner() {
    let with_ssh = planned(on_two_hosts(&[]));
    for name in ["openmpi", "mpich", "mvapich", "slurm", "impi"] {
        assert_eq!(planned(on_two_hosts(&["--launcher", name])), with_ssh, "{name}");
        assert_eq!(
            planned(workers(1).options(["--launcher", name])),
            planned(workers(1)),
            "{name}"
        );
    }
}

/// Options of MPI are passed on to it, and are not options of pdsh.
#[test]
fn test_btl_nic_openmpi_runner() {
    for args in ["-mca btl_tcp_if_include eth1", "--mca btl_tcp_if_include eth1"] {
        let with_mpi = on_two_hosts(&["--launcher", "openmpi", "--launcher_arg", args]);
        assert_eq!(planned(with_mpi)["world_size"], 8);
        let (option, _) = args.split_once(' ').expect("an option and its value");
        let refused = on_two_hosts(&["--launcher_arg", args]).sh("echo started").end().code(2);
        assert_eq!(refused.stdout_text(), "");
        refused
            .says(&format!("error[C006]: `--launcher_args` cannot be `{args}`"))
            .says(&format!("`{option}` of pdsh is not supported"));
    }
}

/// DeepSpeed refuses filters with Slurm; here the workers of each node are chosen by its agent.
#[test]
fn test_runner_main_rejects_unsupported_filter() {
    let slurm = ["--no_ssh_check", "--master_addr", "127.0.0.1"];
    for force in [&[][..], &["--force_multi"]] {
        for filter in [["-i", "worker-1:0,2"], ["-e", "worker-1"], ["--num_gpus", "2"]] {
            let launch = || on_two_hosts(&slurm).options(force.iter().copied()).options(filter);
            let with_slurm = planned(launch().options(["--launcher", "slurm"]));
            assert_eq!(with_slurm, planned(launch()), "{filter:?}");
        }
    }
}

#[test]
fn test_validate_active_resources_default_is_a_no_op() {
    let plan = planned(on_two_hosts(&["--launcher", "pdsh", "-i", "worker-0:0,2@worker-1:1"]));
    let slots = |node: usize| plan["nodes"][node]["slots"].clone();
    assert_eq!((slots(0), slots(1)), (serde_json::json!([0, 2]), serde_json::json!([1])));
}

const PROMPTS: [&str; 4] = [
    r#""I am 6' tall""#,
    r#"'I am 72" tall'"#,
    r#"'"translate English to Romanian: "'"#,
    r#"I'm going to tell them "DeepSpeed is the best""#,
];

/// A script that shows its arguments; `sh -u` reads it as Python would.
fn script(launch: Launch) -> Launch {
    let path = launch.dir().join("user_arg_test.py");
    fs::write(&path, "printf '<%s>' \"$@\"; echo\n").expect("a script");
    launch.options(["--python", "sh", "--prefix", ""]).program([path])
}

#[test]
fn test_user_args() {
    for prompt in PROMPTS {
        let outcome = script(python(1)).program(["--prompt", prompt]).end().code(0);
        assert_eq!(outcome.stdout_text(), format!("<--local_rank=0><--prompt><{prompt}>\n"));
        // The same without an interpreter, on two nodes.
        let launch = hosts(&[("n0", 1), ("n1", 1)]).options(["--prefix", ""]);
        let launch = launch.sh("printf '<%s>' \"$@\"; echo").program(["sh", "--prompt", prompt]);
        let outcome = launch.end().code(0);
        assert_eq!(outcome.stdout_text(), format!("<--prompt><{prompt}>\n").repeat(2));
    }
}

#[test]
fn test_bash_string_args() {
    let shell = "echo \"--prompt 'DeepSpeed is the best'\" | xargs \"$@\"";
    let outcome = script(python(1).through(&["sh", "-c", shell, "sh"])).end().code(0);
    assert_eq!(outcome.stdout_text(), "<--local_rank=0><--prompt><DeepSpeed is the best>\n");
}

#[test]
fn test_add_export_with_special_characters() {
    let launch = hosts(&[("n0", 1), ("n1", 1)]).options(["--prefix", ""]);
    let launch = launch.options(["--env", "SLURM_JOB_CPUS_PER_NODE=64(x2)"]);
    let outcome = launch.sh("echo \"$SLURM_JOB_CPUS_PER_NODE\"").end().code(0);
    assert_eq!(outcome.stdout_text(), "64(x2)\n".repeat(2));
}

#[test]
fn test_core_deepscale_arguments() {
    let words = ["--num_epochs", "2", "--deepspeed", "--deepspeed_config", "foo.json"];
    let outcome = script(python(1)).program(words).end().code(0);
    let expect = "<--local_rank=0><--num_epochs><2><--deepspeed><--deepspeed_config><foo.json>\n";
    assert_eq!(outcome.stdout_text(), expect);
}

#[test]
fn test_core_binding_arguments() {
    let read = |list: &str| {
        let words = ["--bind_cores_to_rank", "--bind_core_list", list, "train.py"];
        parse("deepspeed", words.iter().map(OsString::from).collect())
    };
    assert!(matches!(read("0,2-4,6,8-9"), Ok(ParsedRun::Run(..))));
    for bad in ["0,2-6,5-9", "8,2-6", "1,6-2"] {
        let refused = read(bad).expect_err("an invalid list of cores");
        assert_eq!(refused.findings.diagnostics[0].code, "C006", "for {bad}");
    }
}
