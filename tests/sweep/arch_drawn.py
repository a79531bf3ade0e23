"""What a draw of names had wrong, refused or trained as something else, for sweep.py: of each type of transformers 5.24
without a list, and of each module of timm, one at random."""
import torch
from torch import nn

from arch_brought_named import by_name
from arch_common import ids, mask
from arch_transformers import own_of
from arch_timm import sized
from arch_torchvision import SMALL, Detections

class Flow(nn.Module):
    """Optical flow: the last of two steps, each from where the one before has led, held by detach()."""

    def __init__(self):
        super().__init__()
        from torchvision.models.optical_flow import raft_small
        self.model = raft_small()

    def forward(self, a, b):
        from torchvision.models.optical_flow import raft
        grid = raft.make_coords_grid
        raft.make_coords_grid = lambda *args, **more: grid(*args, **more).to(a.dtype)  # else fp32, in fp64 too
        try:
            return self.model(a, b, num_flow_updates=2)[-1]
        finally:
            raft.make_coords_grid = grid


class Masks(Detections):
    """And where each thing is, as a picture."""

    def forward(self, x):
        found = self.model([x[0]])[0]
        return found["boxes"], found["scores"], found["labels"], found["masks"]


class Points(Detections):
    """And the joints of each person."""

    def forward(self, x):
        found = self.model([x[0]])[0]
        return found["boxes"], found["scores"], found["labels"], found["keypoints"], found["keypoints_scores"]


def regions(kind, name, **more):
    """Few boxes, so that random weights have them in the same order in any precision."""
    def make():
        from torchvision.models.detection import __dict__ as models
        return kind(models[name](weights=None, weights_backbone=None, rpn_post_nms_top_n_test=40, rpn_pre_nms_top_n_test=60,
                                 box_detections_per_img=12, **SMALL, **more)), [torch.randn(1, 3, 96, 96)], [None]
    return make


class MaskToken(nn.Module):
    """Words that are hidden get the same vector, and features of a picture go where the words say."""

    def __init__(self):
        super().__init__()
        self.emb, self.token, self.out = nn.Embedding(20, 8), nn.Parameter(torch.randn(8)), nn.Linear(8, 3)
        self.see = nn.Linear(5, 8)

    def forward(self, ids, seen):
        h = self.emb(ids).clone()
        h[ids == 3] = self.token
        here = (ids == 4)[..., None].expand_as(h)
        return self.out(h.masked_scatter(here, self.see(seen)))


class ChosenRows(nn.Module):
    """Rows that the data choose go through a layer, and back to their places; what is below 0 is of another one."""
    one_sample = True

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        m, y, z = x[:, 0] > 0, x.clone(), self.b(x)
        y[m] = self.a(x[m])
        y[x < 0] = z[x < 0]
        return y


class Queries(nn.Module):
    """Queries that are learned ask a sequence, and are added to what they hear; a gain of rows and columns."""

    def __init__(self):
        super().__init__()
        self.q, self.gain = nn.Parameter(torch.randn(4, 8)), nn.Parameter(torch.randn(8))
        self.att, self.norm = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm(8)
        self.out = nn.Linear(32, 3)

    def forward(self, x, pad):
        x = x * self.gain.view(1, 1, 8) + (x.transpose(1, 2) * self.gain[None, :, None]).transpose(1, 2)
        q = self.q[None].repeat(x.shape[0], 1, 1)
        y, _ = self.att(q, x, x, key_padding_mask=pad, need_weights=False)
        return self.out((self.norm(q + y) * torch.tanh(self.gain)[None, None]).flatten(1))


class Corners(nn.Module):
    """Scales of which sizes are no whole multiples, with corners on corners."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 6, 3, 2, 1), nn.Conv2d(6, 2, 1)
        self.up, self.more = nn.Upsample(scale_factor=1.6, mode="bilinear", align_corners=True), nn.UpsamplingBilinear2d(scale_factor=2)

    def forward(self, x):
        return self.b(self.more(self.up(torch.relu(self.a(x)))))


class FakeQuantised(nn.Module):
    """In training for 8 bits: activations with one scale, weights with one for each channel."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 8, 3), nn.Linear(8, 4)
        self.register_buffer("scale", torch.linspace(.002, .004, 8))
        self.register_buffer("zero", torch.zeros(8, dtype=torch.int32))

    def forward(self, x):
        w = torch.fake_quantize_per_channel_affine(self.conv.weight.float(), self.scale.float(), self.zero, 0, -128, 127)
        h = torch.relu(nn.functional.conv2d(x, w.to(x.dtype), self.conv.bias)).mean((2, 3))
        return self.out(torch.fake_quantize_per_tensor_affine(h, 0.01, 3, 0, 127))


ALL = {
    "drawn_mask_rcnn": regions(Masks, "maskrcnn_resnet50_fpn", box_score_thresh=0.0115),
    "drawn_keypoint_rcnn": regions(Points, "keypointrcnn_resnet50_fpn", box_score_thresh=0.05),
    "drawn_mask_token": lambda: (MaskToken(), [torch.tensor([[3, 4, 5, 3, 4], [6, 4, 7, 4, 8]]), torch.randn(2, 2, 5)], [None, None]),
    "drawn_chosen_rows": lambda: (ChosenRows(), [torch.randn(5, 6)], [None]),
    "drawn_queries": lambda: (Queries(), [torch.randn(2, 5, 8), torch.tensor([[False, False, True, True, True], [False] * 5])], [None, None]),
    "drawn_corners": lambda: (Corners(), [torch.randn(2, 3, 17, 13)], [None]),
    "drawn_fake_quantised": lambda: (FakeQuantised(), [torch.randn(2, 3, 6, 6)], [None]),
    "drawn_raft_small": lambda: (Flow(), [torch.randn(2, 3, 128, 128), torch.randn(2, 3, 128, 128)], [None, None]),
    # Experts of which one sample chooses some: an older file has those, and another sample chooses more, or fewer.
    "drawn_aria_text": by_name("AriaTextModel", "AriaTextConfig"),
    "drawn_qwen3_vl_moe": by_name("Qwen3VLMoeTextModel", "Qwen3VLMoeTextConfig"),
    # A tower that is not run; a table of positions behind a branch; numbers that exporters compute of parameters.
    "drawn_cohere2_vision": by_name("Cohere2VisionModel", "Cohere2VisionConfig"),
    "drawn_sam3_vit": by_name("Sam3ViTModel", "Sam3ViTConfig", side=64),
    "drawn_dory": by_name("DoryModel", "DoryConfig"),
    "drawn_apertus": by_name("ApertusForTokenClassification", "ApertusConfig"),
    "drawn_pe_audio": by_name("PeAudioModel", "PeAudioConfig", inputs={
        "input_ids": ids, "input_values": lambda: torch.randn(2, 1, 1600), "attention_mask": mask}),
    # A norm of what was turned, in one sample: PyTorch has the wrong gradient unless both lie as they are written.
    "drawn_clap_audio": own_of("ClapAudioModel", "ClapAudioConfig", (2, 1, 1024, 64), window_size=4, num_mel_bins=64,
        spec_size=256, patch_size=4, patch_stride=[4, 4], hidden_size=64, patch_embeds_hidden_size=16, depths=[1, 1],
        num_attention_heads=[2, 2], num_hidden_layers=2, enable_fusion=False),
    "drawn_convit": sized("convit_small", 64),
}
