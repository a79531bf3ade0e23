"""Graphs, points, sampled pictures, parametrized weights, losses, and inputs of every type; for sweep.py."""
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize


class GinBatch(nn.Module):
    """GIN over a list of edges, and graphs pooled by index_add of their numbers."""
    one_sample = True

    def __init__(self, d=5, h=8):
        super().__init__()
        self.eps = nn.ParameterList(nn.Parameter(torch.tensor(0.13 * (i + 1))) for i in range(2))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(a, h), nn.ReLU(), nn.Linear(h, h)) for a in (d, h))
        self.out = nn.Linear(h, 3)

    def forward(self, x, edges, graph):
        for eps, mlp in zip(self.eps, self.mlps):
            got = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
            x = torch.relu(mlp((1 + eps) * x + got))
        sums = torch.zeros(2, x.shape[1], dtype=x.dtype).index_add(0, graph, x)
        return self.out(sums)


class GatV2(nn.Module):
    """GATv2 on edges: a softmax over those that arrive at a node, by scatter_reduce and scatter_add."""

    def __init__(self, d=5, heads=2, k=4, nodes=6):
        super().__init__()
        self.h, self.k, self.n = heads, k, nodes
        self.left, self.right = nn.Linear(d, heads * k), nn.Linear(d, heads * k)
        self.att, self.bias = nn.Parameter(torch.randn(heads, k) / 2), nn.Parameter(torch.zeros(heads * k))

    def forward(self, x, edges):
        b, e = x.shape[0], edges.shape[2]
        src, dst = edges[:, 0], edges[:, 1]
        wide = lambda i: i[..., None].expand(-1, -1, self.h * self.k)
        a, c = torch.gather(self.left(x), 1, wide(src)), torch.gather(self.right(x), 1, wide(dst))
        s = (F.leaky_relu(a + c, 0.2).view(b, e, self.h, self.k) * self.att).sum(-1)
        at = dst[..., None].expand(-1, -1, self.h)
        most = torch.full((b, self.n, self.h), -1e9, dtype=x.dtype).scatter_reduce(1, at, s, "amax")
        w = (s - torch.gather(most, 1, at).detach()).exp()
        total = torch.zeros(b, self.n, self.h, dtype=x.dtype).scatter_add(1, at, w)
        w = w / (torch.gather(total, 1, at) + 1e-16)
        m = (a.view(b, e, self.h, self.k) * w[..., None]).flatten(2)
        return torch.zeros(b, self.n, self.h * self.k, dtype=x.dtype).scatter_add(1, wide(dst), m) + self.bias


class GraphTransformer(nn.Module):
    """Attention with a bias by distances and a virtual node, an adjacency of bools, and degrees as an embedding."""

    def __init__(self, d=12, heads=3):
        super().__init__()
        self.heads, self.deg, self.far = heads, nn.Embedding(8, d), nn.Embedding(6, heads)
        self.virtual, self.inp, self.qkv, self.out = nn.Parameter(torch.randn(1, 1, d) / 4), nn.Linear(4, d), nn.Linear(d, 3 * d), nn.Linear(d, 3)

    def forward(self, x, adj):
        b, n, _ = x.shape
        a = adj.bool()
        x = self.inp(x) + self.deg(a.sum(-1).clamp(max=7))
        two = torch.matmul(adj.to(x.dtype), adj.to(x.dtype)) > 0
        dist = torch.where(a, 1, torch.where(two, 2, 3))
        dist = dist.masked_fill(torch.eye(n, dtype=torch.bool, device=x.device), 0)
        bias = F.pad(self.far(dist).permute(0, 3, 1, 2), (1, 0, 1, 0))
        x = torch.cat([self.virtual.expand(b, -1, -1), x], 1)
        q, k, v = self.qkv(x).view(b, n + 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.out(y.transpose(1, 2).reshape(b, n + 1, -1))[:, 0]


class PointTransformer(nn.Module):
    """Vector attention over the nearest points, places by an MLP, then farthest points by a loop."""

    def __init__(self, d=8, k=4, keep=5):
        super().__init__()
        self.k, self.keep = k, keep
        self.inp, self.q, self.kk, self.v = nn.Linear(3, d), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.place = nn.Sequential(nn.Linear(3, d), nn.ReLU(), nn.Linear(d, d))
        self.weigh = nn.Sequential(nn.LayerNorm(d), nn.ReLU(), nn.Linear(d, d))
        self.out = nn.Linear(d, 3)

    @staticmethod
    def take(x, at):
        b, n, k = at.shape
        return torch.gather(x, 1, at.reshape(b, n * k)[..., None].expand(-1, -1, x.shape[-1])).view(b, n, k, -1)

    def forward(self, p):
        x = self.inp(p)
        d2 = (p[:, :, None] - p[:, None]).pow(2).sum(-1)
        at = d2.topk(self.k, -1, largest=False).indices
        delta = self.place(p[:, :, None] - self.take(p, at))
        w = self.weigh(self.q(x)[:, :, None] - self.take(self.kk(x), at) + delta).softmax(2)
        x = x + (w * (self.take(self.v(x), at) + delta)).sum(2)
        far, last, chosen = torch.full_like(p[..., 0], 1e10), torch.zeros_like(at[:, 0, 0]), []
        for _ in range(self.keep):
            chosen.append(last)
            dist = (p - torch.gather(p, 1, last[:, None, None].expand(-1, 1, 3))).pow(2).sum(-1)
            far = torch.minimum(far, dist)
            last = far.argmax(-1)
        at = torch.stack(chosen, 1)
        return self.out(torch.gather(x, 1, at[..., None].expand(-1, -1, x.shape[-1])).amax(1))


class Harmonics(nn.Module):
    """Messages of vectors and scalars: directions up to degree two, radial waves with a smooth end."""

    def __init__(self, h=6, n_rbf=5):
        super().__init__()
        self.kind, self.radial = nn.Embedding(4, h), nn.Sequential(nn.Linear(n_rbf, 8), nn.SiLU(), nn.Linear(8, 3 * h, bias=False))
        self.up, self.out = nn.Linear(3 * h, h), nn.Linear(h, 1)
        self.register_buffer("k", torch.arange(1, n_rbf + 1) * math.pi)

    def forward(self, z, p):
        r = p[:, None] - p[:, :, None]
        d = (r.pow(2).sum(-1) + 1e-8).sqrt()
        u = r / d[..., None]
        far = (d / 4).clamp(max=1)
        end = (1 - 10 * far ** 3 + 15 * far ** 4 - 6 * far ** 5) * (1 - torch.eye(p.shape[1], device=p.device))
        w = self.radial(torch.sin(self.k * far[..., None]) / d[..., None]) * end[..., None]
        h = self.kind(z)
        a, b, c = (w * h.repeat(1, 1, 3)[:, None]).chunk(3, -1)
        s, v = a.sum(2), torch.einsum("bijh,bijx->bihx", b, u)
        t = torch.einsum("bijh,bijx,bijy->bihxy", c, u, u) - torch.eye(3, device=p.device) / 3 * c.sum(2)[..., None, None]
        both = torch.cat([s, v.pow(2).sum(-1), t.pow(2).sum((-1, -2))], -1)
        return self.out(F.silu(self.up(both)) + h).sum(1)


class Warped(nn.Module):
    """A field of offsets by a convolution, added to a grid, and samples from the border or reflected."""

    def __init__(self, padding, align):
        super().__init__()
        self.padding, self.align = padding, align
        self.field, self.f, self.scale = nn.Conv2d(4, 2, 3, padding=1), nn.Conv2d(4, 3, 1), nn.Parameter(torch.tensor(0.4371))

    def forward(self, x):
        b, _, h, w = x.shape
        y, z = torch.meshgrid(torch.linspace(-1, 1, h, dtype=x.dtype), torch.linspace(-1, 1, w, dtype=x.dtype), indexing="ij")
        grid = torch.stack([z, y], -1)[None] + self.scale * torch.tanh(self.field(x)).permute(0, 2, 3, 1)
        return F.grid_sample(self.f(x), grid, padding_mode=self.padding, align_corners=self.align)


class Affine(nn.Module):
    """A spatial transformer: a rotation and zoom from features, begun as the identity."""

    def __init__(self):
        super().__init__()
        self.f, self.fc, self.head = nn.Conv2d(3, 4, 3, stride=2), nn.Linear(4, 6), nn.Linear(3 * 64, 2)
        self.fc.weight.data.mul_(0.1)
        self.fc.bias.data.copy_(torch.tensor([1.0, 0, 0, 0, 1, 0]))

    def forward(self, x):
        theta = self.fc(torch.relu(self.f(x)).mean((2, 3))).view(-1, 2, 3)
        x = F.grid_sample(x, F.affine_grid(theta, [x.shape[0], 3, 8, 8], align_corners=False), align_corners=False)
        return self.head(x.flatten(1))


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)


class Positive(nn.Module):
    def forward(self, x):
        return F.softplus(x)


class Parametrized(nn.Module):
    """Weights that are functions of parameters: symmetric, positive, weight and spectral norms of every kind of layer."""

    def __init__(self, kind):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 8), nn.Linear(8, 3)
        if kind == "symmetric":
            parametrize.register_parametrization(self.a, "weight", Symmetric())
        elif kind == "positive":
            parametrize.register_parametrization(self.b, "weight", Positive())
        elif kind == "weight":
            for m in (self.a, self.b):
                parametrizations.weight_norm(m)
        elif kind == "weight_dim":
            parametrizations.weight_norm(self.b, dim=1)
        elif kind == "spectral":
            parametrizations.spectral_norm(self.b)
        elif kind == "orthogonal":
            parametrizations.orthogonal(self.a, orthogonal_map="cayley", use_trivialization=False)

    def forward(self, x):
        return self.c(torch.relu(self.b(torch.tanh(self.a(x)))))


class NormedConvs(nn.Module):
    """HiFi's upsampling and a discriminator: weight norm of transposed convolutions, spectral norm of plain ones."""

    def __init__(self):
        super().__init__()
        self.up = parametrizations.weight_norm(nn.ConvTranspose1d(4, 6, 4, stride=2, padding=1))
        self.res = parametrizations.weight_norm(nn.Conv1d(6, 6, 3, dilation=2, padding=2))
        self.log_a = nn.Parameter(torch.zeros(6, 1))
        self.judge = parametrizations.spectral_norm(nn.Conv1d(6, 2, 5, stride=2))

    def snake(self, x):
        a = self.log_a.exp()
        return x + torch.sin(a * x) ** 2 / (a + 1e-9)

    def forward(self, x):
        x = self.up(x)
        return self.judge(x + self.res(self.snake(x)))


class TiedConvs(nn.Module):
    """One filter down and, transposed, up; one matrix in and out; each with a bias of its own."""

    def __init__(self):
        super().__init__()
        self.w, self.m = nn.Parameter(torch.randn(6, 2, 3, 3) / 4), nn.Parameter(torch.randn(5, 6) / 3)
        self.b = nn.ParameterList(nn.Parameter(torch.zeros(n)) for n in (6, 5, 6, 2))

    def forward(self, x):
        h = torch.relu(F.conv2d(x, self.w, self.b[0], padding=1))
        z = torch.tanh(F.linear(h.mean((2, 3)), self.m, self.b[1]))
        g = F.linear(z, self.m.t(), self.b[2])
        return F.conv_transpose2d(h * torch.sigmoid(g)[..., None, None], self.w, self.b[3], padding=1)


class SharedLayers(nn.Module):
    """ALBERT's way: one layer again and again, an embedding that is factorised and comes back as the head."""

    def __init__(self, words=40, e=6, d=16):
        super().__init__()
        self.words, self.up, self.places = nn.Embedding(words, e), nn.Linear(e, d), nn.Embedding(20, d)
        self.layer = nn.TransformerEncoderLayer(d, 2, 24, 0.0, "gelu", batch_first=True, norm_first=True)
        self.down, self.bias = nn.Linear(d, e), nn.Parameter(torch.zeros(words))

    def forward(self, ids):
        x = self.up(self.words(ids) * 6 ** 0.5) + self.places.weight[:ids.shape[1]]
        for _ in range(3):
            x = self.layer(x)
        return F.linear(self.down(x), self.words.weight, self.bias)


class VicReg(nn.Module):
    """A loss within: invariance, variance by a hinge, covariances off the diagonal. Samples meet."""
    one_sample = True

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 5))

    def forward(self, a, b):
        a, b = self.net(a), self.net(b)
        n, d = a.shape
        hinge = sum(F.relu(1 - torch.sqrt(z.var(0) + 1e-4)).mean() for z in (a, b))
        cov = 0
        for z in (a, b):
            z = z - z.mean(0)
            c = z.t() @ z / (n - 1)
            cov = cov + (c - torch.diag(torch.diagonal(c))).pow(2).sum() / d
        return 25 * F.mse_loss(a, b) + 25 * hinge + cov


class Supervised(nn.Module):
    """Losses of several heads for each sample: cross entropy with smoothing, focal, Dice and CIoU of boxes."""

    def __init__(self):
        super().__init__()
        self.trunk, self.cls, self.obj, self.box = nn.Linear(6, 16), nn.Linear(16, 4), nn.Linear(16, 9), nn.Linear(16, 4)

    def forward(self, x, label, mask, box):
        h = F.silu(self.trunk(x))
        ce = F.cross_entropy(self.cls(h), label, label_smoothing=0.1, reduction="none")
        z, m = self.obj(h), mask.to(h.dtype)
        p = torch.sigmoid(z)
        bce = F.binary_cross_entropy_with_logits(z, m, reduction="none")
        focal = (bce * (1 - (p * m + (1 - p) * (1 - m))) ** 2).mean(-1)
        dice = 1 - (2 * (p * m).sum(-1) + 1) / (p.sum(-1) + m.sum(-1) + 1)
        q = torch.sigmoid(self.box(h))
        lo, hi = torch.maximum(q[:, :2], box[:, :2]), torch.minimum(q[:, :2] + q[:, 2:], box[:, :2] + box[:, 2:])
        inter = (hi - lo).clamp(min=0).prod(-1)
        iou = inter / (q[:, 2] * q[:, 3] + box[:, 2] * box[:, 3] - inter + 1e-7)
        v = 4 / math.pi ** 2 * (torch.atan(q[:, 2] / q[:, 3]) - torch.atan(box[:, 2] / box[:, 3])) ** 2
        alpha = (v / (1 - iou + v + 1e-7)).detach()
        return ce + focal + dice + 1 - iou + alpha * v


class RunningNorm(nn.Module):
    """Observations by running means, kept as buffers, clipped; actions by a Gaussian with a learned spread."""

    def __init__(self, d=5):
        super().__init__()
        self.register_buffer("mean", torch.randn(d))
        self.register_buffer("var", torch.rand(d) + 0.5)
        self.register_buffer("count", torch.tensor(1e4))
        self.net, self.log_std = nn.Sequential(nn.Linear(d, 16), nn.Tanh(), nn.Linear(16, 2)), nn.Parameter(-0.5 * torch.ones(2))

    def forward(self, x, action):
        x = ((x - self.mean) / torch.sqrt(self.var + 1e-8)).clamp(-5, 5)
        mu, std = self.net(x), self.log_std.clamp(-20, 2).exp()
        return (-0.5 * ((action - mu) / std) ** 2 - std.log() - 0.5 * math.log(2 * math.pi)).sum(-1, keepdim=True)


class MaskedPool(nn.Module):
    """Means, maxima and attention over words that a mask of bools leaves."""

    def __init__(self, d=8):
        super().__init__()
        self.words, self.att, self.out = nn.Embedding(30, d), nn.Linear(d, 1), nn.Linear(3 * d, 3)

    def forward(self, ids, mask):
        x = self.words(ids)
        m = mask[..., None]
        mean = (x * m).sum(1) / m.sum(1).clamp(min=1)
        most = x.masked_fill(~m, -1e4).amax(1)
        w = self.att(x).masked_fill(~m, -torch.inf).softmax(1)
        return self.out(torch.cat([mean, most, (w * x).sum(1)], -1))


class ByLengths(nn.Module):
    """A bidirectional GRU over padded series, and the state where each ends, by lengths of 32 bits."""

    def __init__(self, d=4, h=6):
        super().__init__()
        self.gru, self.out = nn.GRU(d, h, batch_first=True, bidirectional=True), nn.Linear(2 * h, 2)

    def forward(self, x, lengths):
        n = lengths.long()
        inside = torch.arange(x.shape[1], device=x.device)[None] < n[:, None]
        y, _ = self.gru(x * inside[..., None])
        last = torch.gather(y, 1, (n - 1)[:, None, None].expand(-1, 1, y.shape[2]))[:, 0]
        return self.out(last)


class Bytes(nn.Module):
    """Pictures as bytes, channels last, normalised inside; a mask of bytes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406])[:, None, None])
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225])[:, None, None])
        self.f, self.out = nn.Conv2d(3, 6, 3, stride=2), nn.Linear(6, 4)

    def forward(self, picture, mask):
        x = (picture.permute(0, 3, 1, 2).float() / 255).to(self.f.weight.dtype)
        x = (x - self.mean) / self.std * (mask != 0)[:, None]
        return self.out(torch.relu(self.f(x)).mean((2, 3)))


class Sides(nn.Module):
    """A dict of outputs of several inputs: scores, boxes and which is best."""

    def __init__(self):
        super().__init__()
        self.user, self.item, self.dense = nn.Embedding(20, 6), nn.Embedding(30, 6), nn.Linear(4, 6)
        self.head, self.box = nn.Linear(6, 3), nn.Linear(6, 4)

    def forward(self, user, items, dense):
        h = self.user(user) + self.item(items).mean(1) + torch.relu(self.dense(dense))
        scores = self.head(h).softmax(-1)
        return {"scores": scores, "boxes": torch.sigmoid(self.box(h)), "best": scores.argmax(-1)}


class Interactions(nn.Module):
    """DLRM: bags and numbers meet in pairs below the diagonal."""

    def __init__(self, d=6):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(n, d, mode="sum") for n in (20, 30, 10))
        self.bottom, self.top = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, d)), nn.Linear(d + 6, 1)
        i, k = torch.tril_indices(4, 4, -1)
        self.register_buffer("i", i, persistent=False)
        self.register_buffer("k", k, persistent=False)

    def forward(self, dense, a, b, c):
        x = self.bottom(dense)
        t = torch.stack([x] + [f(v) for f, v in zip(self.bags, (a, b, c))], 1)
        z = (t @ t.transpose(1, 2))[:, self.i, self.k]
        return torch.sigmoid(self.top(torch.cat([x, z], -1)))


class Kalman(nn.Module):
    """A filter of two states: a gain by the inverse of a 2x2 matrix, written out."""

    def __init__(self):
        super().__init__()
        self.log_q, self.log_r = nn.Parameter(torch.tensor([-2.0, -1.0])), nn.Parameter(torch.tensor([-0.5, -0.7]))
        self.f = nn.Parameter(torch.tensor([[1.0, 0.1], [-0.1, 0.95]]))

    def forward(self, z):
        s = torch.zeros(z.shape[0], 2, dtype=z.dtype)
        p = torch.eye(2, dtype=z.dtype).expand(z.shape[0], 2, 2)
        q, r, out = torch.diag(self.log_q.exp()), torch.diag(self.log_r.exp()), []
        for t in range(z.shape[1]):
            s, p = s @ self.f.t(), self.f @ p @ self.f.t() + q
            m = p + r
            det = m[:, 0, 0] * m[:, 1, 1] - m[:, 0, 1] * m[:, 1, 0]
            adj = torch.stack([m[:, 1, 1], -m[:, 0, 1], -m[:, 1, 0], m[:, 0, 0]], -1).view(-1, 2, 2)
            k = p @ adj / det[:, None, None]
            s = s + (k @ (z[:, t] - s)[..., None])[..., 0]
            p = p - k @ p
            out.append(s)
        return torch.stack(out, 1)


def ints(high, *shape):
    return torch.randint(0, high, shape)


R = torch.randn
EDGES = torch.tensor([[[0, 1, 2, 3, 4, 5, 1, 2], [1, 2, 3, 4, 5, 0, 0, 1]], [[5, 4, 3, 2, 1, 0, 0, 2], [1, 1, 1, 3, 3, 5, 2, 4]]])
ADJ = torch.tensor([[[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]], [[0, 0, 1, 0], [0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 0, 0]]])
ALL = {
    "shape_gin_batch": lambda: (GinBatch(), [R(7, 5), ints(7, 2, 12), torch.tensor([0, 0, 0, 1, 1, 1, 1])], [None] * 3),
    "shape_gat_v2": lambda: (GatV2(), [R(2, 6, 5), EDGES.clone()], [None, 2]),
    "shape_graph_transformer": lambda: (GraphTransformer(), [R(2, 4, 4), ADJ.clone()], [None, None]),
    "shape_point_transformer": lambda: (PointTransformer(), [R(2, 12, 3)], [None]),
    "shape_harmonics": lambda: (Harmonics(), [ints(4, 2, 5), R(2, 5, 3)], [None, None]),
    "shape_warped_border": lambda: (Warped("border", False), [R(2, 4, 6, 7)], [None]),
    "shape_warped_reflection": lambda: (Warped("reflection", True), [R(2, 4, 6, 7)], [None]),
    "shape_affine": lambda: (Affine(), [R(2, 3, 10, 10)], [None]),
    **{"shape_parametrized_%s" % k: lambda k=k: (Parametrized(k), [R(2, 6)], [None])
       for k in ("symmetric", "positive", "weight", "weight_dim", "spectral", "orthogonal")},
    "shape_normed_convs": lambda: (NormedConvs(), [R(2, 4, 12)], [2]),
    "shape_tied_convs": lambda: (TiedConvs(), [R(2, 2, 6, 6)], [None]),
    "shape_shared_layers": lambda: (SharedLayers(), [ints(40, 2, 7)], [1]),
    "shape_vic_reg": lambda: (VicReg(), [R(6, 6), R(6, 6)], [None, None]),
    "shape_supervised": lambda: (Supervised(), [R(2, 6), ints(4, 2), ints(2, 2, 9), torch.rand(2, 4) / 2 + 0.2], [None] * 4),
    "shape_running_norm": lambda: (RunningNorm(), [R(2, 5), R(2, 2)], [None, None]),
    "shape_masked_pool": lambda: (MaskedPool(), [ints(30, 2, 6), torch.tensor([[True] * 6, [True] * 4 + [False] * 2])], [1, 1]),
    "shape_by_lengths": lambda: (ByLengths(), [R(2, 7, 4), torch.tensor([7, 4], dtype=torch.int32)], [1, None]),
    "shape_bytes": lambda: (Bytes(), [ints(256, 2, 9, 9, 3).to(torch.uint8), ints(2, 2, 9, 9).to(torch.uint8)], [None, None]),
    "shape_sides": lambda: (Sides(), [ints(20, 2), ints(30, 2, 5), R(2, 4)], [None, 1, None]),
    "shape_interactions": lambda: (Interactions(), [R(2, 5), ints(20, 2, 3), ints(30, 2, 4), ints(10, 2, 1)], [None] * 4),
    "shape_kalman": lambda: (Kalman(), [R(2, 6, 2)], [None]),
}
