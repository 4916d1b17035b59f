"""LoRA: trainable matrices of low rank beside the frozen weights of linear layers.

y = x Wᵀ + b + alpha/r · (dropout(x) Aᵀ) Bᵀ,   A `(r, in)`, B `(out, r)`   (Hu et al., arXiv:2106.09685)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

import thunder
import thunder.torch as ltorch
from thunder.core.errors import InvalidArgument, UnsupportedProgram
from thunder.core.rewrite import (
    add_input,
    cast_inputs,
    check_module_attribute,
    get_checks,
    module_tensors,
    replace_calls,
)
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx
from thunder.extend import Refusal
from thunder_transforms.adapters import (
    Adapter,
    are_merged,
    base_of,
    fold,
    initial,
    load_adapters,
    restore,
    state_of,
)
from thunder_transforms.chosen_weights import head_of, matching, shared_weights, weights_of

__all__ = ["LORATransform"]

LINEAR = "torch.nn.functional.linear"


class LORATransform(thunder.Transform):
    """Gives each chosen weight W of a linear layer a trainable A and B, and freezes the module's parameters.

    They are parameters of the compiled module, `<weight>.lora_a` `(r, in)` and `<weight>.lora_b` `(out, r)`,
    with the dtype and device of W; the user's module is not changed. A begins as torch's `nn.Linear` does, B
    with zeros, so that the program first computes what it did. A weight that several layers share has one
    pair. `original_state_dict()` has the weights with the adapters folded in, so a weight that the program
    also reads in another way, such as that of an embedding, cannot have adapters.

    Args:
        r: the rank.
        lora_alpha: the adapters' result is multiplied by `lora_alpha / r`.
        lora_dropout: the probability of the dropout of the adapters' input where the layer is in training.
        weights: names of layers or weights, with `*` as a wildcard (`"layers.*.q_proj"`), or a function
            `(name, module) -> bool` of the linear layers; empty for every `nn.Linear` whose weight is that of
            no other kind of layer, without the head (`thunder_transforms.chosen_weights.head_of`), as
            "all-linear" of the library peft. A weight of another module is chosen by its name, if the program
            reads it by `linear` alone.
        trainable: names of parameters that stay as they are, with wildcards; all others are frozen.
        merged: whether the adapters are folded into the weights from the beginning (`merge`).
    """

    keeps_sizes = True
    identified_by = ("scale", "dropout", "adapted")

    def __init__(
        self,
        *,
        r: int,
        lora_alpha: float = 1,
        lora_dropout: float = 0.0,
        weights: Sequence[str] | Callable[[str, nn.Module], bool] = (),
        trainable: Sequence[str] = (),
        merged: bool = False,
    ) -> None:
        if isinstance(r, bool) or not isinstance(r, int) or r < 1:
            raise InvalidArgument(f"r is {r!r}", hint="It is the rank of the adapters, an int above zero.")
        if not isinstance(lora_alpha, (int, float)) or not math.isfinite(lora_alpha):
            raise InvalidArgument(f"lora_alpha is {lora_alpha!r}", hint="It is a finite number.")
        if not isinstance(lora_dropout, (int, float)) or not 0 <= lora_dropout < 1:
            raise InvalidArgument(f"lora_dropout is {lora_dropout!r}", hint="It is a probability below 1.")
        self.r, self.scale, self.dropout = r, lora_alpha / r, lora_dropout
        self.weights, self.trainable, self.merged = weights, trainable, merged
        #: the weights with adapters, by name
        self.adapters: dict[str, Adapter] = {}
        self._unchanged: dict[str, Refusal] = {}

    @property
    def adapted(self) -> list[tuple[str, str]]:
        """The weights with adapters, each with its layer, by their names."""
        return [(adapter.name, adapter.layer) for adapter in self.adapters.values()]

    def validate(self, fn: Any, options: Mapping[str, Any]) -> None:
        if not isinstance(fn, nn.Module):
            raise InvalidArgument("LORATransform needs a module", found={"compiled": type(fn).__name__})

    def transform_module(self, model: Any) -> None:
        module = model._model
        chosen = weights_of(module, self.weights)
        if not self.weights:
            self._unchanged = {
                name: Refusal("tied", f"the weight is also {other}, which is not a linear layer's")
                for name, other in shared_weights(module).items()
            }
            if (head := head_of(module)) is not None:
                self._unchanged[head] = Refusal("head", "the head has adapters where weights= names it")
        self._freeze(model, module)
        for name, (weight, layer) in chosen.items():
            if f"{name}.lora_a" in model.overrides:
                raise InvalidArgument(
                    f"{name} has the adapters of another LORATransform",
                    hint="Choose different weights for each of them with weights=.",
                )
            rows, columns = weight.shape
            form = {"dtype": weight.dtype, "device": model.get_parameter(name).device}
            a = initial(torch.empty(self.r, columns, **form), is_a=True)
            b = initial(torch.empty(rows, self.r, **form), is_a=False)
            self.adapters[name] = Adapter(name, layer, self.scale)
            model.override(f"{name}.lora_a", nn.Parameter(a))
            model.override(f"{name}.lora_b", nn.Parameter(b))
        if self.merged:
            self.merge(model)

    def _freeze(self, model: Any, module: nn.Module) -> None:
        """Override the parameters with others on the same memory that require no grad."""
        kept = matching([name for name, _ in module.named_parameters()], self.trainable, "parameter")
        for name, _ in module.named_parameters():
            parameter = model.get_parameter(name)
            if name not in kept and parameter.requires_grad:
                model.override(name, nn.Parameter(parameter.detach(), requires_grad=False))

    def unchanged(self) -> Mapping[str, Refusal]:
        """Return the weights of linear layers without adapters where all were chosen: name → reason."""
        return self._unchanged

    # -- the computation ---------------------------------------------------------------------------

    def transform_traces_pre_prologue(
        self,
        prologue_trace: TraceCtx,
        computation_trace: TraceCtx,
        epilogue_trace: TraceCtx | None,
        **kwargs: Any,
    ) -> tuple[TraceCtx, TraceCtx, TraceCtx | None]:
        tensors = module_tensors(prologue_trace)
        names = {tensors[name].name: name for name in self.adapters if name in tensors}
        sources = cast_inputs(computation_trace)  # autocast casts a weight before it is read
        checked: set[str] = set()

        def with_adapter(bsym: BoundSymbol) -> Any:
            weight = _weight(bsym)
            name = (
                names.get(sources[weight.name].name)
                if weight is not None and weight.name in sources
                else None
            )
            if name is None:
                return None
            if tensors[f"{name}.lora_a"].shape[0] == 0:  # merged
                if name not in checked:
                    _check_form(prologue_trace, tensors[f"{name}.lora_a"].name)
                    checked.add(name)
                return None
            x, weight, bias = _arguments(bsym)
            a, b = (
                add_input(prologue_trace, computation_trace, f"{name}.lora_{part}").type_as(x)
                for part in "ab"
            )
            dropped = self._dropped(prologue_trace, name, x)
            return ltorch.linear(x, weight, bias) + self.scale * ltorch.linear(ltorch.linear(dropped, a), b)

        new = replace_calls(computation_trace, with_adapter, nested=True, provenance="LORATransform")
        weights = {value: names[p.name] for value, p in sources.items() if p.name in names}
        otherwise = _read_otherwise(computation_trace.bound_symbols, weights)
        if otherwise is not None:
            raise UnsupportedProgram(
                f"the program reads {otherwise}, and not by torch.nn.functional.linear: it cannot be adapted",
                hint="Choose other weights with weights=. In evaluation, torch's attention modules call one "
                "kernel, unless torch.backends.mha.set_fastpath_enabled(False).",
            )
        return prologue_trace, new, epilogue_trace

    def _dropped(self, prologue: TraceCtx, name: str, x: Any) -> Any:
        """Return the adapters' input, with dropout where the layer is in training."""
        layer = self.adapters[name].layer
        if not self.dropout or not check_module_attribute(prologue, layer, "training"):
            return x
        return ltorch.dropout(x, self.dropout, training=True)

    # -- folding -----------------------------------------------------------------------------------

    def merge(self, model: Any) -> None:
        """Fold the adapters into the weights of a compiled module, so that it computes without them.

        The weights take new memory; the adapters and the weights without them are kept for `unmerge`. A
        module that is merged stays as it is. Raises InvalidArgument for a weight that another transform
        stores in another form, and for a module that was not compiled with this transform.
        """
        for adapter in self._adapters_in(model):
            fold(model, adapter)

    def unmerge(self, model: Any) -> None:
        """Undo `merge`: the weights are bit for bit those from before; the adapters are trained again."""
        for adapter in self._adapters_in(model):
            restore(model, adapter)

    # -- state dicts -------------------------------------------------------------------------------

    def adapter_state_dict(self, model: Any) -> dict[str, torch.Tensor]:
        """Return the adapters of a compiled module alone: `<weight>.lora_a` and `<weight>.lora_b`."""
        return {key: t for adapter in self._adapters_in(model) for key, t in state_of(model, adapter).items()}

    def load_adapter_state_dict(self, model: Any, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Load what `adapter_state_dict` returned, merged or not.

        Raises InvalidArgument for missing and unexpected names and for other shapes, before anything is
        loaded.
        """
        load_adapters(model, self._adapters_in(model), state_dict)

    def _adapters_in(self, model: Any) -> list[Adapter]:
        """Return the adapters of a compiled module, or raise InvalidArgument for another module."""
        overrides = getattr(model, "overrides", {})
        if not self.adapters or not all(f"{name}.lora_a" in overrides for name in self.adapters):
            raise InvalidArgument(
                f"the {type(model).__name__} was not compiled with this LORATransform",
                hint="Pass what thunder.jit(module, transforms=[…]) returned, or a copy of it.",
            )
        return list(self.adapters.values())

    def transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        for adapter in self._adapters_of(submodule_name, state_dict):
            # what is loaded has the adapters folded in
            device = state_dict[adapter.key].device
            for key, tensor in adapter.without_effect(model).items():
                state_dict[key] = (
                    initial(tensor, device, is_a=key.endswith("_a")) if tensor.is_meta else tensor
                )
            if are_merged(model, adapter):
                state_dict[f"{adapter.key}.lora_base"] = state_dict[adapter.key]
        return state_dict

    def complete_original_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        for adapter in self._adapters_of(submodule_name, state_dict):
            state_dict[adapter.key] = base_of(adapter, state_dict)
        return state_dict

    def _adapters_of(self, submodule_name: str, state_dict: Mapping[str, Any]) -> list[Adapter]:
        """Return the adapters of weights of a submodule that a state dict has."""
        return [a for a in self.adapters.values() if a.owner == submodule_name and a.key in state_dict]


def _check_form(prologue: TraceCtx, name: str) -> None:
    """Let the prologue check the metadata of a tensor that the program does not read."""
    check, _ = get_checks(prologue)[name]
    prologue.bound_symbols.insert(-1, check.from_bsym(tags=()))


def _read_otherwise(bsyms: Iterable[BoundSymbol], weights: Mapping[str, str]) -> str | None:
    """Return a weight that a statement reads as anything but the weight of `linear`, or None.

    weights: its name in the module, by the name of a value that is the weight or a cast of it.
    """
    for bsym in bsyms:
        read = [p.name for p in bsym.flat_proxy_args if p.name in weights]
        casts = any(p.name in weights for p in bsym.flat_proxy_outs)
        weight = _weight(bsym)
        if not read or casts or (weight is not None and read == [weight.name]):
            continue
        if not bsym.subsymbols:
            return weights[read[0]]
        found = _read_otherwise(bsym.subsymbols, weights)
        if found is not None:
            return found
    return None


def _arguments(bsym: BoundSymbol) -> tuple[Any, Any, Any]:
    """Return input, weight and bias of a call of `linear`."""
    arguments = {**dict(zip(("input", "weight", "bias"), bsym.args, strict=False)), **bsym.kwargs}
    values = [arguments.get(name) for name in ("input", "weight", "bias")]
    return values[0], values[1], values[2]


def _weight(bsym: BoundSymbol) -> Any:
    """Return the weight of a call of `linear`, or None for another call."""
    return _arguments(bsym)[1] if bsym.sym.id == LINEAR else None
