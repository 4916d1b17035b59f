"""Processes find together what is wrong in one of them."""

from __future__ import annotations

import pytest


@pytest.mark.multi_process
def test_processes_have_the_same_report(outcomes):
    first, second = (outcome.get() for outcome in outcomes["bisected_together"])
    assert first == second
    assert first["right"].startswith("no difference beyond rounding")
    assert first["findings"] == [("acme", (1,), True), ("acme", (1,), True)]
    assert "on rank  1" in first["wrong"]
