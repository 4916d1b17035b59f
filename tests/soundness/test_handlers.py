"""What eager does when an operator raises on data: handlers, effects before it, modes, output, generators."""

from __future__ import annotations

import contextlib
import io
import traceback
import warnings

import pytest
import torch
from torch import nn

import thunder
from recorded_refusals import refusals_as_recorded
from soundness.handlers import judgements
from thunder.extend import OperatorExecutor

GOOD, BAD = torch.eye(2), -torch.eye(2)


def test_programs_with_handlers_do_what_eager_does():
    verdicts = list(judgements(range(0, 60)))
    with refusals_as_recorded("programs with handlers", "seeds from 0 to 59") as refusals:
        for seed, verdict, why in verdicts:
            if verdict == "refused":
                refusals.add(seed, why)
    assert [(seed, why) for seed, verdict, why in verdicts if verdict == "wrong"] == []
    assert sum(verdict == "equal" for _, verdict, _ in verdicts) > 0.95 * len(verdicts)


def test_a_handler_runs_for_an_operator_that_raises_on_data_only():
    def program(x):
        try:
            return torch.linalg.cholesky(x)
        except RuntimeError as error:
            return x * len(str(error))

    compiled = thunder.jit(program)
    for x in (GOOD, BAD, GOOD, BAD):
        assert torch.equal(compiled(x), program(x))
    assert thunder.cache_misses(compiled) == 1
    assert thunder.compile_stats(compiled).runs_by_python == 2


def test_an_operator_that_is_called_for_its_error_alone_is_not_dropped():
    def is_positive_definite(x):
        try:
            torch.linalg.cholesky(x)
        except RuntimeError:
            return False
        return True

    compiled = thunder.jit(is_positive_definite)
    assert [compiled(x) for x in (GOOD, BAD, GOOD)] == [True, False, True]


def test_an_operator_that_cannot_raise_is_dropped_as_before():
    def program(x, i):
        x.sin()
        torch.gather(x, 0, i)
        return x + 1

    compiled = thunder.jit(program)
    compiled(GOOD, torch.zeros(1, 2, dtype=torch.int64))
    text = str(thunder.last_traces(compiled)[-1])
    assert "torch.gather" in text
    assert "torch.sin(" not in text


def test_writes_output_and_draws_before_the_error_are_those_of_eager():
    class Counter:
        n = 0

    def program(x, counter, buffer):
        counter.n += 1
        buffer.add_(torch.rand(2))
        print("before", counter.n)
        y = torch.linalg.cholesky(x)
        print("after")
        return y

    def observed(fn, x):
        counter, buffer, output = Counter(), torch.zeros(2), io.StringIO()
        torch.manual_seed(3)
        with contextlib.redirect_stdout(output), contextlib.suppress(RuntimeError):
            fn(x, counter, buffer)
        return counter.n, buffer.tolist(), output.getvalue(), torch.rand(1).item()

    compiled = thunder.jit(program)
    for x in (GOOD, BAD, GOOD, BAD):
        assert observed(compiled, x) == observed(program, x)


def test_a_generator_of_the_callers_is_where_eager_leaves_it():
    def program(x, generator):
        noise = torch.rand(2, generator=generator)
        try:
            y = torch.linalg.cholesky(x)
        finally:
            noise = noise + torch.rand(2, generator=generator)
        return y + noise

    compiled = thunder.jit(program)
    for x in (GOOD, BAD, GOOD):
        states = []
        for fn in (program, compiled):
            generator = torch.Generator().manual_seed(1)
            with contextlib.suppress(RuntimeError):
                fn(x, generator)
            states.append(generator.get_state())
        assert torch.equal(*states)


def with_no_grad(x):
    with torch.no_grad():
        return torch.linalg.cholesky(x)


def sets_grad_mode(x):
    torch.set_grad_enabled(False)
    return torch.linalg.cholesky(x)


def with_inference_mode(x):
    with torch.inference_mode(), torch.inference_mode(False), torch.inference_mode():
        return torch.linalg.cholesky(x)


def restores_dtype(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return torch.linalg.cholesky(x) + torch.ones(2)
    finally:
        torch.set_default_dtype(before)


def leaves_dtype(x):
    torch.set_default_dtype(torch.float64)
    return torch.linalg.cholesky(x)


def leaves_autocast(x):
    torch.set_autocast_enabled("cpu", True)
    return torch.linalg.cholesky(x)


def with_autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        return torch.linalg.cholesky(x @ x)


def raises_in_python(x):
    torch.set_default_dtype(torch.float64)
    raise KeyError("while it is traced")


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(
    "program",
    [
        with_no_grad,
        sets_grad_mode,
        with_inference_mode,
        restores_dtype,
        leaves_dtype,
        leaves_autocast,
        with_autocast,
        raises_in_python,
    ],
)
def test_the_modes_after_a_call_are_those_of_eager(program, requires_grad):
    def modes_after(fn, x):
        kept = None
        try:
            fn(x.clone().requires_grad_(requires_grad))
        except Exception as error:
            kept = error  # alive, with what its traceback holds
        found = (
            type(kept),
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.get_default_dtype(),
            torch.is_autocast_enabled("cpu"),
        )
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        torch.set_autocast_enabled("cpu", False)
        torch.clear_autocast_cache()
        return found

    compiled = thunder.jit(program)
    for x in (GOOD, BAD, BAD, GOOD):
        assert modes_after(compiled, x) == modes_after(program, x)


def test_the_programs_handlers_see_the_class_and_text_of_torchs_errors_of_shape():
    def program(x, log):
        for call in (lambda: x.sum(5), lambda: x @ torch.ones(7, 7), lambda: x.view(5)):
            try:
                call()
            except RuntimeError as error:
                log.append((type(error).__name__, str(error), error.__cause__, error.__context__))
            except IndexError as error:
                log.append((type(error).__name__, str(error), error.__cause__, error.__context__))
        return x

    ours, theirs = [], []
    program(GOOD, theirs)
    thunder.jit(program)(GOOD, ours)
    assert ours == theirs
    assert [name for name, *_ in ours] == ["IndexError", "RuntimeError", "RuntimeError"]


def test_the_error_of_the_second_run_is_alone_and_notes_the_statement():
    def program(x, log):
        log.append(1)
        return torch.linalg.cholesky(x)

    with pytest.raises(torch.linalg.LinAlgError) as caught:
        thunder.jit(program)(BAD, [])
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert "while the compiled program ran" in caught.value.__notes__[0]
    assert "return torch.linalg.cholesky(x)" in "".join(traceback.format_exception(caught.value))


def failing(x):
    raise KeyError("in the kernel")


@pytest.fixture
def executor():
    ex = OperatorExecutor("handlers_ex")
    fails = ex.register_operator(
        "fails", meta=lambda x: thunder.TensorProxy(like=x), fn=failing, replace=True
    )
    ex.register_implementation("torch.sin", fails)
    return ex


def test_an_executors_error_that_eager_does_not_raise_is_passed_on(executor):
    def program(x, log):
        log.append(1)
        return torch.sin(x)

    log = []
    with pytest.raises(KeyError, match="in the kernel") as caught:
        thunder.jit(program, executors=[executor])(GOOD, log)
    assert "the same call did not raise" in "\n".join(caught.value.__notes__)
    assert log == [1]


def in_no_grad(x):
    with torch.no_grad():
        return torch.sin(x)


def with_an_end(x):
    try:
        return torch.sin(x)
    finally:
        x.add_(1)


def with_another_handler(x):
    try:
        return torch.sin(x)
    except KeyError:
        return torch.linalg.cholesky(x)


def that_handles_an_error_of_another_class(x):
    try:
        return torch.sin(x) + torch.linalg.cholesky(-x @ x)
    except torch.linalg.LinAlgError:
        return x


@pytest.mark.parametrize(
    "program", [in_no_grad, with_an_end, with_another_handler, that_handles_an_error_of_another_class]
)
def test_a_handler_that_handles_nothing_in_eager_hides_no_error_of_an_executor(executor, program):
    with pytest.raises(KeyError, match="in the kernel") as caught:
        thunder.jit(program, executors=[executor])(GOOD.clone())
    assert "the same call did not raise" in "\n".join(caught.value.__notes__)


def test_an_error_that_eager_handles_in_another_call_is_handled(executor):
    def load(x):
        try:
            return {"y": torch.sin(x)}["x"]
        except KeyError:
            return x * 2

    assert torch.equal(thunder.jit(load, executors=[executor])(GOOD), GOOD * 2)


class Nothing(thunder.Transform):
    """A transform: the program that runs is not what the user wrote."""


def test_under_a_transform_the_error_is_passed_on_and_no_handler_runs():
    def program(x, log):
        log.append(1)
        try:
            return torch.linalg.cholesky(x)
        except RuntimeError:
            return x

    log = []
    compiled = thunder.jit(program, transforms=[Nothing()])
    with pytest.raises(torch.linalg.LinAlgError) as caught:
        compiled(BAD, log)
    assert "handlers of the program did not run" in "\n".join(caught.value.__notes__)
    assert log == []


def test_a_compiled_module_runs_by_python_with_its_own_state():
    class Factor(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("failures", torch.zeros(()))

        def forward(self, x):
            try:
                return torch.linalg.cholesky(x)
            except torch.linalg.LinAlgError:
                self.failures += 1
                return x

    eager, compiled = Factor(), thunder.jit(Factor())
    for x in (GOOD, BAD, BAD):
        assert torch.equal(compiled(x), eager(x))
    assert torch.equal(compiled.failures, eager.failures)


def test_a_generator_that_a_refused_program_left_runs_no_more():
    ran = []

    def steps(x, log):
        try:
            yield x
        finally:
            log.append("closed")

    def program(x, log):
        for y in steps(x, log):
            return y.data_ptr()

    with pytest.raises(thunder.UnsupportedProgram, match=r"tensor\.data_ptr\(\)"):
        thunder.jit(program)(GOOD, ran)
    assert ran == []


def test_an_unhandled_error_of_shape_is_a_subclass_with_torchs_text():
    def program(x):
        return x.sum(5)

    with pytest.raises(IndexError) as theirs:
        program(GOOD)
    with pytest.raises(IndexError) as ours:
        thunder.jit(program)(GOOD)
    assert str(ours.value).startswith(str(theirs.value))
    assert "return x.sum(5)" in str(ours.value)


def test_a_program_that_raises_warns_once():
    def program(x, log):
        warnings.warn("once", stacklevel=1)
        log.append(1)
        return torch.linalg.cholesky(x)

    compiled = thunder.jit(program)
    counts = []
    for x in (GOOD, BAD, GOOD):
        with warnings.catch_warnings(record=True) as caught, contextlib.suppress(RuntimeError):
            warnings.simplefilter("always")
            compiled(x, [])
        counts.append(len(caught))
    assert counts == [1, 1, 1]


calls: list[int] = []


@torch.library.custom_op("soundness_handlers::counted", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    """Twice x; counts its calls."""
    calls.append(1)
    return x * 2


@counted.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_a_custom_operator_runs_again_with_the_program():
    def handles(x):
        y = torch.ops.soundness_handlers.counted(x)
        try:
            return torch.linalg.cholesky(y)
        except RuntimeError:
            return y

    def passes_on(x):
        return torch.linalg.cholesky(torch.ops.soundness_handlers.counted(x))

    for program, expected in ((handles, [1, 2]), (passes_on, [1, 1])):
        compiled, counts = thunder.jit(program), []
        for x in (GOOD, BAD):
            calls.clear()
            with contextlib.suppress(RuntimeError):
                compiled(x)
            counts.append(len(calls))
        assert counts == expected


LOSSES = {
    "nll_loss": lambda x, i, v: torch.nn.functional.nll_loss(x, i[:, 0]),
    "cross_entropy": lambda x, i, v: torch.nn.functional.cross_entropy(x, i[:, 0]),
    "multi_margin_loss": lambda x, i, v: torch.nn.functional.multi_margin_loss(x, i[:, 0]),
    "multilabel_margin_loss": lambda x, i, v: torch.nn.functional.multilabel_margin_loss(x, i),
    "gaussian_nll_loss": lambda x, i, v: torch.nn.functional.gaussian_nll_loss(x, x, v),
    "binary_cross_entropy": lambda x, i, v: torch.nn.functional.binary_cross_entropy(v * x, v),
    "take_along_dim": lambda x, i, v: torch.take_along_dim(x, i),
    "gather": lambda x, i, v: torch.gather(x, 1, i),
    "index_select": lambda x, i, v: torch.index_select(x, 1, i[0]),
    "embedding": lambda x, i, v: torch.nn.functional.embedding(i, x),
    "getitem": lambda x, i, v: x[i],
    "inv": lambda x, i, v: torch.linalg.inv(x * 0),
    "cov": lambda x, i, v: torch.cov(x, aweights=v[0]),
}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_errors_of_data_have_torchs_class_and_text(name, requires_grad):
    def called(program):
        x = torch.full((3, 3), 0.5, requires_grad=requires_grad)
        try:
            return program(x, torch.full((3, 3), -7), torch.full((3, 3), -2.0)).tolist()
        except Exception as error:
            return type(error), str(error)

    def for_its_error_alone(x, i, v):
        LOSSES[name](x, i, v)
        return x

    for program in (LOSSES[name], for_its_error_alone):
        expected = called(program)
        assert isinstance(expected, tuple), "the data is to be such as torch refuses"
        assert called(thunder.jit(program)) == expected


@torch.library.custom_op("soundness_handlers::loud", mutates_args=())
def loud(x: torch.Tensor) -> torch.Tensor:
    """Twice x; prints."""
    print("kernel")
    return x * 2


@loud.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_output_is_written_when_the_computation_has_ended(capsys):
    def program(x):
        print("before")
        return torch.ops.soundness_handlers.loud(x)

    compiled = thunder.jit(program)
    for _ in range(2):
        compiled(GOOD)
        assert capsys.readouterr().out == "kernel\nbefore\n"
