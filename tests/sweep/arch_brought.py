"""Models as people bring them, listed before anybody looked at how they come through: gathers and scatters over
graphs, complex numbers, windows, losses inside the graph, branches and loops on data, odd types; for sweep.py."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from arch_plain import floats, own
from arch_tables import picks


class SegmentGat(nn.Module):
    """Attention over the edges of one graph: a softmax by scatters, as PyTorch Geometric has it."""

    def __init__(self):
        super().__init__()
        self.lin, self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 1, bias=False), nn.Linear(8, 1, bias=False)
        self.out = nn.Linear(8, 3)
        self.register_buffer("src", torch.randint(0, 7, (24,)))
        self.register_buffer("dst", torch.cat([torch.arange(7), torch.randint(0, 7, (17,))]))

    def forward(self, x):
        h = self.lin(x)
        e = F.leaky_relu(self.a(h)[:, self.src] + self.b(h)[:, self.dst], 0.2)
        at = self.dst[None, :, None].expand(x.shape[0], -1, 1)
        top = torch.full((x.shape[0], 7, 1), -1e9, dtype=x.dtype).scatter_reduce(1, at, e, "amax")
        w = torch.exp(e - top.gather(1, at))
        total = torch.zeros(x.shape[0], 7, 1, dtype=x.dtype).scatter_add(1, at, w)
        w = w / (total.gather(1, at) + 1e-16)
        y = torch.zeros_like(h).index_add(1, self.dst, w * h[:, self.src])
        return self.out(F.elu(y))


class MeanPooledGraphs(nn.Module):
    """Nodes of all graphs in one list, with the graph that each belongs to."""
    one_sample = True

    def __init__(self):
        super().__init__()
        self.f, self.g = nn.Linear(6, 12), nn.Linear(12, 2)

    def forward(self, x, edge_index, batch):
        h = torch.relu(self.f(x))
        h = h + torch.zeros_like(h).index_add_(0, edge_index[1], h[edge_index[0]])
        s = h.new_zeros(3, 12).index_add_(0, batch, h)
        n = h.new_zeros(3).index_add_(0, batch, torch.ones_like(batch, dtype=h.dtype))
        return self.g(s / n.clamp(min=1)[:, None])


class PnaAggregates(nn.Module):
    """Mean, maximum, minimum and deviation of what neighbours say, over degrees of a fixed graph."""

    def __init__(self):
        super().__init__()
        self.register_buffer("src", torch.randint(0, 8, (30,)))
        self.register_buffer("dst", torch.cat([torch.arange(8), torch.randint(0, 8, (22,))]))
        self.pre, self.post = nn.Linear(8, 6), nn.Linear(24, 4)

    def forward(self, x):
        m = self.pre(torch.cat([x[:, self.src], x[:, self.dst]], -1))
        at = self.dst.view(1, -1, 1).expand_as(m)
        zero = x.new_zeros(x.shape[0], 8, 6)
        mean = zero.scatter_reduce(1, at, m, "mean", include_self=False)
        high = zero.scatter_reduce(1, at, m, "amax", include_self=False)
        low = zero.scatter_reduce(1, at, m, "amin", include_self=False)
        sq = zero.scatter_reduce(1, at, m * m, "mean", include_self=False)
        return self.post(torch.cat([mean, high, low, (sq - mean * mean).clamp(min=0).add(1e-5).sqrt()], -1))


class ComplexRotary(nn.Module):
    """Rotary positions as Llama had them first: with complex numbers."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        t = torch.outer(torch.arange(8.0), 1 / 10000 ** (torch.arange(0, 4, 2) / 4))
        self.register_buffer("turns", torch.stack([t.cos(), t.sin()], -1)[None, :, None])

    def turn(self, x):
        z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(z * torch.view_as_complex(self.turns)).flatten(-2)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (f(x).view(b, n, 4, 4) for f in (self.q, self.k, self.v))
        q, k = self.turn(q), self.turn(k)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, n, 16))


class GlobalFilter(nn.Module):
    """GFNet: a filter that learns, in frequencies of two axes."""

    def __init__(self):
        super().__init__()
        self.embed, self.weight = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.randn(8, 5, 8, 2) * 0.2)
        self.norm, self.fc = nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x):
        x = self.embed(x).permute(0, 2, 3, 1)
        z = torch.fft.rfft2(x, dim=(1, 2), norm="ortho") * torch.view_as_complex(self.weight.contiguous())
        x = x + torch.fft.irfft2(z, s=(8, 8), dim=(1, 2), norm="ortho")
        return self.fc(self.norm(x).mean((1, 2)))


class SpectralConv(nn.Module):
    """A layer of an FNO over one axis, with both halves of its complex weights."""

    def __init__(self):
        super().__init__()
        self.lift, self.proj = nn.Linear(2, 8), nn.Linear(8, 1)
        self.re, self.im = nn.Parameter(torch.randn(8, 8, 6) * 0.1), nn.Parameter(torch.randn(8, 8, 6) * 0.1)
        self.w = nn.Conv1d(8, 8, 1)

    def forward(self, x):
        h = self.lift(x).transpose(1, 2)
        z = torch.view_as_real(torch.fft.rfft(h))[:, :, :6]
        a, b = z[..., 0], z[..., 1]
        re = torch.einsum("bix,iox->box", a, self.re) - torch.einsum("bix,iox->box", b, self.im)
        im = torch.einsum("bix,iox->box", a, self.im) + torch.einsum("bix,iox->box", b, self.re)
        z = torch.complex(*(F.pad(t, (0, h.shape[-1] // 2 + 1 - 6)) for t in (re, im)))
        return self.proj(F.gelu(torch.fft.irfft(z, n=h.shape[-1]) + self.w(h)).transpose(1, 2))


class Spectrogram(nn.Module):
    """A front end with torch.stft, decibels, and a small net."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(32))
        self.register_buffer("fb", torch.rand(17, 10))
        self.net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d((5, 1)))
        self.fc = nn.Linear(20, 3)

    def forward(self, x):
        s = torch.stft(x, 32, 16, window=self.window, return_complex=True).abs().pow(2)
        m = 10 * torch.log10(torch.clamp(self.fb.t() @ s, min=1e-10))
        m = torch.maximum(m, m.amax((1, 2), keepdim=True) - 80)
        return self.fc(self.net(m[:, None]).flatten(1))


class Unfolded(nn.Module):
    """Local attention over windows cut out with unfold, put back with fold."""

    def __init__(self):
        super().__init__()
        self.qkv, self.o = nn.Conv2d(4, 12, 1), nn.Conv2d(4, 4, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(x).chunk(3, 1)
        k, v = (F.unfold(t, 3, padding=1).view(b, c, 9, h * w) for t in (k, v))
        a = (q.view(b, c, 1, h * w) * k).sum(1, keepdim=True).softmax(2)
        y = self.o((a * v).sum(2).view(b, c, h, w))
        p = F.unfold(y, 4, stride=2)
        return F.fold(torch.tanh(p), (h, w), 4, stride=2)


class Warped(nn.Module):
    """A volume and a picture moved by fields of displacements (VoxelMorph)."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv3d(2, 6, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv3d(6, 3, 3, padding=1))
        grid = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, n) for n in (4, 6, 8)], indexing="ij"), -1)
        self.register_buffer("grid", grid.flip(-1)[None])

    def forward(self, moving, fixed):
        flow = torch.tanh(self.net(torch.cat([moving, fixed], 1))) * 0.3
        return F.grid_sample(moving, self.grid + flow.permute(0, 2, 3, 4, 1), align_corners=True)


class Resizes(nn.Module):
    """All the ways to resize, added up."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x):
        y = self.conv(x)
        a = F.interpolate(y, scale_factor=1.5, mode="bilinear", align_corners=True)
        n = a.shape[-2:]
        b = F.interpolate(y, n, mode="nearest")
        c = F.interpolate(y, n, mode="bicubic", align_corners=False)
        d = F.interpolate(F.interpolate(y, (5, 6), mode="area"), n, mode="nearest-exact")
        return a + b + c + d + F.interpolate(y, n, mode="bilinear", antialias=True)


class Trilinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.up = nn.Conv3d(1, 4, 3, 2, 1), nn.Conv3d(4, 8, 3, 2, 1), nn.ConvTranspose3d(8, 4, 3, 2, 1, 1)
        self.out, self.pool = nn.Conv3d(8, 2, 1), nn.AdaptiveMaxPool3d((1, 2, 2))

    def forward(self, x):
        a = F.relu(self.a(x))
        b = F.relu(self.b(a))
        y = torch.cat([a, self.up(b)], 1)
        return F.interpolate(self.out(y), scale_factor=2, mode="trilinear", align_corners=False).softmax(1), self.pool(b)


class Ranked(nn.Module):
    """Medians, orders, quantiles."""

    def __init__(self):
        super().__init__()
        self.fc, self.out = nn.Linear(6, 9), nn.Linear(9, 3)

    def forward(self, x):
        h = self.fc(x)
        s, i = torch.sort(h, dim=1)
        r = i.topk(9, 1, largest=False).indices.to(x.dtype) / 8
        t = h.topk(4, 1).values.mean(1, keepdim=True)
        return self.out(s + r) + t + s[:, 4:5]


class Cumulated(nn.Module):
    """Running sums of three kinds."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        h = self.fc(x)
        return torch.cumsum(h, 1) + torch.exp(torch.cumsum(F.logsigmoid(h), 1)) + torch.log(torch.cumsum(torch.exp(h.flip(1)), 1)).flip(1)


class Distances(nn.Module):
    """cdist to prototypes, nearest ones by topk, what is gathered from them."""

    def __init__(self):
        super().__init__()
        self.body, self.protos = nn.Linear(5, 4), nn.Parameter(torch.randn(9, 4))
        self.values = nn.Parameter(torch.randn(9, 3))

    def forward(self, x):
        d = torch.cdist(self.body(x), self.protos)
        near, at = torch.topk(d, 3, dim=-1, largest=False)
        return ((-near).softmax(-1)[..., None] * self.values[at]).sum(1)


class LossInside(nn.Module):
    """Training code that returns its own losses, one for a sample."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.box = nn.Linear(8, 16), nn.Linear(16, 5), nn.Linear(16, 4)

    def forward(self, x, y, box):
        h = torch.relu(self.body(x))
        c = F.cross_entropy(self.head(h), y, reduction="none")
        b = F.smooth_l1_loss(self.box(h), box, reduction="none", beta=0.5).sum(1)
        k = F.kl_div(F.log_softmax(self.head(h) / 2, 1), F.softmax(box.repeat(1, 2)[:, :5], 1), reduction="none").sum(1)
        return (c + b + k).unsqueeze(1)


class FocalDice(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 1, 1))

    def forward(self, x, y):
        z = self.net(x)
        p = torch.sigmoid(z)
        bce = F.binary_cross_entropy_with_logits(z, y, reduction="none")
        pt = torch.where(y > 0.5, p, 1 - p)
        focal = (0.25 * (1 - pt) ** 2 * bce).flatten(1).mean(1)
        dice = 1 - (2 * (p * y).flatten(1).sum(1) + 1) / (p.flatten(1).sum(1) + y.flatten(1).sum(1) + 1)
        return torch.stack([focal, dice], 1)


class ClipLoss(nn.Module):
    """Contrast within a batch: samples meet."""
    one_sample = True

    def __init__(self):
        super().__init__()
        self.a, self.b, self.scale = nn.Linear(6, 8), nn.Linear(7, 8), nn.Parameter(torch.tensor(2.0))

    def forward(self, x, y):
        a, b = F.normalize(self.a(x), dim=-1), F.normalize(self.b(y), dim=-1)
        z = self.scale.exp() * a @ b.t()
        t = torch.arange(z.shape[0])
        return (F.cross_entropy(z, t) + F.cross_entropy(z.t(), t)) / 2


class RawPicture(nn.Module):
    """Bytes as a camera gives them, channels last, normalised inside."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]))
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 4))

    def forward(self, x):
        x = (x.to(self.mean.dtype) / 255 - self.mean) / self.std
        return self.net(x.permute(0, 3, 1, 2))


class MaskedByBool(nn.Module):
    """A mask of truth values for MultiheadAttention, and one for the mean."""

    def __init__(self):
        super().__init__()
        self.att, self.norm, self.fc = nn.MultiheadAttention(12, 3, batch_first=True), nn.LayerNorm(12), nn.Linear(12, 4)

    def forward(self, x, pad):
        y, w = self.att(x, x, x, key_padding_mask=pad, need_weights=True)
        y = self.norm(x + y).masked_fill(pad[..., None], 0)
        return self.fc(y.sum(1) / (~pad).sum(1, keepdim=True)), w


class Branching(nn.Module):
    """torch.cond on a number of the data."""
    one_sample = True

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda v: torch.relu(self.a(v)), lambda v: torch.tanh(self.b(v)), (x,))


class Bags(nn.Module):
    """Embedding bags of all modes, with weights of words."""

    def __init__(self):
        super().__init__()
        self.s, self.m, self.x = (nn.EmbeddingBag(30, 6, mode=k) for k in ("sum", "mean", "max"))
        self.fc = nn.Linear(18, 2)

    def forward(self, ids, w):
        return self.fc(torch.cat([self.s(ids, per_sample_weights=w), self.m(ids), self.x(ids)], 1))


class Stacked(nn.Module):
    """LSTM, then a GRU both ways, then one of cells by hand."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.LSTM(5, 6, 2, batch_first=True), nn.GRU(6, 7, 2, bidirectional=True, batch_first=True)
        self.cell, self.out = nn.LSTMCell(14, 8), nn.Linear(8, 2)

    def forward(self, x):
        y, _ = self.b(self.a(x)[0])
        h = c = x.new_zeros(x.shape[0], 8)
        for t in range(y.shape[1]):
            h, c = self.cell(y[:, t], (h, c))
        return self.out(h)


class CachedDecoder(nn.Module):
    """One step of a decoder with the keys and values of those before, and what they are after it."""

    def __init__(self):
        super().__init__()
        self.emb, self.qkv, self.o, self.head = nn.Embedding(40, 16), nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 40)

    def forward(self, ids, past_k, past_v):
        x = self.emb(ids)
        b, n, _ = x.shape
        q, k, v = (t.view(b, n, 4, 4).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        p = past_k.shape[2]
        mask = torch.ones(n, n + p, dtype=torch.bool).tril(p)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.head(x + self.o(y.transpose(1, 2).reshape(b, n, 16))), k, v


class StaticCache(nn.Module):
    """A cache of fixed size, written at a place that the data give."""

    def __init__(self):
        super().__init__()
        self.qkv, self.o = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x, cache, pos):
        q, k, v = self.qkv(x).chunk(3, -1)
        at = pos[:, :, None].expand(-1, -1, 8)
        keys, values = cache[:, 0].scatter(1, at, k), cache[:, 1].scatter(1, at, v)
        seen = torch.arange(6)[None] <= pos
        a = (q @ keys.transpose(1, 2) / math.sqrt(8)).masked_fill(~seen[:, None], -torch.inf).softmax(-1)
        return self.o(a @ values), torch.stack([keys, values], 1)


class BatchStatistics(nn.Module):
    """A norm that keeps no averages: at inference, too, it takes those of its batch."""
    one_sample = True

    def __init__(self):
        super().__init__()
        self.c, self.n, self.fc = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, track_running_stats=False), nn.Linear(6, 2)

    def forward(self, x):
        return self.fc(F.relu(self.n(self.c(x))).mean((2, 3)))


class Special(nn.Module):
    """Functions from far back in the manual."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        h = torch.tanh(self.fc(x))
        a = torch.atan2(h, x) + torch.logaddexp(h, x) + torch.expm1(h) + torch.log1p(h.abs())
        b = torch.frac(x) + torch.trunc(x) + torch.fmod(x, 0.7) + torch.remainder(x, 0.7) + torch.lerp(h, x, 0.3)
        c = torch.nan_to_num(h / h.relu()) .clamp(-5, 5) + torch.sinc(x) + torch.erfc(x) + torch.exp2(h) + torch.square(x)
        return a + b + c + torch.addcmul(h, x, x, value=0.5) + torch.copysign(h, x) + torch.heaviside(x, h) + x.sign() * torch.rsqrt(x.abs() + 1)


class Hashed(nn.Module):
    """Integers that are hashed into tables, and bits of them."""

    def __init__(self):
        super().__init__()
        self.tables, self.fc = nn.ModuleList(nn.Embedding(32, 4) for _ in range(2)), nn.Linear(12, 3)

    def forward(self, x):
        h = [t((x * p + 7) % 32) for t, p in zip(self.tables, (31, 2654435761))]
        bits = torch.remainder(x[..., None] // 2 ** torch.arange(4), 2).to(h[0].dtype)
        return self.fc(torch.cat(h + [bits], -1).mean(1)), torch.div(x, 7, rounding_mode="floor"), torch.fmod(x - 10, 4)


class Histograms(nn.Module):
    """Soft and hard bins, quantile bins by searching a table."""

    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.linspace(-2, 2, 9))
        self.emb, self.fc = nn.Embedding(10, 4), nn.Linear(4 + 9, 2)

    def forward(self, x):
        at = torch.bucketize(x, self.edges)
        soft = torch.exp(-(x[..., None] - self.edges) ** 2).mean(1)
        return self.fc(torch.cat([self.emb(at).mean(1), soft], 1)), F.one_hot(at, 10).sum(1)


class Selected(nn.Module):
    """Rows chosen by truth values: how many, the data say."""
    one_sample = True

    def __init__(self):
        super().__init__()
        self.f = nn.Linear(4, 5)

    def forward(self, x):
        h = self.f(x)
        return h[h[:, 0] > 0], torch.nonzero(h[:, 1] > 0).squeeze(1)


class DictOfOutputs(nn.Module):
    """Names for what comes out, with a tuple and None among them."""

    def __init__(self):
        super().__init__()
        self.body, self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 2)

    def forward(self, x, y=None):
        h = torch.relu(self.body(x))
        return self.a(h), None, self.b(h) if y is None else self.b(h) + y


class Padded(nn.Module):
    """All kinds of padding, in one, two and three axes."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv1d(3, 4, 3, padding=2, padding_mode="replicate"), nn.Conv2d(4, 4, 3, padding=(1, 2), padding_mode="reflect")
        self.c = nn.Conv3d(1, 2, 3, padding=1, padding_mode="circular")

    def forward(self, x):
        y = self.b(self.a(x)[:, :, None].expand(-1, -1, 5, -1))
        z = self.c(F.pad(y, (1, 0, 0, 2), value=0.5)[:, None])
        return F.pad(z, (-1, -1, 2, 0), mode="constant")


class MaxUnpooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 1, 3, padding=1)
        self.pool, self.un = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

    def forward(self, x):
        y, i = self.pool(F.relu(self.a(x)))
        return self.b(self.un(y * 2, i))


class Rotations(nn.Module):
    """Six numbers to rotations, joints one after another (forward kinematics)."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(10, 4 * 6)
        self.register_buffer("offsets", torch.randn(4, 3))

    def forward(self, x):
        d = self.fc(x).view(-1, 4, 6)
        a = F.normalize(d[..., :3], dim=-1)
        b = F.normalize(d[..., 3:] - (a * d[..., 3:]).sum(-1, keepdim=True) * a, dim=-1)
        r = torch.stack([a, b, torch.cross(a, b, dim=-1)], -1)
        places, at, turn = [], x.new_zeros(x.shape[0], 3), r[:, 0]
        for j in range(4):
            at = at + (turn @ self.offsets[j][:, None]).squeeze(-1)
            turn = turn @ r[:, j]
            places.append(at)
        return torch.stack(places, 1)


class Volumes(nn.Module):
    """Densities along rays put together (NeRF's renderer), with sorted depths."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, o, d):
        t = torch.linspace(0.5, 2, 12, dtype=o.dtype)
        z = self.net(o[:, None] + d[:, None] * t[:, None])
        sigma, rgb = F.softplus(z[..., 0]), torch.sigmoid(z[..., 1:])
        delta = torch.cat([t[1:] - t[:-1], torch.ones(1, dtype=t.dtype)])
        alpha = 1 - torch.exp(-sigma * delta)
        trans = torch.exp(-torch.cumsum(F.pad(sigma * delta, (1, 0)), 1))[:, :-1]
        w = alpha * trans
        return (w[..., None] * rgb).sum(1), (w * t).sum(1)


class Windows3d(nn.Module):
    """Shifted windows of a volume, with a mask that is computed from indices."""

    def __init__(self):
        super().__init__()
        self.qkv, self.o = nn.Linear(8, 24), nn.Linear(8, 8)
        self.table = nn.Parameter(torch.randn(27, 2) * 0.1)
        c = torch.stack(torch.meshgrid(*[torch.arange(2)] * 3, indexing="ij")).flatten(1)
        r = (c[:, :, None] - c[:, None]).permute(1, 2, 0) + 1
        self.register_buffer("index", (r[..., 0] * 9 + r[..., 1] * 3 + r[..., 2]).flatten())

    def forward(self, x):
        b, d, h, w, c = x.shape
        x = torch.roll(x, (-1, -1, -1), (1, 2, 3))
        x = x.view(b, d // 2, 2, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 5, 2, 4, 6, 7).reshape(-1, 8, c)
        q, k, v = self.qkv(x).reshape(-1, 8, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.table[self.index].view(8, 8, 2).permute(2, 0, 1)
        y = (q @ k.transpose(-2, -1) * 0.5 + bias).softmax(-1) @ v
        y = self.o(y.transpose(1, 2).reshape(-1, 8, c))
        y = y.view(b, d // 2, h // 2, w // 2, 2, 2, 2, c).permute(0, 1, 4, 2, 5, 3, 6, 7).reshape(b, d, h, w, c)
        return torch.roll(y, (1, 1, 1), (1, 2, 3))


class Greedy(nn.Module):
    """A decoder that reads its own words, for five steps."""

    def __init__(self):
        super().__init__()
        self.emb, self.cell, self.out = nn.Embedding(20, 8), nn.GRUCell(8, 8), nn.Linear(8, 20)

    def forward(self, h):
        word, said = torch.zeros(h.shape[0], dtype=torch.int64), []
        for _ in range(5):
            h = self.cell(self.emb(word), h)
            word = self.out(h).argmax(-1)
            said.append(word)
        return torch.stack(said, 1)


class Viterbi(nn.Module):
    """The best path, backwards through what was noted."""

    def __init__(self):
        super().__init__()
        self.emit, self.trans = nn.Linear(6, 4), nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        e, notes = self.emit(x), []
        s = e[:, 0]
        for t in range(1, x.shape[1]):
            s, at = (s[:, :, None] + self.trans).max(1)
            s = s + e[:, t]
            notes.append(at)
        best = [s.argmax(1)]
        for at in reversed(notes):
            best.append(at.gather(1, best[-1][:, None]).squeeze(1))
        return torch.stack(best[::-1], 1), s.max(1).values


class Inverse(nn.Module):
    """A 1x1 convolution that is inverted, and log of a determinant."""

    def __init__(self):
        super().__init__()
        self.w, self.fc = nn.Parameter(torch.eye(3) + 0.1 * torch.randn(3, 3)), nn.Linear(3, 3)

    def forward(self, x):
        z = x @ self.w.t()
        return torch.tanh(self.fc(z)) + torch.linalg.det(self.w).abs().log()


class Swapped(nn.Module):
    """What is written in place, by slices, indices and masks."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 8)

    def forward(self, x):
        y = self.fc(x)
        z = y.clone()
        z[:, ::2] = y[:, 1::2] * 2
        z[:, -1] = 1.5
        z[:, [1, 3]] += y[:, :2]
        z[z > 2] = 2
        out = torch.zeros(x.shape[0], 3, 8, dtype=x.dtype)
        out[:, 1] = z
        out[:, 2, 2:5] = y[:, 5:]
        return out


class TwoStreams(nn.Module):
    """A picture, a text of bytes, a table with missing numbers."""

    def __init__(self):
        super().__init__()
        self.conv, self.emb, self.tab = nn.Conv2d(1, 4, 3, 2), nn.Embedding(256, 6), nn.Linear(10, 6)
        self.gru, self.fc = nn.GRU(6, 6, batch_first=True), nn.Bilinear(16, 4, 3)

    def forward(self, image, text, table):
        a = torch.relu(self.conv(image)).amax((2, 3))
        b = self.gru(self.emb(text.to(torch.int64)))[0].mean(1)
        miss = table > 1
        t = self.tab(torch.cat([torch.where(miss, 0, table), miss.to(table.dtype)], 1))
        return self.fc(torch.cat([t, b, a], 1), a)


def bytes_(*shape):
    return lambda: torch.randint(0, 256, shape, dtype=torch.uint8)


def padding(n):
    return lambda: torch.arange(n)[None] >= torch.tensor([[n], [n - 2]])


def bits(*shape):
    return lambda: torch.randint(0, 2, shape).float()


ALL = {
    "brought_segment_gat": own(SegmentGat, floats(2, 7, 5)),
    "brought_pooled_graphs": own(MeanPooledGraphs, floats(10, 6), picks(2, 20, high=10), lambda: torch.arange(10) // 4),
    "brought_pna": own(PnaAggregates, floats(2, 8, 4)), "brought_complex_rotary": own(ComplexRotary, floats(2, 8, 16)),
    "brought_global_filter": own(GlobalFilter, floats(2, 3, 32, 32)), "brought_spectral_conv": own(SpectralConv, floats(2, 24, 2), lengths=[1]),
    "brought_spectrogram": own(Spectrogram, floats(2, 320), lengths=[1]), "brought_unfolded": own(Unfolded, floats(2, 4, 8, 8), lengths=[2]),
    "brought_warped": own(Warped, floats(2, 1, 4, 6, 8), floats(2, 1, 4, 6, 8)), "brought_resizes": own(Resizes, floats(2, 3, 10, 12), lengths=[3]),
    "brought_trilinear": own(Trilinear, floats(2, 1, 8, 8, 8)), "brought_ranked": own(Ranked, floats(2, 6)),
    "brought_cumulated": own(Cumulated, floats(2, 7, 4), lengths=[1]), "brought_distances": own(Distances, floats(2, 5)),
    "brought_loss_inside": own(LossInside, floats(2, 8), picks(2, high=5), floats(2, 4)),
    "brought_focal_dice": own(FocalDice, floats(2, 1, 8, 8), bits(2, 1, 8, 8)), "brought_clip_loss": own(ClipLoss, floats(4, 6), floats(4, 7)),
    "brought_raw_picture": own(RawPicture, bytes_(2, 16, 16, 3)), "brought_bool_mask": own(MaskedByBool, floats(2, 6, 12), padding(6), lengths=[1, 1]),
    "brought_branching": own(Branching, floats(2, 6)), "brought_bags": own(Bags, picks(2, 7), floats(2, 7), lengths=[1, 1]),
    "brought_stacked": own(Stacked, floats(2, 6, 5)),
    "brought_cached": own(CachedDecoder, picks(2, 1), floats(2, 4, 5, 4), floats(2, 4, 5, 4), lengths=[None, 2, 2]),
    "brought_static_cache": own(StaticCache, floats(2, 1, 8), floats(2, 2, 6, 8), lambda: torch.tensor([[2], [4]])),
    "brought_batch_statistics": own(BatchStatistics, floats(2, 3, 8, 8)), "brought_special": own(Special, floats(2, 6)),
    "brought_hashed": own(Hashed, picks(2, 5), lengths=[1]), "brought_histograms": own(Histograms, floats(2, 12), lengths=[1]),
    "brought_selected": own(Selected, floats(12, 4)), "brought_dict": own(DictOfOutputs, floats(2, 6)),
    "brought_padded": own(Padded, floats(2, 3, 9), lengths=[2]), "brought_unpooled": own(MaxUnpooled, floats(2, 1, 8, 8), lengths=[2]),
    "brought_rotations": own(Rotations, floats(2, 10)), "brought_volumes": own(Volumes, floats(2, 3), floats(2, 3)),
    "brought_windows3d": own(Windows3d, floats(2, 4, 4, 4, 8)),
    "brought_greedy": own(Greedy, floats(2, 8)), "brought_viterbi": own(Viterbi, floats(2, 6, 6)),
    "brought_inverse": own(Inverse, floats(2, 3)), "brought_swapped": own(Swapped, floats(2, 6)),
    "brought_streams": own(TwoStreams, floats(2, 1, 9, 9), bytes_(2, 8), floats(2, 5), lengths=[None, 1, None]),
}
