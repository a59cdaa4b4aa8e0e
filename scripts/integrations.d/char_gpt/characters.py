"""Pairs of a text and the same text one character later."""

from dataclasses import dataclass

import torch
from torch.utils.data import Dataset

TEXT = "Ten riders rode out at dawn; nine rode home, and the herd was counted twice. "


@dataclass
class CharacterOptions:
    block: int
    repetitions: int


class CharacterData(Dataset):
    def __init__(self, options):
        text = TEXT * options.repetitions
        letters = sorted(set(text))
        numbers = {letter: number for number, letter in enumerate(letters)}
        self.tokens = torch.tensor([numbers[letter] for letter in text])
        self.block, self.vocabulary = options.block, len(letters)

    def __len__(self):
        return len(self.tokens) - self.block

    def __getitem__(self, index):
        piece = self.tokens[index : index + self.block + 1]
        return piece[:-1], piece[1:]
