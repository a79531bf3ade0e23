"""Parameters as they are made, of which an exporter computes the same numbers, and keeps them once; for sweep.py."""
import torch
from torch import nn


class Scales(nn.Module):
    """Layers, each with a number for each channel, of which a function scales: exp(s), tanh(g)."""

    def __init__(self, of, shape=(6,), n=2):
        super().__init__()
        self.of, self.layers = of, nn.ModuleList(nn.Linear(6, 6) for _ in range(n))
        self.scales = nn.ParameterList(torch.zeros(shape) for _ in range(n))

    def forward(self, x):
        for layer, scale in zip(self.layers, self.scales):
            x = x + torch.sin(layer(x)) * self.of(scale)
        return x


class SnakeTwice(nn.Module):
    """Two snakes, x + sin(a x)^2 / (a + 1e-9), each with a number for each channel."""

    def __init__(self, c=6, n=2):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(2 if k == 0 else c, c, 3, padding=1) for k in range(n))
        self.alphas = nn.ParameterList(torch.ones(1, c, 1) for _ in range(n))

    def forward(self, x):
        for layer, a in zip(self.layers, self.alphas):
            x = layer(x)
            x = x + (a + 1e-9).reciprocal() * torch.sin(a * x).pow(2)
        return x


class SnakeBeta(nn.Module):
    """x + sin(exp(a) x)^2 / exp(b)."""

    def __init__(self, c=6):
        super().__init__()
        self.into = nn.Conv1d(2, c, 3, padding=1)
        self.log_alpha, self.log_beta = nn.Parameter(torch.zeros(c)), nn.Parameter(torch.zeros(c))

    def forward(self, x):
        x = self.into(x)
        a, b = self.log_alpha.exp()[None, :, None], self.log_beta.exp()[None, :, None]
        return x + (a * x).sin().pow(2) / b


class ScaledAgain(nn.Module):
    """One scale for two layers, and a parameter that nobody uses."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.log_scale, self.spare = nn.Parameter(torch.zeros(6)), nn.Parameter(torch.zeros(6))

    def forward(self, x):
        x = torch.sin(self.a(x)) * self.log_scale.exp()
        return self.b(x) * self.log_scale.exp()


ALL = {
    "merged_exp": lambda: (Scales(torch.exp), [torch.randn(2, 6)], [None]),
    "merged_exp_number": lambda: (Scales(torch.exp, ()), [torch.randn(2, 6)], [None]),
    "merged_tanh": lambda: (Scales(torch.tanh), [torch.randn(2, 6)], [None]),
    "merged_tanh_number": lambda: (Scales(torch.tanh, (1,)), [torch.randn(2, 6)], [None]),
    "merged_softplus": lambda: (Scales(nn.functional.softplus), [torch.randn(2, 6)], [None]),
    "merged_shifted": lambda: (Scales(lambda s: 1 + s), [torch.randn(2, 6)], [None]),
    "merged_shifted_exp": lambda: (Scales(lambda s: s.exp() + 1e-9), [torch.randn(2, 6)], [None]),
    "merged_bounded": lambda: (Scales(lambda s: s.exp().clamp(max=100)), [torch.randn(2, 6)], [None]),
    "merged_snakes": lambda: (SnakeTwice(), [torch.randn(2, 2, 20)], [2]),
    "merged_snake_beta": lambda: (SnakeBeta(), [torch.randn(2, 2, 20)], [2]),
    "merged_not": lambda: (ScaledAgain(), [torch.randn(2, 6)], [None]),
}
