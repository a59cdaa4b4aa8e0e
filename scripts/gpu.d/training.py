"""Checks of trainings of remuda on a GPU, some of them beside torch. The last line is JSON with what was measured.

    training.py doctor              `remuda doctor --gpu`: bandwidths of kernels, and the time of each part of a step
    training.py ceilings            bandwidth of a copy and speed of a product, by torch
    training.py beside_torch        GPT-2 124M: a step of remuda, and one of torch with flash attention, compiled
    training.py as_on_a_processor   200 steps in bf16 end at the loss of the same steps in f32 on a processor
    training.py repeated            equal digests: run twice, and stopped and continued
    training.py placements          equal digests: four micro-batches of one worker, of two and of four
    training.py signalled           SIGTERM ends a run with a checkpoint, which safetensors reads
    training.py killed              a worker that is killed is named, and the others end

`--device cpu` tries a check on a processor, with a smaller model.
"""

import argparse
import array
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VOCABULARY = 50_304
SMALL = ["--layers=1", "--heads=1", "--width=64", "--block=32"]
LIMIT = 300


def run(options, scratch, device, *launcher, precision="bf16"):
    """Runs a training; returns the numbers of its steps, and those of its end."""
    metrics = scratch / f"{time.monotonic_ns()}.jsonl"
    line = ["remuda", "train", f"--device={device}", f"--precision={precision}", "--eval_every=0", *launcher]
    line += [f"--metrics={metrics}", *options]
    print("$", *line, flush=True)
    ended = subprocess.run(line, stdout=subprocess.DEVNULL, timeout=LIMIT, check=False)
    if ended.returncode:
        sys.exit(f"`remuda train` ended with exit status {ended.returncode}")
    *steps, end = [json.loads(text) for text in metrics.read_text().splitlines()]
    return steps, end


def deterministic(options):
    """Products on GPUs have the same algorithms in every run."""
    return ["--deterministic"] if options.device == "cuda" else []


def write_tokens(path, count):
    """Writes a shard of tokens, of which each follows from the one before."""
    tokens, token = array.array("H"), 1
    for _ in range(count):
        token = (token * 25_173 + 13_849) % 50_257
        tokens.append(token)
    header = array.array("i", [20_240_520, 1, count] + [0] * 253)
    path.write_bytes(header.tobytes() + tokens.tobytes())


def ceilings(options, _scratch):
    import torch

    device, size = torch.device(options.device), 8192 if options.device == "cuda" else 256

    def seconds(call):
        times = []
        for _ in range(20):
            synchronize(torch, device)
            begin = time.perf_counter()
            call()
            synchronize(torch, device)
            times.append(time.perf_counter() - begin)
        return statistics.median(times)

    source = torch.ones(size * size * 8, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    a = torch.randn(size, size, dtype=torch.bfloat16, device=device)
    copy, product = seconds(lambda: target.copy_(source)), seconds(lambda: a @ a)
    return {
        "copy_tb_per_s": round(2 * source.numel() / copy / 1e12, 3),
        "bf16_tflop_per_s": round(2 * size**3 / product / 1e12, 1),
    }


def doctor(_options, _scratch):
    ended = subprocess.run(["remuda", "doctor", "--gpu", "--json"], capture_output=True, text=True, check=False)
    print(ended.stdout, ended.stderr, sep="")
    if not ended.stdout:
        sys.exit(f"`remuda doctor --gpu` ended with exit status {ended.returncode}")
    checks = json.loads(ended.stdout)["checks"]
    figures = {check["check"]: check["figures"] for check in checks if check["gpu"] in (0, None)}
    shares = figures.get("bandwidths", {})
    found = {
        "wrong": [check["check"] for check in checks if not check["ok"]],
        "below_85_percent_of_a_copy": {name: round(share, 2) for name, share in shares.items() if share < 0.85},
        "memory": figures.get("memory", {}),
        "step": {name: round(value, 3) for name, value in figures.get("step", {}).items()},
    }
    if found["wrong"]:
        print(json.dumps(found))
        sys.exit("something that a GPU computes is wrong")
    return found


def synchronize(torch, device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def beside_torch(options, scratch):
    is_gpu = options.device == "cuda"
    batch, steps = (64, 30) if is_gpu else (2, 4)
    layers, width, heads, length = (12, 768, 12, 1024) if is_gpu else (1, 64, 1, 32)
    train, held_out = scratch / "tokens_train_0.bin", scratch / "tokens_val_0.bin"
    write_tokens(train, max(4 * batch * length, 20_000))
    write_tokens(held_out, 4 * batch * length)
    sizes = [f"--layers={layers}", f"--heads={heads}", f"--width={width}", f"--block={length}"]
    sizes += [f"--batch_size={batch}", f"--steps={steps}", f"--vocabulary={VOCABULARY}"]
    data = ["--data", str(train), str(held_out)]
    own_steps, end = run(["--model=gpt2", *sizes, "--num_gpus=1", *data], scratch, options.device)
    # The first steps compile kernels and choose algorithms.
    own = statistics.median(step["ms"] for step in own_steps[len(own_steps) // 3 :])
    theirs, peak = step_of_torch(options.device, batch, length, (layers, heads, width), steps)
    found = {
        "ms": round(own, 2),
        "torch_ms": round(theirs, 2),
        "ratio": round(own / theirs, 3),
        "memory_peak": end["memory_peak"],
        "memory_forecast": end["memory_forecast"],
        "torch_memory_peak": peak,
    }
    share = end["memory_peak"] / end["memory_forecast"]
    if is_gpu and not 0.95 <= share <= 1.05:
        print(json.dumps(found))
        sys.exit(f"the peak of memory is {share:.3f} of the forecast")
    return found


def step_of_torch(device, batch, length, sizes, steps):
    """Milliseconds of a step of torch, and its peak of memory."""
    import torch
    from torch import nn
    from torch.nn import functional

    layers, heads, width = sizes

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            parts = self.qkv(self.norms[0](x)).chunk(3, dim=-1)
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).flatten(-2))
            return x + self.down(functional.gelu(self.up(self.norms[1](x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.LayerNorm(width)

        def forward(self, inputs, targets):
            x = self.tokens(inputs) + self.positions.weight
            for block in self.blocks:
                x = block(x)
            logits = functional.linear(self.norm(x), self.tokens.weight)
            return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    is_gpu = device == "cuda"
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Gpt().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=is_gpu)
    compiled = torch.compile(model) if is_gpu else model
    tokens = torch.randint(50_257, (batch, length + 1), device=device)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    times = []
    for _ in range(steps):
        synchronize(torch, torch.device(device))
        begin = time.perf_counter()
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = compiled(inputs, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        synchronize(torch, torch.device(device))
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times[steps // 3 :]), torch.cuda.max_memory_allocated() if is_gpu else 0


def as_on_a_processor(options, scratch):
    is_gpu = options.device == "cuda"
    sizes = ["--layers=2", "--heads=2", "--width=128", "--block=64"] if is_gpu else SMALL
    sizes = ["--model=gpt2", *sizes, f"--steps={200 if is_gpu else 20}", "--num_gpus=1"]
    ends = [
        run(sizes, scratch, device, precision=precision)[1]["val_loss"]
        for device, precision in [(options.device, "bf16"), ("cpu", "fp32")]
    ]
    found = {"loss": ends[0], "loss_on_a_processor": ends[1]}
    if abs(ends[0] - ends[1]) > 0.02:
        print(json.dumps(found))
        sys.exit("the losses differ by more than 0.02")
    return found


def same(digests):
    found = {"digests": digests}
    if len(set(digests.values())) != 1:
        print(json.dumps(found))
        sys.exit("the digests differ")
    return found


def repeated(options, scratch):
    sizes = ["--model=gpt2", *SMALL, "--num_gpus=1", "--decay_steps=20", *deterministic(options)]

    def digest(*more):
        return run([*sizes, *more], scratch, options.device)[1]["digest"]

    whole = ["--steps=20"]
    parts = [f"--checkpoint_dir={scratch / 'parts'}"]
    digests = {"first": digest(*whole), "second": digest(*whole)}
    digest("--steps=10", *parts)
    digests["continued"] = digest("--steps=20", "--resume=auto", *parts)
    return same(digests)


def placements(options, scratch):
    digests = {}
    for workers in (1, 2, 4):
        sizes = ["--model=gpt2", *SMALL, "--steps=20", "--lanes=4", *deterministic(options)]
        launcher = [f"--num_gpus={workers}", "--oversubscribe"]
        digests[str(workers)] = run(sizes, scratch, options.device, *launcher)[1]["digest"]
    return same(digests)


def started(options, scratch, *more):
    """Starts a long training of two workers; returns it after its tenth step."""
    metrics = scratch / "started.jsonl"
    line = ["remuda", "train", f"--device={options.device}", "--precision=bf16", "--eval_every=0", "--num_gpus=2"]
    line += ["--oversubscribe", "--model=gpt2", *SMALL, "--steps=1000000", f"--metrics={metrics}", *more]
    print("$", *line, flush=True)
    job = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + LIMIT / 3
    while not metrics.exists() or len(metrics.read_text().splitlines()) < 10:
        if job.poll() is not None or until < time.monotonic():
            job.kill()
            sys.exit(f"no tenth step; it says: {job.communicate()[1]}")
        time.sleep(0.1)
    return job


def signalled(options, scratch):
    checkpoints = scratch / "checkpoints"
    job = started(options, scratch, f"--checkpoint_dir={checkpoints}")
    job.send_signal(signal.SIGTERM)
    said = job.communicate(timeout=LIMIT / 3)[1]
    files = sorted(checkpoints.glob("**/*.safetensors"))
    if job.returncode != 128 + signal.SIGTERM or not files:
        sys.exit(f"exit status {job.returncode}, {len(files)} files of weights; it says: {said}")
    tensors = sum(len(header_of(path)) for path in files)
    return {"status": job.returncode, "files": len(files), "tensors": tensors}


def header_of(path):
    """The tensors of a file, read by safetensors where that is installed."""
    try:
        from safetensors import safe_open

        with safe_open(path, framework="pt") as opened:
            return list(opened.keys())
    except ImportError:
        content = path.read_bytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        return [name for name in header if name != "__metadata__"]


def killed(options, scratch):
    job = started(options, scratch)
    runs = Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local/state")) / "remuda/runs/latest"
    record = json.loads((runs / "run.json").read_text())
    pid = next(int(found) for found in re.findall(r'"pid": ?(\d+)', json.dumps(record["workers"][1])))
    os.kill(pid, signal.SIGKILL)
    begin = time.monotonic()
    said = job.communicate(timeout=LIMIT / 3)[1]
    if job.returncode != 128 + signal.SIGKILL or "rank 1" not in said:
        sys.exit(f"exit status {job.returncode}; it says: {said}")
    return {"status": job.returncode, "ended_after_s": round(time.monotonic() - begin, 2)}


def main():
    checks = [doctor, ceilings, beside_torch, as_on_a_processor, repeated, placements, signalled, killed]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("check", choices=[check.__name__ for check in checks])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options = parser.parse_args()
    check = next(check for check in checks if check.__name__ == options.check)
    with tempfile.TemporaryDirectory() as scratch:
        found = check(options, Path(scratch))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
