#!/usr/bin/env python3
"""Writes tests/vectors/*.json: the results of PyTorch for the bundled models and optimizer, and its
rounding errors in bfloat16.

    python3 scripts/gradient_vectors.py        (needs torch, CPU is enough)

Each file contains parameters, a batch, and torch's loss and gradients in single precision, or the
parameters after some steps of torch's AdamW with clipping. The models use torch's own modules, so that
a mistake in remuda is not repeated here.
"""

import json
import pathlib

import torch
import torch.nn as nn
import torch.nn.functional as F

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/vectors"


class Block(nn.Module):
    def __init__(self, width, heads, is_gpt2):
        super().__init__()
        self.heads, self.gelu = heads, "tanh" if is_gpt2 else "none"
        self.ln_1 = nn.LayerNorm(width, bias=is_gpt2)
        self.attn = nn.ModuleDict({
            "c_attn": nn.Linear(width, 3 * width, bias=is_gpt2),
            "c_proj": nn.Linear(width, width, bias=is_gpt2),
        })
        self.ln_2 = nn.LayerNorm(width, bias=is_gpt2)
        self.mlp = nn.ModuleDict({
            "c_fc": nn.Linear(width, 4 * width, bias=is_gpt2),
            "c_proj": nn.Linear(4 * width, width, bias=is_gpt2),
        })

    def attend(self, x):
        batch, length, width = x.shape
        split = lambda t: t.view(batch, length, self.heads, -1).transpose(1, 2)
        q, k, v = map(split, self.attn["c_attn"](x).chunk(3, dim=-1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.attn["c_proj"](attended.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        hidden = self.mlp["c_fc"](self.ln_2(x))
        return x + self.mlp["c_proj"](F.gelu(hidden, approximate=self.gelu))


class Gpt(nn.Module):
    def __init__(self, vocabulary, block, layers, heads, width, is_gpt2):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(block, width)
        self.h = nn.ModuleList(Block(width, heads, is_gpt2) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width, bias=is_gpt2)

    def loss(self, inputs, targets):
        x = self.wte(inputs) + self.wpe(torch.arange(inputs.shape[1]))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Mlp(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def loss(self, inputs, classes):
        x = inputs
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return F.cross_entropy(self.layers[-1](x), classes)


def flat(tensors):
    """All numbers in the order of the parameters, with the 9 digits that a float needs to round-trip."""
    numbers = torch.cat([tensor.detach().flatten() for tensor in tensors]).tolist()
    return [float(f"{number:.9g}") for number in numbers]


def perturb(model):
    """Moves the parameters away from their initial values: no norm weight is 1, no layer nearly linear."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3) if parameter.dim() == 2 else parameter.uniform_(0.5, 1.5)


def gradients(model, *batch):
    loss = model.loss(*batch)
    loss.backward()
    return {
        "params": flat(model.parameters()),
        "loss": loss.item(),
        "gradients": flat(parameter.grad for parameter in model.parameters()),
    }


def adamw(model, *batch):
    """Five steps of a training loop with clipping and a changing learning rate."""
    decay = [p for p in model.parameters() if 2 <= p.dim()]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.99))
    before = flat(model.parameters())
    for step in range(5):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 / (1 + step)
        optimizer.zero_grad()
        model.loss(*batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return {"params": before, "after": flat(model.parameters())}


def gpt_case(compute, is_gpt2=False):
    config = {"vocabulary": 11, "block": 10, "layers": 2, "heads": 2, "width": 8}
    model = Gpt(**config, is_gpt2=is_gpt2)
    perturb(model)
    inputs, targets = torch.randint(0, 11, (2, 3, 10))
    batch = {"inputs": inputs.flatten().tolist(), "targets": targets.flatten().tolist()}
    return {"config": config, **batch, **compute(model, inputs, targets)}


def gpt2_case(compute):
    return gpt_case(compute, is_gpt2=True)


def mlp_case(compute):
    sizes = [12, 20, 16, 5]
    model = Mlp(sizes)
    perturb(model)
    inputs, classes = torch.randn(6, 12), torch.randint(0, 5, (6,))
    batch = {"inputs": flat([inputs]), "classes": classes.tolist()}
    return {"sizes": sizes, **batch, **compute(model, inputs, classes)}


def made(index, name, shape):
    """A parameter that a test can make as well, from the index of its first number: rounded to bfloat16."""
    numbers = torch.arange(index, index + shape.numel(), dtype=torch.float64)
    # Multiples of 2⁻³² from 0 to 1.
    numbers = (numbers * 2_654_435_761).remainder(2**32) / 2**32
    if len(shape) == 2:
        numbers = (numbers - 0.5) * 0.2
    else:
        numbers = (numbers - 0.5) * 0.2 if name.endswith("bias") else numbers + 0.5
    return numbers.to(torch.bfloat16).to(torch.float64).view(shape)


def autocast_case():
    """Relative errors of the gradients, parameter by parameter, of a GPT-2 under autocast to bfloat16."""
    config = {"vocabulary": 37, "block": 40, "layers": 2, "heads": 2, "width": 128}
    tokens = torch.tensor([(7 * at * at + 3 * at) % 37 for at in range(3 * 41)]).view(3, 41)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    found = {}
    for dtype in (torch.float64, torch.float32):
        model, index = Gpt(**config, is_gpt2=True).to(dtype), 0
        for name, parameter in model.named_parameters():
            parameter.data = made(index, name, parameter.shape).to(dtype)
            index += parameter.numel()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.float32):
            loss = model.loss(inputs, targets)
        loss.backward()
        found[dtype] = (loss.item(), [parameter.grad.double() for parameter in model.parameters()])
    (loss, exact), (rounded_loss, rounded) = found.values()
    error = lambda a, b: ((a - b).norm() / b.norm()).item()
    errors = [error(a, b) for a, b in zip(rounded, exact)]
    whole = error(*(torch.cat([tensor.flatten() for tensor in one]) for one in (rounded, exact)))
    tokens = {"inputs": inputs.flatten().tolist(), "targets": targets.flatten().tolist()}
    losses = {"loss": loss, "loss_error": abs(rounded_loss / loss - 1)}
    return {"config": config, "length": 40, **tokens, **losses, "error": whole, "errors": errors}


def main():
    torch.set_num_threads(1)
    OUT.mkdir(parents=True, exist_ok=True)
    for name, case in {"gpt": gpt_case, "gpt2": gpt2_case, "mlp": mlp_case}.items():
        for kind, compute in {"gradients": gradients, "adamw": adamw}.items():
            # The gradient of the biases of keys is 0, and AdamW would follow its rounding errors.
            if (name, kind) == ("gpt2", "adamw"):
                continue
            torch.manual_seed(1337)
            path = OUT / f"{name}_{kind}.json"
            path.write_text(json.dumps({"torch": torch.__version__, **case(compute)}) + "\n")
            print(path, path.stat().st_size)
    path = OUT / "gpt2_autocast.json"
    path.write_text(json.dumps({"torch": torch.__version__, **autocast_case()}) + "\n")
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
