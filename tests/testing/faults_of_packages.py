"""Faults that packages had: declared strides, writes, autocast, long regions, memory, addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import thunder
from testing.example_executors import (
    Runs,
    Trial,
    fuser,
    gate_kernel,
    name,
    one_operator,
    tensor,
)
from testing.fault_table import FAULTS, Fault, fault, of_fusions, of_gate
from thunder import TensorProxy
from thunder.extend import OperatorExecutor

# -- declared strides ----------------------------------------------------------------------------------------


def _row_major(shape: Any) -> tuple[int, ...]:
    strides = [1]
    for n in reversed(shape[1:]):
        strides.insert(0, strides[0] * int(n))
    return tuple(strides[: len(shape)])


def _reversed_strides(x: Any, w: Any, alpha: float = 1.0) -> Any:
    return TensorProxy(like=x, strides=_row_major(x.shape)[::-1])


def _strides_of_a_row(x: Any, w: Any, alpha: float = 1.0) -> Any:
    return TensorProxy(like=x, strides=(1,) * x.ndim)


of_gate(
    "strides",
    declares_the_strides_of_a_transposed_result=lambda: {"meta": _reversed_strides},
    declares_strides_that_overlap=lambda: {"meta": _strides_of_a_row},
)


@fault("declares contiguous strides where the result has those of the argument", "strides")
def declares_contiguous_strides() -> Trial:
    def meta(x: Any) -> Any:
        return TensorProxy(like=x, strides=_row_major(x.shape))

    return one_operator(torch.neg, torch.neg, meta=meta)


@fault("declares the strides of the second result for the first", "strides")
def declares_the_strides_of_the_second_result_for_the_first() -> Trial:
    def meta(x: Any) -> Any:
        rows, columns = x.shape
        return (
            TensorProxy(like=x, strides=(1, rows)),
            TensorProxy(like=x, shape=(columns, rows), strides=(rows, 1)),
        )

    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.exp().contiguous()
        return y, y.t().contiguous()

    return one_operator(both, both, meta=meta, samples=[((tensor(3, 4),), {})])


# -- writes --------------------------------------------------------------------------------------------------


class _AtTheLastReader(Runs):
    """Makes one region of all its calls, before the first other call that reads one of its results."""

    def fusion_pass(self, trace: Any) -> Any:
        mine = [b for b in trace.bound_symbols if self.is_mine(b)]
        others = [b for b in trace.bound_symbols if not self.is_mine(b)]
        if not mine or not self.get_fuel():
            return trace
        made = {p.name for b in mine for p in b.flat_proxy_outs}
        place = next(
            (i for i, b in enumerate(others) if any(p.name in made for p in b.flat_proxy_args)), len(others)
        )
        computed = {p.name for b in others[place:] for p in b.flat_proxy_outs}
        if any(p.name in computed for b in mine for p in b.flat_proxy_args):
            return super().fusion_pass(trace)
        new = thunder.core.trace.from_trace(trace)
        read = {p.name for b in others for p in b.flat_proxy_args}
        new.bound_symbols = [*others[:place], self.fuse((mine, read), 0), *others[place:]]
        return new


FAULTS.append(
    Fault("a region waits for its reader, behind a write", "regions", lambda: fuser(_AtTheLastReader), True)
)


def _of(*operators: str, cls: type[Runs] = _AtTheLastReader) -> Trial:
    executor = cls(name())
    for operator_id in operators:
        executor.register_supported(operator_id)
    return Trial(executor, {})


for _operator in ("torch.sum", "torch.lt", "torch.argmax", "torch.matmul", "torch.cat", "torch.where"):
    FAULTS.append(
        Fault(
            f"a region of {_operator} waits for its reader, behind a write",
            "regions",
            lambda operator=_operator: _of(operator),
            is_fusion=True,
        )
    )


class _KnowsFirstArguments(_AtTheLastReader):
    """Waits only if no first argument of its calls is written."""

    def written(self, trace: Any) -> set[str]:
        return {b.args[1].name for b in trace.bound_symbols if b.sym.name == "copy_"}

    def names(self, trace: Any) -> set[str]:
        return {b.flat_proxy_args[0].name for b in trace.bound_symbols if self.is_mine(b)}

    def fusion_pass(self, trace: Any) -> Any:
        if self.names(trace) & self.written(trace):
            return Runs.fusion_pass(self, trace)
        return super().fusion_pass(trace)


FAULTS.append(
    Fault(
        "a region waits behind a write to its second argument",
        "regions",
        lambda: fuser(_KnowsFirstArguments),
        is_fusion=True,
    )
)


@of_fusions("a region waits behind a write to a view of its argument")
class _KnowsNoViews(_KnowsFirstArguments):
    def names(self, trace: Any) -> set[str]:
        return {p.name for b in trace.bound_symbols if self.is_mine(b) for p in b.flat_proxy_args}


# -- autocast ------------------------------------------------------------------------------------------------


def _bilinear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w @ x.t()


def _replacing(**registration: Any) -> Trial:
    def bilinear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x @ w @ x.t()

    executor = OperatorExecutor(name())
    symbol = executor.register_operator(
        "bilinear",
        meta=lambda x, w: TensorProxy(like=x, shape=(x.shape[0], x.shape[0])),
        fn=_bilinear,
        replaces=bilinear,
        **registration,
    )
    samples = {symbol: [((tensor(4, 3), tensor(3, 3, seed=1)), {})]}
    return Trial(executor, {"samples": samples})


@fault("a function is replaced, and autocast's casts are left out", "jit")
def a_function_is_replaced_and_autocast_s_casts_are_left_out() -> Trial:
    return _replacing(autocast=None)


@fault("a function is replaced, and autocast casts to float32 where eager has bfloat16", "jit")
def a_function_is_replaced_and_autocast_casts_to_float32() -> Trial:
    return _replacing(autocast="fp32")


@fault("a function is replaced, and autocast casts where eager does not", "jit")
def a_function_is_replaced_and_autocast_casts_where_eager_does_not() -> Trial:
    def scaled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(w) * x

    executor = OperatorExecutor(name())
    symbol = executor.register_operator(
        "scaled", meta=lambda x, w: TensorProxy(like=x), fn=scaled, replaces=scaled, autocast="lower"
    )
    return Trial(executor, {"samples": {symbol: [((tensor(4, 3), tensor(4, 3, seed=1)), {})]}})


# -- long regions --------------------------------------------------------------------------------------------


class _LongRegions(Runs):
    """Computes regions of more than some calls in another way."""

    more_than = 3

    def change(self, out: torch.Tensor) -> torch.Tensor:
        return out.float().to(out.dtype) if out.dtype is torch.float64 else out

    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        self.is_long = len(bsyms) > self.more_than
        is_long = self.is_long

        def run(*args: torch.Tensor) -> list[torch.Tensor]:
            values = dict(zip(inputs, args, strict=True))
            for bsym in bsyms:
                out = self.step(bsym, values)
                values[bsym.output.name] = self.change(out) if is_long else out
            return [values[n] for n in outputs]

        return run


for _calls in (3, 8, 11, 16):
    FAULTS.append(
        Fault(
            f"a region of more than {_calls} calls computes float64 in float32",
            "regions",
            lambda n=_calls: fuser(type("Long", (_LongRegions,), {"more_than": n})),
            is_fusion=True,
        )
    )


@of_fusions("a long region loses NaN")
class _LongLosesNan(_LongRegions):
    more_than = 6

    def change(self, out: torch.Tensor) -> torch.Tensor:
        return out.nan_to_num(0.0, float("inf"), float("-inf")) if out.is_floating_point() else out


@of_fusions("a long region returns contiguous results")
class _LongContiguous(_LongRegions):
    more_than = 6

    def change(self, out: torch.Tensor) -> torch.Tensor:
        return out.contiguous()


# -- memory that grows ---------------------------------------------------------------------------------------


def _leaking(keep: Callable[..., Any]) -> Callable[[], dict[str, Any]]:
    kept: list[Any] = []

    def fn(x: Any, w: Any, alpha: float) -> Any:
        kept.append(keep(x, w))
        return gate_kernel(x, w, alpha)

    return lambda: {"fn": fn}


def _keyed_by_address(x: Any, w: Any, alpha: float, known: dict[int, Any] = {}) -> Any:  # noqa: B006
    known[len(known)] = torch.sigmoid(alpha * w.float())
    return gate_kernel(x, w, alpha)


def _in_numpy(x: Any, w: Any) -> Any:
    import numpy

    return numpy.zeros(1 + x.numel())


of_gate(
    "releases",
    keeps_an_intermediate_result_of_each_run=_leaking(lambda x, w: w.float() * 2),
    keeps_a_workspace_of_each_run=lambda: {"fn": _keyed_by_address},
    keeps_a_list_of_numbers_of_each_run=_leaking(lambda x, w: [float(i) for i in range(200)]),
    keeps_an_array_of_each_run=_leaking(_in_numpy),
    keeps_bytes_of_each_run=_leaking(lambda x, w: bytes(1000)),
)


@of_fusions("a region keeps an intermediate result of each run", "fusion-releases")
class _Grows(Runs):
    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        run, kept = super().compiled(bsyms, inputs, outputs), []

        def kept_run(*args: torch.Tensor) -> list[torch.Tensor]:
            results = run(*args)
            kept.append([x.clone() for x in results])
            return results  # type: ignore[no-any-return]

        return kept_run


# -- addresses -----------------------------------------------------------------------------------------------


def _cached_by(key: Callable[..., Any]) -> Callable[[], dict[str, Any]]:
    known: dict[Any, Any] = {}

    def fn(x: Any, w: Any, alpha: float) -> Any:
        place = (*key(x, w), alpha, x.dtype, tuple(x.shape), tuple(x.stride()))
        if place not in known:
            known[place] = gate_kernel(x, w, alpha).clone()
        return known[place].clone()

    return lambda: {"fn": fn}


def _with_packed_weight() -> dict[str, Any]:
    packed: dict[Any, torch.Tensor] = {}

    def fn(x: Any, w: Any, alpha: float) -> Any:
        place = (w.data_ptr(), w.dtype, alpha, tuple(w.shape), tuple(w.stride()))
        if place not in packed:
            packed[place] = torch.sigmoid(alpha * w.to(torch.promote_types(w.dtype, torch.float32)))
        return (x * packed[place]).to(x.dtype)

    return {"fn": fn}


of_gate(
    "repeats",
    results_cached_by_addresses=_cached_by(lambda x, w: (x.data_ptr(), w.data_ptr())),
    results_cached_by_addresses_and_versions=_cached_by(
        lambda x, w: (x.data_ptr(), x._version, w.data_ptr(), w._version)
    ),
    results_cached_by_ids=_cached_by(lambda x, w: (id(x), id(w))),
    a_packed_weight_cached_by_its_address=_with_packed_weight,
)


@of_fusions("a region's results are cached by addresses", "fusion-repeats")
class _ByAddress(Runs):
    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        run, known = super().compiled(bsyms, inputs, outputs), {}

        def cached(*args: torch.Tensor) -> list[torch.Tensor]:
            key = tuple((a.data_ptr(), a.shape, a.dtype, a.stride()) for a in args)
            if key not in known:
                known[key] = [x.clone() for x in run(*args)]
            return [x.clone() for x in known[key]]

        return cached


# -- operators that write ------------------------------------------------------------------------------------


def _extending(kernel: Callable[..., Any], mutates: Any = ("k", "v")) -> Trial:
    def extend(k: torch.Tensor, v: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        k[0].copy_(new)
        v[0].copy_(new * 2)
        return new.sum(-1)

    def meta(k: Any, v: Any, new: Any) -> Any:
        return TensorProxy(like=new, shape=tuple(new.shape)[:-1])

    executor = OperatorExecutor(name())
    executor.register_operator("extend", meta=meta, fn=kernel, mutates=mutates, replaces=extend)
    samples = {"extend": [((torch.zeros(4, 3), torch.ones(4, 3), tensor(3)), {})]}
    return Trial(executor, {"samples": samples, "dtypes": [torch.float32]})


@fault("an operator writes other values than eager", "values")
def an_operator_writes_other_values_than_eager() -> Trial:
    def kernel(k: Any, v: Any, new: Any) -> Any:
        k[0].copy_(new)
        v[0].copy_(new)
        return new.sum(-1)

    return _extending(kernel)


@fault("an operator writes to an argument that it does not name", "inputs")
def an_operator_writes_to_an_argument_that_it_does_not_name() -> Trial:
    def kernel(k: Any, v: Any, new: Any) -> Any:
        k[0].copy_(new)
        v[0].copy_(new * 2)
        return new.sum(-1)

    return _extending(kernel, mutates="k")


@fault("an operator leaves out a write", "jit")
def an_operator_leaves_out_a_write() -> Trial:
    def kernel(k: Any, v: Any, new: Any) -> Any:
        k[0].copy_(new)
        return new.sum(-1)

    return _extending(kernel, mutates="k")
