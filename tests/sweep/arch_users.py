"""What people write around a layer or two: constants of their field under names of their own, weights that
are made of others, states and tables that are learned; for sweep.py."""
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune

from arch_plain import floats, own
from arch_tables import picks


class Prophet(nn.Module):
    """Trend with change points and seasons as in Prophet: the dates of the changes are a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("changepoints", torch.linspace(0, 0.8, 7))
        self.k, self.m = nn.Parameter(torch.tensor(0.3)), nn.Parameter(torch.tensor(0.1))
        self.deltas = nn.Parameter(torch.randn(7) * 0.1)
        self.seasonal = nn.Parameter(torch.randn(8) * 0.2)
        self.register_buffer("orders", 2 * math.pi * torch.arange(1.0, 5.0))

    def forward(self, t):
        a = torch.sigmoid(50 * (t[..., None] - self.changepoints))
        trend = (self.k + a @ self.deltas) * t + self.m - a @ (self.deltas * self.changepoints)
        angle = t[..., None] * self.orders
        return trend + torch.cat([angle.sin(), angle.cos()], -1) @ self.seasonal


class StateSpace(nn.Module):
    """A Kalman filter whose motion and sensor are known, and whose gain is learned (KalmanNet)."""

    def __init__(self):
        super().__init__()
        f = torch.eye(4)
        f[0, 2] = f[1, 3] = 0.1
        self.register_buffer("F", f)
        self.register_buffer("H", torch.eye(4)[:2].contiguous())
        self.cell, self.gain = nn.GRUCell(2, 12), nn.Linear(12, 8)
        self.x0 = nn.Parameter(torch.randn(4) * 0.1)

    def forward(self, z):
        x, h = self.x0.expand(z.shape[0], 4), z.new_zeros(z.shape[0], 12)
        out = []
        for t in range(z.shape[1]):
            x = x @ self.F.T
            y = z[:, t] - x @ self.H.T
            h = self.cell(y, h)
            x = x + (self.gain(h).view(-1, 4, 2) @ y[..., None]).squeeze(-1)
            out.append(x)
        return torch.stack(out, 1)


class Smoke(nn.Module):
    """A solver of a step of diffusion with its stencil, and a net that corrects it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("stencil", torch.tensor([[0.05, 0.2, 0.05], [0.2, -1.0, 0.2], [0.05, 0.2, 0.05]])[None, None])
        self.viscosity = nn.Parameter(torch.tensor(0.1))
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 1, 3, padding=1))

    def forward(self, u):
        for _ in range(2):
            u = u + self.viscosity * F.conv2d(F.pad(u, (1, 1, 1, 1), mode="circular"), self.stencil) + self.net(u) * 0.1
        return u


class RungeKutta(nn.Module):
    """A neural ODE with the tableau as buffers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.tensor([[0.0, 0, 0, 0], [0.5, 0, 0, 0], [0, 0.5, 0, 0], [0, 0, 1.0, 0]]))
        self.register_buffer("b", torch.tensor([1 / 6, 1 / 3, 1 / 3, 1 / 6]))
        self.register_buffer("c", torch.tensor([0.0, 0.5, 0.5, 1.0]))
        self.f = nn.Sequential(nn.Linear(5, 16), nn.Softplus(), nn.Linear(16, 4))

    def forward(self, y):
        dt = 0.25
        for n in range(2):
            ks = []
            for i in range(4):
                yi = y
                for j in range(i):
                    yi = yi + dt * self.a[i, j] * ks[j]
                t = (n + self.c[i]) * dt
                ks.append(self.f(torch.cat([yi, t.expand(y.shape[0], 1)], 1)))
            y = y + dt * sum(self.b[i] * ks[i] for i in range(4))
        return y


class LogitAdjusted(nn.Module):
    """Long tails: logits that are moved by how often a class is, weights on a sphere, inputs standardised."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mu", torch.randn(9))
        self.register_buffer("sigma", torch.rand(9) + 0.5)
        self.register_buffer("log_prior", torch.log_softmax(torch.randn(6), 0))
        self.body = nn.Sequential(nn.Linear(9, 14), nn.LayerNorm(14), nn.GELU())
        self.W, self.s = nn.Parameter(torch.randn(6, 14)), nn.Parameter(torch.tensor(8.0))

    def forward(self, x):
        h = F.normalize(self.body((x - self.mu) / self.sigma), dim=1)
        return self.s * h @ F.normalize(self.W, dim=1).t() + self.log_prior


class GaussianProcess(nn.Module):
    """Random Fourier features fixed at the start, or inducing points that move: both kernels."""

    def __init__(self):
        super().__init__()
        self.inducing = nn.Parameter(torch.randn(10, 3))
        self.raw_lengthscale, self.raw_outputscale = nn.Parameter(torch.zeros(1, 3)), nn.Parameter(torch.tensor(0.2))
        self.mean, self.u = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.randn(10))
        self.register_buffer("jitter", torch.tensor(1e-3))

    def k(self, a, b):
        length = F.softplus(self.raw_lengthscale)
        a, b = a / length, b / length
        d = (a * a).sum(-1)[:, None] + (b * b).sum(-1)[None] - 2 * a @ b.t()
        return F.softplus(self.raw_outputscale) * torch.exp(-0.5 * d.clamp(min=0))

    def forward(self, x):
        return self.mean + self.k(x, self.inducing) @ self.u + self.jitter


class StartState(nn.Module):
    """An LSTM whose first state is learned, and whose words are scaled."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 12)
        self.rnn = nn.LSTM(12, 10, batch_first=True)
        self.h0, self.c0 = nn.Parameter(torch.randn(1, 1, 10) * 0.1), nn.Parameter(torch.randn(1, 1, 10) * 0.1)
        self.out = nn.Linear(10, 4)

    def forward(self, x):
        n = x.shape[0]
        y, _ = self.rnn(self.embed(x) * math.sqrt(12), (self.h0.repeat(1, n, 1), self.c0.repeat(1, n, 1)))
        return self.out(y)


class Ordinal(nn.Module):
    """Cumulative links: thresholds that rise, as sums of what is positive; weights that are positive."""

    def __init__(self):
        super().__init__()
        self.first, self.gaps = nn.Parameter(torch.tensor([-1.0])), nn.Parameter(torch.randn(4))
        self.raw = nn.Parameter(torch.randn(8, 6) * 0.5)
        self.bias, self.last = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(1, 8))

    def forward(self, x):
        h = torch.tanh(F.linear(x, self.raw.exp(), self.bias))
        score = F.linear(h, F.softplus(self.last))
        cuts = torch.cat([self.first, self.first + torch.cumsum(F.softplus(self.gaps), 0)])
        return torch.sigmoid(cuts - score)


class Differentiable(nn.Module):
    """Architecture search: operations that are mixed by a softmax of learned numbers."""

    def __init__(self):
        super().__init__()
        self.alphas = nn.Parameter(1e-1 * torch.randn(2, 4))
        self.ops = nn.ModuleList(nn.ModuleList([nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.Conv2d(6, 6, 5, padding=2, groups=6, bias=False),
                                                nn.AvgPool2d(3, 1, 1), nn.Identity()]) for _ in range(2))
        self.stem, self.head = nn.Conv2d(3, 6, 3, padding=1), nn.Linear(6, 3)

    def forward(self, x):
        x = self.stem(x)
        for w, ops in zip(F.softmax(self.alphas, dim=-1), self.ops):
            x = F.relu(sum(a * op(x) for a, op in zip(w, ops)))
        return self.head(x.mean((2, 3)))


class Monarch(nn.Module):
    """Matrices of blocks, a permutation between, a Kronecker product behind."""

    def __init__(self):
        super().__init__()
        self.l, self.r = nn.Parameter(torch.randn(4, 3, 3) * 0.5), nn.Parameter(torch.randn(3, 4, 4) * 0.5)
        self.a, self.b = nn.Parameter(torch.randn(3, 4) * 0.5), nn.Parameter(torch.randn(2, 3) * 0.5)
        self.register_buffer("perm", torch.randperm(12))

    def forward(self, x):
        x = torch.einsum("bki,kij->bkj", x.view(-1, 4, 3), self.l).transpose(1, 2)
        x = torch.relu(torch.einsum("bki,kij->bkj", x, self.r).reshape(-1, 12)[:, self.perm])
        return x @ torch.kron(self.a, self.b).t()


class Poincare(nn.Module):
    """Hyperbolic space: a curvature that learns, prototypes in the ball."""

    def __init__(self):
        super().__init__()
        self.c, self.fc = nn.Parameter(torch.tensor(0.7)), nn.Linear(6, 4)
        self.points = nn.Parameter(torch.randn(5, 4) * 0.1)
        self.register_buffer("eps", torch.tensor(1e-5))

    def forward(self, x):
        v = self.fc(x)
        sqrt_c = self.c.abs().sqrt()
        n = v.norm(dim=-1, keepdim=True).clamp(min=1e-5)
        z = torch.tanh(sqrt_c * n) * v / (sqrt_c * n)
        diff = (z[:, None] - self.points).pow(2).sum(-1)
        a, b = 1 - self.c * z.pow(2).sum(-1, keepdim=True), 1 - self.c * self.points.pow(2).sum(-1)
        arg = 1 + 2 * self.c * diff / (a * b + self.eps)
        return torch.log(arg + torch.sqrt(arg * arg - 1 + 1e-6))


class StepSizes(nn.Module):
    """LSQ-like: weights that are divided by a learned step, bounded, and multiplied again; PACT's bound of what comes."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 8, 3), nn.Linear(8, 5)
        self.s, self.alpha = nn.Parameter(torch.tensor(0.05)), nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        w = torch.clamp(self.conv.weight / self.s, -4.0, 3.0) * self.s
        x = F.conv2d(x, w, self.conv.bias)
        x = 0.5 * (x.abs() - (x - self.alpha).abs() + self.alpha)
        return self.fc(x.mean((2, 3)))


class Pruned(nn.Module):
    """As torch.nn.utils.prune leaves it: half of the weights under a mask."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 7))
        prune.l1_unstructured(self.net[0], "weight", 0.4)
        prune.random_unstructured(self.net[3], "weight", 0.5)
        with torch.no_grad():  # or its weights cannot be copied
            self.net(torch.zeros(1, 1, 8, 8))

    def forward(self, x):
        return self.net(x)


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)


class Parametrized(nn.Module):
    """A symmetric matrix, norms of weights, both as PyTorch's parametrizations."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(8, 8)
        parametrize.register_parametrization(self.mix, "weight", Symmetric())
        self.conv = parametrizations.weight_norm(nn.Conv1d(2, 8, 3, padding=1))
        self.fc = parametrizations.weight_norm(nn.Linear(8, 3), dim=0)

    def forward(self, x):
        x = torch.relu(self.conv(x)).mean(2)
        return self.fc(torch.tanh(self.mix(x)))


class SpectralCritic(nn.Module):
    """Spectral norms as parametrizations: one vector of the power method is a buffer."""

    def __init__(self):
        super().__init__()
        sn = parametrizations.spectral_norm
        self.net = nn.Sequential(sn(nn.Conv2d(3, 8, 3, 2, 1)), nn.LeakyReLU(0.1), sn(nn.Conv2d(8, 8, 3, 2, 1)),
                                 nn.LeakyReLU(0.1), nn.Flatten(), sn(nn.Linear(128, 1)))

    def forward(self, x):
        return self.net(x)


class OldNorm(nn.Module):
    """Weight norms as people have them in files of old: weight_g and weight_v."""

    def __init__(self):
        super().__init__()
        wn = nn.utils.weight_norm
        self.pre = wn(nn.Conv1d(3, 8, 5, padding=2))
        self.blocks = nn.ModuleList(wn(nn.Conv1d(8, 8, 3, padding=d, dilation=d)) for d in (1, 3))
        self.up = wn(nn.ConvTranspose1d(8, 4, 4, 2, 1))
        with torch.no_grad():  # or its weights cannot be copied
            self(torch.zeros(1, 3, 8))

    def forward(self, x):
        x = self.pre(x)
        for b in self.blocks:
            x = x + b(F.leaky_relu(x, 0.1))
        return torch.tanh(self.up(x))


class Arithmetic(nn.Module):
    """NALU: a weight that is a tanh times a sigmoid."""

    def __init__(self):
        super().__init__()
        self.W_hat, self.M_hat = nn.Parameter(torch.randn(4, 5)), nn.Parameter(torch.randn(4, 5))
        self.G = nn.Parameter(torch.randn(4, 5))

    def forward(self, x):
        w = torch.tanh(self.W_hat) * torch.sigmoid(self.M_hat)
        g = torch.sigmoid(F.linear(x, self.G))
        return g * F.linear(x, w) + (1 - g) * torch.exp(F.linear(torch.log(x.abs() + 1e-6), w)).clamp(max=100)


class Skeleton(nn.Module):
    """Graphs of joints with an importance of each edge that learns, and one that is all learned (2s-AGCN)."""

    def __init__(self):
        super().__init__()
        a = torch.rand(3, 6, 6) * (torch.rand(3, 6, 6) < 0.4)
        self.register_buffer("A", a / a.sum(1, keepdim=True).clamp(min=1e-3))
        self.edge_importance = nn.ParameterList(nn.Parameter(torch.ones(3, 6, 6)) for _ in range(2))
        self.PA = nn.Parameter(torch.full((3, 6, 6), 1e-2))
        self.convs = nn.ModuleList([nn.Conv2d(2, 24, 1), nn.Conv2d(8, 24, 1)])
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        for conv, w in zip(self.convs, self.edge_importance):
            y = conv(x)
            n, kc, t, v = y.shape
            x = torch.relu(torch.einsum("nkctv,kvw->nctw", y.view(n, 3, kc // 3, t, v), self.A * w + self.PA))
        return self.fc(x.mean((2, 3)))


class Recommender(nn.Module):
    """Layers of propagation over all users and goods, by an adjacency that is normalised beforehand."""

    def __init__(self):
        super().__init__()
        r = (torch.rand(8, 12) < 0.3).float()
        a = torch.cat([torch.cat([torch.zeros(8, 8), r], 1), torch.cat([r.t(), torch.zeros(12, 12)], 1)], 0)
        d = a.sum(1).clamp(min=1).rsqrt()
        self.register_buffer("norm_adj", d[:, None] * a * d[None])
        self.user_emb, self.item_emb = nn.Embedding(8, 6), nn.Embedding(12, 6)

    def forward(self, u, i):
        e = torch.cat([self.user_emb.weight, self.item_emb.weight], 0)
        layers = [e]
        for _ in range(2):
            layers.append(self.norm_adj @ layers[-1])
        users, items = torch.split(torch.stack(layers, 1).mean(1), [8, 12])
        return (users[u] * items[i]).sum(1)


class Timesteps(nn.Module):
    """A denoiser: sines of the step from a buffer, a table of noise by steps, classes that may be dropped."""

    def __init__(self):
        super().__init__()
        half = torch.exp(-math.log(10000) * torch.arange(8) / 8)
        self.register_buffer("freq", half)
        a = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 50), 0)
        self.register_buffer("signal_rate", a.sqrt())
        self.register_buffer("noise_rate", (1 - a).sqrt())
        self.time, self.label = nn.Sequential(nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 16)), nn.Embedding(6, 16)
        self.inp, self.out = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 1, 3, padding=1)
        self.norm, self.mod = nn.GroupNorm(4, 16), nn.Linear(16, 32)

    def forward(self, x, t, y, noise):
        xt = self.signal_rate[t].view(-1, 1, 1, 1) * x + self.noise_rate[t].view(-1, 1, 1, 1) * noise
        angle = t[:, None].float() * self.freq
        c = self.time(torch.cat([angle.cos(), angle.sin()], 1)) + self.label(y)
        scale, shift = self.mod(F.silu(c))[..., None, None].chunk(2, 1)
        return self.out(F.silu(self.norm(self.inp(xt)) * (1 + scale) + shift))


class NoiseConditioned(nn.Module):
    """A score by levels: widths as a geometric row, Fourier features of the level that were drawn once."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sigmas", torch.exp(torch.linspace(math.log(5.0), math.log(0.01), 12)))
        self.B = nn.Parameter(torch.randn(6) * 4, requires_grad=False)
        self.embed, self.conv = nn.Linear(12, 8), nn.Conv2d(1, 8, 3, padding=1)
        self.out = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x, level):
        s = self.sigmas[level]
        p = s.log()[:, None] * self.B[None] * 2 * math.pi
        e = self.embed(torch.cat([p.sin(), p.cos()], -1))
        return self.out(torch.tanh(self.conv(x) + e[..., None, None])) / s.view(-1, 1, 1, 1)


class Bernstein(nn.Module):
    """Graph filters as polynomials: binomials as a buffer, coefficients that are held above zero, a fixed graph."""

    def __init__(self, k=4):
        super().__init__()
        a = (torch.rand(7, 7) < 0.4).float()
        a = ((a + a.t()) > 0).float() * (1 - torch.eye(7))
        d = a.sum(1).clamp(min=1).rsqrt()
        self.register_buffer("L", torch.eye(7) - d[:, None] * a * d[None])
        self.register_buffer("binom", torch.tensor([math.comb(k, i) / 2 ** k for i in range(k + 1)]))
        self.theta, self.fc = nn.Parameter(torch.ones(k + 1)), nn.Linear(5, 6)

    def forward(self, x):
        h = torch.relu(self.fc(x))
        out, two = 0, 2 * torch.eye(7, device=x.device, dtype=x.dtype)
        for i in range(5):
            y = h
            for _ in range(4 - i):
                y = (two - self.L) @ y
            for _ in range(i):
                y = self.L @ y
            out = out + self.binom[i] * torch.relu(self.theta)[i] * y
        return out


class LegendreUnit(nn.Module):
    """A memory with matrices of theory (LMU, HiPPO) between weights that learn."""

    def __init__(self, n=6, d=8):
        super().__init__()
        q = torch.arange(n, dtype=torch.float64)
        r = (2 * q + 1)[:, None]
        i, j = torch.meshgrid(q, q, indexing="ij")
        a = torch.where(i < j, -1.0, (-1.0) ** (i - j + 1)) * r / 5
        self.register_buffer("AT", torch.matrix_exp(a).t().float().contiguous())
        self.register_buffer("BT", ((-1.0) ** q[:, None] * r / 5).t().float().contiguous())
        self.e_x, self.e_h, self.e_m = (nn.Parameter(torch.randn(1, k) * 0.3) for k in (3, d, n))
        self.W_x, self.W_h, self.W_m = (nn.Parameter(torch.randn(d, k) * 0.3) for k in (3, d, n))
        self.n, self.d = n, d

    def forward(self, x):
        h, m = x.new_zeros(x.shape[0], self.d), x.new_zeros(x.shape[0], self.n)
        for t in range(x.shape[1]):
            u = F.linear(x[:, t], self.e_x) + F.linear(h, self.e_h) + F.linear(m, self.e_m)
            m = m @ self.AT + u @ self.BT
            h = torch.tanh(F.linear(x[:, t], self.W_x) + F.linear(h, self.W_h) + F.linear(m, self.W_m))
        return h


class Echo(nn.Module):
    """A reservoir: matrices drawn once and kept as buffers, a readout with a leak that learns."""

    def __init__(self):
        super().__init__()
        self.register_buffer("W_in", torch.rand(10, 2) - 0.5)
        w = torch.randn(10, 10) * (torch.rand(10, 10) < 0.3)
        self.register_buffer("W_res", 0.9 * w / torch.linalg.eigvals(w).abs().max().clamp(min=0.1))
        self.leak, self.readout = nn.Parameter(torch.tensor(0.4)), nn.Linear(10, 2)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 10)
        for t in range(x.shape[1]):
            h = (1 - self.leak) * h + self.leak * torch.tanh(x[:, t] @ self.W_in.T + h @ self.W_res.T)
        return self.readout(h)


class Topics(nn.Module):
    """Topics of words: a table that goes through a softmax, a prior as buffers, an encoder with norms without weights."""

    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(30, 16), nn.Softplus(), nn.Linear(16, 5))
        self.prior_mean, self.prior_var = nn.Parameter(torch.zeros(5), requires_grad=False), nn.Parameter(torch.full((5,), 0.8), requires_grad=False)
        self.beta = nn.Parameter(torch.randn(5, 30))
        self.norm = nn.LayerNorm(30, elementwise_affine=False)

    def forward(self, x):
        mu = self.enc(torch.log1p(x))
        theta = F.softmax(mu, -1)
        kl = ((mu - self.prior_mean) ** 2 / self.prior_var).sum(1, keepdim=True)
        return torch.log_softmax(self.norm(theta @ F.softmax(self.beta, -1)), -1) - 0.01 * kl


class Planar(nn.Module):
    """Flows of single directions: w, u and b; u is bent so that it can be undone."""

    def __init__(self):
        super().__init__()
        self.steps = nn.ModuleList(self.Step() for _ in range(3))

    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.u, self.b = nn.Parameter(torch.randn(1, 4)), nn.Parameter(torch.randn(1, 4)), nn.Parameter(torch.zeros(1))

        def forward(self, z):
            wu = (self.w * self.u).sum()
            u = self.u + (F.softplus(wu) - 1 - wu) * self.w / (self.w ** 2).sum()
            h = torch.tanh(z @ self.w.t() + self.b)
            return z + u * h, torch.log((1 + (1 - h ** 2) * (u * self.w).sum()).abs() + 1e-6)

    def forward(self, z):
        total = 0
        for s in self.steps:
            z, d = s(z)
            total = total + d
        return torch.cat([z, total], 1)


class Coupling(nn.Module):
    """NICE: halves by a mask of the code, a scale of each number at the end, a logistic prior."""

    def __init__(self):
        super().__init__()
        self.m = nn.ModuleList(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6)) for _ in range(2))
        self.scale = nn.Parameter(torch.zeros(1, 6))
        self.register_buffer("mask0", (torch.arange(6) % 2).float())

    def forward(self, x):
        for i, m in enumerate(self.m):
            b = self.mask0 if i == 0 else 1 - self.mask0
            x = x + (1 - b) * m(b * x)
        z = x * torch.exp(self.scale)
        return -(F.softplus(z) + F.softplus(-z)).sum(1) + self.scale.sum()


class Frontend(nn.Module):
    """PCEN behind a bank of triangles that is a buffer; smoothing, gain and root learn as logarithms."""

    def __init__(self):
        super().__init__()
        edges = torch.linspace(0, 16, 8)
        bins = torch.arange(17.0)[:, None]
        up, down = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2]), (edges[2:] - bins) / (edges[2:] - edges[1:-1])
        self.register_buffer("triangles", torch.minimum(up, down).clamp(min=0))
        self.log_alpha, self.log_delta, self.log_r = (nn.Parameter(torch.log(torch.full((6,), v)) + 0.05 * torch.randn(6))
                                                      for v in (0.9, 2.0, 0.5))
        self.s = nn.Parameter(torch.tensor(0.2))
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        x = x.abs() @ self.triangles
        m, states = x[:, 0], []
        for t in range(x.shape[1]):
            m = (1 - self.s) * m + self.s * x[:, t]
            states.append(m)
        m = torch.stack(states, 1)
        alpha, delta, r = self.log_alpha.exp(), self.log_delta.exp(), self.log_r.exp()
        return self.fc(((x / (1e-2 + m) ** alpha + delta) ** r - delta ** r).mean(1))


class Equalised(nn.Module):
    """Layers whose rates are equalised, noise by a buffer, a picture that begins with a learned constant."""

    def __init__(self):
        super().__init__()
        self.const = nn.Parameter(torch.randn(1, 8, 4, 4))
        self.w1, self.w2, self.fc = nn.Parameter(torch.randn(8, 8, 3, 3)), nn.Parameter(torch.randn(3, 8, 1, 1)), nn.Parameter(torch.randn(8, 6))
        self.b1, self.b2 = nn.Parameter(torch.zeros(1, 8, 1, 1)), nn.Parameter(torch.zeros(3))
        self.strength = nn.Parameter(torch.tensor(0.1))
        self.register_buffer("noise_const", torch.randn(4, 4))

    def forward(self, z):
        style = F.linear(z, self.fc * (1 / math.sqrt(6))) + 1
        x = self.const.repeat(z.shape[0], 1, 1, 1) * style[..., None, None]
        x = F.conv2d(x, self.w1 * (1 / math.sqrt(72)), padding=1) + self.b1 + self.noise_const * self.strength
        return F.conv2d(F.leaky_relu(x, 0.2) * math.sqrt(2), self.w2 * (1 / math.sqrt(8)), self.b2)


class DitBlock(nn.Module):
    """A diffusion transformer: places as sines in a parameter that does not learn, modulation that begins at zero."""

    def __init__(self, d=16):
        super().__init__()
        pos = torch.arange(16.0)[:, None] * torch.exp(-math.log(1e4) * torch.arange(d // 2) / (d // 2))
        self.pos_embed = nn.Parameter(torch.cat([pos.sin(), pos.cos()], 1)[None], requires_grad=False)
        self.patch, self.cond = nn.Conv2d(2, d, 2, 2), nn.Embedding(5, d)
        self.norm1, self.norm2 = nn.LayerNorm(d, elementwise_affine=False), nn.LayerNorm(d, elementwise_affine=False)
        self.attn = nn.MultiheadAttention(d, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 32), nn.GELU(approximate="tanh"), nn.Linear(32, d))
        self.ada = nn.Sequential(nn.SiLU(), nn.Linear(d, 6 * d))
        self.final = nn.Linear(d, 8)

    def forward(self, x, y):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.pos_embed
        a, b, c, d, e, f = self.ada(self.cond(y))[:, None].chunk(6, 2)
        h = self.norm1(x) * (1 + b) + a
        x = x + c * self.attn(h, h, h, need_weights=False)[0]
        x = x + f * self.mlp(self.norm2(x) * (1 + e) + d)
        return self.final(x)


class Transport(nn.Module):
    """Slots as a table, costs to them, three rounds of Sinkhorn in logarithms with a temperature that learns."""

    def __init__(self):
        super().__init__()
        self.slots, self.log_eps = nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.tensor(-1.0))
        self.dustbin = nn.Parameter(torch.tensor(1.0))
        self.proj = nn.Linear(6, 6)

    def forward(self, x):
        s = self.proj(x) @ self.slots.t() / self.log_eps.exp()
        s = torch.cat([s, self.dustbin.expand(s.shape[0], s.shape[1], 1)], 2)
        for _ in range(3):
            s = s - s.logsumexp(2, keepdim=True)
            s = s - s.logsumexp(1, keepdim=True)
        return s.exp()


class Relative(nn.Module):
    """Attention with a table of distances, a causal mask, slopes of heads and rotations, all at once."""

    def __init__(self, d=16, n=10, heads=2):
        super().__init__()
        self.qkv, self.o, self.heads = nn.Linear(d, 3 * d), nn.Linear(d, d), heads
        i = torch.arange(n)
        self.register_buffer("rel_index", (i[:, None] - i[None]) + n - 1)
        self.rel_table = nn.Parameter(torch.randn(2 * n - 1, heads) * 0.1)
        self.register_buffer("tril", torch.tril(torch.ones(n, n)))
        self.register_buffer("slopes", 2.0 ** -torch.arange(1.0, heads + 1))
        angle = i[:, None] * (1e4 ** (-torch.arange(4.0) / 4))[None]
        self.register_buffer("rot_c", angle.cos())
        self.register_buffer("rot_s", angle.sin())

    def turn(self, x):
        a, b = x.chunk(2, -1)
        return torch.cat([a * self.rot_c - b * self.rot_s, a * self.rot_s + b * self.rot_c], -1)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        s = self.turn(q) @ self.turn(k).transpose(-1, -2) / math.sqrt(8)
        s = s + self.rel_table[self.rel_index].permute(2, 0, 1) - self.slopes[:, None, None] * (self.rel_index - 9).abs()
        s = s.masked_fill(self.tril == 0, float("-inf")).softmax(-1)
        return self.o((s @ v).transpose(1, 2).reshape(b, n, d))


class Sounds(nn.Module):
    """A short-time spectrum by convolutions with waves under a window as buffers, then convolutions that learn."""

    def __init__(self, n=16):
        super().__init__()
        t = torch.arange(n)
        w = torch.hann_window(n)
        k = torch.arange(n // 2 + 1)[:, None] * t * 2 * math.pi / n
        self.register_buffer("wsin", (k.sin() * w)[:, None])
        self.register_buffer("wcos", (k.cos() * w)[:, None])
        self.log_scale = nn.Parameter(torch.tensor(0.0))
        self.conv, self.fc = nn.Conv1d(9, 8, 3), nn.Linear(8, 4)

    def forward(self, x):
        re, im = F.conv1d(x, self.wcos, stride=8), F.conv1d(x, self.wsin, stride=8)
        p = torch.log1p((re * re + im * im) * self.log_scale.exp())
        return self.fc(torch.relu(self.conv(p)).mean(2))


class Centres(nn.Module):
    """Fuzzy rules (ANFIS): membership by centres and widths that learn from an even grid."""

    def __init__(self):
        super().__init__()
        self.c = nn.Parameter(torch.linspace(-1, 1, 5).repeat(3, 1))
        self.w = nn.Parameter(torch.full((3, 5), 0.5))
        self.then = nn.Linear(3, 5)

    def forward(self, x):
        mu = torch.exp(-((x[..., None] - self.c) / self.w) ** 2).prod(1)
        return (mu / (mu.sum(1, keepdim=True) + 1e-6) * self.then(x)).sum(1, keepdim=True)


class Quaternions(nn.Module):
    """Four matrices make one weight."""

    def __init__(self):
        super().__init__()
        self.r, self.i, self.j, self.k = (nn.Parameter(torch.randn(3, 2) * 0.5) for _ in range(4))
        self.bias = nn.Parameter(torch.randn(12))

    def forward(self, x):
        r, i, j, k = self.r, self.i, self.j, self.k
        w = torch.cat([torch.cat([r, -i, -j, -k], 1), torch.cat([i, r, -k, j], 1),
                       torch.cat([j, k, r, -i], 1), torch.cat([k, -j, i, r], 1)], 0)
        return torch.tanh(F.linear(x, w, self.bias))


class Standard(nn.Module):
    """Whitening that was computed of the data, features that are selected, then gates."""

    def __init__(self):
        super().__init__()
        q = torch.linalg.qr(torch.randn(8, 8))[0]
        self.register_buffer("zca", q @ torch.diag(torch.rand(8) + 0.5) @ q.t())
        self.register_buffer("data_mean", torch.randn(8))
        self.gates, self.temperature = nn.Parameter(torch.randn(8)), nn.Parameter(torch.tensor(1.0))
        self.fc1, self.fc2 = nn.Linear(8, 12), nn.Linear(12, 3)

    def forward(self, x):
        x = (x - self.data_mean) @ self.zca * torch.sigmoid(self.gates / self.temperature)
        return self.fc2(F.elu(self.fc1(x)))


def steps(high):
    return lambda: torch.randint(0, high, (2,))


ALL = {
    "prophet": own(Prophet, lambda: torch.rand(2, 9)), "state_space": own(StateSpace, floats(2, 5, 2)),
    "smoke": own(Smoke, floats(2, 1, 9, 9)), "runge_kutta": own(RungeKutta, floats(2, 4)),
    "logit_adjusted": own(LogitAdjusted, floats(2, 9)), "gaussian_process": own(GaussianProcess, floats(2, 3)),
    "start_state": own(StartState, picks(2, 7)), "ordinal": own(Ordinal, floats(2, 6)),
    "differentiable": own(Differentiable, floats(2, 3, 8, 8)), "monarch": own(Monarch, floats(2, 12)),
    "poincare": own(Poincare, floats(2, 6)), "step_sizes": own(StepSizes, floats(2, 3, 8, 8)),
    "pruned": own(Pruned, floats(2, 1, 8, 8)), "parametrized": own(Parametrized, floats(2, 2, 9)),
    "spectral_critic": own(SpectralCritic, floats(2, 3, 16, 16)), "old_norm": own(OldNorm, floats(2, 3, 12)),
    "arithmetic": own(Arithmetic, floats(2, 5)), "skeleton": own(Skeleton, floats(2, 2, 5, 6)),
    "recommender": own(Recommender, steps(8), steps(12)),
    "timesteps": own(Timesteps, floats(2, 1, 8, 8), steps(50), steps(6), floats(2, 1, 8, 8)),
    "noise_conditioned": own(NoiseConditioned, floats(2, 1, 8, 8), steps(12)), "bernstein": own(Bernstein, floats(2, 7, 5)),
    "legendre_unit": own(LegendreUnit, floats(2, 5, 3)), "echo": own(Echo, floats(2, 6, 2)),
    "topics": own(Topics, lambda: torch.randint(0, 5, (2, 30)).float()), "planar": own(Planar, floats(2, 4)),
    "coupling": own(Coupling, floats(2, 6)), "frontend": own(Frontend, floats(2, 7, 17)),
    "equalised": own(Equalised, floats(2, 6)), "dit_block": own(DitBlock, floats(2, 2, 8, 8), steps(5)),
    "transport": own(Transport, floats(2, 5, 6)), "relative": own(Relative, floats(2, 10, 16)),
    "sounds": own(Sounds, floats(2, 1, 64)), "centres": own(Centres, floats(2, 3)),
    "quaternions": own(Quaternions, floats(2, 8)), "whitened": own(Standard, floats(2, 8)),
}
