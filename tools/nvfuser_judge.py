"""Defines nvFuser's definitions in the library itself, without a GPU, and writes what it says of each.

    python3.12 tools/nvfuser_judge.py DEFINITIONS ANSWERS

DEFINITIONS is a JSON list of texts, as `str(RecordedDefinition)` returns them. ANSWERS becomes a JSON object
with the library's options, the operations in its table and, for each text, the dtype of each of its tensors,
or the error that the library raised. It needs nvfuser_direct and a CUDA build of torch alone: neither a
driver nor thunder, so that another version of Python can run it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

#: an unknown name in a variable of the environment makes the library list those that it knows
_PROBE = """
import nvfuser_direct as nvf, torch
with nvf.FusionDefinition() as fd:
    t = fd.define_tensor(shape=[-1], contiguity=[True], dtype=nvf.DataType.Float)
    fd.add_output(fd.ops.exp(t))
{use}
"""
_USES = {
    "DUMP": "fd.fusion.print_kernel()",
    "ENABLE": "nvf.FusionExecutorCache(fd.fusion).execute([torch.ones(2)], device=0)",
    "DISABLE": "fd.fusion.print_kernel()",
}


def known_names(option: str) -> list[str]:
    """Return the names that the library takes in NVFUSER_<option>."""
    environment = {**os.environ, f"NVFUSER_{option}": "a_name_that_it_does_not_have"}
    program = _PROBE.format(use=_USES[option])
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    found = re.search(r"Available options: (.*)", done.stdout + done.stderr)
    return sorted(found[1].split(", ")) if found else []


def answer(library: Any, text: str) -> dict[str, Any]:
    """Return the dtypes of the tensors of a definition by name, or the error that the library raised."""
    namespace: dict[str, Any] = {"DataType": library.DataType}
    exec(f"{text}\n    return dict(locals())", namespace)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), library.FusionDefinition() as definition:
            values = namespace["nvfuser_fusion"](definition)
    except Exception as error:  # of any class: it is the answer
        return {"error": f"{type(error).__name__}: {error}".split("Exception raised")[0]}
    tensors = {name: value for name, value in values.items() if name.startswith("t")}
    return {"dtypes": {name: str(value.dtype()).rpartition(".")[2] for name, value in tensors.items()}}


def main(definitions: str, answers: str) -> None:
    """Write the answers to a file."""
    library = import_module("nvfuser_direct")
    texts = json.loads(Path(definitions).read_text())
    options = {option: known_names(option) for option in _USES}
    operations = sorted(name for name in dir(library.ops) if not name.startswith("_"))
    found = {
        "options": options,
        "operations": operations,
        "answers": [answer(library, text) for text in texts],
    }
    Path(answers).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
