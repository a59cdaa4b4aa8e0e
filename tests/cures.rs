//! Issues that users of DeepSpeed's launcher reported, and the tests that show that remuda does not
//! have them. This file contains only tests that are in no other file.
//!
//! | issues of DeepSpeed | symptom | tests |
//! |---|---|---|
//! | 713 | a filter leaves one remote host, and the job runs on this machine | `tests/ssh/launch.rs::single_remote_host_is_reached_over_ssh` |
//! | 5005 | a node dies, the others wait for it for ever | `tests/faults/workers.rs::exit_code_is_the_status_and_stops_other_workers`, `tests/ssh/launch.rs::status_is_that_of_the_cause_and_the_cause_is_named`, `tests/ssh/killed.rs::broken_connection_is_a_lost_node` |
//! | 1995, 2008 | a script fails, its ssh sessions hang | `tests/faults/workers.rs::worker_ignoring_sigterm_is_killed_after_grace`, `tests/ssh/killed.rs::killed_agent_ends_its_workers` |
//! | 618, 1722, 1994 | exit status 0 although workers failed | `tests/faults/options.rs::statuses_of_workers_pass_through`, `tests/faults/workers.rs::killed_worker_is_137`, `tests/faults/own_processes.rs::killed_agent_of_a_single_node_is_the_cause`, `tests/ssh/launch.rs::signal_of_a_remote_worker_is_reported` |
//! | 4098, 4160 | a pod is stopped, its workers are not | `tests/faults/signals.rs::sigterm_is_143_and_keeps_the_grace`, `node_started_alone_stops_workers_at_sigterm` |
//! | 1016, 3645, 3730 | processes left behind by errors and by Ctrl-C | `tests/faults/workers.rs::leftover_daemon_of_a_failure_is_killed`, `tests/faults/signals.rs::second_sigint_kills_workers`, `tests/faults/own_processes.rs::killed_launcher_leaves_nothing`, `tests/ssh/killed.rs::killed_launcher_leaves_nothing_on_any_host` |
//! | 5510, 2679, 1603, 1334, 274, 5728 | nodes without ssh between them | `tests/faults/options.rs::no_ssh_nodes_know_their_ranks`, `tests/faults/options.rs::no_ssh_failure_names_the_global_rank` |
//! | 6671, 6698, 8239 | `--include=node3` selects nothing | `tests/selection.rs::include_selects_as_deepspeed`, `tests/selection.rs::slots_must_exist_on_host` |
//! | 5818, 2976, 1331, 662, 2980 | `CUDA_VISIBLE_DEVICES` does not count, or its order does not | `src/cli/resolve/devices.rs::cuda_variable_selects_devices`, `tests/selection.rs::device_order_is_kept_unless_slots_are_named`, `tests/upstream.rs::test_visible_devices_resolve_to_the_requested_slots` |
//! | 5278 | names of GPUs and MIG devices crash the parser | `src/cli/resolve/devices.rs::cuda_variable_selects_devices`, `src/inventory/gpu.rs::uuids_are_resolved_to_slots` |
//! | 6997, 5878, 7071, 1907 | values of variables arrive quoted, expanded or cut | `tests/faults/options.rs::environment_arrives_byte_for_byte`, `tests/environment.rs::env_values_are_literal_and_never_executed`, `tests/upstream.rs::test_add_export_with_special_characters` |
//! | 3967, 4660, 4265, 4824 | arguments differ between one node and several | `tests/faults/options.rs::arguments_arrive_byte_for_byte_on_every_node`, `tests/ssh/launch.rs::arguments_arrive_unchanged`, `tests/upstream.rs::test_user_args` |
//! | 6859, 6863 | logs of ranks are lost on several nodes | `each_rank_has_its_own_log` |
//! | 8304 | filters do nothing under Slurm; here Slurm is refused | `tests/upstream.rs::test_runner_main_rejects_unsupported_filter` |
//! | 4460, 3514, 1924 | `--launcher_args` is ignored, a network card is assumed; here both launcher and arguments are refused | `tests/upstream.rs::test_openmpi_runner`, `tests/upstream.rs::test_btl_nic_openmpi_runner` |
//! | 5136, 6497, 826, 5597, 2612 | `hostname -I` names the wrong card, or is not there | `tests/ssh/launch.rs::every_worker_knows_its_rank_and_the_master_address` |
//! | 4116, 4649, 4370, 5318 | the port of ssh is lost on the way | `tests/ssh/launch.rs::ssh_port_overrides_the_configuration` |
//! | 5221, and 575 of its examples | a mistyped hostfile: the job runs on this machine alone | `tests/cli/screens.rs::invalid_selections`, `tests/hostfile/files.rs::missing_file_error_has_help` |
//! | 1923, 3916, 3878, 191 | port 29500 is in use, so that no second job fits on a node | `tests/faults/options.rs::master_port_other_than_the_default_is_noted`, `tests/faults/options.rs::master_port_in_use_is_refused_before_the_start`, `tests/faults/signals.rs::two_jobs_do_not_touch_each_other` |
//! | 4971, 6565, 8548 | numactl is missing, or a container may not choose memory | `binding_needs_no_other_program`, `denied_memory_policy_binds_only_processors` |
//! | 3160, 3232, 4890, 4239 | "exits with return code = -9", without a reason | `tests/faults/workers.rs::oom_killed_worker_is_reported`, `tests/faults/screens.rs::signal_screen` |
//! | 3408, 3409 | nodes with different numbers of GPUs | `tests/plan.rs::ranks_and_local_ranks_follow_hosts_and_slots` |
//! | 8489, 8563 | elastic training and its options were removed | `tests/cli/lines.rs::unknown_options_are_refused` |

use std::fs;

use crate::support::launch::{Launch, command, hosts, workers};
use crate::support::process::Role;
use crate::support::proof::skip;
use rustix::process::Signal;

/// Nodes without connections: each is started separately.
#[test]
fn node_started_alone_stops_workers_at_sigterm() {
    let launch = hosts(&[("n0", 1), ("n1", 2)]).options(["--no_ssh", "--node_rank", "1"]);
    let launch = launch.options(["--master_addr", "127.0.0.1"]);
    let job = launch.sh("echo ready; exec sleep 1000").start();
    job.wait_for_lines("ready", 2);
    assert_eq!(job.wait_for_role(Role::Worker, 2).len(), 2);
    job.signal(Signal::TERM);
    // `end` checks that no process of the job is left.
    let outcome = job.end().code(143);
    assert_eq!(outcome.record()["workers"][1]["signal"], 15);
}

#[test]
fn each_rank_has_its_own_log() {
    let launch = hosts(&[("n0", 1), ("n1", 2)]);
    let directory = launch.dir().join("logs");
    let launch = launch.option("--enable_each_rank_log").option(&directory);
    let outcome = launch.sh("echo of $RANK").end().code(0);
    assert_eq!(outcome.stdout_text(), "");
    let entries = fs::read_dir(&directory).expect("it was made").flatten();
    let mut found: Vec<(String, String)> = entries
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let (_, rank) = name.split_once('_').expect("a time and a rank");
            (rank.to_owned(), fs::read_to_string(entry.path()).expect("it is ours"))
        })
        .collect();
    found.sort_unstable();
    let expect = [0, 1, 2].map(|rank| (format!("rank{rank}.log"), format!("of {rank}\n")));
    assert_eq!(found, expect);
}

/// A PATH that contains only a shell.
fn with_only_a_shell(launch: Launch) -> Launch {
    let bin = launch.dir().join("bin");
    fs::create_dir_all(&bin).expect("a directory");
    std::os::unix::fs::symlink("/bin/sh", bin.join("sh")).expect("a link");
    launch.env("BIN", bin).under("PATH=$BIN")
}

#[test]
fn binding_needs_no_other_program() {
    let launch = with_only_a_shell(workers(1)).option("--bind_cores_to_rank");
    let outcome = launch.sh("echo bound; command -v numactl || exit 9").end().code(9);
    assert_eq!(outcome.stdout_text(), "bound\n");
}

/// A seccomp filter that refuses memory policies, as in containers. The machine has two memory nodes,
/// one of them without processors, so that every worker would take memory from it.
const DENIES_MEMORY: &str = r#"
import ctypes, os, struct, sys
LOAD, EQUAL, RETURN, ALLOW, REFUSE = 0x20, 0x15, 0x06, 0x7fff0000, 0x00050001
# mbind, set_mempolicy, get_mempolicy, migrate_pages
CALLS = {"x86_64": (237, 238, 256), "aarch64": (235, 237, 238)}[os.uname().machine]
def rule(code, yes, no, value):
    return struct.pack("HBBI", code, yes, no, value)
rules = [rule(LOAD, 0, 0, 0)]
rules += [rule(EQUAL, len(CALLS) - at, 0, call) for at, call in enumerate(CALLS)]
rules += [rule(RETURN, 0, 0, ALLOW), rule(RETURN, 0, 0, REFUSE)]
text = ctypes.create_string_buffer(b"".join(rules))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("rules", ctypes.c_void_p)]
program = Program(len(rules), ctypes.addressof(text))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execvp(sys.argv[1], sys.argv[1:])
"#;
const TWO_MEMORY_NODES: &str = "online=$(cat /sys/devices/system/cpu/online) && \
    mount -t tmpfs none /sys/devices/system/node && cd /sys/devices/system/node && \
    mkdir node0 node1 && echo 0-1 >online && echo $online >node0/cpulist && echo >node1/cpulist && \
    cd / && exec \"$@\"";

#[test]
fn denied_memory_policy_binds_only_processors() {
    let machine = ["unshare", "--mount", "sh", "-c", TWO_MEMORY_NODES, "sh"];
    let mut probe = command(machine[0]);
    let probe = probe.args(&machine[1..]).arg("true").stderr(std::process::Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        skip("mount", "denied_memory_policy_binds_only_processors");
        return;
    }
    let launch = workers(1).through(&machine).through(&["python3", "-c", DENIES_MEMORY]);
    let launch = launch.option("--bind_cores_to_rank");
    let outcome = launch.sh("echo threads $OMP_NUM_THREADS").end().code(0);
    assert!(outcome.stdout_text().starts_with("threads "), "{outcome:?}");
    outcome.says(
        "note: localhost: memory cannot be bound: operation not permitted; workers are bound to \
         processors only",
    );
}
