"""What an engineer brings in 2026; for sweep.py."""
import math

import torch
from torch import nn
from torch.nn import functional as F


class RmsNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).type_as(x) * self.weight


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class QwenLike(nn.Module):
    """RoPE, grouped queries, norms of queries and keys, a tied head, a sliding window in every second layer."""

    class Block(nn.Module):
        def __init__(self, d, heads, kv, window):
            super().__init__()
            self.h, self.kv, self.k, self.window = heads, kv, d // heads, window
            self.q, self.kvp, self.o = (nn.Linear(d, d, bias=False), nn.Linear(d, 2 * kv * self.k, bias=False),
                                        nn.Linear(d, d, bias=False))
            self.qn, self.kn, self.n1, self.n2 = RmsNorm(self.k), RmsNorm(self.k), RmsNorm(d), RmsNorm(d)
            self.gate_up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(2 * d, d, bias=False)
            self.sink = nn.Parameter(torch.zeros(heads))

        def forward(self, x, cos, sin):
            b, n, d = x.shape
            y = self.n1(x)
            q = rotate(self.qn(self.q(y).view(b, n, self.h, self.k)).transpose(1, 2), cos, sin)
            k, v = self.kvp(y).view(b, n, 2, self.kv, self.k).permute(2, 0, 3, 1, 4)
            k = rotate(self.kn(k), cos, sin).repeat_interleave(self.h // self.kv, 1)
            v = v.repeat_interleave(self.h // self.kv, 1)
            s = q @ k.transpose(-1, -2) / math.sqrt(self.k)
            i = torch.arange(n, device=x.device)
            far = (i[:, None] < i) | (i[:, None] - i >= self.window)
            s = s.masked_fill(far, torch.finfo(s.dtype).min)
            p = torch.cat([s, self.sink.view(1, -1, 1, 1).expand(b, -1, n, 1)], -1).softmax(-1)[..., :-1]
            x = x + self.o((p @ v).transpose(1, 2).reshape(b, n, d))
            g, u = self.gate_up(self.n2(x)).chunk(2, -1)
            return x + self.down(F.silu(g) * u)

    def __init__(self, words=60, d=32):
        super().__init__()
        self.words = nn.Embedding(words, d)
        self.blocks = nn.ModuleList(self.Block(d, 4, 2, w) for w in (100, 4))
        self.norm = RmsNorm(d)
        self.register_buffer("inv_freq", 1 / 10000 ** (torch.arange(0, 8, 2) / 8), persistent=False)

    def forward(self, ids):
        t = torch.arange(ids.shape[1], device=ids.device)[:, None] * self.inv_freq
        t = torch.cat([t, t], -1)
        x = self.words(ids)
        for block in self.blocks:
            x = block(x, t.cos().to(x.dtype), t.sin().to(x.dtype))
        return self.norm(x) @ self.words.weight.t()


class LatentAttention(nn.Module):
    """DeepSeek's: keys and values from a small latent, a part of the keys turned and shared by the heads."""

    def __init__(self, d=32, heads=4, latent=12, rope=4, plain=8):
        super().__init__()
        self.h, self.r, self.p = heads, rope, plain
        self.q_a, self.q_n, self.q_b = nn.Linear(d, 16, bias=False), RmsNorm(16), nn.Linear(16, heads * (rope + plain), bias=False)
        self.kv_a, self.kv_n = nn.Linear(d, latent + rope, bias=False), RmsNorm(latent)
        self.kv_b, self.o = nn.Linear(latent, heads * 2 * plain, bias=False), nn.Linear(heads * plain, d, bias=False)
        t = torch.arange(64)[:, None] / 100 ** (torch.arange(rope // 2) / rope * 2)
        self.register_buffer("cos", torch.cat([t, t], -1).cos())
        self.register_buffer("sin", torch.cat([t, t], -1).sin())

    def forward(self, x):
        b, n, _ = x.shape
        q = self.q_b(self.q_n(self.q_a(x))).view(b, n, self.h, -1).transpose(1, 2)
        qp, qr = q.split([self.p, self.r], -1)
        c, kr = self.kv_a(x).split([12, self.r], -1)
        kp, v = self.kv_b(self.kv_n(c)).view(b, n, self.h, -1).transpose(1, 2).chunk(2, -1)
        cos, sin = self.cos[:n], self.sin[:n]
        kr = rotate(kr[:, None], cos, sin).expand(-1, self.h, -1, -1)
        q, k = torch.cat([qp, rotate(qr, cos, sin)], -1), torch.cat([kp, kr], -1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=(self.p + self.r) ** -0.5)
        return self.o(y.transpose(1, 2).flatten(2))


class SharedExperts(nn.Module):
    """Routed and shared experts, a router of sigmoids with a bias that only chooses, weights by einsum."""

    def __init__(self, d=16, experts=6, top=2, hidden=24):
        super().__init__()
        self.top, self.router = top, nn.Linear(d, experts, bias=False)
        self.register_buffer("balance", 0.05 * torch.randn(experts))
        self.up, self.gate = nn.Parameter(torch.randn(experts, d, hidden) / 4), nn.Parameter(torch.randn(experts, d, hidden) / 4)
        self.down = nn.Parameter(torch.randn(experts, hidden, d) / 5)
        self.shared = nn.Sequential(nn.Linear(d, hidden), nn.SiLU(), nn.Linear(hidden, d))

    def forward(self, x):
        s = torch.sigmoid(self.router(x))
        _, which = torch.topk(s + self.balance, self.top, -1)
        w = s.gather(-1, which)
        w = w / (w.sum(-1, keepdim=True) + 1e-9)
        gates = torch.zeros_like(s).scatter(-1, which, w)
        h = F.silu(torch.einsum("bnd,edh->bneh", x, self.gate)) * torch.einsum("bnd,edh->bneh", x, self.up)
        return self.shared(x) + torch.einsum("bneh,ehd,bne->bnd", h, self.down, gates)


class Mamba2(nn.Module):
    """The state space dual: a head has one decay, segments by cumulated sums (SSD in one chunk)."""

    def __init__(self, d=16, heads=4, state=6):
        super().__init__()
        self.h, self.s, self.inner = heads, state, 2 * d
        self.inp = nn.Linear(d, 2 * self.inner + 2 * state + heads)
        self.conv = nn.Conv1d(self.inner + 2 * state, self.inner + 2 * state, 4, padding=3, groups=self.inner + 2 * state)
        self.a_log, self.dt_bias, self.skip = (nn.Parameter(torch.log(torch.arange(1., heads + 1))),
                                               nn.Parameter(torch.rand(heads) - 3), nn.Parameter(torch.ones(heads)))
        self.norm, self.out = RmsNorm(self.inner), nn.Linear(self.inner, d)

    def forward(self, x):
        b, n, _ = x.shape
        z, xbc, dt = self.inp(x).split([self.inner, self.inner + 2 * self.s, self.h], -1)
        xbc = F.silu(self.conv(xbc.transpose(1, 2))[..., :n].transpose(1, 2))
        v, bb, cc = xbc.split([self.inner, self.s, self.s], -1)
        dt = F.softplus(dt + self.dt_bias)
        a = (dt * -self.a_log.exp()).transpose(1, 2).cumsum(-1)
        seg = (a[..., :, None] - a[..., None, :]).masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf")).exp()
        v = v.view(b, n, self.h, -1)
        y = torch.einsum("bln,bsn,bhls,bshp->blhp", cc, bb, seg, v * dt[..., None]) + self.skip[:, None] * v
        return self.out(self.norm(y.flatten(2) * F.silu(z)))


class DeltaNet(nn.Module):
    """Gated delta rule, step by step."""

    def __init__(self, d=16, heads=2):
        super().__init__()
        self.h = heads
        self.qkv, self.beta, self.decay, self.out = nn.Linear(d, 3 * d), nn.Linear(d, heads), nn.Linear(d, heads), nn.Linear(d, d)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, -1).permute(2, 1, 0, 3, 4)
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        beta, g = self.beta(x).sigmoid().transpose(0, 1), torch.exp(-F.softplus(self.decay(x))).transpose(0, 1)
        s, out = torch.zeros(b, self.h, d // self.h, d // self.h, dtype=x.dtype), []
        for t in range(6):
            s = s * g[t][..., None, None]
            e = (v[t] - torch.einsum("bhk,bhkv->bhv", k[t], s)) * beta[t][..., None]
            s = s + torch.einsum("bhk,bhv->bhkv", k[t], e)
            out.append(torch.einsum("bhk,bhkv->bhv", q[t], s))
        return self.out(torch.stack(out, 1).flatten(2))


class MmDit(nn.Module):
    """Two streams with modulations of their own, joined in attention (Stable Diffusion 3), steps as an input."""

    class Stream(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.mod, self.qkv, self.o = nn.Linear(d, 6 * d), nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU("tanh"), nn.Linear(2 * d, d))

        def before(self, x, c):
            self_mod = self.mod(F.silu(c))[:, None].chunk(6, -1)
            return self.qkv(F.layer_norm(x, x.shape[-1:]) * (1 + self_mod[1]) + self_mod[0]), self_mod

        def after(self, x, y, m):
            x = x + m[2] * self.o(y)
            return x + m[5] * self.mlp(F.layer_norm(x, x.shape[-1:]) * (1 + m[4]) + m[3])

    def __init__(self, d=24, heads=3):
        super().__init__()
        self.h, self.d = heads, d
        self.patch, self.text, self.time = nn.Conv2d(4, d, 2, 2), nn.Linear(10, d), nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, d))
        self.pos = nn.Parameter(0.1 * torch.randn(1, 64, d))
        self.a, self.b, self.out = self.Stream(d), self.Stream(d), nn.Linear(d, 16)

    def forward(self, x, text, t):
        f = torch.exp(-math.log(1e4) * torch.arange(self.d // 2) / (self.d // 2)).to(x.dtype)
        t = t[:, None].to(x.dtype) * f
        c = self.time(torch.cat([t.cos(), t.sin()], -1)) + self.text(text).mean(1)
        h, w = x.shape[2] // 2, x.shape[3] // 2
        x, y = self.patch(x).flatten(2).transpose(1, 2) + self.pos[:, :h * w], self.text(text)
        (qx, mx), (qy, my) = self.a.before(x, c), self.b.before(y, c)
        q, k, v = torch.cat([qx, qy], 1).unflatten(-1, (3, self.h, -1)).permute(2, 0, 3, 1, 4)
        z = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.a.after(x, z[:, :h * w], mx)
        y = self.b.after(y, z[:, h * w:], my)
        x = self.out(x + y.mean(1, keepdim=True))
        return x.view(-1, h, w, 2, 2, 4).permute(0, 5, 1, 3, 2, 4).reshape(-1, 4, 2 * h, 2 * w)


class ScatterGraph(nn.Module):
    """Messages along edges that come as an input, summed and averaged where they arrive, and by graphs."""

    def __init__(self, d=8, nodes=10):
        super().__init__()
        self.n, self.inp = nodes, nn.Linear(5, d)
        self.msg = nn.ModuleList(nn.Sequential(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, d)) for _ in range(2))
        self.gru, self.out, self.eps = nn.GRUCell(d, d), nn.Linear(d, 3), nn.Parameter(torch.zeros(1))

    def forward(self, x, edges):
        h = self.inp(x)
        for msg in self.msg:
            i = edges[:, 0, :, None].expand(-1, -1, h.shape[-1])
            k = edges[:, 1, :, None].expand(-1, -1, h.shape[-1])
            m = msg(torch.cat([h.gather(1, i), h.gather(1, k)], -1))
            got = torch.zeros_like(h).scatter_add(1, k, m)
            many = torch.zeros_like(h).scatter_add(1, k, torch.ones_like(m)).clamp(min=1)
            h = self.gru((got / many).flatten(0, 1), ((1 + self.eps) * h).flatten(0, 1)).view_as(h)
        return self.out(h.amax(1) + h.mean(1))


class HashGridNerf(nn.Module):
    """Instant-NGP: corners hashed into tables at several resolutions, and volume rendering along rays."""

    def __init__(self, levels=3, size=64, f=2, samples=6):
        super().__init__()
        self.tables = nn.Parameter(1e-1 * torch.randn(levels, size, f))
        self.size, self.levels, self.samples = size, levels, samples
        self.mlp = nn.Sequential(nn.Linear(levels * f, 16), nn.ReLU(), nn.Linear(16, 4))

    def encode(self, p):
        out = []
        for level in range(self.levels):
            x = p * 4 * 2 ** level
            lo = x.floor()
            w, lo, acc = x - lo, lo.long(), 0
            for c in range(8):
                bit = torch.tensor([c & 1, c >> 1 & 1, c >> 2])
                at = lo + bit
                key = (at[..., 0] * 1 + at[..., 1] * 37 + at[..., 2] * 101) % self.size
                u, v, z = torch.where(bit.bool(), w, 1 - w).split(1, -1)
                acc = acc + self.tables[level][key] * (u * v * z)
            out.append(acc)
        return torch.cat(out, -1)

    def forward(self, origin, direction):
        t = torch.linspace(0.1, 1, self.samples).to(origin.dtype)
        p = torch.sigmoid(origin[:, None] + direction[:, None] * t[:, None])
        rgb, sigma = self.mlp(self.encode(p)).split([3, 1], -1)
        alpha = 1 - torch.exp(-F.softplus(sigma[..., 0]) * 0.2)
        light = torch.exp(F.pad(torch.log(1 - alpha[:, :-1] + 1e-10).cumsum(1), (1, 0)))
        return ((alpha * light)[..., None] * rgb.sigmoid()).sum(1)


class Splats(nn.Module):
    """Gaussians from quaternions and scales, projected and blended front to back by their depth."""

    def __init__(self, n=12, side=8):
        super().__init__()
        self.mean, self.quat, self.scale = nn.Parameter(torch.randn(n, 3)), nn.Parameter(torch.randn(n, 4)), nn.Parameter(torch.randn(n, 3) / 4 - 0.5)
        self.colour, self.opacity, self.side = nn.Parameter(torch.rand(n, 3)), nn.Parameter(torch.randn(n)), side
        y, x = torch.meshgrid(torch.linspace(-1, 1, side), torch.linspace(-1, 1, side), indexing="ij")
        self.register_buffer("grid", torch.stack([x, y], -1))

    def forward(self, camera):
        w, x, y, z = F.normalize(self.quat, dim=-1).unbind(-1)
        r = torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
                         2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
                         2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1).view(-1, 3, 3)
        m = r * self.scale.exp()[:, None]
        cov = (m @ m.transpose(1, 2))[:, :2, :2]
        at = self.mean[None] + camera[:, None]
        order = at[..., 2].argsort(-1)
        det = (cov[:, 0, 0] * cov[:, 1, 1] - cov[:, 0, 1] ** 2 + 1e-2)[:, None, None]
        d = self.grid[None, None] - at[..., None, None, :2]
        a, b, c = (cov[:, i, j][:, None, None] for i, j in ((0, 0), (0, 1), (1, 1)))
        power = -0.5 * (c * d[..., 0] ** 2 - 2 * b * d[..., 0] * d[..., 1] + a * d[..., 1] ** 2) / det
        alpha = (self.opacity.sigmoid()[:, None, None] * power.clamp(max=0).exp()).clamp(max=0.99)
        alpha = alpha.gather(1, order[..., None, None].expand_as(alpha))
        colour = self.colour.sigmoid()[order]
        light = torch.exp(torch.log1p(-alpha).cumsum(1))
        light = torch.cat([torch.ones_like(light[:, :1]), light[:, :-1]], 1)
        return torch.einsum("bnhw,bnc->bchw", alpha * light, colour)


class StftNet(nn.Module):
    """A spectrogram by convolution with windowed waves, log-mels, a mask, and back by transposed convolution."""

    def __init__(self, n=32, hop=8, mels=10):
        super().__init__()
        t, f = torch.arange(n), torch.arange(n // 2 + 1)[:, None]
        w = torch.hann_window(n)
        self.register_buffer("basis", torch.cat([torch.cos(2 * math.pi * f * t / n) * w, -torch.sin(2 * math.pi * f * t / n) * w])[:, None])
        self.register_buffer("mel", torch.rand(mels, n // 2 + 1).square())
        self.hop, self.n = hop, n
        self.rnn, self.mask = nn.GRU(mels, 12, batch_first=True, bidirectional=True), nn.Linear(24, n // 2 + 1)

    def forward(self, x):
        s = F.conv1d(F.pad(x[:, None], (self.n // 2, self.n // 2), mode="reflect"), self.basis, stride=self.hop)
        re, im = s.chunk(2, 1)
        power = re ** 2 + im ** 2
        mel = torch.log(torch.clamp(self.mel @ power, min=1e-5))
        mel = (mel - mel.mean((1, 2), keepdim=True)) / (mel.std((1, 2), keepdim=True) + 1e-5)
        m = torch.sigmoid(self.mask(self.rnn(mel.transpose(1, 2))[0])).transpose(1, 2)
        y = F.conv_transpose1d(torch.cat([re * m, im * m], 1), self.basis / self.n, stride=self.hop)
        return y[:, 0, self.n // 2:-(self.n // 2)]


class ResidualCodec(nn.Module):
    """A codec of sounds: snakes, residual quantisers whose gradient goes straight through, normed codes."""

    class Snake(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.alpha = nn.Parameter(torch.ones(1, c, 1))

        def forward(self, x):
            return x + (self.alpha + 1e-9).reciprocal() * torch.sin(self.alpha * x).pow(2)

    def __init__(self, c=8, codes=16, books=3):
        super().__init__()
        wn = nn.utils.parametrizations.weight_norm
        self.enc = nn.Sequential(wn(nn.Conv1d(1, c, 7, padding=3)), self.Snake(c), wn(nn.Conv1d(c, c, 4, 2, 1)))
        self.books = nn.ParameterList(nn.Parameter(torch.randn(codes, 4)) for _ in range(books))
        self.down, self.up = nn.ModuleList(nn.Conv1d(c, 4, 1) for _ in range(books)), nn.ModuleList(nn.Conv1d(4, c, 1) for _ in range(books))
        self.dec = nn.Sequential(self.Snake(c), wn(nn.ConvTranspose1d(c, c, 4, 2, 1)), nn.Conv1d(c, 1, 7, padding=3), nn.Tanh())

    def forward(self, x):
        z, out = self.enc(x), 0
        for book, down, up in zip(self.books, self.down, self.up):
            e = down(z).transpose(1, 2)
            at = (F.normalize(e, dim=-1) @ F.normalize(book, dim=-1).t()).argmax(-1)
            q = F.embedding(at, book)
            q = up((e + (q - e).detach()).transpose(1, 2))
            z, out = z - q, out + q
        return self.dec(out)


class PerceiverIo(nn.Module):
    """Latents that read an input of any length, and queries that read the latents; norms without a shift."""

    def __init__(self, d=16, latents=6, out=5):
        super().__init__()
        self.latents, self.queries = nn.Parameter(torch.randn(latents, d)), nn.Parameter(torch.randn(out, d))
        self.inp, self.read = nn.Linear(7, d), nn.MultiheadAttention(d, 2, kdim=d, vdim=d, batch_first=True)
        self.think = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 2, 24, batch_first=True, norm_first=True, activation="gelu"), 2,
                                           enable_nested_tensor=False)
        self.write, self.head = nn.MultiheadAttention(d, 2, batch_first=True), nn.Linear(d, 2)

    def forward(self, x, mask):
        x = self.inp(x)
        z = self.latents.expand(x.shape[0], -1, -1)
        z = z + self.read(z, x, x, key_padding_mask=mask == 0, need_weights=False)[0]
        z = self.think(z)
        return self.head(self.write(self.queries.expand(x.shape[0], -1, -1), z, z, need_weights=False)[0])


class FlowMatching(nn.Module):
    """Four steps of Heun along a learned velocity, with a guidance between two conditions."""

    def __init__(self, d=6):
        super().__init__()
        self.label, self.net = nn.Embedding(5, 8), nn.Sequential(nn.Linear(d + 9, 24), nn.SiLU(), nn.Linear(24, d))
        self.null, self.scale = nn.Parameter(torch.randn(8)), 1.7

    def velocity(self, x, t, c):
        t = torch.full_like(x[:, :1], t)
        a = self.net(torch.cat([x, t, c], -1))
        b = self.net(torch.cat([x, t, self.null.expand(x.shape[0], -1)], -1))
        return b + self.scale * (a - b)

    def forward(self, x, y):
        c = self.label(y)
        for k in range(4):
            v = self.velocity(x, k / 4, c)
            x = x + (v + self.velocity(x + v / 4, (k + 1) / 4, c)) / 8
        return x


class RationalQuadratic(nn.Module):
    """A spline flow with coupling: bins found by comparing, and the logarithm of its determinant."""

    def __init__(self, d=4, bins=5):
        super().__init__()
        self.d, self.k = d // 2, bins
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(self.d, 16), nn.Tanh(), nn.Linear(16, self.d * (3 * bins - 1))) for _ in range(2))

    def spline(self, x, p):
        w, h, s = p.split([self.k, self.k, self.k - 1], -1)
        w, h = 0.02 + (1 - 0.02 * self.k) * w.softmax(-1), 0.02 + (1 - 0.02 * self.k) * h.softmax(-1)
        s = F.pad(F.softplus(s) + 0.01, (1, 1), value=1.0)
        cw, ch = F.pad(w.cumsum(-1), (1, 0)) * 6 - 3, F.pad(h.cumsum(-1), (1, 0)) * 6 - 3
        inside = (x > -3) & (x < 3)
        z = x.clamp(-2.999, 2.999)
        at = (torch.sum(z[..., None] >= cw, -1) - 1)[..., None]
        x0, x1, y0, y1 = (t.gather(-1, i)[..., 0] for t, i in ((cw, at), (cw, at + 1), (ch, at), (ch, at + 1)))
        s0, s1 = s.gather(-1, at)[..., 0], s.gather(-1, at + 1)[..., 0]
        t, slope = (z - x0) / (x1 - x0), (y1 - y0) / (x1 - x0)
        den = slope + (s0 + s1 - 2 * slope) * t * (1 - t)
        y = y0 + (y1 - y0) * (slope * t ** 2 + s0 * t * (1 - t)) / den
        grad = slope ** 2 * (s1 * t ** 2 + 2 * slope * t * (1 - t) + s0 * (1 - t) ** 2) / den ** 2
        return torch.where(inside, y, x), torch.where(inside, grad.log(), torch.zeros_like(x))

    def forward(self, x):
        a, b = x.chunk(2, -1)
        det = 0
        for net in self.nets:
            b, g = self.spline(b, net(a).unflatten(-1, (self.d, -1)))
            det = det + g.sum(-1, keepdim=True)
            a, b = b, a
        return torch.cat([a, b, det], -1)


class EmCapsules(nn.Module):
    """Capsules with matrices for poses, three rounds of agreement by expectation and maximisation."""

    def __init__(self, i=6, o=4):
        super().__init__()
        self.inp, self.w = nn.Linear(10, i * 17), nn.Parameter(torch.randn(1, i, o, 4, 4) / 2)
        self.beta_u, self.beta_a, self.i, self.o = nn.Parameter(torch.zeros(o)), nn.Parameter(torch.zeros(o)), i, o

    def forward(self, x):
        p = self.inp(x).view(-1, self.i, 17)
        pose, a = p[..., :16].reshape(-1, self.i, 1, 4, 4), p[..., 16:].sigmoid()
        v = (pose @ self.w).flatten(3)
        r = torch.full_like(v[..., 0], 1 / self.o)
        for k in range(3):
            ra = (r * a)[..., None]
            total = ra.sum(1, keepdim=True) + 1e-6
            mu = (ra * v).sum(1, keepdim=True) / total
            var = (ra * (v - mu) ** 2).sum(1, keepdim=True) / total + 1e-3
            cost = ((self.beta_u[None, None, :, None] + 0.5 * var.log()) * total).sum(-1)
            out = torch.sigmoid((k + 1) * 0.1 * (self.beta_a - cost))
            log_p = -0.5 * (((v - mu) ** 2 / var) + var.log()).sum(-1)
            r = torch.softmax(log_p + torch.log(out + 1e-6), -1)
        return torch.cat([mu.flatten(1), out.flatten(1)], -1)


class AdaptiveSpikes(nn.Module):
    """Spiking neurons with a threshold that adapts, a reset that takes away, and learned leaks; steps unrolled."""

    def __init__(self, d=6, h=10, steps=5):
        super().__init__()
        self.w, self.r, self.out, self.steps = nn.Linear(d, h), nn.Linear(h, h, bias=False), nn.Linear(h, 3), steps
        self.leak, self.adapt = nn.Parameter(torch.rand(h)), nn.Parameter(torch.rand(h))

    def forward(self, x):
        v = s = b = torch.zeros(x.shape[0], self.leak.numel(), dtype=x.dtype)
        y = 0
        leak, rho = torch.sigmoid(self.leak), torch.exp(-1 / (1 + F.softplus(self.adapt) * 5))
        for t in range(self.steps):
            b = rho * b + (1 - rho) * s
            th = 0.3 + 1.8 * b
            v = leak * v + (1 - leak) * (self.w(x[:, t]) + self.r(s)) - s * th
            soft = torch.sigmoid(4 * (v - th))
            s = soft + ((v > th).to(x.dtype) - soft).detach()
            y = 0.8 * y + self.out(s)
        return y / self.steps


class GraphKan(nn.Module):
    """Kolmogorov-Arnold layers of Gaussian bumps with learned widths, and a base of SiLU, scaled for each edge."""

    def __init__(self, sizes=(5, 8, 3), bumps=6):
        super().__init__()
        self.coef = nn.ParameterList(nn.Parameter(torch.randn(o, i, bumps) / 4) for i, o in zip(sizes, sizes[1:]))
        self.base = nn.ParameterList(nn.Parameter(torch.randn(o, i) / 2) for i, o in zip(sizes, sizes[1:]))
        self.grid = nn.Parameter(torch.linspace(-2, 2, bumps), requires_grad=False)
        self.width = nn.ParameterList(nn.Parameter(torch.rand(())) for _ in sizes[1:])
        self.norms = nn.ModuleList(nn.LayerNorm(i) for i in sizes[:-1])

    def forward(self, x):
        for coef, base, width, norm in zip(self.coef, self.base, self.width, self.norms):
            x = norm(x)
            phi = torch.exp(-((x[..., None] - self.grid) / (0.5 + F.softplus(width))) ** 2)
            x = torch.einsum("big,oig->bo", phi, coef) + F.linear(F.silu(x), base)
        return x


class HyperLora(nn.Module):
    """A network that writes low-rank changes of another one's layers from a description of the task."""

    def __init__(self, d=8, rank=2, layers=3):
        super().__init__()
        self.d, self.r, self.n = d, rank, layers
        self.layers, self.id = nn.ModuleList(nn.Linear(d, d) for _ in range(layers)), nn.Embedding(layers, 4)
        self.hyper = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2 * d * rank))
        self.task = nn.Linear(3, 4)

    def forward(self, x, task):
        t = self.task(task)
        for k, layer in enumerate(self.layers):
            c = torch.cat([t, self.id.weight[k].expand(t.shape[0], -1)], -1)
            a, b = self.hyper(c).view(-1, 2, self.d, self.r).unbind(1)
            x = torch.tanh(layer(x) + (x[:, None] @ a @ b.transpose(1, 2))[:, 0])
        return x


class SupContrast(nn.Module):
    """A Siamese trunk; the loss between two views of a batch is its output, for each sample."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(1, 6, 3, 2, 1), nn.GroupNorm(2, 6), nn.Mish(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                                   nn.Linear(24, 8))
        self.head, self.logit_scale = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), nn.Parameter(torch.tensor(math.log(14.3)))

    def forward(self, a, b):
        p, q = (F.normalize(self.head(self.trunk(x)), dim=-1) for x in (a, b))
        near = (p * q).sum(-1, keepdim=True)
        far = F.pairwise_distance(p, q, keepdim=True)
        return torch.cat([near * self.logit_scale.exp().clamp(max=100), F.relu(1 - far) ** 2, F.cosine_similarity(p, q)[:, None]], -1)


class YoloNms(nn.Module):
    """A head with a distribution for each side, and boxes that torchvision's NMS keeps."""
    one_sample = True

    def __init__(self, classes=3, reg=6):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.SiLU(), nn.Conv2d(8, 12, 3, 2, 1), nn.SiLU())
        self.box, self.cls, self.reg = nn.Conv2d(12, 4 * reg, 1), nn.Conv2d(12, classes, 1), reg
        self.register_buffer("bins", torch.arange(float(reg)))

    def forward(self, x):
        import torchvision
        f = self.stem(x)
        h, w = f.shape[2:]
        y, z = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        at = torch.stack([z, y], -1).view(-1, 2).to(x.dtype) + 0.5
        d = self.box(f)[0].view(4, self.reg, -1).softmax(1).permute(0, 2, 1) @ self.bins.to(x.dtype)
        boxes = torch.cat([at - d[:2].t(), at + d[2:].t()], -1) * 4
        score, kind = self.cls(f)[0].flatten(1).sigmoid().max(0)
        keep = torchvision.ops.nms(boxes + 1000 * kind[:, None].to(x.dtype), score, 0.5)[:5]
        return torch.cat([boxes[keep], score[keep, None]], -1)


class Zipformer(nn.Module):
    """Speech: convolution subsampling, streams at two rates, biased norms, gated convolutions, bypasses."""

    class BiasNorm(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.bias, self.log_scale = nn.Parameter(torch.zeros(d)), nn.Parameter(torch.rand(()))

        def forward(self, x):
            return x * ((x - self.bias) ** 2).mean(-1, keepdim=True) ** -0.5 * self.log_scale.exp()

    class Block(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.attn, self.norm = nn.MultiheadAttention(d, 2, batch_first=True), Zipformer.BiasNorm(d)
            self.pre, self.deep, self.post = nn.Linear(d, 2 * d), nn.Conv1d(d, d, 5, padding=2, groups=d), nn.Linear(d, d)
            self.ff, self.skip = nn.Sequential(nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d)), nn.Parameter(torch.full((d,), 0.5))

        def forward(self, x):
            y = x + self.ff(x)
            y = y + self.attn(y, y, y, need_weights=False)[0]
            a, b = self.pre(y).chunk(2, -1)
            y = y + self.post(F.silu(self.deep((a * b.sigmoid()).transpose(1, 2)).transpose(1, 2)))
            return torch.lerp(x, self.norm(y), self.skip)

    def __init__(self, d=12):
        super().__init__()
        self.front = nn.Sequential(nn.Conv2d(1, 4, 3, (1, 2), 1), nn.SiLU(), nn.Conv2d(4, 8, 3, 2, 1), nn.SiLU())
        self.inp, self.fast, self.slow = nn.Linear(8 * 4, d), self.Block(d), self.Block(d)
        self.weights, self.out = nn.Parameter(torch.zeros(2)), nn.Linear(d, 9)

    def forward(self, x):
        x = self.inp(self.front(x[:, None]).permute(0, 2, 1, 3).flatten(2))
        x = self.fast(x)
        y = x.view(x.shape[0], -1, 2, x.shape[-1])
        y = (y * self.weights.softmax(0)[:, None]).sum(2)
        x = x + self.slow(y).repeat_interleave(2, 1)
        return self.out(x).log_softmax(-1)


class TabTransformer(nn.Module):
    """Columns with an embedding and a shared part, numbers by periodic features, a row of nulls learned."""

    def __init__(self, cards=(5, 7, 3), numbers=4, d=12):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(c + 1, d - 3, padding_idx=0) for c in cards)
        self.column = nn.Parameter(torch.randn(len(cards), 3))
        self.freq, self.num = nn.Parameter(torch.randn(numbers, 3)), nn.Parameter(torch.randn(numbers, 6, d) / 3)
        self.null = nn.Parameter(torch.randn(numbers, d))
        self.cls = nn.Parameter(torch.randn(1, 1, d))
        self.enc = nn.TransformerEncoderLayer(d, 3, 24, batch_first=True, norm_first=True)
        self.out = nn.Sequential(nn.LayerNorm(d), nn.ReLU(), nn.Linear(d, 2))

    def forward(self, cats, nums, known):
        c = torch.stack([t(cats[:, k]) for k, t in enumerate(self.tables)], 1)
        c = torch.cat([c, self.column.expand(c.shape[0], -1, -1)], -1)
        w = 2 * math.pi * nums[..., None] * self.freq
        n = torch.einsum("bnf,nfd->bnd", torch.cat([w.sin(), w.cos()], -1), self.num)
        n = torch.where(known[..., None] > 0.5, n, self.null)
        return self.out(self.enc(torch.cat([self.cls.expand(c.shape[0], -1, -1), c, n], 1))[:, 0])


class BagRecommender(nn.Module):
    """Histories as bags of ids by mode, of equal lengths, beside a user, and dot products with candidates."""

    def __init__(self, mode, items=40, d=8):
        super().__init__()
        self.bag, self.user = nn.EmbeddingBag(items, d, mode=mode), nn.Embedding(9, d)
        self.mlp = nn.Sequential(nn.Linear(2 * d, 16), nn.ReLU(), nn.Linear(16, d))
        self.items = nn.Embedding(items, d)

    def forward(self, history, user, candidates):
        q = self.mlp(torch.cat([self.bag(history), self.user(user)], -1))
        return torch.einsum("bd,bnd->bn", q, self.items(candidates))


class FlatBags(nn.Module):
    """Bags as torch.nn.EmbeddingBag has them: all ids in a row, and where each begins."""
    one_sample = True

    def __init__(self, mode):
        super().__init__()
        self.bag, self.out = nn.EmbeddingBag(30, 6, mode=mode), nn.Linear(6, 2)

    def forward(self, ids, offsets):
        return self.out(self.bag(ids, offsets))


class WeightedBags(nn.Module):
    """Bags with a weight for each id."""

    def __init__(self):
        super().__init__()
        self.bag, self.out = nn.EmbeddingBag(30, 6, mode="sum"), nn.Linear(6, 2)

    def forward(self, ids, weights):
        return self.out(self.bag(ids, per_sample_weights=weights))


def ints(high, *shape):
    return torch.randint(0, high, shape)


R = torch.randn
ALL = {
    "y26_qwen": lambda: (QwenLike(), [ints(60, 2, 10)], [1]),
    "y26_latent_attention": lambda: (LatentAttention(), [R(2, 9, 32)], [1]),
    "y26_shared_experts": lambda: (SharedExperts(), [R(2, 5, 16)], [1]),
    "y26_mamba2": lambda: (Mamba2(), [R(2, 8, 16)], [None]),
    "y26_delta_net": lambda: (DeltaNet(), [R(2, 6, 16)], [None]),
    "y26_mmdit": lambda: (MmDit(), [R(2, 4, 8, 8), R(2, 5, 10), torch.tensor([3.0, 700.0])], [None, None, None]),
    "y26_scatter_graph": lambda: (ScatterGraph(), [R(2, 10, 5), ints(10, 2, 2, 18)], [None, None]),
    "y26_hash_nerf": lambda: (HashGridNerf(), [R(2, 3), R(2, 3)], [None, None]),
    "y26_splats": lambda: (Splats(), [R(2, 3) / 4], [None]),
    "y26_stft": lambda: (StftNet(), [R(2, 128)], [None]),
    "y26_codec": lambda: (ResidualCodec(), [R(2, 1, 32)], [None]),
    "y26_perceiver_io": lambda: (PerceiverIo(), [R(2, 9, 7), torch.tensor([[1.0] * 9, [1.0] * 6 + [0.0] * 3])], [1, 1]),
    "y26_flow_matching": lambda: (FlowMatching(), [R(2, 6), ints(5, 2)], [None, None]),
    "y26_rational_quadratic": lambda: (RationalQuadratic(), [R(2, 4)], [None]),
    "y26_em_capsules": lambda: (EmCapsules(), [R(2, 10)], [None]),
    "y26_adaptive_spikes": lambda: (AdaptiveSpikes(), [R(2, 5, 6)], [None]),
    "y26_bump_kan": lambda: (GraphKan(), [R(2, 5)], [None]),
    "y26_hyper_lora": lambda: (HyperLora(), [R(2, 8), R(2, 3)], [None, None]),
    "y26_contrast": lambda: (SupContrast(), [R(2, 1, 12, 12), R(2, 1, 12, 12)], [None, None]),
    "y26_yolo_nms": lambda: (YoloNms(), [R(1, 3, 24, 24)], [None]),
    "y26_zipformer": lambda: (Zipformer(), [R(2, 16, 16)], [None]),
    "y26_tab_transformer": lambda: (TabTransformer(), [ints(4, 2, 3), R(2, 4), ints(2, 2, 4).float()], [None] * 3),
    "y26_bags_sum": lambda: (BagRecommender("sum"), [ints(40, 2, 6), ints(9, 2), ints(40, 2, 4)], [None] * 3),
    "y26_bags_mean": lambda: (BagRecommender("mean"), [ints(40, 2, 6), ints(9, 2), ints(40, 2, 4)], [None] * 3),
    "y26_bags_max": lambda: (BagRecommender("max"), [ints(40, 2, 6), ints(9, 2), ints(40, 2, 4)], [None] * 3),
    "y26_bags_flat_sum": lambda: (FlatBags("sum"), [ints(30, 9), torch.tensor([0, 2, 6])], [None] * 2),
    "y26_bags_flat_mean": lambda: (FlatBags("mean"), [ints(30, 9), torch.tensor([0, 2, 6])], [None] * 2),
    "y26_bags_weighted": lambda: (WeightedBags(), [ints(30, 2, 5), torch.rand(2, 5)], [None] * 2),
}
