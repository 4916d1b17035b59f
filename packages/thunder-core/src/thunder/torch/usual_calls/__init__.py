"""Results of usual calls of torch's functions, computed without torch's metadata in Python.

Torch computes the metadata of many functions in Python, and imports sympy and ``torch._dynamo`` for it, which
takes 0.5 to 2 seconds of a process. A rule has the parameters of its row. It returns the results of a call
that eager accepts for certain (usual dtypes, lengths that fit), and None for any other: torch is asked then,
and has the last word about errors. No rule is asked about symbolic sizes.
"""

from __future__ import annotations

from typing import Any

from thunder.base.attribute_paths import find_torch
from thunder.ops.torch_sizes import facts_in
from thunder.torch.usual_calls import factorisations, images, networks, selections
from thunder.torch.usual_calls.conditions import ACCEPTED, RESULTS

__all__ = ["ACCEPTED", "RESULTS", "factorisations", "images", "is_usual", "networks", "selections"]

_BY_FUNCTION = {find_torch(path): rule for path, rule in (*RESULTS.items(), *ACCEPTED.items())}


def is_usual(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a call of a function of torch is one that eager accepts for certain."""
    rule = _BY_FUNCTION.get(fn)
    if rule is None or facts_in((args, kwargs)) is not None:
        return False
    result = rule(*args, **kwargs)
    return result is not None and result is not False
