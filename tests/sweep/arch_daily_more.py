"""What engineers write on a day: tables, recommenders, graphs, language models and layers by hand; for sweep.py."""
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations


class Retrieval(nn.Module):
    """A table's row is compared with stored ones, of which the five nearest answer."""

    def __init__(self, n=20, d=6):
        super().__init__()
        self.enc, self.label, self.head = nn.Linear(d, 8), nn.Embedding(3, 8), nn.Linear(8, 2)
        self.register_buffer("rows", torch.randn(n, d))
        self.register_buffer("classes", torch.randint(0, 3, (n,)))
        self.t = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        q, k = self.enc(x), self.enc(self.rows)
        d = -(q[:, None] - k[None]).pow(2).sum(-1)
        best, at = d.topk(5, 1)
        v = self.label(self.classes)[at] + self.t(q[:, None] - k[at])
        return self.head(q + (best.softmax(-1)[..., None] * v).sum(1))


class LowRankCross(nn.Module):
    """DCN-v2's crosses of low rank, mixed by gates."""

    def __init__(self, d=10, r=3, experts=3, layers=2):
        super().__init__()
        self.v, self.u = (nn.ParameterList(nn.Parameter(0.3 * torch.randn(experts, d, r)) for _ in range(layers)) for _ in "vu")
        self.c = nn.ParameterList(nn.Parameter(0.3 * torch.randn(experts, r, r)) for _ in range(layers))
        self.bias = nn.ParameterList(nn.Parameter(torch.zeros(d)) for _ in range(layers))
        self.gate, self.out = nn.Linear(d, experts), nn.Linear(d, 1)

    def forward(self, x):
        x0 = x
        for v, c, u, b in zip(self.v, self.c, self.u, self.bias):
            h = torch.tanh(torch.einsum("edr,nd->ner", v, x))
            h = torch.tanh(torch.einsum("ers,nes->ner", c, h))
            y = x0[:, None] * (torch.einsum("edr,ner->ned", u, h) + b)
            x = x + (self.gate(x).softmax(-1)[..., None] * y).sum(1)
        return torch.sigmoid(self.out(x))


class ManyHot(nn.Module):
    """Fields of several ids with padding, means of their embeddings, numbers beside them, products of all pairs."""

    def __init__(self, d=6):
        super().__init__()
        self.items, self.user, self.dense = nn.Embedding(30, d, padding_idx=0), nn.Embedding(10, d), nn.Linear(4, d)
        self.out = nn.Sequential(nn.Linear(3 + d, 8), nn.ReLU(), nn.Linear(8, 1))
        self.register_buffer("pairs", torch.triu_indices(3, 3, 1))

    def forward(self, items, user, numbers):
        m = (items != 0).unsqueeze(-1).to(numbers.dtype)
        bag = (self.items(items) * m).sum(1) / m.sum(1).clamp(min=1)
        v = torch.stack([bag, self.user(user), self.dense(torch.log1p(numbers.abs()))], 1)
        dots = (v @ v.transpose(-1, -2))[:, self.pairs[0], self.pairs[1]]
        return self.out(torch.cat([dots, v[:, 2]], 1))


class EvolvingInterest(nn.Module):
    """DIEN: attention to the candidate is the update gate of a GRU over the history."""

    def __init__(self, d=6):
        super().__init__()
        self.items, self.gru = nn.Embedding(20, d), nn.GRU(d, d, batch_first=True)
        self.att, self.rh, self.xr, self.xh = nn.Linear(2 * d, 1), nn.Linear(d, 2 * d), nn.Linear(d, d), nn.Linear(d, d)
        self.out = nn.Linear(2 * d, 1)

    def forward(self, history, item):
        e = self.items(item)
        h, _ = self.gru(self.items(history))
        a = self.att(torch.cat([h, e[:, None].expand_as(h)], -1)).softmax(1)
        s = torch.zeros_like(e)
        for t in range(6):
            r, c = self.rh(s).chunk(2, -1)
            new = torch.tanh(self.xh(h[:, t]) + torch.sigmoid(self.xr(h[:, t]) + r) * c)
            s = s + a[:, t] * (new - s)
        return self.out(torch.cat([s, e], -1)).squeeze(-1)


class InBatch(nn.Module):
    """Two towers and the loss in the batch: who is whose; learned temperature as CLIP has it."""
    one_sample = True

    def __init__(self, d=8):
        super().__init__()
        self.users, self.items = nn.Embedding(20, d), nn.Sequential(nn.Linear(5, d), nn.GELU(), nn.Linear(d, d))
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, user, item):
        u, v = F.normalize(self.users(user), dim=-1), F.normalize(self.items(item), dim=-1)
        s = self.logit_scale.exp() * u @ v.t()
        return -0.5 * (s.log_softmax(0).diagonal() + s.log_softmax(1).diagonal()).mean()


class Ranked(nn.Module):
    """BPR: a user likes one thing better than another."""

    def __init__(self, d=6):
        super().__init__()
        self.users, self.items, self.bias = nn.Embedding(20, d), nn.Embedding(30, d), nn.Embedding(30, 1)

    def forward(self, user, yes, no):
        u = self.users(user)
        s = (u * (self.items(yes) - self.items(no))).sum(-1) + (self.bias(yes) - self.bias(no)).squeeze(-1)
        return -F.logsigmoid(s) + 1e-2 * (u.pow(2).sum(-1) + self.items(yes).pow(2).sum(-1))


class Binned(nn.Module):
    """Numbers by bins: those below are full, one is partly, and each feature has a layer of its own."""

    def __init__(self, features=4, bins=6, d=5):
        super().__init__()
        edges = torch.cumsum(0.2 + torch.rand(features, bins + 1), 1) - 2
        self.register_buffer("edges", edges)
        self.weight, self.bias = nn.Parameter(0.4 * torch.randn(features, bins, d)), nn.Parameter(torch.zeros(features, d))
        self.out = nn.Linear(features * d, 2)

    def forward(self, x):
        left, right = self.edges[:, :-1], self.edges[:, 1:]
        p = ((x[..., None] - left) / (right - left)).clamp(0, 1)
        return self.out(F.relu(torch.einsum("nfb,fbd->nfd", p, self.weight) + self.bias).flatten(1))


class Buckets(nn.Module):
    """A number's bucket has a vector."""

    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.tensor([-1.5, -0.7, 0.0, 0.4, 1.1]))
        self.table, self.out = nn.Embedding(6, 5), nn.Linear(15, 2)

    def forward(self, x):
        return self.out(self.table(torch.bucketize(x, self.edges)).flatten(1))


SRC, DST = torch.tensor([0, 1, 2, 3, 4, 0, 2, 5, 5]), torch.tensor([1, 2, 0, 4, 3, 3, 5, 1, 0])


class Graph(nn.Module):
    """Edges that are buffers; features [samples, nodes, d]."""

    def __init__(self):
        super().__init__()
        self.register_buffer("src", SRC.clone())
        self.register_buffer("dst", DST.clone())

    def add(self, m, n):
        at = self.dst.view(1, -1, *[1] * (m.dim() - 2)).expand_as(m)
        return m.new_zeros(m.shape[0], n, *m.shape[2:]).scatter_add(1, at, m)


class NormedGraph(Graph):
    """A graph convolution: each neighbour over the root of both degrees."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 3)
        one = torch.ones(len(SRC))
        d = 1 + torch.zeros(6).index_add(0, DST, one)
        self.register_buffer("norm", (d[SRC] * d[DST]).rsqrt())
        self.register_buffer("own", 1 / d)

    def step(self, x):
        return self.add(x[:, self.src] * self.norm[:, None], 6) + x * self.own[:, None]

    def forward(self, x):
        return self.step(self.b(F.relu(self.step(self.a(x)))))


class EdgeSoftmax(Graph):
    """Attention over the edges of each node: the largest, then a sum, by scatter."""

    def __init__(self, d=8, heads=2):
        super().__init__()
        self.heads, self.lin = heads, nn.Linear(4, d, bias=False)
        self.a, self.b = nn.Parameter(torch.randn(heads, d // heads)), nn.Parameter(torch.randn(heads, d // heads))

    def forward(self, x):
        h = self.lin(x).unflatten(-1, (self.heads, -1))
        s = F.leaky_relu((h * self.a).sum(-1)[:, self.src] + (h * self.b).sum(-1)[:, self.dst], 0.2)
        at = self.dst[None, :, None].expand_as(s)
        top = torch.full_like(s[:, :6], -1e9).scatter_reduce(1, at, s, "amax")
        e = (s - top.gather(1, at)).exp()
        w = e / (self.add(e, 6).gather(1, at) + 1e-16)
        return self.add(h[:, self.src] * w[..., None], 6).flatten(2)


class Relations(Graph):
    """Relations share two bases of weights."""

    def __init__(self, relations=3, d=5):
        super().__init__()
        self.register_buffer("kind", torch.arange(len(SRC)) % relations)
        self.bases, self.share = nn.Parameter(0.4 * torch.randn(2, 4, d)), nn.Parameter(torch.randn(relations, 2))
        self.root = nn.Linear(4, d)

    def forward(self, x):
        w = torch.einsum("rb,bij->rij", self.share, self.bases)
        m = torch.einsum("nei,eij->nej", x[:, self.src], w[self.kind])
        return torch.tanh(self.root(x) + self.add(m, 6))


class Messages(Graph):
    """Messages by a network of both ends and the edge, and a GRU cell for each node, twice."""

    def __init__(self, d=6):
        super().__init__()
        self.into, self.edge, self.cell, self.out = nn.Linear(4, d), nn.Sequential(nn.Linear(2 * d + 1, d), nn.SiLU()), nn.GRUCell(d, d), nn.Linear(2 * d, 2)

    def forward(self, x, e):
        h0 = h = self.into(x)
        for _ in range(2):
            m = self.add(self.edge(torch.cat([h[:, self.src], h[:, self.dst], e], -1)), 6)
            h = self.cell(m.flatten(0, 1), h.flatten(0, 1)).view_as(h)
        return self.out(torch.cat([h, h0], -1)).sum(1)


class SortPool(Graph):
    """Of all nodes the best three stay, in their order, each by how good it is."""

    def __init__(self, d=6):
        super().__init__()
        self.lin, self.score, self.out = nn.Linear(4, d), nn.Parameter(torch.randn(d)), nn.Linear(3 * d, 2)

    def forward(self, x):
        h = torch.relu(self.add(self.lin(x)[:, self.src], 6) + self.lin(x))
        s = torch.tanh(h @ self.score / self.score.norm())
        best, at = s.topk(3, 1)
        return self.out((h.gather(1, at[..., None].expand(-1, -1, h.shape[-1])) * best[..., None]).flatten(1))


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class CachedLayer(nn.Module):
    """A decoder's layer with the keys and values before as inputs; four heads share two of them, and turn."""

    def __init__(self, d=16, heads=4, shared=2):
        super().__init__()
        self.h, self.s, self.k = heads, shared, d // heads
        self.norm, self.q, self.kv, self.o = nn.LayerNorm(d), nn.Linear(d, d, bias=False), nn.Linear(d, 2 * shared * self.k, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.down, self.norm2 = nn.Linear(d, 4 * d, bias=False), nn.Linear(2 * d, d, bias=False), nn.LayerNorm(d)

    def forward(self, x, past_k, past_v, mask):
        b, n, _ = x.shape
        places = (mask.cumsum(-1) - 1).clamp(min=0)[:, -n:]
        angle = places[..., None].to(x.dtype) * (1e4 ** (-torch.arange(0, self.k, 2, device=x.device) / self.k)).to(x.dtype)
        cos, sin = (torch.cat([t, t], -1)[:, None] for t in (angle.cos(), angle.sin()))
        y = self.norm(x)
        q = rotate(self.q(y).view(b, n, self.h, self.k).transpose(1, 2), cos, sin)
        k, v = self.kv(y).view(b, n, 2, self.s, self.k).permute(2, 0, 3, 1, 4)
        k, v = torch.cat([past_k, rotate(k, cos, sin)], 2), torch.cat([past_v, v], 2)
        m = k.shape[2]
        allowed = (torch.arange(m, device=x.device) <= torch.arange(m - n, m, device=x.device)[:, None]) & mask[:, None, None].bool()
        y = F.scaled_dot_product_attention(q, k.repeat_interleave(self.h // self.s, 1), v.repeat_interleave(self.h // self.s, 1), attn_mask=allowed)
        x = x + self.o(y.transpose(1, 2).reshape(b, n, -1))
        a, g = self.gate(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(g) * a)


class SlidingSinks(nn.Module):
    """Attention to the last four tokens and the first two, with one learned score that takes nothing."""

    def __init__(self, d=16, heads=2):
        super().__init__()
        self.heads, self.qkv, self.o, self.sink = heads, nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Parameter(torch.zeros(heads))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        i = torch.arange(n, device=x.device)
        gap = i[:, None] - i
        seen = (gap >= 0) & ((gap < 4) | (i < 2))
        s = (q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5).masked_fill(~seen, torch.finfo(x.dtype).min)
        s = torch.cat([s, self.sink[None, :, None, None].expand(b, -1, n, 1)], -1)
        return self.o((s.softmax(-1)[..., :-1] @ v).transpose(1, 2).reshape(b, n, d))


class PartialRope(nn.Module):
    """Half of a head turns, in pairs of neighbours, at frequencies stretched as YaRN does."""

    def __init__(self, d=16, heads=2, length=64):
        super().__init__()
        self.heads, self.qkv, self.o = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.q_norm, self.k_norm = nn.LayerNorm(d // heads), nn.LayerNorm(d // heads)
        f = 1e4 ** (-torch.arange(2) / 2)
        ramp = torch.tensor([0.0, 0.75])
        angle = torch.outer(torch.arange(length).float(), f * (1 - ramp) + f / 4 * ramp)
        self.register_buffer("cos_cached", 1.07 * angle.cos(), persistent=False)
        self.register_buffer("sin_cached", 1.07 * angle.sin(), persistent=False)

    def turn(self, x, cos, sin):
        t, rest = x[..., :4], x[..., 4:]
        a, b = t[..., 0::2], t[..., 1::2]
        return torch.cat([torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2), rest], -1)

    def forward(self, x, places):
        b, n, d = x.shape
        cos, sin = self.cos_cached[places][:, None], self.sin_cached[places][:, None]
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = self.turn(self.q_norm(q), cos, sin), self.turn(self.k_norm(k), cos, sin)
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, d))


class Adapted(nn.Module):
    """LoRA beside layers that are frozen; the second factor begins as zeros."""

    def __init__(self, d=12, r=3, alpha=6.0):
        super().__init__()
        self.base, self.out, self.scale = nn.Linear(d, d), nn.Linear(d, 4), alpha / r
        self.lora_a, self.lora_b = nn.Parameter(torch.randn(r, d) / d), nn.Parameter(torch.zeros(d, r))
        self.magnitude = nn.Parameter(torch.ones(d))
        for p in (*self.base.parameters(), *self.out.parameters()):
            p.requires_grad_(False)

    def forward(self, x):
        h = self.base(x) + self.scale * F.linear(F.linear(x, self.lora_a), self.lora_b)
        return self.out(F.gelu(h * self.magnitude))


class Prefix(nn.Module):
    """Learned keys and values before all others, a learned prompt before all tokens, scales of IA3."""

    def __init__(self, d=12, heads=2):
        super().__init__()
        self.heads, self.words, self.prompt = heads, nn.Embedding(20, d), nn.Parameter(0.5 * torch.randn(3, d))
        self.keys, self.values = nn.Parameter(torch.randn(heads, 2, d // heads)), nn.Parameter(torch.randn(heads, 2, d // heads))
        self.l_k, self.l_v, self.l_ff = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(2 * d))
        self.q, self.k, self.v, self.up, self.down = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, ids):
        b = ids.shape[0]
        x = torch.cat([self.prompt[None].expand(b, -1, -1), self.words(ids)], 1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.q(x), self.k(x) * self.l_k, self.v(x) * self.l_v))
        k, v = (torch.cat([p.unsqueeze(0).expand(b, -1, -1, -1), t], 2) for p, t in ((self.keys, k), (self.values, v)))
        x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.down(F.gelu(self.up(x)) * self.l_ff)[:, 3:]


class RoutedDense(nn.Module):
    """Two experts of four for each token, all computed; their shares are normed, and the balance is a second output's."""

    def __init__(self, d=8, n=4):
        super().__init__()
        self.router = nn.Linear(d, n, bias=False)
        self.w1, self.w3, self.w2 = (nn.Parameter(0.3 * torch.randn(n, a, b)) for a, b in ((d, 12), (d, 12), (12, d)))

    def forward(self, x):
        p = self.router(x).softmax(-1)
        best, at = p.topk(2, -1)
        gates = torch.zeros_like(p).scatter(-1, at, best / best.sum(-1, keepdim=True))
        h = F.silu(torch.einsum("bld,nde->blne", x, self.w1)) * torch.einsum("bld,nde->blne", x, self.w3)
        return x + torch.einsum("blne,ned,bln->bld", h, self.w2, gates)


class RoutedGathered(nn.Module):
    """The weights of the chosen experts are gathered for each token; a bias on the choice alone, as DeepSeek has it."""

    def __init__(self, d=6, n=5):
        super().__init__()
        self.router = nn.Linear(d, n, bias=False)
        self.register_buffer("correction", 0.1 * torch.randn(n))
        self.up, self.down = nn.Parameter(0.4 * torch.randn(n, d, 8)), nn.Parameter(0.4 * torch.randn(n, 8, d))

    def forward(self, x):
        s = torch.sigmoid(self.router(x))
        at = (s + self.correction).topk(2, -1).indices
        w = s.gather(-1, at)
        w = w / (w.sum(-1, keepdim=True) + 1e-20) * 2.5
        h = F.relu(torch.einsum("bld,blkde->blke", x, self.up[at])).square()
        return torch.einsum("blke,blked,blk->bld", h, self.down[at], w)


class Scan(nn.Module):
    """Mamba's layer: a causal filter, steps and matrices from the input, a loop over time."""

    def __init__(self, d=6, n=4, rank=2):
        super().__init__()
        self.n, self.rank, self.into, self.conv = n, rank, nn.Linear(d, 2 * d, bias=False), nn.Conv1d(d, d, 3, groups=d, padding=2)
        self.x_proj, self.dt, self.out = nn.Linear(d, rank + 2 * n, bias=False), nn.Linear(rank, d), nn.Linear(d, d, bias=False)
        self.A_log, self.D = nn.Parameter(torch.arange(1, n + 1).float().repeat(d, 1).log()), nn.Parameter(torch.ones(d))

    def forward(self, x):
        x, z = self.into(x).chunk(2, -1)
        length = x.shape[1]
        x = F.silu(self.conv(x.transpose(1, 2))[..., :length]).transpose(1, 2)
        dt, b, c = self.x_proj(x).split([self.rank, self.n, self.n], -1)
        dt = F.softplus(self.dt(dt))
        a = torch.exp(dt[..., None] * -torch.exp(self.A_log))
        u = (dt * x)[..., None] * b[:, :, None]
        h, y = torch.zeros_like(u[:, 0]), []
        for t in range(7):
            h = a[:, t] * h + u[:, t]
            y.append((h * c[:, t, None]).sum(-1))
        return self.out((torch.stack(y, 1) + x * self.D) * F.silu(z))


class Chunked(nn.Module):
    """Gated linear attention in chunks of four: within by products, between by a state."""

    def __init__(self, d=8):
        super().__init__()
        self.qkv, self.gate = nn.Linear(d, 3 * d), nn.Linear(d, 1)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (t.view(b, -1, 4, d) for t in self.qkv(x).chunk(3, -1))
        g = F.logsigmoid(self.gate(x)).view(b, -1, 4).cumsum(-1)
        s = torch.tril((q @ k.transpose(-1, -2)) * torch.exp(torch.tril(g[..., :, None] - g[..., None, :])))
        y, state = s @ v, x.new_zeros(b, d, d)
        out = []
        for i in range(2):
            out.append(y[:, i] + g[:, i].exp()[..., None] * (q[:, i] @ state))
            state = g[:, i, -1].exp()[:, None, None] * state + (k[:, i] * (g[:, i, -1:] - g[:, i]).exp()[..., None]).transpose(-1, -2) @ v[:, i]
        return torch.cat(out, 1)


class TokenLoss(nn.Module):
    """A language model's loss in the model: shifted ids, those below zero ignored, smoothed labels, z-loss."""

    def __init__(self, words=20, d=10):
        super().__init__()
        self.table, self.layer, self.norm = nn.Embedding(words, d), nn.Linear(d, d), nn.LayerNorm(d)

    def forward(self, ids):
        h = self.norm(self.table(ids) + F.gelu(self.layer(self.table(ids))))
        logits = 30 * torch.tanh(h @ self.table.weight.t() / 30)
        logits, labels = logits[:, :-1], ids[:, 1:]
        keep = (labels > 2).to(logits.dtype)
        logs = logits.log_softmax(-1)
        nll = -0.9 * logs.gather(-1, labels[..., None])[..., 0] - 0.1 * logs.mean(-1)
        z = 1e-2 * logits.logsumexp(-1).square()
        return ((nll + z) * keep).sum(1) / keep.sum(1).clamp(min=1)


class Preferred(nn.Module):
    """DPO: what the policy likes better than the frozen reference did, of two answers."""

    def __init__(self, words=16, d=8):
        super().__init__()
        self.policy = nn.Sequential(nn.Embedding(words, d), nn.Linear(d, words))
        self.reference = nn.Sequential(nn.Embedding(words, d), nn.Linear(d, words)).requires_grad_(False)

    def logs(self, net, ids):
        return net(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1).sum(-1)

    def forward(self, yes, no):
        margin = self.logs(self.policy, yes) - self.logs(self.policy, no)
        base = self.logs(self.reference, yes) - self.logs(self.reference, no)
        return -F.logsigmoid(0.1 * (margin - base))


class SplineLayer(nn.Module):
    """KAN: B-splines of the third degree by de Boor's recursion on a grid, beside a plain layer."""

    def __init__(self, a=4, b=3, n=5, degree=3):
        super().__init__()
        self.degree, self.base = degree, nn.Parameter(0.4 * torch.randn(b, a))
        self.register_buffer("grid", (torch.arange(-degree, n + degree + 1) * (2 / n) - 1).expand(a, -1).contiguous())
        self.spline, self.scale = nn.Parameter(0.2 * torch.randn(b, a, n + degree)), nn.Parameter(torch.rand(b, a))

    def forward(self, x):
        t, x0 = self.grid, x[..., None]
        y = ((x0 >= t[:, :-1]) & (x0 < t[:, 1:])).to(x.dtype)
        for k in range(1, self.degree + 1):
            y = (x0 - t[:, :-k - 1]) / (t[:, k:-1] - t[:, :-k - 1]) * y[..., :-1] + \
                (t[:, k + 1:] - x0) / (t[:, k + 1:] - t[:, 1:-k]) * y[..., 1:]
        return F.linear(F.silu(x), self.base) + F.linear(y.flatten(1), (self.spline * self.scale[..., None]).flatten(1))


class LearnedCentres(nn.Module):
    """Bumps whose centres and widths learn, from even ones on."""

    def __init__(self, n=7):
        super().__init__()
        self.centers, self.log_width = nn.Parameter(torch.linspace(-2, 2, n)), nn.Parameter(torch.zeros(n))
        self.out = nn.Linear(3 * n, 2)

    def forward(self, x):
        return self.out(torch.exp(-((x[..., None] - self.centers) * self.log_width.exp()) ** 2).flatten(1))


class Normed(nn.Module):
    """Norms of weights as parametrizations, of layers of all kinds."""

    def __init__(self):
        super().__init__()
        self.a = parametrizations.weight_norm(nn.Conv1d(3, 6, 3, padding=1))
        self.b = parametrizations.weight_norm(nn.ConvTranspose1d(6, 4, 4, 2, 1), dim=1)
        self.c = parametrizations.spectral_norm(nn.Linear(4, 5))

    def forward(self, x):
        return self.c(F.elu(self.b(F.elu(self.a(x)))).transpose(1, 2))


class ComplexLayers(nn.Module):
    """Complex numbers by hand: layers, a bias on the length, and how they are turned into one."""

    def __init__(self, a=5, b=6):
        super().__init__()
        self.re, self.im, self.bias = nn.Linear(a, b, bias=False), nn.Linear(a, b, bias=False), nn.Parameter(-0.2 * torch.ones(b))
        self.out = nn.Linear(2 * b, 3)

    def forward(self, x):
        a, b = x[..., 0], x[..., 1]
        a, b = self.re(a) - self.im(b), self.re(b) + self.im(a)
        r = torch.sqrt(a * a + b * b + 1e-8)
        s = F.relu(r + self.bias) / r
        return self.out(torch.cat([a * s, b * s], -1))


class Cosines(nn.Module):
    """A picture through a cosine transform both ways, low frequencies weighed, and back."""

    def __init__(self, n=8):
        super().__init__()
        k = torch.arange(n)
        m = torch.cos(math.pi / n * (k[None] + 0.5) * k[:, None]) * math.sqrt(2 / n)
        m[0] /= math.sqrt(2)
        self.register_buffer("dct", m)
        self.weight, self.out = nn.Parameter(torch.randn(3, n, n)), nn.Conv2d(3, 4, 1)

    def forward(self, x):
        s = self.dct @ x @ self.dct.t() * self.weight
        return self.out(F.hardshrink(self.dct.t() @ s @ self.dct, 0.05))


class InPlace(nn.Module):
    """What is written into parts of a tensor: rows that add the ones before, a column of products, scores that are masked."""

    def __init__(self, d=6):
        super().__init__()
        self.a, self.b = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        y = self.a(x)
        z = y.clone()
        z[:, 1:] += 0.5 * torch.tanh(y[:, :-1])
        z[..., 0] = y[..., 1] * y[..., 2]
        s = z @ self.b(x).transpose(1, 2)
        s[:, torch.ones(s.shape[1:], dtype=torch.bool).triu(1)] = -1e9
        return s.softmax(-1) @ z


class BiasedHeads(nn.Module):
    """PyTorch's attention with a learned key and value, one of zeros, and others' widths for keys and values."""

    def __init__(self, d=12):
        super().__init__()
        self.attn = nn.MultiheadAttention(d, 3, add_bias_kv=True, add_zero_attn=True, kdim=5, vdim=7, batch_first=True)

    def forward(self, q, k, v):
        return q + self.attn(q, k, v, need_weights=False)[0]


class Decoder(nn.Module):
    """PyTorch's decoder, norms first, with a causal mask and one for padding."""

    def __init__(self, d=12):
        super().__init__()
        layer = nn.TransformerDecoderLayer(d, 2, 20, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.words, self.decoder = nn.Embedding(20, d), nn.TransformerDecoder(layer, 2, nn.LayerNorm(d))

    def forward(self, ids, memory, hidden):
        n = ids.shape[1]
        causal = torch.ones(n, n, dtype=torch.bool).triu(1)
        return self.decoder(self.words(ids), memory, tgt_mask=causal, memory_key_padding_mask=hidden)


class Compared(nn.Module):
    """Two texts: a bilinear form, a cosine, a distance, what is most alike."""

    def __init__(self, d=6):
        super().__init__()
        self.lin, self.form, self.out = nn.Linear(4, d), nn.Bilinear(d, d, 3), nn.Linear(6, 2)

    def forward(self, a, b):
        a, b = self.lin(a), self.lin(b)
        p, q = a.mean(1), b.mean(1)
        s = torch.bmm(F.normalize(a, dim=-1), F.normalize(b, dim=-1).transpose(1, 2))
        more = torch.stack([F.cosine_similarity(p, q), F.pairwise_distance(p, q, p=1.0), s.amax(2).sum(1)], 1)
        return self.out(torch.cat([self.form(p, q), more], 1))


class Moments(nn.Module):
    """Pools that take more than a mean: deviations, skewness, powers that learn, sorted values."""

    def __init__(self, d=6):
        super().__init__()
        self.lin, self.p, self.out = nn.Linear(4, d), nn.Parameter(torch.tensor(2.7)), nn.Linear(6 * d, 3)

    def forward(self, x):
        h = self.lin(x)
        v, m = torch.var_mean(h, 1, correction=1)
        skew = ((h - m[:, None]) / (v[:, None] + 1e-5).sqrt()).pow(3).mean(1)
        gem = h.clamp(min=1e-3).pow(self.p).mean(1).pow(1 / self.p)
        top = h.sort(1, descending=True).values
        return self.out(torch.cat([m, v.sqrt(), skew, gem, top[:, 0], top[:, :3].mean(1)], 1))


class Hazards(nn.Module):
    """Prefixes of products and of exponentials: survival by hazards, stick breaking."""

    def __init__(self, d=7):
        super().__init__()
        self.net = nn.Linear(4, d)

    def forward(self, x):
        z = self.net(x)
        h = torch.sigmoid(z)
        alive = torch.exp(torch.cumsum(torch.log1p(-h), -1))
        stick = h * torch.cat([torch.ones_like(alive[:, :1]), alive[:, :-1]], -1)
        return torch.stack([alive, stick, torch.log(torch.cumsum(z.exp(), -1))], 1)


class Threads(nn.Module):
    """Parameters in a dictionary and in lists, chosen by name; some are used twice, some never."""

    def __init__(self, d=5):
        super().__init__()
        self.scales = nn.ParameterDict({k: nn.Parameter(torch.randn(d)) for k in ("left", "right", "unused")})
        self.layers = nn.ModuleDict({"a": nn.Linear(d, d), "b": nn.Linear(d, d)})
        self.alphas = nn.ParameterList([nn.Parameter(torch.tensor(0.3)), nn.Parameter(torch.tensor(-0.7131))])

    def forward(self, x):
        y = x * self.scales["left"]
        for name, alpha in zip(("a", "b", "a"), (*self.alphas, self.alphas[0])):
            y = y + alpha * F.selu(self.layers[name](y))
        return y * self.scales["right"] + self.scales["left"].sigmoid()


class Symmetric(nn.Module):
    """Weights that are computed of parameters on each run: symmetric, skew, triangular, exponentials of matrices."""

    def __init__(self, d=5):
        super().__init__()
        self.w, self.s, self.l = (nn.Parameter(0.3 * torch.randn(d, d)) for _ in range(3))
        self.log_d = nn.Parameter(torch.randn(d))

    def forward(self, x):
        sym = (self.w + self.w.t()) / 2
        skew = self.s.triu(1) - self.s.triu(1).t()
        eye = torch.eye(5, dtype=x.dtype)
        turn = eye + skew + skew @ skew / 2 + skew @ skew @ skew / 6
        low = self.l.tril(-1) + eye * self.log_d.exp()
        return torch.tanh(x @ sym) @ turn + (x @ low).pow(2).sum(-1, keepdim=True)


def R(*dims):
    return torch.randn(*dims)


def I(*dims, most=8):
    return torch.randint(0, most, dims)


ALL = {
    "daily_retrieval": lambda: (Retrieval(), [R(2, 6)], [None]),
    "daily_low_rank_cross": lambda: (LowRankCross(), [R(2, 10)], [None]),
    "daily_many_hot": lambda: (ManyHot(), [torch.tensor([[3, 9, 0, 0], [5, 1, 7, 29]]), I(2), R(2, 4)], [1, None, None]),
    "daily_evolving_interest": lambda: (EvolvingInterest(), [I(2, 6, most=20), I(2, most=20)], [None, None]),
    "daily_in_batch": lambda: (InBatch(), [I(6, most=20), R(6, 5)], [None, None]),
    "daily_ranked": lambda: (Ranked(), [I(2, most=20), I(2, most=30), I(2, most=30)], [None] * 3),
    "daily_binned": lambda: (Binned(), [R(2, 4)], [None]),
    "daily_buckets": lambda: (Buckets(), [R(2, 3)], [None]),
    "daily_normed_graph": lambda: (NormedGraph(), [R(2, 6, 4)], [None]),
    "daily_edge_softmax": lambda: (EdgeSoftmax(), [R(2, 6, 4)], [None]),
    "daily_relations": lambda: (Relations(), [R(2, 6, 4)], [None]),
    "daily_messages": lambda: (Messages(), [R(2, 6, 4), R(2, 9, 1)], [None, None]),
    "daily_sort_pool": lambda: (SortPool(), [R(2, 6, 4)], [None]),
    "daily_cached_layer": lambda: (CachedLayer(), [R(2, 3, 16), R(2, 2, 5, 4), R(2, 2, 5, 4), torch.tensor([[1] * 8, [0, 0] + [1] * 6])], [None] * 4),
    "daily_sliding_sinks": lambda: (SlidingSinks(), [R(2, 11, 16)], [1]),
    "daily_partial_rope": lambda: (PartialRope(), [R(2, 9, 16), torch.arange(9).expand(2, -1).contiguous()], [1, 1]),
    "daily_adapted": lambda: (Adapted(), [R(2, 12)], [None]),
    "daily_prefix": lambda: (Prefix(), [I(2, 7, most=20)], [1]),
    "daily_routed_dense": lambda: (RoutedDense(), [R(2, 7, 8)], [1]),
    "daily_routed_gathered": lambda: (RoutedGathered(), [R(2, 7, 6)], [1]),
    "daily_scan": lambda: (Scan(), [R(2, 7, 6)], [None]),
    "daily_chunked": lambda: (Chunked(), [R(2, 8, 8)], [None]),
    "daily_token_loss": lambda: (TokenLoss(), [I(2, 9, most=20)], [1]),
    "daily_preferred": lambda: (Preferred(), [I(2, 6, most=16), I(2, 6, most=16)], [1, 1]),
    "daily_spline_layer": lambda: (SplineLayer(), [torch.tanh(R(2, 4))], [None]),
    "daily_learned_centres": lambda: (LearnedCentres(), [R(2, 3)], [None]),
    "daily_normed": lambda: (Normed(), [R(2, 3, 9)], [2]),
    "daily_complex_layers": lambda: (ComplexLayers(), [R(2, 5, 2)], [None]),
    "daily_cosines": lambda: (Cosines(), [R(2, 3, 8, 8)], [None]),
    "daily_in_place": lambda: (InPlace(), [R(2, 7, 6)], [1]),
    "daily_biased_heads": lambda: (BiasedHeads(), [R(2, 4, 12), R(2, 6, 5), R(2, 6, 7)], [None] * 3),
    "daily_decoder": lambda: (Decoder(), [I(2, 6, most=20), R(2, 5, 12), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])], [None] * 3),
    "daily_compared": lambda: (Compared(), [R(2, 5, 4), R(2, 7, 4)], [1, None]),
    "daily_moments": lambda: (Moments(), [R(2, 9, 4)], [1]),
    "daily_hazards": lambda: (Hazards(), [R(2, 4)], [None]),
    "daily_threads": lambda: (Threads(), [R(2, 5)], [None]),
    "daily_symmetric": lambda: (Symmetric(), [R(2, 5)], [None]),
}
