"""Seeded faults: a right program, and an executor or a transform that is wrong in one way.

Each fault says what a bisection must name. `executor_of(name)` makes the executor of a fault, also as the
attribute `executor_<name>` of this module, from which reproducers import it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import thunder
import thunder.torch as ltorch
from thunder.core import prims
from thunder.core.pytree import tree_map
from thunder.core.rewrite import eval_trace, replace_calls
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace, tracectx
from thunder.core.transforms import get_grad, put_grad
from thunder.extend import FusionExecutor, OperatorExecutor, Region, evaluate_calls, row_of, symbol_of

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault in a program: what a bisection has to name.

    `kind` is that of the finding, `names` are operators of which one is named in its statements, or of a
    stage its name.
    """

    program: str
    dtype: torch.dtype
    kind: str
    names: tuple[str, ...]
    executor: Callable[[str], Any] | None = None
    transforms: Callable[[], list[Any]] = list
    says: str = ""


FAULTS: dict[str, Fault] = {}
_EXECUTORS: dict[str, Any] = {}


def executor_of(name: str) -> Any:
    make = FAULTS[name].executor
    assert make is not None, "a fault of a transform has no executor"
    if name not in _EXECUTORS:
        made: Any = make(f"wrong_{name}")
        _EXECUTORS[name] = globals()[f"executor_{name}"] = made
    return _EXECUTORS[name]


def __getattr__(attribute: str) -> Any:
    name = attribute.removeprefix("executor_")
    if name == attribute or name not in FAULTS:
        raise AttributeError(attribute)
    return executor_of(name)


def eager_of(symbol: Any) -> Callable[..., Any]:
    """Torch's function of an operator."""
    row = row_of(symbol)
    assert row is not None and row.eager is not None, "the operators here are torch's"  # noqa: PT018
    return row.eager


# -- wrong kernels -------------------------------------------------------------------------------------------

Wrong = Callable[[Tensor, tuple[Any, ...]], Tensor]


def kernel(operator: str, wrong: Wrong) -> Callable[[str], OperatorExecutor]:
    """An executor whose kernel of an operator changes the right result: `wrong(result, args)`."""

    def make(name: str) -> OperatorExecutor:
        ex = OperatorExecutor(name)
        symbol = symbol_of(operator)
        right = eager_of(symbol)

        def run(*args: Any, **kwargs: Any) -> Tensor:
            return wrong(right(*args, **kwargs), args)

        own = ex.register_operator(operator.rpartition(".")[2], like=symbol, fn=run)
        ex.register_implementation(operator, own)
        return ex

    return make


def where(condition: Callable[[Any], bool], wrong: Wrong) -> Wrong:
    """A kernel that is wrong for some first arguments."""
    return lambda out, args: wrong(out, args) if condition(args[0]) else out


def scaled(out: Tensor, args: Any) -> Tensor:
    return out * 1.25


def shifted(out: Tensor, args: Any) -> Tensor:
    return out.roll(1, -1)


def last_is_zero(out: Tensor, args: Any) -> Tensor:
    out = out.clone()
    out.flatten()[-1] = 0
    return out if out.is_contiguous() else out.index_fill(-1, torch.tensor([out.shape[-1] - 1]), 0)


def one_off(out: Tensor, args: Any) -> Tensor:
    out = out.clone(memory_format=torch.contiguous_format)
    out.view(-1)[out.numel() // 2] += 3
    return out


def in_bits(bits: int) -> Wrong:
    """A kernel that keeps a few bits of each element only."""

    def wrong(out: Tensor, args: Any) -> Tensor:
        mantissa, exponent = torch.frexp(out.float())
        return torch.ldexp((mantissa * 2**bits).round() / 2**bits, exponent).to(out.dtype)

    return wrong


def first_row_again(out: Tensor, args: Any) -> Tensor:
    out = out.clone()
    out[-1] = out[0]
    return out


def nan_of_large(out: Tensor, args: Any) -> Tensor:
    return out.masked_fill(out > out.max() * 0.95, float("nan"))


def writes(out: Tensor, args: Any) -> Tensor:
    args[0].add_(1)
    return out


def writes_last(out: Tensor, args: Any) -> Tensor:
    args[1].detach()[-1].zero_()
    return out


def sometimes(wrong: Wrong) -> Wrong:
    """A kernel that is wrong in every second call."""
    calls = [0]

    def run(out: Tensor, args: Any) -> Tensor:
        calls[0] += 1
        return wrong(out, args) if calls[0] % 2 else out

    return run


def noisy(out: Tensor, args: Any) -> Tensor:
    generator = torch.Generator().manual_seed(int(torch.randint(2**30, (), generator=_SOURCE)))
    return out * (1 + 0.1 * torch.rand(out.shape, generator=generator).to(out.dtype))


_SOURCE = torch.Generator().manual_seed(0)
LINEAR, GELU, SOFTMAX = "torch.nn.functional.linear", "torch.nn.functional.gelu", "torch.softmax"
LAYER_NORM, SILU = "torch.nn.functional.layer_norm", "torch.nn.functional.silu"

#: name → program, dtype, operator, how the kernel is wrong
KERNELS: Mapping[str, tuple[str, torch.dtype, str, Wrong]] = {
    "gelu_of_bfloat16": ("perceptron", BF16, GELU, where(lambda x: x.dtype is BF16, scaled)),
    "gelu_of_float16": ("perceptron", F16, GELU, where(lambda x: x.dtype is F16, scaled)),
    "gelu_of_float32": ("perceptron", F32, GELU, where(lambda x: x.dtype is F32, in_bits(9))),
    "gelu_of_large": ("perceptron", F32, GELU, where(lambda x: x.numel() > 300, scaled)),
    "gelu_of_large_bfloat16": ("perceptron", BF16, GELU, where(lambda x: x.numel() > 300, one_off)),
    "linear_of_odd_sizes": ("perceptron", F32, LINEAR, where(lambda x: x.shape[-1] % 32 != 0, shifted)),
    "linear_last_element": ("perceptron", F32, LINEAR, last_is_zero),
    "linear_in_few_bits": ("perceptron", F32, LINEAR, in_bits(10)),
    "linear_in_fewer_bits": ("perceptron", BF16, LINEAR, in_bits(5)),
    "layer_norm_row": ("normalised", F32, LAYER_NORM, first_row_again),
    "silu_scaled": ("normalised", BF16, SILU, scaled),
    "silu_nan": ("normalised", F32, SILU, nan_of_large),
    "softmax_shifted": ("layouts", F32, SOFTMAX, shifted),
    "exp_of_a_layout": ("layouts", F32, "torch.exp", where(lambda x: not x.is_contiguous(), scaled)),
    "exp_of_a_layout_bfloat16": (
        "layouts",
        BF16,
        "torch.exp",
        where(lambda x: not x.is_contiguous(), one_off),
    ),
    "sin_of_a_stride": ("layouts", F32, "torch.sin", where(lambda x: x.ndim == 1, scaled)),
    "sum_low_precision": (
        "long_sums",
        F32,
        "torch.sum",
        lambda out, args: args[0].bfloat16().sum(*args[1:2]).float(),
    ),
    "mean_of_a_part": ("long_sums", F32, "torch.mean", lambda out, args: args[0][..., :-500].mean(-1)),
    "cumsum_shifted": ("reductions", F32, "torch.cumsum", shifted),
    "logsumexp_of_float16": ("reductions", F16, "torch.logsumexp", where(lambda x: x.dtype is F16, scaled)),
    "variance_of_all": ("reductions", F32, "torch.var", lambda out, args: out * 32 / 33),
    "amax_once": ("reductions", BF16, "torch.amax", one_off),
    "matmul_row": ("written_attention", F32, "torch.matmul", first_row_again),
    "masked_fill_late": (
        "written_attention",
        F32,
        "torch.masked_fill",
        lambda out, args: out.nan_to_num(neginf=0.0),
    ),
    "tanh_of_bfloat16": ("recurrent", BF16, "torch.tanh", where(lambda x: x.dtype is BF16, in_bits(4))),
    "sigmoid_element": ("recurrent", F32, "torch.sigmoid", one_off),
    "einsum_scaled": ("products", F32, "torch.einsum", lambda out, args: out * 1.01),
    "bmm_of_float16": ("products", F16, "torch.bmm", where(lambda x: x.dtype is F16, shifted)),
    "gather_row": ("selections", F32, "torch.gather", first_row_again),
    "argmax_next": ("selections", F32, "torch.argmax", lambda out, args: out + 1),
    "index_add_twice": ("selections", BF16, "torch.index_add", lambda out, args: out + (out - args[0])),
    "square_of_large": ("rms_gate", F32, "torch.square", where(lambda x: x.numel() > 100, scaled)),
    "rsqrt_in_few_bits": ("rms_gate", BF16, "torch.rsqrt", in_bits(8)),
    "where_swapped": (
        "comparisons",
        F32,
        "torch.where",
        lambda out, args: torch.where(args[0], args[2], args[1]),
    ),
    "gt_of_equal": ("comparisons", F32, "torch.gt", lambda out, args: out.logical_not()),
    "embedding_next": ("language_model", F32, "torch.nn.functional.embedding", shifted),
    "gelu_writes": ("perceptron", F32, GELU, writes),
    "tanh_writes": ("dropped_out", F32, "torch.tanh", writes),
    "linear_writes_weight": ("perceptron", BF16, LINEAR, writes_last),
    "gelu_sometimes": ("perceptron", F32, GELU, sometimes(scaled)),
    "tanh_noisy": ("recurrent", F32, "torch.tanh", noisy),
    "linear_noisy": ("normalised", BF16, LINEAR, noisy),
}
_SAYS = {
    "writes": "writes to its input",
    "noisy": "runs on the same inputs differ",
    "sometimes": "runs on the same",
}

for _name, (_program, _dtype, _operator, _wrong) in KERNELS.items():
    FAULTS[_name] = Fault(
        program=_program,
        dtype=_dtype,
        kind="statement",
        names=(_operator.rpartition(".")[2],),
        executor=kernel(_operator, _wrong),
        says=next((text for word, text in _SAYS.items() if word in _name.split("_")), ""),
    )


# -- wrong gradients -----------------------------------------------------------------------------------------


def gradient(operator: str, change: Callable[..., Any]) -> Callable[[str], OperatorExecutor]:
    """An executor whose rule of an operator changes the cotangent: `change(g, *args)`."""

    def make(name: str) -> OperatorExecutor:
        ex = OperatorExecutor(name)
        symbol = symbol_of(operator)
        own = ex.register_operator(
            operator.rpartition(".")[2],
            like=symbol,
            fn=eager_of(symbol),
        )

        def rule(*args: Any, **kwargs: Any) -> Any:
            y = symbol(*args, **kwargs)
            put_grad(args[0], change(get_grad(y), *args))
            return y

        ex.register_implementation(operator, own, grad_transform=rule)
        return ex

    return make


#: name → program, dtype, operator, what the rule makes of the cotangent
GRADIENTS: Mapping[str, tuple[str, torch.dtype, str, Callable[..., Any]]] = {
    "gelu_gradient": ("perceptron", F32, GELU, lambda g, x, *_: g * ltorch.sigmoid(x)),
    "gelu_gradient_bfloat16": ("perceptron", BF16, GELU, lambda g, x, *_: g),
    "silu_gradient_sign": ("normalised", F32, SILU, lambda g, x, *_: -g * ltorch.sigmoid(x)),
    "tanh_gradient": ("dropped_out", F32, "torch.tanh", lambda g, x: g * (1 - ltorch.tanh(x))),
    "exp_gradient": ("layouts", F32, "torch.exp", lambda g, x: g * x),
    "sigmoid_gradient": ("recurrent", F32, "torch.sigmoid", lambda g, x: g * ltorch.sigmoid(x)),
    "relu_gradient": ("batch_normalised", F32, "torch.nn.functional.relu", lambda g, x, *_: g * 1.0),
    "expm1_gradient": ("cancelling", F32, "torch.expm1", lambda g, x: g * ltorch.expm1(x)),
}

for _name, (_program, _dtype, _operator, _change) in GRADIENTS.items():
    FAULTS[_name] = Fault(
        program=_program,
        dtype=_dtype,
        kind="gradient",
        names=(_operator.rpartition(".")[2],),
        executor=gradient(_operator, _change),
    )


# -- wrong decompositions ------------------------------------------------------------------------------------


def decomposed(operator: str, by: Callable[..., Any]) -> Callable[[str], OperatorExecutor]:
    """An executor that takes calls of an operator apart: `by(*args)` records other calls."""

    def make(name: str) -> OperatorExecutor:
        ex = OperatorExecutor(name)
        ex.register_implementation(operator, execution_transform=by)
        return ex

    return make


def _softmax(x: Any, dim: int, dtype: Any = None, **_: Any) -> Any:
    e = ltorch.exp(x)
    return e / ltorch.sum(e, -1, True) if dim else e / ltorch.sum(e)


#: name → program, dtype, operator, a wrong decomposition
DECOMPOSITIONS: Mapping[str, tuple[str, torch.dtype, str, Callable[..., Any]]] = {
    "gelu_decomposed": ("perceptron", F32, GELU, lambda x, approximate="none": x * ltorch.sigmoid(1.6 * x)),
    "silu_decomposed": ("rms_gate", BF16, SILU, lambda a, inplace=False: a * ltorch.tanh(a)),
    "softmax_decomposed": ("layouts", F32, SOFTMAX, _softmax),
    "expm1_decomposed": ("cancelling", F32, "torch.expm1", lambda a: ltorch.exp(a) - 1.01),
}

for _name, (_program, _dtype, _operator, _by) in DECOMPOSITIONS.items():
    FAULTS[_name] = Fault(
        program=_program,
        dtype=_dtype,
        kind="stage",
        names=("Transform for execution",),
        executor=decomposed(_operator, _by),
        says=_operator.rpartition(".")[2],
    )


# -- wrong regions -------------------------------------------------------------------------------------------


class Regions(FusionExecutor):
    """A compiler of regions, which computes one call after the other by torch."""

    single_calls = True

    def __init__(self, name: str, change: Callable[[Region], Callable[[dict[str, Any]], None]]) -> None:
        super().__init__(name)
        self.change = change

    def compile_region(self, region: Region) -> Any:
        compute = self.change(region)

        def run(*tensors: Any) -> list[Any]:
            values = {p.name: x for p, x in zip(region.inputs, tensors, strict=True)}
            compute(values)
            return [values[p.name] for p in region.outputs]

        return run


def region(operators: tuple[str, ...], change: Callable[..., Any]) -> Callable[[str], Regions]:
    def make(name: str) -> Regions:
        ex = Regions(name, change)
        for operator in operators:
            ex.register_supported(operator)
        return ex

    return make


def swaps_operands(of: str) -> Callable[[Region], Any]:
    """A region in which the operands of one operator have changed places."""

    def change(region: Region) -> Any:
        def swapped(call: BoundSymbol) -> BoundSymbol:
            if call.sym.id != of:
                return call
            a, b, *rest = call.args
            return call.from_bsym(args=(b, a, *rest))

        return lambda values: evaluate_calls(map(swapped, region.bsyms), values)

    return change


def in_wrong_order(region: Region) -> Any:
    """A region that reads what an earlier run of it has computed: the last call comes first."""

    def compute(values: dict[str, Any]) -> None:
        evaluate_calls(region.bsyms, values)
        first = region.bsyms[0].output.name
        if len(region.bsyms) > 1:
            values[region.outputs[-1].name] = values[first] * 1.0

    return compute


def in_half(region: Region) -> Any:
    """A region whose intermediate results have few bits."""

    def compute(values: dict[str, Any]) -> None:
        for call in region.bsyms:
            evaluate_calls([call], values)
            name = call.output.name
            values[name] = in_bits(6)(values[name], ())

    return compute


def writes_input(region: Region) -> Any:
    def compute(values: dict[str, Any]) -> None:
        first = values[region.inputs[0].name]
        evaluate_calls(region.bsyms, values)
        if first.is_contiguous():
            first.mul_(2)

    return compute


ADD_SUB = ("torch.add", "torch.sub", "torch.mul", "torch.clamp", "torch.exp", "torch.expm1")
#: name → program, dtype, operators of regions, how the region is wrong, an operator of it
REGIONS: Mapping[str, tuple[str, torch.dtype, tuple[str, ...], Callable[..., Any]]] = {
    "region_swaps": ("cancelling", F32, ADD_SUB, swaps_operands("torch.sub")),
    "region_order": ("recurrent", F32, ("torch.tanh", "torch.sub", "torch.mul", "torch.add"), in_wrong_order),
    "region_in_half": ("rms_gate", F32, ("torch.mul", "torch.rsqrt", "torch.add", SILU), in_half),
    "region_writes": ("cancelling", BF16, ADD_SUB, writes_input),
}

for _name, (_program, _dtype, _operators, _region) in REGIONS.items():
    FAULTS[_name] = Fault(
        program=_program,
        dtype=_dtype,
        kind="statement",
        names=(f"wrong_{_name}",),
        executor=region(_operators, _region),
        says="writes to its input" if "writes" in _name else "",
    )


# -- wrong passes --------------------------------------------------------------------------------------------


class Replaces(thunder.Transform):
    """A transform that puts other calls in the place of those of one operator."""

    def __init__(self, operator: str, by: Callable[..., Any]) -> None:
        self.operator, self.by = operator, by

    def transform_traces_pre_prologue(
        self,
        prologue_trace: TraceCtx,
        computation_trace: TraceCtx,
        epilogue_trace: TraceCtx | None,
        **kwargs: Any,
    ) -> Any:
        def on_call(bsym: BoundSymbol) -> Any:
            return self.by(*bsym.args, **bsym.kwargs) if bsym.sym.id == self.operator else None

        return (
            prologue_trace,
            replace_calls(computation_trace, on_call, provenance=type(self).__name__),
            epilogue_trace,
        )


class DropsCasts(thunder.Transform):
    """A pass that lets calls read what is cast, and not its cast."""

    def transform_traces_pre_prologue(
        self,
        prologue_trace: TraceCtx,
        computation_trace: TraceCtx,
        epilogue_trace: TraceCtx | None,
        **kwargs: Any,
    ) -> Any:
        def called(bsym: BoundSymbol) -> Callable[..., Any]:
            if (
                bsym.sym.name in ("to", "float", "convert_element_type")
                and bsym.output.dtype is thunder.float32
            ):
                return lambda a, *_, **__: a
            operator: Callable[..., Any] = bsym.sym
            return operator

        new = from_trace(computation_trace)
        with tracectx(new):
            out = eval_trace(computation_trace, *computation_trace.args, symbol_mapper=called)
            prims.python_return(out)
        new.set_provenance(TraceProvenance(type(self).__name__))
        return prologue_trace, new, epilogue_trace


class ChangesNumbers(thunder.Transform):
    """A transform that changes the numbers in some calls before executors claim them."""

    def __init__(self, operator: str, of: float, to: float) -> None:
        self.operator, self.of, self.to = operator, of, to

    def transform_trace_pre_execution(self, trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        def number(x: Any) -> Any:
            return self.to if isinstance(x, float) and x == self.of else x

        def on_call(bsym: BoundSymbol) -> Any:
            if bsym.sym.id != self.operator:
                return None
            args, kwargs = tree_map(number, (bsym.args, bsym.kwargs))
            return bsym.sym(*args, **kwargs)

        return replace_calls(trace, on_call, provenance=type(self).__name__)


#: name → program, dtype, the stage that is named, transforms
PASSES: Mapping[str, tuple[str, torch.dtype, str, Callable[[], list[Any]]]] = {
    "drops_a_cast": ("offsets", BF16, "DropsCasts", lambda: [DropsCasts()]),
    "epsilon": (
        "rms_gate",
        F32,
        "Replaces",
        lambda: [Replaces("torch.rsqrt", lambda a: ltorch.rsqrt(a + 1e-2))],
    ),
    "drops_a_mean": (
        "rms_gate",
        F32,
        "Replaces",
        lambda: [Replaces("torch.mean", lambda a, *r, **k: ltorch.sum(a, -1, True))],
    ),
    "swaps_sub": (
        "cancelling",
        F32,
        "Replaces",
        lambda: [Replaces("torch.sub", lambda a, b, **k: ltorch.add(a, b))],
    ),
    "changes_epsilon": (
        "normalised",
        F32,
        "ChangesNumbers",
        lambda: [ChangesNumbers("ltorch.native_layer_norm", 1e-5, 1e-1)],
    ),
    "drops_clamp": (
        "cancelling",
        BF16,
        "Replaces",
        lambda: [Replaces("torch.clamp", lambda a, *r, **k: a * 1)],
    ),
}

for _name, (_program, _dtype, _stage, _transforms) in PASSES.items():
    FAULTS[_name] = Fault(
        program=_program, dtype=_dtype, kind="stage", names=(_stage,), transforms=_transforms
    )
