"""Data-parallel training of the PyTorch tutorial: torchrun's variables, gloo, DDP."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from result import end_group


def train(rank, world):
    """The sum of the weights, which are the same on all ranks."""
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(100 + rank)
    inputs = torch.randn(16, 8)
    targets = inputs.sum(1, keepdim=True)
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()

    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    everywhere = [torch.empty_like(weights) for _ in range(world)]
    dist.all_gather(everywhere, weights)
    assert all(torch.equal(weights, other) for other in everywhere), "replicas differ"
    return weights.sum().item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    assert local_rank < int(os.environ["LOCAL_WORLD_SIZE"])

    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    assert total.item() == world * (world - 1) / 2, total

    weights = train(rank, world)
    end_group(weights)


if __name__ == "__main__":
    main()
