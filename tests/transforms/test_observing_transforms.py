"""Transforms that watch: callbacks, times, ranges and non-finite values, in forward and backward."""

from __future__ import annotations

import io
import math
import pickle

import pytest
import torch
from torch import nn

import thunder
import thunder_transforms.optional_libraries
from comparison.inputs import leaf
from thunder.core.errors import InvalidArgument, RequirementNotMet
from thunder_transforms.constant_calls import ConstantFolding
from thunder_transforms.debug_transform import DebugTransform, debug_execution_trace
from thunder_transforms.non_finite import NonFiniteDetector, NonFiniteResult
from thunder_transforms.nvtx_ranges import NvtxProfileTransform
from thunder_transforms.profile_transform import ProfileTransform


def program(x, w):
    h = torch.sin(x) * w
    return torch.log(h).sum()


def line_of(text: str) -> int:
    with open(__file__, encoding="utf-8") as file:
        return next(i for i, line in enumerate(file, 1) if line.startswith(f"    {text}"))


def positive(*shape: int) -> torch.Tensor:
    return torch.linspace(0.2, 1.0, math.prod(shape)).reshape(shape).requires_grad_()


class Ranges:
    """Counts the ranges that are open; used in place of `torch.cuda.nvtx`."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.depth = 0

    def range_push(self, msg: str) -> None:
        self.names.append(msg)
        self.depth += 1

    def range_pop(self) -> None:
        self.depth -= 1


# -- callbacks ---------------------------------------------------------------------------------------------


def test_callbacks_get_values_and_their_texts_become_headers():
    seen = []

    def before(bsym, *args, **kwargs):
        seen.append((bsym.sym.name, [tuple(a.shape) for a in args if isinstance(a, torch.Tensor)]))

    def after(bsym, result, *args, **kwargs):
        return f"sum {float(result.sum()):.3f}" if bsym.sym.name == "mul" else None

    compiled = debug_execution_trace(thunder.jit(lambda x: torch.sin(x) * 2), before, after)
    x = torch.ones(2, 3)
    assert torch.equal(compiled(x), torch.sin(x) * 2)
    assert seen == [("sin", [(2, 3)]), ("mul", [(2, 3)])]
    text = thunder.last_traces(compiled)[-1].python(print_depth=1)
    assert f"  # sum {float((torch.sin(x) * 2).sum()):.3f}\n  debug_post_mul(" in text


def test_callbacks_see_the_backward_too():
    names = []
    transform = DebugTransform(post_callback=lambda bsym, *values: names.append(bsym.sym.name))
    x = leaf(3)
    thunder.jit(torch.sin, transforms=[transform])(x).sum().backward()
    assert names == ["sin", "cos", "mul"]
    assert torch.equal(x.grad, torch.cos(x))


def test_an_error_of_a_callback_passes_through():
    def fails(bsym, *args):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        thunder.jit(torch.sin, transforms=[DebugTransform(fails)])(torch.ones(2))


def test_a_callback_returns_a_text():
    with pytest.raises(InvalidArgument, match="returned int"):
        thunder.jit(torch.sin, transforms=[DebugTransform(lambda bsym, *args: 3)])(torch.ones(2))


# -- times -------------------------------------------------------------------------------------------------


def test_times_are_those_of_the_users_lines():
    profile = ProfileTransform()
    compiled = thunder.jit(program, transforms=[profile])
    for _ in range(3):
        compiled(positive(4), positive(4)).backward()
    assert {o.calls for o in profile.operations()} == {3}
    assert all(0 < o.shortest_ns <= o.total_ns / 3 for o in profile.operations())
    lines = {line.location.line: line for line in profile.lines() if line.location is not None}
    assert sorted(lines) == [line_of("h = torch.sin(x) * w"), line_of("return torch.log(h).sum()")]
    assert all(line.forward_ns > 0 for line in lines.values())
    assert all(line.backward_ns > 0 for line in lines.values())
    total = sum(o.total_ns for o in profile.operations())
    assert abs(sum(line.total_ns for line in profile.lines()) - total) <= 2 * len(profile.lines())
    profile.reset()
    assert profile.operations() == []


def layers():
    return torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.Sequential(torch.nn.GELU(), torch.nn.Linear(64, 4))
    )


def test_times_of_modules_are_those_of_their_own_operations():
    profile = ProfileTransform()
    compiled = thunder.jit(layers(), executors=["torch"], transforms=[profile])
    compiled(torch.randn(8, 64)).sum().backward()
    modules = {module.name: module for module in profile.modules()}
    assert modules.keys() == {"0", "1.0", "1.1"}
    assert all(module.forward_ns > 0 and module.backward_ns > 0 for module in modules.values())
    total = sum(operation.total_ns for operation in profile.operations())
    assert sum(module.total_ns for module in modules.values()) == total
    longest = [module.total_ns for module in profile.modules()]
    assert longest == sorted(longest, reverse=True)


def test_a_slow_operation_is_the_first_row():
    profile = ProfileTransform()
    compiled = thunder.jit(
        lambda x: (torch.sin(x) + 1, x.unsqueeze(0) * x.unsqueeze(1)), transforms=[profile]
    )
    for _ in range(5):
        compiled(torch.ones(1500))
    slowest = max(profile.operations(), key=lambda o: o.shortest_ns)
    assert slowest.statement.operator == "mul"


def test_the_table_has_lines_operations_and_the_overhead():
    console = pytest.importorskip("rich.console").Console(width=160, record=True, file=io.StringIO())
    profile = ProfileTransform()
    thunder.jit(program, transforms=[profile])(positive(4), positive(4)).backward()
    console.print(profile.table())
    text = console.export_text()
    assert "h = torch.sin(x) * w" in text
    assert "backward" in text
    assert "readings of the clock took" in text
    assert 0 < profile.overhead_ns < 1_000_000


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_picture_is_written(tmp_path, suffix):
    pytest.importorskip("matplotlib")
    profile = ProfileTransform()
    thunder.jit(program, transforms=[profile])(positive(4), positive(4)).backward()
    path = tmp_path / f"times.{suffix}"
    profile.picture(path)
    head = path.read_bytes()[:200]
    assert head.startswith(b"\x89PNG") if suffix == "png" else b"<svg" in path.read_bytes()


def test_a_missing_library_says_what_to_install(monkeypatch):
    monkeypatch.setattr(thunder_transforms.optional_libraries, "find_spec", lambda name: None)
    with pytest.raises(RequirementNotMet, match="python -m pip install rich"):
        ProfileTransform().table()


# -- ranges ------------------------------------------------------------------------------------------------


def test_each_operation_has_a_range_with_its_line():
    ranges = Ranges()
    thunder.jit(program, transforms=[NvtxProfileTransform(ranges)])(positive(4), positive(4)).backward()
    line = line_of("h = torch.sin(x) * w")
    assert ranges.names[:2] == [f"sin {__file__}:{line}", f"mul {__file__}:{line}"]
    assert f"cos {__file__}:{line}" in ranges.names
    assert ranges.depth == 0


def test_the_range_of_an_operation_that_raised_is_closed_later():
    ranges = Ranges()
    compiled = thunder.jit(torch.linalg.cholesky, transforms=[NvtxProfileTransform(ranges)])
    with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
        compiled(-torch.eye(2))
    assert ranges.depth == 1
    compiled(torch.eye(2))
    assert ranges.depth == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_ranges_need_cuda():
    with pytest.raises(RequirementNotMet, match="needs CUDA"):
        thunder.jit(torch.sin, transforms=[NvtxProfileTransform()])


# -- non-finite values -------------------------------------------------------------------------------------


def test_the_first_operation_with_nan_is_named_with_the_line():
    compiled = thunder.jit(program, transforms=[NonFiniteDetector()])
    x, w = positive(4), positive(4)
    torch.testing.assert_close(compiled(x, w), program(x, w))
    with pytest.raises(NonFiniteResult, match="log computes NaN") as error:
        compiled(-x.detach(), w.detach())
    assert error.value.where[0].line == line_of("return torch.log(h).sum()")
    assert "4 of 4 elements NaN, first at (0,)" in str(error.value)


def test_infinity_in_the_backward_is_named_with_the_line_of_the_forward():
    def norm(x):
        return torch.sqrt(x * x).sum()

    x = torch.zeros(3, requires_grad=True)
    loss = thunder.jit(norm, transforms=[NonFiniteDetector()])(x)
    with pytest.raises(NonFiniteResult, match="computes infinity in the backward") as error:
        loss.backward()
    assert error.value.where[0].text == "return torch.sqrt(x * x).sum()"


def test_the_module_of_a_non_finite_value_is_named():
    model = layers()
    torch.nn.init.constant_(model.get_submodule("1.1").weight, 3e38)
    compiled = thunder.jit(model, executors=["torch"], transforms=[NonFiniteDetector()])
    with pytest.raises(NonFiniteResult) as error:
        compiled(torch.randn(2, 64) * 100)
    assert error.value.found["module"] == "1.1"


def masked(scores, mask):
    scores = scores.masked_fill(mask, float("-inf"))
    return torch.softmax(scores * 2, -1)


def test_infinities_that_the_program_writes_are_accepted():
    scores, mask = torch.ones(2, 3), torch.tensor([False, True, False])
    compiled = thunder.jit(masked, transforms=[NonFiniteDetector()])
    torch.testing.assert_close(compiled(scores, mask), masked(scores, mask))
    with pytest.raises(NonFiniteResult, match="softmax computes NaN"):
        compiled(scores, torch.tensor([True, True, True]))


@pytest.mark.parametrize("inputs", [True, False])
def test_nan_of_an_input_is_named_unless_it_is_accepted(inputs):
    compiled = thunder.jit(torch.nan_to_num, transforms=[NonFiniteDetector(inputs=inputs)])
    x = torch.tensor([1.0, float("nan")])
    if inputs:
        with pytest.raises(NonFiniteResult, match="the input t_0 has NaN"):
            compiled(x)
    else:
        assert torch.equal(compiled(x), torch.nan_to_num(x))


def test_findings_are_collected_instead_of_raised():
    detector = NonFiniteDetector(raises=False, infinities=False)
    compiled = thunder.jit(lambda x: torch.log(x) + 1, transforms=[detector])
    x = torch.tensor([-1.0, 0.0, 1.0])
    for _ in range(2):
        torch.testing.assert_close(compiled(x), torch.log(x) + 1, equal_nan=True)
    assert [error.asked for error in detector.findings] == ["log computes NaN"]


def test_a_compiled_module_with_the_detector_is_pickled():
    compiled = thunder.jit(nn.Linear(3, 3), transforms=[NonFiniteDetector()])
    x = torch.ones(2, 3)
    expected = compiled(x)
    loaded = pickle.loads(pickle.dumps(compiled))
    assert torch.equal(loaded(x), expected)
    with pytest.raises(NonFiniteResult, match="has NaN"):
        loaded(x * math.nan)


def test_infinities_that_a_folded_constant_has_are_accepted():
    def causal(scores):
        return torch.softmax(scores + torch.triu(torch.full((3, 3), float("-inf")), 1), -1)

    compiled = thunder.jit(causal, transforms=[ConstantFolding(), NonFiniteDetector()])
    assert torch.equal(compiled(torch.ones(3, 3)), causal(torch.ones(3, 3)))
    assert "constants0()" in thunder.last_traces(compiled)[-1].python(print_depth=1)


# -- together ----------------------------------------------------------------------------------------------


def test_transforms_that_watch_do_not_see_each_other_and_change_nothing():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    names = []
    transforms = [
        DebugTransform(lambda bsym, *args, **kwargs: names.append(bsym.sym.name)),
        NonFiniteDetector(),
        NvtxProfileTransform(Ranges()),
        ProfileTransform(),
    ]
    compiled = thunder.jit(model, transforms=transforms)
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    compiled(x).square().sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).square().sum().backward()
    for gradient, p in zip(gradients, model.parameters(), strict=True):
        torch.testing.assert_close(gradient, p.grad)
    assert {o.statement.operator for o in transforms[-1].operations()} == set(names)
    assert list(compiled.state_dict()) == list(model.state_dict())
