"""Models of the `transformers` library, compiled unmodified."""

import pytest

from . import transformers_zoo
from .contract import Case, ModelContract, Session, modes, run_session

CASES: list[Case] = [case for name, make in transformers_zoo.MAKERS.items() for case in modes(name, make)]


@pytest.fixture(scope="module", params=CASES, ids=str)
def session(request: pytest.FixtureRequest) -> Session:
    """The calls that all properties of one model are read from."""
    return run_session(request.param)


class TestTransformers(ModelContract):
    """Two encoders and two decoders, tiny and randomly initialised."""
