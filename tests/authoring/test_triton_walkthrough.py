"""The walk of the tutorials with kernels of Triton: on the CPU in Triton's interpreter, on a GPU compiled.

The cells are `triton_walkthrough.py`; here is what they are to show. Values and gradients are judged by
eager in float64.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import pytest

from new_processes import run_python

CELLS = Path(__file__).with_name("triton_walkthrough.py")
#: what a float32 kernel may be off, for values of this size
CLOSE = 1e-5

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="Triton has no builds for this platform"
)


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def found(request: pytest.FixtureRequest) -> Any:
    """What the cells show on a device; one process for the whole walk."""
    interpreted = {"TRITON_INTERPRET": "1"} if request.param == "cpu" else {}
    done = run_python(str(CELLS), request.param, env=os.environ | interpreted)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_executor_prints_as_it_is_imported(found: Any) -> None:
    assert found["executor"] == "thunder.extend.OperatorExecutor('my_ex')"


def test_the_operator_is_in_the_program_and_computes_what_eager_does(found: Any) -> None:
    assert "t0 = rms_norm(x, t_weight, -1, 1e-06, False)" in found["operator"]["trace"]
    assert found["operator"]["deviation"] < CLOSE


def test_the_kernel_takes_the_place_of_the_operator(found: Any) -> None:
    assert "(t0, (_, _, _)) = kernel_forward(x, t_weight, 1e-06)" in found["kernel"]["trace"]
    assert "rms_norm(" not in found["kernel"]["trace"].replace("return rms_norm(", "")
    assert found["kernel"]["claimed"] == [["my_ex.rms_norm", "my_ex"]]
    assert found["kernel"]["deviation"] < CLOSE


def test_every_norm_of_a_model_is_the_kernel(found: Any) -> None:
    names = [line.partition("kernel_forward(")[2].split(", ")[1] for line in found["model"]["lines"]]
    assert names == [
        "t_transformer_h_0_norm_1_weight",
        "t_transformer_h_0_norm_2_weight",
        "t_transformer_h_1_norm_1_weight",
        "t_transformer_h_1_norm_2_weight",
        "t_transformer_ln_f_weight",
    ]
    assert found["model"]["deviation"] < CLOSE


def test_the_grad_transform_connects_the_kernels(found: Any) -> None:
    assert "(t0, (t0_p0, _, _)) = kernel_forward(x, t_weight, 1e-06)" in found["gradient"]["forward"]
    assert "= kernel_backward(x, t_weight, t0_p0, 128, 4, " in found["gradient"]["backward"]
    kernels = [row for row in found["gradient"]["claimed"] if row[2] == "my_ex"]
    assert kernels == [
        ["forward", "my_ex.kernel_forward", "my_ex"],
        ["backward", "my_ex.kernel_backward", "my_ex"],
    ]


def test_values_and_gradients_are_those_of_float64(found: Any) -> None:
    assert found["gradient"]["deviation"] < CLOSE
    assert found["gradient"]["gradients"] < CLOSE


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("dim", ["arguments", "the kernel norms the last dimension"]),
        ("offset", ["arguments", "the kernel norms the last dimension"]),
        ("dtype", ["dtype", "the kernel computes in float32"]),
    ],
)
def test_what_the_kernel_declines_the_operator_runs(found: Any, case: str, reason: list[str]) -> None:
    declined = found["declined"][case]
    assert declined["runs"] == "my_ex.rms_norm"
    assert declined["reasons"] == [reason]
    assert declined["deviation"] < CLOSE


def test_a_weight_that_wants_a_gradient_is_left_to_the_operator_which_has_none(found: Any) -> None:
    text = found["declined"]["weight"]
    assert text.startswith("my_ex.rms_norm has no gradient rule")
    assert "return rms_norm(x, self.weight, self.dim, self.eps, self.add_unit_offset)" in text
