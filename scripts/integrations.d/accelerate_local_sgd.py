"""Local SGD, in the form of accelerate's example of that feature: the ranks train on their own, and take the
mean of their weights at every fourth step."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.local_sgd import LocalSGD
from accelerate.utils import set_seed
from result import end_accelerator


def total(model):
    return sum(parameter.sum() for parameter in model.parameters()).detach().reshape(1)


def equal_everywhere(accelerator, value):
    return bool((accelerator.gather(value) == value).all())


def train(accelerator, local_sgd_steps):
    """The sum of the weights, which are the same on all ranks at the end."""
    set_seed(7)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(128, 8)
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    options = {"accelerator": accelerator, "model": model, "local_sgd_steps": local_sgd_steps}
    with LocalSGD(**options, enabled=True) as local_sgd:
        for batch, target in loader:
            loss = torch.nn.functional.mse_loss(model(batch), target)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            assert accelerator.num_processes == 1 or not equal_everywhere(accelerator, total(model))
            local_sgd.step()
    assert equal_everywhere(accelerator, total(model))
    return total(model).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--local_sgd_steps", type=int, default=4)
    args = parser.parse_args()

    accelerator = Accelerator(cpu=True)
    weights = train(accelerator, args.local_sgd_steps)
    end_accelerator(accelerator, weights)


if __name__ == "__main__":
    main()
