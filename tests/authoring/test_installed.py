"""Packages of strangers, installed where nothing of this tree is to be found: discovered, tested, at work.

They are those that `python -m thunder new-executor` and `new-transform` write, and the example.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import workspace_plugins
from authoring.installing import ROOT, Environment

ORIGIN = """
import thunder, thunder_rowwise, thunder_acme_fast, thunder_acme_fusion, thunder_acme_int8
modules = thunder, thunder_rowwise, thunder_acme_fast, thunder_acme_fusion, thunder_acme_int8
print("\\n".join(m.__file__ for m in modules))
"""

MODEL = """
import json, torch, thunder
from thunder_rowwise import swiglu
torch.manual_seed(0); torch.set_default_dtype(torch.float64)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.RMSNorm(512, eps=1e-6)
        self.fc = torch.nn.Linear(512, 512)

    def forward(self, x):
        h = torch.nn.functional.gelu(self.fc(self.norm(x)))
        return swiglu(h, x)

model, x = Model(), torch.randn(512, 512)
compiled = thunder.jit(model)
expected = model(x)
result = compiled(x)
torch.testing.assert_close(result, expected)
parameters = list(model.parameters())
torch.testing.assert_close(
    torch.autograd.grad(result.sum(), parameters), torch.autograd.grad(expected.sum(), parameters)
)
explained = thunder.explain(compiled)
rows = [(r.trace, r.symbol, r.claimed_by) for r in explained.rows if r.claimed_by in ("rowwise", "acme_fast")]
print(json.dumps({"rows": rows, "text": str(explained)}))
"""

#: why the kit skips the training of an operator that is called by its own name
WITHOUT_GRADIENT = "no sample of {} can be differentiated in a compiled function"
OPERATORS = (
    "acme_fast.gelu",
    "acme_fast.gelu_backward",
    "rowwise.rms_norm_backward",
    "rowwise.rms_norm_forward",
    "rowwise.swiglu_backward",
)


@pytest.fixture(scope="module")
def outcome(installed: Environment) -> dict[str, object]:
    """What became of a model that uses both packages, with default executors."""
    result: dict[str, object] = json.loads(installed.python("-c", MODEL))
    return result


def test_everything_comes_from_the_installed_wheels(installed: Environment) -> None:
    origins = installed.python("-c", ORIGIN).split()
    assert len(origins) == 5
    assert all(Path(origin).is_relative_to(installed.site) for origin in origins)
    assert not any(Path(origin).is_relative_to(ROOT) for origin in origins)


def test_the_packages_are_listed_as_loaded(installed: Environment) -> None:
    listed = json.loads(installed.python("-m", "thunder", "plugins", "--json"))
    found = {plugin["name"]: plugin for plugin in listed}
    for name in ("acme_fast", "acme_fusion", "acme_int8", "rowwise"):
        assert found[name]["state"] == "loaded"
        assert found[name]["package"] == f"thunder-{name.replace('_', '-')}"
        is_transform = name == "acme_int8"
        assert [ex["name"] for ex in found[name]["executors"]] == ([] if is_transform else [name])
        assert found[name]["transforms"] == (["AcmeInt8"] if is_transform else [])


def test_discovery_imports_no_kernels(installed: Environment) -> None:
    program = (
        "import sys, thunder; thunder.plugins.list_plugins(); "
        "names = [m for m in sys.modules if not m.startswith('thunder.')]; "
        "print([m for m in names if m.endswith(('.executor', '.transform'))])"
    )
    assert installed.python("-c", program).strip() == "[]"


def test_the_tests_of_the_packages_pass(
    installed: Environment, generated: dict[str, Path], example: Path, whole_run: bool
) -> None:
    """A default run has those of the example and of the first package that is written."""
    folders = [example, *list(generated.values())[: None if whole_run else 1]]
    skipped = installed.test(*(folder / "tests" for folder in folders))
    assert sorted(skipped) == [WITHOUT_GRADIENT.format(operator) for operator in OPERATORS]


def test_the_examples_of_the_readmes_run(installed: Environment, generated: dict[str, Path]) -> None:
    texts = [(folder / "README.md").read_text(encoding="utf-8") for folder in generated.values()]
    examples = [text.partition("```python\n")[2].partition("```")[0] for text in texts]
    printed = installed.python("-c", "\n".join(examples))
    for shown in ("acme_fast.gelu ", "acme_fusion0(", "i8[8, 8]"):
        assert shown in printed


def test_a_model_that_names_no_executor_is_accelerated_by_both(outcome: dict[str, object]) -> None:
    assert outcome["rows"] == [
        ["forward", "rowwise.rms_norm_forward", "rowwise"],
        ["forward", "acme_fast.gelu", "acme_fast"],
        ["forward", "rowwise.swiglu", "rowwise"],
        ["backward", "rowwise.swiglu_backward", "rowwise"],
        ["backward", "acme_fast.gelu_backward", "acme_fast"],
        ["backward", "rowwise.rms_norm_backward", "rowwise"],
    ]


def test_the_ledger_shows_them_as_text(outcome: dict[str, object]) -> None:
    text = str(outcome["text"])
    assert "acme_fast.gelu" in text
    assert "rowwise.rms_norm_forward" in text


def test_a_package_that_is_switched_off_is_not_used(installed: Environment) -> None:
    program = "import thunder; print([ex.name for ex in thunder.get_default_executors()])"
    assert installed.python("-c", program).strip() == "['acme_fast', 'rowwise', 'acme_fusion']"
    printed = installed.python(
        "-c", program, THUNDER_DISABLE_PLUGINS=",".join(("thunder-rowwise", *workspace_plugins.NAMES))
    )
    assert printed.strip() == "['acme_fast', 'acme_fusion']"
