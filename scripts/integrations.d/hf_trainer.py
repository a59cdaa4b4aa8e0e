"""Hugging Face's Trainer with a ds_config, as in the documentation of the DeepSpeed integration. The
small model is created from its configuration; nothing is downloaded."""

import argparse
import os
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        tokens = (torch.arange(16) + index) % 50
        return {"input_ids": tokens, "labels": tokens}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--deepspeed")
    args = parser.parse_args()

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            output_dir=directory,
            max_steps=4,
            per_device_train_batch_size=2,
            learning_rate=1e-2,
            use_cpu=True,
            ddp_backend="gloo",
            deepspeed=args.deepspeed,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            seed=0,
        )
        model = GPT2LMHeadModel(config)
        trainer = Trainer(model=model, args=arguments, train_dataset=Tokens())
        result = trainer.train()
        rank, world = arguments.process_index, arguments.world_size
        assert world == int(os.environ["WORLD_SIZE"])
        weights = torch.cat([p.detach().flatten().float() for p in model.parameters()]).sum().item()
        assert result.training_loss > 0
        print(f"RESULT rank={rank} world={world} loss_sum={weights:.6f}", flush=True)


if __name__ == "__main__":
    main()
