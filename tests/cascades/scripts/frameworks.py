"""A cascade of three ranks that train with accelerate or DeepSpeed; rank 2 raises in its third step.

    frameworks.py accelerate|deepspeed|trainer DIRECTORY
"""

import os
import sys

import torch

mode, directory = sys.argv[1:3]


def batch(step):
    if step == 2 and os.environ["RANK"] == "2":
        raise ValueError("corrupt sample 3")
    return torch.ones(2, 4)


def with_accelerate():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(4, 4)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(8):
        accelerator.backward(model(batch(step)).sum())
        optimizer.step()


def with_deepspeed():
    import deepspeed

    deepspeed.init_distributed("gloo")
    model = torch.nn.Linear(4, 4)
    config = {"train_micro_batch_size_per_gpu": 2, "train_batch_size": 6}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for step in range(8):
        engine.backward(engine(batch(step)).sum())
        engine.step()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return {"loss": self.linear(x).sum()}


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        return {"x": batch(2 if index >= 24 else 0)[0]}


def with_trainer():
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        directory, per_device_train_batch_size=2, use_cpu=True, report_to=[], save_strategy="no"
    )
    Trainer(model=Model(), args=arguments, train_dataset=Samples()).train()


{"accelerate": with_accelerate, "deepspeed": with_deepspeed, "trainer": with_trainer}[mode]()
