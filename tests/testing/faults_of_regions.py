"""Faults of compiled regions: caches, memory, order, fast arithmetic, sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch

from testing.example_executors import Runs
from testing.fault_table import of_fusions
from thunder import TensorProxy

# -- caches of compiled regions ------------------------------------------------------------------------------


class _Cached(Runs):
    """Compiles a region once for each key."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.made: dict[Any, Callable[..., Any]] = {}

    def key(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        raise NotImplementedError

    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        key = self.key(bsyms, inputs, outputs)
        if key not in self.made:
            self.made[key] = super().compiled(bsyms, inputs, outputs)
        return self.made[key]


@of_fusions("regions of the same operators are taken for one")
class _ByOperators(_Cached):
    def key(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        return tuple(b.sym.id for b in bsyms), len(inputs), len(outputs)


@of_fusions("regions of the same names are taken for one")
class _ByNames(_Cached):
    def key(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        return tuple(b.output.name for b in bsyms), tuple(inputs), tuple(outputs)


@of_fusions("regions that differ in a number are taken for one")
class _WithoutNumbers(_Cached):
    def key(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        calls = tuple((b.sym.id, tuple(p.name for p in b.flat_proxy_args), b.output.name) for b in bsyms)
        return calls, tuple(inputs), tuple(outputs)


@of_fusions("a region has the numbers of an earlier one")
class _FirstNumbers(Runs):
    numbers: ClassVar[dict[str, Any]] = {}

    def step(self, bsym: Any, values: dict[str, Any]) -> torch.Tensor:
        args = [self._number(bsym.sym.id, a) if isinstance(a, float) else a for a in bsym.args]
        return super().step(bsym.from_bsym(args=tuple(args)), values)

    def _number(self, operator_id: str, value: float) -> float:
        return float(type(self).numbers.setdefault(operator_id, value))


@of_fusions("a region is specialised for its first shape", "fusion-shapes")
class _FirstShape(Runs):
    sizes: ClassVar[dict[str, int]] = {}

    def step(self, bsym: Any, values: dict[str, Any]) -> torch.Tensor:
        out = super().step(bsym, values)
        known = type(self).sizes.setdefault(self.name + bsym.sym.id, out.numel())
        flat = out.flatten()
        flat[known:] = 0
        return flat.view(out.shape)


# -- memory --------------------------------------------------------------------------------------------------


@of_fusions("a buffer is reused while its value is still a result")
class _Reuses(Runs):
    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        def run(*args: torch.Tensor) -> list[torch.Tensor]:
            values, buffer = dict(zip(inputs, args, strict=True)), None
            for bsym in bsyms:
                out = self.step(bsym, values)
                if buffer is not None and buffer.shape == out.shape and buffer.dtype == out.dtype:
                    out = buffer.copy_(out)
                buffer = values[bsym.output.name] = out
            return [values[n] for n in outputs]

        return run


@of_fusions("results are written into the buffers of the first run", "fusion-threads")
class _StaticBuffers(Runs):
    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        run, buffers = super().compiled(bsyms, inputs, outputs), []

        def replay(*args: torch.Tensor) -> list[torch.Tensor]:
            results = run(*args)
            if not buffers:
                buffers.extend(x.clone() for x in results)
            return [b.copy_(x) if b.shape == x.shape else x for b, x in zip(buffers, results, strict=True)]

        return replay


@of_fusions("a later run changes an earlier result", "fusion-repeats")
class _OneBuffer(_StaticBuffers):
    """The same fault, for a check of repeated runs."""


@of_fusions("the arguments of the last run are kept", "fusion-releases")
class _KeepsArguments(Runs):
    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        run, last = super().compiled(bsyms, inputs, outputs), []

        def kept(*args: torch.Tensor) -> list[torch.Tensor]:
            last[:] = args
            return run(*args)  # type: ignore[no-any-return]

        return kept


@of_fusions("all results are parts of one allocation")
class _OneAllocation(Runs):
    def returned(self, results: list[torch.Tensor]) -> Any:
        if len({x.dtype for x in results}) != 1:
            return results
        flat = torch.cat([x.flatten() for x in results])
        parts = flat.split([x.numel() for x in results])
        return [p.view(x.shape) for p, x in zip(parts, results, strict=True)]


@of_fusions("a region reads by the pointer of the storage")
class _IgnoresOffsets(Runs):
    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        run = super().compiled(bsyms, inputs, outputs)
        return lambda *args: run(*(a.as_strided(a.shape, a.stride(), 0) for a in args))


@of_fusions("a region reads as if its arguments were dense")
class _IgnoresStrides(Runs):
    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        run = super().compiled(bsyms, inputs, outputs)

        def dense(x: torch.Tensor) -> torch.Tensor:
            room = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
            strides = torch.empty(x.shape, device="meta").stride()
            return x.as_strided(x.shape, strides) if x.numel() <= room else x

        return lambda *args: run(*map(dense, args))


@of_fusions("results of a region are contiguous where eager's are not")
class _Contiguous(Runs):
    def returned(self, results: list[torch.Tensor]) -> Any:
        return [x.contiguous() for x in results]


# -- order and names -----------------------------------------------------------------------------------------


@of_fusions("results are listed in the order of a set", "fusions-repeat")
class _Sets(Runs):
    count = 0

    def outputs(self, proxies: Any, made: Any) -> Any:
        type(self).count += 1
        found = list(super().outputs(proxies, made))
        return found[::-1] if type(self).count % 2 else found

    def inputs(self, proxies: Any) -> Any:
        found = list(super().inputs(proxies))
        return found[::-1] if type(self).count % 2 else found


@of_fusions("calls of a region are sorted by name")
class _Sorted(Runs):
    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        return super().compiled(sorted(bsyms, key=lambda b: b.output.name[::-1]), inputs, outputs)


@of_fusions("equal calls are found by their first argument alone")
class _Deduplicates(Runs):
    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        def run(*args: torch.Tensor) -> list[torch.Tensor]:
            values: dict[str, Any] = dict(zip(inputs, args, strict=True))
            known: dict[Any, Any] = {}
            for bsym in bsyms:
                key = bsym.args[0].name if isinstance(bsym.args[0], TensorProxy) else None
                known.setdefault(key, self.step(bsym, values))
                values[bsym.output.name] = known[key].clone()
            return [values[n] for n in outputs]

        return run


@of_fusions("a result that is returned and read is returned alone")
class _ReadOnce(Runs):
    def outputs(self, proxies: Any, made: Any) -> Any:
        return list(super().outputs(proxies, made))[:1]


@of_fusions("only two arguments of a region are passed")
class _TwoArguments(Runs):
    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        run = super().compiled(bsyms, inputs, outputs)
        return lambda *args: run(*args[:1], *(args[0] if a.shape == args[0].shape else a for a in args[1:]))


# -- arithmetic ----------------------------------------------------------------------------------------------


class Arithmetic(Runs):
    """Changes each result of a call."""

    def change(self, out: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def step(self, bsym: Any, values: dict[str, Any]) -> torch.Tensor:
        return self.change(super().step(bsym, values))


@of_fusions("fast arithmetic loses NaN")
class _FastNan(Arithmetic):
    def change(self, out: torch.Tensor) -> torch.Tensor:
        return torch.where(out.isnan(), 0 * torch.ones_like(out), out)


@of_fusions("fast arithmetic clamps infinities")
class _FastInfinity(Arithmetic):
    def change(self, out: torch.Tensor) -> torch.Tensor:
        largest = torch.finfo(out.dtype).max if out.is_floating_point() else None
        return out if largest is None else out.clamp(-largest, largest)


@of_fusions("fast arithmetic loses the sign of zeros")
class _FastZero(Arithmetic):
    def change(self, out: torch.Tensor) -> torch.Tensor:
        return out + 0.0 if out.is_floating_point() else out


@of_fusions("a region computes float64 in float32")
class _Single(Arithmetic):
    def change(self, out: torch.Tensor) -> torch.Tensor:
        return out.float().to(out.dtype) if out.dtype is torch.float64 else out


@of_fusions("a region truncates to bfloat16")
class _Truncates(Arithmetic):
    def step(self, bsym: Any, values: dict[str, Any]) -> torch.Tensor:
        wide = {k: v.float() if v.dtype is torch.bfloat16 else v for k, v in values.items()}
        out = Runs.step(self, bsym, wide)
        first = next(iter(values.values()))
        if first.dtype is not torch.bfloat16:
            return out
        return (out.contiguous().view(torch.int32) & -65536).view(torch.float32).bfloat16()


@of_fusions("a sine by its first terms")
class _Series(Runs):
    def step(self, bsym: Any, values: dict[str, Any]) -> torch.Tensor:
        if bsym.sym.id != "torch.sin":
            return super().step(bsym, values)
        x = values[bsym.args[0].name]
        return x - x**3 / 6 + x**5 / 120


@of_fusions("numbers of a region are whole")
class _WholeNumbers(Runs):
    def step(self, bsym: Any, values: dict[str, Any]) -> torch.Tensor:
        args = tuple(float(round(a)) if isinstance(a, float) else a for a in bsym.args)
        return super().step(bsym.from_bsym(args=args), values)


# -- sizes ---------------------------------------------------------------------------------------------------


@of_fusions("a region computes the first 1024 elements of a row")
class _Block(Arithmetic):
    def change(self, out: torch.Tensor) -> torch.Tensor:
        if out.ndim:
            out[..., 1024:] = 0
        return out


@of_fusions("a region computes the first 65536 elements")
class _Grid(Arithmetic):
    def change(self, out: torch.Tensor) -> torch.Tensor:
        if out.is_contiguous():
            out.view(-1)[65536:] = 0
        return out


@of_fusions("a region cannot be empty")
class _NotEmpty(Arithmetic):
    def change(self, out: torch.Tensor) -> torch.Tensor:
        if not out.numel():
            raise RuntimeError("invalid configuration: a grid of 0 blocks")
        return out


@of_fusions("arguments of a region are not broadcast")
class _NoBroadcast(Runs):
    def step(self, bsym: Any, values: dict[str, Any]) -> torch.Tensor:
        out = super().step(bsym, values)
        shapes = {tuple(values[p.name].shape) for p in bsym.flat_proxy_args}
        return out if len(shapes) == 1 else out[..., :1].expand(out.shape).clone()
