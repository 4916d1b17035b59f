"""`thunder.compile`: what recipes and their plugins contribute, in which order, and which names there are."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder.base.errors import InvalidArgument, PluginError, UserError
from thunder.extend import OperatorExecutor
from thunder.plugins import Lookaside, get_manager, hookimpl
from thunder.plugins.not_installed import DOCUMENTED, Provider
from thunder.recipes import POST, PRE


def doubled(x: Any) -> Any:
    return x * 2


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(3.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return doubled(x) * self.weight


class Named(thunder.Transform):
    def __init__(self, name: str) -> None:
        self.name = name


class Adds(thunder.Plugin):
    """A plugin that adds a transform and an executor of this name."""

    def __init__(self, name: str, policy: Any = None) -> None:
        super().__init__(policy)
        self.name = name

    def setup_transforms(self) -> list[Named]:
        return [Named(self.name)]

    def setup_executors(self) -> list[OperatorExecutor]:
        return [OperatorExecutor(self.name)]


class Squares(thunder.Recipe):
    def setup_transforms(self) -> list[Named]:
        return [Named("recipe")]

    def setup_lookasides(self) -> tuple[Lookaside, ...]:
        return (Lookaside(doubled, torch.square),)

    def setup_config(self) -> dict[str, Any]:
        return {"cse": False, "cache": "no caching"}


class Providing:
    """A plugin of thunder that provides recipes."""

    def __init__(self, recipes: Any) -> None:
        self.recipes = recipes

    @hookimpl
    def thunder_recipes(self) -> Any:
        return self.recipes


def providing(recipes: Any, name: str = "providing") -> Any:
    return get_manager().temporary(Providing(recipes), name=name)


@pytest.mark.parametrize("recipe", ["auto", thunder.Recipe()], ids=["auto", "the base recipe"])
def test_core_alone_compiles_as_jit_does(recipe: Any) -> None:
    model, x = Model(), torch.randn(3)
    compiled = thunder.compile(model, recipe)
    assert isinstance(compiled, thunder.ThunderModule)
    assert torch.equal(compiled(x), model(x))
    executors = thunder.compile_data(thunder.jit(model)).executors_list
    assert thunder.compile_data(compiled).executors_list == executors
    assert torch.equal(thunder.compile(doubled)(x), x * 2)


def test_a_recipe_replaces_functions_and_sets_options() -> None:
    x = torch.randn(3, requires_grad=True)
    compiled = thunder.compile(doubled, Squares())
    compiled(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())
    data = thunder.compile_data(compiled)
    assert data.compile_options["cse"] is False
    assert thunder.cache_option(compiled) is thunder.CACHE_OPTIONS.NO_CACHING
    assert thunder.explain(compiled).replaced[0].provided_by.startswith("recipe Squares (")
    assert torch.equal(thunder.jit(doubled)(x), x * 2)


def test_plugins_come_before_and_after_the_recipe_by_their_policy() -> None:
    recipe = Squares(plugins=[Adds("own_pre", PRE), Adds("own_post", POST)])
    compiled = thunder.compile(doubled, recipe, [Adds("post", POST), Adds("pre")])
    assert [t.name for t in thunder.list_transforms(compiled)] == [
        "own_pre",
        "pre",
        "recipe",
        "own_post",
        "post",
    ]
    names = [ex.name for ex in thunder.compile_data(compiled).executors_list]
    assert names[:4] == ["own_pre", "pre", "own_post", "post"]
    assert names[-2:] == ["torch", "python"]


def test_names_are_those_that_packages_provide() -> None:
    with providing({"squares": Squares, "base": thunder.Recipe, "empty": thunder.Plugin}):
        assert thunder.recipes.recipe_names() == ("base", "empty", "squares")
        x = torch.randn(3)
        assert torch.equal(thunder.compile(doubled, "squares", "empty")(x), x.square())
        with pytest.raises(InvalidArgument, match=r"no recipe 'square'\. Did you mean 'squares'"):
            thunder.compile(doubled, "square")
        with pytest.raises(InvalidArgument, match="'empty' is a plugin of recipes"):
            thunder.compile(doubled, "empty")
        with pytest.raises(InvalidArgument, match="'squares' is a recipe"):
            thunder.compile(doubled, plugins="squares")
    with pytest.raises(InvalidArgument, match="install a package that provides the recipe 'squares'"):
        thunder.compile(doubled, "squares")


@pytest.mark.parametrize("name", ["ddp", "fsdp", "fp8", "quantize-int4", "reduce-overhead"])
def test_a_documented_plugin_is_not_unknown(name: str) -> None:
    text = f"no installed package provides the plugin '{name}'(.|\n)*pip install thunder-[a-z]+, which"
    with pytest.raises(InvalidArgument, match=text):
        thunder.compile(doubled, plugins=name)


def test_auto_is_the_longest_prefix_of_the_class() -> None:
    chosen: list[str] = []

    def recipe(name: str) -> type[thunder.Recipe]:
        return type("Chosen", (thunder.Recipe,), {"validate": lambda self, model: chosen.append(name)})

    module = Model.__module__
    names = ["tests", module, f"{module}.Model", f"{module}.Mod", f"{module}.Model.forward"]
    with providing({name: recipe(name) for name in names}):
        thunder.compile(Model())
        thunder.compile(doubled)
    with providing({name: recipe(name) for name in names[1:2]}):
        thunder.compile(Model())
        thunder.compile(nn.Tanh())
    assert chosen == [f"{module}.Model", module]


def test_a_recipe_refuses_a_model_before_anything_else() -> None:
    class Picky(Squares):
        def validate(self, model: Any) -> None:
            raise UserError("not this model")

        def setup_transforms(self) -> Any:
            raise AssertionError("the model was refused")

    with pytest.raises(UserError, match="not this model"):
        thunder.compile(doubled, Picky())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"recipe": 3}, "recipe=3, of type int"),
        ({"recipe": Squares}, r"recipe=Squares, a class(.|\n)*Write Squares\(\)"),
        ({"plugins": thunder.Plugin}, r"plugins=Plugin, a class"),
        ({"plugins": [Squares()]}, "plugins=<.*Squares"),
        ({"recipe": thunder.Plugin()}, "recipe=<.*Plugin"),
    ],
)
def test_arguments_of_other_types_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        thunder.compile(doubled, **arguments)


@pytest.mark.parametrize(
    ("method", "returned", "text"),
    [
        ("setup_transforms", None, "setup_transforms returned None"),
        ("setup_transforms", [Named], "It returns a list of Transforms"),
        ("setup_executors", [3], "It returns a list of executors or their names"),
        ("setup_lookasides", [doubled], "It returns a list of Lookasides"),
        ("setup_config", 3, "setup_config returned 3"),
        ("setup_config", {"transforms": ()}, "Return them from setup_transforms"),
    ],
)
def test_what_a_recipe_returns_is_checked(method: str, returned: Any, text: str) -> None:
    recipe = type("Wrong", (thunder.Recipe,), {method: lambda self: returned})
    with pytest.raises(PluginError, match=rf"Wrong\.{method}(.|\n)*") as caught:
        thunder.compile(doubled, recipe())
    assert text in str(caught.value)


def test_a_method_that_raises_is_named() -> None:
    recipe = type("Raises", (thunder.Recipe,), {"setup_executors": lambda self: 1 / 0})
    with pytest.raises(PluginError, match=r"Raises\.setup_executors raised ZeroDivisionError"):
        thunder.compile(doubled, recipe())


def test_misspelt_methods_and_values_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="Did you mean 'setup_transforms'"):
        type("Misspelt", (thunder.Plugin,), {"setup_transform": lambda self: []})
    with pytest.raises(InvalidArgument, match=r"Plugin\.setup_config looks like|Config\.setup_config"):
        type("Config", (thunder.Plugin,), {"setup_config": lambda self: {}})
    with pytest.raises(InvalidArgument, match=r"interpreter='thunder\.git'"):
        thunder.Recipe(interpreter="thunder.git")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="policy='pre'"):
        thunder.Plugin("pre")  # type: ignore[arg-type]


def test_another_interpreter_is_that_of_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(DOCUMENTED, "thunder.absent", Provider("absent things"))
        patched.setattr("thunder.recipes.run_recipe._FX", "thunder.absent:thing")
        with pytest.raises(InvalidArgument, match=r"a package that provides thunder\.dynamo"):
            thunder.compile(doubled, thunder.Recipe(interpreter="thunder.fx"))
    package = types.ModuleType("thunder.dynamo")
    package.thunderfx = lambda fn, **settings: (fn, sorted(settings))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "thunder.dynamo", package)
    compiled = thunder.compile(doubled, thunder.Recipe(interpreter="thunder.fx"))
    assert compiled == (doubled, ["executors", "lookasides", "transforms"])


def test_two_packages_with_one_name_are_an_error_that_names_both() -> None:
    with (
        providing({"squares": Squares}, "acme"),
        providing({"squares": Squares}, "beta"),
        pytest.raises(PluginError, match="plugins 'acme' and 'beta' both provide the recipe 'squares'"),
    ):
        thunder.compile(Model())


@pytest.mark.parametrize(
    "recipes",
    [3, {"x": 3}, {"x": Squares()}, {"x": int}],
    ids=["a number", "a number by name", "an object", "another class"],
)
def test_a_wrong_declaration_is_the_plugins_fault(recipes: Any) -> None:
    with providing(recipes), pytest.raises(PluginError, match="thunder_recipes of plugin 'providing'"):
        thunder.compile(Model())
