//! Resolves the options of a command line to the description of a job. Files, environment and
//! devices are read here, once; everything after this is a function of the result.

mod allocated;
mod allocation;
mod cluster;
mod devices;
mod dial;
mod elastic;
pub(super) mod environment;
mod host_as_script;
pub(super) mod hostfile;
mod master;
mod mpi_task;
mod no_ssh;
mod one_by_one;
mod own_task;
mod pod;
mod pool;
mod program;
mod rendezvous;
mod selection;
mod slurm_address;
mod ssh_wrapper;
mod start_place;
mod task_slots;
mod time_limit;
mod transport;
pub(super) mod trust;
mod wide_allocation;
mod world_info;

pub(super) use allocated::{AllocatedNodes, allocated_nodes, has_usual_hosts, separate_tasks_note};
pub(super) use cluster::{ResolvedCluster, StartedNodes, resolve_hosts};
#[cfg(feature = "train")]
pub(super) use devices::named_accelerator;
pub(super) use devices::{gpu_count, slots_are, visible_gpus, visible_xpus};
pub(super) use dial::NodePorts;
pub(super) use elastic::elastic;
pub(super) use host_as_script::check_script_is_no_host;
pub(super) use master::LOOPBACK;
pub(super) use one_by_one::{NodePlace, OneByOne, one_by_one};
pub(super) use own_task::{OwnTask, TaskGroup, own_task};
pub(super) use pod::{Pod, mpi_hosts, pod, surroundings};
pub(super) use program::{
    NO_PYTHON_OPTION, interpreter, missing_requirements, program, program_and_script,
    script_problem, search_path, show_interpreter,
};
pub(super) use rendezvous::unused_variables;
pub(super) use slurm_address::meeting_address;
pub(super) use start_place::resolve_cluster;
pub(super) use time_limit::allocation_end;
pub(super) use transport::unused_ssh_options;
pub(super) use wide_allocation::unused_nodes_note;
pub(super) use world_info::node_of_world;
