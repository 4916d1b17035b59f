"""What a region becomes: definitions as text, layouts, numbers, and calls that the library does not take."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import thunder
from thunder_nvfuser.attention import OPERATORS
from thunder_nvfuser.data_types import DataType
from thunder_nvfuser.executor import replaying_executor
from thunder_nvfuser.kernels import RegionKernel
from thunder_nvfuser.layouts import layout_of
from thunder_nvfuser.operations import OPERATIONS
from thunder_nvfuser.recorder import RecordedDefinition, check_call
from thunder_nvfuser.translation import RULES


def kernel(compiled: object) -> RegionKernel:
    """The first region of the last call."""
    statements = thunder.last_traces(compiled)[-1].bound_symbols
    return next(b.sym.python_impl for b in statements if b.sym.is_fusion)


def test_a_composite_in_bfloat16_is_rounded_at_its_results_and_the_call_is_a_fusion():
    def program(x: torch.Tensor) -> torch.Tensor:
        return F.silu(x) * 2

    compiled = thunder.jit(program, executors=[replaying_executor()])
    x = torch.randn(4, 6, dtype=torch.bfloat16)
    assert torch.equal(compiled(x), program(x))
    assert "[t2] = nvFusion0(x)" in str(thunder.last_traces(compiled)[-1])
    assert kernel(compiled).definition(x) == (
        "def nvfuser_fusion(fd):\n"
        "    t0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.BFloat16)\n"
        "    t1 = fd.ops.cast(t0, dtype=DataType.Float)\n"
        "    t2 = fd.ops.sigmoid(t1)\n"
        "    t3 = fd.ops.mul(t1, t2)\n"
        "    t4 = fd.ops.cast(t3, dtype=DataType.BFloat16)\n"
        "    t5 = fd.ops.cast(t4, dtype=DataType.Float)\n"
        "    c6 = fd.define_scalar(2, dtype=DataType.Int)\n"
        "    t7 = fd.ops.mul(t5, c6)\n"
        "    t8 = fd.ops.cast(t7, dtype=DataType.BFloat16)\n"
        "    fd.add_output(t8)"
    )


@pytest.mark.parametrize(
    ("tensor", "contiguity", "order"),
    [
        (torch.empty(2, 3, 4), (True, True, True), ()),
        (torch.empty(2, 3, 4)[:, :2], (False, True, True), ()),
        (torch.empty(2, 3, 8)[..., ::2], (True, True, False), ()),
        (torch.empty(2, 1, 4), (True, None, True), ()),
        (torch.empty(8).as_strided((2, 1, 4), (4, 1, 1)), (True, None, True), ()),
        (torch.empty(3, 4).t(), (True, True), (0, 1)),
        (torch.empty(2, 3, 4, 5).permute(0, 3, 1, 2), (True,) * 4, (3, 0, 2, 1)),
        (torch.empty(3, 1, 4).permute(2, 1, 0), (False, None, False), ()),
        (torch.empty(3, 8)[:, ::2].t(), (False, False), ()),
        (torch.empty(()), (), ()),
    ],
)
def test_layouts_are_stated_as_nvfuser_states_them(tensor, contiguity, order):
    layout = layout_of(tensor)
    assert (layout.contiguity, layout.stride_order) == (contiguity, order)
    fd = RecordedDefinition()
    fd.add_output(fd.define_tensor(layout.shape, contiguity, DataType.Float, False, order))
    assert fd.execute([tensor])[0] is tensor


def test_a_tensor_of_another_layout_than_stated_is_an_error():
    fd = RecordedDefinition()
    fd.define_tensor([-1, -1], [True, True])
    with pytest.raises(TypeError, match="got strides"):
        fd.execute([torch.empty(3, 4).t()])
    with pytest.raises(TypeError, match=r"got a tensor of shape \(3, 1\)"):
        fd.execute([torch.empty(3, 1)])


def test_each_layout_of_inputs_has_a_definition_and_results_have_the_strides_of_eager():
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.exp() + x

    compiled = thunder.jit(program, executors=[replaying_executor()])
    for x in (torch.randn(3, 4), torch.randn(4, 3).t(), torch.randn(3, 1).expand(3, 4)):
        assert torch.equal(compiled(x), program(x))
        assert compiled(x).stride() == program(x).stride()


def test_the_library_gets_no_expanded_tensors_and_its_strides_become_those_of_eager(monkeypatch):
    """nvFuser allocates results itself: here they are contiguous, whatever its inputs are."""
    execute, given = RecordedDefinition.execute, []

    def contiguous(definition, inputs, **options):
        given.extend(x.stride() for x in inputs)
        return [result.contiguous() for result in execute(definition, inputs)]

    monkeypatch.setattr(RecordedDefinition, "execute", contiguous)
    compiled = thunder.jit(lambda x: x.exp() + 1, executors=[replaying_executor()])
    for x in (torch.randn(4, 3).t(), torch.randn(3, 1).expand(3, 4), torch.randn(2, 3, 4).permute(2, 0, 1)):
        assert torch.equal(compiled(x), x.exp() + 1)
        assert compiled(x).stride() == (x.exp() + 1).stride()
    assert len(given) == 6
    assert not any(0 in strides for strides in given)


def test_regions_with_equal_definitions_of_other_sizes_share_one():
    compiled = thunder.jit(lambda x: x.exp() + x, executors=[replaying_executor()], cache="constant values")
    texts = set()
    for size in (3, 5):
        x = torch.randn(size, 4)
        compiled(x)
        texts.add(kernel(compiled).definition(x))
    assert len(texts) == 1


def test_a_call_that_the_library_does_not_take_is_an_error():
    with pytest.raises(TypeError, match="no operation 'flip'"):
        check_call("flip", ("a",), {})
    with pytest.raises(TypeError, match=r"permute\(_\) fits none of: permute\(arg, dims\)"):
        check_call("permute", ("a",), {})
    with pytest.raises(TypeError, match="fits none"):
        check_call("sum", ("a",), {"dimensions": [0]})
    check_call("sum", ("a",), {"dims": [0], "keepdim": False})
    check_call("uniform", (0.0, 1.0, [2]), {"rng_seed": 1, "dtype": None})
    fd = RecordedDefinition()
    with pytest.raises(TypeError, match="no operation 'conv2d'"):
        fd.ops.conv2d()


def test_every_rule_is_of_a_primitive_and_reaches_the_library():
    assert len(RULES) > 90
    for name in set(RULES) - {operator.id for operator in OPERATORS}:
        assert hasattr(thunder.core.prims, name.removeprefix("prims."))


def test_the_tool_reads_listings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "tools"))
    tool = importlib.import_module("nvfuser_operations")
    listing = (
        "unary (Scalar->Val, TV->TV): abs exp\n"
        "sum: (arg: TV, dtype: DataType = <DataType.Null: 23>) -> TV || (arg: TV, dims: Sequence[int])\n"
        "uniform: (shape: list, *, rng_seed: Val = None) -> TV || (shape: tuple, *, rng_seed: Val = None)\n"
        "where: (arg0: Scalar, arg1: TV) -> TV  (+7 overloads)\n"
        "topk: (arg: TV, k: Val) -> tuple[TV, TV]\n"
    )
    assert tool.from_listing(listing) == {
        "abs": ("a",),
        "exp": ("a",),
        "sum": ("arg, dtype=", "arg, dims"),
        "uniform": ("shape, *, rng_seed=",),
        "where": ("arg0, arg1",),
        "topk": ("arg, k",),
    }


def test_the_table_is_that_of_the_library():
    library = pytest.importorskip("nvfuser_direct", exc_type=ImportError)
    assert set(OPERATIONS) <= set(dir(library.ops))
    with library.FusionDefinition() as fd:
        tensor = fd.define_tensor(shape=[-1], contiguity=[True], dtype=library.DataType.BFloat16)
        fd.add_output(fd.ops.cast(fd.ops.exp(tensor), dtype=library.DataType.BFloat16))
    assert "ops.exp" in str(fd)


def test_a_number_that_varies_is_an_input():
    def program(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return (x * t.item()).exp() + 1

    compiled = thunder.jit(program, executors=[replaying_executor()])
    x = torch.randn(3, 4)
    for factor in (2.0, 3.0):
        assert torch.equal(compiled(x, torch.tensor(factor)), program(x, torch.tensor(factor)))
    assert "c1 = fd.define_scalar(None, dtype=DataType.Double)" in kernel(compiled).definition(x, 2.0)
    assert thunder.cache_misses(compiled) == 1


def test_a_number_becomes_a_bool_by_a_comparison():
    """A cast of nvFuser need not be one: 0.5 is true, and truncates to 0."""
    compiled = thunder.jit(lambda x: (x * 0.5).bool().float() + 1, executors=[replaying_executor()])
    x = torch.tensor([0.0, 1.0, -0.2])
    assert compiled(x).tolist() == [1, 2, 2]
    text = kernel(compiled).definition(x)
    assert "fd.ops.ne(" in text
    assert "dtype=DataType.Bool" not in text


def test_a_quotient_is_rounded_before_it_is_truncated():
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.div(x, y, rounding_mode="trunc") * 1

    torch.manual_seed(0)
    compiled = thunder.jit(program, executors=[replaying_executor()])
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        x, y = (torch.randn(100, 100) * 9).to(dtype), torch.randn(100, 100).to(dtype)
        assert torch.equal(compiled(x, y), program(x, y))


def test_numbers_are_rounded_as_eagers_kernels_round_them():
    def program(x: torch.Tensor) -> object:
        return x > 0.1, x == 0.1, x.fmod(0.7), x * 0.1

    compiled = thunder.jit(program, executors=[replaying_executor()])
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.tensor([0.1, 0.3, 1.9], dtype=dtype)
        torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)
        numbers = [line for line in kernel(compiled).definition(x).splitlines() if "define_scalar" in line]
        rounded = torch.tensor(0.1, dtype=dtype).item()
        assert f"define_scalar({rounded}, dtype=DataType.Double)" in numbers[0]
        assert f"define_scalar({torch.tensor(0.1).item()}, dtype=DataType.Double)" in numbers[-1]
