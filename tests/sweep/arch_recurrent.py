"""Cells, scans, sequences to sequences and transformers with their own places; for sweep.py."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from arch_common import WORDS, ids
from arch_plain import floats, own


class IndRnn(nn.Module):
    """A weight for each cell instead of a matrix."""

    class Layer(nn.Module):
        def __init__(self, i, h):
            super().__init__()
            self.weight_ih = nn.Parameter(torch.randn(h, i) * 0.3)
            self.weight_hh = nn.Parameter(torch.rand(h) * 0.9)
            self.bias_ih = nn.Parameter(torch.zeros(h))

        def forward(self, x):
            h, out = torch.zeros_like(x[:, 0] @ self.weight_ih.t()), []
            for t in range(x.shape[1]):
                h = F.relu(F.linear(x[:, t], self.weight_ih, self.bias_ih) + self.weight_hh * h)
                out.append(h)
            return torch.stack(out, 1)

    def __init__(self):
        super().__init__()
        self.a, self.b, self.fc = self.Layer(4, 16), self.Layer(16, 12), nn.Linear(12, 3)

    def forward(self, x):
        return self.fc(self.b(self.a(x))[:, -1])


class Sru(nn.Module):
    """Simple recurrent units: one product for all steps, then elements alone, with vectors for the state."""

    def __init__(self, d=12):
        super().__init__()
        self.weight = nn.Linear(d, 3 * d, bias=False)
        self.weight_c = nn.Parameter(torch.randn(2 * d) * 0.3)
        self.bias = nn.Parameter(torch.zeros(2 * d))
        self.scale_x = 1.7
        self.out = nn.Linear(d, 4)

    def forward(self, x):
        u = self.weight(x)
        (vf, vr), (bf, br) = self.weight_c.chunk(2), self.bias.chunk(2)
        c, out = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            u0, u1, u2 = u[:, t].chunk(3, -1)
            f = torch.sigmoid(u1 + vf * c + bf)
            r = torch.sigmoid(u2 + vr * c + br)
            c = f * c + (1 - f) * u0
            out.append(r * torch.tanh(c) + (1 - r) * x[:, t] * self.scale_x)
        return self.out(torch.stack(out, 1))


class FastGrnn(nn.Module):
    """Two numbers say how much of a candidate comes in, factors of low rank."""

    def __init__(self, i=5, h=14, r=4):
        super().__init__()
        self.W1, self.W2 = nn.Parameter(0.3 * torch.randn(i, r)), nn.Parameter(0.3 * torch.randn(r, h))
        self.U1, self.U2 = nn.Parameter(0.3 * torch.randn(h, r)), nn.Parameter(0.3 * torch.randn(r, h))
        self.bias_gate, self.bias_update = nn.Parameter(torch.ones(1, h)), nn.Parameter(torch.ones(1, h))
        self.zeta, self.nu = nn.Parameter(torch.ones(1, 1)), nn.Parameter(-4 * torch.ones(1, 1))
        self.fc = nn.Linear(h, 3)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 14)
        for t in range(x.shape[1]):
            pre = x[:, t] @ self.W1 @ self.W2 + h @ self.U1 @ self.U2
            z, c = torch.sigmoid(pre + self.bias_gate), torch.tanh(pre + self.bias_update)
            h = z * h + (torch.sigmoid(self.zeta) * (1 - z) + torch.sigmoid(self.nu)) * c
        return self.fc(h)


class LayerNormLstm(nn.Module):
    """Peepholes and norms of the gates; the first state is learned."""

    def __init__(self, i=4, h=12):
        super().__init__()
        self.ih, self.hh = nn.Linear(i, 4 * h, bias=False), nn.Linear(h, 4 * h, bias=False)
        self.ln_i, self.ln_h, self.ln_c = nn.LayerNorm(4 * h), nn.LayerNorm(4 * h), nn.LayerNorm(h)
        self.peep = nn.ParameterDict({k: nn.Parameter(torch.randn(h) * 0.1) for k in ("i", "f", "o")})
        self.h0, self.c0 = nn.Parameter(torch.zeros(1, h)), nn.Parameter(torch.zeros(1, h))
        self.fc = nn.Linear(h, 3)

    def forward(self, x):
        h, c = self.h0.expand(x.size(0), -1), self.c0.expand(x.size(0), -1)
        for t in range(x.size(1)):
            i, f, g, o = (self.ln_i(self.ih(x[:, t])) + self.ln_h(self.hh(h))).chunk(4, 1)
            c = torch.sigmoid(f + self.peep["f"] * c) * c + torch.sigmoid(i + self.peep["i"] * c) * torch.tanh(g)
            h = torch.sigmoid(o + self.peep["o"] * c) * torch.tanh(self.ln_c(c))
        return self.fc(h)


class LiquidCells(nn.Module):
    """Liquid time constants: leaks, a wiring mask, reversal potentials, six steps of a fused solver."""

    def __init__(self, i=3, n=8):
        super().__init__()
        self.gleak, self.vleak = nn.Parameter(torch.rand(n) + 0.01), nn.Parameter(torch.rand(n) * 0.4 - 0.2)
        self.cm = nn.Parameter(torch.rand(n) * 0.2 + 0.4)
        for name, k in (("", n), ("sensory_", i)):
            setattr(self, name + "sigma", nn.Parameter(torch.rand(k, n) * 5 + 3))
            setattr(self, name + "mu", nn.Parameter(torch.rand(k, n) * 0.5 + 0.3))
            setattr(self, name + "w", nn.Parameter(torch.rand(k, n)))
            setattr(self, name + "erev", nn.Parameter((torch.rand(k, n) > 0.4).float() * 2 - 1))
            self.register_buffer(name + "sparsity", (torch.rand(k, n) > 0.3).float())
        self.input_w, self.input_b = nn.Parameter(torch.ones(i)), nn.Parameter(torch.zeros(i))
        self.output_w, self.output_b = nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(2))

    def forward(self, xs):
        v = xs.new_zeros(xs.shape[0], 8)
        for t in range(xs.shape[1]):
            x = xs[:, t] * self.input_w + self.input_b
            s = self.sensory_w * torch.sigmoid(self.sensory_sigma * (x[:, :, None] - self.sensory_mu)) * self.sensory_sparsity
            num_s, den_s = (s * self.sensory_erev).sum(1), s.sum(1)
            cm_t = self.cm / 0.5
            for _ in range(2):
                a = self.w * torch.sigmoid(self.sigma * (v[:, :, None] - self.mu)) * self.sparsity
                num = cm_t * v + self.gleak * self.vleak + (a * self.erev).sum(1) + num_s
                v = num / (cm_t + self.gleak + a.sum(1) + den_s + 1e-8)
        return v[:, :2] * self.output_w + self.output_b


class Spiking(nn.Module):
    """Leaky neurons whose spike has the gradient of a sigmoid: by detach, with a learned decay."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 20), nn.Linear(20, 4)
        self.beta = nn.Parameter(torch.tensor(0.9))
        self.threshold = nn.Parameter(torch.ones(20))
        self.register_buffer("reset", torch.tensor(0.5))

    def forward(self, x):
        mem, out = torch.zeros(x.shape[0], 20, dtype=x.dtype), 0
        for t in range(x.shape[1]):
            mem = self.beta.clamp(0, 1) * mem + self.fc1(x[:, t])
            soft = torch.sigmoid(4 * (mem - self.threshold))
            spike = ((mem > self.threshold).to(x.dtype) - soft).detach() + soft
            mem = mem - spike * self.reset
            out = out + self.fc2(spike)
        return out / x.shape[1]


class Bahdanau(nn.Module):
    """A cell that looks at all that was read, and whose guess is the next word it reads."""

    def __init__(self, d=16):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, d)
        self.encoder = nn.GRU(d, d, batch_first=True, bidirectional=True)
        self.bridge, self.cell, self.out = nn.Linear(2 * d, d), nn.GRUCell(3 * d, d), nn.Linear(3 * d, 20)
        self.Wa, self.Ua, self.Va = nn.Linear(d, d), nn.Linear(2 * d, d), nn.Linear(d, 1)
        self.sos = nn.Parameter(torch.randn(1, d))

    def forward(self, src):
        keys, h = self.encoder(self.embedding(src))
        h = torch.tanh(self.bridge(torch.cat([h[0], h[1]], 1)))
        word, out = self.sos.repeat(src.size(0), 1), []
        for _ in range(3):
            w = F.softmax(self.Va(torch.tanh(self.Wa(h)[:, None] + self.Ua(keys))), 1)
            context = (w * keys).sum(1)
            h = self.cell(torch.cat([word, context], 1), h)
            out.append(self.out(torch.cat([h, context], 1)))
            word = self.embedding(out[-1].detach().argmax(1))
        return torch.stack(out, 1)


class Luong(nn.Module):
    """Attention of Luong over an LSTM whose words are read from the other side's table; weights are tied."""

    def __init__(self, d=24):
        super().__init__()
        self.shared = nn.Embedding(WORDS, d, padding_idx=0)
        self.encoder, self.decoder = nn.LSTM(d, d, batch_first=True), nn.LSTM(d, d, batch_first=True)
        self.W_a = nn.Parameter(torch.randn(d, d) * 0.2)
        self.W_c, self.out = nn.Linear(2 * d, d), nn.Linear(d, WORDS, bias=False)
        self.out.weight = self.shared.weight

    def forward(self, src, tgt):
        memory, state = self.encoder(self.shared(src))
        h, _ = self.decoder(self.shared(tgt), state)
        scores = torch.bmm(h @ self.W_a, memory.transpose(1, 2)).masked_fill((src == 0)[:, None], -1e9)
        return self.out(torch.tanh(self.W_c(torch.cat([F.softmax(scores, -1) @ memory, h], -1))))


class SequenceFirst(nn.Module):
    """PyTorch's tutorial: words first, positions as sines of a buffer, a mask of the code, tied words."""

    class PositionalEncoding(nn.Module):
        def __init__(self, d, n=64):
            super().__init__()
            self.dropout = nn.Dropout(0.1)
            at, div = torch.arange(n).unsqueeze(1), torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
            pe = torch.zeros(n, 1, d)
            pe[:, 0, 0::2], pe[:, 0, 1::2] = torch.sin(at * div), torch.cos(at * div)
            self.register_buffer("pe", pe)

        def forward(self, x):
            return self.dropout(x + self.pe[:x.size(0)])

    def __init__(self, d=24):
        super().__init__()
        self.encoder, self.pos_encoder, self.d = nn.Embedding(WORDS, d), self.PositionalEncoding(d), d
        self.transformer_encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 32, 0.1), 2, enable_nested_tensor=False)
        self.decoder = nn.Linear(d, WORDS)
        self.decoder.weight = self.encoder.weight

    def forward(self, src):
        src = src.t()
        x = self.pos_encoder(self.encoder(src) * math.sqrt(self.d))
        mask = nn.Transformer.generate_square_subsequent_mask(src.size(0)).to(x.dtype)
        return self.decoder(self.transformer_encoder(x, mask)).transpose(0, 1)


class RotaryLm(nn.Module):
    """Rotary places by pairs, from tables that no state dictionary holds; queries and keys are normed."""

    def __init__(self, d=32, heads=4, n=64):
        super().__init__()
        self.heads, hd = heads, d // heads
        freqs = torch.outer(torch.arange(n).float(), 1.0 / (10000 ** (torch.arange(0, hd, 2).float() / hd)))
        self.register_buffer("rope_cos", freqs.cos(), persistent=False)
        self.register_buffer("rope_sin", freqs.sin(), persistent=False)
        self.register_buffer("causal", torch.tril(torch.ones(n, n, dtype=torch.bool)), persistent=False)
        self.wte, self.qkv, self.proj = nn.Embedding(WORDS, d), nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.q_scale, self.k_scale = nn.Parameter(torch.ones(hd)), nn.Parameter(torch.ones(hd))
        self.norm1, self.norm2 = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))
        self.w1, self.w2, self.w3 = nn.Linear(d, 48, bias=False), nn.Linear(48, d, bias=False), nn.Linear(d, 48, bias=False)

    @staticmethod
    def rms(x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w

    def turn(self, x, n):
        a, b = x[..., 0::2], x[..., 1::2]
        c, s = self.rope_cos[:n], self.rope_sin[:n]
        return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)

    def forward(self, idx):
        b, n = idx.shape
        x = self.wte(idx)
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.qkv(self.rms(x, self.norm1)).chunk(3, -1))
        q, k = self.turn(self.rms(q, self.q_scale), n), self.turn(self.rms(k, self.k_scale), n)
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        att = att.masked_fill(~self.causal[:n, :n], float("-inf")).softmax(-1)
        x = x + self.proj((att @ v).transpose(1, 2).reshape(b, n, -1))
        h = self.rms(x, self.norm2)
        x = x + self.w2(F.silu(self.w1(h)) * self.w3(h))
        return x @ self.wte.weight.t()


class NoisyExperts(nn.Module):
    """The gate of Shazeer: weights as parameters of the module, a normal distribution's buffers, experts by einsum."""

    def __init__(self, d=12, e=4, h=16):
        super().__init__()
        self.w_gate, self.w_noise = nn.Parameter(torch.randn(d, e) * 0.3), nn.Parameter(torch.zeros(d, e))
        self.w_in, self.w_out = nn.Parameter(torch.randn(e, d, h) * 0.3), nn.Parameter(torch.randn(e, h, d) * 0.3)
        self.b_in = nn.Parameter(torch.zeros(e, 1, h))
        self.register_buffer("mean", torch.tensor([0.0]))
        self.register_buffer("std", torch.tensor([1.0]))

    def forward(self, x):
        logits = x @ self.w_gate
        top, at = logits.topk(2, dim=-1)
        gates = torch.zeros_like(logits).scatter(1, at, top.softmax(-1))
        noise = F.softplus(x @ self.w_noise) + 1e-2
        load = 0.5 * (1 + torch.erf((logits - top[:, 1:] - self.mean) / (noise * self.std) / math.sqrt(2)))
        h = F.relu(torch.einsum("bd,edh->ebh", x, self.w_in) + self.b_in)
        y = torch.einsum("ebh,ehd->ebd", h, self.w_out)
        return torch.einsum("ebd,be->bd", y, gates) + load.mean(1, keepdim=True)


class Linformer(nn.Module):
    """Keys and values of fewer words: by one projection for both; a token's scale by attention-free positions."""

    def __init__(self, d=24, n=12, k=5):
        super().__init__()
        self.proj_k, self.pos_bias = nn.Parameter(torch.randn(n, k) * 0.3), nn.Parameter(torch.randn(n, n) * 0.3)
        self.to_q, self.to_kv, self.to_out = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d)
        self.aft_k, self.aft_v, self.norm = nn.Linear(d, d), nn.Linear(d, d), nn.LayerNorm(d)

    def forward(self, x):
        q, (k, v) = self.to_q(x), self.to_kv(x).chunk(2, -1)
        k, v = (torch.einsum("bnd,nk->bkd", t, self.proj_k) for t in (k, v))
        x = self.norm(x + self.to_out((q @ k.transpose(1, 2) / 24 ** 0.5).softmax(-1) @ v))
        k, v = torch.exp(self.aft_k(x)), self.aft_v(x)
        w = torch.exp(self.pos_bias)
        return x + torch.sigmoid(q) * (w @ (k * v)) / (w @ k)


class LinearRecurrence(nn.Module):
    """LRU: a complex diagonal by logarithms, as real and imaginary parts, and a skip for each channel."""

    def __init__(self, d=8, n=10):
        super().__init__()
        u = torch.rand(n) * 0.4 + 0.5
        self.nu_log = nn.Parameter(torch.log(-0.5 * torch.log(u ** 2)))
        self.theta_log = nn.Parameter(torch.log(torch.rand(n) * 3))
        self.gamma_log = nn.Parameter(torch.log(torch.sqrt(1 - u ** 2)))
        self.B_re, self.B_im = nn.Parameter(torch.randn(n, d) / 4), nn.Parameter(torch.randn(n, d) / 4)
        self.C_re, self.C_im = nn.Parameter(torch.randn(d, n) / 4), nn.Parameter(torch.randn(d, n) / 4)
        self.D = nn.Parameter(torch.randn(d))

    def forward(self, x):
        r, a = torch.exp(-torch.exp(self.nu_log)), torch.exp(self.theta_log)
        lr, li = r * torch.cos(a), r * torch.sin(a)
        g = torch.exp(self.gamma_log)
        ur, ui = (x @ self.B_re.t()) * g, (x @ self.B_im.t()) * g
        hr, hi, out = torch.zeros_like(ur[:, 0]), torch.zeros_like(ur[:, 0]), []
        for t in range(x.shape[1]):
            hr, hi = lr * hr - li * hi + ur[:, t], lr * hi + li * hr + ui[:, t]
            out.append(hr @ self.C_re.t() - hi @ self.C_im.t() + self.D * x[:, t])
        return F.gelu(torch.stack(out, 1))


class Hyena(nn.Module):
    """Long filters that a small net makes of positions, times decays; products by FFT."""

    def __init__(self, d=8, n=12):
        super().__init__()
        t = torch.linspace(0, 1, n)[:, None]
        bands = torch.linspace(1e-4, 2, 3)[None]
        angle = 2 * math.pi * torch.arange(n)[:, None] / n * bands
        self.register_buffer("z", torch.cat([t, angle.cos(), -angle.sin()], 1))
        self.register_buffer("t", t)
        self.register_buffer("deltas", torch.linspace(1.5, 9, d)[None])
        self.freq = nn.Parameter(10 * torch.ones(1, 16))
        self.implicit1, self.implicit2 = nn.Linear(7, 16), nn.Linear(16, d, bias=False)
        self.in_proj, self.out_proj, self.short = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Conv1d(3 * d, 3 * d, 3, padding=2, groups=3 * d)
        self.bias = nn.Parameter(torch.randn(d))

    def forward(self, u):
        n = u.shape[1]
        x1, x2, v = self.short(self.in_proj(u).transpose(1, 2))[..., :n].chunk(3, 1)
        k = self.implicit2(torch.sin(self.freq * self.implicit1(self.z))) * torch.exp(-self.t * self.deltas.abs())
        v = v * x1
        y = torch.fft.irfft(torch.fft.rfft(v, n=2 * n) * torch.fft.rfft(k.t(), n=2 * n), n=2 * n)[..., :n]
        return self.out_proj(((y + v * self.bias[:, None]) * x2).transpose(1, 2))


class ConditionedWaveNet(nn.Module):
    """Gated dilated convolutions with weights that are normed (by parametrizations no longer, by hand), local conditions."""

    class NormedConv(nn.Module):
        def __init__(self, i, o, k, d=1):
            super().__init__()
            self.v, self.g, self.bias = nn.Parameter(torch.randn(o, i, k) * 0.1), nn.Parameter(torch.ones(o, 1, 1)), nn.Parameter(torch.zeros(o))
            self.d, self.k = d, k

        def forward(self, x):
            w = self.g * self.v / self.v.norm(dim=(1, 2), keepdim=True)
            return F.conv1d(F.pad(x, ((self.k - 1) * self.d, 0)), w, self.bias, dilation=self.d)

    def __init__(self, c=8):
        super().__init__()
        self.first = self.NormedConv(1, c, 1)
        self.gates = nn.ModuleList(self.NormedConv(c, 2 * c, 2, 2 ** i) for i in range(3))
        self.conds = nn.ModuleList(nn.Conv1d(3, 2 * c, 1, bias=False) for _ in range(3))
        self.res, self.skips = nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(3)), nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(3))
        self.last = nn.Conv1d(c, 2, 1)

    def forward(self, x, cond):
        x, total = self.first(x), 0
        cond = F.interpolate(cond, size=x.shape[-1], mode="nearest")
        for gate, c, res, skip in zip(self.gates, self.conds, self.res, self.skips):
            a, b = (gate(x) + c(cond)).chunk(2, 1)
            y = torch.tanh(a) * torch.sigmoid(b)
            x, total = (x + res(y)) * math.sqrt(0.5), total + skip(y)
        return self.last(F.relu(total))


class PceN(nn.Module):
    """Learned energies of a spectrogram: windows and waves of the code as filters, a smoother as a loop, PCEN's four vectors."""

    def __init__(self, n=16, bands=6):
        super().__init__()
        t = torch.arange(n)
        window = 0.5 - 0.5 * torch.cos(2 * math.pi * t / n)
        k = torch.arange(n // 2 + 1)[:, None]
        self.register_buffer("dft_real", (torch.cos(2 * math.pi * k * t / n) * window)[:, None])
        self.register_buffer("dft_imag", (-torch.sin(2 * math.pi * k * t / n) * window)[:, None])
        fb = torch.relu(1 - (torch.arange(n // 2 + 1)[:, None] - torch.linspace(1, 7, bands)).abs() / 2)
        self.register_buffer("mel_fb", fb)
        self.alpha, self.delta = nn.Parameter(torch.full((bands,), 0.96)), nn.Parameter(torch.full((bands,), 2.0))
        self.root, self.ema_weight = nn.Parameter(torch.full((bands,), 2.0)), nn.Parameter(torch.full((bands,), 0.2))
        self.fc = nn.Linear(bands, 4)

    def forward(self, wave):
        x = wave[:, None]
        power = F.conv1d(x, self.dft_real, stride=8) ** 2 + F.conv1d(x, self.dft_imag, stride=8) ** 2
        e = power.transpose(1, 2) @ self.mel_fb
        w, m, smooth = self.ema_weight.clamp(0, 1), e[:, 0], []
        for t in range(e.shape[1]):
            m = w * e[:, t] + (1 - w) * m
            smooth.append(m)
        m, root = torch.stack(smooth, 1), 1 / torch.clamp(self.root, min=1.0)
        y = (e / (1e-4 + m) ** torch.clamp(self.alpha, max=1.0) + self.delta) ** root - self.delta ** root
        return self.fc(y.mean(1))


class EegNet(nn.Module):
    """Depthwise over electrodes, a weight whose norm is bounded as it is used."""

    def __init__(self):
        super().__init__()
        self.temporal = nn.Conv2d(1, 4, (1, 8), padding="same", bias=False)
        self.bn1, self.spatial = nn.BatchNorm2d(4, momentum=0.01, eps=1e-3), nn.Conv2d(4, 8, (5, 1), groups=4, bias=False)
        self.bn2 = nn.BatchNorm2d(8, momentum=0.01, eps=1e-3)
        self.sep = nn.Sequential(nn.Conv2d(8, 8, (1, 4), padding=(0, 2), groups=8, bias=False), nn.Conv2d(8, 6, 1, bias=False), nn.BatchNorm2d(6))
        self.classify = nn.Linear(24, 3)

    def forward(self, x):
        x = F.avg_pool2d(F.elu(self.bn2(self.spatial(self.bn1(self.temporal(x))))), (1, 4))
        x = F.avg_pool2d(F.elu(self.sep(x)), (1, 2)).flatten(1)
        w = self.classify.weight
        return F.linear(x, w * (0.9 / w.norm(dim=1, keepdim=True)).clamp(max=1.0), self.classify.bias)


class TrainableMemory(nn.Module):
    """A universal transformer: one layer three times, a table for steps, a halting weight for each."""

    def __init__(self, d=16):
        super().__init__()
        self.embed, self.step_embedding = nn.Embedding(WORDS, d), nn.Parameter(torch.randn(3, 1, d) * 0.1)
        self.layer = nn.TransformerEncoderLayer(d, 2, 24, 0.0, "gelu", batch_first=True)
        self.halt, self.out = nn.Linear(d, 1), nn.Linear(d, 5)

    def forward(self, x):
        h = self.embed(x)
        left, total = torch.ones_like(h[..., :1]), 0
        for step in range(3):
            h = self.layer(h + self.step_embedding[step])
            p = torch.sigmoid(self.halt(h)) if step < 2 else torch.ones_like(left)
            total, left = total + left * p * h, left * (1 - p)
        return self.out(total)


ALL = {
    "ind_rnn": own(IndRnn, floats(2, 6, 4)), "sru": own(Sru, floats(2, 6, 12)), "fast_grnn": own(FastGrnn, floats(2, 6, 5)),
    "layer_norm_lstm": own(LayerNormLstm, floats(2, 5, 4)), "liquid_cells": own(LiquidCells, floats(2, 4, 3)),
    "spiking": own(Spiking, floats(2, 5, 6)), "bahdanau": own(Bahdanau, ids), "luong": own(Luong, ids, ids, lengths=[1, 1]),
    "sequence_first": own(SequenceFirst, ids, lengths=[1]), "rotary_lm": own(RotaryLm, ids, lengths=[1]),
    "noisy_experts": own(NoisyExperts, floats(2, 12)), "linformer": own(Linformer, floats(2, 12, 24)),
    "linear_recurrence": own(LinearRecurrence, floats(2, 6, 8)), "hyena": own(Hyena, floats(2, 12, 8)),
    "conditioned_wavenet": own(ConditionedWaveNet, floats(2, 1, 20), floats(2, 3, 5)), "pcen": own(PceN, floats(2, 64)),
    "eeg_net": own(EegNet, floats(2, 1, 5, 30)), "universal": own(TrainableMemory, ids, lengths=[1]),
}
