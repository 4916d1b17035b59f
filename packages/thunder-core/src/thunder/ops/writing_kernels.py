"""Kernels that write to their arguments, as functions of copies of these.

    fn(k, v, x)   →   y, (t1, t2) = on_copies(k, v, x); k.copy_(t1); v.copy_(t2)

so that passes see ordinary writes, in the program's order. Where nothing needs the old elements, the kernel
runs on the arguments themselves (Note [Writes in place]).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch

from thunder.base.pytree import tree_iter, tree_map
from thunder.ir.proxies import TensorProxy
from thunder.ops.in_place import InPlaceForm

__all__ = ["OnCopies"]

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
#: takes the arguments of a call and a function; returns them, with what is written replaced by that function
ReplaceWritten = Callable[[Args, Kwargs, Callable[[Any], Any]], tuple[Args, Kwargs]]


class OnCopies:
    """A function that runs ``fn`` on copies of the tensors that it writes, and returns its results and these.

    ``replace_written`` finds what is written, tensors or trees of them, and ``new_results`` takes what ``fn``
    returns and the tensors that it has written, and returns the results without them.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        replace_written: ReplaceWritten,
        new_results: Callable[[Any, Sequence[torch.Tensor]], Any],
    ) -> None:
        self.__wrapped__ = fn
        self.__name__ = self.__qualname__ = fn.__name__
        self._replace_written, self._new_results = replace_written, new_results

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, tuple[torch.Tensor, ...]]:
        """Run the function on copies."""
        return self._run(args, kwargs, lambda t: t.detach().clone())

    def _run(
        self, args: Args, kwargs: Kwargs, of: Callable[[torch.Tensor], torch.Tensor]
    ) -> tuple[Any, tuple[torch.Tensor, ...]]:
        written: list[torch.Tensor] = []

        def replaced(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            written.append(of(x))
            return written[-1]

        args, kwargs = self._replace_written(args, kwargs, lambda tree: tree_map(replaced, tree))
        with torch.no_grad():
            results = self.__wrapped__(*args, **kwargs)
        return self._new_results(results, written), tuple(written)

    @cached_property
    def in_place(self) -> InPlaceForm:
        """The form that runs on the arguments themselves. What it overwrites is not known."""

        def run(*args: Any, **kwargs: Any) -> Any:
            results, written = self._run(args, kwargs, lambda t: t.detach())
            return results, (None,) * len(written)

        return InPlaceForm(
            run=run,
            bases=self._bases,
            copies=lambda output: tuple(output[1]),
            results=lambda output: (output[0], (None,) * len(output[1])),
        )

    def _bases(self, args: Args, kwargs: Kwargs) -> tuple[TensorProxy, ...]:
        found: list[TensorProxy] = []

        def note(tree: Any) -> Any:
            found.extend(leaf for leaf in tree_iter(tree) if isinstance(leaf, TensorProxy))
            return tree

        self._replace_written(args, kwargs, note)
        return tuple(found)
