"""Faults of claims: refusals, checkers and execution transforms."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

import thunder
from testing.example_executors import (
    Trial,
    gate_checker,
    gate_kernel,
    gelu_executor,
    gelu_transform,
    like_x,
    name,
    tensor,
)
from testing.fault_table import FAULTS, Fault, fault, of_gate
from testing.faulty_parts import checking, meta_by_autocast
from thunder import TensorProxy
from thunder.extend import OperatorExecutor, Refusal
from thunder.ops import prims

# -- claims and refusals -------------------------------------------------------------------------------------


def _only_float32(x: Any, w: Any, alpha: float) -> Any:
    if x.dtype is not torch.float32:
        raise RuntimeError(f"no kernel for {x.dtype}")
    return gate_kernel(x, w, alpha)


def _no_empty_tensors(x: Any, w: Any, alpha: float) -> Any:
    return gate_kernel(x, w, alpha) + 0 * x.abs().max()


def _only_dense(x: Any, w: Any, alpha: float) -> Any:
    return gate_kernel(x.view(-1), w.view(-1), alpha).view(x.shape)


of_gate(
    "claims",
    claims_dtypes_that_it_cannot_run=lambda: {"fn": _only_float32},
    claims_empty_tensors_that_it_cannot_run=lambda: {"fn": _no_empty_tensors},
    claims_strides_that_it_cannot_run=lambda: {"fn": _only_dense},
)


@fault("the operator of an implementation takes other arguments", "claims")
def the_operator_of_an_implementation_takes_other_arguments() -> Trial:
    executor = OperatorExecutor(name())
    mine = executor.register_operator("my_gelu", meta=like_x, fn=torch.nn.functional.gelu)
    executor.register_implementation("torch.nn.functional.gelu", mine)
    wrong = executor.register_operator("three", meta=lambda a, b, c: like_x(a), fn=lambda a, b, c: a)
    executor.register_implementation("torch.nn.functional.silu", wrong)
    samples = {"torch.nn.functional.silu": [((tensor(3),), {})]}
    return Trial(executor, {"samples": samples, "operators": "torch.nn.functional.silu"})


class _SaysYes(OperatorExecutor):
    def can_execute(self, bsym: Any) -> bool | Refusal:
        return True


@fault("says yes to what it has nothing for", "claims")
def says_yes_to_what_it_has_nothing_for() -> Trial:
    executor = _SaysYes(name())
    executor.register_implementation("torch.sin", execution_transform=lambda input: thunder.torch.sin(input))
    executor.get_execution_transform = lambda bsym: None  # type: ignore[method-assign]
    return Trial(executor, {"samples": {"torch.sin": [((tensor(3),), {})]}})


@fault("another meta function than that of the row that it implements", "claims")
def another_meta_function_than_that_of_the_row_that_it_implements() -> Trial:
    executor = OperatorExecutor(name())
    mine = executor.register_operator(
        "my_relu",
        meta=lambda input, inplace=False: TensorProxy(like=input, dtype=torch.float64),
        fn=torch.relu,
    )
    executor.register_implementation("torch.nn.functional.relu", mine)
    return Trial(
        executor, {"samples": {"torch.nn.functional.relu": [((tensor(3),), {})]}, "operators": "torch.*"}
    )


def _refusing(answer: Any) -> Callable[[], dict[str, Any]]:
    def checker(x: Any, w: Any, alpha: float) -> Any:
        return (gate_checker(x, w, alpha) and x.dtype is thunder.float32) or answer

    return lambda: {"checker": checker}


of_gate(
    "refusals",
    refuses_with_a_bare_False=_refusing(False),
    refuses_without_message=_refusing(Refusal("dtype", "")),
    refuses_with_a_blank_message=_refusing(Refusal("dtype", "   ")),
    refuses_without_code=_refusing(Refusal("", "gate takes float32 only")),
    refuses_with_a_sentence_for_a_code=_refusing(Refusal("dtype is wrong", "gate takes float32 only")),
    refuses_with_a_code_for_a_sentence=_refusing(Refusal("dtype", "dtype")),
    refuses_with_a_message_that_is_no_text=_refusing(Refusal("dtype", None)),  # type: ignore[arg-type]
)


@fault("refuses by a bare False of an execution transform's checker", "refusals")
def refuses_by_a_bare_false_of_an_execution_transform_s_checker() -> Trial:
    return gelu_executor(checker=lambda input, approximate: approximate == "none")


# -- checkers ------------------------------------------------------------------------------------------------

_asked = SimpleNamespace(times=0)


def _alternating(x: Any, w: Any, alpha: float) -> Any:
    _asked.times += 1
    return gate_checker(x, w, alpha) if _asked.times % 2 else Refusal("busy", "not this time")


def _once_for_each_shape() -> Callable[..., Any]:
    seen: set[Any] = set()

    def checker(x: Any, w: Any, alpha: float) -> Any:
        key = (*x.shape, x.dtype, x.device, alpha)
        known = key in seen
        seen.add(key)
        return Refusal("seen", "it was asked for this shape before") if known else gate_checker(x, w, alpha)

    return checker


_KERNELS = {thunder.float32: 1, thunder.float64: 2, thunder.bfloat16: 3}

of_gate(
    "checker",
    checker_that_fails_for_dtypes_it_does_not_know=checking(lambda x: _KERNELS[x.dtype]),
    checker_that_fails_without_dimensions=checking(lambda x: x.shape[-1] >= 0),
    checker_that_looks_at_values=checking(lambda x: bool(x.sum() < 1e9)),
    checker_that_takes_the_data=checking(lambda x: len(x.tolist()) >= 0),
    checker_that_returns_None=lambda: {"checker": lambda x, w, alpha: None},
    checker_that_returns_a_number=lambda: {"checker": lambda x, w, alpha: 1},
    checker_that_asks_for_a_device=checking(
        lambda x: torch.cuda.is_available() or Refusal("cuda", "needs a GPU")
    ),
    checker_that_asks_for_the_capability_of_the_machine=checking(
        lambda x: torch.cuda.get_device_capability() >= (8, 0) or Refusal("sm", "needs an Ampere GPU")
    ),
    checker_that_alternates=lambda: {"checker": _alternating},
    checker_that_remembers=lambda: {"checker": _once_for_each_shape()},
    checker_that_knows_no_other_device=checking(lambda x: {"cpu": True}[x.device.type]),
)

of_gate(
    "modes",
    checker_that_depends_on_the_grad_mode=checking(
        lambda x: not torch.is_inference_mode_enabled() or Refusal("mode", "not in inference mode")
    ),
    checker_that_depends_on_autocast=checking(
        lambda x: not torch.is_autocast_enabled("cpu") or Refusal("mode", "not under autocast")
    ),
    meta_that_depends_on_autocast=lambda: {"meta": meta_by_autocast},
    function_that_fails_on_inference_tensors=lambda: {
        "fn": lambda x, w, alpha: gate_kernel(x, w, alpha) if x._version >= 0 else x
    },
    function_that_follows_another_algorithm_when_deterministic=lambda: {
        "fn": lambda x, w, alpha: (
            gate_kernel(x, w, alpha) * (1 + torch.are_deterministic_algorithms_enabled())
        )
    },
)

of_gate(
    "samples",
    claims_nothing=lambda: {"checker": lambda x, w, alpha: Refusal("never", "this one claims nothing")},
    has_no_samples=lambda: {"samples": []},
)


# -- execution transforms ------------------------------------------------------------------------------------


def _on_the_cpu(input: Any, approximate: str) -> Any:
    half = prims.full((), 1.0, device="cpu", dtype=input.dtype)
    spread = prims.broadcast_in_dim(half, tuple(input.shape), ())
    return prims.mul(gelu_transform(input, approximate), spread)


def _of_gelu(caught_by: str, **transforms: Callable[..., Any]) -> None:
    for what, transform in transforms.items():
        FAULTS.append(
            Fault(what.replace("_", " "), caught_by, lambda transform=transform: gelu_executor(transform))
        )


def _unknown_primitive(input: Any, approximate: str) -> Any:
    executor = OperatorExecutor("toy_nobody")
    nobody = executor.register_operator("nobody", meta=like_x, replace=True)
    return nobody(input)


_of_gelu(
    "claims",
    transform_that_returns_a_tuple=lambda input, approximate: (gelu_transform(input, approximate),),
    transform_that_returns_nothing=lambda input, approximate: None,
    transform_of_another_dtype=lambda input, approximate: (
        gelu_transform(input, approximate).double().float().half()
    ),
    transform_of_another_shape=lambda input, approximate: thunder.torch.unsqueeze(
        gelu_transform(input, approximate), 0
    ),
    transform_that_fails=lambda input, approximate: gelu_transform(input, approximate, 1),
    transform_that_computes_on_the_cpu=_on_the_cpu,
    transform_to_an_operator_that_nobody_runs=_unknown_primitive,
)
_of_gelu(
    "values", transform_that_computes_something_else=lambda input, approximate: thunder.torch.relu(input)
)
_of_gelu(
    "state",
    transform_that_leaves_the_default_dtype_changed=lambda input, approximate: (
        torch.set_default_dtype(torch.float64),
        gelu_transform(input, approximate),
    )[1],
)


@fault("copies in place of a view", "claims")
def copies_in_place_of_a_view() -> Trial:
    executor = OperatorExecutor(name())
    executor.register_implementation(
        "torch.transpose",
        execution_transform=lambda input, dim0, dim1: thunder.torch.clone(
            thunder.torch.transpose(input, dim0, dim1)
        ),
    )
    return Trial(executor, {"samples": {"torch.transpose": [((tensor(2, 3), 0, 1), {})]}})
