"""The search for an order of a backward that needs at most a number of bytes.

A backward is run call by call on a model of its memory. Where the bytes do not suffice, a value is evicted
that a call of the forward can compute again, and it is computed again when it is next read: dynamic tensor
rematerialisation (Kirisame et al., ICLR 2021), with the difference that the future is known. Values that are
evicted before they are read are not saved. Several rules choose what is evicted; the cheapest order that
fits is then improved by values that stay.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from thunder_transforms.step_model import COST_OF_OFFLOADING, BackwardPlan, ModelledCall, StepModel

__all__ = ["Search"]

#: a call of the forward runs again at most so often on average, and so many calls more in a small program
_RUNS, _MORE_RUNS = 8, 200
#: how often a value that could not be computed again in the bytes that are left is kept instead
_REPAIRS = 12
#: the values, most costly first, of which the search tries to keep one more
_TRIES = 40
#: the least number of bytes is known up to this part of it
_ACCURACY = 500
#: a forward of so few calls is searched to the last byte
_SMALL = 100

#: the divisor of the cost of a value that the backward does not read, if what it was read for is available
_SOURCE = 20

#: the price of evicting a storage: its bytes, the cost of its calls, the distance of its next use
_Price = Callable[[int, float, float], float]

#: what is evicted is what costs least by one of these
_PRICES: Final[tuple[_Price, ...]] = (
    lambda size, cost, distance: cost / (size * distance),
    lambda size, cost, distance: cost / size,
    lambda size, cost, distance: 1 / distance,
    lambda size, cost, distance: 1 / size,
    lambda size, cost, distance: cost,
)


class _DoesNotFit(Exception):
    """The call whose results have no place, and the storages whose computation needed it."""

    def __init__(self, pending: frozenset[str]) -> None:
        super().__init__("the bytes do not suffice")
        self.pending = pending


class Search:
    """Finds orders of one step's backward."""

    def __init__(self, model: StepModel) -> None:
        self.model = model
        #: without and with the calls of the forward that only the backward needs
        self._uses = [_Uses(model, model.forward_for(set()))]
        if len(self._uses[0].forward) < len(model.forward):
            self._uses.append(_Uses(model, model.forward))
        self._ways = [(price, uses) for uses in self._uses for price in _PRICES]

    def cheapest(self, budget: int) -> BackwardPlan | None:
        """Return the cheapest order found whose peak is within so many bytes, or None."""
        found = [order for way in self._ways if (order := self._fitting(budget, way)) is not None]
        if not found:
            return None
        return self._improved(min(found, key=self.model.cost), budget)

    def keeping(self) -> BackwardPlan:
        """Return the plan that keeps all that may be saved."""
        return next(o for way in self._ways if (o := self._fitting(None, way)) is not None)

    def least(self) -> BackwardPlan:
        """Return the plan with the least peak that was found.

        Where the bytes do not suffice, further plans are tried that keep one value more.
        """
        best = self._approached(self.keeping(), self._any, len(self.model.forward))
        return self._approached(best, self._with_one_more, 0)

    def _approached(
        self, best: BackwardPlan, find: Callable[[int], BackwardPlan | None], calls: int
    ) -> BackwardPlan:
        """Return the last plan that `find` returns for fewer and fewer bytes.

        That is the least up to `_ACCURACY`, where the forward has many calls.
        """
        low, high = 0, self.model.peak(best)
        while high - low > (high // _ACCURACY if calls > _SMALL else 0):
            middle = (low + high) // 2 if calls else high - 1
            plan = find(middle)
            if plan is not None:
                best, high = plan, self.model.peak(plan)
            elif calls:
                low = middle + 1
            else:
                break
        return best

    def _with_one_more(self, budget: int) -> BackwardPlan | None:
        storages = sorted(self._uses[0].names, key=lambda s: -self.model.size[s])[:_TRIES]
        plans = (self._fitting(budget, way, frozenset({s})) for s in storages for way in self._ways)
        return next((plan for plan in plans if plan is not None), None)

    def _any(self, budget: int) -> BackwardPlan | None:
        orders = (self._fitting(budget, way) for way in self._ways)
        return next((order for order in orders if order is not None), None)

    def _fitting(
        self, budget: int | None, way: tuple[_Price, _Uses], kept: frozenset[str] = frozenset()
    ) -> BackwardPlan | None:
        """Return an order within a budget, or None; what cannot be computed in it again is kept."""
        for _ in range(_REPAIRS):
            try:
                order = _Run(self.model, *way, inf if budget is None else budget, kept).order()
            except _DoesNotFit as error:
                if error.pending <= kept:
                    return None
                kept |= error.pending
                continue
            return order if budget is None or self.model.peak(order) <= budget else None
        return None

    def _improved(self, order: BackwardPlan, budget: int) -> BackwardPlan:
        """Return an order at most as costly, in which some values stay that were computed again."""
        kept: frozenset[str] = frozenset()
        costs: dict[str, float] = {}
        for call in order.order:
            if call.can_run_again:
                for storage in call.allocates:
                    costs[storage] = costs.get(storage, 0.0) + call.cost
        for storage in sorted(costs, key=lambda s: -costs[s])[:_TRIES]:
            for way in (*self._ways[:2], *self._ways[len(_PRICES) :][:2]):
                other = self._fitting(budget, way, kept | {storage})
                if other is not None and self.model.cost(other) < self.model.cost(order):
                    order, kept = other, kept | {storage}
                    break
        return order


class _Uses:
    """The places at which a step reads each storage, if these calls run before its backward."""

    def __init__(self, model: StepModel, forward: Sequence[ModelledCall]) -> None:
        self.forward = forward
        #: storage → the positions of the calls of the backward that read it
        self.reads: dict[str, list[int]] = {}
        for position, call in enumerate(model.backward):
            for storage in {model.storage[name] for name in call.reads}:
                self.reads.setdefault(storage, []).append(position)
        #: storage → the last position at which it, or a value computed from it, is read
        self.horizon = {model.storage[n]: i for i, call in enumerate(model.backward) for n in call.outputs}
        self.horizon.update({storage: positions[-1] for storage, positions in self.reads.items()})
        for call in reversed(model.forward):
            if call.can_run_again:
                end = max((self.horizon.get(model.storage[n], -1) for n in call.outputs), default=-1)
                for name in call.reads:
                    storage = model.storage[name]
                    self.horizon[storage] = max(end, self.horizon.get(storage, -1))
        #: storage → the last call of the forward that reads or computes it
        self.last_in_forward: dict[str, int] = {}
        for position, call in enumerate(forward):
            for name in (*call.reads, *call.outputs):
                self.last_in_forward[model.storage[name]] = position
        #: position of a call of the backward → the storages that no later one needs; -1 is the forward
        self.ending: dict[int, list[str]] = {}
        for storage in model.size:
            if storage not in model.results:
                self.ending.setdefault(self.horizon.get(storage, -1), []).append(storage)
        #: position of a call of the forward → the storages that are not needed after it
        self.ending_in_forward: dict[int, list[str]] = {}
        for storage in self.ending.get(-1, ()):
            if storage in self.last_in_forward:
                self.ending_in_forward.setdefault(self.last_in_forward[storage], []).append(storage)
        #: storage → the values that the forward computes from it
        self.computed_from: dict[str, list[str]] = {}
        for call in model.forward:
            for storage in {model.storage[name] for name in call.reads}:
                self.computed_from.setdefault(storage, []).extend(call.outputs)
        self.producer = {name: call for call in model.forward for name in call.outputs}
        #: storage → the names in it that the forward computes
        self.names: dict[str, list[str]] = {}
        for name in self.producer:
            self.names.setdefault(model.storage[name], []).append(name)

    def next_read(self, storage: str, position: int) -> int:
        """Return the position of the next call that reads a storage, or its horizon."""
        positions = self.reads.get(storage, [])
        index = bisect_left(positions, position)
        return positions[index] if index < len(positions) else self.horizon.get(storage, -1)


@dataclass
class _Run:
    """One run of a step on the model, within a number of bytes."""

    model: StepModel
    price: _Price
    uses: _Uses
    budget: float
    kept: frozenset[str]
    calls: list[ModelledCall] = field(default_factory=list)
    available: set[str] = field(default_factory=set)
    alive: set[str] = field(default_factory=set)
    live: int = 0
    position: int = 0
    locks: dict[str, int] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    #: the storages that are in the memory of the CPU, and those that were copied back from it
    offloaded: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)
    #: the storages that calls of the backward have read
    was_read: set[str] = field(default_factory=set)

    def order(self) -> BackwardPlan:
        """Return the calls of the backward in their order."""
        model = self.model
        self.available = {n for n, s in model.storage.items() if n not in self.uses.producer}
        for position, call in enumerate(self.uses.forward):
            self._execute(call, lambda s, at=position: self.uses.last_in_forward[s] > at)  # type: ignore[misc]
            self._free_dead(self.uses.ending_in_forward.get(position, ()))
        self._leave_forward()
        for self.position, call in enumerate(model.backward):
            self._make_available(call.reads)
            self._execute(call, lambda s: False)
            self._append(call)
            self._lock(call.reads, -1)
            self._free_dead(self.uses.ending.get(self.position, ()))
        return BackwardPlan(tuple(self.calls), frozenset(self.loaded))

    # -- the forward

    def _leave_forward(self) -> None:
        self.available -= self.model.unsaved
        for storage in [*self.alive]:
            names = self.uses.names.get(storage, ())
            if storage not in self.model.results and self.available.isdisjoint(names):
                self._free(storage)
        self.live += sum(self.model.size[s] for s in self.model.cotangents)
        self.alive |= self.model.cotangents
        self._free_dead(self.uses.ending.get(-1, ()))

    # -- calls

    def _execute(self, call: ModelledCall, is_needed: Callable[[str], bool]) -> None:
        """Run a call, after evictions that give it the bytes that it needs."""
        fresh = [s for s in call.allocates if s not in self.alive]
        needed = sum(self.model.size[s] for s in fresh) + call.temporary
        busy = {self.model.storage[name] for name in call.reads} | set(call.allocates)
        self._make_room(needed, lambda s: s in busy or is_needed(s))
        self.alive.update(fresh)
        self.live += sum(self.model.size[s] for s in fresh)
        self.available.update(call.outputs)

    def _make_available(self, names: Sequence[str]) -> None:
        """Compute values again that are not available, and lock the storages of all."""
        self._lock(names, 1)
        stack: list[tuple[ModelledCall, Iterator[str]]] = []
        todo = iter(names)
        while True:
            missing = next((n for n in todo if n not in self.available), None)
            if missing is not None and missing in self.offloaded:
                self._load(missing)
                continue
            if missing is not None:
                call = self.uses.producer[missing]
                if not call.can_run_again:
                    raise _DoesNotFit(frozenset({self.model.storage[missing]}))
                self._lock(call.reads, 1)
                self.pending.append(self.model.storage[missing])
                stack.append((call, todo))
                todo = iter(call.reads)
                continue
            if not stack:
                return
            call, todo = stack.pop()
            self._execute(call, lambda s: False)
            self.pending.pop()
            self._lock(call.reads, -1)
            self._append(call)
            if len(self.calls) > _RUNS * len(self.model.forward) + len(self.model.backward) + _MORE_RUNS:
                raise _DoesNotFit(self.kept)

    def _append(self, call: ModelledCall) -> None:
        self.calls.append(call)
        self.was_read.update(self.model.storage[name] for name in call.reads)

    def _lock(self, names: Sequence[str], count: int) -> None:
        for name in names:
            storage = self.model.storage[name]
            self.locks[storage] = self.locks.get(storage, 0) + count

    # -- memory

    def _make_room(self, needed: int, is_busy: Callable[[str], bool]) -> None:
        while self.live + needed > self.budget:
            candidates = [
                s
                for s in self.alive
                if self.model.size[s]
                and not self.locks.get(s)
                and s not in self.kept
                and s not in self.model.results
                and not is_busy(s)
                and (self._can_evict(s) or self._can_offload(s))
            ]
            if not candidates:
                raise _DoesNotFit(frozenset(self.pending))
            self._evict(min(sorted(candidates), key=self._price_of))

    def _evict(self, storage: str) -> None:
        copied = COST_OF_OFFLOADING * self.model.size[storage]
        if self._can_offload(storage) and not (
            self._can_evict(storage) and self._cost_again(storage) < copied
        ):
            self.offloaded.add(storage)
        self._free(storage)

    def _can_offload(self, storage: str) -> bool:
        """Return whether a value may be copied to the CPU: once, and before the backward has read it."""
        return (
            storage in self.model.elsewhere
            and storage in self.available
            and storage in self.uses.producer
            and storage not in self.model.unsaved
            and storage not in self.was_read
        )

    def _load(self, storage: str) -> None:
        self._make_room(self.model.size[storage], lambda s: False)
        self.live += self.model.size[storage]
        self.alive.add(storage)
        self.available.add(storage)
        self.offloaded.remove(storage)
        self.loaded.add(storage)

    def _can_evict(self, storage: str) -> bool:
        names = self.uses.names.get(storage, [])
        return bool(names) and all(self.uses.producer[name].can_run_again for name in names)

    def _price_of(self, storage: str) -> float:
        cost = self._cost_again(storage) if self._can_evict(storage) else inf
        if self._can_offload(storage):
            cost = min(cost, COST_OF_OFFLOADING * self.model.size[storage])
        distance = max(1, self.uses.next_read(storage, self.position) - self.position + 1)
        return self.price(self.model.size[storage], cost, distance)

    def _cost_again(self, storage: str) -> float:
        """Return the time of computing a storage again from what is available, one call farther at most."""
        cost = 1.0
        for name in self.uses.names[storage]:
            call = self.uses.producer[name]
            cost += call.cost
            cost += sum(self.uses.producer[n].cost for n in call.reads if n not in self.available)
        if not self._is_read_later(storage) and self.available.issuperset(self.uses.computed_from[storage]):
            cost /= _SOURCE  # only needed if values that are available are evicted
        return cost

    def _is_read_later(self, storage: str) -> bool:
        positions = self.uses.reads.get(storage, [])
        return bool(positions) and positions[-1] >= self.position

    def _free(self, storage: str) -> None:
        self.alive.discard(storage)
        self.live -= self.model.size[storage]
        self.available.difference_update(self.uses.names.get(storage, ()))

    def _free_dead(self, storages: Sequence[str]) -> None:
        for storage in storages:
            if storage in self.alive:
                self._free(storage)
