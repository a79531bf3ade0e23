"""The architectures of sweep.py: name -> a function that makes (model, inputs, lengths).

Weights are random. Big ones are made small by their own configuration: fewer layers, the same kinds of
them. inputs: tensors in the order of forward(), two samples; lengths: for each input the axis that may
have any length beside the first one, or None.
"""
import arch_2026
import arch_bags
import arch_blocks
import arch_brought
import arch_brought_named
import arch_buffers
import arch_daily
import arch_daily_more
import arch_drawn
import arch_eca
import arch_flow
import arch_fresh
import arch_fresh_more
import arch_fresh_named
import arch_generative
import arch_merged
import arch_nets
import arch_papers
import arch_pictures
import arch_places
import arch_plain
import arch_recurrent
import arch_sequences
import arch_shapes
import arch_signals
import arch_tables
import arch_timm
import arch_torchvision
import arch_transformers
import arch_transformers_text
import arch_transformers_vision
import arch_users
import arch_views
import arch_workshop

ALL = {**arch_2026.ALL, **arch_torchvision.ALL, **arch_timm.ALL, **arch_transformers.ALL, **arch_plain.ALL,
       **arch_flow.ALL, **arch_papers.ALL, **arch_sequences.ALL, **arch_transformers_text.ALL,
       **arch_transformers_vision.ALL, **arch_pictures.ALL, **arch_signals.ALL,
       **arch_buffers.ALL, **arch_nets.ALL, **arch_generative.ALL, **arch_recurrent.ALL,
       **arch_tables.ALL, **arch_users.ALL, **arch_fresh.ALL, **arch_fresh_more.ALL,
       **arch_fresh_named.ALL, **arch_brought.ALL,
       **arch_brought_named.ALL, **arch_drawn.ALL, **arch_views.ALL, **arch_places.ALL,
       **arch_bags.ALL, **arch_blocks.ALL, **arch_shapes.ALL, **arch_eca.ALL,
       **arch_daily.ALL, **arch_daily_more.ALL, **arch_merged.ALL, **arch_workshop.ALL}
# The same in half precision.
HALF = {"resnet18": ("fp16", "bf16"), "bert": ("fp16", "bf16"), "mlp": ("fp16", "bf16"), "unet": ("fp16", "bf16"),
        "llama": ("fp16", "bf16"), "hf_vit": ("fp16", "bf16")}
