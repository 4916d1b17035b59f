"""The function of a region in a compiled program, which chooses code by the strides of its inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from thunder.core.errors import PluginWarning
from thunder.extend import Region, evaluate_region

from .toolchain import is_strict

__all__ = ["WORKSPACE", "Code", "RegionKernel", "Strides", "failure"]

#: the attribute of a region's function that has the bytes which a run allocates beside the results
WORKSPACE = "workspace"

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


class RegionKernel:
    """The compiled code of the regions of one structure: a version for each combination of input strides.

    Not synchronised: two threads may compile the same version.
    """

    def __init__(self, region: Region, compile: Callable[[Region, tuple[Strides, ...]], Code]) -> None:
        self._region = region
        self._compile = compile
        self._versions: dict[tuple[Strides, ...], _Version] = {}
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
        self._versions[strides] = _Version(code)

    def version(self, strides: tuple[Strides, ...]) -> _Version:
        """Return the version for inputs of these strides (elements); compile it if there is none."""
        version = self._versions.get(strides)
        if version is None:
            version = self._versions[strides] = _Version(self._compile(self._region, strides))
        return version

    def __call__(self, *tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return the outputs of the region, by the version for these tensors.

        If TorchInductor fails to compile it, torch's kernels compute them, with a PluginWarning.
        """
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
                    return version.run(list(tensors))
        return evaluate_region(self._region, tensors)

    def function_for(self, strides: tuple[Strides, ...]) -> Callable[..., Sequence[torch.Tensor]]:
        """Return a function of tensors that probably have these strides.

        It is generated, since it runs in each call of a program:

            def region(t0, t1):
                if t0.stride() == s0 and t1.stride() == s1 and not is_grad_enabled():
                    return version.run([t0, t1])
                return other(t0, t1)
        """
        names = [f"t{i}" for i in range(len(strides))]
        checks = [f"{name}.stride() == s{i}" for i, name in enumerate(names)]
        source = (
            f"def region({', '.join(names)}):\n"
            f"    if {' and '.join([*checks, 'not is_grad_enabled()'])}:\n"
            f"        return version.run([{', '.join(names)}])\n"
            f"    return other({', '.join(names)})\n"
        )
        namespace: dict[str, Any] = {
            "version": self.version(strides),
            "other": self,
            "is_grad_enabled": torch.is_grad_enabled,
            **{f"s{i}": layout for i, layout in enumerate(strides)},
        }
        exec(compile(source, "<region of inductor>", "exec"), namespace)
        function: Callable[..., Sequence[torch.Tensor]] = namespace["region"]
        setattr(function, WORKSPACE, self.version(strides).workspace)
        return function


class _Version:
    """Code whose results are examined when it first runs.

    Attributes:
        run: takes a list of tensors and returns the results, with eager's strides and memory of their own.
        workspace: the bytes that a run allocates beside the results.
    """

    __slots__ = ("_code", "_copied", "run", "workspace")

    def __init__(self, code: Code) -> None:
        self._copied: list[bool] = []
        self._code, self.workspace = code, code.workspace
        self.run: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]] = self._first_run

    def _first_run(self, tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Run the code; later runs copy those of its results that need to be.

        The code is straight-line, so that its results have the same layout and aliases in each run.
        """
        memory = {t.untyped_storage()._cdata for t in tensors}
        inputs = list(tensors)
        results = self._code.run(tensors)
        for t, layout in zip(results, self._code.output_strides, strict=True):
            own = t.untyped_storage()._cdata
            self._copied.append(t.stride() != layout or own in memory)
            if not self._copied[-1]:
                memory.add(own)
        del inputs  # which kept their memory from being given to a result
        if any(self._copied):
            self.run = self._corrected
            return self._correct(results)
        self.run = self._code.run
        return results

    def _corrected(self, tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        return self._correct(self._code.run(tensors))

    def _correct(self, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return results with eager's strides and memory of their own."""
        return [
            torch.empty_strided(t.shape, layout, dtype=t.dtype, device=t.device).copy_(t) if is_copied else t
            for t, layout, is_copied in zip(results, self._code.output_strides, self._copied, strict=True)
        ]


def failure(error: Exception) -> str:
    """Return in one sentence that TorchInductor failed, and how."""
    text = " ".join(str(error).split())
    return f"TorchInductor cannot compile the region: {type(error).__name__}: {text[:300]}"
