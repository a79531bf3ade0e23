"""Bags whose padding counts for nothing; for sweep.py."""
import torch
from torch import nn


class PaddedBag(nn.Module):
    """nn.EmbeddingBag(padding_idx=0) over sentences of equal length."""

    def __init__(self, mode, words=30):
        super().__init__()
        self.bag, self.out = nn.EmbeddingBag(words, 6, mode=mode, padding_idx=0), nn.Linear(6, 3)

    def forward(self, ids):
        return self.out(torch.tanh(self.bag(ids)))


class PaddedBags(nn.Module):
    """The same with all ids in a row, and where each bag begins."""
    one_sample = True

    def __init__(self, mode):
        super().__init__()
        self.bag, self.out = nn.EmbeddingBag(30, 6, mode=mode, padding_idx=0), nn.Linear(6, 2)

    def forward(self, ids, offsets):
        return self.out(self.bag(ids, offsets))


PADDED = torch.tensor([[3, 0, 9, 9, 5], [0, 0, 0, 0, 0]])
FLAT = torch.tensor([3, 0, 7, 9, 0, 0, 5, 8, 1])
ALL = {
    **{"bags_padded_%s" % m: lambda m=m: (PaddedBag(m), [PADDED.clone()], [1]) for m in ("sum", "mean", "max")},
    **{"bags_padded_flat_%s" % m: lambda m=m: (PaddedBags(m), [FLAT.clone(), torch.tensor([0, 2, 6])], [None] * 2)
       for m in ("sum", "mean")},
}
