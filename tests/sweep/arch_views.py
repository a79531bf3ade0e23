"""Parameters that a file has in pieces: views, parts, negatives, bounds, and what a call computed of them; for sweep.py."""
import torch
from torch import nn


class Of(nn.Module):
    """A layer, and what is done to it with parameters."""

    def __init__(self, what, **params):
        super().__init__()
        self.layer, self.what = nn.Linear(6, 8), what
        for name, x in params.items():
            setattr(self, name, nn.Parameter(x))

    def forward(self, x):
        return self.what(self, self.layer(x))


def of(what, **params):
    return lambda: (Of(what, **{k: v.clone() for k, v in params.items()}), [torch.randn(2, 6)], [None])


class SharedPlaces(nn.Module):
    """Two sentences of different lengths share a table of places."""

    def __init__(self):
        super().__init__()
        self.places, self.out = nn.Parameter(torch.randn(1, 12, 8)), nn.Linear(8, 3)

    def forward(self, a, b):
        a, b = a + self.places[:, :9], b + self.places[:, :6]
        return self.out((b @ a.transpose(1, 2)).softmax(-1) @ a)


class OneFilter(nn.Module):
    """One filter for each of several channels."""

    def __init__(self):
        super().__init__()
        self.kernel, self.out = nn.Parameter(0.3 * torch.randn(1, 1, 3, 3)), nn.Conv2d(3, 2, 1)

    def forward(self, x):
        return self.out(torch.relu(nn.functional.conv2d(x, self.kernel.expand(3, 1, 3, 3), padding=1, groups=3)))


class Windows(nn.Module):
    """Attention in windows of two sizes, which share a table of distances."""

    def __init__(self):
        super().__init__()
        self.table, self.qkv, self.out = nn.Parameter(0.1 * torch.randn(2, 19)), nn.Linear(8, 24), nn.Linear(8, 8)

    def attend(self, x):
        n = x.shape[1]
        q, k, v = self.qkv(x).view(x.shape[0], n, 3, 2, 4).permute(2, 0, 3, 1, 4)
        i = torch.arange(n)
        bias = self.table[:, 9 - (n - 1):9 + n][:, i[:, None] - i[None] + n - 1]
        return self.out(((q @ k.transpose(-1, -2) / 2 + bias).softmax(-1) @ v).transpose(1, 2).flatten(2))

    def forward(self, x):
        return self.attend(x) + self.attend(x[:, ::2]).repeat_interleave(2, 1)


def rows(i, k):
    """Of one table, taken twice by constants."""
    return of(lambda m, h: torch.tanh(h[:, None] + m.table[i]) @ (h[:, None] * m.table[k]).transpose(1, 2),
              table=torch.randn(12, 8))


def number(what, x=0.6593):
    """One of a number, which is no vector of a module."""
    return of(lambda m, h: what(torch.tanh(h), m.p), p=T(x))


def bounded(what):
    return of(lambda m, h: what(torch.tanh(h), m.p), p=torch.randn(8))


T, F = torch.tensor, nn.functional
ALL = {
    "views_of_ones": of(lambda m, h: torch.tanh(h * m.gain[None]) * m.gain.view(1, 8), gain=torch.ones(8)),
    "views_log_sum": of(lambda m, h: torch.logaddexp(h, m.shift), shift=torch.randn(8)),
    "views_log_sum_number": of(lambda m, h: torch.logaddexp(h, m.shift), shift=T(0.7)),
    "views_negative": of(lambda m, h: torch.exp(h.abs() * -m.t) + h * m.t, t=T(0.7)),
    "views_negative_divides": of(lambda m, h: torch.tanh(h) / -m.t, t=T(0.7134518)),
    "views_negative_of_code": of(lambda m, h: torch.exp(h.abs() * -m.t) + torch.tanh(h) * -0.7, t=T(0.7)),
    "views_clipped": of(lambda m, h: torch.clamp(3 * h, -m.limit, m.limit), limit=T(0.31734518)),
    "views_clipped_above": of(lambda m, h: torch.clamp(3 * h, max=m.limit), limit=T(0.5)),
    "views_softplus_twice": of(lambda m, h: h * nn.functional.softplus(m.a) + nn.functional.softplus(m.b), a=torch.randn(8), b=torch.randn(8)),
    "views_repeated_once": of(lambda m, h: h + m.start.repeat(h.shape[0], 1), start=torch.randn(1, 8)),
    "views_differences": of(lambda m, h: h * (m.knots[1] - m.knots[0]) + m.knots, knots=torch.randn(8)),
    "views_shared_places": lambda: (SharedPlaces(), [torch.randn(2, 9, 8), torch.randn(2, 6, 8)], [None, None]),
    "views_windows_of_a_table": lambda: (Windows(), [torch.randn(2, 8, 8)], [None]),
    "views_rows_within_rows": rows(T([3, 1]), T([1, 3, 3, 5])),
    "views_rows_and_rows": rows(T([0, 1]), T([1, 2, 2, 9])),
    "views_one_filter": lambda: (OneFilter(), [torch.randn(2, 3, 6, 6)], [None]),
    "views_bounded_above": bounded(lambda h, p: h * p.clamp(max=0.4)),
    "views_bounded_nowhere": bounded(lambda h, p: h * p.clamp(max=40.0)),
    "views_bounded_below": bounded(lambda h, p: h / p.clamp(min=0.5)),
    "views_bounded_relu6": bounded(lambda h, p: h + F.relu6(p)),
    "views_bounded_hardtanh": bounded(lambda h, p: h + F.hardtanh(p)),
    "views_number_bounded": number(lambda h, p: h * p.clamp(max=0.66)),
    "views_number_exp_bounded": number(lambda h, p: h * p.exp().clamp(max=100), 2.6593),
    "views_number_exp_bounded_soon": number(lambda h, p: h * p.exp().clamp(max=2.0), 0.6926),
    "views_vector_exp_bounded_soon": of(lambda m, h: torch.tanh(h) * m.p.exp().clamp(max=2.0), p=torch.randn(8) / 500 + 0.69),
    "views_number_log": number(lambda h, p: h * p.log()),
    "views_number_sin": number(lambda h, p: h * p.sin() + p.cos()),
    "views_number_relu": number(lambda h, p: h + F.relu(p)),
    "views_number_leaky": number(lambda h, p: h + F.leaky_relu(p, 0.1), -0.3593),
    "views_number_gelu": number(lambda h, p: h * F.gelu(p)),
    "views_number_silu": number(lambda h, p: h * F.silu(p)),
    "views_number_elu": number(lambda h, p: h * F.elu(p), -0.3593),
    "views_number_where": number(lambda h, p: torch.where(h > 0, h, p)),
    "views_number_filled": number(lambda h, p: torch.where(h > 0.1, p, h * p)),
    "views_number_inverse": number(lambda h, p: h * p.reciprocal()),
    "views_number_power": number(lambda h, p: h.abs().add(0.1).pow(p) + h * p ** 2),
    "views_number_root": number(lambda h, p: h * p.rsqrt()),
    "views_number_erf": number(lambda h, p: h * torch.erf(p)),
    "views_number_hard": number(lambda h, p: h * F.hardsigmoid(p) + F.hardswish(p)),
    "views_number_lerp": number(lambda h, p: torch.lerp(h, h * h, p)),
    "views_number_stacked": number(lambda h, p: h @ torch.stack([p, 1 - p, p * p, p, p, p, p, p])[:, None]),
    "views_number_softmax": number(lambda h, p: h * torch.stack([p, torch.zeros_like(p)]).softmax(0)[0]),
    "views_number_round": number(lambda h, p: h * (p + (p.round() - p).detach())),
    "views_number_minimum": number(lambda h, p: torch.minimum(h, p) + torch.maximum(h, -p)),
    "views_number_atan": number(lambda h, p: h * torch.atan(p)),
    "views_number_addcmul": number(lambda h, p: torch.addcmul(h, h, p, value=0.5)),
}
