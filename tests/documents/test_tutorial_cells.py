"""The cells of tutorials that users of lightning-thunder have run here as written.

Without a CUDA device the word that names it is another, and nothing else.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

import thunder
from documents.blocks import examples
from thunder.tests import lit_gpt_model

TUTORIALS = Path(__file__).with_name("tutorials")
OFFLOADING = examples(TUTORIALS / "cpu_offloading.md")
META = examples(TUTORIALS / "meta_device.md")
#: statistics of the device, which a machine without one lacks
STATISTICS = ("reset_accumulated_memory_stats", "reset_peak_memory_stats")


def on_cpu(source: str, layers: int = 100) -> str:
    """Return a cell for a machine without a GPU, with fewer layers."""
    source = re.sub(r"(['\"])cuda\1", r"\1cpu\1", source)
    return source.replace("n_layers=100", f"n_layers={layers}")


def run_offloading(layers: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run all cells but the measurement of a large model; return what they define."""
    for name in STATISTICS:
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    namespace: dict[str, Any] = {}
    for index, cell in enumerate(OFFLOADING):
        if "print_memory_usage_and_benchmark" in cell.source:
            continue
        exec(compile(on_cpu(cell.source, layers), f"offloading_cell_{index}.py", "exec"), namespace)
    return namespace


def forms(text: str, words: str) -> set[str]:
    """Return the statements of a trace with a word, with their headers, without the numbers in names."""
    lines = [line.strip().replace("cuda:0", "cpu") for line in text.splitlines()]
    kept = [line for line in lines if words in line or line.startswith("# Created by CPU")]
    return {re.sub(r"(?<=t)\d+", "N", re.sub(r" +#(?= \w+: )", " #", line)) for line in kept}


@pytest.mark.parametrize("layers", [4, pytest.param(100, marks=pytest.mark.sweep)])
def test_the_offloading_tutorial_runs_as_user_code(
    layers: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = run_offloading(layers, monkeypatch)
    printed, shown = capsys.readouterr().out, next(cell.output for cell in OFFLOADING if cell.output)
    assert re.sub(r"[\d.]+", "N", printed).startswith(re.sub(r"[\d.]+", "N", shown))
    forward, backward = str(namespace["fw_traces"][-1]), str(namespace["bw_traces"][-1])
    # all saved intermediates are offloaded after their last use, and loaded before their first
    offloaded = re.findall(r"^ +(offloaded_(\w+)) = offload_to_cpu\((\w+)\)", forward, re.MULTILINE)
    assert len(offloaded) >= layers - 1
    for name, short, original in offloaded:
        assert short == original
        after = forward.split(f"{name} = offload_to_cpu({original})")[1].split("return")[0]
        assert not re.search(rf"[(\s]{original}[,)]", re.sub(r"#.*|del .*", "", after))
        assert re.search(rf"^ +{original} = load_to_gpu\({name}, 'cpu'\)", backward, re.MULTILINE)
        before = backward.split(f"{original} = load_to_gpu(")[0]
        assert not re.search(rf"[(\s]{original}[,)]", re.sub(r"#.*", "", before))
    assert forward.count("# Created by CPU Offloading Transform") == len(offloaded)
    assert backward.count("# Created by CPU Offloading Transform") == len(offloaded)


def test_statements_have_the_form_that_the_tutorial_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = run_offloading(3, monkeypatch)
    shown = {cell.source.split("[")[0]: cell.output for cell in OFFLOADING if "traces[-1]" in cell.source}
    for traces, words in (("fw_traces", "offload_to_cpu("), ("bw_traces", "load_to_gpu(")):
        output = forms(shown[traces] or "", words)
        assert len(output) >= 2
        ours = forms(str(namespace[traces][-1]), words)
        assert {line for line in output if "b8" not in line} <= ours


def test_a_policy_filters_the_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = run_offloading(3, monkeypatch)
    seen: list[Any] = []

    def largest(tensors: tuple[Any, ...], trace: Any) -> tuple[Any, ...]:
        seen.append(tensors)
        return tuple(sorted(tensors, key=lambda t: t.numel())[-1:])

    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2), torch.nn.Tanh()
    )
    compiled = thunder.jit(model, transforms=[namespace["CPUOffloading"](save_tensor_policy=largest)])
    x = torch.randn(3, 4)
    grads = torch.autograd.grad(compiled(x).sum(), list(compiled.parameters()))
    assert_close(grads, torch.autograd.grad(model(x).sum(), list(model.parameters())))
    assert len(seen[0]) > 1
    assert str(thunder.last_traces(compiled)[-1]).count("offload_to_cpu(") == 1


@pytest.mark.gpu
def test_the_offloading_tutorial_runs_as_written() -> None:
    namespace: dict[str, Any] = {}
    for index, cell in enumerate(OFFLOADING):
        exec(compile(cell.source, f"offloading_cell_{index}.py", "exec"), namespace)
    assert "offload_to_cpu(" in str(namespace["fw_traces"][-1])


def meta_namespace(convert: Any) -> dict[str, Any]:
    """Run the program of the issue, and return its names."""
    namespace: dict[str, Any] = {
        "torch": torch,
        "thunder": thunder,
        "litgpt_model": lit_gpt_model,
        "assert_close": assert_close,
        "requiresCUDA": lambda test: test,
    }
    source = convert(META[0].source)
    body = source.partition("def test_materialization():\n")[2]
    body = "\n".join(line.removeprefix("    ") for line in body.splitlines())
    exec(compile(source, "meta_device.py", "exec"), namespace)
    namespace["test_materialization"]()
    exec(compile(body, "meta_device_body.py", "exec"), namespace)
    return namespace


def test_the_program_on_the_meta_device_runs() -> None:
    namespace = meta_namespace(on_cpu)
    exec(on_cpu(META[1].source), namespace)
    tokens = torch.randint(1, 255, (1, 10))
    assert_close(namespace["jm"](tokens), namespace["ref_m"](tokens))
    assert all(p.is_meta for p in namespace["m"].parameters())


@pytest.mark.gpu
def test_the_program_on_the_meta_device_runs_as_written() -> None:
    namespace = meta_namespace(lambda source: source)
    exec(META[1].source, namespace)
