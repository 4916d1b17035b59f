"""The models of `zoo`, compiled unmodified."""

import pytest

from .contract import Case, ModelContract, Session, modes, run_session
from .zoo import MAKERS

CASES: list[Case] = [case for name, make in MAKERS.items() for case in modes(name, make)]


@pytest.fixture(scope="module", params=CASES, ids=str)
def session(request: pytest.FixtureRequest) -> Session:
    """The calls that all properties of one model are read from."""
    return run_session(request.param)


class TestZoo(ModelContract):
    """Many families of models, each in evaluation and in training."""
