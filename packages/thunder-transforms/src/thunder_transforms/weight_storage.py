"""The common part of the transforms: which weights are stored in another form, and how programs read them."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

import thunder
from thunder.core.dtypes import to_torch_dtype
from thunder.core.errors import InvalidArgument, UnsupportedProgram
from thunder.core.module import get_thunder_module
from thunder.core.rewrite import module_tensors, replace_calls, replace_input
from thunder.core.symbol import BoundSymbol, Symbol
from thunder.core.trace import TraceCtx
from thunder.extend import Refusal

__all__ = ["COMPUTED", "WeightStorage"]

#: the dtypes of weights that are stored in another form, and in which products with them are computed
COMPUTED = (torch.float32, torch.bfloat16, torch.float16)

#: the operators that are products with a weight; the second one under `torch.vmap`
LINEAR = frozenset({"torch.nn.functional.linear", "prims.linear"})
CAST = "prims.convert_element_type"

#: what to do in place of changing a stored weight in a program
_INSTEAD = "outside of the compiled program, or name the layer in skip=."


class WeightStorage(thunder.Transform, ABC):
    """Stores the weights of linear layers in another form; products read the stored form.

    A weight is overridden by its stored form, under its own name; further tensors have its name and a suffix.
    The program computes each weight from them; a product with the whole weight becomes one operator. The
    weights that stay as they are, and why, are in :meth:`unchanged`.

    Args:
        skip: names of modules whose weights stay as they are; `*` and `?` are wildcards.
        release: drop the memory of the original weights. The module itself can no longer be called.
    """

    keeps_sizes = True
    #: the suffixes of the further tensors
    suffixes: tuple[str, ...] = ()

    def __init__(self, skip: Sequence[str] = (), release: bool = False) -> None:
        self.skip = (skip,) if isinstance(skip, str) else tuple(skip)
        self.release = release
        #: dotted name of a stored weight → its shape
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._unchanged: dict[str, Refusal] = {}

    # -- what a storage defines

    @abstractmethod
    def refusal(self, weight: Tensor) -> Refusal | None:
        """Return why a weight of a supported dtype cannot be stored in this form, or None."""

    @abstractmethod
    def stored(self, weight: Tensor) -> dict[str, Tensor]:
        """Return the stored form of a weight: "" → the tensor in its place, suffix → a further tensor."""

    @abstractmethod
    def dequantised(self, stored: Mapping[str, Tensor], shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return the weight of a stored form."""

    @abstractmethod
    def weight_call(self, stored: Mapping[str, Any], shape: tuple[int, ...], dtype: torch.dtype) -> Any:
        """Record the operator that computes the weight from proxies of its stored form."""

    @abstractmethod
    def product_call(self, x: Any, bias: Any, weight: BoundSymbol) -> Any:
        """Record the product of `x` with what a call of :meth:`weight_call` computes."""

    @property
    @abstractmethod
    def weight_symbol(self) -> Symbol:
        """The operator that :meth:`weight_call` records."""

    # -- hooks

    def validate(self, fn: Any, options: Mapping[str, Any]) -> None:
        """Raise UserError for a program that is not a module."""
        if not isinstance(get_thunder_module(fn), nn.Module):
            raise InvalidArgument(
                f"{type(self).__name__} stores the weights of a module, and {fn!r} is not one",
                hint="Compile the module that has the weights.",
            )

    def transform_module(self, model: Any) -> None:
        """Override the weight of each linear layer that can be stored in this form."""
        layers = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}
        self._check_skip(layers)
        owners = _owners(model)
        for layer in layers:
            name = f"{layer}.weight" if layer else "weight"
            if name in model.overrides and name in self.shapes:
                continue  # another name of a weight that is stored
            refusal = self._refusal(model, layer, name, owners)
            if refusal is not None:
                self._unchanged[name] = refusal
                continue
            weight = model.get_parameter(name)
            tied = [n for n, _ in owners[id(weight)]]
            for suffix, tensor in self.stored(weight).items():
                if suffix:
                    model.override(f"{name}.{suffix}", tensor, keep_dtype=True)
                else:
                    model.override(name, nn.Parameter(tensor, requires_grad=False))
            self.shapes |= dict.fromkeys((name, *tied), tuple(weight.shape))
            if self.release and not weight.is_meta:
                model.release_original(name)
        if layers and not self.shapes:
            self._tell_that_nothing_is_stored()

    def _tell_that_nothing_is_stored(self) -> None:
        """Warn that no weight is stored; raise InvalidArgument if one would be that is not frozen."""
        trained = [name for name, refusal in self._unchanged.items() if refusal.code == "requires_grad"]
        if trained:
            raise InvalidArgument(
                f"{type(self).__name__} would store no weight of the module: its parameters require grad",
                found={trained[0]: self._unchanged[trained[0]].message},
                hint="Call model.requires_grad_(False) first, or put a transform that freezes them, such as "
                "LORATransform, before this one in transforms=.",
            )
        name, refusal = next(iter(self._unchanged.items()))
        warnings.warn(
            f"{type(self).__name__} stores no weight of the module. {name}: {refusal}", stacklevel=2
        )

    def unchanged(self) -> Mapping[str, Refusal]:
        """Return the weights that stay as they are, by name, with the reasons."""
        return self._unchanged

    def transform_traces_pre_prologue(
        self, prologue_trace: Any, computation_trace: Any, epilogue_trace: Any, **kwargs: Any
    ) -> Any:
        """Let the program compute each weight from its stored form."""
        in_use = module_tensors(prologue_trace)
        read = {p.name: p for p in computation_trace.args if hasattr(p, "dtype")}
        for name, shape in self.shapes.items():
            others = [f"{name}.{suffix}" for suffix in self.suffixes]
            if name not in in_use or not all(other in in_use for other in others):
                continue  # it is not read, or another name of a tied weight
            if in_use[name].name in _assigned(prologue_trace):
                raise UnsupportedProgram(
                    f"the program assigns the memory of {name}, which is stored in another form",
                    hint=f"Assign it {_INSTEAD}",
                )

            def weight(*stored: Any, name: str = name, shape: tuple[int, ...] = shape) -> Any:
                dtype = to_torch_dtype(read[in_use[name].name].dtype)
                return self.weight_call(dict(zip(("", *self.suffixes), stored, strict=True)), shape, dtype)

            try:
                replace_input(prologue_trace, computation_trace, name, weight, *others)
            except UnsupportedProgram as error:  # a write in place
                error.hint = f"Write to it {_INSTEAD}"
                raise
        return prologue_trace, computation_trace, epilogue_trace

    def configure_pipeline(self, pipeline: Any, options: Mapping[str, Any]) -> None:
        """Add the stage that makes one operator of a weight and its product."""
        stage = f"products of {self.weight_symbol.name}"
        if stage not in pipeline.names():
            pipeline.add(stage, self._with_products, after="transforms_pre_prologue", before="dce")

    def _with_products(self, trace: TraceCtx, context: Any) -> TraceCtx:
        """Replace `linear` of a weight that is computed from its stored form.

            w = bnb_dequantize_nf4(q, …); y = linear(x, w, b)   →   y = bnb_matmul_nf4(x, q, b, …)

        A cast of the weight to the dtype of x, as autocast's, is part of what is replaced, if the weight is
        in float32: then both are rounded once. A weight that is read elsewhere is computed there.
        """
        weights: dict[str, BoundSymbol] = {}
        for call in trace.bound_symbols:
            if call.sym.id == self.weight_symbol.id:
                weights[call.output.name] = call
            elif (source := _cast_of(call, weights)) is not None and source.output.dtype is thunder.float32:
                weights[call.output.name] = source

        def product(call: BoundSymbol) -> Any:
            if call.sym.id not in LINEAR or call.args[1].name not in weights:
                return None
            x, weight, bias = call.args
            if to_torch_dtype(x.dtype) not in COMPUTED or x.device != weight.device:
                return None
            return self.product_call(x, bias, weights[weight.name])

        if not weights:
            return trace
        new = replace_calls(trace, product, nested=True, provenance="Quantised products")
        read: set[str] = set()
        statements = []
        for call in reversed(new.bound_symbols):
            name = call.output.name if len(call.flat_proxy_outs) == 1 else None
            if name in read or name not in weights:
                read.update(p.name for p in call.flat_proxy_args)
                statements.append(call)
        new.bound_symbols = statements[::-1]
        return new

    def transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Store the weight of a layer, in the dtype that the module has it in."""
        name = f"{submodule_name}.weight" if submodule_name else "weight"
        if name in self.shapes and "weight" in state_dict:
            weight = state_dict.pop("weight").to(_original(model, name).dtype)
            if tuple(weight.shape) != self.shapes[name]:
                raise InvalidArgument(
                    f"{name} of the state dict has another shape than the module's",
                    found={"state dict": tuple(weight.shape), "module": self.shapes[name]},
                )
            for suffix, tensor in self.stored(weight).items():
                state_dict[f"weight.{suffix}" if suffix else "weight"] = tensor
        return state_dict

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Compute the weight of a layer from its stored form."""
        name = f"{submodule_name}.weight" if submodule_name else "weight"
        if name in self.shapes and all(f"weight.{suffix}" in state_dict for suffix in self.suffixes):
            stored = {suffix: state_dict.pop(f"weight.{suffix}") for suffix in self.suffixes}
            stored[""] = state_dict["weight"]
            state_dict["weight"] = self.dequantised(stored, self.shapes[name], _original(model, name).dtype)
        return state_dict

    # -- which weights

    def _check_skip(self, layers: Mapping[str, nn.Module]) -> None:
        for pattern in self.skip:
            if not any(fnmatchcase(layer, pattern) for layer in layers):
                raise InvalidArgument(
                    f"skip={pattern!r} is not the name of a linear layer of the module",
                    found={"linear layers": ", ".join(layers) or "none"},
                )

    def _refusal(
        self, model: Any, layer: str, name: str, owners: Mapping[int, list[tuple[str, nn.Module]]]
    ) -> Refusal | None:
        """Return why the weight of a layer stays as it is, or None."""
        # a parametrised weight is not read: that would compute it, and spectral_norm writes its buffers then
        own = get_thunder_module(model).get_submodule(layer).named_parameters(recurse=False)
        if "weight" not in dict(own):
            return Refusal("parameter", "the weight is not a parameter, but is computed from others")
        weight = model.get_parameter(name)
        layers = (layer, *(n.rpartition(".")[0] for n, _ in owners.get(id(weight), ())))
        if any(fnmatchcase(each, pattern) for each in layers for pattern in self.skip):
            return Refusal("skip", "skip= names the layer, or one with the same weight")
        tied = [n for n, owner in owners.get(id(weight), ()) if not isinstance(owner, nn.Linear)]
        if tied:
            return Refusal("tied", f"the weight is also {tied[0]}, which is not a linear layer's")
        if weight.dtype not in COMPUTED:
            return Refusal(
                "dtype", "what is stored is in float32, bfloat16 or float16", dtype=str(weight.dtype)
            )
        if weight.requires_grad:
            return Refusal(
                "requires_grad",
                "the weight requires grad, and a quantised weight cannot be trained",
            )
        if weight.ndim != 2 or weight.numel() == 0:
            return Refusal("shape", "the weight has no elements", shape=tuple(weight.shape))
        return self.refusal(weight)


def _assigned(prologue: TraceCtx) -> set[str]:
    """Return the names of the tensors that a prologue returns for the epilogue, which writes to them."""
    _, of_epilogue = prologue.bound_symbols[-1].args[0]
    return {getattr(value, "name", "") for value in of_epilogue}


def _owners(model: Any) -> dict[int, list[tuple[str, nn.Module]]]:
    """Return the names of each parameter in use and the modules that have it, by its id."""
    owners: dict[int, list[tuple[str, nn.Module]]] = {}
    for path, module in get_thunder_module(model).named_modules(remove_duplicate=False):
        for last, own in module.named_parameters(recurse=False, remove_duplicate=False):
            name = f"{path}.{last}" if path else last
            owners.setdefault(id(model.overrides.get(name, own)), []).append((name, module))
    return owners


def _original(model: Any, name: str) -> Tensor:
    """Return the module's own weight, which a stored form overrides; only its metadata are read."""
    weight: Tensor = get_thunder_module(model).get_parameter(name)
    return weight


def _cast_of(call: BoundSymbol, weights: Mapping[str, BoundSymbol]) -> BoundSymbol | None:
    """Return the computation of the weight of which a call is a cast, or None."""
    while len(call.subsymbols) == 1 and call.sym.id != CAST:
        (call,) = call.subsymbols
    match call.flat_proxy_args, call.flat_proxy_outs:
        case (operand,), (_,) if call.sym.id == CAST and operand.name in weights:
            source = weights[operand.name]
            return source if source.output.name == operand.name else None
    return None
