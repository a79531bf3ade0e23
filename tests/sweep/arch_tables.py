"""Models of tables, graphs, agents, shops and physics; for sweep.py."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from arch_plain import floats, own


class MultiGate(nn.Module):
    """MMoE: experts and gates as parameter tensors, towers for tasks in one output, uncertainty as weights."""

    def __init__(self, d=10, e=3, tasks=2):
        super().__init__()
        self.experts_kernel, self.experts_bias = nn.Parameter(torch.randn(d, 8, e) * 0.3), nn.Parameter(torch.zeros(8, e))
        self.gate_kernels = nn.ParameterList(nn.Parameter(torch.randn(d, e) * 0.3) for _ in range(tasks))
        self.towers = nn.ModuleList(nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 1)) for _ in range(tasks))
        self.log_vars = nn.Parameter(torch.zeros(tasks))

    def forward(self, x):
        ex = F.relu(torch.einsum("bd,dhe->bhe", x, self.experts_kernel) + self.experts_bias)
        out = [t((ex * (x @ g).softmax(1)[:, None]).sum(2)) for g, t in zip(self.gate_kernels, self.towers)]
        return torch.cat(out, 1) * torch.exp(-self.log_vars) + self.log_vars


class FieldFm(nn.Module):
    """Field-weighted factorisation machines with a table for all fields, offsets as a buffer, a global mean."""

    def __init__(self, fields=(20, 20, 20), k=6):
        super().__init__()
        self.embedding, self.linear = nn.Embedding(sum(fields), k), nn.Embedding(sum(fields), 1)
        self.bias = nn.Parameter(torch.zeros(1))
        self.field_cov = nn.Parameter(torch.randn(3, 3) * 0.3)
        self.register_buffer("field_offsets", torch.tensor([0, 20, 40]))
        self.register_buffer("global_mean", torch.tensor(3.53))
        self.register_buffer("upper", torch.triu(torch.ones(3, 3), 1))

    def forward(self, x):
        at = x + self.field_offsets
        e = self.embedding(at)
        pairs = (e @ e.transpose(1, 2) * self.field_cov * self.upper).sum((1, 2))
        return self.global_mean + self.bias + self.linear(at).sum((1, 2)) + pairs


class FibiNet(nn.Module):
    """Squeeze and excitation of fields, bilinear pairs with a matrix for each."""

    def __init__(self, k=5):
        super().__init__()
        self.tables = nn.ModuleDict({"c%d" % i: nn.Embedding(20, k) for i in range(3)})
        self.se = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 3), nn.ReLU())
        self.bilinear = nn.ParameterDict({"w_0_1": torch.randn(k, k) * 0.4, "w_0_2": torch.randn(k, k) * 0.4, "w_1_2": torch.randn(k, k) * 0.4})
        self.head = nn.Sequential(nn.Linear(30, 12), nn.Dropout(0.2), nn.ReLU(), nn.Linear(12, 1))

    def forward(self, x):
        e = torch.stack([t(x[:, i]) for i, t in enumerate(self.tables.values())], 1)
        s = e * self.se(e.mean(2))[:, :, None]
        pairs = [torch.matmul(v[:, i], self.bilinear["w_%d_%d" % (i, j)]) * v[:, j] for v in (e, s) for i, j in ((0, 1), (0, 2), (1, 2))]
        return torch.sigmoid(self.head(torch.cat(pairs, 1)))


class NumericalTokens(nn.Module):
    """Piecewise-linear embeddings by edges of bins, periodic ones by frequencies, a token of the class (TabTransformer)."""

    def __init__(self, d=4, k=8):
        super().__init__()
        edges = torch.sort(torch.randn(d, 6), 1)[0]
        self.register_buffer("bin_left", edges[:, :-1].contiguous())
        self.register_buffer("bin_width", edges[:, 1:] - edges[:, :-1])
        self.frequencies = nn.Parameter(torch.randn(d, 3) * 0.5)
        self.weight, self.bias = nn.Parameter(torch.randn(d, 11, k) * 0.3), nn.Parameter(torch.randn(d, k) * 0.3)
        self.cls = nn.Parameter(torch.randn(1, 1, k))
        self.layer, self.head = nn.TransformerEncoderLayer(k, 2, 16, 0.0, batch_first=True, norm_first=True), nn.Linear(k, 2)

    def forward(self, x):
        ple = ((x[..., None] - self.bin_left) / self.bin_width).clamp(0, 1)
        v = 2 * math.pi * self.frequencies[None] * x[..., None]
        f = torch.cat([ple, v.cos(), v.sin()], -1)
        t = (f[..., None, :] @ self.weight).squeeze(-2) + self.bias
        t = torch.cat([self.cls.expand(len(x), -1, -1), t], 1)
        return self.head(self.layer(t)[:, 0])


class BatchEnsemble(nn.Module):
    """TabM: members that share a weight and have signs and scales of their own, a mean of all."""

    class Layer(nn.Module):
        def __init__(self, i, o, k):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(o, i) * 0.3)
            self.r, self.s = nn.Parameter((torch.rand(k, i) > 0.5).float() * 2 - 1), nn.Parameter((torch.rand(k, o) > 0.5).float() * 2 - 1)
            self.bias = nn.Parameter(torch.randn(k, o) * 0.1)

        def forward(self, x):
            return (x * self.r) @ self.weight.t() * self.s + self.bias

    def __init__(self):
        super().__init__()
        self.a, self.b = self.Layer(7, 16, 4), self.Layer(16, 12, 4)
        self.head_weight, self.head_bias = nn.Parameter(torch.randn(4, 12, 2) * 0.3), nn.Parameter(torch.zeros(4, 2))

    def forward(self, x):
        x = F.relu(self.b(F.relu(self.a(x[:, None].expand(-1, 4, -1)))))
        return (torch.einsum("bki,kio->bko", x, self.head_weight) + self.head_bias).mean(1)


class BayesLinear(nn.Module):
    """Bayes by backprop, with its noise as inputs, and a prior's deviation as a number of the module."""

    def __init__(self, i=6, o=8):
        super().__init__()
        self.weight_mu, self.weight_rho = nn.Parameter(torch.randn(o, i) * 0.3), nn.Parameter(torch.full((o, i), -3.0))
        self.bias_mu, self.bias_rho = nn.Parameter(torch.zeros(o)), nn.Parameter(torch.full((o,), -3.0))
        self.prior_log_sigma = nn.Parameter(torch.tensor(-1.0), requires_grad=False)
        self.head = nn.Linear(o, 1)

    def forward(self, x, eps):
        sigma, sb = torch.log1p(torch.exp(self.weight_rho)), F.softplus(self.bias_rho)
        mean = F.linear(x, self.weight_mu, self.bias_mu)
        h = mean + torch.sqrt(F.linear(x ** 2, sigma ** 2, sb ** 2) + 1e-8) * eps
        kl = (sigma ** 2 + self.weight_mu ** 2).mean() / torch.exp(2 * self.prior_log_sigma)
        return self.head(F.relu(h)) + kl


class RandomFeatures(nn.Module):
    """A Gaussian process by random cosines (SNGP): W and b are drawn once."""

    def __init__(self, d=8, n=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, d), nn.LayerNorm(d), nn.ReLU())
        self.register_buffer("rff_weight", torch.randn(n, d))
        self.register_buffer("rff_bias", 2 * math.pi * torch.rand(n))
        self.output, self.n = nn.Linear(n, 3, bias=False), n

    def forward(self, x):
        return self.output(math.sqrt(2 / self.n) * torch.cos(F.linear(self.net(x), self.rff_weight, self.rff_bias)))


class DeepOperator(nn.Module):
    """DeepONet: a branch, a trunk whose inputs are scaled to the domain by buffers, one bias."""

    def __init__(self):
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 10))
        self.trunk = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 10), nn.Tanh())
        self.b = nn.Parameter(torch.zeros(1))
        self.register_buffer("lb", torch.tensor([0.0, -1.0]))
        self.register_buffer("ub", torch.tensor([2.0, 1.0]))

    def forward(self, u, y):
        y = 2 * (y - self.lb) / (self.ub - self.lb) - 1
        return torch.einsum("bp,bnp->bn", self.branch(u), self.trunk(y)) + self.b


class PhysicsNet(nn.Module):
    """A PINN with slopes of activations that learn and coefficients of the equation to be found."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 16), nn.Linear(16, 16), nn.Linear(16, 1)])
        self.slopes = nn.Parameter(torch.full((2,), 0.1))
        self.lambda_1, self.lambda_2 = nn.Parameter(torch.tensor([0.5])), nn.Parameter(torch.tensor([-6.0]))
        self.register_buffer("x_scale", torch.tensor([1.3, 0.7]))

    def forward(self, x):
        h = x / self.x_scale
        for a, layer in zip(self.slopes, self.layers):
            h = torch.sin(10 * a * layer(h))
        u = self.layers[-1](h)
        return u + self.lambda_1 * u * u - torch.exp(self.lambda_2) * u ** 3


class Hamiltonian(nn.Module):
    """Steps of leapfrog with gradients written by hand, masses that learn, a skew matrix of the code."""

    def __init__(self, d=3):
        super().__init__()
        self.W, self.a = nn.Parameter(torch.randn(10, d) * 0.4), nn.Parameter(torch.randn(10) * 0.4)
        self.b = nn.Parameter(torch.zeros(10))
        self.log_mass = nn.Parameter(torch.zeros(d))
        j = torch.zeros(2 * d, 2 * d)
        j[:d, d:], j[d:, :d] = torch.eye(d), -torch.eye(d)
        self.register_buffer("J", j)
        self.dt = 0.1

    def grad_v(self, q):
        return ((1 - torch.tanh(q @ self.W.t() + self.b) ** 2) * self.a) @ self.W

    def forward(self, x):
        q, p = x.chunk(2, -1)
        for _ in range(2):
            p = p - 0.5 * self.dt * self.grad_v(q)
            q = q + self.dt * p * torch.exp(-self.log_mass)
            p = p - 0.5 * self.dt * self.grad_v(q)
        return torch.cat([q, p], -1) @ self.J.t()


class NodeGraph(nn.Module):
    """GCNII over an adjacency that is normed here: a first state, identities and a strength for each layer."""

    def __init__(self, n=9, d=12):
        super().__init__()
        a = (torch.rand(n, n) > 0.6).float()
        a = ((a + a.t() + torch.eye(n)) > 0).float()
        s = a.sum(1).rsqrt()
        self.register_buffer("a_hat", s[:, None] * a * s)
        self.first, self.last = nn.Linear(5, d), nn.Linear(d, 3)
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(d, d) * 0.2) for _ in range(3))
        self.eps = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        h0 = h = F.relu(self.first(x))
        for k, w in enumerate(self.weights):
            beta = math.log(0.5 / (k + 1) + 1)
            s = 0.9 * (self.a_hat @ h) + 0.1 * h0
            h = F.relu((1 - beta) * s + beta * (s @ w) + self.eps * h)
        return self.last(h)


class LaplacianTransformer(nn.Module):
    """A graph transformer whose places are eigenvectors, kept with the module, and edges biases of kinds."""

    def __init__(self, n=7, d=16):
        super().__init__()
        a = (torch.rand(n, n) > 0.5).float()
        a = ((a + a.t()) > 0).float().fill_diagonal_(0)
        lap = torch.diag(a.sum(1)) - a
        self.register_buffer("eigvecs", torch.linalg.eigh(lap)[1][:, 1:4].contiguous())
        self.register_buffer("edge_types", (a + torch.eye(n) * 2).long())
        self.embed, self.lap_proj, self.edge_bias = nn.Linear(4, d), nn.Linear(3, d), nn.Embedding(3, 2)
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.virtual = nn.Parameter(torch.randn(1, 1, d) * 0.2)
        self.norm = nn.BatchNorm1d(d)

    def forward(self, x):
        h = self.embed(x) + self.lap_proj(self.eigvecs)
        b, n, d = h.shape
        q, k, v = (f(h).view(b, n, 2, d // 2).transpose(1, 2) for f in (self.q, self.k, self.v))
        w = (q @ k.transpose(2, 3) / math.sqrt(d // 2) + self.edge_bias(self.edge_types).permute(2, 0, 1)).softmax(-1)
        h = self.norm((h + self.o((w @ v).transpose(1, 2).reshape(b, n, d)) + self.virtual).transpose(1, 2))
        return h.mean(2)


class SoftActor(nn.Module):
    """SAC: running statistics of what was seen, scale and shift of actions, log_std between two bounds, twin critics as one batch."""

    def __init__(self):
        super().__init__()
        self.register_buffer("obs_rms_mean", torch.randn(6))
        self.register_buffer("obs_rms_var", torch.rand(6) + 0.5)
        self.register_buffer("obs_count", torch.tensor(123.0))
        self.register_buffer("action_scale", torch.tensor([2.0, 0.5]))
        self.register_buffer("action_bias", torch.tensor([0.3, -0.1]))
        self.trunk = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.mu, self.log_std = nn.Linear(16, 2), nn.Linear(16, 2)
        self.w1, self.b1 = nn.Parameter(torch.randn(2, 8, 12) * 0.3), nn.Parameter(torch.zeros(2, 1, 12))
        self.w2, self.log_alpha = nn.Parameter(torch.randn(2, 12, 1) * 0.3), nn.Parameter(torch.zeros(1))

    def forward(self, obs, eps):
        x = ((obs - self.obs_rms_mean) / torch.sqrt(self.obs_rms_var + 1e-8)).clamp(-10, 10)
        h = self.trunk(x)
        log_std = -5 + 3.5 * (torch.tanh(self.log_std(h)) + 1)
        y = torch.tanh(self.mu(h) + log_std.exp() * eps)
        action = y * self.action_scale + self.action_bias
        log_prob = (-0.5 * eps ** 2 - log_std - torch.log(self.action_scale * (1 - y ** 2) + 1e-6)).sum(1)
        z = torch.cat([x, action], 1).expand(2, -1, -1)
        q = torch.relu(z @ self.w1 + self.b1) @ self.w2
        return q.mean(0)[:, 0] - self.log_alpha.exp() * log_prob


class Qmix(nn.Module):
    """Mixing weights by nets of the state, all above 0."""

    def __init__(self, agents=3, state=8, e=6):
        super().__init__()
        self.agent = nn.GRUCell(5, 10)
        self.q, self.id_embed = nn.Linear(10, 4), nn.Parameter(torch.randn(agents, 5) * 0.3)
        self.hyper_w1, self.hyper_b1 = nn.Linear(state, agents * e), nn.Linear(state, e)
        self.hyper_w2, self.v = nn.Linear(state, e), nn.Sequential(nn.Linear(state, e), nn.ReLU(), nn.Linear(e, 1))

    def forward(self, obs, hidden, state):
        b, n, _ = obs.shape
        h = self.agent((obs + self.id_embed).reshape(b * n, -1), hidden.reshape(b * n, -1))
        q = self.q(h).max(1)[0].view(b, 1, n)
        w1, w2 = torch.abs(self.hyper_w1(state)).view(b, n, -1), torch.abs(self.hyper_w2(state))[..., None]
        return (F.elu(q @ w1 + self.hyper_b1(state)[:, None]) @ w2)[:, 0] + self.v(state)


class TwoHot(nn.Module):
    """Dreamer's: symlog of inputs, unimix of classes, values by bins of symexp."""

    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(7, 16, bias=False), nn.LayerNorm(16, eps=1e-3), nn.SiLU())
        self.logits, self.value = nn.Linear(16, 12), nn.Linear(12, 21)
        bins = torch.linspace(-5, 5, 21)
        self.register_buffer("bins", torch.sign(bins) * (torch.exp(bins.abs()) - 1))

    def forward(self, x):
        h = self.enc(torch.sign(x) * torch.log1p(x.abs()))
        p = 0.99 * self.logits(h).view(-1, 3, 4).softmax(-1) + 0.01 / 4
        hard = F.one_hot(p.argmax(-1), 4).to(p.dtype)
        z = hard + p - p.detach()
        return (self.value(z.flatten(1)).softmax(-1) * self.bins).sum(-1)


class SideInformation(nn.Module):
    """Matrix factorisation whose item vectors also come from a table of features that is not trained (CLIP's, say)."""

    def __init__(self):
        super().__init__()
        self.user_factors, self.item_factors = nn.Embedding(12, 8), nn.Embedding(30, 8)
        self.user_biases, self.item_biases = nn.Embedding(12, 1), nn.Embedding(30, 1)
        self.register_buffer("item_features", torch.randn(30, 5))
        self.project = nn.Linear(5, 8)
        self.last = nn.Linear(8, 1)

    def forward(self, u, i):
        v = self.item_factors(i) + self.project(self.item_features[i])
        return (self.last(self.user_factors(u) * v) + self.user_biases(u) + self.item_biases(i)).squeeze(-1)


class TopicModel(nn.Module):
    """ETM: vectors of words and of topics, background by frequencies of words as a buffer."""

    def __init__(self, words=40, k=5, d=8):
        super().__init__()
        self.rho, self.alphas = nn.Linear(d, words, bias=False), nn.Linear(d, k, bias=False)
        self.q_theta = nn.Sequential(nn.Linear(words, 16), nn.Tanh())
        self.mu_q, self.logsigma_q = nn.Linear(16, k), nn.Linear(16, k)
        f = torch.rand(words)
        self.register_buffer("background_log_freq", torch.log(f / f.sum()))

    def forward(self, bows, eps):
        q = self.q_theta(bows / bows.sum(1, keepdim=True))
        theta = F.softmax(self.mu_q(q) + torch.exp(0.5 * self.logsigma_q(q)) * eps, -1)
        beta = F.softmax(self.alphas(self.rho.weight).t() + self.background_log_freq, -1)
        return torch.log(theta @ beta + 1e-6)


class CellCounts(nn.Module):
    """scVI: a dispersion for each gene, a library size, gates of zeros."""

    def __init__(self, genes=20):
        super().__init__()
        self.px_r = nn.Parameter(torch.randn(genes))
        self.enc = nn.Sequential(nn.Linear(genes, 16), nn.BatchNorm1d(16, momentum=0.01, eps=0.001), nn.ReLU())
        self.mean, self.dec = nn.Linear(16, 4), nn.Sequential(nn.Linear(4 + 3, 16), nn.BatchNorm1d(16, momentum=0.01, eps=0.001), nn.ReLU())
        self.scale, self.dropout = nn.Linear(16, genes), nn.Linear(16, genes)

    def forward(self, x, batch):
        library = torch.log(x.sum(1, keepdim=True))
        h = self.dec(torch.cat([self.mean(self.enc(torch.log(1 + x))), F.one_hot(batch, 3).to(x.dtype)], 1))
        rate = torch.exp(library) * self.scale(h).softmax(-1)
        theta = torch.exp(self.px_r)
        return (torch.sigmoid(self.dropout(h)) + x * torch.log(rate / (theta + rate) + 1e-8)) / 10


class EvoBlock(nn.Module):
    """A triangle's product and rows with a bias of pairs, as AlphaFold has them."""

    def __init__(self, d=8, n=2):
        super().__init__()
        self.norm, self.norm_out, self.norm_m = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.left, self.right, self.gate_l, self.gate_r = (nn.Linear(d, d) for _ in range(4))
        self.out_gate, self.to_out = nn.Linear(d, d), nn.Linear(d, d)
        self.relpos = nn.Embedding(9, d)
        self.qkv, self.pair_bias, self.g, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, n, bias=False), nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, m, z):
        b, s, n, d = m.shape
        at = torch.arange(n)
        z = z + self.relpos((at[:, None] - at[None]).clamp(-4, 4) + 4)
        x = self.norm(z)
        a, c = self.left(x) * torch.sigmoid(self.gate_l(x)), self.right(x) * torch.sigmoid(self.gate_r(x))
        t = torch.einsum("bikd,bjkd->bijd", a, c)
        z = z + self.to_out(self.norm_out(t)) * torch.sigmoid(self.out_gate(x))
        y = self.norm_m(m)
        q, k, v = self.qkv(y).view(b, s, n, 3, 2, d // 2).unbind(3)
        w = torch.einsum("bsihd,bsjhd->bshij", q, k) / math.sqrt(d // 2) + self.pair_bias(z).permute(0, 3, 1, 2)[:, None]
        o = torch.einsum("bshij,bsjhd->bsihd", w.softmax(-1), v).reshape(b, s, n, d)
        return m + self.o(o * torch.sigmoid(self.g(y)))


class TimesBlock(nn.Module):
    """RevIN, mixing of times and channels, a trend by a fixed average, weights for horizons."""

    def __init__(self, length=24, c=3, out=6):
        super().__init__()
        self.affine_weight, self.affine_bias = nn.Parameter(torch.ones(c)), nn.Parameter(torch.zeros(c))
        self.time, self.channel = nn.Linear(length, length), nn.Sequential(nn.Linear(c, 8), nn.GELU(), nn.Linear(8, c))
        self.norm1, self.norm2 = nn.BatchNorm1d(length), nn.LayerNorm(c)
        self.trend, self.seasonal = nn.Linear(length, out), nn.Linear(length, out)
        self.mix = nn.Parameter(torch.tensor([0.5, 0.5]))
        self.register_buffer("kernel", torch.ones(c, 1, 5) / 5)

    def forward(self, x):
        mean, std = x.mean(1, keepdim=True).detach(), torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5).detach()
        h = (x - mean) / std * self.affine_weight + self.affine_bias
        h = h + F.relu(self.time(self.norm1(h).transpose(1, 2))).transpose(1, 2)
        h = (h + self.channel(self.norm2(h))).transpose(1, 2)
        trend = F.conv1d(F.pad(h, (2, 2), mode="replicate"), self.kernel, groups=3)
        w = self.mix.softmax(0)
        y = (w[0] * self.trend(trend) + w[1] * self.seasonal(h - trend)).transpose(1, 2)
        return (y - self.affine_bias) / (self.affine_weight + 1e-10) * std + mean


class HadamardNet(nn.Module):
    """Fixed transforms: Hadamard's with signs, cosines, a random projection, then what learns; CP factors of a layer."""

    def __init__(self, d=8):
        super().__init__()
        h = torch.ones(1, 1)
        while h.shape[0] < d:
            h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)], 0)
        k = torch.arange(d)
        self.register_buffer("hadamard", h / math.sqrt(d))
        self.register_buffer("signs", (torch.rand(d) > 0.5).float() * 2 - 1)
        self.register_buffer("dct", math.sqrt(2 / d) * torch.cos(math.pi / d * (k[None] + 0.5) * k[:, None]))
        self.register_buffer("random_projection", torch.randn(d, d) / math.sqrt(d))
        self.diag = nn.Parameter(torch.randn(d))
        self.factors = nn.ParameterDict({"a": torch.randn(3 * d, 4) * 0.4, "b": torch.randn(6, 4) * 0.4, "core": torch.ones(4)})

    def forward(self, x):
        a = ((x * self.signs) @ self.hadamard) * self.diag
        f = torch.cat([a, x @ self.dct.t(), torch.tanh(x @ self.random_projection)], 1)
        return (f @ self.factors["a"] * self.factors["core"]) @ self.factors["b"].t()


class Restricted(nn.Module):
    """A Boltzmann machine's free energy after one step of mean fields."""

    def __init__(self, v=12, h=9):
        super().__init__()
        self.W, self.v_bias, self.h_bias = nn.Parameter(torch.randn(h, v) * 0.3), nn.Parameter(torch.zeros(v)), nn.Parameter(torch.zeros(h))

    def forward(self, v):
        h = torch.sigmoid(F.linear(v, self.W, self.h_bias))
        v = torch.sigmoid(F.linear(h, self.W.t(), self.v_bias))
        return -(v @ self.v_bias) - F.softplus(F.linear(v, self.W, self.h_bias)).sum(1)



def picks(*shape, high=20):
    return lambda: torch.randint(0, high, shape)


def counts(*shape):
    return lambda: torch.randint(1, 9, shape).float()


ALL = {
    "multi_gate": own(MultiGate, floats(2, 10)), "field_fm": own(FieldFm, picks(2, 3)), "fibi_net": own(FibiNet, picks(2, 3)),
    "numerical_tokens": own(NumericalTokens, floats(2, 4)), "batch_ensemble": own(BatchEnsemble, floats(2, 7)),
    "bayes_linear": own(BayesLinear, floats(2, 6), floats(2, 8)), "random_features": own(RandomFeatures, floats(2, 5)),
    "deep_operator": own(DeepOperator, floats(2, 12), floats(2, 7, 2), lengths=[None, 1]), "physics_net": own(PhysicsNet, floats(2, 2)),
    "hamiltonian": own(Hamiltonian, floats(2, 6)), "node_graph": own(NodeGraph, floats(2, 9, 5)),
    "laplacian_transformer": own(LaplacianTransformer, floats(2, 7, 4)), "soft_actor": own(SoftActor, floats(2, 6), floats(2, 2)),
    "qmix": own(Qmix, floats(2, 3, 5), floats(2, 3, 10), floats(2, 8)), "two_hot": own(TwoHot, floats(2, 7)),
    "side_information": own(SideInformation, picks(2, high=12), picks(2, high=30)), "topic_model": own(TopicModel, counts(2, 40), floats(2, 5)),
    "cell_counts": own(CellCounts, counts(2, 20), picks(2, high=3)), "evo_block": own(EvoBlock, floats(2, 3, 5, 8), floats(2, 5, 5, 8)),
    "times_block": own(TimesBlock, floats(2, 24, 3)), "hadamard_net": own(HadamardNet, floats(2, 8)), "restricted": own(Restricted, floats(2, 12)),
}
