"""Executors that are wrong, each in one way: what the conformance tests must find, and by which of their
cases.
"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

import thunder
from conformance.example_executors import (
    Runs,
    Trial,
    fuser,
    gate,
    gate_backward,
    gate_checker,
    gate_executor,
    gate_meta,
    gate_rule,
    gelu_executor,
    gelu_transform,
    like_x,
    name,
    one_operator,
    tensor,
)
from thunder import TensorProxy
from thunder.base.tags import OpTags
from thunder.core.transforms import get_grad, put_grads
from thunder.extend import OperatorExecutor, Refusal
from thunder.ops import prims


@dataclass(frozen=True)
class Fault:
    """A faulty executor, and the property whose case finds it."""

    what: str
    caught_by: str
    make: Callable[[], Trial]


FAULTS: list[Fault] = []

#: in place of the case, for faults that no case finds
NOT_FOUND = ""


def fault(what: str, caught_by: str) -> Callable[[Callable[[], Trial]], Callable[[], Trial]]:
    """Enters the executor that the decorated function makes."""

    def decorate(make: Callable[[], Trial]) -> Callable[[], Trial]:
        FAULTS.append(Fault(what, caught_by, make))
        return make

    return decorate


def _of_gate(caught_by: str, **faults: Callable[[], dict[str, Any]]) -> None:
    """Enters executors of `gate`, each with one thing changed."""
    for what, change in faults.items():
        FAULTS.append(
            Fault(what.replace("_", " "), caught_by, lambda change=change: gate_executor(**change()))
        )


# -- types of results ----------------------------------------------------------------------------------------


def _wrong_shape_of_one_sample(x: Any, w: Any, alpha: float) -> Any:
    out = gate(x, w, alpha)
    return out[:1] if out.shape == (6,) else out


def _meta_without_vectors(x: Any, w: Any, alpha: float = 1.0) -> Any:
    return TensorProxy(like=x, shape=(x.shape[0], *x.shape[1:]))


def _meta_by_autocast(x: Any, w: Any, alpha: float = 1.0) -> Any:
    return TensorProxy(like=x, dtype=torch.bfloat16 if torch.is_autocast_enabled("cpu") else x.dtype)


_of_gate(
    "metadata",
    result_of_another_dtype=lambda: {"fn": lambda x, w, alpha: gate(x, w, alpha).double()},
    result_of_another_dtype_for_bfloat16=lambda: {
        "fn": lambda x, w, alpha: gate(x.float(), w.float(), alpha)
    },
    result_of_another_shape_for_one_sample=lambda: {"fn": _wrong_shape_of_one_sample},
    result_without_a_dimension=lambda: {"fn": lambda x, w, alpha: gate(x, w, alpha).flatten()},
    result_in_a_tuple=lambda: {"fn": lambda x, w, alpha: (gate(x, w, alpha),)},
    no_result=lambda: {"fn": lambda x, w, alpha: None},
    number_for_a_tensor=lambda: {
        "fn": lambda x, w, alpha: gate(x, w, alpha).item() if not x.ndim else gate(x, w, alpha)
    },
    meta_of_another_dtype=lambda: {"meta": lambda x, w, alpha=1.0: TensorProxy(like=x, dtype=torch.float16)},
    meta_of_another_shape=lambda: {"meta": lambda x, w, alpha=1.0: TensorProxy(like=x, shape=(*x.shape, 1))},
    meta_that_fails_for_numbers_without_dimension=lambda: {"meta": _meta_without_vectors},
    meta_that_returns_a_tensor=lambda: {"meta": lambda x, w, alpha=1.0: torch.ones(3)},
    meta_without_an_argument_of_the_sample=lambda: {
        "meta": lambda x, w: TensorProxy(like=x),
        "fn": lambda x, w: gate(x, w),
    },
)

_of_gate(
    "claims",
    meta_of_another_device=lambda: {
        "meta": lambda x, w, alpha=1.0: TensorProxy(shape=x.shape, dtype=x.dtype, device="cpu")
    },
    meta_of_two_results=lambda: {"meta": lambda x, w, alpha=1.0: (TensorProxy(like=x), TensorProxy(like=x))},
)


# -- memory --------------------------------------------------------------------------------------------------


def _in_transposed_memory(x: Any, w: Any, alpha: float) -> Any:
    return gate(x, w, alpha).mT.contiguous().mT if x.ndim > 1 else gate(x, w, alpha)


_of_gate(
    "strides",
    result_in_transposed_memory=lambda: {"fn": _in_transposed_memory},
    result_contiguous_where_eagers_is_not=lambda: {"fn": lambda x, w, alpha: gate(x, w, alpha).contiguous()},
    result_at_every_second_place=lambda: {
        "fn": lambda x, w, alpha: torch.stack([gate(x, w, alpha)] * 2, -1)[..., 0]
    },
)


@fault("an argument is returned where nothing changes", "aliasing")
def _() -> Trial:
    return one_operator(
        lambda x: x if bool((x >= 0).all()) else x.relu(), torch.relu, samples=[((tensor(3, 4).abs(),), {})]
    )


@fault("an argument is returned as a view", "aliasing")
def _() -> Trial:
    return one_operator(lambda x: x[...], torch.clone)


@fault("two results lie in one memory", "aliasing")
def _() -> Trial:
    def fn(x: torch.Tensor) -> Any:
        both = torch.stack([x, -x])
        return both[0], both[1]

    return one_operator(
        fn, lambda x: (x.clone(), -x), meta=lambda x: (TensorProxy(like=x), TensorProxy(like=x))
    )


@fault("one result is returned twice", "aliasing")
def _() -> Trial:
    def fn(x: torch.Tensor) -> Any:
        y = x + 1
        return y, y

    return one_operator(
        fn, lambda x: (x + 1, x + 1), meta=lambda x: (TensorProxy(like=x), TensorProxy(like=x))
    )


@fault("a declared view is a copy", "aliasing")
def _() -> Trial:
    return one_operator(
        lambda x: x.unsqueeze(0).clone(),
        lambda x: x.unsqueeze(0),
        meta=lambda x: TensorProxy(like=x, shape=(1, *x.shape)),
        tags=(OpTags.VIEW,),
    )


def _negated_and_back(x: Any, w: Any, alpha: float) -> Any:
    out = gate(x, w.neg_(), -alpha)
    w.neg_().add_(1e-6)
    return out


def _first_element_zeroed(x: Any, w: Any, alpha: float) -> Any:
    out = gate(x, w, alpha)
    if x.is_contiguous():
        x.view(-1)[:1].zero_()
    return out


def _unsqueezed(x: Any, w: Any, alpha: float) -> Any:
    out = gate(x, w, alpha)
    x.unsqueeze_(0)
    return out


_of_gate(
    "inputs",
    first_argument_overwritten=lambda: {"fn": lambda x, w, alpha: x.mul_(torch.sigmoid(alpha * w)).clone()},
    second_argument_overwritten=lambda: {"fn": lambda x, w, alpha: x * w.mul_(alpha).sigmoid_()},
    argument_changed_and_not_quite_put_back=lambda: {"fn": _negated_and_back},
    argument_changed_in_one_element=lambda: {"fn": _first_element_zeroed},
    argument_given_another_shape=lambda: {"fn": _unsqueezed},
)


# -- values --------------------------------------------------------------------------------------------------


def _by_memory(x: Any, w: Any, alpha: float) -> Any:
    """As a kernel reads that was given a pointer and a number of elements, and no strides."""
    if x.ndim == 0 or x.numel() == 0:
        return gate(x, w, alpha)
    flat = [torch.as_strided(t, (t.numel(),), (1,), t.storage_offset()).view(t.shape) for t in (x, w)]
    out = torch.empty_like(x)
    return out.copy_(gate(*flat, alpha))


def _last_left_out(x: Any, w: Any, alpha: float) -> Any:
    out = gate(x, w, alpha)
    if out.numel() % 4:
        out.select(-1, -1).zero_() if out.ndim else out.zero_()
    return out


_of_gate(
    "values",
    wrong_constant=lambda: {"fn": lambda x, w, alpha: gate(x, w, alpha * 1.001)},
    number_ignored=lambda: {"fn": lambda x, w, alpha: gate(x, w)},
    sign_ignored=lambda: {"fn": lambda x, w, alpha: gate(x, w, abs(alpha))},
    arguments_exchanged=lambda: {"fn": lambda x, w, alpha: gate(w, x, alpha)},
    computed_in_bfloat16=lambda: {
        "fn": lambda x, w, alpha: gate(x.bfloat16(), w.bfloat16(), alpha).to(x.dtype)
    },
    computed_in_float32_for_float64=lambda: {
        "fn": lambda x, w, alpha: gate(x.float(), w.float(), alpha).to(x.dtype)
    },
    wrong_for_bfloat16_alone=lambda: {
        "fn": lambda x, w, alpha: gate(x, w, alpha) * (0.9 if x.dtype is torch.bfloat16 else 1)
    },
    strides_of_arguments_ignored=lambda: {"fn": _by_memory},
    tail_of_a_row_left_out=lambda: {"fn": _last_left_out},
    nan_lost=lambda: {"fn": lambda x, w, alpha: gate(x, w.nan_to_num(), alpha)},
    infinity_clamped=lambda: {"fn": lambda x, w, alpha: gate(x, w.clamp(-1, 1), alpha)},
    results_remembered_by_shape=lambda: {"fn": _memoised()},
    negative_numbers_dropped=lambda: {"fn": lambda x, w, alpha: gate(x, w, alpha).relu()},
    wrong_where_dimensions_are_three=lambda: {
        "fn": lambda x, w, alpha: gate(x, w, alpha).flip(0) if x.ndim == 3 else gate(x, w, alpha)
    },
)


@fault("a reduction over the wrong dimension of square tensors", "values")
def _() -> Trial:
    return one_operator(
        lambda x: x.sum(0),
        lambda x: x.sum(1),
        meta=lambda x: TensorProxy(like=x, shape=x.shape[:1]),
        samples=[((tensor(4, 4),), {})],
    )


@fault("a row of torch is replaced by its approximation", "values")
def _() -> Trial:
    return gelu_executor(lambda input, approximate: thunder.torch.gelu(input, approximate="tanh"))


# -- claims and refusals -------------------------------------------------------------------------------------


def _only_float32(x: Any, w: Any, alpha: float) -> Any:
    if x.dtype is not torch.float32:
        raise RuntimeError(f"no kernel for {x.dtype}")
    return gate(x, w, alpha)


def _no_empty_tensors(x: Any, w: Any, alpha: float) -> Any:
    return gate(x, w, alpha) + 0 * x.abs().max()


def _only_dense(x: Any, w: Any, alpha: float) -> Any:
    return gate(x.view(-1), w.view(-1), alpha).view(x.shape)


_of_gate(
    "claims",
    claims_dtypes_that_it_cannot_run=lambda: {"fn": _only_float32},
    claims_empty_tensors_that_it_cannot_run=lambda: {"fn": _no_empty_tensors},
    claims_strides_that_it_cannot_run=lambda: {"fn": _only_dense},
)


@fault("the operator of an implementation takes other arguments", "claims")
def _() -> Trial:
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
def _() -> Trial:
    executor = _SaysYes(name())
    executor.register_implementation("torch.sin", execution_transform=lambda input: thunder.torch.sin(input))
    executor.get_execution_transform = lambda bsym: None  # type: ignore[method-assign]
    return Trial(executor, {"samples": {"torch.sin": [((tensor(3),), {})]}})


@fault("another meta function than that of the row that it implements", "claims")
def _() -> Trial:
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


_of_gate(
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
def _() -> Trial:
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


def _checking(fn: Callable[..., Any]) -> Callable[[], dict[str, Any]]:
    return lambda: {"checker": lambda x, w, alpha: fn(x) and gate_checker(x, w, alpha)}


_KERNELS = {thunder.float32: 1, thunder.float64: 2, thunder.bfloat16: 3}

_of_gate(
    "checker",
    checker_that_fails_for_dtypes_it_does_not_know=_checking(lambda x: _KERNELS[x.dtype]),
    checker_that_fails_without_dimensions=_checking(lambda x: x.shape[-1] >= 0),
    checker_that_looks_at_values=_checking(lambda x: bool(x.sum() < 1e9)),
    checker_that_takes_the_data=_checking(lambda x: len(x.tolist()) >= 0),
    checker_that_returns_None=lambda: {"checker": lambda x, w, alpha: None},
    checker_that_returns_a_number=lambda: {"checker": lambda x, w, alpha: 1},
    checker_that_takes_fewer_arguments=lambda: {"checker": lambda x, w: True},
    checker_that_asks_for_a_device=_checking(
        lambda x: torch.cuda.is_available() or Refusal("cuda", "needs a GPU")
    ),
    checker_that_asks_for_the_capability_of_the_machine=_checking(
        lambda x: torch.cuda.get_device_capability() >= (8, 0) or Refusal("sm", "needs an Ampere GPU")
    ),
    checker_that_alternates=lambda: {"checker": _alternating},
    checker_that_remembers=lambda: {"checker": _once_for_each_shape()},
    checker_that_knows_no_other_device=_checking(lambda x: {"cpu": True}[x.device.type]),
)

_of_gate(
    "modes",
    checker_that_depends_on_the_grad_mode=_checking(
        lambda x: not torch.is_inference_mode_enabled() or Refusal("mode", "not in inference mode")
    ),
    checker_that_depends_on_autocast=_checking(
        lambda x: not torch.is_autocast_enabled("cpu") or Refusal("mode", "not under autocast")
    ),
    meta_that_depends_on_autocast=lambda: {"meta": _meta_by_autocast},
    function_that_fails_on_inference_tensors=lambda: {
        "fn": lambda x, w, alpha: gate(x, w, alpha) if x._version >= 0 else x
    },
    function_that_follows_another_algorithm_when_deterministic=lambda: {
        "fn": lambda x, w, alpha: gate(x, w, alpha) * (1 + torch.are_deterministic_algorithms_enabled())
    },
)

_of_gate(
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
    transform_with_another_signature=lambda input: gelu_transform(input, "none"),
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


# -- repetition and state ------------------------------------------------------------------------------------

_runs = SimpleNamespace(count=0, known={})


def _noisy(x: Any, w: Any, alpha: float) -> Any:
    return gate(x, w, alpha) * (1 + 1e-6 * torch.rand(()).to(x.dtype))


def _counting(x: Any, w: Any, alpha: float) -> Any:
    _runs.count += 1
    return gate(x, w, alpha) + 1e-6 * (_runs.count % 3)


def _hurried(x: Any, w: Any, alpha: float) -> Any:
    order = random.sample(range(3), 3)
    parts = [gate(x, w, alpha) * k for k in (0.1, 0.7, 0.2)]
    return sum(parts[i] for i in order) + 1e-7 * order[0]


_of_gate(
    "repeats",
    random_numbers_undeclared=lambda: {"fn": _noisy},
    counts_its_runs=lambda: {"fn": _counting},
    adds_in_a_random_order=lambda: {"fn": _hurried},
)


@fault("a random operator with a generator of its own", "repeats")
def _() -> Trial:
    generator = torch.Generator()
    return one_operator(
        lambda x: torch.rand(x.shape, generator=generator), torch.rand_like, tags=(OpTags.RANDOM_OP,)
    )


def _and(change: Callable[[], Any]) -> Callable[[], dict[str, Any]]:
    def fn(x: Any, w: Any, alpha: float) -> Any:
        change()
        return gate(x, w, alpha)

    return lambda: {"fn": fn}


_of_gate(
    "state",
    leaves_the_grad_mode_changed=_and(lambda: torch.set_grad_enabled(True)),
    leaves_the_default_dtype_changed=_and(lambda: torch.set_default_dtype(torch.float64)),
    leaves_deterministic_algorithms_on=_and(lambda: torch.use_deterministic_algorithms(True, warn_only=True)),
    leaves_autocast_on=_and(lambda: torch.set_autocast_enabled("cpu", True)),
    leaves_fewer_threads=_and(lambda: torch.set_num_threads(torch.get_num_threads() + 1)),
    leaves_the_precision_of_matmul_changed=_and(lambda: torch.set_float32_matmul_precision("medium")),
    seeds_torch=_and(lambda: torch.manual_seed(0)),
    draws_and_throws_away=_and(lambda: torch.rand(2)),
    seeds_Python=_and(lambda: random.seed(0)),
    sets_an_environment_variable=_and(lambda: os.environ.update(TOY_KERNEL_CACHE="1")),
    silences_warnings=_and(lambda: warnings.simplefilter("ignore")),
    checker_that_leaves_the_grad_mode_changed=_checking(lambda x: torch.set_grad_enabled(True) is not None),
    meta_that_leaves_the_default_dtype_changed=lambda: {
        "meta": lambda x, w, alpha=1.0: (torch.set_default_dtype(torch.float64), gate_meta(x, w))[1]
    },
)


# -- threads -------------------------------------------------------------------------------------------------

_scratch: dict[Any, torch.Tensor] = {}
_settings = SimpleNamespace(alpha=1.0)


def _in_scratch_memory(x: Any, w: Any, alpha: float) -> Any:
    key = (tuple(x.shape), x.dtype)
    if key not in _scratch:
        _scratch[key] = torch.empty(x.shape, dtype=x.dtype)
    buffer = _scratch[key]
    torch.mul(w, alpha, out=buffer)
    buffer.sigmoid_()
    return x * buffer


def _by_settings(x: Any, w: Any, alpha: float) -> Any:
    _settings.w = w
    _settings.s = torch.sigmoid(alpha * _settings.w)
    return x * _settings.s


def _memoised() -> Callable[..., Any]:
    known: dict[Any, torch.Tensor] = {}

    def fn(x: Any, w: Any, alpha: float) -> Any:
        key = (tuple(x.shape), tuple(x.stride()), x.dtype, alpha)
        if key not in known:
            known[key] = gate(x, w, alpha)
        return known[key].clone()

    return fn


_kept: list[torch.Tensor] = []


def _keeping(keep: Callable[..., Any]) -> Callable[[], dict[str, Any]]:
    def fn(x: Any, w: Any, alpha: float) -> Any:
        out = gate(x, w, alpha)
        keep(x, w, out)
        return out

    return lambda: {"fn": fn}


class _WithWorkspace:
    def __init__(self) -> None:
        self.parts: list[torch.Tensor] = []

    def __call__(self, x: Any, w: Any, alpha: float) -> Any:
        self.parts.append(torch.sigmoid(alpha * w))
        first = self.parts[0]
        out = x * first
        self.parts.clear()
        return out


_of_gate(
    "threads",
    scratch_memory_for_all=lambda: {"fn": _in_scratch_memory},
    arguments_kept_in_a_global=lambda: {"fn": _by_settings},
    workspace_on_an_object=lambda: {"fn": _WithWorkspace()},
)


_of_gate("releases", arguments_kept_for_ever=_keeping(lambda x, w, out: _kept.append(w)))
_of_gate("releases", results_kept_for_ever=_keeping(lambda x, w, out: _kept.append(out)))


# -- gradients -----------------------------------------------------------------------------------------------


def _backward(change: Callable[..., Any]) -> Callable[[], dict[str, Any]]:
    """`gate_backward` with its results changed."""
    return lambda: {"backward": lambda g, x, w, alpha: change(*gate_backward(g, x, w, alpha), g, x, w, alpha)}


def _rule(body: Callable[..., Any]) -> Callable[[], dict[str, Any]]:
    """A rule that does something else than `gate_rule`."""

    def made(symbol: Any, backward: Any) -> Callable[..., Any]:
        return lambda x, w, alpha=1.0: body(symbol, backward, x, w, alpha)

    return lambda: {"rule": made}


def _one_missing(symbol: Any, backward: Any, x: Any, w: Any, alpha: float) -> Any:
    out = symbol(x, w, alpha)
    put_grads((x,), backward(get_grad(out), x, w, alpha)[:1])
    return out


def _all_missing(symbol: Any, backward: Any, x: Any, w: Any, alpha: float) -> Any:
    return symbol(x, w, alpha)


def _of_another_type(symbol: Any, backward: Any, x: Any, w: Any, alpha: float) -> Any:
    out = symbol(x, w, alpha)
    gx, gw = backward(get_grad(out), x, w, alpha)
    put_grads((x, w), (gx, thunder.torch.to(gw, torch.float16)))
    return out


def _too_few(symbol: Any, backward: Any, x: Any, w: Any, alpha: float) -> Any:
    out = symbol(x, w, alpha)
    put_grads((x, w), backward(get_grad(out), x, w, alpha)[:1])
    return out


def _another_structure(symbol: Any, backward: Any, x: Any, w: Any, alpha: float) -> Any:
    out = symbol(x, w, alpha)
    put_grads((x, w), backward(get_grad(out), x, w, alpha))
    return out, x


def _another_result(symbol: Any, backward: Any, x: Any, w: Any, alpha: float) -> Any:
    out = symbol(x, w, 1.0)
    put_grads((x, w), backward(get_grad(out), x, w, alpha))
    return out


def _needs_both(symbol: Any, backward: Any, x: Any, w: Any, alpha: float) -> Any:
    if not (x.requires_grad and w.requires_grad):
        raise RuntimeError("both arguments must require grad")
    return gate_rule(symbol, backward)(x, w, alpha)


def _without_the_number(symbol: Any, backward: Any, x: Any, w: Any) -> Any:
    return gate_rule(symbol, backward)(x, w, 1.0)


_of_gate(
    "gradient",
    wrong_gradient_of_one_argument=_backward(lambda gx, gw, g, x, w, alpha: (gx, gw * 1.01)),
    wrong_sign_of_a_gradient=_backward(lambda gx, gw, g, x, w, alpha: (gx, -gw)),
    gradients_exchanged=_backward(lambda gx, gw, g, x, w, alpha: (gw, gx)),
    gradient_without_the_chain_rule=_backward(lambda gx, gw, g, x, w, alpha: (gx, gw / alpha)),
    cotangent_ignored=lambda: {
        "backward": lambda g, x, w, alpha: gate_backward(torch.ones_like(g), x, w, alpha)
    },
    gradient_computed_in_bfloat16=lambda: {
        "backward": lambda g, x, w, alpha: tuple(
            t.to(x.dtype) for t in gate_backward(g.bfloat16(), x.bfloat16(), w.bfloat16(), alpha)
        )
    },
    gradient_of_another_dtype_at_run_time=_backward(
        lambda gx, gw, g, x, w, alpha: (gx.double().float().double(), gw)
    ),
    gradient_of_another_shape_at_run_time=_backward(lambda gx, gw, g, x, w, alpha: (gx.flatten(), gw)),
    cotangent_changed=lambda: {
        "backward": lambda g, x, w, alpha: (
            gate_backward(g, x, w, alpha),
            g.mul_(2) if g.is_contiguous() else 0,
        )[0]
    },
    argument_changed_in_the_backward=lambda: {
        "backward": lambda g, x, w, alpha: (gate_backward(g, x, w, alpha), x.zero_())[0]
    },
    cotangent_must_be_contiguous=lambda: {
        "backward": lambda g, x, w, alpha: (g.view(-1), gate_backward(g, x, w, alpha))[1]
    },
    cotangent_read_by_memory=lambda: {
        "backward": lambda g, x, w, alpha: gate_backward(
            g if g.is_contiguous() else torch.zeros_like(x), x, w, alpha
        )
    },
    backward_that_fails_when_it_runs=lambda: {"backward": lambda g, x, w, alpha: gate_backward(g, x, w)},
    gradient_of_one_argument_missing=_rule(_one_missing),
    gradients_of_all_arguments_missing=_rule(_all_missing),
    gradient_of_another_dtype_in_the_rule=_rule(_of_another_type),
    fewer_gradients_than_arguments=_rule(_too_few),
    rule_that_returns_another_structure=_rule(_another_structure),
    rule_that_returns_another_result=_rule(_another_result),
    rule_that_fails_where_one_argument_needs_none=_rule(_needs_both),
    rule_without_an_argument=lambda: {
        "rule": lambda symbol, backward: lambda x, w: _without_the_number(symbol, backward, x, w)
    },
)


def _product(w_gradient: Callable[[Any, Any, Any], Any], sum_bias: bool = True) -> Trial:
    """x @ wᵀ + b of square tensors, with a gradient of w as given."""
    executor = OperatorExecutor(name())
    symbol = executor.register_operator(
        "product", meta=lambda x, w, b: TensorProxy(like=x), fn=lambda x, w, b: x @ w.mT + b
    )
    backward = executor.register_operator(
        "product_backward",
        meta=lambda g, x, w, b: (TensorProxy(like=x), TensorProxy(like=w), TensorProxy(like=b)),
        fn=lambda g, x, w, b: (g @ w, w_gradient(g, x, w), g.sum(0) if sum_bias else g[0].clone()),
    )

    def rule(x: Any, w: Any, b: Any) -> Any:
        out = symbol(x, w, b)
        put_grads((x, w, b), backward(get_grad(out), x, w, b))
        return out

    executor.register_implementation(symbol, symbol, grad_transform=rule)
    return Trial(
        executor,
        {
            "samples": {symbol: [((tensor(4, 4), tensor(4, 4, seed=1), tensor(4)), {})]},
            "operators": "*.product",
        },
    )


@fault("transposed gradient of a square matrix", "gradient")
def _() -> Trial:
    return _product(lambda g, x, w: x.mT @ g)


@fault("gradient of a broadcast argument that is not summed", "gradient")
def _() -> Trial:
    return _product(lambda g, x, w: g.mT @ x, sum_bias=False)


# -- fusions -------------------------------------------------------------------------------------------------


def _fuser(what: str, caught_by: str = "regions") -> Callable[[type[Runs]], type[Runs]]:
    """Enters the fusion executor of a class."""

    def decorate(cls: type[Runs]) -> type[Runs]:
        FAULTS.append(Fault(what, caught_by, lambda: fuser(cls)))
        return cls

    return decorate


@_fuser("a fusion that drops what others read")
class _Drops(Runs):
    def outputs(self, proxies: Any, made: Any) -> Any:
        return super().outputs(proxies, made)[-1:]


@_fuser("a fusion that returns its results in another order")
class _Reverses(Runs):
    def returned(self, results: list[torch.Tensor]) -> Any:
        return results[::-1]


@_fuser("a fusion that returns another dtype")
class _Widens(Runs):
    def returned(self, results: list[torch.Tensor]) -> Any:
        return [x.double() for x in results]


@_fuser("a fusion that returns a tensor and no list")
class _Unpacked(Runs):
    def returned(self, results: list[torch.Tensor]) -> Any:
        return results[0] if len(results) == 1 else results


@_fuser("a fusion that returns other strides")
class _Transposes(Runs):
    def returned(self, results: list[torch.Tensor]) -> Any:
        return [x.mT.contiguous().mT if x.ndim > 1 else x for x in results]


@_fuser("a fusion that returns results in one memory")
class _Shares(Runs):
    def returned(self, results: list[torch.Tensor]) -> Any:
        return list(torch.stack(results)) if len({x.shape for x in results}) == 1 else results


@_fuser("a fusion that overwrites its arguments")
class _Overwrites(Runs):
    def step(self, bsym: Any, values: dict[str, Any]) -> torch.Tensor:
        out = super().step(bsym, values)
        first = next(iter(values.values()))
        return first.copy_(out).clone() if first.shape == out.shape else out


@_fuser("a fusion that takes equal arguments for one")
class _Merges(Runs):
    def inputs(self, proxies: Any) -> Any:
        return list({(p.shape, p.dtype): p for p in super().inputs(proxies)}.values())


@_fuser("a fusion that leaves out a call that nobody else reads")
class _Skips(Runs):
    def step(self, bsym: Any, values: dict[str, Any]) -> torch.Tensor:
        known = len(values) > 2
        return values[bsym.args[0].name].clone() if known else super().step(bsym, values)


@_fuser("a fusion that is less precise")
class _Rounds(Runs):
    def step(self, bsym: Any, values: dict[str, Any]) -> torch.Tensor:
        out = super().step(bsym, values)
        return out.to(torch.bfloat16).to(out.dtype)


@_fuser("a fusion that keeps its first results")
class _Remembers(Runs):
    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        run, known = super().compiled(bsyms, inputs, outputs), []

        def cached(*args: torch.Tensor) -> list[torch.Tensor]:
            known.append(run(*args))
            return [x + 1e-3 * (len(known) - 1) for x in known[0]]

        return cached


class _Everything(Runs):
    """One region of everything that it has, wherever it stands."""

    at_the_end = True

    def fusion_pass(self, trace: Any) -> Any:
        mine = [b for b in trace.bound_symbols if self.is_mine(b)]
        if not mine or not self.get_fuel():
            return trace
        new = thunder.core.trace.from_trace(trace)
        others = [b for b in trace.bound_symbols if not self.is_mine(b)]
        read = {p.name for b in others for p in b.flat_proxy_args}
        place = len(others) - 1 if self.at_the_end else 0
        new.bound_symbols = [*others[:place], self.fuse((mine, read), 0), *others[place:]]
        return new


@_fuser("a region that is moved behind what reads it, and behind writes")
class _Sinks(_Everything):
    pass


@_fuser("a region that is moved before what it reads")
class _Hoists(_Everything):
    at_the_end = False


def _writes(bsym: Any) -> bool:
    return any(b.sym.name == "copy_" for b in (bsym, *bsym.subsymbols))


@_fuser("a write to an argument is moved before what reads the argument")
class _WritesEarly(Runs):
    def fusion_pass(self, trace: Any) -> Any:
        new = thunder.core.trace.from_trace(trace)
        for bsym in trace.bound_symbols:
            place = len(new.bound_symbols)
            if _writes(bsym):
                value = bsym.args[0].name
                place = 1 + next(
                    i
                    for i, b in enumerate(new.bound_symbols)
                    if any(p.name == value for p in b.flat_proxy_outs)
                )
            new.bound_symbols.insert(place, bsym)
        return super().fusion_pass(new)


@_fuser("a fusion pass that loses the write to an argument")
class _LosesWrites(Runs):
    def fusion_pass(self, trace: Any) -> Any:
        new = super().fusion_pass(trace)
        new.bound_symbols = [b for b in new.bound_symbols if not _writes(b)]
        return new


@_fuser("a fusion pass that takes the calls of others")
class _Takes(Runs):
    def is_mine(self, bsym: Any) -> bool:
        return bsym.sym.name in ("sin", "mul", "opaque") and not bsym.sym.is_fusion


@_fuser("a fusion pass that returns nothing")
class _Nothing(Runs):
    def fusion_pass(self, trace: Any) -> Any:
        super().fusion_pass(trace)


@_fuser("a fusion that names a result that is read inside only")
class _Misnames(Runs):
    def outputs(self, proxies: Any, made: Any) -> Any:
        return [*super().outputs(proxies, made), TensorProxy(like=proxies[0])] if proxies else []


@_fuser("fuel is not asked for", "fuel")
class _NoFuel(Runs):
    def get_fuel(self, amount: int = 1) -> bool:
        return True


@_fuser("fusions are numbered through all traces", "fusions-repeat")
class _Counts(Runs):
    count = 0

    def fusion_name(self, fusion_counter: int) -> str:
        type(self).count += 1
        return f"{self.name}_{self.count}"


@_fuser("scratch memory of a fusion", "fusion-threads")
class _Scratch(Runs):
    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        values: dict[str, Any] = {}

        def run(*args: torch.Tensor) -> list[torch.Tensor]:
            values.update(zip(inputs, args, strict=True))
            for bsym in bsyms:
                values[bsym.output.name] = self.step(bsym, values)
            return [values[n] for n in outputs]

        return run


# -- compiled functions --------------------------------------------------------------------------------------


class _Computes(OperatorExecutor):
    """Answers for itself, and leaves what it computes for that in the program. (A checker cannot.)"""

    def can_execute(self, bsym: Any) -> bool | Refusal:
        return super().can_execute(bsym) if (bsym.flat_proxy_args[0] + 1).ndim >= 0 else Refusal("no", "no")


@fault("an answer that computes", "checker")
def _() -> Trial:
    return gelu_executor(cls=_Computes)


class _NotFromPrograms(OperatorExecutor):
    def can_execute(self, bsym: Any) -> bool | Refusal:
        return Refusal("program", "it is a call of a program") if bsym.source else super().can_execute(bsym)


@fault("calls that have a line in a program are refused", "jit")
def _() -> Trial:
    return gelu_executor(cls=_NotFromPrograms)


@fault("a transform that leaves the casts of autocast out", "jit")
def _() -> Trial:
    def transform(input: Any, weight: Any, bias: Any) -> Any:
        wide = [thunder.torch.to(t, torch.float32) for t in (input, weight)]
        out = thunder.torch.matmul(wide[0], thunder.torch.t(wide[1]))
        return out if bias is None else thunder.torch.add(out, bias)

    def checker(input: Any, weight: Any, bias: Any) -> bool | Refusal:
        return True if input.ndim == 2 else Refusal("rank", "matrices alone are taken")

    executor = OperatorExecutor(name())
    executor.register_implementation(
        "torch.nn.functional.linear", execution_transform=transform, checker=checker
    )
    samples = {"torch.nn.functional.linear": [((tensor(3, 4), tensor(5, 4)), {})]}
    return Trial(executor, {"samples": samples, "dtypes": [torch.float32]})


# -- what shows in some runs only ----------------------------------------------------------------------------


def _wrong_if_large(x: Any, w: Any, alpha: float) -> Any:
    return gate(x, w, alpha) * (2 if x.numel() > 4096 else 1)


def _once_in_a_thousand_runs(x: Any, w: Any, alpha: float) -> Any:
    _runs.rare = getattr(_runs, "rare", 0) + 1
    return gate(x, w, alpha) + (1e-3 if _runs.rare % 1000 == 0 else 0)


def _wrong_at_one_number(x: Any, w: Any, alpha: float) -> Any:
    return gate(x, w, 0.0 if alpha == 0.123 else alpha)


#: these need a sample that shows them, which the tests cannot make up; they are not found
_of_gate(
    NOT_FOUND,
    wrong_for_large_tensors=lambda: {"fn": _wrong_if_large},
    wrong_once_in_a_thousand_runs=lambda: {"fn": _once_in_a_thousand_runs},
    wrong_for_one_value_of_a_number=lambda: {"fn": _wrong_at_one_number},
)
