"""Architectures of torchvision, for sweep.py."""
import torch
from torch import nn

from arch_common import FirstOutput, SIDE, image


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


def vision_of_frames(name):
    def make():
        from torchvision.models.video import mvit_v2_s, swin3d_t
        model = {"mvit_v2_s": mvit_v2_s, "swin3d_t": swin3d_t}[name](weights=None)
        return model, [torch.randn(2, 3, 16, 224, 224) if name == "mvit_v2_s" else torch.randn(2, 3, 4, 64, 64)], [None]
    return make


def quantizable(name):
    """As it is before it is made smaller."""
    def make():
        from torchvision.models import quantization
        return getattr(quantization, name)(weights=None, quantize=False), [image(SIDE)], [None]
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


class Detections(nn.Module):
    """A detector with what sorts out its boxes: of one picture, boxes, scores and labels."""
    one_sample = True

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        found = self.model([x[0]])[0]
        return found["boxes"], found["scores"], found["labels"]


def whole_detector(name, side, **more):
    """more: thresholds below the scores that random weights give, so that there are boxes."""
    def make():
        from torchvision.models.detection import __dict__ as models
        return Detections(models[name](weights=None, weights_backbone=None, **more)), [image(side)[:1]], [None]
    return make


SMALL = {"min_size": 128, "max_size": 160}
ALL = {
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
    "swin3d_t": vision_of_frames("swin3d_t"), "efficientnet_b1": vision("efficientnet_b1"),
    "shufflenet_x1_5": vision("shufflenet_v2_x1_5"), "resnet152": vision("resnet152", 32), "vgg16": vision("vgg16", 64),
    "ssdlite": detector("ssdlite320_mobilenet_v3_large"), "retinanet": detector("retinanet_resnet50_fpn"),
    "fasterrcnn": detector("fasterrcnn_mobilenet_v3_large_320_fpn"),
    "regnet_y_800mf": vision("regnet_y_800mf"), "densenet169": vision("densenet169", 64), "convnext_small": vision("convnext_small", 64),
    "deeplabv3_resnet101": vision("deeplabv3_resnet101", dense=True, weights_backbone=None, aux_loss=True),
    "quantizable_resnet18": quantizable("resnet18"),
    "quantizable_mobilenet": quantizable("mobilenet_v3_large"), "quantizable_shufflenet": quantizable("shufflenet_v2_x0_5"),
    "fcos": detector("fcos_resnet50_fpn"), "keypoints": detector("keypointrcnn_resnet50_fpn"),
    # Not SSD: with random weights PyTorch's own fp32 sorts its boxes otherwise than fp64.
    "retinanet_boxes": whole_detector("retinanet_resnet50_fpn", 128, score_thresh=0.0101, topk_candidates=40, **SMALL),
    "fcos_boxes": whole_detector("fcos_resnet50_fpn", 128, score_thresh=0.01, topk_candidates=40, **SMALL),
    "fasterrcnn_boxes": whole_detector("fasterrcnn_resnet50_fpn", 128, box_score_thresh=0.0115,
                                       rpn_post_nms_top_n_test=40, rpn_pre_nms_top_n_test=60, **SMALL),
    "fasterrcnn_mobile_boxes": whole_detector("fasterrcnn_mobilenet_v3_large_320_fpn", 128, box_score_thresh=0.0115,
                                              rpn_post_nms_top_n_test=40, rpn_pre_nms_top_n_test=60, **SMALL),
    "resnet34": vision("resnet34"), "squeezenet1_0": vision("squeezenet1_0"),
    "vit_b_16": vision("vit_b_16", 64, image_size=64), "swin_v2_s": vision("swin_v2_s", 64), "efficientnet_b2": vision("efficientnet_b2"),
}
