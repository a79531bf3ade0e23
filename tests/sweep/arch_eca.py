"""What timm's ecaresnet101d has and few others have, each alone, so that a device's error has a place; for sweep.py.

sweep.py --on cuda:fp32 'eca_*' runs them. What is looked at is made to matter: in the whole model the loss hardly
hangs on the gates.
"""
import torch
from torch import nn


class Gate(nn.Module):
    """A convolution over channels, of their means, weighs the channels."""

    def __init__(self, k):
        super().__init__()
        self.conv = nn.Conv1d(1, 1, k, padding=k // 2, bias=False)
        nn.init.normal_(self.conv.weight, 1.0)

    def forward(self, x):
        y = self.conv(x.mean((2, 3)).view(x.shape[0], 1, -1))
        return x * y.sigmoid().view(x.shape[0], -1, 1, 1).expand_as(x)


class Channels(nn.Module):
    """That convolution alone: nothing else learns, and a gradient for its weight is one long sum."""

    def __init__(self, k):
        super().__init__()
        self.conv = nn.Conv1d(1, 1, k, padding=k // 2, bias=False)

    def forward(self, x):
        return self.conv(x.view(x.shape[0], 1, -1)).sigmoid().view(x.shape[0], -1)


class Factor(nn.Module):
    """A number for each sample and channel, multiplied with all pixels: its gradient is a sum over them."""

    def __init__(self, c):
        super().__init__()
        self.factor = nn.Linear(6, c)

    def forward(self, x, z):
        return (x * self.factor(z)[:, :, None, None].expand_as(x)).flatten(2).cumsum(-1)[..., ::3]


class Halved(nn.Module):
    """A shortcut that is halved by means: a window at the edge has fewer pixels, all of which count."""

    def __init__(self, kernel=2, stride=2, padding=0, counts=False):
        super().__init__()
        self.into, self.out = nn.Conv2d(3, 24, 1), nn.Conv2d(24, 8, 1, bias=False)
        self.pool = nn.AvgPool2d(kernel, stride, padding, ceil_mode=True, count_include_pad=counts)

    def forward(self, x):
        return self.out(self.pool(torch.tanh(self.into(x))))


class FarNorm(nn.Module):
    """Norms of numbers far from zero, whose activation is asked for again by the gradient: `far` deviations."""

    def __init__(self, far, c=64):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(3, c, 3, padding=1), nn.BatchNorm2d(c), nn.Conv2d(c, 4, 1)
        self.act, self.far = nn.ReLU(), far

    def forward(self, x):
        return self.out(self.act(self.norm(self.conv(x) + self.far)))


class TwoReaders(nn.Module):
    """A norm whose result is read twice, by the means and by the product: its gradient takes two."""

    def __init__(self, c=48):
        super().__init__()
        self.conv, self.norm, self.gate = nn.Conv2d(3, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), Gate(5)
        self.out = nn.Conv2d(c, 4, 1)

    def forward(self, x):
        return self.out(self.gate(self.norm(self.conv(x))))


class Bottleneck(nn.Module):
    """relu(norm of the halved shortcut + gated branch): sum and activation go into the shortcut's norm."""

    def __init__(self, c, wide, stride):
        super().__init__()
        k = wide // 4
        self.branch = nn.Sequential(
            nn.Conv2d(c, k, 1, bias=False), nn.BatchNorm2d(k), nn.ReLU(),
            nn.Conv2d(k, k, 3, stride, 1, bias=False), nn.BatchNorm2d(k), nn.ReLU(),
            nn.Conv2d(k, wide, 1, bias=False), nn.BatchNorm2d(wide), Gate(5))
        nn.init.constant_(self.branch[-2].weight, 0.2)  # else a deep one is chaos, of which nothing can be said
        self.shortcut = nn.Identity() if c == wide and stride == 1 else nn.Sequential(
            nn.AvgPool2d(2, stride, ceil_mode=True, count_include_pad=False) if stride > 1 else nn.Identity(),
            nn.Conv2d(c, wide, 1, bias=False), nn.BatchNorm2d(wide))

    def forward(self, x):
        return torch.relu(self.branch(x) + self.shortcut(x))


def bottlenecks(depth, width=64):
    blocks, c = [], 16
    for stage in range(3):
        for i in range(depth):
            wide = width * 2 ** stage
            blocks.append(Bottleneck(c, wide, 2 if stage and not i else 1))
            c = wide
    return nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                         nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 10))


def of(module, *inputs):
    return lambda: (module(), [torch.randn(x) for x in inputs], [None] * len(inputs))


ALL = {
    "eca_gate": of(lambda: nn.Sequential(nn.Conv2d(3, 64, 1), Gate(5), nn.Conv2d(64, 4, 1)), (2, 3, 9, 7)),
    "eca_gate_wide": of(lambda: nn.Sequential(nn.Conv2d(3, 2048, 1), Gate(7), nn.Conv2d(2048, 4, 1)), (2, 3, 2, 2)),
    "eca_channels": of(lambda: Channels(5), (2, 256)),
    "eca_channels_wide": of(lambda: Channels(7), (2, 2048)),
    "eca_factor": of(lambda: Factor(64), (2, 64, 16, 16), (2, 6)),
    "eca_factor_odd": of(lambda: Factor(37), (2, 37, 7, 5), (2, 6)),
    "eca_halved": of(Halved, (2, 3, 8, 8)),
    "eca_halved_odd": of(Halved, (2, 3, 9, 7)),
    "eca_halved_padded": of(lambda: Halved(3, 2, 1), (2, 3, 10, 8)),
    "eca_halved_counts": of(lambda: Halved(3, 2, 1, True), (2, 3, 10, 8)),
    "eca_halved_overlaps": of(lambda: Halved(3, 2), (2, 3, 8, 11)),
    "eca_norm_near": of(lambda: FarNorm(0.0), (2, 3, 32, 32)),
    "eca_norm_far": of(lambda: FarNorm(50.0), (2, 3, 32, 32)),
    "eca_norm_few": of(lambda: FarNorm(5.0), (2, 3, 2, 2)),
    "eca_norm_two_readers": of(TwoReaders, (2, 3, 12, 12)),
    "eca_bottleneck": of(lambda: Bottleneck(16, 64, 2), (2, 16, 9, 9)),
    "eca_bottlenecks": of(lambda: bottlenecks(1), (2, 3, 64, 64)),
    "eca_bottlenecks_deep": of(lambda: bottlenecks(6, 32), (2, 3, 64, 64)),
}
