"""The demo trains: its loss falls and is eager's, the picture is there, a difference would be noticed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import demo
from curves import Curve, assert_equal, draw, largest_difference
from new_processes import run_python

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"
TINY = ("--layers", "1", "--batch", "4", "--length", "16", "--warmup", "5", "--sample", "8")


def curve(name: str, losses: list[float]) -> Curve:
    """A curve whose steps took a millisecond each."""
    return Curve(name, losses, [0.001] * len(losses))


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((), id="tied", marks=pytest.mark.sweep),
        pytest.param(("--untied", "--traces"), id="untied with traces"),
    ],
)
def test_demo_trains_compares_draws_and_generates(tmp_path: Path, arguments: tuple[str, ...]):
    picture = tmp_path / "new" / "curves.png"
    run = run_python(str(DEMO), *TINY, "--steps", "60", "--out", str(picture), *arguments)
    assert run.returncode == 0, run.stderr
    assert "losses of the first 50 steps: thunder equals eager" in run.stdout
    programs = ["computation", "backward_fn"] if "--traces" in arguments else []
    assert re.findall(r"^def (\w+)\(", run.stdout, re.M) == programs
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = re.findall(r"^(eager|thunder) +([\d.]+) +([\d.]+) +[\d.]+ ms +[\d.]+ ms +\d+$", run.stdout, re.M)
    assert [name for name, _, _ in rows] == ["eager", "thunder"]
    assert all(float(last) < 4 and float(held_out) < 4 for _, last, held_out in rows)  # from ln 256 = 5.5
    assert "compiled 3 times" in run.stdout
    assert run.stdout.partition("to generate\n\n")[2].startswith("The ")
    assert re.search(r"thunder: 100%.*60/60.*loss [\d.]+, \d+ tokens/s", run.stderr)


def test_two_micro_batches_of_four_rows_train_like_one_of_eight():
    source, _ = demo.text()
    runs = []
    for rows, count in (("8", "1"), ("4", "2")):
        chosen = demo.options([*TINY, "--steps", "6", "--batch", rows, "--accumulate", count])
        model = demo.build(chosen)
        runs.append(demo.train("eager", model, model, source, chosen))
    assert_equal(runs[1], runs[0], steps=6, tolerance=1e-5)
    assert runs[0].losses[-1] < runs[0].losses[0]


def test_the_learning_rate_rises_and_then_falls_to_a_tenth():
    factors = [demo.rate_factor(step, warmup=10, steps=100) for step in range(101)]
    assert factors[:2] == [0.1, 0.2]
    assert factors.index(max(factors)) in (9, 10)
    assert max(factors) == 1
    assert factors[10:] == sorted(factors[10:], reverse=True)
    assert factors[-1] == pytest.approx(0.1)


def test_batches_of_one_seed_are_the_same_and_targets_are_the_next_tokens():
    source, held_out = demo.text()
    first, again = (next(demo.batches(source, 3, 12, seed=1)) for _ in range(2))
    other = next(demo.batches(source, 3, 12, seed=2))
    tokens, targets = first
    assert tokens.shape == targets.shape == (3, 12)
    torch.testing.assert_close(tokens[:, 1:], targets[:, :-1], rtol=0, atol=0)
    assert torch.equal(tokens, again[0])
    assert not torch.equal(tokens, other[0])
    assert len(source) > 8 * len(held_out) > 0


def test_another_loss_within_the_compared_steps_is_an_error():
    eager, jitted = curve("eager", [3.0, 2.0, 1.0]), curve("thunder", [3.0, 2.001, 9.0])
    with pytest.raises(AssertionError, match="the losses of thunder are not those of eager"):
        assert_equal(jitted, eager, steps=2, tolerance=1e-4)
    assert largest_difference(jitted, eager, steps=2) == pytest.approx(1e-3)
    assert_equal(jitted, eager, steps=1, tolerance=1e-4)


def test_a_loss_that_is_not_a_number_is_an_error():
    nan = curve("thunder", [float("nan")])
    with pytest.raises(AssertionError, match="the losses of thunder"):
        assert_equal(nan, curve("eager", [1.0]), steps=1, tolerance=1e-4)


def test_the_picture_shows_two_runs(tmp_path: Path):
    path = tmp_path / "curves.png"
    draw([curve("eager", [2.0, 1.0]), curve("thunder", [2.0, 1.0])], path)
    assert path.stat().st_size > 5_000
