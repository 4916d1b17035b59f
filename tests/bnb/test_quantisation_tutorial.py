"""The cells of the tutorial on quantisation run as written, and print traces of the shown structure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from documents.blocks import examples
from thunder.transforms.quantization import get_bitsandbytes_executor

TUTORIAL = examples(Path(__file__).parents[1] / "documents" / "tutorials" / "quantisation.md")
PLAIN, QUANTISED, SHOWN, SHARDED = (example.source for example in TUTORIAL)


def run(source: str, device: str, namespace: dict[str, Any]) -> dict[str, Any]:
    """Run a cell; without a GPU the name of the device is another.

    The first cell shows the trace of a module that it does not call, so it is called before.
    """
    source = source.replace('"cuda"', f'"{device}"')
    compiling, show, rest = source.partition("thunder.last_traces")
    exec(compile(compiling, "tutorial.py", "exec"), namespace)
    if show:
        namespace["jm"](namespace["inp"])
    exec(compile(show + rest, "tutorial.py", "exec"), namespace)
    return namespace


def names() -> dict[str, Any]:
    """The names that the cells use and never bind."""
    executor = get_bitsandbytes_executor()
    return {"get_bitsandbytes_executor": get_bitsandbytes_executor, "bnb_executors": executor}


def shown_trace(source: str) -> str:
    """The trace that a cell shows in its last string."""
    return source.partition('"""')[2].partition('"""')[0]


def structure(text: str, device: str) -> list[str]:
    """The statements of a trace: signature, inputs, calls with their arguments and results, and releases.

    Without lines of source and of decompositions; devices and numbered values have common names.
    """
    text = text[text.index("def computation") :].replace("cuda:0" if device == "cpu" else device, device)
    lines = []
    for line in text.splitlines():
        if line.strip() and not re.match(r" {4,}#|  # [\w/.-]+\.py:", line):
            lines.append(line.rstrip())
    text = "\n".join(lines)
    for number, name in enumerate(dict.fromkeys(re.findall(r"\bt\d+\b", text))):
        text = re.sub(rf"\b{name}\b", f"v{number}", text)
    return text.splitlines()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_cells_print_what_the_tutorial_shows(device: str) -> None:
    namespace = run(PLAIN, device, names())
    plain = str(thunder.last_traces(namespace["jm"])[-1])
    run(QUANTISED, device, namespace)
    quantised = str(thunder.last_traces(namespace["jm"])[-1])
    shown_device = "cpu" if device == "cpu" else "cuda:0"
    assert structure(plain, shown_device) == structure(shown_trace(PLAIN), shown_device)
    assert structure(quantised, shown_device) == structure(shown_trace(SHOWN), shown_device)
    assert torch.allclose(namespace["out"], namespace["mlp"](namespace["inp"]), atol=0.1)


def test_the_last_cell_waits_for_the_package_that_shards() -> None:
    namespace = run(QUANTISED, "cpu", run(PLAIN, "cpu", names()))
    with pytest.raises(AttributeError, match=r"thunder\.distributed"):
        run(SHARDED, "cpu", namespace)
