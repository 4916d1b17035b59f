"""The table of faulty transforms: what is wrong with each, and which case finds it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import thunder
import thunder.torch as ltorch
from testing.example_transforms import Hooked, Scaled, after_linear, linear_layers
from thunder.core import prims
from thunder.core.rewrite import add_input, module_tensors, replace_calls, replace_input
from thunder.core.trace import TraceTag, tracectx


@dataclass(frozen=True)
class TransformFault:
    """A faulty transform, the case that finds it (`"values-layers"`), and a part of what is said."""

    transform: type[thunder.Transform]
    case: str
    text: str


FAULTS: dict[str, TransformFault] = {}


def fault(what: str, case: str, text: str) -> Any:
    """Return the decorator that enters a class."""

    def decorate(cls: type[thunder.Transform]) -> type[thunder.Transform]:
        FAULTS[what] = TransformFault(cls, case, text)
        return cls

    return decorate


# -- what is computed ----------------------------------------------------------------------------------------


@fault("results off by a little", "values-layers", "the results are wrong")
class OffByALittle(Hooked):
    def change(self, prologue: Any, computation: Any) -> Any:
        return after_linear(lambda y: y + 0.1)(computation)


@fault("results in another dtype", "values-layers", "replaced by results of another form")
class InFloat64(Hooked):
    def change(self, prologue: Any, computation: Any) -> Any:
        return after_linear(lambda y: y.to(torch.float64).to(torch.float32).to(torch.float64))(computation)


@fault("two inputs exchanged", "values-layers", "inputs of the computation in another order")
class ExchangesInputs(Scaled):
    """The weight is divided by 12, and multiplied by 2, 2 and 3."""

    def transform_module(self, model: Any) -> None:
        super().transform_module(model)
        for name in self.names:
            model.get_parameter(name).data.div_(2)

    def change(self, prologue: Any, computation: Any) -> None:
        for name in self.names:
            by2, by3 = f"{name}.by2", f"{name}.by3"
            replace_input(prologue, computation, name, lambda w, a, b: w * a * a * b, by2, by3)
            *others, a, b = computation.args
            computation.args[:] = [*others, b, a]


@fault("inputs that are shifted", "values-layers", "a program with it fails")
class ShiftsInputs(Hooked):
    def change(self, prologue: Any, computation: Any) -> None:
        computation.args[:] = [*computation.args[1:], computation.args[0]]


@fault("a buffer that drifts from call to call", "values-layers", "the results are wrong")
class Drifts(Hooked):
    def transform_module(self, model: Any) -> None:
        model.override("calls", torch.zeros(()))

    def change(self, prologue: Any, computation: Any) -> Any:
        calls, end = add_input(prologue, computation, "calls"), None
        computation = after_linear(lambda y: y + calls)(computation)
        end = computation.bound_symbols.pop()
        with tracectx(computation):
            prims.copy_(ltorch.add(calls, 0.5), calls, grad_enabled=False)
        computation.bound_symbols.append(end)
        return computation


class _Drops(thunder.Transform):
    """Drops checks from the prologue."""

    def is_dropped(self, call: Any) -> bool:
        raise NotImplementedError

    def transform_traces_pre_prologue(self, prologue: Any, computation: Any, epilogue: Any) -> Any:
        prologue.bound_symbols = [call for call in prologue.bound_symbols if not self.is_dropped(call)]
        return prologue, computation, epilogue


@fault("checks of numbers are dropped", "values-numbers", "the results are wrong")
class DropsNumbers(_Drops):
    def is_dropped(self, call: Any) -> bool:
        return call.sym.name in ("check_literal_like", "check_number_type_and_value")


@fault("checks of the mode are dropped", "modes-numbers", "the results are wrong")
class DropsTheMode(_Drops):
    def is_dropped(self, call: Any) -> bool:
        return call.sym.name == "check_same_object" and any(x is True or x is False for x in call.args)


@fault("the mode is read without a check", "modes-layers", "the results are wrong")
class ReadsTheModeUnguarded(Hooked):
    def transform_module(self, model: Any) -> None:
        self.model = model._model

    def change(self, prologue: Any, computation: Any) -> Any:
        return after_linear(lambda y: y * 2 if self.model.training else y)(computation)


@fault("results are wrong where gradients are", "modes-layers", "the results are wrong")
class WrongInTraining(thunder.Transform):
    def transform_trace_pre_execution(self, trace: Any) -> Any:
        if TraceTag.AUGMENTED_FORWARD in trace.tags:
            return after_linear(lambda y: y * 1.5)(trace)
        return trace


@fault("sizes are fixed", "sizes-layers", "compiled for single sizes")
class FixesSizes(Hooked):
    def change(self, prologue: Any, computation: Any) -> Any:
        return after_linear(lambda y: y * (int(y.shape[0]) / int(y.shape[0])))(computation)


@fault("results are wrong for symbolic sizes", "sizes-layers", "the results are wrong")
class WrongForSymbols(Hooked):
    def change(self, prologue: Any, computation: Any) -> Any:
        return after_linear(lambda y: y if isinstance(y.shape[0], int) else y * 1.5)(computation)


@fault("a tied weight is scaled for one of its uses", "values-attention", "the results are wrong")
class ScalesOneUse(Hooked):
    """The weight of a linear layer is stored divided by 6; an embedding reads it, too."""

    def transform_module(self, model: Any) -> None:
        for name in linear_layers(model):
            weight = model.get_parameter(name).detach()
            model.override(name, nn.Parameter(weight / 6))

    def change(self, prologue: Any, computation: Any) -> Any:
        def replaced(call: Any) -> Any:
            if call.sym.id != "torch.nn.functional.linear":
                return None
            x, w, *bias = call.args
            return ltorch.linear(x, ltorch.mul(w, 6.0), *bias)

        return replace_calls(computation, replaced, nested=True)


# -- gradients -----------------------------------------------------------------------------------------------


@fault("gradients are cut", "training-layers", "the gradients")
class Detaches(Hooked):
    def change(self, prologue: Any, computation: Any) -> Any:
        return after_linear(lambda y: y.detach())(computation)


@fault("gradients are halved", "training-layers", "the gradients")
class Halves(Hooked):
    def change(self, prologue: Any, computation: Any) -> Any:
        return after_linear(lambda y: y * 0.5 + y.detach() * 0.5)(computation)


@fault("gradients of stored weights are halved", "training-layers", "the gradients of arguments are wrong")
class HalvesOfStored(Scaled):
    def transform_traces_pre_prologue(self, prologue: Any, computation: Any, epilogue: Any) -> Any:
        self.change(prologue, computation)
        return prologue, after_linear(lambda y: y * 0.5 + y.detach() * 0.5)(computation), epilogue


# -- the module and its state --------------------------------------------------------------------------------


@fault("the module is frozen", "module-layers", "changes the module that is compiled")
class FreezesTheModule(thunder.Transform):
    def transform_module(self, model: Any) -> None:
        model._model.requires_grad_(False)


@fault("the weights of the module are scaled", "module-layers", "changes the module that is compiled")
class ScalesTheModule(thunder.Transform):
    def transform_module(self, model: Any) -> None:
        for p in model._model.parameters():
            p.data.mul_(1.5)


@fault("the module is in another mode", "module-layers", "changes the module that is compiled")
class Evaluates(thunder.Transform):
    def transform_module(self, model: Any) -> None:
        model._model.eval()


@fault("the module gets a hook", "module-layers", "changes the module that is compiled")
class HooksTheModule(thunder.Transform):
    def transform_module(self, model: Any) -> None:
        model._model.register_forward_hook(lambda *args: None)


@fault("the default dtype is changed", "module-layers", "it leaves the default dtype changed")
class ChangesTheDefault(thunder.Transform):
    def transform_traces_pre_prologue(self, prologue: Any, computation: Any, epilogue: Any) -> Any:
        torch.set_default_dtype(torch.float64)
        return prologue, computation, epilogue


@fault("the state is that which is stored", "state-layers", "original_state_dict has other tensors")
class ForgetsTheState(Scaled):
    transform_state_dict_for_submodule = thunder.Transform.transform_state_dict_for_submodule
    reverse_transform_state_dict_for_submodule = thunder.Transform.reverse_transform_state_dict_for_submodule


@fault("the state has stored values", "state-layers", "the values of original_state_dict are wrong")
class ForgetsTheFactor(Scaled):
    def _changed(self, owner: str, state: dict[str, Any], factor: float) -> dict[str, Any]:
        return super()._changed(owner, state, 1.0)


@fault("the state is that of the first moment", "state-layers", "the values of original_state_dict are wrong")
class RemembersTheState(thunder.Transform):
    def transform_module(self, model: Any) -> None:
        self.first = {k: t.clone() for k, t in model._model.state_dict().items()}

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, owner: str, state: dict[str, Any]
    ) -> Any:
        return {k: self.first[f"{owner}.{k}" if owner else k] for k in state}


@fault("a buffer is lost", "state-numbers", "original_state_dict has other tensors")
class LosesABuffer(thunder.Transform):
    def reverse_transform_state_dict_for_submodule(
        self, model: Any, owner: str, state: dict[str, Any]
    ) -> Any:
        return {k: t for k, t in state.items() if k != "scale"}


@fault(
    "a weight is a constant of the program",
    "state-layers",
    "the results after loading other values are wrong",
)
class BakesTheScale(Hooked):
    def transform_module(self, model: Any) -> None:
        self.module = model._model

    def change(self, prologue: Any, computation: Any) -> Any:
        largest = float(next(iter(self.module.parameters())).detach().abs().max())
        (weight,) = (p for p in computation.args if p.name == "t_0_weight")
        return after_linear(lambda y: y * (largest / ltorch.amax(ltorch.abs(weight.detach()))))(computation)


# -- copies and repetition -----------------------------------------------------------------------------------


@fault("the first module is held", "copies-layers", "the results of a copy are wrong")
class HoldsTheFirstModule(Hooked):
    def transform_module(self, model: Any) -> None:
        self.model = model

    def change(self, prologue: Any, computation: Any) -> Any:
        own = self.model.get_parameter(next(iter(module_tensors(prologue))))
        is_copy = all(own is not t for t in _parameters_of(prologue))
        return after_linear(lambda y: y + 1 if is_copy else y)(computation)


def _parameters_of(prologue: Any) -> list[Any]:
    roots = [b.args[0].value for b in prologue.bound_symbols if b.sym.name == "unpack_function_obj"]
    return [p for root in roots if isinstance(root, nn.Module) for p in root.parameters()]


@fault("compiles are counted", "repeats-layers", "give different programs")
class CountsCompiles(Hooked):
    numbers = itertools.count(1)

    def change(self, prologue: Any, computation: Any) -> Any:
        return after_linear(lambda y: y + 1e-9 * next(self.numbers))(computation)


@fault("the first computation is kept", "modes-numbers", "")
class KeepsTheFirst(thunder.Transform):
    first: Any = None

    def transform_traces_pre_prologue(self, prologue: Any, computation: Any, epilogue: Any) -> Any:
        self.first = self.first or computation
        return prologue, self.first, epilogue
