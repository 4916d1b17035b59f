"""Families of the `transformers` library from their own configuration classes, made small; no downloads.

A configuration is made small by a table of field names that the library's families share, so that a family
which nobody has looked at yet is built as well as one that somebody has. Arguments are made by the names of
the parameters of `forward`. What eager cannot run, built this way, is no model here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

Arguments = dict[str, Any]

BATCH, LENGTH, VOCABULARY = 2, 9, 99
#: families of more parameters than this are too big to be compared in seconds
LARGEST = 60_000_000

#: what a family's class is taken from, the first that it has
HEADS = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_CTC_MAPPING_NAMES",
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_VIDEO_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES",
    "MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES",
    "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES",
    "MODEL_FOR_TIME_SERIES_PREDICTION_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
    "MODEL_FOR_PRETRAINING_MAPPING_NAMES",
)

#: sizes by field name; families that do without a field ignore it
SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embed_dim", "d_embed"), 32),
    **dict.fromkeys(
        ("embedding_size", "projection_dim", "hidden_dim", "model_dim", "width", "d_latents"), 32
    ),
    **dict.fromkeys(("entity_emb_size", "out_hidden_size", "encoder_hidden_size", "qformer_hidden_size"), 32),
    **dict.fromkeys(("intermediate_size", "d_ff", "ffn_dim", "n_inner", "ffn_hidden_size", "mlp_dim"), 48),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "encoder_intermediate_size"), 48),
    **dict.fromkeys(
        ("moe_intermediate_size", "shared_expert_intermediate_size", "expert_ffn_hidden_size"), 48
    ),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "depth", "num_encoder_layers", "num_blocks"), 2),
    **dict.fromkeys(("l_layers", "x_layers", "r_layers", "num_self_attends_per_block"), 1),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "encoder_num_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "num_self_attention_heads"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "d_head", "attention_head_size", "attention_head_dim"), 8),
    **dict.fromkeys(
        ("vocab_size", "decoder_vocab_size", "entity_vocab_size", "audio_vocab_size"), VOCABULARY
    ),
    **dict.fromkeys(
        ("text_vocab_size", "input_vocab_size", "output_vocab_size", "num_text_tokens"), VOCABULARY
    ),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_source_positions"), 64),
    **dict.fromkeys(("max_target_positions", "max_text_len", "max_seq_len"), 64),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "n_group", "topk_group"), 2),
    **dict.fromkeys(("mamba_n_heads", "mamba_d_head", "mamba_d_state", "state_size"), 8),
    **dict.fromkeys(("num_latents", "num_query_tokens", "num_queries", "num_frames"), 2),
    **dict.fromkeys(("mask_feature_size", "fpn_feature_size"), 32),
    # left to chance, or drawn by NumPy, while training
    **dict.fromkeys(("layerdrop", "encoder_layerdrop", "decoder_layerdrop"), 0.0),
    "apply_spec_augment": False,
    "image_size": 32,
    "patch_size": 8,
    "rotary_dim": 4,
    "num_labels": 5,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "prediction_length": 4,
    "context_length": 8,
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
}
#: what other attempts put in place of those sizes; `KEEP` leaves the family's own
KEEP = object()
_LAYERS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "num_decoder_layers",
    "depth",
    "num_blocks",
)
_HEADS = ("head_dim", "d_kv", "d_head", "attention_head_size")
_WIDTHS = ("hidden_size", "d_model", "embed_dim", "hidden_dim", "num_heads", "n_head", "num_attention_heads")
ATTEMPTS: tuple[dict[str, Any], ...] = (
    {},
    dict.fromkeys(_HEADS, KEEP),
    dict.fromkeys(("image_size", "patch_size", "num_frames"), KEEP),
    dict.fromkeys(_LAYERS, KEEP),
    {"num_key_value_heads": 4},
    {"num_heads": 8, "hidden_size": 64, "head_dim": 16, "n_groups": 1},
    dict.fromkeys(_WIDTHS, KEEP),
    {name: KEEP for name in SIZES if name not in ("vocab_size", *_LAYERS)},
)


def backbone() -> Any:
    """A small network for images, in place of one that another library would fetch."""
    return transformers.ResNetConfig(  # type: ignore[no-untyped-call]
        embedding_size=8,
        hidden_sizes=[8, 8, 16, 16],
        depths=[1, 1, 1, 1],
        out_features=["stage2", "stage3", "stage4"],
    )


class NotBuilt(Exception):
    """No configuration of the family that eager can run was found; the message is the last attempt's."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """A model of a family with the arguments of a call, and others of the same shapes.

    `masks` may be added to the arguments.
    """

    family: str
    model: nn.Module
    arguments: Arguments
    others: Arguments
    masks: Arguments


def families() -> list[str]:
    """The names of all families that have a configuration."""
    return sorted(CONFIG_MAPPING_NAMES)


def classes(family: str) -> Iterator[str]:
    """Names of the family's model classes, the one to take first."""
    seen = set()
    for table in HEADS:
        named = getattr(modeling_auto, table).get(family)
        for name in (named,) if isinstance(named, str) else named or ():
            if name not in seen:
                seen.add(name)
                yield name


def configuration(kind: type[Any], changed: dict[str, Any]) -> Any:
    """A small configuration of class `kind`, with `changed` sizes; its parts are made small as well."""
    if kind.__name__.startswith("Timm"):
        return backbone()
    parameters = inspect.signature(kind.__init__).parameters
    sizes = {**SIZES, **changed}
    given = {n: size for n, size in sizes.items() if n in parameters and size is not KEEP}
    parts = {}
    for name, part in kind.sub_configs.items():
        if name in parameters and part is transformers.AutoConfig:
            part = type(getattr(kind(), name, None))
        if name in parameters and hasattr(part, "sub_configs"):
            parts[name] = configuration(part, changed)
    try:
        return kind(**given, **{name: part.to_dict() for name, part in parts.items()})
    except (AttributeError, TypeError, ValueError):  # takes its parts as they are
        return kind(**given, **parts)


def build_model(name: str, config: Any) -> nn.Module:
    """A model of the class `name`, in evaluation mode, unless it is too big."""
    kind = getattr(transformers, name)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in kind(config).parameters())
    if size > LARGEST:
        raise NotBuilt(f"{name}: {size} parameters")
    torch.manual_seed(5)
    return kind(config).eval()  # type: ignore[no-any-return]


# -- arguments -----------------------------------------------------------------------------------------------


def field(config: Any, names: tuple[str, ...], default: Any) -> Any:
    """The first of the fields that the configuration, or one of its parts, has."""
    parts = [config, *(getattr(config, name, None) for name in type(config).sub_configs)]
    for part in parts:
        for name in names:
            value = getattr(part, name, None)
            if value is not None:
                return value
    return default


def size_of(value: Any) -> tuple[int, int]:
    """Height and width."""
    return (value, value) if isinstance(value, int) else tuple(value)[-2:]


def tokens(config: Any) -> Tensor:
    """Sentences without special tokens."""
    return torch.randint(3, min(field(config, ("vocab_size",), VOCABULARY), VOCABULARY), (BATCH, LENGTH))


def images(config: Any) -> Tensor:
    """Images of the size that the model was made for."""
    height, width = size_of(field(config, ("image_size", "input_size"), 64))
    return torch.randn(BATCH, field(config, ("num_channels", "in_channels"), 3), height, width)


def videos(config: Any) -> Tensor:
    """Films of a few frames."""
    still = images(config)
    return still[:, None].expand(-1, field(config, ("num_frames", "frames_per_clip"), 2), -1, -1, -1).clone()


def spectra(config: Any) -> Tensor:
    """Sound as the strength of each frequency, frequencies first."""
    return torch.randn(
        BATCH, field(config, ("num_mel_bins", "n_mels"), 80), 2 * field(config, ("max_source_positions",), 32)
    )


def boxes(config: Any) -> Tensor:
    """Places of words on a page: left, top, right, bottom."""
    return torch.tensor([1, 2, 5, 9]).expand(BATCH, LENGTH, 4).clone()


def places(config: Any) -> Tensor:
    """Places of parts of an image, as fractions."""
    return torch.rand(BATCH, 5, 4)


def series(config: Any) -> Tensor:
    """Numbers over time."""
    return torch.randn(BATCH, config.context_length, field(config, ("num_input_channels", "input_size"), 1))


def large_images(config: Any) -> Tensor:
    """Images of the size that most families are made for."""
    return torch.randn(BATCH, 3, 224, 224)


Makers = dict[str, Callable[[Any], Tensor]]
#: ways to make the arguments, tried in order: those of the parameters of `forward` that are named are given
CALLS: tuple[Makers, ...] = (
    {"input_ids": tokens, "decoder_input_ids": tokens},
    {"input_ids": tokens},
    {"pixel_values": images},
    {"input_ids": tokens, "bbox": boxes},
    {"input_ids": tokens, "pixel_values": images},
    {"input_features": spectra, "decoder_input_ids": tokens},
    {"input_values": lambda config: torch.randn(BATCH, 4000)},
    {"input_features": lambda config: spectra(config).transpose(1, 2)},
    {"input_values": lambda config: spectra(config).transpose(1, 2)},
    {"pixel_values": videos},
    {"pixel_values_videos": videos},
    {"input_ids": tokens, "bbox": boxes, "pixel_values": images},
    {"input_values": lambda config: torch.randn(BATCH, 1, 4000)},
    {"pixel_values": images, "decoder_input_ids": tokens},
    {"input_ids": tokens, "visual_feats": lambda config: torch.randn(BATCH, 5, 2048), "visual_pos": places},
    {"past_values": series},
    {"pixel_values": large_images},
)


def run(model: nn.Module, arguments: Arguments) -> None:
    """Calls eager; what it raises says that the model is none, or that these are no arguments of its."""
    with torch.no_grad():
        model(**arguments)


def ways_to_call(model: nn.Module) -> Iterator[tuple[Arguments, Arguments]]:
    """Arguments by the names of the parameters, and others of the same shapes."""
    parameters = inspect.signature(model.forward).parameters
    for makers in CALLS:
        if makers.keys() <= parameters.keys():
            torch.manual_seed(7)
            yield tuple({name: make(model.config) for name, make in makers.items()} for _ in range(2))  # type: ignore[misc]


def masks(arguments: Arguments) -> Arguments:
    """A mask of two sentences, of which the second is shorter, if the call has sentences."""
    if "input_ids" not in arguments:
        return {}
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    mask[1, LENGTH - 3 :] = 0
    return {"attention_mask": mask}


def build(family: str) -> Built:
    """A small model of the family and arguments that eager runs it with; raises NotBuilt."""
    reasons = []
    for name in classes(family):
        for changed in ATTEMPTS:
            try:
                model = build_model(name, configuration(CONFIG_MAPPING[family], changed))
            except Exception as error:
                reasons.append(f"{name}: {reason(error)}")
                continue
            for arguments, others in ways_to_call(model):
                masked = masks(arguments)
                try:
                    run(model, {**arguments, **masked})
                except Exception as error:
                    reasons.append(f"{name}: {reason(error)}")
                    continue
                return Built(family=family, model=model, arguments=arguments, others=others, masks=masked)
    raise NotBuilt(reasons[0] if reasons else "no model class")


def reason(error: BaseException) -> str:
    """The class and the first line of an error."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
