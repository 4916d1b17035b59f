"""Recipes and plugins by the names under which packages provide them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from thunder.base.errors import InvalidArgument, did_you_mean
from thunder.plugins.contributions import recipes
from thunder.plugins.manager import get_manager
from thunder.plugins.not_installed import DOCUMENTED_RECIPES, not_installed_hint
from thunder.recipes.recipe import Plugin, Recipe

__all__ = ["plugin_named", "recipe_for_model", "recipe_named", "recipe_names"]


def recipe_names() -> tuple[str, ...]:
    """Return the names of the recipes and plugins that packages provide, sorted."""
    return tuple(sorted(recipes(get_manager())))


def recipe_named(name: str) -> Recipe:
    """Return a new recipe of this name.

    Raises InvalidArgument, with the nearest name, if no package provides it, or if it is a plugin.
    """
    recipe = _instance(name, "recipe", _is_recipe)
    if isinstance(recipe, Recipe):
        return recipe
    raise InvalidArgument(
        f"{name!r} is a plugin of recipes, not a recipe", hint=f"Write plugins={name!r} for any recipe."
    )


def plugin_named(name: str) -> Plugin:
    """Return a new plugin of this name; raise InvalidArgument as `recipe_named` does."""
    plugin = _instance(name, "plugin", lambda cls: not _is_recipe(cls))
    if not isinstance(plugin, Recipe):
        return plugin
    raise InvalidArgument(f"{name!r} is a recipe, not a plugin of one", hint=f"Write recipe={name!r}.")


def recipe_for_model(model: Callable[..., Any]) -> Recipe:
    """Return the recipe whose name is the longest prefix of the model's class, else the base recipe.

    A prefix ends where a part of the class's dotted name ends: `transformers.models.llama` is one of
    `transformers.models.llama.modeling_llama.LlamaModel`.
    """
    if not isinstance(model, torch.nn.Module):
        return Recipe()
    path = f"{type(model).__module__}.{type(model).__qualname__}."
    prefixes = [
        n for n, (_, cls) in recipes(get_manager()).items() if _is_recipe(cls) and path.startswith(f"{n}.")
    ]
    return recipe_named(max(prefixes, key=len)) if prefixes else Recipe()


def _is_recipe(cls: type) -> bool:
    return issubclass(cls, Recipe)


def _instance(name: str, kind: str, fits: Callable[[type], bool]) -> Plugin:
    provided = recipes(get_manager())
    if name not in provided:
        names = [n for n, (_, cls) in provided.items() if fits(cls)]
        raise _unknown(name, kind, names)
    plugin, cls = provided[name]
    try:
        instance: Plugin = cls()
        return instance
    except TypeError as error:
        text = f"the {kind} {name!r} of plugin {plugin!r} cannot be made without arguments: {error}"
        raise get_manager().fault(plugin, text, "thunder_recipes") from error


def _unknown(name: str, kind: str, names: Iterable[str]) -> InvalidArgument:
    names = sorted(names)
    if name in DOCUMENTED_RECIPES:
        return InvalidArgument(
            f"no installed package provides the {kind} {name!r}",
            found={f"{kind}s": ", ".join(names) or "none"},
            hint=not_installed_hint(DOCUMENTED_RECIPES[name]),
        )
    return InvalidArgument(
        f"there is no {kind} {name!r}.{did_you_mean(name, [*names, *DOCUMENTED_RECIPES])}",
        found={f"{kind}s": ", ".join(names) or "none"},
        hint=f"Pass a thunder.{kind.capitalize()}, or install a package that provides the {kind} {name!r}.",
    )
