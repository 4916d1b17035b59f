"""`TEInference8BitTransform`: frozen weights of linear layers in 8 bits, and products with 8-bit inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import thunder
from thunder.core.dtypes import to_torch_dtype
from thunder.core.errors import ExecutorUnavailable, InvalidArgument
from thunder.core.module import get_thunder_module
from thunder.core.rewrite import module_tensors, replace_calls, replace_input
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx
from thunder.extend import OperatorExecutor, Refusal

from .executors import transformer_engine_ex
from .formulas import by_own_amax
from .library import missing
from .module_weights import LINEAR, casts_of
from .stored_weights import dequantized_weight, stored_linear

__all__ = ["TEInference8BitTransform", "get_te_inference_executor"]

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_FORMAT = torch.float8_e4m3fn


def get_te_inference_executor() -> OperatorExecutor:
    """Return the executor whose kernels multiply with weights in 8 bits.

    Raises ExecutorUnavailable, with what to install, where Transformer Engine cannot be used. The executor
    `fp8_reference` computes the same products anywhere.
    """
    reason = missing()
    if reason is not None:
        raise ExecutorUnavailable("Transformer Engine cannot be used here", hint=reason)
    return transformer_engine_ex


class TEInference8BitTransform(thunder.Transform):
    """Stores the frozen weight of each `nn.Linear` in E4M3 with one scale, for inference.

    `<n>.weight` becomes f8_e4m3fn of its shape, with `<n>.weight.scale_inv` f32 `(1,)`:
    w ≈ weight · scale_inv. An executor of this package rounds the input of a layer to 8 bits as well, by its
    own largest magnitude, and multiplies in 8 bits; without one, the weight is dequantised. Weights that
    require grad stay as they are.
    """

    keeps_sizes = True

    def __init__(self) -> None:
        #: dotted name of a stored weight → the dtype that the program reads
        self._dtypes: dict[str, torch.dtype] = {}
        self._unchanged: dict[str, Refusal] = {}

    def validate(self, fn: Any, options: Mapping[str, Any]) -> None:
        """Raise UserError for a program that is not a module."""
        if not isinstance(get_thunder_module(fn), nn.Module):
            raise InvalidArgument(
                f"TEInference8BitTransform stores the weights of a module, and {fn!r} is not one",
                hint="Compile the module that has the weights.",
            )

    def transform_module(self, model: Any) -> None:
        """Override the weight of each linear layer by its form in 8 bits."""
        owners = _owners(get_thunder_module(model))
        for layer, module in model.named_modules():
            if not isinstance(module, nn.Linear):
                continue
            name = f"{layer}.weight" if layer else "weight"
            if name in self._dtypes:
                continue  # another name of a weight that is stored
            refusal = _refusal(get_thunder_module(model).get_submodule(layer), owners)
            if refusal is not None:
                self._unchanged[name] = refusal
                continue
            weight = model.get_parameter(name)
            self._dtypes |= dict.fromkeys([n for n, _ in owners[id(weight)]], weight.dtype)
            for suffix, tensor in _stored(weight).items():
                if suffix:
                    model.override(f"{name}.{suffix}", tensor, keep_dtype=True)
                else:
                    model.override(name, nn.Parameter(tensor, requires_grad=False), keep_dtype=True)

    def unchanged(self) -> Mapping[str, Refusal]:
        """Return the weights that stay as they are, by name, with the reasons."""
        return self._unchanged

    def transform_traces_pre_prologue(
        self, prologue_trace: Any, computation_trace: Any, epilogue_trace: Any, **kwargs: Any
    ) -> Any:
        """Let the program compute each weight from its stored form."""
        in_use = module_tensors(prologue_trace)
        for name in self._dtypes:
            if name not in in_use or f"{name}.scale_inv" not in in_use:
                continue
            dtype = next(p.dtype for p in computation_trace.args if p.name == in_use[name].name)

            def weight(q: Any, scale_inv: Any, dtype: Any = dtype) -> Any:
                return dequantized_weight(q, scale_inv, to_torch_dtype(dtype))

            replace_input(prologue_trace, computation_trace, name, weight, f"{name}.scale_inv")
        return prologue_trace, computation_trace, epilogue_trace

    def configure_pipeline(self, pipeline: Any, options: Mapping[str, Any]) -> None:
        """Add the stage that makes one operator of a stored weight and its product."""
        pipeline.add("products in 8 bits", _with_products, after="transforms_pre_prologue", before="dce")

    def transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Store the weight of a layer."""
        name = f"{submodule_name}.weight" if submodule_name else "weight"
        if name in self._dtypes and "weight" in state_dict:
            stored = _stored(state_dict.pop("weight").to(self._dtypes[name]))
            state_dict |= {f"weight.{suffix}" if suffix else "weight": t for suffix, t in stored.items()}
        return state_dict

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Compute the weight of a layer from its stored form."""
        name = f"{submodule_name}.weight" if submodule_name else "weight"
        if name in self._dtypes and "weight.scale_inv" in state_dict:
            scale_inv = state_dict.pop("weight.scale_inv")
            state_dict["weight"] = (state_dict["weight"].float() * scale_inv).to(self._dtypes[name])
        return state_dict


def _stored(weight: Tensor) -> dict[str, Tensor]:
    """Return a weight in 8 bits and the inverse of its scale, by the suffixes of their names."""
    weight = weight.detach()
    if weight.is_meta:
        scale = torch.empty(1, dtype=torch.float32, device="meta")
        return {"": torch.empty_like(weight, dtype=_FORMAT), "scale_inv": scale}
    data, scale_inv = by_own_amax(weight, _FORMAT, False)
    return {"": data, "scale_inv": scale_inv}


def _owners(module: nn.Module) -> dict[int, list[tuple[str, nn.Module]]]:
    """Return the names of each parameter and the modules that have it, by its id."""
    owners: dict[int, list[tuple[str, nn.Module]]] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for last, own in part.named_parameters(recurse=False, remove_duplicate=False):
            owners.setdefault(id(own), []).append((f"{path}.{last}" if path else last, part))
    return owners


def _refusal(layer: nn.Linear, owners: Mapping[int, list[tuple[str, nn.Module]]]) -> Refusal | None:
    """Return why the weight of a layer stays as it is, or None."""
    weight = dict(layer.named_parameters(recurse=False)).get("weight")
    if weight is None:
        return Refusal("parameter", "the weight is not a parameter, but is computed from others")
    tied = [name for name, owner in owners[id(weight)] if not isinstance(owner, nn.Linear)]
    if tied:
        return Refusal("tied", f"the weight is also {tied[0]}, which is not a linear layer's")
    if weight.requires_grad:
        return Refusal("requires_grad", "the weight requires grad; model.requires_grad_(False) freezes it")
    if weight.dtype not in _DTYPES:
        return Refusal("dtype", "float32, bfloat16 and float16 are stored in 8 bits", dtype=str(weight.dtype))
    return None


def _with_products(trace: TraceCtx, context: Any) -> TraceCtx:
    """Replace `linear` of a weight that is computed from its stored form.

    w = dequantized_weight(q, s); y = linear(x, w, b)   →   y = stored_linear(x, q, s, b)
    """
    computed = {b.output.name: b for b in trace.bound_symbols if b.sym.id == dequantized_weight.id}
    weights = casts_of(trace, {name: name for name in computed})
    if not computed:
        return trace

    def product(call: BoundSymbol) -> Any:
        if call.sym.id not in LINEAR or call.args[1].name not in weights:
            return None
        x, weight, bias = call.args
        q, scale_inv, _ = computed[weights[weight.name]].args
        return stored_linear(x, q, scale_inv, bias, to_torch_dtype(weight.dtype))

    return replace_calls(trace, product, nested=True, provenance="Products in 8 bits")
