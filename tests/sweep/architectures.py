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
}
# The same in half precision.
HALF = {"resnet18": ("fp16", "bf16"), "bert": ("fp16", "bf16"), "mlp": ("fp16", "bf16"), "unet": ("fp16", "bf16"),
        "llama": ("fp16", "bf16"), "hf_vit": ("fp16", "bf16")}
