"""Epochs of training with DDP, each with an evaluation and a snapshot."""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


@dataclass
class TrainerOptions:
    epochs: int
    batch_size: int
    workers: int
    gradient_norm: float
    snapshot: str
    save_every: int
    mixed_precision: bool


class Trainer:
    def __init__(self, options, model, optimizer, train, held_out):
        self.options = options
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.train_loader = self.make_loader(train)
        self.test_loader = self.make_loader(held_out)
        self.model, self.optimizer = model, optimizer
        self.epochs_run = 0
        self.first_loss = None
        if os.path.exists(options.snapshot):
            snapshot = torch.load(options.snapshot)
            self.model.load_state_dict(snapshot["model"])
            self.optimizer.load_state_dict(snapshot["optimizer"])
            self.epochs_run = snapshot["epochs"]
        self.model = DDP(self.model)

    def make_loader(self, data):
        # Without shuffling, because the sampler does it.
        sampler = DistributedSampler(data)
        return DataLoader(data, self.options.batch_size, sampler=sampler, num_workers=self.options.workers)

    def run_batch(self, source, targets, train):
        precision = torch.autocast("cpu", torch.bfloat16, enabled=self.options.mixed_precision)
        with torch.set_grad_enabled(train), precision:
            _, loss = self.model(source, targets)
        if train:
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options.gradient_norm)
            self.optimizer.step()
        return loss.item()

    def run_epoch(self, epoch, loader, train):
        """The mean loss of all ranks."""
        loader.sampler.set_epoch(epoch)
        losses = [self.run_batch(source, targets, train) for source, targets in loader]
        mean = torch.tensor([sum(losses) / len(losses)])
        dist.all_reduce(mean)
        return mean.item() / dist.get_world_size()

    def save(self, epoch):
        snapshot = {
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epochs": epoch + 1,
        }
        torch.save(snapshot, self.options.snapshot)

    def train(self):
        """The last loss on held-out text."""
        for epoch in range(self.epochs_run, self.options.epochs):
            loss = self.run_epoch(epoch, self.train_loader, train=True)
            test_loss = self.run_epoch(epoch, self.test_loader, train=False)
            self.first_loss = self.first_loss or test_loss
            if self.global_rank == 0:
                print(f"epoch {epoch}: train {loss:.4f}, held out {test_loss:.4f}")
                if (epoch + 1) % self.options.save_every == 0:
                    self.save(epoch)
        return test_loss
