"""Architectures of papers, written here with plain PyTorch as their readers would, for sweep.py."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from arch_plain import floats, kinds, own
from arch_sequences import words


class Kan(nn.Module):
    """Splines on the edges (Kolmogorov and Arnold)."""

    def __init__(self, n_in=4, n_out=3, cells=5, order=3):
        super().__init__()
        self.order = order
        grid = torch.arange(-order, cells + order + 1).float() / cells * 2 - 1
        self.register_buffer("grid", grid.expand(n_in, -1).contiguous())
        self.base = nn.Parameter(0.3 * torch.randn(n_out, n_in))
        self.splines = nn.Parameter(0.1 * torch.randn(n_out, n_in, cells + order))

    def forward(self, x):
        g, u = self.grid, x.unsqueeze(-1)
        b = ((u >= g[:, :-1]) & (u < g[:, 1:])).to(x.dtype)
        for k in range(1, self.order + 1):
            b = (u - g[:, :-(k + 1)]) / (g[:, k:-1] - g[:, :-(k + 1)]) * b[..., :-1] + \
                (g[:, k + 1:] - u) / (g[:, k + 1:] - g[:, 1:-k]) * b[..., 1:]
        return F.linear(F.silu(x), self.base) + torch.einsum("bik,oik->bo", b, self.splines)


class FourierLayer(nn.Module):
    """The first waves of a signal, each with weights of its own: a neural operator."""

    def __init__(self, width=8, waves=5):
        super().__init__()
        self.waves, self.lift, self.mix = waves, nn.Conv1d(1, width, 1), nn.Conv1d(width, width, 1)
        self.real = nn.Parameter(torch.randn(width, width, waves) / width)
        self.imag = nn.Parameter(torch.randn(width, width, waves) / width)
        self.head = nn.Conv1d(width, 1, 1)

    def forward(self, x):
        x = self.lift(x)
        s = torch.view_as_real(torch.fft.rfft(x))[:, :, :self.waves]
        a, b = s[..., 0], s[..., 1]
        re = torch.einsum("bik,iok->bok", a, self.real) - torch.einsum("bik,iok->bok", b, self.imag)
        im = torch.einsum("bik,iok->bok", a, self.imag) + torch.einsum("bik,iok->bok", b, self.real)
        t = torch.arange(x.shape[-1], dtype=x.dtype) * (2 * math.pi / x.shape[-1])
        w = t * torch.arange(self.waves, dtype=x.dtype)[:, None]
        y = 2 * (re @ w.cos() - im @ w.sin()) / x.shape[-1]
        return self.head(F.gelu(y + self.mix(x)))


class Realnvp(nn.Module):
    """Masked couplings; also the logarithm of the determinant."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.tensor([[0, 1, 0, 1, 0, 1], [1, 0, 1, 0, 1, 0.]]))
        self.s = nn.ModuleList(nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(), nn.Linear(16, 6), nn.Tanh()) for _ in range(2))
        self.t = nn.ModuleList(nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(), nn.Linear(16, 6)) for _ in range(2))

    def forward(self, x):
        total = x.new_zeros(x.shape[0])
        for i in range(2):
            m = self.mask[i]
            s = self.s[i](x * m) * (1 - m)
            x, total = x * m + (1 - m) * (x * s.exp() + self.t[i](x * m)), total + s.sum(1)
        return x, total


class Glow(nn.Module):
    """A step: norms by the data, a 1x1 convolution that can be inverted, a coupling."""

    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.rand(1, 12, 1, 1) + 0.5), nn.Parameter(torch.randn(1, 12, 1, 1))
        self.mix = nn.Parameter(torch.linalg.qr(torch.randn(12, 12))[0])
        self.net = nn.Sequential(nn.Conv2d(6, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 12, 3, padding=1))

    def forward(self, x):
        x = F.pixel_unshuffle(x, 2) * self.scale + self.shift
        a, b = F.conv2d(x, self.mix[:, :, None, None]).chunk(2, 1)
        s, t = self.net(a).chunk(2, 1)
        return torch.cat([a, b * torch.sigmoid(s + 2) + t], 1)


class Cbam(nn.Module):
    """Attention to channels, then to places."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.fc = nn.Sequential(nn.Conv2d(16, 4, 1, bias=False), nn.ReLU(), nn.Conv2d(4, 16, 1, bias=False))
        self.where, self.head = nn.Conv2d(2, 1, 7, padding=3, bias=False), nn.Linear(16, 5)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)))
        x = x * torch.sigmoid(self.fc(F.adaptive_avg_pool2d(x, 1)) + self.fc(F.adaptive_max_pool2d(x, 1)))
        x = x * torch.sigmoid(self.where(torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)))
        return self.head(x.mean((2, 3)))


class DeepFm(nn.Module):
    """One table for all fields, each from its own row on; pairs by a square of sums."""

    def __init__(self):
        super().__init__()
        self.table, self.line = nn.Embedding(80, 6), nn.Embedding(80, 1)
        self.bias = nn.Parameter(torch.zeros(1))
        self.register_buffer("offsets", torch.tensor([0, 20, 50]))
        self.mlp = nn.Sequential(nn.Linear(18, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))

    def forward(self, kinds):
        at = kinds + self.offsets
        e = self.table(at)
        pairs = 0.5 * (e.sum(1).pow(2) - e.pow(2).sum(1)).sum(1, keepdim=True)
        return torch.sigmoid(self.line(at).sum(1) + self.bias + pairs + self.mlp(e.flatten(1)))


class FtTransformer(nn.Module):
    """A table: each number times a vector of its own, a token for the class, then attention."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(10, 16) * 0.3), nn.Parameter(torch.randn(10, 16) * 0.3)
        self.cls = nn.Parameter(torch.randn(16) * 0.3)
        self.tables = nn.ModuleList(nn.Embedding(20, 16) for _ in range(3))
        self.net = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", norm_first=True, batch_first=True, dropout=0.0)
        self.head = nn.Sequential(nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, numbers, kinds):
        x = numbers[..., None] * self.weight + self.bias
        k = torch.stack([t(kinds[:, i]) for i, t in enumerate(self.tables)], 1)
        return self.head(self.net(torch.cat([self.cls.expand(len(x), 1, -1), x, k], 1))[:, 0])


class TabNet(nn.Module):
    """Steps of attention to columns by sparsemax."""

    def __init__(self):
        super().__init__()
        self.norm, self.att = nn.BatchNorm1d(10), nn.ModuleList(nn.Linear(8, 10) for _ in range(2))
        self.feat = nn.ModuleList(nn.Linear(10, 32) for _ in range(3))
        self.head = nn.Linear(8, 3)

    def sparsemax(self, z):
        s = z.sort(-1, descending=True).values
        k = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype)
        in_it = 1 + k * s > s.cumsum(-1)
        n = in_it.sum(-1, keepdim=True)
        tau = ((s * in_it).sum(-1, keepdim=True) - 1) / n
        return F.relu(z - tau)

    def forward(self, x):
        x = self.norm(x)
        h, prior, out = F.glu(self.feat[0](x))[:, 8:], 1, 0
        for att, feat in zip(self.att, self.feat[1:]):
            m = self.sparsemax(att(h) * prior)
            prior = prior * (1.3 - m)
            d, h = F.glu(feat(m * x)).chunk(2, -1)
            out = out + F.relu(d)
        return self.head(out)


class GraphAttention(nn.Module):
    """Of a matrix of neighbours: all others are masked."""

    def __init__(self):
        super().__init__()
        self.w, self.a = nn.Linear(6, 24, bias=False), nn.Parameter(torch.randn(3, 16) * 0.3)
        self.head = nn.Linear(24, 4)

    def forward(self, x, near):
        h = self.w(x).unflatten(-1, (3, 8))
        left, right = (h * self.a[:, :8]).sum(-1), (h * self.a[:, 8:]).sum(-1)
        e = F.leaky_relu(left[:, :, None] + right[:, None], 0.2)
        e = e.masked_fill((near + torch.eye(x.shape[1]) == 0)[..., None], -1e9).softmax(2)
        return self.head(F.elu(torch.einsum("bijh,bjhd->bihd", e, h)).flatten(2))


class NeuralOde(nn.Module):
    """Four steps of Runge and Kutta with a layer that knows the time."""

    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(7, 16), nn.Tanh(), nn.Linear(16, 6))

    def forward(self, x):
        def f(t, y):
            return self.f(torch.cat([y, torch.full_like(y[:, :1], t)], 1))
        h = 0.25
        for i in range(4):
            k1 = f(i * h, x)
            k2 = f(i * h + h / 2, x + h / 2 * k1)
            k3 = f(i * h + h / 2, x + h / 2 * k2)
            k4 = f(i * h + h, x + h * k3)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return x


class HyperNetwork(nn.Module):
    """The weights of a layer are what another says."""

    def __init__(self):
        super().__init__()
        self.made, self.scale = nn.Linear(5, 8 * 4 + 4), nn.Parameter(torch.tensor(0.7))

    def forward(self, x, z):
        w, b = self.made(z).split([32, 4], -1)
        return torch.baddbmm(b[:, None], x, w.view(-1, 8, 4)) * self.scale


class Siren(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 24), nn.Linear(24, 24)])
        self.last = nn.Linear(24, 3)
        for m in self.layers:
            nn.init.uniform_(m.weight, -0.05, 0.05)

    def forward(self, x):
        for m in self.layers:
            x = torch.sin(30 * m(x))
        return self.last(x)


class SetTransformer(nn.Module):
    """Points that were learned ask a set."""

    def __init__(self):
        super().__init__()
        self.points, self.seed = nn.Parameter(torch.randn(1, 4, 16)), nn.Parameter(torch.randn(1, 1, 16))
        self.up = nn.Linear(3, 16)
        self.a, self.b, self.c = (nn.MultiheadAttention(16, 2, batch_first=True) for _ in range(3))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        x = self.up(x)
        h = self.a(self.points.repeat(x.shape[0], 1, 1), x, x)[0]
        x = x + self.b(x, h, h)[0]
        return self.head(self.c(self.seed.expand(x.shape[0], -1, -1), x, x)[0].squeeze(1))


class ConvLstmCells(nn.Module):
    """Pictures over time."""

    def __init__(self):
        super().__init__()
        self.gates, self.head = nn.Conv2d(1 + 8, 32, 3, padding=1), nn.Conv2d(8, 1, 1)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 8, *x.shape[3:])
        c = torch.zeros_like(h)
        for t in range(x.shape[1]):
            i, f, o, g = self.gates(torch.cat([x[:, t], h], 1)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return self.head(h)


class AttentionUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()), nn.Conv2d(8, 16, 3, padding=1)
        self.up = nn.ConvTranspose2d(16, 8, 3, 2, 1, 1)
        self.wg, self.wx, self.psi = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 4, 1), nn.Conv2d(4, 1, 1)
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        a = self.a(x)
        g = self.up(F.relu(self.b(F.avg_pool2d(a, 2))))
        w = torch.sigmoid(self.psi(F.relu(self.wg(g) + self.wx(a))))
        return self.head(torch.cat([a * w, g], 1))


class Edsr(nn.Module):
    """Without norms, with a mean of colours that is taken away and put back."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4488, 0.4371, 0.4040]).view(1, 3, 1, 1))
        self.head, self.tail = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(4, 3, 3, padding=1)
        self.body = nn.ModuleList(nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(True), nn.Conv2d(16, 16, 3, padding=1)) for _ in range(2))

    def forward(self, x):
        x = self.head(x - self.mean)
        y = x
        for f in self.body:
            y = y + 0.1 * f(y)
        return self.tail(F.pixel_shuffle(x + y, 2)) + self.mean


class YoloHead(nn.Module):
    """Boxes of a grid, decoded."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.SiLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.SiLU())
        self.head = nn.Conv2d(32, 3 * 9, 1)
        self.register_buffer("anchors", torch.tensor([[10, 13], [16, 30], [33, 23.]]))

    def forward(self, x):
        y = self.head(self.net(x))
        b, _, h, w = y.shape
        y = y.view(b, 3, 9, h, w).permute(0, 1, 3, 4, 2).sigmoid()
        gy, gx = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        xy = (y[..., :2] * 2 - 0.5 + torch.stack([gx, gy], -1).to(y.dtype)) * 4
        wh = (y[..., 2:4] * 2) ** 2 * self.anchors[:, None, None]
        return torch.cat([xy, wh, y[..., 4:]], -1).view(b, -1, 9)


class VqVae(nn.Module):
    """The nearest of some vectors, with a gradient that goes straight on."""

    def __init__(self):
        super().__init__()
        self.enc, self.book = nn.Conv2d(1, 8, 4, 2, 1), nn.Embedding(16, 8)
        self.dec = nn.ConvTranspose2d(8, 1, 4, 2, 1)

    def forward(self, x):
        z = self.enc(x).permute(0, 2, 3, 1)
        d = z.pow(2).sum(-1, keepdim=True) - 2 * z @ self.book.weight.t() + self.book.weight.pow(2).sum(1)
        q = self.book(d.argmin(-1))
        return self.dec((z + (q - z).detach()).permute(0, 3, 1, 2))


class Dueling(nn.Module):
    """Q of a state and its actions."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(4, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 16, 4, 2), nn.ReLU(), nn.Flatten())
        self.value, self.gain = nn.Linear(144, 1), nn.Linear(144, 5)

    def forward(self, x):
        h = self.net(x / 255.0)
        a = self.gain(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


class SpatialTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.where = nn.Sequential(nn.Conv2d(1, 4, 7), nn.MaxPool2d(2, 2), nn.ReLU(True), nn.Flatten(), nn.Linear(4 * 121, 6))
        nn.init.normal_(self.where[-1].weight, 0, 0.01)
        self.where[-1].bias.data.copy_(torch.tensor([1, 0.01, 0.02, 0.03, 0.9, 0.01]))
        self.net = nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(96, 4))

    def forward(self, x):
        at = F.affine_grid(self.where(x).view(-1, 2, 3), x.size(), align_corners=False)
        return self.net(F.grid_sample(x, at, align_corners=False))


class ArcFace(nn.Module):
    """Angles to the weights of classes."""

    def __init__(self):
        super().__init__()
        self.net, self.weight = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.PReLU()), nn.Parameter(torch.randn(5, 16))

    def forward(self, x):
        return 16 * F.linear(F.normalize(self.net(x)), F.normalize(self.weight))


class Lora(nn.Module):
    """A weight that is fixed, and two thin ones that learn."""

    def __init__(self):
        super().__init__()
        self.base, self.head = nn.Linear(16, 16), nn.Linear(16, 3)
        self.a, self.b = nn.Parameter(torch.randn(4, 16) * 0.2), nn.Parameter(torch.randn(16, 4) * 0.2)

    def forward(self, x):
        return self.head(F.relu(self.base(x) + (x @ self.a.t() @ self.b.t()) * (8 / 4)))


class MaskedConv(nn.Conv2d):
    def __init__(self, kind, *args, **more):
        super().__init__(*args, **more)
        self.register_buffer("mask", torch.ones_like(self.weight))
        h, w = self.weight.shape[2:]
        self.mask[:, :, h // 2, w // 2 + (kind == "B"):] = 0
        self.mask[:, :, h // 2 + 1:] = 0

    def forward(self, x):
        return F.conv2d(x, self.weight * self.mask, self.bias, self.stride, self.padding)


def pixel_cnn():
    return nn.Sequential(MaskedConv("A", 1, 8, 7, padding=3), nn.ReLU(), MaskedConv("B", 8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))


class StandardConv(nn.Conv2d):
    """Weights without mean and spread."""

    def forward(self, x):
        w = self.weight
        w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(x, w, self.bias, self.stride, self.padding)


def standardised():
    return nn.Sequential(StandardConv(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), StandardConv(16, 16, 3, 2, 1),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3))


class StyleGan(nn.Module):
    """Weights of a convolution scaled by a style, for each sample: all in one with groups."""

    def __init__(self):
        super().__init__()
        self.start, self.style = nn.Parameter(torch.randn(1, 16, 4, 4)), nn.Linear(8, 16)
        self.weight, self.bias, self.noise = nn.Parameter(torch.randn(8, 16, 3, 3)), nn.Parameter(torch.zeros(8)), nn.Parameter(torch.zeros(1))
        self.rgb = nn.Conv2d(8, 3, 1)

    def forward(self, z):
        s, b = self.style(F.leaky_relu(z * torch.rsqrt(z.pow(2).mean(1, keepdim=True) + 1e-8), 0.2)) + 1, z.shape[0]
        w = self.weight[None] * s[:, None, :, None, None]
        w = w * torch.rsqrt(w.pow(2).sum((2, 3, 4), keepdim=True) + 1e-8)
        x = F.interpolate(self.start.repeat(b, 1, 1, 1), scale_factor=2, mode="bilinear", align_corners=False)
        x = F.conv2d(x.reshape(1, -1, 8, 8), w.reshape(-1, 16, 3, 3), padding=1, groups=b).view(b, 8, 8, 8)
        return self.rgb(F.leaky_relu(x + self.bias.view(1, -1, 1, 1), 0.2))


class Involution(nn.Module):
    """A kernel for each place, made of what is there."""

    def __init__(self):
        super().__init__()
        self.conv, self.kernel, self.head = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 9 * 2, 1), nn.Linear(16, 4)

    def forward(self, x):
        x = F.relu(self.conv(x))
        b, c, h, w = x.shape
        k = self.kernel(x).view(b, 2, 1, 9, h, w)
        p = F.unfold(x, 3, padding=1).view(b, 2, c // 2, 9, h, w)
        return self.head((k * p).sum(3).view(b, c, h, w).mean((2, 3)))


class NetVlad(nn.Module):
    """Differences to centres, weighted; and a mean of powers."""

    def __init__(self):
        super().__init__()
        self.conv, self.which, self.centres = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 4, 1, bias=False), nn.Parameter(torch.rand(4, 8))
        self.p, self.head = nn.Parameter(torch.ones(1) * 3), nn.Linear(40, 4)

    def forward(self, x):
        x = F.normalize(self.conv(x), dim=1)
        a, f = self.which(x).flatten(2).softmax(1), x.flatten(2)
        v = torch.einsum("bkn,bcn->bkc", a, f) - a.sum(-1, keepdim=True) * self.centres
        g = F.avg_pool2d(x.clamp(min=1e-6).pow(self.p), x.shape[-2:]).pow(1.0 / self.p).flatten(1)
        return self.head(torch.cat([F.normalize(F.normalize(v, dim=2).flatten(1)), g], 1))


class EdgeConv(nn.Module):
    """The nearest points of each, and what differs."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Conv2d(6, 16, 1, bias=False), nn.BatchNorm2d(16), nn.Linear(16, 4)

    def forward(self, x):
        d = torch.cdist(x, x)
        at = d.topk(4, -1, largest=False).indices
        near = torch.gather(x[:, None].expand(-1, x.shape[1], -1, -1), 2, at[..., None].expand(-1, -1, -1, 3))
        me = x[:, :, None].expand_as(near)
        h = F.leaky_relu(self.b(self.a(torch.cat([near - me, me], -1).permute(0, 3, 1, 2))), 0.2)
        return self.head(h.amax(-1).mean(-1))


class SchNet(nn.Module):
    """Atoms: filters made of distances."""

    def __init__(self):
        super().__init__()
        self.atoms, self.filter = nn.Embedding(20, 16), nn.Sequential(nn.Linear(10, 16), nn.Softplus(), nn.Linear(16, 16))
        self.inp, self.out = nn.Linear(16, 16, bias=False), nn.Sequential(nn.Linear(16, 8), nn.Softplus(), nn.Linear(8, 1))
        self.register_buffer("centers", torch.linspace(0, 4, 10))

    def forward(self, kinds, places):
        x = self.atoms(kinds)
        d = (places[:, :, None] - places[:, None]).pow(2).sum(-1).add(1e-6).sqrt()
        w = self.filter(torch.exp(-2 * (d[..., None] - self.centers) ** 2)) * (0.5 * (torch.cos(d * 0.6) + 1))[..., None]
        x = x + (w * self.inp(x)[:, None]).sum(2)
        return self.out(x).sum(1)


class AdaIn(nn.Module):
    """The statistics of a style on what a content is."""

    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Conv2d(3, 8, 3, padding=1), nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(8, 3, 3))

    def forward(self, a, b):
        a, b = F.relu(self.enc(a)), F.relu(self.enc(b))
        var_a, mean_a = torch.var_mean(a, (2, 3), keepdim=True)
        var_b, mean_b = torch.var_mean(b, (2, 3), keepdim=True)
        return self.dec((a - mean_a) / (var_a + 1e-5).sqrt() * (var_b + 1e-5).sqrt() + mean_b)


class MixtureDensity(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.pi, self.mu, self.s = nn.Sequential(nn.Linear(5, 16), nn.Tanh()), nn.Linear(16, 3), nn.Linear(16, 3), nn.Linear(16, 3)

    def forward(self, x, y):
        h = self.net(x)
        s = F.softplus(self.s(h)) + 1e-3
        p = -0.5 * ((y - self.mu(h)) / s) ** 2 - s.log() - 0.5 * math.log(2 * math.pi)
        return torch.logsumexp(F.log_softmax(self.pi(h), -1) + p, -1)


class NeuralAdditive(nn.Module):
    """A net for each column, all at once by grouped convolutions."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.bias = nn.Conv1d(10, 80, 1, groups=10), nn.Conv1d(80, 10, 1, groups=10), nn.Parameter(torch.zeros(1))

    def forward(self, x):
        y = self.b(F.relu6(self.a(x.unsqueeze(-1)))).squeeze(-1)
        return y.sum(1, keepdim=True) + self.bias


def near():
    return (torch.rand(2, 9, 9) > 0.6).float()


ALL = {
    "kan": own(Kan, lambda: torch.rand(2, 4) * 1.8 - 0.9), "fourier_operator": own(FourierLayer, floats(2, 1, 32)),
    "realnvp": own(Realnvp, floats(2, 6)), "glow": own(Glow, floats(2, 3, 8, 8)),
    "cbam": own(Cbam, floats(2, 3, 16, 16)), "deep_fm": own(DeepFm, kinds),
    "ft_transformer": own(FtTransformer, floats(2, 10), kinds), "tabnet": own(TabNet, floats(2, 10)),
    "graph_attention": own(GraphAttention, floats(2, 9, 6), near), "neural_ode": own(NeuralOde, floats(2, 6)),
    "hyper_network": own(HyperNetwork, floats(2, 6, 8), floats(2, 5)),
    "siren": own(Siren, floats(2, 30, 2), lengths=[1]),
    "set_transformer": own(SetTransformer, floats(2, 12, 3), lengths=[1]),
    "conv_lstm_cells": own(ConvLstmCells, floats(2, 4, 1, 8, 8)),
    "attention_unet": own(AttentionUNet, floats(2, 1, 16, 16)), "edsr": own(Edsr, floats(2, 3, 12, 12)),
    "yolo_head": own(YoloHead, floats(2, 3, 32, 32)), "vq_vae": own(VqVae, floats(2, 1, 16, 16)),
    "dueling": own(Dueling, lambda: 255 * torch.rand(2, 4, 36, 36)),
    "spatial_transformer": own(SpatialTransformer, floats(2, 1, 28, 28)), "arc_face": own(ArcFace, floats(2, 12)),
    "lora": own(Lora, floats(2, 16)), "pixel_cnn": own(pixel_cnn, floats(2, 1, 12, 12)),
    "standardised": own(standardised, floats(2, 3, 12, 12)), "style_gan": own(StyleGan, floats(2, 8)),
    "involution": own(Involution, floats(2, 3, 12, 12)), "net_vlad": own(NetVlad, floats(2, 3, 12, 12)),
    "edge_conv": own(EdgeConv, floats(2, 12, 3)),
    "sch_net": own(SchNet, words(2, 7), floats(2, 7, 3), lengths=[1, 1]),
    "ada_in": own(AdaIn, floats(2, 3, 12, 12), floats(2, 3, 12, 12)),
    "mixture_density": own(MixtureDensity, floats(2, 5), floats(2, 1)),
    "neural_additive": own(NeuralAdditive, floats(2, 10)),
}
