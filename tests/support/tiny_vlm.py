"""A tiny LLaVA with random weights, its tokenizer and its processor, saved as `transformers:FOLDER` opens it."""

from __future__ import annotations

import string
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %} :{% endif %}"
)


def save_tiny_vlm(folder: Path, favorite: str | None = None) -> Path:
    """favorite: the letter that the model has learned to reply to everything; without it the weights are random."""
    special = ["<pad>", "<s>", "</s>", "<unk>", "<image>"]
    vocabulary = {token: index for index, token in enumerate([*special, *string.printable])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>",
        additional_special_tokens=["<image>"],
    )  # fmt: skip
    torch.manual_seed(0)
    small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**small, image_size=32, patch_size=8),
        text_config=transformers.LlamaConfig(
            **small, vocab_size=len(vocabulary), max_position_embeddings=4096, bos_token_id=1, eos_token_id=2,
            pad_token_id=0,
        ),
        image_token_index=4,
        vision_feature_layer=-1,
    )  # fmt: skip
    network = transformers.LlavaForConditionalGeneration(config)
    if favorite is not None:
        _teach(network, vocabulary[favorite])
    network.eval()
    network.generation_config.eos_token_id = 2
    network.generation_config.pad_token_id = 0
    network.save_pretrained(folder)
    processor = transformers.LlavaProcessor(
        transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}),
        fast, patch_size=8, vision_feature_select_strategy="default", chat_template=TEMPLATE,
        num_additional_image_tokens=1,
    )  # fmt: skip
    processor.save_pretrained(folder)
    return folder


def _teach(network: transformers.LlavaForConditionalGeneration, letter: int) -> None:
    """Train the language model to continue every text with the letter and then the end."""
    optimizer = torch.optim.Adam(network.model.language_model.parameters(), 0.01)
    optimizer.add_param_group({"params": network.lm_head.parameters()})
    for _ in range(40):
        text = torch.randint(5, 100, (8, 12))
        text[:, -1] = letter
        logits = network(input_ids=text).logits[:, -2:]
        goal = torch.tensor([letter, 2]).expand(8, 2)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), goal.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
