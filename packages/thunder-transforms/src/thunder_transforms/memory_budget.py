"""A training step within a number of bytes: values are kept, computed again, or offloaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import thunder
from thunder.core.errors import InvalidArgument
from thunder.core.proxies import TensorProxy
from thunder.core.vjp_utils import get_saved_for_backward_tensors
from thunder_transforms.cpu_offloading import CPUOffloading

__all__ = ["MemoryPlan", "fit_memory"]

#: the parts of what the default keeps that are tried as budgets, largest first
_PARTS = (0.75, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 0.0)

Fate = Literal["keep", "recompute", "offload"]


@dataclass(frozen=True)
class MemoryPlan:
    """Settings with which a training step stays within a number of bytes.

    Attributes:
        peak: the estimate of the most bytes that are allocated at once: weights, arguments and gradients too.
        saved: the estimate of the bytes between forward and backward, without weights and arguments.
        rematerialization: the option of `thunder.jit`: which values are computed again.
        keep_bytes: what stays on the device of the values that are offloaded; None without offloading.
        values: what becomes of each value that the backward reads, by its name in the traces.
        tried: the settings that need more, in words, with their peaks.
    """

    peak: int
    saved: int
    rematerialization: str | int
    keep_bytes: int | None
    values: Mapping[str, Fate]
    tried: tuple[tuple[str, int], ...] = field(default=(), repr=False)

    def transforms(self) -> list[thunder.Transform]:
        """Return new transforms for `thunder.jit`; they come after the program's own."""
        return [] if self.keep_bytes is None else [CPUOffloading(keep_bytes=self.keep_bytes)]

    def __str__(self) -> str:
        counts = {f: list(self.values.values()).count(f) for f in ("keep", "recompute", "offload")}
        texts = ", ".join(f"{n} {fate}" for fate, n in counts.items() if n)
        return f"{_settings(self.rematerialization, self.keep_bytes)}: peak {self.peak} bytes ({texts})"


def fit_memory(
    fn: Callable[..., Any],
    /,
    *args: Any,
    max_bytes: int,
    device: str | None = None,
    executors: Any = None,
    transforms: Callable[[], Sequence[thunder.Transform]] = tuple,
    **options: Any,
) -> MemoryPlan:
    """Return the settings with which a training step needs at most `max_bytes` at once.

    The program is planned (`thunder.plan`), and not run; `fn` computes the loss from `args`. What costs least
    time comes first: the default, which computes cheap values again; then budgets, with which costly values
    are computed again, the largest first; and on a device with memory of its own, these with the rest
    offloaded to the CPU. `plan.rematerialization` and `plan.transforms()` are passed to `thunder.jit`. The
    estimate is that of `thunder.plan`: values within a fusion are not counted.

    Args:
        max_bytes: the most bytes at once: of weights, arguments, gradients and intermediate results.
        device: a device profile, such as `"h200"`; by default the tensors' own.
        executors: those of `thunder.jit`.
        transforms: returns new transforms of the program for each plan.

    Raises InvalidArgument, with the least number of bytes that was found, if no settings need so little.
    """
    if type(max_bytes) is not int:
        raise InvalidArgument(f"max_bytes={max_bytes!r} is not a number of bytes")

    def planned(rematerialization: str | int, keep_bytes: int | None) -> Any:
        own = list(transforms()) + ([] if keep_bytes is None else [CPUOffloading(keep_bytes=keep_bytes)])
        settings = {**options, "rematerialization": rematerialization, "executors": executors}
        return thunder.plan(fn, *args, device=device, transforms=own, **settings)

    first = planned("min-cut", None)
    if not first.backward_traces:
        raise InvalidArgument("the program has no backward: nothing is kept for one")
    offloads = any(_is_elsewhere(p) for p in first.traces[-1].args)
    tried: list[tuple[str, int]] = []
    for rematerialization, keep_bytes in _settings_in_order(first.memory.saved, offloads):
        plan = first if not tried else _possible(planned, rematerialization, keep_bytes)
        if plan is None:
            continue
        peak, saved = plan.memory.peak, plan.memory.saved
        if peak <= max_bytes:
            return MemoryPlan(peak, saved, rematerialization, keep_bytes, _fates(plan), tuple(tried))
        tried.append((_settings(rematerialization, keep_bytes), peak))
    text, least = min(tried, key=lambda entry: entry[1])
    raise InvalidArgument(
        f"no settings were found with which the step needs at most {max_bytes} bytes",
        found={"least": f"{least} bytes, with {text}"},
        hint="Weights, gradients and the largest operation are needed in any case.",
    )


def _possible(
    planned: Callable[[str | int, int | None], Any], rematerialization: str | int, keep_bytes: int | None
) -> Any:
    """Return a plan, or None if so much cannot be computed again: random numbers have no second run."""
    try:
        return planned(rematerialization, keep_bytes)
    except InvalidArgument:
        if rematerialization == "min-cut":
            raise
        return None


def _settings_in_order(saved: int, offloads: bool) -> Iterator[tuple[str | int, int | None]]:
    """Yield the option and the bytes that stay on the device, what costs least time first."""
    yield "min-cut", None
    for part in _PARTS:
        yield int(saved * part), None
    if offloads:
        for part in _PARTS:
            yield "min-cut", int(saved * part)
        for part in _PARTS[:-1]:
            yield int(saved * part), 0


def _settings(rematerialization: str | int, keep_bytes: int | None) -> str:
    text = f"rematerialization={rematerialization!r}"
    return text if keep_bytes is None else f"{text}, CPUOffloading(keep_bytes={keep_bytes})"


def _is_elsewhere(p: Any) -> bool:
    return isinstance(p, TensorProxy) and p.device.type not in ("cpu", "meta")


def _fates(plan: Any) -> dict[str, Fate]:
    """Return what becomes of each value that the backward reads or computes again."""
    forward, backward = plan.traces[-1], plan.backward_traces[-1]
    computed = {p.name for bsym in forward.bound_symbols for p in bsym.flat_proxy_outs}
    sources = {
        bsym.output.name: bsym.args[0].name
        for bsym in forward.bound_symbols
        if bsym.sym.name == "offload_to_cpu"
    }
    fates: dict[str, Fate] = {
        f"{sources.get(p.name, p.name)}": "offload" if p.name in sources else "keep"
        for p in get_saved_for_backward_tensors(forward)
        if p.name in computed
    }
    for bsym in backward.bound_symbols:
        for p in bsym.flat_proxy_outs:
            name = p.name.removeprefix("bw_")
            if name != p.name and name not in fates:
                fates[name] = "recompute"
    return fates
