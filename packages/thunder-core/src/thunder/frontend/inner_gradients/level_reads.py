"""``requires_grad`` and ``is_leaf`` of tensors, as a function sees them that torch.func differentiates.

    torch.func.grad(f)(x)    within f, the argument is a leaf that requires grad, and so is no tensor that f
                             computes from others
    torch.func.jvp(f, …)     within f, neither the argument nor what f computes requires grad

The values of the trace require grad wherever a gradient flows, which may be through an outer function.
"""

from __future__ import annotations

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.inner_gradients.function_levels import Levels, depends_on, depends_on_others
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.torch.inplace import is_leaf

__all__ = ["seen_as_leaf", "seen_to_require_grad"]


def seen_to_require_grad(session: TracingSession, x: TensorProxy) -> bool:
    """Return ``x.requires_grad`` as the program sees it.

    Raises UnsupportedProgram within a function that torch.func differentiates, for a tensor that was
    computed outside of it, or from such tensors alone.
    """
    open_levels = session.state(Levels).open
    if not x.requires_grad or not open_levels or session.entry_of(x) is not None:
        return x.requires_grad
    level = open_levels[-1]
    if level.require_grad is None:
        return depends_on_others(session, x, level.leaves)
    if depends_on(session, x, level.arguments):
        return level.require_grad
    raise UnsupportedProgram(
        "the program reads, in a function that torch.func differentiates, whether a tensor requires grad "
        "that does not depend on the function's arguments",
        found={x.name: f'"{x.type_string()}"'},
        hint="Read it before the call of torch.func.",
    )


def seen_as_leaf(session: TracingSession, x: TensorProxy) -> bool:
    """Return ``x.is_leaf`` as the program sees it; raise UnsupportedProgram as for ``requires_grad``."""
    if not seen_to_require_grad(session, x):
        return True
    levels = (level for level in session.state(Levels).open if level.require_grad)
    return any(x.name in level.arguments for level in levels) or is_leaf(x)
