#!/usr/bin/env python3
"""torch over remuda and over gloo: all-reduces, and steps of DistributedDataParallel and of FSDP2.

Both backends are groups of the same processes and alternate in every round, so that other load on the machine affects
both alike; the figures are ratios of a round's times, gloo's divided by remuda's, and medians over rounds. `in place`
are tensors of `remuda.torch.empty`, and for FSDP2 memory that it takes from its group; `started` are all-reduces whose
future is waited for, as DDP does. DDP is an MLP with one bucket for every few layers, and `no exchange` the same step
without its all-reduces, which no backend can outrun; FSDP2 is a GPT of which every block is a unit, with its optimizer.

The name of the file begins with `bench_`: a file `torch.py` would stand for torch in its neighbours.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

SIZES = [1 << 10, 256 << 10, 16 << 20, 64 << 20]
HIDDEN = [256, 1024]
#: The GPT of FSDP2, and the sequences of a step of a rank.
GPT = {"layers": 4, "heads": 4, "width": 128}
SEQUENCES, LENGTH = 4, 64


# ---- one rank ------------------------------------------------------------------------------------


class Clock:
    """Time of the slowest rank for a number of calls."""

    def __init__(self, torch, budget_s):
        self.torch, self.dist, self.budget_s = torch, torch.distributed, budget_s

    def slowest(self, seconds):
        worst = self.torch.tensor([seconds], dtype=self.torch.float64)
        self.dist.all_reduce(worst, self.dist.ReduceOp.MAX)
        return float(worst)

    def repeat(self, call, times):
        self.dist.barrier()
        start = time.perf_counter()
        for _ in range(times):
            call()
        return self.slowest((time.perf_counter() - start) / times)

    def rounds(self, calls, rounds):
        """Seconds of a call of every case, for every round; the number of calls fits the slowest case."""
        slowest = max(self.repeat(call, 2) for call in calls.values() for _ in range(2))
        times = max(1, min(2000, int(self.budget_s / slowest)))
        return [{name: self.repeat(call, times) for name, call in calls.items()} for _ in range(rounds)]


def all_reduces(torch, clock, gloo, rounds):
    import remuda.torch

    dist, found = torch.distributed, {}
    for size in SIZES:
        plain, own = torch.zeros(size // 4), remuda.torch.empty(size // 4)
        calls = {
            "gloo": lambda: dist.all_reduce(plain, group=gloo),
            "remuda": lambda: dist.all_reduce(plain),
            "in place": lambda: dist.all_reduce(own),
            "started": lambda: dist.all_reduce(plain, async_op=True).get_future().wait(),
        }
        found[f"all_reduce, {size >> 10} KiB"] = clock.rounds(calls, rounds)
    return found


def ddp_steps(torch, clock, gloo, rounds):
    nn, found = torch.nn, {}
    for hidden in HIDDEN:
        layers = [nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)]
        calls, inputs = {}, torch.randn(32, 64)
        for name, group in (("gloo", gloo), ("remuda", torch.distributed.group.WORLD)):
            net = nn.parallel.DistributedDataParallel(nn.Sequential(*layers), process_group=group, bucket_cap_mb=1)
            calls[name] = lambda net=net: net(inputs).sum().backward()

        def alone(net=net):
            with net.no_sync():
                net(inputs).sum().backward()

        calls["no exchange"] = alone
        parameters = sum(one.numel() for one in net.parameters())
        found[f"DDP, MLP of {parameters / 1e6:.1f} M"] = clock.rounds(calls, rounds)
    return found


def fsdp_steps(torch, clock, gloo, rounds):
    from torch.distributed.device_mesh import DeviceMesh

    import torch_worker

    world = torch.distributed.group.WORLD
    modules = torch_worker.load_modules()
    tokens = torch.randint(256, (SEQUENCES, LENGTH + 1))
    calls = {}
    for name, group in (("gloo", gloo), ("remuda", world), ("in place", world)):
        torch.manual_seed(1)
        net = modules.Gpt(256, LENGTH, is_gpt2=False, **GPT)
        parameters = sum(one.numel() for one in net.parameters())
        calls[name] = fsdp_step(torch, net, DeviceMesh.from_group(group, "cpu"), tokens, name == "in place")
    losses = {name: float(call()) for name, call in calls.items()}
    if max(losses.values()) - min(losses.values()) > 1e-4:
        sys.exit(f"the losses differ: {losses}")
    return {f"FSDP2, GPT of {parameters / 1e6:.1f} M": clock.rounds(calls, rounds)}


def fsdp_step(torch, net, mesh, tokens, in_place):
    """A step of a model whose blocks are sharded; returns the loss."""
    from torch.distributed.fsdp import fully_shard

    net.forward = net.loss
    for unit in (*net.h, net):
        fully_shard(unit, mesh=mesh)
        if in_place:
            unit.set_allocate_memory_from_process_group_for_comm(True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        loss = net(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def worker(rounds, budget_s):
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("remuda")
    gloo = torch.distributed.new_group(backend="gloo")
    clock = Clock(torch, budget_s)
    cases = (all_reduces, ddp_steps, fsdp_steps)
    found = {name: case for measured in cases for name, case in measured(torch, clock, gloo, rounds).items()}
    if torch.distributed.get_rank() == 0:
        print(json.dumps(found), flush=True)
    torch.distributed.destroy_process_group()


# ---- all ranks -----------------------------------------------------------------------------------


def library(harness):
    """Path of the C library: REMUDA_LIBRARY, or a release build of this tree."""
    if os.environ.get("REMUDA_LIBRARY"):
        return os.environ["REMUDA_LIBRARY"]
    target = harness.ROOT / "target" / "capi"
    build = ["cargo", "rustc", "--release", "--locked", "--quiet", "--lib", "--crate-type", "cdylib"]
    features = ["--no-default-features", "--features", "capi", "--target-dir", str(target)]
    subprocess.run([*build, *features], cwd=harness.ROOT, check=True)
    return str(target / "release" / "libremuda.so")


def measure(harness, program, python, ranks, options, environment):
    site = entry_points(harness)
    paths = os.pathsep.join([str(harness.ROOT / "python"), site])
    run = [program, "run", "-n", str(ranks), "--no_local_rank", "--accelerator", "cpu", "--quiet"]
    own = [__file__, "--worker", "--rounds", str(options.rounds), "--block-s", str(options.block_s)]
    finished = subprocess.run(
        [*run, "--python", python, "--", *own],
        env={**os.environ, **environment, "PYTHONPATH": paths, "GLOO_SOCKET_IFNAME": "lo"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode != 0:
        raise harness.Failed(finished.stderr[-2000:])
    line = next(line for line in finished.stdout.splitlines() if "{" in line)
    return json.loads(line[line.index("{") :])


def entry_points(harness):
    """A directory with the metadata of an installed package, by which torch finds the backend."""
    info = harness.OUT / "site" / "remuda-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: remuda\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[torch.distributed.backends]\nremuda = remuda.torch:register\n")
    return str(info.parent)


def show(harness, ranks, found):
    """Prints gloo's time divided by those of the other cases."""
    names = ["remuda", "in place", "started", "no exchange"]
    rows, saved = [], {}
    for case, rounds in found.items():
        shares = {name: [one["gloo"] / one[name] for one in rounds] for name in names if name in rounds[0]}
        saved[case] = {name: statistics.median(of) for name, of in shares.items()}
        texts = {name: f"{statistics.median(of):.1f} ({min(of):.1f}–{max(of):.1f})" for name, of in shares.items()}
        rows.append([case, *(texts.get(name, "–") for name in names)])
    print(f"\n{ranks} ranks: gloo's time divided by that of remuda, median (minimum–maximum)")
    harness.table(["", *names], rows)
    return saved


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--block-s", type=float, default=0.1, help="seconds of the slowest case of a round")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.rounds, options.block_s)
    import harness

    python = harness.torch_python()
    if python is None:
        sys.exit("this benchmark needs torch")
    version = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    program, environment = harness.remuda(), {"REMUDA_LIBRARY": library(harness)}
    print(f"torch {version.stdout.strip()}, {os.cpu_count()} processors")
    saved = {}
    for ranks in options.ranks:
        found = measure(harness, program, python, ranks, options, environment)
        saved[ranks] = {"ratios": show(harness, ranks, found), "seconds": found}
    harness.save("torch", {"torch": version.stdout.strip(), "ranks": saved})
    return None


if __name__ == "__main__":
    sys.exit(main())
