"""GPT-2 of transformers against the bundled one, in both directions: a model with random weights is imported,
and the probabilities of tokens are compared; then a model that remuda has trained is exported, and compared.

    gpt2_logits.py REMUDA DIRECTORY
"""

import json
import subprocess
import sys
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

PROMPTS = ["a", "the quick brown fox", "zz zz"]
TOKENS = 40


def main():
    remuda, directory = sys.argv[1], Path(sys.argv[2])
    directory.mkdir(parents=True)

    def run(command, *words):
        done = subprocess.run(
            [remuda, command, *map(str, words)], cwd=directory, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    # A vocabulary of bytes: 256 tokens, and no merges.
    (directory / "bytes").mkdir()
    (directory / "bytes/vocab.json").write_text(json.dumps(byte_letters()))
    (directory / "bytes/merges.txt").write_text("#version: 0.2\n")

    torch.manual_seed(7)
    config = GPT2Config(
        vocab_size=256, n_positions=48, n_embd=64, n_layer=3, n_head=4, initializer_range=0.2
    )
    GPT2LMHeadModel(config).save_pretrained(directory / "random", safe_serialization=True)
    run("checkpoint", "import", "random", "--to", "imported")
    worst = compare(run, directory, "random", "imported")

    text = "the quick brown fox jumps over the lazy dog. " * 200
    (directory / "text").write_text(text)
    run("tokenize", "text", "-o", "text.bin", "--vocab", "bytes", "--text_separator", "none")
    sizes = "--layers 2 --heads 2 --width 32 --block 48 --batch_size 4 --steps 40 --warmup 5".split()
    train = ["--model", "gpt2", "--data", "text.bin", "--vocabulary", 256, "--checkpoint_dir", "own"]
    run("train", "--accelerator", "cpu", "-n", 2, "--stage", 3, *train, *sizes)
    run("checkpoint", "export", "own", "--to", "hf:exported")
    worst = max(worst, compare(run, directory, "exported", "own"))
    print(f"RESULT gpt2 worst={worst:.1e}")


def byte_letters():
    """The letters that stand for bytes in GPT-2's `vocab.json`."""
    itself = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return {chr(byte if byte in itself else next(others)): byte for byte in range(256)}


def compare(run, directory, model, checkpoint):
    """Largest difference of the log probabilities of the tokens that remuda draws."""
    model = GPT2LMHeadModel.from_pretrained(directory / model).eval()
    worst = 0.0
    for prompt in PROMPTS:
        for temperature in (0, 1):
            line = [checkpoint, "--vocab", "bytes", "--prompt", prompt, "--tokens", TOKENS]
            found = json.loads(run("sample", *line, "--temperature", temperature, "--json"))
            tokens = found["prompt"] + [one["token"] for one in found["tokens"]]
            assert found["prompt"] == list(prompt.encode())
            # The model sees its last positions only, so every token has a context of its own.
            for at, drawn in enumerate(found["tokens"], start=len(prompt)):
                context = tokens[max(0, at - model.config.n_positions) : at]
                with torch.no_grad():
                    logits = model(torch.tensor([context])).logits[0, -1].double()
                expected = torch.log_softmax(logits, 0)[drawn["token"]].item()
                worst = max(worst, abs(expected - drawn["log_probability"]))
                if temperature == 0:
                    assert logits.argmax().item() == drawn["token"], (prompt, at)
    assert worst < 2e-4, worst
    return worst


if __name__ == "__main__":
    main()
