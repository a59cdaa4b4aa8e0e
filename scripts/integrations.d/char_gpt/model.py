"""A small GPT, and its optimizer: only matrices decay."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass
class GPTOptions:
    layers: int
    heads: int
    width: int
    vocabulary: int
    block: int


class Block(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.heads = options.heads
        self.norm_1, self.norm_2 = nn.LayerNorm(options.width), nn.LayerNorm(options.width)
        self.qkv = nn.Linear(options.width, 3 * options.width)
        self.projection = nn.Linear(options.width, options.width)
        self.feed_forward = nn.Sequential(
            nn.Linear(options.width, 4 * options.width),
            nn.GELU(),
            nn.Linear(4 * options.width, options.width),
        )

    def attend(self, x):
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.projection(y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attend(self.norm_1(x))
        return x + self.feed_forward(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.tokens = nn.Embedding(options.vocabulary, options.width)
        self.positions = nn.Parameter(torch.zeros(options.block, options.width))
        self.blocks = nn.Sequential(*(Block(options) for _ in range(options.layers)))
        self.norm = nn.LayerNorm(options.width)
        self.head = nn.Linear(options.width, options.vocabulary, bias=False)
        self.apply(initialize)

    def forward(self, tokens, targets=None):
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        logits = self.head(self.norm(self.blocks(x)))
        if targets is None:
            return logits, None
        return logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def initialize(module):
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)


def make_optimizer(model, learning_rate, weight_decay):
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95))
