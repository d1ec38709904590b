"""Real pipelines of diffusers with tiny random weights, written to folders as `save_pretrained` writes a published one.

`FAMILIES` has one builder for each family; `write_pipeline("sdxl-inpaint", folder)` writes one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers as d
import torch
import transformers as t

SIDE = 64  # pixels at which these pipelines edit
LETTERS = [chr(code) for code in range(33, 127)]
CARD = "---\nlicense: openrail++\nextra_gated_prompt: agree first\n---\nTiny random weights for tests.\n"


def clip_tokenizer() -> t.CLIPTokenizer:
    words = [*LETTERS, *(f"{letter}</w>" for letter in LETTERS), "<|startoftext|>", "<|endoftext|>"]
    return t.CLIPTokenizer(vocab={word: i for i, word in enumerate(words)}, merges=[], model_max_length=77)


def t5_tokenizer() -> t.T5Tokenizer:
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *((letter, -3.0) for letter in LETTERS)]
    return t.T5Tokenizer(vocab=pieces, extra_ids=0, model_max_length=64)


def clip_text(width: int = 16, projection: bool = False, **more: Any) -> Any:
    tokens = clip_tokenizer()
    config = t.CLIPTextConfig(
        vocab_size=len(tokens), hidden_size=width, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        projection_dim=width, bos_token_id=tokens.bos_token_id, eos_token_id=tokens.eos_token_id, **more,
    )  # fmt: skip
    return (t.CLIPTextModelWithProjection if projection else t.CLIPTextModel)(config).eval()


def t5_text(width: int = 16) -> t.T5EncoderModel:
    size = len(t5_tokenizer())
    config = t.T5Config(vocab_size=size, d_model=width, d_kv=8, d_ff=32, num_layers=2, num_heads=2)
    return t.T5EncoderModel(config).eval()


def vae(latent: int = 4, blocks: int = 2, **more: Any) -> d.AutoencoderKL:
    widths = (8, 16, 16, 16)[:blocks]
    return d.AutoencoderKL(
        block_out_channels=widths, in_channels=3, out_channels=3, latent_channels=latent, norm_num_groups=4,
        down_block_types=("DownEncoderBlock2D",) * blocks, up_block_types=("UpDecoderBlock2D",) * blocks,
        sample_size=SIDE, **more,
    ).eval()  # fmt: skip


def unet(inputs: int, cross: int = 16, scale: int = 2, **more: Any) -> d.UNet2DConditionModel:
    small = {"block_out_channels": (8, 16), "attention_head_dim": 2, "norm_num_groups": 4}
    return d.UNet2DConditionModel(
        sample_size=SIDE // scale, in_channels=inputs, out_channels=4, layers_per_block=1, cross_attention_dim=cross,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        **(small | more),
    ).eval()  # fmt: skip


def sd_parts(inputs: int) -> dict[str, Any]:
    return {
        "unet": unet(inputs),
        "scheduler": d.DDIMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear"),
        "vae": vae(),
        "text_encoder": clip_text(),
        "tokenizer": clip_tokenizer(),
        "safety_checker": None,
        "feature_extractor": None,
        "requires_safety_checker": False,
    }


def sd() -> Any:
    return d.StableDiffusionPipeline(**sd_parts(4))


def sd_inpaint() -> Any:
    return d.StableDiffusionInpaintPipeline(**sd_parts(9))


def pix2pix() -> Any:
    return d.StableDiffusionInstructPix2PixPipeline(**sd_parts(8))


def sd_prudish() -> Any:
    """In-painting with a safety checker that objects to everything."""
    from diffusers.pipelines.stable_diffusion import StableDiffusionSafetyChecker

    vision = {
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 32,
        "patch_size": 8,
    }  # fmt: skip
    checker = StableDiffusionSafetyChecker(t.CLIPConfig(vision_config=vision, projection_dim=8)).eval()
    torch.nn.init.constant_(checker.concept_embeds_weights, -2)
    extractor = t.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    parts = sd_parts(9) | {"safety_checker": checker, "feature_extractor": extractor, "requires_safety_checker": True}
    return d.StableDiffusionInpaintPipeline(**parts)


def sdxl_inpaint() -> Any:
    added = {
        "addition_embed_type": "text_time", "addition_time_embed_dim": 8, "use_linear_projection": True,
        "projection_class_embeddings_input_dim": 6 * 8 + 16, "transformer_layers_per_block": (1, 2),
    }  # fmt: skip
    return d.StableDiffusionXLInpaintPipeline(
        vae=vae(), text_encoder=clip_text(), text_encoder_2=clip_text(projection=True), tokenizer=clip_tokenizer(),
        tokenizer_2=clip_tokenizer(), unet=unet(9, cross=32, **added),
        scheduler=d.EulerDiscreteScheduler(beta_schedule="scaled_linear", timestep_spacing="leading"),
    )  # fmt: skip


def sd3_inpaint() -> Any:
    transformer = d.SD3Transformer2DModel(
        sample_size=SIDE // 2, patch_size=2, in_channels=16, out_channels=16, num_layers=1, attention_head_dim=8,
        num_attention_heads=2, joint_attention_dim=32, caption_projection_dim=16, pooled_projection_dim=32,
        pos_embed_max_size=SIDE,
    )  # fmt: skip
    return d.StableDiffusion3InpaintPipeline(
        transformer=transformer.eval(), scheduler=d.FlowMatchEulerDiscreteScheduler(), vae=vae(16, shift_factor=0.06),
        text_encoder=clip_text(projection=True), tokenizer=clip_tokenizer(),
        text_encoder_2=clip_text(projection=True), tokenizer_2=clip_tokenizer(),
        text_encoder_3=t5_text(32), tokenizer_3=t5_tokenizer(),
    )  # fmt: skip


def kandinsky_inpaint() -> Any:
    wide = 16
    tower = t.CLIPVisionConfig(
        hidden_size=wide, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=8,
        projection_dim=wide,
    )  # fmt: skip
    decoder = d.UNet2DConditionModel(
        in_channels=9, out_channels=8, block_out_channels=(8, 16), layers_per_block=1, sample_size=SIDE // 2,
        down_block_types=("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D"), norm_num_groups=4,
        up_block_types=("SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"), attention_head_dim=4,
        mid_block_type="UNetMidBlock2DSimpleCrossAttn", addition_embed_type="image", cross_attention_dim=wide,
        encoder_hid_dim=wide, encoder_hid_dim_type="image_proj", resnet_time_scale_shift="scale_shift",
    )  # fmt: skip
    movq = d.VQModel(
        block_out_channels=(32, 32), down_block_types=("DownEncoderBlock2D", "AttnDownEncoderBlock2D"),
        up_block_types=("AttnUpDecoderBlock2D", "UpDecoderBlock2D"), latent_channels=4, num_vq_embeddings=12,
        norm_num_groups=8, norm_type="spatial", vq_embed_dim=4, layers_per_block=1,
    )  # fmt: skip
    prior = d.PriorTransformer(num_attention_heads=2, attention_head_dim=8, embedding_dim=wide, num_layers=1)
    prior.clip_std = torch.nn.Parameter(torch.ones_like(prior.clip_std))
    return d.KandinskyV22InpaintCombinedPipeline(
        unet=decoder.eval(), movq=movq.eval(), prior_prior=prior.eval(), prior_tokenizer=clip_tokenizer(),
        scheduler=d.DDIMScheduler(beta_schedule="linear", clip_sample=False, prediction_type="epsilon"),
        prior_text_encoder=clip_text(wide, projection=True),
        prior_image_encoder=t.CLIPVisionModelWithProjection(tower).eval(),
        prior_image_processor=t.CLIPImageProcessor(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}, do_resize=True
        ),
        prior_scheduler=d.UnCLIPScheduler(variance_type="fixed_small_log", prediction_type="sample"),
    )  # fmt: skip


def flux_parts(inputs: int, guided: bool) -> dict[str, Any]:
    transformer = d.FluxTransformer2DModel(
        patch_size=1, in_channels=inputs, out_channels=8, num_layers=1, num_single_layers=1, attention_head_dim=8,
        num_attention_heads=2, joint_attention_dim=16, pooled_projection_dim=16, axes_dims_rope=(2, 2, 4),
        guidance_embeds=guided,
    )  # fmt: skip
    return {
        "transformer": transformer.eval(),
        "scheduler": d.FlowMatchEulerDiscreteScheduler(),
        "vae": vae(latent=2, shift_factor=0.1, scaling_factor=1.5),
        "text_encoder": clip_text(),
        "tokenizer": clip_tokenizer(),
        "text_encoder_2": t5_text(),
        "tokenizer_2": t5_tokenizer(),
    }


def flux() -> Any:
    return d.FluxPipeline(**flux_parts(8, guided=False))


def flux_fill() -> Any:
    # The noise, the masked picture (both 2 x 4 channels), and the mask (2 x 2 pixels of a latent, 4 of them packed).
    return d.FluxFillPipeline(**flux_parts(8 + 8 + 16, guided=True))


def flux_kontext() -> Any:
    return d.FluxKontextPipeline(**flux_parts(8, guided=True))


def qwen_edit() -> Any:
    special = [
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|image_pad|>",
        "<|video_pad|>",
    ]
    vocabulary = {word: i for i, word in enumerate([*LETTERS, "Ġ", "Ċ", *special])}
    tokens = t.Qwen2Tokenizer(vocab=vocabulary, merges=[], additional_special_tokens=special[1:])
    vision = {
        "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 16,
        "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "fullatt_block_indexes": [0],
        "window_size": 112,
    }  # fmt: skip
    text = {
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 2, "vocab_size": len(tokens), "rope_theta": 10000.0, "max_position_embeddings": 8192,
        "rope_scaling": {"mrope_section": [1, 1, 2], "rope_type": "default", "type": "default"},
    }  # fmt: skip
    named = {f"{name}_token_id": vocabulary[f"<|{name}|>"] for name in ("vision_start", "vision_end")}
    named |= {"image_token_id": vocabulary["<|image_pad|>"], "video_token_id": vocabulary["<|video_pad|>"]}
    config = t.Qwen2_5_VLConfig(vision_config=vision, text_config=text, **named)
    processor = t.Qwen2VLProcessor(
        image_processor=t.Qwen2VLImageProcessor(min_pixels=56 * 56, max_pixels=56 * 56),
        tokenizer=tokens, video_processor=t.Qwen2VLVideoProcessor(),
    )  # fmt: skip
    transformer = d.QwenImageTransformer2DModel(
        patch_size=2, in_channels=16, out_channels=4, num_layers=1, attention_head_dim=8, num_attention_heads=2,
        joint_attention_dim=16, guidance_embeds=False, axes_dims_rope=(2, 2, 4),
    )  # fmt: skip
    packed = d.AutoencoderKLQwenImage(
        base_dim=2, z_dim=4, dim_mult=[1, 1, 1, 1], num_res_blocks=1, temperal_downsample=[False, True, True],
        latents_mean=[0.0] * 4, latents_std=[1.0] * 4,
    )  # fmt: skip
    return d.QwenImageEditPipeline(
        transformer=transformer.eval(), vae=packed.eval(), scheduler=d.FlowMatchEulerDiscreteScheduler(),
        text_encoder=t.Qwen2_5_VLForConditionalGeneration(config).eval(), tokenizer=tokens, processor=processor,
    )  # fmt: skip


FAMILIES: dict[str, Callable[[], Any]] = {
    "sd-inpaint": sd_inpaint,
    "sdxl-inpaint": sdxl_inpaint,
    "sd3-inpaint": sd3_inpaint,
    "kandinsky22-inpaint": kandinsky_inpaint,
    "flux-fill": flux_fill,
    "instruct-pix2pix": pix2pix,
    "flux-kontext": flux_kontext,
    "qwen-image-edit": qwen_edit,
    "sd": sd,
    "flux": flux,
}


def write_pipeline(family: str | Callable[[], Any], folder: Path, seed: int = 0, card: str = CARD) -> Path:
    """Build the pipeline with the weights of a seed and write it; the folder has a model card with this text."""
    build = FAMILIES[family] if isinstance(family, str) else family
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        build().save_pretrained(folder)
    (folder / "README.md").write_text(card)
    return folder
