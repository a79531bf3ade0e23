"""Blocks of recent papers about sequences, attention, experts and functions that are learned; for sweep.py."""
import math

import torch
from torch import nn
from torch.nn import functional as F


def split_heads(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


class AxialRope(nn.Module):
    """A vision block with rotary places along both axes of the picture, and a class token that is not turned."""

    def __init__(self, d=32, heads=2, side=4):
        super().__init__()
        self.heads, k = heads, d // heads
        self.patch, self.cls = nn.Conv2d(3, d, 4, 4), nn.Parameter(torch.zeros(1, 1, d))
        self.qkv, self.out, self.norm = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.LayerNorm(d)
        f = 1 / 100 ** (torch.arange(0, k // 4) * 4 / k)
        y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
        angle = torch.cat([y.flatten()[:, None] * f, x.flatten()[:, None] * f], -1)
        self.register_buffer("rot", torch.stack([angle.cos(), angle.sin()]), persistent=False)

    def turn(self, x):
        a, b = x[..., 0::2], x[..., 1::2]
        c, s = self.rot[0].to(x.dtype), self.rot[1].to(x.dtype)
        return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1)
        q, k, v = (split_heads(t, self.heads) for t in self.qkv(self.norm(x)).chunk(3, -1))
        q = torch.cat([q[:, :, :1], self.turn(q[:, :, 1:])], 2)
        k = torch.cat([k[:, :, :1], self.turn(k[:, :, 1:])], 2)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return (x + self.out(y))[:, 0]


class Forgetting(nn.Module):
    """Attention that forgets: a gate for each head and step, whose logarithms add up."""

    def __init__(self, d=16, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv, self.gate, self.out = nn.Linear(d, 3 * d), nn.Linear(d, heads), nn.Linear(d, d)

    def forward(self, x):
        n = x.shape[1]
        q, k, v = (split_heads(t, self.heads) for t in self.qkv(x).chunk(3, -1))
        c = F.logsigmoid(self.gate(x)).transpose(1, 2).cumsum(-1)
        s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + c[..., :, None] - c[..., None, :]
        s = s.masked_fill(torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1), -torch.inf)
        return self.out((s.softmax(-1) @ v).transpose(1, 2).flatten(2))


class TalkingHeads(nn.Module):
    """Heads are mixed before and after the softmax, and a padding mask hides keys."""

    def __init__(self, d=16, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d)
        self.before, self.after = nn.Parameter(torch.eye(heads) + 0.1), nn.Parameter(torch.eye(heads) - 0.1)

    def forward(self, x, mask):
        q, k, v = (split_heads(t, self.heads) for t in self.qkv(x).chunk(3, -1))
        s = torch.einsum("bhij,hg->bgij", q @ k.transpose(-1, -2) / 2, self.before)
        s = s.masked_fill(~mask[:, None, None].bool(), torch.finfo(s.dtype).min)
        p = torch.einsum("bhij,hg->bgij", s.softmax(-1), self.after)
        return self.out((p @ v).transpose(1, 2).flatten(2))


class TopKeys(nn.Module):
    """Each query sees the four best keys; the fourth best score is the bound."""

    def __init__(self, d=16, heads=2):
        super().__init__()
        self.heads, self.q, self.kv, self.out = heads, nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d)
        self.temperature = nn.Parameter(torch.tensor(0.7132))

    def forward(self, x):
        q, (k, v) = split_heads(self.q(x), self.heads), (split_heads(t, self.heads) for t in self.kv(x).chunk(2, -1))
        s = q @ k.transpose(-1, -2) * self.temperature.exp()
        bound = s.topk(4, -1).values[..., -1:]
        s = torch.where(s < bound, torch.full_like(s, -torch.inf), s)
        return self.out((s.softmax(-1) @ v).transpose(1, 2).flatten(2))


class SigmoidAttention(nn.Module):
    """Sigmoids instead of a softmax, with a bias by the length, and ALiBi's slopes."""

    def __init__(self, d=16, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.register_buffer("slopes", 2.0 ** -(torch.arange(1, heads + 1) * 8 / heads))
        self.scale = nn.Parameter(torch.ones(d))

    def forward(self, x):
        n = x.shape[1]
        q, k, v = (split_heads(t, self.heads) for t in self.qkv(x).chunk(3, -1))
        i = torch.arange(n, device=x.device)
        far = (i[None] - i[:, None]).abs().to(x.dtype)
        s = q @ k.transpose(-1, -2) / 2 - self.slopes[:, None, None] * far - math.log(n)
        return x + self.scale * self.out((torch.sigmoid(s) @ v).transpose(1, 2).flatten(2))


class CausalLinear(nn.Module):
    """Linear attention whose sums run along the sequence."""

    def __init__(self, d=12, heads=2):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        q, k, v = (split_heads(t, self.heads) for t in self.qkv(x).chunk(3, -1))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        kv = torch.einsum("bhnd,bhne->bhnde", k, v).cumsum(2)
        z = 1 / (torch.einsum("bhnd,bhnd->bhn", q, k.cumsum(2)) + 1e-6)
        return self.out(torch.einsum("bhnd,bhnde,bhn->bhne", q, kv, z).transpose(1, 2).flatten(2))


class MinLstm(nn.Module):
    """minLSTM in log space: all steps at once by the logarithm of a sum over what was before."""

    def __init__(self, d=10, h=12):
        super().__init__()
        self.f, self.i, self.g, self.out = nn.Linear(d, h), nn.Linear(d, h), nn.Linear(d, h), nn.Linear(h, 3)

    def forward(self, x):
        diff = F.softplus(-self.f(x)) - F.softplus(-self.i(x))
        log_f, log_i = -F.softplus(diff), -F.softplus(-diff)
        g = self.g(x)
        log_g = torch.where(g >= 0, (F.relu(g) + 0.5).log(), -F.softplus(-g))
        a = F.pad(log_f.cumsum(1), (0, 0, 1, 0))
        terms = F.pad(log_i + log_g, (0, 0, 1, 0), value=math.log(0.5)) - a
        n = a.shape[1]
        later = torch.ones(n, n, dtype=torch.bool, device=a.device).triu(1)
        s = (a[:, :, None] + terms[:, None]).masked_fill(later[None, :, :, None], -torch.inf)
        return self.out(torch.logsumexp(s, 2)[:, 1:].exp())


class ScanByDoubling(nn.Module):
    """S5's associative scan: distances of 1, 2, 4, ... steps."""

    def __init__(self, d=8, state=12):
        super().__init__()
        self.log_a, self.b, self.c = nn.Parameter(torch.rand(state) - 1), nn.Linear(d, state), nn.Linear(state, d)
        self.dt, self.skip = nn.Linear(d, state), nn.Parameter(torch.randn(d))

    def forward(self, x):
        dt = F.softplus(self.dt(x))
        a, h = torch.exp(-dt * self.log_a.exp()), dt * self.b(x)
        step = 1
        while step < x.shape[1]:
            h = h + a * F.pad(h[:, :-step], (0, 0, step, 0))
            a = a * F.pad(a[:, :-step], (0, 0, step, 0), value=1.0)
            step *= 2
        return self.c(h) + self.skip * x


class TestTimeTraining(nn.Module):
    """TTT: the state is a linear model that takes a step of descent at each token."""

    def __init__(self, d=8):
        super().__init__()
        self.qkv, self.start, self.lr = nn.Linear(d, 3 * d), nn.Parameter(torch.randn(d, d) / 8), nn.Linear(d, 1)
        self.norm = nn.LayerNorm(d)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        w, lr, out = self.start.expand(x.shape[0], -1, -1), torch.sigmoid(self.lr(x)), []
        for t in range(x.shape[1]):
            off = torch.bmm(k[:, t:t + 1], w) - v[:, t:t + 1]
            w = w - lr[:, t:t + 1] * torch.bmm(k[:, t:t + 1].transpose(1, 2), off)
            out.append(self.norm(torch.bmm(q[:, t:t + 1], w)))
        return torch.cat(out, 1)


class FourierKan(nn.Module):
    """Sines and cosines of several frequencies, each with a weight."""

    def __init__(self, sizes=(5, 8, 3), waves=4):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(2, b, a, waves) / (a * waves) ** 0.5)
                                        for a, b in zip(sizes, sizes[1:]))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(b)) for b in sizes[1:])
        self.register_buffer("k", torch.arange(1, waves + 1).float())

    def forward(self, x):
        for w, b in zip(self.weights, self.biases):
            t = x[..., None] * self.k
            x = torch.einsum("nik,oik->no", t.cos(), w[0]) + torch.einsum("nik,oik->no", t.sin(), w[1]) + b
        return x


class JacobiKan(nn.Module):
    """Polynomials by their recursion, on what a tanh holds between -1 and 1."""

    def __init__(self, a=5, b=4, degree=4):
        super().__init__()
        self.coef, self.degree = nn.Parameter(torch.randn(a, b, degree + 1) / (a * degree)), degree
        self.alpha, self.norm = nn.Parameter(torch.tensor(1.1)), nn.LayerNorm(b)

    def forward(self, x):
        x, al = torch.tanh(x), self.alpha
        p = [torch.ones_like(x), ((al + 1) + (al + al + 2) * (x - 1) / 2)]
        for n in range(2, self.degree + 1):
            c = 2 * n * (n + 2 * al) * (2 * n + 2 * al - 2)
            first = (2 * n + 2 * al - 1) * (2 * n + 2 * al) * (2 * n + 2 * al - 2) * x * p[-1]
            p.append((first - 2 * (n + al - 1) ** 2 * (2 * n + 2 * al) * p[-2]) / c)
        return self.norm(torch.einsum("bid,iod->bo", torch.stack(p, -1), self.coef))


class ExpertChoice(nn.Module):
    """Experts choose tokens; what they say is added where it came from."""

    def __init__(self, d=8, experts=3, take=4):
        super().__init__()
        self.take, self.gate = take, nn.Linear(d, experts, bias=False)
        self.w1, self.w2 = nn.Parameter(torch.randn(experts, d, 16) / 3), nn.Parameter(torch.randn(experts, 16, d) / 4)

    def forward(self, x):
        s = self.gate(x).softmax(-1).transpose(1, 2)
        w, at = s.topk(self.take, -1)
        picked = torch.gather(x[:, None].expand(-1, s.shape[1], -1, -1), 2, at[..., None].expand(-1, -1, -1, x.shape[-1]))
        y = torch.einsum("beth,ehd->betd", F.gelu(torch.einsum("betd,edh->beth", picked, self.w1)), self.w2) * w[..., None]
        index = at.flatten(1)[..., None].expand(-1, -1, x.shape[-1])
        return x + torch.zeros_like(x).scatter_add(1, index, y.flatten(1, 2))


class Capacity(nn.Module):
    """Switch with a capacity: a token's place in its expert is a cumulated sum, beyond it the token is dropped."""

    def __init__(self, d=8, experts=3, capacity=3):
        super().__init__()
        self.e, self.c, self.gate = experts, capacity, nn.Linear(d, experts)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(d, 12), nn.ReLU(), nn.Linear(12, d)) for _ in range(experts))

    def forward(self, x):
        p = self.gate(x).softmax(-1)
        best, which = p.max(-1)
        one = F.one_hot(which, self.e).to(x.dtype)
        place = (one.cumsum(1) - 1) * one
        one = one * (place < self.c)
        slots = F.one_hot(place.sum(-1).long().clamp(max=self.c - 1), self.c).to(x.dtype)
        send = one[..., None] * slots[:, :, None]
        y = torch.einsum("bnec,bnd->ebcd", send, x)
        y = torch.stack([f(t) for f, t in zip(self.experts, y)])
        return x + torch.einsum("bnec,ebcd,bn->bnd", send, y, best)


class Vocos(nn.Module):
    """A vocoder without upsampling: ConvNeXt blocks, then magnitudes and phases, and an inverse transform by products."""

    def __init__(self, mels=8, d=16, size=16, hop=8):
        super().__init__()
        self.size, self.hop = size, hop
        self.embed, self.dw, self.norm = nn.Conv1d(mels, d, 7, padding=3), nn.Conv1d(d, d, 7, padding=3, groups=d), nn.LayerNorm(d)
        self.p1, self.p2, self.gamma = nn.Linear(d, 3 * d), nn.Linear(3 * d, d), nn.Parameter(0.1 * torch.ones(d))
        self.head = nn.Linear(d, size + 2)
        k, n = torch.arange(size // 2 + 1)[:, None], torch.arange(size)[None]
        weight = torch.full((size // 2 + 1, 1), 2.0)
        weight[0] = weight[-1] = 1.0
        self.register_buffer("cos", weight * torch.cos(2 * math.pi * k * n / size) / size)
        self.register_buffer("sin", weight * torch.sin(2 * math.pi * k * n / size) / size)
        self.register_buffer("window", torch.hann_window(size))

    def forward(self, mel):
        x = self.embed(mel)
        y = self.dw(x).transpose(1, 2)
        x = x.transpose(1, 2) + self.gamma * self.p2(F.gelu(self.p1(self.norm(y))))
        m, p = self.head(x).chunk(2, -1)
        m = m.exp().clamp(max=1e2)
        frames = (m * p.cos()) @ self.cos - (m * p.sin()) @ self.sin
        n = frames.shape[1]
        y = F.fold((frames * self.window).transpose(1, 2), (1, self.hop * (n - 1) + self.size), (1, self.size), stride=(1, self.hop))
        return y[:, 0, 0]


class Branchformer(nn.Module):
    """E-Branchformer: attention beside a convolutional gate, merged by a depthwise convolution; frames beyond a length are hidden."""

    def __init__(self, d=16, heads=2):
        super().__init__()
        self.n1, self.n2, self.n3 = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.att = nn.MultiheadAttention(d, heads, batch_first=True)
        self.up, self.down, self.gate = nn.Linear(d, 4 * d), nn.Linear(2 * d, d), nn.Conv1d(2 * d, 2 * d, 5, padding=2, groups=2 * d)
        self.gn, self.merge, self.out = nn.LayerNorm(2 * d), nn.Conv1d(2 * d, 2 * d, 3, padding=1, groups=2 * d), nn.Linear(2 * d, d)
        self.ctc = nn.Linear(d, 9)

    def forward(self, x, lengths):
        pad = torch.arange(x.shape[1], device=x.device)[None] >= lengths[:, None]
        y = self.n1(x)
        a, _ = self.att(y, y, y, key_padding_mask=pad, need_weights=False)
        r, g = F.gelu(self.up(self.n2(x))).chunk(2, -1)
        g = self.gate(self.gn(g).transpose(1, 2)).transpose(1, 2)
        both = torch.cat([a, self.down(r * g)], -1)
        both = both + self.merge(both.transpose(1, 2)).transpose(1, 2)
        x = self.n3(x + self.out(both)).masked_fill(pad[..., None], 0.0)
        return self.ctc(x).log_softmax(-1)


class Edm(nn.Module):
    """EDM: the noise conditions by Fourier features, blocks by scale and shift, skips by PixelShuffle, and preconditioning."""

    class Block(nn.Module):
        def __init__(self, a, b, e):
            super().__init__()
            self.n1, self.c1, self.emb = nn.GroupNorm(4, a), nn.Conv2d(a, b, 3, padding=1), nn.Linear(e, 2 * b)
            self.n2, self.c2, self.skip = nn.GroupNorm(4, b), nn.Conv2d(b, b, 3, padding=1), nn.Conv2d(a, b, 1)

        def forward(self, x, e):
            y = self.c1(F.silu(self.n1(x)))
            scale, shift = self.emb(e)[:, :, None, None].chunk(2, 1)
            return (self.skip(x) + self.c2(F.silu(torch.addcmul(shift, self.n2(y), scale + 1)))) * 0.5 ** 0.5

    def __init__(self, c=8, e=16):
        super().__init__()
        self.register_buffer("freqs", torch.randn(e // 2) * 0.5)
        self.emb = nn.Sequential(nn.Linear(e, e), nn.SiLU(), nn.Linear(e, e))
        self.inp, self.b1, self.b2, self.b3 = nn.Conv2d(3, c, 3, padding=1), self.Block(c, c, e), self.Block(4 * c, 2 * c, e), self.Block(c + c // 2, c, e)
        self.down, self.up, self.out = nn.PixelUnshuffle(2), nn.PixelShuffle(2), nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, x, sigma):
        s = sigma[:, None, None, None]
        w = (sigma.log() / 4)[:, None] * self.freqs * 2 * math.pi
        e = self.emb(torch.cat([w.cos(), w.sin()], -1))
        h = self.b1(self.inp(x / (s ** 2 + 0.25).sqrt()), e)
        y = self.up(self.b2(self.down(h), e))
        f = self.out(F.silu(self.b3(torch.cat([h, y], 1), e)))
        return 0.25 / (s ** 2 + 0.25) * x + s * 0.5 / (s ** 2 + 0.25).sqrt() * f


class SpectralGate(nn.Module):
    """A gate for each frequency, learned, between a transform and its inverse."""

    def __init__(self, n=16, d=6):
        super().__init__()
        self.n, self.gate, self.norm, self.mlp = n, nn.Parameter(torch.randn(n // 2 + 1, d, 2) * 0.5), nn.LayerNorm(d), nn.Linear(d, d)

    def forward(self, x):
        f = torch.view_as_real(torch.fft.rfft(self.norm(x), dim=1, norm="ortho"))
        g = torch.stack([f[..., 0] * self.gate[..., 0] - f[..., 1] * self.gate[..., 1],
                         f[..., 0] * self.gate[..., 1] + f[..., 1] * self.gate[..., 0]], -1)
        y = torch.fft.irfft(torch.view_as_complex(g), n=self.n, dim=1, norm="ortho")
        return x + F.gelu(self.mlp(y))


class Scinet(nn.Module):
    """Even and odd steps of a series teach each other; instance norm goes out again at the end."""

    def __init__(self, d=3, horizon=4, n=16):
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))
        self.parts = nn.ModuleList(nn.Sequential(nn.ReplicationPad1d(2), nn.Conv1d(d, 8, 3), nn.LeakyReLU(0.01), nn.Conv1d(8, d, 3), nn.Tanh())
                                   for _ in range(4))
        self.out = nn.Conv1d(n, horizon, 1, bias=False)

    def forward(self, x):
        m = x.mean(1, keepdim=True)
        s = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5)
        y = ((x - m) / s * self.gain + self.shift).transpose(1, 2)
        a, b = y[..., ::2], y[..., 1::2]
        phi, psi, rho, eta = self.parts
        c, d = b * phi(a).exp(), a * psi(b).exp()
        a, b = d + eta(c), c - rho(d)
        y = torch.stack([a, b], -1).flatten(-2).transpose(1, 2) + (x - m) / s
        return (self.out(y) - self.shift) / (self.gain + 1e-10) * s + m


class Nhits(nn.Module):
    """N-HiTS: pooled series, coefficients that are interpolated, residuals."""

    def __init__(self, n=24, h=8):
        super().__init__()
        self.n, self.h = n, h
        self.pools = (4, 2, 1)
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(n // p, 16), nn.ReLU(), nn.Linear(16, n + h // p)) for p in self.pools)

    def forward(self, x):
        total = 0
        for pool, mlp in zip(self.pools, self.mlps):
            theta = mlp(F.max_pool1d(x[:, None], pool, pool, ceil_mode=True)[:, 0])
            x = x - theta[:, :self.n]
            knots = theta[:, self.n:]
            total = total + F.interpolate(knots[:, None], size=self.h, mode="linear")[:, 0]
        return total


class TabM(nn.Module):
    """TabM: one MLP, many members by scales, on piecewise linear numbers with learned waves."""

    def __init__(self, features=4, members=3, d=8):
        super().__init__()
        self.freq, self.lin = nn.Parameter(0.3 * torch.randn(features, 4)), nn.Parameter(torch.randn(features, 8, d) / 3)
        self.r, self.s = nn.Parameter(torch.ones(members, features * d)), nn.Parameter(torch.ones(members, 12))
        self.fc, self.bias = nn.Linear(features * d, 12, bias=False), nn.Parameter(torch.zeros(members, 12))
        self.head, self.head_bias = nn.Parameter(torch.randn(members, 12, 2) / 3), nn.Parameter(torch.zeros(members, 2))
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("std", torch.full((features,), 1.3))

    def forward(self, x):
        x = (x - self.mean) / self.std
        v = 2 * math.pi * self.freq * x[..., None]
        x = F.relu(torch.einsum("bfk,fkd->bfd", torch.cat([v.cos(), v.sin()], -1), self.lin)).flatten(1)
        y = F.relu(self.fc(x[:, None] * self.r) * self.s + self.bias)
        return torch.einsum("bmi,mio->bmo", y, self.head) + self.head_bias


class GruD(nn.Module):
    """GRU-D: what is missing decays to the mean, the state decays with the time since."""

    def __init__(self, d=4, h=6):
        super().__init__()
        self.cell, self.out = nn.GRUCell(2 * d, h), nn.Linear(h, 2)
        self.decay_x, self.decay_h = nn.Parameter(torch.rand(d)), nn.Linear(d, h)
        self.register_buffer("mean", torch.tensor([0.1, -0.2, 0.3, 0.0]))

    def forward(self, x, mask, gap):
        h = torch.zeros(x.shape[0], self.cell.hidden_size, dtype=x.dtype, device=x.device)
        last = self.mean.expand(x.shape[0], -1)
        for t in range(x.shape[1]):
            m, d = mask[:, t], gap[:, t]
            g = torch.exp(-F.relu(self.decay_x) * d)
            last = m * x[:, t] + (1 - m) * last
            now = m * x[:, t] + (1 - m) * (g * last + (1 - g) * self.mean)
            h = self.cell(torch.cat([now, m], -1), h * torch.exp(-F.relu(self.decay_h(d))))
        return self.out(h)


class Iqn(nn.Module):
    """Implicit quantiles: cosines of a fraction times features, and a value for each action."""

    def __init__(self, d=6, h=12, actions=3):
        super().__init__()
        self.f, self.phi, self.v, self.a = nn.Linear(d, h), nn.Linear(16, h), nn.Linear(h, 1), nn.Linear(h, actions)
        self.register_buffer("k", torch.arange(1, 17) * math.pi)

    def forward(self, x, tau):
        z = F.relu(self.f(x))[:, None] * F.relu(self.phi(torch.cos(tau[..., None] * self.k)))
        a = self.a(z)
        return (self.v(z) + a - a.mean(-1, keepdim=True)).transpose(1, 2)


R = torch.randn
ALL = {
    "block_axial_rope": lambda: (AxialRope(), [R(2, 3, 16, 16)], [None]),
    "block_forgetting": lambda: (Forgetting(), [R(2, 9, 16)], [1]),
    "block_talking_heads": lambda: (TalkingHeads(), [R(2, 7, 16), torch.tensor([[1] * 7, [1] * 4 + [0] * 3])], [1, 1]),
    "block_top_keys": lambda: (TopKeys(), [R(2, 9, 16)], [None]),
    "block_sigmoid_attention": lambda: (SigmoidAttention(), [R(2, 9, 16)], [1]),
    "block_causal_linear": lambda: (CausalLinear(), [R(2, 8, 12)], [1]),
    "block_min_lstm": lambda: (MinLstm(), [R(2, 7, 10)], [1]),
    "block_scan_by_doubling": lambda: (ScanByDoubling(), [R(2, 12, 8)], [None]),
    "block_test_time_training": lambda: (TestTimeTraining(), [R(2, 5, 8)], [None]),
    "block_fourier_kan": lambda: (FourierKan(), [R(2, 5)], [None]),
    "block_jacobi_kan": lambda: (JacobiKan(), [R(2, 5)], [None]),
    "block_expert_choice": lambda: (ExpertChoice(), [R(2, 9, 8)], [1]),
    "block_capacity": lambda: (Capacity(), [R(2, 8, 8)], [1]),
    "block_vocos": lambda: (Vocos(), [R(2, 8, 6)], [2]),
    "block_branchformer": lambda: (Branchformer(), [R(2, 9, 16), torch.tensor([9, 6])], [1, None]),
    "block_edm": lambda: (Edm(), [R(2, 3, 8, 8), torch.tensor([0.3, 2.0])], [None, None]),
    "block_spectral_gate": lambda: (SpectralGate(), [R(2, 16, 6)], [None]),
    "block_scinet": lambda: (Scinet(), [R(2, 16, 3)], [None]),
    "block_nhits": lambda: (Nhits(), [R(2, 24)], [None]),
    "block_tab_m": lambda: (TabM(), [R(2, 4)], [None]),
    "block_gru_d": lambda: (GruD(), [R(2, 5, 4), torch.tensor([0.0, 1.0]).repeat(2, 5, 2), torch.rand(2, 5, 4)], [None] * 3),
    "block_iqn": lambda: (Iqn(), [R(2, 6), torch.rand(2, 5)], [None, 1]),
}
