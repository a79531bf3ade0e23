"""Models that make pictures, points and densities, and what is taken of pictures; for sweep.py."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from arch_plain import floats, own


class BetaVae(nn.Module):
    """With the class joined to both sides; the noise is an input."""

    def __init__(self):
        super().__init__()
        self.label_emb = nn.Embedding(10, 10)
        self.encoder = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.BatchNorm2d(8, momentum=0.01), nn.LeakyReLU(0.2),
                                     nn.Conv2d(8, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten())
        self.fc_mu, self.fc_var = nn.Linear(16 * 16 + 10, 6), nn.Linear(16 * 16 + 10, 6)
        self.fc = nn.Linear(16, 256)
        self.decoder = nn.Sequential(nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Sigmoid())
        self.register_buffer("beta", torch.tensor(4.0))

    def forward(self, x, y, eps):
        c = self.label_emb(y)
        h = torch.cat([self.encoder(x), c], 1)
        mu, log_var = self.fc_mu(h), self.fc_var(h)
        z = mu + torch.exp(0.5 * log_var) * eps
        out = self.decoder(self.fc(torch.cat([z, c], 1)).view(-1, 16, 4, 4))
        kl = -0.5 * (1 + log_var - mu ** 2 - log_var.exp()).sum(1)
        return out.flatten(1) + self.beta * kl[:, None]


class NoiseGenerator(nn.Module):
    """Progressive GAN: a learned constant, rates that are equalised, noise with a weight for each channel."""

    class EqualConv(nn.Module):
        def __init__(self, i, o, k=3):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(o, i, k, k))
            self.bias = nn.Parameter(torch.zeros(o))
            self.scale = math.sqrt(2 / (i * k * k))

        def forward(self, x):
            return F.conv2d(x, self.weight * self.scale, self.bias, padding=self.weight.shape[-1] // 2)

    class InjectNoise(nn.Module):
        def __init__(self, c, side):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1, c, 1, 1))
            self.register_buffer("noise", torch.randn(1, 1, side, side))

        def forward(self, x):
            return x + self.weight * self.noise

    def __init__(self):
        super().__init__()
        self.constant = nn.Parameter(torch.randn(1, 16, 4, 4))
        self.mapping = nn.Linear(8, 16)
        self.conv1, self.noise1 = self.EqualConv(16, 16), self.InjectNoise(16, 4)
        self.conv2, self.noise2 = self.EqualConv(16, 8), self.InjectNoise(8, 8)
        self.to_rgb = self.EqualConv(8, 3, 1)

    def forward(self, z):
        z = z * torch.rsqrt(z.pow(2).mean(1, keepdim=True) + 1e-8)
        x = self.constant.expand(z.shape[0], -1, -1, -1) * (1 + self.mapping(z)[..., None, None])
        x = F.leaky_relu(self.noise1(self.conv1(x)), 0.2)
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        x = F.leaky_relu(self.noise2(self.conv2(x)), 0.2)
        return torch.tanh(self.to_rgb(x))


class PatchDiscriminator(nn.Module):
    """A projection discriminator with old-style spectral norms."""

    def __init__(self):
        super().__init__()
        sn = nn.utils.spectral_norm
        self.net = nn.Sequential(sn(nn.Conv2d(3, 8, 4, 2, 1)), nn.LeakyReLU(0.2), sn(nn.Conv2d(8, 16, 4, 2, 1)),
                                 nn.LeakyReLU(0.2))
        self.out, self.embed = sn(nn.Linear(16, 1)), sn(nn.Embedding(7, 16))

    def forward(self, x, y):
        h = self.net(x).sum((2, 3))
        return self.out(h) + (self.embed(y) * h).sum(1, keepdim=True)


class Triplet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(1, 8, 5), nn.PReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.PReLU(16), nn.AdaptiveMaxPool2d(2),
                                   nn.Flatten(), nn.Linear(64, 12))
        self.margin = 0.3

    def forward(self, anchor, positive, negative):
        a, p, n = (F.normalize(self.trunk(x), dim=1) for x in (anchor, positive, negative))
        return F.relu((a - p).pow(2).sum(1) - (a - n).pow(2).sum(1) + self.margin) + (a - p).norm(dim=1)


class ResUNetSe(nn.Module):
    """Residual blocks with squeeze and excitation, skips by learned weights, deep supervision in one map."""

    class Block(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.conv = nn.Sequential(nn.BatchNorm2d(i), nn.ReLU(), nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o, momentum=0.05), nn.ReLU(),
                                      nn.Conv2d(o, o, 3, padding=1))
            self.skip = nn.Conv2d(i, o, 1)
            self.fc = nn.Sequential(nn.Linear(o, o // 2), nn.ReLU(), nn.Linear(o // 2, o), nn.Sigmoid())

        def forward(self, x):
            y = self.conv(x)
            b, c = y.shape[:2]
            y = y * self.fc(F.adaptive_avg_pool2d(y, 1).view(b, c)).view(b, c, 1, 1)
            return y + self.skip(x)

    def __init__(self):
        super().__init__()
        self.d1, self.d2, self.d3 = self.Block(3, 8), self.Block(8, 12), self.Block(12, 16)
        self.u2, self.u1 = self.Block(28, 12), self.Block(20, 8)
        self.fuse_weight = nn.Parameter(torch.ones(2))
        self.side, self.out = nn.Conv2d(12, 2, 1), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        up = nn.functional.interpolate
        b = self.u2(torch.cat([up(c, scale_factor=2, mode="bilinear", align_corners=True), b], 1))
        a = self.u1(torch.cat([up(b, scale_factor=2, mode="bilinear", align_corners=True), a], 1))
        w = F.softmax(self.fuse_weight, 0)
        return w[0] * self.out(a) + w[1] * up(self.side(b), size=a.shape[2:], mode="bilinear", align_corners=False)


class PointMlp(nn.Module):
    """The geometric affine of PointMLP, and the curve of a point cloud by its centre."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.affine_alpha = nn.Parameter(torch.ones(1, 1, 1, 16))
        self.affine_beta = nn.Parameter(torch.zeros(1, 1, 1, 16))
        self.net = nn.Sequential(nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 24))
        self.head = nn.Linear(24, 5)

    def forward(self, xyz):
        f = self.embedding(xyz).transpose(1, 2)
        p = xyz.transpose(1, 2)
        d = (p[:, :, None] - p[:, None]).pow(2).sum(-1)
        near = d.topk(4, dim=-1, largest=False)[1]
        g = torch.gather(f[:, None].expand(-1, f.shape[1], -1, -1), 2, near[..., None].expand(-1, -1, -1, f.shape[-1]))
        g = g - f[:, :, None]
        std = torch.std(g.flatten(1), dim=-1)[:, None, None, None]
        g = self.affine_alpha * (g / (std + 1e-5)) + self.affine_beta
        g = torch.cat([g, f[:, :, None].expand(-1, -1, 4, -1)], -1)
        return self.head(self.net(g).max(2)[0].mean(1))


class MaskedFlow(nn.Module):
    """MAF: masks by degrees, and an order that is turned around after each."""

    class MaskedLinear(nn.Linear):
        def __init__(self, i, o, mask):
            super().__init__(i, o)
            self.register_buffer("mask", mask)

        def forward(self, x):
            return F.linear(x, self.weight * self.mask, self.bias)

    class Made(nn.Module):
        def __init__(self, d, h):
            super().__init__()
            first, hidden = torch.arange(d), torch.arange(h) % (d - 1)
            self.a = MaskedFlow.MaskedLinear(d, h, (hidden[:, None] >= first).float())
            self.b = MaskedFlow.MaskedLinear(h, 2 * d, (first[:, None] > hidden).float().repeat(2, 1))

        def forward(self, x):
            m, log_a = self.b(torch.relu(self.a(x))).chunk(2, 1)
            return (x - m) * torch.exp(-log_a), -log_a.sum(1)

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(self.Made(6, 20) for _ in range(3))
        self.register_buffer("perm", torch.tensor([5, 4, 3, 2, 1, 0]))
        self.register_buffer("base_mean", torch.zeros(6))
        self.register_buffer("base_var", torch.ones(6))

    def forward(self, x):
        total = 0
        for m in self.layers:
            x, d = m(x)
            x, total = x[:, self.perm], total + d
        return -0.5 * (math.log(2 * math.pi) + self.base_var.log() + (x - self.base_mean) ** 2 / self.base_var).sum(1) + total


class PlanarFlow(nn.Module):
    def __init__(self, d=5, n=4):
        super().__init__()
        self.u = nn.ParameterList(nn.Parameter(torch.randn(1, d) * 0.3) for _ in range(n))
        self.w = nn.ParameterList(nn.Parameter(torch.randn(1, d) * 0.3) for _ in range(n))
        self.b = nn.ParameterList(nn.Parameter(torch.zeros(1)) for _ in range(n))

    def forward(self, z):
        total = torch.zeros_like(z[:, 0])
        for u, w, b in zip(self.u, self.w, self.b):
            uw = (u * w).sum()
            u_hat = u + (F.softplus(uw) - 1 - uw) * w / (w * w).sum()
            t = torch.tanh(z @ w.t() + b)
            total = total + torch.log(torch.abs(1 + ((1 - t ** 2) * w) @ u_hat.t()) + 1e-6).squeeze(1)
            z = z + u_hat * t
        return torch.cat([z, total[:, None]], 1)


class Nice(nn.Module):
    """Couplings that add, and a scale for each dimension at the end."""

    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 4)) for _ in range(3))
        self.log_scale = nn.Parameter(torch.zeros(1, 8))

    def forward(self, x):
        for i, net in enumerate(self.nets):
            a, b = x[:, i % 2::2], x[:, (i + 1) % 2::2]
            x = torch.stack([a, b + net(a)], 2).flatten(1)
        return x * torch.exp(self.log_scale) + self.log_scale.sum()


class DiffusionStep(nn.Module):
    """A step back with the schedule of the module: betas, alphas and what is computed of them."""

    def __init__(self, steps=50):
        super().__init__()
        betas = torch.linspace(1e-4, 0.02, steps)
        alphas = 1 - betas
        alpha_bar = torch.cumprod(alphas, 0)
        for name, t in {"betas": betas, "alphas": alphas, "alpha_bar": alpha_bar, "sqrt_recip_alphas": alphas.rsqrt(),
                        "posterior_variance": betas * (1 - F.pad(alpha_bar[:-1], (1, 0), value=1.0)) / (1 - alpha_bar)}.items():
            self.register_buffer(name, t)
        self.time_embed = nn.Embedding(steps, 16)
        self.conv_in, self.conv_mid, self.conv_out = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 3, 3, padding=1)
        self.norm = nn.GroupNorm(4, 16)

    def forward(self, x, t, noise):
        h = self.conv_in(x) + self.time_embed(t)[..., None, None]
        eps = self.conv_out(F.silu(self.norm(self.conv_mid(h))))
        at = [b[t].view(-1, 1, 1, 1) for b in (self.betas, self.alpha_bar, self.sqrt_recip_alphas, self.posterior_variance)]
        mean = at[2] * (x - at[0] / torch.sqrt(1 - at[1]) * eps)
        return mean + torch.sqrt(at[3]) * noise


class ScoreNet(nn.Module):
    """Song's: random waves that are a parameter without a gradient, scaled by the deviation at time t."""

    class GaussianFourier(nn.Module):
        def __init__(self, n, scale=30.0):
            super().__init__()
            self.W = nn.Parameter(torch.randn(n // 2) * scale / 30, requires_grad=False)

        def forward(self, x):
            p = x[:, None] * self.W[None, :] * 2 * math.pi
            return torch.cat([torch.sin(p), torch.cos(p)], dim=-1)

    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(self.GaussianFourier(16), nn.Linear(16, 16))
        self.conv1, self.dense1, self.gnorm1 = nn.Conv2d(1, 16, 3, 2, 1, bias=False), nn.Linear(16, 16), nn.GroupNorm(4, 16)
        self.tconv, self.dense2 = nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Linear(16, 1)
        self.act = lambda x: x * torch.sigmoid(x)

    def forward(self, x, t):
        embed = self.act(self.embed(t))
        h = self.act(self.gnorm1(self.conv1(x) + self.dense1(embed)[:, :, None, None]))
        h = self.tconv(h) + self.dense2(embed)[:, :, None, None]
        return h / torch.sqrt((25.0 ** (2 * t) - 1) / 2 / math.log(25.0) + 0.01)[:, None, None, None]


class TensoRf(nn.Module):
    """A field by planes and lines."""

    def __init__(self):
        super().__init__()
        self.plane_coef = nn.ParameterList(nn.Parameter(0.1 * torch.randn(1, 4, 9, 9)) for _ in range(3))
        self.line_coef = nn.ParameterList(nn.Parameter(0.1 * torch.randn(1, 4, 9, 1)) for _ in range(3))
        self.basis_mat = nn.Linear(12, 8, bias=False)
        self.mlp = nn.Sequential(nn.Linear(8 + 3, 16), nn.ReLU(), nn.Linear(16, 4))
        self.register_buffer("aabb", torch.tensor([[-1.5, -1.5, -1.5], [1.5, 1.5, 1.5]]))

    def forward(self, rays, dirs):
        x = (rays - self.aabb[0]) * (2 / (self.aabb[1] - self.aabb[0])) - 1
        feats = []
        for i, (a, b, c) in enumerate(((0, 1, 2), (0, 2, 1), (1, 2, 0))):
            plane = F.grid_sample(self.plane_coef[i].expand(x.shape[0], -1, -1, -1), x[:, :, None, [a, b]], align_corners=True)
            at = torch.stack([torch.zeros_like(x[..., c]), x[..., c]], -1)[:, :, None]
            line = F.grid_sample(self.line_coef[i].expand(x.shape[0], -1, -1, -1), at, align_corners=True)
            feats.append((plane * line)[..., 0])
        f = self.basis_mat(torch.cat(feats, 1).transpose(1, 2))
        out = self.mlp(torch.cat([f, dirs], -1))
        return torch.cat([torch.sigmoid(out[..., :3]), F.softplus(out[..., 3:] - 1)], -1)



class GemRetrieval(nn.Module):
    """Generalised mean with a learned power, then a whitening that was computed once."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 12, 3, 2, 1), nn.ReLU(), nn.Conv2d(12, 16, 3, 2, 1), nn.ReLU())
        self.p = nn.Parameter(torch.ones(1) * 3)
        self.register_buffer("pca_mean", torch.randn(16) * 0.1)
        self.register_buffer("pca_components", torch.linalg.qr(torch.randn(16, 16))[0][:10].contiguous())

    def forward(self, x):
        x = F.avg_pool2d(self.features(x).clamp(min=1e-6).pow(self.p), (8, 8)).pow(1.0 / self.p).flatten(1)
        return F.normalize(F.linear(x - self.pca_mean, self.pca_components), dim=-1)


class CompactVit(nn.Module):
    """CCT: patches by convolutions, learned places, LayerScale, DropPath, a pool over the sequence."""

    class DropPath(nn.Module):
        def __init__(self, p):
            super().__init__()
            self.p = p

        def forward(self, x):
            if self.p == 0.0 or not self.training:
                return x
            keep = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(1 - self.p)
            return x * keep / (1 - self.p)

    class Block(nn.Module):
        def __init__(self, d, p):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.attn = nn.MultiheadAttention(d, 4, batch_first=True)
            self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
            self.gamma_1, self.gamma_2 = (nn.Parameter(1e-1 * torch.ones(d)) for _ in range(2))
            self.drop_path = CompactVit.DropPath(p)

        def forward(self, x):
            y = self.norm1(x)
            x = x + self.drop_path(self.gamma_1 * self.attn(y, y, y, need_weights=False)[0])
            return x + self.drop_path(self.gamma_2 * self.mlp(self.norm2(x)))

    def __init__(self):
        super().__init__()
        self.tokenizer = nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.positional_emb = nn.Parameter(torch.zeros(1, 64, 32))
        nn.init.trunc_normal_(self.positional_emb, std=0.2)
        self.blocks = nn.ModuleList(self.Block(32, p.item()) for p in torch.linspace(0, 0.1, 2))
        self.norm, self.attention_pool, self.fc = nn.LayerNorm(32), nn.Linear(32, 1), nn.Linear(32, 5)

    def forward(self, x):
        x = self.tokenizer(x).flatten(2).transpose(-2, -1) + self.positional_emb
        for b in self.blocks:
            x = b(x)
        x = self.norm(x)
        return self.fc((F.softmax(self.attention_pool(x), dim=1).transpose(-1, -2) @ x).squeeze(-2))


class SimpleVit(nn.Module):
    """Places as sines of both axes that are computed in forward(); heads that are mixed again (DeepViT)."""

    def __init__(self, d=32, heads=4):
        super().__init__()
        self.to_patch, self.heads = nn.Linear(48, d), heads
        self.qkv, self.proj, self.reattn = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d), nn.Parameter(torch.randn(heads, heads))
        self.norm_a, self.norm_f, self.ff = nn.LayerNorm(d), nn.LayerNorm(d), nn.Sequential(nn.Linear(d, 64), nn.GELU(), nn.Linear(64, d))
        self.to_latent, self.head = nn.Identity(), nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 6))

    @staticmethod
    def places(h, w, dim, dtype, temperature=10000):
        y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        omega = 1.0 / (temperature ** (torch.arange(dim // 4) / (dim // 4 - 1)))
        y, x = y.flatten()[:, None] * omega[None, :], x.flatten()[:, None] * omega[None, :]
        return torch.cat((x.sin(), x.cos(), y.sin(), y.cos()), dim=1).type(dtype)

    def forward(self, img):
        b, c, h, w = img.shape
        x = img.reshape(b, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(b, -1, 48)
        x = self.to_patch(x)
        x = x + self.places(h // 4, w // 4, x.shape[-1], x.dtype)
        q, k, v = self.qkv(self.norm_a(x)).reshape(b, -1, 3, self.heads, 8).permute(2, 0, 3, 1, 4)
        attn = (q @ k.transpose(-1, -2) * 8 ** -0.5).softmax(-1)
        attn = torch.einsum("bhij,hg->bgij", attn, self.reattn)
        x = x + self.proj((attn @ v).transpose(1, 2).reshape(b, -1, x.shape[-1]))
        x = x + self.ff(self.norm_f(x))
        return self.head(self.to_latent(x.mean(1)))



class GaussianBlurNet(nn.Module):
    """Textures: Gabor filters of the code, a blur as a buffer, soft counts of levels, then what is learned."""

    def __init__(self):
        super().__init__()
        yy, xx = torch.meshgrid(torch.linspace(-1, 1, 7), torch.linspace(-1, 1, 7), indexing="ij")
        bank = [torch.exp(-(xx ** 2 + yy ** 2) / 0.3) * torch.cos(6 * (xx * math.cos(t) + yy * math.sin(t)))
                for t in (0.0, 0.8, 1.6, 2.4)]
        self.register_buffer("gabor", torch.stack(bank)[:, None])
        g = torch.exp(-torch.linspace(-2, 2, 5) ** 2)
        self.register_buffer("gauss_kernel", (g[:, None] * g / g.sum() ** 2)[None, None].repeat(4, 1, 1, 1))
        self.bins = nn.Parameter(torch.rand(1, 6, 1, 1))
        self.width = nn.Parameter(torch.full((6,), 0.8))
        self.fc = nn.Linear(24, 4)

    def forward(self, x):
        x = F.conv2d(F.conv2d(x, self.gabor, padding=3), self.gauss_kernel, padding=2, groups=4)
        x = torch.exp(-((x[:, :, None] - self.bins) * self.width.view(1, 6, 1, 1)) ** 2)
        return self.fc(x.mean((3, 4)).flatten(1))


class CapsuleMemory(nn.Module):
    """Attention to prototypes: keys drawn once and kept, values learned, a temperature that is clamped (CLIP's)."""

    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(10, 16), nn.Tanh())
        self.register_buffer("memory_keys", F.normalize(torch.randn(20, 16), dim=1))
        self.values = nn.Parameter(torch.randn(20, 6))
        self.logit_scale = nn.Parameter(torch.ones([]) * math.log(1 / 0.07))

    def forward(self, x):
        q = F.normalize(self.enc(x), dim=-1)
        scores = q @ self.memory_keys.t() * self.logit_scale.exp().clamp(max=100.0)
        return scores.softmax(-1) @ self.values


def labels(n, high):
    return lambda: torch.randint(0, high, (n,))


def times():
    return torch.rand(2) * 0.9 + 0.05


ALL = {
    "beta_vae": own(BetaVae, floats(2, 1, 16, 16), labels(2, 10), floats(2, 6)), "noise_generator": own(NoiseGenerator, floats(2, 8)),
    "patch_discriminator": own(PatchDiscriminator, floats(2, 3, 16, 16), labels(2, 7)),
    "triplet": own(Triplet, *[floats(2, 1, 16, 16)] * 3), "res_unet_se": own(ResUNetSe, floats(2, 3, 16, 16)),
    "point_mlp": own(PointMlp, floats(2, 3, 14)), "masked_flow": own(MaskedFlow, floats(2, 6)), "planar_flow": own(PlanarFlow, floats(2, 5)),
    "nice": own(Nice, floats(2, 8)), "diffusion_step": own(DiffusionStep, floats(2, 3, 8, 8), lambda: torch.tensor([7, 31]), floats(2, 3, 8, 8)),
    "score_net": own(ScoreNet, floats(2, 1, 8, 8), times), "tenso_rf": own(TensoRf, floats(2, 11, 3), floats(2, 11, 3), lengths=[1, 1]),
    "gem_retrieval": own(GemRetrieval, floats(2, 3, 32, 32)),
    "compact_vit": own(CompactVit, floats(2, 3, 16, 16)), "simple_vit": own(SimpleVit, floats(2, 3, 16, 16)),
    "gabor_net": own(GaussianBlurNet, floats(2, 1, 16, 16)),
    "prototype_memory": own(CapsuleMemory, floats(2, 10)),
}
