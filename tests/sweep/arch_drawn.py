"""What a draw of names had wrong, refused or trained as something else, for sweep.py: of each type of transformers 5.24
without a list, and of each module of timm, one at random."""
import torch
from torch import nn

from arch_brought_named import by_name
from arch_common import ids, mask
from arch_transformers import own_of
from arch_timm import sized

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


ALL = {
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
