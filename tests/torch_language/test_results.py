"""Results are eager's tensors: their strides and memory, their place in torch's graph, writes to them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from sweeping import in_turn, one_in
from thunder.base.errors import UnsupportedProgram
from torch_language.result_sweep import ENTRIES, LAYOUTS, differences
from torch_language.samples import name_of, samples

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about deprecated functions

#: entries whose kernels return views of memory of their own, or whose gradients once read the result
_TELLING = (
    *("nn.functional.linear", "nn.functional.conv1d", "nn.functional.avg_pool1d", "stft", "cov", "inner"),
    *("nn.functional.instance_norm", "nn.functional.cosine_similarity", "sinc", "erfinv", "linalg.vander"),
)
_PAIRS = [(name, layout) for name in ENTRIES for layout in LAYOUTS]


def assert_eagers(name: str, layout: str, **options: Any) -> None:
    op = ENTRIES[name]
    for sample in samples(op, torch.float32, 2):
        program = thunder.jit(lambda *args, **kwargs: op.op(*args, **kwargs), **options)
        for grad in (False, True)[: 1 + op.supports_autograd]:
            try:
                assert list(differences(name, sample, layout, program, grad=grad)) == []
            except UnsupportedProgram:
                pytest.skip("refused by name")


@pytest.mark.parametrize(("name", "layout"), in_turn(_TELLING, list(LAYOUTS)))
def test_results_are_eagers(name: str, layout: str) -> None:
    assert_eagers(name, layout)


@pytest.mark.parametrize(("name", "layout"), one_in(211, _PAIRS))
def test_results_of_every_operator_are_eagers(name: str, layout: str) -> None:
    assert_eagers(name, layout)


@pytest.mark.parametrize("options", [{"executors": []}, {"cache": "symbolic values"}], ids=str)
def test_a_result_of_a_layer_can_be_written_in_place(options: dict[str, Any]) -> None:
    layer = torch.nn.Linear(3, 2)
    compiled = thunder.jit(layer, **options)
    for size in (4, 5, 0):
        results = []
        for call in (layer, compiled):
            x = torch.ones(size, 5, 3, requires_grad=True)
            y = call(x)
            y.add_(1).mul_(3)
            results.append((y, *torch.autograd.grad(y.sum(), (x, *layer.parameters()))))
        for expected, found in zip(*results, strict=True):
            torch.testing.assert_close(found, expected)


def test_each_of_several_results_can_be_written_in_place() -> None:
    def program(x: Any, w: Any) -> Any:
        y = torch.nn.functional.linear(x, w)
        return {
            "first": [y, y.view(-1)],
            "second": (torch.nn.functional.linear(x.detach(), x[0].detach()), 3),
        }

    results = []
    for call in (program, thunder.jit(program)):
        x, w = torch.ones(4, 5, 3, requires_grad=True), torch.ones(2, 3, requires_grad=True)
        found = call(x, w)
        found["first"][0].mul_(2)
        found["second"][0].mul_(w[0, 0])
        loss = found["first"][1].square().sum() + found["second"][0].sum()
        results.append((found["first"][1], found["second"][0], *torch.autograd.grad(loss, (x, w))))
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["unsafe_split", "unsafe_chunk"])
def test_results_of_unsafe_functions_are_views(name: str) -> None:
    results = thunder.jit(lambda x: getattr(torch, name)(x, 2))(torch.ones(4, requires_grad=True))
    assert all(t._is_view() for t in results)
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        results[0].mul_(2)


def test_gradients_that_torch_returns_may_have_other_strides_and_those_that_it_accumulates_not() -> None:
    for call in (torch.matmul, thunder.jit(torch.matmul)):
        x, w = torch.ones(2, 4, 3), torch.ones(2, 5, 3).mT.requires_grad_()
        call(x, w).sum().backward()
        assert w.grad is not None
        assert w.grad.stride() == w.stride()


#: products of a matrix of 2 rows and one of ``(3, 4)``
PRODUCTS: dict[str, Any] = {
    "mm": torch.mm,
    "matmul": torch.matmul,
    "addmm": lambda a, b: torch.addmm(torch.ones(4), a, b),
    "linear": torch.nn.functional.linear,
    "linear of a vector": lambda a, b: torch.nn.functional.linear(a[0], b),
    "linear of a batch": lambda a, b: torch.nn.functional.linear(a.detach()[:, None], b) + a.sum(),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_gradient_of_a_matrix_has_the_strides_of_eager(name: str) -> None:
    def gradients(call: Any, *layouts: Any) -> Any:
        shapes = ((2, 4 if "linear" in name else 3), (3, 4))
        factors = [
            LAYOUTS[n](torch.ones(shape)).requires_grad_() for n, shape in zip(layouts, shapes, strict=True)
        ]
        return [t.stride() for t in torch.autograd.grad(call(*factors).square().sum(), factors)]

    for pair in itertools.product(("contiguous", "transposed", "sliced"), repeat=2):
        assert gradients(thunder.jit(PRODUCTS[name]), *pair) == gradients(PRODUCTS[name], *pair)


def test_a_result_that_the_backward_does_not_read_may_be_written() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 5.0]]).requires_grad_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.linalg.svdvals(x).mul_(2).sum().backward()
    found = thunder.jit(torch.linalg.svdvals)(x).mul_(2)
    gradients = [torch.autograd.grad(y.sum(), x) for y in (found, 2 * torch.linalg.svdvals(x))]
    torch.testing.assert_close(*gradients)


def test_running_statistics_in_one_place_are_not_written() -> None:
    def program(x: Any, mean: Any, var: Any) -> Any:
        return torch.nn.functional.batch_norm(x, mean, var, training=True)

    statistics = [torch.zeros(1).expand(3), torch.ones(1).expand(3)]
    with pytest.raises(RuntimeError, match="single memory location"):
        thunder.jit(program)(torch.ones(4, 3), *statistics)
    assert [s[0].item() for s in statistics] == [0, 1]


F = torch.nn.functional

#: normalisations of ``x: (2, 6, 3)`` by a weight and a bias
NORMALISATIONS: dict[str, Any] = {
    "group_norm": lambda x, w, b: F.group_norm(x, 2, w, b),
    "instance_norm": lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
    "batch_norm": lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
    "layer_norm": lambda x, w, b: F.layer_norm(x.mT, (6,), w, b),
    "rms_norm": lambda x, w, b: F.rms_norm(x.mT, (6,), w) + b,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NORMALISATIONS)
def test_a_normalisation_reads_parameters_in_any_strides(name: str, layout: str) -> None:
    found = []
    for call in (NORMALISATIONS[name], thunder.jit(NORMALISATIONS[name])):
        x = torch.linspace(-1, 2, 36, dtype=torch.float64).square().reshape(2, 6, 3)
        inputs = [t.requires_grad_() for t in (x, *map(LAYOUTS[layout], (x[0, :, 0] + 1, x[1, :, 1] - 1)))]
        y = call(*inputs)
        found.append((y, *torch.autograd.grad((y * x.detach().reshape(y.shape)).sum(), inputs)))
    for expected, actual in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize(
    "options", [{"executors": ["torch"]}, {"executors": []}, {"cache": "symbolic values"}]
)
def test_a_border_is_of_what_is_cut_off_too(mode: str, options: dict[str, Any]) -> None:
    for widths in ((-3, 3), (3, -3), (-2, 3), (-4, 2), (2, -1), (-1, -2), (-1, 0)):

        def program(x: Any, widths: Any = widths) -> Any:
            return torch.nn.functional.pad(x, widths, mode=mode)

        found = []
        for call in (program, thunder.jit(program, **options)):
            x = torch.arange(1.0, 5).reshape(1, 4).requires_grad_()
            y = call(x)
            (gradient,) = torch.autograd.grad((y * torch.arange(1.0, 1 + y.numel())).sum(), x)
            found.append((y.tolist(), y.stride(), gradient.tolist()))
        assert found[0] == found[1]


@pytest.mark.parametrize("options", [{}, {"cache": "symbolic values"}], ids=str)
@pytest.mark.parametrize(
    "program",
    [
        lambda x: (x * 2, x.detach() * 2, (x * 2).detach(), x > 0),
        lambda x: (x, x.view(-1), x[:0], x.argsort(-1)),
        lambda x: (torch.zeros_like(x).requires_grad_(), torch.zeros_like(x), x.sum()),
        lambda x: torch.cat([x[:0], x[:0]]),
    ],
)
def test_results_with_and_without_elements_have_eagers_place_in_the_graph(
    program: Any, options: dict[str, Any]
) -> None:
    def facts(result: Any) -> Any:
        results = result if isinstance(result, tuple) else (result,)
        return [(t.requires_grad, t.is_leaf, t.grad_fn is None, t.stride()) for t in results]

    for requires_grad in (False, True):
        compiled = thunder.jit(program, **options)
        for size in (4, 0, 5, 1, 0):
            x, y = (torch.ones(size, 3, requires_grad=requires_grad) for _ in range(2))
            assert facts(compiled(x)) == facts(program(y))


@pytest.mark.parametrize("options", [{}, {"cache": "symbolic values"}], ids=str)
@pytest.mark.parametrize("value", [torch.tensor(3.0), 3.0])
def test_a_write_by_a_mask_leaves_the_strides_of_what_is_written(value: Any, options: dict[str, Any]) -> None:
    def through_view(x: Any, mask: Any) -> Any:
        y = x * 1
        y.t()[mask] = value
        return y, y.stride()

    def by_transposed_mask(x: Any, mask: Any) -> Any:
        y = x * 1
        y[mask.t()] = value
        return y, y.stride()

    for program in (through_view, by_transposed_mask):
        compiled = thunder.jit(program, **options)
        for x in (torch.ones(3, 4), torch.ones(4, 3).t(), torch.ones(3, 8)[:, ::2]):
            for mask in (torch.ones(4, 3) > 0, (torch.ones(3, 4) > 0).t()):
                (result, strides), (expected, _) = compiled(x, mask), program(x, mask)
                assert result.stride() == strides == expected.stride()
                assert torch.equal(result, expected)


@pytest.mark.parametrize(
    "like",
    [torch.empty_like, torch.zeros_like, torch.rand_like, torch.clone, lambda x: torch.full_like(x, 2)],
)
@pytest.mark.parametrize("strides", [(1, 1), (3, 1), (7, 1), (1, 4)])
def test_a_copy_of_a_dimension_of_length_1_has_the_strides_of_eager(like: Any, strides: Any) -> None:
    x = torch.ones(20).as_strided((1, 3), strides)
    result, told = thunder.jit(lambda x: (r := like(x), r.stride()))(x)
    assert result.stride() == told == like(x).stride()


def test_every_entry_is_named() -> None:
    assert set(_TELLING) <= {name_of(op) for op in ENTRIES.values()}


def test_a_shift_by_a_symbolic_size_has_a_gradient() -> None:
    def program(x: Any) -> Any:
        return torch.roll(x, x.shape[0] // 2, 0).square() * x

    compiled = thunder.jit(program, cache="symbolic values")
    for size in (4, 7):
        x, y = (torch.arange(float(size)).requires_grad_() for _ in range(2))
        found, expected = (torch.autograd.grad(f(t).sum(), t) for f, t in ((compiled, x), (program, y)))
        torch.testing.assert_close(found, expected)


#: functions of which torch's metadata has other dtypes than its kernels for CPUs
DTYPES_OF_KERNELS: dict[str, Callable[..., Any]] = {
    "layer norm": lambda x, w: torch.native_layer_norm(x, (3,), None, None, 1e-5),
    "layer norm, parameters": lambda x, w: torch.native_layer_norm(x, (3,), w, w, 1e-5),
    "layer norm, one dtype": lambda x, w: torch.native_layer_norm(x, (3,), w.to(x.dtype), None, 1e-5),
    "layer norm, a bias": lambda x, w: torch.native_layer_norm(x, (3,), None, w, 1e-5),
    "softmax": lambda x, w: torch._softmax_backward_data(x, x, -1, torch.float32),
    "log_softmax": lambda x, w: torch._log_softmax_backward_data(x, x, -1, torch.float64),
}


@pytest.mark.parametrize("name", DTYPES_OF_KERNELS)
def test_dtypes_are_those_of_kernels(name: str) -> None:
    fn = DTYPES_OF_KERNELS[name]
    x, w = torch.linspace(-1.0, 1.0, 6).reshape(2, 3).half().requires_grad_(), torch.ones(3)
    found, expected = thunder.jit(fn, executors=["torch"])(x, w), fn(x, w)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    leaves = [list(r) if isinstance(r, tuple) else [r] for r in (found, expected)]
    assert [r.requires_grad for r in leaves[0]] == [r.requires_grad for r in leaves[1]]
