"""What people write about pictures, for sweep.py: generators, detectors, segmentation, attention of many kinds."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from arch_plain import floats, own
from arch_sequences import words


def conv(a, b, k=3, s=1, **more):
    return nn.Sequential(nn.Conv2d(a, b, k, s, k // 2, bias=False, **more), nn.BatchNorm2d(b), nn.ReLU(inplace=True))


def time_embedding(t, width):
    half = width // 2
    f = torch.exp(torch.arange(half, device=t.device) * -(math.log(10000) / (half - 1)))
    a = t[:, None].float() * f[None, :]
    return torch.cat((a.sin(), a.cos()), dim=-1).to(t.dtype)


class ResBlock(nn.Module):
    def __init__(self, a, b, t):
        super().__init__()
        self.n1, self.c1, self.time = nn.GroupNorm(4, a), nn.Conv2d(a, b, 3, padding=1), nn.Linear(t, 2 * b)
        self.n2, self.c2 = nn.GroupNorm(4, b), nn.Conv2d(b, b, 3, padding=1)
        self.skip = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x, t):
        h = self.c1(F.silu(self.n1(x)))
        scale, shift = self.time(F.silu(t))[:, :, None, None].chunk(2, dim=1)
        return self.skip(x) + self.c2(F.silu(self.n2(h) * (1 + scale) + shift))


class Spots(nn.Module):
    """Attention of all places to all."""

    def __init__(self, c, heads=2):
        super().__init__()
        self.heads, self.norm, self.qkv, self.out = heads, nn.GroupNorm(4, c), nn.Conv2d(c, 3 * c, 1, bias=False), nn.Conv2d(c, c, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = [t.reshape(b, self.heads, c // self.heads, h * w) for t in self.qkv(self.norm(x)).chunk(3, dim=1)]
        s = torch.einsum("b h d i, b h d j -> b h i j", q * (c // self.heads) ** -0.5, k)
        s = s - s.amax(dim=-1, keepdim=True).detach()
        o = torch.einsum("b h i j, b h d j -> b h i d", s.softmax(dim=-1), v)
        return x + self.out(o.permute(0, 1, 3, 2).reshape(b, c, h, w))


class Ddpm(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, 4 * c))
        self.c, self.first, self.classes = c, nn.Conv2d(3, c, 3, padding=1), nn.Embedding(10, 4 * c)
        self.d1, self.down, self.d2 = ResBlock(c, c, 4 * c), nn.Conv2d(c, 2 * c, 4, 2, 1), ResBlock(2 * c, 2 * c, 4 * c)
        self.mid, self.u1 = Spots(2 * c), ResBlock(4 * c, 2 * c, 4 * c)
        self.up, self.u2 = nn.Conv2d(2 * c, c, 3, padding=1), ResBlock(2 * c, c, 4 * c)
        self.norm, self.last = nn.GroupNorm(4, c), nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, x, t, y):
        t = self.time(time_embedding(t, self.c)) + self.classes(y)
        a = self.d1(self.first(x), t)
        b = self.d2(self.down(a), t)
        u = self.u1(torch.cat((self.mid(b), b), dim=1), t)
        u = self.u2(torch.cat((self.up(F.interpolate(u, scale_factor=2.0, mode="nearest")), a), dim=1), t)
        return self.last(F.silu(self.norm(u)))


class Dit(nn.Module):
    """A transformer that removes noise, its norms shifted by the time."""

    def __init__(self, d=32, side=8, patch=2):
        super().__init__()
        self.patch, self.embed = patch, nn.Conv2d(3, d, patch, patch)
        self.register_buffer("places", 0.1 * torch.randn(1, (side // patch) ** 2, d))
        self.t = nn.Sequential(nn.Linear(16, d), nn.SiLU(), nn.Linear(d, d))
        self.norm1, self.norm2, self.att = nn.LayerNorm(d, elementwise_affine=False, eps=1e-6), nn.LayerNorm(d, elementwise_affine=False, eps=1e-6), nn.Linear(d, 3 * d)
        self.proj, self.mlp = nn.Linear(d, d), nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(approximate="tanh"), nn.Linear(2 * d, d))
        self.ada, self.final = nn.Sequential(nn.SiLU(), nn.Linear(d, 6 * d)), nn.Linear(d, patch * patch * 3)

    def forward(self, x, t):
        h = self.embed(x).flatten(2).transpose(1, 2) + self.places
        b, n, d = h.shape
        c = self.t(time_embedding(t, 16))
        sa, ga, oa, sm, gm, om = self.ada(c).chunk(6, dim=1)
        y = self.norm1(h) * (1 + ga.unsqueeze(1)) + sa.unsqueeze(1)
        q, k, v = self.att(y).reshape(b, n, 3, 4, d // 4).permute(2, 0, 3, 1, 4).unbind(0)
        h = h + oa.unsqueeze(1) * self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))
        h = h + om.unsqueeze(1) * self.mlp(self.norm2(h) * (1 + gm.unsqueeze(1)) + sm.unsqueeze(1))
        p, s = self.patch, int(n ** 0.5)
        y = self.final(h).reshape(b, s, s, p, p, 3)
        return torch.einsum("nhwpqc->nchpwq", y).reshape(b, 3, s * p, s * p)


class Fcos(nn.Module):
    """Boxes without anchors, of two levels with one head."""

    def __init__(self):
        super().__init__()
        self.a, self.b = conv(3, 16, 3, 4), conv(16, 16, 3, 2)
        self.tower = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU())
        self.cls, self.box, self.centre = nn.Conv2d(16, 3, 3, padding=1), nn.Conv2d(16, 4, 3, padding=1), nn.Conv2d(16, 1, 3, padding=1)
        self.scales = nn.ParameterList([nn.Parameter(torch.tensor([1.0])), nn.Parameter(torch.tensor([1.2]))])

    def forward(self, x):
        a = self.a(x)
        out = []
        for i, (f, s) in enumerate(zip((a, self.b(a)), self.scales)):
            t = self.tower(f)
            y = torch.cat([self.cls(t).sigmoid(), torch.exp(self.box(t) * s), self.centre(t)], dim=1)
            h, w = y.shape[-2:]
            at = torch.stack(torch.meshgrid(torch.arange(0, h * 4 * 2 ** i, 4 * 2 ** i), torch.arange(0, w * 4 * 2 ** i, 4 * 2 ** i), indexing="ij"), -1)
            y = y.permute(0, 2, 3, 1)
            xy = at.flip(-1).to(y.dtype) + 2
            out.append(torch.cat([y[..., :3], xy - y[..., 3:5], xy + y[..., 5:7], y[..., 7:]], -1).flatten(1, 2))
        return torch.cat(out, dim=1)


class CenterNet(nn.Module):
    """Peaks of a map of heat, the best of them with their sizes."""

    def __init__(self, k=5):
        super().__init__()
        self.k, self.net = k, nn.Sequential(conv(3, 16, 3, 2), conv(16, 16, 3, 2))
        self.heat, self.size = nn.Conv2d(16, 2, 1), nn.Conv2d(16, 2, 1)

    def forward(self, x):
        f = self.net(x)
        heat = self.heat(f).sigmoid()
        heat = heat * (F.max_pool2d(heat, 3, 1, 1) == heat).to(heat.dtype)
        b, c, h, w = heat.shape
        score, at = torch.topk(heat.view(b, -1), self.k)
        place = at % (h * w)
        size = self.size(f).flatten(2).gather(2, place[:, None].expand(-1, 2, -1)).transpose(1, 2)
        xy = torch.stack([place % w, torch.div(place, w, rounding_mode="floor")], -1).to(f.dtype)
        return torch.cat([xy - size / 2, xy + size / 2, score[..., None]], -1)


class Yolov8(nn.Module):
    """Distances as distributions, made boxes by an expectation; layers that are cut and joined."""

    def __init__(self, reg=8, classes=3):
        super().__init__()
        self.reg, self.nc = reg, classes
        self.stem, self.cut, self.m, self.join = conv(3, 16, 3, 2), conv(16, 16, 1), conv(8, 8), conv(24, 16, 1)
        self.pool, self.sppf = nn.MaxPool2d(5, 1, 2), conv(64, 16, 1)
        self.down = conv(16, 16, 3, 2)
        self.heads = nn.ModuleList(nn.Conv2d(16, 4 * reg + classes, 1) for _ in range(2))
        self.dfl = nn.Conv2d(reg, 1, 1, bias=False).requires_grad_(False)
        self.dfl.weight.data[:] = torch.arange(reg, dtype=torch.float).view(1, reg, 1, 1)

    def forward(self, x):
        y = list(self.cut(self.stem(x)).chunk(2, 1))
        y.append(self.m(y[-1]))
        x = self.join(torch.cat(y, 1))
        y = [x]
        y.extend(self.pool(y[-1]) for _ in range(3))
        x = self.sppf(torch.cat(y, 1))
        out, points, strides = [], [], []
        for f, head, s in zip((x, self.down(x)), self.heads, (2, 4)):
            p = head(f)
            h, w = p.shape[2:]
            sx, sy = torch.arange(w, dtype=x.dtype) + 0.5, torch.arange(h, dtype=x.dtype) + 0.5
            gy, gx = torch.meshgrid(sy, sx, indexing="ij")
            points.append(torch.stack((gx, gy), -1).view(-1, 2))
            strides.append(torch.full((h * w, 1), s, dtype=x.dtype))
            out.append(p.view(p.shape[0], self.reg * 4 + self.nc, -1))
        box, cls = torch.cat(out, 2).split((self.reg * 4, self.nc), 1)
        b, _, a = box.shape
        d = self.dfl(box.view(b, 4, self.reg, a).transpose(2, 1).softmax(1)).view(b, 4, a)
        lt, rb = d.chunk(2, 1)
        at, st = torch.cat(points).transpose(0, 1)[None], torch.cat(strides).transpose(0, 1)
        a1, a2 = at - lt, at + rb
        return torch.cat((torch.cat(((a1 + a2) / 2, a2 - a1), 1) * st, cls.sigmoid()), 1)


class Ssd(nn.Module):
    """Boxes of priors; each level with a norm whose scale is learned."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.scale = conv(3, 8, 3, 2), conv(8, 8, 3, 2), nn.Parameter(torch.full((8,), 20.0))
        self.loc, self.conf = (nn.ModuleList(nn.Conv2d(8, 2 * n, 3, padding=1) for _ in range(2)) for n in (4, 3))
        self.register_buffer("priors", torch.rand(2 * (64 + 16), 4) * 0.5 + 0.25)

    def forward(self, x):
        a = self.a(x)
        norm = a.pow(2).sum(dim=1, keepdim=True).sqrt() + 1e-10
        fs = [self.scale[None, :, None, None] * (a / norm), self.b(a)]
        loc = torch.cat([m(f).permute(0, 2, 3, 1).contiguous().view(x.size(0), -1) for m, f in zip(self.loc, fs)], 1).view(x.size(0), -1, 4)
        conf = torch.cat([m(f).permute(0, 2, 3, 1).contiguous().view(x.size(0), -1) for m, f in zip(self.conf, fs)], 1).view(x.size(0), -1, 3)
        p = self.priors.unsqueeze(0)
        xy, wh = p[..., :2] + loc[..., :2] * 0.1 * p[..., 2:], p[..., 2:] * torch.exp(loc[..., 2:] * 0.2)
        return torch.cat([xy - wh / 2, xy + wh / 2, F.softmax(conf, dim=-1)], -1)


class DeformableAttention(nn.Module):
    """Queries look at a few places of two levels."""

    def __init__(self, d=16, heads=2, points=3):
        super().__init__()
        self.h, self.p, self.d = heads, points, d
        self.off, self.w = nn.Linear(d, heads * 2 * points * 2), nn.Linear(d, heads * 2 * points)
        self.v, self.o, self.ref = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 2)

    def forward(self, q, a, b):
        n, lq, _ = q.shape
        ref = self.ref(q).sigmoid()
        off = self.off(q).view(n, lq, self.h, 2, self.p, 2)
        w = self.w(q).view(n, lq, self.h, 2 * self.p).softmax(-1)
        taken = []
        for i, f in enumerate((a, b)):
            hh, ww = f.shape[-2:]
            v = self.v(f.flatten(2).transpose(1, 2)).view(n, hh * ww, self.h, -1).permute(0, 2, 3, 1).reshape(n * self.h, -1, hh, ww)
            at = ref[:, :, None, None] + off[:, :, :, i] / torch.tensor([ww, hh], dtype=q.dtype)
            grid = (2 * at - 1).transpose(1, 2).flatten(0, 1)
            taken.append(F.grid_sample(v, grid, mode="bilinear", padding_mode="zeros", align_corners=False))
        w = w.transpose(1, 2).reshape(n * self.h, 1, lq, 2 * self.p)
        y = (torch.stack(taken, dim=-2).flatten(-2) * w).sum(-1).view(n, self.d, lq)
        return self.o(y.transpose(1, 2).contiguous())


class Correlation(nn.Module):
    """How far each place moved: products with what is near it, then a warp by what was found."""

    def __init__(self):
        super().__init__()
        self.f, self.net, self.r = conv(3, 8, 3, 2), nn.Sequential(nn.Conv2d(25 + 8, 16, 3, padding=1), nn.LeakyReLU(0.1), nn.Conv2d(16, 2, 3, padding=1)), 2

    def forward(self, a, b):
        a, b = self.f(a), self.f(b)
        h, w = a.shape[2:]
        p = F.pad(b, [self.r] * 4)
        c = torch.cat([(a * p[:, :, i:i + h, j:j + w]).mean(1, keepdim=True) for i in range(5) for j in range(5)], 1)
        flow = self.net(torch.cat([F.leaky_relu(c, 0.1), a], 1))
        gy, gx = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        at = torch.stack([gx, gy]).to(a.dtype)[None] + flow
        grid = torch.stack([2 * at[:, 0] / (w - 1) - 1, 2 * at[:, 1] / (h - 1) - 1], -1)
        return torch.cat([flow, F.grid_sample(b, grid, align_corners=True, padding_mode="border") - a], 1)


class Raft(nn.Module):
    """All pairs, then a GRU of convolutions that looks up and moves."""

    def __init__(self):
        super().__init__()
        self.f, self.z, self.r, self.q = nn.Conv2d(3, 8, 3, 4, 1), nn.Conv2d(8 + 11, 8, 3, padding=1), nn.Conv2d(8 + 11, 8, 3, padding=1), nn.Conv2d(8 + 11, 8, 3, padding=1)
        self.delta, self.mask = nn.Conv2d(8, 2, 3, padding=1), nn.Conv2d(8, 16 * 9, 1)

    def forward(self, a, b):
        a, b = self.f(a), self.f(b)
        n, c, h, w = a.shape
        corr = (a.view(n, c, h * w).transpose(1, 2) @ b.view(n, c, h * w) / c ** 0.5).reshape(n * h * w, 1, h, w)
        at0 = torch.stack(torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")[::-1]).to(a.dtype)[None].repeat(n, 1, 1, 1)
        at, net = at0, torch.tanh(a)
        d = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 3), torch.linspace(-1, 1, 3), indexing="ij"), -1).to(a.dtype)
        for _ in range(2):
            at = at.detach()
            grid = at.permute(0, 2, 3, 1).reshape(n * h * w, 1, 1, 2) + d.view(1, 3, 3, 2)
            x, y = grid.split([1, 1], dim=-1)
            looked = F.grid_sample(corr, torch.cat([2 * x / (w - 1) - 1, 2 * y / (h - 1) - 1], -1), align_corners=True)
            m = torch.cat([looked.view(n, h, w, 9).permute(0, 3, 1, 2), at - at0], 1)
            hx = torch.cat([net, m], 1)
            z, r = torch.sigmoid(self.z(hx)), torch.sigmoid(self.r(hx))
            net = (1 - z) * net + z * torch.tanh(self.q(torch.cat([r * net, m], 1)))
            at = at + self.delta(net)
        mask = torch.softmax(0.25 * self.mask(net).view(n, 1, 9, 4, 4, h, w), dim=2)
        up = F.unfold(4 * (at - at0), [3, 3], padding=1).view(n, 2, 9, 1, 1, h, w)
        return torch.sum(mask * up, dim=2).permute(0, 1, 4, 2, 5, 3).reshape(n, 2, 4 * h, 4 * w)


class LayerNorm2d(nn.Module):
    def __init__(self, c, eps=1e-6):
        super().__init__()
        self.weight, self.bias, self.eps = nn.Parameter(torch.ones(c)), nn.Parameter(torch.zeros(c)), eps

    def forward(self, x):
        mu = x.mean(1, keepdim=True)
        var = (x - mu).pow(2).mean(1, keepdim=True)
        return self.weight.view(1, -1, 1, 1) * ((x - mu) / (var + self.eps).sqrt()) + self.bias.view(1, -1, 1, 1)


class NafNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.a, self.n1, self.c1, self.dw = nn.Conv2d(3, c, 3, padding=1), LayerNorm2d(c), nn.Conv2d(c, 2 * c, 1), nn.Conv2d(2 * c, 2 * c, 3, padding=1, groups=2 * c)
        self.sca, self.c3, self.beta = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, c, 1)), nn.Conv2d(c, c, 1), nn.Parameter(torch.zeros((1, c, 1, 1)))
        self.n2, self.c4, self.c5, self.gamma = LayerNorm2d(c), nn.Conv2d(c, 2 * c, 1), nn.Conv2d(c, c, 1), nn.Parameter(torch.zeros((1, c, 1, 1)))
        self.last = nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, inp):
        x = self.a(inp)
        p, q = self.dw(self.c1(self.n1(x))).chunk(2, dim=1)
        y = p * q
        x = x + self.c3(y * self.sca(y)) * self.beta
        p, q = self.c4(self.n2(x)).chunk(2, dim=1)
        return self.last(x + self.c5(p * q) * self.gamma) + inp


class Restormer(nn.Module):
    """Attention of channels to channels, with a temperature for each head."""

    def __init__(self, c=8, heads=2):
        super().__init__()
        self.h, self.temp = heads, nn.Parameter(torch.ones(heads, 1, 1))
        self.first, self.qkv, self.dw = nn.Conv2d(3, c, 3, padding=1), nn.Conv2d(c, 3 * c, 1, bias=False), nn.Conv2d(3 * c, 3 * c, 3, padding=1, groups=3 * c, bias=False)
        self.out, self.inn, self.ffn, self.last = nn.Conv2d(c, c, 1), nn.Conv2d(c, 4 * c, 1), nn.Conv2d(2 * c, c, 1), nn.Conv2d(4 * c, 4 * c, 3, padding=1, groups=4 * c)
        self.head = nn.Conv2d(c // 4, 3, 3, padding=1)

    def forward(self, x):
        x = self.first(x)
        b, c, h, w = x.shape
        q, k, v = [t.view(b, self.h, c // self.h, h * w) for t in self.dw(self.qkv(x)).chunk(3, dim=1)]
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        x = x + self.out(((q @ k.transpose(-2, -1) * self.temp).softmax(dim=-1) @ v).view(b, c, h, w))
        p, q = self.last(self.inn(x)).chunk(2, dim=1)
        return self.head(F.pixel_shuffle(x + self.ffn(F.gelu(p) * q), 2))


class SegNet(nn.Module):
    """Pools whose places are used again."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.pool, self.unpool = conv(3, 8), conv(8, 8), nn.MaxPool2d(2, 2, return_indices=True), nn.MaxUnpool2d(2, 2)
        self.c, self.last = conv(8, 8), nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x):
        x, i = self.pool(self.a(x))
        x, j = self.pool(self.b(x))
        return self.last(self.unpool(self.c(self.unpool(x, j)), i))


class PspNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(conv(3, 16, 3, 2), conv(16, 16))
        self.stages = nn.ModuleList(nn.Sequential(nn.AdaptiveAvgPool2d(s), nn.Conv2d(16, 4, 1, bias=False), nn.ReLU()) for s in (1, 2, 3, 6))
        self.head, self.drop = nn.Sequential(conv(32, 16), nn.Conv2d(16, 5, 1)), nn.Dropout2d(0.1)

    def forward(self, x):
        f = self.net(x)
        f = torch.cat([f] + [F.interpolate(s(f), size=f.shape[2:], mode="bilinear", align_corners=True) for s in self.stages], 1)
        return F.interpolate(self.head(self.drop(f)), size=x.shape[2:], mode="bilinear", align_corners=False)


class Aspp(nn.Module):
    def __init__(self):
        super().__init__()
        self.low, self.net = conv(3, 8, 3, 2), conv(8, 16, 3, 2)
        self.bs = nn.ModuleList([conv(16, 8, 1)] + [nn.Sequential(nn.Conv2d(16, 8, 3, padding=d, dilation=d, bias=False), nn.BatchNorm2d(8), nn.ReLU()) for d in (2, 4)])
        self.pool, self.join, self.head = nn.Sequential(nn.AdaptiveAvgPool2d((1, 1)), nn.Conv2d(16, 8, 1), nn.ReLU()), conv(32, 8, 1), nn.Conv2d(16, 3, 1)

    def forward(self, x):
        low = self.low(x)
        h = self.net(low)
        y = [b(h) for b in self.bs]
        y.append(self.pool(h).expand(-1, -1, h.size(2), h.size(3)))
        y = F.interpolate(self.join(torch.cat(y, 1)), low.size()[2:], mode="bilinear", align_corners=True)
        return F.interpolate(self.head(torch.cat([y, low], 1)), x.size()[2:], mode="bilinear", align_corners=True)


class UNetPlus(nn.Module):
    """U-Net++ with uneven sides: what is joined is padded or cut to fit."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = conv(1, 8), conv(8, 16), conv(16, 16)
        self.up1, self.up2 = nn.ConvTranspose2d(16, 8, 2, 2), nn.ConvTranspose2d(16, 16, 2, 2)
        self.ab, self.bc, self.abc = conv(16, 8), conv(32, 16), conv(24, 8)
        self.heads = nn.ModuleList(nn.Conv2d(8, 2, 1) for _ in range(2))

    def fit(self, x, to):
        dy, dx = to.size()[2] - x.size()[2], to.size()[3] - x.size()[3]
        return F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])

    def forward(self, x):
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        ab = self.ab(torch.cat([a, self.fit(self.up1(b), a)], 1))
        bc = self.bc(torch.cat([b, self.fit(self.up2(c), b)], 1))
        abc = self.abc(torch.cat([a, ab, self.fit(self.up1(bc), a)], 1))
        return (self.heads[0](ab) + self.heads[1](abc)) / 2


class Hourglass(nn.Module):
    def __init__(self, n=2, c=8):
        super().__init__()
        self.n, self.ups, self.lows, self.mid, self.outs = n, nn.ModuleList(conv(c, c) for _ in range(n)), nn.ModuleList(conv(c, c) for _ in range(n)), conv(c, c), nn.ModuleList(conv(c, c) for _ in range(n))
        self.first, self.heat = conv(3, c, 7, 2), nn.Conv2d(c, 4, 1)

    def level(self, x, i):
        if i == self.n:
            return self.mid(x)
        y = self.outs[i](self.level(self.lows[i](F.max_pool2d(x, 2, 2)), i + 1))
        return self.ups[i](x) + F.interpolate(y, scale_factor=2, mode="nearest")

    def forward(self, x):
        heat = self.heat(self.level(self.first(x), 0))
        b, k, h, w = heat.shape
        p = F.softmax(heat.view(b, k, -1) * 4, dim=2).view(b, k, h, w)  # where each joint is
        x = (p.sum(2) * torch.linspace(-1, 1, w, dtype=x.dtype)).sum(-1)
        y = (p.sum(3) * torch.linspace(-1, 1, h, dtype=x.dtype)).sum(-1)
        return torch.stack([x, y], dim=-1)


class CondConv(nn.Module):
    """Kernels mixed for each sample, all in one with groups."""

    def __init__(self, k=3, a=8, b=8):
        super().__init__()
        self.first, self.route = nn.Conv2d(3, a, 3, 2, 1), nn.Linear(a, k)
        self.weight, self.bias, self.head = nn.Parameter(0.2 * torch.randn(k, b, a, 3, 3)), nn.Parameter(0.1 * torch.randn(k, b)), nn.Linear(b, 3)

    def forward(self, x):
        x = F.relu(self.first(x))
        n, c, h, w = x.size()
        r = torch.softmax(self.route(F.adaptive_avg_pool2d(x, 1).view(n, -1)) / 0.5, dim=1)
        weight = torch.mm(r, self.weight.view(r.size(1), -1)).view(-1, c, 3, 3)
        y = F.conv2d(x.view(1, -1, h, w), weight, torch.mm(r, self.bias).view(-1), padding=1, groups=n)
        return self.head(F.relu(y.view(n, -1, h, w)).mean([2, 3]))


class CoordConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.prelu, self.head = nn.Conv2d(6, 8, 3, padding=1), nn.PReLU(8), nn.Linear(8 * 16, 3)

    def forward(self, x):
        b, _, h, w = x.size()
        xx = torch.linspace(-1, 1, w, dtype=x.dtype).view(1, 1, 1, w).expand(b, 1, h, w)
        yy = torch.linspace(-1, 1, h, dtype=x.dtype).view(1, 1, h, 1).expand(b, 1, h, w)
        rr = torch.sqrt((xx - 0.5) ** 2 + (yy - 0.5) ** 2)
        return self.head(F.adaptive_avg_pool2d(self.prelu(self.conv(torch.cat([x, xx, yy, rr], dim=1))), 4).view(b, -1))


class NonLocal(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.first, self.g, self.theta, self.phi, self.w = conv(3, c, 3, 2), nn.Conv2d(c, c // 2, 1), nn.Conv2d(c, c // 2, 1), nn.Conv2d(c, c // 2, 1), nn.Sequential(nn.Conv2d(c // 2, c, 1), nn.BatchNorm2d(c))
        self.context, self.add = nn.Conv2d(c, 1, 1), nn.Sequential(nn.Conv2d(c, 4, 1), nn.LayerNorm([4, 1, 1]), nn.ReLU(), nn.Conv2d(4, c, 1))

    def forward(self, x):
        x = self.first(x)
        b, c = x.shape[:2]
        g = F.max_pool2d(self.g(x), 2).view(b, c // 2, -1).permute(0, 2, 1)
        f = torch.matmul(self.theta(x).view(b, c // 2, -1).permute(0, 2, 1), F.max_pool2d(self.phi(x), 2).view(b, c // 2, -1))
        y = torch.matmul(F.softmax(f, dim=-1), g).permute(0, 2, 1).contiguous().view(b, c // 2, *x.size()[2:])
        x = self.w(y) + x
        a = self.context(x).view(b, 1, -1).softmax(2).unsqueeze(-1)
        return x + self.add(torch.matmul(x.view(b, c, -1).unsqueeze(1), a).view(b, c, 1, 1))


class CycleGan(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        norm = nn.InstanceNorm2d
        self.net = nn.Sequential(
            nn.ReflectionPad2d(3), nn.Conv2d(3, c, 7), norm(c), nn.ReLU(True), nn.Conv2d(c, 2 * c, 3, 2, 1), norm(2 * c), nn.ReLU(True))
        self.body = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(2 * c, 2 * c, 3), norm(2 * c), nn.ReLU(True), nn.Dropout(0.5), nn.ReflectionPad2d(1), nn.Conv2d(2 * c, 2 * c, 3), norm(2 * c))
        self.up = nn.Sequential(nn.ConvTranspose2d(2 * c, c, 3, 2, 1, 1), norm(c), nn.ReLU(True), nn.ReflectionPad2d(3), nn.Conv2d(c, 3, 7), nn.Tanh())

    def forward(self, x):
        x = self.net(x)
        return self.up(x + self.body(x))


class Spade(nn.Module):
    """A norm whose scale and shift a map of classes says."""

    def __init__(self, c=8, classes=5):
        super().__init__()
        self.classes, self.fc, self.norm = classes, nn.Linear(6, c * 16), nn.BatchNorm2d(c, affine=False)
        self.shared, self.gamma, self.beta, self.rgb = nn.Sequential(nn.Conv2d(classes, 8, 3, padding=1), nn.ReLU()), nn.Conv2d(8, c, 3, padding=1), nn.Conv2d(8, c, 3, padding=1), nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, z, seg):
        x = F.interpolate(self.fc(z).view(-1, 8, 4, 4), scale_factor=2)
        s = F.one_hot(seg, self.classes).permute(0, 3, 1, 2).to(z.dtype)
        s = self.shared(F.interpolate(s, size=x.size()[2:], mode="nearest"))
        x = self.norm(x) * (1 + self.gamma(s)) + self.beta(s)
        return torch.tanh(self.rgb(F.leaky_relu(x, 2e-1)))


class StyleBlock(nn.Module):
    """Blur by a fixed kernel, noise that is given, equalised learning rates."""

    def __init__(self, c=8):
        super().__init__()
        k = torch.tensor([1.0, 3.0, 3.0, 1.0])
        self.register_buffer("kernel", (k[:, None] * k[None] / 64)[None, None])
        self.const, self.weight, self.bias = nn.Parameter(torch.randn(1, c, 4, 4)), nn.Parameter(torch.randn(c, c, 3, 3)), nn.Parameter(torch.zeros(1, c, 1, 1))
        self.style, self.noise, self.rgb, self.scale = nn.Linear(6, 2 * c), nn.Parameter(torch.zeros(1, c, 1, 1)), nn.Conv2d(c, 3, 1), 1 / math.sqrt(c * 9)

    def forward(self, z, noise):
        c = self.const.shape[1]
        x = self.const.expand(z.shape[0], -1, -1, -1)
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        x = F.conv2d(F.pad(x, (2, 1, 2, 1)), self.kernel.repeat(c, 1, 1, 1), groups=c)
        x = F.conv2d(x, self.weight * self.scale, padding=1) + self.noise * noise
        x = F.leaky_relu(x + self.bias, 0.2) * math.sqrt(2)
        gamma, beta = self.style(z).view(-1, 2, c, 1, 1).unbind(1)
        x = (x - x.mean((2, 3), keepdim=True)) / (x.std((2, 3), keepdim=True, unbiased=False) + 1e-8)
        return self.rgb(x * (gamma + 1) + beta)


class SaGan(nn.Module):
    """Spectral norms by the older function, attention with a weight that starts at zero, classes by projection."""

    def __init__(self):
        super().__init__()
        sn = nn.utils.spectral_norm
        self.c1, self.c2, self.q, self.k, self.v = sn(nn.Conv2d(3, 8, 4, 2, 1)), sn(nn.Conv2d(8, 8, 4, 2, 1)), sn(nn.Conv2d(8, 2, 1)), sn(nn.Conv2d(8, 2, 1)), sn(nn.Conv2d(8, 8, 1))
        self.gamma, self.out, self.classes = nn.Parameter(torch.tensor(0.1)), sn(nn.Linear(8, 1)), sn(nn.Embedding(10, 8))

    def forward(self, x, y):
        x = F.leaky_relu(self.c1(x), 0.1)
        n = x.shape[2] * x.shape[3]
        a = torch.bmm(self.q(x).view(-1, 2, n).permute(0, 2, 1), self.k(x).view(-1, 2, n)).softmax(-1)
        x = self.gamma * torch.bmm(self.v(x).view(-1, 8, n), a.permute(0, 2, 1)).view(x.size()) + x
        h = F.leaky_relu(self.c2(x), 0.1).mean([2, 3])
        return self.out(h) + (self.classes(y) * h).sum(1, keepdim=True)


class WindowBlock(nn.Module):
    """Windows that are shifted, with places relative to each other."""

    def __init__(self, d=16, heads=2, w=4, side=8, shift=2):
        super().__init__()
        self.w, self.h, self.shift = w, heads, shift
        self.patch, self.norm, self.qkv, self.proj = nn.Conv2d(3, d, 2, 2), nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.table = nn.Parameter(0.02 * torch.randn((2 * w - 1) ** 2, heads))
        c = torch.stack(torch.meshgrid(torch.arange(w), torch.arange(w), indexing="ij")).flatten(1)
        r = (c[:, :, None] - c[:, None]).permute(1, 2, 0) + w - 1
        self.register_buffer("index", r[..., 0] * (2 * w - 1) + r[..., 1])
        m = torch.zeros(1, side, side, 1)
        for i, s in enumerate((slice(0, -w), slice(-w, -shift), slice(-shift, None))):
            for j, t in enumerate((slice(0, -w), slice(-w, -shift), slice(-shift, None))):
                m[:, s, t] = 3 * i + j
        m = self.windows(m).squeeze(-1)
        m = m[:, None] - m[:, :, None]
        self.register_buffer("mask", m.masked_fill(m != 0, -100.0).masked_fill(m == 0, 0.0))

    def windows(self, x):
        b, h, w, c = x.shape
        return x.view(b, h // self.w, self.w, w // self.w, self.w, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, self.w * self.w, c)

    def forward(self, x):
        x = self.patch(x).permute(0, 2, 3, 1)
        b, h, w, c = x.shape
        y = self.windows(torch.roll(self.norm(x), shifts=(-self.shift, -self.shift), dims=(1, 2)))
        n = y.shape[1]
        q, k, v = self.qkv(y).reshape(-1, n, 3, self.h, c // self.h).permute(2, 0, 3, 1, 4)
        a = (q * (c // self.h) ** -0.5) @ k.transpose(-2, -1)
        a = a + self.table[self.index.view(-1)].view(n, n, -1).permute(2, 0, 1).contiguous().unsqueeze(0)
        nw = self.mask.shape[0]
        a = (a.view(-1, nw, self.h, n, n) + self.mask[None, :, None]).view(-1, self.h, n, n).softmax(-1)
        y = self.proj((a @ v).transpose(1, 2).reshape(-1, n, c))
        y = y.view(-1, h // self.w, w // self.w, self.w, self.w, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, h, w, c)
        return x + torch.roll(y, shifts=(self.shift, self.shift), dims=(1, 2))


class SlotAttention(nn.Module):
    def __init__(self, slots=3, d=8):
        super().__init__()
        self.enc, self.mu = conv(3, d, 5, 2), nn.Parameter(torch.randn(1, slots, d))
        self.ni, self.ns, self.nm = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.k, self.v, self.gru, self.mlp = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d), nn.GRUCell(d, d), nn.Sequential(nn.Linear(d, 16), nn.ReLU(), nn.Linear(16, d))

    def forward(self, x):
        x = self.ni(self.enc(x).flatten(2).transpose(1, 2))
        k, v, b, d = self.k(x), self.v(x), x.shape[0], x.shape[-1]
        slots = self.mu.expand(b, -1, -1)
        for _ in range(2):
            a = torch.einsum("bid,bjd->bij", self.q(self.ns(slots)), k).mul(d ** -0.5).softmax(dim=1) + 1e-8
            u = torch.einsum("bjd,bij->bid", v, a / a.sum(dim=-1, keepdim=True))
            slots = self.gru(u.reshape(-1, d), slots.reshape(-1, d)).reshape(b, -1, d)
            slots = slots + self.mlp(self.nm(slots))
        return slots


class PointNetPlus(nn.Module):
    """The farthest points, what is near them, and interpolation back."""

    def __init__(self, m=6, k=4):
        super().__init__()
        self.m, self.k, self.mlp, self.up = m, k, nn.Sequential(nn.Conv2d(3, 16, 1), nn.BatchNorm2d(16), nn.ReLU()), nn.Conv1d(19, 4, 1)

    def forward(self, x):
        b, n, _ = x.shape
        far, dist, at = torch.zeros(b, dtype=torch.long), torch.full((b, n), 1e10, dtype=x.dtype), []
        for _ in range(self.m):
            at.append(far)
            p = x.gather(1, far.view(b, 1, 1).expand(-1, -1, 3))
            dist = torch.minimum(dist, ((x - p) ** 2).sum(-1))
            far = dist.max(-1)[1]
        c = x.gather(1, torch.stack(at, 1)[..., None].expand(-1, -1, 3))
        d = torch.sum((c[:, :, None] - x[:, None]) ** 2, -1)
        near = d.topk(self.k, largest=False)[1]
        rows = torch.arange(b).view(b, 1, 1).expand(-1, self.m, self.k)
        g = (x[rows, near] - c[:, :, None]).permute(0, 3, 1, 2)
        f = self.mlp(g).max(-1)[0].transpose(1, 2)
        dist, at = d.transpose(1, 2).sort(dim=-1)
        w = 1.0 / (dist[..., :3] + 1e-8)
        w = w / w.sum(dim=2, keepdim=True)
        f = (f.unsqueeze(1).expand(-1, n, -1, -1).gather(2, at[..., :3, None].expand(-1, -1, -1, 16)) * w[..., None]).sum(2)
        return self.up(torch.cat([f, x], -1).transpose(1, 2))


class TNet(nn.Module):
    """Points turned by a matrix that was found; the unit is added."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc, self.feat, self.head = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU()), nn.Linear(16, 9), nn.Conv1d(3, 16, 1), nn.Linear(16, 4)

    def forward(self, x):
        t = torch.max(self.conv(x), 2, keepdim=True)[0].view(-1, 16)
        t = (self.fc(t) + torch.eye(3, dtype=x.dtype).flatten().view(1, 9).repeat(x.size()[0], 1)).view(-1, 3, 3)
        x = torch.bmm(x.transpose(2, 1), t).transpose(2, 1)
        return F.log_softmax(self.head(torch.max(F.relu(self.feat(x)), 2)[0]), dim=1)


class Captions(nn.Module):
    """A picture said word by word, each the best one."""

    def __init__(self, n=4, d=16):
        super().__init__()
        self.n, self.enc, self.words, self.cell = n, nn.Sequential(conv(3, d, 3, 4), conv(d, d, 3, 2)), nn.Embedding(20, d), nn.LSTMCell(2 * d, d)
        self.a, self.b, self.full, self.gate, self.out = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 1), nn.Linear(d, d), nn.Linear(d, 20)

    def forward(self, x):
        f = self.enc(x).permute(0, 2, 3, 1).flatten(1, 2)
        h = c = f.mean(dim=1)
        w, out = torch.ones(x.shape[0], dtype=torch.long), []
        for _ in range(self.n):
            a = self.full(torch.tanh(self.a(f) + self.b(h).unsqueeze(1))).squeeze(2).softmax(1)
            z = torch.sigmoid(self.gate(h)) * (f * a.unsqueeze(2)).sum(dim=1)
            h, c = self.cell(torch.cat([self.words(w), z], dim=1), (h, c))
            out.append(self.out(h))
            w = out[-1].argmax(1)
        return torch.stack(out, 1)


class Vqa(nn.Module):
    """A question about a picture: products of both, by factors."""

    def __init__(self, d=16):
        super().__init__()
        self.see, self.words, self.read = nn.Sequential(conv(3, d, 3, 4), nn.AdaptiveAvgPool2d(3)), nn.Embedding(20, d), nn.GRU(d, d, batch_first=True)
        self.film, self.att, self.head = nn.Linear(d, 2 * d), nn.Conv2d(d, 2, 1), nn.Linear(3 * d, 6)

    def forward(self, x, q):
        _, h = self.read(self.words(q))
        h = h.squeeze(0)
        g, b = torch.split(self.film(h), h.shape[1], dim=-1)
        v = F.relu(self.see(x) * g.view(*g.shape, 1, 1) + b[..., None, None])
        a = self.att(v).flatten(2).softmax(-1)
        return self.head(torch.cat([torch.einsum("bgn,bcn->bgc", a, v.flatten(2)).flatten(1), h], -1))


class Prototypes(nn.Module):
    """Classes by the mean of what was shown of them."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(conv(1, 8), nn.MaxPool2d(2), conv(8, 8), nn.MaxPool2d(2), nn.Flatten())

    def forward(self, support, query):
        b, n, k = support.shape[:3]
        s = self.net(support.flatten(0, 2)).view(b, n, k, -1).mean(2)
        q = self.net(query.flatten(0, 1)).view(b, query.shape[1], -1)
        return -((q.unsqueeze(2) - s.unsqueeze(1)) ** 2).mean(-1)


class Filters(nn.Module):
    """Kernels that are known: edges, blur, waves; grey from colours; a threshold that is learned."""

    def __init__(self):
        super().__init__()
        sobel = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])
        self.register_buffer("edges", torch.stack([sobel, sobel.t()])[:, None])
        self.sigma, self.theta, self.freq = nn.Parameter(torch.tensor(1.2)), nn.Parameter(torch.rand(4) * 3), nn.Parameter(torch.rand(4) + 0.5)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        grey = (x * torch.tensor([0.299, 0.587, 0.114], dtype=x.dtype).view(1, 3, 1, 1)).sum(1, keepdim=True)
        t = torch.arange(-2, 3, dtype=x.dtype)
        g = torch.exp(-t ** 2 / (2 * self.sigma ** 2))
        g = g / g.sum()
        grey = F.conv2d(F.pad(grey, (2, 2, 2, 2), mode="reflect"), (g[:, None] * g[None])[None, None])
        yy, xx = torch.meshgrid(t, t, indexing="ij")
        u = xx[None] * torch.cos(self.theta)[:, None, None] + yy[None] * torch.sin(self.theta)[:, None, None]
        gabor = torch.exp(-0.5 * (xx ** 2 + yy ** 2) / 4)[None] * torch.cos(u * self.freq[:, None, None])
        e = F.conv2d(grey, self.edges.to(x.dtype), padding=1)
        return self.head(torch.cat([e.abs(), F.conv2d(grey, gabor[:, None], padding=2)], 1).amax((2, 3)))


class Haar(nn.Module):
    """Waves of two, their parts mixed, and back."""

    def __init__(self, c=3):
        super().__init__()
        h = 0.5 * torch.tensor([[[1., 1], [1, 1]], [[1, -1], [1, -1]], [[1, 1], [-1, -1]], [[1, -1], [-1, 1]]])
        self.register_buffer("h", h.unsqueeze(1).repeat(c, 1, 1, 1))
        self.c, self.mix = c, nn.Conv2d(4 * c, 4 * c, 3, padding=1)

    def forward(self, x):
        y = F.conv2d(x, self.h, stride=2, groups=self.c)
        return F.conv_transpose2d(y + torch.tanh(self.mix(y)), self.h, stride=2, groups=self.c)


class ToyVideo(nn.Module):
    """A net for each picture, then time: shifts, 3-D, a recurrent layer."""

    def __init__(self):
        super().__init__()
        self.net, self.t, self.gru, self.head = nn.Sequential(conv(3, 8, 3, 2), conv(8, 8, 3, 2)), nn.Conv3d(8, 8, (3, 1, 1), padding=(1, 0, 0)), nn.GRU(8, 8, bidirectional=True, batch_first=True), nn.Linear(16, 3)

    def forward(self, x):
        b, t, c, h, w = x.size()
        y = self.net(x.view(b * t, c, h, w))
        y = y.view(b, t, *y.shape[1:])
        out = torch.zeros_like(y)
        out[:, :-1, :2] = y[:, 1:, :2]
        out[:, 1:, 2:4] = y[:, :-1, 2:4]
        out[:, :, 4:] = y[:, :, 4:]
        z = self.t(out.transpose(1, 2)).mean((3, 4)).transpose(1, 2)
        return self.head(self.gru(z)[0][:, -1])


class MaskedAuto(nn.Module):
    """Some patches only, and a token for the rest."""

    def __init__(self, d=16):
        super().__init__()
        self.patch, self.pos, self.cls, self.token = nn.Conv2d(3, d, 4, 4), nn.Parameter(0.02 * torch.randn(1, 17, d)), nn.Parameter(torch.zeros(1, 1, d)), nn.Parameter(torch.zeros(1, 1, d))
        self.enc, self.dec, self.out = nn.TransformerEncoderLayer(d, 2, 32, dropout=0.0, batch_first=True, norm_first=True), nn.TransformerEncoderLayer(d, 2, 32, dropout=0.0, batch_first=True), nn.Linear(d, 48)

    def forward(self, x, noise):
        h = self.patch(x).flatten(2).transpose(1, 2) + self.pos[:, 1:]
        b, n, d = h.shape
        order = torch.argsort(noise, dim=1)
        back = torch.argsort(order, dim=1)
        kept = torch.gather(h, 1, order[:, :8].unsqueeze(-1).repeat(1, 1, d))
        kept = self.enc(torch.cat((self.cls + self.pos[:, :1]).expand(b, -1, -1).split(1, 1) + (kept,), dim=1))
        full = torch.cat([kept[:, 1:], self.token.repeat(b, n - 8, 1)], dim=1)
        full = torch.gather(full, 1, back.unsqueeze(-1).repeat(1, 1, d))
        return self.out(self.dec(torch.cat([kept[:, :1], full], 1) + self.pos))[:, 1:]


def rand(*shape):
    return lambda: torch.rand(*shape)


def uneven(shape):
    return lambda: torch.arange(math.prod(shape)).view(shape).float().sin()


IMAGE = floats(2, 3, 32, 32)
ALL = {
    "ddpm": own(Ddpm, floats(2, 3, 16, 16), lambda: torch.rand(2) * 900, lambda: torch.tensor([3, 7])),
    "dit": own(Dit, floats(2, 3, 8, 8), lambda: torch.rand(2) * 900),
    "fcos_small": own(Fcos, IMAGE), "center_net": own(CenterNet, IMAGE), "yolov8": own(Yolov8, floats(2, 3, 16, 16)),
    "ssd_small": own(Ssd, floats(2, 3, 16, 16)),
    "deformable_attention": own(DeformableAttention, floats(2, 5, 16), floats(2, 16, 8, 8), floats(2, 16, 4, 4), lengths=[1, None, None]),
    "correlation": own(Correlation, floats(2, 3, 16, 16), floats(2, 3, 16, 16)),
    "raft": own(Raft, floats(2, 3, 24, 24), floats(2, 3, 24, 24)), "naf_net": own(NafNet, floats(2, 3, 12, 12)),
    "restormer": own(Restormer, floats(2, 3, 8, 8)), "seg_net": own(SegNet, floats(2, 3, 16, 16)),
    "psp_net": own(PspNet, floats(2, 3, 24, 24)), "aspp": own(Aspp, floats(2, 3, 24, 24)),
    "unet_plus": own(UNetPlus, floats(2, 1, 22, 18)), "hourglass": own(Hourglass, IMAGE),
    "cond_conv": own(CondConv, floats(2, 3, 12, 12)), "coord_conv": own(CoordConv, floats(2, 3, 12, 12)),
    "non_local": own(NonLocal, floats(2, 3, 16, 16)), "cycle_gan": own(CycleGan, floats(2, 3, 16, 16)),
    "spade": own(Spade, floats(2, 6), lambda: torch.randint(0, 5, (2, 16, 16))),
    "style_block": own(StyleBlock, floats(2, 6), floats(2, 1, 8, 8)),
    "sa_gan": own(SaGan, floats(2, 3, 16, 16), lambda: torch.tensor([1, 8])),
    "window_block": own(WindowBlock, floats(2, 3, 16, 16)), "slot_attention": own(SlotAttention, floats(2, 3, 16, 16)),
    "point_net_plus": own(PointNetPlus, floats(2, 20, 3)), "t_net": own(TNet, floats(2, 3, 20), lengths=[2]),
    "captions": own(Captions, IMAGE), "vqa": own(Vqa, IMAGE, words(2, 7), lengths=[None, 1]),
    "prototypes": own(Prototypes, floats(2, 3, 2, 1, 8, 8), floats(2, 4, 1, 8, 8)),
    "filters": own(Filters, floats(2, 3, 16, 16)), "haar": own(Haar, floats(2, 3, 12, 12)),
    "toy_video": own(ToyVideo, floats(2, 4, 3, 16, 16)),
    "masked_auto": own(MaskedAuto, floats(2, 3, 16, 16), rand(2, 16)),
}
