"""Runs the cells of published documents one after the other, and writes down what they print and return.

    python -m documents.published.run RESULTS DEVICE NAME,NAME quick|slow

RESULTS becomes a JSON object: document → cell → [printed text, text of the last expression's value]. What the
programs import and this environment lacks under that name is provided from what it has under another.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import linecache
import os
import re
import shlex
import subprocess
import sys
import types
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.cuda

from documents.published.cells import DOCUMENTS
from documents.published.reader import Cell

#: functions of torch.cuda that raise where there is no GPU, and that return nothing
COUNTERS = ("synchronize", "reset_peak_memory_stats", "reset_accumulated_memory_stats")


class Notebook:
    """Runs cells in one namespace, with the magic commands that the documents use."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {"__name__": "__main__"}

    def run(self, name: str, source: str) -> tuple[str, str]:
        """Return what a cell prints, and the text of its last expression's value, empty for None."""
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            value = self._value(name, source)
        return printed.getvalue(), "" if value is None else str(value)

    def _value(self, name: str, source: str) -> Any:
        if source.startswith("%%writefile "):
            path, _, text = source.removeprefix("%%writefile ").partition("\n")
            print("Overwriting" if Path(path).exists() else "Writing", path)
            Path(path).write_text(text, encoding="utf-8")
            return None
        if source.startswith("!torchrun "):
            launcher = [sys.executable, "-m", "torch.distributed.run"]
            return subprocess.run([*launcher, *shlex.split(source)[1:]], check=True) and None
        program = re.sub(r"^%timeit ", "", source, flags=re.MULTILINE)  # once, and not timed
        file = f"<{name}>"
        linecache.cache[file] = len(program), None, program.splitlines(True), file
        tree = ast.parse(program, file)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, file, "exec"), self.namespace)
        return last and eval(compile(ast.Expression(last.value), file, "eval"), self.namespace)


def provide_other_names(notebook: Notebook) -> None:
    """Let programs import litgpt by its first name, and use what the text around a program names."""
    import litgpt.model
    from torch.testing import assert_close

    from thunder.tests import lit_gpt_model

    package = types.ModuleType("lit_gpt")
    package.GPT, package.rmsnorm = litgpt.GPT, litgpt.model  # type: ignore[attr-defined]
    sys.modules |= {"lit_gpt": package, "lit_gpt.rmsnorm": litgpt.model}
    notebook.namespace |= {"torch": torch, "litgpt_model": lit_gpt_model, "assert_close": assert_close}
    notebook.namespace["thunder"] = sys.modules["thunder"]


def run(name: str, device: str, slow: bool) -> dict[str, tuple[str, str]]:
    """Return what each cell of a document prints and returns on a device.

    Raises RuntimeError with the name of a cell that fails.
    """
    notebook, document, results = Notebook(), DOCUMENTS[name], {}
    provide_other_names(notebook)
    for cell in document.cells:
        if _can_run(cell, device) and (slow or not cell.slow):
            try:
                results[cell.name] = notebook.run(f"{name}-{cell.name}", document.source(cell, device))
            except Exception as error:
                raise RuntimeError(f"document {name}, cell {cell.name}, on {device}") from error
    return results


def _can_run(cell: Cell, device: str) -> bool:
    """Return whether a cell means something on a device, and what it needs is here."""
    if cell.module is not None and find_spec(cell.module) is None:
        return False
    enough = device == "cpu" or torch.cuda.device_count() >= cell.gpus
    return enough and cell.device in (None, device)


def _main(path: str, device: str, names: str, slow: str) -> None:
    if device == "cpu":
        for counter in COUNTERS:
            setattr(torch.cuda, counter, lambda: None)
    # a cell shards a model over the processes of a group that it does not make
    store = f"file://{os.path.abspath(path)}.store"
    torch.distributed.init_process_group(
        "nccl" if device == "cuda" else "gloo", init_method=store, rank=0, world_size=1
    )
    results = {name: run(name, device, slow == "slow") for name in names.split(",")}
    torch.distributed.destroy_process_group()
    Path(path).write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    _main(*sys.argv[1:])
