"""A package that teaches thunder a library: programs are as eager, guarded, and their writes are repeated."""

from __future__ import annotations

import ast
import copy
import inspect
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

import thunder
from plugins import toy_library as toy
from plugins import toy_rules
from plugins.toy_library import Grid
from thunder.base.errors import PluginError
from thunder.core.session import COMPUTES, Handler, LookasideTable, SessionRules
from thunder.plugins import get_manager, hookimpl

manager = get_manager()


@pytest.fixture(autouse=True)
def _scale() -> Iterator[None]:
    yield
    toy.set_scale(1.0)


@pytest.fixture
def package() -> Iterator[None]:
    with manager.temporary(toy_rules, "toy"):
        yield


class World:
    """What a program of grids starts with."""

    def __init__(self, elements: tuple[float, ...] = (1.0, 2.0, 3.0), unit: str = "m", scale: float = 2.0):
        self.grid, self.scale = Grid(elements, unit), scale

    def run(self, program: Callable[..., Any]) -> Any:
        """Return what a program returns or raises, and what it leaves behind."""
        toy.set_scale(self.scale)
        try:
            returned = program(torch.arange(3, dtype=torch.float64), self.grid)
        except (ValueError, RuntimeError) as error:  # thunder's for shapes is one of torch's
            returned = "RuntimeError" if isinstance(error, RuntimeError) else "ValueError"
        return plain(returned), plain(self.grid), toy.get_scale()


def plain(value: Any) -> Any:
    if isinstance(value, Grid):
        return list(value.elements), value.unit
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value


#: one statement of a program: of a tensor and the grids so far, it returns the next tensor
STATEMENTS: dict[str, Callable[[Any, list[Grid]], Any]] = {
    "make": lambda x, grids: (grids.append(toy.ones(3, grids[-1].unit)), x)[1],
    "make in another unit": lambda x, grids: (grids.append(toy.ones(len(grids[0]), "s")), x)[1],
    "add": lambda x, grids: (grids.append(grids[-1] + grids[0]), x)[1],
    "scale": lambda x, grids: (grids.append(grids[-1] * 0.5), x)[1],
    "read the scale": lambda x, grids: x * toy.get_scale(),
    "write the scale": lambda x, grids: (toy.set_scale(toy.get_scale() + 1), x)[1],
    "sum": lambda x, grids: x + toy.total(grids[-1]),
    "tensor": lambda x, grids: x + toy.to_tensor(grids[-1]),
    "grid of a tensor": lambda x, grids: (grids.append(toy.from_tensor(x, grids[-1].unit)), x)[1],
    "elements": lambda x, grids: x * grids[-1].elements[1],
    "decide": lambda x, grids: x + 1 if toy.total(grids[-1]) > 8 else x - 1,
    "write a unit": lambda x, grids: (setattr(grids[0], "unit", grids[0].unit + "m"), x)[1],
}


def program_of(names: list[str]) -> Callable[[Any, Grid], Any]:
    steps = [STATEMENTS[name] for name in names]

    def program(x: Any, grid: Grid) -> Any:
        grids = [grid]
        for step in steps:
            x = step(x, grids)
        return x, grids, grids[-1]

    return program


#: the operators that stand for functions of the library
CALLED = ("full", "add", "sum", "item")
#: how a world differs in a later call
CHANGES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "the elements": {"elements": (4.0, -1.0, 0.5)},
    "the number of elements": {"elements": (4.0, 2.0)},
    "the unit": {"unit": "s"},
    "the state of the library": {"scale": 3.0},
}


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.usefixtures("package")
def test_a_random_program_of_grids_is_as_eager_in_each_world(seed: int) -> None:
    chosen = random.Random(seed)
    names = chosen.choices(list(STATEMENTS), k=chosen.randrange(2, 7))
    program = program_of(names)
    compiled = thunder.jit(program, executors=["torch"])
    for change in chosen.choices(list(CHANGES), k=4):
        assert World(**CHANGES[change]).run(compiled) == World(**CHANGES[change]).run(program), (
            names,
            change,
        )


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.usefixtures("package")
def test_a_change_of_what_the_program_has_read_is_a_miss_and_no_other(change: str) -> None:
    program = program_of(["make", "add", "tensor"])
    compiled = thunder.jit(program, executors=["torch"])
    World().run(compiled)
    assert World(**CHANGES[change]).run(compiled) == World(**CHANGES[change]).run(program)
    assert thunder.cache_misses(compiled) == (1 if change in ("nothing", "the elements") else 2)


@pytest.mark.usefixtures("package")
def test_functions_of_the_library_are_operators_of_the_trace_and_writes_are_of_the_epilogue() -> None:
    program = program_of(["make", "add", "sum", "write the scale"])
    compiled = thunder.jit(program, executors=["torch"])
    result = World().run(compiled)
    assert result[2] == 3.0
    names = [bsym.sym.name for bsym in thunder.last_traces(compiled)[0].bound_symbols]
    assert [name for name in names if name in CALLED] == ["full", "add", "sum", "item", "add"]
    epilogue = str(thunder.last_epilogue_traces(compiled)[-1])
    assert "set_scale(3.0)" in epilogue
    assert epilogue.count("from_tensor(") == 2
    assert "check_tensor_shape_and_metadata(grid" in str(thunder.last_prologue_traces(compiled)[0])


@pytest.mark.usefixtures("package")
def test_grids_that_the_program_returns_twice_are_one_object_and_those_of_the_caller_are_his() -> None:
    def program(grid: Grid) -> Any:
        made = grid * 2.0
        return made, [made, grid], {"grid": grid}

    grid = Grid([1.0])
    made, (same, first), others = thunder.jit(program, executors=["torch"])(grid)
    assert made is same
    assert first is grid
    assert others["grid"] is grid


@pytest.mark.usefixtures("package")
def test_code_that_runs_as_it_is_does_not_read_state_that_the_epilogue_writes() -> None:
    def reads(x: torch.Tensor) -> torch.Tensor:
        return x * toy.get_scale()

    def program(x: torch.Tensor) -> torch.Tensor:
        toy.set_scale(5.0)
        return reads(x)

    with pytest.raises(thunder.UnsupportedProgram, match="may read the scale of toy, which the program has"):
        thunder.jit(program, opaque=[reads])(torch.ones(2))


class Scaled(torch.autograd.Function):
    """A function whose backward reads state, so that it runs as it is."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, grid: Grid) -> torch.Tensor:
        ctx.grid = grid * 2.0
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        return g * toy.to_tensor(ctx.grid) * toy.get_scale(), None


#: programs that look into a grid where no rule does
WITHOUT_RULES: dict[str, Callable[[torch.Tensor, Grid], Any]] = {
    "memory of a grid of the user": lambda x, grid: x * max(grid._memory),
    "memory of a grid that is made": lambda x, grid: x * max((grid * 2.0)._memory),
    "the object as a dict": lambda x, grid: x * len(vars(grid * 2.0)),
    "a copy of the object alone": lambda x, grid: x * toy.total(copy.copy(grid * 2.0)),
    "a copy": lambda x, grid: x * toy.total(copy.deepcopy(grid * 2.0)),
    "opaque": lambda x, grid: opaque_total(x, grid),
    "opaque, of a grid that is made": lambda x, grid: opaque_total(x, grid * 2.0),
    "a backward": lambda x, grid: Scaled.apply(x, grid),
}


def opaque_total(x: torch.Tensor, grid: Grid) -> Any:
    return x * toy.total(grid)


@pytest.mark.parametrize("name", WITHOUT_RULES)
@pytest.mark.usefixtures("package")
def test_code_without_a_rule_sees_what_eager_sees_or_the_program_is_refused(name: str) -> None:
    program = WITHOUT_RULES[name]
    compiled = thunder.jit(program, opaque=[opaque_total], executors=["torch"])
    for elements in ([1.0, 2.0], [5.0, 2.0]):
        results = []
        for run in (program, compiled):
            x = torch.ones(2, dtype=torch.float64, requires_grad=True)
            try:
                y = run(x, Grid(elements))
                y.sum().backward()
                results.append((y.tolist(), x.grad))
            except thunder.UnsupportedProgram:
                results.append(results[0])
        assert str(results[0]) == str(results[1])


def test_without_the_package_the_program_is_refused() -> None:
    with pytest.raises(thunder.UnsupportedProgram, match="c_double, whose content thunder cannot read"):
        thunder.jit(lambda x: x * toy.get_scale())(torch.ones(2))


def test_the_package_imports_public_modules_alone() -> None:
    tree = ast.parse(inspect.getsource(toy_rules))
    modules = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module is not None}
    own = {module for module in modules if module.startswith("thunder")}
    assert own == {"thunder.core", "thunder.core.session", "thunder.plugins"}


# -- registering ---------------------------------------------------------------------------------------------


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class Rules:
    """A plugin whose hook returns what the constructor received."""

    def __init__(self, *rules: Any) -> None:
        self.rules = rules

    @hookimpl
    def thunder_session_rules(self) -> tuple[Any, ...]:
        return self.rules


def table_of(fn: Any, rule: Any = lambda session, args, kwargs: session.call(torch.sin, args, kwargs)) -> Any:
    table = LookasideTable(COMPUTES)
    table.lookaside(fn)(rule)
    return table


def named(module: str, name: str) -> LookasideTable:
    table = LookasideTable(COMPUTES)
    table.named_lookaside(module, name)(lambda session, args, kwargs: session.call(torch.sin, args, kwargs))
    return table


def registered(name: str, **fields: Any) -> AbstractContextManager[None]:
    return manager.temporary(Rules(SessionRules("acme", **fields)), name)


def test_a_program_is_compiled_again_when_rules_come_and_not_when_they_go() -> None:
    compiled, x = thunder.jit(lambda x: doubled(x) + 1), torch.ones(2)
    assert torch.equal(compiled(x), x + 2)
    with registered("acme", lookasides=table_of(doubled)):
        torch.testing.assert_close(compiled(x), torch.sin(x) + 1)
        (reason,) = thunder.last_recompile_reasons(compiled)
        assert reason.fact == "plugins with session rules"
    assert torch.equal(compiled(x), x + 2)
    assert thunder.cache_misses(compiled) == 2


def test_a_function_of_a_module_that_is_imported_later_has_its_rule(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme_later.py").write_text("class Box:\n    def open(self, x):\n        return x * 2\n")
    monkeypatch.syspath_prepend(tmp_path)

    def program(x: torch.Tensor) -> torch.Tensor:
        import acme_later  # type: ignore[import-not-found]

        return acme_later.Box.open(x)  # type: ignore[no-any-return]

    with registered("acme", lookasides=named("acme_later", "Box.open")):
        x = torch.ones(2)
        torch.testing.assert_close(thunder.jit(program)(x), torch.sin(x))
        # another module's function of this name is another one
        other = type(sys)("acme_other")
        exec((tmp_path / "acme_later.py").read_text(), vars(other))
        assert torch.equal(thunder.jit(lambda x: other.Box().open(x))(x), x * 2)


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        ({"lookasides": table_of(doubled)}, {"lookasides": table_of(doubled)}, "doubled"),
        ({"lookasides": named("m", "f")}, {"lookasides": named("m", "f")}, "m.f"),
        ({"handlers": {Grid: Handler()}}, {"handlers": {Grid: Handler()}}, "toy_library.Grid"),
        ({"kinds": (toy_rules.Scale,)}, {"kinds": (toy_rules.Scale,)}, "toy_rules.Scale"),
    ],
)
def test_two_packages_with_a_rule_for_one_thing_are_an_error(first: Any, second: Any, what: str) -> None:
    with (
        registered("acme", **first),
        registered("other", **second),
        pytest.raises(PluginError, match=rf"plugins 'acme' and 'other' both have a rule for [\w.]*{what}\n"),
    ):
        thunder.jit(lambda x: x + 1)(torch.ones(2))


@pytest.mark.parametrize(
    "fields",
    [
        {"lookasides": table_of(print)},
        {"lookasides": named("tqdm.std", "tqdm.close")},
        {"handlers": {list: Handler()}},
    ],
)
def test_no_package_replaces_a_rule_of_thunder(fields: Any) -> None:
    with registered("acme", **fields), pytest.raises(PluginError, match="and 'acme' both have a rule for"):
        thunder.jit(lambda x: x + 1)(torch.ones(2))


def test_two_rules_of_a_package_for_one_function_are_an_error() -> None:
    with pytest.raises(thunder.core.errors.InvalidArgument, match=r"two tables have a rule for .*\.doubled"):
        LookasideTable.merged([table_of(doubled), table_of(doubled)])
    twice = Rules(
        SessionRules("a", lookasides=table_of(doubled)), SessionRules("b", lookasides=table_of(doubled))
    )
    with manager.temporary(twice, "acme"), pytest.raises(PluginError, match="'acme' has two rules for"):
        thunder.jit(lambda x: x + 1)(torch.ones(2))


@pytest.mark.parametrize("fields", [{"lookasides": 3}, {"handlers": {list: 3}}, {"kinds": (Grid,)}])
def test_rules_of_another_type_are_refused(fields: Any) -> None:
    with pytest.raises(thunder.core.errors.InvalidArgument, match="SessionRules 'acme' received"):
        SessionRules("acme", **fields)


def test_what_a_hook_returns_beside_rules_is_an_error() -> None:
    with (
        manager.temporary(Rules(table_of(doubled)), "acme"),
        pytest.raises(PluginError, match="not a SessionRules"),
    ):
        thunder.jit(lambda x: x + 1)(torch.ones(2))


def test_no_program_is_traced_without_the_rules_of_thunder() -> None:
    with (
        manager.disabled("session"),
        pytest.raises(thunder.core.errors.InvalidArgument, match="without the plugin 'session'"),
    ):
        thunder.jit(lambda x: x + 1)(torch.ones(2))
