"""Architectures written here with plain PyTorch, for sweep.py."""
import torch
from torch import nn
from torch.nn import functional as F

from arch_common import FirstOutput, LENGTH, WORDS, first, ids, mask


class Lstm(nn.Module):
    def __init__(self, cells=nn.LSTM, both=True):
        super().__init__()
        self.words = nn.Embedding(WORDS, 16)
        self.cells = cells(16, 24, 2, batch_first=True, bidirectional=both)
        self.head = nn.Linear(48 if both else 24, 5)

    def forward(self, ids):
        return self.head(self.cells(self.words(ids))[0][:, -1])


class LstmState(nn.Module):
    """Only what its cell remembers at the end."""

    def __init__(self):
        super().__init__()
        self.cells, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.cells(x)[1][1][-1])


class ConvLstm(nn.Module):
    """Convolutions, then time: as for speech."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(8, 16, 5, padding=2), nn.BatchNorm1d(16), nn.ReLU())
        self.cells, self.head = nn.GRU(16, 12, batch_first=True), nn.Linear(12, 7)

    def forward(self, x):
        return F.log_softmax(self.head(self.cells(self.conv(x).transpose(1, 2))[0]), -1)


def twice(n_in, n_out, norm=nn.BatchNorm2d):
    return nn.Sequential(nn.Conv2d(n_in, n_out, 3, padding=1), norm(n_out), nn.ReLU(),
                         nn.Conv2d(n_out, n_out, 3, padding=1), norm(n_out), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, norm=nn.BatchNorm2d, resize=False):
        super().__init__()
        self.a, self.b, self.c = twice(3, 8, norm), twice(8, 16, norm), twice(16, 32, norm)
        up = (lambda i, o: nn.Sequential(
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), nn.Conv2d(i, o, 1))) \
            if resize else (lambda i, o: nn.ConvTranspose2d(i, o, 2, 2))
        self.u, self.v = up(32, 16), up(16, 8)
        self.d, self.e, self.head = twice(32, 16, norm), twice(16, 8, norm), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        d = self.d(torch.cat([self.u(c), b], 1))
        return self.head(self.e(torch.cat([self.v(d), a], 1)))


class UNet3d(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv3d(1, 8, 3, padding=1), nn.Conv3d(8, 16, 3, padding=1)
        self.n, self.u = nn.InstanceNorm3d(8, affine=True), nn.ConvTranspose3d(16, 8, 2, 2)
        self.head = nn.Conv3d(16, 2, 1)

    def forward(self, x):
        a = F.leaky_relu(self.n(self.a(x)))
        return self.head(torch.cat([self.u(F.relu(self.b(F.max_pool3d(a, 2)))), a], 1))


class Dlrm(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, 8) for n in (50, 30, 20))
        self.dense = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(8 + 6, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
        i, j = torch.tril_indices(4, 4, -1)
        self.register_buffer("i", i)
        self.register_buffer("j", j)

    def forward(self, numbers, kinds):
        x = self.dense(numbers)
        t = torch.stack([x] + [e(kinds[:, k]) for k, e in enumerate(self.tables)], 1)
        z = torch.bmm(t, t.transpose(1, 2))
        return self.top(torch.cat([x, z[:, self.i, self.j]], 1))


class Tabular(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, 4) for n in (50, 30, 20))
        self.norm = nn.BatchNorm1d(10)
        self.net = nn.Sequential(nn.Linear(22, 32), nn.GELU(), nn.BatchNorm1d(32), nn.Dropout(0.1),
                                 nn.Linear(32, 3))

    def forward(self, numbers, kinds):
        e = [t(kinds[:, k]) for k, t in enumerate(self.tables)]
        return self.net(torch.cat([self.norm(numbers), *e], 1))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ELU(), nn.Conv2d(8, 16, 3, 2, 1), nn.SELU(),
                                 nn.ConvTranspose2d(16, 8, 3, 2, 1, 1), nn.Softplus(),
                                 nn.ConvTranspose2d(8, 1, 3, 2, 1, 1), nn.Sigmoid())

    def forward(self, x):
        return self.net(x)


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.mean, self.spread = nn.Linear(64, 32), nn.Linear(32, 8), nn.Linear(32, 8)
        self.dec = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 64))

    def forward(self, x, noise):
        h = torch.relu(self.enc(x))
        return self.dec(self.mean(h) + noise * torch.exp(0.5 * self.spread(h)))


class Generator(nn.Module):
    """Of DCGAN."""

    def __init__(self):
        super().__init__()
        layers, widths = [], (32, 64, 32, 16)
        for i, o in zip(widths, widths[1:]):
            layers += [nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]
        self.net = nn.Sequential(*layers, nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh())

    def forward(self, z):
        return self.net(z[:, :, None, None])


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        sn = nn.utils.parametrizations.spectral_norm
        self.net = nn.Sequential(sn(nn.Conv2d(3, 8, 4, 2, 1)), nn.LeakyReLU(0.2), nn.Conv2d(8, 16, 4, 2, 1),
                                 nn.InstanceNorm2d(16), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(1024, 1))

    def forward(self, x):
        return self.net(x)


class WaveNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Conv1d(1, 16, 1)
        self.gates = nn.ModuleList(nn.Conv1d(16, 32, 2, dilation=2 ** i) for i in range(4))
        self.skips = nn.ModuleList(nn.Conv1d(16, 16, 1) for _ in range(4))
        self.head = nn.Conv1d(16, 8, 1)

    def forward(self, x):
        x, total = self.start(x), 0
        for i, (gate, skip) in enumerate(zip(self.gates, self.skips)):
            a, b = gate(F.pad(x, (2 ** i, 0))).chunk(2, 1)
            s = skip(torch.tanh(a) * torch.sigmoid(b))
            x, total = x + s, total + s
        return self.head(F.relu(total))


class Tcn(nn.Module):
    def __init__(self):
        super().__init__()
        wn = nn.utils.parametrizations.weight_norm
        self.a = wn(nn.Conv1d(4, 16, 3, padding=2, dilation=1))
        self.b = wn(nn.Conv1d(16, 16, 3, padding=4, dilation=2))
        self.down, self.head = nn.Conv1d(4, 16, 1), nn.Linear(16, 3)

    def forward(self, x):
        y = F.relu(self.a(x)[:, :, :-2])
        y = F.relu(self.b(y)[:, :, :-4])
        return self.head(F.relu(y + self.down(x)).mean(-1))


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.turn = nn.Sequential(nn.Conv1d(3, 16, 1), nn.ReLU())
        self.turn_head = nn.Linear(16, 9)
        self.net = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 32, 1))
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        t = self.turn_head(self.turn(x).amax(2)).view(-1, 3, 3) + torch.eye(3, dtype=x.dtype)
        return self.head(self.net(torch.bmm(t, x)).amax(2))


class EinsumAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (4, 8)) for t in self.qkv(x).chunk(3, -1))
        w = torch.einsum("bihd,bjhd->bhij", q, k).mul(8 ** -0.5).softmax(-1)
        return self.out(torch.einsum("bhij,bjhd->bihd", w, v).flatten(2))


class Encoder(nn.Module):
    def __init__(self, **more):
        super().__init__()
        self.net = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, **more), 2)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.net(x))


class Translator(nn.Module):
    """nn.Transformer with a causal mask."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        self.net = nn.Transformer(32, 4, 1, 1, 64, batch_first=True)
        self.head = nn.Linear(32, WORDS)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1]).to(self.head.weight.dtype)
        return self.head(self.net(self.words(source), self.words(target), tgt_mask=mask))


class Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.o, self.n = nn.Linear(32, 96), nn.Linear(32, 32), nn.RMSNorm(32)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.q(self.n(x)).view(b, n, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, n, 32))


class SuperResolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 16, 5, padding=2), nn.Conv2d(16, 9, 3, padding=1)
        self.p = nn.PReLU(16)

    def forward(self, x):
        low = F.interpolate(x, scale_factor=3, mode="bicubic", align_corners=False)
        return F.pixel_shuffle(self.b(self.p(self.a(x))), 3) + low


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 24), nn.Mish(), nn.Linear(24, 8))

    def forward(self, a, b):
        a, b = F.normalize(self.net(a)), F.normalize(self.net(b))
        return F.cosine_similarity(a, b), torch.cdist(a[:, None], b[:, None]).flatten(1)


class GraphConv(nn.Module):
    """Of a dense neighbourhood."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 4)

    def forward(self, x, near):
        near = near / near.sum(-1, keepdim=True).clamp(min=1)
        return self.b(near @ torch.relu(self.a(near @ x)))


class Bag(nn.Module):
    """A mean of words, those of a mask."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 16, padding_idx=0), nn.Linear(16, 3)

    def forward(self, ids, mask):
        m = mask.unsqueeze(-1).to(self.head.weight.dtype)
        return self.head((self.words(ids) * m).sum(1) / m.sum(1))


class MixtureOfExperts(nn.Module):
    """Dense: all experts, weights of the best two."""

    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(16, 4), nn.Parameter(torch.randn(4, 16, 32) * 0.1)
        self.down = nn.Parameter(torch.randn(4, 32, 16) * 0.1)

    def forward(self, x):
        g = self.gate(x)
        best, at = g.topk(2, -1)
        w = torch.zeros_like(g).scatter(-1, at, best.softmax(-1))
        y = torch.einsum("bi,eio->beo", x, self.up)
        return torch.einsum("beo,eoi,be->bi", F.silu(y), self.down, w)


class Diffusion(nn.Module):
    """A small denoiser with an embedding of time, as for diffusion."""

    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16))
        self.a, self.n, self.b = nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.Conv2d(16, 3, 3, padding=1)
        self.m = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x, t):
        f = torch.exp(torch.arange(8, dtype=x.dtype) * -1.15)
        e = t[:, None] * f[None]
        h = self.a(x) + self.time(torch.cat([e.sin(), e.cos()], -1))[:, :, None, None]
        s = F.silu(self.n(h)).flatten(2).transpose(1, 2)
        s = s + self.m(s, s, s, need_weights=False)[0]
        return self.b(s.transpose(1, 2).unflatten(2, x.shape[2:]))


class Tagger(nn.Module):
    """Words and their letters, then a state for each word, as for names in texts."""

    def __init__(self):
        super().__init__()
        self.words, self.letters = nn.Embedding(WORDS, 16), nn.Embedding(30, 6, padding_idx=0)
        self.conv = nn.Conv1d(6, 12, 3, padding=1)
        self.cells, self.head = nn.LSTM(28, 20, batch_first=True, bidirectional=True), nn.Linear(40, 9)

    def forward(self, words, letters):
        n, length, width = letters.shape
        c = self.letters(letters).view(n * length, width, 6).transpose(1, 2)
        c = self.conv(c).amax(2).view(n, length, 12)
        return self.head(self.cells(torch.cat([self.words(words), c], -1))[0])


class SequenceToSequence(nn.Module):
    """GRUs with attention, each step written out."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 16)
        self.read, self.write = nn.GRU(16, 24, batch_first=True), nn.GRUCell(16 + 24, 24)
        self.score, self.head = nn.Linear(48, 1), nn.Linear(24, WORDS)

    def forward(self, source, target):
        kept, state = self.read(self.words(source))
        state, out = state[0], []
        for k in range(6):
            w = self.score(torch.cat([kept, state[:, None].expand_as(kept)], -1)).tanh().softmax(1)
            state = self.write(torch.cat([self.words(target[:, k]), (w * kept).sum(1)], -1), state)
            out.append(self.head(state))
        return torch.stack(out, 1)


class Messages(nn.Module):
    """A graph by its edges: what each node hears, summed."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(12, 16), nn.Linear(22, 16), nn.Linear(16, 3)

    def forward(self, nodes, sources, targets):
        at = targets[:, :, None].expand(-1, -1, 16)
        pairs = torch.cat([nodes.gather(1, i[:, :, None].expand(-1, -1, 6)) for i in (sources, targets)], -1)
        heard = torch.zeros(nodes.shape[0], nodes.shape[1], 16, dtype=nodes.dtype)
        heard = heard.scatter_add(1, at, F.relu(self.a(pairs)))
        return self.head(F.relu(self.b(torch.cat([nodes, heard], -1))).mean(1))


class Rwkv(nn.Module):
    """Time mixed by a decay of its own for each channel, as a matrix of distances."""

    def __init__(self):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(32), nn.Parameter(torch.rand(3, 32))
        self.k, self.v, self.r, self.o = (nn.Linear(32, 32, bias=False) for _ in range(4))
        self.decay = nn.Parameter(torch.randn(32))

    def forward(self, x):
        y = self.norm(x)
        late = F.pad(y, (0, 0, 1, -1))
        k, v, r = (f(y * m + late * (1 - m)) for f, m in zip((self.k, self.v, self.r), self.mix))
        t = torch.arange(x.shape[1])
        far = (t[:, None] - t[None]).clamp(min=0)[..., None]
        w = torch.exp(-far * F.softplus(self.decay) + k[:, None]) * (t[:, None] >= t[None])[..., None]
        return x + self.o(torch.sigmoid(r) * (w * v[:, None]).sum(2) / w.sum(2))


class Denoiser(nn.Module):
    """A U-Net with time and attention over what a text says, as for diffusion in a latent space."""

    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 32))
        self.first, self.down = nn.Conv2d(4, 16, 3, padding=1), nn.Conv2d(16, 32, 3, 2, 1)
        self.norms = nn.ModuleList(nn.GroupNorm(8, n) for n in (16, 32, 32, 16))
        self.mid, self.up = nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 16, 3, padding=1)
        self.ln, self.see = nn.LayerNorm(32), nn.MultiheadAttention(32, 4, kdim=24, vdim=24, batch_first=True)
        self.gate, self.last = nn.Linear(32, 64), nn.Conv2d(32, 4, 3, padding=1)

    def forward(self, x, t, text):
        f = torch.exp(torch.arange(8, dtype=x.dtype) * -1.15)
        e = self.time(torch.cat([(t[:, None] * f).sin(), (t[:, None] * f).cos()], -1))
        a = self.first(x)
        b = self.down(F.silu(self.norms[0](a))) + e[:, :, None, None]
        s = self.ln(b.flatten(2).transpose(1, 2))
        s = s + self.see(s, text, text)[0]
        u, g = self.gate(s).chunk(2, -1)
        s = s + u * F.gelu(g)
        b = b + self.mid(F.silu(self.norms[1](s.transpose(1, 2).reshape(b.shape))))
        c = self.up(F.interpolate(F.silu(self.norms[2](b)), scale_factor=2.0, mode="nearest"))
        return self.last(torch.cat([F.silu(self.norms[3](c)), a], 1))


class Spectral(nn.Module):
    """Sound: a spectrum by torch.stft, then convolutions."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(17, 16, 3, padding=1), nn.BatchNorm1d(16), nn.ReLU(),
                                 nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 4))

    def forward(self, x):
        s = torch.stft(x, 32, 16, window=torch.hann_window(32, dtype=x.dtype), return_complex=True)
        return self.net(torch.log1p(s.abs()))


class Flow(nn.Module):
    """Affine couplings, as in normalising flows."""

    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8)) for _ in range(3))

    def forward(self, x):
        for net in self.nets:
            a, b = x[:, ::2], x[:, 1::2]
            s, t = net(a).chunk(2, 1)
            x = torch.cat([b * torch.exp(torch.tanh(s)) + t, a], 1)
        return x


class Capsules(nn.Module):
    """Routed by agreement, three times."""

    def __init__(self):
        super().__init__()
        self.conv, self.w = nn.Conv2d(1, 32, 9, 4), nn.Parameter(0.1 * torch.randn(100, 5, 6, 8))

    def forward(self, x):
        u = self.squash(self.conv(x).view(x.shape[0], -1, 8))
        votes = torch.einsum("icdk,bik->bicd", self.w, u)
        b = torch.zeros_like(votes[..., 0])
        for _ in range(3):
            v = self.squash((b.softmax(2)[..., None] * votes).sum(1))
            b = b + (votes * v[:, None]).sum(-1)
        return v.norm(dim=-1)

    def squash(self, x):
        n = (x * x).sum(-1, keepdim=True)
        return n / (1 + n) * x / torch.sqrt(n + 1e-8)


class Nerf(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3 + 24, 32), nn.ReLU(), nn.Linear(32, 32), nn.Softplus(10),
                                 nn.Linear(32, 4))

    def forward(self, x):
        f = x[..., None] * (2.0 ** torch.arange(4, dtype=x.dtype))
        return self.net(torch.cat([x, f.sin().flatten(-2), f.cos().flatten(-2)], -1))


def letters():
    return torch.randint(0, 30, (2, LENGTH, 7))


def edges():
    return torch.randint(0, 9, (2, 20))


def own(model, *inputs, lengths=None, first_only=False):
    def make():
        xs = [i() for i in inputs]
        m = model()
        return FirstOutput(m) if first_only else m, xs, lengths or [None] * len(xs)
    return make


def floats(*shape):
    return lambda: torch.randn(*shape)


def kinds():
    return torch.randint(0, 20, (2, 3))


ALL = {
    "lstm": own(Lstm, ids, lengths=[1]), "lstm_one_way": own(lambda: Lstm(both=False), ids, lengths=[1]),
    "gru": own(lambda: Lstm(nn.GRU), ids, lengths=[1]), "rnn": own(lambda: Lstm(nn.RNN), ids, lengths=[1]),
    "lstm_state": own(LstmState, floats(2, 5, 8)),
    "conv_gru": own(ConvLstm, floats(2, 8, 20), lengths=[2]), "unet": own(UNet, floats(2, 3, 32, 32)),
    "unet_group": own(lambda: UNet(lambda n: nn.GroupNorm(4, n), True), floats(2, 3, 32, 32)),
    "unet_instance": own(lambda: UNet(nn.InstanceNorm2d), floats(2, 3, 32, 32)),
    "unet3d": own(UNet3d, floats(2, 1, 8, 8, 8)), "dlrm": own(Dlrm, floats(2, 13), kinds),
    "tabular": own(Tabular, floats(2, 10), kinds), "autoencoder": own(Autoencoder, floats(2, 1, 28, 28)),
    "vae": own(Vae, floats(2, 64), floats(2, 8)), "dcgan": own(Generator, floats(2, 32)),
    "discriminator": own(Discriminator, floats(2, 3, 32, 32)), "wavenet": own(WaveNet, floats(2, 1, 40), lengths=[2]),
    "tcn": own(Tcn, floats(2, 4, 30), lengths=[2]), "pointnet": own(PointNet, floats(2, 3, 50), lengths=[2]),
    "einsum_attention": own(EinsumAttention, floats(2, 10, 32), lengths=[1]),
    "encoder": own(Encoder, floats(2, 10, 32), lengths=[1]),
    "encoder_pre_gelu": own(lambda: Encoder(norm_first=True, activation="gelu"), floats(2, 10, 32), lengths=[1]),
    "translator": own(Translator, ids, ids, lengths=[1, 1]), "causal": own(Causal, floats(2, 10, 32), lengths=[1]),
    "super_resolution": own(SuperResolution, floats(2, 1, 16, 16)), "siamese": own(Siamese, floats(2, 12), floats(2, 12)),
    "graph_conv": own(GraphConv, floats(2, 9, 6), lambda: (torch.rand(2, 9, 9) > 0.6).float(), lengths=None),
    "bag": own(Bag, ids, mask, lengths=[1, 1]), "experts": own(MixtureOfExperts, floats(2, 16)),
    "diffusion": own(Diffusion, floats(2, 3, 8, 8), lambda: torch.rand(2) * 100),
    "mlp": own(lambda: nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4), nn.Softmax(-1)), floats(2, 20)),
    "tagger": own(Tagger, ids, letters, lengths=[1, 1]), "sequence_to_sequence": own(SequenceToSequence, ids, ids, lengths=[1, None]),
    "messages": own(Messages, floats(2, 9, 6), edges, edges), "rwkv": own(Rwkv, floats(2, 12, 32), lengths=[1]),
    "denoiser": own(Denoiser, floats(2, 4, 8, 8), lambda: torch.rand(2) * 100, floats(2, 7, 24)),
    "spectral": own(Spectral, floats(2, 256)), "flow": own(Flow, floats(2, 8)), "capsules": own(Capsules, floats(2, 1, 28, 28)),
    "nerf": own(Nerf, floats(2, 11, 3), lengths=[1]),
    "highway": own(lambda: nn.Sequential(nn.Linear(10, 16), nn.GLU(), nn.LayerNorm(8), nn.Hardswish(), nn.Linear(8, 8), nn.Softsign(),
                                         nn.Linear(8, 3), nn.LogSigmoid()), floats(2, 10)),
    "conv_norms": own(lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding="same", padding_mode="reflect"), nn.LocalResponseNorm(3), nn.CELU(),
                                            nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular"), nn.Softmax2d(), nn.LPPool2d(2, 2),
                                            nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(32, 2)), floats(2, 3, 12, 12)),
}
