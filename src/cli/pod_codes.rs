//! The stable codes of what keeps nodes that are started one by one from coming together: their key
//! (`K…`), and what a pod knows of itself (`P…`).

use crate::base::{Explanation, story};

/// The key file cannot be read.
pub(super) const KEY_UNREADABLE: &str = "K001";
/// It holds no key.
pub(super) const NO_KEY: &str = "K002";
/// Others can write it.
pub(super) const KEY_WRITABLE: &str = "K003";
/// Somebody else has it.
pub(super) const KEY_FOREIGN: &str = "K004";
/// Others can read it.
pub(super) const KEY_READABLE: &str = "K005";

/// Nothing says which pod this is.
pub(super) const UNKNOWN_POD: &str = "P001";
/// What says so cannot be understood.
pub(super) const MALFORMED: &str = "P002";
/// Two say so, and differ.
pub(super) const CONFLICT: &str = "P003";
/// Nothing says how many pods there are.
pub(super) const HOW_MANY: &str = "P004";
/// There are not so many.
pub(super) const NO_SUCH_NODE: &str = "P005";
/// Pods without a key.
pub(super) const POD_WITHOUT_KEY: &str = "P006";
/// Nothing says where pod 0 is.
pub(super) const NO_MASTER: &str = "P007";
/// Nothing says how many workers a pod has.
pub(super) const NO_SLOTS: &str = "P008";
/// A hostfile of MPI that is not there.
pub(super) const MPI_HOSTFILE: &str = "P009";
/// A name that no object may have.
pub(super) const BAD_OBJECT: &str = "P010";
/// Hosts that are not alike.
pub(super) const UNEVEN: &str = "P011";

/// An address that this node does not have.
pub(super) const BAD_LOCAL_ADDR: &str = "P012";

/// Something that a manifest says twice, or a port that it gives twice.
pub(super) const CLASH: &str = "P013";

/// Their stories.
pub(super) const EXPLANATIONS: &[Explanation] = &[
    story(
        KEY_UNREADABLE,
        "the key file cannot be read",
        "Nodes that are started one by one prove with a common secret that they belong together. Make \
         one, and give every node the same:\n\n    (umask 077; head -c 32 /dev/urandom > key)\n\n\
         In a pod it is a Secret that is mounted as a file; with `/dev/fd/N` it is a descriptor that was \
         handed to us.",
    ),
    story(
        NO_KEY,
        "the file holds no key",
        "A key has 16 bytes or more, of any kind, and 65,536 at most; blanks at its end are not part of \
         it. It is hashed, so that its length does not matter beyond that.",
    ),
    story(
        KEY_WRITABLE,
        "others can write the key file",
        "Whoever can choose the key can start workers as you. Take the right away with `chmod go-w`; if \
         somebody may have used it, make a new key.",
    ),
    story(
        KEY_FOREIGN,
        "the key file is somebody else's",
        "Whoever owns the file can write it, and so start workers as you. Root's files are fine, as \
         Secrets are mounted; of any other a copy of your own is needed.",
    ),
    story(
        KEY_READABLE,
        "others can read the key file",
        "Whoever has the key can join the job, and start workers as you. `chmod 600` it. A Secret that is \
         mounted in a pod is not warned of: nobody else is there.",
    ),
    story(
        UNKNOWN_POD,
        "nothing says which pod this is",
        "A pod finds its number in what its platform sets: JOB_COMPLETION_INDEX, LWS_WORKER_INDEX, \
         PET_NODE_RANK, VC_TASK_INDEX and others, the number at the end of a StatefulSet's host name, or \
         NODE_RANK. None of them is here. Say it:\n\n    \
         remuda pod --nodes 4 --node_rank 1 --master_addr train-0.train train.py",
    ),
    story(
        MALFORMED,
        "a variable does not hold what it should",
        "A variable of the platform, or one of ours (REMUDA_NODES for --nodes, and so on), is set and \
         cannot be read. It is not passed over, for it was meant.",
    ),
    story(
        CONFLICT,
        "two platforms say different things",
        "Two conventions are present, and they do not agree on which pod this is, or how many there are: \
         an Indexed Job's index, say, beside a NODE_RANK of the image. Unset one, or say it: \
         --node_rank and --nodes go before what is found.",
    ),
    story(
        HOW_MANY,
        "nothing says how many pods there are",
        "Indexed Jobs and StatefulSets tell a pod its number, not how many there are. Give --nodes, or \
         set REMUDA_NODES to `completions` or `replicas`. A TrainJob tells its pods if it has a \
         `trainer`, be it an empty one, or if its runtime does: that of `remuda k8s manifest --kind \
         trainer` does.",
    ),
    story(
        NO_SUCH_NODE,
        "there are not so many pods",
        "The number of this pod is not below --nodes; they are counted from 0. Every pod is given the same \
         --nodes.",
    ),
    story(
        POD_WITHOUT_KEY,
        "the pods have no key",
        "Without a key pods cannot know each other, and a failure of one would not end the others. Mount \
         the same Secret in all of them and give --key_file, or REMUDA_KEY_FILE. With --isolated each \
         starts its own workers, and nothing connects them but what the program does itself.",
    ),
    story(
        NO_MASTER,
        "nothing says where pod 0 is",
        "The platform does not tell the name of pod 0. It is that of the headless Service: \
         `train-0.train` for a Job or a StatefulSet `train` with a Service of that name. Give \
         --master_addr, the same in every pod.",
    ),
    story(
        NO_SLOTS,
        "nothing says how many workers a pod has",
        "There is no GPU here that could be counted, and --accelerator wants some. Give --num_gpus, the \
         same in every pod, or --accelerator cpu.",
    ),
    story(
        MPI_HOSTFILE,
        "the hostfile of an MPIJob is not there",
        "A variable of MPI names a hostfile (OMPI_MCA_orte_default_hostfile and its like, or \
         K_MPI_JOB_ROLE, for which it is /etc/mpi/hostfile), nothing else says which node this is, and \
         the file cannot be read. With it the launcher starts the job on its hosts, over ssh, and a pod \
         that is itself in it is the node that its line is. If this is no MPIJob, unset the variable.",
    ),
    story(
        BAD_OBJECT,
        "a name that no object of Kubernetes may have",
        "Names of jobs and Secrets have small letters, digits and `-`, and begin with a letter. The name \
         of the job begins the names of its pods, which are host names and have 63 letters at most.",
    ),
    story(
        UNEVEN,
        "hosts of different sizes cannot become pods",
        "Pods of one job are made from one template, so each has as many workers as every other. Write \
         --nodes and --gpus in the place of the hostfile, or leave the odd host out of it.",
    ),
    story(
        BAD_LOCAL_ADDR,
        "an address that this node does not have",
        "--local_addr (REMUDA_LOCAL_ADDR) is an address of this node, or the name of an interface, such \
         as net1, the same in every pod: there the workers of the node are found by those of the others. \
         By default that is the address by which node 0 is reached, as the routes say. One of the same \
         interface is also the one from which node 0 is called. Where node 0 listens is --master_addr.",
    ),
    story(
        CLASH,
        "a manifest that contradicts itself",
        "The job has --master_port and the two ports behind it, and the probes have --status_port: they \
         may not meet. And --nodes, --num_gpus, --master_port and --status_addr of the pods follow from \
         what `remuda k8s manifest` is given before the `--`; they are not given again behind it.",
    ),
];
