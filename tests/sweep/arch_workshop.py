"""Models as engineers bring them to a new server: matchers, separators, recommenders, forecasters, force fields; for
sweep.py."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from arch_common import ids
from arch_plain import floats, own


class Dustbin(nn.Module):
    """Points of two pictures matched as SuperGlue does: one number is the score of a point that has no partner."""

    def __init__(self, d=8):
        super().__init__()
        self.proj, self.bin_score = nn.Linear(d, d), nn.Parameter(torch.tensor(1.))

    def forward(self, a, b):
        s = self.proj(a) @ self.proj(b).transpose(1, 2) / a.shape[-1] ** .5
        n, m, k = s.shape
        alpha = self.bin_score
        z = torch.cat([torch.cat([s, alpha.expand(n, m, 1)], -1), alpha.expand(n, 1, k + 1)], 1)
        norm = -math.log(m + k)
        mu = torch.tensor([norm] * m + [math.log(k) + norm], dtype=s.dtype).expand(n, -1)
        nu = torch.tensor([norm] * k + [math.log(m) + norm], dtype=s.dtype).expand(n, -1)
        u, v = torch.zeros_like(mu), torch.zeros_like(nu)
        for _ in range(4):
            u = mu - torch.logsumexp(z + v[:, None], 2)
            v = nu - torch.logsumexp(z + u[:, :, None], 1)
        return z + u[:, :, None] + v[:, None] - norm


class BiFpn(nn.Module):
    """Levels of a pyramid that are added with weights of their own, none below zero."""

    def __init__(self, c=8):
        super().__init__()
        self.w1, self.w2 = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))
        self.stem, self.down = nn.Conv2d(3, c, 3, 2, 1), nn.Conv2d(c, c, 3, 2, 1)
        self.c1 = nn.Sequential(nn.Conv2d(c, c, 3, padding=1, groups=c, bias=False), nn.Conv2d(c, c, 1), nn.BatchNorm2d(c), nn.SiLU())
        self.c2 = nn.Sequential(nn.Conv2d(c, c, 3, padding=1, groups=c, bias=False), nn.Conv2d(c, c, 1), nn.BatchNorm2d(c), nn.SiLU())

    def forward(self, x):
        p3 = self.stem(x)
        p4 = self.down(p3)
        w = F.relu(self.w1)
        w = w / (w.sum() + 1e-4)
        up = self.c1(w[0] * p3 + w[1] * F.interpolate(p4, scale_factor=2, mode="nearest"))
        w = F.relu(self.w2)
        w = w / (torch.sum(w, dim=0) + 1e-4)
        return self.c2(w[0] * p4 + w[1] * F.max_pool2d(up, 3, 2, 1) + w[2] * F.avg_pool2d(p3, 2))


class Painn(nn.Module):
    """Atoms that send numbers and arrows, over waves with learned frequencies, cut off smoothly."""
    one_sample = True

    def __init__(self, d=8, n=5):
        super().__init__()
        self.emb = nn.Embedding(10, d)
        self.freqs = nn.Parameter(torch.arange(1, n + 1) * math.pi / 5.0)
        self.filter, self.phi = nn.Linear(n, 3 * d), nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 3 * d))
        self.U, self.V = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.mix, self.out = nn.Sequential(nn.Linear(2 * d, d), nn.SiLU(), nn.Linear(d, 3 * d)), nn.Linear(d, 1)

    def forward(self, z, pos, edges):
        s = self.emb(z)
        v = s.new_zeros(s.shape[0], 3, s.shape[1])
        i, j = edges[0], edges[1]
        r = pos[j] - pos[i]
        d = r.norm(dim=-1, keepdim=True)
        cut = 0.5 * (torch.cos(d * math.pi / 5.0) + 1) * (d < 5.0).to(d.dtype)
        w = self.filter(torch.sin(self.freqs * d) / d) * cut
        a, b, c = (self.phi(s)[j] * w).chunk(3, -1)
        s = s + torch.zeros_like(s).index_add(0, i, a)
        v = v + torch.zeros_like(v).index_add(0, i, v[j] * b[:, None] + c[:, None] * (r / d)[:, :, None])
        u, w = self.U(v), self.V(v)
        a, b, c = self.mix(torch.cat([s, (w.pow(2).sum(1) + 1e-8).sqrt()], -1)).chunk(3, -1)
        return self.out(s + a + b * (u * w).sum(1)).sum()[None]


class Set2Set(nn.Module):
    """A set is asked by a cell several times."""

    def __init__(self, d=6):
        super().__init__()
        self.cell, self.steps, self.out = nn.LSTM(2 * d, d), 3, nn.Linear(2 * d, 2)

    def forward(self, x):
        h = (x.new_zeros(1, x.shape[0], x.shape[2]), x.new_zeros(1, x.shape[0], x.shape[2]))
        q = x.new_zeros(x.shape[0], 2 * x.shape[2])
        for _ in range(self.steps):
            y, h = self.cell(q.unsqueeze(0), h)
            y = y.squeeze(0)
            a = torch.softmax((x * y[:, None]).sum(-1), 1)
            q = torch.cat([y, (a[..., None] * x).sum(1)], -1)
        return self.out(q)


class KgScores(nn.Module):
    """Facts of a graph scored by RotatE, ComplEx and DistMult, from one table each."""

    def __init__(self, n=20, r=5, d=8):
        super().__init__()
        self.ent, self.rel = nn.Embedding(n, 2 * d), nn.Embedding(r, d)
        self.gamma, self.scale = nn.Parameter(torch.tensor([12.0]), requires_grad=False), nn.Parameter(torch.tensor([0.5]), requires_grad=False)
        self.modulus = nn.Parameter(torch.tensor([[0.5 * 0.02]]))

    def forward(self, h, r, t):
        rh, ih = self.ent(h).chunk(2, -1)
        rt, it = self.ent(t).chunk(2, -1)
        phase = self.rel(r) / (self.scale / math.pi)
        c, s = torch.cos(phase), torch.sin(phase)
        d = torch.stack([c * rh - s * ih - rt, s * rh + c * ih - it]).norm(dim=0).sum(-1)
        e = ((rh * rt + ih * it) * c + (rh * it - ih * rt) * s).sum(-1)
        return torch.stack([self.gamma - d * self.modulus.squeeze(), e], -1)


class Fedformer(nn.Module):
    """Some of the waves of a series, each with a complex matrix of its own."""

    def __init__(self, h=2, e=4, n=16, modes=4):
        super().__init__()
        self.index = [0, 2, 3, 5][:modes]
        self.weights1 = nn.Parameter(0.1 * torch.rand(h, e, e, modes))
        self.weights2 = nn.Parameter(0.1 * torch.rand(h, e, e, modes))
        self.inp, self.out, self.h = nn.Linear(3, h * e), nn.Linear(h * e, 3), h

    def forward(self, x):
        b, n, _ = x.shape
        q = self.inp(x).view(b, n, self.h, -1).permute(0, 2, 3, 1)
        f = torch.fft.rfft(q, dim=-1)
        re, im = f.real, f.imag
        outs_r, outs_i = [torch.zeros_like(re[..., 0])] * (n // 2 + 1), [torch.zeros_like(re[..., 0])] * (n // 2 + 1)
        for w, k in enumerate(self.index):
            a, b_ = self.weights1[..., w], self.weights2[..., w]
            outs_r[k] = torch.einsum("bhi,hio->bho", re[..., k], a) - torch.einsum("bhi,hio->bho", im[..., k], b_)
            outs_i[k] = torch.einsum("bhi,hio->bho", re[..., k], b_) + torch.einsum("bhi,hio->bho", im[..., k], a)
        y = torch.fft.irfft(torch.complex(torch.stack(outs_r, -1), torch.stack(outs_i, -1)), n=n)
        return x + self.out(y.permute(0, 3, 1, 2).flatten(2))


class Informer(nn.Module):
    """The queries that differ most from the mean attend; the others take the mean of the values."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.q, self.k, self.v, self.o, self.h = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d), h
        self.conv, self.norm = nn.Conv1d(d, d, 3, padding=1, padding_mode="circular"), nn.BatchNorm1d(d)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (f(x).view(b, n, self.h, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        s = q @ k.transpose(2, 3) / math.sqrt(d // self.h)
        top = (s.max(-1)[0] - s.mean(-1)).topk(5, sorted=False)[1]
        rows = torch.gather(s, 2, top[..., None].expand(-1, -1, -1, n))
        y = v.mean(2, keepdim=True).expand(-1, -1, n, -1).clone()
        y = y.scatter(2, top[..., None].expand(-1, -1, -1, y.shape[-1]), torch.softmax(rows, -1) @ v)
        y = x + self.o(y.transpose(1, 2).reshape(b, n, d))
        y = F.elu(self.norm(self.conv(y.transpose(1, 2))))
        return F.max_pool1d(y, 3, 2, 1).transpose(1, 2)


class Dprnn(nn.Module):
    """A long sequence cut into pieces that overlap; one net within them, one across, then added up again."""

    def __init__(self, c=6, k=8):
        super().__init__()
        self.enc, self.dec = nn.Conv1d(1, c, 4, 2, bias=False), nn.ConvTranspose1d(c, 1, 4, 2, bias=False)
        self.a, self.b = nn.LSTM(c, c, batch_first=True, bidirectional=True), nn.LSTM(c, c, batch_first=True, bidirectional=True)
        self.la, self.lb, self.k, self.act = nn.Linear(2 * c, c), nn.Linear(2 * c, c), k, nn.PReLU()
        self.na, self.nb = nn.GroupNorm(1, c, eps=1e-8), nn.GroupNorm(1, c, eps=1e-8)

    def forward(self, x):
        w = self.enc(x)
        n, c, l = w.shape
        p = self.k // 2
        s = F.unfold(F.pad(w, (p, p)).unsqueeze(-1), (self.k, 1), stride=(p, 1)).view(n, c, self.k, -1)
        m = s.shape[-1]
        y, _ = self.a(s.permute(0, 3, 2, 1).reshape(n * m, self.k, c))
        s = s + self.na(self.la(y).view(n, m, self.k, c).permute(0, 3, 2, 1))
        y, _ = self.b(s.permute(0, 2, 3, 1).reshape(n * self.k, m, c))
        s = s + self.nb(self.lb(y).view(n, self.k, m, c).permute(0, 3, 1, 2))
        y = F.fold(s.reshape(n, c * self.k, m), (l + 2 * p, 1), (self.k, 1), stride=(p, 1))[:, :, p:-p, 0]
        return self.dec(w * torch.sigmoid(self.act(y)))


class RnnTJoint(nn.Module):
    """What is heard and what was said meet in each pair of steps."""

    def __init__(self, d=8):
        super().__init__()
        self.enc, self.words = nn.LSTM(5, d, 2, batch_first=True), nn.Embedding(12, d, padding_idx=0)
        self.pred, self.out = nn.GRU(d, d, batch_first=True), nn.Linear(d, 12)
        self.fe, self.fp = nn.Linear(d, d), nn.Linear(d, d, bias=False)

    def forward(self, x, y):
        a = self.fe(self.enc(x)[0])
        b = self.fp(self.pred(F.pad(self.words(y), (0, 0, 1, 0)))[0])
        return F.log_softmax(self.out(torch.tanh(a[:, :, None] + b[:, None])), -1)


class StLstm(nn.Module):
    """PredRNN: memory goes up the layers and on in time."""

    def __init__(self, c=4):
        super().__init__()
        self.x, self.h, self.m, self.o = nn.Conv2d(c, 7 * c, 3, padding=1), nn.Conv2d(c, 4 * c, 3, padding=1), nn.Conv2d(c, 3 * c, 3, padding=1), nn.Conv2d(2 * c, c, 3, padding=1)
        self.last, self.first, self.c = nn.Conv2d(2 * c, c, 1), nn.Conv2d(1, c, 3, padding=1), c
        self.nx = nn.LayerNorm([7 * c, 8, 8])

    def forward(self, x):
        h = x.new_zeros(x.shape[0], self.c, *x.shape[3:])
        c, m = torch.zeros_like(h), torch.zeros_like(h)
        for t in range(x.shape[1]):
            ix, fx, gx, im, fm, gm, ox = self.nx(self.x(self.first(x[:, t]))).split(self.c, 1)
            ih, fh, gh, oh = self.h(h).split(self.c, 1)
            i_, f_, g_ = self.m(m).split(self.c, 1)
            c = torch.sigmoid(fx + fh + 1.0) * c + torch.sigmoid(ix + ih) * torch.tanh(gx + gh)
            m = torch.sigmoid(fm + f_ + 1.0) * m + torch.sigmoid(im + i_) * torch.tanh(gm + g_)
            mem = torch.cat([c, m], 1)
            h = torch.sigmoid(ox + oh + self.o(mem)) * torch.tanh(self.last(mem))
        return h


class RepBlock(nn.Module):
    """RepVGG as it trains: three branches with a norm each, one of them the input itself."""

    def __init__(self, c=6):
        super().__init__()
        self.stem = nn.Conv2d(3, c, 3, padding=1)
        self.c3, self.b3 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        self.c1, self.b1, self.b0 = nn.Conv2d(c, c, 1, bias=False), nn.BatchNorm2d(c), nn.BatchNorm2d(c)

    def forward(self, x):
        x = self.stem(x)
        return F.relu(self.b3(self.c3(x)) + self.b1(self.c1(x)) + self.b0(x))


class OdConv(nn.Module):
    """A convolution whose kernels, rows, columns and places are weighed by the picture, two samples in one call."""

    def __init__(self, i=6, o=8, k=3, n=4):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, o, i, k, k) * .1)
        self.fc, self.norm = nn.Conv2d(i, 8, 1, bias=False), nn.GroupNorm(2, 8)
        self.cin, self.cout, self.sp, self.ke = nn.Conv2d(8, i, 1), nn.Conv2d(8, o, 1), nn.Conv2d(8, k * k, 1), nn.Conv2d(8, n, 1)
        self.stem, self.o, self.k, self.n = nn.Conv2d(3, i, 1), o, k, n

    def forward(self, x):
        x = self.stem(x)
        b, c, h, w = x.shape
        a = F.relu(self.norm(self.fc(F.adaptive_avg_pool2d(x, 1))))
        x = (x * torch.sigmoid(self.cin(a) / 1.0)).reshape(1, -1, h, w)
        kernel = torch.softmax(self.ke(a).view(b, self.n, 1, 1, 1, 1) / 1.0, 1)
        spatial = torch.sigmoid(self.sp(a).view(b, 1, 1, 1, self.k, self.k))
        weight = (spatial * kernel * self.weight.unsqueeze(0)).sum(1).view(-1, c, self.k, self.k)
        y = F.conv2d(x, weight, padding=1, groups=b).view(b, self.o, h, w)
        return y * torch.sigmoid(self.cout(a))


class DbHead(nn.Module):
    """Text in pictures: a threshold for each place, and a step that is soft."""

    def __init__(self, c=8, k=50):
        super().__init__()
        def head():
            return nn.Sequential(nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.ReLU(inplace=True), nn.ConvTranspose2d(c, c, 2, 2), nn.BatchNorm2d(c), nn.ReLU(inplace=True), nn.ConvTranspose2d(c, 1, 2, 2), nn.Sigmoid())
        self.stem, self.prob, self.thresh, self.k = nn.Conv2d(3, c, 4, 4), head(), head(), k

    def forward(self, x):
        x = self.stem(x)
        p, t = self.prob(x), self.thresh(x)
        return torch.cat([p, t, torch.reciprocal(1 + torch.exp(-self.k * (p - t)))], 1)


class ConditionalBn(nn.Module):
    """BigGAN: norms without weights of their own, whose gains a label gives; one vector cut for all layers."""

    def __init__(self, c=8, z=4):
        super().__init__()
        self.shared, self.first = nn.Embedding(5, 6), nn.Linear(z, c * 16)
        self.gain, self.bias = nn.Linear(6 + z, c, bias=False), nn.Linear(6 + z, c, bias=False)
        self.bn, self.conv, self.skip = nn.BatchNorm2d(c, affine=False), nn.Conv2d(c, 3, 3, padding=1), nn.Conv2d(c, 3, 1)

    def forward(self, z, y):
        z1, z2 = z.chunk(2, 1)
        x = self.first(z1).view(z.shape[0], -1, 4, 4)
        c = torch.cat([self.shared(y), z2], 1)
        h = self.bn(x) * (1 + self.gain(c))[..., None, None] + self.bias(c)[..., None, None]
        up = F.interpolate(F.relu(h), scale_factor=2)
        return torch.tanh(self.conv(up) + self.skip(F.interpolate(x, scale_factor=2)))


class Dreamer(nn.Module):
    """Signs and logarithms of what is seen, classes mixed with a uniform one, mean of a support that is fixed."""

    def __init__(self, d=16, k=4, n=3):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(6, d), nn.RMSNorm(d, eps=1e-3), nn.SiLU())
        self.logits, self.head, self.shape = nn.Linear(d, n * k), nn.Linear(n * k, 11), (n, k)
        self.register_buffer("bins", torch.linspace(-5, 5, 11))

    def forward(self, x):
        x = torch.sign(x) * torch.log1p(x.abs())
        p = torch.softmax(self.logits(self.enc(x)).view(-1, *self.shape), -1)
        p = .99 * p + .01 / self.shape[1]
        y = (torch.softmax(self.head(p.flatten(1)), -1) * self.bins).sum(-1, keepdim=True)
        return torch.sign(y) * torch.expm1(y.abs())


class Gcn2(nn.Module):
    """Deep graph nets: the first state is mixed in again, weights go towards the identity."""

    def __init__(self, n=7, d=8, layers=3):
        super().__init__()
        a = (torch.rand(n, n) < .4).float()
        a = ((a + a.t()) > 0).float() + torch.eye(n)
        a = a / a.sum(1, keepdim=True).sqrt() / a.sum(0, keepdim=True).sqrt()
        self.register_buffer("adj", a)
        self.inp, self.out = nn.Linear(5, d), nn.Linear(d, 3)
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(d, d) * .3) for _ in range(layers))

    def forward(self, x):
        h0 = h = F.relu(self.inp(x))
        for k, w in enumerate(self.weights):
            beta = math.log(0.5 / (k + 1) + 1)
            y = 0.9 * (self.adj @ h) + 0.1 * h0
            h = F.relu((1 - beta) * y + beta * (y @ w))
        return F.log_softmax(self.out(h), -1)


class LightGcn(nn.Module):
    """Users and things on a graph: tables are smoothed several times, then compared."""

    def __init__(self, users=6, items=9, d=5):
        super().__init__()
        self.user, self.item, self.users = nn.Embedding(users, d), nn.Embedding(items, d), users
        r = (torch.rand(users, items) < .4).float()
        a = torch.cat([torch.cat([torch.zeros(users, users), r], 1), torch.cat([r.t(), torch.zeros(items, items)], 1)])
        deg = a.sum(1).clamp(min=1).rsqrt()
        self.register_buffer("graph", deg[:, None] * a * deg)

    def forward(self, u, i):
        e = torch.cat([self.user.weight, self.item.weight])
        all_ = [e]
        for _ in range(3):
            e = self.graph @ e
            all_.append(e)
        e = torch.stack(all_, 1).mean(1)
        users, items = torch.split(e, [self.users, e.shape[0] - self.users])
        return (users[u] * items[i]).sum(1, keepdim=True)


class TabR(nn.Module):
    """A table's row asks the rows that were seen: distances, the nearest, their labels."""

    def __init__(self, n=30, d=8, k=5):
        super().__init__()
        self.register_buffer("rows", torch.randn(n, 6))
        self.register_buffer("labels", torch.randint(0, 3, (n,)))
        self.enc, self.key, self.label = nn.Sequential(nn.Linear(6, d), nn.ReLU(), nn.Linear(d, d)), nn.Linear(d, d), nn.Embedding(3, d)
        self.t, self.head, self.k = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d, bias=False)), nn.Linear(d, 3), k

    def forward(self, x):
        h = self.enc(x)
        q, c = self.key(h), self.key(self.enc(self.rows))
        d = q.square().sum(-1, keepdim=True) - 2 * q @ c.t() + c.square().sum(-1)
        near, idx = torch.topk(-d, self.k)
        w = torch.softmax(near, -1)
        v = self.label(self.labels[idx]) + self.t(q[:, None] - c[idx])
        return self.head(h + (w[..., None] * v).sum(1))


class RealMlp(nn.Module):
    """Layers with weights over the square root of their width, a gain of each column, a slope of its own."""

    def __init__(self, d=12):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(7))
        self.w1, self.b1 = nn.Parameter(torch.randn(7, d)), nn.Parameter(torch.randn(1, d))
        self.w2, self.b2 = nn.Parameter(torch.randn(d, 3)), nn.Parameter(torch.randn(1, 3))
        self.alpha = nn.Parameter(torch.ones(1, d))
        self.register_buffer("median", torch.randn(7))
        self.register_buffer("factors", torch.rand(7) + .5)

    def forward(self, x):
        x = (x - self.median[None]) * self.factors[None]
        x = (x / (1 + (x / 3) ** 2).sqrt()) * self.scale[None]
        y = x @ self.w1 * (1 / math.sqrt(7)) + 0.1 * self.b1
        y = y + self.alpha * (F.mish(y) - y)
        return y @ self.w2 * (1 / math.sqrt(y.shape[-1])) + 0.1 * self.b2


class Ensembled(nn.Module):
    """Four nets in one call: their weights in one stack, by vmap."""

    def __init__(self, n=4):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(n, 8, 5) * .4), nn.Parameter(torch.zeros(n, 8))
        self.c = nn.Parameter(torch.randn(n, 2, 8) * .4)

    def forward(self, x):
        def net(a, b, c, x):
            return F.linear(torch.tanh(F.linear(x, a, b)), c)
        return torch.vmap(net, in_dims=(0, 0, 0, None))(self.a, self.b, self.c, x).mean(0)


class SwinV2Block(nn.Module):
    """Cosines as attention, with a scale of each head that is bounded, and a small net for the places."""

    def __init__(self, d=12, h=3, w=4):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.log(10 * torch.ones(h, 1, 1)))
        self.cpb = nn.Sequential(nn.Linear(2, 16), nn.ReLU(inplace=True), nn.Linear(16, h, bias=False))
        self.qkv, self.q_bias, self.v_bias = nn.Linear(d, 3 * d, bias=False), nn.Parameter(torch.zeros(d)), nn.Parameter(torch.zeros(d))
        g = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(w), indexing="ij")).flatten(1)
        rel = (g[:, :, None] - g[:, None]).permute(1, 2, 0)
        t = torch.stack(torch.meshgrid(torch.arange(1 - w, w).float(), torch.arange(1 - w, w).float(), indexing="ij"), -1) / (w - 1) * 8
        self.register_buffer("table", torch.sign(t) * torch.log2(t.abs() + 1) / 3, persistent=False)
        self.register_buffer("index", (rel[..., 0] + w - 1) * (2 * w - 1) + rel[..., 1] + w - 1, persistent=False)
        self.proj, self.h, self.w, self.norm = nn.Linear(d, d), h, w, nn.LayerNorm(d)

    def forward(self, x):
        b, s, _, d = x.shape
        y = torch.roll(x, (-2, -2), (1, 2)).view(b, s // self.w, self.w, s // self.w, self.w, d).transpose(2, 3).reshape(-1, self.w ** 2, d)
        bias = torch.cat([self.q_bias, torch.zeros_like(self.v_bias, requires_grad=False), self.v_bias])
        q, k, v = F.linear(y, self.qkv.weight, bias).view(-1, self.w ** 2, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4).unbind(0)
        a = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        a = a * torch.clamp(self.logit_scale, max=math.log(100.)).exp()
        p = self.cpb(self.table.to(x.dtype)).view(-1, self.h)[self.index.view(-1)].view(self.w ** 2, self.w ** 2, -1).permute(2, 0, 1)
        y = (torch.softmax(a + 16 * torch.sigmoid(p)[None], -1) @ v).transpose(1, 2).reshape(-1, self.w ** 2, d)
        y = self.proj(y).view(b, s // self.w, s // self.w, self.w, self.w, d).transpose(2, 3).reshape(b, s, s, d)
        return x + self.norm(torch.roll(y, (2, 2), (1, 2)))


class Grouped(nn.Module):
    """Fewer heads for keys than for queries, by the call that does it, with a causal mask."""

    def __init__(self, d=16, h=4, g=2):
        super().__init__()
        self.q, self.kv, self.o, self.h, self.g = nn.Linear(d, d, bias=False), nn.Linear(d, 2 * d * g // h, bias=False), nn.Linear(d, d), h, g
        self.qn, self.kn = nn.RMSNorm(d // h), nn.RMSNorm(d // h)

    def forward(self, x):
        b, n, d = x.shape
        q = self.qn(self.q(x).view(b, n, self.h, -1)).transpose(1, 2)
        k, v = self.kv(x).view(b, n, 2, self.g, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, self.kn(k), v, is_causal=True, scale=.3, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(b, n, d))


class Pools(nn.Module):
    """Poolings with the options that nobody uses."""

    def __init__(self):
        super().__init__()
        self.net = nn.ModuleList([nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), nn.LPPool2d(2, 2),
                                  nn.AdaptiveAvgPool2d((None, 3)), nn.MaxPool2d(3, 2, 1, dilation=2, ceil_mode=True)])
        self.conv, self.out = nn.Conv2d(3, 4, 3, padding="same", padding_mode="reflect"), nn.Linear(16, 2)

    def forward(self, x):
        x = self.conv(x).abs() + .1
        return self.out(torch.cat([p(x).flatten(2).mean(-1) for p in self.net], 1))


class Paddings(nn.Module):
    """Convolutions of odd and even kernels with all paddings, one and three dimensions, forth and back."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv1d(3, 6, 4, padding="same", dilation=3, padding_mode="circular")
        self.b = nn.ConvTranspose1d(6, 4, 5, 3, 2, output_padding=2, groups=2, dilation=2)
        self.c = nn.Conv3d(1, 4, (1, 3, 2), (1, 2, 1), (0, 1, 1), padding_mode="replicate")
        self.d = nn.ConvTranspose3d(4, 2, (2, 3, 3), (2, 1, 2), (1, 0, 1), output_padding=(0, 0, 1), bias=False)
        self.e = nn.Linear(6, 3)

    def forward(self, x):
        y = self.b(torch.relu(self.a(x)))
        y = F.pad(y, (2, -5))
        z = self.d(torch.relu(self.c(y.unflatten(2, (4, -1))[:, None, :, :, :11])))
        return self.e(torch.cat([y.mean(-1), z.mean((2, 3, 4))], 1))


class Sampled(nn.Module):
    """Pictures turned and resampled by all modes."""

    def __init__(self):
        super().__init__()
        self.loc, self.conv = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 6)), nn.Conv2d(3, 4, 3, padding=1)
        self.out = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        t = 0.1 * self.loc(x).view(-1, 2, 3) + torch.eye(2, 3, dtype=x.dtype)
        y = self.conv(x)
        ys = []
        for mode, pad, corners in (("bilinear", "border", True), ("bilinear", "reflection", False), ("bicubic", "zeros", False), ("nearest", "zeros", True)):
            g = F.affine_grid(t, [x.shape[0], 4, 8, 8], align_corners=corners)
            ys.append(F.grid_sample(y, g, mode=mode, padding_mode=pad, align_corners=corners))
        return self.out(torch.cat(ys, 1))


class Scaled(nn.Module):
    """Sizes changed by each mode, up and down."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(20, 2, 1)

    def forward(self, x):
        x = self.conv(x)
        ys = [F.interpolate(x, (9, 7), mode="nearest-exact"), F.interpolate(x, (9, 7), mode="bicubic", align_corners=False),
              F.interpolate(x, (9, 7), mode="area"), F.interpolate(x, (9, 7), mode="bilinear", antialias=True),
              F.interpolate(x, (9, 7), mode="bicubic", align_corners=True)]
        return self.out(torch.cat(ys, 1))


class Running(nn.Module):
    """Sums along time, differences, places in a list."""

    def __init__(self):
        super().__init__()
        self.inp, self.out = nn.Linear(4, 4), nn.Linear(12, 3)
        self.register_buffer("edges", torch.tensor([-1., -.2, .3, 1.1]))
        self.emb = nn.Embedding(5, 4)

    def forward(self, x):
        y = self.inp(x)
        b = self.emb(torch.bucketize(x[..., 0], self.edges))
        return self.out(torch.cat([torch.cumsum(y, 1), F.pad(torch.diff(y, dim=1), (0, 0, 1, 0)), b], -1))


class Ordered(nn.Module):
    """Numbers in their order, and some in that of others."""

    def __init__(self):
        super().__init__()
        self.inp, self.out = nn.Linear(5, 7), nn.Linear(9, 3)

    def forward(self, x):
        y = self.inp(x)
        s, i = torch.sort(y, -1, descending=True)
        return self.out(torch.cat([s, torch.take_along_dim(y, torch.argsort(x, -1)[:, :2], 1)], -1))


class Written(nn.Module):
    """Elements written by index: copied, filled, added, scattered with sums and maxima."""

    def __init__(self):
        super().__init__()
        self.inp, self.row, self.out = nn.Linear(4, 6), nn.Parameter(torch.randn(6)), nn.Linear(6, 2)

    def forward(self, x, i):
        y = self.inp(x)
        z = torch.zeros_like(y).scatter_add(1, i[..., None].expand_as(y), y)
        z = z + torch.full_like(y, -1.).scatter_reduce(1, i[..., None].expand_as(y), y, "amax", include_self=True)
        z = z + torch.zeros_like(y).scatter_reduce(1, i[..., None].expand_as(y), y, "mean", include_self=False)
        z = z.index_copy(1, torch.tensor([1, 3]), y[:, :2]).index_fill(1, torch.tensor([0]), .5)
        z[:, -1] += self.row
        z[:, 2, 1:3] = y[:, 0, :2] * 2
        return self.out(torch.where(y > 0, z, self.row))


class Products(nn.Module):
    """Products by their rarer names."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.bil = nn.Parameter(torch.randn(5, 3, 4) * .3), nn.Parameter(torch.randn(4) * .3), nn.Bilinear(4, 5, 3)
        self.c, self.beta = nn.Parameter(torch.randn(2, 3) * .3), nn.Parameter(torch.tensor(.7))

    def forward(self, x, y):
        z = torch.tensordot(y, self.a, dims=([1], [0]))
        u = torch.addcmul(z, z, self.b.expand_as(z), value=.5) + torch.outer(torch.ones(3, dtype=x.dtype), self.b)
        v = torch.einsum("bij,j,bj->bi", u, self.b, x) + self.bil(x, y)
        m = torch.baddbmm(u, z.transpose(1, 2)[:, :3] @ z.transpose(1, 2)[:, :3].transpose(1, 2), u, beta=.3, alpha=.2)
        return torch.lerp(v, m.sum(-1), self.beta) @ self.c.t() + torch.addcdiv(v[:, :2], x[:, :2], 2 + y[:, :2] ** 2)


class NormMix(nn.Module):
    """Switchable normalisation: means and variances of three kinds, mixed by softmax."""

    def __init__(self, c=6):
        super().__init__()
        self.conv, self.weight, self.bias = nn.Conv2d(3, c, 3), nn.Parameter(torch.ones(1, c, 1, 1)), nn.Parameter(torch.zeros(1, c, 1, 1))
        self.mean_weight, self.var_weight = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))

    def forward(self, x):
        x = self.conv(x)
        m, v = x.mean((2, 3), keepdim=True), x.var((2, 3), keepdim=True)
        ml = m.mean(1, keepdim=True)
        vl = (v + m ** 2).mean(1, keepdim=True) - ml ** 2
        a, b = torch.softmax(self.mean_weight, 0), torch.softmax(self.var_weight, 0)
        x = (x - a[0] * m - a[1] * ml) / (b[0] * v + b[1] * vl + 1e-5).sqrt()
        return x * self.weight + self.bias


class Evonorm(nn.Module):
    """A norm that is its activation, and one of groups by thresholds (FRN with TLU)."""

    def __init__(self, c=6):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, c, 3), nn.Conv2d(c, c, 3)
        self.v, self.g, self.h = (nn.Parameter(torch.ones(1, c, 1, 1)) for _ in range(3))
        self.be, self.bf, self.tau = (nn.Parameter(torch.zeros(1, c, 1, 1)) for _ in range(3))
        self.eps = nn.Parameter(torch.full((1, c, 1, 1), 1e-3))

    def forward(self, x):
        x = self.a(x)
        n, c, h, w = x.shape
        std = (x.view(n, 2, -1).var(-1, keepdim=True) + 1e-5).sqrt().expand(n, 2, c // 2).reshape(n, c, 1, 1)
        x = self.b(x * torch.sigmoid(self.v * x) / std * self.g + self.be)
        x = x * torch.rsqrt(x.pow(2).mean((2, 3), keepdim=True) + self.eps.abs())
        return torch.max(self.h * x + self.bf, self.tau)


class Activations(nn.Module):
    """Activations with parameters: slopes, ACON, SReLU, Meta-ACON, a power."""

    def __init__(self, c=6):
        super().__init__()
        self.fc, self.out = nn.Linear(4, c), nn.Linear(c, 2)
        self.p1, self.p2, self.beta = nn.Parameter(torch.randn(1, c)), nn.Parameter(torch.randn(1, c)), nn.Parameter(torch.ones(1, c))
        self.tl, self.al, self.tr, self.ar = nn.Parameter(torch.zeros(c)), nn.Parameter(torch.full((c,), .1)), nn.Parameter(torch.ones(c)), nn.Parameter(torch.full((c,), .2))
        self.p = nn.Parameter(torch.tensor(2.))

    def forward(self, x):
        x = self.fc(x)
        x = (self.p1 - self.p2) * x * torch.sigmoid(self.beta * (self.p1 - self.p2) * x) + self.p2 * x
        x = torch.where(x <= self.tl, self.tl + self.al * (x - self.tl), torch.where(x >= self.tr, self.tr + self.ar * (x - self.tr), x))
        return self.out(x.abs().clamp(min=1e-3) ** self.p * x.sign())


class Tide(nn.Module):
    """A forecast by dense residual blocks, with covariates of each step and the last level added."""

    def __init__(self, l=12, h=6, d=16):
        super().__init__()
        def block(i, o):
            return nn.ModuleDict({"a": nn.Linear(i, d), "b": nn.Linear(d, o), "skip": nn.Linear(i, o), "norm": nn.LayerNorm(o)})
        self.feat, self.enc, self.dec, self.temp = block(3, 2), block(l + 2 * (l + h), d), block(d, 4 * h), block(4 + 2, 1)
        self.skip, self.h = nn.Linear(l, h), h

    @staticmethod
    def run(m, x):
        return m["norm"](m["b"](F.relu(m["a"](x))) + m["skip"](x))

    def forward(self, x, cov):
        f = self.run(self.feat, cov)
        y = self.run(self.dec, self.run(self.enc, torch.cat([x, f.flatten(1)], 1))).view(-1, self.h, 4)
        return self.run(self.temp, torch.cat([y, f[:, -self.h:]], -1)).squeeze(-1) + self.skip(x) + x[:, -1:]


class Fits(nn.Module):
    """Low waves of a series through one complex layer, to more of them."""

    def __init__(self, n=16, m=24, cut=6):
        super().__init__()
        self.n, self.m, self.cut = n, m, cut
        self.re, self.im = nn.Linear(cut, cut * m // n), nn.Linear(cut, cut * m // n)

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        x = x - mean
        std = torch.sqrt(x.var(1, keepdim=True) + 1e-5)
        f = torch.fft.rfft((x / std).transpose(1, 2))[..., :self.cut]
        re = self.re(f.real) - self.im(f.imag)
        im = self.re(f.imag) + self.im(f.real)
        pad = self.m // 2 + 1 - re.shape[-1]
        y = torch.fft.irfft(torch.complex(F.pad(re, (0, pad)), F.pad(im, (0, pad))), n=self.m) * (self.m / self.n)
        return y.transpose(1, 2) * std + mean


class SegRnn(nn.Module):
    """Pieces of a series in one cell; what comes is asked by places and channels."""

    def __init__(self, c=3, seg=4, d=8, l=16, h=8):
        super().__init__()
        self.emb, self.rnn = nn.Sequential(nn.Linear(seg, d), nn.ReLU()), nn.GRU(d, d, batch_first=True)
        self.pos, self.ch = nn.Parameter(torch.randn(h // seg, d // 2)), nn.Parameter(torch.randn(c, d // 2))
        self.out, self.seg, self.d, self.c = nn.Linear(d, seg), seg, d, c

    def forward(self, x):
        b = x.shape[0]
        last = x[:, -1:].detach()
        y = (x - last).permute(0, 2, 1).reshape(b * self.c, -1, self.seg)
        _, h = self.rnn(self.emb(y))
        q = torch.cat([self.pos.unsqueeze(0).repeat(self.c, 1, 1), self.ch.unsqueeze(1).repeat(1, self.pos.shape[0], 1)], -1).view(-1, 1, self.d).repeat(b, 1, 1)
        _, y = self.rnn(q, h.repeat(1, 1, self.pos.shape[0]).view(1, -1, self.d))
        return self.out(y).view(b, self.c, -1).permute(0, 2, 1) + last


class Appnp(nn.Module):
    """Predictions spread over the edges of a graph ten times, by sums where they arrive."""
    one_sample = True

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x, edges, weight):
        h = z = self.net(x)
        deg = torch.zeros(x.shape[0], dtype=x.dtype).scatter_add(0, edges[1], weight)
        norm = deg.pow(-.5)
        norm = norm.masked_fill(norm == float("inf"), 0.)
        w = (norm[edges[0]] * weight * norm[edges[1]])[:, None]
        for _ in range(4):
            z = .8 * torch.zeros_like(z).index_add_(0, edges[1], w * z[edges[0]]) + .2 * h
        return torch.log_softmax(z, -1)


class NnConv(nn.Module):
    """Messages by a matrix that a net makes of each edge, a cell as update."""
    one_sample = True

    def __init__(self, d=6):
        super().__init__()
        self.inp, self.edge, self.root, self.d = nn.Linear(4, d), nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, d * d)), nn.Parameter(torch.randn(d, d) * .3), d
        self.bias, self.gru, self.out = nn.Parameter(torch.zeros(d)), nn.GRU(d, d), nn.Linear(d, 2)

    def forward(self, x, edges, attr):
        x = F.relu(self.inp(x))
        h = x.unsqueeze(0)
        w = self.edge(attr).view(-1, self.d, self.d)
        n = torch.zeros(x.shape[0], dtype=x.dtype).index_add(0, edges[1], torch.ones(edges.shape[1], dtype=x.dtype)).clamp(min=1)
        for _ in range(2):
            m = torch.matmul(x[edges[0]].unsqueeze(1), w).squeeze(1)
            a = torch.zeros_like(x).index_add(0, edges[1], m) / n[:, None] + x @ self.root + self.bias
            y, h = self.gru(F.relu(a).unsqueeze(0), h)
            x = y.squeeze(0)
        return self.out(x)


class BigVgan(nn.Module):
    """Snakes between a filter that doubles the rate and one that halves it; the filters are buffers."""

    def __init__(self, c=4, k=12):
        super().__init__()
        self.alpha, self.beta = nn.Parameter(torch.zeros(c)), nn.Parameter(torch.zeros(c))
        n = torch.arange(k) - k / 2 + .5
        f = torch.sinc(.5 * n) * torch.kaiser_window(k, False, 4.66)
        self.register_buffer("filter", (f / f.sum()).view(1, 1, k))
        self.register_buffer("lowpass", (f / f.sum()).view(1, 1, k).clone())
        self.a, self.b = nn.utils.parametrizations.weight_norm(nn.Conv1d(2, c, 3, padding=1)), nn.utils.parametrizations.weight_norm(nn.Conv1d(c, 1, 7, padding=3))

    def forward(self, x):
        x = self.a(x)
        c = x.shape[1]
        y = F.pad(x, (5, 5), mode="replicate")
        y = 2 * F.conv_transpose1d(y, self.filter.expand(c, -1, -1), stride=2, groups=c)[..., 15:-15]
        a, b = torch.exp(self.alpha)[None, :, None], torch.exp(self.beta)[None, :, None]
        y = y + (1 / (b + 1e-9)) * torch.sin(y * a).pow(2)
        y = F.conv1d(F.pad(y, (5, 6), mode="replicate"), self.lowpass.expand(c, -1, -1), stride=2, groups=c)
        return torch.tanh(self.b(y))


class VitsBlock(nn.Module):
    """Text encoder with relative places in windows, and a flow of couplings that turn channels around."""

    def __init__(self, d=8, h=2, w=2):
        super().__init__()
        self.emb, self.h, self.w = nn.Embedding(100, d), h, w
        self.q, self.k, self.v, self.o = (nn.Conv1d(d, d, 1) for _ in range(4))
        self.rk, self.rv = nn.Parameter(torch.randn(1, 2 * w + 1, d // h) * .3), nn.Parameter(torch.randn(1, 2 * w + 1, d // h) * .3)
        self.pre, self.post = nn.utils.parametrizations.weight_norm(nn.Conv1d(d // 2, d, 3, padding=1)), nn.Conv1d(d // 2, d // 2, 1)
        self.gamma, self.beta = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def rel(self, r, n):
        pad = max(n - self.w - 1, 0)
        r = F.pad(r, (0, 0, pad, pad))
        start = max(self.w + 1 - n, 0)
        return r[:, start:start + 2 * n - 1]

    def forward(self, ids):
        x = (self.emb(ids) * math.sqrt(8)).transpose(1, 2)
        b, d, n = x.shape
        q, k, v = (f(x).view(b, self.h, -1, n).transpose(2, 3) for f in (self.q, self.k, self.v))
        s = q / math.sqrt(d // self.h) @ k.transpose(2, 3)
        r = (q / math.sqrt(d // self.h)) @ self.rel(self.rk, n).unsqueeze(0).transpose(-2, -1)
        r = F.pad(F.pad(r, (0, 1)).view(b, self.h, -1), (0, n - 1)).view(b, self.h, n + 1, 2 * n - 1)[:, :, :n, n - 1:]
        p = torch.softmax(s + r, -1)
        y = p @ v
        a = F.pad(F.pad(p, (0, n - 1)).view(b, self.h, -1), (n, 0)).view(b, self.h, n, 2 * n)[:, :, :, 1:]
        y = y + a @ self.rel(self.rv, n).unsqueeze(0)
        x = x + self.o(y.transpose(2, 3).reshape(b, d, n))
        x = F.layer_norm(x.transpose(1, -1), (d,), self.gamma, self.beta, 1e-5).transpose(1, -1)
        for _ in range(2):
            x0, x1 = torch.split(x, [d // 2] * 2, 1)
            t, g = self.pre(x0).chunk(2, 1)
            x = torch.flip(torch.cat([x0, x1 + self.post(torch.tanh(t) * torch.sigmoid(g))], 1), [1])
        return x


class Regulated(nn.Module):
    """Durations are predicted, and each token is repeated as long as it lasts, by a soft alignment of Gaussians."""

    def __init__(self, d=8, frames=20):
        super().__init__()
        self.emb, self.dur, self.out, self.frames = nn.Embedding(100, d), nn.Sequential(nn.Conv1d(d, d, 3, padding=1), nn.ReLU(), nn.Conv1d(d, 1, 1)), nn.Linear(d, 4), frames
        self.delta = nn.Parameter(torch.tensor(0.1))

    def forward(self, ids):
        x = self.emb(ids)
        d = F.softplus(self.dur(x.transpose(1, 2)).squeeze(1))
        c = d.cumsum(-1) - d / 2
        t = torch.arange(self.frames, dtype=x.dtype)[None, :, None]
        w = torch.softmax(-self.delta * (t - c[:, None]) ** 2, -1)
        return self.out(w @ x)


class UNetMid(nn.Module):
    """A diffusion net: residual blocks with time, attention over pictures and text, GEGLU, steps down and up."""

    def __init__(self, c=8, t=12):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(c, t), nn.SiLU(), nn.Linear(t, t))
        self.inp, self.down, self.upc = nn.Conv2d(3, c, 3, padding=1), nn.Conv2d(c, c, 3, 2), nn.Conv2d(c, c, 3, padding=1)
        self.n1, self.c1, self.te, self.n2, self.c2 = nn.GroupNorm(4, c, eps=1e-6), nn.Conv2d(c, c, 3, padding=1), nn.Linear(t, 2 * c), nn.GroupNorm(4, c), nn.Conv2d(c, c, 3, padding=1)
        self.gn, self.pin, self.pout = nn.GroupNorm(4, c), nn.Conv2d(c, c, 1), nn.Conv2d(c, c, 1)
        self.l1, self.l2, self.l3 = nn.LayerNorm(c), nn.LayerNorm(c), nn.LayerNorm(c)
        self.a1 = nn.MultiheadAttention(c, 2, batch_first=True)
        self.a2 = nn.MultiheadAttention(c, 2, batch_first=True, kdim=6, vdim=6)
        self.ff1, self.ff2, self.out = nn.Linear(c, 8 * c), nn.Linear(4 * c, c), nn.Conv2d(2 * c, 3, 3, padding=1)

    def forward(self, x, t, text):
        half = 4
        f = torch.exp(-math.log(10000) * torch.arange(half, dtype=x.dtype) / (half - 1))
        a = t[:, None] * f[None]
        e = self.time(torch.cat([a.cos(), a.sin()], -1))
        skip = h = self.inp(x)
        h = self.down(F.pad(h, (0, 1, 0, 1)))
        scale, shift = self.te(F.silu(e))[:, :, None, None].chunk(2, 1)
        h = h + self.c2(F.silu(self.n2(self.c1(F.silu(self.n1(h)))) * (1 + scale) + shift))
        b, c, y, w = h.shape
        s = self.pin(self.gn(h)).permute(0, 2, 3, 1).reshape(b, y * w, c)
        n = self.l1(s)
        s = s + self.a1(n, n, n, need_weights=False)[0]
        s = s + self.a2(self.l2(s), text, text, need_weights=False)[0]
        u, g = self.ff1(self.l3(s)).chunk(2, -1)
        s = s + self.ff2(u * F.gelu(g))
        h = h + self.pout(s.reshape(b, y, w, c).permute(0, 3, 1, 2))
        return self.out(torch.cat([self.upc(F.interpolate(h, scale_factor=2.0, mode="nearest")), skip], 1))


class ExpertLoop(nn.Module):
    """Experts as written for training: each takes the tokens that chose it, and adds to their places."""
    one_sample = True

    def __init__(self, d=8, n=4, k=2):
        super().__init__()
        self.gate, self.experts, self.k = nn.Linear(d, n, bias=False), nn.ModuleList(nn.Sequential(nn.Linear(d, 12), nn.SiLU(), nn.Linear(12, d)) for _ in range(n)), k
        self.shared, self.shared_gate = nn.Linear(d, d), nn.Linear(d, 1, bias=False)
        self.register_buffer("e_score_correction_bias", torch.randn(n) * .1)

    def forward(self, x):
        y = x.flatten(0, 1)
        s = torch.sigmoid(self.gate(y))
        _, i = torch.topk(s + self.e_score_correction_bias, self.k)
        w = s.gather(1, i)
        w = 2.5 * w / (w.sum(-1, keepdim=True) + 1e-20)
        out = torch.zeros_like(y)
        for k, f in enumerate(self.experts):
            here = (i == k).to(y.dtype) * w
            out = out + f(y) * here.sum(-1, keepdim=True)
        return (out + torch.sigmoid(self.shared_gate(y)) * self.shared(y)).view_as(x)


class YoloDecode(nn.Module):
    """Anchors and cells as buffers; boxes of two scales in pixels."""

    def __init__(self, a=3, n=4):
        super().__init__()
        self.register_buffer("anchors", torch.tensor([[10., 13, 16, 30, 33, 23], [30, 61, 62, 45, 59, 119]]).view(2, a, 2))
        self.register_buffer("anchor_grid", self.anchors.clone().view(2, 1, a, 1, 1, 2))
        self.stem, self.down = nn.Conv2d(3, 8, 4, 4), nn.Conv2d(8, 8, 3, 2, 1)
        self.m, self.n, self.a = nn.ModuleList(nn.Conv2d(8, a * (n + 5), 1) for _ in range(2)), n, a
        self.stride = torch.tensor([4., 8.])

    def forward(self, x):
        p, out = [self.stem(x)], []
        p.append(self.down(F.silu(p[0])))
        for i, (f, q) in enumerate(zip(self.m, p)):
            b, _, h, w = q.shape
            y = f(q).view(b, self.a, self.n + 5, h, w).permute(0, 1, 3, 4, 2).contiguous().sigmoid()
            g = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(h), indexing="xy"), 2).view(1, 1, h, w, 2).to(y.dtype) - .5
            xy, wh, c = y.split((2, 2, self.n + 1), 4)
            out.append(torch.cat(((xy * 2 + g) * self.stride[i].to(y.dtype), (wh * 2) ** 2 * self.anchor_grid[i], c), 4).view(b, -1, self.n + 5))
        return torch.cat(out, 1)


class QueryGen(nn.Module):
    """Boxes refined from learned points, layer by layer, through the inverse of a sigmoid, as DAB-DETR has them."""

    def __init__(self, d=8, n=5):
        super().__init__()
        self.refpoint, self.tgt = nn.Embedding(n, 4), nn.Embedding(n, d)
        self.att, self.box, self.cls = nn.MultiheadAttention(d, 2, batch_first=True), nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 4)), nn.Linear(d, 3)
        self.ref, self.norms = nn.Linear(16, d), nn.ModuleList(nn.LayerNorm(d) for _ in range(2))

    def forward(self, mem):
        b = mem.shape[0]
        r = self.refpoint.weight.unsqueeze(0).expand(b, -1, -1).sigmoid()
        q = self.tgt.weight[None].repeat(b, 1, 1)
        dim_t = 20. ** (2 * (torch.arange(4) // 2).to(mem.dtype) / 4)
        for norm in self.norms:
            p = r[..., None] * 2 * math.pi / dim_t
            p = torch.stack((p[..., 0::2].sin(), p[..., 1::2].cos()), -1).flatten(2)
            q = norm(q + self.att(q + self.ref(p), mem, mem)[0])
            x = r.clamp(min=0, max=1)
            x = torch.log(x.clamp(min=1e-5) / (1 - x).clamp(min=1e-5))
            r = (self.box(q) + x).sigmoid()
        return torch.cat([r, self.cls(q)], -1)


class Nested(nn.Module):
    """PyTorch's own encoder with its fast path, places that are learned, padding said by a mask."""

    def __init__(self, d=16):
        super().__init__()
        self.cls, self.pos = nn.Parameter(torch.zeros(1, 1, d)), nn.Parameter(torch.randn(1, 40, d) * .02)
        layer = nn.TransformerEncoderLayer(d, 4, 32, activation="gelu", batch_first=True, norm_first=False)
        self.enc, self.emb, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True), nn.Embedding(100, d, padding_idx=0), nn.Linear(d, 3)

    def forward(self, ids):
        x = torch.cat([self.cls.expand(ids.shape[0], -1, -1), self.emb(ids)], 1)
        pad = F.pad(ids == 0, (1, 0))
        return self.head(self.enc(x + self.pos[:, :x.shape[1]], src_key_padding_mask=pad)[:, 0])


class Joined(nn.Module):
    """Two parameters that are joined, or repeated and joined, before anything is computed with them."""

    def __init__(self, repeats, use):
        super().__init__()
        self.p, self.q = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.randn(3, 4))
        self.repeats, self.use, self.inp, self.out = repeats, use, nn.Linear(3, 8), nn.Linear(8, 2)
        if use == "cells":
            self.rnn = nn.GRU(8, 8, batch_first=True)
        if use == "heads":
            self.att = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        h = self.inp(x)
        t = torch.cat([self.p, self.q[:2]], -1)
        if self.repeats:
            t = torch.cat([self.p[None].repeat(3, 1, 1), self.q[:, None].expand(-1, 2, -1)], -1).view(-1, 8)
        if self.use == "cells":
            h = self.rnn(t[None].expand(x.shape[0], -1, -1), h.mean(1)[None].contiguous())[0]
        elif self.use == "heads":
            h = self.att(t[None].expand(x.shape[0], -1, -1), h, h)[0]
        elif self.use == "twice":
            h = h @ t.t() @ t
        else:
            h = F.layer_norm(t, (8,)) * h.mean(1, keepdim=True)
        return self.out(h)


class Lerped(nn.Module):
    """Two layers mixed by one number, or one for each channel."""

    def __init__(self, *shape):
        super().__init__()
        self.a, self.b, self.mix = nn.Linear(4, 4), nn.Linear(4, 4), nn.Parameter(torch.full(shape, .7))

    def forward(self, x):
        return torch.lerp(self.a(x), self.b(x), self.mix)


class Held(nn.Module):
    """A table that is only read behind detach(), turned or added."""

    def __init__(self, turns):
        super().__init__()
        self.fc, self.w, self.turns = nn.Linear(8, 8), nn.Parameter(torch.randn(5, 8)), turns

    def forward(self, x):
        if self.turns:
            return self.fc(x) @ self.w.detach().t()
        return self.fc(x) + self.w.detach().flip(0)[None]


def padded():
    x = ids()
    x[1, -4:] = 0
    return x


def graph(n=7):
    return torch.stack([torch.randint(0, n, (15,)), torch.randint(0, n, (15,))])


def atoms():
    i, j = torch.meshgrid(torch.arange(5), torch.arange(5), indexing="ij")
    keep = (i != j).flatten()
    return torch.stack([i.flatten()[keep], j.flatten()[keep]])


def places():
    return torch.randint(0, 5, (2, 5))


def some(n, *shape):
    return lambda: torch.randint(0, n, shape)


ALL = {
    "shop_dustbin": own(Dustbin, floats(2, 5, 8), floats(2, 6, 8)),
    "shop_bifpn": own(BiFpn, floats(2, 3, 16, 16)),
    "shop_painn": lambda: (Painn(), [torch.randint(0, 10, (5,)), torch.randn(5, 3), atoms()], [None] * 3),
    "shop_set2set": own(Set2Set, floats(2, 5, 6), lengths=[1]),
    "shop_kg_scores": own(KgScores, some(20, 2), some(5, 2), some(20, 2)),
    "shop_fedformer": own(Fedformer, floats(2, 16, 3)),
    "shop_informer": own(Informer, floats(2, 16, 16)),
    "shop_dprnn": own(Dprnn, floats(2, 1, 66)),
    "shop_rnnt": own(RnnTJoint, floats(2, 9, 5), some(12, 2, 4)),
    "shop_st_lstm": own(StLstm, floats(2, 3, 1, 8, 8)),
    "shop_rep_vgg": own(RepBlock, floats(2, 3, 8, 8)),
    "shop_odconv": own(OdConv, floats(2, 3, 8, 8)),
    "shop_db_head": own(DbHead, floats(2, 3, 16, 16)),
    "shop_biggan": own(ConditionalBn, floats(2, 8), some(5, 2)),
    "shop_dreamer": own(Dreamer, floats(2, 6)),
    "shop_gcn2": own(Gcn2, floats(2, 7, 5)),
    "shop_lightgcn": own(LightGcn, some(6, 2), some(9, 2)),
    "shop_tabr": own(TabR, floats(2, 6)),
    "shop_real_mlp": own(RealMlp, floats(2, 7)),
    "shop_vmap": own(Ensembled, floats(2, 5)),
    "shop_swin_v2": own(SwinV2Block, floats(2, 8, 8, 12)),
    "shop_gqa": own(Grouped, floats(2, 9, 16), lengths=[1]),
    "shop_pools": own(Pools, floats(2, 3, 11, 9)),
    "shop_paddings": own(Paddings, floats(2, 3, 17)),
    "shop_sampled": own(Sampled, floats(2, 3, 8, 8)),
    "shop_scaled": own(Scaled, floats(2, 3, 12, 11)),
    "shop_running": own(Running, floats(2, 7, 4)),
    "shop_ordered": own(Ordered, floats(2, 5)),
    "shop_written": own(Written, floats(2, 5, 4), places),
    "shop_products": own(Products, floats(2, 4), floats(2, 5)),
    "shop_switch_norm": own(NormMix, floats(2, 3, 8, 8)),
    "shop_evonorm": own(Evonorm, floats(2, 3, 9, 9)),
    "shop_activations": own(Activations, floats(2, 4)),
    "shop_tide": own(Tide, floats(2, 12), floats(2, 18, 3)),
    "shop_fits": own(Fits, floats(2, 16, 3)),
    "shop_segrnn": own(SegRnn, floats(2, 16, 3)),
    "shop_appnp": lambda: (Appnp(), [torch.randn(7, 5), graph(), torch.rand(15)], [None] * 3),
    "shop_nnconv": lambda: (NnConv(), [torch.randn(7, 4), graph(), torch.randn(15, 3)], [None] * 3),
    "shop_bigvgan": own(BigVgan, floats(2, 2, 24)),
    "shop_vits": own(VitsBlock, ids),
    "shop_regulated": own(Regulated, ids),
    "shop_unet_mid": own(UNetMid, floats(2, 3, 8, 8), floats(2), floats(2, 5, 6)),
    "shop_expert_loop": own(ExpertLoop, floats(2, 5, 8)),
    "shop_yolo_decode": own(YoloDecode, floats(2, 3, 32, 32)),
    "shop_dab_detr": own(QueryGen, floats(2, 6, 8)),
    "shop_nested": own(Nested, padded),
    **{"shop_joined_%s%s" % ("again_" if r else "", u): own(lambda r=r, u=u: Joined(r, u), floats(2, 5, 3))
       for r in (False, True) for u in ("norm", "cells", "heads", "twice")},
    "shop_lerp": own(Lerped, floats(2, 4)),
    "shop_lerp_channels": own(lambda: Lerped(4), floats(2, 4)),
    "shop_detached": own(lambda: Held(True), floats(2, 5, 8)),
    "shop_detached_rows": own(lambda: Held(False), floats(2, 5, 8)),
}
