"""Fully sharded training of a small transformer, in the form of PyTorch's FSDP2 example: the model is made on
the meta device, its layers and then itself are sharded, and a whole state dict is saved and read back."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard
from result import end_group

VOCABULARY, LENGTH, WIDTH = 32, 12, 16


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm = torch.nn.LayerNorm(WIDTH)
        self.attention = torch.nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        normal = self.attention_norm(x)
        x = x + self.attention(normal, normal, normal, need_weights=False)[0]
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Transformer(torch.nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.positions = torch.nn.Embedding(LENGTH, WIDTH)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(layers))
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.output = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


def sharded_model(device, mixed_precision):
    """A model without values, of which each rank has its part of every parameter."""
    options = {}
    if mixed_precision:
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    with torch.device("meta"):
        model = Transformer()
    for layer in model.layers:
        fully_shard(layer, **options)
    fully_shard(model, **options)
    for parameter in model.parameters():
        assert isinstance(parameter, DTensor) and parameter.placements == (Shard(0),)
    model.to_empty(device=device)
    return model


def load(model, state):
    """Rank 0 has the values; the others receive their parts."""
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, state, options=options)


def whole_state(model):
    """The values of all ranks, on rank 0 only."""
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def train(device, mixed_precision):
    """The sum of the weights, after they were saved and read back."""
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = sharded_model(device, mixed_precision)
    load(model, Transformer().state_dict() if rank == 0 else {})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    torch.manual_seed(100 + rank)
    for _ in range(5):
        tokens = torch.randint(VOCABULARY, (4, LENGTH), device=device)
        logits = model(tokens)
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()

    state = whole_state(model)
    if rank == 0:
        torch.save(state, "model.pt")
    again = sharded_model(device, mixed_precision)
    load(again, torch.load("model.pt") if rank == 0 else {})
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one.to_local(), other.to_local())
    return sum(parameter.full_tensor().sum().item() for parameter in again.parameters())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--mixed-precision", action="store_true")
    args = parser.parse_args()

    device = torch.device(args.device)
    if device.type != "cpu":
        device = torch.device(args.device, int(os.environ["LOCAL_RANK"]))
        torch.accelerator.set_device_index(device.index)
    dist.init_process_group(backend=dist.get_default_backend_for_device(device))
    weights = train(device, args.mixed_precision)
    end_group(weights)


if __name__ == "__main__":
    main()
