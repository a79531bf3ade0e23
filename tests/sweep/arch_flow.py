"""Architectures that choose and repeat, and that look at regions, for sweep.py."""
import torch
import torchvision
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from arch_plain import floats, own


class Choice(nn.Module):
    """One of two layers, as the data say: the first for whatever is not all 0."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(torch.cond(x.abs().max() > 1e-3, lambda x: self.a(x), lambda x: self.b(x), (x,)))


class ScannedCells(nn.Module):
    """Two outputs, so that it is not trained: PyTorch 2.11's gradient of scan() is not that of the loop."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.Linear(16, 8), nn.Linear(8, 3)

    def forward(self, x):
        def step(h, e):
            h = torch.tanh(self.cell(torch.cat([h, e], -1)))
            return h, h.clone()

        last, all_h = scan(step, x.new_zeros(x.shape[0], 8), x, dim=1)
        return self.head(all_h.mean(0)), last


class FixedPoint(nn.Module):
    """Two outputs for the same reason."""

    def __init__(self):
        super().__init__()
        self.step = nn.Linear(8, 8)

    def forward(self, x):
        h = while_loop(lambda i, h: i < 5, lambda i, h: (i + 1, torch.tanh(self.step(h)) + x),
                       (torch.tensor(0), x.clone()))[1]
        return h, h.sum(1)


class ScriptedCells(nn.Module):
    """A list that grows in a loop over time, with a branch: scripted, a Loop over sequences."""

    def __init__(self):
        super().__init__()
        self.step = nn.Linear(8, 8)

    def forward(self, x):
        h = torch.zeros_like(x[:, 0])
        out = torch.jit.annotate(list[torch.Tensor], [])
        for t in range(x.size(1)):
            h = torch.tanh(self.step(x[:, t] + h))
            if t % 2 == 0:
                h = h * 2
            out.append(h)
        return torch.stack(out, 1)


class Deformed(nn.Module):
    def __init__(self):
        super().__init__()
        self.offsets = nn.Conv2d(3, 18, 3, padding=1)
        self.conv, self.head = torchvision.ops.DeformConv2d(3, 8, 3, padding=1), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.conv(x, self.offsets(x)).mean((2, 3)))


class Regions(nn.Module):
    """One region of each image."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(72, 4)

    def forward(self, x):
        image = torch.arange(x.shape[0]).to(x.dtype)[:, None]
        boxes = torch.cat([image, x.new_tensor([[2, 3, 20, 17.]]).expand(x.shape[0], 4)], 1)
        return self.head(torchvision.ops.roi_align(self.conv(x), boxes, (3, 3), 0.5, 2, True).flatten(1))


class Places(nn.Module):
    """Pools that say where their maxima were, as SegNet has them."""

    def __init__(self):
        super().__init__()
        self.conv, self.pool, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.MaxPool2d(2, return_indices=True), nn.Linear(4, 3)

    def forward(self, x):
        y, at = self.pool(self.conv(x))
        return self.head((y * (at % 7 + 1).to(y.dtype)).mean((2, 3)))


ALL = {
    "choice": own(Choice, floats(2, 8)), "scanned_cells": own(ScannedCells, floats(2, 6, 8)),
    "fixed_point": own(FixedPoint, floats(2, 8)),
    "scripted_cells": own(lambda: torch.jit.script(ScriptedCells()), floats(2, 6, 8)),
    "deformed": own(Deformed, floats(2, 3, 16, 16)), "regions": own(Regions, floats(2, 3, 24, 24)),
    "places": own(Places, floats(2, 3, 16, 16)),
}
