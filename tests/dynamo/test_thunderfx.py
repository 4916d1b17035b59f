"""`thunderfx` and the backend of `torch.compile`: results, options, what they show."""

from __future__ import annotations

import copy
import functools
import gc
import tomllib
import warnings
import weakref
from pathlib import Path

import pytest
import torch

import thunder
from architecture.source import ROOT
from thunder.dynamo import ThunderCompiler, thunderfx
from thunder_inductor.dynamo import inductor_part

PACKAGE = ROOT / "packages" / "thunder-inductor"


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 8, dtype=torch.float64)
        self.norm = torch.nn.BatchNorm1d(8, dtype=torch.float64)
        self.second = torch.nn.Linear(8, 2, dtype=torch.float64)

    def forward(self, x):
        x = torch.nn.functional.dropout(self.norm(self.first(x)).relu(), 0.5, self.training)
        return self.second(x)


def trained(model, run, x):
    """Return the results, gradients and buffers of two steps."""
    torch.manual_seed(0)
    outputs = [run(x) for _ in range(2)]
    sum(output.square().sum() for output in outputs).backward()
    return [*outputs, *(p.grad for p in model.parameters()), *model.buffers()]


def assert_trains_as_eager(model, compiled_by, x):
    copied = copy.deepcopy(model)
    torch.testing.assert_close(trained(model, compiled_by(model), x), trained(copied, copied, x))


def test_a_model_trains_as_in_eager():
    assert_trains_as_eager(Net(), thunderfx, torch.randn(3, 4, dtype=torch.float64))


def test_the_entry_point_is_a_backend_of_torch_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The metadata of an installed package, written by hand."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = project["entry-points"]["torch_dynamo_backends"]
    metadata = tmp_path / "thunder_inductor-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: thunder-inductor\nVersion: 0.1.0\n")
    lines = [f"{name} = {target}" for name, target in points.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[torch_dynamo_backends]", *lines]))
    monkeypatch.syspath_prepend(str(tmp_path))
    torch._dynamo.backends.registry._discover_entrypoint_backends.cache_clear()
    torch._dynamo.backends.registry._lazy_import.cache_clear()
    compile_by_name = functools.partial(torch.compile, backend="thunder", options={"cse": False})
    assert_trains_as_eager(Net(), compile_by_name, torch.randn(3, 4, dtype=torch.float64))


def test_the_traces_of_the_last_call_are_those_of_all_its_graphs():
    def f(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    compiled = thunderfx(f)
    with pytest.raises(thunder.NeverCalled, match="not called yet"):
        _ = compiled.last_traces
    compiled(torch.ones(2, requires_grad=True))
    assert len(compiled.subgraph_infos) == 2
    text = "\n".join(str(trace) for trace in compiled.last_traces)
    assert "torch.sin" in text
    assert "torch.cos" in text
    assert len(compiled.last_backward_traces) >= 2


def test_explain_has_the_parts_and_their_ledgers():
    compiled = thunderfx(lambda x: torch.func.vmap(torch.sin)(x.cos()))
    compiled(torch.ones(2))
    text = compiled.explain()
    assert "part 1: torch" in text
    assert "UNSUPPORTED_NODE" in text
    assert "ltorch.cos" in text or "torch.cos" in text


def test_attributes_are_those_of_the_module():
    net = Net()
    compiled = thunderfx(net)
    assert compiled.eval().training is False
    assert [p is q for p, q in zip(compiled.parameters(), net.parameters(), strict=True)]


def test_options_are_divided_by_name():
    compiled = thunderfx(torch.sin, fullgraph=True, dynamic=False, executors=["torch"], cse=False)
    assert compiled.backend.thunder_options == {"executors": ["torch"], "cse": False}


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"fulgraph": True}, thunder.UnknownOption, "Did you mean 'fullgraph', of torch.compile"),
        ({"sharp_edge": "allow"}, thunder.UnknownOption, "Did you mean 'sharp_edges'"),
        ({"cache": "none"}, thunder.InvalidArgument, "cache"),
        ({"backend": "eager"}, thunder.InvalidArgument, "received backend="),
        ({"mode": "max-autotune"}, thunder.InvalidArgument, "(?s)has no mode=.*inductor_mode='full'"),
        ({"mode": "reduce-overhead"}, thunder.InvalidArgument, "(?s)has no mode=.*CUDAGraphTransform"),
        ({"mode": "other"}, thunder.InvalidArgument, "(?s)has no mode=.*Options of thunder.jit choose"),
        ({"options": {"cze": True}}, thunder.UnknownOption, "no option 'cze'"),
    ],
    ids=[
        "of torch.compile",
        "of thunder.jit",
        "value",
        "backend",
        "autotune",
        "graphs",
        "mode",
        "in options",
    ],
)
def test_wrong_options_are_errors_before_the_first_call(options, error, text):
    with pytest.raises(error, match=text):
        thunderfx(torch.sin, **options)


def test_a_transform_with_state_is_refused():
    class Counting(thunder.Transform):
        pass

    with pytest.raises(thunder.InvalidArgument, match="a backend makes several"):
        thunderfx(torch.sin, transforms=[Counting()])


def test_a_copied_backend_has_the_options():
    """Wrappers of `torch.compile` copy its arguments."""
    backend = ThunderCompiler(cse=False)
    copied = copy.deepcopy(backend)
    assert copied is not backend
    assert (copied.thunder_options, copied.subgraph_infos) == ({"cse": False}, [])


def test_a_dropped_graph_is_not_listed():
    compiled = thunderfx(torch.nn.functional.relu)
    compiled(torch.ones(2))
    assert len(compiled.subgraph_infos) == 1
    torch._dynamo.reset()
    assert compiled.subgraph_infos == []


def test_other_sizes_and_numbers_are_compiled_for_them():
    def f(x, n):
        return x.reshape(-1, n) * x.shape[0] + n

    compiled = thunderfx(f, dynamic=True)
    for rows, n in ((4, 2), (6, 3), (6, 2), (4, 2)):
        x = torch.randn(rows, 6, dtype=torch.float64)
        torch.testing.assert_close(compiled(x, n), f(x, n))


def test_a_number_that_changes_does_not_compile_each_time(monkeypatch: pytest.MonkeyPatch):
    """TorchDynamo passes a float that has changed as a tensor, and reads it in the graph."""
    monkeypatch.setattr(inductor_part, "COMPILE_SETTINGS", {"backend": "aot_eager", "fullgraph": True})

    def f(x, rate):
        return (x * rate).sin() + rate**2

    compiled = thunderfx(f, recompile_limit=2)
    x = torch.randn(3, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error", thunder.RecompileWarning)
        for step in range(8):
            torch.testing.assert_close(compiled(x, step / 8), f(x, step / 8))


def test_inputs_are_not_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inductor_part, "COMPILE_SETTINGS", {"backend": "aot_eager", "fullgraph": True})
    compiled = thunderfx(lambda x: x.sin() * x.detach().nonzero().sum())
    x = torch.ones(3, requires_grad=True)
    compiled(x)
    held = weakref.ref(x)
    del x
    gc.collect()
    assert held() is None


def test_recipes_compile_with_it():
    compiled = thunder.compile(torch.sin, thunder.Recipe(interpreter="thunder.fx"))
    torch.testing.assert_close(compiled(torch.ones(2)), torch.ones(2).sin())
    assert compiled.last_traces


def test_errors_of_the_program_pass():
    def f(x, i):
        return x[i]

    with pytest.raises(IndexError, match="out of"):
        thunderfx(f)(torch.ones(3), torch.tensor([7]))


@pytest.mark.parametrize("mode", ["default", None])
def test_the_default_mode_of_torch_compile_is_the_only_one(mode):
    x = torch.randn(3)
    assert torch.equal(thunderfx(lambda x: x.sin() + 1, mode=mode)(x), x.sin() + 1)
