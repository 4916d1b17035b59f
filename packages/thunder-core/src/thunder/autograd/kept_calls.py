"""Calls that a package's executor runs in training too, although the package has no gradient for them.

Note [Kernels without a gradient]
A package's kernel for an operator without a gradient rule runs in the forward of a training program as it
does in inference. The gradient is the operator's, by its formulas, its rule or the calls that it decomposes
into. Formulas read arguments and results, which the program has. A rule, or a decomposition, computes the
result with other operators and reads what these compute:

    t0 = acme.layer_norm(x, w, b)                 forward: the kernel
    _, mean, rstd = native_layer_norm(x, w, b)    backward: the values that the rule of layer_norm reads
    ... = layer_norm_backward(g, x, mean, rstd, w, b)

Only what the gradient reads is computed again, from the arguments of the call. A call that draws random
numbers or writes cannot be computed again: then the rule's calls are the forward.
"""

from __future__ import annotations

from collections.abc import Sequence

from thunder.autograd.rule_checks import is_complete_by_contract
from thunder.autograd.rule_lookup import Decompose
from thunder.base.extension_origin import origin_of
from thunder.executor_base.choice import choose
from thunder.executor_base.executor import Executor
from thunder.executor_base.package_code import has_package_code
from thunder.executor_base.refusal import Refusal
from thunder.ir.effects import has_effect
from thunder.ir.gradient_declarations import JointRule
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import detached_trace

__all__ = ["package_claimer", "why_not_again", "why_not_kept"]


def package_claimer(
    bsym: BoundSymbol, executors: Sequence[Executor], gradient: JointRule | Decompose
) -> tuple[Executor | None, tuple[tuple[str, Refusal], ...]]:
    """Return the executor that runs a call with code of a package, or None, and the refusals of others.

    None is returned too for an executor whose own gradient rule is `gradient`. The refusals are those of
    executors that have such code.
    """
    packages = {executor.name for executor in executors if has_package_code(executor, bsym)}
    if not packages:
        return None, ()
    with detached_trace():  # what a checker computes is not part of the program
        choice = choose(executors, bsym)
    refusals = tuple((name, refusal) for name, refusal in choice.refusals if name in packages)
    claimer = choice.executor
    if claimer is None or claimer.name not in packages:
        return None, refusals
    has_own = claimer.get_grad_transform(claimer.as_registered(bsym).sym) is not None
    return (None if has_own and isinstance(gradient, JointRule) else claimer), refusals


def why_not_kept(bsym: BoundSymbol, gradient: JointRule | Decompose) -> Refusal | None:
    """Return why the executor that claims a call does not run it in training, or None."""
    if isinstance(gradient, JointRule) and is_complete_by_contract(gradient.fn):
        rule = getattr(gradient.fn, "__qualname__", gradient.fn)
        return Refusal(
            "gradient", f"the gradient rule {rule} of {origin_of(gradient.fn)} computes the call itself"
        )
    return _EFFECTS if has_effect(bsym) else None


def why_not_again(bsym: BoundSymbol, calls: Sequence[BoundSymbol]) -> Refusal | None:
    """Return why the calls that a gradient computes a call with cannot be those of the backward, or None."""
    return _EFFECTS if any(has_effect(b) or b.sym.id == bsym.sym.id for b in calls) else None


_EFFECTS = Refusal(
    "gradient",
    "the gradient of the operator computes the call again, which would draw other random numbers or write",
)
