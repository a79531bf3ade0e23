"""What the lists of architectures share: sizes, inputs, and what wraps a model."""
import torch
from torch import nn

WORDS, LENGTH, SIDE = 100, 16, 64


class FirstOutput(nn.Module):
    """Of a model with several, or with names for them."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return first(self.model(x))


def first(out):
    while not torch.is_tensor(out):
        out = next(iter(out.values())) if isinstance(out, dict) else out[0]
    return out


def image(side, channels=3):
    return torch.randn(2, channels, side, side)


def ids():
    return torch.randint(3, WORDS - 10, (2, LENGTH))


def mask():
    m = torch.ones(2, LENGTH, dtype=torch.int64)
    m[1, LENGTH - 5:] = 0
    return m
