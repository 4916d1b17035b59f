"""The function of a region in a compiled program, which chooses code by the strides of its inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch

from thunder.core.errors import PluginWarning
from thunder.extend import Region, evaluate_region, reusing_function, unwritten, writing_function
from thunder.plugins import is_strict

from .gathers import raising_as_eager, reads_at_indices
from .run_time_numbers import as_tensor, is_number

__all__ = ["VERSION", "WORKSPACE", "Awaited", "Code", "RegionKernel", "Strides", "Version", "failure"]

#: the attribute of a region's function that has the bytes which a run allocates beside the results
WORKSPACE = "workspace"
#: the attribute that has the version which the function runs for the expected strides
VERSION = "region_version"

Strides = tuple[int, ...]


class Code(Protocol):
    """Compiled code for one combination of input strides."""

    @property
    def run(self) -> Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]:
        """Takes a list of tensors, which it may empty, and returns the results."""

    @property
    def output_strides(self) -> tuple[Strides, ...]:
        """The strides (elements) that eager gives the results."""

    @property
    def workspace(self) -> int:
        """The bytes that a run allocates beside the results."""


class Awaited(Protocol):
    """What the regions of a trace await: code that another process compiles."""

    def version(self, region: Region, strides: tuple[Strides, ...]) -> Version:
        """Return a version that torch's kernels run until its code has arrived."""

    def note(self, version: Version) -> None:
        """Await the code of a version."""

    def take(self) -> None:
        """Put the code that has arrived into its versions."""

    def __bool__(self) -> bool:
        """Return whether some code is awaited."""


class RegionKernel:
    """The compiled code of the regions of one structure: a version for each combination of input strides.

    Not synchronised: two threads may compile the same version.
    """

    def __init__(self, region: Region, compile: Callable[[Region, tuple[Strides, ...]], Code]) -> None:
        self._region = region
        self._compile = compile
        self._versions: dict[tuple[Strides, ...], Version] = {}
        self._failed: set[tuple[Strides, ...]] = set()

    @property
    def region(self) -> Region:
        """A region of the structure."""
        return self._region

    def has_version(self, strides: tuple[Strides, ...]) -> bool:
        """Return whether there is a version for inputs of these strides (elements)."""
        return strides in self._versions

    def add_version(self, strides: tuple[Strides, ...], code: Code) -> None:
        """Add compiled code for inputs of these strides (elements)."""
        self._versions[strides] = Version(self._region, code)

    def version(self, strides: tuple[Strides, ...], awaited: Awaited | None = None) -> Version:
        """Return the version for inputs of these strides (elements); compile or await it if there is none."""
        version = self._versions.get(strides)
        if version is None:
            made = (
                Version(self._region, self._compile(self._region, strides))
                if awaited is None
                else awaited.version(self._region, strides)
            )
            version = self._versions.setdefault(strides, made)
        if awaited is not None:
            awaited.note(version)
        return version

    def __call__(self, *inputs: Any) -> Sequence[torch.Tensor]:
        """Write and return the outputs of the region, by the version for these inputs.

        If TorchInductor fails to compile it, torch's kernels compute them, with a PluginWarning.
        """
        tensors = [x if isinstance(x, torch.Tensor) else as_tensor(x) for x in inputs]
        strides = tuple(t.stride() for t in tensors)
        if strides not in self._failed:
            try:
                version = self.version(strides)
            except Exception as error:  # of any class: it comes from TorchInductor or from a C++ compiler
                if is_strict():
                    raise
                self._failed.add(strides)
                warnings.warn(failure(error), PluginWarning, stacklevel=2)
            else:
                with torch.no_grad():
                    return version.run(tensors)
        outputs = evaluate_region(self._region, inputs)
        with torch.no_grad():
            for written, target in self._region.copied:
                inputs[target].copy_(outputs[written])
        return unwritten(self._region, outputs)

    def awaiting(self, awaited: Awaited, *tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return the outputs of the region, in torch's kernels while there is no code for these strides."""
        version = self.version(tuple(t.stride() for t in tensors), awaited)
        with torch.no_grad():
            return version.run(list(tensors))

    def function_for(
        self, strides: tuple[Strides, ...], awaited: Awaited | None = None, *, is_first: bool = False
    ) -> Callable[..., Sequence[torch.Tensor]]:
        """Return a function of inputs of which the tensors probably have these strides.

        It is generated, since it runs in each call of a program. The second and third line are those of the
        first region of a trace whose code is `awaited`; `f2` is a number:

            def region(t0, t1, f2):
                if awaited:
                    awaited.take()
                if t0.stride() == s0 and t1.stride() == s1 and not is_grad_enabled():
                    return version.run([t0, t1, as_tensor(f2)])
                return other(t0, t1, f2)
        """
        version = self.version(strides, awaited)
        inputs = list(enumerate(self._region.inputs))
        names = [f"f{i}" if is_number(p) else f"t{i}" for i, p in inputs]
        tensors = [f"as_tensor(f{i})" if is_number(p) else f"t{i}" for i, p in inputs]
        checks = [f"t{i}.stride() == s{i}" for i, p in inputs if not is_number(p)]
        source = (
            f"def region({', '.join(names)}):\n"
            + ("    if awaited:\n        awaited.take()\n" if is_first else "")
            + f"    if {' and '.join([*checks, 'not is_grad_enabled()'])}:\n"
            f"        return version.run([{', '.join(tensors)}])\n"
            f"    return other({', '.join(names)})\n"
        )
        namespace: dict[str, Any] = {
            "version": version,
            "awaited": awaited,
            "other": self if awaited is None else partial(self.awaiting, awaited),
            "as_tensor": as_tensor,
            "is_grad_enabled": torch.is_grad_enabled,
            **{f"s{i}": layout for i, layout in enumerate(strides)},
        }
        exec(compile(source, "<region of inductor>", "exec"), namespace)
        function: Callable[..., Sequence[torch.Tensor]] = namespace["region"]
        if self._region.reused:
            function = reusing_function(self._region, function)
        elif self._region.copied:
            function = writing_function(self._region, function)
        setattr(function, WORKSPACE, version.workspace)
        setattr(function, VERSION, version)
        return function


class Version:
    """Code of a region whose results are examined when it first runs; before there is code, a function.

    Attributes:
        run: takes a list of tensors and returns the results, with eager's strides and memory of their own, or
            that of an input that the region reuses; raises what eager raises for the values of indices.
        workspace: the bytes that a run allocates beside the results; None while there is no code.
        state: what runs, for the ledger; empty if it is code that was compiled before the first run.
        job: who compiles the code of a version that has none.
    """

    __slots__ = ("_compute", "_copied", "_region", "_strides", "job", "run", "state", "workspace")

    def __init__(
        self,
        region: Region,
        code: Code | None,
        before: Callable[..., Sequence[torch.Tensor]] | None = None,
    ) -> None:
        self._region = region
        self.workspace: int | None = None
        self.job: object
        self.state, self.job = "", None
        if code is not None:
            self.set_code(code)
        else:
            assert before is not None, "a version runs code or a function"
            self.run: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]] = before

    def set_code(self, code: Code) -> None:
        """Let the next run be the first one of compiled code."""
        self._copied: tuple[bool, ...] = ()
        self._compute = raising_as_eager(self._region, code.run)
        strides = code.output_strides
        self._strides = strides[:-1] if reads_at_indices(self._region) else strides
        self.workspace = code.workspace
        self.run = self._first_run

    def _first_run(self, tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Run the code; later runs copy those of its results that need to be.

        The code is straight-line, so that its results have the same layout and aliases in each run. Several
        threads may be here at a time, and find the same.
        """
        memory = {t.untyped_storage()._cdata for t in tensors}
        inputs, reused = list(tensors), _reused(self._region)
        results = self._compute(tensors)
        copied: list[bool] = []
        for i, (t, layout) in enumerate(zip(results, self._strides, strict=True)):
            own = t.untyped_storage()._cdata
            if i in reused and own == inputs[reused[i]].untyped_storage()._cdata:
                memory.discard(own)
            copied.append(t.stride() != layout or own in memory)
            if not copied[-1]:
                memory.add(own)
        del inputs  # which kept their memory from being given to a result
        if any(copied):
            self._copied = tuple(copied)
            self.run = self._corrected
            return self._correct(results)
        self.run = self._compute
        return results

    def _corrected(self, tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        return self._correct(self._compute(tensors))

    def _correct(self, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return results with eager's strides and memory of their own."""
        return [
            torch.empty_strided(t.shape, layout, dtype=t.dtype, device=t.device).copy_(t) if is_copied else t
            for t, layout, is_copied in zip(results, self._strides, self._copied, strict=True)
        ]


def _reused(region: Region) -> dict[int, int]:
    """Return the inputs in whose memory results are computed, by the numbers of the results."""
    places = {i: place for place, i in enumerate(unwritten(region, range(len(region.outputs))))}
    return {places[output]: target for output, target in region.reused}


def failure(error: Exception) -> str:
    """Return in one sentence that TorchInductor failed, and how."""
    text = " ".join(str(error).split())
    return f"TorchInductor cannot compile the region: {type(error).__name__}: {text[:300]}"
