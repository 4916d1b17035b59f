"""The ways to run a model that the tables compare."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import torch
from torch import nn

__all__ = ["WAYS", "Way"]

Model = Callable[..., Any]


@dataclass(frozen=True)
class Way:
    """A way to run a model.

    `prepare` imports what the way needs and returns the function that compiles. A way of the peer runs in the
    interpreter of `--peer-python`.
    """

    label: str
    prepare: Callable[[], Callable[[nn.Module], Model]]
    of_peer: bool = False
    inference_only: bool = False


def _eager() -> Callable[[nn.Module], Model]:
    """Run the model as it is."""
    return lambda model: model


def _compile(backend: str) -> Callable[[], Callable[[nn.Module], Model]]:
    """Return a way that runs torch.compile with a backend."""

    def prepare() -> Callable[[nn.Module], Model]:
        # Imported here, not above: no way pays for the libraries of another one.
        importlib.import_module("torch._inductor.compile_fx" if backend == "inductor" else "torch._dynamo")

        def compiled(model: nn.Module) -> Model:
            # The code of a model's class is shared: guards of an earlier workload would be tried first.
            torch.compiler.reset()
            result: Model = torch.compile(model, backend=backend)
            return result

        return compiled

    return prepare


def _thunder(**options: Any) -> Callable[[], Callable[[nn.Module], Model]]:
    """Return a way that compiles with thunder and torch's kernels."""

    def prepare() -> Callable[[nn.Module], Model]:
        # Imported here, not above: the peer's interpreter has another package of this name.
        import thunder

        executors = [ex for ex in thunder.get_default_executors() if ex.name != "inductor"]
        return lambda model: thunder.jit(model, executors=executors, **options)

    return prepare


def _thunder_inductor(**options: Any) -> Callable[[], Callable[[nn.Module], Model]]:
    """Return a way that compiles with thunder and thunder-inductor."""

    def prepare() -> Callable[[nn.Module], Model]:
        # Imported here, not above: the peer's interpreter has another package of this name.
        import thunder

        executors = thunder.get_default_executors()
        if "inductor" not in [executor.name for executor in executors]:
            raise RuntimeError("thunder-inductor is not installed, or it is disabled")
        return lambda model: thunder.jit(model, executors=executors, **options)

    return prepare


def _bare() -> Callable[[nn.Module], Model]:
    """Call the function that thunder generated on what its prologue returned, without checking guards."""
    # Imported here, not above: the peer's interpreter has another package of this name.
    import thunder

    def compiled(model: nn.Module) -> Model:
        guarded = thunder.jit(model)
        arguments: list[Any] = []
        functions: list[Model] = []

        def call(*inputs: Any) -> Any:
            if not functions:
                guarded(*inputs)
                stats = thunder.compile_stats(guarded)
                assert stats is not None, "what jit returns has statistics"
                entry = stats.interpreter_cache[-1]
                arguments.extend(entry.prologue_fn(*inputs)[0])
                functions.append(entry.computation_fn)
            return functions[0](*arguments)

        return call

    return compiled


def _peer(*executors: str) -> Callable[[], Callable[[nn.Module], Model]]:
    """Return a way that compiles with lightning-thunder, with executors before its default ones."""

    def prepare() -> Callable[[nn.Module], Model]:
        peer = _lightning_thunder()
        chosen = [*(peer.get_executor(name) for name in executors), *peer.get_default_executors()]
        return lambda model: peer.jit(model, executors=chosen)

    return prepare


#: methods of named tensors that lightning-thunder 0.2.6 lists and torch 2.13 does not have any more
NAMED_TENSOR_METHODS: Final = ("align_as", "align_to", "has_names", "refine_names", "rename", "rename_")


def _lightning_thunder() -> ModuleType:
    """Return lightning-thunder, imported; methods that this torch has removed get substitutes that raise."""

    def removed(name: str) -> Callable[..., Any]:
        def method(*args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError(f"torch {torch.__version__} has no Tensor.{name}")

        method.__name__ = method.__qualname__ = name
        return method

    for name in NAMED_TENSOR_METHODS:
        if not hasattr(torch.Tensor, name):
            setattr(torch.Tensor, name, removed(name))
    import thunder

    return thunder


WAYS: Final[dict[str, Way]] = {
    "eager": Way("eager", _eager),
    "compile": Way("torch.compile", _compile("inductor")),
    "thunder-torch": Way("thunder, torch", _thunder()),
    "thunder-inductor": Way("thunder, inductor", _thunder_inductor()),
    "thunder-pointwise": Way('thunder, inductor "pointwise"', _thunder_inductor(inductor_mode="pointwise")),
    "thunder-full": Way('thunder, inductor "full"', _thunder_inductor(inductor_mode="full")),
    "thunder-frozen": Way("thunder, inductor, frozen", _thunder_inductor(frozen=True)),
    "thunder-same-input": Way(
        'thunder, inductor, "same input"', _thunder_inductor(cache="same input"), inference_only=True
    ),
    "thunder-bare": Way("thunder, bare function", _bare, inference_only=True),
    "dynamo": Way('torch.compile, "eager"', _compile("eager")),
    "aot": Way('torch.compile, "aot_eager"', _compile("aot_eager")),
    "lightning": Way("lightning-thunder", _peer(), of_peer=True),
    "lightning-inductor": Way("lightning-thunder, torchcompile_cat", _peer("torchcompile_cat"), of_peer=True),
}
"""Name → the way."""
