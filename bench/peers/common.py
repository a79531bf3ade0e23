"""What the peers share: models, precisions, timing. Needs torch, torchvision and transformers.

Weights are random and nothing is downloaded. BERT gets no attention mask: PyTorch is faster
without, and all tokens count.
"""
import argparse
import contextlib
import gc
import json
import os
import signal
import sys
import time
import traceback

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))
from part import DEVICE, MODELS, cases, check_known, here, stop  # noqa: E402,F401
from rows import case_text, failed  # noqa: E402

CLASSES = {"resnet152": 1000, "inception-v3": 1000, "bert-base": 2, "resnet18": 1000}
SIZE = {"resnet152": 224, "inception-v3": 299, "resnet18": 224}
TOKENS, VOCABULARY = 128, 30000
DTYPE = {"fp16": torch.float16, "bf16": torch.bfloat16}
WARM = 10


def build(name):
    if name.startswith("resnet"):
        from torchvision.models import get_model
        return get_model(name, weights=None)
    if name == "inception-v3":
        from torchvision.models import inception_v3
        return inception_v3(weights=None, init_weights=False, aux_logits=False)
    from transformers import BertConfig, BertForSequenceClassification
    return BertForSequenceClassification(BertConfig(num_labels=CLASSES[name]))


def is_image(name):
    return name in SIZE


def layouts(name):
    """Which values of channels_last are worth a try."""
    return (False, True) if is_image(name) else (False,)


def inputs(name, batch):
    if is_image(name):
        return torch.randn(batch, 3, SIZE[name], SIZE[name])
    return torch.randint(0, VOCABULARY, (batch, TOKENS))


def use_precision(precision):
    """fp32 is plain; all others may use the matrix units, as Shunt does."""
    torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    torch.backends.cudnn.benchmark = True


def cast(model, x, precision):
    dtype = DTYPE.get(precision)
    if dtype:
        model = model.to(dtype)
        x = x.to(dtype) if x.is_floating_point() else x
    return model, x


def place(model, x, precision, channels_last):
    """Model and inputs on the device, in the type and layout."""
    model, x = cast(model, x, precision)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    return model.to(DEVICE), x.to(DEVICE)


def ready(name, precision, batch, channels_last):
    use_precision(precision)
    return place(build(name).eval(), inputs(name, batch), precision, channels_last)


def infer(model, x):
    with torch.inference_mode():
        out = model(x)
        return getattr(out, "logits", out)


def synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def pinned(x):
    """A copy in page-locked host memory."""
    return x.cpu().pin_memory() if DEVICE == "cuda" else x.clone()


def timed(f, runs, warm=WARM):
    """ms of each run, its end awaited."""
    out = []
    for i in range(warm + runs):
        synchronize()
        t = time.perf_counter()
        f()
        synchronize()
        if i >= warm:
            out.append((time.perf_counter() - t) * 1e3)
    return out


class Eager:
    """Where there are no graphs: replay() writes to the same place as well."""

    def __init__(self, f):
        self.f, self.out = f, f().clone()

    def replay(self):
        self.out.copy_(self.f())


def captured(f, pool=None):
    """f as a CUDA graph, and what it returns. pool: memory of graphs that never run at the same time."""
    if DEVICE != "cuda":
        graph = Eager(f)
        return graph, graph.out
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            f()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        out = f()
    return graph, out


def release():
    """Between two cases."""
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()


def options(doc, precisions, batch, runs=None, compiles=False):
    p = argparse.ArgumentParser(description=doc.split("\n", maxsplit=1)[0])
    p.add_argument("--models", default=",".join(MODELS), type=lambda s: s.split(","),
                   help="with commas: " + " ".join(CLASSES))
    p.add_argument("--precisions", default=here(precisions), type=lambda s: s.split(","))
    p.add_argument("--batch", type=int, default=batch)
    if runs:
        p.add_argument("--runs", type=int, default=runs, help="timed runs of each case")
    if compiles:
        p.add_argument("--compiled", choices=("also", "only", "not"), default="also",
                       help="what torch.compile makes of it")
    return p


def parse(p):
    args = p.parse_args()
    check_known(p, args.models, CLASSES, "model")
    return args


def collect(args, work):
    """Measures one thing after the other and prints the one JSON object: what came of it so far, if
    it is told to stop or something fails. work: (what, by, case, function that gives rows) each."""
    rows = []
    signal.signal(signal.SIGTERM, stop)
    try:
        with contextlib.closing(work):
            for what, by, case, f in work:
                print(what, by, case_text(case), file=sys.stderr, flush=True)
                try:
                    rows += f()
                except Exception as e:  # one case that fails leaves the others
                    traceback.print_exc()
                    rows.append(failed(what, by, case, e))
                release()
    finally:
        settings = {"torch": torch.__version__, "cuda": torch.version.cuda,
                    "cudnn": torch.backends.cudnn.version(), "device": DEVICE, **vars(args)}
        if torch.cuda.is_available():
            settings["gpu"] = torch.cuda.get_device_name()
        print(json.dumps({"settings": settings, "rows": rows}), flush=True)
