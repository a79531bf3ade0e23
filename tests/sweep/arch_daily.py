"""What engineers write on a day: blocks of vision and sound, tables and recommenders, graphs; for sweep.py."""
import math

import torch
from torch import nn
from torch.nn import functional as F


class TimeBlock(nn.Module):
    """A block of a diffusion U-Net: time scales and shifts a GroupNorm, attention over pixels, a skip that is joined."""

    def __init__(self, c=16, heads=2):
        super().__init__()
        self.heads = heads
        self.stem, self.down = nn.Conv2d(3, c, 3, padding=1), nn.Conv2d(c, c, 3, 2, 1)
        self.time = nn.Sequential(nn.Linear(c, 2 * c), nn.SiLU(), nn.Linear(2 * c, 2 * c))
        self.norm, self.conv = nn.GroupNorm(4, c), nn.Conv2d(c, c, 3, padding=1)
        self.attn_norm, self.qkv, self.proj = nn.GroupNorm(4, c), nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1)
        self.up, self.out = nn.Conv2d(2 * c, c, 3, padding=1), nn.Conv2d(c, 3, 1)

    def embed(self, t):
        half = self.norm.num_channels // 2
        angle = t.float()[:, None] * torch.exp(torch.arange(half, device=t.device) * (-math.log(10000.0) / half))
        return torch.cat([angle.sin(), angle.cos()], -1).to(self.out.weight.dtype)

    def forward(self, x, t):
        skip = self.stem(x)
        h = self.down(skip)
        scale, shift = self.time(self.embed(t))[:, :, None, None].chunk(2, 1)
        h = h + self.conv(F.silu(self.norm(h) * (1 + scale) + shift))
        b, c, height, width = h.shape
        q, k, v = self.qkv(self.attn_norm(h)).reshape(b, 3 * self.heads, c // self.heads, height * width).chunk(3, 1)
        w = torch.einsum("bhcq,bhck->bhqk", q * (c // self.heads) ** -0.5, k).softmax(-1)
        h = h + self.proj(torch.einsum("bhqk,bhck->bhcq", w, v).reshape(b, c, height, width))
        h = F.interpolate(h, scale_factor=2.0, mode="nearest")
        return self.out(F.silu(self.up(torch.cat([h, skip], 1))))


class ScalesLoss(nn.Module):
    """A loss in the model: of pixels and of their differences, at three sizes."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ELU(), nn.Conv2d(8, 3, 3, padding=1))

    def forward(self, x, y):
        z, out = self.net(x), 0
        for i in range(3):
            out = out + (z - y).abs().mean((1, 2, 3)) / 2 ** i
            dx = (z[..., 1:] - z[..., :-1]) - (y[..., 1:] - y[..., :-1])
            dy = (z[..., 1:, :] - z[..., :-1, :]) - (y[..., 1:, :] - y[..., :-1, :])
            out = out + dx.pow(2).mean((1, 2, 3)) + dy.pow(2).mean((1, 2, 3))
            z, y = F.avg_pool2d(z, 2), F.avg_pool2d(y, 2)
        return out


class Ssim(nn.Module):
    """Structural similarity under a Gaussian window, as a loss of a network's picture."""

    def __init__(self, c=3, side=7):
        super().__init__()
        self.net = nn.Conv2d(c, c, 3, padding=1)
        g = torch.exp(-(torch.arange(side) - side // 2).float() ** 2 / 4.5)
        self.register_buffer("window", (g[:, None] * g / g.sum() ** 2).expand(c, 1, side, side).contiguous())

    def forward(self, x, y):
        z, blur = torch.sigmoid(self.net(x)), lambda t: F.conv2d(t, self.window, padding=3, groups=3)
        y = torch.sigmoid(y)
        m, n = blur(z), blur(y)
        vz, vy, cov = blur(z * z) - m * m, blur(y * y) - n * n, blur(z * y) - m * n
        s = (2 * m * n + 1e-4) * (2 * cov + 9e-4) / ((m * m + n * n + 1e-4) * (vz + vy + 9e-4))
        return 1 - s.mean((1, 2, 3))


class SampledOffsets(nn.Module):
    """A 3 x 3 convolution at places that are predicted, by grid_sample."""

    def __init__(self, c=6):
        super().__init__()
        self.c, self.offsets = c, nn.Conv2d(c, 18, 3, padding=1)
        self.mix = nn.Linear(9 * c, 5)

    def forward(self, x):
        b, c, h, w = x.shape
        off = 0.7 * torch.tanh(self.offsets(x)).view(b, 9, 2, h, w)
        ys, xs = torch.meshgrid(torch.arange(h, device=x.device), torch.arange(w, device=x.device), indexing="ij")
        out = []
        for k in range(9):
            gx = (xs + k % 3 - 1 + off[:, k, 0]) * 2 / (w - 1) - 1
            gy = (ys + k // 3 - 1 + off[:, k, 1]) * 2 / (h - 1) - 1
            out.append(F.grid_sample(x, torch.stack([gx, gy], -1).to(x.dtype), align_corners=True))
        return self.mix(torch.cat(out, 1).permute(0, 2, 3, 1))


class DynamicConv(nn.Module):
    """Each sample has a filter of its own, mixed of four: samples become groups."""

    def __init__(self, c=6, m=8, k=4):
        super().__init__()
        self.weight, self.bias = nn.Parameter(0.2 * torch.randn(k, m, c, 3, 3)), nn.Parameter(torch.randn(k, m))
        self.mix = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, k))

    def forward(self, x):
        b, c, h, w = x.shape
        a = (self.mix(x) / 4.5).softmax(-1)
        weight = torch.einsum("bk,kmcij->bmcij", a, self.weight).reshape(-1, c, 3, 3)
        y = F.conv2d(x.reshape(1, b * c, h, w), weight, (a @ self.bias).reshape(-1), padding=1, groups=b)
        return F.relu(y.view(b, -1, h, w))


class MixedConv(nn.Module):
    """The same without groups: the experts' pictures are mixed."""

    def __init__(self, c=6, m=8, k=4):
        super().__init__()
        self.k, self.convs = k, nn.Conv2d(c, m * k, 3, padding=1)
        self.mix = nn.Linear(c, k)

    def forward(self, x):
        a = self.mix(x.mean((2, 3))).softmax(-1)
        return (self.convs(x).unflatten(1, (self.k, -1)) * a[:, :, None, None, None]).sum(1)


class Carafe(nn.Module):
    """Upsampling by kernels that the content predicts."""

    def __init__(self, c=6, k=3, up=2):
        super().__init__()
        self.k, self.up, self.kernels = k, up, nn.Conv2d(c, k * k * up * up, 3, padding=1)

    def forward(self, x):
        b, c, h, w = x.shape
        weights = F.pixel_shuffle(self.kernels(x), self.up).softmax(1)
        parts = F.unfold(x, self.k, padding=self.k // 2).view(b, c * self.k ** 2, h, w)
        parts = F.interpolate(parts, scale_factor=self.up, mode="nearest").view(b, c, self.k ** 2, h * self.up, -1)
        return (parts * weights[:, None]).sum(2)


class Overlapping(nn.Module):
    """Patches that overlap go through a layer and are put back, each pixel divided by how many it is in."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(48, 24), nn.GELU(), nn.Linear(24, 48))

    def forward(self, x):
        u = F.unfold(x, 4, stride=2, padding=1)
        y = F.fold(self.layer(u.transpose(1, 2)).transpose(1, 2), x.shape[2:], 4, stride=2, padding=1)
        n = F.fold(torch.ones_like(u), x.shape[2:], 4, stride=2, padding=1)
        return x + y / n


class Edges(nn.Module):
    """Paddings that go round, that repeat, and that mirror."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 6, 3, padding=(1, 2), padding_mode="circular")
        self.b = nn.Conv2d(6, 6, 3, padding=1, padding_mode="replicate", groups=2)
        self.c = nn.Conv2d(6, 4, 5, padding=2, padding_mode="reflect")

    def forward(self, x):
        return self.c(F.softplus(self.b(F.mish(self.a(x)))))


class Gram(nn.Module):
    """What a picture's style is: products of channels, at two depths."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 6, 3, 2, 1), nn.Conv2d(6, 8, 3, 2, 1)

    def forward(self, x):
        out = []
        for conv in (self.a, self.b):
            x = F.leaky_relu(conv(x), 0.2)
            f = x.flatten(2)
            out.append((f @ f.transpose(-1, -2) / f.shape[-1]).flatten(1))
        return torch.cat(out, 1)


class SoftArgmax(nn.Module):
    """Where the peaks of heat maps are, and how wide they are."""

    def __init__(self, n=5):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, n, 3, padding=1))
        self.beta = nn.Parameter(torch.tensor(3.7))

    def forward(self, x):
        h = self.net(x)
        p = (h.flatten(2) * self.beta).softmax(-1).view_as(h)
        gy = torch.linspace(-1, 1, h.shape[2], dtype=x.dtype, device=x.device)
        gx = torch.linspace(-1, 1, h.shape[3], dtype=x.dtype, device=x.device)
        ey, ex = (p.sum(3) * gy).sum(2), (p.sum(2) * gx).sum(2)
        vy = (p.sum(3) * (gy - ey[..., None]) ** 2).sum(2)
        return torch.stack([ex, ey, vy.add(1e-6).sqrt()], -1)


class Pyramid(nn.Module):
    """Pools of several sizes, each through a layer, brought back to the size and joined."""

    def __init__(self, c=8):
        super().__init__()
        self.stem, self.bins = nn.Conv2d(3, c, 3, padding=1), (1, 2, 3, 6)
        self.convs = nn.ModuleList(nn.Conv2d(c, 2, 1) for _ in self.bins)
        self.out = nn.Conv2d(c + 8, 4, 1)

    def forward(self, x):
        x = F.relu(self.stem(x))
        y = [x]
        for i, (n, conv) in enumerate(zip(self.bins, self.convs)):
            p = F.adaptive_avg_pool2d(x, n) if i % 2 else F.adaptive_max_pool2d(x, n)
            y.append(F.interpolate(conv(p), size=x.shape[2:], mode="bilinear", align_corners=bool(i % 2)))
        return self.out(torch.cat(y, 1))


class KernelPrediction(nn.Module):
    """Denoising by a kernel for each pixel."""

    def __init__(self, k=5):
        super().__init__()
        self.k, self.net = k, nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, k * k, 1))

    def forward(self, x):
        b, c, h, w = x.shape
        kernels = self.net(x).softmax(1)
        parts = F.unfold(F.pad(x, [self.k // 2] * 4, mode="replicate"), self.k).view(b, c, self.k ** 2, h, w)
        return torch.einsum("bckhw,bkhw->bchw", parts, kernels)


class BilateralSlice(nn.Module):
    """HDRNet: a small grid of colour transforms is looked up by place and brightness."""

    def __init__(self):
        super().__init__()
        self.low = nn.Sequential(nn.Conv2d(3, 12, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Conv2d(12, 12 * 3, 1))
        self.guide = nn.Conv2d(3, 1, 1)

    def forward(self, x):
        b, _, h, w = x.shape
        grid = self.low(x).view(b, 12, 3, 4, 4)
        ys, xs = torch.meshgrid(torch.linspace(-1, 1, h, dtype=x.dtype), torch.linspace(-1, 1, w, dtype=x.dtype), indexing="ij")
        g = torch.tanh(self.guide(x))[:, 0]
        at = torch.stack([xs.expand(b, -1, -1), ys.expand(b, -1, -1), g], -1)[:, None]
        a = F.grid_sample(grid, at, align_corners=False, padding_mode="border")[:, :, 0].view(b, 3, 4, h, w)
        return (a[:, :, :3] * x[:, None]).sum(2) + a[:, :, 3]


class CostVolume(nn.Module):
    """Stereo: one picture's features beside the other's at each shift, a 3D filter, a mean of shifts."""

    def __init__(self, c=4, shifts=5):
        super().__init__()
        self.n, self.net = shifts, nn.Conv2d(3, c, 3, padding=1)
        self.filter = nn.Sequential(nn.Conv3d(2 * c, 6, 3, padding=1), nn.ReLU(), nn.Conv3d(6, 1, 3, padding=1))

    def forward(self, left, right):
        a, b = self.net(left), self.net(right)
        volume = torch.stack([torch.cat([a, b.roll(i, -1) if not i else F.pad(b[..., :-i], (i, 0))], 1)
                              for i in range(self.n)], 2)
        p = (-self.filter(volume).squeeze(1)).softmax(1)
        return (p * torch.arange(self.n, dtype=p.dtype, device=p.device)[None, :, None, None]).sum(1)


class CtcHead(nn.Module):
    """Speech: filters over time, both directions of a GRU, logarithms with the time first."""

    def __init__(self, d=16, words=9):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(8, d, 3, 2, 1), nn.Hardtanh(0, 20), nn.Conv1d(d, d, 3, padding=1), nn.GELU())
        self.gru, self.norm = nn.GRU(d, d, bidirectional=True, batch_first=True), nn.LayerNorm(2 * d)
        self.out = nn.Linear(2 * d, words)

    def forward(self, x):
        h, _ = self.gru(self.conv(x).transpose(1, 2))
        return self.out(self.norm(h)).log_softmax(-1)


class CtcLoss(nn.Module):
    """The loss itself: paths through a text of three letters with blanks between."""

    def __init__(self, words=6):
        super().__init__()
        self.net = nn.Linear(5, words)

    def forward(self, x, text):
        logs = self.net(x).log_softmax(-1)
        labels = torch.stack([torch.zeros_like(text), text], -1).flatten(1)
        labels = F.pad(labels, (0, 1))
        each = logs.gather(2, labels[:, None].expand(-1, x.shape[1], -1))
        same = F.pad(labels[:, 2:] == labels[:, :-2], (2, 0), value=True) | (labels == 0)
        low = -1e4
        a = F.pad(each[:, 0, :2], (0, labels.shape[1] - 2), value=low)
        for t in range(1, 8):
            two = F.pad(a[:, :-2], (2, 0), value=low).masked_fill(same, low)
            a = torch.stack([a, F.pad(a[:, :-1], (1, 0), value=low), two]).logsumexp(0) + each[:, t]
        return -torch.logaddexp(a[:, -1], a[:, -2])


class DftMel(nn.Module):
    """A spectrum by products with sines, mel bands of a table, their logarithm, normed over time."""

    def __init__(self, n=32, hop=8, bands=10):
        super().__init__()
        k = torch.arange(n // 2 + 1)[:, None] * torch.arange(n) * (2 * math.pi / n)
        w = torch.hann_window(n)
        self.register_buffer("basis", torch.cat([k.cos() * w, -k.sin() * w])[:, None])
        f, at = torch.linspace(0, 1, n // 2 + 1), torch.linspace(0, 1, bands + 2) ** 1.5
        up, down = (f[:, None] - at[:-2]) / (at[1:-1] - at[:-2]), (at[2:] - f[:, None]) / (at[2:] - at[1:-1])
        self.register_buffer("fbank", torch.minimum(up, down).clamp(min=0))
        self.hop, self.norm, self.out = hop, nn.InstanceNorm1d(bands, affine=True), nn.Conv1d(bands, 4, 3, padding=1)

    def forward(self, x):
        s = F.conv1d(F.pad(x[:, None], (16, 16), mode="reflect"), self.basis, stride=self.hop)
        re, im = s.chunk(2, 1)
        m = torch.matmul((re * re + im * im).transpose(1, 2), self.fbank).transpose(1, 2)
        return self.out(self.norm(m.clamp(min=1e-5).log()))


class ComplexMask(nn.Module):
    """Speech is taken out of noise by a complex factor for each bin, then put together by the turned transform."""

    def __init__(self, n=16, hop=8):
        super().__init__()
        k = torch.arange(n // 2 + 1)[:, None] * torch.arange(n) * (2 * math.pi / n)
        basis = torch.cat([k.cos(), -k.sin()]) * torch.hann_window(n).sqrt()
        self.register_buffer("forward_basis", basis[:, None])
        self.register_buffer("inverse_basis", (basis / n * 2)[:, None])
        self.hop, self.net = hop, nn.Sequential(nn.Conv1d(n + 2, 24, 3, padding=1), nn.PReLU(), nn.Conv1d(24, n + 2, 1))

    def forward(self, x):
        s = F.conv1d(x[:, None], self.forward_basis, stride=self.hop)
        (a, b), (c, d) = s.chunk(2, 1), torch.tanh(self.net(s)).chunk(2, 1)
        s = torch.cat([a * c - b * d, a * d + b * c], 1)
        return F.conv_transpose1d(s, self.inverse_basis, stride=self.hop)[:, 0]


class Deltas(nn.Module):
    """What is emphasised, and how it changes, beside it."""

    def __init__(self, d=6):
        super().__init__()
        self.conv, self.out = nn.Conv1d(1, d, 5, stride=2, padding=2), nn.Linear(3 * d, 4)

    def forward(self, x):
        x = torch.cat([x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]], 1)
        h = self.conv(x[:, None])
        p = F.pad(h, (2, 2), mode="replicate")
        d = (p[..., 3:-1] - p[..., 1:-3] + 2 * (p[..., 4:] - p[..., :-4])) / 10
        q = F.pad(d, (1, 1), mode="replicate")
        return self.out(torch.cat([h, d, q[..., 2:] - q[..., :-2]], 1).mean(-1))


class ResidualCodes(nn.Module):
    """Three codebooks, each for what the ones before left; the gradient goes straight through."""

    def __init__(self, d=6, n=8):
        super().__init__()
        self.enc, self.dec = nn.Linear(4, d), nn.Linear(d, 4)
        self.books = nn.ModuleList(nn.Embedding(n, d) for _ in range(3))

    def forward(self, x):
        z = self.enc(x)
        left, total = z, torch.zeros_like(z)
        for book in self.books:
            at = (left.pow(2).sum(-1, keepdim=True) - 2 * left @ book.weight.t() + book.weight.pow(2).sum(-1)).argmin(-1)
            q = book(at)
            q = left + (q - left).detach()
            left, total = left - q.detach(), total + q
        return self.dec(total)


class Snake(nn.Module):
    """x + sin(a x)^2 / a, a number for each channel, of which the logarithm learns."""

    def __init__(self, c=6):
        super().__init__()
        self.log_alpha, self.log_beta = nn.Parameter(torch.zeros(c)), nn.Parameter(torch.zeros(c))
        self.into, self.up = nn.Conv1d(2, c, 7, padding=3), nn.ConvTranspose1d(c, 1, 8, 4, 2)

    def forward(self, x):
        x = self.into(x)
        a, b = self.log_alpha.exp()[None, :, None], self.log_beta.exp()[None, :, None]
        return torch.tanh(self.up(x + (a * x).sin().pow(2) / (b + 1e-9)))


class Streaming(nn.Module):
    """A causal filter whose past is an input and an output."""

    def __init__(self, c=5):
        super().__init__()
        self.depth, self.point = nn.Conv1d(c, c, 4, groups=c), nn.Conv1d(c, c, 1)

    def forward(self, x, past):
        x = torch.cat([past, x], 2)
        return self.point(F.silu(self.depth(x))), x[:, :, -3:]


class RevIn(nn.Module):
    """Each series is normed, forecast, and gets its mean and deviation back; both are detached."""

    def __init__(self, channels=4, length=24, ahead=6):
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.layer = nn.Linear(length, ahead)

    def forward(self, x):
        m = x.mean(1, keepdim=True).detach()
        s = (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt().detach()
        y = self.layer(((x - m) / s * self.gain + self.bias).transpose(1, 2)).transpose(1, 2)
        return (y - self.bias) / (self.gain + 1e-10) * s + m


class LowPass(nn.Module):
    """Series through products with cosines and sines, a complex filter for each low frequency, and back."""

    def __init__(self, n=24, keep=6, c=3):
        super().__init__()
        k = torch.arange(keep)[:, None] * torch.arange(n) * (2 * math.pi / n)
        self.register_buffer("cosines", k.cos())
        self.register_buffer("sines", k.sin())
        self.re, self.im, self.out = nn.Parameter(torch.randn(c, keep)), nn.Parameter(torch.randn(c, keep)), nn.Linear(n, 4)

    def forward(self, x):
        a, b = x @ self.cosines.t(), -x @ self.sines.t()
        a, b = a * self.re - b * self.im, a * self.im + b * self.re
        return self.out((a @ self.cosines - b @ self.sines) / self.cosines.shape[1])


class Smoothing(nn.Module):
    """Holt's level and trend: two rates learn, and what they begin with."""

    def __init__(self):
        super().__init__()
        self.alpha, self.beta = nn.Parameter(torch.tensor(0.31)), nn.Parameter(torch.tensor(-0.7234))
        self.level, self.trend, self.out = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3)), nn.Linear(3, 2)

    def forward(self, x):
        a, b = torch.sigmoid(self.alpha), torch.sigmoid(self.beta)
        level, trend = self.level, self.trend
        for t in range(6):
            before = level
            level = a * x[:, t] + (1 - a) * (level + trend)
            trend = b * (level - before) + (1 - b) * trend
        return self.out(torch.stack([level + k * trend for k in range(1, 4)], 1))


class Hawkes(nn.Module):
    """Events that make others likelier: exponentials of the time since each."""

    def __init__(self, kinds=5):
        super().__init__()
        self.base, self.decay = nn.Embedding(kinds, 1), nn.Parameter(torch.randn(kinds))
        self.excite = nn.Parameter(0.3 * torch.randn(kinds, kinds))

    def forward(self, times, kinds):
        gap = times[:, :, None] - times[:, None]
        before = gap > 0
        d = F.softplus(self.decay)[kinds][:, None]
        e = F.softplus(self.excite)[kinds[:, :, None], kinds[:, None]]
        s = torch.where(before, e * d * torch.exp(-d * gap.clamp(min=0)), 0)
        return torch.log(F.softplus(self.base(kinds)[..., 0]) + s.sum(-1))


class TimeGaps(nn.Module):
    """States decay with the time since the last event, by a rate that learns, before a GRU cell takes the next."""

    def __init__(self, d=6):
        super().__init__()
        self.cell, self.rate, self.out = nn.GRUCell(3, d), nn.Linear(1, d), nn.Linear(d, 2)

    def forward(self, x, gaps):
        h = x.new_zeros(x.shape[0], 6)
        out = []
        for t in range(5):
            h = self.cell(x[:, t], h * torch.exp(-F.relu(self.rate(gaps[:, t, None]))))
            out.append(self.out(h))
        return torch.stack(out, 1)


class KernelMean(nn.Module):
    """Nadaraya and Watson: a mean of what is stored, by a kernel whose widths learn for each feature."""

    def __init__(self, n=12, d=4):
        super().__init__()
        self.register_buffer("points", torch.randn(n, d))
        self.register_buffer("values", torch.randn(n, 3))
        self.log_width, self.embed = nn.Parameter(torch.zeros(d)), nn.Linear(d, d)

    def forward(self, x):
        z = (self.embed(x)[:, None] - self.points) / F.softplus(self.log_width)
        return (-0.5 * z.pow(2).sum(-1)).softmax(-1) @ self.values


def R(*dims):
    return torch.randn(*dims)


def I(*dims, most=8):
    return torch.randint(0, most, dims)


ALL = {
    "daily_time_block": lambda: (TimeBlock(), [R(2, 3, 8, 8), torch.tensor([3, 17])], [None, None]),
    "daily_scales_loss": lambda: (ScalesLoss(), [R(2, 3, 16, 16), R(2, 3, 16, 16)], [None, None]),
    "daily_ssim": lambda: (Ssim(), [R(2, 3, 14, 14), R(2, 3, 14, 14)], [None, None]),
    "daily_sampled_offsets": lambda: (SampledOffsets(), [R(2, 6, 7, 9)], [None]),
    "daily_dynamic_conv": lambda: (DynamicConv(), [R(2, 6, 8, 8)], [None]),
    "daily_mixed_conv": lambda: (MixedConv(), [R(2, 6, 8, 8)], [2]),
    "daily_carafe": lambda: (Carafe(), [R(2, 6, 6, 6)], [None]),
    "daily_overlapping": lambda: (Overlapping(), [R(2, 3, 12, 12)], [None]),
    "daily_edges": lambda: (Edges(), [R(2, 3, 10, 10)], [None]),
    "daily_gram": lambda: (Gram(), [R(2, 3, 16, 16)], [2]),
    "daily_soft_argmax": lambda: (SoftArgmax(), [R(2, 3, 12, 10)], [None]),
    "daily_pyramid": lambda: (Pyramid(), [R(2, 3, 12, 18)], [None]),
    "daily_kernel_prediction": lambda: (KernelPrediction(), [R(2, 3, 9, 9)], [None]),
    "daily_bilateral_slice": lambda: (BilateralSlice(), [R(2, 3, 16, 16)], [None]),
    "daily_cost_volume": lambda: (CostVolume(), [R(2, 3, 8, 12), R(2, 3, 8, 12)], [None, None]),
    "daily_ctc_head": lambda: (CtcHead(), [R(2, 8, 24)], [2]),
    "daily_ctc_loss": lambda: (CtcLoss(), [R(2, 8, 5), torch.tensor([[1, 2, 2], [3, 1, 4]])], [None, None]),
    "daily_dft_mel": lambda: (DftMel(), [R(2, 160)], [1]),
    "daily_complex_mask": lambda: (ComplexMask(), [R(2, 96)], [1]),
    "daily_deltas": lambda: (Deltas(), [R(2, 40)], [1]),
    "daily_residual_codes": lambda: (ResidualCodes(), [R(2, 7, 4)], [1]),
    "daily_snake": lambda: (Snake(), [R(2, 2, 20)], [2]),
    "daily_streaming": lambda: (Streaming(), [R(2, 5, 8), R(2, 5, 3)], [2, None]),
    "daily_rev_in": lambda: (RevIn(), [R(2, 24, 4)], [None]),
    "daily_low_pass": lambda: (LowPass(), [R(2, 3, 24)], [None]),
    "daily_smoothing": lambda: (Smoothing(), [R(2, 6, 3)], [None]),
    "daily_hawkes": lambda: (Hawkes(), [R(2, 9).abs().cumsum(1), I(2, 9, most=5)], [1, 1]),
    "daily_time_gaps": lambda: (TimeGaps(), [R(2, 5, 3), R(2, 5).abs()], [None, None]),
    "daily_kernel_mean": lambda: (KernelMean(), [R(2, 4)], [None]),
}
