"""Models as their users write them, listed before anybody looked at how they come through: products and norms of
parameters, layers of their own, states that are kept; for sweep.py."""
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from arch_plain import floats, own
from arch_tables import picks


class MiniCnn(nn.Module):
    """The CIFAR net of many first notebooks."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 12, 5), nn.Conv2d(12, 16, 5)
        self.pool, self.drop = nn.MaxPool2d(2, 2), nn.Dropout(0.3)
        self.fc1, self.fc2, self.fc3 = nn.Linear(16 * 5 * 5, 64), nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv2(self.pool(F.relu(self.conv1(x))))))
        x = self.drop(F.relu(self.fc1(torch.flatten(x, 1))))
        return F.log_softmax(self.fc3(F.relu(self.fc2(x))), dim=1)


class LoraLinear(nn.Module):
    """Weights that are put together before the product, as after training (peft's merge)."""

    def __init__(self, n, out, rank=4, alpha=8):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(out, n) * 0.2), nn.Parameter(torch.zeros(out))
        self.lora_A, self.lora_B = nn.Parameter(torch.randn(rank, n) * 0.2), nn.Parameter(torch.randn(out, rank) * 0.1)
        self.scaling = alpha / rank

    def forward(self, x):
        return F.linear(x, self.weight + self.lora_B @ self.lora_A * self.scaling, self.bias)


class MergedLora(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (LoraLinear(16, 16) for _ in range(3))
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        a = self.q(x) @ self.k(x).transpose(1, 2) / 4
        return self.out(a.softmax(-1) @ self.v(x))


class DoraLayer(nn.Module):
    """DoRA: a magnitude and a direction, of a weight with two thin ones added."""

    def __init__(self, n, out, rank=2):
        super().__init__()
        self.base = nn.Linear(n, out)
        self.lora_a, self.lora_b = nn.Parameter(torch.randn(rank, n) * 0.1), nn.Parameter(torch.randn(out, rank) * 0.1)
        self.m = nn.Parameter(self.base.weight.detach().norm(dim=1, keepdim=True) * 1.1)

    def forward(self, x):
        w = self.base.weight + self.lora_b @ self.lora_a
        return F.linear(x, self.m * (w / w.norm(p=2, dim=1, keepdim=True)), self.base.bias)


class Factorised(nn.Module):
    """A weight of low rank, U diag(s) V, multiplied out first."""

    def __init__(self):
        super().__init__()
        self.u, self.s, self.v = (nn.Parameter(torch.randn(24, 5) * 0.3), nn.Parameter(torch.rand(5) + 0.5),
                                  nn.Parameter(torch.randn(5, 12) * 0.3))
        self.bias, self.head = nn.Parameter(torch.randn(24) * 0.1), nn.Linear(24, 3)

    def forward(self, x):
        return self.head(torch.tanh(F.linear(x, (self.u * self.s) @ self.v, self.bias)))


class Kronecker(nn.Module):
    """LoKr: a weight is the Kronecker product of two."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(3, 4) * 0.5), nn.Parameter(torch.randn(5, 3) * 0.5)
        self.out = nn.Linear(15, 2)

    def forward(self, x):
        return self.out(torch.relu(F.linear(x, torch.kron(self.a, self.b))))


class ClampedLinear(nn.Module):
    """A critic whose weights are held (WGAN), in the forward pass."""

    def __init__(self):
        super().__init__()
        self.w1, self.b1 = nn.Parameter(torch.randn(16, 6) * 0.05), nn.Parameter(torch.zeros(16))
        self.w2 = nn.Parameter(torch.randn(1, 16) * 0.05)

    def forward(self, x):
        x = F.leaky_relu(F.linear(x, self.w1.clamp(-0.06, 0.06), self.b1), 0.2)
        return F.linear(x, torch.clamp(self.w2, -0.06, 0.06))


class NonNegative(nn.Module):
    """A monotonic net: weights by softplus and by squares."""

    def __init__(self):
        super().__init__()
        self.v1, self.v2 = nn.Parameter(torch.randn(12, 5) * 0.5), nn.Parameter(torch.randn(1, 12) * 0.5)
        self.b1, self.b2 = nn.Parameter(torch.randn(12) * 0.3), nn.Parameter(torch.zeros(1))

    def forward(self, x):
        x = torch.tanh(F.linear(x, F.softplus(self.v1), self.b1))
        return F.linear(x, self.v2 ** 2, self.b2)


class WeightNormTcn(nn.Module):
    """The TCN of Bai et al. with the parametrization of today: sizes that an exporter folds."""

    def __init__(self):
        super().__init__()
        wn, self.blocks = parametrizations.weight_norm, nn.ModuleList()
        for i, (a, b) in enumerate(((4, 12), (12, 12), (12, 12))):
            conv = [wn(nn.Conv1d(a if k == 0 else b, b, 3, padding=2 * 2 ** i, dilation=2 ** i)) for k in range(2)]
            self.blocks.append(nn.ModuleList(conv + [nn.Conv1d(a, b, 1) if a != b else nn.Identity()]))
        self.head = nn.Linear(12, 2)

    def forward(self, x):
        for c1, c2, down in self.blocks:
            y = F.relu(c1(x)[..., :x.shape[-1]])
            y = F.relu(c2(y)[..., :x.shape[-1]])
            x = F.relu(y + down(x))
        return self.head(x[:, :, -1])


class LargeWeightNorm(nn.Module):
    """The same of a weight too large to be folded."""

    def __init__(self):
        super().__init__()
        wn = parametrizations.weight_norm
        self.a, self.b = wn(nn.Linear(160, 192)), wn(nn.Linear(192, 4))

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class ManualNorm(nn.Module):
    """Weights standardised and normed by hand, in front of each convolution."""

    def __init__(self):
        super().__init__()
        self.w1, self.g1 = nn.Parameter(torch.randn(8, 3, 3, 3)), nn.Parameter(torch.ones(8, 1, 1, 1))
        self.w2, self.fc = nn.Parameter(torch.randn(8, 8, 3, 3)), nn.Linear(8, 4)

    def forward(self, x):
        w = self.w1
        w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5) * self.g1
        x = F.relu(F.conv2d(x, w, padding=1))
        x = F.relu(F.conv2d(x, F.normalize(self.w2.flatten(1), dim=1).view_as(self.w2), stride=2))
        return self.fc(x.mean((2, 3)))


class CosineHead(nn.Module):
    """Cosines to prototypes with a learned scale (few-shot, SphereFace, CLIP)."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 24), nn.GELU(), nn.Linear(24, 12))
        self.weight, self.logit_scale = nn.Parameter(torch.randn(7, 12)), nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, x):
        return F.linear(F.normalize(self.body(x)), F.normalize(self.weight)) * self.logit_scale.exp()


class OrthogonalRnn(nn.Module):
    """A recurrence with an orthogonal matrix: the Cayley transform of a skew one, by a series."""

    def __init__(self):
        super().__init__()
        self.skew, self.inp, self.out = nn.Parameter(torch.randn(6, 6) * 0.1), nn.Linear(3, 6), nn.Linear(6, 2)

    def forward(self, x):
        a = self.skew - self.skew.t()
        u = torch.eye(6, dtype=x.dtype) + a + a @ a / 2 + a @ a @ a / 6
        h = x.new_zeros(x.shape[0], 6)
        for t in range(x.shape[1]):
            h = torch.tanh(self.inp(x[:, t]) + h @ u)
        return self.out(h)


class TwoTower(nn.Module):
    """Users and things, with a bag of what was seen; a product of the two, with biases."""

    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Embedding(30, 12), nn.Embedding(20, 12)
        self.user_bias, self.item_bias, self.global_bias = (nn.Embedding(30, 1), nn.Embedding(20, 1),
                                                            nn.Parameter(torch.zeros(1)))
        self.tower = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 12))

    def forward(self, user, item, seen):
        bag = self.item(seen).mean(1)
        u = self.tower(torch.cat([self.user(user), bag], 1))
        return ((u * self.item(item)).sum(1) + self.user_bias(user).squeeze(1) + self.item_bias(item).squeeze(1)
                + self.global_bias)


class DenseSage(nn.Module):
    """GraphSAGE over a dense adjacency with degrees, and a readout."""

    def __init__(self):
        super().__init__()
        self.own, self.near = nn.ModuleList([nn.Linear(5, 16), nn.Linear(16, 16)]), nn.ModuleList(
            [nn.Linear(5, 16, bias=False), nn.Linear(16, 16, bias=False)])
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(32, 3)

    def forward(self, x, adj):
        adj = (adj > 0).to(x.dtype)
        deg = adj.sum(-1, keepdim=True).clamp(min=1)
        for own_, near in zip(self.own, self.near):
            x = F.normalize(F.relu(own_(x) + near(adj @ x / deg)), dim=-1)
        x = self.norm(x)
        return self.head(torch.cat([x.mean(1), x.amax(1)], -1))


class DenseGat(nn.Module):
    """Attention over a dense adjacency as in pyGAT: a vector is split for source and target."""

    def __init__(self):
        super().__init__()
        self.W, self.a = nn.Parameter(torch.empty(5, 3, 8)), nn.Parameter(torch.empty(3, 16, 1))
        nn.init.xavier_uniform_(self.W)
        nn.init.xavier_uniform_(self.a)
        self.out = nn.Linear(24, 2)

    def forward(self, x, adj):
        h = torch.einsum("bnf,fhd->bhnd", x, self.W)
        e = F.leaky_relu(h @ self.a[:, :8] + (h @ self.a[:, 8:]).transpose(2, 3), 0.2)
        e = e.masked_fill(adj[:, None] <= 0, -9e15).softmax(-1)
        return self.out(F.elu(e @ h).transpose(1, 2).flatten(2))


class PointTnet(nn.Module):
    """PointNet with the transform of its input."""

    def __init__(self):
        super().__init__()
        self.t1, self.t2 = nn.Conv1d(3, 16, 1), nn.Linear(16, 9)
        nn.init.zeros_(self.t2.weight)
        self.c1, self.c2, self.bn = nn.Conv1d(3, 16, 1), nn.Conv1d(16, 32, 1), nn.BatchNorm1d(32)
        self.fc = nn.Linear(32, 5)

    def forward(self, x):
        m = self.t2(F.relu(self.t1(x)).max(2)[0]).view(-1, 3, 3) + torch.eye(3, dtype=x.dtype)
        x = torch.bmm(x.transpose(1, 2), m).transpose(1, 2)
        return self.fc(self.bn(self.c2(F.relu(self.c1(x)))).max(2).values)


class ActNormFlow(nn.Module):
    """Glow on vectors: act norm, an LU-decomposed 1x1, affine couplings; latent and log det."""

    def __init__(self):
        super().__init__()
        self.loc, self.log_s = nn.Parameter(torch.randn(6) * 0.1), nn.Parameter(torch.randn(6) * 0.1)
        q = torch.linalg.qr(torch.randn(6, 6))[0]
        p, lower, upper = torch.linalg.lu(q)
        self.register_buffer("P", p)
        self.L, self.U, self.S = nn.Parameter(lower), nn.Parameter(upper.triu(1)), nn.Parameter(upper.diag())
        self.net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 6))

    def forward(self, x):
        x = (x + self.loc) * self.log_s.exp()
        lower = torch.tril(self.L, -1) + torch.eye(6, dtype=x.dtype)
        x = x @ (self.P @ lower @ (torch.triu(self.U, 1) + torch.diag(self.S)))
        a, b = x.chunk(2, 1)
        s, t = self.net(a).chunk(2, 1)
        return torch.cat([a, b * torch.exp(torch.tanh(s)) + t], 1)


class EfficientKan(nn.Module):
    """KAN with B-splines on a grid that is a buffer."""

    def __init__(self):
        super().__init__()
        h = 2 / 5
        self.register_buffer("grid", (torch.arange(-3, 9) * h - 1).expand(4, -1).contiguous())
        self.base_weight, self.spline_weight = nn.Parameter(torch.randn(6, 4) * 0.3), nn.Parameter(torch.randn(6, 4, 8) * 0.1)
        self.spline_scaler, self.out = nn.Parameter(torch.rand(6, 4) + 0.5), nn.Linear(6, 2)

    def b_splines(self, x):
        x, g = x.unsqueeze(-1), self.grid
        bases = ((x >= g[:, :-1]) & (x < g[:, 1:])).to(x.dtype)
        for k in range(1, 4):
            bases = ((x - g[:, :-(k + 1)]) / (g[:, k:-1] - g[:, :-(k + 1)]) * bases[:, :, :-1]
                     + (g[:, k + 1:] - x) / (g[:, k + 1:] - g[:, 1:(-k)]) * bases[:, :, 1:])
        return bases

    def forward(self, x):
        w = self.spline_weight * self.spline_scaler.unsqueeze(-1)
        x = F.linear(F.silu(x), self.base_weight) + F.linear(self.b_splines(x).flatten(1), w.view(6, -1))
        return self.out(x)


class TopTwoExperts(nn.Module):
    """A sparse layer of experts: the two best of four, weights scattered."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 8)) for _ in range(4))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        score, which = self.gate(x).topk(2, -1)
        weights = torch.zeros_like(x[..., :4]).scatter(-1, which, score.softmax(-1))
        y = sum(weights[..., i:i + 1] * e(x) for i, e in enumerate(self.experts))
        return self.head(self.norm(x + y))


class StackedExperts(nn.Module):
    """Experts as one weight each, all computed: einsum."""

    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Parameter(torch.randn(4, 8, 12) * 0.3), nn.Parameter(torch.randn(4, 12, 8) * 0.3)
        self.b1, self.router, self.out = nn.Parameter(torch.zeros(4, 1, 12)), nn.Linear(8, 4), nn.Linear(8, 2)

    def forward(self, x):
        p = self.router(x).softmax(-1)
        y = torch.einsum("bd,edh->ebh", x, self.w1) + self.b1
        y = torch.einsum("ebh,ehd->ebd", F.gelu(y), self.w2)
        return self.out(x + torch.einsum("be,ebd->bd", p, y))


class LeakyNeurons(nn.Module):
    """Spikes with a decay that learns, a straight-through step and a reset by what was emitted."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 12), nn.Linear(12, 3)
        self.beta, self.threshold = nn.Parameter(torch.tensor(1.5)), 1.0

    def forward(self, x):
        mem, out, beta = x.new_zeros(x.shape[0], 12), 0, torch.sigmoid(self.beta)
        for t in range(x.shape[1]):
            mem = beta * mem + self.fc1(x[:, t])
            soft = torch.sigmoid(4 * (mem - self.threshold))
            spike = soft + ((mem > self.threshold).to(x.dtype) - soft).detach()
            mem = mem - spike.detach() * self.threshold
            out = out + self.fc2(spike)
        return out / x.shape[1]


class TinyNerf(nn.Module):
    """Rays, positions by powers of two, volume rendering with cumulated transparency."""

    def __init__(self):
        super().__init__()
        self.register_buffer("freqs", 2.0 ** torch.arange(4))
        self.net, self.sigma, self.rgb = nn.Sequential(nn.Linear(27, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU()), \
            nn.Linear(32, 1), nn.Linear(35, 3)
        self.register_buffer("z", torch.linspace(0.5, 2, 8))

    def forward(self, origins, dirs):
        p = origins[:, None] + dirs[:, None] * self.z[:, None]
        ang = (p[..., None] * self.freqs).flatten(-2)
        h = self.net(torch.cat([p, ang.sin(), ang.cos()], -1))
        rgb = torch.sigmoid(self.rgb(torch.cat([h, dirs[:, None].expand_as(p)], -1)))
        alpha = 1 - torch.exp(-F.softplus(self.sigma(h)).squeeze(-1) * 0.2)
        t = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        return ((alpha * t)[..., None] * rgb).sum(1)


class EmaCodes(nn.Module):
    """VQ with codes that are a buffer (EMA), straight through, and a decoder."""

    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Conv1d(2, 6, 4, 2, 1), nn.ConvTranspose1d(6, 2, 4, 2, 1)
        self.register_buffer("embed", torch.randn(6, 10))
        self.register_buffer("cluster_size", torch.ones(10))

    def forward(self, x):
        z = self.enc(x).transpose(1, 2)
        d = z.pow(2).sum(-1, keepdim=True) - 2 * z @ self.embed + self.embed.pow(2).sum(0)
        q = F.embedding(d.argmin(-1), self.embed.t())
        return self.dec((z + (q - z).detach()).transpose(1, 2))


class DftMixer(nn.Module):
    """Mixing by a DFT as two matrices: no complex numbers."""

    def __init__(self):
        super().__init__()
        n = torch.arange(12.0)
        ang = 2 * math.pi * n[:, None] * n / 12
        self.register_buffer("cos", ang.cos())
        self.register_buffer("sin", ang.sin())
        self.gain, self.phase = nn.Parameter(torch.randn(12, 6) * 0.5), nn.Parameter(torch.randn(12, 6) * 0.5)
        self.mlp, self.norm = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6)), nn.LayerNorm(6)

    def forward(self, x):
        re, im = self.cos @ x, -self.sin @ x
        a, b = re * self.gain - im * self.phase, re * self.phase + im * self.gain
        x = x + (self.cos @ a - self.sin @ b) / 12
        return x + self.mlp(self.norm(x))


class PatchTs(nn.Module):
    """PatchTST: channels by themselves, patches, instance norm that is undone at the end."""

    def __init__(self):
        super().__init__()
        self.embed, self.pos = nn.Linear(8, 16), nn.Parameter(torch.randn(1, 7, 16) * 0.02)
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.1, "gelu", batch_first=True)
        self.enc, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(7 * 16, 6)

    def forward(self, x):
        mean, std = x.mean(1, keepdim=True), torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5)
        x = ((x - mean) / std).transpose(1, 2)
        b, c, _ = x.shape
        x = self.embed(x.unfold(-1, 8, 4)).reshape(b * c, 7, 16) + self.pos
        x = self.head(self.enc(x).flatten(1)).reshape(b, c, 6).transpose(1, 2)
        return x * std + mean


class SeqAttention(nn.Module):
    """seq2seq with additive attention and a decoder that is taught."""

    def __init__(self):
        super().__init__()
        self.src, self.tgt = nn.Embedding(20, 12), nn.Embedding(18, 12)
        self.enc, self.dec = nn.GRU(12, 16, batch_first=True, bidirectional=True), nn.GRUCell(12 + 32, 16)
        self.bridge, self.wa, self.ua, self.va = nn.Linear(32, 16), nn.Linear(16, 16), nn.Linear(32, 16), nn.Linear(16, 1)
        self.out = nn.Linear(16 + 32, 18)

    def forward(self, src, tgt):
        mem, h = self.enc(self.src(src))
        h = torch.tanh(self.bridge(torch.cat([h[0], h[1]], -1)))
        outs = []
        for t in range(tgt.shape[1]):
            score = self.va(torch.tanh(self.wa(h).unsqueeze(1) + self.ua(mem))).squeeze(-1)
            ctx = (score.masked_fill(src == 0, -1e9).softmax(-1).unsqueeze(1) @ mem).squeeze(1)
            h = self.dec(torch.cat([self.tgt(tgt[:, t]), ctx], -1), h)
            outs.append(self.out(torch.cat([h, ctx], -1)))
        return torch.stack(outs, 1)


class ConvVae(nn.Module):
    """Mean only at inference, as served; nearest upsampling."""

    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.LeakyReLU(), nn.Conv2d(8, 16, 3, 2, 1),
                                 nn.BatchNorm2d(16), nn.LeakyReLU())
        self.mu, self.log_var, self.up = nn.Linear(16 * 49, 6), nn.Linear(16 * 49, 6), nn.Linear(6, 16 * 49)
        self.dec = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(16, 8, 3, 1, 1), nn.ReLU(),
                                 nn.Upsample(scale_factor=2), nn.Conv2d(8, 1, 3, 1, 1), nn.Sigmoid())

    def forward(self, x):
        h = self.enc(x).flatten(1)
        mu, log_var = self.mu(h), self.log_var(h)
        z = mu + 0.1 * torch.exp(0.5 * log_var)
        return self.dec(self.up(z).view(-1, 16, 7, 7))


class UncertaintyHead(nn.Module):
    """Tasks weighted by uncertainties that learn (Kendall): the loss is in the model."""

    def __init__(self):
        super().__init__()
        self.body, self.a, self.b = nn.Linear(9, 16), nn.Linear(16, 1), nn.Linear(16, 1)
        self.log_vars = nn.Parameter(torch.tensor([0.3, -0.2]))

    def forward(self, x, y):
        h = torch.relu(self.body(x))
        la, lb = (self.a(h) - y[:, :1]).pow(2), (self.b(h) - y[:, 1:]).abs()
        return torch.exp(-self.log_vars[0]) * la + torch.exp(-self.log_vars[1]) * lb + self.log_vars.sum()


class RotatedKeys(nn.Module):
    """Rotary positions, grouped keys, a window, norms by root mean square with a learned offset."""

    def __init__(self):
        super().__init__()
        self.emb, self.q, self.kv, self.o = nn.Embedding(30, 16), nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False), \
            nn.Linear(16, 16, bias=False)
        self.g1, self.g2 = nn.Parameter(torch.zeros(16)), nn.Parameter(torch.zeros(16))
        self.gate, self.up, self.down = (nn.Linear(16, 24, bias=False), nn.Linear(16, 24, bias=False),
                                         nn.Linear(24, 16, bias=False))
        self.register_buffer("inv_freq", 1 / 10000 ** (torch.arange(0, 4, 2) / 4), persistent=False)

    def norm(self, x, g):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + g)

    def rotate(self, x):
        ang = torch.arange(x.shape[2], dtype=x.dtype)[:, None] * self.inv_freq.to(x.dtype)
        c, s = torch.cat([ang, ang], -1).cos(), torch.cat([ang, ang], -1).sin()
        a, b = x.chunk(2, -1)
        return x * c + torch.cat([-b, a], -1) * s

    def forward(self, ids):
        x = self.emb(ids)
        b, n, _ = x.shape
        h = self.norm(x, self.g1)
        q = self.q(h).view(b, n, 4, 4).transpose(1, 2)
        k, v = (t.view(b, n, 2, 4).transpose(1, 2).repeat_interleave(2, 1) for t in self.kv(h).chunk(2, -1))
        i = torch.arange(n)
        bias = torch.where((i[:, None] >= i) & (i[:, None] - i < 5), 0.0, float("-inf")).to(x.dtype)
        y = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, attn_mask=bias)
        x = x + self.o(y.transpose(1, 2).reshape(b, n, 16))
        h = self.norm(x, self.g2)
        return (x + self.down(F.silu(self.gate(h)) * self.up(h))) @ self.emb.weight.t()


def links(*shape):
    return lambda: torch.randint(0, 2, shape).float()


ALL = {
    "fresh_mini_cnn": own(MiniCnn, floats(2, 3, 32, 32)), "fresh_merged_lora": own(MergedLora, floats(2, 5, 16)),
    "fresh_dora": own(lambda: nn.Sequential(DoraLayer(8, 12), nn.ReLU(), DoraLayer(12, 3)), floats(2, 8)),
    "fresh_factorised": own(Factorised, floats(2, 12)), "fresh_kron": own(Kronecker, floats(2, 12)),
    "fresh_clamped": own(ClampedLinear, floats(2, 6)), "fresh_nonneg": own(NonNegative, floats(2, 5)),
    "fresh_wn_tcn": own(WeightNormTcn, floats(2, 4, 14)), "fresh_wn_large": own(LargeWeightNorm, floats(2, 160)),
    "fresh_manual_norm": own(ManualNorm, floats(2, 3, 10, 10)), "fresh_cosine": own(CosineHead, floats(2, 10)),
    "fresh_orthogonal_rnn": own(OrthogonalRnn, floats(2, 5, 3)),
    "fresh_two_tower": own(TwoTower, picks(2), picks(2), picks(2, 5)),
    "fresh_sage": own(DenseSage, floats(2, 6, 5), links(2, 6, 6)), "fresh_gat": own(DenseGat, floats(2, 6, 5), links(2, 6, 6)),
    "fresh_pointnet": own(PointTnet, floats(2, 3, 20)), "fresh_act_norm_flow": own(ActNormFlow, floats(2, 6)),
    "fresh_kan": own(EfficientKan, lambda: torch.rand(2, 4) * 1.6 - 0.8), "fresh_top_two": own(TopTwoExperts, floats(2, 5, 8)),
    "fresh_stacked_experts": own(StackedExperts, floats(2, 8)), "fresh_leaky": own(LeakyNeurons, floats(2, 5, 6)),
    "fresh_nerf": own(TinyNerf, floats(2, 3), floats(2, 3)), "fresh_ema_codes": own(EmaCodes, floats(2, 2, 16)),
    "fresh_dft": own(DftMixer, floats(2, 12, 6)), "fresh_patch_ts": own(PatchTs, floats(2, 32, 3)),
    "fresh_seq_attention": own(SeqAttention, picks(2, 6), picks(2, 5, high=18)), "fresh_vae": own(ConvVae, floats(2, 1, 28, 28)),
    "fresh_uncertainty": own(UncertaintyHead, floats(2, 9), floats(2, 2)), "fresh_gqa": own(RotatedKeys, picks(2, 9)),
}
