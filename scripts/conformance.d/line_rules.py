"""Names of the allowed differences from torchrun and accelerate: those in backticks in COMPAT.md."""

import re

# The difference has no effect.
SAME = "same"

UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# A refused value of an option that torchrun reads, and a single process does not.
TORCHRUN_VALUE = re.compile("--(tee|rdzv_backend|rdzv-backend|max_restarts|max-restarts)` cannot be")


def of_refusal(case, ours, theirs):
    """The rule of a line that one of the two refuses."""
    mine, other = ours.get("refused"), theirs.get("refused")
    text = with_dashes(mine["text"]) if mine else other["text"] if other else ""
    empty = [name for name, value in case["env"].items() if not value]
    if mine and "the script is an empty word" in text:
        return "empty-script"
    if mine and "is no signal" in text:
        return "signal-names"
    if mine and "the address of the first node is not given" in text:
        return "node-address"
    if mine and "expected a name without `/`" in text:
        return "run-id-names"
    if "port is missing in endpoint" in text:
        return "endpoint-port"
    if other and empty:
        return "empty-variables"
    if other and re.search("invalid (int|float) value|invalid choice", text) and is_replaced(case, text):
        return "replaced-values"
    if mine and re.search("--master-addr` cannot be|PET_MASTER_ADDR is", text):
        return "address-check"
    if other and re.search(r"\d\d:\d.* does not match", text):
        return "rank-digits"
    if mine and "CUDA_VISIBLE_DEVICES has" in text:
        return "virtual-devices"
    if other and case["kind"] == "accelerate" and theirs["refused"]["type"] == "AssertionError" and ours.get("nodes", 1) > 1:
        return "machine-count"
    if mine and re.search("--local-ranks-filter` cannot be|PET_LOCAL_RANKS_FILTER is", text):
        return "rank-filter"
    if mine and re.search("TPUs are not supported|for TPUs or SageMaker", text):
        return "tpu"
    if mine and "LOCAL_MACHINE" in text:
        return "tpu"
    if other and "ambiguous option: " in text:
        return "abbreviations"
    if mine and re.search("--rdzv-conf` cannot be|PET_RDZV_CONF is", text):
        return "rdzv-conf"
    if mine and ("PET_MASTER_PORT is" in text or "--main-process-port` cannot be" in text):
        return "port-range"
    if mine and "the number of workers is not positive" in text:
        return "worker-count"
    if mine and ours["refused"]["type"] == "A003" and "expected a whole number" in text:
        return "file-numbers"
    if other and "The rendezvous configuration string must be" in text:
        return "rdzv-conf"
    if other and theirs["refused"]["type"] == "ZeroDivisionError":
        return "machine-count"
    if other and "Less than two GPU ids" in text and "--cpu" in case["argv"]:
        return "gpu-ids"
    if mine and "PET_START_METHOD is" in text:
        return "variable-choices"
    if other and "The hostname of the rendezvous endpoint ':" in text:
        return "empty-address"
    if mine and case["kind"] == "accelerate" and ours["refused"]["type"].startswith(("S", "H")):
        return "deepspeed-nodes"
    if other and ("of 'str' and 'int'" in text or ": 'str' and 'int'" in text):
        return "quoted-numbers"
    if mine and case["kind"] == "accelerate" and "command" in theirs and TORCHRUN_VALUE.search(text):
        return "cpu-groups"
    if mine and case["kind"] == "accelerate" and "the number of workers is not given" in text:
        return "worker-count"
    if mine and "it is the number of all workers: " in text:
        return "machine-count"
    if other and "Unknown dynamo backend: TORHCHXLA" in text or "invalid choice: 'torchxla_trace_once'" in text:
        return "dynamo-backend"
    if other and "need to specify the main process" in text:
        return "node-address"
    if other and "'int' object has no attribute 'split'" in text:
        return "gpu-ids"
    if mine and "the address of machine 0 is not given" in text:
        return "node-address"
    if mine and "expected three of `true` and `false`" in text:
        return "three-values"
    if other and "not 'NoneType'" in text and "num_machines" in " ".join([*case["argv"], case.get("config") or ""]).replace("-", "_"):
        return "machine-rank"
    if mine and ("`--node-rank` cannot be" in text or "PET_NODE_RANK is" in text):
        return "node-number"
    if mine and "`machine_rank` is" in text:
        return "machine-rank"
    if other and "FP8 is not available" in text:
        return "fp8-library"
    if other and ("'bool' object has no attribute" in text or "using this config yaml" in text):
        return "unquoted-no"
    if other and "unhashable type: 'list'" in text:
        return "empty-arguments"
    if other and case["env"].get("OMP_NUM_THREADS") == "x":
        return "threads-text"
    if mine and "--master-port` cannot be" in text:
        return "port-range"
    if mine and "varying number of nodes needs" in text:
        return "varying-nodes"
    if mine and ("cannot be" in text and "--nproc-per-node" in text):
        return "worker-limit"
    if other and "--shutdown-timeout" in text and "invalid int value" in text:
        return "fractions"
    if other and "unrecognized arguments: --use" in text:
        return "use-env"
    if "text" in ours:
        return "own-options"
    return None


def with_dashes(text):
    """A message of remuda, which names options as they were typed, with one spelling of them."""
    return re.sub("`--[a-z_-]+`", lambda option: option[0].replace("_", "-"), text)


def is_replaced(case, text):
    """Whether the value that the peer refuses is not the last one of its option."""
    flag = re.search("argument (?:-./)?--([a-z-]+)", text)
    name = flag and re.compile(f"--{flag[1][:3]}|-{flag[1][0]}")
    return bool(name) and sum(bool(name.match(word.replace("_", "-"))) for word in case["argv"]) > 1


def of_setting(case, key, ours, theirs):
    """The rule of a setting that differs."""
    mine, other = ours[key], theirs.get(key)
    one_node = ours.get("nodes") == 1
    empty = [name for name, value in case["env"].items() if not value]
    words = " ".join([*case["argv"], *case["env"].values()])
    if key == "run_id" and UUID.fullmatch(str(other)):
        return "run-id"
    if key == "prefix" and not one_node and other and mine == other.replace("[", "[{host}:", 1):
        return "node-prefix"
    if key == "address" and one_node and theirs.get("backend") == "c10d":
        return "own-address"
    if key == "nodes" and mine == 1 and re.search("standalone|STANDALONE", " ".join([*case["argv"], *case["env"]])):
        return "standalone-nodes"
    if "workers" in ours and "workers" not in theirs and "command" in theirs:
        return "cpu-groups"
    if key == "port" and one_node and case["kind"] == "accelerate" and mine is None:
        return "own-port"
    if key == "node" and theirs.get("backend") == "c10d":
        # The first process at the endpoint is node 0; under torchrun the numbers follow later.
        return SAME
    if key in ("port", "node", "address") and re.search("rdzv_backend: c10d|same_network: true", case.get("config") or ""):
        return "file-settings"
    if key == "port" and other in (0, 40404):
        return "port-0"
    if key == "workers" and re.search("cpu|auto", words):
        # The number of CPUs of this machine.
        return SAME
    if key == "log_dir" and not mine and not other:
        return SAME
    if key == "command":
        return of_command(mine, [word.replace(case["env"].get("PYTHON_EXEC", "\0"), "PYTHON") for word in other])
    if empty and key in ("run_id", "role", "prefix", "signals", "stdout_filters", "stderr_filters"):
        return "empty-variables"
    return None


def of_command(mine, other):
    mine_left, other_left = ([word for word in words if word != "--"] for words in (mine, other))
    if mine == other:
        return SAME
    if mine_left == other_left:
        return "double-dash"
    if mine_left[:2] == ["PYTHON", "-u"] and ["PYTHON", *mine_left[2:]] == other_left:
        return "unbuffered"
    if "run_path" in other_left and mine_left[:3] == ["PYTHON", "-u", "-c"]:
        return SAME if mine_left[4:] == other_left[2:] else None
    if mine_left[0] in other_left[1:3] or mine_left[:1] == other_left[2:3]:
        return "executables"
    return None


def of_variable(case, name, ours, theirs):
    """The rule of a variable of the workers that differs."""
    words = " ".join([*case["argv"], *case["env"], *case["env"].values()])
    if name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES") and ours.get("virtual", "virtual" in words.lower()):
        # torch's agent sets it later.
        return SAME
    config = case.get("config") or ""
    if name in ("CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK") and "XPU" in config:
        return "xpu-devices"
    if name == "ACCELERATE_DYNAMO_BACKEND" and "torhchxla" in (words + config).lower():
        return "dynamo-backend"
    if name == "OMP_NUM_THREADS" and case["kind"] == "accelerate" and ("--cpu" in words or "use_cpu: true" in config):
        return "cpu-threads"
    if name in ("ACCELERATE_USE_CPU", "KMP_AFFINITY", "KMP_BLOCKTIME") and "workers" in ours and "workers" not in theirs:
        return "cpu-groups"
    if name == "ACCELERATE_CPU_AFFINITY" and "enable_cpu_affinity: true" in config:
        return "file-settings"
    if name == "PYTORCH_NVML_BASED_CUDA_CHECK":
        return "nvml-check"
    if name == "PYTHONPATH" and "hosts" in words + config:
        return "mpi-hosts"
    if name == "OMP_NUM_THREADS" and re.search("cpu|auto", words):
        return SAME
    return None
