"""`TransformerEngineTransform`: the state of delayed scaling, read and updated by each step of training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import thunder
from thunder.core.errors import InvalidArgument
from thunder.core.module import get_thunder_module
from thunder.core.proxies import TensorProxy
from thunder.core.rewrite import insert_inplace, module_tensors, replace_calls
from thunder.core.symbol import BoundSymbol
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx, TraceProvenance, TraceTag, from_trace
from thunder.extend import TemporaryExecutor

from .active_recipe import active
from .module_weights import casts_of, linear_calls, parameter_names
from .operators import BY_SCALE
from .recipes import DelayedScaling
from .scaled_linear import scaled_linear
from .state import LayerState, Place, new_state, update

__all__ = ["TransformerEngineTransform", "add_stages"]

_EXECUTORS = ("transformer_engine", "fp8_reference")
#: scales of a layer: of its input, its weight and its cotangent
_ROLES = 3
_COTANGENT = 2


def add_stages(pipeline: Any) -> None:
    """Add the stage that refuses delayed scaling where its state has no place."""
    pipeline.add("state of delayed scaling", _check_state, before="dce", executors=_EXECUTORS)


def _check_state(trace: TraceCtx, context: Any) -> TraceCtx:
    """Raise InvalidArgument for delayed scaling without the transform that has its state."""
    if isinstance(active().recipe, DelayedScaling) and not any(
        isinstance(transform, TransformerEngineTransform) for transform in context.transforms
    ):
        raise InvalidArgument(
            "delayed scaling remembers the largest magnitudes of earlier steps, and has no place for them",
            hint="Compile the module with transforms=[TransformerEngineTransform()], or use "
            "Float8CurrentScaling().",
        )
    return trace


class _ReadScales:
    """The layers whose scales a program reads, in their order."""

    def __init__(self) -> None:
        self.layers: tuple[str, ...] = ()


class TransformerEngineTransform(thunder.Transform):
    """Keeps the state of delayed scaling: scales, and the largest magnitudes of earlier steps.

    Each `nn.Linear` gets two tensors, part of the state dict: `<n>.weight.fp8_scale`, f32 `(3,)`, the scales
    of input, weight and cotangent; and `<n>.weight.fp8_amax_history`, f32 `(steps, 3)`. A forward with
    gradients updates the first two columns at its end, a backward the third. A forward without gradients
    reads the scales and changes nothing. Under other recipes the transform changes nothing.

    The scales of a step are those at its forward, so that a second backward (`retain_graph=True`) gives the
    gradients of the first.

    Args:
        amax_history_len: the number of steps that are remembered, that of the recipe.
    """

    def __init__(self, *, amax_history_len: int = DelayedScaling().amax_history_len) -> None:
        self.amax_history_len = DelayedScaling(amax_history_len=amax_history_len).amax_history_len
        self._ops = TemporaryExecutor("fp8_state")
        self._model: Any = None
        #: each name of the weight of a linear layer → the first of its names, under which its state is
        self._layers: dict[str, str] = {}

    def validate(self, fn: Any, options: Mapping[str, Any]) -> None:
        """Raise UserError for a program that is not a module."""
        if not isinstance(get_thunder_module(fn), nn.Module):
            raise InvalidArgument(
                f"TransformerEngineTransform has state for the layers of a module, and {fn!r} is not one",
                hint="Compile the module that has the layers.",
            )

    def transform_module(self, model: Any) -> None:
        """Give each linear layer its state."""
        self._model = model
        first: dict[int, str] = {}
        for name, weight in _linear_weights(model):
            self._layers[name] = first.setdefault(id(weight), name)
            if self._layers[name] == name:
                self._add_state(name)

    def transform_traces_pre_prologue(
        self,
        prologue_trace: Any,
        computation_trace: Any,
        epilogue_trace: Any,
        *,
        context: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Let linear layers read their scales: `linear` → `scaled_linear`."""
        unchanged = prologue_trace, computation_trace, epilogue_trace
        recipe = active().recipe
        if not isinstance(recipe, DelayedScaling):
            return unchanged
        self._check_length(recipe)
        names = parameter_names(module_tensors(prologue_trace), self._layers)
        weights = casts_of(computation_trace, names)
        calls = [b for b in linear_calls(computation_trace.bound_symbols) if b.args[1].name in weights]
        if not calls:
            return unchanged
        layers = tuple(dict.fromkeys(weights[b.args[1].name] for b in calls))
        context.state(_ReadScales).layers = layers
        scales = self._add_scales(computation_trace, layers, calls[0].args[1].device)

        def layer(bsym: BoundSymbol) -> Any:
            if not any(True for _ in linear_calls([bsym], nested=False)) or bsym.args[1].name not in weights:
                return None
            x, weight, bias = bsym.args
            return scaled_linear(x, weight, bias, scales, _ROLES * layers.index(weights[weight.name]))

        computation = replace_calls(computation_trace, layer, nested=True, provenance="Layers with scales")
        return prologue_trace, computation, epilogue_trace

    def configure_pipeline(self, pipeline: Any, options: Mapping[str, Any]) -> None:
        """Add the stage that updates the state; after claims, which quantise what needs no gradient."""
        pipeline.add("update of scales", self._with_update, after="claim", before="fuse")

    def _with_update(self, trace: TraceCtx, context: Any) -> TraceCtx:
        """Update the state at the end of a forward with gradients, and of a backward.

        A backward that computes a part of the forward again does not count its inputs and weights twice.
        """
        is_backward = TraceTag.BACKWARD in trace.tags
        recipe, layers = active().recipe, context.state(_ReadScales).layers
        calls = [b for b in trace.bound_symbols if b.sym.name.endswith(BY_SCALE)]
        places = [Place(layers[b.args[2] // _ROLES], b.args[2] % _ROLES) for b in calls]
        counted = [
            (place, b.output[2])
            for place, b in zip(places, calls, strict=True)
            if not is_backward or place.column == _COTANGENT
        ]
        training = is_backward or TraceTag.AUGMENTED_FORWARD in trace.tags
        if not training or not counted or not isinstance(recipe, DelayedScaling):
            return trace
        updated = [place for place, _ in counted]
        group = active().group

        def write(*amaxes: Tensor) -> None:
            update({name: self._state(name) for name in layers}, updated, amaxes, recipe, group)

        def record() -> None:
            tags = (OpTags.DONT_DCE, OpTags.NONDIFFERENTIABLE)
            operator = self._ops.register_operator("fp8_update", meta=_nothing, fn=write, tags=tags)
            operator(*(amax for _, amax in counted))

        new = from_trace(trace)
        new.bound_symbols = list(trace.bound_symbols)
        insert_inplace(new, len(new.bound_symbols) - 1, record)
        new.set_provenance(TraceProvenance("State of delayed scaling"))
        return new

    def transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Add the state before the first step to the original state dict of a linear layer."""
        name = f"{submodule_name}.weight" if submodule_name else "weight"
        if self._layers.get(name) == name and "weight" in state_dict:
            state = new_state(self.amax_history_len, torch.device("cpu"))
            state_dict |= {f"weight.{suffix}": tensor for suffix, tensor in state.items()}
        return state_dict

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Leave the state out of the original state dict."""
        return {name: tensor for name, tensor in state_dict.items() if not name.startswith("weight.fp8_")}

    def _add_state(self, name: str) -> None:
        device = self._model.get_parameter(name).device
        for suffix, tensor in new_state(self.amax_history_len, device).items():
            self._model.override(f"{name}.{suffix}", tensor, keep_dtype=True)

    def _check_length(self, recipe: DelayedScaling) -> None:
        if recipe.amax_history_len != self.amax_history_len:
            raise InvalidArgument(
                f"the recipe remembers {recipe.amax_history_len} steps, and the state of the compiled module "
                f"{self.amax_history_len}",
                hint=f"Write TransformerEngineTransform(amax_history_len={recipe.amax_history_len}).",
            )

    def _add_scales(self, trace: TraceCtx, layers: tuple[str, ...], device: Any) -> Any:
        """Record the call that reads the scales of layers, at the beginning of a trace."""
        tags = (OpTags.DONT_DCE, OpTags.NONDIFFERENTIABLE, OpTags.DONT_RECOMPUTE_IN_BACKWARD)
        results = []

        def meta(layers: tuple[str, ...]) -> Any:
            return TensorProxy(shape=(_ROLES * len(layers),), dtype=thunder.float32, device=device)

        def record() -> None:
            operator = self._ops.register_operator("fp8_scales", meta=meta, fn=self._scales, tags=tags)
            results.append(operator(layers))

        insert_inplace(trace, 0, record)
        return results[0]

    def _scales(self, layers: tuple[str, ...]) -> Tensor:
        return torch.cat([self._state(name).scale for name in layers])

    def _state(self, name: str) -> LayerState:
        tensors = self._model.overrides
        if tensors[f"{name}.fp8_scale"].is_meta:  # the module was compiled on the meta device
            self._add_state(name)
            tensors = self._model.overrides
        return LayerState(tensors[f"{name}.fp8_scale"], tensors[f"{name}.fp8_amax_history"])


def _nothing(*amaxes: Any) -> None:
    """Return the results of an operator that has none."""


def _linear_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters that are weights of linear layers, with their names; not computed weights."""
    module = get_thunder_module(model)
    for layer, part in model.named_modules():
        if isinstance(part, nn.Linear):
            own = dict(module.get_submodule(layer).named_parameters(recurse=False))
            if "weight" in own:
                name = f"{layer}.weight" if layer else "weight"
                yield name, model.get_parameter(name)
