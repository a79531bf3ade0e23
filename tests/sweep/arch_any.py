"""Any model of timm, torchvision and transformers by its name, for sweep.py, and a draw of them.

timm.NAME, torchvision.NAME, transformers.CLASS. Each is made as small as its own arguments allow. A draw takes
about as many from each package, at random by its seed, of a family once: whoever wrote the lists chose what they
had heard of, a draw did not.
"""
import random

import torch

from arch_brought_named import small
from arch_common import FirstOutput, ids, image, mask
from arch_transformers import Text, TextOnly

LARGEST = 90e6  # parameters: more is the same again
SIDES = (64, 96, 128, 224, 256, 384)
MAPPINGS = ("MODEL_MAPPING_NAMES", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
            "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES", "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
            "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
            "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES", "MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES")


def first_that_runs(makers):
    """(model, side) of the first that can be made and takes an image of its side; else the last one's complaint."""
    why = None
    for side, make in makers:
        try:
            model = make().eval()
            with torch.no_grad():
                model(image(side))
            return model, side
        except Exception as e:  # of the package, about a size
            why = e
    raise why


def of_timm(name):
    import timm
    own = timm.get_pretrained_cfg(name)
    own = own.input_size[-1] if own else 224

    def makers():
        for side in [s for s in SIDES if s < own] + [own]:
            yield side, lambda side=side: timm.create_model(name, pretrained=False, img_size=side)
            yield side, lambda: timm.create_model(name, pretrained=False)
    model, side = first_that_runs(makers())
    return model, [image(side)], [None]


def bare(name, **more):
    """Without weights, also of the trunk of what finds or segments."""
    import inspect
    from torchvision.models import get_model, get_model_builder
    if "weights_backbone" in inspect.signature(get_model_builder(name)).parameters:
        more["weights_backbone"] = None
    return get_model(name, weights=None, **more)


def of_torchvision(name):
    more = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}

    def made():
        model = bare(name, **more)
        return FirstOutput(model) if "segmentation" in type(model).__module__ else model
    model, side = first_that_runs((side, made) for side in SIDES)
    return model, [image(side)], [None]


def classes():
    """class of transformers -> the name of its configuration"""
    from transformers.models.auto import configuration_auto, modeling_auto
    configs, out = configuration_auto.CONFIG_MAPPING_NAMES, {}
    for mapping in MAPPINGS:
        for kind, names in getattr(modeling_auto, mapping, {}).items():
            for name in [names] if isinstance(names, str) else names:
                if kind in configs:
                    out.setdefault(name, configs[kind])
    return out


def of_transformers(name):
    import transformers
    model = getattr(transformers, name)(small(getattr(transformers, classes()[name])))
    if model.main_input_name == "pixel_values":
        return FirstOutput(model), [image(64)], [None]
    if model.main_input_name != "input_ids":
        raise ValueError("%s asks for %s" % (name, model.main_input_name))
    model.eval()
    try:
        with torch.no_grad():
            Text(model)(ids(), mask())
        return Text(model), [ids(), mask()], [1, 1]
    except TypeError:  # it has no mask
        return TextOnly(model), [ids()], [1]


KINDS = {"timm": of_timm, "torchvision": of_torchvision, "transformers": of_transformers}


def get(name):
    """A function that makes (model, inputs, lengths) of such a name, or None."""
    kind, _, rest = name.partition(".")
    return (lambda: KINDS[kind](rest)) if kind in KINDS and rest else None


def is_small(name):
    """Counted without making its weights; those of transformers are made small."""
    kind, _, rest = name.partition(".")
    if kind == "transformers":
        return True
    import timm
    try:
        with torch.device("meta"):
            model = timm.create_model(rest, pretrained=False) if kind == "timm" else bare(rest)
    except Exception:  # some of their tables cannot be made so
        return True
    return sum(p.numel() for p in model.parameters()) <= LARGEST


def candidates():
    """{package: {family: names}}"""
    import timm
    from torchvision.models import list_models
    found = {"timm": {}, "torchvision": {}, "transformers": {}}
    for name in timm.list_models():
        found["timm"].setdefault(name.split("_")[0].rstrip("0123456789"), []).append(name)
    for name in list_models():
        if "quantized" not in name and "raft" not in name and "rcnn" not in name and "/" not in name:
            found["torchvision"].setdefault(name, []).append(name)
    for name, config in classes().items():
        found["transformers"].setdefault(config, []).append(name)
    return found


def draw(n, seed):
    """n names, a third of each package while it has some, of each family one. Not all can be made: there are those
    that ask for more than an image, or a text and its mask."""
    rng, out = random.Random(seed), []
    pools = []
    for kind, families in candidates().items():
        names = ["%s.%s" % (kind, rng.choice(sorted(names))) for _, names in sorted(families.items())]
        rng.shuffle(names)
        pools.append(names)
    while len(out) < n and any(pools):
        for pool in pools:
            while pool and len(out) < n:
                name = pool.pop()
                if is_small(name):
                    out.append(name)
                    break
    return out
