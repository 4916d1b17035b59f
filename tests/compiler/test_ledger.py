"""The placement ledger of compiled programs: every call, every reason, and the skipped executors."""

from __future__ import annotations

import inspect
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from thunder.base import optional_modules
from thunder.base.errors import InvalidArgument
from thunder.base.structural_ids import STRUCTURAL
from thunder.compiler import ledger_codes
from thunder.compiler.ledger import Explanation
from thunder.executor_base.fusion_executor import FusionExecutor
from thunder.extend import OperatorExecutor, Refusal, device_profile
from thunder.ir.trace import TraceCtx
from thunder.plugins import ExecutorSpec, get_manager, hookimpl


def program(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    hidden = torch.relu(a @ b)
    return (hidden @ c).sum()


def reasons(explanation: Explanation) -> list[tuple[Any, ...]]:
    """All that an explanation says, an element a reason."""
    return [
        (row.index, row.symbol, row.claimed_by, row.via, record.executor, record.code, record.message, facts)
        for row in explanation.rows
        for record in (*row.refusals, *row.skipped)
        for facts in [tuple(record.facts.items())]
    ]


# -- the reasons of a checker


@pytest.fixture
def kernels() -> OperatorExecutor:
    """An executor with a matrix product that has several preconditions."""
    ex = OperatorExecutor("kernels")
    mm = ex.register_operator("mm", like=thunder.torch.matmul, fn=torch.matmul, replace=True)

    def checker(a: Any, b: Any) -> bool | Refusal:
        if a.dtype is not thunder.float32:
            return Refusal("dtype", "takes float32", dtype=str(a.dtype))
        if a.ndim != 2 or b.ndim != 2:
            return Refusal("rank", "takes matrices", ranks=(a.ndim, b.ndim))
        if b.shape[1] % 8:
            return Refusal("width", "takes widths that 8 divides", width=b.shape[1])
        if device_profile(a.device).capability < (9, 0):
            return Refusal("capability", "needs compute capability 9.0")
        return True

    ex.register_implementation("torch.matmul", mm, checker=checker)
    return ex


def arguments(**broken: Any) -> list[torch.Tensor]:
    """Two products that meet all preconditions, but for what is `broken` in the second."""
    width, rows = broken.get("width", 8), broken.get("rows", ())
    return [torch.empty(shape, device="meta") for shape in ((8, 4), (4, 16), (*rows, 16, width))]


BREAKS: dict[str, tuple[str, Callable[[], list[torch.Tensor]]]] = {
    "width": ("takes widths that 8 divides", lambda: arguments(width=12)),
    "rank": ("takes matrices", lambda: arguments(rows=(3,))),
}


@pytest.mark.parametrize("code", BREAKS)
def test_breaking_one_precondition_of_a_checker_changes_exactly_one_reason(
    kernels: OperatorExecutor, code: str
) -> None:
    message, broken = BREAKS[code]

    def explained(given: list[torch.Tensor]) -> Explanation:
        return thunder.plan(program, *given, device="h200", executors=[kernels]).explain()

    kept, changed = explained(arguments()), explained(broken())
    assert [row.claimed_by for row in kept.rows] == ["kernels", "torch", "kernels", "torch"]
    # of the call itself, torch has it now; of all refusals, one is new and none is gone
    refused, before = ({(i, r) for i, r in refusals(e)} for e in (changed, kept))
    assert before <= refused
    ((index, record),) = refused - before
    assert (index, record[:3]) == (2, ("kernels", code, message))
    assert [a.claimed_by for a in kept.rows if a.index != 2] == [
        b.claimed_by for b in changed.rows if b.index != 2
    ]
    assert changed.rows[2].claimed_by == "torch"


def refusals(explanation: Explanation) -> Iterator[tuple[int, tuple[Any, ...]]]:
    for row in explanation.rows:
        for r in row.refusals:
            yield row.index, (r.executor, r.code, r.message, tuple(r.facts.items()))


def test_another_device_changes_the_reason_of_each_call_that_needs_it(kernels: OperatorExecutor) -> None:
    plans = {d: thunder.plan(program, *arguments(), device=d, executors=[kernels]) for d in ("h200", "a100")}
    difference = set(refusals(plans["a100"].explain())) ^ set(refusals(plans["h200"].explain()))
    assert {(index, record[1]) for index, record in difference} == {(0, "capability"), (2, "capability")}


def test_the_same_program_has_the_same_ledger_every_time(kernels: OperatorExecutor) -> None:
    texts = {
        thunder.plan(program, *arguments(), device="h200", executors=[kernels]).explain().to_json()
        for _ in range(3)
    }
    assert len(texts) == 1


# -- completeness


def without_rows(trace: TraceCtx, rows: list[Any]) -> list[str]:
    """The calls of a final trace, and of its fusions, whose results no row mentions."""
    known = {name for row in rows for name in row.outputs}
    calls = [
        b
        for bsym in trace.bound_symbols
        for b in (bsym.subsymbols if bsym.sym.is_fusion else [bsym])
        if b.sym.id not in STRUCTURAL
    ]
    return [str(b) for b in calls if not {p.name for p in b.flat_proxy_outs} <= known]


def test_every_call_of_forward_and_backward_has_a_row() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.gelu(torch.nn.functional.linear(x, w))
        return torch.nn.functional.dropout(hidden, 0.5).softmax(-1).sum()

    compiled = thunder.jit(f)
    compiled(torch.randn(3, 4), torch.randn(5, 4, requires_grad=True))
    rows = thunder.explain(compiled).rows
    forward = [row for row in rows if row.trace == "forward"]
    backward = [row for row in rows if row.trace == "backward"]
    assert without_rows(thunder.last_traces(compiled)[-1], forward) == []
    assert without_rows(thunder.last_backward_traces(compiled)[-1], backward) == []
    assert backward
    assert [row.index for row in rows] == list(range(len(rows)))
    assert all(row.source is not None and row.source.file == __file__ for row in forward)


def test_calls_of_the_backward_are_refused_with_reasons_too(kernels: OperatorExecutor) -> None:
    given = [t.requires_grad_() for t in arguments()]
    explanation = thunder.plan(program, *given, device="a100", executors=[kernels]).explain()
    backward = [row for row in explanation.rows if row.trace == "backward" and row.symbol == "torch.mm"]
    assert backward
    assert {r.code for row in backward for r in row.refusals} == {"no-implementation"}


# -- lines


class Model(torch.nn.Module):
    """Calls modules of torch, whose own lines call the operators."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 8)
        self.rest = torch.nn.Sequential(torch.nn.GELU(), torch.nn.LayerNorm(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear(x)
        return self.rest(hidden)


def test_the_line_of_a_call_inside_a_module_of_torch_is_the_users() -> None:
    compiled = thunder.jit(Model())
    compiled(torch.randn(2, 4)).sum().backward()
    rows = thunder.explain(compiled).rows
    lines = {
        row.symbol: row.source.text for row in rows if row.source is not None and row.claimed_by == "torch"
    }
    assert {row.source.file for row in rows if row.source is not None} == {__file__}
    assert lines["torch.nn.functional.linear"] == "hidden = self.linear(x)"
    assert lines["torch.nn.functional.gelu"] == "return self.rest(hidden)"
    assert lines["ltorch.gelu_backward"] == "return self.rest(hidden)"
    asked = thunder.explain(compiled).why_not("python", line=_line("self.linear(x)"))
    assert asked.rows[0].symbol == "torch.nn.functional.linear"


def test_the_line_inside_of_the_module_is_kept_beside_it() -> None:
    compiled = thunder.jit(Model())
    compiled(torch.randn(2, 4))
    explanation = thunder.explain(compiled)
    row = next(row for row in explanation.rows if row.symbol == "torch.nn.functional.linear")
    assert row.inner is not None
    assert row.inner.file.endswith("linear.py")
    assert row.inner.text.startswith("return F.linear(")
    recorded = json.loads(explanation.to_json())["rows"][row.index]
    assert recorded["source"]["text"] == "hidden = self.linear(x)"
    assert recorded["inner"] == row.inner._asdict()


def test_a_call_that_the_user_writes_has_one_line() -> None:
    compiled = thunder.jit(program)
    compiled(*arguments())
    assert all(row.inner is None for row in thunder.explain(compiled).rows)


def test_a_module_of_torch_alone_has_the_lines_of_torch() -> None:
    compiled = thunder.jit(torch.nn.Linear(4, 8))
    compiled(torch.randn(2, 4))
    (row, *_) = thunder.explain(compiled).rows
    assert row.source is not None
    assert row.source.text.startswith("return F.linear(")


def _line(text: str) -> int:
    lines, first = inspect.getsourcelines(Model.forward)
    return next(first + i for i, line in enumerate(lines) if text in line)


# -- executors that are skipped or absent


class Lazy(FusionExecutor):
    """Claims sines and fuses nothing."""

    def fusion_pass(self, trace: TraceCtx) -> TraceCtx:
        return trace


def explained(fn: Callable[..., Any], *executors: Any) -> Explanation:
    return thunder.plan(fn, torch.ones(3), executors=executors).explain()


def skipped(explanation: Explanation) -> list[tuple[str, str, str]]:
    return [(row.symbol, r.executor, r.code) for row in explanation.rows for r in row.skipped]


def test_an_executor_behind_the_one_that_took_the_call_was_skipped() -> None:
    late = OperatorExecutor("late")
    found = explained(torch.sin, "torch", late)
    assert skipped(found) == [
        ("torch.sin", "late", "claimed-earlier"),
        ("torch.sin", "python", "claimed-earlier"),
    ]
    assert (
        found.why_not("late").rows[0].skipped[0].message
        == "torch comes first in the list, and claimed the call"
    )
    table, _, _ = str(found).partition("not in this compile:")  # where other tests' executors may be listed
    assert "late" not in table, "the whole table has refusals alone"
    assert "- late: torch comes first in the list, and claimed the call" in str(found.why_not("late"))


def test_other_executors_are_skipped_for_a_call_that_runs_as_it_is() -> None:
    own = OperatorExecutor("own")
    double = own.register_operator(
        "double", meta=lambda x: thunder.TensorProxy(like=x), fn=lambda x: x + x, replace=True
    )
    other = OperatorExecutor("other")
    found = explained(lambda x: double(x), other, own)
    assert [(row.symbol, row.claimed_by) for row in found.rows] == [("own.double", "own")]
    assert ("own.double", "other", "already-executable") in skipped(found)


def test_a_call_that_an_execution_transform_recorded_is_fixed() -> None:
    made = OperatorExecutor("made")
    made.register_implementation("torch.sin", execution_transform=lambda x: torch.neg(torch.sin(x)))
    other = OperatorExecutor("other")
    found = explained(torch.sin, made, other)
    assert ("torch.neg", "other", "fixed") in skipped(found)
    assert ("torch.sin", "other", "claimed-earlier") in skipped(found)


def test_a_call_that_a_fusion_left_alone_says_so() -> None:
    fuser, kernel = Lazy("fuser"), OperatorExecutor("kernel")
    fuser.register_supported("torch.sin")
    found = explained(torch.sin, fuser, kernel)
    (row,) = found.rows
    assert [(r.executor, r.code) for r in row.refusals] == [("fuser", "not-fused")]
    assert skipped(found)[0] == ("torch.sin", "kernel", "claimed-earlier")
    assert "fuser claimed the call first" in str(found.why_not("kernel"))


def test_each_executor_of_the_compile_has_an_answer_for_each_call(kernels: OperatorExecutor) -> None:
    given = [t.requires_grad_() for t in arguments()]
    for row in thunder.plan(program, *given, device="h200", executors=[kernels]).explain().rows:
        named = [row.claimed_by, *(r.executor for r in (*row.refusals, *row.skipped))]
        assert sorted(filter(None, named)) == ["kernels", "python", "torch"], row


def test_executors_outside_of_the_compile_are_told_with_the_reason() -> None:
    class Plugin:
        @hookimpl
        def thunder_executors(self) -> list[ExecutorSpec]:
            return [
                ExecutorSpec("spare", OperatorExecutor("spare")),
                ExecutorSpec("lacking", "nowhere:ex", requires=("libdoesnotexist",)),
                ExecutorSpec("lazy", "libdoesnotexist:ex"),
            ]

    with get_manager().temporary(Plugin(), name="toy"):
        found = explained(torch.sin)
        records = {r.executor: (r.code, r.message) for r in found.absent}
    assert records["spare"] == ("not-listed", "it is not among the executors of this compile: torch, python")
    assert records["lacking"] == ("unavailable", "needs libdoesnotexist, which is not installed")
    assert records["lazy"] == ("unavailable", "ModuleNotFoundError: No module named 'libdoesnotexist'")
    narrowed = found.why_not("lacking")
    assert len(narrowed) == 1
    assert str(narrowed).splitlines()[-1] == (
        "not in this compile: lacking: needs libdoesnotexist, which is not installed"
    )
    assert {r["executor"]: r["code"] for r in json.loads(found.to_json())["absent"]} == {
        name: code for name, (code, _) in records.items()
    }


def test_executors_outside_of_the_compile_are_named_in_two_lines() -> None:
    class Plugin:
        @hookimpl
        def thunder_executors(self) -> list[ExecutorSpec]:
            return [
                ExecutorSpec("spare", OperatorExecutor("spare")),
                ExecutorSpec("lacking", "nowhere:ex", requires=("libdoesnotexist",)),
            ]

    with get_manager().temporary(Plugin(), name="toy"):
        lines = str(explained(torch.sin)).splitlines()
    (named,) = [line for line in lines if line.startswith("not in this compile: ")]
    (unusable,) = [line for line in lines if line.startswith("cannot be used here: ")]
    assert "spare" in named.split("(")[0]
    assert "lacking" in unusable.split("(")[0]
    assert sum("spare" in line or "lacking" in line for line in lines) == 2


# -- tables of many rows


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(x).relu())


class Layers(torch.nn.Module):
    def __init__(self, kinds: Sequence[type[torch.nn.Module]]) -> None:
        super().__init__()
        self.first, self.layers = torch.nn.Linear(4, 4), torch.nn.ModuleList(kind() for kind in kinds)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return x.sin()


class Wider(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.cos())


def of_layers(*kinds: type[torch.nn.Module]) -> Explanation:
    module = Layers(kinds).requires_grad_(False)
    return thunder.plan(module, torch.ones(2, 4), executors=["torch"]).explain()


def test_rows_of_equal_layers_are_shown_once() -> None:
    lines = str(of_layers(*[Layer] * 6)).splitlines()
    assert [line.split()[0] for line in lines[2:8]] == ["0", "1", "2", "3", "4", "..."]
    assert lines[7] == "   ... rows 5 to 24 are those 4 calls for layers.1 to layers.5"
    assert lines[8].split()[:3] == ["25", "forward", "torch.sin"]
    assert "forward: torch runs 26 calls" in lines


def test_rows_of_layers_that_differ_are_all_shown() -> None:
    lines = str(of_layers(Layer, Wider, Layer)).splitlines()
    assert not any(line.startswith("   ... rows") for line in lines)
    assert sum(line.split()[1:2] == ["forward"] for line in lines) == 2 + 2 * 4 + 5


def test_an_explanation_has_all_rows_also_where_its_table_does_not_show_them() -> None:
    ledger = of_layers(*[Layer] * 6)
    ups = [row.module for row in ledger.rows if row.module.endswith("up")]
    assert ups == [f"layers.{i}.up" for i in range(6)]
    assert len(json.loads(ledger.to_json())["rows"]) == len(ledger.rows) == 26


def test_of_many_results_the_first_are_named() -> None:
    table = str(thunder.plan(lambda x: torch.unbind(x), torch.ones(30, 2), executors=["torch"]).explain())
    assert "  t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, and 20 more  " in table


def test_rows_that_repeat_have_their_numbers_in_a_selection_too() -> None:
    selected = of_layers(*[Layer] * 6).why_not("python", symbol="torch.nn.functional.linear")
    lines = str(selected).splitlines()
    repeated = [line for line in lines if line.startswith("   ... rows")]
    assert repeated == ["   ... rows 5 to 23 are those 2 calls for layers.1 to layers.5"]


def test_an_executor_of_a_disabled_plugin_is_told_by_the_plugins_name() -> None:
    with get_manager().temporary(object(), name="toy"), thunder.plugins.disabled("toy"):
        (record,) = [r for r in explained(torch.sin).absent if r.executor == "toy"]
    assert (record.code, record.message) == ("disabled", "its plugin is disabled: disabled by the program")


def test_an_executor_that_nobody_knows_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidArgument, match="Did you mean 'torch'"):
        explained(torch.sin).why_not("torhc")


def test_the_page_on_plans_lists_all_codes_with_their_sentences() -> None:
    page = (Path(__file__).parents[2] / "docs" / "plans.md").read_text()
    for table in (ledger_codes.REFUSED, ledger_codes.SKIPPED, ledger_codes.ABSENT):
        rows = "\n".join(f"| `{code}` | {sentence} |" for code, sentence in table.items())
        assert f"|---|---|\n{rows}\n\n" in page


def test_each_refusal_of_core_has_a_code_of_the_table() -> None:
    folder = Path(thunder.__file__).parent
    files = [f for name in ("executor_base", "passes", "autograd") for f in (folder / name).glob("*.py")]
    codes = {code for f in files for code in re.findall(r'Refusal\(\s*"([\w-]+)"', f.read_text())}
    assert codes == set(ledger_codes.REFUSED)


# -- texts


class Terminal(io.StringIO):
    """A stream that says that somebody is looking."""

    def isatty(self) -> bool:
        return True


def test_in_a_terminal_the_table_is_richs(kernels: OperatorExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    found = thunder.plan(program, *arguments(width=12), device="h200", executors=[kernels]).explain()
    stream = Terminal()
    found.show(stream)
    text = stream.getvalue()
    assert "\x1b[" in text
    assert "┏" in text
    assert "kernels: takes widths that 8 divides (width=12)" in text
    assert "hidden @ c" in text


def test_square_brackets_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "200")
    picky = OperatorExecutor("picky")
    picky.register_implementation(
        "torch.sin",
        execution_transform=torch.cos,
        checker=lambda x: Refusal("shape", "not [red]this[/red] shape [3]"),
    )
    stream = Terminal()
    explained(torch.sin, picky).show(stream)
    assert "not [red]this[/red] shape [3]" in stream.getvalue()


@pytest.mark.parametrize("where", ["no terminal", "no rich"])
def test_elsewhere_the_table_is_plain_text(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if where == "no rich":
        monkeypatch.setattr(optional_modules, "find_spec", lambda name: None)
        assert explained(torch.sin).__rich__() == str(explained(torch.sin))
    stream = Terminal() if where == "no rich" else io.StringIO()
    found = explained(torch.sin)
    found.show(stream)
    assert stream.getvalue() == f"{found}\n"
    assert repr(found) == str(found)


def test_in_a_terminal_columns_without_content_are_left_out() -> None:
    rich_console = pytest.importorskip("rich.console")
    console = rich_console.Console(file=io.StringIO(), width=200)
    console.print(of_layers(*[Layer] * 6))
    printed = console.file.getvalue()
    head = printed.splitlines()[1]
    assert "module" in head
    assert "reasons" not in head
    assert "rows 5 to 24 are those 4 calls for layers.1 to layers.5" in printed


def test_rich_prints_an_explanation_by_itself() -> None:
    rich_console = pytest.importorskip("rich.console")
    console = rich_console.Console(file=io.StringIO(), width=160)
    console.print(explained(torch.sin))
    assert "torch.sin" in console.file.getvalue()
    assert "┏" in console.file.getvalue()
