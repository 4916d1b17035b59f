"""Models of the `transformers` library from tiny random configurations; nothing is downloaded."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    RobertaConfig,
    RobertaForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

Arguments = dict[str, Any]
Made = tuple[nn.Module, tuple[Any, ...], Arguments]

VOCABULARY = 99
BATCH, LENGTH = 2, 9
ENCODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
DECODER = {**ENCODER, "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0}


@dataclass(frozen=True, kw_only=True)
class Arranged:
    """A model, its plain arguments, and what may be added: attention masks, and labels for a loss inside.

    `replaced` are the arguments that labels stand in for.
    """

    model: nn.Module
    plain: Arguments
    masks: Arguments = field(default_factory=dict)
    labels: Arguments = field(default_factory=dict)
    replaced: tuple[str, ...] = ()

    def arguments(self, *, masked: bool = False, labelled: bool = False) -> Arguments:
        """The arguments of a call, with masks or labels."""
        given = {**self.plain, **(self.masks if masked else {})}
        if labelled:
            given = {k: v for k, v in given.items() if k not in self.replaced} | self.labels
        return given


def tokens(length: int = LENGTH) -> Tensor:
    """Two sentences without special tokens."""
    return torch.randint(3, VOCABULARY, (BATCH, length))


def padded(length: int = LENGTH, *, left: bool) -> Tensor:
    """A mask of two sentences, the second of which is shorter by three."""
    mask = torch.ones(BATCH, length, dtype=torch.long)
    mask[1, slice(0, 3) if left else slice(length - 3, length)] = 0
    return mask


def arrange_text(make: Callable[[], nn.Module], seed: int, *, left: bool) -> Arranged:
    """A model of one text, with labels for each token, of which some are ignored."""
    torch.manual_seed(seed)
    model, ids = make(), tokens()
    labels = ids.clone()
    labels[0, :2] = -100
    return Arranged(
        model=model,
        plain={"input_ids": ids},
        masks={"attention_mask": padded(left=left)},
        labels={"labels": labels},
    )


def arrange_vit(seed: int) -> Arranged:
    """An image classifier and two images."""
    torch.manual_seed(seed)
    sizes = {k: v for k, v in ENCODER.items() if k != "vocab_size"}
    # the problem type is what the model itself would write into its configuration at the first loss
    config = ViTConfig(
        **sizes, image_size=16, patch_size=4, num_labels=5, problem_type="single_label_classification"
    )
    return Arranged(
        model=ViTForImageClassification(config),
        plain={"pixel_values": torch.randn(BATCH, 3, 16, 16)},
        labels={"labels": torch.tensor([1, 3])},
    )


def arrange_t5(seed: int) -> Arranged:
    """A translator, and two sentences in both languages."""
    torch.manual_seed(seed)
    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    )
    return Arranged(
        model=T5ForConditionalGeneration(config),
        plain={"input_ids": tokens(), "decoder_input_ids": tokens(5)},
        masks={"attention_mask": padded(left=False), "decoder_attention_mask": padded(5, left=False)},
        labels={"labels": tokens(5)},
        replaced=("decoder_input_ids", "decoder_attention_mask"),
    )


def arrange_whisper(seed: int) -> Arranged:
    """A transcriber, two spectrograms, and what is said in them."""
    torch.manual_seed(seed)
    config = WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        num_mel_bins=8,
        max_source_positions=16,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return Arranged(
        model=WhisperForConditionalGeneration(config),
        plain={"input_features": torch.randn(BATCH, 8, 32), "decoder_input_ids": tokens(5)},
        masks={"decoder_attention_mask": padded(5, left=False)},
        labels={"labels": tokens(5)},
        replaced=("decoder_input_ids", "decoder_attention_mask"),
    )


def mixtral(**settings: Any) -> nn.Module:
    """A mixture of four experts, two of which see each token."""
    return MixtralForCausalLM(MixtralConfig(**DECODER, num_local_experts=4, **settings))


ENCODERS: dict[str, Callable[[], nn.Module]] = {
    "bert": lambda: BertForMaskedLM(BertConfig(**ENCODER)),
    "roberta": lambda: RobertaForMaskedLM(RobertaConfig(**ENCODER, max_position_embeddings=40)),
}
DECODERS: dict[str, Callable[[], nn.Module]] = {
    # grouped queries
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**DECODER)),
    # a window of four tokens
    "mistral": lambda: MistralForCausalLM(MistralConfig(**DECODER, sliding_window=4)),
    # biases of the queries, keys and values
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**DECODER)),
    # learned positions, one matrix for queries, keys and values
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=32, n_layer=2, n_head=4)
    ),
    # partial rotary, attention and feed-forward side by side
    "phi": lambda: PhiForCausalLM(PhiConfig(**DECODER)),
    # scaled embeddings, tied to the head
    "gemma": lambda: GemmaForCausalLM(GemmaConfig(**DECODER, head_dim=8)),
    # each expert in turn, by indices that the data give
    "mixtral": mixtral,
    # the weights of its experts gathered for each token
    "mixtral_batched": partial(mixtral, experts_implementation="batched_mm"),
}
ARRANGED: dict[str, Callable[[int], Arranged]] = {
    **{name: partial(arrange_text, make, left=False) for name, make in ENCODERS.items()},
    **{name: partial(arrange_text, make, left=True) for name, make in DECODERS.items()},
    "t5": arrange_t5,
    "vit": arrange_vit,
    "whisper": arrange_whisper,
}


def make(name: str, seed: int) -> Made:
    """The model and the arguments of a call with masks."""
    arranged = ARRANGED[name](seed)
    return arranged.model, (), arranged.arguments(masked=True)


MAKERS: dict[str, Callable[[int], Made]] = {name: partial(make, name) for name in ARRANGED}
