"""Makes ``docs/rows.md``: the primitives and the rows of the torch language, with their signatures.

python tools/row_table.py [--check]    writes the page; or returns 1 if it is not up to date
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import thunder.torch  # noqa: F401  (fills the language)
from thunder.base.structural_ids import STRUCTURAL
from thunder.base.tags import OpTags
from thunder.ir.gradient_declarations import Formulas, JointRule, NoGradient, Vjp
from thunder.ops.operator import Operator, all_rows

PAGE = Path(__file__).parents[1] / "docs" / "rows.md"

_HEAD = """# Operators' rows and primitives

An operator is one row: an id, the functions of torch that it stands for, and

- a *meta function*, if it is a primitive: it takes proxies and returns proxies with the metadata of the
  results;
- or a *decomposition*: the same in smaller operators, which the trace shows below the statement;
- an *eager function*, which computes it on tensors;
- a *gradient*: formulas, a rule, or none; without it the decomposition is differentiated, and a primitive
  raises `MissingGradient`;
- *tags* and other facts, which passes ask: the *layout* of the results where it is not the usual one, which
  *integers* out of tensors are values or sizes, whether its kernel also writes to an argument (*in place*)
  or computes in the memory of an operand (*out*), whether it has a batching rule (*batch*).

Primitives neither broadcast nor promote types, and their arguments are explicit;
`thunder.core.prims.<name>` calls one under a trace. Rows take what torch's functions take, with torch's
defaults; `thunder.torch.<name>` calls one. Executors, rules and patterns name both by id: `"prims.<name>"`,
`"torch.<path>"`. This page is made by `tools/row_table.py`; [how to add an
operator](../CONTRIBUTING.md#add-an-operator) and [how to register one for an executor](executors.md) are
elsewhere.

"""

_GRADIENTS = {NoGradient: "none", Formulas: "formulas", Vjp: "rule", JointRule: "rule"}

_HIDDEN = {OpTags.IN_PLACE, OpTags.FALLBACK}


def page() -> str:
    """Return the text of the page."""
    rows = sorted((row for row in all_rows() if row.module in ("prims", "ltorch")), key=lambda row: row.id)
    primitives = [row for row in rows if row.module == "prims"]
    language = [row for row in rows if row.module == "ltorch" and _HIDDEN.isdisjoint(row.tags)]
    return "".join(
        (
            _HEAD,
            f"## Primitives ({len(primitives)})\n\n",
            *_table(primitives),
            f"\n## Rows of the torch language ({len(language)})\n\n",
            "In-place variants (`torch.Tensor.add_`) take what the row takes whose result they write.\n\n",
            *_table(language),
        )
    )


def _table(rows: Iterable[Operator]) -> Iterable[str]:
    yield "| id | arguments | gradient | tags and facts |\n|---|---|---|---|\n"
    for row in rows:
        yield f"| `{row.id}` | `{_arguments(row)}` | {_gradient(row)} | {' '.join(_facts(row))} |\n"


def _facts(row: Operator) -> Iterable[str]:
    yield from sorted(tag.name for tag in row.tags)
    facts = {
        "integers": None if row.integers == "decided" else row.integers,
        "layout": None if row.layout is None else row.layout.name,
    }
    yield from (f"*{name}: {fact}*" for name, fact in facts.items() if fact is not None)
    yield from (["*in place*"] if row.in_place is not None else [])
    yield from (["*out*"] if row.with_out is not None else [])
    yield from (["*batch*"] if row.batch is not None else [])


def _gradient(row: Operator) -> str:
    if row.id in STRUCTURAL:
        return "none"
    declared = _GRADIENTS.get(type(row.gradient))
    return declared or ("of its decomposition" if row.decomposition is not None else "missing")


def _arguments(row: Operator) -> str:
    function: Any = row.meta if row.meta is not None else row.decomposition
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty, default=_default(parameter.default))
        for parameter in inspect.signature(function).parameters.values()
    ]
    return str(inspect.Signature(parameters)).replace("|", "\\|")


class _Text:
    """A default value whose `repr` is the same in every process."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _default(value: Any) -> Any:
    return _Text("…") if " at 0x" in repr(value) else value


def main(arguments: list[str]) -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args(arguments).check:
        return 0 if PAGE.read_text(encoding="utf-8") == page() else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
