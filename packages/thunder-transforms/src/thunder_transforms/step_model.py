"""The memory and the time of a training step, call by call, for every order of its backward.

The calls are those of a `JointProgram`: a forward, whose order is fixed, and a backward, in which calls of
the forward may run again. Bytes are those of `thunder.examine.memory_calculation`: of storages, so that a
view costs nothing, and of what kernels allocate for themselves. Values of the caller are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any, NamedTuple

from thunder.core.proxies import TensorProxy
from thunder.core.symbol import BoundSymbol
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx, from_trace
from thunder.core.vjp_utils import JointProgram
from thunder.examine.memory_calculation import Allocations, allocations_of
from thunder.executors.passes import transform_for_execution
from thunder.extend import Executor, FusionExecutor

__all__ = ["COST_OF_OFFLOADING", "BackwardPlan", "ModelledCall", "StepModel", "step_model"]

#: the time of copying one byte to the CPU and back, in that of reading or writing one on the device
COST_OF_OFFLOADING = 100

#: arithmetic operations in the time of reading or writing one byte
_OPERATIONS_PER_BYTE = 8


@dataclass(frozen=True, eq=False)
class ModelledCall:
    """One call of a step.

    Attributes:
        bsym: the call.
        reads: the names of the tensors that it reads.
        outputs: the names of the tensors that it computes.
        allocates: the storages that hold its results and that no argument has.
        temporary: the bytes that it needs while it runs, beside its arguments and results.
        cost: its time, in that of reading or writing one byte.
        can_run_again: whether it may run in the backward too.
    """

    bsym: BoundSymbol
    reads: tuple[str, ...]
    outputs: tuple[str, ...]
    allocates: tuple[str, ...]
    temporary: int
    cost: float
    can_run_again: bool


@dataclass(frozen=True, eq=False)
class BackwardPlan:
    """An order of a backward, and what is in the memory of the CPU before it.

    Attributes:
        order: each call of the backward once, and any of the forward, which compute values again.
        offloaded: the names of saved values that are copied to the CPU after their last use in the forward,
            and back before their first use in the backward.
    """

    order: tuple[ModelledCall, ...]
    offloaded: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class StepModel:
    """The calls of a training step, and the storages of its tensors.

    Attributes:
        forward: the calls of the forward.
        backward: those that need a cotangent.
        storage: the name of a tensor → its storage.
        size: the bytes of each storage; 0 for the caller's.
        cotangents: the storages that the backward receives.
        results: the storages that live until the step's end from when they are computed: results of the
            program, gradients, and values that other nodes of torch's graph read.
        unsaved: the names of the values that may not be saved.
        elsewhere: the storages on another device than the CPU.
    """

    forward: tuple[ModelledCall, ...]
    backward: tuple[ModelledCall, ...]
    storage: dict[str, str]
    size: dict[str, int]
    cotangents: frozenset[str]
    results: frozenset[str]
    unsaved: frozenset[str]
    elsewhere: frozenset[str]

    def peak(self, plan: BackwardPlan) -> int:
        """Return the most bytes of a step with this backward, each value freed when it is dead."""
        order = plan.order
        steps = _steps(self, plan)
        last = {copy: i for i, step in enumerate(steps) for copy in (*step.allocated, *step.read)}
        dying: list[list[_Copy]] = [[] for _ in steps]
        for copy, position in last.items():
            if copy.version or copy.storage not in self.results:
                dying[position].append(copy)
        live = peak = 0
        first = len(steps) - len(order)
        for position, step in enumerate(steps):
            if position == first:
                live += sum(self.size[s] for s in self.cotangents)
            live += sum(self.size[copy.storage] for copy in step.allocated)
            peak = max(peak, live + step.call.temporary)
            live -= sum(self.size[copy.storage] for copy in dying[position])
        return peak

    def saved(self, order: Sequence[ModelledCall]) -> set[str]:
        """Return the names of the values that the forward saves for these calls."""
        computed: set[str] = set()
        saved: set[str] = set()
        for call in order:
            saved.update(name for name in call.reads if name not in computed)
            computed.update(call.outputs)
        return saved

    def forward_for(self, saved: set[str]) -> list[ModelledCall]:
        """Return the calls of the forward that compute results, or values that are saved."""
        needed = set(saved)
        live: list[ModelledCall] = []
        for call in reversed(self.forward):
            is_result = any(self.storage[name] in self.results for name in call.outputs)
            if is_result or not call.can_run_again or not needed.isdisjoint(call.outputs):
                needed.update(call.reads)
                live.append(call)
        live.reverse()
        return live

    def cost(self, plan: BackwardPlan) -> float:
        """Return the time of the calls that run again, and of copies to the CPU and back."""
        copied = sum(self.size[self.storage[name]] for name in plan.offloaded)
        return sum(call.cost for call in plan.order if call.can_run_again) + COST_OF_OFFLOADING * copied


class _Copy(NamedTuple):
    """A storage and the number of times that it was computed again."""

    storage: str
    version: int


class _Step(NamedTuple):
    """A call as it runs: the copies of storages that it reads and allocates."""

    call: ModelledCall
    read: frozenset[_Copy]
    allocated: tuple[_Copy, ...]


#: the version of a storage that was copied back from the CPU
_LOADED = -1


def _steps(model: StepModel, plan: BackwardPlan) -> list[_Step]:
    """Return the calls of a step as they run; a value is read from its last copy."""
    order = plan.order
    loads = {_Copy(model.storage[name], 0) for name in plan.offloaded}
    current = {name: _Copy(storage, 0) for name, storage in model.storage.items()}
    versions: dict[str, int] = {}
    steps: list[_Step] = []
    forward = model.forward_for(model.saved(order))
    for position, call in enumerate((*forward, *order)):
        read = frozenset(current[name] for name in call.reads)
        loaded = read & loads if position >= len(forward) else frozenset()
        for copy in loaded:
            _replace_copy(current, copy, _Copy(copy.storage, _LOADED))
        read = frozenset(current[name] for name in call.reads)
        if position >= len(forward) and call.can_run_again:
            versions.update({storage: versions.get(storage, 0) + 1 for storage in call.allocates})
        allocated = {s: _Copy(s, versions.get(s, 0)) for s in call.allocates}
        sources = {copy.storage: copy for copy in read}
        for name in call.outputs:
            storage = model.storage[name]
            current[name] = allocated.get(storage) or sources.get(storage) or _Copy(storage, 0)
        copied = (_Copy(copy.storage, _LOADED) for copy in loaded)
        steps.append(_Step(call, read, (*allocated.values(), *copied)))
    return steps


def _replace_copy(current: dict[str, _Copy], old: _Copy, new: _Copy) -> None:
    current.update({name: new for name, copy in current.items() if copy == old})


def step_model(program: JointProgram, joint: TraceCtx, executors: Sequence[Executor]) -> StepModel:
    """Return the model of a program, whose calls the executors run one by one, without fusions."""
    unfused = [executor for executor in executors if not isinstance(executor, FusionExecutor)]
    calls = [*program.forward, *program.backward]
    trace = from_trace(joint)
    trace.args = list(joint.args)
    trace.bound_symbols = [*calls, joint.bound_symbols[-1]]
    claimed = transform_for_execution(trace, unfused)
    memory = allocations_of(claimed)
    modelled = _Modeller(program, claimed, memory).calls(calls)
    count = len(program.forward)
    tensors = _tensors((*program.inputs, *program.cotangents, *_values(claimed.bound_symbols)))
    size = dict(memory.sizes)
    for p in program.cotangents:
        size[memory.storages[p.name]] = int(p.numel) * p.dtype.torch_dtype.itemsize
    held = _tensors((*program.results, *program.gradients, *program.connecting))
    forward_values = _tensors(_values(program.forward))
    return StepModel(
        tuple(modelled[:count]),
        tuple(modelled[count:]),
        dict(memory.storages),
        size,
        frozenset(memory.storages[p.name] for p in program.cotangents),
        frozenset(memory.storages[name] for name in held if name in memory.storages),
        frozenset(name for name, p in forward_values.items() if not program.can_save(p)),
        frozenset(memory.storages[n] for n, p in tensors.items() if p.device.type not in ("cpu", "meta")),
    )


def _values(bsyms: Iterable[BoundSymbol]) -> list[Any]:
    return [p for bsym in bsyms for p in bsym.flat_proxy_outs]


def _tensors(proxies: Iterable[Any]) -> dict[str, TensorProxy]:
    return {p.name: p for p in proxies if isinstance(p, TensorProxy)}


class _Modeller:
    """Pairs the calls of a program with the statements that executors made of them."""

    def __init__(self, program: JointProgram, claimed: TraceCtx, memory: Allocations) -> None:
        self.program, self.memory = program, memory
        self.statements = [(b, w) for b, w in zip(claimed.bound_symbols, memory.workspaces, strict=True)][:-1]

    def calls(self, calls: Sequence[BoundSymbol]) -> list[ModelledCall]:
        """Return the model of each call."""
        owner = {p.name: i for i, call in enumerate(calls) for p in _computed_in(call)}
        groups: list[list[tuple[BoundSymbol, int]]] = [[] for _ in calls]
        pending: list[tuple[BoundSymbol, int]] = []
        position = 0
        for statement in self.statements:
            pending.append(statement)
            owners = [owner[p.name] for p in statement[0].flat_proxy_outs if p.name in owner]
            if owners:  # what came before computes intermediate values of the same call
                position = max(owners)
                groups[position] += pending
                pending = []
        if groups:
            groups[position] += pending
        forward = len(self.program.forward)
        return [self._modelled(call, groups[i], i < forward) for i, call in enumerate(calls)]

    def _modelled(
        self, call: BoundSymbol, group: Sequence[tuple[BoundSymbol, int]], is_forward: bool
    ) -> ModelledCall:
        storages, sizes = self.memory.storages, self.memory.sizes
        arguments = _tensors(call.flat_proxy_args)
        outputs = {n: p for n, p in _tensors(call.flat_proxy_outs).items() if n not in arguments}
        computed = [n for n in outputs if n in storages]
        borrowed = {storages[n] for n in arguments if n in storages}
        allocates = dict.fromkeys(
            storages[n] for n in outputs if n in computed and storages[n] not in borrowed
        )
        live, peak, own = 0, 0, set(allocates)
        last = {s: i for i, (bsym, _) in enumerate(group) for s in self._storages_of(bsym)}
        alive: set[str] = set()
        for i, (bsym, workspace) in enumerate(group):
            for storage in self._storages_of(bsym) - borrowed - alive:
                alive.add(storage)
                live += sizes[storage]
            peak = max(peak, live + workspace)
            for storage in [s for s in alive if last[s] == i and s not in own]:
                alive.remove(storage)
                live -= sizes[storage]
        temporary = max(0, peak - sum(sizes[s] for s in allocates))
        return ModelledCall(
            call,
            tuple(n for n in arguments if n in storages),
            tuple(computed),
            tuple(allocates),
            temporary,
            _cost(call, arguments, outputs),
            is_forward and self.program.can_run_again(call),
        )

    def _storages_of(self, bsym: BoundSymbol) -> set[str]:
        storages = self.memory.storages
        return {
            storages[p.name] for p in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs) if p.name in storages
        }


def _computed_in(call: BoundSymbol) -> Iterable[Any]:
    """Yield the values that a call and those in it compute, without its arguments."""
    arguments = {p.name for p in call.flat_proxy_args}
    yield from (p for p in call.flat_proxy_outs if p.name not in arguments)
    for part in call.subsymbols:
        yield from (p for p in _computed_in(part) if p.name not in arguments)


def _cost(call: BoundSymbol, arguments: dict[str, TensorProxy], outputs: dict[str, TensorProxy]) -> float:
    """Return the time of a call: its bytes, and the arithmetic of products.

    A product of matrices (m, k) and (k, n) has m·k·n multiplications, the root of the product of the sizes
    of its arguments and result.
    """
    if not outputs or OpTags.VIEW in call.tags:
        return 0.0
    tensors = [*arguments.values(), *outputs.values()]
    count = float(sum(int(p.numel) * p.dtype.torch_dtype.itemsize for p in tensors))
    if OpTags.MATMUL_OP in call.tags or not _is_cheap(call):
        largest = sorted((int(p.numel) for p in arguments.values()), reverse=True)[:2]
        result = max(int(p.numel) for p in outputs.values())
        if len(largest) == 2:
            count += 2 * sqrt(float(prod(largest)) * result) / _OPERATIONS_PER_BYTE
    return count


def _is_cheap(call: BoundSymbol) -> bool:
    return OpTags.POINTWISE_OP in call.tags or OpTags.CHEAP_TO_RECOMPUTE in call.tags
