"""Compiled functions, methods, partials and callable objects: attributes, binding, copies and pickles."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import types
import weakref
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest
import torch
from torch import nn

import thunder
from soundness.harness import ramp
from thunder.base.langctx import LanguageContext


def plain(x: torch.Tensor, factor: float = 2.0, *, shift: float = 0.0) -> torch.Tensor:
    """Scales and shifts."""
    return x * factor + shift


plain.note = "kept"  # type: ignore[attr-defined]


@thunder.jit
def decorated(x: torch.Tensor) -> torch.Tensor:
    """Doubles."""
    return x * decorated.factor


decorated.factor = 2.0


class Scaler:
    """A callable object."""

    def __init__(self) -> None:
        self.factor = 3.0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor

    def scaled(self, x: torch.Tensor, by: float = 1.0) -> torch.Tensor:
        return x * self.factor * by


class Own(nn.Module):
    """A module whose ``forward`` is replaced in the instance, by itself or by what is compiled of it."""

    def __init__(self, wrap: Callable[[Any], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(ramp(3))
        self.forward = wrap(self.forward)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def unchanged(fn: Any) -> Any:
    return fn


#: callables, made new at each call, for a function that compiles them or leaves them as they are
CALLABLES: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "function": lambda wrap: wrap(plain),
    "method": lambda wrap: wrap(Scaler().scaled),
    "partial": lambda wrap: wrap(functools.partial(plain, factor=5.0)),
    "partial of a method": lambda wrap: wrap(functools.partial(Scaler().scaled, by=2.0)),
    "object": lambda wrap: wrap(Scaler()),
    "forward": lambda wrap: Own(wrap).forward,
}


def _attribute(value: Any) -> Any:
    return value if isinstance(value, str | int | float | tuple | dict | type(None)) else type(value)


NAMES = ("__name__", "__qualname__", "__doc__", "__module__", "__defaults__", "__kwdefaults__", "__code__")
NAMES += ("__func__", "__self__", "func", "keywords", "factor", "note", "absent", "__class__", "__dict__")


def attributes(f: Any) -> Any:
    return [_attribute(getattr(f, name, "nothing")) for name in NAMES]


def inspected(f: Any) -> Any:
    return (
        str(inspect.signature(f)),
        *(ask(f) for ask in (inspect.isfunction, inspect.ismethod, inspect.getdoc)),
        isinstance(f, types.FunctionType),
        isinstance(f, Scaler),
        callable(f),
        sorted(dir(f)),
        weakref.ref(f)() is f,
        f in {f: 1},
        f == f,
    )


def written(f: Any) -> Any:
    """An attribute that is written is read by the next call, where the callable takes it."""
    f.factor = 7.0
    return f(ramp(3)), f.factor, vars(f)["factor"]


def deleted(f: Any) -> Any:
    f.later = 1
    del f.later
    return hasattr(f, "later")


def independent(f: Any, other: Any) -> Any:
    """What both give after the state behind the copy was changed, where it has some."""
    outputs = [other is f, f(ramp(3)), other(ramp(3))]
    owner = getattr(other, "__self__", getattr(getattr(other, "func", other), "__self__", other))
    if isinstance(owner, nn.Module):
        owner.weight.data.mul_(2)
    elif isinstance(owner, Scaler):
        owner.factor = 11.0
    return [*outputs, f(ramp(3)), other(ramp(3))]


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "attributes": attributes,
    "inspected": inspected,
    "written": written,
    "deleted": deleted,
    "shallow copy": lambda f: independent(f, copy.copy(f)),
    "deep copy": lambda f: independent(f, copy.deepcopy(f)),
    "deep copy in a list": lambda f: (lambda both: both[0] is both[1])(copy.deepcopy([f, f])),
    "pickle": lambda f: independent(f, pickle.loads(pickle.dumps(f)))[1:],
    "cloudpickle": lambda f: independent(f, pickle.loads(cloudpickle.dumps(f)))[1:],
    "wraps": lambda f: (functools.wraps(f)(lambda x: f(x) + 1))(ramp(3)),
    "partial": lambda f: functools.partial(f, ramp(3))(),
}


def outcome(operation: Callable[[Any], Any], f: Any) -> Any:
    f(ramp(3))
    try:
        return shown(operation(f))
    except Exception as error:
        return [base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins"]


def shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return [shown(v) for v in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("kind", CALLABLES)
def test_a_compiled_callable_is_what_the_callable_is(kind: str, name: str) -> None:
    expected, found = (outcome(OPERATIONS[name], CALLABLES[kind](w)) for w in (unchanged, thunder.jit))
    try:
        assert found == expected
    finally:
        plain.__dict__.pop("factor", None)


# -- modules that hold compiled methods ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, copy.copy, lambda m: pickle.loads(pickle.dumps(m))],
    ids=["deepcopy", "copy", "pickle"],
)
def test_a_module_with_a_compiled_forward_is_copied_as_one_with_a_bound_forward(copied: Any) -> None:
    outputs = []
    for wrap in (unchanged, thunder.jit):
        model = Own(wrap)
        model(ramp(3))
        other = copied(model)
        with torch.no_grad():
            other.weight.mul_(2)
            outputs.append([model(ramp(3)).tolist(), other(ramp(3)).tolist()])
            other.weight = nn.Parameter(ramp(3) + 1)
            outputs[-1] += [model(ramp(3)).tolist(), other(ramp(3)).tolist()]
    assert outputs[0] == outputs[1]


def test_an_averaged_model_of_a_compiled_forward_computes_with_the_averages() -> None:
    model = Own(thunder.jit)
    average = torch.optim.swa_utils.AveragedModel(model)
    with torch.no_grad():
        model.weight.mul_(3)
        average.update_parameters(model)
        model.weight.mul_(3)
        average.update_parameters(model)
        assert torch.allclose(average(ramp(3)), ramp(3) * (ramp(3) * 3 + ramp(3) * 9) / 2)


# -- class bodies --------------------------------------------------------------------------------------------


def in_a_class(wrap: Callable[[Any], Any]) -> type:
    class Layer(nn.Module):
        """Has compiled members of each kind."""

        act = wrap(Scaler())
        shared = wrap(functools.partial(plain, factor=4.0))
        bound = wrap(Scaler().scaled)
        fixed = staticmethod(wrap(plain))
        made = classmethod(wrap(lambda cls, x: x + len(cls.__name__)))
        direct = wrap(staticmethod(plain))

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(ramp(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

        forward = wrap(forward)

    return Layer


@pytest.mark.parametrize(
    "member", ["act", "shared", "bound", "fixed", "made", "direct", "forward", "__call__"]
)
def test_a_compiled_member_of_a_class_binds_as_the_callable_does(member: str) -> None:
    outputs = []
    for wrap in (unchanged, thunder.jit):
        layer = in_a_class(wrap)()
        for scale in (1.0, 2.0):
            layer.weight.data.mul_(scale)
            f = getattr(layer, member)
            outputs.append([f(ramp(3)).tolist(), str(inspect.signature(f)), inspect.ismethod(f)])
    assert outputs[:2] == outputs[2:]


def test_a_compiled_method_of_a_class_is_found_by_its_statistics_and_inlined_by_a_program() -> None:
    layer = in_a_class(thunder.jit)()
    layer(ramp(3))
    assert thunder.cache_misses(layer.forward) == 1
    assert layer.forward == layer.forward
    outer = thunder.jit(lambda x: layer.forward(x) + layer.act(x))
    assert torch.equal(outer(ramp(3)), layer.forward(ramp(3)) + ramp(3) * 3)
    assert thunder.cache_misses(layer.forward) == 1


# -- compiled callables in compiled programs -----------------------------------------------------------------


def test_an_attribute_of_a_compiled_function_is_a_fact_of_the_program_that_reads_it() -> None:
    assert torch.equal(decorated(ramp(3)), ramp(3) * 2)
    decorated.factor = 5.0
    try:
        assert torch.equal(decorated(ramp(3)), ramp(3) * 5)
    finally:
        decorated.factor = 2.0


def test_a_program_that_writes_an_attribute_of_a_compiled_function_writes_it_at_each_call() -> None:
    @thunder.jit
    def counted(x: torch.Tensor) -> torch.Tensor:
        counted.calls = counted.calls + 1
        if counted.calls > 1 and hasattr(counted, "extra"):
            del counted.extra
        return x * counted.calls

    counted.calls, counted.extra = 0, "x"
    for calls in (1, 2, 3):
        assert torch.equal(counted(ramp(3)), ramp(3) * calls)
        assert counted.calls == calls
        assert hasattr(counted, "extra") is (calls < 2)


def test_a_wrapper_around_a_compiled_function_is_not_taken_for_it() -> None:
    inner = thunder.jit(plain)

    @functools.wraps(inner)
    def more(x: torch.Tensor) -> torch.Tensor:
        return inner(x) + 1

    assert torch.equal(thunder.jit(lambda x: more(x))(ramp(3)), ramp(3) * 2 + 1)
    assert thunder.compile_data(more) is None


def test_methods_of_a_compiled_module_are_traced_where_a_program_calls_them() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Identity()])
            self.scale = 2.0

        def scaled(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

        def __len__(self) -> int:
            return len(self.layers)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scaled(x)

    compiled = thunder.jit(Model())
    method, forward = compiled.scaled, compiled.forward
    programs = (
        lambda x: method(x) + len(compiled),
        lambda x: compiled.scaled(x) + len(compiled),
        lambda x: forward(x) + len(compiled.layers),
        lambda x: compiled(x) + sum(1 for _ in compiled.layers) + 0 * compiled.scale,
        lambda x: compiled.forward(x) + (1.0 if isinstance(compiled, Model) else 0.0) * len(compiled),
    )
    for program in programs:
        outer = thunder.jit(program)
        for scale, layers in ((2.0, 1), (3.0, 2)):
            compiled.scale = scale
            compiled.layers = nn.ModuleList([nn.Identity() for _ in range(layers)])
            assert torch.equal(outer(ramp(3)), ramp(3) * scale + layers)


def test_a_program_that_returns_a_compiled_module_returns_the_module() -> None:
    model = nn.Linear(3, 3)
    compiled = thunder.jit(model)
    outer = thunder.jit(lambda x: (compiled(x), compiled, compiled is model))
    _, returned, same = outer(ramp(2, 3))
    assert returned is model
    assert same is True


def test_the_type_of_a_compiled_callable_is_a_class_of_its_own() -> None:
    compiled = thunder.jit(plain)
    assert type(compiled).__name__ == "CompiledFunction"
    assert compiled.__class__ is types.FunctionType


# -- pickles of settings -------------------------------------------------------------------------------------


class Halved(thunder.Transform):
    """Overrides every weight by half of it."""

    def transform_module(self, model: Any) -> None:
        for name, weight in list(model.named_parameters()):
            model.override(name, nn.Parameter(weight.detach() / 2))


def test_a_pickle_keeps_the_settings() -> None:
    options: dict[str, Any] = {"cache": "no caching", "executors": ["torch"], "sharp_edges": "allow"}
    compiled = thunder.jit(nn.Linear(3, 3), max_cache_entries=3, disable_torch_autograd=True, **options)
    other = pickle.loads(pickle.dumps(compiled))
    first, second = (thunder.compile_data(each) for each in (compiled, other))
    assert first is not None
    assert second is not None
    for name in ("executors_list", "cache_option", "sharp_edges", "disable_torch_autograd_support"):
        assert getattr(first, name) == getattr(second, name)
    assert dict(first.compile_options) == dict(second.compile_options)
    assert torch.equal(other(ramp(2, 3)), compiled(ramp(2, 3)))
    assert not other(ramp(2, 3)).requires_grad


def test_a_pickle_keeps_the_overriding_tensors() -> None:
    compiled = thunder.jit(nn.Linear(3, 3), transforms=[Halved()])
    other = pickle.loads(pickle.dumps(compiled))
    assert torch.equal(other(ramp(2, 3)), compiled(ramp(2, 3)))
    other.overrides["weight"].data.zero_()
    assert not torch.equal(other(ramp(2, 3)), compiled(ramp(2, 3)))
    shared = copy.copy(compiled)
    assert shared.overrides["weight"] is compiled.overrides["weight"]


def _local_transform() -> dict[str, Any]:
    class Local(thunder.Transform):
        pass

    return {"transforms": [Local()]}


def _local_executor() -> dict[str, Any]:
    return {"executors": [thunder.extend.OperatorExecutor("never_registered")]}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("transforms", _local_transform),
        ("executors", _local_executor),
        ("langctx", lambda: {"langctx": LanguageContext("mine")}),
    ],
)
def test_a_setting_that_cannot_be_pickled_is_named(name: str, settings: Callable[[], Any]) -> None:
    for fn in (plain, nn.Linear(3, 3)):
        with pytest.raises(thunder.InvalidArgument, match=name):
            pickle.dumps(thunder.jit(fn, **settings()))


def test_a_decorated_function_is_pickled_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert copy.deepcopy(decorated) is decorated
