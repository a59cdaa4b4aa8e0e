"""Gradient accumulation, in the form of accelerate's example of that feature: `accumulate` synchronizes the
ranks and steps the optimizer at every second batch."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from result import end_accelerator


def train(accelerator, accumulation):
    set_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    inputs = torch.randn(96, 8)
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=100)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    steps = 0
    for _ in range(2):
        for batch, target in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(batch), target)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    steps += 1
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
    # The last batch of an epoch always synchronizes.
    assert steps == 2 * -(-len(loader) // accumulation), steps
    weights = sum(parameter.sum() for parameter in model.parameters()).detach().reshape(1)
    everywhere = accelerator.gather(weights)
    assert torch.equal(everywhere, weights.expand_as(everywhere)), everywhere
    return weights.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
    args = parser.parse_args()

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=args.gradient_accumulation_steps)
    weights = train(accelerator, args.gradient_accumulation_steps)
    end_accelerator(accelerator, weights)


if __name__ == "__main__":
    main()
