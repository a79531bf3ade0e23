"""finetune.py - records what PyTorch does in 200 steps of a fine-tuning: tests/golden/finetune/.

    python3 finetune.py        (PyTorch, onnx and safetensors; once, by hand)

Of each case there is the spec as a job has it, and the losses of PyTorch in double precision and in
single; their difference is what rounding may do. Of the one that ends early there are what its
evaluations said, too. tests/e2e/test_finetune.py compares ours.
"""
import copy
import json
import os

import torch
from safetensors.torch import save_file
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "finetune")
SAMPLES, HELD_OUT, BATCH, STEPS, CLASSES = 96, 44, 8, 200, 5

CASES = {
    "sgd": {
        "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
        "loss": {"name": "cross-entropy", "label_smoothing": 0.1},
        "schedule": {"name": "cosine", "warmup_steps": 8, "warmup_start": 0.1, "end": 0.05},
        "clip_norm": 0.5, "accumulate": 3, "no_decay": True, "ema": 0.9,
        "frozen": ["trunk.0.*", "trunk.1.*"],
    },
    "adamw": {
        "optimizer": {"name": "adamw", "lr": 0.002, "weight_decay": 0.05, "eps": 1e-3},
        "schedule": {"name": "one-cycle"},
        "clip_value": 0.02, "accumulate": 2, "no_decay": ["*.bias", "norm.*"], "ema": 0.8,
        "frozen": "trunk.*",
    },
    "scaled": {  # every fifth good update multiplies the scale, until one overflows
        "optimizer": {"name": "adamw", "lr": 0.004, "weight_decay": 0.05, "eps": 1e-3},
        "schedule": {"name": "linear", "warmup_steps": 6, "warmup_start": 0.2, "end": 0.1},
        "loss_scale": {"init": 2.0 ** 72, "growth": 4, "backoff": 0.125, "interval": 5},
        "clip_norm": 0.5, "accumulate": 2, "no_decay": True, "ema": 0.9, "frozen": "trunk.0.*",
    },
    "heads": {  # of Twins: classes and numbers
        "loss": [{"name": "cross-entropy", "output": "y", "label_smoothing": 0.1},
                 {"name": "huber", "delta": 0.5, "output": "z", "labels": "value", "weight": 0.3}],
        "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
        "schedule": {"name": "cosine", "warmup_steps": 8, "warmup_start": 0.1, "end": 0.05},
        "clip_norm": 0.5, "accumulate": 2, "no_decay": True, "ema": 0.9, "frozen": "trunk.0.*",
    },
    "early": {
        "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.001},
        "schedule": {"name": "linear", "warmup_steps": 6, "warmup_start": 0.2, "end": 0.1},
        "clip_norm": 0.5, "accumulate": 3, "no_decay": True, "frozen": "trunk.*",
        "evaluation": {"every": 9, "best": "loss", "patience": 3, "min_delta": 0.012},
    },
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.Tanh(),
                                   nn.Conv2d(6, 8, 3, stride=2), nn.BatchNorm2d(8), nn.Tanh())
        self.fc = nn.Linear(32, 16)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.head(torch.tanh(self.norm(self.fc(self.trunk(x).flatten(1)))))


class Twins(Net):
    """Two outputs; the second one has a layer of its own."""

    def __init__(self):
        super().__init__()
        self.value = nn.Linear(16, 2)

    def forward(self, x):
        h = torch.tanh(self.norm(self.fc(self.trunk(x).flatten(1))))
        return self.head(h), self.value(h)


def matches(globs, name):
    from fnmatch import fnmatchcase
    return any(fnmatchcase(name, g) for g in ([globs] if isinstance(globs, str) else globs))


def groups(model, spec):
    """Parameters that are trained: with decay, and without."""
    plain, bare = [], []
    for name, p in model.named_parameters():
        p.requires_grad_(not matches(spec["frozen"], name))
        if not p.requires_grad:
            continue
        spared = p.dim() <= 1 if spec["no_decay"] is True else matches(spec["no_decay"], name)
        (bare if spared else plain).append(p)
    return [{"params": plain}, {"params": bare, "weight_decay": 0.0}]


def optimizer_of(model, spec):
    o = {k: v for k, v in spec["optimizer"].items() if k != "name"}
    kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[spec["optimizer"]["name"]]
    return kind(groups(model, spec), **o)


def schedule_of(opt, spec, updates):
    s, sched = spec["schedule"], torch.optim.lr_scheduler
    lr = spec["optimizer"]["lr"]
    if s["name"] == "one-cycle":
        return sched.OneCycleLR(opt, max_lr=lr, total_steps=updates, cycle_momentum=False)
    warm = s["warmup_steps"]
    rest = sched.CosineAnnealingLR(opt, T_max=updates - warm, eta_min=s["end"] * lr) \
        if s["name"] == "cosine" else \
        sched.LinearLR(opt, start_factor=1.0, end_factor=s["end"], total_iters=updates - warm)
    return sched.SequentialLR(opt, [
        sched.LinearLR(opt, start_factor=s["warmup_start"], total_iters=warm), rest], [warm])


class Watch:
    """Evaluations between steps: keeps the best, says when to stop (less is better)."""

    def __init__(self, how, held):
        self.how, self.held = how, held
        self.seen, self.best, self.mark, self.waited, self.weights = [], None, None, 0, None

    def stops(self, net, step, dtype):
        if not self.how or step % self.how["every"] and step != STEPS:
            return False
        net.eval()
        with torch.no_grad():
            loss = nn.functional.cross_entropy(net(self.held["x"].to(dtype)), self.held["label"]).item()
        net.train()
        self.seen.append([step, loss])
        if self.best is None or loss < self.best:
            self.best = loss
            self.weights = {k: p.detach().clone() for k, p in net.named_parameters()}
        if self.mark is None or loss < self.mark - self.how["min_delta"]:
            self.mark, self.waited = loss, 0
        else:
            self.waited += 1
        return self.waited >= self.how["patience"]


def scaler_of(spec):
    s = spec.get("loss_scale")
    if not s:
        return torch.amp.GradScaler("cpu", enabled=False)
    return torch.amp.GradScaler("cpu", init_scale=s["init"], growth_factor=s["growth"],
                                backoff_factor=s["backoff"], growth_interval=s["interval"])


def unscale(scaler, opt, trained, parts):
    """In FP16 gradients overflow at 65504; in FP32 we take them for infinite where the sum of their squares is,
    and the sum over the steps of an update is divided behind that. PyTorch is told so here; what follows from
    it is its own."""
    if not scaler.is_enabled():
        return
    squares = sum(((parts * p.grad.double()) ** 2).sum().item() for p in trained)
    limit = torch.finfo(torch.float32).max
    assert abs(squares / limit - 1) > 1e-3, "too near to say what rounding makes of it"
    scaler.unscale_(opt)
    if squares > limit:
        for found in scaler._per_optimizer_states[id(opt)]["found_inf_per_device"].values():
            found.fill_(1.0)


def loss_of(answer, spec, label, value):
    if isinstance(answer, torch.Tensor):
        smoothing = spec["loss"]["label_smoothing"] if "loss" in spec else 0.0
        return nn.functional.cross_entropy(answer, label, label_smoothing=smoothing)
    classes, numbers = spec["loss"]
    return nn.functional.cross_entropy(answer[0], label, label_smoothing=classes["label_smoothing"]) + \
        numbers["weight"] * nn.functional.huber_loss(answer[1], value, delta=numbers["delta"])


def train(net, spec, data, dtype, held):
    net = copy.deepcopy(net).to(dtype).train()
    opt, k = optimizer_of(net, spec), spec["accumulate"]
    sched = schedule_of(opt, spec, -(-STEPS // k))
    mean = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(spec.get("ema", 0.0)))
    watch = Watch(spec.get("evaluation"), held)
    trained = [p for p in net.parameters() if p.requires_grad]
    x, label, value = data["x"], data["label"], data["value"].to(dtype)
    losses, scaler = [], scaler_of(spec)
    for step in range(STEPS):
        at = step % (SAMPLES // BATCH) * BATCH
        parts = min(k, STEPS - step // k * k)
        part = slice(at, at + BATCH)
        loss = loss_of(net(x[part].to(dtype)), spec, label[part], value[part])
        scaler.scale(loss / parts).backward()
        losses.append(loss.item())
        if step % k + 1 < parts:
            continue  # `every` is a multiple of k
        unscale(scaler, opt, trained, parts)
        if "clip_norm" in spec:
            torch.nn.utils.clip_grad_norm_(trained, spec["clip_norm"])
        else:
            torch.nn.utils.clip_grad_value_(trained, spec["clip_value"])
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
        sched.step()
        mean.update_parameters(net)
        if watch.stops(net, step + 1, dtype):
            break
    return losses, watch.weights or dict(mean.module.named_parameters()), watch.seen, scaler.get_scale()


def export(net, x, name, outputs):
    torch.onnx.export(net, (x[:BATCH],), os.path.join(OUT, name), dynamo=False,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      input_names=["x"], output_names=outputs, opset_version=17,
                      dynamic_axes={k: {0: "n"} for k in ["x", *outputs]})


def main():
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    os.makedirs(OUT, exist_ok=True)
    net, label = Net(), torch.randint(0, CLASSES, (SAMPLES,))
    x = torch.randn(SAMPLES, 1, 8, 8) + torch.randn(CLASSES, 1, 8, 8)[label] * 0.5
    export(net, x, "net.onnx", ["y"])
    save_file({"x": x, "label": label}, os.path.join(OUT, "data.safetensors"))
    held = {"label": torch.randint(0, CLASSES, (HELD_OUT,))}
    held["x"] = torch.randn(HELD_OUT, 1, 8, 8)
    for c in range(CLASSES):  # of a class: like what the others of it have in common
        held["x"][held["label"] == c] += x[label == c].mean(0)
    save_file(held, os.path.join(OUT, "held.safetensors"))
    twins = Twins()
    export(twins, x, "twins.onnx", ["y", "z"])
    data = {"x": x, "label": label, "value": torch.stack([x[:, 0, 2, 3], x.mean((1, 2, 3))], 1)}
    save_file(data, os.path.join(OUT, "twins.safetensors"))
    for name, spec in CASES.items():
        model = twins if name == "heads" else net
        exact, weights, seen, scale = train(model, spec, data, torch.float64, held)
        rounded, _, seen_fp32, _ = train(model, spec, data, torch.float32, held)
        with open(os.path.join(OUT, name + ".json"), "w", encoding="utf-8") as f:
            json.dump({"spec": {**spec, "batch": BATCH, "steps": STEPS, "shuffle": False},
                       "losses": exact, "losses_fp32": rounded,
                       **({"scale": scale} if "loss_scale" in spec else {}),
                       **({"seen": seen, "seen_fp32": seen_fp32} if seen else {})}, f, indent=1)
            f.write("\n")
        save_file({k: v.detach().float().contiguous() for k, v in weights.items()},
                  os.path.join(OUT, name + ("_best" if seen else "_ema") + ".safetensors"))
        print(name, exact[0], exact[-1], max(abs(a - b) for a, b in zip(exact, rounded)), seen, scale)


if __name__ == "__main__":
    main()
