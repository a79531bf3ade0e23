"""Architectures of transformers, for sweep.py: small by their own configuration."""
import torch
from torch import nn

from arch_common import FirstOutput, WORDS, first, ids, image, mask

# What most configurations call the size of a small model.
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
BERT = dict(SMALL, vocab_size=WORDS)
LLAMA = dict(BERT, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2,
             max_position_embeddings=64)
EDGES = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SPEECH = dict(SMALL, conv_dim=(32, 32, 32), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 2),
              num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, vocab_size=32)


class Text(nn.Module):
    """Of a model of transformers: what it says of tokens, or of one sentence."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return first(self.model(input_ids=input_ids, attention_mask=attention_mask))


class TextOnly(Text):
    def forward(self, input_ids):
        return first(self.model(input_ids))


class Decoded(Text):
    """An encoder and a decoder."""

    def forward(self, input_ids, attention_mask, decoder_input_ids):
        return first(self.model(input_ids=input_ids, attention_mask=attention_mask,
                                decoder_input_ids=decoder_input_ids))


def transformers(model, config, kind=Text, side=0, sound=0, **more):
    """side: of the pictures it reads; sound: of the samples of its sound."""
    def make():
        import transformers as package
        conf = getattr(package, config)(**more)
        conf.use_cache = False
        conf._experts_implementation = "eager"  # others have no fp64 to compare with
        made = getattr(package, model)(conf)
        if side:
            return FirstOutput(made), [image(side)], [None]
        if sound:
            return FirstOutput(made), [torch.randn(2, *sound)], [len(sound)]
        if kind is Decoded:
            return kind(made), [ids(), mask(), ids()], [1, 1, 1]
        if kind is TextOnly:
            return kind(made), [ids()], [1]
        return kind(made), [ids(), mask()], [1, 1]
    return make


def own_of(model, config, shape, **more):
    """Of transformers, with one input of floats."""
    def make():
        import transformers as package
        return FirstOutput(getattr(package, model)(getattr(package, config)(**more))), [torch.randn(*shape)], [None]
    return make


class PictureAndText(nn.Module):
    """How well pictures and sentences go together."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pixel_values, input_ids, attention_mask):
        out = self.model(pixel_values=pixel_values, input_ids=input_ids, attention_mask=attention_mask)
        return first(out) if out.get("text_embeds") is None else (out["image_embeds"], out["text_embeds"])


def two(model, config, side, **more):
    """A model of transformers that reads pictures and texts."""
    def make():
        import transformers as package
        made = getattr(package, model)(getattr(package, config)(**more))
        return PictureAndText(made), [image(side), ids(), mask()], [None, 1, 1]
    return make


ALL = {
    "bert": transformers("BertModel", "BertConfig", **BERT),
    "bert_classes": transformers("BertForSequenceClassification", "BertConfig", **BERT),
    "roberta": transformers("RobertaForTokenClassification", "RobertaConfig", **BERT),
    "distilbert": transformers("DistilBertForSequenceClassification", "DistilBertConfig", dim=64, n_layers=2,
                               n_heads=4, hidden_dim=96, vocab_size=WORDS),
    "albert": transformers("AlbertModel", "AlbertConfig", embedding_size=32, **BERT),
    "electra": transformers("ElectraModel", "ElectraConfig", embedding_size=32, **BERT),
    "deberta_v2": transformers("DebertaV2Model", "DebertaV2Config", relative_attention=True,
                               pos_att_type=["c2p", "p2c"], **BERT),
    "deberta": transformers("DebertaModel", "DebertaConfig", relative_attention=True,
                            pos_att_type=["c2p", "p2c"], **BERT),
    "mpnet": transformers("MPNetModel", "MPNetConfig", **BERT),
    "modernbert": transformers("ModernBertModel", "ModernBertConfig", cls_token_id=1, sep_token_id=2,
                               **dict(BERT, **EDGES)),
    "gpt2": transformers("GPT2LMHeadModel", "GPT2Config", n_embd=64, n_layer=2, n_head=4, vocab_size=WORDS, **EDGES),
    "gpt_neo": transformers("GPTNeoModel", "GPTNeoConfig", hidden_size=64, num_layers=2, num_heads=4, vocab_size=WORDS,
                            attention_types=[[["global", "local"], 1]], window_size=8, max_position_embeddings=64, **EDGES),
    "gpt_neox": transformers("GPTNeoXModel", "GPTNeoXConfig", max_position_embeddings=64, **dict(BERT, **EDGES)),
    "gptj": transformers("GPTJModel", "GPTJConfig", n_embd=64, n_layer=2, n_head=4, rotary_dim=8, vocab_size=WORDS,
                         n_positions=64, **EDGES),
    "opt": transformers("OPTModel", "OPTConfig", hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                        ffn_dim=96, vocab_size=WORDS, word_embed_proj_dim=64, **EDGES),
    "llama": transformers("LlamaForCausalLM", "LlamaConfig", **LLAMA),
    "mistral": transformers("MistralForCausalLM", "MistralConfig", **LLAMA),
    "qwen2": transformers("Qwen2ForCausalLM", "Qwen2Config", **LLAMA),
    "qwen3": transformers("Qwen3ForCausalLM", "Qwen3Config", head_dim=16, **LLAMA),
    "gemma": transformers("GemmaForCausalLM", "GemmaConfig", head_dim=16, **LLAMA),
    "gemma2": transformers("Gemma2ForCausalLM", "Gemma2Config", head_dim=16, **LLAMA),
    "phi": transformers("PhiModel", "PhiConfig", **LLAMA), "phi3": transformers("Phi3ForCausalLM", "Phi3Config", **LLAMA),
    "falcon": transformers("FalconModel", "FalconConfig", hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                           vocab_size=WORDS, **EDGES),
    "bloom": transformers("BloomModel", "BloomConfig", hidden_size=64, n_layer=2, n_head=4, vocab_size=WORDS, **EDGES),
    "stablelm": transformers("StableLmModel", "StableLmConfig", **LLAMA),
    "olmo": transformers("OlmoModel", "OlmoConfig", **LLAMA),
    "t5_encoder": transformers("T5EncoderModel", "T5Config", d_model=64, d_kv=16, d_ff=96, num_layers=2,
                               num_heads=4, vocab_size=WORDS),
    "t5": transformers("T5Model", "T5Config", kind=Decoded, d_model=64, d_kv=16, d_ff=96, num_layers=1,
                       num_heads=4, vocab_size=WORDS),
    "bart": transformers("BartModel", "BartConfig", kind=Decoded, d_model=64, encoder_layers=1, decoder_layers=1,
                         encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96,
                         decoder_ffn_dim=96, vocab_size=WORDS, max_position_embeddings=64, **EDGES),
    "xlnet": transformers("XLNetModel", "XLNetConfig", d_model=64, n_layer=2, n_head=4, d_inner=96, vocab_size=WORDS),
    "funnel": transformers("FunnelModel", "FunnelConfig", block_sizes=[1, 1], num_decoder_layers=1, d_model=64,
                           n_head=4, d_head=16, d_inner=96, vocab_size=WORDS),
    "fnet": transformers("FNetModel", "FNetConfig", kind=TextOnly, hidden_size=64, num_hidden_layers=2,
                         intermediate_size=96, vocab_size=WORDS),
    "convbert": transformers("ConvBertModel", "ConvBertConfig", embedding_size=32, **BERT),
    "mobilebert": transformers("MobileBertModel", "MobileBertConfig", embedding_size=32, intra_bottleneck_size=32,
                               true_hidden_size=32, **BERT),
    "squeezebert": transformers("SqueezeBertModel", "SqueezeBertConfig", embedding_size=64, **BERT),
    "nystromformer": transformers("NystromformerModel", "NystromformerConfig", num_landmarks=8, segment_means_seq_len=16,
                                  conv_kernel_size=5, **BERT),
    "roformer": transformers("RoFormerModel", "RoFormerConfig", max_position_embeddings=64, **BERT),
    "camembert": transformers("CamembertModel", "CamembertConfig", **BERT),
    "xlm_roberta": transformers("XLMRobertaModel", "XLMRobertaConfig", **BERT),
    "layoutlm": transformers("LayoutLMModel", "LayoutLMConfig", **BERT),
    "longformer": transformers("LongformerModel", "LongformerConfig", attention_window=8, **BERT),
    "clip_text": transformers("CLIPTextModel", "CLIPTextConfig", max_position_embeddings=64, **dict(BERT, **EDGES)),
    "clip_vision": transformers("CLIPVisionModel", "CLIPVisionConfig", side=64, image_size=64, patch_size=16, **SMALL),
    "siglip_vision": transformers("SiglipVisionModel", "SiglipVisionConfig", side=64, image_size=64, patch_size=16, **SMALL),
    "hf_vit": transformers("ViTForImageClassification", "ViTConfig", side=64, image_size=64, patch_size=16, **SMALL),
    "hf_deit": transformers("DeiTModel", "DeiTConfig", side=64, image_size=64, patch_size=16, **SMALL),
    "hf_beit": transformers("BeitModel", "BeitConfig", side=64, image_size=64, patch_size=16,
                            use_relative_position_bias=True, **SMALL),
    "hf_swin": transformers("SwinModel", "SwinConfig", side=64, image_size=64, embed_dim=24, depths=[2, 2],
                            num_heads=[2, 4], window_size=4),
    "segformer": transformers("SegformerForSemanticSegmentation", "SegformerConfig", side=64, num_encoder_blocks=4,
                              depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32], num_attention_heads=[1, 2, 2, 4],
                              decoder_hidden_size=32),
    "dinov2": transformers("Dinov2Model", "Dinov2Config", side=56, image_size=56, patch_size=14, **SMALL),
    "convnext_hf": transformers("ConvNextModel", "ConvNextConfig", side=64, depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32]),
    "mobilevit_hf": transformers("MobileViTModel", "MobileViTConfig", side=64, hidden_sizes=[16, 24, 32],
                                 neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 32]),
    "wav2vec2": transformers("Wav2Vec2Model", "Wav2Vec2Config", sound=(800,), **SPEECH),
    "hubert": transformers("HubertModel", "HubertConfig", sound=(800,), **SPEECH),
    "whisper_encoder": transformers("WhisperForAudioClassification", "WhisperConfig", sound=(16, 64), num_mel_bins=16,
                                    max_source_positions=32, d_model=64, encoder_layers=2, encoder_attention_heads=4,
                                    encoder_ffn_dim=96, vocab_size=WORDS, **EDGES),
    "ast": transformers("ASTModel", "ASTConfig", sound=(64, 32), max_length=64, num_mel_bins=32, **SMALL),
    "bert_masked_lm": transformers("BertForMaskedLM", "BertConfig", **BERT),
    "t5_lm": transformers("T5ForConditionalGeneration", "T5Config", kind=Decoded, d_model=64, d_kv=16, d_ff=96,
                          num_layers=1, num_heads=4, vocab_size=WORDS),
    "mixtral": transformers("MixtralModel", "MixtralConfig", num_local_experts=4, **LLAMA),
    "mamba": transformers("MambaModel", "MambaConfig", kind=TextOnly, hidden_size=32, num_hidden_layers=2,
                          state_size=8, vocab_size=WORDS),
    "mpt": transformers("MptModel", "MptConfig", d_model=64, n_heads=4, n_layers=2, max_seq_len=64, vocab_size=WORDS),
    "gpt_bigcode": transformers("GPTBigCodeModel", "GPTBigCodeConfig", n_embd=64, n_layer=2, n_head=4,
                                n_positions=64, vocab_size=WORDS, **EDGES),
    "codegen": transformers("CodeGenModel", "CodeGenConfig", n_embd=64, n_layer=2, n_head=4, rotary_dim=8,
                            n_positions=64, vocab_size=WORDS, **EDGES),
    "marian": transformers("MarianModel", "MarianConfig", kind=Decoded, d_model=64, encoder_layers=1, decoder_layers=1,
                           encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96,
                           max_position_embeddings=64, vocab_size=WORDS, decoder_start_token_id=0, **EDGES),
    "pegasus": transformers("PegasusModel", "PegasusConfig", kind=Decoded, d_model=64, encoder_layers=1,
                            decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96,
                            decoder_ffn_dim=96, max_position_embeddings=64, vocab_size=WORDS, **EDGES),
    "canine": transformers("CanineModel", "CanineConfig", num_hash_buckets=64, **dict(SMALL, **EDGES)),
    "big_bird": transformers("BigBirdModel", "BigBirdConfig", attention_type="original_full", **dict(BERT, **EDGES)),
    "esm": transformers("EsmModel", "EsmConfig", mask_token_id=3, position_embedding_type="rotary",
                        **dict(BERT, pad_token_id=1)),
    "rembert": transformers("RemBertModel", "RemBertConfig", input_embedding_size=32, output_embedding_size=32,
                            **dict(BERT, **EDGES)),
    "ibert": transformers("IBertModel", "IBertConfig", **BERT),
    "wavlm": transformers("WavLMModel", "WavLMConfig", sound=(800,), **SPEECH),
    "sew": transformers("SEWModel", "SEWConfig", sound=(800,), squeeze_factor=2, **SPEECH),
    "cvt": transformers("CvtModel", "CvtConfig", side=64, embed_dim=[16, 32, 48], num_heads=[1, 2, 3], depth=[1, 1, 1]),
    "dpt": transformers("DPTForDepthEstimation", "DPTConfig", side=64, image_size=64, patch_size=16,
                        backbone_out_indices=[0, 0, 1, 1], neck_hidden_sizes=[8, 16, 24, 32], fusion_hidden_size=16,
                        head_in_index=-1, **SMALL),
    "glpn": transformers("GLPNForDepthEstimation", "GLPNConfig", side=64, depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32],
                         num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16),
    "yolos": transformers("YolosModel", "YolosConfig", side=64, image_size=[64, 64], patch_size=16, num_detection_tokens=5,
                          **SMALL),
    "hf_resnet": transformers("ResNetForImageClassification", "ResNetConfig", side=64, embedding_size=16,
                              hidden_sizes=[16, 32], depths=[1, 1]),
    "vit_mae": transformers("ViTMAEModel", "ViTMAEConfig", side=64, image_size=64, patch_size=16, mask_ratio=0.0, **SMALL),
    "perceiver": transformers("PerceiverForMaskedLM", "PerceiverConfig", num_latents=8, d_latents=32, d_model=48,
                              num_blocks=1, num_self_attends_per_block=1, num_self_attention_heads=2,
                              num_cross_attention_heads=2, qk_channels=16, v_channels=32, vocab_size=WORDS,
                              max_position_embeddings=64),
    "clip": two("CLIPModel", "CLIPConfig", 64, text_config=dict(BERT, max_position_embeddings=64, **EDGES),
                vision_config=dict(SMALL, image_size=64, patch_size=16)),
    "siglip": two("SiglipModel", "SiglipConfig", 64, text_config=dict(BERT, max_position_embeddings=64, **EDGES),
                  vision_config=dict(SMALL, image_size=64, patch_size=16)),
    "blip": two("BlipModel", "BlipConfig", 64, text_config=dict(BERT, encoder_hidden_size=64, **EDGES),
                vision_config=dict(SMALL, image_size=64, patch_size=16)),
    "chinese_clip": two("ChineseCLIPModel", "ChineseCLIPConfig", 64, text_config=dict(BERT, **EDGES),
                        vision_config=dict(SMALL, image_size=64, patch_size=16)),
    "vilt": two("ViltModel", "ViltConfig", 64, image_size=64, patch_size=16, max_position_embeddings=64, **BERT),
    "mbart": transformers("MBartModel", "MBartConfig", kind=Decoded, d_model=64, encoder_layers=1, decoder_layers=1,
                          encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96,
                          max_position_embeddings=64, vocab_size=WORDS, **EDGES),
    "blenderbot": transformers("BlenderbotModel", "BlenderbotConfig", kind=Decoded, d_model=64, encoder_layers=1,
                               decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96,
                               decoder_ffn_dim=96, max_position_embeddings=64, vocab_size=WORDS, **EDGES),
    "prophetnet": transformers("ProphetNetModel", "ProphetNetConfig", kind=Decoded, hidden_size=64, num_encoder_layers=1,
                               num_decoder_layers=1, num_encoder_attention_heads=4, num_decoder_attention_heads=4,
                               encoder_ffn_dim=96, decoder_ffn_dim=96, max_position_embeddings=64, vocab_size=WORDS, **EDGES),
    "mt5": transformers("MT5Model", "MT5Config", kind=Decoded, d_model=64, d_kv=16, d_ff=96, num_layers=1, num_heads=4,
                        vocab_size=WORDS),
    "led": transformers("LEDModel", "LEDConfig", kind=Decoded, d_model=64, encoder_layers=1, decoder_layers=1,
                        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96,
                        max_encoder_position_embeddings=64, max_decoder_position_embeddings=64, attention_window=8,
                        vocab_size=WORDS, **EDGES),
    "bert_answers": transformers("BertForQuestionAnswering", "BertConfig", **BERT),
    "xlm": transformers("XLMModel", "XLMConfig", emb_dim=64, n_layers=2, n_heads=4, vocab_size=WORDS, max_position_embeddings=64),
    "flaubert": transformers("FlaubertModel", "FlaubertConfig", emb_dim=64, n_layers=2, n_heads=4, vocab_size=WORDS,
                             max_position_embeddings=64),
    "ernie": transformers("ErnieModel", "ErnieConfig", **BERT), "megatron_bert": transformers("MegatronBertModel", "MegatronBertConfig", **BERT),
    "roc_bert": transformers("RoCBertModel", "RoCBertConfig", **BERT), "splinter": transformers("SplinterModel", "SplinterConfig", **BERT),
    "yoso": transformers("YosoModel", "YosoConfig", use_expectation=True, **BERT), "luke": transformers("LukeModel", "LukeConfig", entity_vocab_size=20, **BERT),
    "data2vec_text": transformers("Data2VecTextModel", "Data2VecTextConfig", **BERT),
    "xlm_roberta_xl": transformers("XLMRobertaXLModel", "XLMRobertaXLConfig", **BERT),
    "gpt_neox_japanese": transformers("GPTNeoXJapaneseModel", "GPTNeoXJapaneseConfig", max_position_embeddings=64, **dict(BERT, **EDGES)),
    "cohere": transformers("CohereForCausalLM", "CohereConfig", **LLAMA), "granite": transformers("GraniteForCausalLM", "GraniteConfig", **LLAMA),
    "starcoder2": transformers("Starcoder2ForCausalLM", "Starcoder2Config", **LLAMA), "persimmon": transformers("PersimmonModel", "PersimmonConfig", **LLAMA),
    "gemma3": transformers("Gemma3ForCausalLM", "Gemma3TextConfig", head_dim=16, **LLAMA), "olmo2": transformers("Olmo2ForCausalLM", "Olmo2Config", **LLAMA),
    "smollm3": transformers("SmolLM3ForCausalLM", "SmolLM3Config", **LLAMA),
    "rwkv_hf": transformers("RwkvModel", "RwkvConfig", kind=TextOnly, hidden_size=32, num_hidden_layers=2, vocab_size=WORDS, context_length=64),
    "mamba2": transformers("Mamba2Model", "Mamba2Config", kind=TextOnly, hidden_size=32, num_hidden_layers=1, state_size=8, num_heads=8,
                           head_dim=8, expand=2, n_groups=1, chunk_size=16, vocab_size=WORDS, **EDGES),
    "hf_detr": transformers("DetrModel", "DetrConfig", side=64, use_timm_backbone=False, use_pretrained_backbone=False,
                            backbone_config={"model_type": "resnet", "embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1],
                                             "out_features": ["stage2"]}, d_model=32, encoder_layers=1, decoder_layers=1,
                            encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, num_queries=5),
    "poolformer_hf": transformers("PoolFormerModel", "PoolFormerConfig", side=64, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]),
    "mobilenet_hf": transformers("MobileNetV2Model", "MobileNetV2Config", side=64, image_size=64, depth_multiplier=0.35),
    "pvt_hf": transformers("PvtModel", "PvtConfig", side=64, image_size=64, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1],
                           num_attention_heads=[1, 2, 2, 4]),
    "levit_hf": transformers("LevitModel", "LevitConfig", side=64, image_size=64, hidden_sizes=[16, 24, 32], depths=[1, 1, 1],
                             key_dim=[8, 8, 8], num_attention_heads=[2, 3, 4]),
    "regnet_hf": transformers("RegNetModel", "RegNetConfig", side=64, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], groups_width=8),
    "upernet": transformers("UperNetForSemanticSegmentation", "UperNetConfig", side=64, hidden_size=16, auxiliary_channels=8, backbone_config={
        "model_type": "convnext", "depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "out_features": ["stage1", "stage2", "stage3", "stage4"]}),
    "timesformer": own_of("TimesformerModel", "TimesformerConfig", (2, 3, 3, 32, 32), image_size=32, patch_size=16, num_frames=3, **SMALL),
    "videomae": own_of("VideoMAEModel", "VideoMAEConfig", (2, 4, 3, 32, 32), image_size=32, patch_size=16, num_frames=4, **SMALL),
    "vivit": own_of("VivitModel", "VivitConfig", (2, 4, 3, 32, 32), image_size=32, tubelet_size=[2, 16, 16], num_frames=4, **SMALL),
    "unispeech": transformers("UniSpeechModel", "UniSpeechConfig", sound=(800,), **SPEECH),
    "data2vec_audio": transformers("Data2VecAudioModel", "Data2VecAudioConfig", sound=(800,), **dict(SPEECH, num_conv_pos_embeddings=2, conv_pos_kernel_size=5)),
    "sew_d": transformers("SEWDModel", "SEWDConfig", sound=(800,), squeeze_factor=2, position_buckets=16, max_position_embeddings=64, **SPEECH),
    "wav2vec2_conformer": transformers("Wav2Vec2ConformerModel", "Wav2Vec2ConformerConfig", sound=(800,), conv_depthwise_kernel_size=5, **SPEECH),
    "patchtst": own_of("PatchTSTModel", "PatchTSTConfig", (2, 64, 3), num_input_channels=3, context_length=64, patch_length=8, patch_stride=8,
                       d_model=16, ffn_dim=32, num_hidden_layers=1, num_attention_heads=2),
    "decision_mlp_mixer": own_of("PatchTSMixerModel", "PatchTSMixerConfig", (2, 32, 3), num_input_channels=3, context_length=32, patch_length=8,
                                 patch_stride=8, d_model=8, num_layers=1),
    "hf_swinv2": transformers("Swinv2Model", "Swinv2Config", side=64, image_size=64, embed_dim=24, depths=[2, 2],
                              num_heads=[2, 4], window_size=4),
    "hf_convnextv2": transformers("ConvNextV2Model", "ConvNextV2Config", side=64, depths=[1, 1, 1, 1],
                                  hidden_sizes=[8, 16, 24, 32]),
    "hf_focalnet": transformers("FocalNetModel", "FocalNetConfig", side=64, image_size=64, embed_dim=16, depths=[1, 1],
                                hidden_sizes=[16, 32], focal_levels=[2, 2], focal_windows=[3, 3]),
    "dinov2_registers": transformers("Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", side=56, image_size=56,
                                     patch_size=14, num_register_tokens=2, **SMALL),
    "ijepa": transformers("IJepaModel", "IJepaConfig", side=64, image_size=64, patch_size=16, **SMALL),
    "vit_msn": transformers("ViTMSNModel", "ViTMSNConfig", side=64, image_size=64, patch_size=16, **SMALL),
    "glm": transformers("GlmModel", "GlmConfig", head_dim=16, **LLAMA),
}
