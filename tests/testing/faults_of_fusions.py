"""Faults of fusion passes, and of the functions that they compile."""

from __future__ import annotations

from typing import Any

import torch

import thunder
from testing.example_executors import (
    Runs,
    Trial,
    gelu_executor,
    name,
    tensor,
)
from testing.fault_table import fault, of_fusions
from thunder import TensorProxy
from thunder.extend import OperatorExecutor, Refusal

# -- fusions -------------------------------------------------------------------------------------------------


@of_fusions("a fusion that drops what others read")
class _Drops(Runs):
    def outputs(self, proxies: Any, made: Any) -> Any:
        return super().outputs(proxies, made)[-1:]


@of_fusions("a fusion that returns its results in another order")
class _Reverses(Runs):
    def returned(self, results: list[torch.Tensor]) -> Any:
        return results[::-1]


@of_fusions("a fusion that returns another dtype")
class _Widens(Runs):
    def returned(self, results: list[torch.Tensor]) -> Any:
        return [x.double() for x in results]


@of_fusions("a fusion that returns a tensor and no list")
class _Unpacked(Runs):
    def returned(self, results: list[torch.Tensor]) -> Any:
        return results[0] if len(results) == 1 else results


@of_fusions("a fusion that returns other strides")
class _Transposes(Runs):
    def returned(self, results: list[torch.Tensor]) -> Any:
        return [x.mT.contiguous().mT if x.ndim > 1 else x for x in results]


@of_fusions("a fusion that returns results in one memory")
class _Shares(Runs):
    def returned(self, results: list[torch.Tensor]) -> Any:
        return list(torch.stack(results)) if len({x.shape for x in results}) == 1 else results


@of_fusions("a fusion that overwrites its arguments")
class _Overwrites(Runs):
    def step(self, bsym: Any, values: dict[str, Any]) -> torch.Tensor:
        out = super().step(bsym, values)
        first = next(iter(values.values()))
        return first.copy_(out).clone() if first.shape == out.shape else out


@of_fusions("a fusion that takes equal arguments for one")
class _Merges(Runs):
    def inputs(self, proxies: Any) -> Any:
        return list({(p.shape, p.dtype): p for p in super().inputs(proxies)}.values())


@of_fusions("a fusion that leaves out a call that nobody else reads")
class _Skips(Runs):
    def step(self, bsym: Any, values: dict[str, Any]) -> torch.Tensor:
        known = len(values) > 2
        return values[bsym.args[0].name].clone() if known else super().step(bsym, values)


@of_fusions("a fusion that is less precise")
class _Rounds(Runs):
    def step(self, bsym: Any, values: dict[str, Any]) -> torch.Tensor:
        out = super().step(bsym, values)
        return out.to(torch.bfloat16).to(out.dtype)


@of_fusions("a fusion that keeps its first results")
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


@of_fusions("a region that is moved behind what reads it, and behind writes")
class _Sinks(_Everything):
    pass


@of_fusions("a region that is moved before what it reads")
class _Hoists(_Everything):
    at_the_end = False


def _writes(bsym: Any) -> bool:
    return any(b.sym.name == "copy_" for b in (bsym, *bsym.subsymbols))


@of_fusions("a write to an argument is moved before what reads the argument")
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


@of_fusions("a fusion pass that loses the write to an argument")
class _LosesWrites(Runs):
    def fusion_pass(self, trace: Any) -> Any:
        new = super().fusion_pass(trace)
        new.bound_symbols = [b for b in new.bound_symbols if not _writes(b)]
        return new


@of_fusions("a fusion pass that takes the calls of others")
class _Takes(Runs):
    def is_mine(self, bsym: Any) -> bool:
        return bsym.sym.name in ("sin", "mul", "opaque") and not bsym.sym.is_fusion


@of_fusions("a fusion pass that returns nothing")
class _Nothing(Runs):
    def fusion_pass(self, trace: Any) -> Any:
        super().fusion_pass(trace)


@of_fusions("a fusion that names a result that is read inside only")
class _Misnames(Runs):
    def outputs(self, proxies: Any, made: Any) -> Any:
        return [*super().outputs(proxies, made), TensorProxy(like=proxies[0])] if proxies else []


@of_fusions("fuel is not asked for", "fuel")
class _NoFuel(Runs):
    def get_fuel(self, amount: int = 1) -> bool:
        return True


@of_fusions("fusions are numbered through all traces", "fusions-repeat")
class _Counts(Runs):
    count = 0

    def fusion_name(self, fusion_counter: int) -> str:
        type(self).count += 1
        return f"{self.name}_{self.count}"


@of_fusions("scratch memory of a fusion", "fusion-threads")
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
def an_answer_that_computes() -> Trial:
    return gelu_executor(cls=_Computes)


class _NotFromPrograms(OperatorExecutor):
    def can_execute(self, bsym: Any) -> bool | Refusal:
        return Refusal("program", "it is a call of a program") if bsym.source else super().can_execute(bsym)


@fault("calls that have a line in a program are refused", "jit")
def calls_that_have_a_line_in_a_program_are_refused() -> Trial:
    return gelu_executor(cls=_NotFromPrograms)


@fault("a transform that leaves the casts of autocast out", "jit")
def a_transform_that_leaves_the_casts_of_autocast_out() -> Trial:
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
