"""Executors that are right, and that the faulty ones are made of by changing one thing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

import thunder
from thunder import TensorProxy
from thunder.base.pytree import tree_map
from thunder.core.transforms import get_grad, put_grads
from thunder.extend import Executor, FusionExecutor, OperatorExecutor, Refusal
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, from_trace
from thunder.ops.operator import row_of

_numbers = itertools.count()


@dataclass
class Trial:
    """An executor and the arguments of `thunder.testing.conformance` for it."""

    executor: Executor
    arguments: Mapping[str, Any] = field(default_factory=dict)


def name() -> str:
    """A name that no executor has."""
    return f"toy{next(_numbers)}"


def tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    """Random numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + len(shape)))


# -- gate: an elementwise operator of two tensors and a number -----------------------------------------------


def gate(x: torch.Tensor, w: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    """x · sigmoid(alpha · w), in operators of torch."""
    return x * torch.sigmoid(alpha * w)


def gate_kernel(x: torch.Tensor, w: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    """`gate`, computed in float32 or float64 and rounded once."""
    wide = torch.promote_types(x.dtype, torch.float32)
    return gate(x.to(wide), w.to(wide), alpha).to(x.dtype)


def gate_meta(x: Any, w: Any, alpha: float = 1.0) -> Any:
    """One result like x."""
    return TensorProxy(like=x)


def gate_backward(
    g: torch.Tensor, x: torch.Tensor, w: torch.Tensor, alpha: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of x and w."""
    s = torch.sigmoid(alpha * w)
    return g * s, g * x * s * (1 - s) * alpha


def gate_backward_meta(g: Any, x: Any, w: Any, alpha: float) -> Any:
    """One result like each tensor."""
    return TensorProxy(like=x), TensorProxy(like=w)


def gate_checker(x: Any, w: Any, alpha: float) -> bool | Refusal:
    """Floating-point tensors of one dtype and shape."""
    if not (x.dtype.is_floating_point and x.dtype is w.dtype):
        return Refusal("dtype", "gate takes two floating-point tensors of one dtype", found=x.dtype)
    if tuple(x.shape) != tuple(w.shape):
        return Refusal("shape", "gate does not broadcast its arguments")
    return True


GATE_SAMPLES: list[Any] = [
    ((tensor(3, 4), tensor(3, 4, seed=1)), {}),
    ((tensor(2, 3, 5), tensor(2, 3, 5, seed=1), 0.5), {}),
    ((tensor(6), tensor(6, seed=1)), {"alpha": -2.0}),
    ((torch.full((2, 2), 0.25), torch.tensor([[1.0, float("nan")], [float("inf"), -1.0]])), {}),
    ((tensor(0, 3), tensor(0, 3)), {}),
    ((torch.tensor(1.5), torch.tensor(-0.5)), {}),
]


def gate_rule(symbol: Any, backward: Any) -> Callable[..., Any]:
    """The gradient of `gate` by its two operators."""

    def rule(x: Any, w: Any, alpha: float = 1.0) -> Any:
        out = symbol(x, w, alpha)
        put_grads((x, w), backward(get_grad(out), x, w, alpha))
        return out

    return rule


def gate_executor(
    *,
    fn: Callable[..., Any] = gate_kernel,
    meta: Callable[..., Any] = gate_meta,
    backward: Callable[..., Any] = gate_backward,
    backward_meta: Callable[..., Any] = gate_backward_meta,
    checker: Any = gate_checker,
    rule: Callable[[Any, Any], Callable[..., Any]] = gate_rule,
    transform: Callable[..., Any] | None = None,
    samples: Sequence[Any] | None = None,
    tags: Sequence[Any] = (),
    cls: type[OperatorExecutor] = OperatorExecutor,
    **arguments: Any,
) -> Trial:
    """An executor of `gate` with a gradient."""
    executor = cls(name())
    symbol = executor.register_operator("gate", meta=meta, fn=fn, tags=tags)
    backward_symbol = executor.register_operator("gate_backward", meta=backward_meta, fn=backward)
    executor.register_implementation(
        symbol,
        None if transform is not None else symbol,
        checker=checker,
        execution_transform=transform,
        grad_transform=rule(symbol, backward_symbol),
    )
    given = GATE_SAMPLES if samples is None else samples
    return Trial(
        executor,
        {
            "samples": {symbol: given},
            "references": {symbol: gate},
            "operators": "*.gate",
            **arguments,
        },
    )


# -- norm: a reduction over the rows of a matrix, with a number --------------------------------------------


def norm(x: torch.Tensor, w: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """x / √(mean(x²) + eps) · w, in operators of torch."""
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps) * w


def norm_kernel(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    """`norm`, computed in float32 or float64 and rounded once."""
    wide = torch.promote_types(x.dtype, torch.float32)
    return norm(x.to(wide), w.to(wide), eps).to(x.dtype)


def norm_meta(x: Any, w: Any, eps: float = 1e-5) -> Any:
    """One result like x."""
    return TensorProxy(like=x)


def norm_executor(fn: Callable[..., Any] = norm_kernel, **arguments: Any) -> Trial:
    """An executor of `norm`, without gradient."""
    executor = OperatorExecutor(name())
    symbol = executor.register_operator("norm", meta=norm_meta, fn=fn)
    samples = [((tensor(3, 8), tensor(8, seed=1)), {}), ((tensor(2, 3, 4), tensor(4, seed=1)), {"eps": 0.5})]
    return Trial(executor, {"samples": {symbol: samples}, "references": {symbol: norm}, **arguments})


# -- one operator, without gradient --------------------------------------------------------------------------


def like_x(x: Any, *rest: Any) -> Any:
    """One result like the first argument."""
    return TensorProxy(like=x)


def one_operator(
    fn: Callable[..., Any],
    reference: Callable[..., Any],
    meta: Callable[..., Any] = like_x,
    samples: Sequence[Any] = (((tensor(3, 4),), {}), ((tensor(5),), {})),
    **registration: Any,
) -> Trial:
    """An executor of one operator."""
    executor = OperatorExecutor(name())
    symbol = executor.register_operator("op", meta=meta, fn=fn, **registration)
    return Trial(executor, {"samples": {symbol: samples}, "references": {symbol: reference}})


# -- an implementation of a row of torch, by other operators -------------------------------------------------


def gelu_transform(input: Any, approximate: str) -> Any:
    """x · (1 + erf(x/√2)) / 2."""
    ltorch = thunder.torch
    return ltorch.mul(
        input, ltorch.mul(ltorch.add(ltorch.erf(ltorch.mul(input, 0.7071067811865476)), 1.0), 0.5)
    )


def gelu_checker(input: Any, approximate: str) -> bool | Refusal:
    """The exact form, of float32 and float64."""
    if approximate != "none":
        return Refusal("approximate", "only the exact gelu is implemented", found=approximate)
    if input.dtype not in (thunder.float32, thunder.float64):
        return Refusal("dtype", "gelu takes float32 and float64 here", found=input.dtype)
    return True


GELU_SAMPLES: list[Any] = [
    ((tensor(3, 4),), {}),
    ((tensor(4, 2),), {"approximate": "tanh"}),
    ((tensor(5),), {}),
]


def gelu_executor(
    transform: Callable[..., Any] = gelu_transform,
    checker: Any = gelu_checker,
    cls: type[OperatorExecutor] = OperatorExecutor,
    **arguments: Any,
) -> Trial:
    """An executor that runs gelu by an execution transform."""
    executor = cls(name())
    executor.register_implementation(
        "torch.nn.functional.gelu", execution_transform=transform, checker=checker
    )
    return Trial(executor, {"samples": {"torch.nn.functional.gelu": GELU_SAMPLES}, **arguments})


# -- a fusion executor ---------------------------------------------------------------------------------------


class Runs(FusionExecutor):
    """Fuses each run of calls that nothing else interrupts."""

    def fusion_pass(self, trace: TraceCtx) -> TraceCtx:
        """Trace → trace with fusions."""
        new, statements, count = from_trace(trace), trace.bound_symbols, 0
        for mine, start, end in self.runs(statements):
            run = statements[start:end]
            if mine and self.get_fuel():
                read = {p.name for b in statements[end:] for p in b.flat_proxy_args}
                new.bound_symbols.append(self.fuse((run, read), count))
                count += 1
            else:
                new.bound_symbols += run
        return new

    def runs(self, statements: Sequence[BoundSymbol]) -> Sequence[tuple[bool, int, int]]:
        """Whose, from and to, of each run of statements."""
        found, start = [], 0
        for mine, group in itertools.groupby(statements, key=self.is_mine):
            end = start + len(list(group))
            found.append((mine, start, end))
            start = end
        return found

    def is_mine(self, bsym: BoundSymbol) -> bool:
        """Whether the call may go into a region."""
        return bsym.sym.executor is self and not bsym.sym.is_fusion

    def fuse(self, region: Any, fusion_counter: int) -> BoundSymbol:
        """One region into one symbol."""
        bsyms, read = region
        made = {p.name for b in bsyms for p in b.flat_proxy_outs}
        inputs = self.inputs([p for b in bsyms for p in b.flat_proxy_args if p.name not in made])
        outputs = self.outputs([p for b in bsyms for p in b.flat_proxy_outs if p.name in read], made)
        fn = self.compiled(bsyms, [p.name for p in inputs], [p.name for p in outputs])
        return self.register_temporary_operation(
            self.fusion_name(fusion_counter), fn, inputs=inputs, outputs=outputs, bsyms=bsyms
        )

    def fusion_name(self, fusion_counter: int) -> str:
        """The name of a fusion."""
        return f"{self.name}_{fusion_counter}"

    def inputs(self, proxies: Sequence[Any]) -> Sequence[Any]:
        """What a region reads, each once."""
        return list({p.name: p for p in proxies}.values())

    def outputs(self, proxies: Sequence[Any], made: set[str]) -> Sequence[Any]:
        """What others read of a region."""
        return list({p.name: p for p in proxies}.values())

    def compiled(
        self, bsyms: Sequence[BoundSymbol], inputs: list[str], outputs: list[str]
    ) -> Callable[..., Any]:
        """What runs a region."""

        def run(*args: torch.Tensor) -> list[torch.Tensor]:
            values = dict(zip(inputs, args, strict=True))
            for bsym in bsyms:
                values[bsym.output.name] = self.step(bsym, values)
            return self.returned([values[name] for name in outputs])

        return run

    def step(self, bsym: BoundSymbol, values: dict[str, Any]) -> torch.Tensor:
        """The result of one call."""
        args, kwargs = tree_map(
            lambda x: values[x.name] if isinstance(x, TensorProxy) else x, (bsym.args, bsym.kwargs)
        )
        row = row_of(bsym.sym.id)
        assert row is not None, "supported operators are rows"
        assert row.eager is not None, "which eager runs"
        return row.eager(*args, **kwargs)  # type: ignore[no-any-return]

    def returned(self, results: list[torch.Tensor]) -> Any:
        """What a fusion returns."""
        return results


FUSIBLE = ("torch.sin", "torch.mul")


def fuser(cls: type[Runs] = Runs, **arguments: Any) -> Trial:
    """A fusion executor of two operators."""
    executor = cls(name())
    for operator_id in FUSIBLE:
        executor.register_supported(operator_id)
    x, y = tensor(3, 4), tensor(3, 4, seed=1)
    samples = {
        "torch.sin": [((x,), {}), ((tensor(5),), {})],
        "torch.mul": [((x, y), {}), ((x, 2.0), {}), ((x, tensor(4, seed=2)), {})],
    }
    return Trial(executor, {"samples": samples, **arguments})
