"""Tables of which layers take different windows; for sweep.py."""
import torch
from torch import nn


class Slices(nn.Module):
    """Layers that add rows of one table, each a window of its own."""

    def __init__(self, table, *windows, last=False):
        super().__init__()
        self.table, self.windows, self.last = nn.Parameter(table), windows, last
        width = table.shape[0] if last else table.shape[-1]
        self.layers = nn.ModuleList(nn.Linear(6, width) for _ in windows)

    def forward(self, x):
        out = 0
        for layer, (a, b) in zip(self.layers, self.windows):
            t = self.table[:, a:b].t() if self.last else self.table[a:b]
            out = out + torch.tanh(layer(x)[:, None] * t).sum(1)
        return out


def slices(table, *windows, **more):
    return lambda: (Slices(table.clone(), *windows, **more), [torch.randn(2, 6)], [None])


class MusicLike(nn.Module):
    """Relative attention by skewing, whose layers see different lengths of one table (as Music Transformer has it)."""

    def __init__(self, places=40, d=8):
        super().__init__()
        self.places, self.d = nn.Parameter(0.5 * torch.randn(places, d)), d
        self.qkv = nn.ModuleList(nn.Linear(d, 3 * d) for _ in range(3))

    def attend(self, x, qkv, skip):
        n = x.shape[1]
        q, k, v = qkv(x).chunk(3, -1)
        e = self.places[skip:skip + n]
        r = nn.functional.pad(q @ e.t(), (1, 0)).view(x.shape[0], n + 1, n)[:, 1:]
        mask = torch.ones(n, n, dtype=torch.bool).triu(1)
        return ((q @ k.transpose(1, 2) + r) / self.d ** 0.5).masked_fill(mask, float("-inf")).softmax(-1) @ v

    def forward(self, x):
        x = x + self.attend(x, self.qkv[0], 0)
        y = x[:, ::2]
        y = y + self.attend(y, self.qkv[1], 10)
        z = y[:, ::2]
        return self.attend(z, self.qkv[2], 16) + y[:, 1::2]


class Buckets(nn.Module):
    """T5's buckets: the encoder's distances go both ways, those of a shorter pass one way."""

    def __init__(self, heads=2, buckets=32, d=8):
        super().__init__()
        self.table, self.heads = nn.Embedding(buckets, heads), heads
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def bias(self, n, shift):
        i = torch.arange(n)
        return self.table((i[:, None] - i[None] + shift).clamp(0, 31)).permute(2, 0, 1)[None]

    def attend(self, x, shift):
        n = x.shape[1]
        q, k, v = self.qkv(x).view(x.shape[0], n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return self.out(((q @ k.transpose(-1, -2) + self.bias(n, shift)).softmax(-1) @ v).transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attend(x, 12)
        return x[:, :6] + self.attend(x[:, :6], 19)


class Swins(nn.Module):
    """Two window sizes of one table [9, 13, heads] of distances in two axes."""

    def __init__(self):
        super().__init__()
        self.table, self.a, self.b = nn.Parameter(0.1 * torch.randn(9, 13, 2)), nn.Linear(6, 50), nn.Linear(6, 28)

    def bias(self, h, w):
        y, x = torch.arange(h), torch.arange(w)
        dy, dx = y[:, None] - y + 4, x[:, None] - x + 6
        return self.table[dy[:, None, :, None], dx[None, :, None, :]].view(h * w, h * w, 2).permute(2, 0, 1)

    def forward(self, x):
        a = self.a(x).view(-1, 2, 1, 25) + self.bias(5, 5)
        b = self.b(x).view(-1, 2, 1, 14) + self.bias(2, 7)
        return torch.cat([a.softmax(-1).square().sum((1, 2)), b.softmax(-1).square().sum((1, 2))], -1)


class Line(nn.Module):
    """A list of numbers, one for each distance."""

    def __init__(self, a, b, c, d):
        super().__init__()
        self.line, self.at = nn.Parameter(LINE.clone()), (a, b, c, d)
        self.one, self.two = nn.Linear(6, b - a), nn.Linear(6, d - c)

    def forward(self, x):
        a, b, c, d = self.at
        return torch.cat([torch.tanh(self.one(x) * self.line[a:b]), torch.tanh(self.two(x) + self.line[c:d])], -1)


class Cut(nn.Module):
    """Places that begin as zeros, and of which a sentence takes as many as it has words."""

    def __init__(self, *shape):
        super().__init__()
        self.pos, self.one, self.two = nn.Parameter(torch.zeros(*shape)), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.two(torch.tanh(self.one(x) + self.pos[:, :x.shape[1]]))


torch.manual_seed(5)
TABLE, LINE = torch.randn(30, 8), torch.randn(60)
ALL = {
    "places_overlap": slices(TABLE, (0, 12), (8, 20)),
    "places_overlap_little": slices(TABLE, (0, 16), (15, 30)),
    "places_chain": slices(TABLE, (0, 12), (10, 21), (20, 30)),
    "places_apart": slices(TABLE, (0, 10), (15, 30)),
    "places_within_both": slices(TABLE, (0, 20), (10, 30), (12, 16)),
    "places_columns": slices(TABLE.t().contiguous(), (0, 12), (8, 20), last=True),
    "places_of_zeros": slices(torch.zeros(30, 8), (0, 12), (8, 20)),
    "places_next_zeros": slices(torch.zeros(30, 8), (0, 12), (12, 30)),
    "places_equal_zeros": slices(torch.zeros(30, 8), (0, 12), (15, 27)),
    "places_apart_zeros": slices(torch.zeros(30, 8), (0, 10), (15, 30)),
    "places_music": lambda: (MusicLike(), [torch.randn(2, 24, 8)], [None]),
    "places_buckets": lambda: (Buckets(), [torch.randn(2, 10, 8)], [None]),
    "places_swins": lambda: (Swins(), [torch.randn(2, 6)], [None]),
    "places_line": lambda: (Line(0, 40, 30, 60), [torch.randn(2, 6)], [None]),
    "places_line_little": lambda: (Line(0, 32, 29, 60), [torch.randn(2, 6)], [None]),
    "places_cut": lambda: (Cut(1, 20, 8), [torch.randn(2, 10, 8)], [None]),
}
