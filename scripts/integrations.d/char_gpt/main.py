"""A GPT on characters with DDP, in the form of PyTorch's minGPT-DDP example: modules beside this file, and a
configuration in YAML whose values arguments `section.name=value` replace."""

import gc
import os
import sys

import torch
import torch.distributed as dist
import yaml
from characters import CharacterData, CharacterOptions
from model import GPT, GPTOptions, make_optimizer
from torch.utils.data import random_split
from trainer import Trainer, TrainerOptions


def read_options(arguments):
    with open(os.path.join(os.path.dirname(__file__), "config.yaml")) as file:
        options = yaml.safe_load(file)
    for argument in arguments:
        name, value = argument.split("=", 1)
        section, key = name.split(".")
        options[section][key] = yaml.safe_load(value)
    return options


def train(options):
    """The loss on held-out text."""
    torch.manual_seed(options["seed"])
    data = CharacterData(CharacterOptions(**options["data"]))
    train_length = int(len(data) * options["train_part"])
    train_part, held_out = random_split(data, [train_length, len(data) - train_length])
    model = GPT(GPTOptions(**options["gpt"], vocabulary=data.vocabulary, block=data.block))
    optimizer = make_optimizer(model, **options["optimizer"])
    trainer = Trainer(TrainerOptions(**options["trainer"]), model, optimizer, train_part, held_out)
    loss = trainer.train()
    assert loss < 0.8 * trainer.first_loss, (trainer.first_loss, loss)
    return loss


def main():
    options = read_options(sys.argv[1:])
    dist.init_process_group(backend="gloo")
    loss = train(options)
    print(f"RESULT rank={dist.get_rank()} world={dist.get_world_size()} loss_sum={loss:.6f}", flush=True)
    # A model in a cycle of references keeps the process group, whose threads then abort the process at its end.
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
