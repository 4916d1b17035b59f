"""A slice of torch's samples of operators with symbolic sizes (`hatch run sweep symbolic-operators`)."""

import pytest

from sweeping import one_in
from symbolic.operator_samples import ENTRIES, Outcome, passes, recorded, run_with_gradients, verdict


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", one_in(40, sorted(ENTRIES)))
def test_an_operator_serves_other_sizes_unless_the_record_says_why_not(name):
    found = verdict(name, first=3)
    known = recorded().get(name, Outcome("free"))
    assert found is None or (found.kind if not passes(found) else "free") in (known.kind, "free"), (
        found.reason
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", one_in(60, sorted(ENTRIES)))
def test_the_gradients_of_an_operator_with_symbolic_sizes_are_eagers(name):
    found = verdict(name, first=3, hows=(run_with_gradients,))
    assert found is None or found.kind != "wrong", found.reason


def test_most_operators_are_recorded_to_serve_other_sizes():
    assert len(ENTRIES) - len(recorded()) >= 600
