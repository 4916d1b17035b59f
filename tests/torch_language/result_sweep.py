"""The tensors that a call returns, against eager's: strides, memory, place in torch's graph, writes to them.

    python -m torch_language.result_sweep [name …] [--samples N] [--executors inductor] [--symbolic]

Each operator runs on torch's samples in several layouts, with and without gradients. Then the caller writes
in place to the first result and differentiates what is there. A line is printed for each difference.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import thunder
from thunder.base.errors import UnsupportedProgram
from thunder.base.pytree import tree_iter, tree_map
from torch_language.database import op_db, seed_cpu
from torch_language.entries_without_rows import REFUSED
from torch_language.samples import RANDOM, SEED, SKIPPED, UNINITIALISED, name_of, samples

__all__ = ["ENTRIES", "LAYOUTS", "differences"]

ENTRIES = {name_of(op): op for op in op_db if not op.name.startswith(SKIPPED) and name_of(op) not in REFUSED}

#: entries whose gradients, as `torch.autograd.grad` returns them, have other strides than eager's; those of
#: `.grad` are the tensor's
OTHER_GRADIENTS = frozenset(
    {
        *("linalg.matrix_power", "as_strided", "masked_select", "take"),
        *(
            "cartesian_prod",
            "constant_pad_nd",
            "linalg.pinv",
            "linalg.pinv.hermitian",
            "linalg.pinv.singular",
            "linalg.vander",
        ),
        *("max.reduction_no_dim", "min.reduction_no_dim", "pinverse", "prod", "tensordot"),
        *("matmul", "__rmatmul__"),
        *("nn.functional.adaptive_max_pool1d", "nn.functional.adaptive_max_pool2d"),
        *("nn.functional.bilinear", "nn.functional.interpolate.area", "nn.functional.max_pool1d"),
        *("nn.functional.max_pool2d", "nn.functional.max_pool3d"),
        *("nn.functional.pad.constant", "nn.functional.pad.replicate_negative"),
        *("nn.functional.binary_cross_entropy", "_softmax_backward_data"),
    }
)
#: calls that eager runs and thunder does not (docs/differences.md)
OTHER_CALLS = frozenset({("nn.functional.batch_norm", "expanded")})
#: entries whose results are views in thunder, and not in eager: writes to them are refused
OTHER_VIEWS = frozenset({"unsafe_chunk", "unsafe_split"})


def _expanded(x: torch.Tensor) -> torch.Tensor:
    return x[:1].expand_as(x) if x.ndim and len(x) else x


def _sliced(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, x], -1)[..., 0] if x.ndim else x


def _with_long_steps(x: torch.Tensor) -> torch.Tensor:
    """The strides of dimensions of length 1 are 7."""
    dense = x.contiguous()
    return dense.as_strided(
        x.shape, [7 if n == 1 else s for n, s in zip(x.shape, dense.stride(), strict=True)]
    )


def _offset(x: torch.Tensor) -> torch.Tensor:
    flat = x.reshape(-1)
    return torch.cat([flat[:1], flat])[1:].reshape(x.shape) if x.numel() else x


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    order = (0, *range(2, x.ndim), 1)
    return x.permute(order).contiguous().permute(0, x.ndim - 1, *range(1, x.ndim - 1)) if x.ndim > 2 else x


#: name → the same values in this layout
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": torch.Tensor.contiguous,
    "transposed": lambda x: x.mT.contiguous().mT if x.ndim > 1 else x,
    "channels last": _channels_last,
    "expanded": _expanded,
    "sliced": _sliced,
    "with long steps": _with_long_steps,
    "offset": _offset,
}


def _inputs(tree: Any, layout: str, *, grad: bool) -> Any:
    """Return arguments in a layout, each in memory of its own."""
    seen: dict[int, torch.Tensor] = {}

    def of(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.layout is not torch.strided:
            return x
        if id(x) not in seen:
            y = LAYOUTS[layout](x.detach())
            memory = y.untyped_storage().clone()
            y = torch.empty(0, dtype=y.dtype).set_(memory, y.storage_offset(), y.shape, y.stride())
            seen[id(x)] = y.requires_grad_(grad and (y.is_floating_point() or y.is_complex()))
        return seen[id(x)]

    return tree_map(of, tree)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [x for x in tree_iter(tree) if isinstance(x, torch.Tensor) and x.layout is torch.strided]


class _Call:
    """A call with its inputs and results, and the differences of another call from it."""

    def __init__(self, fn: Any, sample: Any, layout: str, *, grad: bool) -> None:
        args, kwargs = _inputs(sample, layout, grad=grad)
        self.inputs = _tensors((args, kwargs))
        seed_cpu(SEED)
        self.results = _tensors(fn(*args, **kwargs))

    def facts(self) -> list[dict[str, Any]]:
        """Return what the caller sees of each result, beside its values."""
        memory = [_memory(t) for t in (*self.inputs, *self.results)]
        return [
            {
                "shape": tuple(t.shape),
                "strides": t.stride(),
                "requires_grad": t.requires_grad,
                "is_leaf": t.is_leaf,
                "no grad_fn": t.grad_fn is None,
                "memory of": [i for i, m in enumerate(memory) if t.numel() and m == _memory(t)],
                "is an input": [i for i, x in enumerate(self.inputs) if x is t],
            }
            for t in self.results
        ]

    def gradients(self) -> list[torch.Tensor | None]:
        """Return the gradients of the sum of all results; raises what torch raises."""
        outputs = [t for t in self.results if t.grad_fn is not None]
        inputs = [x for x in self.inputs if x.requires_grad]
        if not outputs or not inputs:
            return []
        ones = [torch.ones(t.shape, dtype=t.dtype) for t in outputs]
        return list(torch.autograd.grad(outputs, inputs, ones, allow_unused=True, retain_graph=True))

    def write(self) -> bool:
        """Write in place to the first result; return whether torch allows it."""
        first = self.results[0]
        try:
            first.logical_not_() if first.dtype is torch.bool else first.mul_(2)
        except RuntimeError:
            return False
        return True


def _memory(t: torch.Tensor) -> int:
    return t.untyped_storage()._cdata


def differences(name: str, sample: Any, layout: str, program: Any, *, grad: bool) -> Iterator[str]:
    """Yield how a compiled call differs from eager's; nothing where eager refuses the call."""
    try:
        eager = _Call(ENTRIES[name].op, sample, layout, grad=grad)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return
    ours = _Call(program, sample, layout, grad=grad)
    for i, (expected, found) in enumerate(zip(eager.facts(), ours.facts(), strict=True)):
        yield from (
            f"result {i}: {fact} {expected[fact]} in eager, {found[fact]}"
            for fact in expected
            if expected[fact] != found[fact]
        )
        if name not in OTHER_VIEWS and ours.results[i]._is_view() and not eager.results[i]._is_view():
            yield f"result {i} is a view, and in eager it is not"
    if name not in OTHER_GRADIENTS and not name.startswith("fft."):
        yield from _other_strides(eager, ours)
    if name not in OTHER_VIEWS and eager.results:
        yield from _after_write(eager, ours, has_values=name.split(".")[0] not in RANDOM | UNINITIALISED)


def _other_strides(eager: _Call, ours: _Call) -> Iterator[str]:
    try:
        expected = eager.gradients()
    except RuntimeError:
        return
    for i, (theirs, own) in enumerate(zip(expected, ours.gradients(), strict=True)):
        if theirs is not None and own is not None and theirs.numel() and theirs.stride() != own.stride():
            yield f"gradient {i}: strides {theirs.stride()} in eager, {own.stride()}"


def _after_write(eager: _Call, ours: _Call, *, has_values: bool) -> Iterator[str]:
    allowed = eager.write()
    if ours.write() != allowed:
        yield f"a write to the first result is {'allowed' if allowed else 'refused'} in eager alone"
    if not allowed or not has_values:
        return
    for i, pair in enumerate(zip(eager.inputs + eager.results, ours.inputs + ours.results, strict=True)):
        if not _is_close(*pair):
            yield f"tensor {i} has other values after the write"
    try:
        expected = eager.gradients()
    except RuntimeError:
        return
    for i, pair in enumerate(zip(expected, ours.gradients(), strict=True)):
        if None not in pair and not _is_close(*pair):
            yield f"gradient {i} has other values after the write"


def _is_close(a: Any, b: Any) -> bool:
    return torch.allclose(a.detach(), b.detach(), rtol=1e-3, atol=1e-3, equal_nan=True)


def _sweep(name: str, options: argparse.Namespace) -> int:
    """Print the differences of an operator; return how many there are."""
    settings: dict[str, Any] = {"cache": "symbolic values"} if options.symbolic else {}
    if options.executors is not None:
        settings["executors"] = [e for e in options.executors.split(",") if e]
    op, count = ENTRIES[name], 0
    for number, sample in enumerate(samples(op, torch.float32, options.samples)):
        program = thunder.jit(lambda *args, **kwargs: op.op(*args, **kwargs), **settings)
        for layout in LAYOUTS:
            if (name, layout) in OTHER_CALLS:
                continue
            for grad in (False, True)[: 1 + op.supports_autograd]:
                try:
                    found = list(differences(name, sample, layout, program, grad=grad))
                except UnsupportedProgram:
                    continue
                except Exception as error:  # a sweep reports every failure
                    found = [f"{type(error).__name__}: {str(error)[:200]}"]
                count += len(found)
                for text in found:
                    print(f"{name:40} sample {number}, {layout}, grad={grad}: {text}", flush=True)
    return count


def main() -> int:
    """Print every difference; return 1 if there is one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--samples", type=int, default=2, help="at most so many samples per operator")
    parser.add_argument("--executors", default=None, help="names with commas; empty for torch alone")
    parser.add_argument("--symbolic", action="store_true", help="with symbolic sizes")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    total = sum(_sweep(name, options) for name in ENTRIES if not options.names or name in options.names)
    print(f"{total} differences")
    return 1 if total else 0


if __name__ == "__main__":
    raise SystemExit(main())
