"""The digits example: a frozen trunk stays, freezing compiles once more, and everything is as in eager."""

from __future__ import annotations

import re

import pytest
import torch

import finetune_digits
from curves import Curve
from finetune_digits import PHASES, Run


def test_two_epochs_learn_the_digits_and_agree_with_eager(capsys: pytest.CaptureFixture[str]):
    finetune_digits.main(["--epochs", "2"])
    printed = capsys.readouterr().out
    rows = re.findall(r"^(digits .*?)  +(\d\.\d{3}) +(\d\.\d{3}) +(\d) *(.*)$", printed, re.M)
    assert [row[0] for row in rows] == [phase.name for phase in PHASES]
    assert [row[1] for row in rows] == [row[2] for row in rows]
    assert all(float(row[1]) > 0.85 for row in rows)
    assert [row[3] for row in rows] == ["1", "1", "0"]  # unfreezing finds the first program again
    assert rows[1][4] == "self.trunk[0].weight: requires_grad False"
    assert re.search(r"losses of all 126 steps: thunder equals eager", printed)


def test_the_digits_have_labels_from_0_and_nothing_is_in_both_parts():
    train, test = finetune_digits.digits(5, seed=0)
    images, labels = train.tensors
    assert set(labels.tolist()) == set(test.tensors[1].tolist()) == set(range(5))
    assert images.shape[1:] == (1, 8, 8)
    assert images.min() == 0
    assert images.max() == 1
    seen = {image.numpy().tobytes() for image in images}
    assert not any(image.numpy().tobytes() in seen for image in test.tensors[0])


def test_a_frozen_trunk_stays_as_it_is_while_the_head_learns():
    chosen = finetune_digits.options(["--epochs", "1"])
    model = finetune_digits.build(chosen.seed)
    run = Run(model, model, Curve("eager"))
    finetune_digits.prepare(model, PHASES[1], chosen.seed)
    trunk = {name: tensor.clone() for name, tensor in model.trunk.state_dict().items()}
    head = model.head.weight.detach().clone()
    finetune_digits.fit(run, finetune_digits.digits(5, chosen.seed)[0], chosen)
    torch.testing.assert_close(model.trunk.state_dict(), trunk, rtol=0, atol=0)
    assert not torch.equal(model.head.weight, head)
    losses = run.curve.losses
    assert sum(losses[-5:]) < sum(losses[:5])
