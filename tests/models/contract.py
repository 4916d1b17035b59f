"""What must hold for every model: a subclass collects these tests for its own list of models."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

import thunder
from comparison.inputs import buffers
from comparison.results import assert_same
from thunder.ir.verify import check_trace

Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]

CALLS = 2
SEED_OF_MODEL = 5
SEED_OF_CALL = 11


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model by the function that makes it; a `tolerance` other than 0 has a `reason`."""

    name: str
    make: Callable[[int], Made]
    training: bool
    tolerance: float = 0.0
    reason: str = ""

    def __post_init__(self) -> None:
        if self.tolerance and not self.reason:
            raise ValueError(f"{self.name}: a tolerance needs a reason")

    def __str__(self) -> str:
        return f"{self.name}-{'train' if self.training else 'eval'}"


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What one call did: its result, the buffers after it, and where it left the random number generator."""

    result: Any
    buffers: dict[str, Tensor]
    rng_state: Tensor


@dataclass(frozen=True, kw_only=True)
class Session:
    """The same calls to an eager model and to a compiled copy of it, and one more to the eager one."""

    case: Case
    compiled: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    eager_calls: list[Observation]
    compiled_calls: list[Observation]
    eager_afterwards: Observation
    hits_and_misses: tuple[int, int]


def observe(
    call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Observation:
    """Calls without gradients from a fixed seed; `module` is the one whose buffers are looked at."""
    torch.manual_seed(SEED_OF_CALL)
    with torch.no_grad():
        result = call(*args, **kwargs)
    return Observation(result=deepcopy(result), buffers=buffers(module), rng_state=torch.get_rng_state())


def run_session(case: Case) -> Session:
    """Compiles the model of `case` and calls it, and its eager twin, `CALLS` times."""
    eager, args, kwargs = case.make(SEED_OF_MODEL)
    twin, twin_args, twin_kwargs = case.make(SEED_OF_MODEL)
    eager.train(case.training)
    twin.train(case.training)
    compiled = thunder.jit(twin)
    eager_calls = [observe(eager, eager, args, kwargs) for _ in range(CALLS)]
    compiled_calls = [observe(compiled, twin, twin_args, twin_kwargs) for _ in range(CALLS)]
    return Session(
        case=case,
        compiled=compiled,
        args=twin_args,
        kwargs=twin_kwargs,
        eager_calls=eager_calls,
        compiled_calls=compiled_calls,
        eager_afterwards=observe(eager, eager, args, kwargs),
        hits_and_misses=(thunder.cache_hits(compiled), thunder.cache_misses(compiled)),
    )


def modes(name: str, make: Callable[[int], Made]) -> list[Case]:
    """The model in evaluation and in training."""
    return [Case(name=name, make=make, training=training) for training in (False, True)]


def fresh(values: tuple[Any, ...]) -> list[Any]:
    """Copies of the tensors, so that one run's in-place writes are not another run's input.

    They require gradients where the originals do: `at::matmul` looks at that flag, even where gradients
    are off, when it decides whether to fold batch dimensions, and so how it rounds.
    """
    return [copy_of(v) if isinstance(v, Tensor) else v for v in values]


def copy_of(tensor: Tensor) -> Tensor:
    """A leaf with the same numbers and the same `requires_grad`."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def tensors(result: Any) -> list[Tensor]:
    """All tensors of a result, in containers and dataclasses too."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, dict):
        return [t for value in result.values() for t in tensors(value)]
    if isinstance(result, tuple | list):
        return [t for value in result for t in tensors(value)]
    if is_dataclass(result):
        return [t for f in fields(result) for t in tensors(getattr(result, f.name))]
    return []


class ModelContract:
    """Tests of one `session`; the collecting module has the fixture of that name."""

    def test_results_equal_eager_at_the_tracing_call_and_at_the_cached_one(self, session: Session) -> None:
        for number, (actual, expected) in enumerate(
            zip(session.compiled_calls, session.eager_calls, strict=True)
        ):
            assert_same(
                actual.result,
                expected.result,
                tolerance=session.case.tolerance,
                path=f"call {number} of {session.case}",
            )

    def test_buffers_after_each_call_equal_eager(self, session: Session) -> None:
        for number, (actual, expected) in enumerate(
            zip(session.compiled_calls, session.eager_calls, strict=True)
        ):
            assert_same(actual.buffers, expected.buffers, path=f"buffers after call {number}")

    def test_random_numbers_are_drawn_as_eager_draws_them(self, session: Session) -> None:
        for actual, expected in zip(session.compiled_calls, session.eager_calls, strict=True):
            assert torch.equal(actual.rng_state, expected.rng_state)

    def test_second_call_is_a_cache_hit(self, session: Session) -> None:
        assert session.hits_and_misses == (CALLS - 1, 1), thunder.last_recompile_reasons(session.compiled)

    def test_text_of_the_final_trace_runs_as_the_program_does(self, session: Session) -> None:
        trace = thunder.last_traces(session.compiled)[-1]
        context = trace.python_ctx()
        exec(str(trace), context)
        stats = thunder.compile_stats(session.compiled)
        assert stats is not None, "it was compiled"
        entry = stats.interpreter_cache[-1]
        with torch.no_grad():
            inputs, _ = entry.prologue_fn(*session.args, **session.kwargs)
        runs = []
        for program in (context["computation"], entry.computation_fn):
            arguments = fresh(inputs)
            torch.manual_seed(SEED_OF_CALL)
            with torch.no_grad():
                runs.append((program(*arguments), arguments))
        (text_result, text_arguments), (program_result, program_arguments) = runs
        assert_same(text_result, program_result, path="result of the text")
        assert_same(text_arguments, program_arguments, path="arguments after running the text")
        if not session.case.tolerance:
            found = tensors(text_result)
            for tensor in tensors(session.eager_afterwards.result):
                assert any(torch.equal(tensor, t) for t in found), (
                    "eager gives a tensor that the text does not"
                )

    def test_verifier_accepts_every_trace(self, session: Session) -> None:
        traces = thunder.last_traces(session.compiled)
        assert traces, "a compiled call leaves its traces"
        for trace in traces:
            check_trace(trace)
