"""A Lightning module, trained with the strategy `ddp`. Its numbers of nodes and devices are options, or those
of the launcher's variables."""

import argparse
import gc
import os

import pytorch_lightning as lightning
import torch


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))

    def training_step(self, batch, _):
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.layers(inputs), targets)
        self.log("loss", loss, sync_dist=True, on_epoch=True, on_step=False)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def main():
    world, local_world = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--devices", type=int, default=local_world)
    parser.add_argument("--num_nodes", type=int, default=world // local_world)
    args = parser.parse_args()

    lightning.seed_everything(7, verbose=False)
    inputs = torch.randn(64, 8)
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=args.devices,
        num_nodes=args.num_nodes,
        max_epochs=2,
        logger=False,
        enable_progress_bar=False,
    )
    module = Module()
    trainer.fit(module, loader)
    assert trainer.world_size == world and trainer.global_rank == int(os.environ["RANK"])
    assert trainer.local_rank == int(os.environ["LOCAL_RANK"])
    assert trainer.node_rank == int(os.environ["GROUP_RANK"])

    weights = sum(parameter.sum().item() for parameter in module.parameters())
    print(f"RESULT rank={trainer.global_rank} world={trainer.world_size} loss_sum={weights:.6f}", flush=True)
    # A model in a cycle of references keeps the process group, whose threads then abort the process at its end.
    del trainer, module
    gc.collect()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
