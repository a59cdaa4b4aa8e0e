"""Metrics of several processes and an early end, in the form of two of accelerate's examples: samples that fill
the last batch are not counted, and the rank that sees its condition ends the training of all."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from result import end_accelerator

HELD_OUT = 37


def loaders():
    inputs = torch.randn(128 + HELD_OUT, 8)
    labels = (inputs.sum(1) > 0).long()
    data = torch.utils.data.TensorDataset(inputs, labels)
    train, held_out = torch.utils.data.random_split(data, [128, HELD_OUT])
    return [torch.utils.data.DataLoader(part, batch_size=4, shuffle=part is train) for part in (train, held_out)]


def evaluate(accelerator, model, loader):
    """The part of the samples that all ranks classify correctly."""
    model.eval()
    right = seen = 0
    for batch, labels in loader:
        with torch.no_grad():
            predictions = model(batch).argmax(dim=-1)
        predictions, labels = accelerator.gather_for_metrics((predictions, labels))
        right += (predictions == labels).sum().item()
        seen += len(labels)
    assert seen == HELD_OUT, seen
    return right / seen


def train(accelerator, wanted_steps):
    """The accuracy after a training that the last rank ends."""
    set_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.03)
    loader, held_out = loaders()
    model, optimizer, loader, held_out = accelerator.prepare(model, optimizer, loader, held_out)
    steps = 0
    for batch, labels in loader:
        accelerator.backward(torch.nn.functional.cross_entropy(model(batch), labels))
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
        # Only the last rank counts; the others learn of it.
        if accelerator.is_last_process and steps == wanted_steps:
            accelerator.set_trigger()
        if accelerator.check_trigger():
            break
    assert steps == wanted_steps, steps
    return evaluate(accelerator, model, held_out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()

    accelerator = Accelerator(cpu=True)
    accuracy = train(accelerator, args.steps)
    accelerator.print(f"accuracy {accuracy:.3f}")
    end_accelerator(accelerator, accuracy)


if __name__ == "__main__":
    main()
