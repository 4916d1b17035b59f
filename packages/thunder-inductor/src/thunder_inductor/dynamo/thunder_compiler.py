"""The backend of `torch.compile`."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from .divided_options import checked_thunder_options, refuse_other_settings
from .graph_program import PartSettings, ThunderPart
from .graph_runs import with_items_beside_calls
from .part_info import PartInfo
from .region_modules import with_modules_for_regions
from .reproducers import described_arguments, write_reproducer
from .split_reasons import SplitReason

__all__ = ["SubgraphInfo", "ThunderCompiler", "run_parts", "thunder_backend"]

#: the compiled parts that ran within the innermost `run_parts` of each thread
_running = threading.local()


class SubgraphInfo:
    """One graph that TorchDynamo found in a program, and how it runs.

    The graph is cut at its first call, if thunder refuses it; until then it is one part.
    """

    def __init__(
        self, original: torch.fx.GraphModule, program: ThunderPart, arguments: tuple[Any, ...]
    ) -> None:
        self.original_graph_module = original
        self.first_arguments = arguments
        self.program = program

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """Run the graph; return the tuple of its results."""
        return self.program(*args)

    @property
    def parts(self) -> list[PartInfo]:
        """The parts of the graph, in the order in which they run."""
        return self.program.infos()

    @property
    def split_reasons(self) -> list[SplitReason]:
        """The reasons for which parts of the graph do not run in thunder."""
        return [reason for part in self.parts for reason in part.reasons]

    @property
    def thunder_compiled_fns(self) -> list[Any]:
        """The compiled objects of the parts that thunder compiles."""
        return [part.compiled for part in self.parts if part.compiled is not None]

    def __str__(self) -> str:
        lines = []
        for index, part in enumerate(self.parts):
            count = len(part.calls)
            lines.append(f"part {index}: {part.runner}, {count} call{'s' if count != 1 else ''}")
            lines += [f"  {line}" for reason in part.reasons for line in str(reason).splitlines()]
        return "\n".join(lines)


class ThunderCompiler:
    """A backend of `torch.compile` that compiles graphs with `thunder.jit`.

    `torch.compile(fn, backend=ThunderCompiler(**thunder_options))`; the options are those of `thunder.jit`.
    """

    def __init__(self, **thunder_options: Any) -> None:
        """Check the options.

        Raises UnknownOption or InvalidArgument for options that `thunder.jit` does not have, and for
        transforms, an instance of which belongs to one compiled program.
        """
        self.thunder_options = checked_thunder_options(thunder_options)
        self._graphs: list[weakref.ref[SubgraphInfo]] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> ThunderCompiler:
        """Return a backend with the same options, without the graphs: wrappers copy arguments of compile."""
        copied = ThunderCompiler.__new__(ThunderCompiler)
        copied.thunder_options = self.thunder_options
        copied._graphs = []
        return copied

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> SubgraphInfo:
        """Return the program of a graph; it compiles at its first call."""
        copied = with_modules_for_regions(gm)
        with_items_beside_calls(copied)
        settings = PartSettings(thunder_options=self.thunder_options, on_run=_note_run)
        info = SubgraphInfo(gm, ThunderPart(copied, settings), described_arguments(example_inputs))
        self._graphs = [*(graph for graph in self._graphs if graph() is not None), weakref.ref(info)]
        return info

    @property
    def subgraph_infos(self) -> list[SubgraphInfo]:
        """The graphs that TorchDynamo has compiled and not dropped, in the order of their compiles."""
        return [info for graph in self._graphs if (info := graph()) is not None]

    def save_reproducer_to_folder(
        self,
        folder: str | os.PathLike[str],
        use_pytest_benchmark: bool = False,
        serialize_inputs: bool = False,
    ) -> list[Path]:
        """Write a script for each graph that runs it in eager and in thunder; return the paths.

        Args:
            folder: is made if it does not exist.
            use_pytest_benchmark: whether the script measures with pytest-benchmark, and does not compare.
            serialize_inputs: whether the tensors of the first call are saved with the script; otherwise it
                makes random ones with the same metadata.
        """
        return [
            write_reproducer(
                Path(folder), index, info.program.module, info.first_arguments, self.thunder_options,
                as_benchmark=use_pytest_benchmark, with_inputs=serialize_inputs,
            )
            for index, info in enumerate(self.subgraph_infos)
        ]  # fmt: skip


def run_parts(fn: Callable[[], Any]) -> tuple[Any, list[Any]]:
    """Call a function; return its result and the compiled parts that ran in this thread, in order."""
    outer = getattr(_running, "ran", None)
    ran: list[Any] = []
    _running.ran = ran
    try:
        return fn(), ran
    finally:
        _running.ran = outer


def _note_run(part: ThunderPart) -> None:
    ran = getattr(_running, "ran", None)
    if ran is not None:
        ran.append(part.compiled)


def thunder_backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **settings: Any) -> SubgraphInfo:
    """Return the program of a graph, for `torch.compile(fn, backend="thunder")`.

    `torch.compile(…, options={…})` has the options of `thunder.jit`.

    Raises InvalidArgument for `mode=`, which chooses among settings of TorchInductor.
    """
    options = settings.pop("options", None) or {}
    refuse_other_settings(settings)
    return ThunderCompiler(**options)(gm, example_inputs)
