"""The conformance tests as an author uses them: the call, the class, known gaps, what is missing."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from unittest import SkipTest

import pytest
import torch

import thunder
from testing.example_executors import gate_executor, gate_kernel, name, one_operator, tensor
from thunder import TensorProxy
from thunder.base.errors import InvalidArgument, UnknownExecutor
from thunder.extend import OperatorExecutor
from thunder.testing import ConformanceFailure, Sample, conformance
from thunder_testing.import_case import check_import, module_of
from thunder_testing.interleaving import interleaved
from thunder_testing.rule_cases import RULE_PROPERTIES
from thunder_testing.subjects import Settings
from thunder_testing.suite import FUSION_PROPERTIES, OPERATOR_PROPERTIES
from thunder_testing.transform_cases import TRANSFORM_PROPERTIES

pytest_plugins = ["pytester"]


def test_each_property_has_a_case_for_each_operator() -> None:
    tested = gate_executor(operators="*")
    symbol = tested.executor.opmap["gate"]
    names = [str(case) for case in conformance(tested.executor, **tested.arguments)]
    assert names[-1] == "import"
    assert [n.removesuffix(f"-{symbol.id}") for n in names if n.endswith(f"-{symbol.id}")] == list(
        OPERATOR_PROPERTIES
    )
    assert not [n for n in names if n.startswith(tuple(FUSION_PROPERTIES))]
    assert f"gradient-{symbol.id}_backward" not in names, "it brings none"


def test_an_operator_without_samples_fails_and_says_how_to_give_some() -> None:
    executor = OperatorExecutor(name())
    executor.register_operator("bare", meta=lambda x: TensorProxy(like=x), fn=lambda x: -x)
    case = next(iter(conformance(executor)))
    with pytest.raises(
        ConformanceFailure, match="it is not tested, since there are no sample calls: give samples="
    ) as error:
        case.run()
    assert f"samples={{'{executor.name}.bare': [((x, weight), {{'eps': 1e-5}}), …]}}" in str(error.value)


def test_samples_are_calls_or_samples_or_a_function_that_gives_them() -> None:
    x = tensor(2, 3)

    def made(device: torch.device, dtype: torch.dtype, requires_grad: bool) -> list[Sample]:
        return [Sample((x.to(device, dtype),), name="mine")]

    for samples in ([(x,)], [((x,), {})], [Sample((x,))], made):
        tested = one_operator(torch.neg, torch.neg, samples=samples)
        (case,) = (c for c in conformance(tested.executor, **tested.arguments) if c.property == "values")
        case.run()
    tested = one_operator(torch.neg, torch.neg, samples=[x])
    with pytest.raises(InvalidArgument, match="a sample is the arguments of a call"):
        next(iter(conformance(tested.executor, **tested.arguments))).run()


def test_names_that_are_none_are_refused_with_the_nearest() -> None:
    tested = gate_executor()
    with pytest.raises(InvalidArgument, match=r"has no operator 'gaet' to test") as error:
        conformance(tested.executor, samples={"gaet": []})
    assert "gate" in str(error.value)
    with pytest.raises(InvalidArgument, match=r"there is no case 'value-torch\.add'"):
        conformance("torch", operators="torch.add", expected_failures={"value-torch.add": "it is off by one"})
    with pytest.raises(UnknownExecutor, match="there is no executor 'nobodys_executor'"):
        conformance("nobodys_executor")


def test_a_case_leaves_nothing_changed() -> None:
    tested = gate_executor(fn=lambda x, w, alpha: (torch.set_default_dtype(torch.float64), x + w)[1])
    for case in conformance(tested.executor, **tested.arguments):
        if case.property in ("values", "state"):
            fault = "result 0 is wrong" if case.property == "values" else "leaves the default dtype changed"
            with pytest.raises(ConformanceFailure, match=fault):
                case.run()
            assert torch.get_default_dtype() is torch.float32


def test_own_tolerances_hold() -> None:
    tested = gate_executor(fn=lambda x, w, alpha: gate_kernel(x, w, alpha) + 1e-4)
    (case,) = (c for c in conformance(tested.executor, **tested.arguments) if c.property == "values")
    with pytest.raises(ConformanceFailure, match="result 0 is wrong"):
        case.run()
    loose = dict.fromkeys((torch.float32, torch.float64, torch.bfloat16), (1e-2, 1e-2))
    arguments = {**tested.arguments, "tolerances": loose}
    (case,) = (c for c in conformance(tested.executor, **arguments) if c.property == "values")
    case.run()


# -- the class -----------------------------------------------------------------------------------------------

SUITE = """
import torch
import thunder
from thunder import TensorProxy
from thunder.extend import OperatorExecutor

my_ex = OperatorExecutor("stranger")
half = my_ex.register_operator("half", meta=lambda x: TensorProxy(like=x), fn=lambda x: x * {factor})


class TestMine(thunder.testing.ConformanceTests):
    executor = my_ex
    samples = {{"half": [(torch.ones(3),), (torch.randn(2, 3),)]}}
    references = {{"half": lambda x: x / 2}}
{more}
"""


def suite(pytester: pytest.Pytester, factor: float, more: str = "") -> pytest.RunResult:
    pytester.makepyfile(test_mine=SUITE.format(factor=factor, more=textwrap.indent(more, "    ")))
    return pytester.runpytest_inprocess("-k", "not import", "-p", "no:cacheprovider")


def test_a_subclass_of_one_line_makes_a_test_of_each_case(pytester: pytest.Pytester) -> None:
    suite(pytester, 0.5).assert_outcomes(passed=len(OPERATOR_PROPERTIES) - 2, skipped=1, deselected=1)


def test_a_wrong_executor_fails_by_name(pytester: pytest.Pytester) -> None:
    result = suite(pytester, 0.6)
    result.assert_outcomes(passed=len(OPERATOR_PROPERTIES) - 5, failed=3, skipped=1, deselected=1)
    result.stdout.fnmatch_lines(["FAILED *::TestMine::test_conformance[[]values-stranger.half[]]*"])


def test_a_known_gap_is_an_expected_failure_until_it_is_fixed(pytester: pytest.Pytester) -> None:
    names = ("values", "jit", "shapes")
    gaps = f"expected_failures = {dict.fromkeys([f'{n}-stranger.half' for n in names], 'it rounds')}"
    passed = len(OPERATOR_PROPERTIES) - 5
    suite(pytester, 0.6, gaps).assert_outcomes(passed=passed, xfailed=3, skipped=1, deselected=1)
    suite(pytester, 0.5, gaps).assert_outcomes(passed=passed, failed=3, skipped=1, deselected=1)


# -- imports -------------------------------------------------------------------------------------------------


def test_the_module_of_an_executor_is_found() -> None:
    assert module_of(thunder.get_executor("torch")) == "thunder.executors.torchex"
    assert module_of(OperatorExecutor(name())) is None
    with pytest.raises(SkipTest, match="pass module="):
        check_import(OperatorExecutor(name()), Settings())


def test_a_module_that_needs_its_device_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_cuda.py").write_text("import torch\nsm = torch.cuda.get_device_capability()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConformanceFailure, match="cannot be imported without a device") as error:
        check_import(OperatorExecutor(name()), Settings(module="needs_cuda"))
    assert "No CUDA GPUs are available" in str(error.value)


# -- interleaving --------------------------------------------------------------------------------------------


def test_the_other_function_runs_at_each_line() -> None:
    seen: list[str] = []

    def mine() -> str:
        seen.append("a")
        seen.append("b")
        return "mine"

    results = interleaved(mine, lambda: seen.append("|"))
    assert results.mine == ["mine"]
    assert "".join(seen).strip("|") in ("a|b", "a||b")
    assert len(results.others) >= 3


# -- the guide -----------------------------------------------------------------------------------------------


def test_the_guide_names_each_property_and_each_setting() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \|", guide, re.MULTILINE)
    settings = ["operators", "devices", "dtypes", "tolerances", "expected_failures", "module", "programs"]
    assert rows == [
        *OPERATOR_PROPERTIES,
        *FUSION_PROPERTIES,
        *settings,
        *RULE_PROPERTIES,
        *TRANSFORM_PROPERTIES,
    ]
