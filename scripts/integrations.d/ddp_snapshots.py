"""A trainer class with snapshots, in the form of PyTorch's tutorials for several GPUs and nodes. With
`--fail_epoch`, the last rank fails in that epoch of the first attempt; the next attempt reads the snapshot."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from result import end_group


class Sums(Dataset):
    """Vectors and the sums of their elements."""

    def __init__(self, size):
        numbers = torch.Generator().manual_seed(11)
        self.inputs = torch.randn(size, 20, generator=numbers)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index], self.inputs[index].sum().reshape(1)


class Trainer:
    def __init__(self, model, loader, optimizer, save_every, snapshot_path, fail_epoch):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        self.model = model
        self.loader = loader
        self.optimizer = optimizer
        self.save_every = save_every
        self.snapshot_path = snapshot_path
        self.fail_epoch = fail_epoch
        self.epochs_run = 0
        if os.path.exists(snapshot_path):
            self.load_snapshot()
        self.model = DDP(self.model)

    def load_snapshot(self):
        snapshot = torch.load(self.snapshot_path, map_location="cpu")
        self.model.load_state_dict(snapshot["MODEL_STATE"])
        self.optimizer.load_state_dict(snapshot["OPTIMIZER_STATE"])
        self.epochs_run = snapshot["EPOCHS_RUN"]
        print(f"[rank {self.global_rank}] goes on after epoch {self.epochs_run}")

    def save_snapshot(self, epoch):
        snapshot = {
            "MODEL_STATE": self.model.module.state_dict(),
            "OPTIMIZER_STATE": self.optimizer.state_dict(),
            "EPOCHS_RUN": epoch + 1,
        }
        torch.save(snapshot, self.snapshot_path + ".new")
        os.replace(self.snapshot_path + ".new", self.snapshot_path)

    def run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(self.model(source), targets)
        loss.backward()
        self.optimizer.step()

    def run_epoch(self, epoch):
        print(f"[rank {self.global_rank}] epoch {epoch}, {len(self.loader)} steps")
        self.loader.sampler.set_epoch(epoch)
        for step, (source, targets) in enumerate(self.loader):
            if step == 1 and epoch == self.fail_epoch and self.attempt == 0:
                if self.global_rank == dist.get_world_size() - 1:
                    raise RuntimeError(f"epoch {epoch} fails")
            self.run_batch(source, targets)

    def train(self, epochs):
        for epoch in range(self.epochs_run, epochs):
            self.run_epoch(epoch)
            if self.global_rank == 0 and (epoch + 1) % self.save_every == 0:
                self.save_snapshot(epoch)


def train(args):
    """The sum of the weights."""
    torch.manual_seed(0)
    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    data = Sums(128)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=DistributedSampler(data))
    trainer = Trainer(model, loader, optimizer, args.save_every, "snapshot.pt", args.fail_epoch)
    if args.fail_epoch is not None:
        assert trainer.epochs_run == (args.fail_epoch if trainer.attempt == 1 else 0)
    trainer.train(args.total_epochs)
    assert args.fail_epoch is None or trainer.attempt == 1
    return sum(parameter.sum().item() for parameter in trainer.model.parameters())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("total_epochs", type=int)
    parser.add_argument("save_every", type=int)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--fail_epoch", type=int)
    args = parser.parse_args()

    dist.init_process_group(backend="gloo")
    weights = train(args)
    end_group(weights)


if __name__ == "__main__":
    main()
