"""More nets written with plain PyTorch, for sweep.py."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from arch_common import ids, mask
from arch_plain import floats, kinds, own
from arch_sequences import words


class CrossAttention(nn.Module):
    """nn.MultiheadAttention with keys and values of other widths, biases of keys, a zero to attend to."""

    def __init__(self):
        super().__init__()
        self.a = nn.MultiheadAttention(24, 4, kdim=10, vdim=14, add_bias_kv=True, add_zero_attn=True, batch_first=True)
        self.norm, self.out = nn.LayerNorm(24), nn.Linear(24, 5)

    def forward(self, x, k, v):
        y, _ = self.a(x, k, v, need_weights=False)
        return self.out(self.norm(x + y))


class MaskedSelf(nn.Module):
    """Padding and a causal mask together; the weights are averaged."""

    def __init__(self):
        super().__init__()
        self.embed, self.pos = nn.Embedding(100, 24), nn.Parameter(0.02 * torch.randn(1, 32, 24))
        self.a = nn.MultiheadAttention(24, 3, batch_first=True)
        self.out = nn.Linear(24, 4)

    def forward(self, x, m):
        t = x.shape[1]
        x = self.embed(x) + self.pos[:, :t]
        later = torch.ones(t, t, dtype=torch.bool).triu(1)
        y, w = self.a(x, x, x, key_padding_mask=m == 0, attn_mask=later)
        return self.out(y + w @ x)


class PlainVit(nn.Module):
    """A class token, learned positions, layer scale, drop path that is off."""

    class Block(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.fc1, self.fc2 = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
            self.gamma1, self.gamma2 = nn.Parameter(1e-4 * torch.ones(d)), nn.Parameter(1e-4 * torch.ones(d))

        def forward(self, x):
            b, n, d = x.shape
            q, k, v = self.qkv(self.n1(x)).reshape(b, n, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
            x = x + self.gamma1 * self.proj(y)
            return x + self.gamma2 * self.fc2(F.gelu(self.fc1(self.n2(x))))

    def __init__(self, d=32):
        super().__init__()
        self.patch = nn.Conv2d(3, d, 4, 4)
        self.cls_token, self.pos_embed = nn.Parameter(torch.zeros(1, 1, d)), nn.Parameter(0.02 * torch.randn(1, 17, d))
        self.blocks = nn.Sequential(self.Block(d), self.Block(d))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


class MiniDetr(nn.Module):
    """A convolutional body, rows and columns that are learned, queries, nn.Transformer, boxes."""

    def __init__(self, d=32):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, d, 3, 2, 1))
        self.row, self.col = nn.Parameter(torch.rand(10, d // 2)), nn.Parameter(torch.rand(10, d // 2))
        self.query = nn.Parameter(torch.rand(6, d))
        self.transformer = nn.Transformer(d, 4, 1, 1, 48)
        self.boxes = nn.Linear(d, 4)

    def forward(self, x):
        h = self.body(x)
        b, _, hh, ww = h.shape
        pos = torch.cat([self.col[:ww].unsqueeze(0).repeat(hh, 1, 1), self.row[:hh].unsqueeze(1).repeat(1, ww, 1)], -1)
        h = self.transformer(pos.flatten(0, 1).unsqueeze(1) + 0.1 * h.flatten(2).permute(2, 0, 1),
                             self.query.unsqueeze(1).repeat(1, b, 1))
        return self.boxes(h.transpose(0, 1)).sigmoid()


class ProjectedLstm(nn.Module):
    """Stacked, both ways, with projections."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(6, 16, 2, batch_first=True, bidirectional=True, proj_size=5, dropout=0.1)
        self.score, self.head = nn.Linear(10, 1), nn.Linear(10, 3)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.head((self.score(h).softmax(1) * h).sum(1))


class Cells(nn.Module):
    """nn.LSTMCell, nn.GRUCell and nn.RNNCell step by step, from states that are learned."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.LSTMCell(4, 8), nn.GRUCell(8, 8), nn.RNNCell(8, 8, nonlinearity="relu")
        self.h0, self.c0 = nn.Parameter(torch.randn(1, 8)), nn.Parameter(torch.randn(1, 8))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        n = x.shape[0]
        h, c = self.h0.expand(n, -1), self.c0.expand(n, -1)
        g, r, out = torch.zeros_like(h), torch.zeros_like(h), []
        for t in range(x.shape[1]):
            h, c = self.a(x[:, t], (h, c))
            g = self.b(h, g)
            r = self.c(g, r)
            out.append(self.head(r))
        return torch.stack(out, 1)


class Ncf(nn.Module):
    """Neural collaborative filtering: a product beside a net."""

    def __init__(self):
        super().__init__()
        self.ug, self.ig, self.um, self.im = nn.Embedding(20, 8), nn.Embedding(20, 8), nn.Embedding(20, 8), nn.Embedding(20, 8)
        self.mlp = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 8), nn.ReLU())
        self.out = nn.Linear(16, 1)

    def forward(self, u, i):
        return self.out(torch.cat([self.ug(u) * self.ig(i), self.mlp(torch.cat([self.um(u), self.im(i)], -1))], -1)).sigmoid()


class XDeepFm(nn.Module):
    """Compressed interactions of fields, one table for each."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(20, 6) for _ in range(3))
        self.cin = nn.ModuleList([nn.Conv1d(9, 5, 1), nn.Conv1d(15, 5, 1)])
        self.deep = nn.Sequential(nn.Linear(18, 16), nn.ReLU(), nn.Linear(16, 1))
        self.out, self.line = nn.Linear(10, 1, bias=False), nn.EmbeddingBag(60, 1, mode="sum")

    def forward(self, x):
        e = torch.stack([t(x[:, i]) for i, t in enumerate(self.tables)], 1)
        h, kept = e, []
        for c in self.cin:
            h = F.relu(c((e.unsqueeze(2) * h.unsqueeze(1)).flatten(1, 2)))
            kept.append(h.sum(-1))
        return self.out(torch.cat(kept, 1)) + self.deep(e.flatten(1)) + self.line(x + 20 * torch.arange(3))


class PeriodicTable(nn.Module):
    """Numbers as waves whose lengths are learned, then a residual net."""

    def __init__(self):
        super().__init__()
        self.c = nn.Parameter(torch.randn(6, 4))
        self.w, self.b = nn.Parameter(torch.randn(6, 8, 5)), nn.Parameter(torch.randn(6, 5))
        self.first = nn.Linear(30, 16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.BatchNorm1d(16), nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 16)) for _ in range(2))
        self.head = nn.Sequential(nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        v = 2 * math.pi * self.c * x[..., None]
        x = F.relu((torch.cat([v.cos(), v.sin()], -1)[..., None, :] @ self.w).squeeze(-2) + self.b).flatten(1)
        x = self.first(x)
        for b in self.blocks:
            x = x + b(x)
        return self.head(x)


class Gin(nn.Module):
    """Isomorphism network: a learned epsilon for each layer."""

    def __init__(self):
        super().__init__()
        self.eps = nn.ParameterList(nn.Parameter(torch.zeros(1)) for _ in range(2))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(i, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU()) for i in (6, 12))
        self.head = nn.Linear(24, 3)

    def forward(self, x, a):
        kept = []
        for e, m in zip(self.eps, self.mlps):
            x = m((1 + e) * x + a @ x)
            kept.append(x.sum(1))
        return self.head(torch.cat(kept, 1))


class ChebNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.b = nn.Parameter(0.3 * torch.randn(3, 6, 8)), nn.Parameter(torch.zeros(8))
        self.head = nn.Linear(8, 2)

    def forward(self, x, a):
        d = a.sum(-1).clamp(min=1).rsqrt()
        lap = -d.unsqueeze(-1) * a * d.unsqueeze(-2)
        t0, t1 = x, lap @ x
        y = t0 @ self.w[0] + t1 @ self.w[1] + (2 * lap @ t1 - t0) @ self.w[2] + self.b
        return self.head(F.elu(y).mean(1))


class DiffPool(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.assign, self.again, self.head = nn.Linear(6, 10), nn.Linear(6, 3), nn.Linear(10, 10), nn.Linear(10, 2)

    def forward(self, x, a):
        s, z = self.assign(a @ x).softmax(-1), F.relu(self.embed(a @ x))
        x, a = s.transpose(1, 2) @ z, s.transpose(1, 2) @ a @ s
        return self.head(F.relu(self.again(a @ x)).amax(1))


class SoftMoe(nn.Module):
    """Soft slots for experts whose weights are in one tensor."""

    def __init__(self, d=16, experts=4, slots=2):
        super().__init__()
        self.phi, self.scale = nn.Parameter(torch.randn(d, experts, slots) / math.sqrt(d)), nn.Parameter(torch.ones(1))
        self.w1, self.b1 = nn.Parameter(0.2 * torch.randn(experts, d, 24)), nn.Parameter(torch.zeros(experts, 1, 24))
        self.w2, self.b2 = nn.Parameter(0.2 * torch.randn(experts, 24, d)), nn.Parameter(torch.zeros(experts, 1, d))

    def forward(self, x):
        logits = torch.einsum("bnd,des->bnes", F.normalize(x, dim=-1), self.scale * F.normalize(self.phi, dim=0))
        into = torch.einsum("bnd,bnes->ebsd", x, logits.softmax(1))
        h = F.gelu(torch.einsum("ebsd,edh->ebsh", into, self.w1) + self.b1[:, None])
        h = torch.einsum("ebsh,ehd->ebsd", h, self.w2) + self.b2[:, None]
        return x + torch.einsum("ebsd,bnes->bnd", h, logits.flatten(2).softmax(-1).view_as(logits))


class CoordinateAttention(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.conv, self.squeeze, self.norm = nn.Conv2d(3, c, 3, padding=1), nn.Conv2d(c, 8, 1), nn.BatchNorm2d(8)
        self.ph, self.pw = nn.AdaptiveAvgPool2d((None, 1)), nn.AdaptiveAvgPool2d((1, None))
        self.a, self.b, self.head = nn.Conv2d(8, c, 1), nn.Conv2d(8, c, 1), nn.Linear(c, 4)

    def forward(self, x):
        x = self.conv(x)
        h, w = x.shape[2:]
        y = F.hardswish(self.norm(self.squeeze(torch.cat([self.ph(x), self.pw(x).transpose(2, 3)], 2))))
        yh, yw = y.split([h, w], 2)
        x = x * self.a(yh).sigmoid() * self.b(yw.transpose(2, 3)).sigmoid()
        return self.head(F.adaptive_max_pool2d(x, 1).flatten(1))


class Film(nn.Module):
    """Answers about pictures: words make the scale and shift of norms without weights."""

    def __init__(self):
        super().__init__()
        self.words, self.rnn = nn.Embedding(20, 8), nn.GRU(8, 12, batch_first=True)
        self.make, self.stem = nn.Linear(12, 2 * 2 * 10), nn.Conv2d(3, 10, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(10, 10, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(10, affine=False) for _ in range(2))
        self.head = nn.Linear(10, 4)

    def forward(self, x, q):
        s = self.make(self.rnn(self.words(q))[1][0]).view(-1, 2, 2, 10)
        x = F.relu(self.stem(x))
        for i, (c, n) in enumerate(zip(self.convs, self.norms)):
            x = x + F.relu(n(c(x)) * s[:, i, 0, :, None, None] + s[:, i, 1, :, None, None])
        return self.head(x.amax((2, 3)))


class Equilibrium(nn.Module):
    """The same layer eight times."""

    def __init__(self, d=12):
        super().__init__()
        self.inject, self.a, self.b = nn.Linear(5, d), nn.Linear(d, d), nn.Linear(d, d)
        self.n1, self.n2, self.head = nn.GroupNorm(3, d), nn.GroupNorm(3, d), nn.Linear(d, 2)

    def forward(self, x):
        u = self.inject(x)
        z = torch.zeros_like(u)
        for _ in range(8):
            z = self.n2(F.relu(z + self.b(self.n1(F.relu(self.a(z) + u)))))
        return self.head(z)


class ConvexNet(nn.Module):
    """Convex in its input: weights by softplus, and a monotone head by squares."""

    def __init__(self):
        super().__init__()
        self.w0, self.w1 = nn.Linear(5, 16), nn.Linear(5, 16)
        self.u, self.v = nn.Parameter(torch.randn(16, 16)), nn.Parameter(torch.randn(1, 16))
        self.alpha = nn.Parameter(torch.tensor(0.3))

    def forward(self, x):
        z = F.softplus(self.w0(x))
        z = F.softplus(F.linear(z, F.softplus(self.u)) / 16 + self.w1(x))
        return F.linear(z, self.v.square()) + self.alpha * (x ** 2).sum(-1, keepdim=True)


class NeuralProcess(nn.Module):
    """What was seen, a mean of it, and questions."""

    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 12))
        self.dec = nn.Sequential(nn.Linear(14, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x, y, q):
        r = self.enc(torch.cat([x, y], -1)).mean(1, keepdim=True).expand(-1, q.shape[1], -1)
        mean, s = self.dec(torch.cat([r, q], -1)).chunk(2, -1)
        return torch.cat([mean, 0.1 + 0.9 * F.softplus(s)], -1)


class NHits(nn.Module):
    """Pooled histories, forecasts that are interpolated, what is explained taken away."""

    def __init__(self, n=24, h=8):
        super().__init__()
        self.pools, self.h = nn.ModuleList(nn.MaxPool1d(k, ceil_mode=True) for k in (4, 2, 1)), h
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(n // k, 24), nn.ReLU(), nn.Linear(24, n // k + h // k)) for k in (4, 2, 1))

    def forward(self, x):
        out = 0
        for p, m, k in zip(self.pools, self.mlps, (4, 2, 1)):
            t = m(p(x.unsqueeze(1)).squeeze(1)).unsqueeze(1)
            b, f = t.split([x.shape[1] // k, self.h // k], -1)
            x = x - F.interpolate(b, size=x.shape[1], mode="linear", align_corners=False).squeeze(1)
            out = out + F.interpolate(f, size=self.h, mode="linear", align_corners=False).squeeze(1)
        return out


class TransformerXl(nn.Module):
    """Distances as waves, biases u and v that are shared by the layers."""

    def __init__(self, d=24, heads=3):
        super().__init__()
        self.heads, self.k = heads, d // heads
        self.u, self.v = nn.Parameter(0.1 * torch.randn(heads, self.k)), nn.Parameter(0.1 * torch.randn(heads, self.k))
        self.qkv = nn.ModuleList(nn.Linear(d, 3 * d, bias=False) for _ in range(2))
        self.r = nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(2))
        self.o, self.norms = nn.ModuleList(nn.Linear(d, d) for _ in range(2)), nn.ModuleList(nn.LayerNorm(d) for _ in range(2))
        self.register_buffer("inv_freq", 1 / (10000 ** (torch.arange(0, d, 2) / d)))

    def forward(self, x):
        b, t, d = x.shape
        a = torch.outer(torch.arange(t - 1, -1, -1).to(x.dtype), self.inv_freq)
        p = torch.cat([a.sin(), a.cos()], -1)
        for qkv, r, o, n in zip(self.qkv, self.r, self.o, self.norms):
            q, k, v = qkv(x).view(b, t, 3, self.heads, self.k).unbind(2)
            ac = torch.einsum("bihk,bjhk->bhij", q + self.u, k)
            bd = torch.einsum("bihk,jhk->bhij", q + self.v, r(p).view(t, self.heads, self.k))
            bd = F.pad(bd, (1, 0)).view(b, self.heads, t + 1, t)[:, :, 1:].reshape_as(ac)
            w = ((ac + bd) / math.sqrt(self.k)).masked_fill(torch.ones(t, t).triu(1).bool(), -1e9).softmax(-1)
            x = n(x + o(torch.einsum("bhij,bjhk->bihk", w, v).reshape(b, t, d)))
        return x


class Synthesizer(nn.Module):
    """Attention of learned matrices, Linformer's projections, and the free one with learned biases of places."""

    def __init__(self, n=10, d=16):
        super().__init__()
        self.random = nn.Parameter(torch.randn(1, n, n))
        self.e, self.f = nn.Parameter(torch.randn(4, n) / 3), nn.Parameter(torch.randn(4, n) / 3)
        self.bias = nn.Parameter(0.1 * torch.randn(n, n))
        self.v1, self.q2, self.k2, self.v2, self.q3, self.k3, self.v3 = (nn.Linear(d, d) for _ in range(7))

    def forward(self, x):
        x = x + self.random.softmax(-1) @ self.v1(x)
        k, v = self.e @ self.k2(x), self.f @ self.v2(x)
        x = x + (self.q2(x) @ k.transpose(1, 2) / 4).softmax(-1) @ v
        k = self.k3(x).exp()
        w = self.bias.exp()
        return x + self.q3(x).sigmoid() * (w @ (k * self.v3(x))) / (w @ k)


class GatedUnit(nn.Module):
    """Squared relus as attention, offsets and scales that make queries and keys of one."""

    def __init__(self, d=16, e=32, s=8):
        super().__init__()
        self.norm, self.uv, self.out = nn.LayerNorm(d), nn.Linear(d, 2 * e + s), nn.Linear(e, d)
        self.gamma, self.beta, self.sizes = nn.Parameter(torch.randn(2, s)), nn.Parameter(torch.zeros(2, s)), (e, e, s)
        self.bias_table = nn.Parameter(torch.randn(2 * 12 - 1))

    def forward(self, x):
        n = x.shape[1]
        u, v, z = F.silu(self.uv(self.norm(x))).split(self.sizes, -1)
        q, k = (z.unsqueeze(-2) * self.gamma + self.beta).unbind(-2)
        at = torch.arange(n)
        a = F.relu(q @ k.transpose(1, 2) / n + self.bias_table[at[None, :] - at[:, None] + 11]).square()
        return x + self.out(u * (a @ v))


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2, self.c3 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5), nn.Conv2d(16, 120, 5)
        self.f1, self.f2, self.pool = nn.Linear(120, 84), nn.Linear(84, 10), nn.AvgPool2d(2)

    def forward(self, x):
        x = torch.tanh(self.c3(self.pool(torch.tanh(self.c2(self.pool(torch.tanh(self.c1(x))))))))
        return F.log_softmax(self.f2(torch.tanh(self.f1(x.view(x.shape[0], -1)))), -1)


class LinkNet(nn.Module):
    def __init__(self):
        super().__init__()
        def down(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.PReLU(o))

        def up(i, o):
            return nn.Sequential(nn.Conv2d(i, i // 2, 1), nn.BatchNorm2d(i // 2), nn.PReLU(),
                                 nn.ConvTranspose2d(i // 2, i // 2, 3, 2, 1, output_padding=1, groups=2), nn.BatchNorm2d(i // 2), nn.ReLU6(),
                                 nn.Conv2d(i // 2, o, 1))
        self.d1, self.d2, self.d3 = down(3, 8), down(8, 16), down(16, 32)
        self.u3, self.u2, self.u1 = up(32, 16), up(16, 8), up(8, 4)
        self.head = nn.Conv2d(4, 2, 3, padding=1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(a)
        return self.head(self.u1(self.u2(self.u3(self.d3(b)) + b) + a))


class XVector(nn.Module):
    """Delays, statistics over time, a softmax of speakers."""

    def __init__(self):
        super().__init__()
        self.t = nn.ModuleList(nn.Conv1d(i, o, k, dilation=d) for i, o, k, d in ((8, 16, 5, 1), (16, 16, 3, 2), (16, 24, 1, 1)))
        self.n = nn.ModuleList(nn.BatchNorm1d(o) for o in (16, 16, 24))
        self.a, self.b = nn.Linear(48, 16), nn.Linear(16, 5)

    def forward(self, x):
        for t, n in zip(self.t, self.n):
            x = n(F.relu(t(x)))
        return self.b(F.relu(self.a(torch.cat([x.mean(-1), x.std(-1)], 1))))


class SlowFast(nn.Module):
    """Two speeds of a film, each an input, joined sideways."""

    def __init__(self):
        super().__init__()
        self.slow, self.fast = nn.Conv3d(3, 12, (1, 3, 3), (1, 2, 2), (0, 1, 1)), nn.Conv3d(3, 4, (5, 3, 3), (1, 2, 2), (2, 1, 1))
        self.side = nn.Conv3d(4, 8, (5, 1, 1), (4, 1, 1), (2, 0, 0))
        self.s2, self.f2 = nn.Conv3d(20, 16, 3, padding=1), nn.Conv3d(4, 6, 3, padding=1)
        self.n, self.head = nn.BatchNorm3d(16), nn.Linear(22, 4)

    def forward(self, slow, fast):
        s, f = F.relu(self.slow(slow)), F.relu(self.fast(fast))
        s = F.relu(self.n(self.s2(torch.cat([s, self.side(f)], 1))))
        return self.head(torch.cat([s.mean((2, 3, 4)), F.relu(self.f2(f)).mean((2, 3, 4))], 1))


class ShiftNet(nn.Module):
    """Parts of channels from the frame before and behind."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 3)

    def forward(self, x):
        b, t = x.shape[:2]
        x = F.relu(self.a(x.flatten(0, 1)))
        y = x.view(b, t, *x.shape[1:])
        out = torch.zeros_like(y)
        out[:, :-1, :2] = y[:, 1:, :2]
        out[:, 1:, 2:4] = y[:, :-1, 2:4]
        out[:, :, 4:] = y[:, :, 4:]
        x = x + self.b(out.flatten(0, 1))
        return self.head(x.mean((2, 3)).view(b, t, -1).mean(1))


class ResponseNorm(nn.Module):
    """Filter response norm with its threshold, and rational activations."""

    def __init__(self):
        super().__init__()
        self.c1, self.c2, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.Linear(8, 3)
        self.gamma, self.beta, self.tau = (nn.Parameter(v * torch.ones(1, 8, 1, 1)) for v in (1., 0., -0.5))
        self.eps = nn.Parameter(torch.tensor([1e-4]))
        self.p, self.q = nn.Parameter(torch.tensor([0.02, 0.5, 1.6, 1.2])), nn.Parameter(torch.tensor([2.4, 0.1]))

    def rational(self, x):
        p = self.p[0] + self.p[1] * x + self.p[2] * x ** 2 + self.p[3] * x ** 3
        return p / (1 + (self.q[0] * x + self.q[1] * x ** 2).abs())

    def forward(self, x):
        x = self.c1(x)
        x = x * torch.rsqrt(x.pow(2).mean((2, 3), keepdim=True) + self.eps.abs())
        x = torch.max(self.gamma * x + self.beta, self.tau)
        return self.head(self.rational(self.c2(x)).mean((2, 3)))


class Sinkhorn(nn.Module):
    """Points of two pictures put together, with a score for those that have no partner."""

    def __init__(self):
        super().__init__()
        self.enc, self.bin_score = nn.Sequential(nn.Conv1d(4, 16, 1), nn.ReLU(), nn.Conv1d(16, 16, 1)), nn.Parameter(torch.tensor(1.))

    def forward(self, a, b):
        s = torch.einsum("bdn,bdm->bnm", self.enc(a), self.enc(b)) / 4
        n, k, m = s.shape
        s = torch.cat([torch.cat([s, self.bin_score.expand(n, k, 1)], -1), self.bin_score.expand(n, 1, m + 1)], 1)
        for _ in range(4):
            s = s - s.logsumexp(2, keepdim=True)
            s = s - s.logsumexp(1, keepdim=True)
        return s


class Similar(nn.Module):
    """nn.Bilinear, distances and cosines of two things, maxout."""

    def __init__(self):
        super().__init__()
        self.a, self.bi = nn.Linear(6, 24), nn.Bilinear(8, 8, 5)
        self.cos, self.far, self.head = nn.CosineSimilarity(-1), nn.PairwiseDistance(), nn.Linear(7, 1)

    def forward(self, x, y):
        x, y = (self.a(v).view(-1, 8, 3).amax(-1) for v in (x, y))
        return self.head(torch.cat([self.bi(x, y), self.cos(x, y)[:, None], self.far(x, y)[:, None]], -1))


class RbfNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.centers, self.log_sigma, self.out = nn.Parameter(torch.randn(7, 4)), nn.Parameter(torch.zeros(7)), nn.Linear(7, 3)

    def forward(self, x):
        d = torch.cdist(x, self.centers)
        return self.out(torch.exp(-((d / self.log_sigma.exp()) ** 2)))


GRAPH = (floats(2, 9, 6), lambda: (torch.rand(2, 9, 9) > 0.6).float())
ALL = {
    "cross_attention": own(CrossAttention, floats(2, 6, 24), floats(2, 8, 10), floats(2, 8, 14)),
    "masked_self": own(MaskedSelf, ids, mask, lengths=[1, 1]), "plain_vit": own(PlainVit, floats(2, 3, 16, 16)),
    "mini_detr": own(MiniDetr, floats(2, 3, 16, 16)), "projected_lstm": own(ProjectedLstm, floats(2, 9, 6), lengths=[1]),
    "cells": own(Cells, floats(2, 5, 4)), "ncf": own(Ncf, words(2), words(2)), "x_deep_fm": own(XDeepFm, kinds),
    "periodic_table": own(PeriodicTable, floats(2, 6)), "gin": own(Gin, *GRAPH), "cheb_net": own(ChebNet, *GRAPH),
    "diff_pool": own(DiffPool, *GRAPH), "soft_moe": own(SoftMoe, floats(2, 9, 16), lengths=[1]),
    "coordinate_attention": own(CoordinateAttention, floats(2, 3, 14, 10)), "film": own(Film, floats(2, 3, 10, 10), words(2, 6)),
    "equilibrium": own(Equilibrium, floats(2, 5)), "convex_net": own(ConvexNet, floats(2, 5)),
    "neural_process": own(NeuralProcess, floats(2, 6, 2), floats(2, 6, 1), floats(2, 9, 2)), "n_hits": own(NHits, floats(2, 24)),
    "transformer_xl": own(TransformerXl, floats(2, 8, 24)), "synthesizer": own(Synthesizer, floats(2, 10, 16)),
    "gated_unit": own(GatedUnit, floats(2, 12, 16)), "le_net": own(LeNet, floats(2, 1, 28, 28)),
    "link_net": own(LinkNet, floats(2, 3, 32, 32)), "x_vector": own(XVector, floats(2, 8, 30), lengths=[2]),
    "slow_fast": own(SlowFast, floats(2, 3, 2, 16, 16), floats(2, 3, 8, 16, 16)), "shift_net": own(ShiftNet, floats(2, 4, 3, 16, 16)),
    "response_norm": own(ResponseNorm, floats(2, 3, 10, 10)), "sinkhorn": own(Sinkhorn, floats(2, 4, 6), floats(2, 4, 7)),
    "similar": own(Similar, floats(2, 6), floats(2, 6)), "rbf_net": own(RbfNet, floats(2, 4)),
}
