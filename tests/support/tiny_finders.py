"""Tiny detectors and segmenters of transformers with random weights, saved as `detector:transformers:FOLDER` opens
them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as t

from object_world import NAMES

NAMED = {"id2label": dict(enumerate(NAMES)), "label2id": {name: index for index, name in enumerate(NAMES)}}
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
LAYERS = {
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
}  # fmt: skip
SQUARE = {"height": 64, "width": 64}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *NAMES]


def resnet() -> t.ResNetConfig:
    return t.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 16, 32], depths=[1, 1, 1, 1], layer_type="basic", out_features=["stage4"]
    )


def swin(features: list[str]) -> t.SwinConfig:
    return t.SwinConfig(
        image_size=64, embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 1, 2, 2], window_size=2, out_features=features
    )


def detr(config: type = t.DetrConfig, network: type = t.DetrForObjectDetection) -> tuple[Any, Any]:
    made = config(**LAYERS, **NAMED, backbone_config=resnet(), use_timm_backbone=False, use_pretrained_backbone=False,
                  num_queries=6, backbone=None)  # fmt: skip
    return network(made), t.DetrImageProcessor(size={"shortest_edge": 64, "longest_edge": 96})


def conditional_detr() -> tuple[Any, Any]:
    network, _ = detr(t.ConditionalDetrConfig, t.ConditionalDetrForObjectDetection)
    return network, t.ConditionalDetrImageProcessor(size={"shortest_edge": 64, "longest_edge": 96})


def rt_detr() -> tuple[Any, Any]:
    backbone = t.RTDetrResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 16, 32], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = t.RTDetrConfig(
        **NAMED, backbone_config=backbone, encoder_hidden_dim=32, encoder_in_channels=[8, 16, 32],
        feat_strides=[8, 16, 32], encoder_ffn_dim=32, encoder_attention_heads=2, d_model=32, num_queries=6,
        decoder_in_channels=[32, 32, 32], decoder_ffn_dim=32, decoder_layers=1, decoder_attention_heads=2,
        num_denoising=0, hidden_expansion=0.5,
    )  # fmt: skip
    return t.RTDetrForObjectDetection(config), t.RTDetrImageProcessor(size=SQUARE)


def yolos() -> tuple[Any, Any]:
    config = t.YolosConfig(**SMALL, **NAMED, image_size=[64, 64], patch_size=16, num_detection_tokens=6)
    return t.YolosForObjectDetection(config), t.YolosImageProcessor(size={"shortest_edge": 64, "longest_edge": 96})


def words() -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    tokens = Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokens.normalizer, tokens.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokens.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return t.BertTokenizerFast(tokenizer_object=tokens)


def grounding_dino() -> tuple[Any, Any]:
    config = t.GroundingDinoConfig(
        **{**LAYERS, "decoder_layers": 2}, backbone_config=swin(["stage2", "stage3", "stage4"]),
        text_config=t.BertConfig(**SMALL, vocab_size=len(WORDS)), num_queries=6, num_feature_levels=4,
        encoder_n_points=2, decoder_n_points=2, use_timm_backbone=False, max_text_len=32,
    )  # fmt: skip
    # The coarsest of its maps has more than one cell, which its group norm needs.
    pictures = t.GroundingDinoImageProcessor(size={"shortest_edge": 128, "longest_edge": 192})
    return t.GroundingDinoForObjectDetection(config), t.GroundingDinoProcessor(pictures, words())


def owlvit() -> tuple[Any, Any]:
    from tiny_pipelines import clip_tokenizer

    config = t.OwlViTConfig(
        text_config={**SMALL, "vocab_size": len(clip_tokenizer()), "max_position_embeddings": 77, "pad_token_id": 0},
        vision_config={**SMALL, "image_size": 64, "patch_size": 16}, projection_dim=32,
    )  # fmt: skip
    pictures = t.OwlViTImageProcessor(size=SQUARE, crop_size=SQUARE)
    return t.OwlViTForObjectDetection(config), t.OwlViTProcessor(pictures, clip_tokenizer())


def segformer() -> tuple[Any, Any]:
    config = t.SegformerConfig(
        **NAMED, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 1, 2, 2],
        decoder_hidden_size=16,
    )  # fmt: skip
    return t.SegformerForSemanticSegmentation(config), t.SegformerImageProcessor(size=SQUARE)


def mask2former() -> tuple[Any, Any]:
    config = t.Mask2FormerConfig(
        **NAMED, backbone_config=swin(["stage1", "stage2", "stage3", "stage4"]), feature_size=32, mask_feature_size=32,
        hidden_dim=32, encoder_feedforward_dim=32, dim_feedforward=32, encoder_layers=1, decoder_layers=2,
        num_attention_heads=2, num_queries=6, use_timm_backbone=False,
    )  # fmt: skip
    return t.Mask2FormerForUniversalSegmentation(config), t.Mask2FormerImageProcessor(size=SQUARE)


DETECTORS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "detr": detr, "conditional-detr": conditional_detr, "rt-detr": rt_detr, "yolos": yolos,
    "grounding-dino": grounding_dino, "owlvit": owlvit,
}  # fmt: skip
SEGMENTERS = {"segformer": segformer, "mask2former": mask2former}


def write_finder(family: str, folder: Path) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network, processor = {**DETECTORS, **SEGMENTERS}[family]()
        network.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
