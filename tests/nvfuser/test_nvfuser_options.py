"""What the options say to nvFuser: lists of its own options, dumps, and reproducers, which run."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import thunder
import thunder_nvfuser
import thunder_nvfuser.kernels
import thunder_nvfuser.library
from thunder.core.errors import PluginError, PluginWarning
from thunder.executors.nvfuserex import nvfuser_ex
from thunder_nvfuser.data_types import DataType
from thunder_nvfuser.executor import NvFuserExecutor, replaying_executor
from thunder_nvfuser.library_options import DISABLE, DUMP, ENABLE
from thunder_nvfuser.recorder import RecordedDefinition

X = torch.linspace(-3, 3, 24).view(4, 6)


class Heard(RecordedDefinition):
    """A definition that remembers the options of its runs."""

    runs: list[dict[str, Any]] = []  # noqa: RUF012
    made: list[Heard] = []  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.made.append(self)

    def execute(self, inputs: Any, **options: Any) -> list[torch.Tensor]:
        self.runs.append(options)
        return super().execute(inputs)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Compile a program for a stand-in of the library, which torch computes; return the function to do so."""
    monkeypatch.setattr(Heard, "runs", [])
    monkeypatch.setattr(Heard, "made", [])
    monkeypatch.setattr(thunder_nvfuser.kernels, "_definitions", {})
    library = SimpleNamespace(FusionDefinition=Heard, DataType=DataType)
    monkeypatch.setattr(thunder_nvfuser.library, "_library", _once(library))
    monkeypatch.delenv("NVFUSER_DUMP", raising=False)

    def compiled(program: Callable[..., Any], **options: Any) -> Any:
        executor = NvFuserExecutor("nvfuser_heard", replays=True)
        executor._replays = False
        return thunder.jit(program, executors=[executor], **options)

    return compiled


def _once(library: Any) -> Any:
    """The cached function that imports the library."""
    calls: list[Any] = []

    def imported() -> Any:
        calls.append(library)
        return library

    imported.cache_info = lambda: SimpleNamespace(currsize=len(calls))  # type: ignore[attr-defined]
    return imported


def program(x: torch.Tensor) -> torch.Tensor:
    return x.exp() + 1


def test_lists_of_options_are_given_to_each_run_and_definitions_are_not_shared_across_them(heard):
    plain = heard(program)
    changed = heard(program, nvfuser_enable="fast_math, kernel_lineinfo", nvfuser_disable="kernel_reuse")
    for compiled in (plain, changed, changed):
        assert torch.equal(compiled(X), program(X))
    given = {
        "_enable_options": ["fast_math", "kernel_lineinfo"],
        "_disable_options": ["kernel_reuse"],
    }
    assert Heard.runs == [{}, given, given]
    assert len(Heard.made) == 2


def test_a_name_that_nvfuser_does_not_have_is_an_error_that_lists_those_it_has():
    for option, known in (("enable", ENABLE), ("disable", DISABLE), ("dump", DUMP)):
        text = f"{min(known)},fastmath"
        compiled = thunder.jit(program, executors=[replaying_executor()], **{f"nvfuser_{option}": text})
        with pytest.raises(thunder.UserError, match=f"nvfuser_{option} received fastmath") as error:
            compiled(X)
        assert all(name in str(error.value) for name in known)


def test_dumps_are_named_before_the_library_is_used_and_refused_later(heard, monkeypatch):
    monkeypatch.setenv("NVFUSER_DUMP", "ptx")
    heard(program, nvfuser_dump="cuda_kernel,fusion_ir")(X)
    assert os.environ["NVFUSER_DUMP"] == "ptx,cuda_kernel,fusion_ir"
    heard(program, nvfuser_dump="fusion_ir")(X)
    with pytest.raises(thunder.UserError, match="after the first region"):
        heard(program, nvfuser_dump="sass")(X)
    assert os.environ["NVFUSER_DUMP"] == "ptx,cuda_kernel,fusion_ir"


def test_every_option_is_declared_and_documented():
    declared = {option.name for option in thunder_nvfuser.thunder_options()}
    for page in ("docs/nvfuser.md", "packages/thunder-nvfuser/README.md"):
        text = (Path(__file__).parents[2] / page).read_text()
        assert {name for name in declared if f"`{name}" in text} == declared
    with pytest.raises(thunder.UnknownOption, match="Did you mean 'nvfuser_dump'"):
        thunder.jit(program, executors=[nvfuser_ex], nvfuser_dumps="ptx")


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "permuted": (program, (X.t(),), {}),
    "strided": (lambda x: x * 2 + 1, (torch.randn(4, 12)[:, ::2],), {}),
    "16 bits": (lambda x: torch.softmax(x * 2, -1), (X.bfloat16(),), {}),
    "bools": (lambda x, y: torch.where(x, y, 0.0) * 2, (X > 0, X), {}),
    "a number": (lambda x, t: (x * t.item()).exp() + 1, (X, torch.tensor(2.5)), {}),
    "infinities": (lambda x: torch.where(x > 0, x, float("-inf")).amax(1) * 2, (X,), {}),
    "indices": (lambda x, i: x.gather(1, i) * 2 + 1, (X, X.long() * 0), {"nvfuser_unchecked_indices": True}),
    "products": (lambda x: (x @ x.t()) * 2, (X,), {"nvfuser_products": True}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_reproducer_runs_and_computes_the_region(name: str, tmp_path: Path, monkeypatch, capsys):
    program, arguments, options = PROGRAMS[name]
    options = {"nvfuser_reproducers": str(tmp_path), "nvfuser_disable": "kernel_reuse", **options}
    compiled = thunder.jit(program, executors=[replaying_executor()], **options)
    expected = compiled(*arguments)
    torch.testing.assert_close(expected, program(*arguments))
    (path,) = tmp_path.iterdir()
    text = path.read_text()
    assert "fd.execute(inputs, _disable_options=['kernel_reuse'])" in text
    library: Any = SimpleNamespace(FusionDefinition=RecordedDefinition, DataType=DataType)
    monkeypatch.setitem(sys.modules, "nvfuser_direct", library)
    namespace: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), namespace)
    inputs, results = namespace["inputs"], namespace["results"]
    assert len(capsys.readouterr().out) > 5
    (fusion,) = (b for b in thunder.last_traces(compiled)[-1].bound_symbols if b.sym.is_fusion)
    for tensor, proxy in zip(inputs, fusion.args, strict=True):
        if isinstance(tensor, torch.Tensor):
            assert (tuple(tensor.shape), tensor.dtype) == (tuple(proxy.shape), proxy.dtype.torch_dtype)
    for found, again in zip(results, fusion.sym.python_impl(*inputs), strict=True):
        torch.testing.assert_close(found, again, equal_nan=True)


def test_a_reproducer_has_inputs_of_the_same_strides(tmp_path: Path):
    compiled = thunder.jit(program, executors=[replaying_executor()], nvfuser_reproducers=str(tmp_path))
    compiled(X.t())
    (path,) = tmp_path.iterdir()
    text = path.read_text()
    assert "contiguity=[True, True], dtype=DataType.Float, stride_order=[0, 1])" in text
    assert "torch.randn(24, dtype=torch.float32, device='cpu').as_strided((6, 4), (1, 6))" in text


@pytest.fixture
def failing(heard, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the library fail with the message in the list, as it does when it compiles."""
    message: list[str] = []

    def execute(self: Heard, inputs: Any, **options: Any) -> Any:
        Heard.runs.append(options)
        raise RuntimeError(*message)

    monkeypatch.setattr(Heard, "execute", execute)
    return message


def test_where_the_library_fails_torchs_kernels_compute_with_one_warning(
    heard, failing, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("THUNDER_PLUGIN_STRICT", "0")
    failing.append("INTERNAL ASSERT FAILED at fusion.cpp:1, report a bug\nno way to sort\nframe #0: 0x1")
    compiled, x = heard(program), torch.randn(5)
    with pytest.warns(PluginWarning, match="torch's kernels compute: INTERNAL.*no way to sort$"):
        assert torch.equal(compiled(x), program(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled(x), program(x))
    assert len(Heard.runs) == 1


def test_its_failure_is_an_error_where_a_user_wants_to_know(heard, failing, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("THUNDER_PLUGIN_STRICT", "1")
    failing.append("INTERNAL ASSERT FAILED at fusion.cpp:1")
    with pytest.raises(PluginError, match="nvFuser fails on the region"):
        heard(program)(torch.randn(5))


def test_other_errors_of_a_run_are_the_users(heard, failing):
    failing.append("CUDA error: an illegal memory access was encountered")
    with pytest.raises(RuntimeError, match="illegal memory access"):
        heard(program)(torch.randn(5))
