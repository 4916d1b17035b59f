"""Recipes: named sets of executors, transforms, replaced functions and options.

    compiled = thunder.compile(model)                         # the recipe for the model's class
    compiled = thunder.compile(model, "fast", plugins="fp8")  # names that packages provide

A package provides them by the hook `thunder_recipes`.
"""

from functools import partial

from thunder.base.public_names import missing_name
from thunder.plugins.specs import Lookaside
from thunder.recipes.recipe import Plugin, PluginPolicy, Recipe
from thunder.recipes.recipe_names import recipe_names
from thunder.recipes.run_recipe import compile

PRE, POST = PluginPolicy.PRE, PluginPolicy.POST

__all__ = ["POST", "PRE", "Lookaside", "Plugin", "PluginPolicy", "Recipe", "compile", "recipe_names"]

__getattr__ = partial(missing_name, __name__)
