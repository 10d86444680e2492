"""Architectures of Hugging Face transformers with small random configurations, through torch.export and torchax."""

# pyright: basic

from __future__ import annotations

from typing import Any

import numpy as np

from tests.corpora.making import Made

_TEXT = {
    "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 32,
}  # fmt: skip
_DECODER = {**_TEXT, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_IMAGE = {**_TEXT, "image_size": 16, "patch_size": 4, "num_channels": 3}
_STAGES = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_channels": 3}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "Bert": ("text", _TEXT), "Roberta": ("text", _TEXT), "Albert": ("text", {**_TEXT, "embedding_size": 16}),
    "Electra": ("text", {**_TEXT, "embedding_size": 16}), "MPNet": ("text", _TEXT), "Camembert": ("text", _TEXT),
    "DistilBert": ("text", {"vocab_size": 60, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}),
    "MobileBert": ("text", {**_TEXT, "embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16}),
    "SqueezeBert": ("text", _TEXT), "RoFormer": ("text", _TEXT), "FNet": ("text", {**_TEXT, "type_vocab_size": 2}),
    "Deberta": ("text", _TEXT), "DebertaV2": ("text", _TEXT), "MegatronBert": ("text", _TEXT), "Nystromformer": ("text", {
        **_TEXT, "num_landmarks": 4, "segment_means_seq_len": 8}),
    "ModernBert": ("text", {**_TEXT, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}),
    "GPT2": ("text", {"vocab_size": 60, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}),
    "GPTNeo": ("text", {
        "vocab_size": 60, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]],
        "max_position_embeddings": 32, "window_size": 4}),
    "GPTNeoX": ("text", _TEXT), "GPTJ": ("text", {"vocab_size": 60, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 32}),
    "OPT": ("text", {**_TEXT, "ffn_dim": 48, "word_embed_proj_dim": 32}), "Bloom": ("text", {"vocab_size": 60, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "Llama": ("text", _DECODER), "Mistral": ("text", {**_DECODER, "sliding_window": 4}),
    "Qwen2": ("text", _DECODER), "Qwen3": ("text", {**_DECODER, "head_dim": 8}), "Gemma": ("text", {**_DECODER, "head_dim": 8}),
    "Gemma2": ("text", {**_DECODER, "head_dim": 8, "sliding_window": 4}), "Phi": ("text", _DECODER), "Phi3": ("text", _DECODER),
    "StableLm": ("text", _DECODER), "Cohere": ("text", _DECODER), "Olmo": ("text", _DECODER), "Granite": ("text", _DECODER),
    "Falcon": ("text", {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}),
    "Starcoder2": ("text", _DECODER), "Mixtral": ("text", {**_DECODER, "num_local_experts": 3, "num_experts_per_tok": 2}),
    "Mamba": ("text", {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}),
    "ViT": ("image", _IMAGE), "DeiT": ("image", _IMAGE), "Beit": ("image", _IMAGE), "Dinov2": ("image", {**_IMAGE, "mlp_ratio": 2}),
    "ViTMAE": ("image", {**_IMAGE, "mask_ratio": 0.0}), "Swin": ("image", {
        "image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4}),
    "ResNet": ("image", _STAGES), "RegNet": ("image", {**_STAGES, "groups_width": 4}),
    "ConvNext": ("image", {"num_channels": 3, "num_stages": 2, "hidden_sizes": [8, 16], "depths": [1, 1], "patch_size": 2}),
    "MobileNetV1": ("image", {"num_channels": 3, "depth_multiplier": 0.25, "min_depth": 4}),
    "MobileNetV2": ("image", {"num_channels": 3, "depth_multiplier": 0.25, "min_depth": 4}),
    "PoolFormer": ("image", {"num_channels": 3, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}),
    "Segformer": ("image", {"num_channels": 3, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 1, 2, 2]}),
    "T5Encoder": ("text", {"vocab_size": 60, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}),
    "CLIPText": ("text", _DECODER), "CLIPVision": ("image", _IMAGE), "SiglipVision": ("image", _IMAGE),
    "Wav2Vec2": ("sound", {
        **_TEXT, "conv_dim": [8, 8], "conv_stride": [4, 2], "conv_kernel": [8, 3], "num_feat_extract_layers": 2,
        "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}),
    "Hubert": ("sound", {
        **_TEXT, "conv_dim": [8, 8], "conv_stride": [4, 2], "conv_kernel": [8, 3], "num_feat_extract_layers": 2,
        "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}),
}  # fmt: skip
"""What each reads, and its configuration."""

NAMES = tuple(MODELS)
_OF_A_PART = {"T5Encoder": "T5Config", "CLIPText": "CLIPTextConfig"}


def packages(name: str) -> tuple[str, ...]:
    return ("transformers", "torch", "torchax", "jax")


def make(name: str) -> Made:
    import jax
    import torch
    import torchax.export
    import transformers
    from torch.utils._pytree import tree_leaves

    torch.manual_seed(0)
    kind, settings = MODELS[name]
    config = getattr(transformers, _OF_A_PART.get(name, f"{name}Config"))(**settings)
    config.use_cache = False
    model = getattr(transformers, f"{name}Model")(config).eval()
    source = np.random.default_rng(0)
    array: Any = {
        "text": lambda: source.integers(3, 60, (2, 8)),
        "image": lambda: source.normal(0, 1, (2, 3, 16, 16)).astype(np.float32),
        "sound": lambda: source.normal(0, 1, (2, 400)).astype(np.float32),
    }[kind]()
    given = torch.from_numpy(array)
    with torch.no_grad():
        program = torch.export.export(model, (given,), strict=False)
        results = [r for r in tree_leaves(model(given)) if isinstance(r, torch.Tensor)]
    weights, exported = torchax.export.exported_program_to_stablehlo(program)
    leaves = [*jax.tree.leaves(weights), array]
    kept = [np.asarray(leaves[k]).astype(exported.in_avals[k].dtype) for k in exported.module_kept_var_idx]
    types = [aval.dtype for aval in exported.out_avals]
    found = [r.detach().numpy().astype(t) for r, t in zip(results, types, strict=True)]
    return Made(exported.mlir_module_serialized, kept, found)
