"""The sizes of decoders that a search of layouts reads, and where they are read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from torch import nn

from thunder.core.errors import InvalidArgument

__all__ = ["DECODERS", "Decoder", "decoder_of"]


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """A transformer of equal blocks: norm, attention, norm, feed-forward network, without biases.

    Attributes:
        layers: the number of blocks.
        width: of the values between blocks.
        heads: of queries.
        groups: heads of keys and values.
        hidden: width of the feed-forward network.
        vocabulary: the number of tokens.
        head_width: of one head; None for width / heads.
        gated: whether the feed-forward network has three matrices, and not two.
        tied: whether embedding and head are one parameter.
    """

    layers: int
    width: int
    heads: int
    groups: int
    hidden: int
    vocabulary: int
    head_width: int | None = None
    gated: bool = True
    tied: bool = False

    @cached_property
    def queries(self) -> int:
        """The width of all queries."""
        return self.heads * (self.head_width or self.width // self.heads)

    @cached_property
    def keys(self) -> int:
        """The width of all keys; that of the values is the same."""
        return self.queries // self.heads * self.groups

    @cached_property
    def products(self) -> int:
        """The elements of a block's matrices."""
        matrices = 3 if self.gated else 2
        return self.width * (2 * self.queries + 2 * self.keys + matrices * self.hidden)

    @cached_property
    def block(self) -> int:
        """The parameters of a block."""
        return self.products + 2 * self.width

    @cached_property
    def embedding(self) -> int:
        """The elements of the embedding, and of the head."""
        return self.vocabulary * self.width

    @cached_property
    def parameters(self) -> int:
        """The number of parameters."""
        return self.layers * self.block + self.embedding * (1 if self.tied else 2) + self.width

    def flops_of_token(self, length: int) -> float:
        """Return the operations of a token of a sequence that its training needs, without repeated ones.

        Two for each element of a matrix in the forward, and four in the backward; of attention, a position
        sees half of the sequence.
        """
        return (
            6.0 * (self.layers * self.products + self.embedding) + 6.0 * self.layers * length * self.queries
        )


#: Name → decoder: table 3 of Grattafiori et al., The Llama 3 Herd of Models, 2024 (arXiv:2407.21783)
DECODERS: Final[Mapping[str, Decoder]] = {
    "llama-3-8b": Decoder(layers=32, width=4096, heads=32, groups=8, hidden=14336, vocabulary=128256),
    "llama-3-70b": Decoder(layers=80, width=8192, heads=64, groups=8, hidden=28672, vocabulary=128256),
    "llama-3-405b": Decoder(layers=126, width=16384, heads=128, groups=8, hidden=53248, vocabulary=128256),
}

#: field → its names in configurations: of transformers, of litgpt
_NAMES: Final = {
    "layers": ("num_hidden_layers", "n_layer"),
    "width": ("hidden_size", "n_embd"),
    "heads": ("num_attention_heads", "n_head"),
    "groups": ("num_key_value_heads", "n_query_groups"),
    "hidden": ("intermediate_size",),
    "vocabulary": ("padded_vocab_size", "vocab_size"),
    "head_width": ("head_dim", "head_size"),
    "tied": ("tie_word_embeddings",),
}
#: of transformers, models that are such decoders
_MODEL_TYPES: Final = frozenset({"llama", "mistral"})
#: of litgpt, feed-forward networks with a gate
_GATED: Final = frozenset({"LLaMAMLP", "GemmaMLP"})


def decoder_of(model: Any) -> Decoder:
    """Return the decoder that a name, a configuration or a model describes.

    Args:
        model: a Decoder; a name of `DECODERS`; a configuration of transformers or litgpt, or its items; a
            module with such a configuration as `config`, which may be on the meta device.

    Raises InvalidArgument for other objects, for configurations of models that are no such decoder, and for a
    module that has another number of parameters than its configuration says.
    """
    if isinstance(model, Decoder):
        return model
    if isinstance(model, str):
        return _named(model)
    config = getattr(model, "config", model) if isinstance(model, nn.Module) else model
    decoder = _configured(config)
    if isinstance(model, nn.Module):
        count = sum(p.numel() for p in model.parameters())
        if count != decoder.parameters:
            raise InvalidArgument(
                f"{type(model).__name__} is not the decoder that its configuration describes",
                found={"parameters of the module": count, "of the decoder": decoder.parameters},
                hint="Pass a thunder.distributed.Decoder with the sizes that cost the most.",
            )
    return decoder


def _named(name: str) -> Decoder:
    decoder = DECODERS.get(name.lower())
    if decoder is None:
        raise InvalidArgument(
            f"{name!r} is not the name of a decoder",
            found={"known": ", ".join(DECODERS)},
            hint="Pass a configuration of transformers or litgpt, or a thunder.distributed.Decoder.",
        )
    return decoder


def _configured(config: Any) -> Decoder:
    facts = dict(config) if isinstance(config, Mapping) else _attributes(config)
    found = {field: _first(facts, names) for field, names in _NAMES.items()}
    missing = [_NAMES[f][0] for f in ("layers", "width", "heads", "hidden", "vocabulary") if found[f] is None]
    if missing:
        raise InvalidArgument(
            f"{type(config).__name__} is not the configuration of a decoder",
            found={"missing": ", ".join(missing)},
            hint="Pass a configuration of transformers or litgpt, or a thunder.distributed.Decoder.",
        )
    kind, network = facts.get("model_type"), facts.get("mlp_class_name")
    if network is None and kind not in _MODEL_TYPES:
        raise InvalidArgument(
            f"nothing is known of the blocks of a model of the type {kind!r}",
            found={"known": ", ".join(sorted(_MODEL_TYPES))},
            hint="Pass a thunder.distributed.Decoder with its sizes.",
        )
    if found["groups"] is None:
        found["groups"] = found["heads"]
    gated = network is None or network in _GATED
    return Decoder(gated=gated, **{**found, "tied": bool(found["tied"])})


def _attributes(config: Any) -> dict[str, Any]:
    names = [name for names in _NAMES.values() for name in names]
    return {name: getattr(config, name, None) for name in (*names, "model_type", "mlp_class_name")}


def _first(facts: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((facts[name] for name in names if facts.get(name) is not None), None)
