"""Models of torchvision, timm and transformers by their names alone, for sweep.py: families that no other list has.
Those of transformers are made small by rule, whatever their configuration calls its sizes."""
import inspect

import torch
from torch import nn

from arch_common import FirstOutput, WORDS, first, ids, image, mask
from arch_timm import sized, timm
from arch_torchvision import SMALL, detector, vision, whole_detector
from arch_transformers import Decoded, Text, TextOnly

# What configurations call their sizes.
SIZES = {
    64: "hidden_size d_model n_embd dim emb_dim image_size max_position_embeddings max_source_positions max_target_positions "
        "dim_model lru_width mamba_d_ssm",
    2: "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers depth num_experts_per_tok "
       "num_key_value_heads linear_num_key_heads encoder_num_hidden_layers decoder_num_hidden_layers",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_experts "
       "num_local_experts n_routed_experts linear_num_value_heads encoder_num_attention_heads decoder_num_attention_heads",
    96: "intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff",
    16: "head_dim v_head_dim kv_lora_rank patch_size linear_key_head_dim linear_value_head_dim d_kv num_mel_bins mamba_d_head",
    8: "sliding_window qk_rope_head_dim qk_nope_head_dim mamba_d_state state_size mamba_n_heads mamba_chunk_size chunk_size",
    1: "n_group topk_group n_shared_experts bos_token_id first_k_dense_replace", 0: "pad_token_id",
    WORDS: "vocab_size", 32: "moe_intermediate_size projection_dim", 48: "shared_expert_intermediate_size",
    24: "q_lora_rank", 5: "num_queries",
}


def small(cls, **more):
    """A configuration, and those within it."""
    known = set(inspect.signature(cls.__init__).parameters).union(*(getattr(b, "__annotations__", {}) for b in cls.__mro__))
    made = {name: size for size, names in SIZES.items() for name in names.split() if name in known}
    if "eos_token_id" in known:
        made["eos_token_id"] = 2
    for name, sub in (getattr(cls, "sub_configs", None) or {}).items():
        if sub.__name__ == "AutoConfig" and name not in more and name != "backbone_config":  # its own
            sub = type(getattr(cls(), name, None))
        if sub.__name__ not in ("AutoConfig", "NoneType"):
            inner = more.pop(name, {})
            made[name] = {**small(sub, **(inner if isinstance(inner, dict) else {})).to_dict(), "model_type": sub.model_type}
    conf = cls(**{**made, **more})
    conf.use_cache = False
    conf._experts_implementation = "eager"  # others have no fp64 to compare with
    return conf


class Given(nn.Module):
    """A model of transformers whose inputs are given by name."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *xs):
        return first(self.model(**dict(zip(self.names, xs))))


class One(Given):
    def forward(self, a):
        return super().forward(a)


class Two(Given):
    def forward(self, a, b):
        return super().forward(a, b)


class Three(Given):
    def forward(self, a, b, c):
        return super().forward(a, b, c)


def by_name(model, config, kind=Text, side=0, shape=None, inputs=None, **more):
    """inputs: {name: a function that makes it}"""
    def make():
        import transformers as package
        made = getattr(package, model)(small(getattr(package, config), **more))
        if inputs:
            xs = [f() for f in inputs.values()]
            return (One, Two, Three)[len(xs) - 1](made, list(inputs)), xs, [None] * len(xs)
        if side or shape:
            return FirstOutput(made), [image(side) if side else torch.randn(2, *shape)], [None]
        if kind is Decoded:
            return kind(made), [ids(), mask(), ids()], [1, 1, 1]
        return kind(made), [ids()] if kind is TextOnly else [ids(), mask()], [1] if kind is TextOnly else [1, 1]
    return make


def causal(name, config=None, **more):
    return by_name(name + "ForCausalLM", (config or name) + "Config", **more)


def floats(*shape):
    return lambda: torch.randn(2, *shape)


ALL = {
    "named_fasterrcnn_v2": whole_detector("fasterrcnn_resnet50_fpn_v2", 128, box_score_thresh=0.0115,
                                          rpn_post_nms_top_n_test=40, rpn_pre_nms_top_n_test=60, **SMALL),
    "named_retinanet_v2": whole_detector("retinanet_resnet50_fpn_v2", 128, score_thresh=0.0101, topk_candidates=40, **SMALL),
    "named_maskrcnn_v2": detector("maskrcnn_resnet50_fpn_v2"),
    "named_vgg19": vision("vgg19", 32), "named_mnasnet0_75": vision("mnasnet0_75", 32), "named_swin_b": vision("swin_b", 64),
    "named_timm_inception_v3": timm("tf_inception_v3", 96), "named_timm_deepseek_vit": sized("deepseek_vit_412m", 56, depth=2),
    "named_timm_gemma4_vit": timm("gemma4_vit_167m", 64, depth=2), "named_timm_qwen3_vit": timm("qwen3_vit_88m", 64, depth=2),
    "named_timm_frn": timm("resnetv2_50d_frn", 64), "named_timm_evos": timm("resnetv2_50d_evos", 64), "named_timm_se_edgenet": timm("cs3se_edgenet_x", 64),
    "named_timm_halo2botnet": sized("halo2botnet50ts_256", 128), "named_timm_nfnet_f1": timm("eca_nfnet_l2", 64),
    "named_timm_clsgap": sized("vit_relpos_base_patch16_clsgap_224", 64, depth=2, embed_dim=192, num_heads=3),
    "named_timm_radio": timm("naflexvit_base_patch16_radio_v3", 64, depth=2), "named_timm_dinov3_qkvb": sized("vit_small_plus_patch16_dinov3_qkvb", 64, depth=2),
    "named_timm_focus": timm("cs3darknet_focus_l", 64), "named_timm_pvt_li": timm("pvt_v2_b2_li", 64), "named_timm_xcit_p8": sized("xcit_nano_12_p8_224", 64, depth=2),
    "named_timm_mvit_cls": sized("mvitv2_base_cls", 64), "named_timm_dagger": timm("crossvit_9_dagger_240", 240),
    "aria_text": causal("AriaText"), "bailing_hybrid": causal("BailingHybrid"), "cohere2_moe": causal("Cohere2Moe"),
    "cwm": causal("Cwm"), "ernie4_5_moe": causal("Ernie4_5_Moe"), "exaone_moe": causal("ExaoneMoe"), "flex_olmo": causal("FlexOlmo"),
    "gte": by_name("GteModel", "GteConfig"), "jais2": causal("Jais2"),
    "llama4_text": causal("Llama4", "Llama4Text"),
    "minicpm3": causal("MiniCPM3", num_key_value_heads=4), "minimax_m2": causal("MiniMaxM2"), "ministral": causal("Ministral"),
    "nanochat": causal("NanoChat"), "nemotron_h": causal("NemotronH"), "olmo_hybrid": causal("OlmoHybrid"),
    "qwen3_next": causal("Qwen3Next"),
    "qwen3_5_text": causal("Qwen3_5", "Qwen3_5Text"), "solar_open": causal("SolarOpen"), "youtu": causal("Youtu", num_key_value_heads=4),
    "xlstm": by_name("xLSTMForCausalLM", "xLSTMConfig", TextOnly), "falcon_h1": causal("FalconH1", mamba_d_ssm=64, mamba_d_head=8),
    "jina_v3": by_name("JinaEmbeddingsV3Model", "JinaEmbeddingsV3Config"),
    "t5gemma": by_name("T5GemmaModel", "T5GemmaConfig", Decoded),
    "lxmert": by_name("LxmertModel", "LxmertConfig", inputs={"input_ids": ids, "visual_feats": floats(5, 2048), "visual_pos": floats(5, 4)},
                      l_layers=1, x_layers=1, r_layers=1),
    "layoutlmv3": by_name("LayoutLMv3Model", "LayoutLMv3Config", inputs={
        "input_ids": ids, "bbox": lambda: torch.randint(0, 500, (2, 16, 4)).sort(-1)[0], "pixel_values": lambda: image(64)},
        input_size=64, coordinate_size=8, shape_size=16),
    "git": by_name("GitModel", "GitConfig", inputs={"input_ids": ids, "attention_mask": mask, "pixel_values": lambda: image(64)}),
    "llava": by_name("LlavaModel", "LlavaConfig", inputs={"input_ids": lambda: torch.cat([torch.full((2, 16), 99), ids()], 1), "pixel_values": lambda: image(64)},
                     image_token_index=99, image_token_id=99, vision_config={"model_type": "siglip_vision_model", "image_size": 64, "patch_size": 16,
                     "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}, vision_feature_select_strategy="full",
                     text_config={"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
                                  "vocab_size": WORDS, "num_key_value_heads": 2}),
    "vjepa2": by_name("VJEPA2Model", "VJEPA2Config", inputs={"pixel_values_videos": floats(4, 3, 64, 64)}, crop_size=64, frames_per_clip=4,
                      pred_hidden_size=48, pred_num_attention_heads=4, pred_num_hidden_layers=1),
    "siglip2_vision": by_name("Siglip2VisionModel", "Siglip2VisionConfig", inputs={
        "pixel_values": floats(16, 768), "pixel_attention_mask": lambda: torch.ones(2, 16, dtype=torch.int64),
        "spatial_shapes": lambda: torch.tensor([[4, 4], [4, 4]])}, num_patches=16),
    "pixio": by_name("PixioModel", "PixioConfig", side=64), "sapiens2": by_name("Sapiens2Model", "Sapiens2Config", side=64),
    "sam2_vision": by_name("Sam2VisionModel", "Sam2VisionConfig", side=64),
    "rt_detr_v2": by_name("RTDetrV2ForObjectDetection", "RTDetrV2Config", side=64, num_queries=10),
    "d_fine": by_name("DFineForObjectDetection", "DFineConfig", side=64, num_queries=10),
    "pp_lcnet": by_name("PPLCNetForImageClassification", "PPLCNetConfig", side=64),
    "patchtst_classes": by_name("PatchTSTForClassification", "PatchTSTConfig", shape=(32, 3), num_input_channels=3, context_length=32, patch_length=8,
                                patch_stride=8),
    "speech_to_text": by_name("Speech2TextModel", "Speech2TextConfig", inputs={"input_features": floats(24, 80), "decoder_input_ids": ids},
                              conv_channels=32, input_feat_per_channel=80),
    "moonshine": by_name("MoonshineModel", "MoonshineConfig", inputs={"input_values": floats(1600), "decoder_input_ids": ids}),
    "parakeet_ctc": by_name("ParakeetForCTC", "ParakeetCTCConfig", inputs={"input_features": floats(48, 16)}),
    "whisper": by_name("WhisperModel", "WhisperConfig", inputs={"input_features": floats(16, 128), "decoder_input_ids": ids}),
    "speecht5_ctc": by_name("SpeechT5ForSpeechToText", "SpeechT5Config", inputs={"input_values": floats(800), "decoder_input_ids": ids},
                            conv_dim=(32, 32, 32), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 2), num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4),
    "timesfm": by_name("TimesFmModel", "TimesFmConfig", inputs={"past_values": floats(64), "past_values_padding": lambda: torch.zeros(2, 64),
                       "freq": lambda: torch.zeros(2, 1, dtype=torch.int64)}),
}
