"""Architectures for texts, sounds and series, written here with plain PyTorch, for sweep.py."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from arch_common import WORDS, ids, mask
from arch_plain import floats, own


class BagOfWords(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.EmbeddingBag(WORDS, 16, mode="mean"), nn.Linear(16, 4)

    def forward(self, ids):
        return self.head(self.words(ids))


class Padded(nn.Module):
    """nn.TransformerEncoder with what pads said, and a mean of what does not."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 32, padding_idx=0), nn.Parameter(torch.randn(1, 64, 32) * 0.1)
        self.net = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True), 2,
                                         enable_nested_tensor=False)
        self.head = nn.Linear(32, 3)

    def forward(self, ids, mask):
        x = self.words(ids) * math.sqrt(32) + self.places[:, :ids.shape[1]]
        x = self.net(x, src_key_padding_mask=mask == 0)
        m = mask[..., None].to(x.dtype)
        return self.head((x * m).sum(1) / m.sum(1).clamp(min=1))


class Demucs(nn.Module):
    """Sounds taken apart: strided convolutions, a recurrent layer, and back."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList(nn.Sequential(nn.Conv1d(i, o, 8, 4, 2), nn.ReLU(), nn.Conv1d(o, 2 * o, 1), nn.GLU(1))
                                  for i, o in ((1, 8), (8, 16)))
        self.cells, self.thin = nn.LSTM(16, 16, 2, bidirectional=True), nn.Linear(32, 16)
        self.up = nn.ModuleList(nn.Sequential(nn.Conv1d(i, 2 * i, 3, padding=1), nn.GLU(1), nn.ConvTranspose1d(i, o, 8, 4, 2))
                                for i, o in ((16, 8), (8, 2)))

    def forward(self, x):
        kept = []
        for f in self.down:
            x = f(x)
            kept.append(x)
        x = self.thin(self.cells(x.permute(2, 0, 1))[0]).permute(1, 2, 0)
        for f in self.up:
            x = f(x + kept.pop())
        return x


class DeepSpeech(nn.Module):
    """Spectra, convolutions, GRUs, letters."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 8, (11, 5), (2, 2), (5, 2)), nn.BatchNorm2d(8), nn.Hardtanh(0, 20, inplace=True))
        self.cells, self.norm, self.head = nn.GRU(128, 24, bidirectional=True, batch_first=True), nn.LayerNorm(48), nn.Linear(48, 29)

    def forward(self, x):
        x = self.conv(x).permute(0, 3, 1, 2).flatten(2)
        return self.head(self.norm(self.cells(x)[0])).log_softmax(-1)


class Crnn(nn.Module):
    """Words in pictures."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
                                 nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d((2, 2), (2, 1), (0, 1)), nn.Conv2d(32, 32, (8, 1)))
        self.cells, self.head = nn.LSTM(32, 16, bidirectional=True), nn.Linear(32, 12)

    def forward(self, x):
        y = self.net(x).squeeze(2).permute(2, 0, 1)
        n, b, _ = self.cells(y)[0].shape
        return self.head(self.cells(y)[0].view(n * b, -1)).view(n, b, -1).permute(1, 0, 2)


class Nbeats(nn.Module):
    """Forecasts: what a block explains is taken away."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU()) for _ in range(3))
        self.theta = nn.ModuleList(nn.Linear(32, 6, bias=False) for _ in range(3))
        t = torch.arange(25) / 25
        self.register_buffer("basis", torch.stack([t ** i for i in range(3)] + [torch.cos(6.28 * t * i) for i in (1, 2, 3)]))

    def forward(self, x):
        out = 0
        for block, theta in zip(self.blocks, self.theta):
            y = theta(block(x)) @ self.basis
            x, out = x - y[:, :20], out + y[:, 20:]
        return out


class GatedResidual(nn.Module):
    """Of temporal fusion transformers: variables chosen by what they say."""

    def __init__(self):
        super().__init__()
        self.each = nn.ModuleList(nn.Linear(1, 16) for _ in range(4))
        self.choose = nn.Sequential(nn.Linear(64, 16), nn.ELU(), nn.Linear(16, 8), nn.GLU())
        self.lstm, self.gate, self.norm = nn.LSTM(16, 16, batch_first=True), nn.Linear(16, 32), nn.LayerNorm(16)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        e = torch.stack([f(x[..., i:i + 1]) for i, f in enumerate(self.each)], -1)
        w = self.choose(e.flatten(2)).softmax(-1)
        y = (e * w[:, :, None]).sum(-1)
        z, _ = self.lstm(y)
        return self.head(self.norm(y + F.glu(self.gate(z)))[:, -1])


class SelectiveScan(nn.Module):
    """A state that is written and read as the input says, step by step."""

    def __init__(self):
        super().__init__()
        self.inp, self.conv = nn.Linear(16, 64), nn.Conv1d(32, 32, 4, groups=32, padding=3)
        self.proj, self.dt = nn.Linear(32, 2 + 8, bias=False), nn.Linear(2, 32)
        self.a_log = nn.Parameter(torch.log(torch.arange(1, 5).float()).repeat(32, 1))
        self.d, self.out = nn.Parameter(torch.ones(32)), nn.Linear(32, 16)

    def forward(self, x):
        n = x.shape[1]
        u, z = self.inp(x).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., :n].transpose(1, 2))
        dt, b, c = self.proj(u).split([2, 4, 4], -1)
        dt, a = F.softplus(self.dt(dt)), -torch.exp(self.a_log)
        h, out = torch.zeros_like(u[:, 0, :, None] * a), []
        for t in range(n):
            h = h * torch.exp(dt[:, t, :, None] * a) + (dt[:, t] * u[:, t])[..., None] * b[:, t, None]
            out.append((h * c[:, t, None]).sum(-1))
        return self.out((torch.stack(out, 1) + u * self.d) * F.silu(z))


class LinearAttention(nn.Module):
    """Of positive features, all before a place by a sum that goes on."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(24, 72), nn.Linear(24, 24)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 12)).unbind(2)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        kv = torch.cumsum(torch.einsum("bnhd,bnhe->bnhde", k, v), 1)
        z = 1 / torch.einsum("bnhd,bnhd->bnh", q, k.cumsum(1)).clamp(min=1e-6)
        return self.out(torch.einsum("bnhd,bnhde,bnh->bnhe", q, kv, z).flatten(2))


class Retention(nn.Module):
    """Attention that fades with the distance, as fast as each head does."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.g, self.o = (nn.Linear(32, 32, bias=False) for _ in range(5))
        self.norm = nn.GroupNorm(4, 32)
        self.register_buffer("decay", torch.log(1 - 2 ** (-5 - torch.arange(4).float())))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (f(x).view(b, n, 4, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        t = torch.arange(n)
        far = (t[:, None] - t).to(x.dtype)
        w = torch.exp(far * self.decay[:, None, None]) * (far >= 0)
        y = ((q @ k.transpose(-1, -2)) * w * 8 ** -0.5) @ v
        y = self.norm(y.transpose(1, 2).reshape(b * n, d)).view(b, n, d)
        return self.o(F.silu(self.g(x)) * y)


class Alibi(nn.Module):
    """Slopes instead of positions, queries that share keys."""

    def __init__(self):
        super().__init__()
        self.q, self.kv, self.o = nn.Linear(32, 32), nn.Linear(32, 16), nn.Linear(32, 32)
        self.register_buffer("slopes", 2.0 ** -torch.arange(1, 5).float())

    def forward(self, x):
        b, n, _ = x.shape
        q = self.q(x).view(b, n, 4, 8).transpose(1, 2)
        k, v = self.kv(x).view(b, n, 1, 2, 8).permute(3, 0, 2, 1, 4)
        t = torch.arange(n)
        bias = (t[None] - t[:, None]).clamp(max=0) * self.slopes[:, None, None]
        keep = torch.ones(n, n, dtype=torch.bool).tril()
        s = (q @ k.expand(-1, 4, -1, -1).transpose(-1, -2) * 8 ** -0.5 + bias).masked_fill(~keep, float("-inf"))
        return self.o((s.softmax(-1) @ v.expand(-1, 4, -1, -1)).transpose(1, 2).flatten(2))


class TextCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 16)
        self.convs = nn.ModuleList(nn.Conv2d(1, 8, (k, 16)) for k in (3, 4, 5))
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(24, 3)

    def forward(self, ids):
        x = self.words(ids)[:, None]
        x = [F.relu(c(x)).squeeze(3) for c in self.convs]
        return self.head(self.drop(torch.cat([F.max_pool1d(i, i.size(2)).squeeze(2) for i in x], 1)))


class Crf(nn.Module):
    """All ways through the tags, summed up."""

    def __init__(self):
        super().__init__()
        self.words, self.cells, self.head = nn.Embedding(WORDS, 8), nn.LSTM(8, 8, bidirectional=True, batch_first=True), nn.Linear(16, 5)
        self.steps = nn.Parameter(torch.randn(5, 5))

    def forward(self, ids):
        e = self.head(self.cells(self.words(ids))[0])
        a = e[:, 0]
        for t in range(1, 16):
            a = torch.logsumexp(a[:, :, None] + self.steps, 1) + e[:, t]
        return torch.logsumexp(a, 1, keepdim=True)


class RelativeShift(nn.Module):
    """Transformer-XL: positions by their distance, biases of content and of place."""

    def __init__(self):
        super().__init__()
        self.q, self.kv, self.r, self.o = nn.Linear(32, 32), nn.Linear(32, 64), nn.Linear(32, 32, bias=False), nn.Linear(32, 32)
        self.u, self.v = nn.Parameter(torch.randn(4, 8) * 0.2), nn.Parameter(torch.randn(4, 8) * 0.2)

    def forward(self, x):
        b, n, _ = x.shape
        f = 1 / (10000 ** (torch.arange(0, 32, 2, dtype=x.dtype) / 32))
        p = torch.arange(n - 1, -1, -1, dtype=x.dtype)[:, None] * f
        r = self.r(torch.cat([p.sin(), p.cos()], -1)).view(n, 4, 8)
        q = self.q(x).view(b, n, 4, 8)
        k, v = self.kv(x).view(b, n, 2, 4, 8).unbind(2)
        ac = torch.einsum("bihd,bjhd->bhij", q + self.u, k)
        bd = F.pad(torch.einsum("bihd,jhd->bhij", q + self.v, r), (1, 0)).view(b, 4, n + 1, n)[:, :, 1:].reshape(b, 4, n, n)
        s = (ac + bd).mul(8 ** -0.5).masked_fill(torch.ones(n, n).triu(1).bool(), -1e30)
        return self.o(torch.einsum("bhij,bjhd->bihd", s.softmax(-1), v).flatten(2))


class Conformer(nn.Module):
    """A block for speech."""

    def __init__(self):
        super().__init__()
        self.f1, self.f2 = (nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 48), nn.SiLU(), nn.Dropout(0.1), nn.Linear(48, 24)) for _ in range(2))
        self.n1, self.att = nn.LayerNorm(24), nn.MultiheadAttention(24, 4, batch_first=True)
        self.n2, self.p1, self.p2 = nn.LayerNorm(24), nn.Conv1d(24, 48, 1), nn.Conv1d(24, 24, 1)
        self.depth, self.bn, self.last = nn.Conv1d(24, 24, 7, padding=3, groups=24), nn.BatchNorm1d(24), nn.LayerNorm(24)

    def forward(self, x):
        x = x + 0.5 * self.f1(x)
        y = self.n1(x)
        x = x + self.att(y, y, y, need_weights=False)[0]
        y = F.glu(self.p1(self.n2(x).transpose(1, 2)), 1)
        x = x + self.p2(F.silu(self.bn(self.depth(y)))).transpose(1, 2)
        return self.last(x + 0.5 * self.f2(x))


class BiDaf(nn.Module):
    """A question and a text look at each other."""

    def __init__(self):
        super().__init__()
        self.words, self.cells = nn.Embedding(WORDS, 16), nn.LSTM(16, 8, bidirectional=True, batch_first=True)
        self.w, self.head = nn.Linear(48, 1, bias=False), nn.Linear(64, 2)

    def forward(self, text, question):
        c, q = self.cells(self.words(text))[0], self.cells(self.words(question))[0]
        n, m = c.shape[1], q.shape[1]
        cc, qq = c[:, :, None].expand(-1, -1, m, -1), q[:, None].expand(-1, n, -1, -1)
        s = self.w(torch.cat([cc, qq, cc * qq], -1)).squeeze(-1)
        a = s.softmax(2) @ q
        b = (s.amax(2).softmax(1)[:, None] @ c).expand(-1, n, -1)
        return self.head(torch.cat([c, a, c * a, c * b], -1))


class MemoryNetwork(nn.Module):
    """A question reads sentences again and again; places are weights that are fixed."""

    def __init__(self):
        super().__init__()
        self.a, self.c = nn.Embedding(WORDS, 16, padding_idx=0), nn.Embedding(WORDS, 16, padding_idx=0)
        j, k = torch.arange(1, 8)[:, None], torch.arange(1, 17)
        self.register_buffer("place", (1 - j / 7) - (k / 16) * (1 - 2 * j / 7))
        self.h, self.head = nn.Linear(16, 16), nn.Linear(16, WORDS)

    def forward(self, story, question):
        m, c = (self.a(story) * self.place).sum(2), (self.c(story) * self.place).sum(2)
        u = (self.a(question) * self.place).sum(1)
        for _ in range(2):
            p = torch.bmm(m, u.unsqueeze(2)).softmax(1)
            u = self.h(u) + (c * p).sum(1)
        return self.head(u)


def words(*shape):
    return lambda: torch.randint(0, 20, shape)


ALL = {
    "bag_of_words": own(BagOfWords, ids), "encoder_padded": own(Padded, ids, mask, lengths=[1, 1]),
    "demucs": own(Demucs, floats(2, 1, 256)), "deep_speech": own(DeepSpeech, floats(2, 1, 32, 40)),
    "crnn": own(Crnn, floats(2, 1, 32, 40)), "nbeats": own(Nbeats, floats(2, 20)),
    "gated_residual": own(GatedResidual, floats(2, 12, 4), lengths=[1]),
    "selective_scan": own(SelectiveScan, floats(2, 10, 16)),
    "linear_attention": own(LinearAttention, floats(2, 12, 24), lengths=[1]),
    "retention": own(Retention, floats(2, 12, 32), lengths=[1]), "alibi": own(Alibi, floats(2, 12, 32), lengths=[1]),
    "text_cnn": own(TextCnn, ids, lengths=[1]), "crf": own(Crf, ids),
    "relative_shift": own(RelativeShift, floats(2, 12, 32), lengths=[1]),
    "conformer": own(Conformer, floats(2, 12, 24), lengths=[1]), "bidaf": own(BiDaf, ids, ids, lengths=[1, 1]),
    "memory_network": own(MemoryNetwork, words(2, 5, 7), words(2, 7)),
}
