"""The architectures of sweep.py: name -> a function that makes (model, inputs, lengths).

Weights are random. Big ones are made small by their own configuration: fewer layers, the same kinds of
them. inputs: tensors in the order of forward(), two samples; lengths: for each input the axis that may
have any length beside the first one, or None.
"""
import torch
from torch import nn
from torch.nn import functional as F

WORDS, LENGTH, SIDE = 100, 16, 64


class FirstOutput(nn.Module):
    """Of a model with several, or with names for them."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return first(self.model(x))


class Text(nn.Module):
    """Of a model of transformers: what it says of tokens, or of one sentence."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return first(self.model(input_ids=input_ids, attention_mask=attention_mask))


class TextOnly(Text):
    def forward(self, input_ids):
        return first(self.model(input_ids))


class Decoded(Text):
    """An encoder and a decoder."""

    def forward(self, input_ids, attention_mask, decoder_input_ids):
        return first(self.model(input_ids=input_ids, attention_mask=attention_mask,
                                decoder_input_ids=decoder_input_ids))


def first(out):
    while not torch.is_tensor(out):
        out = next(iter(out.values())) if isinstance(out, dict) else out[0]
    return out


def image(side, channels=3):
    return torch.randn(2, channels, side, side)


def vision(name, side=SIDE, dense=False, **more):
    """dense: its output is a picture; the model returns several by name."""
    def make():
        from torchvision.models import get_model
        if name == "googlenet" or name == "inception_v3":
            more.setdefault("init_weights", False)
        model = get_model(name, weights=None, **more)
        return FirstOutput(model) if dense else model, [image(side)], [None]
    return make


def clip_of_frames(name):
    def make():
        from torchvision.models.video import r3d_18, mc3_18, r2plus1d_18, s3d
        model = {"r3d_18": r3d_18, "mc3_18": mc3_18, "r2plus1d_18": r2plus1d_18, "s3d": s3d}[name]
        frames = 16 if name == "s3d" else 4
        side = 64 if name == "s3d" else 32
        return model(weights=None), [torch.randn(2, 3, frames, side, side)], [None]
    return make


def timm(name, side=SIDE, **more):
    def make():
        import timm as package
        return package.create_model(name, pretrained=False, **more), [image(side)], [None]
    return make


def sized(name, side=SIDE, **more):
    """One that is made for a size."""
    return timm(name, side, img_size=side, **more)


def ids():
    return torch.randint(3, WORDS - 10, (2, LENGTH))


def mask():
    m = torch.ones(2, LENGTH, dtype=torch.int64)
    m[1, LENGTH - 5:] = 0
    return m


def transformers(model, config, kind=Text, side=0, sound=0, **more):
    """side: of the pictures it reads; sound: of the samples of its sound."""
    def make():
        import transformers as package
        conf = getattr(package, config)(**more)
        conf.use_cache = False
        made = getattr(package, model)(conf)
        if side:
            return FirstOutput(made), [image(side)], [None]
        if sound:
            return FirstOutput(made), [torch.randn(2, *sound)], [len(sound)]
        if kind is Decoded:
            return kind(made), [ids(), mask(), ids()], [1, 1, 1]
        if kind is TextOnly:
            return kind(made), [ids()], [1]
        return kind(made), [ids(), mask()], [1, 1]
    return make


# What most configurations call the size of a small model.
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
BERT = dict(SMALL, vocab_size=WORDS)
LLAMA = dict(BERT, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2,
             max_position_embeddings=64)
EDGES = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SPEECH = dict(SMALL, conv_dim=(32, 32, 32), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 2),
              num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, vocab_size=32)


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


def own_of(model, config, shape, **more):
    """Of transformers, with one input of floats."""
    def make():
        import transformers as package
        return FirstOutput(getattr(package, model)(getattr(package, config)(**more))), [torch.randn(*shape)], [None]
    return make


def vision_of_frames(name):
    def make():
        from torchvision.models.video import mvit_v2_s, swin3d_t
        model = {"mvit_v2_s": mvit_v2_s, "swin3d_t": swin3d_t}[name](weights=None)
        return model, [torch.randn(2, 3, 16, 224, 224) if name == "mvit_v2_s" else torch.randn(2, 3, 4, 64, 64)], [None]
    return make


class Boxes(nn.Module):
    """A detector without what sorts out its boxes."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        maps = self.model.backbone(x)
        maps = list(maps.values())
        if hasattr(self.model, "rpn"):
            return tuple(t for pair in zip(*self.model.rpn.head(maps)) for t in pair)
        return tuple(self.model.head(maps).values())


def detector(name):
    def make():
        from torchvision.models.detection import __dict__ as models
        return Boxes(models[name](weights=None, weights_backbone=None)), [image(64)], [None]
    return make


def raft():
    from torchvision.models.optical_flow import raft_small

    class Flowing(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = raft_small(weights=None)

        def forward(self, a, b):
            return self.net(a, b, num_flow_updates=2)[-1]
    return Flowing(), [torch.rand(2, 3, 128, 128), torch.rand(2, 3, 128, 128)], [None, None]


class PictureAndText(nn.Module):
    """How well pictures and sentences go together."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pixel_values, input_ids, attention_mask):
        out = self.model(pixel_values=pixel_values, input_ids=input_ids, attention_mask=attention_mask)
        return first(out) if out.get("text_embeds") is None else (out["image_embeds"], out["text_embeds"])


def two(model, config, side, **more):
    """A model of transformers that reads pictures and texts."""
    def make():
        import transformers as package
        made = getattr(package, model)(getattr(package, config)(**more))
        return PictureAndText(made), [image(side), ids(), mask()], [None, 1, 1]
    return make


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
    # torchvision
    "alexnet": vision("alexnet"), "vgg11": vision("vgg11", 32), "vgg11_bn": vision("vgg11_bn", 32),
    "squeezenet1_1": vision("squeezenet1_1"), "resnet18": vision("resnet18"), "resnet50": vision("resnet50"),
    "resnext50": vision("resnext50_32x4d"), "wide_resnet50": vision("wide_resnet50_2", 32),
    "densenet121": vision("densenet121"), "googlenet": vision("googlenet", aux_logits=False),
    "inception_v3": vision("inception_v3", 96, aux_logits=False), "mobilenet_v2": vision("mobilenet_v2"),
    "mobilenet_v3_small": vision("mobilenet_v3_small"), "mobilenet_v3_large": vision("mobilenet_v3_large"),
    "mnasnet0_5": vision("mnasnet0_5"), "shufflenet_v2": vision("shufflenet_v2_x0_5"),
    "efficientnet_b0": vision("efficientnet_b0"), "efficientnet_v2_s": vision("efficientnet_v2_s"),
    "regnet_y_400mf": vision("regnet_y_400mf"), "regnet_x_400mf": vision("regnet_x_400mf"),
    "convnext_tiny": vision("convnext_tiny"), "vit_b_32": vision("vit_b_32", 64, image_size=64),
    "swin_t": vision("swin_t", 64), "swin_v2_t": vision("swin_v2_t", 64),
    "maxvit_t": vision("maxvit_t", 224),
    "fcn_resnet50": vision("fcn_resnet50", dense=True, weights_backbone=None),
    "deeplabv3_resnet50": vision("deeplabv3_resnet50", dense=True, weights_backbone=None),
    "deeplabv3_mobilenet": vision("deeplabv3_mobilenet_v3_large", dense=True, weights_backbone=None),
    "lraspp_mobilenet": vision("lraspp_mobilenet_v3_large", dense=True, weights_backbone=None),
    "r3d_18": clip_of_frames("r3d_18"), "mc3_18": clip_of_frames("mc3_18"),
    "r2plus1d_18": clip_of_frames("r2plus1d_18"), "s3d": clip_of_frames("s3d"),
    # timm
    "timm_convnextv2": timm("convnextv2_atto"), "timm_swin": sized("swin_s3_tiny_224", 64, depths=(1, 1, 1, 1)),
    "timm_swinv2_cr": sized("swinv2_cr_tiny_ns_224", 64, depths=(1, 1, 1, 1)),
    "timm_maxvit": sized("maxvit_rmlp_pico_rw_256", 64), "timm_coatnet": sized("coatnet_nano_rw_224", 64),
    "timm_efficientnet_lite": timm("efficientnet_lite0"), "timm_efficientnetv2": timm("efficientnetv2_rw_t"),
    "timm_mobilenetv1": timm("mobilenetv1_100"), "timm_mobilenetv4": timm("mobilenetv4_conv_small"),
    "timm_mobilenetv4_hybrid": timm("mobilenetv4_hybrid_medium"), "timm_regnetz": timm("regnetz_b16"),
    "timm_nfnet": timm("nfnet_l0"), "timm_resnest": timm("resnest14d"), "timm_gmlp": sized("gmlp_ti16_224", 64),
    "timm_mixer": sized("mixer_s32_224", 64), "timm_resmlp": sized("resmlp_12_224", 64),
    "timm_xcit": sized("xcit_nano_12_p16_224", 64), "timm_cait": sized("cait_xxs24_224", 64, depth=4),
    "timm_deit": sized("deit_tiny_distilled_patch16_224", 64, depth=4),
    "timm_deit3": sized("deit3_small_patch16_224", 64, depth=3),
    "timm_beit": sized("beit_base_patch16_224", 64, depth=2, embed_dim=192, num_heads=3),
    "timm_beitv2": sized("beitv2_base_patch16_224", 64, depth=2, embed_dim=192, num_heads=3),
    "timm_eva02": sized("eva02_tiny_patch14_224", 56, depth=4), "timm_pvt_v2": timm("pvt_v2_b0", 64),
    "timm_poolformer": timm("poolformer_s12"), "timm_caformer": timm("caformer_s18", 64),
    "timm_twins": timm("twins_svt_small", 64), "timm_twins_pcpvt": sized("twins_pcpvt_small", 64),
    "timm_levit": timm("levit_128s", 224), "timm_tiny_vit": sized("tiny_vit_5m_224", 64),
    "timm_fastvit": timm("fastvit_t8", 64), "timm_repvgg": timm("repvgg_a0"), "timm_mobileone": timm("mobileone_s0"),
    "timm_ghostnet": timm("ghostnet_050"), "timm_ghostnetv2": timm("ghostnetv2_100"),
    "timm_hrnet": timm("hrnet_w18_small"), "timm_dla": timm("dla46_c"), "timm_vovnet": timm("ese_vovnet19b_slim"),
    "timm_res2net": timm("res2net50_14w_8s"), "timm_sknet": timm("skresnet18"),
    "timm_cspresnet": timm("cspresnet50"), "timm_darknet": timm("cspdarknet53"),
    "timm_inception_v4": timm("inception_v4", 96), "timm_xception": timm("xception41", 64),
    "timm_inception_next": timm("inception_next_atto", 64), "timm_seresnet": timm("seresnet50"),
    "timm_efficientformer": timm("efficientformer_l1", 224), "timm_efficientformerv2": timm("efficientformerv2_s0", 224),
    "timm_efficientvit": timm("efficientvit_b0", 64), "timm_efficientvit_m": timm("efficientvit_m0", 224),
    "timm_edgenext": timm("edgenext_xx_small"), "timm_mobilevit": timm("mobilevit_xxs"),
    "timm_mobilevitv2": timm("mobilevitv2_050"), "timm_crossvit": timm("crossvit_tiny_240", 240),
    "timm_convit": sized("convit_tiny", 64), "timm_pit": sized("pit_ti_224", 64), "timm_tnt": sized("tnt_s_legacy_patch16_224", 64, depth=3),
    "timm_visformer": sized("visformer_tiny", 64), "timm_volo": sized("volo_d1_224", 64, layers=(1, 1, 1, 1)),
    "timm_davit": timm("davit_tiny", 64, depths=(1, 1, 1, 1)), "timm_focalnet": timm("focalnet_tiny_srf", 64),
    "timm_hiera": sized("hiera_tiny_224", 64, stages=(1, 1, 1, 1)), "timm_botnet": sized("botnet26t_256", 64),
    "timm_halonet": timm("halonet26t", 128), "timm_lambda": sized("lambda_resnet26t", 64),
    "timm_lcnet": timm("lcnet_050"), "timm_tresnet": timm("tresnet_m", 64), "timm_dpn": timm("dpn48b"),
    "timm_repvit": timm("repvit_m1"), "timm_starnet": timm("starnet_s1"), "timm_nextvit": timm("nextvit_small", 64),
    "timm_vit_siglip": sized("vit_base_patch16_siglip_224", 64, depth=2, embed_dim=192, num_heads=3),
    "timm_sequencer": sized("sequencer2d_s", 64, layers=(1, 1, 1, 1)), "timm_mvitv2": sized("mvitv2_tiny", 64),
    "timm_gcvit": sized("gcvit_xxtiny", 64), "timm_convmixer": timm("convmixer_768_32", 64, depth=3),
    "timm_resnetv2_bit": timm("resnetv2_50x1_bit", 64, layers=(1, 1, 1, 1)), "timm_nest": sized("nest_tiny_jx", 64),
    "timm_mixnet": timm("mixnet_s"), "timm_rexnet": timm("rexnet_100"), "timm_nasnet": timm("pnasnet5large", 96),
    "timm_relpos": sized("vit_relpos_small_patch16_224", 64, depth=2), "timm_mambaout": timm("mambaout_femto"),
    "timm_samvit": sized("samvit_base_patch16_224", 64, depth=2, embed_dim=192, num_heads=3),
    "timm_hgnet": timm("hgnetv2_b0"), "timm_selecsls": timm("selecsls42"), "timm_bat": timm("bat_resnext26ts", 128),
    "timm_eca": timm("eca_resnet33ts"), "timm_gernet": timm("gernet_s"),
    # transformers
    "bert": transformers("BertModel", "BertConfig", **BERT),
    "bert_classes": transformers("BertForSequenceClassification", "BertConfig", **BERT),
    "roberta": transformers("RobertaForTokenClassification", "RobertaConfig", **BERT),
    "distilbert": transformers("DistilBertForSequenceClassification", "DistilBertConfig", dim=64, n_layers=2,
                               n_heads=4, hidden_dim=96, vocab_size=WORDS),
    "albert": transformers("AlbertModel", "AlbertConfig", embedding_size=32, **BERT),
    "electra": transformers("ElectraModel", "ElectraConfig", embedding_size=32, **BERT),
    "deberta_v2": transformers("DebertaV2Model", "DebertaV2Config", relative_attention=True,
                               pos_att_type=["c2p", "p2c"], **BERT),
    "deberta": transformers("DebertaModel", "DebertaConfig", relative_attention=True,
                            pos_att_type=["c2p", "p2c"], **BERT),
    "mpnet": transformers("MPNetModel", "MPNetConfig", **BERT),
    "modernbert": transformers("ModernBertModel", "ModernBertConfig", cls_token_id=1, sep_token_id=2,
                               **dict(BERT, **EDGES)),
    "gpt2": transformers("GPT2LMHeadModel", "GPT2Config", n_embd=64, n_layer=2, n_head=4, vocab_size=WORDS, **EDGES),
    "gpt_neo": transformers("GPTNeoModel", "GPTNeoConfig", hidden_size=64, num_layers=2, num_heads=4, vocab_size=WORDS,
                            attention_types=[[["global", "local"], 1]], window_size=8, max_position_embeddings=64, **EDGES),
    "gpt_neox": transformers("GPTNeoXModel", "GPTNeoXConfig", max_position_embeddings=64, **dict(BERT, **EDGES)),
    "gptj": transformers("GPTJModel", "GPTJConfig", n_embd=64, n_layer=2, n_head=4, rotary_dim=8, vocab_size=WORDS,
                         n_positions=64, **EDGES),
    "opt": transformers("OPTModel", "OPTConfig", hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                        ffn_dim=96, vocab_size=WORDS, word_embed_proj_dim=64, **EDGES),
    "llama": transformers("LlamaForCausalLM", "LlamaConfig", **LLAMA),
    "mistral": transformers("MistralForCausalLM", "MistralConfig", **LLAMA),
    "qwen2": transformers("Qwen2ForCausalLM", "Qwen2Config", **LLAMA),
    "qwen3": transformers("Qwen3ForCausalLM", "Qwen3Config", head_dim=16, **LLAMA),
    "gemma": transformers("GemmaForCausalLM", "GemmaConfig", head_dim=16, **LLAMA),
    "gemma2": transformers("Gemma2ForCausalLM", "Gemma2Config", head_dim=16, **LLAMA),
    "phi": transformers("PhiModel", "PhiConfig", **LLAMA), "phi3": transformers("Phi3ForCausalLM", "Phi3Config", **LLAMA),
    "falcon": transformers("FalconModel", "FalconConfig", hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                           vocab_size=WORDS, **EDGES),
    "bloom": transformers("BloomModel", "BloomConfig", hidden_size=64, n_layer=2, n_head=4, vocab_size=WORDS, **EDGES),
    "stablelm": transformers("StableLmModel", "StableLmConfig", **LLAMA),
    "olmo": transformers("OlmoModel", "OlmoConfig", **LLAMA),
    "t5_encoder": transformers("T5EncoderModel", "T5Config", d_model=64, d_kv=16, d_ff=96, num_layers=2,
                               num_heads=4, vocab_size=WORDS),
    "t5": transformers("T5Model", "T5Config", kind=Decoded, d_model=64, d_kv=16, d_ff=96, num_layers=1,
                       num_heads=4, vocab_size=WORDS),
    "bart": transformers("BartModel", "BartConfig", kind=Decoded, d_model=64, encoder_layers=1, decoder_layers=1,
                         encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96,
                         decoder_ffn_dim=96, vocab_size=WORDS, max_position_embeddings=64, **EDGES),
    "xlnet": transformers("XLNetModel", "XLNetConfig", d_model=64, n_layer=2, n_head=4, d_inner=96, vocab_size=WORDS),
    "funnel": transformers("FunnelModel", "FunnelConfig", block_sizes=[1, 1], num_decoder_layers=1, d_model=64,
                           n_head=4, d_head=16, d_inner=96, vocab_size=WORDS),
    "fnet": transformers("FNetModel", "FNetConfig", kind=TextOnly, hidden_size=64, num_hidden_layers=2,
                         intermediate_size=96, vocab_size=WORDS),
    "convbert": transformers("ConvBertModel", "ConvBertConfig", embedding_size=32, **BERT),
    "mobilebert": transformers("MobileBertModel", "MobileBertConfig", embedding_size=32, intra_bottleneck_size=32,
                               true_hidden_size=32, **BERT),
    "squeezebert": transformers("SqueezeBertModel", "SqueezeBertConfig", embedding_size=64, **BERT),
    "nystromformer": transformers("NystromformerModel", "NystromformerConfig", num_landmarks=8, segment_means_seq_len=16,
                                  conv_kernel_size=5, **BERT),
    "roformer": transformers("RoFormerModel", "RoFormerConfig", max_position_embeddings=64, **BERT),
    "camembert": transformers("CamembertModel", "CamembertConfig", **BERT),
    "xlm_roberta": transformers("XLMRobertaModel", "XLMRobertaConfig", **BERT),
    "layoutlm": transformers("LayoutLMModel", "LayoutLMConfig", **BERT),
    "longformer": transformers("LongformerModel", "LongformerConfig", attention_window=8, **BERT),
    "clip_text": transformers("CLIPTextModel", "CLIPTextConfig", max_position_embeddings=64, **dict(BERT, **EDGES)),
    "clip_vision": transformers("CLIPVisionModel", "CLIPVisionConfig", side=64, image_size=64, patch_size=16, **SMALL),
    "siglip_vision": transformers("SiglipVisionModel", "SiglipVisionConfig", side=64, image_size=64, patch_size=16, **SMALL),
    "hf_vit": transformers("ViTForImageClassification", "ViTConfig", side=64, image_size=64, patch_size=16, **SMALL),
    "hf_deit": transformers("DeiTModel", "DeiTConfig", side=64, image_size=64, patch_size=16, **SMALL),
    "hf_beit": transformers("BeitModel", "BeitConfig", side=64, image_size=64, patch_size=16,
                            use_relative_position_bias=True, **SMALL),
    "hf_swin": transformers("SwinModel", "SwinConfig", side=64, image_size=64, embed_dim=24, depths=[2, 2],
                            num_heads=[2, 4], window_size=4),
    "segformer": transformers("SegformerForSemanticSegmentation", "SegformerConfig", side=64, num_encoder_blocks=4,
                              depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32], num_attention_heads=[1, 2, 2, 4],
                              decoder_hidden_size=32),
    "dinov2": transformers("Dinov2Model", "Dinov2Config", side=56, image_size=56, patch_size=14, **SMALL),
    "convnext_hf": transformers("ConvNextModel", "ConvNextConfig", side=64, depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32]),
    "mobilevit_hf": transformers("MobileViTModel", "MobileViTConfig", side=64, hidden_sizes=[16, 24, 32],
                                 neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 32]),
    "wav2vec2": transformers("Wav2Vec2Model", "Wav2Vec2Config", sound=(800,), **SPEECH),
    "hubert": transformers("HubertModel", "HubertConfig", sound=(800,), **SPEECH),
    "whisper_encoder": transformers("WhisperForAudioClassification", "WhisperConfig", sound=(16, 64), num_mel_bins=16,
                                    max_source_positions=32, d_model=64, encoder_layers=2, encoder_attention_heads=4,
                                    encoder_ffn_dim=96, vocab_size=WORDS, **EDGES),
    "ast": transformers("ASTModel", "ASTConfig", sound=(64, 32), max_length=64, num_mel_bins=32, **SMALL),
    "bert_masked_lm": transformers("BertForMaskedLM", "BertConfig", **BERT),
    "t5_lm": transformers("T5ForConditionalGeneration", "T5Config", kind=Decoded, d_model=64, d_kv=16, d_ff=96,
                          num_layers=1, num_heads=4, vocab_size=WORDS),
    "mixtral": transformers("MixtralModel", "MixtralConfig", num_local_experts=4, **LLAMA),
    "mamba": transformers("MambaModel", "MambaConfig", kind=TextOnly, hidden_size=32, num_hidden_layers=2,
                          state_size=8, vocab_size=WORDS),
    "mpt": transformers("MptModel", "MptConfig", d_model=64, n_heads=4, n_layers=2, max_seq_len=64, vocab_size=WORDS),
    "gpt_bigcode": transformers("GPTBigCodeModel", "GPTBigCodeConfig", n_embd=64, n_layer=2, n_head=4,
                                n_positions=64, vocab_size=WORDS, **EDGES),
    "codegen": transformers("CodeGenModel", "CodeGenConfig", n_embd=64, n_layer=2, n_head=4, rotary_dim=8,
                            n_positions=64, vocab_size=WORDS, **EDGES),
    "marian": transformers("MarianModel", "MarianConfig", kind=Decoded, d_model=64, encoder_layers=1, decoder_layers=1,
                           encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96,
                           max_position_embeddings=64, vocab_size=WORDS, decoder_start_token_id=0, **EDGES),
    "pegasus": transformers("PegasusModel", "PegasusConfig", kind=Decoded, d_model=64, encoder_layers=1,
                            decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96,
                            decoder_ffn_dim=96, max_position_embeddings=64, vocab_size=WORDS, **EDGES),
    "canine": transformers("CanineModel", "CanineConfig", num_hash_buckets=64, **dict(SMALL, **EDGES)),
    "big_bird": transformers("BigBirdModel", "BigBirdConfig", attention_type="original_full", **dict(BERT, **EDGES)),
    "esm": transformers("EsmModel", "EsmConfig", mask_token_id=3, position_embedding_type="rotary",
                        **dict(BERT, pad_token_id=1)),
    "rembert": transformers("RemBertModel", "RemBertConfig", input_embedding_size=32, output_embedding_size=32,
                            **dict(BERT, **EDGES)),
    "ibert": transformers("IBertModel", "IBertConfig", **BERT),
    "wavlm": transformers("WavLMModel", "WavLMConfig", sound=(800,), **SPEECH),
    "sew": transformers("SEWModel", "SEWConfig", sound=(800,), squeeze_factor=2, **SPEECH),
    "cvt": transformers("CvtModel", "CvtConfig", side=64, embed_dim=[16, 32, 48], num_heads=[1, 2, 3], depth=[1, 1, 1]),
    "dpt": transformers("DPTForDepthEstimation", "DPTConfig", side=64, image_size=64, patch_size=16,
                        backbone_out_indices=[0, 0, 1, 1], neck_hidden_sizes=[8, 16, 24, 32], fusion_hidden_size=16,
                        head_in_index=-1, **SMALL),
    "glpn": transformers("GLPNForDepthEstimation", "GLPNConfig", side=64, depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32],
                         num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16),
    "yolos": transformers("YolosModel", "YolosConfig", side=64, image_size=[64, 64], patch_size=16, num_detection_tokens=5,
                          **SMALL),
    "hf_resnet": transformers("ResNetForImageClassification", "ResNetConfig", side=64, embedding_size=16,
                              hidden_sizes=[16, 32], depths=[1, 1]),
    "vit_mae": transformers("ViTMAEModel", "ViTMAEConfig", side=64, image_size=64, patch_size=16, mask_ratio=0.0, **SMALL),
    "perceiver": transformers("PerceiverForMaskedLM", "PerceiverConfig", num_latents=8, d_latents=32, d_model=48,
                              num_blocks=1, num_self_attends_per_block=1, num_self_attention_heads=2,
                              num_cross_attention_heads=2, qk_channels=16, v_channels=32, vocab_size=WORDS,
                              max_position_embeddings=64),
    # plain PyTorch
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
    # more of timm
    "timm_coat": sized("coat_lite_mini", 64), "timm_cspnext": timm("cspnext_tiny", 64), "timm_rdnet": timm("rdnet_tiny", 64),
    "timm_efficientvim": timm("efficientvim_m1", 64), "timm_fasternet": timm("fasternet_t0", 64), "timm_iformer": timm("iformer_t", 64),
    "timm_hardcorenas": timm("hardcorenas_a"), "timm_lcnetv2": timm("lcnetv2_small"), "timm_lowformer": timm("lowformer_b0", 64),
    "timm_repghost": timm("repghostnet_050"), "timm_senet": timm("legacy_seresnet18"), "timm_shvit": timm("shvit_s1", 128),
    "timm_swiftformer": timm("swiftformer_xs", 64), "timm_swinv2": sized("swinv2_tiny_window8_256", 64, depths=(1, 1, 1, 1)),
    "timm_vit_hybrid": sized("vit_tiny_r_s16_p8_224", 64, depth=2), "timm_vitamin": sized("vitamin_small_224", 64),
    "timm_xception_legacy": timm("legacy_xception", 64), "timm_inception_resnet": timm("inception_resnet_v2", 96),
    "timm_naflexvit": timm("naflexvit_base_patch16_gap", 64, depth=2, embed_dim=192, num_heads=3),
    "timm_fbnetv3": timm("fbnetv3_b"), "timm_tinynet": timm("tinynet_e"), "timm_gcresnet": timm("gcresnet33ts"),
    "timm_ecaresnet": timm("ecaresnet26t"), "timm_resnet_blur": timm("resnetblur50"), "timm_seresnext": timm("seresnext26d_32x4d"),
    "timm_vit": sized("vit_tiny_patch16_224", 64, depth=3), "timm_vit_rope": sized("vit_small_patch16_rope_224", 64, depth=2),
    "timm_aimv2": sized("aimv2_1b_patch14_224", 56, depth=2, embed_dim=192, num_heads=3), "timm_convformer": timm("convformer_s18", 64),
    "timm_dm_nfnet": timm("dm_nfnet_f0", 64), "timm_csatv2": timm("csatv2", 64), "timm_cpubone": timm("cpubone_b0_bfrobust", 64),
    "timm_hieradet": timm("hieradet_small", 64), "timm_mobilenetv5": timm("mobilenetv5_base", 64), "timm_regnetv": timm("regnetv_040", 64),
    # more of transformers
    "clip": two("CLIPModel", "CLIPConfig", 64, text_config=dict(BERT, max_position_embeddings=64, **EDGES),
                vision_config=dict(SMALL, image_size=64, patch_size=16)),
    "siglip": two("SiglipModel", "SiglipConfig", 64, text_config=dict(BERT, max_position_embeddings=64, **EDGES),
                  vision_config=dict(SMALL, image_size=64, patch_size=16)),
    "blip": two("BlipModel", "BlipConfig", 64, text_config=dict(BERT, encoder_hidden_size=64, **EDGES),
                vision_config=dict(SMALL, image_size=64, patch_size=16)),
    "chinese_clip": two("ChineseCLIPModel", "ChineseCLIPConfig", 64, text_config=dict(BERT, **EDGES),
                        vision_config=dict(SMALL, image_size=64, patch_size=16)),
    "vilt": two("ViltModel", "ViltConfig", 64, image_size=64, patch_size=16, max_position_embeddings=64, **BERT),
    "mbart": transformers("MBartModel", "MBartConfig", kind=Decoded, d_model=64, encoder_layers=1, decoder_layers=1,
                          encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96,
                          max_position_embeddings=64, vocab_size=WORDS, **EDGES),
    "blenderbot": transformers("BlenderbotModel", "BlenderbotConfig", kind=Decoded, d_model=64, encoder_layers=1,
                               decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96,
                               decoder_ffn_dim=96, max_position_embeddings=64, vocab_size=WORDS, **EDGES),
    "prophetnet": transformers("ProphetNetModel", "ProphetNetConfig", kind=Decoded, hidden_size=64, num_encoder_layers=1,
                               num_decoder_layers=1, num_encoder_attention_heads=4, num_decoder_attention_heads=4,
                               encoder_ffn_dim=96, decoder_ffn_dim=96, max_position_embeddings=64, vocab_size=WORDS, **EDGES),
    "mt5": transformers("MT5Model", "MT5Config", kind=Decoded, d_model=64, d_kv=16, d_ff=96, num_layers=1, num_heads=4,
                        vocab_size=WORDS),
    "led": transformers("LEDModel", "LEDConfig", kind=Decoded, d_model=64, encoder_layers=1, decoder_layers=1,
                        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96,
                        max_encoder_position_embeddings=64, max_decoder_position_embeddings=64, attention_window=8,
                        vocab_size=WORDS, **EDGES),
    "bert_answers": transformers("BertForQuestionAnswering", "BertConfig", **BERT),
    "xlm": transformers("XLMModel", "XLMConfig", emb_dim=64, n_layers=2, n_heads=4, vocab_size=WORDS, max_position_embeddings=64),
    "flaubert": transformers("FlaubertModel", "FlaubertConfig", emb_dim=64, n_layers=2, n_heads=4, vocab_size=WORDS,
                             max_position_embeddings=64),
    "ernie": transformers("ErnieModel", "ErnieConfig", **BERT), "megatron_bert": transformers("MegatronBertModel", "MegatronBertConfig", **BERT),
    "roc_bert": transformers("RoCBertModel", "RoCBertConfig", **BERT), "splinter": transformers("SplinterModel", "SplinterConfig", **BERT),
    "yoso": transformers("YosoModel", "YosoConfig", use_expectation=True, **BERT), "luke": transformers("LukeModel", "LukeConfig", entity_vocab_size=20, **BERT),
    "data2vec_text": transformers("Data2VecTextModel", "Data2VecTextConfig", **BERT),
    "xlm_roberta_xl": transformers("XLMRobertaXLModel", "XLMRobertaXLConfig", **BERT),
    "gpt_neox_japanese": transformers("GPTNeoXJapaneseModel", "GPTNeoXJapaneseConfig", max_position_embeddings=64, **dict(BERT, **EDGES)),
    "cohere": transformers("CohereForCausalLM", "CohereConfig", **LLAMA), "granite": transformers("GraniteForCausalLM", "GraniteConfig", **LLAMA),
    "starcoder2": transformers("Starcoder2ForCausalLM", "Starcoder2Config", **LLAMA), "persimmon": transformers("PersimmonModel", "PersimmonConfig", **LLAMA),
    "gemma3": transformers("Gemma3ForCausalLM", "Gemma3TextConfig", head_dim=16, **LLAMA), "olmo2": transformers("Olmo2ForCausalLM", "Olmo2Config", **LLAMA),
    "smollm3": transformers("SmolLM3ForCausalLM", "SmolLM3Config", **LLAMA), "qwen2_moe": transformers(
        "Qwen2MoeModel", "Qwen2MoeConfig", num_experts=4, moe_intermediate_size=32, shared_expert_intermediate_size=32, **LLAMA),
    "rwkv_hf": transformers("RwkvModel", "RwkvConfig", kind=TextOnly, hidden_size=32, num_hidden_layers=2, vocab_size=WORDS, context_length=64),
    "mamba2": transformers("Mamba2Model", "Mamba2Config", kind=TextOnly, hidden_size=32, num_hidden_layers=1, state_size=8, num_heads=8,
                           head_dim=8, expand=2, n_groups=1, chunk_size=16, vocab_size=WORDS, **EDGES),
    "hf_detr": transformers("DetrModel", "DetrConfig", side=64, use_timm_backbone=False, use_pretrained_backbone=False,
                            backbone_config={"model_type": "resnet", "embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1],
                                             "out_features": ["stage2"]}, d_model=32, encoder_layers=1, decoder_layers=1,
                            encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, num_queries=5),
    "poolformer_hf": transformers("PoolFormerModel", "PoolFormerConfig", side=64, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]),
    "mobilenet_hf": transformers("MobileNetV2Model", "MobileNetV2Config", side=64, image_size=64, depth_multiplier=0.35),
    "pvt_hf": transformers("PvtModel", "PvtConfig", side=64, image_size=64, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1],
                           num_attention_heads=[1, 2, 2, 4]),
    "levit_hf": transformers("LevitModel", "LevitConfig", side=64, image_size=64, hidden_sizes=[16, 24, 32], depths=[1, 1, 1],
                             key_dim=[8, 8, 8], num_attention_heads=[2, 3, 4]),
    "regnet_hf": transformers("RegNetModel", "RegNetConfig", side=64, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], groups_width=8),
    "upernet": transformers("UperNetForSemanticSegmentation", "UperNetConfig", side=64, hidden_size=16, auxiliary_channels=8, backbone_config={
        "model_type": "convnext", "depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "out_features": ["stage1", "stage2", "stage3", "stage4"]}),
    "timesformer": own_of("TimesformerModel", "TimesformerConfig", (2, 3, 3, 32, 32), image_size=32, patch_size=16, num_frames=3, **SMALL),
    "videomae": own_of("VideoMAEModel", "VideoMAEConfig", (2, 4, 3, 32, 32), image_size=32, patch_size=16, num_frames=4, **SMALL),
    "vivit": own_of("VivitModel", "VivitConfig", (2, 4, 3, 32, 32), image_size=32, tubelet_size=[2, 16, 16], num_frames=4, **SMALL),
    "unispeech": transformers("UniSpeechModel", "UniSpeechConfig", sound=(800,), **SPEECH),
    "data2vec_audio": transformers("Data2VecAudioModel", "Data2VecAudioConfig", sound=(800,), **dict(SPEECH, num_conv_pos_embeddings=2, conv_pos_kernel_size=5)),
    "sew_d": transformers("SEWDModel", "SEWDConfig", sound=(800,), squeeze_factor=2, position_buckets=16, max_position_embeddings=64, **SPEECH),
    "wav2vec2_conformer": transformers("Wav2Vec2ConformerModel", "Wav2Vec2ConformerConfig", sound=(800,), conv_depthwise_kernel_size=5, **SPEECH),
    "patchtst": own_of("PatchTSTModel", "PatchTSTConfig", (2, 32, 3), num_input_channels=3, context_length=32, patch_length=8, patch_stride=8,
                       d_model=16, ffn_dim=32, num_hidden_layers=1, num_attention_heads=2),
    "decision_mlp_mixer": own_of("PatchTSMixerModel", "PatchTSMixerConfig", (2, 32, 3), num_input_channels=3, context_length=32, patch_length=8,
                                 patch_stride=8, d_model=8, num_layers=1),
    # more of torchvision
    "swin3d_t": vision_of_frames("swin3d_t"), "efficientnet_b1": vision("efficientnet_b1"),
    "shufflenet_x1_5": vision("shufflenet_v2_x1_5"), "resnet152": vision("resnet152", 32), "vgg16": vision("vgg16", 64),
    "ssdlite": detector("ssdlite320_mobilenet_v3_large"), "retinanet": detector("retinanet_resnet50_fpn"),
    "fasterrcnn": detector("fasterrcnn_mobilenet_v3_large_320_fpn"), "raft": raft,
    # more plain PyTorch
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
# The same in half precision.
HALF = {"resnet18": ("fp16", "bf16"), "bert": ("fp16", "bf16"), "mlp": ("fp16", "bf16"), "unet": ("fp16", "bf16"),
        "llama": ("fp16", "bf16"), "hf_vit": ("fp16", "bf16")}
