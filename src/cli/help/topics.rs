//! Content of help pages besides the definitions of options: the most used options and the examples
//! of every command.

/// Content of the pages of a command besides its options.
#[derive(Clone, Copy, Debug)]
pub(super) struct Topic {
    /// The name of the command, without `remuda`.
    pub(super) command: &'static str,
    /// The options of `-h`, by their ids, in the order of the page.
    pub(super) options: &'static [&'static str],
    /// A description and the command line, for each example.
    pub(super) examples: [(&'static str, &'static str); 3],
}

/// Description of remuda on the first page.
pub(super) const ABOUT: &str =
    "remuda: a cluster job runner with the command line of the DeepSpeed launcher";

/// Text at the end of the first page.
pub(super) const FRONT_END: &str =
    "`remuda COMMAND -h` is one screen, `remuda COMMAND --help` lists every option.";

/// The examples of the first page.
pub(super) const FRONT: Topic = Topic {
    command: "",
    options: &[],
    examples: [
        ("four workers on this machine", "remuda run -n 4 train.py --lr 0.1"),
        ("eight workers on each of two hosts", "remuda run -H n1:8,n2:8 train.py"),
        ("check the hosts first", "remuda doctor -H n1:8,n2:8"),
    ],
};

/// Short descriptions for `-h`: of an option of all commands, or of `COMMAND OPTION`.
pub(super) const SHORT_HELP: [(&str, &str); 24] = [
    ("hostfile", "Hostfile, or a list of hosts: `n1:8,n2:8`, `n[01-04]:8`"),
    ("num_gpus", "Workers on each host: its first N slots"),
    ("include", "Hosts and slots to use: `n1@n2:0,2`"),
    ("exclude", "Hosts and slots not to use: `n3@n4:1`"),
    ("env", "Set an environment variable in every worker"),
    ("ssh env", "Set an environment variable of the command"),
    ("ssh timeout", "Stop the command after this time: `90s`, `2m`, `1h`"),
    ("timeout", "Stop the job after this time: `90s`, `2m`, `1h`"),
    ("max_restarts", "Restart all workers after a failure, at most N times"),
    ("log_dir", "Directory for the whole output of every rank"),
    ("train data", "Text files, or shards of `remuda tokenize`"),
    ("batch_size", "Samples in a micro-batch of a worker"),
    ("checkpoint_dir", "Directory for checkpoints"),
    ("resume", "Continue from a checkpoint, or from the newest one"),
    ("backend", "host, nccl (GPU memory) or staged (GPU memory, through the host)"),
    ("collective", "all-reduce, all-gather, reduce-scatter, all-to-all, …"),
    ("iters", "Timed iterations per size; the number of ranks is --num_gpus"),
    ("threshold", "Exit with 1 if the bus bandwidth is lower"),
    ("set", "Hostfile, list of hosts, or sets: `hosts & rack[1-3]`"),
    ("from", "Dialect of the file"),
    ("hostfile convert to", "Dialect to write"),
    ("nproc_per_node", "Workers on each node: N, `gpu`, `cpu`, `xpu` or `auto` [default: 1]"),
    ("redirects", "Streams that go to files only: 0, 1, 2, 3, or `0:3,1:1`"),
    ("tee", "Streams that go to files and to the screen"),
];

/// The most used options and the examples of every command.
pub(super) const TOPICS: [Topic; 34] = [
    Topic {
        command: "run",
        options: &[
            "num_gpus",
            "hostfile",
            "include",
            "exclude",
            "env",
            "max_restarts",
            "timeout",
            "log_dir",
            "dry_run",
        ],
        examples: [
            ("four workers on this machine", "remuda run -n 4 train.py --lr 0.1"),
            ("eight workers on each of two hosts", "remuda run -H n1:8,n2:8 train.py"),
            ("an executable, once for each slot of a hostfile", "remuda run -H hosts ./worker"),
        ],
    },
    Topic {
        command: "sbatch",
        options: &["nodes", "gpus", "time", "partition", "account", "requeue", "print"],
        examples: [
            (
                "four nodes with eight GPUs each, for a day",
                "remuda sbatch -N 4 --gpus 8 --time 24h -- train.py --lr 0.1",
            ),
            ("see the script", "remuda sbatch -N 4 --gpus 8 --print -- train.py"),
            (
                "ten jobs, each with its number in SLURM_ARRAY_TASK_ID",
                "remuda sbatch --array 0-9 --gpus 1 -c 8 --mem 64G -- train.py",
            ),
        ],
    },
    Topic {
        command: "torchrun",
        options: &[
            "nproc_per_node",
            "nnodes",
            "hostfile",
            "node_rank",
            "master_addr",
            "max_restarts",
            "redirects",
            "tee",
        ],
        examples: [
            (
                "four workers on this machine",
                "remuda torchrun --nproc-per-node 4 train.py --lr 0.1",
            ),
            (
                "eight workers on each of two hosts, from one command",
                "remuda torchrun -H n1,n2 --nproc-per-node 8 train.py",
            ),
            (
                "on each of two nodes, with its own number",
                "remuda torchrun --nnodes 2 --node-rank 0 --master-addr n1 --nproc-per-node 8 train.py",
            ),
        ],
    },
    Topic {
        command: "torch.distributed.launch",
        options: &[
            "nproc_per_node",
            "nnodes",
            "hostfile",
            "node_rank",
            "master_addr",
            "max_restarts",
            "use_env",
        ],
        examples: [
            (
                "four workers on this machine, which get `--local-rank=N`",
                "remuda torch.distributed.launch --nproc-per-node 4 train.py --lr 0.1",
            ),
            (
                "the script reads LOCAL_RANK",
                "remuda torch.distributed.launch --use-env --nproc-per-node 4 train.py",
            ),
            (
                "on each of two nodes, with its own number",
                "remuda torch.distributed.launch --nnodes 2 --node-rank 0 --master-addr n1 train.py",
            ),
        ],
    },
    Topic {
        command: "accelerate",
        options: &[],
        examples: [
            ("with the file of `accelerate config`", "remuda accelerate launch train.py --lr 0.1"),
            (
                "four workers on this machine",
                "remuda accelerate launch --num_processes 4 --multi_gpu train.py",
            ),
            (
                "with another configuration file",
                "remuda accelerate launch --config_file fsdp.yaml train.py",
            ),
        ],
    },
    Topic {
        command: "accelerate launch",
        options: &[
            "num_processes",
            "config_file",
            "mixed_precision",
            "use_fsdp",
            "use_deepspeed",
            "num_machines",
            "machine_rank",
            "main_process_ip",
        ],
        examples: [
            ("with the file of `accelerate config`", "remuda accelerate launch train.py --lr 0.1"),
            (
                "eight workers on each of two hosts, from one command",
                "remuda accelerate launch -H n1,n2 --num_processes 16 train.py",
            ),
            (
                "on each of two machines, with its own number",
                "remuda accelerate launch --num_machines 2 --machine_rank 0 --main_process_ip n1 --num_processes 16 train.py",
            ),
        ],
    },
    Topic {
        command: "pod",
        options: &["key_file", "nodes", "num_gpus", "master_addr", "max_restarts", "status_addr"],
        examples: [
            (
                "in every pod of an Indexed Job",
                "remuda pod --key_file /etc/remuda/key train.py --lr 0.1",
            ),
            (
                "if the platform is not known",
                "remuda pod --key_file key --nodes 2 --node_rank 0 --master_addr pod-0 train.py",
            ),
            (
                "with restarts, and with probes on port 8080",
                "remuda pod --key_file key --max_restarts 3 --status_addr 0.0.0.0:8080 train.py",
            ),
        ],
    },
    Topic {
        command: "k8s",
        options: &[],
        examples: [
            (
                "an Indexed Job of two pods with eight GPUs each",
                "remuda k8s manifest --image IMAGE --nodes 2 --gpus 8 train.py > job.yaml",
            ),
            ("a Containerfile for the image", "remuda k8s containerfile > Containerfile"),
            (
                "a pod for each host of a list",
                "remuda k8s manifest --image IMAGE -H n1:8,n2:8 train.py > job.yaml",
            ),
        ],
    },
    Topic {
        command: "k8s manifest",
        options: &["image", "nodes", "gpus", "cpus", "hostfile", "kind", "name", "with_key"],
        examples: [
            (
                "an Indexed Job of two pods with eight GPUs each",
                "remuda k8s manifest --image IMAGE --nodes 2 --gpus 8 train.py > job.yaml",
            ),
            (
                "a JobSet with a pod for each host of a hostfile",
                "remuda k8s manifest --image IMAGE --kind jobset -H hosts train.py",
            ),
            (
                "with a new key, into the cluster",
                "remuda k8s manifest --image IMAGE --nodes 2 --with_key train.py | kubectl apply -f -",
            ),
        ],
    },
    Topic {
        command: "k8s containerfile",
        options: &[],
        examples: [
            ("a template to edit", "remuda k8s containerfile > Containerfile"),
            (
                "the image of the template",
                "remuda k8s containerfile | podman build -t IMAGE -f - .",
            ),
            ("the same with docker", "remuda k8s containerfile | docker build -t IMAGE -f - ."),
        ],
    },
    Topic {
        command: "launch",
        options: &[
            "world_info",
            "node_rank",
            "master_addr",
            "no_python",
            "no_local_rank",
            "dry_run",
        ],
        examples: [
            (
                "node 0 of a and b with a slot each",
                "remuda launch --world_info eyJhIjpbMF0sImIiOlswXX0= --node_rank 0 train.py",
            ),
            (
                "the address of rank 0 is not the name of the first host",
                "remuda launch --world_info eyJhIjpbMF0sImIiOlswXX0= --master_addr 10.0.0.1 \
                 train.py",
            ),
            (
                "print what would be started",
                "remuda launch --world_info eyJhIjpbMF0sImIiOlswXX0= --node_rank 1 --dry-run \
                 train.py",
            ),
        ],
    },
    Topic {
        command: "train",
        options: &[
            "num_gpus",
            "hostfile",
            "model",
            "data",
            "steps",
            "batch_size",
            "lr",
            "checkpoint_dir",
            "save_every",
            "resume",
        ],
        examples: [
            ("a GPT on four workers of this machine", "remuda train -n 4"),
            ("an MLP, 200 steps", "remuda train -n 2 --model mlp --steps 200"),
            (
                "start, or continue from the newest checkpoint",
                "remuda train -n 4 --checkpoint_dir run --save_every 100 --resume auto",
            ),
        ],
    },
    Topic {
        command: "checkpoint",
        options: &[],
        examples: [
            ("tensors and state of the newest checkpoint", "remuda checkpoint show run"),
            ("check every byte of all checkpoints", "remuda checkpoint verify run"),
            ("a model for Hugging Face", "remuda checkpoint export run --to hf:model --dtype bf16"),
        ],
    },
    Topic {
        command: "checkpoint show",
        options: &["dir", "json"],
        examples: [
            ("the newest checkpoint of a run", "remuda checkpoint show run"),
            ("an earlier one", "remuda checkpoint show run/step-00000012"),
            ("as JSON", "remuda checkpoint show run --json"),
        ],
    },
    Topic {
        command: "checkpoint verify",
        options: &["dir", "threads"],
        examples: [
            ("all checkpoints of a run", "remuda checkpoint verify run"),
            ("one checkpoint", "remuda checkpoint verify run/step-00000012"),
            ("without slowing a training down", "remuda checkpoint verify run --threads 1"),
        ],
    },
    Topic {
        command: "checkpoint export",
        options: &["dir", "to", "dtype", "max_shard_size"],
        examples: [
            ("one file", "remuda checkpoint export run --to model.safetensors"),
            ("a model for Hugging Face", "remuda checkpoint export run --to hf:model --dtype bf16"),
            (
                "an earlier checkpoint, in files of 5 GiB",
                "remuda checkpoint export run/step-00000012 --to hf:model --max_shard_size 5G",
            ),
        ],
    },
    Topic {
        command: "checkpoint import",
        options: &["dir", "to"],
        examples: [
            ("a model of Hugging Face", "remuda checkpoint import gpt2 --to run"),
            ("generate text with the model", "remuda sample run --vocab gpt2 --prompt 'It was'"),
            (
                "train the model on your own shards",
                "remuda train --resume run --data book.bin --steps 100",
            ),
        ],
    },
    Topic {
        command: "tokenize",
        options: &["output", "vocab", "dtype", "shard_tokens", "force"],
        examples: [
            ("a text, with GPT-2's files", "remuda tokenize book.txt -o book.bin --vocab gpt2"),
            (
                "many texts, in shards of 100 million tokens",
                "remuda tokenize a.txt b.txt -o train.bin --vocab tokenizer.json --shard_tokens 100000000",
            ),
            ("standard input", "remuda tokenize - -o book.bin --vocab r50k_base.tiktoken"),
        ],
    },
    Topic {
        command: "sample",
        options: &["prompt", "tokens", "temperature", "top_k", "seed", "vocab", "data"],
        examples: [
            ("the newest checkpoint of a training", "remuda sample run --prompt 'It was'"),
            ("a model of tokens", "remuda sample run --vocab gpt2 --prompt 'It was' --top_k 50"),
            ("always the most likely token", "remuda sample run --data book.txt --temperature 0"),
        ],
    },
    Topic {
        command: "bench",
        options: &[
            "collective",
            "num_gpus",
            "hostfile",
            "backend",
            "min_bytes",
            "max_bytes",
            "iters",
            "threshold",
        ],
        examples: [
            ("four ranks on this machine", "remuda bench all-reduce --num_gpus 4"),
            (
                "GPUs of two hosts, from 1 MiB to 1 GiB",
                "remuda bench all-reduce -H n1:8,n2:8 --backend nccl -b 1M -e 1G",
            ),
            (
                "every pair of nodes; fail below 10 GB/s",
                "remuda bench send-recv -H hosts --pairs --threshold 10",
            ),
        ],
    },
    Topic {
        command: "ssh",
        options: &["hostfile", "include", "exclude", "no_gather", "env", "timeout", "fanout"],
        examples: [
            ("a program on two hosts", "remuda ssh -H n1,n2 uptime"),
            (
                "with options of its own, on every host of a hostfile",
                "remuda ssh -H hosts -- nvidia-smi -L",
            ),
            (
                "a line for the shell of every host",
                "remuda ssh -H 'n[1-8]' -- 'df -h /data | tail -1'",
            ),
        ],
    },
    Topic {
        command: "hostfile",
        options: &[],
        examples: [
            ("every error and warning of a file", "remuda hostfile check hosts"),
            ("hosts, slots and ranks", "remuda hostfile show hosts"),
            ("a hostfile of Open MPI", "remuda hostfile convert --to openmpi hosts"),
        ],
    },
    Topic {
        command: "hostfile check",
        options: &["files", "fix", "format", "allow", "from", "slots", "include", "exclude"],
        examples: [
            ("every error and warning of a file", "remuda hostfile check hosts"),
            ("make the changes that are certain", "remuda hostfile check --fix hosts"),
            (
                "as SARIF, for code scanning",
                "remuda hostfile check --format sarif hosts > hosts.sarif",
            ),
        ],
    },
    Topic {
        command: "hostfile fmt",
        options: &["files", "write", "check", "from"],
        examples: [
            ("print the canonical form", "remuda hostfile fmt hosts"),
            ("write it into the file", "remuda hostfile fmt --write hosts"),
            ("list the files that are not formatted", "remuda hostfile fmt --check hosts"),
        ],
    },
    Topic {
        command: "hostfile convert",
        options: &["file", "to", "from", "slots"],
        examples: [
            ("a hostfile of Open MPI", "remuda hostfile convert --to openmpi hosts"),
            ("a list of hosts as a hostfile", "remuda hostfile convert --to deepspeed n1:8,n2:8"),
            (
                "the nodes of Slurm, eight slots each",
                "remuda hostfile convert --to deepspeed --from slurm --slots 8 nodes",
            ),
        ],
    },
    Topic {
        command: "hostfile show",
        options: &["set", "json", "names", "include", "exclude", "slots"],
        examples: [
            ("hosts, slots and ranks of a file", "remuda hostfile show hosts"),
            ("the same of a list", "remuda hostfile show n1:8,n2:8"),
            (
                "hosts of a file that are not in a range",
                "remuda hostfile show --names 'hosts ! rack[1-3]'",
            ),
        ],
    },
    Topic {
        command: "hostfile diff",
        options: &["first", "second", "from", "slots"],
        examples: [
            ("hosts that were added, removed, moved or changed", "remuda hostfile diff old new"),
            ("a file and a list", "remuda hostfile diff hosts n1:8,n2:8"),
            ("two node files of PBS", "remuda hostfile diff --from pbs nodes.old nodes.new"),
        ],
    },
    Topic {
        command: "config",
        options: &[],
        examples: [
            (
                "every error and warning, and the values that apply",
                "remuda config check ds_config.json",
            ),
            (
                "the same for the ranks of some hosts",
                "remuda config check -H n1:8,n2:8 ds_config.json",
            ),
            ("the file of accelerate", "remuda config check accelerate.yaml"),
        ],
    },
    Topic {
        command: "config check",
        options: &[
            "files",
            "world_size",
            "hostfile",
            "batch_size",
            "hidden_size",
            "format",
            "json",
        ],
        examples: [
            (
                "every error and warning, and the values that apply",
                "remuda config check ds_config.json",
            ),
            (
                "the batch sizes for eight ranks",
                "remuda config check --world_size 8 ds_config.json",
            ),
            (
                "as annotations of a pull request",
                "remuda config check --format github ds_config.json",
            ),
        ],
    },
    Topic {
        command: "doctor",
        options: &["hostfile", "include", "exclude", "quick", "full", "usable", "json"],
        examples: [
            ("this machine", "remuda doctor"),
            ("two hosts, quick checks only", "remuda doctor -H n1,n2 --quick"),
            (
                "write the usable hosts into a file",
                "remuda doctor -H hosts --usable hosts.usable train.py",
            ),
        ],
    },
    Topic {
        command: "explain",
        options: &["codes"],
        examples: [
            ("one code", "remuda explain H003"),
            ("several codes", "remuda explain R101 R107"),
            ("a list of all codes", "remuda explain"),
        ],
    },
    Topic {
        command: "links",
        options: &["directory", "names"],
        examples: [
            ("all names, in a directory of their own", "remuda links ~/.local/remuda"),
            ("the names of DeepSpeed", "remuda links ~/.local/remuda deepspeed ds"),
            ("torchrun alone", "remuda links ~/.local/remuda torchrun"),
        ],
    },
    Topic {
        command: "completion",
        options: &["shell"],
        examples: [
            ("bash", "remuda completion bash > ~/.local/share/bash-completion/completions/remuda"),
            ("zsh", "remuda completion zsh > \"${fpath[1]}/_remuda\""),
            ("fish", "remuda completion fish > ~/.config/fish/completions/remuda.fish"),
        ],
    },
    Topic {
        command: "man",
        options: &["command"],
        examples: [
            ("read the page of a command", "remuda man run"),
            ("the page of a subcommand", "remuda man hostfile check"),
            ("install a page", "remuda man run > /usr/local/share/man/man1/remuda-run.1"),
        ],
    },
];
