"""Families of torchvision, timm and transformers that no other list has, for sweep.py."""
import torch
from torch import nn

from arch_common import WORDS, image
from arch_timm import sized, timm
from arch_torchvision import SMALL as BOXES, detector, quantizable, vision, vision_of_frames, whole_detector
from arch_transformers import BERT, EDGES, LLAMA, SMALL, SPEECH, Decoded, TextOnly, own_of, transformers


class Boxed(nn.Module):
    """Words at places of a page."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, bbox):
        return self.model(input_ids=input_ids, bbox=bbox)[0]


def boxed(model, config, per_box=4, **more):
    def make():
        import transformers as package
        made = getattr(package, model)(getattr(package, config)(**more))
        box = torch.randint(0, 500, (2, 12, per_box)).sort(-1)[0]
        return Boxed(made), [torch.randint(3, WORDS - 10, (2, 12)), box], [None, None]
    return make


DEC = dict(d_model=64, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
           encoder_ffn_dim=96, decoder_ffn_dim=96, vocab_size=WORDS, max_position_embeddings=64, **EDGES)
MOE = dict(LLAMA, moe_intermediate_size=32, num_experts_per_tok=2)

ALL = {
    "fresh_resnet101": vision("resnet101", 32), "fresh_resnext101": vision("resnext101_64x4d", 32),
    "fresh_vgg13_bn": vision("vgg13_bn", 32), "fresh_densenet201": vision("densenet201", 32),
    "fresh_mnasnet1_3": vision("mnasnet1_3"), "fresh_shufflenet_x2": vision("shufflenet_v2_x2_0"),
    "fresh_regnet_y_1_6gf": vision("regnet_y_1_6gf", 32), "fresh_efficientnet_v2_m": vision("efficientnet_v2_m", 64),
    "fresh_efficientnet_b4": vision("efficientnet_b4", 64), "fresh_convnext_base": vision("convnext_base", 32),
    "fresh_fcn_resnet101": vision("fcn_resnet101", 64, dense=True, weights_backbone=None),
    "fresh_mask_rcnn": detector("maskrcnn_resnet50_fpn"), "fresh_ssd300": detector("ssd300_vgg16"),
    "fresh_ssdlite_boxes": whole_detector("ssdlite320_mobilenet_v3_large", 320, score_thresh=0.012, topk_candidates=30),
    "fresh_quantizable_googlenet": quantizable("googlenet"), "fresh_mvit_v2": vision_of_frames("mvit_v2_s"),
    "fresh_timm_resnetaa": timm("resnetaa50", 64), "fresh_timm_botnext": sized("eca_botnext26ts_256", 128),
    "fresh_timm_convnext_ols": timm("convnext_atto_ols", 64), "fresh_timm_convnext_rms": timm("convnext_atto_rms", 64),
    "fresh_timm_mci": timm("fastvit_mci0", 64), "fresh_timm_mixer_b": sized("mixer_b16_224", 64),
    "fresh_timm_resnet_gn": timm("resnet50_gn", 64), "fresh_timm_efficientvit_l": timm("efficientvit_l1", 64),
    "fresh_timm_reg4": sized("vit_medium_patch16_reg4_gap_256", 64, depth=2),
    "fresh_timm_wee": sized("vit_wee_patch16_reg1_gap_256", 64, depth=2),
    "fresh_timm_edgetpu": timm("mobilenet_edgetpu_v2_xs", 64), "fresh_timm_efficientnet_es": timm("efficientnet_es", 64),
    "fresh_timm_gc_efficientnet": timm("gc_efficientnetv2_rw_t", 64), "fresh_timm_resnet61q": timm("resnet61q", 64),
    "fresh_timm_swin_cr": sized("swinv2_cr_tiny_224", 64, depths=(1, 1, 1, 1)), "fresh_timm_coat_tiny": sized("coat_tiny", 64),
    "fresh_timm_focal_lrf": timm("focalnet_tiny_lrf", 64), "fresh_timm_skresnext": timm("skresnext50_32x4d", 64),
    "fresh_timm_sehalonet": timm("sehalonet33ts", 256), "fresh_timm_maxxvitv2": sized("maxxvitv2_nano_rw_256", 64),
    "fresh_timm_darknetaa": timm("darknetaa53", 64), "fresh_timm_rexnetr": timm("rexnetr_200", 64),
    "fresh_timm_resnetv2": timm("resnetv2_50", 64), "fresh_timm_convmixer": timm("convmixer_1024_20_ks9_p14", 56, depth=2),
    "bros": boxed("BrosModel", "BrosConfig", 8, **BERT), "lilt": boxed("LiltModel", "LiltConfig", **dict(BERT, hidden_size=96)),
    "rwkv_lm": transformers("RwkvForCausalLM", "RwkvConfig", kind=TextOnly, hidden_size=64, num_hidden_layers=2, vocab_size=WORDS),
    "patchtst": own_of("PatchTSTForPrediction", "PatchTSTConfig", (2, 64, 3), num_input_channels=3, context_length=64,
        patch_length=8, patch_stride=8, d_model=32, num_attention_heads=4, num_hidden_layers=2, ffn_dim=48, prediction_length=6),
    "patchtsmixer": own_of("PatchTSMixerForPrediction", "PatchTSMixerConfig", (2, 32, 3), num_input_channels=3, context_length=32,
        patch_length=8, patch_stride=8, d_model=16, num_layers=2, prediction_length=6),
    "videomae": own_of("VideoMAEForVideoClassification", "VideoMAEConfig", (2, 4, 3, 32, 32), image_size=32, patch_size=16,
        num_frames=4, **SMALL),
    "vivit": own_of("VivitModel", "VivitConfig", (2, 4, 3, 32, 32), image_size=32, num_frames=4, tubelet_size=[2, 16, 16], **SMALL),
    "timesformer": own_of("TimesformerModel", "TimesformerConfig", (2, 4, 3, 32, 32), image_size=32, patch_size=16, num_frames=4, **SMALL),
    "mobilenet_v2_hf": transformers("MobileNetV2ForImageClassification", "MobileNetV2Config", side=64, depth_multiplier=0.35),
    "donut_swin": transformers("DonutSwinModel", "DonutSwinConfig", side=64, image_size=64, embed_dim=24, depths=[2, 2],
        num_heads=[2, 4], window_size=4),
    "superpoint": transformers("SuperPointForKeypointDetection", "SuperPointConfig", side=64),
    "glm4_moe": transformers("Glm4MoeForCausalLM", "Glm4MoeConfig", n_routed_experts=4, n_group=1, topk_group=1,
        first_k_dense_replace=1, n_shared_experts=1, head_dim=16, **MOE),
    "dots1": transformers("Dots1ForCausalLM", "Dots1Config", n_routed_experts=4, n_group=1, topk_group=1, first_k_dense_replace=1,
        n_shared_experts=1, head_dim=16, **MOE),
    "jetmoe": transformers("JetMoeForCausalLM", "JetMoeConfig", num_key_value_heads=2, kv_channels=16, num_local_experts=4,
        num_experts_per_tok=2, **{k: v for k, v in LLAMA.items() if k not in ("num_attention_heads", "num_key_value_heads")}),
    "granitemoe_shared": transformers("GraniteMoeSharedForCausalLM", "GraniteMoeSharedConfig", num_local_experts=4,
        num_experts_per_tok=2, shared_intermediate_size=32, **LLAMA),
    "vaultgemma": transformers("VaultGemmaForCausalLM", "VaultGemmaConfig", head_dim=16, sliding_window=8, **LLAMA),
    "trocr_lm": transformers("TrOCRForCausalLM", "TrOCRConfig", kind=TextOnly, d_model=64, decoder_layers=1,
        decoder_attention_heads=4, decoder_ffn_dim=96, vocab_size=WORDS, max_position_embeddings=64, **EDGES),
    "nllb_moe": transformers("NllbMoeModel", "NllbMoeConfig", kind=Decoded, num_experts=4, encoder_sparse_step=1,
        decoder_sparse_step=1, **DEC),
    "sew_d_ctc": transformers("SEWDForCTC", "SEWDConfig", sound=(800, ), squeeze_factor=2, **SPEECH),
    "seggpt": transformers("GroupViTVisionModel", "GroupViTVisionConfig", side=64, image_size=64, patch_size=16, hidden_size=32,
        depths=[1, 1, 1], num_group_tokens=[4, 2, 0], num_output_groups=[4, 2, 0], num_attention_heads=4, intermediate_size=48),
    "align_vision": transformers("AlignVisionModel", "AlignVisionConfig", side=64, width_coefficient=0.5, depth_coefficient=0.3,
        hidden_dim=640),
    "kosmos_vision": transformers("Idefics2VisionTransformer", "Idefics2VisionConfig", side=64, image_size=64, patch_size=16, **SMALL),
    "blip2_vision": transformers("Blip2VisionModel", "Blip2VisionConfig", side=64, image_size=64, patch_size=16, **SMALL),
    "internvl_vision": transformers("InternVLVisionModel", "InternVLVisionConfig", side=64, image_size=[64, 64], patch_size=[16, 16], **SMALL),
    "mlcd": transformers("MLCDVisionModel", "MLCDVisionConfig", side=64, image_size=64, patch_size=16, **SMALL),
    "dinov2_dpt": transformers("ZoeDepthForDepthEstimation", "ZoeDepthConfig", side=64, backbone_config={"model_type": "beit",
        "image_size": 64, "patch_size": 16, "reshape_hidden_states": False, "out_indices": [1, 2, 3, 4], **dict(SMALL, num_hidden_layers=4)},
        neck_hidden_sizes=[8, 16, 24, 32], fusion_hidden_size=16, bottleneck_features=16, num_relative_features=8, attractor_kind="mean",
        bin_embedding_dim=16, num_attractors=[4, 2, 2, 1], bin_configurations=[{"n_bins": 8, "min_depth": 0.1, "max_depth": 10.0}]),
}
