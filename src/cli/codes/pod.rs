//! The codes of errors of nodes that are started one by one: of their key (`K…`) and of pods (`P…`).

use crate::base::{Explanation, explanation};

/// The key file cannot be read.
pub(in crate::cli) const KEY_UNREADABLE: &str = "K001";
/// The key file contains no key.
pub(in crate::cli) const NO_KEY: &str = "K002";
/// Other users can write the key file.
pub(in crate::cli) const KEY_WRITABLE: &str = "K003";
/// The key file belongs to another user.
pub(in crate::cli) const KEY_OF_OTHER_USER: &str = "K004";
/// Other users can read the key file.
pub(in crate::cli) const KEY_READABLE: &str = "K005";

/// The number of this pod is not set.
pub(in crate::cli) const UNKNOWN_POD: &str = "P001";
/// A variable has an invalid value.
pub(in crate::cli) const MALFORMED: &str = "P002";
/// Two platforms set different values.
pub(in crate::cli) const CONFLICT: &str = "P003";
/// The number of pods is not set.
pub(in crate::cli) const NODES_UNKNOWN: &str = "P004";
/// The number of this pod is too large.
pub(in crate::cli) const NO_SUCH_NODE: &str = "P005";
/// Pods without a key.
pub(in crate::cli) const POD_WITHOUT_KEY: &str = "P006";
/// The address of pod 0 is not set.
pub(in crate::cli) const NO_MASTER: &str = "P007";
/// The number of workers per pod is not set.
pub(in crate::cli) const NO_SLOTS: &str = "P008";
/// The hostfile of an MPIJob is missing.
pub(in crate::cli) const MPI_HOSTFILE: &str = "P009";
/// A name that is not valid for an object of Kubernetes.
pub(in crate::cli) const BAD_OBJECT_NAME: &str = "P010";
/// Hosts with different numbers of slots.
pub(in crate::cli) const UNEVEN_SLOTS: &str = "P011";

/// An address that this node does not have.
pub(in crate::cli) const BAD_LOCAL_ADDR: &str = "P012";

/// Options of a manifest that contradict each other.
pub(in crate::cli) const MANIFEST_CONFLICT: &str = "P013";

/// The `remuda explain` page of every code.
pub(in crate::cli) const EXPLANATIONS: &[Explanation] = &[
    explanation(
        KEY_UNREADABLE,
        "the key file cannot be read",
        "Nodes that are started one by one use a common secret to prove that they belong to the \
         same job. Create a key, and copy the same file to every node:\n\n    (umask 077; head \
         -c 32 /dev/urandom > key)\n\nIn a pod, the key is a Secret that is mounted as a file. \
         `--key_file /dev/fd/N` reads it from an open file descriptor.",
    ),
    explanation(
        NO_KEY,
        "the file contains no key",
        "A key has 16 to 65,536 bytes of any kind; white space at its end is ignored. The key is \
         hashed, so a longer key is not slower. To create one:\n\n    (umask 077; head -c 32 \
         /dev/urandom > key)",
    ),
    explanation(
        KEY_WRITABLE,
        "other users can write the key file",
        "A user who can choose the key can start workers under your account. Remove the \
         permission; if another user may have used the key, create a new one:\n\n    chmod go-w \
         key",
    ),
    explanation(
        KEY_OF_OTHER_USER,
        "the key file belongs to another user",
        "The owner of the file can replace the key and start workers under your account. Files \
         that belong to you or to root are accepted, because Secrets are mounted as root's \
         files. Make a copy that belongs to you:\n\n    (umask 077; cat key > my-key)",
    ),
    explanation(
        KEY_READABLE,
        "other users can read the key file",
        "A user who has the key can join the job and start workers under your account. Remove \
         the permission:\n\n    chmod 600 key\n\n`remuda pod` prints this warning only if the file does \
         not belong to root: the files of a Secret that is mounted in a pod do, and a pod has no other \
         users.",
    ),
    explanation(
        UNKNOWN_POD,
        "the number of this pod is not set",
        "A pod reads its number from what its platform sets: JOB_COMPLETION_INDEX, \
         LWS_WORKER_INDEX, PET_NODE_RANK, VC_TASK_INDEX and others, the number at the end of a \
         StatefulSet's host name, or NODE_RANK. None of them is set here. Set the number on the \
         command line:\n\n    remuda pod --nodes 4 --node_rank 1 --master_addr train-0.train \
         train.py",
    ),
    explanation(
        MALFORMED,
        "a variable has an invalid value",
        "A variable of the platform or of remuda (such as REMUDA_NODES, which stands for \
         `--nodes`) is set, but its value cannot be parsed. remuda does not ignore it, because \
         the job would then start with different settings. Correct the variable, or unset it and \
         use the option.",
    ),
    explanation(
        CONFLICT,
        "two platforms set different values",
        "The environment contains the variables of two platforms, and they disagree about the \
         number of this pod or about the number of pods: for example the index of an Indexed Job \
         beside a NODE_RANK of the image. Unset one of them, or use `--node_rank` and `--nodes`, \
         which override both.",
    ),
    explanation(
        NODES_UNKNOWN,
        "the number of pods is not set",
        "Indexed Jobs and StatefulSets give a pod its number, but not the number of pods. Use \
         `--nodes N`, or set REMUDA_NODES to the value of `completions` or `replicas`. A \
         TrainJob passes the number to its pods only if it, or its runtime, has a `trainer` \
         section (which may be empty); the runtime of `remuda k8s manifest --kind trainer` has \
         one.",
    ),
    explanation(
        NO_SUCH_NODE,
        "the number of this pod is too large",
        "Pods are numbered from 0, so the number of every pod must be smaller than `--nodes`. \
         Use the same `--nodes` in every pod.",
    ),
    explanation(
        POD_WITHOUT_KEY,
        "the pods have no key",
        "Without a key, pods cannot authenticate each other, and a failure of one pod does not \
         stop the others. Mount the same Secret in all pods and name it with `--key_file` or \
         REMUDA_KEY_FILE. If every pod should start its own workers without a connection to the \
         other pods, use `--isolated`.",
    ),
    explanation(
        NO_MASTER,
        "the address of pod 0 is not set",
        "The platform does not set the name of pod 0. The name belongs to the headless Service: \
         for a Job or a StatefulSet `train` with a Service `train` it is `train-0.train`. Use \
         the same address in every pod:\n\n    remuda pod --master_addr train-0.train train.py",
    ),
    explanation(
        NO_SLOTS,
        "the number of workers per pod is not set",
        "This pod has no GPU that remuda can count, and `--accelerator` selects GPUs. Use \
         `--num_gpus N`, the same in every pod, or `--accelerator cpu`.",
    ),
    explanation(
        MPI_HOSTFILE,
        "the hostfile of an MPIJob is missing",
        "A variable of MPI names a hostfile (such as OMPI_MCA_orte_default_hostfile, or \
         K_MPI_JOB_ROLE, which stands for /etc/mpi/hostfile), and the file cannot be read. No \
         other variable sets the number of this node. If the file exists, the launcher starts \
         the job on its hosts over ssh, and a pod that the file lists takes the node number of \
         its line. If this is not an MPIJob, unset the variable.",
    ),
    explanation(
        BAD_OBJECT_NAME,
        "the name is not valid for a Kubernetes object",
        "Names of jobs and Secrets contain lower-case letters, digits and `-`, and start with a \
         letter. The pods' names start with the name of the job; they are host names and have at \
         most 63 letters. Choose another name.",
    ),
    explanation(
        UNEVEN_SLOTS,
        "hosts with different numbers of slots cannot become pods",
        "All pods of a job are made from one template, so every pod has the same number of \
         workers. Use `--nodes` and `--gpus` instead of the hostfile, or remove the host that \
         differs from the hostfile.",
    ),
    explanation(
        BAD_LOCAL_ADDR,
        "this node does not have the address",
        "`--local_addr` (REMUDA_LOCAL_ADDR) is an address of this node or the name of an \
         interface such as net1, the same name in every pod. Workers on other nodes connect to \
         the workers of this node at this address. The default is the address from which the \
         route to node 0 leaves. If the address belongs to the same interface as that route, the \
         connection to node 0 also uses it. The address at which node 0 listens is \
         `--master_addr`. To list the interfaces and addresses of the node:\n\n    ip address",
    ),
    explanation(
        MANIFEST_CONFLICT,
        "the options of a manifest contradict each other",
        "The job uses `--master_port` and the two ports after it, and the probes use \
         `--status_port`: the ports must differ. `--nodes`, `--num_gpus`, `--master_port` and \
         `--status_addr` of the pods follow from the options of `remuda k8s manifest` before the \
         `--`; do not repeat them after it.",
    ),
];
