"""What people write about sound, time, tables, graphs and states, for sweep.py."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from arch_common import WORDS, ids, mask
from arch_plain import floats, kinds, own
from arch_sequences import words


class GlobalNorm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(1, c, 1)), nn.Parameter(torch.zeros(1, c, 1))

    def forward(self, y):
        mean = y.mean(dim=1, keepdim=True).mean(dim=2, keepdim=True)
        var = torch.pow(y - mean, 2).mean(dim=1, keepdim=True).mean(dim=2, keepdim=True)
        return self.gamma * (y - mean) / torch.pow(var + 1e-8, 0.5) + self.beta


class ConvTasNet(nn.Module):
    """Voices taken apart."""

    def __init__(self, n=16, b=8):
        super().__init__()
        self.enc, self.dec, self.first = nn.Conv1d(1, n, 8, 4, bias=False), nn.ConvTranspose1d(n, 1, 8, 4, bias=False), nn.Sequential(GlobalNorm(n), nn.Conv1d(n, b, 1))
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv1d(b, n, 1), nn.PReLU(), GlobalNorm(n), nn.Conv1d(n, n, 3, padding=d, dilation=d, groups=n), nn.PReLU(), GlobalNorm(n), nn.Conv1d(n, b, 1)) for d in (1, 2))
        self.mask = nn.Sequential(nn.PReLU(), nn.Conv1d(b, 2 * n, 1))

    def forward(self, x):
        w = F.relu(self.enc(x))
        y = self.first(w)
        for f in self.blocks:
            y = y + f(y)
        m = self.mask(y).view(x.shape[0], 2, -1, w.shape[-1]).softmax(dim=1)
        b, c, n, k = m.shape
        return self.dec((w.unsqueeze(1) * m).view(b * c, n, k)).view(b, c, -1)


class SincNet(nn.Module):
    """Filters of two numbers each."""

    def __init__(self, c=6, k=17):
        super().__init__()
        self.low, self.band = nn.Parameter(torch.linspace(0.02, 0.3, c)[:, None]), nn.Parameter(torch.full((c, 1), 0.08))
        n = torch.arange(-(k // 2), 0).float()[None]
        self.register_buffer("n", 2 * math.pi * n)
        self.register_buffer("window", 0.54 - 0.46 * torch.cos(2 * math.pi * torch.arange(k // 2) / k))
        self.net = nn.Sequential(nn.BatchNorm1d(c), nn.LeakyReLU(), nn.MaxPool1d(3), nn.Conv1d(c, 8, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 4))

    def forward(self, x):
        low = 0.01 + torch.abs(self.low)
        high = torch.clamp(low + 0.01 + torch.abs(self.band), 0.01, 0.5)
        left = (torch.sin(high @ self.n) - torch.sin(low @ self.n)) / (self.n / 2) * self.window
        f = torch.cat([left, 2 * (high - low), torch.flip(left, dims=[1])], dim=1) / (2 * (high - low))
        return self.net(F.conv1d(x, f[:, None], padding=8))


class MelNet(nn.Module):
    """A spectrogram in the model: stft, bands, logarithm, differences, then a net."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(32))
        self.register_buffer("bands", torch.rand(8, 17))
        self.net, self.head = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)), nn.Linear(8, 4)

    def forward(self, x):
        s = torch.stft(x, 32, 16, window=self.window.to(x.dtype), center=True, return_complex=True)
        p = s.abs().pow(2)
        m = 10 * torch.log10(torch.clamp(self.bands @ p, min=1e-6))
        m = (m - m.mean((1, 2), keepdim=True)) / (m.std((1, 2), keepdim=True) + 1e-5)
        return self.head(self.net(m.unsqueeze(1)).mean((2, 3)))


class Framed(nn.Module):
    """A spectrogram by unfold and products with waves that are known."""

    def __init__(self, n=32, hop=16):
        super().__init__()
        t = 2 * math.pi * torch.arange(n)[:, None] * torch.arange(n // 2 + 1)[None] / n
        self.n, self.hop = n, hop
        self.register_buffer("re", t.cos() * torch.hann_window(n)[:, None])
        self.register_buffer("im", -t.sin() * torch.hann_window(n)[:, None])
        self.gru, self.head = nn.GRU(n // 2 + 1, 16, batch_first=True), nn.Linear(16, n // 2 + 1)

    def forward(self, x):
        f = F.pad(x.unsqueeze(1), (self.n // 2, self.n // 2), mode="reflect").squeeze(1).unfold(-1, self.n, self.hop)
        re, im = f @ self.re, f @ self.im
        mag, phase = torch.sqrt(re ** 2 + im ** 2 + 1e-9), torch.atan2(im, re + 1e-9)
        m = torch.sigmoid(self.head(self.gru(torch.log1p(mag))[0])) * mag
        return torch.stack([m * torch.cos(phase), m * torch.sin(phase)], -1)


class Ecapa(nn.Module):
    """Who speaks: pieces that follow each other, then statistics by attention."""

    def __init__(self, c=16, scale=4):
        super().__init__()
        self.first, self.bn, self.scale = nn.Conv1d(10, c, 5, padding=2), nn.BatchNorm1d(c), scale
        self.parts = nn.ModuleList(nn.Sequential(nn.Conv1d(c // scale, c // scale, 3, padding=2, dilation=2), nn.ReLU(), nn.BatchNorm1d(c // scale)) for _ in range(scale - 1))
        self.se = nn.Sequential(nn.AdaptiveAvgPool1d(1), nn.Conv1d(c, 4, 1), nn.ReLU(), nn.Conv1d(4, c, 1), nn.Sigmoid())
        self.att, self.bn2, self.head = nn.Sequential(nn.Conv1d(3 * c, 8, 1), nn.Tanh(), nn.Conv1d(8, c, 1)), nn.BatchNorm1d(2 * c), nn.Linear(2 * c, 6)

    def forward(self, x):
        x = self.bn(F.relu(self.first(x)))
        ps, y, out = torch.chunk(x, self.scale, dim=1), None, []
        for i, p in enumerate(ps):
            y = p if i == 0 else self.parts[i - 1](p if i == 1 else p + y)
            out.append(y)
        y = torch.cat(out, dim=1)
        x = x + y * self.se(y)
        t = x.shape[-1]
        g = torch.cat((x, x.mean(2, keepdim=True).repeat(1, 1, t), torch.sqrt(x.var(2, keepdim=True).clamp(min=1e-4)).repeat(1, 1, t)), dim=1)
        w = torch.softmax(self.att(g), dim=2)
        mu = torch.sum(x * w, dim=2)
        sg = torch.sqrt((torch.sum(x ** 2 * w, dim=2) - mu ** 2).clamp(min=1e-4))
        return F.normalize(self.head(self.bn2(torch.cat((mu, sg), 1))), p=2, dim=1)


class HifiGan(nn.Module):
    """Sound of bands, with weight norms."""

    def __init__(self, c=16):
        super().__init__()
        wn = nn.utils.parametrizations.weight_norm
        self.pre, self.up, self.post = wn(nn.Conv1d(8, c, 7, padding=3)), wn(nn.ConvTranspose1d(c, c // 2, 8, 4, padding=2)), wn(nn.Conv1d(c // 2, 1, 7, padding=3))
        self.res = nn.ModuleList(nn.ModuleList(wn(nn.Conv1d(c // 2, c // 2, k, padding=(k * d - d) // 2, dilation=d)) for d in (1, 3)) for k in (3, 5))

    def forward(self, x):
        x = self.up(F.leaky_relu(self.pre(x), 0.1))
        xs = None
        for block in self.res:
            y = x
            for f in block:
                y = f(F.leaky_relu(y, 0.1)) + y
            xs = y if xs is None else xs + y
        return torch.tanh(self.post(F.leaky_relu(xs / len(self.res))))


class WeightNormed(nn.Module):
    """Weight norms as parametrizations of today."""

    def __init__(self):
        super().__init__()
        wn = nn.utils.parametrizations.weight_norm
        self.a, self.b = wn(nn.Conv1d(4, 8, 3, padding=2, dilation=2)), wn(nn.Linear(8, 3))

    def forward(self, x):
        return self.b(F.relu(self.a(x)[:, :, :-2]).transpose(1, 2))


class ComplexNet(nn.Module):
    """Complex numbers as pairs: convolutions, norms, products."""

    def __init__(self):
        super().__init__()
        self.re, self.im = nn.Conv2d(1, 8, 3, (2, 1), 1), nn.Conv2d(1, 8, 3, (2, 1), 1)
        self.nre, self.nim = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.lre, self.lim = nn.LSTM(32, 32, batch_first=True), nn.LSTM(32, 32, batch_first=True)
        self.out = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        a, b = x[:, :1], x[:, 1:]
        re, im = F.leaky_relu(self.nre(self.re(a) - self.im(b)), 0.25), F.leaky_relu(self.nim(self.re(b) + self.im(a)), 0.25)
        n, c, f, t = re.shape
        re, im = (y.permute(0, 3, 1, 2).flatten(2) for y in (re, im))
        p, q = self.lre(re)[0] - self.lim(im)[0], self.lre(im)[0] + self.lim(re)[0]
        y = torch.stack([p, q], 2).view(n, t, 2 * c, f).permute(0, 2, 3, 1)
        m = self.out(y)
        mag = torch.tanh(m.pow(2).sum(1, keepdim=True).sqrt())
        return m / (m.norm(dim=1, keepdim=True) + 1e-8) * mag


class Tacotron(nn.Module):
    """Attention that knows where it was; frames one after the other."""

    def __init__(self, d=16):
        super().__init__()
        self.words, self.enc = nn.Embedding(WORDS, d), nn.LSTM(d, d // 2, batch_first=True, bidirectional=True)
        self.pre, self.cell, self.q, self.m, self.v = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.LSTMCell(8 + d, d), nn.Linear(d, 8, bias=False), nn.Linear(d, 8, bias=False), nn.Linear(8, 1)
        self.loc, self.ll, self.frame, self.gate = nn.Conv1d(2, 4, 5, padding=2, bias=False), nn.Linear(4, 8, bias=False), nn.Linear(2 * d, 4), nn.Linear(2 * d, 1)

    def forward(self, text, mask, mel):
        mem = self.enc(self.words(text))[0]
        b, n, d = mem.shape
        h, c, ctx = mem.new_zeros(b, d), mem.new_zeros(b, d), mem.new_zeros(b, d)
        w = mem.new_zeros(b, n)
        total, pm, out = torch.zeros_like(w), self.m(mem), []
        for t in range(mel.shape[1]):
            h, c = self.cell(torch.cat((self.pre(mel[:, t]), ctx), -1), (h, c))
            l = self.ll(self.loc(torch.stack((w, total), 1)).transpose(1, 2))
            e = self.v(torch.tanh(self.q(h.unsqueeze(1)) + l + pm)).squeeze(-1)
            w = F.softmax(e.masked_fill(mask == 0, -float("inf")), dim=1)
            ctx = torch.bmm(w.unsqueeze(1), mem).squeeze(1)
            total = total + w
            out.append(self.frame(torch.cat((h, ctx), dim=1)))
        return torch.stack(out).transpose(0, 1)


class GruAttention(nn.Module):
    """A translation by cells with attention, the first kind."""

    def __init__(self, d=16):
        super().__init__()
        self.src, self.tgt, self.enc = nn.Embedding(WORDS, d), nn.Embedding(WORDS, d), nn.GRU(d, d, bidirectional=True)
        self.fc, self.att, self.v, self.cell, self.out = nn.Linear(2 * d, d), nn.Linear(3 * d, d), nn.Linear(d, 1, bias=False), nn.GRU(3 * d, d), nn.Linear(4 * d, WORDS)

    def forward(self, src, tgt):
        o, h = self.enc(self.src(src.t()))
        h = torch.tanh(self.fc(torch.cat((h[-2], h[-1]), dim=1)))
        o, out = o.permute(1, 0, 2), []
        for t in range(5):
            e = self.tgt(tgt[:, t]).unsqueeze(0)
            a = self.v(torch.tanh(self.att(torch.cat((h.unsqueeze(1).repeat(1, o.shape[1], 1), o), dim=2)))).squeeze(2).softmax(1)
            w = torch.bmm(a.unsqueeze(1), o).permute(1, 0, 2)
            y, s = self.cell(torch.cat((e, w), dim=2), h.unsqueeze(0))
            h = s.squeeze(0)
            out.append(self.out(torch.cat((y.squeeze(0), w.squeeze(0), e.squeeze(0)), dim=1)))
        return torch.stack(out, dim=1)


class Pointer(nn.Module):
    """Words of the text itself: probabilities are added where they stand."""

    def __init__(self, d=16):
        super().__init__()
        self.words, self.enc, self.dec = nn.Embedding(WORDS, d), nn.LSTM(d, d, batch_first=True), nn.LSTM(d, d, batch_first=True)
        self.gen, self.out = nn.Linear(2 * d, 1), nn.Linear(2 * d, WORDS)

    def forward(self, src, tgt):
        m, state = self.enc(self.words(src))
        h, _ = self.dec(self.words(tgt), state)
        a = torch.softmax(h @ m.transpose(1, 2), -1)
        x = torch.cat([h, a @ m], -1)
        g = torch.sigmoid(self.gen(x))
        p = g * torch.softmax(self.out(x), -1)
        at = src.unsqueeze(1).expand(-1, tgt.shape[1], -1)
        return torch.log(p.scatter_add(2, at, (1 - g) * a) + 1e-9)


class Packed(nn.Module):
    """Lengths that differ: what is beyond them does not count, the last one is gathered."""

    def __init__(self, d=16):
        super().__init__()
        self.words, self.gru, self.head = nn.Embedding(WORDS, d, padding_idx=0), nn.GRU(d, d, 2, batch_first=True, dropout=0.1), nn.Linear(2 * d, 3)

    def forward(self, x):
        n = (x != 0).sum(1)
        h, _ = self.gru(self.words(x))
        last = h[torch.arange(x.shape[0]), n - 1]
        m = (torch.arange(x.shape[1])[None] < n[:, None]).unsqueeze(-1)
        best = h.masked_fill(~m, float("-inf")).max(1).values
        return self.head(torch.cat([last, best], -1))


class MinGru(nn.Module):
    """Gates that do not see the state: a scan in logarithms."""

    def __init__(self, d=16):
        super().__init__()
        self.words, self.gates, self.head = nn.Embedding(WORDS, d), nn.Linear(d, 2 * d), nn.Linear(d, WORDS)

    def forward(self, x):
        h, g = self.gates(self.words(x)).chunk(2, dim=-1)
        a, z = -F.softplus(g), -F.softplus(-g)
        v = torch.where(h >= 0, (F.relu(h) + 0.5).log(), -F.softplus(-h)) + z
        s = F.pad(a.cumsum(dim=1), (0, 0, 0, 0))
        return self.head(torch.exp(s + torch.logcumsumexp(v - s, dim=1)))


class S4d(nn.Module):
    """Diagonal states as pairs of numbers, their kernel by powers, a convolution by FFT."""

    def __init__(self, h=8, n=4, l=20):
        super().__init__()
        self.l, self.dt = l, nn.Parameter(torch.rand(h) * 2 - 4)
        self.c, self.are, self.aim, self.d = nn.Parameter(torch.randn(h, n, 2)), nn.Parameter(torch.log(0.5 * torch.ones(h, n))), nn.Parameter(math.pi * torch.arange(n).float().repeat(h, 1)), nn.Parameter(torch.randn(h))
        self.out = nn.Sequential(nn.Conv1d(h, 2 * h, 1), nn.GLU(dim=-2))

    def forward(self, u):
        dt = torch.exp(self.dt)[:, None, None]
        t = torch.arange(self.l, dtype=u.dtype)
        re, im = -torch.exp(self.are)[..., None] * dt * t, self.aim[..., None] * dt * t
        k = 2 * (torch.exp(re) * (self.c[..., :1] * torch.cos(im) - self.c[..., 1:] * torch.sin(im))).sum(1) * dt[:, 0]
        y = torch.fft.irfft(torch.fft.rfft(u, n=2 * self.l) * torch.fft.rfft(k, n=2 * self.l), n=2 * self.l)[..., :self.l]
        return self.out(F.gelu(y + u * self.d[:, None]))


class Gfnet(nn.Module):
    """Weights for waves of two dimensions."""

    def __init__(self, d=8, side=8):
        super().__init__()
        self.embed, self.norm = nn.Conv2d(3, d, 2, 2), nn.LayerNorm(d)
        self.weight, self.mlp, self.head = nn.Parameter(torch.randn(side, side // 2 + 1, d, 2) * 0.02), nn.Sequential(nn.Linear(d, 16), nn.GELU(), nn.Linear(16, d)), nn.Linear(d, 3)

    def forward(self, x):
        x = self.embed(x).permute(0, 2, 3, 1)
        y = torch.fft.rfft2(self.norm(x), dim=(1, 2), norm="ortho")
        y = torch.fft.irfft2(y * torch.view_as_complex(self.weight), s=x.shape[1:3], dim=(1, 2), norm="ortho")
        x = x + self.mlp(y)
        return self.head(x.mean((1, 2)))


class Ntm(nn.Module):
    """A memory addressed by likeness, then by a shift."""

    def __init__(self, n=6, m=5, d=12):
        super().__init__()
        self.n, self.m, self.cell, self.head, self.write, self.out = n, m, nn.LSTMCell(4 + m, d), nn.Linear(d, m + 6), nn.Linear(d, m + 6 + 2 * m), nn.Linear(d + m, 3)
        self.register_buffer("start", 0.1 * torch.randn(n, m))

    def address(self, p, mem, last):
        k, b, g, s, y = torch.tanh(p[:, :self.m]), F.softplus(p[:, self.m:self.m + 1]), torch.sigmoid(p[:, self.m + 1:self.m + 2]), torch.softmax(p[:, self.m + 2:self.m + 5], 1), 1 + F.softplus(p[:, self.m + 5:self.m + 6])
        w = g * F.softmax(b * F.cosine_similarity(mem + 1e-16, k.unsqueeze(1) + 1e-16, dim=-1), dim=1) + (1 - g) * last
        w = torch.cat([w[:, -1:], w, w[:, :1]], 1).unfold(1, 3, 1)
        w = (w * s.unsqueeze(1)).sum(-1) ** y
        return w / (w.sum(dim=1, keepdim=True) + 1e-16)

    def forward(self, x):
        b = x.shape[0]
        mem = self.start.unsqueeze(0).expand(b, -1, -1)
        h, c, r = x.new_zeros(b, 12), x.new_zeros(b, 12), x.new_zeros(b, self.m)
        w1 = w2 = F.softmax(torch.arange(self.n, 0, -1, dtype=x.dtype), 0).expand(b, -1)
        out = []
        for t in range(x.shape[1]):
            h, c = self.cell(torch.cat([x[:, t], r], 1), (h, c))
            w1, p = self.address(self.head(h), mem, w1), self.write(h)
            r = torch.matmul(w1.unsqueeze(1), mem).squeeze(1)
            w2 = self.address(p, mem, w2)
            e, a = torch.sigmoid(p[:, -2 * self.m:-self.m]), torch.tanh(p[:, -self.m:])
            mem = mem * (1 - w2.unsqueeze(-1) * e.unsqueeze(1)) + w2.unsqueeze(-1) * a.unsqueeze(1)
            out.append(self.out(torch.cat([h, r], 1)))
        return torch.stack(out, 1)


class Performer(nn.Module):
    """Attention by random waves, causal by sums."""

    def __init__(self, d=16, h=2, m=12):
        super().__init__()
        self.h, self.qkv, self.out = h, nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.register_buffer("w", torch.randn(m, d // h))

    def phi(self, x):
        x = x * x.shape[-1] ** -0.25
        y = torch.einsum("bhnd,md->bhnm", x, self.w)
        y = y - (x ** 2).sum(-1, keepdim=True) / 2
        return torch.exp(y - y.amax(dim=-1, keepdim=True).detach()) / math.sqrt(self.w.shape[0]) + 1e-4

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (t.view(b, n, self.h, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        q, k = self.phi(q), self.phi(k)
        kv = torch.cumsum(k[..., None] * v[..., None, :], dim=2)
        z = 1 / torch.einsum("bhnm,bhnm->bhn", q, k.cumsum(2))
        return self.out((torch.einsum("bhnm,bhnmd->bhnd", q, kv) * z[..., None]).transpose(1, 2).reshape(b, n, d))


class Reformer(nn.Module):
    """Words of one bucket look at each other: sorted by a hash, in chunks."""

    def __init__(self, d=16, n=16):
        super().__init__()
        self.words, self.qk, self.v, self.head = nn.Embedding(WORDS, d), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 4)
        self.register_buffer("r", torch.randn(d, 2))
        self.n = n

    def forward(self, x):
        h = self.words(x)
        q, v = self.qk(h), self.v(h)
        y = q @ self.r
        bucket = torch.cat([y, -y], -1).argmax(-1)
        order = (bucket * self.n + torch.arange(self.n)).argsort(-1)
        back = order.argsort(-1)
        take = lambda t, at: t.gather(1, at.unsqueeze(-1).expand(-1, -1, t.shape[-1]))
        b = x.shape[0]
        sq, sv = take(q, order).view(b, 4, 4, -1), take(v, order).view(b, 4, 4, -1)
        near = lambda t: torch.cat([t, torch.cat([t[:, -1:], t[:, :-1]], 1)], 2)
        a = torch.einsum("bcid,bcjd->bcij", sq, near(F.normalize(sq, dim=-1))).softmax(-1)
        o = torch.einsum("bcij,bcjd->bcid", a, near(sv)).reshape(b, self.n, -1)
        return self.head(h + take(o, back))


class RevIn(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.ones(c)), nn.Parameter(torch.zeros(c))

    def forward(self, x, f):
        mean = torch.mean(x, dim=1, keepdim=True).detach()
        std = torch.sqrt(torch.var(x, dim=1, keepdim=True, unbiased=False) + 1e-5).detach()
        y = f((x - mean) / std * self.w + self.b)
        return (y - self.b) / (self.w + 1e-10) * std + mean


class DLinear(nn.Module):
    """A trend by a mean that moves, and the rest, each by a layer over time."""

    def __init__(self, n=24, out=8, c=3):
        super().__init__()
        self.rev, self.avg, self.s, self.t = RevIn(c), nn.AvgPool1d(5, 1), nn.Linear(n, out), nn.Linear(n, out)

    def net(self, x):
        p = torch.cat([x[:, :1].repeat(1, 2, 1), x, x[:, -1:].repeat(1, 2, 1)], dim=1)
        trend = self.avg(p.permute(0, 2, 1)).permute(0, 2, 1)
        return (self.s((x - trend).permute(0, 2, 1)) + self.t(trend.permute(0, 2, 1))).permute(0, 2, 1)

    def forward(self, x):
        return self.rev(x, self.net)


class Autoformer(nn.Module):
    """Which shifts are like now, by FFT; the best of them are mixed."""

    def __init__(self, d=8, k=3):
        super().__init__()
        self.k, self.inp, self.q, self.kk, self.v, self.out = k, nn.Conv1d(3, d, 3, padding=1, padding_mode="circular", bias=False), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 3)

    def forward(self, x):
        h = self.inp(x.transpose(1, 2)).transpose(1, 2)
        q, k, v = (f(h).transpose(1, 2) for f in (self.q, self.kk, self.v))
        n = q.shape[-1]
        corr = torch.fft.irfft(torch.fft.rfft(q) * torch.conj(torch.fft.rfft(k)), n=n)
        w, delay = torch.topk(corr.mean(1), self.k, dim=-1)
        w, twice, y = w.softmax(-1), v.repeat(1, 1, 2), 0
        at = torch.arange(n).view(1, 1, -1).expand_as(v)
        for i in range(self.k):
            y = y + torch.gather(twice, -1, at + delay[:, i].view(-1, 1, 1)) * w[:, i].view(-1, 1, 1)
        return self.out(h + y.transpose(1, 2))


class ITransformer(nn.Module):
    """Each series one word."""

    def __init__(self, n=24, d=16):
        super().__init__()
        self.up, self.enc, self.head = nn.Linear(n, d), nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 2, 32, dropout=0.0, activation="gelu", batch_first=True), 2, norm=nn.LayerNorm(d)), nn.Linear(d, 8)

    def forward(self, x):
        m = x.mean(1, keepdim=True).detach()
        x = x - m
        s = torch.sqrt(torch.var(x, dim=1, keepdim=True, unbiased=False) + 1e-5)
        y = self.head(self.enc(self.up((x / s).permute(0, 2, 1)))).permute(0, 2, 1)
        return y * s[:, 0, :].unsqueeze(1).repeat(1, 8, 1) + m[:, 0, :].unsqueeze(1).repeat(1, 8, 1)


class Tft(nn.Module):
    """Columns chosen by gates, cells, attention, three quantiles."""

    def __init__(self, c=4, d=8):
        super().__init__()
        self.cols, self.choose, self.gate = nn.ModuleList(nn.Linear(1, d) for _ in range(c)), nn.Sequential(nn.Linear(c * d, d), nn.ELU(), nn.Linear(d, c)), nn.Linear(d, 2 * d)
        self.cells, self.norm, self.att, self.head = nn.LSTM(d, d, batch_first=True), nn.LayerNorm(d), nn.MultiheadAttention(d, 2, batch_first=True), nn.Linear(d, 3)

    def forward(self, x):
        v = torch.stack([f(x[..., i:i + 1]) for i, f in enumerate(self.cols)], dim=-1)
        w = torch.softmax(self.choose(v.flatten(-2)), dim=-1).unsqueeze(-2)
        v = (w * v).sum(-1)
        h, _ = self.cells(v)
        h = self.norm(v + F.glu(self.gate(h), dim=-1))
        m = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), diagonal=1)
        a, _ = self.att(h, h, h, attn_mask=m)
        return self.head(h + a)


class LstNet(nn.Module):
    def __init__(self, n=24, c=4, skip=4):
        super().__init__()
        self.skip, self.conv, self.gru, self.other, self.fc, self.ar = skip, nn.Conv2d(1, 8, (3, c)), nn.GRU(8, 8), nn.GRU(8, 4), nn.Linear(8 + skip * 4, c), nn.Linear(6, 1)

    def forward(self, x):
        b, _, m = x.shape
        c = F.relu(self.conv(x.view(b, 1, -1, m))).squeeze(3)
        _, r = self.gru(c.permute(2, 0, 1).contiguous())
        p = c.shape[-1] // self.skip
        s = c[:, :, -p * self.skip:].contiguous().view(b, 8, p, self.skip).permute(2, 0, 3, 1).contiguous().view(p, b * self.skip, 8)
        _, s = self.other(s)
        y = self.fc(torch.cat((r.squeeze(0), s.view(b, self.skip * 4)), 1))
        return torch.sigmoid(y + self.ar(x[:, -6:].permute(0, 2, 1).contiguous().view(-1, 6)).view(-1, m))


class InceptionTime(nn.Module):
    def __init__(self):
        super().__init__()
        self.b, self.cs, self.p, self.bn, self.head = nn.Conv1d(3, 4, 1, bias=False), nn.ModuleList(nn.Conv1d(4, 4, k, padding="same", bias=False) for k in (10, 5, 3)), nn.Sequential(nn.MaxPool1d(3, 1, 1), nn.Conv1d(3, 4, 1, bias=False)), nn.BatchNorm1d(16), nn.Linear(16, 5)

    def forward(self, x):
        y = self.b(x)
        y = torch.cat([f(y) for f in self.cs] + [self.p(x)], dim=1)
        return self.head(F.relu(self.bn(y)).mean(-1))


class Dcn(nn.Module):
    """Crossed columns, factors, experts for two tasks."""

    def __init__(self, d=14):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(20, 4) for _ in range(3))
        self.u, self.v, self.bias = nn.Parameter(0.2 * torch.randn(2, d + 8, 4)), nn.Parameter(0.2 * torch.randn(2, 4, d + 8)), nn.Parameter(torch.zeros(2, d + 8))
        self.experts, self.gates, self.towers = nn.ModuleList(nn.Sequential(nn.Linear(d + 8, 8), nn.ReLU()) for _ in range(3)), nn.ModuleList(nn.Linear(d + 8, 3) for _ in range(2)), nn.ModuleList(nn.Linear(8, 1) for _ in range(2))

    def forward(self, numbers, kinds):
        x0 = x = torch.cat([numbers] + [t(kinds[:, i]) for i, t in enumerate(self.tables)], dim=1)
        for i in range(2):
            x = x0 * (x @ self.u[i] @ self.v[i] + self.bias[i]) + x
        e = torch.stack([f(x) for f in self.experts], 1)
        return torch.cat([torch.sigmoid(t(torch.bmm(g(x).softmax(1).unsqueeze(1), e).squeeze(1))) for g, t in zip(self.gates, self.towers)], 1)


class AutoInt(nn.Module):
    """Fields look at each other; products of pairs by compressed interactions."""

    def __init__(self, d=8):
        super().__init__()
        self.table, self.att, self.res = nn.Embedding(60, d), nn.MultiheadAttention(d, 2, batch_first=True), nn.Linear(d, d)
        self.cin, self.head = nn.Conv1d(9, 6, 1), nn.Linear(3 * d + 6, 1)
        self.register_buffer("offsets", torch.tensor([0, 20, 40]))

    def forward(self, kinds):
        e = self.table(kinds + self.offsets)
        y = F.relu(self.att(e, e, e)[0] + self.res(e)).flatten(1)
        z = torch.einsum("bhm,bnm->bhnm", e, e).reshape(e.shape[0], 9, -1)
        return self.head(torch.cat([y, F.relu(self.cin(z)).sum(2)], 1))


class Dice(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.bn, self.alpha = nn.BatchNorm1d(d, eps=1e-8), nn.Parameter(torch.zeros(d))

    def forward(self, x):
        p = torch.sigmoid(self.bn(x))
        return self.alpha * (1 - p) * x + p * x


class Din(nn.Module):
    """What was bought, by how much it is like what is shown."""

    def __init__(self, d=8):
        super().__init__()
        self.items, self.att, self.fc, self.dice, self.out = nn.Embedding(30, d, padding_idx=0), nn.Sequential(nn.Linear(4 * d, 8), nn.PReLU(), nn.Linear(8, 1)), nn.Linear(2 * d, 8), Dice(8), nn.Linear(8, 1)

    def forward(self, past, item):
        k, q = self.items(past), self.items(item)
        q2 = q.unsqueeze(1).expand_as(k)
        w = self.att(torch.cat([q2, k, q2 - k, q2 * k], -1)).squeeze(-1)
        w = torch.where(past > 0, w, torch.full_like(w, -2 ** 31)).softmax(1)
        return self.out(self.dice(self.fc(torch.cat([(w.unsqueeze(-1) * k).sum(1), q], 1))))


class Sasrec(nn.Module):
    """What comes next, by products with the table itself."""

    def __init__(self, d=16, n=8):
        super().__init__()
        self.items, self.places, self.drop = nn.Embedding(30, d, padding_idx=0), nn.Embedding(n, d), nn.Dropout(0.2)
        self.n1, self.att, self.n2, self.c1, self.c2, self.last = nn.LayerNorm(d, eps=1e-8), nn.MultiheadAttention(d, 1), nn.LayerNorm(d, eps=1e-8), nn.Conv1d(d, d, 1), nn.Conv1d(d, d, 1), nn.LayerNorm(d, eps=1e-8)

    def forward(self, past, item):
        x = self.items(past) * self.items.embedding_dim ** 0.5
        x = self.drop(x + self.places(torch.arange(past.shape[1])))
        keep = ~(past == 0).unsqueeze(-1)
        x = x * keep
        n = x.shape[1]
        x = x.transpose(0, 1)
        q = self.n1(x)
        x = (q + self.att(q, x, x, attn_mask=~torch.tril(torch.ones((n, n), dtype=torch.bool)))[0]).transpose(0, 1)
        x = self.n2(x)
        x = (x + self.c2(F.relu(self.c1(x.transpose(-1, -2)))).transpose(-1, -2)) * keep
        return self.items(item).matmul(self.last(x)[:, -1].unsqueeze(-1)).squeeze(-1)


class Towers(nn.Module):
    """Two sides, compared: a bag of words of one, a net of the other, and a temperature."""

    def __init__(self, d=8):
        super().__init__()
        self.bag, self.user, self.item, self.scale = nn.EmbeddingBag(20, d, mode="mean"), nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, d)), nn.Linear(d, d), nn.Parameter(torch.ones([]) * math.log(1 / 0.07))

    def forward(self, user, item):
        u, i = F.normalize(self.user(user), dim=-1), F.normalize(self.item(self.bag(item)), dim=-1)
        return self.scale.exp() * (u * i).sum(-1)


class Trees(nn.Module):
    """Oblivious trees: choices by sigmoids, leaves by products."""

    def __init__(self, c=6, trees=4, depth=3):
        super().__init__()
        self.choice, self.at, self.t, self.leaves = nn.Parameter(torch.randn(c, trees, depth)), nn.Parameter(torch.randn(trees, depth)), nn.Parameter(torch.zeros(trees, depth)), nn.Parameter(torch.randn(trees, 2, 2 ** depth))
        bits = torch.arange(2 ** depth)[None] // 2 ** torch.arange(depth)[:, None] % 2
        self.register_buffer("bits", torch.stack([bits, 1 - bits], -1).float())

    def forward(self, x):
        f = torch.einsum("bi,ind->bnd", x, torch.softmax(self.choice, 0))
        p = torch.clamp(torch.stack([f - self.at, self.at - f], -1) * torch.exp(-self.t).unsqueeze(-1) * 0.5 + 0.5, 0, 1)
        r = torch.einsum("bnds,dcs->bndc", p, self.bits).prod(-2)
        return torch.einsum("bnc,nkc->bnk", r, self.leaves).mean(1)


class DenseGcn(nn.Module):
    """Neighbours by a normalised matrix, pooled into clusters."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.pool, self.head = nn.Linear(6, 16, bias=False), nn.Parameter(torch.zeros(16)), nn.Linear(16, 3), nn.Linear(16, 4)

    def forward(self, x, adj):
        adj = ((adj + adj.transpose(1, 2)) > 0).to(x.dtype) + torch.eye(adj.size(1), dtype=x.dtype)
        d = adj.sum(-1).pow(-0.5)
        d = torch.where(torch.isinf(d), torch.zeros_like(d), d)
        norm = d.unsqueeze(-1) * adj * d.unsqueeze(1)
        h = F.relu(torch.matmul(norm, self.a(x)) + self.b)
        s = torch.softmax(self.pool(h), dim=-1)
        h, adj = s.transpose(1, 2) @ h, s.transpose(1, 2) @ adj @ s
        h = torch.diag_embed(1 / adj.sum(-1)) @ adj @ h
        return self.head(h.max(1)[0])


class EdgeMessages(nn.Module):
    """Lists of edges: sums, means and the largest of what arrives; cells for the nodes."""

    def __init__(self, d=8):
        super().__init__()
        self.up, self.msg, self.cell, self.head = nn.Linear(6, d), nn.Sequential(nn.Linear(2 * d, d), nn.ReLU()), nn.GRUCell(3 * d, d), nn.Linear(d, 3)

    def forward(self, x, edges):
        h, (src, dst) = self.up(x), edges.unbind(0)
        for _ in range(2):
            m = self.msg(torch.cat([h[src], h[dst]], -1))
            n, d = h.shape
            total = torch.zeros(n, d, dtype=x.dtype).index_add(0, dst, m)
            count = torch.zeros(n, dtype=x.dtype).index_add(0, dst, torch.ones_like(dst, dtype=x.dtype)).clamp(min=1)
            best = torch.zeros(n, d, dtype=x.dtype).scatter_reduce(0, dst[:, None].expand_as(m), m, reduce="amax", include_self=True)
            h = self.cell(torch.cat([total, total / count[:, None], best], -1), h)
        return self.head(h)


class Egnn(nn.Module):
    """Places that move along their differences."""

    def __init__(self, d=8):
        super().__init__()
        self.h, self.e, self.x, self.n = nn.Embedding(20, d), nn.Sequential(nn.Linear(2 * d + 1, 16), nn.SiLU()), nn.Sequential(nn.Linear(16, 8), nn.SiLU(), nn.Linear(8, 1, bias=False)), nn.Linear(d + 16, d)

    def forward(self, kinds, x):
        h = self.h(kinds)
        b, n, d = h.shape
        for _ in range(2):
            diff = x[:, :, None] - x[:, None]
            r = (diff ** 2).sum(-1, keepdim=True)
            m = self.e(torch.cat([h[:, :, None].expand(-1, -1, n, -1), h[:, None].expand(-1, n, -1, -1), r], -1))
            m = m * (1 - torch.eye(n, dtype=x.dtype))[None, :, :, None]
            x = x + (diff / (torch.sqrt(r + 1e-8) + 1) * self.x(m)).mean(2)
            h = h + self.n(torch.cat([h, m.sum(2)], -1))
        return h, x


class Graphormer(nn.Module):
    def __init__(self, d=16, h=2):
        super().__init__()
        self.h, self.nodes, self.degree, self.path, self.qkv, self.out = h, nn.Embedding(20, d), nn.Embedding(10, d), nn.Embedding(12, h), nn.Linear(d, 3 * d), nn.Linear(d, 3)

    def forward(self, nodes, paths):
        x = self.nodes(nodes) + self.degree((paths == 1).sum(-1).clamp(max=9))
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        a = q @ k.transpose(-1, -2) * (d // self.h) ** -0.5 + self.path(paths.clamp(0, 11)).permute(0, 3, 1, 2)
        a = a.masked_fill((paths > 8).unsqueeze(1), float("-inf")).softmax(-1)
        return self.out((a @ v).transpose(1, 2).flatten(2)).mean(1)


class StGcn(nn.Module):
    """Joints of a body over time."""

    def __init__(self, k=3, v=7):
        super().__init__()
        self.register_buffer("a", torch.rand(k, v, v))
        self.edge, self.bn, self.gcn = nn.Parameter(torch.ones(k, v, v)), nn.BatchNorm1d(2 * v), nn.Conv2d(2, 8 * k, 1)
        self.tcn, self.head, self.k = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, (5, 1), (1, 1), (2, 0)), nn.BatchNorm2d(8), nn.Dropout(0.1)), nn.Conv2d(8, 4, 1), k

    def forward(self, x):
        n, c, t, v, m = x.size()
        x = self.bn(x.permute(0, 4, 3, 1, 2).contiguous().view(n * m, v * c, t))
        x = x.view(n, m, v, c, t).permute(0, 1, 3, 4, 2).contiguous().view(n * m, c, t, v)
        y = self.gcn(x)
        y = torch.einsum("nkctv,kvw->nctw", (y.view(n * m, self.k, -1, t, v), self.a * self.edge)).contiguous()
        y = F.relu(self.tcn(y))
        y = F.avg_pool2d(y, y.size()[2:]).view(n, m, -1, 1, 1).mean(dim=1)
        return self.head(y).view(n, -1)


class SquashedPolicy(nn.Module):
    """An action and its probability, noise given; two critics."""

    def __init__(self, s=6, a=2):
        super().__init__()
        self.net, self.mu, self.std = nn.Sequential(nn.Linear(s, 16), nn.ReLU()), nn.Linear(16, a), nn.Linear(16, a)
        self.q = nn.ModuleList(nn.Sequential(nn.Linear(s + a, 16), nn.ReLU(), nn.Linear(16, 1)) for _ in range(2))

    def forward(self, state, noise):
        h = self.net(state)
        mu, log_std = self.mu(h), torch.clamp(self.std(h), -20, 2)
        u = mu + noise * log_std.exp()
        a = torch.tanh(u)
        p = (-0.5 * noise ** 2 - log_std - 0.5 * math.log(2 * math.pi)).sum(-1) - (2 * (math.log(2) - u - F.softplus(-2 * u))).sum(-1)
        x = torch.cat([state, a], -1)
        return torch.min(self.q[0](x), self.q[1](x)).squeeze(-1) - 0.2 * p


class Quantiles(nn.Module):
    """Values as distributions: cosines of given fractions, and atoms."""

    def __init__(self):
        super().__init__()
        self.net, self.cos, self.q, self.atoms = nn.Sequential(nn.Conv2d(1, 8, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 16), nn.ReLU()), nn.Linear(8, 16), nn.Linear(16, 3), nn.Linear(16, 3 * 11)
        self.register_buffer("support", torch.linspace(-5, 5, 11))
        self.register_buffer("pis", math.pi * torch.arange(1, 9).float().view(1, 1, 8))

    def forward(self, x, tau):
        h = self.net(x)
        c = F.relu(self.cos(torch.cos(tau.unsqueeze(-1) * self.pis)))
        q = self.q(h.unsqueeze(1) * c).mean(1)
        return q + (self.atoms(h).view(-1, 3, 11).softmax(-1) * self.support).sum(-1)


class DecisionTransformer(nn.Module):
    """Returns, states and actions in turn."""

    def __init__(self, d=16):
        super().__init__()
        self.r, self.s, self.a, self.t, self.norm = nn.Linear(1, d), nn.Linear(4, d), nn.Linear(2, d), nn.Embedding(50, d), nn.LayerNorm(d)
        self.net, self.head = nn.TransformerEncoderLayer(d, 2, 32, dropout=0.0, batch_first=True, activation="gelu", norm_first=True), nn.Linear(d, 2)

    def forward(self, r, s, a, t):
        b, n, _ = s.shape
        at = self.t(t)
        x = torch.stack((self.r(r) + at, self.s(s) + at, self.a(a) + at), dim=1).permute(0, 2, 1, 3).reshape(b, 3 * n, -1)
        x = self.net(self.norm(x), src_mask=nn.Transformer.generate_square_subsequent_mask(3 * n, dtype=s.dtype), is_causal=True)
        return torch.tanh(self.head(x.reshape(b, n, 3, -1).permute(0, 2, 1, 3)[:, 1]))


class SplineFlow(nn.Module):
    """Rational splines: which bin, then its numbers gathered."""

    def __init__(self, k=4):
        super().__init__()
        self.k, self.net = k, nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2 * (3 * k - 1)))

    def forward(self, x):
        a, b = x[:, :2], x[:, 2:]
        p = self.net(a).view(-1, 2, 3 * self.k - 1)
        w, h, d = p.split([self.k, self.k, self.k - 1], -1)
        w, h = (1e-3 + (1 - 1e-3 * self.k) * F.softmax(t, -1) for t in (w, h))
        d = F.pad(1e-3 + F.softplus(d), (1, 1), value=1.0)
        cw, ch = (F.pad(torch.cumsum(t, -1), (1, 0), value=0.0) * 4 - 2 for t in (w, h))
        w, h = cw[..., 1:] - cw[..., :-1], ch[..., 1:] - ch[..., :-1]
        at = (torch.sum(b.clamp(-1.99, 1.99)[..., None] >= cw, dim=-1) - 1)[..., None]
        g = lambda t: t.gather(-1, at)[..., 0]
        x0, ww, y0, hh, d0, d1 = g(cw), g(w), g(ch), g(h), g(d), g(d[..., 1:])
        s, t = hh / ww, (b.clamp(-1.99, 1.99) - x0) / ww
        tt = t * (1 - t)
        den = s + (d0 + d1 - 2 * s) * tt
        y = y0 + hh * (s * t ** 2 + d0 * tt) / den
        det = torch.log(s ** 2 * (d1 * t ** 2 + 2 * s * tt + d0 * (1 - t) ** 2)) - 2 * torch.log(den)
        return torch.cat([a, y], -1), det.sum(-1)


class Made(nn.Module):
    """Weights with masks: each number from those before it."""

    def __init__(self, n=6, h=16):
        super().__init__()
        self.w1, self.w2, self.b1, self.b2 = nn.Parameter(0.3 * torch.randn(h, n)), nn.Parameter(0.3 * torch.randn(2 * n, h)), nn.Parameter(torch.zeros(h)), nn.Parameter(torch.zeros(2 * n))
        m = torch.arange(h) % (n - 1)
        self.register_buffer("m1", (m[:, None] >= torch.arange(n)[None]).float())
        self.register_buffer("m2", (torch.arange(n).repeat(2)[:, None] > m[None]).float())

    def forward(self, x):
        mu, s = F.linear(F.relu(F.linear(x, self.w1 * self.m1, self.b1)), self.w2 * self.m2, self.b2).chunk(2, 1)
        return (x - mu) * torch.exp(-s)


class Residuals(nn.Module):
    """What a book does not say, said by the next one; and numbers that are rounded."""

    def __init__(self, d=8, books=2):
        super().__init__()
        self.enc, self.books, self.dec = nn.Conv1d(1, d, 4, 2, 1), nn.ModuleList(nn.Embedding(12, d) for _ in range(books)), nn.ConvTranspose1d(2 * d, 1, 4, 2, 1)

    def forward(self, x):
        z = self.enc(x).transpose(1, 2)
        r, q = z, 0
        for book in self.books:
            at = torch.cdist(r, book.weight[None].expand(r.shape[0], -1, -1)).argmin(-1)
            y = book(at)
            q, r = q + y, r - y
        q = z + (q - z).detach()
        f = torch.tanh(z) * 2
        f = f + (torch.round(f) - f).detach()
        return self.dec(torch.cat([q, f], -1).transpose(1, 2))


class Rssm(nn.Module):
    """A world as it goes on: a state that is known, one that is one of many."""

    def __init__(self, d=12):
        super().__init__()
        self.d, self.inp, self.cell, self.prior, self.dec = d, nn.Sequential(nn.Linear(16 + 2, d), nn.LayerNorm(d), nn.SiLU()), nn.GRUCell(d, d), nn.Linear(d, 16), nn.Linear(d + 16, 5)

    def forward(self, actions):
        b = actions.shape[0]
        h, z, out = torch.zeros(b, self.d, dtype=actions.dtype), torch.zeros(b, 16, dtype=actions.dtype), []
        for t in range(actions.shape[1]):
            h = self.cell(self.inp(torch.cat([z, actions[:, t]], -1)), h)
            p = 0.99 * self.prior(h).view(b, 4, 4).softmax(-1) + 0.01 / 4
            one = F.one_hot(p.argmax(-1), 4).to(p.dtype)
            z = (one + p - p.detach()).flatten(1)
            out.append(self.dec(torch.cat([h, z], -1)))
        return torch.stack(out, 1)


class Mixtures(nn.Module):
    """Experts, the two best of each, all computed and weighted; a router with a bias."""

    def __init__(self, d=16, e=4):
        super().__init__()
        self.gate, self.w1, self.w2, self.bias = nn.Linear(d, e, bias=False), nn.Parameter(0.2 * torch.randn(e, d, 24)), nn.Parameter(0.2 * torch.randn(e, 24, d)), nn.Parameter(torch.zeros(e))

    def forward(self, x):
        g = self.gate(x) + self.bias
        v, at = torch.topk(g, 2, dim=-1)
        w = torch.zeros_like(g).scatter(-1, at, torch.softmax(v, -1))
        h = F.gelu(torch.einsum("bnd,edf->bnef", x, self.w1))
        return torch.einsum("bnef,efd,bne->bnd", h, self.w2, w)


class Xlstm(nn.Module):
    """Memories that are matrices, gates that are exponentials, all steps at once."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.h, self.qkv, self.i, self.f, self.o, self.norm = h, nn.Linear(d, 3 * d), nn.Linear(d, h), nn.Linear(d, h), nn.Linear(d, d), nn.GroupNorm(h, d)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (t.view(b, n, self.h, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        f = F.logsigmoid(self.f(x)).transpose(1, 2).cumsum(-1)
        m = f[..., :, None] - f[..., None, :] + self.i(x).transpose(1, 2)[..., None, :]
        m = m.masked_fill(~torch.tril(torch.ones(n, n, dtype=torch.bool)), -float("inf"))
        top = m.max(-1, keepdim=True).values
        c = q @ k.transpose(-1, -2) * (d // self.h) ** -0.5 * torch.exp(m - top)
        y = c / torch.maximum(c.sum(-1, keepdim=True).abs(), torch.exp(-top)) @ v
        y = self.norm(y.transpose(1, 2).reshape(b * n, d)).view(b, n, d)
        return torch.sigmoid(self.o(x)) * y


class Perceiver(nn.Module):
    """Few vectors read many, places as waves, weights shared by the layers."""

    def __init__(self, d=16, m=4):
        super().__init__()
        self.latents, self.kv, self.q, self.out = nn.Parameter(torch.randn(m, d) * 0.2), nn.Linear(3 + 10, 2 * d, bias=False), nn.Linear(d, d, bias=False), nn.Linear(d, d)
        self.self_att, self.norm, self.head = nn.TransformerEncoderLayer(d, 2, 32, dropout=0.0, batch_first=True), nn.LayerNorm(d), nn.Linear(d, 3)

    def forward(self, x):
        b, h, w, _ = x.shape
        pos = torch.stack(torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij"), -1).to(x.dtype)
        f = pos.unsqueeze(-1) * torch.linspace(1.0, 5.0, 2, dtype=x.dtype) * math.pi
        enc = torch.cat([f.sin(), f.cos(), pos.unsqueeze(-1)], -1).flatten(-2)
        data = torch.cat([x, enc.expand(b, -1, -1, -1)], -1).view(b, h * w, -1)
        z = self.latents.repeat(b, 1, 1)
        for _ in range(2):
            k, v = self.kv(data).chunk(2, -1)
            a = torch.softmax(self.q(self.norm(z)) @ k.transpose(1, 2) / 4, -1)
            z = self.self_att(z + self.out(a @ v))
        return self.head(z.mean(1))


class Hopfield(nn.Module):
    """Patterns that are remembered, asked again until they rest; with a sum of all samples' logarithms."""

    def __init__(self):
        super().__init__()
        self.patterns, self.beta = nn.Parameter(torch.randn(10, 8)), 4.0

    def forward(self, x):
        for _ in range(3):
            x = torch.softmax(self.beta * F.normalize(x, dim=-1) @ F.normalize(self.patterns, dim=-1).T, dim=-1) @ self.patterns
        return x, -torch.logsumexp(self.beta * x @ self.patterns.T, dim=-1) / self.beta


class Clip(nn.Module):
    """Each activation that a user may reach for, and norms of other orders."""

    def __init__(self):
        super().__init__()
        self.fs = nn.ModuleList([nn.Hardtanh(), nn.Hardshrink(), nn.Softshrink(), nn.Tanhshrink(), nn.Threshold(0.1, 0.2), nn.SELU(), nn.Mish(), nn.RReLU(), nn.Softmin(-1), nn.Hardsigmoid(), nn.CELU(0.5), nn.Softplus(2, 5), nn.ReLU6(), nn.LogSoftmax(-1), nn.ELU(0.7), nn.GELU("tanh"), nn.SiLU()])
        self.a, self.b = nn.Linear(8, 8), nn.Linear(len(self.fs), 3)

    def forward(self, x):
        h = self.a(x)
        y = torch.stack([f(h).norm(p=1, dim=-1) for f in self.fs], -1)
        return self.b(y / (1 + y.norm(p=3, dim=-1, keepdim=True))) + torch.linalg.vector_norm(h, dim=-1, keepdim=True) + torch.logit(torch.sigmoid(h[:, :3]), eps=1e-6)


def past():
    return torch.tensor([[0, 0, 3, 5, 9, 11, 4, 2], [0, 7, 8, 1, 2, 22, 14, 6]])


def edge_list():
    return torch.randint(0, 9, (2, 20))


def one_sample(module):
    def make():
        module.one_sample = True
        return module()
    return make


def padded():
    x = ids()
    x[1, -4:] = 0
    return x


def waves(*shape):
    return lambda: torch.randn(*shape).cumsum(-1) * 0.2


ALL = {
    "conv_tas_net": own(ConvTasNet, floats(2, 1, 64)), "sinc_net": own(SincNet, floats(2, 1, 80)),
    "mel_net": own(MelNet, floats(2, 160)), "framed": own(Framed, floats(2, 160)),
    "ecapa": own(Ecapa, floats(2, 10, 20), lengths=[2]), "hifi_gan": own(HifiGan, floats(2, 8, 10), lengths=[2]),
    "weight_normed": own(WeightNormed, floats(2, 4, 12), lengths=[2]), "complex_net": own(ComplexNet, floats(2, 2, 8, 6)),
    "tacotron": own(Tacotron, ids, mask, floats(2, 5, 4)), "gru_attention": own(GruAttention, ids, ids),
    "pointer": own(Pointer, ids, ids), "packed": own(Packed, padded), "min_gru": own(MinGru, ids, lengths=[1]),
    "s4d": own(S4d, floats(2, 8, 20)), "gf_net": own(Gfnet, floats(2, 3, 16, 16)), "ntm": own(Ntm, floats(2, 5, 4)),
    "performer": own(Performer, floats(2, 10, 16), lengths=[1]), "reformer": own(Reformer, ids),
    "d_linear": own(DLinear, waves(2, 24, 3)), "autoformer": own(Autoformer, waves(2, 24, 3)),
    "i_transformer": own(ITransformer, waves(2, 24, 3)), "tft": own(Tft, waves(2, 10, 4)),
    "lst_net": own(LstNet, waves(2, 24, 4)), "inception_time": own(InceptionTime, waves(2, 3, 30), lengths=[2]),
    "dcn": own(lambda: Dcn(10), floats(2, 6), kinds),
    "auto_int": own(AutoInt, kinds), "din": own(Din, past, lambda: torch.tensor([4, 9])),
    "sasrec": own(Sasrec, past, words(2, 5)), "towers": own(Towers, floats(2, 5), words(2, 6)),
    "trees": own(Trees, floats(2, 6)), "dense_gcn": own(DenseGcn, floats(2, 9, 6), lambda: (torch.rand(2, 9, 9) > 0.6).float()),
    "edge_messages": own(one_sample(EdgeMessages), floats(9, 6), edge_list),
    "egnn": own(Egnn, words(2, 6), floats(2, 6, 3), lengths=[1, 1]), "graphormer": own(Graphormer, words(2, 7), words(2, 7, 7)),
    "st_gcn": own(StGcn, floats(2, 2, 6, 7, 2)), "squashed_policy": own(SquashedPolicy, floats(2, 6), floats(2, 2)),
    "quantiles": own(Quantiles, floats(2, 1, 8, 8), lambda: torch.rand(2, 5)),
    "decision_transformer": own(DecisionTransformer, floats(2, 5, 1), floats(2, 5, 4), floats(2, 5, 2), words(2, 5)),
    "spline_flow": own(SplineFlow, floats(2, 4)), "made": own(Made, floats(2, 6)),
    "residuals": own(Residuals, floats(2, 1, 16)), "rssm": own(Rssm, floats(2, 4, 2)),
    "mixtures": own(Mixtures, floats(2, 7, 16), lengths=[1]), "xlstm": own(Xlstm, floats(2, 9, 16), lengths=[1]),
    "perceiver_own": own(Perceiver, floats(2, 6, 6, 3)), "hopfield": own(Hopfield, floats(2, 8)),
    "activations": own(Clip, floats(2, 8)),
}
