"""One rank of PyTorch in the benchmarks of training, and how the benchmarks start such ranks.

Run as a program, it trains one of MODELS by one of METHODS and prints the milliseconds of its steps as JSON.
A step lasts from drawing the batch to the updated parameters; every rank has one thread.
"""

import argparse
import importlib.util
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import harness

MODELS = {
    "gpt": {"layers": 4, "heads": 4, "width": 128},
    "gpt-12m": {"layers": 7, "heads": 6, "width": 384},
    "mlp": {"layers": 2, "width": 1024},
}
METHODS = ["ddp", "fsdp2", "zero1", "zero2", "zero3"]
LR, BETAS, DECAY, CLIP = 1e-3, (0.9, 0.99), 0.1, 1.0


# ---- models --------------------------------------------------------------------------------------


def load_modules():
    """Imports the models of scripts/gradient_vectors.py."""
    path = harness.ROOT / "scripts" / "gradient_vectors.py"
    spec = importlib.util.spec_from_file_location("gradient_vectors", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gpt(torch, modules, layers, heads, width):
    data = (harness.ROOT / "src/train/data/corpus.txt").read_bytes()
    vocabulary = {byte: token for token, byte in enumerate(sorted(set(data)))}
    tokens = torch.tensor([vocabulary[byte] for byte in data])

    def batch():
        starts = torch.randint(len(tokens) - 65, (12,))
        windows = torch.stack([tokens[start : start + 65] for start in starts])
        return windows[:, :-1], windows[:, 1:]

    return modules.Gpt(len(vocabulary), 64, layers, heads, width, is_gpt2=False), batch


def mlp(torch, modules, layers, width):
    teacher = torch.randn(784, 10)

    def batch():
        inputs = torch.randn(64, 784)
        return inputs, (inputs @ teacher).argmax(1)

    return modules.Mlp([784, *[width] * layers, 10]), batch


# ---- one rank ------------------------------------------------------------------------------------


def train(model, method, steps):
    """Trains; returns the milliseconds of every step."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1337)
    build = mlp if model == "mlp" else gpt
    net, batch = build(torch, load_modules(), **MODELS[model])
    net.forward = net.loss
    if "RANK" in os.environ:
        torch.distributed.init_process_group("gloo")
        torch.manual_seed(1337 + torch.distributed.get_rank())
    zero = method.startswith("zero")
    step = deepspeed_step(net, int(method[-1])) if zero else torch_step(torch, net, method)
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step(batch())
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def adamw(torch, net):
    return torch.optim.AdamW(net.parameters(), lr=LR, betas=BETAS, weight_decay=DECAY)


def torch_step(torch, net, method):
    """A step of torch alone, of DDP or of FSDP2, each block of the GPT a unit."""
    if method == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
        for block in net.h:
            fully_shard(block, mesh=mesh)
        fully_shard(net, mesh=mesh)
    elif "RANK" in os.environ:
        net = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = adamw(torch, net)

    def step(batch):
        optimizer.zero_grad(set_to_none=True)
        net(*batch).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()

    return step


def deepspeed_step(net, stage):
    """A step of DeepSpeed's engine with its defaults, and torch's AdamW, which needs no compiler."""
    import deepspeed

    betas = {"lr": LR, "betas": BETAS, "weight_decay": DECAY, "torch_adam": True, "adam_w_mode": True}
    config = {
        "train_micro_batch_size_per_gpu": 12,
        "gradient_clipping": CLIP,
        "optimizer": {"type": "AdamW", "params": betas},
        "zero_optimization": {"stage": stage},
    }
    engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)

    def step(batch):
        engine.backward(engine(*batch))
        engine.step()

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("steps", type=int)
    options = parser.parse_args()
    output = os.dup(1)
    os.dup2(2, 1)  # DeepSpeed logs to standard output.
    times = train(options.model, options.method, options.steps)
    os.write(output, json.dumps(times).encode())
    # Without destructors: a thread of DeepSpeed that still runs would end the process with SIGABRT.
    os._exit(0)


# ---- all ranks -----------------------------------------------------------------------------------


def has_deepspeed(python):
    command = [python, "-c", "import deepspeed"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.run(command, **quiet).returncode == 0


def times_of(steps):
    """Milliseconds of the median step, and of the slowest step of the fastest tenth."""
    return {"median": statistics.median(steps), "fast": sorted(steps)[len(steps) // 10]}


def measure(python, model, method, workers, steps):
    """Trains with so many ranks; the times of rank 0 after its first five steps."""
    with tempfile.TemporaryFile() as errors:
        ranks = start(python, model, method, workers, steps, errors)
        output, _ = ranks[0].communicate()
        if any(rank.wait() for rank in ranks):
            errors.seek(0)
            tail = errors.read()[-2000:].decode(errors="replace")
            raise harness.Failed(f"{method} of torch with {workers} workers: {model}\n{tail}")
    return times_of(json.loads(output)[5:])


def start(python, model, method, workers, steps, errors):
    """Starts the ranks with the variables of torchrun; only the standard output of rank 0 is read."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    base = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1"}
    base |= {"MASTER_PORT": str(port), "WORLD_SIZE": str(workers), "DS_ACCELERATOR": "cpu"}
    command = [python, __file__, model, method, str(steps)]
    ranks = []
    for rank in range(workers):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if 1 < workers else {}
        own["PATH"] = f"{os.path.dirname(python)}:{os.environ['PATH']}"  # with its ninja
        output = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
        environment = {**os.environ, **base, **own}
        ranks.append(subprocess.Popen(command, env=environment, stdout=output, stderr=errors))
    return ranks


if __name__ == "__main__":
    sys.exit(main())
