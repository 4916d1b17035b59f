"""`Recipe` and `Plugin`: the base classes of what `thunder.compile` puts together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Literal

from thunder.base.errors import InvalidArgument, did_you_mean
from thunder.executor_base.executor import Executor
from thunder.passes.transform import Transform
from thunder.plugins.specs import Lookaside

__all__ = ["Plugin", "PluginPolicy", "Recipe"]

Interpreter = Literal["thunder.jit", "thunder.fx"]
INTERPRETERS: tuple[Interpreter, ...] = ("thunder.jit", "thunder.fx")


class PluginPolicy(Enum):
    """Whether the contributions of a recipe's plugin come before or after those of the recipe."""

    PRE = "pre"
    POST = "post"


class Plugin:
    """The base class of plugins of recipes: by default a method contributes nothing.

    A subclass overrides the methods that it needs. A method whose name begins with `setup_` but is not one of
    them is refused when the class is defined: it would never run.

    Args:
        policy: whether its contributions come before (`PRE`) or after (`POST`) those of the recipe; by
            default the attribute of the class.
    """

    policy: PluginPolicy = PluginPolicy.PRE

    def __init__(self, policy: PluginPolicy | None = None) -> None:
        if policy is not None:
            if not isinstance(policy, PluginPolicy):
                raise InvalidArgument(
                    f"{type(self).__name__} received policy={policy!r}",
                    hint="Write thunder.recipes.PRE or thunder.recipes.POST.",
                )
            self.policy = policy

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        setups = {name for base in cls.__mro__ for name in base.__dict__.get("SETUPS", ())}
        for name, value in vars(cls).items():
            if callable(value) and name.startswith("setup_") and name not in setups:
                raise InvalidArgument(
                    f"{cls.__name__}.{name} looks like a method of recipes, and there is none of this name."
                    f"{did_you_mean(name, setups)}",
                    found={"methods": ", ".join(sorted(setups))},
                    hint="Give a method that thunder.compile shall not call another prefix.",
                )

    SETUPS: ClassVar[tuple[str, ...]] = ("setup_lookasides", "setup_transforms", "setup_executors")

    def setup_lookasides(self) -> Sequence[Lookaside]:
        """Return the functions in whose place others are traced."""
        return ()

    def setup_transforms(self) -> Sequence[Transform]:
        """Return the transforms; new ones at each call, since each belongs to one compiled object."""
        return ()

    def setup_executors(self) -> Sequence[Executor | str]:
        """Return the executors, or their names, that come before the default ones."""
        return ()


class Recipe(Plugin):
    """The base class of recipes, and the recipe of models for which there is no other.

    Args:
        plugins: plugins of the recipe, or their names; one or several.
        interpreter: `"thunder.jit"`, or `"thunder.fx"`, for which a package provides `thunder.dynamo`.

    Without an argument the attribute of the class is used. Raises InvalidArgument for another interpreter.
    """

    plugins: Sequence[Plugin | str] = ()
    interpreter: Interpreter = "thunder.jit"
    SETUPS: ClassVar[tuple[str, ...]] = ("setup_config",)

    def __init__(
        self,
        plugins: Plugin | str | Sequence[Plugin | str] | None = None,
        interpreter: Interpreter | None = None,
    ) -> None:
        super().__init__()
        if plugins is not None:
            self.plugins = [plugins] if isinstance(plugins, Plugin | str) else list(plugins)
        if interpreter is not None:
            self.interpreter = interpreter
        if self.interpreter not in INTERPRETERS:
            raise InvalidArgument(
                f"{type(self).__name__} received interpreter={self.interpreter!r}."
                f"{did_you_mean(str(self.interpreter), INTERPRETERS)}",
                found={"interpreters": ", ".join(INTERPRETERS)},
            )

    def setup_config(self) -> Mapping[str, Any]:
        """Return keyword arguments of `thunder.jit`: options, `cache`, `sharp_edges` and others."""
        return {}

    def validate(self, model: Callable[..., Any]) -> None:
        """Check a model before anything else is done; raise UserError if the recipe is not for it."""
