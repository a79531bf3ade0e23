"""Architectures of timm, for sweep.py."""
from arch_common import SIDE, image


def timm(name, side=SIDE, **more):
    def make():
        import timm as package
        return package.create_model(name, pretrained=False, **more), [image(side)], [None]
    return make


def sized(name, side=SIDE, **more):
    """One that is made for a size."""
    return timm(name, side, img_size=side, **more)


ALL = {
    "timm_convnextv2": timm("convnextv2_atto"), "timm_swin": sized("swin_s3_tiny_224", 64, depths=(1, 1, 1, 1)),
    "timm_swinv2_cr": sized("swinv2_cr_tiny_ns_224", 64, depths=(1, 1, 1, 1)),
    "timm_maxvit": sized("maxvit_rmlp_pico_rw_256", 64), "timm_coatnet": sized("coatnet_nano_rw_224", 64),
    "timm_efficientnet_lite": timm("efficientnet_lite0"), "timm_efficientnetv2": timm("efficientnetv2_rw_t"),
    "timm_mobilenetv1": timm("mobilenetv1_100"), "timm_mobilenetv4": timm("mobilenetv4_conv_small"),
    "timm_mobilenetv4_hybrid": timm("mobilenetv4_hybrid_medium"), "timm_regnetz": timm("regnetz_b16"),
    "timm_nfnet": timm("nfnet_l0"), "timm_resnest": timm("resnest14d"), "timm_gmlp": sized("gmlp_ti16_224", 64),
    "timm_mixer": sized("mixer_s32_224", 64), "timm_resmlp": sized("resmlp_12_224", 64),
    "timm_xcit": sized("xcit_nano_12_p16_224", 64), "timm_cait": sized("cait_xxs24_224", 64, depth=4),
    "timm_deit": sized("deit_tiny_distilled_patch16_224", 64, depth=4),
    "timm_deit3": sized("deit3_small_patch16_224", 64, depth=3),
    "timm_beit": sized("beit_base_patch16_224", 64, depth=2, embed_dim=192, num_heads=3),
    "timm_beitv2": sized("beitv2_base_patch16_224", 64, depth=2, embed_dim=192, num_heads=3),
    "timm_eva02": sized("eva02_tiny_patch14_224", 56, depth=4), "timm_pvt_v2": timm("pvt_v2_b0", 64),
    "timm_poolformer": timm("poolformer_s12"), "timm_caformer": timm("caformer_s18", 64),
    "timm_twins": timm("twins_svt_small", 64), "timm_twins_pcpvt": sized("twins_pcpvt_small", 64),
    "timm_levit": timm("levit_128s", 224), "timm_tiny_vit": sized("tiny_vit_5m_224", 64),
    "timm_fastvit": timm("fastvit_t8", 64), "timm_repvgg": timm("repvgg_a0"), "timm_mobileone": timm("mobileone_s0"),
    "timm_ghostnet": timm("ghostnet_050"), "timm_ghostnetv2": timm("ghostnetv2_100"),
    "timm_hrnet": timm("hrnet_w18_small"), "timm_dla": timm("dla46_c"), "timm_vovnet": timm("ese_vovnet19b_slim"),
    "timm_res2net": timm("res2net50_14w_8s"), "timm_sknet": timm("skresnet18"),
    "timm_cspresnet": timm("cspresnet50"), "timm_darknet": timm("cspdarknet53"),
    "timm_inception_v4": timm("inception_v4", 96), "timm_xception": timm("xception41", 64),
    "timm_inception_next": timm("inception_next_atto", 64), "timm_seresnet": timm("seresnet50"),
    "timm_efficientformer": timm("efficientformer_l1", 224), "timm_efficientformerv2": timm("efficientformerv2_s0", 224),
    "timm_efficientvit": timm("efficientvit_b0", 64), "timm_efficientvit_m": timm("efficientvit_m0", 224),
    "timm_edgenext": timm("edgenext_xx_small"), "timm_mobilevit": timm("mobilevit_xxs"),
    "timm_mobilevitv2": timm("mobilevitv2_050"), "timm_crossvit": timm("crossvit_tiny_240", 240),
    "timm_convit": sized("convit_tiny", 64), "timm_pit": sized("pit_ti_224", 64), "timm_tnt": sized("tnt_s_legacy_patch16_224", 64, depth=3),
    "timm_visformer": sized("visformer_tiny", 64), "timm_volo": sized("volo_d1_224", 64),
    "timm_davit": timm("davit_tiny", 64, depths=(1, 1, 1, 1)), "timm_focalnet": timm("focalnet_tiny_srf", 64),
    "timm_hiera": sized("hiera_tiny_224", 64, stages=(1, 1, 1, 1)), "timm_botnet": sized("botnet26t_256", 64),
    "timm_halonet": timm("halonet26t", 256), "timm_lambda": sized("lambda_resnet26t", 64),
    "timm_lcnet": timm("lcnet_050"), "timm_tresnet": timm("tresnet_m", 64), "timm_dpn": timm("dpn48b"),
    "timm_repvit": timm("repvit_m1"), "timm_starnet": timm("starnet_s1"), "timm_nextvit": timm("nextvit_small", 64),
    "timm_vit_siglip": sized("vit_base_patch16_siglip_224", 64, depth=2, embed_dim=192, num_heads=3),
    "timm_sequencer": sized("sequencer2d_s", 64, layers=(1, 1, 1, 1)), "timm_mvitv2": sized("mvitv2_tiny", 64),
    "timm_gcvit": sized("gcvit_xxtiny", 64), "timm_convmixer": timm("convmixer_768_32", 64, depth=3),
    "timm_resnetv2_bit": timm("resnetv2_50x1_bit", 64, layers=(1, 1, 1, 1)), "timm_nest": sized("nest_tiny_jx", 64),
    "timm_mixnet": timm("mixnet_s"), "timm_rexnet": timm("rexnet_100"), "timm_nasnet": timm("pnasnet5large", 96),
    "timm_relpos": sized("vit_relpos_small_patch16_224", 64, depth=2), "timm_mambaout": timm("mambaout_femto"),
    "timm_samvit": sized("samvit_base_patch16_224", 64, depth=2, embed_dim=192, num_heads=3),
    "timm_hgnet": timm("hgnetv2_b0"), "timm_selecsls": timm("selecsls42"), "timm_bat": timm("bat_resnext26ts", 128),
    "timm_eca": timm("eca_resnet33ts"), "timm_gernet": timm("gernet_s"),
    "timm_coat": sized("coat_lite_mini", 64), "timm_cspnext": timm("cspnext_tiny", 64), "timm_rdnet": timm("rdnet_tiny", 64),
    "timm_efficientvim": timm("efficientvim_m1", 64), "timm_fasternet": timm("fasternet_t0", 64), "timm_iformer": timm("iformer_t", 64),
    "timm_hardcorenas": timm("hardcorenas_a"), "timm_lcnetv2": timm("lcnetv2_small"), "timm_lowformer": timm("lowformer_b0", 64),
    "timm_repghost": timm("repghostnet_050"), "timm_senet": timm("legacy_seresnet18"), "timm_shvit": timm("shvit_s1", 128),
    "timm_swiftformer": timm("swiftformer_xs", 64), "timm_swinv2": sized("swinv2_tiny_window8_256", 64, depths=(1, 1, 1, 1)),
    "timm_vit_hybrid": sized("vit_tiny_r_s16_p8_224", 64, depth=2), "timm_vitamin": sized("vitamin_small_224", 64),
    "timm_xception_legacy": timm("legacy_xception", 64), "timm_inception_resnet": timm("inception_resnet_v2", 96),
    "timm_naflexvit": timm("naflexvit_base_patch16_gap", 64, depth=2, embed_dim=192, num_heads=3),
    "timm_fbnetv3": timm("fbnetv3_b"), "timm_tinynet": timm("tinynet_e"), "timm_gcresnet": timm("gcresnet33ts"),
    "timm_ecaresnet": timm("ecaresnet26t"), "timm_resnet_blur": timm("resnetblur50"), "timm_seresnext": timm("seresnext26d_32x4d"),
    "timm_vit": sized("vit_tiny_patch16_224", 64, depth=3), "timm_vit_rope": sized("vit_small_patch16_rope_224", 64, depth=2),
    "timm_aimv2": sized("aimv2_1b_patch14_224", 56, depth=2, embed_dim=192, num_heads=3), "timm_convformer": timm("convformer_s18", 64),
    "timm_dm_nfnet": timm("dm_nfnet_f0", 64), "timm_csatv2": timm("csatv2", 64), "timm_cpubone": timm("cpubone_b0_bfrobust", 64),
    "timm_hieradet": timm("hieradet_small", 64), "timm_mobilenetv5": timm("mobilenetv5_base", 64), "timm_regnetv": timm("regnetv_040", 64),
    "timm_densenet_blur": timm("densenetblur121d", 64),
    "timm_nasnet_large": timm("nasnetalarge", 96), "timm_mnasnet": timm("mnasnet_small"),
    "timm_spnasnet": timm("spnasnet_100"), "timm_tf_efficientnet": timm("tf_efficientnet_b0"), "timm_tf_mixnet": timm("tf_mixnet_s"),
    "timm_resnet51q": timm("resnet51q", 64), "timm_coatnext": sized("coatnext_nano_rw_224", 64), "timm_maxxvit": sized("maxxvit_rmlp_nano_rw_256", 64),
    "timm_levit_conv": timm("levit_conv_128s", 224), "timm_eva": sized("eva_giant_patch14_224", 56, depth=2, embed_dim=192, num_heads=3),
    "timm_flexivit": sized("flexivit_small", 64, depth=2), "timm_vit_clip": sized("vit_base_patch32_clip_224", 64, depth=2, embed_dim=192, num_heads=3),
    "timm_hrnet_ssld": timm("hrnet_w18_ssld", 64), "timm_semnasnet": timm("semnasnet_050"), "timm_resnetrs": timm("resnetrs50", 64),
    "timm_nf_regnet": timm("nf_regnet_b0", 64), "timm_haloregnetz": timm("haloregnetz_b", 224), "timm_cs3darknet": timm("cs3darknet_s", 64),
    "timm_vit_pe": sized("vit_pe_core_tiny_patch16_384", 64, depth=2), "timm_vit_srelpos": sized("vit_srelpos_small_patch16_224", 64, depth=2),
    "timm_resnext_swsl": timm("resnext50_32x4d", 64), "timm_repvit_m2": timm("repvit_m0_9", 64), "timm_test_vit": timm("test_vit2", 64),
    "timm_test_efficientnet": timm("test_efficientnet_evos", 64), "timm_regnety_sgn": timm("regnety_008_tv", 64), "timm_ese_vovnet": timm("ese_vovnet39b_evos", 64),
    "timm_efficientnet_cc": timm("efficientnet_cc_b0_4e"), "timm_ghostnetv3": timm("ghostnetv3_100", 64),
    "timm_vit_parallel": sized("vit_small_patch16_18x2_224", 64, depth=2), "timm_sebotnet": sized("sebotnet33ts_256", 64),
    "timm_nf_ecaresnet": timm("nf_ecaresnet26", 64), "timm_gmixer": sized("gmixer_24_224", 64), "timm_resnet10t": timm("resnet10t"),
    "timm_dinov3": sized("vit_small_patch16_dinov3", 64, depth=2), "timm_beit3": sized("beit3_base_patch16_224", 64, depth=2, embed_dim=192, num_heads=3),
}
