"""Checkpoints of accelerate, in the form of its example of that feature: states of two epochs are saved, the
first one is loaded again in the middle of an epoch, and training from there gives the same weights."""

import argparse
import os

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, ProjectConfiguration, set_seed
from result import end_accelerator

EPOCHS, SAVED_STEP = 2, 2


class Counter:
    """State of the script that is part of a checkpoint."""

    def __init__(self):
        self.steps = 0

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


def run(accelerator, model, optimizer, loader, counter, save):
    done = counter.steps
    for epoch in range(done // len(loader), EPOCHS):
        loader.set_epoch(epoch)
        batches = loader
        if not save and epoch == done // len(loader):
            batches = accelerator.skip_first_batches(loader, done % len(loader))
        for batch, target in batches:
            loss = torch.nn.functional.mse_loss(model(batch), target)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            counter.steps += 1
            if save and counter.steps == SAVED_STEP:
                accelerator.save_state()
        if save:
            accelerator.save_state()


def train(accelerator, project_dir):
    """The sum of the weights that both ways give."""
    set_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    inputs = torch.randn(96, 8)
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    counter = Counter()
    accelerator.register_for_checkpointing(counter)

    run(accelerator, model, optimizer, loader, counter, save=True)
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    accelerator.wait_for_everyone()
    saved = os.path.join(project_dir, "checkpoints", "checkpoint_0")
    for rank in range(accelerator.num_processes):
        assert os.path.exists(os.path.join(saved, f"random_states_{rank}.pkl"))
    accelerator.load_state(saved)
    assert counter.steps == SAVED_STEP
    run(accelerator, model, optimizer, loader, counter, save=False)
    for one, other in zip(weights, model.parameters(), strict=True):
        assert torch.equal(one, other)
    return sum(parameter.sum().item() for parameter in weights)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--project_dir", default="checkpointing")
    args = parser.parse_args()

    project = ProjectConfiguration(project_dir=args.project_dir, automatic_checkpoint_naming=True)
    # The order of the samples follows from the seed and the epoch.
    order = DataLoaderConfiguration(use_seedable_sampler=True)
    accelerator = Accelerator(cpu=True, project_config=project, dataloader_config=order)
    weights = train(accelerator, args.project_dir)
    end_accelerator(accelerator, weights)


if __name__ == "__main__":
    main()
