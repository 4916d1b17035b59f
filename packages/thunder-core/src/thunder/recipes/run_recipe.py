"""`thunder.compile`: a recipe and its plugins become one call of `thunder.jit`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from thunder.base.errors import InvalidArgument, PluginError, PluginNotInstalledError
from thunder.base.extension_origin import origin_of
from thunder.base.plugin_calls import plugin_call, shown
from thunder.compiler.jit import jit
from thunder.executor_base.executor import Executor
from thunder.extend import get_default_executors, resolve_executors
from thunder.passes.transform import Transform
from thunder.plugins.specs import Lookaside, load_target
from thunder.recipes.recipe import Plugin, PluginPolicy, Recipe
from thunder.recipes.recipe_names import plugin_named, recipe_for_model, recipe_named

__all__ = ["compile"]

_FX = "thunder.dynamo:thunderfx"
#: arguments of `thunder.jit` for which a recipe has a method of its own
_OWN_METHODS = {
    "lookasides": "setup_lookasides",
    "transforms": "setup_transforms",
    "executors": "setup_executors",
}


def compile(
    fn: Callable[..., Any],
    recipe: Recipe | str = "auto",
    plugins: Plugin | str | Sequence[Plugin | str] | None = None,
) -> Any:
    """Compile a function or module with a recipe; return what `thunder.jit` returns.

    Args:
        fn: as for `thunder.jit`.
        recipe: a recipe; the name of one that a package provides; or `"auto"`, for the recipe whose name is
            the longest prefix of the model's class, `module.Class`, else the base recipe, which adds nothing.
        plugins: plugins of recipes or their names, after those of the recipe; one or several.

    Their contributions come in this order: plugins with the policy `PRE`, the recipe, plugins with the policy
    `POST`. Executors come before the default ones.

    Raises InvalidArgument for an unknown name and for an object of another type; PluginError for a recipe or
    plugin that raises or returns something else than it should.
    """
    chosen = _recipe(fn, recipe)
    added = () if plugins is None else tuple(plugins) if isinstance(plugins, list | tuple) else (plugins,)
    both = [_plugin(plugin) for plugin in (*chosen.plugins, *added)]
    chosen.validate(fn)
    pre = [plugin for plugin in both if plugin.policy is PluginPolicy.PRE]
    parts = [*pre, chosen, *(plugin for plugin in both if plugin.policy is PluginPolicy.POST)]
    executors = _collected(parts, "setup_executors", Executor | str)
    settings = {
        "lookasides": _collected(parts, "setup_lookasides", Lookaside),
        "transforms": _collected(parts, "setup_transforms", Transform),
        "executors": resolve_executors((*executors, *get_default_executors())) if executors else None,
        **_config(chosen),
    }
    return _compiler(chosen)(fn, **settings)


def _recipe(fn: Callable[..., Any], recipe: object) -> Recipe:
    if recipe == "auto":
        return recipe_for_model(fn)
    if isinstance(recipe, str):
        return recipe_named(recipe)
    if isinstance(recipe, Recipe):
        return recipe
    raise _wrong_type("recipe", recipe, Recipe)


def _plugin(plugin: object) -> Plugin:
    if isinstance(plugin, str):
        return plugin_named(plugin)
    if isinstance(plugin, Plugin) and not isinstance(plugin, Recipe):
        return plugin
    raise _wrong_type("plugins", plugin, Plugin)


def _wrong_type(argument: str, value: object, expected: type) -> InvalidArgument:
    if isinstance(value, type) and issubclass(value, Plugin):
        return InvalidArgument(
            f"thunder.compile received {argument}={value.__qualname__}, a class",
            hint=f"Write {value.__qualname__}().",
        )
    return InvalidArgument(
        f"thunder.compile received {argument}={shown(value)}",
        hint=f"Pass a thunder.{expected.__name__}, or the name of one that a package provides.",
    )


def _collected(parts: Sequence[Plugin], method: str, expected: Any) -> list[Any]:
    """Return what a method of each part returns, one after the other."""
    items: list[Any] = []
    for part in parts:
        returned = _called(part, method)
        if not isinstance(returned, list | tuple) or not all(isinstance(item, expected) for item in returned):
            kind = "executors or their names" if method == "setup_executors" else f"{expected.__name__}s"
            raise PluginError(
                f"{type(part).__name__}.{method} returned {returned!r}", hint=f"It returns a list of {kind}."
            ).blame(origin_of(type(part)))
        items += [_attributed(item, part) if isinstance(item, Lookaside) else item for item in returned]
    return items


def _called(part: Plugin, method: str) -> Any:
    with plugin_call(f"{type(part).__name__}.{method}", lambda: origin_of(type(part))):
        return getattr(part, method)()


def _attributed(lookaside: Lookaside, part: Plugin) -> Lookaside:
    kind = "recipe" if isinstance(part, Recipe) else "plugin"
    provider = lookaside.provided_by or f"{kind} {type(part).__name__} ({origin_of(type(part))})"
    return replace(lookaside, provided_by=provider)


def _config(recipe: Recipe) -> dict[str, Any]:
    """Return the keyword arguments of `jit` that a recipe sets."""
    config = _called(recipe, "setup_config")
    name = type(recipe).__name__
    try:
        settings = dict(config)
    except (TypeError, ValueError) as error:
        raise PluginError(
            f"{name}.setup_config returned {config!r}", hint="It returns keyword arguments of thunder.jit."
        ).blame(origin_of(type(recipe))) from error
    for setting in settings.keys() & _OWN_METHODS.keys():
        raise PluginError(
            f"{name}.setup_config returned {setting}=", hint=f"Return them from {_OWN_METHODS[setting]}."
        ).blame(origin_of(type(recipe)))
    return settings


def _compiler(recipe: Recipe) -> Callable[..., Any]:
    """Return the function that compiles for the recipe's interpreter."""
    if recipe.interpreter == "thunder.jit":
        return jit
    try:
        compiler: Callable[..., Any] = load_target(_FX)
    except PluginNotInstalledError as error:
        raise InvalidArgument(
            f"{type(recipe).__name__} has interpreter={recipe.interpreter!r}, and thunder.dynamo is not "
            "installed",
            hint='Install a package that provides thunder.dynamo, or use interpreter="thunder.jit".',
        ) from error
    return compiler
