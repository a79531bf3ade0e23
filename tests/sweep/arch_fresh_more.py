"""More models as their users write them, whose weights, biases and states are made of parameters: products,
transforms, chains; for sweep.py."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize

from arch_plain import floats, own
from arch_tables import picks


class Orthogonal(nn.Module):
    """Layers with orthogonal weights, as PyTorch parametrizes them."""

    def __init__(self):
        super().__init__()
        self.a = parametrizations.orthogonal(nn.Linear(8, 8), orthogonal_map="cayley")
        self.b = nn.Linear(8, 3)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class OldSpectral(nn.Module):
    """Spectral norms by the hooks of old, in a generator."""

    def __init__(self):
        super().__init__()
        sn = nn.utils.spectral_norm
        self.fc, self.conv = sn(nn.Linear(6, 64)), sn(nn.Conv2d(4, 4, 3, padding=1))
        self.bn, self.out = nn.BatchNorm2d(4), sn(nn.Conv2d(4, 1, 3, padding=1))

    def forward(self, z):
        x = F.relu(self.fc(z).view(-1, 4, 4, 4))
        x = F.relu(self.bn(self.conv(F.interpolate(x, scale_factor=2))))
        return torch.tanh(self.out(x))


class Bounded(nn.Module):
    """A weight between bounds by a parametrization of the user."""

    class Between(nn.Module):
        def forward(self, x):
            return 0.5 * torch.tanh(x)

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 12), nn.Linear(12, 2)
        parametrize.register_parametrization(self.a, "weight", Bounded.Between())

    def forward(self, x):
        return self.b(F.silu(self.a(x)))


class Mahalanobis(nn.Module):
    """Distances by a metric that is learned as L L^T, to centres."""

    def __init__(self):
        super().__init__()
        self.L, self.centres = nn.Parameter(torch.eye(5) + torch.randn(5, 5) * 0.1), nn.Parameter(torch.randn(4, 5))

    def forward(self, x):
        metric = self.L @ self.L.t() + 1e-3 * torch.eye(5, dtype=x.dtype)
        d = x[:, None] - self.centres
        return -((d @ metric) * d).sum(-1)


class GaussianHead(nn.Module):
    """Log densities of a mixture with full covariances: lower triangles with positive diagonals."""

    def __init__(self):
        super().__init__()
        self.logits, self.mu = nn.Parameter(torch.randn(3) * 0.3), nn.Parameter(torch.randn(3, 4))
        self.raw = nn.Parameter(torch.randn(3, 4, 4) * 0.2)

    def forward(self, x):
        diag = F.softplus(self.raw.diagonal(dim1=1, dim2=2)) + 1e-2
        lower = torch.tril(self.raw, -1) + torch.diag_embed(diag)
        z = torch.einsum("kij,bkj->bki", lower, x[:, None] - self.mu)
        log_p = -0.5 * z.pow(2).sum(-1) + diag.log().sum(-1)
        return torch.logsumexp(log_p + self.logits.log_softmax(0), -1, keepdim=True)


class AxialPositions(nn.Module):
    """A picture in patches with positions of rows and columns that are added, and a class token."""

    def __init__(self):
        super().__init__()
        self.patch, self.cls = nn.Conv2d(3, 16, 8, 8), nn.Parameter(torch.randn(1, 1, 16) * 0.02)
        self.row, self.col = nn.Parameter(torch.randn(4, 1, 16) * 0.1), nn.Parameter(torch.randn(1, 4, 16) * 0.1)
        self.enc, self.head = nn.TransformerEncoderLayer(16, 4, 32, 0, batch_first=True, norm_first=True), nn.Linear(16, 5)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2) + (self.row + self.col).view(1, 16, 16)
        x = self.enc(torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1))
        return self.head(x[:, 0])


class ResizedPositions(nn.Module):
    """Positions learned on another grid, resized in the forward pass."""

    def __init__(self):
        super().__init__()
        self.patch, self.pos = nn.Conv2d(3, 12, 8, 8), nn.Parameter(torch.randn(1, 12, 3, 3) * 0.1)
        self.mix, self.head = nn.Conv2d(12, 12, 3, padding=1), nn.Linear(12, 4)

    def forward(self, x):
        x = self.patch(x)
        x = x + F.interpolate(self.pos, size=x.shape[2:], mode="bilinear", align_corners=False)
        return self.head(F.gelu(self.mix(x)).mean((2, 3)))


class ScalarMix(nn.Module):
    """ELMo's mix of layers: a softmax of scalars, a gamma."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 12)
        self.layers = nn.ModuleList(nn.GRU(12, 12, batch_first=True) for _ in range(2))
        self.scalars, self.gamma = nn.ParameterList(nn.Parameter(torch.randn(1) * 0.2) for _ in range(3)), nn.Parameter(torch.ones(1))
        self.out = nn.Linear(12, 4)

    def forward(self, ids):
        hs = [self.emb(ids)]
        for layer in self.layers:
            hs.append(layer(hs[-1])[0])
        w = F.softmax(torch.cat(list(self.scalars)), 0)
        return self.out(self.gamma * sum(w[i] * h for i, h in enumerate(hs)))


class DartsCell(nn.Module):
    """A search cell: each edge mixes operations by a softmax of its alphas."""

    def __init__(self):
        super().__init__()
        self.stem, self.alphas = nn.Conv2d(3, 8, 3, padding=1), nn.Parameter(torch.randn(3, 4) * 0.1)
        self.ops = nn.ModuleList(nn.ModuleList([nn.Identity(), nn.MaxPool2d(3, 1, 1), nn.Conv2d(8, 8, 3, padding=1),
                                                nn.Conv2d(8, 8, 3, padding=2, dilation=2)]) for _ in range(3))
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x, w = self.stem(x), self.alphas.softmax(-1)
        for i, edge in enumerate(self.ops):
            x = F.relu(sum(w[i, k] * op(x) for k, op in enumerate(edge)))
        return self.fc(x.mean((2, 3)))


class TaskWeights(nn.Module):
    """A hyper-network fed by an embedding that is a parameter: it makes the weights of a layer."""

    def __init__(self):
        super().__init__()
        self.z, self.hyper = nn.Parameter(torch.randn(1, 5)), nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 6 * 8 + 8))
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        p = self.hyper(self.z)[0]
        return self.out(torch.relu(F.linear(x, p[:48].view(8, 6), p[48:])))


class LearnedQueries(nn.Module):
    """Queries that are parameters, normed and projected before they meet the input (Q-Former, PMA)."""

    def __init__(self):
        super().__init__()
        self.queries, self.norm = nn.Parameter(torch.randn(1, 4, 16) * 0.3), nn.LayerNorm(16)
        self.attn, self.inp = nn.MultiheadAttention(16, 4, batch_first=True), nn.Linear(6, 16)
        self.out = nn.Linear(64, 3)

    def forward(self, x):
        q = self.norm(self.queries).expand(x.shape[0], -1, -1)
        x = self.inp(x)
        return self.out((q + self.attn(q, x, x)[0]).flatten(1))


class NodeAdaptive(nn.Module):
    """AGCRN: weights of each node from its embedding, and a graph from the same."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Parameter(torch.randn(6, 3))
        self.pool, self.bias_pool = nn.Parameter(torch.randn(3, 2, 4, 8) * 0.3), nn.Parameter(torch.randn(3, 8) * 0.1)
        self.end = nn.Linear(8, 2)

    def forward(self, x):
        graph = F.softmax(F.relu(self.emb @ self.emb.t()), dim=1)
        supports = torch.stack([torch.eye(6, dtype=x.dtype), graph])
        w = torch.einsum("nd,dkio->nkio", self.emb, self.pool)
        xg = torch.einsum("knm,bmc->bknc", supports, x).permute(0, 2, 1, 3)
        return self.end(torch.tanh(torch.einsum("bnki,nkio->bno", xg, w) + self.emb @ self.bias_pool))


class TensorTrain(nn.Module):
    """A layer whose weight is a train of cores, contracted first."""

    def __init__(self):
        super().__init__()
        self.g1, self.g2 = nn.Parameter(torch.randn(1, 3, 4, 2) * 0.5), nn.Parameter(torch.randn(2, 4, 3, 1) * 0.5)
        self.bias, self.out = nn.Parameter(torch.zeros(12)), nn.Linear(12, 2)

    def forward(self, x):
        w = torch.einsum("aijb,bklc->ikjl", self.g1, self.g2).reshape(12, 12)
        return self.out(torch.relu(x @ w + self.bias))


class CpConv(nn.Module):
    """A convolution whose kernel is a sum of outer products."""

    def __init__(self):
        super().__init__()
        self.o, self.i = nn.Parameter(torch.randn(8, 4) * 0.4), nn.Parameter(torch.randn(3, 4) * 0.4)
        self.h, self.w, self.fc = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(3, 4)), nn.Linear(8, 4)

    def forward(self, x):
        k = torch.einsum("or,ir,hr,wr->oihw", self.o, self.i, self.h, self.w)
        return self.fc(F.relu(F.conv2d(x, k, padding=1)).mean((2, 3)))


class Circulant(nn.Module):
    """A circulant weight: one row, rolled."""

    def __init__(self):
        super().__init__()
        self.row, self.out = nn.Parameter(torch.randn(10) * 0.3), nn.Linear(10, 2)

    def forward(self, x):
        w = torch.stack([self.row.roll(i) for i in range(10)])
        return self.out(torch.tanh(x @ w))


class Householder(nn.Module):
    """A product of reflections."""

    def __init__(self):
        super().__init__()
        self.v, self.out = nn.Parameter(torch.randn(3, 7)), nn.Linear(7, 2)

    def forward(self, x):
        for v in self.v:
            x = x - 2 * (x @ v)[:, None] * v / (v @ v)
        return self.out(x)


class BinaryWeights(nn.Module):
    """XNOR: the sign of weights times their mean, straight through."""

    def __init__(self):
        super().__init__()
        self.w, self.bn, self.fc = nn.Parameter(torch.randn(8, 3, 3, 3) * 0.2), nn.BatchNorm2d(8), nn.Linear(8, 3)

    def forward(self, x):
        scale = self.w.abs().mean((1, 2, 3), keepdim=True)
        w = self.w + (torch.sign(self.w) * scale - self.w).detach()
        return self.fc(F.hardtanh(self.bn(F.conv2d(x, w, padding=1))).mean((2, 3)))


class Lista(nn.Module):
    """Unrolled ISTA: the recurrent matrix is made of the others, thresholds are learned."""

    def __init__(self):
        super().__init__()
        self.A, self.theta = nn.Parameter(torch.randn(6, 10) * 0.3), nn.Parameter(torch.full((3, 1), 0.1))
        self.eta = nn.Parameter(torch.tensor(0.2))

    def forward(self, y):
        w = self.eta * self.A
        s = torch.eye(10, dtype=y.dtype) - w.t() @ self.A
        x = y.new_zeros(y.shape[0], 10)
        for t in range(3):
            x = y @ w + x @ s
            x = torch.sign(x) * F.relu(x.abs() - self.theta[t])
        return x


class Morphology(nn.Module):
    """Dilations and erosions: max of sums with weights."""

    def __init__(self):
        super().__init__()
        self.dil, self.ero = nn.Parameter(torch.randn(8, 6) * 0.3), nn.Parameter(torch.randn(8, 6) * 0.3)
        self.out = nn.Linear(16, 2)

    def forward(self, x):
        up, down = (x[:, None] + self.dil).amax(-1), (x[:, None] - self.ero).amin(-1)
        return self.out(torch.cat([up, down], -1))


class GatedMil(nn.Module):
    """Bags of instances with gated attention."""

    def __init__(self):
        super().__init__()
        self.f, self.v, self.u, self.w, self.out = (nn.Linear(6, 16), nn.Linear(16, 8), nn.Linear(16, 8), nn.Linear(8, 1),
                                                    nn.Linear(16, 1))

    def forward(self, bag):
        h = F.relu(self.f(bag))
        a = self.w(torch.tanh(self.v(h)) * torch.sigmoid(self.u(h))).transpose(1, 2).softmax(-1)
        return torch.sigmoid(self.out((a @ h).squeeze(1)))


class Time2Vec(nn.Module):
    """Times as a line and sines, before an LSTM with a state that is learned."""

    def __init__(self):
        super().__init__()
        self.w0, self.b0, self.w, self.b = (nn.Parameter(torch.randn(1, 1)), nn.Parameter(torch.randn(1)),
                                            nn.Parameter(torch.randn(1, 5)), nn.Parameter(torch.randn(5)))
        self.lstm = nn.LSTM(6 + 2, 10, batch_first=True)
        self.h0, self.c0, self.out = nn.Parameter(torch.zeros(1, 1, 10)), nn.Parameter(torch.zeros(1, 1, 10)), nn.Linear(10, 1)

    def forward(self, t, x):
        v = torch.cat([t @ self.w0 + self.b0, torch.sin(t @ self.w + self.b), x], -1)
        n = t.shape[0]
        y, _ = self.lstm(v, (self.h0.expand(-1, n, -1).contiguous(), self.c0.expand(-1, n, -1).contiguous()))
        return self.out(y[:, -1])


class LinearChain(nn.Module):
    """The log partition of a chain, with transitions and starts that learn."""

    def __init__(self):
        super().__init__()
        self.emit = nn.Linear(6, 4)
        self.start, self.trans, self.end = nn.Parameter(torch.randn(4) * 0.1), nn.Parameter(torch.randn(4, 4) * 0.1), \
            nn.Parameter(torch.randn(4) * 0.1)

    def forward(self, x):
        e = self.emit(x)
        a = self.start + e[:, 0]
        for t in range(1, x.shape[1]):
            a = torch.logsumexp(a[:, :, None] + self.trans, 1) + e[:, t]
        return torch.logsumexp(a + self.end, 1, keepdim=True)


class Reversible(nn.Module):
    """ReZero, layer scale, stochastic depth as at inference, gates that start at zero."""

    def __init__(self):
        super().__init__()
        self.inp, self.f, self.g = nn.Linear(9, 16), nn.ModuleList(nn.Linear(8, 8) for _ in range(3)), nn.ModuleList(
            nn.Linear(8, 8) for _ in range(3))
        self.alpha, self.beta = nn.Parameter(torch.zeros(3)), nn.Parameter(1e-4 * torch.ones(3, 8))
        self.out = nn.Linear(16, 2)

    def forward(self, x):
        a, b = self.inp(x).chunk(2, -1)
        for i in range(3):
            a = a + self.alpha[i] * F.gelu(self.f[i](b))
            b = b + self.beta[i] * torch.tanh(self.g[i](a))
        return self.out(torch.cat([a, b], -1))


class SparseMaxHead(nn.Module):
    """Sparsemax by sorting."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 16), nn.Linear(16, 6)

    def forward(self, x):
        z = self.fc2(torch.tanh(self.fc1(x)))
        s, _ = z.sort(-1, descending=True)
        k = torch.arange(1, 7, dtype=x.dtype)
        cs = s.cumsum(-1) - 1
        n = (k * s > cs).sum(-1, keepdim=True)
        tau = cs.gather(-1, n - 1) / n.to(x.dtype)
        return (z - tau).clamp(min=0)


class MixtureOfSoftmaxes(nn.Module):
    """A language model with several softmaxes, tied to its words."""

    def __init__(self):
        super().__init__()
        self.emb, self.rnn = nn.Embedding(20, 12), nn.LSTM(12, 12, batch_first=True)
        self.prior, self.latent = nn.Linear(12, 3, bias=False), nn.Linear(12, 36)

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids))
        lat = torch.tanh(self.latent(h)).view(*h.shape[:2], 3, 12)
        p = F.linear(lat, self.emb.weight).softmax(-1)
        return torch.log((self.prior(h).softmax(-1)[..., None] * p).sum(2) + 1e-8)


class SoftTree(nn.Module):
    """An oblivious soft tree: splits by features that are chosen by a softmax of logits."""

    def __init__(self):
        super().__init__()
        self.choice, self.threshold = nn.Parameter(torch.randn(5, 6)), nn.Parameter(torch.randn(5))
        self.log_temp, self.leaf = nn.Parameter(torch.zeros(5)), nn.Parameter(torch.randn(32, 2) * 0.5)

    def forward(self, x):
        s = torch.sigmoid((x @ self.choice.softmax(1).t() - self.threshold) * torch.exp(-self.log_temp))
        p = x.new_ones(x.shape[0], 1)
        for i in range(5):
            p = torch.cat([p * s[:, i:i + 1], p * (1 - s[:, i:i + 1])], 1)
        return p @ self.leaf


class Ssd(nn.Module):
    """A diagonal recurrence whose decay and step are made of parameters."""

    def __init__(self):
        super().__init__()
        self.inp, self.out = nn.Linear(4, 8), nn.Linear(8, 2)
        self.log_a, self.log_dt, self.d = nn.Parameter(torch.rand(8)), nn.Parameter(torch.randn(8) * 0.2 - 1), nn.Parameter(torch.ones(8))

    def forward(self, x):
        u = self.inp(x)
        dt = F.softplus(self.log_dt)
        decay, h, ys = torch.exp(-dt * torch.exp(self.log_a)), u.new_zeros(u.shape[0], 8), []
        for t in range(x.shape[1]):
            h = decay * h + dt * u[:, t]
            ys.append(h + self.d * u[:, t])
        return self.out(torch.stack(ys, 1))


class Polynomial(nn.Module):
    """Regression on powers with shared and own coefficients: products of parameters on a vector."""

    def __init__(self):
        super().__init__()
        self.base, self.scale = nn.Parameter(torch.randn(4) * 0.5), nn.Parameter(torch.rand(3, 1) + 0.5)
        self.shift = nn.Parameter(torch.randn(3, 4) * 0.1)

    def forward(self, x):
        c = self.base * self.scale + self.shift
        powers = torch.stack([x ** k for k in range(4)], -1)
        return (powers[:, None] * c[:, None]).sum((-1, -2))


class Residual(nn.Module):
    """Weights of several heads, concatenated first."""

    def __init__(self):
        super().__init__()
        self.new, self.old = nn.Linear(8, 3), nn.Linear(8, 4)
        self.body = nn.Linear(5, 8)

    def forward(self, x):
        w, b = torch.cat([self.old.weight, self.new.weight]), torch.cat([self.old.bias, self.new.bias])
        return F.linear(torch.relu(self.body(x)), w, b)


ALL = {
    "fresh_orthogonal": own(Orthogonal, floats(2, 8)), "fresh_old_spectral": own(OldSpectral, floats(2, 6)),
    "fresh_bounded": own(Bounded, floats(2, 6)), "fresh_mahalanobis": own(Mahalanobis, floats(2, 5)),
    "fresh_gaussian_head": own(GaussianHead, floats(2, 4)), "fresh_axial": own(AxialPositions, floats(2, 3, 32, 32)),
    "fresh_resized": own(ResizedPositions, floats(2, 3, 32, 32)), "fresh_scalar_mix": own(ScalarMix, picks(2, 7)),
    "fresh_darts": own(DartsCell, floats(2, 3, 12, 12)), "fresh_task_weights": own(TaskWeights, floats(2, 6)),
    "fresh_queries": own(LearnedQueries, floats(2, 9, 6)), "fresh_node_adaptive": own(NodeAdaptive, floats(2, 6, 4)),
    "fresh_tensor_train": own(TensorTrain, floats(2, 12)), "fresh_cp_conv": own(CpConv, floats(2, 3, 8, 8)),
    "fresh_circulant": own(Circulant, floats(2, 10)), "fresh_householder": own(Householder, floats(2, 7)),
    "fresh_binary": own(BinaryWeights, floats(2, 3, 8, 8)), "fresh_lista": own(Lista, floats(2, 6)),
    "fresh_morphology": own(Morphology, floats(2, 6)), "fresh_mil": own(GatedMil, floats(2, 7, 6)),
    "fresh_time2vec": own(Time2Vec, floats(2, 6, 1), floats(2, 6, 2)), "fresh_chain": own(LinearChain, floats(2, 5, 6)),
    "fresh_rezero": own(Reversible, floats(2, 9)), "fresh_sparsemax": own(SparseMaxHead, floats(2, 8)),
    "fresh_mos": own(MixtureOfSoftmaxes, picks(2, 6)), "fresh_soft_tree": own(SoftTree, floats(2, 6)),
    "fresh_ssd": own(Ssd, floats(2, 6, 4)), "fresh_polynomial": own(Polynomial, floats(2, 5)),
    "fresh_heads": own(Residual, floats(2, 5)),
}
