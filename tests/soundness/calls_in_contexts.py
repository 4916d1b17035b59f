"""Programs called in changing situations: contexts entered around each call, in an order that comes back to
earlier ones, beside eager in the same situations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import thunder
from comparison.errors import is_a
from recorded_refusals import Refusals
from soundness.harness import World, call, compare

#: a context entered around one call
Situation = Callable[[], contextlib.AbstractContextManager[Any]]

_ABSENT = object()


@contextlib.contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Within the context ``owner`` (an object or a dict) has ``value`` under ``name``; then what it had."""
    is_dict = isinstance(owner, dict)
    before = owner.get(name, _ABSENT) if is_dict else vars(owner).get(name, _ABSENT)
    put = owner.__setitem__ if is_dict else lambda key, new: setattr(owner, key, new)
    remove = owner.__delitem__ if is_dict else lambda key: delattr(owner, key)
    put(name, value)
    try:
        yield
    finally:
        remove(name) if before is _ABSENT else put(name, before)


def situation(*patches: tuple[Any, str, Any]) -> Situation:
    """The situation in which several attributes or items are patched."""

    @contextlib.contextmanager
    def within() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for owner, name, value in patches:
                stack.enter_context(patched(owner, name, value))
            yield

    return within


def check_calls_in(
    program: Callable[..., Any],
    args: Sequence[Any],
    situations: Sequence[Situation],
    order: Sequence[int],
    *,
    refusals: Refusals | None = None,
) -> Any:
    """Call ``program`` by eager and compiled in ``situations[i]`` for each ``i`` of ``order``.

    Returns the compiled program. Raises AssertionError at the first call that differs from eager. A call that
    is refused is added to ``refusals``, if there are such, under its number.
    """
    compiled = thunder.jit(program, recompile_limit=None)
    for step, index in enumerate(order):
        theirs = World(program, list(args), within=situations[index])
        ours = World(program, list(args), within=situations[index])
        expected, found = call(program, theirs), call(compiled, ours)
        if refusals is not None and is_a(found.error, "UnsupportedProgram"):
            refusals.add(f"call {step}", found.error)
            continue
        lines = compare(expected, theirs, found, ours)
        assert not lines, f"call {step} in situation {index}: {lines}"
    return compiled
