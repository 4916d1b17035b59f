"""Each statement knows the module in whose forward it was recorded; eager's hooks are the judge."""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from litgpt.model import apply_rope
from torch import nn
from torch.overrides import TorchFunctionMode

import thunder
from models import litgpt_zoo, transformers_zoo
from thunder.core.trace import TraceCtx, dump, load
from thunder.ir.trace import Source

#: functions that a trace records by the name under which a torch function mode sees them
COMPARED = frozenset(
    (
        *("linear", "layer_norm", "embedding", "gelu", "silu", "tanh", "softmax", "matmul", "cat", "rsqrt"),
        *("scaled_dot_product_attention", "cos", "sin"),
    )
)

Modules = dict[str, list[str]]


class Seen(TorchFunctionMode):
    """Notes the names of the calls of torch's functions, each with the module whose forward runs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.names = {module: name for name, module in model.named_modules()}
        self.running: list[str] = []
        self.modules: Modules = defaultdict(list)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in COMPARED:
            self.modules[func.__name__].append(self.running[-1])
        return func(*args, **(kwargs or {}))

    @contextmanager
    def watching(self) -> Iterator[None]:
        before = nn.modules.module.register_module_forward_pre_hook(
            lambda module, args: self.running.append(self.names.get(module, "made in a forward"))
        )
        after = nn.modules.module.register_module_forward_hook(
            lambda module, args, result: self.running.pop() and None
        )
        try:
            with self:
                yield
        finally:
            before.remove()
            after.remove()


def modules_in_eager(model: nn.Module, *args: Any, **kwargs: Any) -> Modules:
    seen = Seen(model)
    with seen.watching():
        model(*args, **kwargs)
    return dict(seen.modules)


def recorded(program: Callable[..., Any], *args: Any, **kwargs: Any) -> TraceCtx:
    """The program as it was acquired."""
    compiled = thunder.jit(program, executors=["torch"])
    compiled(*args, **kwargs)
    return thunder.last_traces(compiled)[0]


def modules_of(trace: TraceCtx, only: frozenset[str] | None = COMPARED) -> Modules:
    modules: Modules = defaultdict(list)
    for call in trace.bound_symbols:
        if call.source is not None and (only is None or call.sym.name in only):
            modules[call.sym.name].append(call.source.module)
    return dict(modules)


@pytest.mark.parametrize("variant", ["llama", "pythia", "falcon", "gemma2"])
def test_litgpts_statements_have_the_modules_of_eager(variant: str) -> None:
    model, args, kwargs = litgpt_zoo.make(variant, 0)
    expected = modules_in_eager(model, *args, **kwargs)
    assert len(expected["linear"]) > 8
    assert modules_of(recorded(model, *args, **kwargs)) == expected


@pytest.mark.parametrize("variant", ["bert", "gpt2", "t5"])
def test_statements_of_transformers_have_the_modules_of_eager(variant: str) -> None:
    model, args, kwargs = transformers_zoo.make(variant, 0)
    model.eval()
    expected = modules_in_eager(model, *args, **kwargs)
    assert expected
    assert modules_of(recorded(model, *args, **kwargs)) == expected


def test_a_function_names_modules_as_it_reaches_them() -> None:
    model, args, kwargs = litgpt_zoo.make("llama", 0)
    expected = {
        name: [f"model.{module}" for module in modules]
        for name, modules in modules_in_eager(model, *args, **kwargs).items()
    }
    assert modules_of(recorded(lambda tokens: model(tokens), *args)) == expected
    assert modules_of(recorded(lambda model, tokens: model(tokens), model, *args)) == expected
    assert modules_of(recorded(lambda tokens, *, model: model(tokens), *args, model=model)) == expected


class Block(nn.Module):
    """Its parts are used in a function inside of the forward, so that `self` is in a cell."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gain = nn.Linear(4, 4), nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def scaled(y: torch.Tensor) -> torch.Tensor:
            return y * self.gain

        return scaled(self.first(x)).relu()

    def helper(self, x: torch.Tensor) -> torch.Tensor:
        return x.cos()


def doubled(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def wrapper(*args: Any) -> Any:
        return forward(*args) + forward(*args)

    return wrapper


class Odd(nn.Module):
    """Reaches modules in each way."""

    def __init__(self) -> None:
        super().__init__()
        self.seq = nn.Sequential(Block(), nn.Tanh())
        self.by_name = nn.ModuleDict({"a-b": nn.Linear(4, 4)})
        self.tied = self.seq[0]
        self.plain = [Block()]

    @doubled
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.by_name["a-b"](self.seq(x))
        return self.plain[0](self.tied.helper(x)).sin()


ONCE = {
    "linear": ["seq.0.first", "by_name.a-b", "plain[0].first"],
    "mul": ["seq.0", "plain[0]"],
    "relu": ["seq.0", "plain[0]"],
    "tanh": ["seq.1"],
    "cos": ["seq.0"],
    "sin": [""],
}


def test_names_are_those_of_named_modules_and_attributes() -> None:
    expected = {name: modules * 2 for name, modules in ONCE.items()} | {"add": [""]}
    assert modules_of(recorded(Odd(), torch.randn(2, 4)), None) == expected


class Trainer:
    def __init__(self) -> None:
        self.net, self.nets = Block(), {"other": nn.Linear(4, 4)}

    def step(self, x: torch.Tensor) -> torch.Tensor:
        return self.nets["other"](self.net(x)).exp()


def test_methods_and_partials_name_modules_relative_to_their_object() -> None:
    x = torch.randn(2, 4)
    block = Block()
    expected = {"linear": ["first"], "mul": [""], "relu": [""]}
    assert modules_of(recorded(block, x), None) == expected
    assert modules_of(recorded(block.forward, x), None) == expected
    assert modules_of(recorded(functools.partial(block), x), None) == expected
    assert modules_of(recorded(Trainer().step, x), None) == {
        "linear": ["self.net.first", "self.nets['other']"],
        "mul": ["self.net"],
        "relu": ["self.net"],
        "exp": [""],
    }


def test_a_module_that_the_program_makes_has_the_name_of_the_one_around_it() -> None:
    class Maker(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.Softplus()(x)

    model = nn.Sequential(nn.Identity(), Maker())
    assert modules_of(recorded(model, torch.randn(2)), None) == {"softplus": ["1"]}


def test_a_hook_has_the_module_that_it_belongs_to() -> None:
    model = nn.Sequential(nn.Identity(), Block())
    model.get_submodule("1.first").register_forward_hook(lambda module, args, result: result.sinh())
    assert modules_of(recorded(model, torch.randn(2, 4)), None)["sinh"] == ["1.first"]


def test_equal_blocks_that_are_copied_have_their_own_names() -> None:
    model = nn.Sequential(*(Block() for _ in range(4)))
    expected = [f"{i}.first" for i in range(4)]
    for program in (model, lambda x: model(x)):
        prefix = "" if program is model else "model."
        modules = modules_of(recorded(program, torch.randn(2, 4)), None)
        assert modules["linear"] == [prefix + name for name in expected]
        assert modules["relu"] == [f"{prefix}{i}" for i in range(4)]


def test_a_backward_statement_has_the_module_of_its_forward() -> None:
    model = nn.Sequential(*(Block() for _ in range(3)))
    compiled = thunder.jit(model, executors=["torch"])
    compiled(torch.randn(2, 4, requires_grad=True)).sum().backward()
    backward = thunder.last_backward_traces(compiled)[-1].bound_symbols
    found: dict[str, set[str]] = defaultdict(set)
    for call in backward:
        if call.source is not None:
            for value in call.flat_proxy_args:
                found[value.name].add(call.source.module)
    for i in range(3):
        assert found[f"t_{i}_first_weight"] == {f"{i}.first"}
        assert found[f"t_{i}_gain"] == {str(i)}
    assert {row.module for row in thunder.explain(compiled).rows if row.trace == "backward"} >= {
        name for i in range(3) for name in (str(i), f"{i}.first")
    }


def test_the_text_that_loads_has_the_names_and_the_printed_text_has_not() -> None:
    trace = recorded(Odd(), torch.randn(2, 4))
    assert "seq.0" not in str(trace)
    written = dump(trace)
    assert modules_of(load(written.text, written.constants), None) == modules_of(trace, None)


def sources_of(trace: TraceCtx) -> list[Source]:
    return [call.source for call in trace.bound_symbols if call.source is not None]


class OwnRotary(nn.Module):
    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return apply_rope(x, cos, sin)


def test_a_function_of_a_library_has_the_users_line_and_its_own_inside() -> None:
    x, angles = torch.randn(1, 2, 3, 4), torch.ones(1, 3, 4)
    sources = sources_of(recorded(OwnRotary(), x, angles, angles))
    assert len(sources) > 5
    assert {source.location.text for source in sources} == {"return apply_rope(x, cos, sin)"}
    assert {source.inner.file for source in sources if source.inner} == {inspect.getfile(apply_rope)}


def test_a_model_of_a_library_has_its_own_lines() -> None:
    model, args, _ = litgpt_zoo.make("llama", 0)
    sources = sources_of(recorded(lambda tokens: model(tokens), *args))
    assert {source.file for source in sources} == {inspect.getfile(type(model))}
