"""The training loop of the accelerate documentation."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from result import end_accelerator


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()

    accelerator = Accelerator(cpu=True)
    set_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    inputs = torch.randn(64, 8)
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(args.epochs):
        for batch, target in loader:
            loss = torch.nn.functional.mse_loss(model(batch), target)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()

    losses = accelerator.gather(loss.detach().reshape(1))
    assert len(losses) == accelerator.num_processes
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).sum().reshape(1)
    everywhere = accelerator.gather(weights)
    assert torch.equal(everywhere, weights.expand_as(everywhere)), everywhere
    # Nothing of `main` keeps the model.
    model = accelerator.free_memory(model)
    end_accelerator(accelerator, losses.sum().item())


if __name__ == "__main__":
    main()
