"""Modules with more than plain parameters: buffers, weights that are tied, made of others or listed; for sweep.py."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from arch_common import ids
from arch_plain import floats, own


class InputNorm(nn.Module):
    """Pictures less the mean of ImageNet, by buffers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1))
        self.net = nn.Sequential(nn.Conv2d(3, 12, 3, stride=2, padding=1), nn.GroupNorm(3, 12), nn.ReLU(), nn.Dropout2d(0.1),
                                 nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(48, 5))

    def forward(self, x):
        return self.net((x - self.mean) / self.std)


class ScaledTable(nn.Module):
    """Columns by the statistics of the data, outputs back to the target's."""

    def __init__(self):
        super().__init__()
        self.register_buffer("x_mean", torch.randn(9))
        self.register_buffer("x_std", torch.rand(9) + 0.5)
        self.register_buffer("y_mean", torch.tensor(3.2))
        self.register_buffer("y_std", torch.tensor(1.7))
        self.net = nn.Sequential(nn.Linear(9, 24), nn.LayerNorm(24), nn.SiLU(), nn.Linear(24, 24), nn.SiLU(), nn.Linear(24, 1))

    def forward(self, x):
        return self.net((x - self.x_mean) / (self.x_std + 1e-6)) * self.y_std + self.y_mean


class FrozenNorms(nn.Module):
    """Torchvision's norms of detectors: all four are buffers."""

    def __init__(self):
        super().__init__()
        from torchvision.ops import FrozenBatchNorm2d
        self.a, self.na = nn.Conv2d(3, 8, 3, padding=1, bias=False), FrozenBatchNorm2d(8)
        self.b, self.nb = nn.Conv2d(8, 8, 3, padding=1, bias=False), FrozenBatchNorm2d(8)
        for n in (self.na, self.nb):
            n.weight.uniform_(0.5, 1.5)
            n.bias.normal_()
            n.running_mean.normal_()
            n.running_var.uniform_(0.5, 1.5)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = F.relu(self.na(self.a(x)))
        return self.head((x + F.relu(self.nb(self.b(x)))).mean((2, 3)))


class FourierFeatures(nn.Module):
    """Random waves that never learn, then a small net."""

    def __init__(self):
        super().__init__()
        self.register_buffer("B", 4 * torch.randn(2, 16))
        self.net = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3), nn.Sigmoid())

    def forward(self, x):
        a = 2 * math.pi * x @ self.B
        return self.net(torch.cat([a.sin(), a.cos()], -1))


class Reservoir(nn.Module):
    """An echo state network: only what reads it learns."""

    def __init__(self, n=20):
        super().__init__()
        w = torch.randn(n, n) * (torch.rand(n, n) < 0.3)
        self.register_buffer("w_in", torch.rand(n, 3) - 0.5)
        self.register_buffer("w", 0.9 * w / torch.linalg.eigvals(w).abs().max())
        self.readout = nn.Linear(n, 2)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], self.w.shape[0])
        for t in range(x.shape[1]):
            h = 0.7 * h + 0.3 * torch.tanh(x[:, t] @ self.w_in.T + h @ self.w.T)
        return self.readout(h)


class NoisyLinear(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        r = 1 / math.sqrt(i)
        self.weight_mu = nn.Parameter(torch.empty(o, i).uniform_(-r, r))
        self.weight_sigma = nn.Parameter(torch.full((o, i), 0.5 * r))
        self.bias_mu, self.bias_sigma = nn.Parameter(torch.empty(o).uniform_(-r, r)), nn.Parameter(torch.full((o,), 0.5 * r))
        self.register_buffer("weight_epsilon", torch.randn(o, i))
        self.register_buffer("bias_epsilon", torch.randn(o))

    def forward(self, x):
        if self.training:
            return F.linear(x, self.weight_mu + self.weight_sigma * self.weight_epsilon, self.bias_mu + self.bias_sigma * self.bias_epsilon)
        return F.linear(x, self.weight_mu, self.bias_mu)


class Rainbow(nn.Module):
    """Noisy layers, a distribution over a support, its mean."""

    def __init__(self, actions=3, atoms=11):
        super().__init__()
        self.shape = (actions, atoms)
        self.body = nn.Sequential(nn.Linear(6, 24), nn.ReLU())
        self.value = nn.Sequential(NoisyLinear(24, 24), nn.ReLU(), NoisyLinear(24, atoms))
        self.gain = nn.Sequential(NoisyLinear(24, 24), nn.ReLU(), NoisyLinear(24, actions * atoms))
        self.register_buffer("support", torch.linspace(-10, 10, atoms))

    def forward(self, x):
        h = self.body(x)
        a = self.gain(h).view(-1, *self.shape)
        q = self.value(h).unsqueeze(1) + a - a.mean(1, keepdim=True)
        return (q.softmax(-1) * self.support).sum(-1)


class NanoGpt(nn.Module):
    """As the tutorial has it: a mask for each block, the head tied to the tokens, learned positions."""

    class Block(nn.Module):
        def __init__(self, d=32, heads=4, size=32):
            super().__init__()
            self.heads = heads
            self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.c_attn, self.c_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.register_buffer("bias", torch.tril(torch.ones(size, size)).view(1, 1, size, size))
            self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.Dropout(0.1))

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.c_attn(self.ln_1(x)).split(c, 2))
            a = (q @ k.transpose(-2, -1)) / math.sqrt(k.shape[-1])
            a = a.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf")).softmax(-1)
            x = x + self.c_proj((a @ v).transpose(1, 2).contiguous().view(b, t, c))
            return x + self.mlp(self.ln_2(x))

    def __init__(self, d=32):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(100, d), nn.Embedding(32, d)
        self.h = nn.ModuleList(self.Block(d) for _ in range(2))
        self.ln_f, self.lm_head = nn.LayerNorm(d), nn.Linear(d, 100, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, x):
        x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for b in self.h:
            x = b(x)
        return self.lm_head(self.ln_f(x))


class NanoLlama(nn.Module):
    """RMS norms, rotations that are kept as buffers, SwiGLU, grouped keys, tied."""

    def __init__(self, d=32, heads=4, groups=2, size=32):
        super().__init__()
        self.heads, self.groups, self.k = heads, groups, d // heads
        self.tok = nn.Embedding(100, d)
        a = torch.outer(torch.arange(size).float(), 10000 ** (-torch.arange(0, self.k, 2).float() / self.k))
        self.register_buffer("cos", a.cos(), persistent=False)
        self.register_buffer("sin", a.sin(), persistent=False)
        self.wq, self.wo = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.wk, self.wv = nn.Linear(d, groups * self.k, bias=False), nn.Linear(d, groups * self.k, bias=False)
        self.w1, self.w2, self.w3 = nn.Linear(d, 48, bias=False), nn.Linear(48, d, bias=False), nn.Linear(d, 48, bias=False)
        self.n1, self.n2, self.n3 = (nn.Parameter(torch.ones(d)) for _ in range(3))

    @staticmethod
    def rms(x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w

    def turn(self, x):
        t = x.shape[2]
        a, b, c, s = x[..., 0::2], x[..., 1::2], self.cos[:t], self.sin[:t]
        return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)

    def forward(self, x):
        b, t = x.shape
        x = self.tok(x)
        y = self.rms(x, self.n1)
        q = self.turn(self.wq(y).view(b, t, self.heads, self.k).transpose(1, 2))
        k = self.turn(self.wk(y).view(b, t, self.groups, self.k).transpose(1, 2)).repeat_interleave(2, 1)
        v = self.wv(y).view(b, t, self.groups, self.k).transpose(1, 2).repeat_interleave(2, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(y.transpose(1, 2).reshape(b, t, -1))
        y = self.rms(x, self.n2)
        x = x + self.w2(F.silu(self.w1(y)) * self.w3(y))
        return F.linear(self.rms(x, self.n3), self.tok.weight)


class TiedAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(0.2 * torch.randn(16, 24)), nn.Parameter(0.2 * torch.randn(6, 16))
        self.biases = nn.ParameterList(nn.Parameter(0.1 * torch.randn(n)) for n in (16, 6, 16, 24))

    def forward(self, x):
        h = torch.sigmoid(F.linear(x, self.a, self.biases[0]))
        z = torch.tanh(F.linear(h, self.b, self.biases[1]))
        h = torch.sigmoid(F.linear(z, self.b.t(), self.biases[2]))
        return F.linear(h, self.a.t(), self.biases[3])


class DinoHead(nn.Module):
    """A last layer of given length by the old weight_norm; outputs less a running centre."""

    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 8))
        self.last = torch.nn.utils.weight_norm(nn.Linear(8, 16, bias=False))
        self.register_buffer("center", 0.1 * torch.randn(1, 16))
        with torch.no_grad():  # a weight that was made with a gradient cannot be copied
            self(torch.randn(2, 12))

    def forward(self, x):
        x = F.normalize(self.mlp(x), dim=-1)
        return ((self.last(x) - self.center) / 0.4).softmax(-1)


class Critic(nn.Module):
    """The old spectral_norm, as GANs have it."""

    def __init__(self):
        super().__init__()
        sn = torch.nn.utils.spectral_norm
        self.net = nn.Sequential(sn(nn.Conv2d(3, 8, 4, 2, 1)), nn.LeakyReLU(0.2), sn(nn.Conv2d(8, 16, 4, 2, 1)), nn.LeakyReLU(0.2),
                                 nn.Flatten(), sn(nn.Linear(256, 1)))
        with torch.no_grad():  # what is divided by is close to the norm only after some steps
            for _ in range(20):
                self(torch.randn(2, 3, 16, 16))

    def forward(self, x):
        return self.net(x)


class NormedTcn(nn.Module):
    """Causal dilated convolutions with weight norm, as the paper's code has them."""

    def __init__(self):
        super().__init__()
        wn = torch.nn.utils.weight_norm
        self.convs = nn.ModuleList(wn(nn.Conv1d(i, 12, 3, padding=2 * d, dilation=d)) for i, d in ((4, 1), (12, 2), (12, 4)))
        self.down, self.head = nn.Conv1d(4, 12, 1), nn.Linear(12, 3)
        with torch.no_grad():
            self(torch.randn(2, 4, 20))

    def forward(self, x):
        y = x
        for c in self.convs:
            y = F.relu(c(y)[..., :-c.padding[0]])
        return self.head(F.relu(y + self.down(x))[..., -1])


class LuFlow(nn.Module):
    """Glow's 1x1 convolution by its LU parts: masks, signs and the permutation are buffers; norms by data."""

    def __init__(self, n=6):
        super().__init__()
        p, low, up = torch.linalg.lu(torch.linalg.qr(torch.randn(n, n))[0])
        s = torch.diag(up)
        self.register_buffer("p", p)
        self.register_buffer("sign_s", torch.sign(s))
        self.register_buffer("l_mask", torch.tril(torch.ones(n, n), -1))
        self.register_buffer("eye", torch.eye(n))
        self.low, self.log_s, self.up = nn.Parameter(low), nn.Parameter(torch.log(s.abs())), nn.Parameter(torch.triu(up, 1))
        self.loc, self.log_scale = nn.Parameter(torch.randn(n)), nn.Parameter(0.1 * torch.randn(n))
        self.net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 6))

    def forward(self, x):
        x = (x + self.loc) * self.log_scale.exp()
        low = self.low * self.l_mask + self.eye
        up = self.up * self.l_mask.T + torch.diag(self.sign_s * self.log_s.exp())
        x = x @ (self.p @ low @ up).T
        a, b = x.chunk(2, -1)
        s, t = self.net(a).chunk(2, -1)
        return torch.cat([a, b * torch.tanh(s).exp() + t], -1)


class Actors(nn.Module):
    """A matrix of neighbours as a buffer, tables of two kinds of nodes: LightGCN."""

    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(6, 8), nn.Embedding(9, 8)
        a = torch.zeros(15, 15)
        a[:6, 6:] = (torch.rand(6, 9) < 0.5).float()
        a = a + a.T
        d = a.sum(1).clamp(min=1).rsqrt()
        self.register_buffer("adjacency", d[:, None] * a * d)

    def forward(self, user, item):
        x = torch.cat([self.users.weight, self.items.weight])
        xs = [x]
        for _ in range(3):
            xs.append(self.adjacency @ xs[-1])
        u, i = torch.stack(xs, 1).mean(1).split([6, 9])
        return (u[user] * i[item]).sum(-1)


class GraphWaveNet(nn.Module):
    """Roads as buffers beside a matrix that is learned from two tables of nodes."""

    def __init__(self, n=7, c=8):
        super().__init__()
        a = (torch.rand(n, n) < 0.4).float() + torch.eye(n)
        self.register_buffer("forward_road", a / a.sum(1, keepdim=True))
        self.register_buffer("backward_road", a.T / a.T.sum(1, keepdim=True))
        self.nodevec1, self.nodevec2 = nn.Parameter(torch.randn(n, 4)), nn.Parameter(torch.randn(4, n))
        self.start = nn.Conv2d(2, c, 1)
        self.filters, self.gates = nn.Conv2d(c, c, (1, 2)), nn.Conv2d(c, c, (1, 2))
        self.mix, self.norm, self.end = nn.Conv2d(4 * c, c, 1), nn.BatchNorm2d(c), nn.Conv2d(c, 3, 1)

    def forward(self, x):
        x = self.start(x)
        y = torch.tanh(self.filters(x)) * torch.sigmoid(self.gates(x))
        adaptive = F.relu(self.nodevec1 @ self.nodevec2).softmax(1)
        hops = [y] + [torch.einsum("ncvl,vw->ncwl", y, a) for a in (self.forward_road, self.backward_road, adaptive)]
        y = self.norm(self.mix(torch.cat(hops, 1)) + x[..., 1:])
        return self.end(F.relu(y))


class Lmu(nn.Module):
    """A memory by Legendre's polynomials: A and B are computed, the rest learns."""

    def __init__(self, order=6, hidden=10):
        super().__init__()
        q = torch.arange(order).float()
        r = (2 * q + 1)[:, None] / 12
        i, j = torch.meshgrid(q, q, indexing="ij")
        a = torch.where(i < j, -1.0, (-1.0) ** (i - j + 1)) * r
        b = (-1.0) ** q[:, None] * r
        self.register_buffer("A", torch.matrix_exp(a))
        self.register_buffer("B", torch.linalg.solve(a, torch.matrix_exp(a) - torch.eye(order)) @ b)
        self.e_x, self.e_h = nn.Parameter(torch.randn(1, 3)), nn.Parameter(0.3 * torch.randn(1, hidden))
        self.w_x, self.w_h = nn.Parameter(0.3 * torch.randn(hidden, 3)), nn.Parameter(0.3 * torch.randn(hidden, hidden))
        self.w_m, self.head = nn.Parameter(0.3 * torch.randn(hidden, order)), nn.Linear(hidden, 2)

    def forward(self, x):
        h, m = x.new_zeros(x.shape[0], 10), x.new_zeros(x.shape[0], 6)
        for t in range(x.shape[1]):
            u = F.linear(x[:, t], self.e_x) + F.linear(h, self.e_h)
            m = F.linear(m, self.A) + F.linear(u, self.B)
            h = torch.tanh(F.linear(x[:, t], self.w_x) + F.linear(h, self.w_h) + F.linear(m, self.w_m))
        return self.head(h)


class VqEma(nn.Module):
    """A codebook that a running mean fills, not the optimizer."""

    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Conv2d(1, 8, 4, 4), nn.ConvTranspose2d(8, 1, 4, 4)
        self.register_buffer("embedding", torch.randn(12, 8))
        self.register_buffer("cluster_size", torch.ones(12))
        self.register_buffer("embed_avg", torch.randn(12, 8))

    def forward(self, x):
        z = self.enc(x).permute(0, 2, 3, 1)
        d = (z.unsqueeze(-2) - self.embedding).pow(2).sum(-1)
        q = F.embedding(d.argmin(-1), self.embedding)
        return self.dec((z + (q - z).detach()).permute(0, 3, 1, 2))


class Anchors(nn.Module):
    """Boxes from anchors that are a buffer."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 12, 3, 2, 1), nn.ReLU(), nn.Conv2d(12, 8, 3, 2, 1))
        y, x = torch.meshgrid(torch.arange(4) * 4 + 2., torch.arange(4) * 4 + 2., indexing="ij")
        c = torch.stack([x, y], -1).view(16, 1, 2)
        wh = torch.tensor([[4., 8.], [8., 4.]])
        self.register_buffer("anchors", torch.cat([c.expand(16, 2, 2), wh.expand(16, 2, 2)], -1).reshape(32, 4))

    def forward(self, x):
        d = self.body(x).permute(0, 2, 3, 1).reshape(x.shape[0], 32, 4)
        xy = self.anchors[:, :2] + d[..., :2] * self.anchors[:, 2:] * 0.1
        wh = self.anchors[:, 2:] * (d[..., 2:] * 0.2).exp()
        return torch.cat([xy - wh / 2, xy + wh / 2], -1)


class SinusoidEncoder(nn.Module):
    """The tutorial's: positions as a buffer, a causal mask, an encoder, a decoder that is one layer."""

    def __init__(self, d=32, size=50):
        super().__init__()
        t = torch.arange(size).unsqueeze(1)
        w = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
        pe = torch.zeros(1, size, d)
        pe[0, :, 0::2], pe[0, :, 1::2] = torch.sin(t * w), torch.cos(t * w)
        self.register_buffer("pe", pe)
        self.embed, self.d = nn.Embedding(100, d, padding_idx=0), d
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 48, batch_first=True), 2, enable_nested_tensor=False)
        self.out = nn.Linear(d, 20)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        x = self.embed(x) * math.sqrt(self.d) + self.pe[:, :x.shape[1]]
        return self.out(self.encoder(x, mask=mask.to(x.dtype)))


class Fsq(nn.Module):
    """Finite scalars in place of a codebook: levels are a buffer."""

    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv1d(1, 8, 4, 2, 1), nn.ELU(), nn.Conv1d(8, 3, 4, 2, 1))
        self.dec = nn.Sequential(nn.ConvTranspose1d(3, 8, 4, 2, 1), nn.ELU(), nn.ConvTranspose1d(8, 1, 4, 2, 1))
        self.register_buffer("levels", torch.tensor([8., 5., 5.]).view(3, 1), persistent=False)

    def forward(self, x):
        half = (self.levels - 1) * 0.999 / 2
        offset = torch.where(self.levels % 2 == 0, 0.5, 0.0)
        z = torch.tanh(self.enc(x) + torch.atanh(offset / half)) * half - offset
        z = z + (z.round() - z).detach()
        return self.dec(z / (self.levels // 2))


class ChebyKan(nn.Module):
    def __init__(self, i=5, o=4, degree=4):
        super().__init__()
        self.coeffs = nn.Parameter(torch.randn(i, o, degree + 1) / (i * (degree + 1)))
        self.register_buffer("arange", torch.arange(0, degree + 1))

    def forward(self, x):
        x = torch.tanh(x).clamp(-0.99, 0.99).unsqueeze(-1)
        return torch.einsum("bid,iod->bo", torch.cos(torch.acos(x) * self.arange), self.coeffs)


class RbfKan(nn.Module):
    """FastKAN: bumps on a grid that does not learn, beside a plain layer."""

    class Layer(nn.Module):
        def __init__(self, i, o, n=6):
            super().__init__()
            self.norm, self.base = nn.LayerNorm(i), nn.Linear(i, o)
            self.grid = nn.Parameter(torch.linspace(-2, 2, n), requires_grad=False)
            self.spline, self.h = nn.Linear(i * n, o, bias=False), 4 / (n - 1)

        def forward(self, x):
            b = torch.exp(-(((self.norm(x)[..., None] - self.grid) / self.h) ** 2))
            return self.spline(b.flatten(-2)) + self.base(F.silu(x))

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(self.Layer(5, 8), self.Layer(8, 3))

    def forward(self, x):
        return self.net(x)


ALL = {
    "input_norm": own(InputNorm, floats(2, 3, 20, 20)), "scaled_table": own(ScaledTable, floats(2, 9)),
    "frozen_norms": own(FrozenNorms, floats(2, 3, 12, 12)), "fourier_features": own(FourierFeatures, floats(2, 11, 2), lengths=[1]),
    "reservoir": own(Reservoir, floats(2, 8, 3)), "rainbow": own(Rainbow, floats(2, 6)),
    "nano_gpt": own(NanoGpt, ids, lengths=[1]), "nano_llama": own(NanoLlama, ids, lengths=[1]),
    "tied_autoencoder": own(TiedAutoencoder, floats(2, 24)), "dino_head": own(DinoHead, floats(2, 12)),
    "critic": own(Critic, floats(2, 3, 16, 16)), "normed_tcn": own(NormedTcn, floats(2, 4, 20), lengths=[2]),
    "lu_flow": own(LuFlow, floats(2, 6)), "light_gcn": own(Actors, lambda: torch.tensor([1, 4]), lambda: torch.tensor([7, 2])),
    "graph_wave_net": own(GraphWaveNet, floats(2, 2, 7, 6)), "lmu": own(Lmu, floats(2, 6, 3)),
    "vq_ema": own(VqEma, floats(2, 1, 16, 16)), "anchors": own(Anchors, floats(2, 3, 16, 16)),
    "sinusoid_encoder": own(SinusoidEncoder, ids, lengths=[1]), "fsq": own(Fsq, floats(2, 1, 32)),
    "cheby_kan": own(ChebyKan, floats(2, 5)), "rbf_kan": own(RbfKan, floats(2, 5)),
}
