#!/usr/bin/env python3
"""Writes tests/vectors/*.json: the results of PyTorch for the bundled models and optimizer.

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


if __name__ == "__main__":
    main()
