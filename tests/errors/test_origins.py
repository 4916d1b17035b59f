"""Errors about what others wrote say where it comes from: a distribution with its version, or a module."""

from __future__ import annotations

import ast
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
import workspace_plugins
from architecture.source import CORE
from new_processes import run_python
from plugins.example_plugins import write_distribution
from thunder.base.extension_origin import origin_of
from thunder.extend import OperatorExecutor
from thunder.plugins import get_manager, hookimpl

SOURCE = Path(thunder.__file__).parents[1]

#: functions that raise for whoever called them, which says where the culprit comes from
COMPLETED = {
    "thunder/autograd/joint_program.py:_wrong",
    "thunder/autograd/rule_checks.py:_check_all_read",
    "thunder/autograd/rule_checks.py:_check_read",
    "thunder/autograd/rule_checks.py:_refuse_put",
    "thunder/autograd/rule_checks.py:check_cotangents_are_used",
    "thunder/autograd/rule_checks.py:check_gradients_are_moved",
    "thunder/autograd/rule_checks.py:check_nothing_is_written",
    "thunder/autograd/rule_checks.py:paired_results",
    "thunder/ops/gradient_rules.py:_unfit",
    "thunder/ops/gradient_rules.py:put_gradients",
    "thunder/compiler/recompile_reasons.py:failure_of_new_entry",
    "thunder/frontend/prologue_statements.py:_check_sizes_are_found",
    "thunder/ir/module_inputs.py:returned_inputs",
    "thunder/frontend/prologue_statements.py:_unknown",
    "thunder/frontend/prologue_statements.py:_wrong_check",
    "thunder/ir/module_inputs.py:check_count",
    "thunder/ir/module_inputs.py:check_metadata",
    "thunder/ops/prims/gradient.py:_put_grad_meta",
    "thunder/ops/prims/gradient.py:put_grads",
    "thunder/plugins/name_conflicts.py:_check_against",
    "thunder/plugins/name_conflicts.py:check_names",
    "thunder/plugins/plugin_info.py:_check_types",
    "thunder/plugins/plugin_info.py:_items",
}


def without_origin(function: ast.FunctionDef) -> bool:
    """Whether a function makes a PluginError and does not say where the culprit comes from."""
    nodes = list(ast.walk(function))
    said = [node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr == "blame"]
    names = {value.id for value in said if isinstance(value, ast.Name)}
    said += [
        node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in names
    ]
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "PluginError"
        and not any(node is value for value in said)
        for node in nodes
    )


def test_every_plugin_error_says_where_its_culprit_comes_from() -> None:
    found = {
        f"{path.relative_to(CORE).as_posix()}:{node.name}"
        for path in sorted(CORE.rglob("*.py"))
        if "PluginError" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and without_origin(node)
    }
    assert found == COMPLETED


ACME = """
    from thunder.plugins import ExecutorSpec, TransformSpec, hookimpl

    @hookimpl
    def thunder_executors():
        return [ExecutorSpec("acme", "thunder_acme_kernels:ex", default=True)]

    def broken_stage(trace, context):
        raise KeyError("stage")

    wanted = []

    @hookimpl
    def thunder_pipeline(pipeline, options):
        if "stage" in wanted:
            pipeline.insert_before("claim", "broken", broken_stage)

    @hookimpl
    def thunder_cache_state():
        return ["nonsense"] if "state" in wanted else {}
"""

KERNELS = """
import thunder
from thunder import TensorProxy
from thunder.core.transforms import put_grads
from thunder.extend import OperatorExecutor

ex = OperatorExecutor("acme")
same = lambda *a, **k: TensorProxy(like=a[0])
lie = ex.register_operator("lie", meta=same, fn=lambda *a, **k: a[0].double())

def raising(*args, **kwargs):
    raise KeyError("kernels")

ex.register_implementation("torch.sin", lie, checker=raising)
ex.register_implementation("torch.cos", lie, checker=lambda *a, **k: 3)
ex.register_implementation("torch.tan", execution_transform=raising)
ex.register_implementation("torch.exp", execution_transform=lambda a: (thunder.torch.sin(a),))
ex.register_implementation("torch.erf", lie)
ex.register_implementation("torch.abs", lie, grad_transform=lambda a: put_grads((a,), ()))

class Culprit(thunder.Transform):
    def transform_trace_pre_execution(self, trace, **kw):
        return None
"""

PROGRAM = """
import json, torch, thunder, thunder_acme, thunder_acme_kernels as kernels
said = {}
def tried(name, fn, wanted=(), grad=False, **options):
    thunder_acme.wanted[:] = wanted
    try:
        thunder.jit(fn, **options)(torch.ones(3, requires_grad=grad))
        said[name] = "nothing"
    except thunder.PluginError as error:
        said[name] = str(error)
tried("checker that raises", torch.sin)
tried("checker that returns", torch.cos)
tried("transform that raises", torch.tan)
tried("transform that returns", torch.exp)
tried("untrue meta", torch.erf, debug_options=thunder.DebugOptions(check_traces=True))
tried("gradient rule", torch.abs, grad=True)
tried("hook of a transform", torch.relu, transforms=[kernels.Culprit()])
tried("stage", torch.relu, wanted=["stage"])
tried("cache state", torch.relu, wanted=["state"])
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What faults of an installed plugin are told as."""
    site = tmp_path_factory.mktemp("site")
    write_distribution(site, "acme", ACME)
    (site / "thunder_acme_kernels.py").write_text(KERNELS, encoding="utf-8")
    record = next(site.glob("*.dist-info")) / "RECORD"
    record.write_text("thunder_acme.py,,\nthunder_acme_kernels.py,,\n", encoding="utf-8")
    done = run_python(
        "-c",
        PROGRAM,
        env={
            "PYTHONPATH": f"{site}:{SOURCE}",
            "PATH": "",
            "OMP_NUM_THREADS": "1",
            "THUNDER_PLUGIN_STRICT": "1",
            "THUNDER_DISABLE_PLUGINS": ",".join(workspace_plugins.NAMES),
        },
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, str] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize(
    "fault",
    [
        "checker that raises",
        "checker that returns",
        "transform that raises",
        "transform that returns",
        "untrue meta",
        "gradient rule",
        "hook of a transform",
        "stage",
        "cache state",
    ],
)
def test_a_fault_of_an_installed_plugin_names_its_distribution(said: dict[str, str], fault: str) -> None:
    assert "from:  thunder-acme 0.3.1, thunder_acme" in said[fault]


def test_a_fault_of_what_the_program_registered_names_its_module() -> None:
    ex = OperatorExecutor("origins_here")
    ex.register_implementation("torch.sin", execution_transform=lambda a: 3)
    with pytest.raises(thunder.PluginError) as caught:
        thunder.jit(torch.sin, executors=[ex])(torch.ones(3))
    assert caught.value.facts["from"] == f"module {__name__}"


class Asking:
    """A plugin of the program, whose hook for somebody else's executor fails."""

    @hookimpl
    def thunder_checkers(self, executor: Any) -> list[Any]:
        return [("torch.sin", 3)]


def test_a_fault_of_a_plugin_of_the_program_names_its_module() -> None:
    ex = OperatorExecutor("origins_asked")
    with get_manager().temporary(Asking(), "asking"), pytest.raises(thunder.PluginError) as caught:
        thunder.jit(torch.sin, executors=[ex])
    assert caught.value.facts["from"] == __name__
    assert "'asking'" in str(caught.value)


def test_a_checker_from_another_plugin_is_not_blamed_on_the_executor() -> None:
    ex = OperatorExecutor("origins_checked")
    ex.provided_by = "thunder-checked 1.0, checked"
    ex.register_implementation("torch.sin", execution_transform=lambda a: a)
    assert ex.origin_of(ex.implmap["torch.sin"].execution_transform) == "thunder-checked 1.0, checked"
    assert ex.origin_of(without_origin) == f"module {__name__}"


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (pytest.raises, "pytest"),
        (partial(pytest.raises, KeyError), "pytest"),
        (torch.nn.Linear, "torch"),
        (torch.nn.ReLU(), "torch"),
        ("torch.nn", "torch"),
        ("no_such_module", "module no_such_module"),
    ],
)
def test_where_a_thing_comes_from(what: object, words: str) -> None:
    assert origin_of(what).startswith(words)
