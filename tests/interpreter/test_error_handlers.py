"""Which frames may catch an exception: what CPython does with one that is raised there is the judge."""

from __future__ import annotations

import contextlib
import itertools
import time
from typing import Any

import pytest

from thunder.interpreter import Machine, Policy
from thunder.interpreter.frame import may_catch

#: a function in C
ask = time.perf_counter

BODIES = {
    "finally": "try:\n    {}\nfinally:\n    done.append(1)",
    "with": "with passing():\n    {}",
    "swallowing": "with swallowing():\n    {}",
    "except": "try:\n    {}\nexcept ValueError:\n    pass",
    "bare": "try:\n    {}\nexcept:\n    pass",
    "other": "try:\n    {}\nexcept ValueError:\n    raise KeyError from None",
    "returning": "try:\n    {}\nfinally:\n    return None",
    "nothing": "if True:\n    {}",
}


class passing(contextlib.nullcontext):
    """A manager of which it is known that it catches nothing."""


class swallowing:
    """A manager that catches everything."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> bool:
        return True


def nested(names: tuple[str, ...]) -> str:
    """Return the text of a function whose statement `ask()` is within these handlers, outermost first."""
    text = "ask()"
    for name in reversed(names):
        first, _, rest = BODIES[name].partition("{}")
        indent = "\n" + " " * 4
        text = first + text.replace("\n", indent) + rest
    return "def program():\n    " + text.replace("\n", "\n    ") + "\n"


class Asking(Policy):
    """Asks of the frame that calls `ask` whether it may catch an exception."""

    def __init__(self) -> None:
        self.answers: list[bool] = []

    def call_native(self, fn: Any, args: Any, kwargs: Any) -> Any:
        if fn is ask:
            frame = self.machine.frames[-1]
            self.answers.append(
                may_catch(frame, lambda leave: type(getattr(leave, "__self__", None)) is passing)
            )
        return super().call_native(fn, args, kwargs)


@pytest.mark.parametrize("names", [*itertools.product(BODIES, repeat=2), *((name,) for name in BODIES)])
def test_a_frame_may_catch_where_the_exception_does_not_arrive_as_it_was(names: tuple[str, ...]) -> None:
    namespace: dict[str, Any] = {"passing": passing, "swallowing": swallowing, "done": [], "ask": ask}
    exec(nested(names), namespace)
    policy = Asking()
    Machine(policy).call(namespace["program"])

    def fail() -> None:
        raise ValueError

    try:
        namespace["program"].__globals__["ask"] = fail
        namespace["program"]()
    except ValueError:
        arrives = True
    except KeyError:
        arrives = False
    else:
        arrives = False
    assert policy.answers == [not arrives], nested(names)
