"""Check that a way computes what eager does: both are compared with eager in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from torch import Tensor

__all__ = ["WrongResult", "check_results"]

#: how far results may be from the exact ones, relative to their norm, where eager is nearer
FLOORS: Final = {"torch.float32": 1e-5, "torch.bfloat16": 1e-2}
#: and as a multiple of eager's distance, where that is larger
FACTOR: Final = 3.0


class WrongResult(Exception):
    """A way's results differ from eager's."""


def check_results(
    names: Sequence[str], actual: Sequence[Tensor], eager: Sequence[Tensor], exact: Sequence[Tensor]
) -> float:
    """Return the largest distance of results from the exact ones, relative to what is allowed, up to 1.

    A distance is the norm of a difference. Allowed is three times eager's, or a part of the exact norm that
    depends on the dtype (1e-5 in float32), if that is more. Raises WrongResult for more, and for results
    of other shapes, dtypes or numbers.
    """
    if not len(names) == len(actual) == len(eager) == len(exact):
        raise WrongResult(f"there are {len(actual)} results, {len(exact)} in eager")
    exact = [tensor.double() for tensor in exact]
    scale = max((tensor.norm().item() for tensor in exact), default=0.0)
    worst = 0.0
    for name, result, expected, reference in zip(names, actual, eager, exact, strict=True):
        if (result.shape, result.dtype) != (expected.shape, expected.dtype):
            found, right = ((t.dtype, tuple(t.shape)) for t in (result, expected))
            raise WrongResult(f"{name} is {found[0]} {found[1]}, in eager {right[0]} {right[1]}")
        floor = FLOORS.get(str(expected.dtype), 0.0)
        distance = (result.double() - reference).norm().item()
        usual = (expected.double() - reference).norm().item()
        # The gradient of a value that cancels is rounding noise: then the largest norm is the measure.
        allowed = max(FACTOR * usual, floor * reference.norm().item(), 1e-3 * floor * scale)
        if not distance <= allowed:
            raise WrongResult(f"{name} is {distance:.3g} from the exact result, eager {usual:.3g}")
        worst = max(worst, distance / allowed if allowed else 0.0)
    return worst
