//! Every environment variable that the program reads or sets, and the one function that reads them.

use std::ffi::OsString;

use crate::base::order;

/// Rank of the worker in the job.
pub const RANK: &str = "RANK";
/// Rank of the worker on its node.
pub const LOCAL_RANK: &str = "LOCAL_RANK";
/// Number of workers of the job.
pub const WORLD_SIZE: &str = "WORLD_SIZE";
/// Number of workers of this node, as DeepSpeed names it.
pub const LOCAL_SIZE: &str = "LOCAL_SIZE";
/// Number of workers of this node, as torchrun names it.
pub const LOCAL_WORLD_SIZE: &str = "LOCAL_WORLD_SIZE";
/// Rank of the node, as torchrun names it.
pub const GROUP_RANK: &str = "GROUP_RANK";
/// Number of nodes of the job, as torchrun names it.
pub const GROUP_WORLD_SIZE: &str = "GROUP_WORLD_SIZE";
/// Rank of the node.
pub const NODE_RANK: &str = "NODE_RANK";
/// Rank of the node, as DeepSpeed names it.
pub const CROSS_RANK: &str = "CROSS_RANK";
/// Number of nodes of the job, as DeepSpeed names it.
pub const CROSS_SIZE: &str = "CROSS_SIZE";
/// torchrun's role of the worker; always `default`.
pub const ROLE_NAME: &str = "ROLE_NAME";
/// Rank among the workers of a role; equal to `RANK`.
pub const ROLE_RANK: &str = "ROLE_RANK";
/// Number of workers of a role; equal to `WORLD_SIZE`.
pub const ROLE_WORLD_SIZE: &str = "ROLE_WORLD_SIZE";
/// Address on which torch's rank 0 listens.
pub const MASTER_ADDR: &str = "MASTER_ADDR";
/// Port on which torch's rank 0 listens.
pub const MASTER_PORT: &str = "MASTER_PORT";
/// Devices that a CUDA program may use.
pub const CUDA_VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";
/// Name of the user that is logged in.
pub const LOGNAME: &str = "LOGNAME";
/// Devices that a HIP program may use.
pub const HIP_VISIBLE_DEVICES: &str = "HIP_VISIBLE_DEVICES";
/// Devices that AMD's ROCr runtime exposes; `HIP_VISIBLE_DEVICES` numbers these from 0 again.
pub const ROCR_VISIBLE_DEVICES: &str = "ROCR_VISIBLE_DEVICES";
/// Devices that a Level Zero program may use.
pub const ZE_AFFINITY_MASK: &str = "ZE_AFFINITY_MASK";
/// Devices that an Ascend program may use.
pub const ASCEND_RT_VISIBLE_DEVICES: &str = "ASCEND_RT_VISIBLE_DEVICES";
/// Devices that a program for Cambricon MLUs may use.
pub const MLU_VISIBLE_DEVICES: &str = "MLU_VISIBLE_DEVICES";
/// Moore Threads: which GPUs a program may use.
pub const MUSA_VISIBLE_DEVICES: &str = "MUSA_VISIBLE_DEVICES";
/// Intel Gaudi: which modules a program may use.
pub const HABANA_VISIBLE_MODULES: &str = "HABANA_VISIBLE_MODULES";
/// AWS Neuron: which cores a program may use.
pub const NEURON_RT_VISIBLE_CORES: &str = "NEURON_RT_VISIBLE_CORES";
/// Devices that a program for Tecorigin SDAA may use.
pub const SDAA_VISIBLE_DEVICES: &str = "SDAA_VISIBLE_DEVICES";
/// Devices that a program for Biren SUPA may use.
pub const SUPA_VISIBLE_DEVICES: &str = "SUPA_VISIBLE_DEVICES";
/// Number of threads of an OpenMP program.
pub const OMP_NUM_THREADS: &str = "OMP_NUM_THREADS";
/// Name of the job, for torch.
pub const TORCHELASTIC_RUN_ID: &str = "TORCHELASTIC_RUN_ID";
/// The epoch, for torch.
pub const TORCHELASTIC_RESTART_COUNT: &str = "TORCHELASTIC_RESTART_COUNT";
/// Restarts allowed, for torch.
pub const TORCHELASTIC_MAX_RESTARTS: &str = "TORCHELASTIC_MAX_RESTARTS";
/// `False`: rank 0 itself serves torch's store.
pub const TORCHELASTIC_USE_AGENT_STORE: &str = "TORCHELASTIC_USE_AGENT_STORE";
/// File into which torch's `@record` writes the exception of a worker.
pub const TORCHELASTIC_ERROR_FILE: &str = "TORCHELASTIC_ERROR_FILE";
/// Seconds between torchrun's request to stop and SIGKILL.
pub const TORCH_ELASTIC_SHUTDOWN_TIMEOUT: &str = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
/// Prefix of the lines of torchrun's `--tee`.
pub const TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE: &str = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";
/// Signals that torchrun handles.
pub const TORCHELASTIC_SIGNALS_TO_HANDLE: &str = "TORCHELASTIC_SIGNALS_TO_HANDLE";
/// Whether torch aborts NCCL operations that fail.
pub const TORCH_NCCL_ASYNC_ERROR_HANDLING: &str = "TORCH_NCCL_ASYNC_ERROR_HANDLING";
/// `1` keeps NCCL from direct connections between GPUs.
pub const NCCL_P2P_DISABLE: &str = "NCCL_P2P_DISABLE";
/// `1` keeps NCCL from InfiniBand.
pub const NCCL_IB_DISABLE: &str = "NCCL_IB_DISABLE";
/// Whether Hugging Face's accelerate uses the CPU without a launcher of its own.
pub const ACCELERATE_USE_CPU: &str = "ACCELERATE_USE_CPU";
/// Descriptor of the socket between a worker and its agent; see `runtime::contract`.
pub const REMUDA_RANK_FD: &str = "REMUDA_RANK_FD";
/// Descriptor of the memory that the workers of a node share.
pub const REMUDA_SHM_FD: &str = "REMUDA_SHM_FD";
/// File with the job key, for workers that another launcher started.
pub const REMUDA_KEY_FILE: &str = "REMUDA_KEY_FILE";
/// Backend of the groups that a program of torch makes with `gloo`; the Python package reads it.
pub const REMUDA_TORCH_BACKEND: &str = "REMUDA_TORCH_BACKEND";
/// `0`: the Python package counts no steps of optimizers.
pub const REMUDA_WATCH: &str = "REMUDA_WATCH";
/// Path of this executable, for `remuda.launch` of the Python package.
pub const REMUDA_EXECUTABLE: &str = "REMUDA_EXECUTABLE";
/// Path of `libremuda.so`, for the Python package.
pub const REMUDA_LIBRARY: &str = "REMUDA_LIBRARY";
/// Name of the job; set in every process of it.
pub const REMUDA_JOB: &str = "REMUDA_JOB";
/// Directory in which run directories are created.
pub const REMUDA_RUN_DIR: &str = "REMUDA_RUN_DIR";
/// Number of the process that has started the launcher; the job is stopped when it ends.
pub const REMUDA_ENDS_WITH: &str = "REMUDA_ENDS_WITH";
/// Directory of this run, with `run.json`, on the machine of the launcher; set in every worker.
pub const REMUDA_RUN_PATH: &str = "REMUDA_RUN_PATH";
/// Name or path of the environment files; `.deepspeed_env` when unset.
pub const DS_ENV_FILE: &str = "DS_ENV_FILE";
/// Set on clusters where two variables of NCCL and UCX must not be exported to other nodes.
pub const AISC_JOB_NAME: &str = "AISC_JOB_NAME";
/// Directories that Python searches first for modules.
pub const PYTHONPATH: &str = "PYTHONPATH";
/// Thread binding of Intel's OpenMP; it conflicts with the processors that remuda binds workers to.
pub const KMP_AFFINITY: &str = "KMP_AFFINITY";
/// Kind of device of a slot: `auto`, `cpu` or `cuda`.
pub const DS_ACCELERATOR: &str = "DS_ACCELERATOR";
/// Python to use when `--python` is not given.
pub const PYTHON_EXEC: &str = "PYTHON_EXEC";
/// Root of an active virtual environment.
pub const VIRTUAL_ENV: &str = "VIRTUAL_ENV";
/// Root of an active conda environment.
pub const CONDA_PREFIX: &str = "CONDA_PREFIX";
/// Directories that are searched for programs.
pub const PATH: &str = "PATH";
/// Home directory of the user.
pub const HOME: &str = "HOME";
/// Directory for caches of programs.
pub const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";
/// Directory of Hugging Face's programs, with the configuration file of accelerate.
pub const HF_HOME: &str = "HF_HOME";
/// Directory of the user's configuration files.
pub const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
/// Directory for the state of a user; run directories are created below it.
pub const XDG_STATE_HOME: &str = "XDG_STATE_HOME";
/// Private runtime directory of a login session.
pub const XDG_RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";
/// Set by sshd: address and port of the client, then address and port of the server.
pub const SSH_CONNECTION: &str = "SSH_CONNECTION";
/// Directories that the dynamic loader searches first.
pub const LD_LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// Slurm: id of the job; set inside a job.
pub const SLURM_JOB_ID: &str = "SLURM_JOB_ID";
/// Slurm: when the job ends, in seconds since 1970.
pub const SLURM_JOB_END_TIME: &str = "SLURM_JOB_END_TIME";
/// Slurm: number of GPUs of the whole job.
pub const SLURM_GPUS: &str = "SLURM_GPUS";
/// Slurm: number of components of a heterogeneous job.
pub const SLURM_HET_SIZE: &str = "SLURM_HET_SIZE";
/// Slurm: nodes of the step that this process is a task of.
pub const SLURM_STEP_NODELIST: &str = "SLURM_STEP_NODELIST";
/// Slurm: nodes of the job.
pub const SLURM_JOB_NODELIST: &str = "SLURM_JOB_NODELIST";
/// Slurm: GPUs requested on every node.
pub const SLURM_GPUS_PER_NODE: &str = "SLURM_GPUS_PER_NODE";
/// Slurm: name of the node on which a process runs.
pub const SLURMD_NODENAME: &str = "SLURMD_NODENAME";
/// Slurm: number of the step that this process is a task of.
pub const SLURM_STEP_ID: &str = "SLURM_STEP_ID";
/// Slurm: number of a process in its step.
pub const SLURM_PROCID: &str = "SLURM_PROCID";
/// Slurm: number of a process among those of its step on its node.
pub const SLURM_LOCALID: &str = "SLURM_LOCALID";
/// Open MPI: number of a process in its command.
pub const OMPI_COMM_WORLD_RANK: &str = "OMPI_COMM_WORLD_RANK";
/// Open MPI: number of processes of its command.
pub const OMPI_COMM_WORLD_SIZE: &str = "OMPI_COMM_WORLD_SIZE";
/// Open MPI: number of processes of its command on this host.
pub const OMPI_COMM_WORLD_LOCAL_SIZE: &str = "OMPI_COMM_WORLD_LOCAL_SIZE";
/// Open MPI: number of a process among those of its command on its host.
pub const OMPI_COMM_WORLD_LOCAL_RANK: &str = "OMPI_COMM_WORLD_LOCAL_RANK";
/// Open MPI: name of its command.
pub const PMIX_NAMESPACE: &str = "PMIX_NAMESPACE";
/// MPICH and its relatives: number of processes of its command.
pub const PMI_SIZE: &str = "PMI_SIZE";
/// MPICH and its relatives: number of processes of its command on this host.
pub const MPI_LOCALNRANKS: &str = "MPI_LOCALNRANKS";
/// MPICH and its relatives: number of a process among those of its command on its host.
pub const MPI_LOCALRANKID: &str = "MPI_LOCALRANKID";
/// MPICH and its relatives: number of a process in its command.
pub const PMI_RANK: &str = "PMI_RANK";
/// Slurm: GPUs of this node.
pub const SLURM_GPUS_ON_NODE: &str = "SLURM_GPUS_ON_NODE";
/// Slurm: tasks of each node of the step.
pub const SLURM_STEP_TASKS_PER_NODE: &str = "SLURM_STEP_TASKS_PER_NODE";
/// Slurm: tasks of each node of the job.
pub const SLURM_TASKS_PER_NODE: &str = "SLURM_TASKS_PER_NODE";
/// Slurm: tasks of the step that this process is a task of.
pub const SLURM_STEP_NUM_TASKS: &str = "SLURM_STEP_NUM_TASKS";
/// PBS: file with a line for each slot.
pub const PBS_NODEFILE: &str = "PBS_NODEFILE";
/// LSF: hosts, each with its slots.
pub const LSB_MCPU_HOSTS: &str = "LSB_MCPU_HOSTS";
/// LSF: file with a line for each slot.
pub const LSB_DJOB_HOSTFILE: &str = "LSB_DJOB_HOSTFILE";
/// Grid Engine: file with a line for each host and queue.
pub const PE_HOSTFILE: &str = "PE_HOSTFILE";

/// dstack: GPUs of each node.
pub const DSTACK_GPUS_PER_NODE: &str = "DSTACK_GPUS_PER_NODE";
/// dstack: address of node 0.
pub const DSTACK_MASTER_NODE_IP: &str = "DSTACK_MASTER_NODE_IP";
/// dstack: addresses of all nodes.
pub const DSTACK_NODES_IPS: &str = "DSTACK_NODES_IPS";
/// dstack: number of nodes.
pub const DSTACK_NODES_NUM: &str = "DSTACK_NODES_NUM";
/// dstack: rank of this node.
pub const DSTACK_NODE_RANK: &str = "DSTACK_NODE_RANK";
/// JobSet: its name, as the manifests of `remuda k8s` pass it on.
pub const JOBSET_NAME: &str = "JOBSET_NAME";
/// Indexed Job: index of this pod.
pub const JOB_COMPLETION_INDEX: &str = "JOB_COMPLETION_INDEX";
/// Kubernetes: set in every pod.
pub const KUBERNETES_SERVICE_HOST: &str = "KUBERNETES_SERVICE_HOST";
/// LeaderWorkerSet: number of pods of the group.
pub const LWS_GROUP_SIZE: &str = "LWS_GROUP_SIZE";
/// LeaderWorkerSet: name of the first pod.
pub const LWS_LEADER_ADDRESS: &str = "LWS_LEADER_ADDRESS";
/// LeaderWorkerSet: index of this pod in the group.
pub const LWS_WORKER_INDEX: &str = "LWS_WORKER_INDEX";
/// Number of nodes, as scripts usually set it.
pub const NNODES: &str = "NNODES";
/// Nomad: index of this allocation in the group.
pub const NOMAD_ALLOC_INDEX: &str = "NOMAD_ALLOC_INDEX";
/// MPIJob: file of the hosts that its launcher reaches over ssh, for MPICH.
pub const HYDRA_HOST_FILE: &str = "HYDRA_HOST_FILE";
/// MPIJob: file of the hosts that its launcher reaches over ssh, for Intel MPI.
pub const I_MPI_HYDRA_HOST_FILE: &str = "I_MPI_HYDRA_HOST_FILE";
/// MPIJob: `launcher` or `worker`.
pub const K_MPI_JOB_ROLE: &str = "K_MPI_JOB_ROLE";
/// MPIJob: file of the hosts that its launcher reaches over ssh, for Open MPI 4.
pub const OMPI_MCA_ORTE_DEFAULT_HOSTFILE: &str = "OMPI_MCA_orte_default_hostfile";
/// Kubeflow: name of node 0.
pub const PET_MASTER_ADDR: &str = "PET_MASTER_ADDR";
/// Kubeflow: port on which rank 0 listens.
pub const PET_MASTER_PORT: &str = "PET_MASTER_PORT";
/// Kubeflow: number of nodes, or a range `MIN:MAX`.
pub const PET_NNODES: &str = "PET_NNODES";
/// Kubeflow: rank of this node.
pub const PET_NODE_RANK: &str = "PET_NODE_RANK";
/// Kubeflow: workers of each node.
pub const PET_NPROC_PER_NODE: &str = "PET_NPROC_PER_NODE";
/// MPIJob: file of the hosts that its launcher reaches over ssh, for Open MPI 5.
pub const PRTE_MCA_PRTE_DEFAULT_HOSTFILE: &str = "PRTE_MCA_prte_default_hostfile";
/// JobSet: name of the job in it that this pod belongs to.
pub const REPLICATED_JOB_NAME: &str = "REPLICATED_JOB_NAME";
/// SkyPilot: addresses of all nodes.
pub const SKYPILOT_NODE_IPS: &str = "SKYPILOT_NODE_IPS";
/// SkyPilot: rank of this node.
pub const SKYPILOT_NODE_RANK: &str = "SKYPILOT_NODE_RANK";
/// SkyPilot: GPUs of each node.
pub const SKYPILOT_NUM_GPUS_PER_NODE: &str = "SKYPILOT_NUM_GPUS_PER_NODE";
/// SkyPilot: number of nodes.
pub const SKYPILOT_NUM_NODES: &str = "SKYPILOT_NUM_NODES";
/// Slurm: number of nodes of the job.
pub const SLURM_NNODES: &str = "SLURM_NNODES";
/// Slurm: rank of this node.
pub const SLURM_NODEID: &str = "SLURM_NODEID";
/// Volcano: index of this pod in its task.
pub const VC_TASK_INDEX: &str = "VC_TASK_INDEX";
/// Volcano: index of this pod in its task, in old releases.
pub const VK_TASK_INDEX: &str = "VK_TASK_INDEX";
/// `--accelerator` of `remuda pod`.
pub const REMUDA_ACCELERATOR: &str = "REMUDA_ACCELERATOR";
/// `--oversubscribe` of `remuda pod`: 1 or 0.
pub const REMUDA_OVERSUBSCRIBE: &str = "REMUDA_OVERSUBSCRIBE";
/// `--share` of `remuda pod`: 1 or 0.
pub const REMUDA_SHARE: &str = "REMUDA_SHARE";
/// `--allow_insecure_files` of `remuda pod`: 1 or 0.
pub const REMUDA_ALLOW_INSECURE_FILES: &str = "REMUDA_ALLOW_INSECURE_FILES";
/// `--nodes` of `remuda pod`.
pub const REMUDA_NODES: &str = "REMUDA_NODES";
/// `--node_rank` of `remuda pod`.
pub const REMUDA_NODE_RANK: &str = "REMUDA_NODE_RANK";
/// `--num_gpus` of `remuda pod`.
pub const REMUDA_NUM_GPUS: &str = "REMUDA_NUM_GPUS";
/// `--master_addr` of `remuda pod`.
pub const REMUDA_MASTER_ADDR: &str = "REMUDA_MASTER_ADDR";
/// `--master_port` of `remuda pod`.
pub const REMUDA_MASTER_PORT: &str = "REMUDA_MASTER_PORT";
/// `--local_addr` of `remuda pod`. For a worker: the address on which other ranks connect to it;
/// when unset, the local address of its connection to the store.
pub const REMUDA_LOCAL_ADDR: &str = "REMUDA_LOCAL_ADDR";
/// Set for the agent of a node that connected to the launcher: both ends of the connection, in the format of
/// SSH_CONNECTION.
pub const REMUDA_CONNECTION: &str = "REMUDA_CONNECTION";
/// `--job_id` of `remuda pod`.
pub const REMUDA_JOB_ID: &str = "REMUDA_JOB_ID";
/// `--join_timeout` of `remuda pod`.
pub const REMUDA_JOIN_TIMEOUT: &str = "REMUDA_JOIN_TIMEOUT";
/// `--min_nodes` of `remuda pod`.
pub const REMUDA_MIN_NODES: &str = "REMUDA_MIN_NODES";
/// `--spares` of `remuda pod`.
pub const REMUDA_SPARES: &str = "REMUDA_SPARES";
/// `--exclude_failing` of `remuda pod`: 1 or 0.
pub const REMUDA_EXCLUDE_FAILING: &str = "REMUDA_EXCLUDE_FAILING";
/// `--last_call` of `remuda pod`.
pub const REMUDA_LAST_CALL: &str = "REMUDA_LAST_CALL";
/// `--isolated` of `remuda pod`: 1 or 0.
pub const REMUDA_ISOLATED: &str = "REMUDA_ISOLATED";
/// `--peer_exit` of `remuda pod`.
pub const REMUDA_PEER_EXIT: &str = "REMUDA_PEER_EXIT";

/// `--status_addr` of `remuda pod`.
pub const REMUDA_STATUS_ADDR: &str = "REMUDA_STATUS_ADDR";
/// File to which `remuda pod` writes the outcome of the job.
pub const REMUDA_TERMINATION_LOG: &str = "REMUDA_TERMINATION_LOG";

/// Number of TCP streams between two ranks of different nodes.
pub const REMUDA_STREAMS: &str = "REMUDA_STREAMS";
/// Path of the NCCL library to load, instead of the first one that is found.
pub const REMUDA_NCCL_LIBRARY: &str = "REMUDA_NCCL_LIBRARY";
/// Path of the NVRTC library to load, instead of the first one that is found.
pub const REMUDA_NVRTC_LIBRARY: &str = "REMUDA_NVRTC_LIBRARY";
/// Path of the cuBLASLt library to load, instead of the first one that is found.
pub const REMUDA_CUBLASLT_LIBRARY: &str = "REMUDA_CUBLASLT_LIBRARY";

/// Address on which NCCL's RAS service listens: `host:port`.
pub const NCCL_RAS_ADDR: &str = "NCCL_RAS_ADDR";
/// `1` allows several ranks to share a device, in NCCL 2.30 and later.
pub const NCCL_MULTI_RANK_GPU_ENABLE: &str = "NCCL_MULTI_RANK_GPU_ENABLE";

/// Filter of the log of remuda itself, in the syntax of tracing.
pub const REMUDA_LOG: &str = "REMUDA_LOG";

/// When set, output has no colours: <https://no-color.org>.
pub const NO_COLOR: &str = "NO_COLOR";
/// When set and not 0, output has colours even if it is not a terminal.
pub const CLICOLOR_FORCE: &str = "CLICOLOR_FORCE";
/// The same under the name that Python and Node.js tools use, <https://force-color.org>.
pub const FORCE_COLOR: &str = "FORCE_COLOR";
/// Locale that overrides every other one.
pub const LC_ALL: &str = "LC_ALL";
/// Locale of characters.
pub const LC_CTYPE: &str = "LC_CTYPE";
/// Locale where no other variable sets it.
pub const LANG: &str = "LANG";
/// Type of the terminal.
pub const TERM: &str = "TERM";
/// Columns of the terminal, for help pages, and for the progress bars of a single worker.
pub const COLUMNS: &str = "COLUMNS";
/// Rows of the terminal, for the progress bars of a single worker.
pub const LINES: &str = "LINES";
/// Width of the bars of tqdm, whose newest versions do not read COLUMNS.
pub const TQDM_NCOLS: &str = "TQDM_NCOLS";

/// Variables that identify a worker or connect it with its agent; the user cannot set them.
///
/// `CUDA_VISIBLE_DEVICES`, `OMP_NUM_THREADS` and most of `TORCHELASTIC_*` are not among them: a
/// value of the user replaces that of remuda.
pub const RESERVED: &[&str] = &[
    RANK,
    LOCAL_RANK,
    WORLD_SIZE,
    LOCAL_SIZE,
    LOCAL_WORLD_SIZE,
    GROUP_RANK,
    GROUP_WORLD_SIZE,
    NODE_RANK,
    CROSS_RANK,
    CROSS_SIZE,
    ROLE_RANK,
    ROLE_WORLD_SIZE,
    MASTER_ADDR,
    MASTER_PORT,
    TORCHELASTIC_RESTART_COUNT,
    REMUDA_JOB,
    REMUDA_RANK_FD,
    REMUDA_SHM_FD,
];

/// Value of a variable; `None` when it is unset or empty.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub fn get(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Value of a variable as text; `None` when it is unset, empty or not UTF-8.
pub fn get_text(name: &str) -> Option<String> {
    get(name)?.into_string().ok()
}

/// Value of a variable of Slurm as text. In the `salloc` of a heterogeneous job, the variables of a component have its
/// number at the end of their names, and there are no others: the value is that of the first component.
pub fn get_of_slurm(name: &str) -> Option<String> {
    get_text(name).or_else(|| get_text(&format!("{name}_HET_GROUP_0")))
}

/// The whole environment, byte for byte.
pub fn all() -> std::collections::BTreeMap<Vec<u8>, Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    order::map(std::env::vars_os().map(|(name, value)| (name.into_vec(), value.into_vec())))
}
